"""`em log` from a user's chair: exit codes, errors that name the fix, exact round trips."""

import json
import os
import pty
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from em_command import EM, em
from tests.children import LIMIT
from tests.raw import run_sql

from em import Memory

BODY = '{"role": "user", "text": "hello"}'


def append(text: str = "hello", *more: str) -> str:
    body = json.dumps({"role": "user", "text": text})
    ran = em("log", "append", "--stream", "run/1", "--kind", "message", body, "--json", *more)
    assert ran.code == 0, ran.err
    event_id: str = ran.json["id"]
    return event_id


def test_append_show_tail_verify() -> None:
    ran = em("log", "append", "--stream", "run/1", "--kind", "message", BODY, "--subject", "ana")
    assert (ran.code, ran.err) == (0, "")
    assert "position 1 of run/1" in ran.out
    append("second", "--at", "2025-01-01")
    shown = em("log", "show").out
    assert "hello" in shown
    assert "2025-01-01 00:00:00" in shown
    assert [e["pos"] for e in em("log", "show", "--json").json["events"]] == [1, 2]
    assert "second" in em("log", "tail", "-n", "1").out
    assert "hello" not in em("log", "tail", "-n", "1").out
    assert "verified" in em("log", "verify").out
    assert em("--json", "log", "verify").json == {
        "ok": True,
        "events": 2,
        "streams": 1,
        "erased": 0,
        "findings": [],
    }


def test_verify_names_a_deleted_stream_and_a_changed_artefact_and_record() -> None:
    append("hello", "--subject", "ana")
    em("observe", "ana", '{"type": "Trip", "city": "Porto"}')
    assert em("state", "checkpoint", "ana").code == 0
    assert em("log", "verify").code == 0
    with closing(sqlite3.connect(".em/em.db")) as connection, connection:
        connection.execute("DELETE FROM events WHERE stream = 'run/1'")
        connection.execute("UPDATE artefacts SET body = replace(body, 'city', 'evil')")
        connection.execute("UPDATE records SET body = replace(body, 'Porto', 'Paris')")
    ran = em("log", "verify")
    assert ran.code == 1
    assert "the whole stream is missing" in ran.out
    assert "run/1" in ran.out
    found = em("log", "verify", "--json").json["findings"]
    assert {(one["noun"], one["problem"]) for one in found} == {
        ("stream", "missing_tail"),
        ("artefact", "changed"),
        ("record", "changed"),
    }
    assert {one["stream"] for one in found if one["noun"] == "record"} == {"ana"}


def test_a_body_comes_from_standard_input() -> None:
    ran = em("log", "append", "--stream", "s", "--kind", "message", "-", stdin=BODY)
    assert ran.code == 0
    assert em("log", "show", "--json").json["events"][0]["body"] == json.loads(BODY)


def test_show_chooses_and_says_when_there_is_more() -> None:
    for n in range(4):
        append(f"n{n}")
    ran = em("log", "show", "-n", "2", "--kind", "message", "--stream", "run/1")
    assert "n1" in ran.out
    assert "n2" not in ran.out
    assert "repeat with --after 2" in ran.err
    rest = em("log", "show", "--after", "2", "--json").json
    assert [e["body"]["text"] for e in rest["events"]] == ["n2", "n3"]
    assert rest["more"] is False
    one = em("log", "show", "--id", rest["events"][0]["id"])
    assert "n2" in one.out
    assert em("log", "show", "--since", "2999-01-01", "--json").json["events"] == []


def test_text_from_events_cannot_steer_the_terminal() -> None:
    append("\x1b[31mred [bold]markup[/bold]\x07")
    shown = em("log", "show").out
    assert "\x1b[31m" not in shown
    assert "\x07" not in shown
    assert "[bold]markup[/bold]" in shown


def test_options_stand_before_or_behind_the_command(tmp_path: Path) -> None:
    for args in (["--db", "a.db", "log", "tail"], ["log", "tail", "--db", "a.db"]):
        assert em(*args).code == 1
    em("log", "append", "--stream", "s", "--kind", "message", BODY, "--db", "a.db")
    assert (tmp_path / "a.db").exists()
    assert em("--db", "a.db", "log", "tail", "--json").json["stream"] == "s"


