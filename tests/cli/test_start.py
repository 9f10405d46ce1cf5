"""The command starts with what it needs: modules are counted here, not seconds."""

import os
import subprocess
import sys
from pathlib import Path

from bench.startup import ROUTINE, TOOLS

RUN = ["run", "greet", "name=ana", "--tools", "tools.py", "--db", "em.db"]
NOT_FOR_A_SMALL_RUN = (
    "em.compiler", "em.heuristics", "em.llm", "em.recall", "em.runner.expressions.jinja",
    "em.runner.rehearsal", "em.runner.sandbox", "em.runner.template", "em.serve", "em.state",
    "em.log.lines", "em.log.verify", "em.values.structure",
    "em.text.dates", "em.text.terms", "em.workflows", "difflib", "html", "jsonschema_rs", "json",
    "rich", "shutil", "socket", "tempfile", "tomllib",
)  # fmt: skip
NOT_FOR_HELP = ("em.memory", "em.settings", "em.runner", "em.store", "msgspec", "yaml")


def loaded(arguments: list[str], folder: Path) -> list[str]:
    """Return the modules that a command has loaded when it ends."""
    code = (
        "import sys; from em.cli.root import run; run(sys.argv[1:])\n"
        "print('\\n', *sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stderr.split()


def among(modules: list[str], names: tuple[str, ...]) -> list[str]:
    return [
        one for one in modules if any(one == name or one.startswith(f"{name}.") for name in names)
    ]


def small_routine(folder: Path, tools: str = TOOLS) -> None:
    (folder / "greet").mkdir()
    (folder / "greet" / "routine.yaml").write_text(ROUTINE)
    (folder / "tools.py").write_text(tools)


def test_a_run_loads_only_what_its_steps_need(tmp_path: Path) -> None:
    small_routine(tmp_path)
    loaded(RUN, tmp_path)  # makes the database
    modules = loaded(RUN, tmp_path)
    assert "em.runner.machine" in modules
    assert among(modules, NOT_FOR_A_SMALL_RUN) == []
    assert len(modules) < 275


def test_help_loads_no_part_of_em_but_the_command(tmp_path: Path) -> None:
    assert among(loaded(["--help"], tmp_path), NOT_FOR_HELP) == []


def test_what_a_tool_leaves_for_the_end_is_still_done(tmp_path: Path) -> None:
    late = (
        "import atexit, threading, time\n"
        "atexit.register(lambda: print('at exit', file=open('exit', 'w')))\n"
        "def wait():\n    time.sleep(0.05)\n    print('thread', file=open('thread', 'w'))\n"
    )
    small_routine(tmp_path, late + TOOLS)
    command = [str(Path(sys.executable).with_name("em")), *RUN, "--no-journal"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == '"Hello Ana"\n'
    assert (tmp_path / "exit").read_text() == "at exit\n"
    (tmp_path / "tools.py").write_text(late + "threading.Thread(target=wait).start()\n" + TOOLS)
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "thread").read_text() == "thread\n"


def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    small_routine(tmp_path)
    command = [str(Path(sys.executable).with_name("em")), *RUN, "--no-journal"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode != 0
    assert os.strerror(28).encode() in done.stderr
