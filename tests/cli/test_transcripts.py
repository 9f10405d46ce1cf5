"""Transcripts at the command line: brought in, looked at, compared, weighed and compiled."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from em_command import EM, em

from em import Memory

sys.path.insert(0, str(Path(__file__).parent.parent / "traces"))

from sessions import ClaudeCode, lines, order_session
from tests.children import LIMIT


def sessions(*orders: str) -> None:
    Path("in").mkdir(exist_ok=True)
    for order in orders:
        Path("in", f"{order}.jsonl").write_bytes(lines(*order_session(f"s{order}", order)))


def test_a_folder_a_file_a_pattern_and_standard_input() -> None:
    sessions("W1", "W2", "W3")
    one = em("import", "in/W1.jsonl")
    assert "in/W1.jsonl: claude-code, 1 trace, 3 calls, 7 new events" in one.out
    many = em("import", "in", "in/*.jsonl")
    assert "2 new traces in 6 files" in many.out
    given = em("import", "-", stdin=Path("in/W1.jsonl").read_bytes())
    assert (given.code, "nothing new" in given.out) == (0, True)
    told = em("import", "in", "--json").json
    assert [file["skipped"] for file in told["files"]] == ["unchanged"] * 3


def test_a_pipe_is_refused_at_once_and_standard_input_takes_it() -> None:
    sessions("W1")
    os.mkfifo("pipe.jsonl")
    named = em("import", "pipe.jsonl")  # nobody ever writes into it
    assert named.code == 2
    assert "pipe.jsonl: expected a regular file, found a pipe or a device" in named.err
    assert "em import - < PATH" in named.err
    assert em("import", "/dev/null").code == 2
    os.rename("pipe.jsonl", "in/pipe.jsonl")
    folder = em("import", "in")
    assert (folder.code, "2 files, 1 not imported" in folder.out) == (0, True)
    assert "in/pipe.jsonl: not imported: expected a regular file" in folder.err
    given = em("import", "-", stdin=Path("in/W1.jsonl").read_bytes())
    assert (given.code, "nothing new" in given.out) == (0, True)


def test_half_a_surrogate_pair_is_replaced_and_told() -> None:
    """JavaScript writes one where it cuts a text in the middle of an emoji."""
    text = lines(*order_session("s1", "W1")).replace(b"please cancel", rb"\ud83d please \ude00")
    assert text.count(b"ud83d") == 1
    Path("s.jsonl").write_bytes(text)
    ran = em("import", "s.jsonl")
    assert "s.jsonl: claude-code, 1 trace, 3 calls, 7 new events" in ran.out
    assert "half a surrogate pair is not Unicode: stored as U+FFFD, 1 line" in ran.err
    with Memory() as memory:
        (kept,) = memory.traces()
    assert kept.trace.mission.goal == "\ufffd please \ufffd order #W1"
    document = rb'{"messages": [{"role": "user", "content": "\\ud800 \ud83d\ude00 \ud83d"}]}'
    Path("d.json").write_bytes(document)
    read = em("import", "d.json", "--json").json["files"][0]
    assert (read["mended"], read["broken"], read["new_traces"]) == (1, 0, 1)
    with Memory() as memory:
        goals = [kept.trace.mission.goal for kept in memory.traces()]
    assert "\\ud800 \U0001f600 \ufffd" in goals  # an escaped backslash and a whole pair stay


def test_mistakes_are_named_with_what_to_do() -> None:
    sessions("W1")
    wrong = em("import", "in/W1.jsonl", "--format", "claud-code")
    assert (wrong.code, "did you mean 'claude-code'?" in wrong.err) == (2, True)
    gone = em("import", "in/W9.jsonl")
    assert (gone.code, "no such file" in gone.err) == (1, True)
    Path("empty.jsonl").write_text("")
    assert "empty.jsonl: the file is empty" in em("import", "empty.jsonl").err
    Path("binary.json").write_bytes(bytes(range(256)))
    assert em("import", "binary.json").code == 2
    as_json = em("import", "empty.jsonl", "--json")
    assert json.loads(as_json.err)["error"]["code"] == "no_transcript"
    assert "Did you mean 'import'?" in em("imprt", "x").err
    assert "there is no trace" in em("traces", "show", "nothing").err


def test_broken_lines_are_named_and_the_rest_is_there() -> None:
    good = lines(*order_session("s1", "W1"))
    Path("s.jsonl").write_bytes(good + b"{broken\n" + b"\xff\xfe\n")
    ran = em("import", "s.jsonl")
    assert ran.code == 0
    assert "s.jsonl:9: " in ran.err
    assert "s.jsonl:10: " in ran.err
    assert "3 calls" in ran.out


def test_traces_are_listed_shown_and_compared() -> None:
    sessions("W1", "W2")
    em("import", "in")
    listed = em("traces", "list").out
    assert "please cancel order #W1" in listed
    told = em("traces", "list", "--json").json["traces"]
    second, first = (trace["id"] for trace in told)  # the latest first
    assert [(trace["calls"], trace["failed"]) for trace in told] == [(3, 1)] * 2
    assert em("traces", "list", "--task", "#W2", "--json").json["traces"][0]["id"] == second
    shown = em("traces", "show", first[:8])
    assert "get_order" in shown.out
    assert "✗ there is no such order" in shown.out
    assert "\x1b[" not in shown.out  # colours are for terminals
    assert em("traces", "show", first, "--json").json["trace"]["trace"]["outcome"] == "unknown"
    differ = em("traces", "diff", first, second)
    assert differ.code == 1
    assert '- args: {"order_id":"#W1"}' in differ.out
    assert '+ args: {"order_id":"#W2"}' in differ.out
    assert em("traces", "diff", first, first).code == 0
    steps = em("traces", "diff", first, second, "--json").json["steps"]
    assert [step["sign"] for step in steps] == ["~", "~", "~"]


def test_traces_are_listed_by_the_time_of_the_session_not_of_the_import() -> None:
    Path("in").mkdir()
    for day in ("2026-03-02", "2026-03-09", "2026-03-01"):
        text = lines(*order_session(f"s{day}", day)).replace(b"2025-06-01", day.encode())
        Path("in", f"{day}.jsonl").write_bytes(text)
        em("import", f"in/{day}.jsonl")
    told = em("traces", "list", "--json").json["traces"]
    assert [trace["at"][:10] for trace in told] == ["2026-03-09", "2026-03-02", "2026-03-01"]
    told = em("traces", "list", "--json", "--limit", "1").json["traces"]
    assert [trace["at"][:10] for trace in told] == ["2026-03-09"]


def test_a_named_format_that_the_file_does_not_have_is_refused_with_what_was_found() -> None:
    sessions("W1")
    ran = em("import", "in/W1.jsonl", "--format", "codex")
    assert (ran.code, "expected the format codex, found claude-code" in ran.err) == (2, True)
    folder = em("import", "in", "--format", "codex")
    assert (folder.code, "found claude-code; leave out --format" in folder.err) == (1, True)
    assert not em("traces", "list", "--json").json["traces"]
    Path("odd.jsonl").write_text('{"odd": 1}\n{"odd": 2}\n')  # in no known format: as they say
    assert em("import", "odd.jsonl", "--format", "codex").code == 0


def test_sub_agents_are_shown_within() -> None:
    main, helper = ClaudeCode(), ClaudeCode(isSidechain=True, agentId="a1")
    Path("s.jsonl").write_bytes(lines(
        main.user("find the bug"), main.calls("t1", "Task", prompt="read the logs"),
        helper.user("read the logs"), helper.calls("t2", "Read", file="app.log"),
        helper.result("t2", "boom"), main.result("t1", "it says boom"),
    ))  # fmt: skip
    em("import", "s.jsonl")
    listed = em("traces", "list", "--json").json["traces"]
    parent = next(trace["id"] for trace in listed if not trace["parent"])
    shown = em("traces", "show", parent).out
    assert "sub-agent of call t1" in shown
    assert "boom" in shown
    assert "↳" in em("traces", "list").out


def test_hostile_content_does_not_steer_the_terminal() -> None:
    says = ClaudeCode()
    evil = "\x1b]0;owned\x07\x1b[2Jgone\r\n\u202e"
    Path("s.jsonl").write_bytes(lines(
        says.user(evil), says.calls("t1", f"tool{evil}", **{evil: evil}), says.result("t1", evil),
    ))  # fmt: skip
    em("import", "s.jsonl")
    trace = em("traces", "list", "--json").json["traces"][0]["id"]
    for args in (
        ["traces", "list"],
        ["traces", "show", trace],
        ["traces", "show", trace, "--full"],
        ["routine", "suggest", "--at-least", "1", "--allow-unlabelled"],
        ["traces", "diff", trace, trace],
    ):
        shown = em(*args)
        assert shown.code == 0
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(shown.out)


def test_what_is_repeated_is_suggested_and_compiles_from_a_claude_code_log() -> None:
    sessions("W1001", "W2002", "W3003")
    em("import", "in")
    (best,) = em("routine", "suggest", "--allow-unlabelled", "--json").json["suggestions"]
    assert (best["count"], best["way"], best["problem"]) == (3, ["get_order", "cancel_order"], "")
    assert (best["model_calls"], best["tokens"]) == (4, 400)
    text = em("routine", "suggest", "--allow-unlabelled")
    assert "em compile" in text.out
    assert em("compile", *best["traces"], "--keep", "--name", "cancel_order").code == 0
    assert em("compile", *best["traces"], "-o", "made").code == 0
    Path("tools.py").write_text(
        "def get_order(order_id):\n"
        "    return {'order_id': order_id, 'status': 'pending', 'items': ['lamp', 'rug']}\n"
        "def cancel_order(order_id, reason):\n"
        "    print(order_id, file=open('cancelled.txt', 'a'))\n"
        "    return {'order_id': order_id, 'status': 'cancelled'}\n"
    )
    given = json.loads(Path("made/input.json").read_text())
    changed = {name: "#W9009" if "W" in str(value) else value for name, value in given.items()}
    Path("input.json").write_text(json.dumps(changed))
    ran = em("run", "made", "--tools", "tools.py", "--input", "input.json", "--json")
    assert ran.code == 0, ran.err
    assert Path("cancelled.txt").read_text() == "#W9009\n"
    assert ran.json["output"] == {"order_id": "#W9009", "status": "cancelled"}


def test_a_suggestion_has_the_sessions_in_the_order_in_which_they_were_made() -> None:
    Path("in").mkdir()
    for number, month in enumerate((9, 3, 10, 4, 11)):
        text = lines(*order_session(f"s{month}", f"W100{month}"))
        file = Path("in", f"{number}.jsonl")
        file.write_bytes(re.sub(rb"2025-\d\d-", f"2025-{month:02}-".encode(), text))
        em("import", str(file))
    (best,) = em("routine", "suggest", "--allow-unlabelled", "--json").json["suggestions"]
    for shown, month in zip(best["sample"], (3, 4, 9, 10, 11), strict=True):
        assert f"please cancel order #W100{month}" in em("traces", "show", shown).out


def test_ctrl_c_keeps_what_came_in_and_the_next_import_goes_on() -> None:
    says = ClaudeCode()
    with Path("large.jsonl").open("wb") as file:
        for number in range(30_000):
            call = [says.calls(f"t{number}", "Read"), says.result(f"t{number}", "x" * 400)]
            file.write(lines(*call))
    process = subprocess.Popen(
        [*EM, "import", "large.jsonl"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while sum(file.stat().st_size for file in Path().glob(".em/em.db*")) < 2**20:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert "stopped: 0 of 1 file were imported" in err
    assert "give the same command again" in err
    again: Any = em("import", "large.jsonl", "--json").json
    assert again["broken"] == 0
    listed = em("traces", "list", "--json").json["traces"]
    assert [trace["calls"] for trace in listed] == [30_000]
    assert em("log", "verify").code == 0
