"""Repairs: recordings that look, fix and look again become a routine that does the same."""

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.compiler.boiler_room import CHECKS, FIXES, Boiler, recorded

from em.compiler.evidence import CONSTANTS_SHOWN
from em.compiler.example import Call, Example
from em.compiler.learner import Learnt, learn
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.run import RunResult
from em.traces.trace import ToolCall

FAULTS = [*FIXES]
SOME = [faults for count in range(4) for faults in combinations(FAULTS, count)]
"""Faults of the recorded homes: up to three at a time."""
MANY = [faults for count in (4, 5) for faults in combinations(FAULTS, count)]


def example(boiler: Boiler, *, looks_first: bool = False) -> Example:
    inputs = {"home": boiler.home, **({"month": boiler.month} if boiler.month else {})}
    trace = recorded(boiler, looks_first=looks_first)
    calls = [
        Call(one.tool, one.args, one.result, None, one.effect or "read")
        for one in trace.events
        if isinstance(one, ToolCall)
    ]
    return Example(inputs, calls, name=boiler.home)


def examples(cases: Sequence[Sequence[str]] = SOME, *, looks_first: bool = False) -> list[Example]:
    homes = [Boiler(*faults, home=number + 1) for number, faults in enumerate(cases)]
    return [example(home, looks_first=looks_first) for home in homes]


def heat(cases: Sequence[Example]) -> Learnt:
    return learn("heat", cases, caution=CONSTANTS_SHOWN)


def run(learnt: Learnt, boiler: Boiler, folder: Path) -> RunResult:
    (folder / "routine.yaml").write_text(json.dumps(learnt.routine))
    inputs = {"home": boiler.home, **({"month": boiler.month} if boiler.month else {})}
    return run_routine(folder, inputs, boiler.tools())


def fixes_of(faults: Sequence[str]) -> list[str]:
    return [tool for fault in CHECKS.values() if fault in faults for tool in FIXES[fault]]


@pytest.fixture(scope="module")
def learnt() -> Learnt:
    return heat(examples())


@pytest.mark.parametrize("looks_first", [False, True])
def test_faults_that_never_came_together_are_all_fixed(looks_first: bool, tmp_path: Path) -> None:
    routine = heat(examples(looks_first=looks_first))
    for number, faults in enumerate([*MANY, ()]):
        boiler = Boiler(*faults, home=60 + number)
        assert run(routine, boiler, tmp_path).status == "ok"
        assert boiler.made == fixes_of(faults)


def test_the_routine_is_plain_steps(learnt: Learnt) -> None:
    types = {step["type"] for step in learnt.routine["steps"]}
    assert types == {"tool.call", "let", "assert", "return"}
    (refill,) = [step for step in learnt.routine["steps"] if step.get("tool") == "refill"]
    assert refill["when"] == "needs_refill"
    (needs,) = [step for step in learnt.routine["steps"] if step["id"] == "needs_refill"]
    assert needs["value"] == "{{ check_pressure.bar < check_pressure.minimum_bar }}"


def test_a_read_is_made_again_only_after_a_fix(learnt: Learnt, tmp_path: Path) -> None:
    boiler = Boiler("stuck", home=70)
    run(learnt, boiler, tmp_path)
    assert boiler.looks.count("check_pump") == 2
    assert boiler.looks.count("check_mode") == 1


def test_a_state_that_was_never_seen_hands_over_before_the_first_fix(
    learnt: Learnt, tmp_path: Path
) -> None:
    boiler = Boiler(home=71)
    boiler.pump = "rattling"
    result = run(learnt, boiler, tmp_path)
    assert (result.status, boiler.made) == ("needs_input", [])
    assert result.reason is not None
    assert "rattling" in result.reason.message


def test_a_state_that_was_never_seen_fails_after_a_fix_and_says_what_was_done(
    learnt: Learnt, tmp_path: Path
) -> None:
    boiler = Boiler("low", home=72)
    boiler.pump = "rattling"
    result = run(learnt, boiler, tmp_path)
    assert (result.status, boiler.made) == ("failed", ["refill"])
    assert result.failure is not None
    assert "refill" in str(result.failure.context)


def test_a_fix_that_does_not_help_is_not_followed_by_others(learnt: Learnt, tmp_path: Path) -> None:
    boiler = Boiler("low", "stuck", home=73)
    boiler.useless = "refill"
    assert run(learnt, boiler, tmp_path).status == "failed"
    assert boiler.made == ["refill"]


def test_what_ended_recordings_ends_the_run(learnt: Learnt, tmp_path: Path) -> None:
    boiler = Boiler("leak", home=74)
    assert run(learnt, boiler, tmp_path).status == "ok"
    assert boiler.made == ["call_engineer"]
    assert "measure_room" not in boiler.looks


def test_the_end_must_look_as_it_did(learnt: Learnt, tmp_path: Path) -> None:
    boiler = Boiler(home=75)
    boiler.month = ""
    shown = boiler._shown
    boiler._shown = lambda look: "Room: cold" if look == "measure_room" else shown(look)  # type: ignore[method-assign]
    assert run(learnt, boiler, tmp_path).status == "needs_input"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_no_recording_had_is_handed_over(fault: str, tmp_path: Path) -> None:
    routine = heat(examples([faults for faults in SOME if fault not in faults]))
    boiler = Boiler(fault, home=76)
    assert run(routine, boiler, tmp_path).status == "needs_input"
    assert boiler.made == []


def test_a_fix_seen_once_is_left_to_others(tmp_path: Path) -> None:
    often = [faults for faults in SOME if "summer" not in faults]
    routine = heat(examples([*often, ("summer",)]))
    summer, stuck = Boiler("summer", home=77), Boiler("stuck", home=78)
    assert run(routine, summer, tmp_path).status == "needs_input"
    assert summer.made == []
    assert run(routine, stuck, tmp_path).status == "ok"


