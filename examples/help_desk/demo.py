"""The demo of `make demo`: an agent does six tasks, and em does the next ones without a model."""

import functools
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from desk import BOOKS, SECONDS, TOKENS, TOOLS, USD, agent_of  # a file beside this one

from em import Memory
from em.runner.routine import Routine

WORK = Path(".em/demo")
SEEN = [
    "I am ana@mail.example. Please cancel order W-7311.",
    "I am bo@mail.example. Please change the shipping of order W-7322 to express.",
    "I am cy@mail.example. Please cancel order W-7333.",
    "I am di@mail.example. Please change the shipping of order W-7344 to courier.",
    "I am ed@mail.example. Please cancel order W-7355.",
    "I am flo@mail.example. Please change the shipping of order W-7366 to express.",
]
NEW = [
    "I am gus@mail.example. Please cancel order W-7377.",
    "I am hal@mail.example. Please change the shipping of order W-7388 to courier.",
    "I am iva@mail.example. Please cancel order W-7399.",
]


def books(request: str) -> str:
    """Return the order that a request names, as it stands in the shop's books."""
    number = next(word.strip(".") for word in request.split() if word.startswith("W-"))
    row = BOOKS.execute("SELECT * FROM orders WHERE id = ?", (number,)).fetchone()
    return f"{row['id']} {row['status']}, by {row['shipping']}"


def answer(memory: Memory, routine: Routine) -> tuple[int, float]:
    """Do the new tasks without a model; return the calls and seconds of the last that was done."""
    made: list[str] = []
    tools = {name: counted(function, made) for name, function in TOOLS.items()}
    calls, seconds = 0, 0.0
    for request in NEW:
        made.clear()
        start = time.perf_counter()
        result = memory.run(routine, {"request": request}, tools)
        taken = time.perf_counter() - start
        print(f"  {request}\n    {result.status}: {books(request)}")
        if result.pending_prompt is not None:
            print(f"    handed over, nothing was done. {result.pending_prompt.message}")
        else:
            calls, seconds = len(made), taken
    return calls, seconds


def counted(function: Callable[..., Any], made: list[str]) -> Callable[..., Any]:
    """Return a tool that notes that it was called."""

    @functools.wraps(function)
    def call(**given: Any) -> Any:
        made.append(function.__name__)
        return function(**given)

    return call


def main() -> None:
    """Run the demo."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    with Memory(WORK / "em.db") as memory:
        agent = agent_of(memory)
        print("An agent answers six customers, with four calls of a model for each:")
        for request in SEEN:
            agent(request)
            print(f"  {request}\n    {books(request)}")
        traces = memory.traces()
        routine = memory.compile([trace.id for trace in traces], name="help_desk")
        print("\nem compiles that into one routine. It does the next tasks without a model, and")
        print("hands over what is unlike all it has seen:")
        calls, seconds = answer(memory, routine)
        first = traces[0].trace
    print(f"\n{'for one task':<14}{'the agent':>12}{'the routine':>14}")
    for what, agents, own in (
        ("calls", f"{len(first.calls)}", f"{calls}"),
        ("model calls", f"{first.usage.model_calls}", "0"),
        ("tokens", f"{first.usage.tokens:,}", "0"),
        ("seconds", f"{(first.usage.duration_ms or 0) / 1e3:.3f}", f"{seconds:.3f}"),
        ("US dollars", f"{first.usage.cost_usd:.4f}", "0"),
    ):
        print(f"{what:<14}{agents:>12}{own:>14}")
    print(f"The model is a script, made to take {SECONDS} s, {TOKENS:,} tokens and ${USD} a call.")
    command = os.path.relpath(Path(sys.executable).with_name("em"))
    print(f"\nRead the routine:       {command} --db {WORK / 'em.db'} routine show help_desk")
    print(f"See it in a browser:    {command} --db {WORK / 'em.db'} ui")


if __name__ == "__main__":
    main()
