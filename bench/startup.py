"""Starting the command, with bytecode compiled as a user has it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, in_turns, seconds, time_figure

EM = str(Path(sys.executable).with_name("em"))
NOTHING = [sys.executable, "-c", "import click"]
BESIDE = 'python -c "import click"'
ROUTINE = """\
version: "1"
name: greet
input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
tools: [{name: look_up, effect: read}, {name: say, effect: write}]
steps:
  - {id: look, type: tool.call, tool: look_up, args: {name: "{{ name }}"}, save_as: found}
  - {id: say, type: tool.call, tool: say, args: {text: "Hello {{ found.full }}"}, save_as: said}
  - {id: return, type: return, value: "{{ said }}"}
"""
TOOLS = """\
def look_up(name: str) -> dict:
    return {"full": name.title()}


def say(text: str) -> str:
    return text
"""


def run(command: list[str]) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return seconds(
        lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    )


def startup() -> Iterator[Figure]:
    """`em` itself, and its import, beside a bare import of click."""
    imports = [sys.executable, "-c", "from em import Memory"]
    for what, command, bar in (
        ("em --version", [EM, "--version"], None),
        ("em --help", [EM, "--help"], 2.0),
        ("python -c 'from em import Memory'", imports, None),
    ):
        sides = in_turns(lambda command=command: run(command), lambda: run(NOTHING), rounds=25)
        yield time_figure(what, BESIDE, sides, bar)


def run_command() -> Iterator[Figure]:
    """`em run` of a small routine, journal and all, as a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "greet").mkdir()
        (work / "greet" / "routine.yaml").write_text(ROUTINE)
        (work / "tools.py").write_text(TOOLS)
        shared = ["--tools", str(work / "tools.py"), "--db", str(work / "bench.db")]
        command = [EM, "run", str(work / "greet"), "name=ana", *shared]
        for what, more in (("em run", []), ("em run, without a journal", ["--no-journal"])):
            sides = in_turns(lambda more=more: run([*command, *more]), lambda: run(NOTHING), 15)
            bar = None if more else 2.0
            yield time_figure(f"{what} of a small routine, whole process", BESIDE, sides, bar)
