"""Starting the command, with bytecode compiled as a user has it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, in_turns, seconds, time_figure


def run(command: list[str]) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return seconds(
        lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    )


def startup() -> Iterator[Figure]:
    em = str(Path(sys.executable).with_name("em"))
    nothing = [sys.executable, "-c", "pass"]
    for arguments, bar in ((["--version"], 6.0), (["--help"], None)):
        command = [em, *arguments]
        sides = in_turns(lambda command=command: run(command), lambda: run(nothing), rounds=25)
        yield time_figure(f"em {' '.join(arguments)}", "python -c pass", sides, bar)
    imports = [sys.executable, "-c", "from em import Memory"]
    sides = in_turns(lambda: run(imports), lambda: run(nothing), rounds=25)
    yield time_figure("python -c 'from em import Memory'", "python -c pass", sides, None)


def run_command() -> Iterator[Figure]:
    """`em run` of the csv_report routine, journal and all, as a process of its own."""
    example = Path(__file__).parent.parent / "examples" / "csv_report"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        subprocess.run(
            [sys.executable, str(example / "demo.py")],
            cwd=work,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        # The demo's server is gone: a tool of the same name reads the file that it served.
        (work / "tools.py").write_text(
            "from em.runner.tools import ToolRegistry\n"
            "registry = ToolRegistry()\n"
            "registry.register('fetch_csv', lambda url: 'city,cost\\nPorto,1\\n', effect='read')\n"
            "registry.register('save_report', lambda database, report: {'saved': 1})\n"
        )
        command = [
            *(str(Path(sys.executable).with_name("em")), "run", str(work / ".em/demo/csv_report")),
            *("--input", str(work / ".em/demo/input.json"), "--tools", str(work / "tools.py")),
            *("--db", str(work / "bench.db")),
        ]
        nothing = [sys.executable, "-c", "pass"]
        sides = in_turns(lambda: run(command), lambda: run(nothing), rounds=15)
        yield time_figure("em run of csv_report, whole process", "python -c pass", sides, 14.0)
