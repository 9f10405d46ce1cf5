"""Repairs in a memory: what was seen and done about it, kills, and items that are the reason."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from boiler_room import Boiler, recorded

from em import Memory
from em.errors import RoutineError
from em.runner.package import find_routine, texts_of, write_files
from em.runner.run import RunResult
from em.runner.validation import validate
from em.traces.trace import Mission, Trace

SINGLE = [(fault,) for fault in ("low", "stuck", "summer", "air") for _ in range(4)]


def traces(*homes: tuple[str, ...], **how: Any) -> list[Trace]:
    """Recordings in these homes, with the home as a typed input."""
    made = []
    for number, faults in enumerate(homes, 10):
        boiler = Boiler(*faults, home=number)
        mission = Mission("The rooms stay cold.", {"home": boiler.home})
        made.append(msgspec.structs.replace(recorded(boiler, **how), mission=mission))
    return made


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


class Learnt:
    """Repairs learnt in some homes, and made in another one."""

    def __init__(self, memory: Memory, made: list[Trace]) -> None:
        self.memory = memory
        self.routine = memory.compile([memory.add_trace(trace) for trace in made], name="warm")

    def run(self, boiler: Boiler, **options: Any) -> RunResult:
        given = {"home": boiler.home}
        return self.memory.run(self.routine, given, boiler.tools(), **options)


@pytest.fixture(scope="module")
def plumber(new_memory: Callable[[], Memory]) -> Learnt:
    """Knows every fault, each from recordings that had no other."""
    return Learnt(new_memory(), traces(*SINGLE))


def test_faults_that_were_never_seen_together_are_put_right_together(plumber: Learnt) -> None:
    for faults in (("low",), ("low", "summer"), ("air", "stuck"), ()):
        boiler = Boiler(*faults)
        result = plumber.run(boiler)
        assert (result.status, boiler.faults) == ("ok", set()), (faults, result)
        assert len(boiler.made) == len({*boiler.made}), faults


def test_an_unknown_fault_is_never_put_right_by_guessing(memory: Memory) -> None:
    learnt = Learnt(memory, traces(*(home for home in SINGLE if home != ("stuck",))))
    boiler = Boiler("low", "stuck", "summer")
    result = learnt.run(boiler)
    assert result.status != "ok"
    assert {name for name, *_ in boiler.done} <= {"refill"}


def test_recordings_that_contradict_each_other_are_refused(memory: Memory) -> None:
    """One of them left the pump as it was, and the room got warm all the same."""
    made = traces(*SINGLE, looks_first=True)
    stuck = [one for one in made if any(getattr(e, "tool", "") == "free_pump" for e in one.events)]
    odd = msgspec.structs.replace(
        stuck[0], events=[e for e in stuck[0].events if getattr(e, "tool", "") != "free_pump"]
    )
    ids = [memory.add_trace(trace) for trace in [*made, odd]]
    with pytest.raises(RoutineError):
        memory.compile(ids, name="warm")


def test_a_dry_run_changes_nothing(plumber: Learnt) -> None:
    boiler = Boiler("low", "summer")
    given = {"home": boiler.home}
    result = plumber.memory.prepare(plumber.routine, given, boiler.tools())
    assert "refill" in [one.tool for one in result.planned]
    assert boiler.done == []


def test_a_run_that_dies_amid_the_fixes_goes_on_and_repeats_none(memory: Memory) -> None:
    plumber = Learnt(memory, traces(*SINGLE))
    boiler = Boiler("low", "stuck", "summer")
    boiler.dies_at = "free_pump"
    with pytest.raises(KeyboardInterrupt):
        plumber.run(boiler, run_id="killed")
    assert boiler.made == ["refill"]
    boiler.dies_at = ""
    result = plumber.memory.resume("killed", boiler.tools())
    assert result.pending_prompt is not None, "nobody knows whether the pump was freed"
    answer = {result.pending_prompt.step_id: {"happened": False}}
    result = plumber.memory.resume("killed", boiler.tools(), answers=answer)
    assert (result.status, boiler.made) == ("ok", ["refill", "free_pump", "set_mode"])


def test_the_trials_say_how_it_did_on_recordings_it_was_not_learnt_from(plumber: Learnt) -> None:
    trials = plumber.routine.trials
    assert (trials.count("right"), trials.count("wrong")) == (len(SINGLE), 0)


def test_the_package_is_valid(plumber: Learnt, tmp_path: Path) -> None:
    write_files(texts_of(find_routine(plumber.memory.store, plumber.routine.ref)), tmp_path / "w")
    assert validate(tmp_path / "w") == []


# --- the item that is the reason ------------------------------------------------------------------
