"""A hook of a coding agent, whole: the program that it starts, the service, the answer."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, in_turns, seconds, time_figure

LESSONS, ROUTINES = 1_000, 100


_TRACE = {
    "version": "1",
    "mission": {"goal": "count the pending orders of a shop"},
    "events": [
        {"type": "tool_call", "tool": "list_orders", "args": {"shop": "north"}, "result": [1]},
        {"type": "tool_call", "tool": "save_count", "args": {"count": 1}, "result": "ok"},
    ],
    "outcome": "success",
}


def round_trip() -> Iterator[Figure]:
    """Each hook beside `python -c pass`, with lessons in the memory and the service running."""
    from em import Memory
    from em.clients import hook
    from em.clients.plugin import launch_of
    from em.heuristics.heuristic import Lesson

    with tempfile.TemporaryDirectory() as folder:
        db = str(Path(folder) / "em.db")
        launch = launch_of(db, folder)
        with Memory(db) as memory:
            memory.heuristics.keep(
                [
                    Lesson(
                        trigger=f"Bash fails with: part{n} is missing in the web shop",
                        action=f"Build part{n} first.",
                        how="recovery",
                        error=f"part{n} is missing",
                        key=str(n),
                    )
                    for n in range(LESSONS)
                ]
            )
            trace = memory.add_trace(_TRACE)
            for n in range(ROUTINES):
                memory.compile(trace, name=f"count_part{n}_orders")
        service = subprocess.Popen(launch.service, cwd=folder)
        try:
            while not Path(launch.socket).exists():
                time.sleep(0.05)
            command = shlex.split(launch.hook_command(shlex.quote(hook.__file__)))
            for what, event in _events().items():
                asked = json.dumps(event | {"cwd": folder}).encode()
                sides = in_turns(
                    lambda asked=asked: _run(command, asked),
                    lambda: _run([sys.executable, "-c", "pass"], b""),
                    rounds=25,
                )
                yield time_figure(
                    f"hook {what}, {LESSONS:,} lessons, {ROUTINES} routines",
                    "python -c pass",
                    sides,
                    5,
                )
        finally:
            service.terminate()
            service.wait()


def _events() -> dict[str, dict[str, str]]:
    failed = {"tool_name": "Bash", "error": "Exit code 1\npart7 is missing"}
    return {
        "at a prompt": {
            "hook_event_name": "UserPromptSubmit",
            "prompt": "part7 of the web shop is missing",
        },
        "after a failure": {"hook_event_name": "PostToolUseFailure", **failed},
        "at the end": {"hook_event_name": "Stop"},
    }


def _run(command: list[str], given: bytes) -> float:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return seconds(
        lambda: subprocess.run(
            command, env=environment, input=given, check=True, stdout=subprocess.DEVNULL
        )
    )
