"""What the rooms that read requests are made of: hostile requests, words in lists, lines.

No hostile request may lead to a write: without a model, and with a careful one, which says that the
request asks for something else.
"""

import ast
import runpy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.hostile import Desk, hostile_tasks
from bench.learn.hostile import Kinds
from bench.right.verdict import zero
from em.llm import ScriptedClient
from em.runner.engine import run_routine

SOURCE = Path(__file__).parents[2] / "src" / "em"
WORDS = Path(__file__).parents[3] / "shared" / "tools" / "words.py"
"""The project's own tool beside the repository; without it there is no such row."""
ROOMS = {"compiler": 8_500, "runner": 12_500, "behaviour": 3_000}
"""The rooms that read requests, and how many lines each should have at most."""
MOST_WORDS = 150
REFUSING = {"fits": False, "inputs": {}, "missing": [], "not_expressed": []}


def figures() -> Iterator[Figure]:
    requests = acted = with_model = 0
    with tempfile.TemporaryDirectory() as folder:
        for task in hostile_tasks():
            kinds = Kinds(task, Path(folder))
            for request in task.requests():
                requests += 1
                acted += bool(kinds.do(request).done)
                desk = Desk(task)
                for package in kinds.packages:
                    client = ScriptedClient([REFUSING])
                    run_routine(package, {"request": request}, desk.tools(), client=client)
                with_model += bool(desk.done)
    yield zero("hostile requests that lead to a write, no model", acted, requests)
    yield zero("hostile requests that lead to a write, a careful model", with_model, requests)
    if WORDS.exists():
        yield _words()
    for room, most in ROOMS.items():
        files = (SOURCE / room).rglob("*.py")
        lines = sum(len(one.read_text().splitlines()) for one in files)
        yield Figure(f"lines of {room}", lines, "budget", most, "", lines / most, None, False)


def _words() -> Figure:
    tool: Any = runpy.run_path(str(WORDS))
    found = sum(
        tool["words_in"](node) + tool["alternatives_in"](node)
        for room in ROOMS
        for path in (SOURCE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    )
    share = found / MOST_WORDS
    return Figure("words in lists", found, "most", MOST_WORDS, "", share, 1.0, False)
