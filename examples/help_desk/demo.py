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
    ("cancel_order", "I am gus@mail.example. Please cancel order W-7377."),
    (
        "change_shipping",
        "I am hal@mail.example. Please change the shipping of order W-7388 to courier.",
    ),
    ("cancel_order", "I am iva@mail.example. Please cancel order W-7399."),
]


def books(request: str) -> str:
    """Return the order that a request names, as it stands in the shop's books."""
    number = next(word.strip(".") for word in request.split() if word.startswith("W-"))
    row = BOOKS.execute("SELECT * FROM orders WHERE id = ?", (number,)).fetchone()
    return f"{row['id']} {row['status']}, by {row['shipping']}"


def learn(memory: Memory) -> list[str]:
    """Compile a routine for each kind of task, named after the tool that it writes with."""
    kinds = sorted(memory.suggest(), key=lambda kind: [*kind.effects])
    return [memory.compile(kind.traces, name=kind.effects[0]).name for kind in kinds]


def answer(memory: Memory) -> tuple[int, float]:
    """Do the new tasks without a model; return the calls and seconds of the last that was done."""
    made: list[str] = []
    tools = {name: counted(function, made) for name, function in TOOLS.items()}
    calls, seconds = 0, 0.0
    for routine, request in NEW:
        made.clear()
        start = time.perf_counter()
        result = memory.run(routine, {"request": request}, tools)
        taken = time.perf_counter() - start
        print(f"  {routine}: {request}\n    {result.status}: {books(request)}")
        if result.reason is not None:
            print(f"    handed over, nothing was done: {result.reason.message}")
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
        names = learn(memory)
        print(f"\nem compiles that into the routines {' and '.join(names)}. They do the next")
        print("tasks without a model, and hand over what is unlike all that was recorded:")
        calls, seconds = answer(memory)
        first = memory.traces()[0].trace
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
    print(f"\nRead a routine:         {command} --db {WORK / 'em.db'} routine show cancel_order")
    print(f"See it in a browser:    {command} --db {WORK / 'em.db'} serve --open")


if __name__ == "__main__":
    main()
