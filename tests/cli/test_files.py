"""Files that commands read and write: never the log itself, never half, whatever they are."""

import json
import os
import sqlite3
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from em_command import EM, em
from tests.children import LIMIT

from em import Memory

LINE = json.dumps({"stream": "s", "kind": "note", "body": {"n": 1}}) + "\n"


@pytest.fixture(autouse=True)
def _log() -> None:
    with Memory() as memory:
        memory.log.append("s", "note", {"n": 1})


@pytest.mark.parametrize("name", [".em/em.db", ".em/../.em/em.db", "link", ".em/em.db-wal"])
@pytest.mark.parametrize("command", [["log", "export"], ["log", "verify", "--save-head"]])
def test_the_log_itself_is_never_overwritten(tmp_path: Path, command: list[str], name: str) -> None:
    (tmp_path / "link").symlink_to(".em/em.db")
    ran = em(*command, name)
    assert ran.code == 2
    assert "this is the log itself" in ran.err
    assert em("log", "verify", "--json").json["events"] == 1


def test_a_link_is_followed_and_rights_are_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/real.jsonl")
    os.umask(0o022)
    assert em("log", "export", "link").code == 0
    assert (tmp_path / "link").is_symlink()
    real = tmp_path / "folder" / "real.jsonl"
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    assert b'"n":1' in real.read_bytes()


def test_a_pipe_is_written_into_and_read_from(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    export = subprocess.Popen([*EM, "log", "export", "pipe"], stdout=subprocess.PIPE)
    assert b'"n":1' in (tmp_path / "pipe").read_bytes()
    export.communicate(timeout=LIMIT)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    script = f"{' '.join(EM)} log import <(printf '%s' '{LINE}')"
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "1 event imported\n"


@pytest.mark.parametrize("args", [["log", "show"], ["log", "export"], ["doctor"]])
def test_an_output_that_takes_nothing_is_one_clear_error(args: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        run = subprocess.run([*EM, *args], stdout=full, stderr=subprocess.PIPE, check=False)
    assert run.returncode == 1
    assert b"can't write the output: No space left" in run.stderr
    assert b"Traceback" not in run.stderr


def test_closed_streams_are_no_crash() -> None:
    for redirection, code in ((">&-", 0), ("<&-", 2)):
        body = "'{}'" if code == 0 else "-"
        script = f"{' '.join(EM)} log append --stream s --kind note {body} {redirection}"
        run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert run.returncode == code, run.stderr
        assert "Traceback" not in run.stderr


def test_a_file_that_cannot_be_read_and_a_name_that_cannot_be(tmp_path: Path) -> None:
    for args in (["--db", "x" * 300, "log", "show"], ["log", "show", "--db", "em.db/x"]):
        (tmp_path / "em.db").touch()
        ran = em(*args)
        assert ran.code == 1
        assert "can't create a log here" in ran.err or "no log at this path" in ran.err


def test_bytes_that_are_no_text_are_refused_without_a_traceback() -> None:
    for args in (
        ["log", "show", "--stream", "\udcff"],
        ["log", "show", "--id", "\udcff"],
        ["forget", "--event", "\udcff", "--yes"],
        ["log", "append", "--stream", "s", "--kind", "note", '{"a": "\udcff"}'],
        ["log", "show", "--after", "9" * 20],
        ["log", "tail", "-n", "9" * 20],
    ):
        ran = em(*args)
        assert ran.code in (1, 2), args


@pytest.mark.parametrize(
    "args",
    [
        ["import"],
        ["reflect"],
        ["observe", "ana", "--file"],
        ["log", "import"],
        ["log", "verify", "--head"],
        ["compile", "--keep"],
        ["run", "r", "--input"],
    ],
)
def test_a_file_that_opens_and_cannot_be_read_is_named(tmp_path: Path, args: list[str]) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "routine.yaml").write_text("name: r\nsteps: []\n")
    ran = em(*args, "/proc/self/mem")
    assert ran.code == 2, ran.err
    assert "/proc/self/mem: can't be read: " in ran.err


def test_a_standard_input_that_cannot_be_read_is_named() -> None:
    with open("/proc/self/mem", "rb") as memory:
        run = subprocess.run(
            [*EM, "log", "import"], stdin=memory, capture_output=True, text=True, check=False
        )
    assert "standard input: can't be read: Input/output error" in run.stderr


def test_a_mark_before_utf8_is_no_part_of_the_text(tmp_path: Path) -> None:
    """Windows programs write it."""

    def marked(name: str, text: str) -> str:
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        return name

    call = {"type": "tool_call", "tool": "look", "args": {"id": 1}, "result": 2}
    trace = json.dumps({"mission": {"goal": "look"}, "events": [call], "final_output": 2})
    file = marked("trace.json", trace)
    given = b"\xef\xbb\xbf" + trace.encode()
    for args in (["import"], ["reflect"], ["compile", "--keep", "--name", "r"]):
        assert em(*args, file).code == 0, args
    for args in (["import"], ["reflect"]):
        assert em(*args, "-", stdin=given).code == 0, args
    chat = '{"role": "user", "content": "hi"}'
    for name, text, way in (
        ("o.json", '[{"a": 1}]', "json"),
        ("o.jsonl", '{"a": 1}\n{"a": 2}', "jsonl"),
        ("o.csv", "a,b\n1,2", "csv"),
        ("o.txt", "hello", "text"),
        ("lines.chat", chat, "chat"),
        ("list.chat", f"[{chat}]", "chat"),
    ):
        assert em("observe", "ana", "--file", marked(name, text), "--format", way).code == 0, name
    stored = em("log", "export", "-").out
    assert "\ufeff" not in stored
    assert "\\ufeff" not in stored
    (tmp_path / "look.py").write_text("def look(id):\n    return id\n")
    ran = em("run", "r", "--input", marked("in.json", "{}"), "--tools", "look.py")
    assert "malformed" not in ran.err
    assert em("log", "import", marked("log.jsonl", LINE)).code == 0


def test_a_trace_is_compiled_from_a_pipe(tmp_path: Path) -> None:
    call = {"type": "tool_call", "tool": "look", "args": {"id": 1}, "result": 2}
    trace = json.dumps({"mission": {"goal": "look"}, "events": [call], "final_output": 2})
    os.mkfifo("pipe")
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(Path("pipe").write_text, trace)
        ran = em("compile", "pipe", "-o", "routine")
        assert written.result() == len(trace)
    assert (ran.code, Path("routine/routine.yaml").exists()) == (0, True), ran.err


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_is_no_file_to_read(device: str) -> None:
    for command in (("observe", "ana", "--file", device), ("log", "import", device)):
        said = em(*command)
        assert said.code == 2, command
        assert f"error: {device}: expected a file, found a device" in said.err


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b"\xff\xfe", b'{"types": [1]}'])
def test_a_damaged_artefact_is_an_error_and_no_traceback(body: bytes) -> None:
    assert em("observe", "ana", '{"city": "Porto"}', "--type", "Profile").code == 0
    assert em("state", "checkpoint", "ana").code == 0
    with closing(sqlite3.connect(".em/em.db")) as connection, connection:
        connection.execute("UPDATE artefacts SET body = ? WHERE kind = 'state'", (body,))
    for command in (("state", "show", "ana"), ("state", "ask", "ana", "what is the city?")):
        said = em(*command)
        assert said.code in (1, 2), said.out
        assert said.err.startswith("error: "), said.err
        assert "Traceback" not in said.err
