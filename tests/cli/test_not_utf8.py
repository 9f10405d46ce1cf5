"""Names of files that are not UTF-8 work like others; names and texts that are not are refused."""

import json
import sys
from pathlib import Path

import pytest
from em_command import em
from tests.cli.test_routines import TOOLS, TRACE

from em import Memory
from em.errors import UsageError
from em.serve.guard import body_of, log_line
from em.trust import trust_folder
from em.values.files import path_from_text, path_to_text, shown

sys.path.insert(0, str(Path(__file__).parent.parent / "traces"))


BAD = "n\udcff"
"""A name with the byte 0xff, as Python gives it."""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    (tmp_path / "tools.py").write_text(TOOLS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder whose name is not UTF-8."""
    made = tmp_path / BAD
    made.mkdir()
    for name in ("trace.json", "tools.py"):
        (made / name).write_bytes((tmp_path / name).read_bytes())
    monkeypatch.chdir(made)
    monkeypatch.setenv("EM_TRUSTED_FOLDERS", "")
    return made


def test_a_path_is_stored_so_that_it_is_found_again() -> None:
    for path in (Path("/a/b ü%41"), Path("/a/n\udcff é%41"), Path("/a/n\\xff")):
        text = path_to_text(path)
        assert text.encode()
        assert path_from_text(text) == path
    assert path_to_text(Path("/a/b ü%41")) == "/a/b ü%41"
    assert path_to_text(Path("/n\udcff")) == "file:///n%FF"
    assert shown("é/n\udcff") == "é/n\\xff"
    assert shown("half \ud800") == "half \\ud800"


def test_all_works_in_a_folder_whose_name_is_not_utf8(folder: Path) -> None:
    assert em("observe", "ana", "My city is Rome.").code == 0
    with Memory() as memory:
        assert len(list(memory.log.read(subject="ana"))) == 1
        assert memory.store.database.is_trusted
    assert em("compile", "trace.json", "--keep", "--name", "greeting").code == 0
    named = ("name=Bo Andersson", "--tools", "tools.py", "--yes")
    assert em("run", "greeting", *named).out == '"hello u-12"\n'
    assert em("doctor", "--json").json
    assert em("trust", "--memory", "--json").json["file"].endswith("n\\xff/.em/em.db")
    assert em("trust", "--memory", "--revoke", "--json").json["revoked"]
    assert not list(trust_folder().glob("*.json"))


def test_a_memory_in_such_a_folder_is_made_at_once(tmp_path: Path) -> None:
    (tmp_path / BAD).mkdir()
    assert em("--db", f"{BAD}/x.db", "observe", "ana", "hi").code == 0
    assert em("log", "show", "--db", f"{BAD}/x.db", "--json").json["events"]


def test_commands_that_write_to_such_a_path_say_so(tmp_path: Path) -> None:
    assert em("compile", "trace.json", "--keep", "--name", "greeting").code == 0
    (tmp_path / f"{BAD}.yaml").write_text("workflows: {}\n")
    for args, says in (
        (["log", "backup", f"{BAD}.db"], "n\\xff.db"),
        (["schema", "-o", f"{BAD}s"], "n\\xffs"),
        (["routine", "unpack", "greeting", "-o", f"{BAD}r"], "n\\xffr"),
        (["compile", "trace.json", "-o", f"{BAD}c"], "n\\xffc"),
        (["workflow", "validate", "--file", f"{BAD}.yaml"], ""),
        (["log", "export", f"{BAD}.jsonl"], ""),
    ):
        ran = em(*args, "--json")
        assert ran.code == (0 if says else ran.code), (args, ran.err)
        assert says.replace("\\", "\\\\") in ran.out
    (tmp_path / f"{BAD}r" / "udf.py").write_text("def one():\n    return 1\n")
    trusted = em("trust", f"{BAD}r", "--yes", "--json")
    assert trusted.json["file"].endswith("n\\xffr/udf.py")
    assert em("log", "show", "--kind", "code_trusted", "--json").json["events"]
    assert em("trust", f"{BAD}r", "--revoke", "--json").json["revoked"]


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(
    "args",
    [
        ["run", BAD],
        ["routine", "show", BAD],
        ["queue", "run", BAD],
        ["traces", "list", "--subject", BAD],
        ["lessons", "list", "--subject", BAD],
        ["runs", "list", "--routine", BAD],
        ["state", "check", "ana", "take", "x=\udcff"],
        ["run", "greeting", "name=\udcff"],
        ["run", "greeting", "--input", '{"name": "\udcff"}'],
        ["lessons", "reflect", BAD],
        ["compile", BAD],
        ["observe", "ana", "I am \udcff"],
    ],
)
def test_names_and_texts_that_are_not_utf8_are_refused(args: list[str], as_json: list[str]) -> None:
    ran = em(*args, *as_json)
    assert ran.code == 2
    assert "expected UTF-8 text" in ran.err
    assert "\\xff" in ran.err
    assert not Path(".em").exists(), "nothing was begun"


"""The parameters that may be the path of what exists, or that is to be made."""


def test_what_cannot_be_there_is_refused(folder: Path) -> None:
    assert em("compile", "trace.json", "--keep", "--name", "greeting").code == 0
    queued = em("queue", "run", "greeting", "--input", '{"name": "Bo"}')
    assert queued.code == 2
    assert "can't have a queue" in queued.err
    address = em("--db", "postgresql://h\udcff/x", "log", "show")
    assert address.code == 2
    assert "an address must be UTF-8 text" in address.err


def test_the_service_sends_and_logs_such_a_path(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log_line(event="listening", store=f"/{BAD}/em.db")
    assert json.loads(capfdbinary.readouterr().err)["store"] == "/n\\xff/em.db"
    sent = json.loads(body_of(UsageError("can't have a queue", place=f"/{BAD}/em.db")))
    assert sent["error"]["place"] == "/n\\xff/em.db"