def test_export_and_import_are_exact_both_ways(tmp_path: Path) -> None:
    for text in ("a", "b", "é🧠\u2028", "sk-ant-api03-" + "a1" * 20):
        append(text)
    append("about ana", "--subject", "ana")
    em("forget", "--subject", "ana", "--yes")
    assert em("log", "export", "out.jsonl").out == "6 events in out.jsonl\n"
    ran = em("log", "import", "out.jsonl", "--db", "copy.db")
    assert (ran.code, ran.out) == (0, "6 events imported\n")
    first, second = (tmp_path / "out.jsonl").read_bytes(), em("log", "export", "--db", "copy.db")
    assert second.out.encode() == first
    assert em("log", "verify", "--db", "copy.db", "--json").json["erased"] == 1
    again = em("log", "import", "-", "--db", "copy.db", stdin=first)
    assert again.out == "0 events imported, 6 already there\n"
    assert em("log", "export", "--db", "copy.db").out.encode() == first


def test_an_import_does_not_bring_back_what_was_forgotten(tmp_path: Path) -> None:
    event_id = append("to be forgotten")
    em("log", "export", "before.jsonl")
    em("forget", "--event", event_id, "--yes")
    assert em("log", "import", "before.jsonl").out == "0 events imported, 1 already there\n"
    assert "to be forgotten" not in em("log", "show").out


def test_an_export_replaces_a_file_only_when_it_is_whole(tmp_path: Path) -> None:
    append()
    (tmp_path / "out.jsonl").write_text("old")
    connection = sqlite3.connect(".em/em.db")
    connection.execute("UPDATE events SET body = 'garbage'")
    connection.commit()
    connection.close()
    ran = em("log", "export", "out.jsonl")
    assert ran.code == 1
    assert "em log verify" in ran.err
    assert (tmp_path / "out.jsonl").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".em", "out.jsonl"]


def test_lines_without_a_hash_are_new_events() -> None:
    line = json.dumps({"stream": "s", "kind": "note", "body": {"n": 1}}) + "\n"
    assert em("log", "import", stdin=line * 3).out == "3 events imported\n"
    named = json.dumps({"stream": "s", "kind": "note", "body": {}, "id": "x", "at": "2025-01-01"})
    assert em("log", "import", stdin=named).out == "1 event imported\n"
    assert em("log", "import", stdin=named).out == "0 events imported, 1 already there\n"


def test_a_forged_line_is_refused(tmp_path: Path) -> None:
    append("honest")
    forged = em("log", "export").out.replace("honest", "forged")
    ran = em("log", "import", "--db", "copy.db", stdin=forged)
    assert ran.code == 1
    assert "the body does not match its hash" in ran.err
    assert em("log", "import", stdin=forged).code == 1, "also where the event is there already"
    exported = em("log", "export").out
    own = json.loads(exported)["hash"]
    conflict = em("log", "import", stdin=exported.replace(own, "0" * 64))
    assert conflict.code == 1
    assert "the log has another event with this id; nothing was imported" in conflict.err
    for field in ("hash", "salt"):
        broken = json.loads(exported) | {field: "zz"}
        assert f"field {field}" in em("log", "import", stdin=json.dumps(broken)).err


