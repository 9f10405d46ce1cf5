"""`em trust` from a user's chair."""

import os
import pty
import subprocess
from pathlib import Path

import pytest
from em_command import EM, em
from tests.children import LIMIT

from em import Memory
from em.runner.authorship import WRITTEN_BY, render_marks
from em.trust import content_hash

CODE = "import os\n\ndef where():\n    return os.getppid()\n\n# \u202egnp.\u202c \x1b[2J\n"
ROUTINE = """
version: "1"
name: where
steps:
  - {id: s1, type: udf.call, function: where, args: {}, save_as: told}
  - {id: s2, type: return, value: "{{ told }}"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "where"
    folder.mkdir()
    (folder / "routine.yaml").write_text(ROUTINE)
    (folder / "udf.py").write_text(CODE)
    (folder / WRITTEN_BY).write_text(render_marks({"udf.py": CODE.encode()}, "acme/model-1"))
    return folder


def ran_in_em_itself(*options: str) -> bool:
    """Its parent is this process only where it ran in em's own."""
    command = [*EM, "run", "where", "--no-journal", *options]
    return int(subprocess.check_output(command)) == os.getpid()


def test_trusting_and_taking_it_back(folder: Path) -> None:
    assert not ran_in_em_itself()
    assert ran_in_em_itself("--trust")
    report = em("trust", "where", "--yes", "--json").json
    assert report["sha256"] == content_hash(CODE.encode())
    assert report["marked"] is True
    assert ran_in_em_itself()
    assert not Path(".em").exists(), "no memory is made for it"
    assert em("trust", "where", "--revoke").out.endswith("no longer trusted\n")
    assert not ran_in_em_itself()
    assert em("trust", "where", "--revoke").out.endswith(": was not trusted\n")


def test_it_is_logged_where_there_is_a_log(folder: Path) -> None:
    with Memory() as memory:
        memory.observe("ana", "hello")
    em("trust", "where", "--yes")
    em("trust", "where", "--revoke")
    with Memory() as memory:
        events = list(memory.log.read(stream=f"code/{content_hash(CODE.encode())}"))
    assert [event.kind for event in events] == ["code_trusted", "code_distrusted"]
    assert events[0].body is not None
    assert events[0].body["sha256"] == content_hash(CODE.encode())
    assert events[0].body["file"] == str(folder / "udf.py")


def test_where_nobody_can_be_asked_it_wants_a_yes(folder: Path) -> None:
    ran = em("trust", "where")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert not ran_in_em_itself()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1)])
def test_a_person_sees_the_code_with_nothing_hidden(folder: Path, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    run = subprocess.run(
        [*EM, "trust", "where"], stdin=theirs, capture_output=True, timeout=LIMIT, check=False
    )
    os.close(ours)
    os.close(theirs)
    assert run.returncode == code
    shown = run.stderr.decode()
    assert "os.getppid()" in shown
    assert "\\u202egnp.\\u202c \\x1b[2J" in shown
    assert content_hash(CODE.encode()) in shown
    assert ran_in_em_itself() is (answer == "y")


def test_a_folder_without_functions(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = em("trust", "empty", "--yes")
    assert ran.code == 2
    assert "udf.py" in ran.err
