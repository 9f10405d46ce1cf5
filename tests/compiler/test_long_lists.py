"""Compiling traces with long lists looks at each of their values a fixed number of times."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.compiler import homes, sources

TRACES = 3


def _trace(number: int, length: int) -> dict[str, Any]:
    things = [{"id": f"T-{number}{place:05}", "name": f"thing {place}"} for place in range(length)]
    wanted = things[length // 2]["id"]
    said = f"Delete {wanted}, please"
    read = {"type": "tool_call", "tool": "list_things", "args": {}, "effect": "read"}
    write = {"type": "tool_call", "tool": "delete_thing", "args": {"id": wanted}, "effect": "write"}
    return {
        "version": "1",
        "mission": {"goal": said},
        "events": [
            {"type": "message", "role": "user", "text": said},
            {**read, "result": {"things": things}},
            {**write, "result": {"deleted": True}},
        ],
        "final_output": {"deleted": True},
        "outcome": "success",
    }


def _looked_at(folder: Path, length: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return how many values each module looked at while three traces were compiled."""
    looked = {"homes": 0, "sources": 0}

    def counted(name: str, found: Iterator[Any]) -> Iterator[Any]:
        for one in found:
            looked[name] += 1
            yield one

    places = sources.places
    with monkeypatch.context() as patch, Memory(folder / f"{length}.db") as memory:
        patch.setattr(homes, "places", lambda *given: counted("homes", places(*given)))
        patch.setattr(sources, "places", lambda *given: counted("sources", places(*given)))
        ids = [memory.add_trace(_trace(number, length)) for number in range(TRACES)]
        assert memory.compile(ids, name="delete").ref == "delete@1"
    return looked


def test_ten_times_as_long_lists_are_ten_times_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = (_looked_at(tmp_path, length, monkeypatch) for length in (20, 200))
    assert 0 < long["sources"] <= 10 * short["sources"]


def test_a_routine_of_steps_is_learnt_without_an_index_of_where_values_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _looked_at(tmp_path, 20, monkeypatch)["homes"] == 0
