"""A routine that was right on no recording left out is not stored: in Python as in the command."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.cli.root import run as em
from em.errors import RoutineError
from em.runner.package import kept_routines


def trace(number: int) -> Any:
    """Return a recording with an input that no other recording has."""
    item = {"item": f"I-{number}7"}
    done = {"type": "tool_call", "tool": "move", "args": item, "result": True, "effect": "write"}
    return {
        "version": "1",
        "mission": {"goal": "move it", "input_summary": {**item, f"by_{number}": f"n{number}"}},
        "outcome": "success",
        "events": [done],
    }


def test_what_was_right_on_none_of_five_is_refused_unless_it_is_forced(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        ids = [memory.add_trace(trace(number)) for number in range(5)]
        with pytest.raises(RoutineError, match="none of 5"):
            memory.compile(ids)
        assert em(["compile", *ids, "--keep", "--db", str(tmp_path / "em.db")]) == 1
        assert not [*kept_routines(memory.store)]
        trials = memory.compile(ids, force=True).trials
        assert (trials.count("right"), len(trials)) == (0, 5)


def test_too_few_recordings_to_tell_are_compiled(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        ids = [memory.add_trace(trace(number)) for number in range(3)]
        assert memory.compile(ids).ref == "move@1"