def test_an_input_can_be_part_of_a_condition(tmp_path: Path) -> None:
    homes = [Boiler(*faults, home=number + 1) for number, faults in enumerate([*SOME, *SOME])]
    for number, home in enumerate(homes):
        home.month = ("July", "January")[number // len(SOME)]
    routine = heat([example(home) for home in homes])
    for month, made in (("July", []), ("January", ["set_mode"])):
        boiler = Boiler("summer", home=79)
        boiler.month = month
        assert run(routine, boiler, tmp_path).status == "ok"
        assert boiler.made == made
    boiler = Boiler("summer", home=80)
    boiler.month = "April"
    assert run(routine, boiler, tmp_path).status == "needs_input"


def test_arguments_come_from_what_was_read(learnt: Learnt, tmp_path: Path) -> None:
    boiler = Boiler("low", home=81)
    run(learnt, boiler, tmp_path)
    assert boiler.done == [("refill", {"boiler_id": boiler.id, "bar": 1.5})]
    assert ("bar", 1.5) in learnt.constants


def test_recordings_that_looked_in_another_order_are_refused() -> None:
    first, *others = examples()
    turned = Example(first.inputs, [first.calls[0], *reversed(first.calls[1:])], name="odd")
    with pytest.raises(RoutineError, match="another order"):
        heat([turned, *others])


# ---- writes that only some recordings made


class Port:
    """Vessels and fairways: above a draught, a pilot's order is followed by one for tugs."""

    def __init__(self, limit: str = "tug_above_draught_m") -> None:
        self.calls: list[Call] = []
        self.limit = limit

    def call(self, tool: str, **args: Any) -> Any:
        result = getattr(self, tool)(**args)
        effect: Any = "write" if tool.startswith("order") else "read"
        self.calls.append(Call(tool, args, result, None, effect))
        return result

    def get_vessel(self, name: str) -> Any:
        number = int(name.rpartition(" ")[2])
        draught = round(5 + (number * 37 % 60) / 10, 1)
        fairway = ("north", "south")[number % 2]
        return {"vessel_id": f"VS-{4000 + number}", "draught_m": draught, "fairway": fairway}

    def get_fairway(self, fairway: str) -> Any:
        limit = {"north": 7.05, "south": 8.15}[fairway]
        return {"fairway_id": f"F-{fairway}", self.limit: limit, "open": True}

    def order_pilot(self, vessel_id: str) -> Any:
        return {"order_id": f"PO-{vessel_id}"}

    def order_tugs(self, order_id: str) -> Any:
        return {"tug_order": f"TO-{order_id}"}


def pilot(number: int, *limit: str) -> Example:
    port, inputs = Port(*limit), {"vessel": f"Heron {number}"}
    vessel = port.call("get_vessel", name=inputs["vessel"])
    fairway = port.call("get_fairway", fairway=vessel["fairway"])
    order = port.call("order_pilot", vessel_id=vessel["vessel_id"])
    if vessel["draught_m"] > fairway[port.limit]:
        port.call("order_tugs", order_id=order["order_id"])
    return Example(inputs, port.calls, name=str(number))


def order(
    learnt: Learnt, number: int, folder: Path, *limit: str, **more: Any
) -> tuple[RunResult, list[str]]:
    (folder / "routine.yaml").write_text(json.dumps(learnt.routine))
    port = Port(*limit)
    names = ("get_vessel", "get_fairway", "order_pilot", "order_tugs")
    tools = {name: lambda _name=name, **args: port.call(_name, **args) for name in names}
    result = run_routine(folder, {"vessel": f"Heron {number}", **more}, tools)
    return result, [call.tool for call in port.calls if call.effect == "write"]


def test_a_write_that_some_made_has_the_condition_that_separates_them(tmp_path: Path) -> None:
    routine = learn("pilot", [pilot(number) for number in range(1, 31)])
    for number in range(31, 61):
        result, made = order(routine, number, tmp_path)
        assert result.status == "ok"
        assert made == [call.tool for call in pilot(number).calls if call.effect == "write"]


def test_without_evidence_whether_to_write_is_an_input(tmp_path: Path) -> None:
    few = [pilot(number, "limit_m") for number in range(1, 6)]
    assert {len(one.kind) for one in few} == {1, 2}
    routine = learn("pilot", few)
    assert routine.asked == ["order_tugs"]
    result, made = order(routine, 31, tmp_path, "limit_m")
    assert (result.status, made) == ("needs_input", [])
    no, yes = (
        order(routine, 31, tmp_path, "limit_m", order_tugs=told)[1] for told in (False, True)
    )
    assert (no, yes) == (["order_pilot"], ["order_pilot", "order_tugs"])


def test_a_field_named_like_the_write_decides_it_where_nothing_disagrees(tmp_path: Path) -> None:
    routine = learn("pilot", [pilot(number) for number in range(1, 6)])
    assert routine.asked == []
    done = 0
    for number in range(31, 61):
        result, made = order(routine, number, tmp_path)
        done += result.status == "ok"
        wanted = [call.tool for call in pilot(number).calls if call.effect == "write"]
        assert made == (wanted if result.status == "ok" else [])
    assert done > 10


def test_recordings_that_did_other_things_are_refused() -> None:
    other = pilot(1)
    calls = [
        call if call.effect == "read" else call._replace(tool="order_boat") for call in other.calls
    ]
    with pytest.raises(RoutineError, match="did different things"):
        learn("pilot", [pilot(2), pilot(3), Example(other.inputs, calls)])
