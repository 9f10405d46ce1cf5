"""What `memory.agent` costs where a routine serves the call, beside `memory.run` of the same.

It is the processor's time: what is added waits for nothing, and other programs don't count.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import em
from bench.figure import Figure
from em import Memory
from em.runner.package import find_routine, keep_routine, texts_of

ROUNDS = 200
SIZES = (1, 20, 200)
"""Routines in use."""
WORDS = "please cancel {} for {}"


def figures() -> Iterator[Figure]:
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "em.db") as memory:
            served, run = _calls(memory, size)
            pairs = [(served(), run()) for _ in range(ROUNDS)]
        ours, theirs = (median(one) * 1e3 for one in zip(*pairs, strict=True))
        what = f"an agent call that one of {size} routines serves, ms beyond the run"
        yield Figure(what, ours, "memory.run", theirs, "ms", ours - theirs, 1.0, False)


def _calls(memory: Memory, size: int) -> tuple[Callable[[], float], Callable[[], float]]:
    """Return what takes the time of an agent's call, and that of a run of its routine."""

    @em.tool(effect="read")
    def get_order(order: str) -> dict[str, str]:
        return {"order": order, "status": "pending"}

    @em.tool(effect="write")
    def cancel(order: str, to: str) -> dict[str, str]:
        return {"order": order, "to": to}

    def work(request: str) -> str:
        words = request.split()
        get_order(words[2])
        cancel(words[2], words[4])
        return "done"

    tools = [get_order, cancel]
    learning = memory.agent(work, tools, success=lambda said: said == "done", learn=False)
    for number in range(4):
        learning(WORDS.format(f"W-{number}71", f"u{number}@mail.example"))
    memory.compile([one.id for one in memory.traces()], name="cancel")
    kept = find_routine(memory.store, "cancel")
    files = texts_of(kept)
    for number in range(size - 1):
        text = files["routine.yaml"].replace("name: cancel", f"name: other_{number}")
        text = text.replace("please cancel", f"please undo {number}")
        keep_routine(memory.store, {**files, "routine.yaml": text}, kept.from_events)
    agent = memory.agent(work, tools)
    given: Any = {"request": WORDS.format("W-7377", "gus@mail.example")}
    agent(given["request"])
    assert agent.last.by_routine
    return (
        lambda: _busy(lambda: agent(given["request"])),
        lambda: _busy(lambda: memory.run("cancel", given, tools)),
    )


def _busy(work: Callable[[], object]) -> float:
    """Return the seconds that the processor worked."""
    start = time.process_time()
    work()
    return time.process_time() - start
