"""The PostgreSQL server itself: shut down at once while clients write, and started again."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from bench.faults.act import ACTS, Act, Verdict
from bench.server import postgres_server

WRITERS = ("append", "run", "checkpoint", "forget")
"""Acts that write at the same time, each into a database of its own."""
TRIES = 60
"""Attempts to start the server, a second apart."""


def killed(
    folder: Path, _db: str, kills: int, draw: random.Random
) -> tuple[Sequence[str], Verdict]:
    """Shut the server down under its writers; what they acknowledged must be there."""
    from bench.faults.damage import sum_of
    from bench.faults.table import verified

    with postgres_server() as server:
        acts = [_act(server.get_uri(), folder, name) for name in WRITERS]
        said: dict[str, list[str]] = {act.name: [] for act in acts}
        wrong: list[str] = []
        for turn in range(kills):
            for act, lines, problem in _round(server, acts, turn, draw):
                said[act.name] += lines
                wrong.append(problem)
            for act in acts:
                act.settle()
        verdicts = [act.judge(said[act.name]) for act in acts]
        wrong += [verified(act.db) for act in acts]
    return [line for lines in said.values() for line in lines], sum_of(verdicts, wrong)


def _act(address: str, folder: Path, name: str) -> Act:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE of_{name}")
    place = folder / name
    place.mkdir()
    act = ACTS[name](place, address.replace("/postgres?", f"/of_{name}?"))
    act.prepare()
    return act


def _round(
    server: Any, acts: Sequence[Act], turn: int, draw: random.Random
) -> list[tuple[Act, list[str], str]]:
    """Let all write, shut the server down, start it; return what each said, and its mistake."""
    from bench.faults.table import Child

    children = [(act, Child(act, turn)) for act in acts]
    first = [child.first_line() for _, child in children]
    time.sleep(draw.uniform(0, 0.3))
    _shut_down(server)
    _start(server)
    time.sleep(draw.uniform(0, 0.2))  # who can connect again writes on
    found = []
    for (act, child), line in zip(children, first, strict=True):
        with suppress(ProcessLookupError):
            child.process.send_signal(signal.SIGKILL)
        lines, code, complaint = child.end()
        # 3: an error of em ended it.
        problem = "" if code in (0, 3, -signal.SIGKILL) else f"{act.name}: {complaint[-300:]}"
        found.append((act, [*line, *lines], problem))
    return found


def _shut_down(server: Any) -> None:
    """Shut down as after a failure of power: no checkpoint, no farewell to clients."""
    pid = server.get_pid()
    os.kill(pid, signal.SIGQUIT)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def _start(server: Any) -> None:
    for _ in range(TRIES):
        # It asserts that the server is ready, and recovery may take longer than it waits.
        with suppress(AssertionError, subprocess.SubprocessError):
            server.ensure_postgres_running()
            return
        time.sleep(1)
    raise RuntimeError("PostgreSQL does not start again")