GOOD = b'{"stream":"s","kind":"note","body":{}}\n'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"stream": "s", "kind": ', "standard input:3: expected JSON"),
        (b'{"stream":"s","kind":"note","body":{"x":NaN}}', "standard input:3: expected JSON"),
        (
            b'{"stream":"s","kind":"note","body":{"x":"\xff"}}',
            "standard input:3: expected UTF-8",
        ),
        (b'{"stream":"s","kind":"note","body":{"x":"\\ud800"}}', "standard input:3"),
        (
            b'{"stream":"s","kind":"note","body":' + b'{"x":' * 10_000 + b"1" + b"}" * 10_001,
            "standard input:3: nested more than 100 levels deep",
        ),
        (
            b'{"stream":"s","kind":"note","body":' + b'{"x":' * 200 + b"1" + b"}" * 201,
            "standard input:3, field body: nested more than 100 levels deep",
        ),
        (
            b'{"stream":"s","kind":"message","v":9,"body":{}}',
            "expected version 1 of 'message', got 9",
        ),
        (b'{"stream":"s","kind":"note","bdy":{}}', "did you mean 'body'?"),
        (b'{"kind":"note","body":{}}', "missing required field `stream`"),
        (b'{"stream":"s","kind":"note","body":[]}', "field body"),
        (
            b'{"stream":"s","kind":"message","body":{"role":"user"}}',
            "missing required field `text`",
        ),
        (b'{"stream":"s","kind":"note","body":{},"at":"soon"}', "expected a date or time"),
        (b'{"stream":"s","kind":"note","body":{},"hash":"00"}', "has no 'id'"),
        (b'{"stream":"s","kind":"note","body":null}', "has no body"),
        (b'{"stream":"a\\u0000b","kind":"note","body":{}}', "field stream"),
        (b"[1, 2]", "standard input:3"),
        (b"hello", "standard input:3: expected JSON"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(line: bytes, says: str) -> None:
    append("already there")
    ran = em("log", "import", stdin=GOOD + b"\n" + line + b"\n" + GOOD)
    assert ran.code == 1
    assert says in ran.err
    assert em("log", "verify", "--json").json["events"] == 1


def test_a_line_of_200_mb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    append("already there")
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.write(b'{"stream":"s","kind":"note","body":{"x":"')
        for _ in range(200):
            file.write(b"x" * 1_000_000)
        file.write(b'"}}\n')
    limited = ["bash", "-c", 'ulimit -v 2000000; exec "$@"', "bash", *EM]
    run = subprocess.run(
        [*limited, "log", "import", "huge.jsonl"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "huge.jsonl:1: a line may have" in run.stderr
    assert em("log", "verify", "--json").json["events"] == 1


def test_empty_input_blank_lines_and_a_byte_order_mark_are_fine() -> None:
    assert em("log", "import", stdin=b"").out == "0 events imported\n"
    assert em("log", "import", stdin=b"\n\n  \n").out == "0 events imported\n"
    assert em("log", "import", stdin=b"\xef\xbb\xbf" + GOOD).out == "1 event imported\n"


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["log", "show"], 1, "there is no log at this path"),
        (["log", "shwo"], 2, "No such command"),
        (["lgo"], 2, "Did you mean 'log'?"),
        (["log", "append", "--stream", "s", "--kind", "note", "{"], 2, "expected a JSON object"),
        (["log", "append", "--stream", "s", "--kind", "note", "[]"], 2, "expected a JSON object"),
        (["log", "append", "--stream", "s", "{}"], 2, "--kind"),
        (["log", "append", "--stream", "s", "--kind", "N", "{}"], 2, "expected a kind of event"),
        (["log", "import", "nothing.jsonl"], 2, "does not exist"),
        (["log", "import", "."], 2, "found a folder"),
        (["log", "show", "--db", "."], 1, "found a folder"),
        (["log", "show", "--db", "file.txt"], 1, "not an em database"),
        (["log", "show", "--db", "mysql://x"], 2, "not supported"),
        (["log", "show", "--db", "em.db", "--since", "soon"], 2, "expected a date or time"),
        (["log", "show", "--db", "em.db", "--id", "x"], 1, "no event has the id"),
        (["log", "export", "--db", "em.db", "no/such/folder/x"], 2, "can't be written"),
        (["log", "verify", "--db", "em.db", "--head", "file.txt"], 2, "expected heads"),
        (["forget"], 2, "nothing to forget"),
        (["forget", "--event", "x", "--db", "em.db"], 1, "no event has the id"),
    ],
)
def test_mistakes_have_an_exit_code_and_name_the_fix(
    tmp_path: Path, args: list[str], code: int, says: str
) -> None:
    (tmp_path / "file.txt").write_text("hello, I am no database\n" * 100)
    Memory(tmp_path / "em.db").close()
    ran = em(*args)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    as_json = em(*args, "--json")
    if "Usage" not in as_json.err:
        assert json.loads(as_json.err)["error"]["message"]
        assert as_json.code == code


def test_verify_names_what_was_done_to_the_log(tmp_path: Path) -> None:
    for n in range(3):
        append(f"n{n}")
    assert em("log", "verify", "--save-head", "head.json").code == 0
    connection = sqlite3.connect(".em/em.db")
    connection.execute("DELETE FROM events WHERE pos = 3")
    connection.commit()
    for more in ([], ["--head", "head.json"]):
        missing = em("log", "verify", *more)
        assert missing.code == 1
        assert "position 3 is missing at the end" in missing.out
    connection.execute("DELETE FROM events WHERE pos = 1")
    connection.commit()
    connection.close()
    removed = em("log", "verify", "--json", "--save-head", "other.json")
    assert removed.code == 1
    assert removed.json["findings"][0]["problem"] == "removed"
    assert not (tmp_path / "other.json").exists()


