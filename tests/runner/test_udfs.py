"""Functions that a model wrote run in the sandbox, until a person has read them."""

import asyncio
import os
import py_compile
import shutil
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.compiler.export.script import export_python
from em.errors import ExportError, NotFound, RoutineError, SandboxRefused, UsageError
from em.runner.authorship import WRITTEN_BY, is_model_written, render_marks
from em.runner.engine import arun_routine, run_routine
from em.runner.package import Package, files_in, find_routine, keep_routine
from em.runner.sandbox.sandbox import backends
from em.runner.tools import ToolRegistry, load_module
from em.store import Commit
from em.trust import content_hash, revoke, trust, trust_folder

ROUTINE = """
version: "1"
name: spot
steps:
  - {id: s1, type: udf.call, function: spot, args: {n: "{{ n }}"}, save_as: told}
  - {id: s2, type: return, value: {told: "{{ told }}", twice: "{{ twice(n) + twice(x=1) }}"}}
"""
WHERE = """
import os

def spot(n):
    return os.getpid()

def twice(x):
    return x * 2

def _hidden():
    return 1
"""
PLAIN = """
def spot(n):
    if n == 13:
        raise ValueError("unlucky")
    return n + 1

def twice(x):
    return x * 2
"""


def package(tmp_path: Path, code: str, marked: str | None = None) -> Path:
    folder = tmp_path / "spot"
    folder.mkdir(exist_ok=True)
    (folder / "routine.yaml").write_text(ROUTINE)
    (folder / "udf.py").write_text(code)
    if marked is not None:
        (folder / WRITTEN_BY).write_text(render_marks({"udf.py": marked.encode()}, "acme/model-1"))
    return folder


def ran_here(folder: Path, **options: Any) -> bool:
    result = run_routine(folder, {"n": 3}, **options)
    assert result.status == "ok", result.failure
    assert result.output["twice"] == 8
    return bool(result.output["told"] == os.getpid())


def test_a_persons_own_code_runs_in_the_process(tmp_path: Path) -> None:
    assert ran_here(package(tmp_path, WHERE))


def test_marked_code_runs_in_the_sandbox_in_steps_and_in_expressions(tmp_path: Path) -> None:
    folder = package(tmp_path, WHERE, marked=WHERE)
    assert not ran_here(folder)
    assert set(Package(folder).udfs()) == {"spot", "twice"}


def test_code_that_was_changed_after_its_mark_stays_in_the_sandbox(tmp_path: Path) -> None:
    assert not ran_here(package(tmp_path, WHERE + "# changed\n", marked=WHERE))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"udf.py": 1}', '{"udf.py": {}}', "\xff", "[" * 9999]
)
def test_a_mark_that_can_not_be_read_is_a_mark(tmp_path: Path, text: str) -> None:
    folder = package(tmp_path, WHERE)
    (folder / WRITTEN_BY).write_text(text, encoding="latin-1")
    assert not ran_here(folder)


def test_a_mark_for_another_file_says_nothing_of_this_one(tmp_path: Path) -> None:
    folder = package(tmp_path, WHERE)
    (folder / WRITTEN_BY).write_text(render_marks({"other.py": b""}, "m"))
    assert ran_here(folder)


def test_trust_is_for_this_content_only_and_can_be_taken_back(tmp_path: Path) -> None:
    folder = package(tmp_path, WHERE, marked=WHERE)
    file = folder / "udf.py"
    trust(content_hash(file.read_bytes()), file, file.stat().st_size)
    assert ran_here(folder)
    file.write_text(WHERE + "# more\n")
    assert not ran_here(folder)
    file.write_text(WHERE)
    assert ran_here(folder)
    assert revoke("0" * 64, file), "what was trusted at this path is found by the path, too"
    assert not ran_here(folder)


def test_trust_for_one_run(tmp_path: Path) -> None:
    folder = package(tmp_path, WHERE, marked=WHERE)
    assert ran_here(folder, trust=True)
    assert not ran_here(folder)


