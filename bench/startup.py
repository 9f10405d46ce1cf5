"""Starting the command, with bytecode compiled as a user has it."""

import os
import subprocess
import sys
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