@pytest.mark.parametrize("reader", ["head -c 1", "true"])
@pytest.mark.parametrize("args", [["log", "export"], ["log", "show"], ["--help"], ["log", "-h"]])
def test_the_reader_of_a_pipe_may_leave(reader: str, args: list[str]) -> None:
    for n in range(3):
        append(f"n{n}" * 5_000)
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$@" | {reader}', "bash", *EM, *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_tail_follows_until_ctrl_c() -> None:
    append("first")
    process = subprocess.Popen(
        [*EM, "log", "tail", "-f", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert b"first" in process.stdout.readline()
    append("second")
    assert b"second" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, b"")


def test_ctrl_c_during_an_import_leaves_the_log_whole(tmp_path: Path) -> None:
    line = json.dumps({"stream": "s", "kind": "note", "body": {"x": "y" * 500}})
    (tmp_path / "many.jsonl").write_text(f"{line}\n" * 200_000)
    process = subprocess.Popen([*EM, "log", "import", "many.jsonl"], stderr=subprocess.PIPE)
    while not Path(".em/em.db").exists() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert b"interrupted" in err
    assert b"Traceback" not in err
    assert em("log", "verify", "--json").json["events"] == 0, "all of it, or nothing"


def test_hostile_text_never_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    hostile = "\x1b]0;PWNED\x07 \x9b2J \u202e"
    append(hostile)
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*EM, "log", "tail", "-n", "1", "-f"], stdout=child, stderr=child, stdin=child
    )
    os.close(child)
    shown = b""
    for words in (b"PWNED", b"second"):
        while words not in shown:
            shown += os.read(parent, 65_536)
        append(hostile + "second")
    process.send_signal(signal.SIGINT)
    process.wait(timeout=LIMIT)
    os.close(parent)
    line = json.dumps({"stream": "s", "kind": "note", "body": {}, hostile: 1})
    others = [
        em("log", "show").out,
        em("log", "show", "--id", "1").out,
        em("log", "import", stdin=line).err,
        em("log", "show", "--db", hostile).err,
    ]
    for text in (shown.decode(), *others):
        assert not {"\x07", "\x9b", "\u202e"} & set(text)
        assert "\x1b]" not in text


def test_an_event_is_named_by_its_number_too() -> None:
    event_id = append("first")
    assert em("log", "show", "--id", "1", "--json").json["id"] == event_id
    assert em("log", "show", "--id", "2").code == 1
    assert "erased 1 event" in em("forget", "--event", "1", "--yes").out
    fact = em("forget", "--event", "2", "--yes")
    assert fact.code == 2
    assert "the record of an erasure can't be erased" in fact.err


def test_rechaining_leaves_out_what_was_erased() -> None:
    event_id = append("to go", "--subject", "ana")
    append("to stay", "--subject", "ana")
    em("forget", "--event", event_id, "--yes")
    exported = em("log", "export", "--subject", "ana").out
    ran = em("log", "import", "--rechain", "--db", "new.db", stdin=exported)
    assert ran.out == "1 event imported, 2 erased and left out\n"
    assert em("log", "import", "--rechain", stdin=exported).out.startswith("1 event imported")


def test_two_exports_put_together_are_one_log() -> None:
    append("one")
    exported = em("log", "export").out
    append("two")
    both = exported + em("log", "export").out
    assert em("log", "import", "--db", "copy.db", stdin=both).out == (
        "2 events imported, 1 already there\n"
    )


def test_an_export_during_which_something_is_forgotten_can_be_imported() -> None:
    from em import Draft

    with Memory("big.db") as memory:
        events = memory.log.append_many(
            [Draft(stream="s", kind="note", body={"n": n}) for n in range(5_000)]
        )
        lines = memory.log.export()
        exported = [next(lines)]
        memory.forget(events[4_000])
        exported += lines
    assert em("log", "import", "--db", "copy.db", stdin=b"".join(exported)).code == 0
    assert em("log", "verify", "--db", "copy.db", "--json").json["erased"] == 1


def test_one_trace_is_forgotten_by_its_id() -> None:
    with Memory("em.db") as memory:
        gone, kept = (
            memory.add_trace(
                {
                    "mission": {"goal": goal},
                    "events": [{"type": "tool_call", "tool": "look", "args": {"at": goal}}],
                }
            )
            for goal in ("marker-one", "marker-two")
        )
    ran = em("--db", "em.db", "forget", "--trace", gone, "--yes")
    assert ran.code == 0, ran.err
    assert b"marker-one" not in Path("em.db").read_bytes()
    with Memory("em.db") as memory:
        assert [one.id for one in memory.traces()] == [kept]
    assert em("--db", "em.db", "forget", "--trace", "nothing", "--yes").code != 0


def test_lists_are_made_again_from_the_log() -> None:
    with Memory("em.db") as memory:
        memory.add_trace({"task": "pay", "steps": [], "outcome": "success"})
        run_sql(memory.store, "UPDATE summaries SET status = 'tampered'")
        assert em("log", "rebuild", EM_DB="em.db").out == "rebuilt: 1 row\n"
        assert run_sql(memory.store, "SELECT status FROM summaries") == [("success",)]