def test_a_package_can_not_bring_its_own_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither files in it, nor a database or settings in the folder where somebody runs it."""
    folder = package(tmp_path, WHERE, marked=WHERE)
    sha256 = content_hash(WHERE.encode())
    trust(sha256, folder / "udf.py", 1)
    shutil.copytree(trust_folder(), folder / "trusted")
    shutil.copytree(trust_folder(), tmp_path / ".em" / "trusted")
    shutil.move(trust_folder(), folder / "em" / "trusted")
    with Memory(".em/em.db") as memory:
        body = {"file": str(folder / "udf.py"), "sha256": sha256, "size": 1}
        memory.log.append(f"code/{sha256}", "code_trusted", body)
        assert memory.run(folder, {"n": 3}).output["told"] != os.getpid()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", ".")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert not ran_here(folder), "a relative folder would be one of the project"


def test_trust_that_others_may_write_is_none(tmp_path: Path) -> None:
    folder = package(tmp_path, WHERE, marked=WHERE)
    trust(content_hash(WHERE.encode()), folder / "udf.py", 1)
    trust_folder().chmod(0o777)
    with pytest.raises(UsageError, match="other users can write"):
        run_routine(folder, {"n": 3})


def test_what_runs_is_the_text_that_was_read_not_bytecode_beside_it(tmp_path: Path) -> None:
    folder = package(tmp_path, PLAIN, marked=PLAIN)
    evil = tmp_path / "evil.py"
    evil.write_text("def spot(n): return 'evil'\ndef twice(x): return x * 2\n")
    for name in ("udf.cpython-311.pyc", f"udf.{__import__('sys').implementation.cache_tag}.pyc"):
        py_compile.compile(
            str(evil),
            cfile=str(folder / "__pycache__" / name),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    for trusted in (True, False):
        assert run_routine(folder, {"n": 3}, trust=trusted).output["told"] == 4
    assert run_routine(package(tmp_path, PLAIN), {"n": 3}).output["told"] == 4


def test_a_failure_tells_the_line_of_the_file(tmp_path: Path) -> None:
    folder = package(tmp_path, PLAIN, marked=PLAIN)
    failure = run_routine(folder, {"n": 13}).failure
    assert failure is not None
    assert failure.step_id == "s1"
    assert failure.error_type == "SandboxFault"
    assert failure.message == f"{folder / 'udf.py'}:4: ValueError: unlucky"


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    folder = package(tmp_path, WHERE, marked=WHERE)
    result = asyncio.run(arun_routine(folder, {"n": 3}))
    assert result.output["told"] != os.getpid()


def test_many_calls_of_one_run_share_a_process(tmp_path: Path) -> None:
    folder = package(tmp_path, WHERE, marked=WHERE)
    (folder / "routine.yaml").write_text("""
version: "1"
name: many
steps:
  - {id: s1, type: udf.call, function: spot, args: {n: "{{ item }}"}, for_each: "{{ ns }}",
     save_as: told}
  - {id: s2, type: return, value: "{{ told }}"}
""")
    result = run_routine(folder, {"ns": list(range(1_000))})
    assert result.status == "ok", result.failure
    assert len(set(result.output)) == 1


def test_without_a_sandbox_marked_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in backends():
        monkeypatch.setattr(kind, "missing", lambda: "not here")
    folder = package(tmp_path, WHERE, marked=WHERE)
    with pytest.raises(SandboxRefused, match=r"udf\.py.*em trust DIR"):
        run_routine(folder, {"n": 3})
    assert ran_here(folder, trust=True)


def test_marked_code_that_is_no_python_is_told_with_its_line(tmp_path: Path) -> None:
    folder = package(tmp_path, "x = 1\ndef f(:\n", marked="")
    with pytest.raises(RoutineError, match=r"udf\.py:2"):
        run_routine(folder, {"n": 3})


@pytest.mark.parametrize("first", ["", "import statistics\n"], ids=["monty", "full Python"])
def test_a_step_that_runs_out_of_time_does_not_keep_the_run(tmp_path: Path, first: str) -> None:
    code = first + "def spot(n):\n    while True:\n        pass\n"
    folder = package(tmp_path, code, marked=code)
    (folder / "routine.yaml").write_text("""
version: "1"
name: slow
steps:
  - {id: s1, type: udf.call, function: spot, args: {n: 1}, timeout: 0.2}
""")
    failure = run_routine(folder, {}).failure
    assert failure is not None
    assert failure.error_type == "StepTimeout"


def test_unread_code_is_not_loaded_as_tools_or_functions_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = package(tmp_path, PLAIN, marked=PLAIN)
    (tmp_path / "link.py").symlink_to(folder / "udf.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    for source in (str(folder / "udf.py"), str(tmp_path / "link.py"), "spot.udf"):
        with pytest.raises(UsageError, match=r"no person has read it.*em trust"):
            load_module(source)
        with pytest.raises(UsageError, match="no person has read it"):
            ToolRegistry.load(source)
    trust(content_hash(PLAIN.encode()), folder / "udf.py", len(PLAIN))
    assert load_module(str(folder / "udf.py")).twice(2) == 4


def test_a_script_has_no_sandbox_so_unread_code_is_not_exported(tmp_path: Path) -> None:
    folder = package(tmp_path, PLAIN, marked=PLAIN)
    with pytest.raises(ExportError, match="nobody has read them"):
        export_python(Package(folder))
    assert "def twice" in export_python(Package(folder), trust=True)
    trust(content_hash(PLAIN.encode()), folder / "udf.py", len(PLAIN))
    assert "def twice" in export_python(Package(folder))


@pytest.mark.parametrize("kind", ["folder", "link", "unreadable", "broken", "of no file"])
def test_a_package_with_an_odd_mark_is_not_kept(tmp_path: Path, kind: str) -> None:
    folder = package(tmp_path, PLAIN, marked=PLAIN)
    mark = folder / WRITTEN_BY
    if kind in ("folder", "link"):
        mark.unlink()
        mark.mkdir() if kind == "folder" else mark.symlink_to("nowhere")
        assert is_model_written(folder, "udf.py")
    elif kind == "unreadable":
        mark.write_bytes(b"\xff")
    else:
        mark.write_text("{" if kind == "broken" else '{"gone.py": {"sha256": "0"}}')
    with (
        Memory(tmp_path / "em.db") as memory,
        pytest.raises((UsageError, RoutineError), match=WRITTEN_BY),
    ):
        keep_routine(memory.store, files_in(folder))


def test_an_import_of_what_is_not_installed_is_told_with_its_line(tmp_path: Path) -> None:
    folder = package(tmp_path, "import os\nimport no_such_module_here\n" + PLAIN)
    for load in (lambda: run_routine(folder, {"n": 1}), lambda: load_module(f"{folder}/udf.py")):
        with pytest.raises(RoutineError, match=r"udf.py:2: the file imports 'no_such_module_here'"):
            load()
    with pytest.raises(UsageError, match="there is no module 'no_such_module_here'"):
        load_module("no_such_module_here.part")


@pytest.mark.parametrize("source", [".", "..", "./", "./d", ".foo", "d..e", "d."])
def test_what_is_neither_a_file_nor_a_module_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d").mkdir()
    with pytest.raises(UsageError, match=r"expected a Python file or the name of a module"):
        load_module(source)


def test_a_module_that_cannot_be_imported_or_read_is_an_error_of_em(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cut_off_here.py").write_text("x = (\n")
    with pytest.raises(RoutineError, match="cut_off_here: the module raised SyntaxError"):
        load_module("cut_off_here")
    (tmp_path / "d.py").mkdir()
    with pytest.raises(UsageError, match=r"d.py: can't be read: Is a directory"):
        load_module(str(tmp_path / "d.py"))


@pytest.mark.parametrize("name", ["a@1", "a/b", "..", "a.b"])
def test_a_name_that_could_not_be_run_is_not_kept(tmp_path: Path, name: str) -> None:
    folder = package(tmp_path, PLAIN)
    (folder / "routine.yaml").write_text(ROUTINE.replace("name: spot", f'name: "{name}"'))
    with (
        Memory(tmp_path / "em.db") as memory,
        pytest.raises((UsageError, RoutineError), match="name"),
    ):
        keep_routine(memory.store, files_in(folder))


def test_a_version_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    folder = package(tmp_path, PLAIN)
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, files_in(folder))
        with pytest.raises(NotFound, match="there are: spot@1"):
            find_routine(memory.store, "spot@7")
        memory.store.commit(Commit(retire=[find_routine(memory.store, "spot").id]))
        with pytest.raises(NotFound, match="name one: spot@1"):
            find_routine(memory.store, "spot")


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_a_dataclass_can_stand_in_udf_py_and_in_a_file_of_tools(
    tmp_path: Path, future: str
) -> None:
    code = (
        f"{future}from dataclasses import dataclass, field\n"
        "from typing import ClassVar, NamedTuple\n"
        "import enum\n"
        "@dataclass\n"
        "class Order:\n"
        "    id: str\n"
        "    items: list[str] = field(default_factory=list)\n"
        "    KINDS: ClassVar[int] = 3\n"
        "class Colour(enum.Enum):\n"
        "    RED = 1\n"
        "def order(id): return Order(id)\n"
        "def total(order): return len(order.items) + order.KINDS\n"
    )
    (tmp_path / "udf.py").write_text(code)
    (tmp_path / "tools.py").write_text(code)
    (tmp_path / "routine.yaml").write_text(
        "name: r\nsteps:\n"
        "  - {id: a, type: udf.call, function: order, args: {id: W1}, save_as: o}\n"
        '  - {id: b, type: udf.call, function: total, args: {order: "{{ o }}"}, save_as: n}\n'
        "  - {id: c, type: tool.call, tool: order, args: {id: W2}, save_as: p}\n"
        '  - {id: d, type: return, value: ["{{ o.id }}", "{{ n }}", "{{ p.id }}"]}\n'
    )
    result = run_routine(tmp_path, {}, ToolRegistry.load(str(tmp_path / "tools.py")))
    assert result.failure is None
    assert result.output == ["W1", 3, "W2"]


def test_a_file_that_breaks_leaves_no_module_behind(tmp_path: Path) -> None:
    import sys

    (tmp_path / "tools.py").write_text("raise ValueError('broken')\n")
    before = set(sys.modules)
    with pytest.raises(RoutineError):
        ToolRegistry.load(str(tmp_path / "tools.py"))
    assert set(sys.modules) == before
