"""Recordings that say their inputs by name are compiled to plain routines, and run by them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.package import opened

ORDERS = {f"W-{1000 + 7 * n}": f"P-{n}" for n in range(9)}
REASONS = ["too late", "ordered twice", "no longer needed"]


class Desk:
    """A help desk whose agent cancels orders."""

    def __init__(self) -> None:
        self.status = dict.fromkeys(ORDERS, "pending")
        self.cancelled: list[tuple[str, str]] = []

    def get_order(self, order_id: str) -> dict[str, Any]:
        person, status = ORDERS[order_id], self.status[order_id]
        return {"order_id": order_id, "person_id": person, "status": status}

    def cancel_order(self, order_id: str, reason: str) -> dict[str, Any]:
        self.cancelled.append((order_id, reason))
        return {"order_id": order_id, "status": "cancelled"}

    @property
    def tools(self) -> dict[str, Any]:
        return {"get_order": self.get_order, "cancel_order": self.cancel_order}


def facts(number: int) -> dict[str, str]:
    return {"order_id": [*ORDERS][number], "reason": REASONS[number % 3]}


def asked(given: dict[str, str]) -> str:
    return f"Please cancel order {given['order_id']}, because: {given['reason']}."


def recorded(number: int) -> dict[str, Any]:
    given, desk = facts(number), Desk()
    return {
        "mission": {"goal": asked(given), "input_summary": given},
        "events": [
            {"type": "message", "role": "user", "text": asked(given)},
            {
                "type": "tool_call",
                "tool": "get_order",
                "args": {"order_id": given["order_id"]},
                "result": desk.get_order(given["order_id"]),
                "effect": "read",
            },
            {
                "type": "tool_call",
                "tool": "cancel_order",
                "args": given,
                "result": desk.cancel_order(**given),
                "effect": "write",
            },
        ],
        "outcome": "success",
    }


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        ids = [memory.add_trace(recorded(number)) for number in range(7)]
        memory.compile(ids, name="cancel")
        yield memory


def test_the_routine_is_short_and_plain(memory: Memory) -> None:
    with opened(memory.store, "cancel") as package:
        routine = package.routine
    assert routine.checks == "hand_over"
    assert [step.__struct_config__.tag for step in routine.steps] == [
        "tool.call", "assert", "tool.call", "return",
    ]  # fmt: skip
    assert not routine.asks


def test_it_runs_with_inputs_by_name(memory: Memory) -> None:
    desk = Desk()
    done = memory.run("cancel", facts(8), desk.tools)
    assert (done.status, desk.cancelled) == ("ok", [(facts(8)["order_id"], facts(8)["reason"])])


def test_it_runs_with_a_request_in_a_recorded_wording(memory: Memory) -> None:
    desk = Desk()
    done = memory.run("cancel", {"request": asked(facts(8))}, desk.tools)
    assert (done.status, desk.cancelled) == ("ok", [(facts(8)["order_id"], facts(8)["reason"])])


@pytest.mark.parametrize(
    "request_",
    [
        "Please don't cancel order W-1056, because: too late.",
        "Please cancel order W-1056, because: too late. And W-1049 as well.",
        "Would you cancel W-1056? It is too late",
        "",
    ],
)
def test_other_words_do_nothing(memory: Memory, request_: str) -> None:
    desk = Desk()
    assert memory.run("cancel", {"request": request_}, desk.tools).status == "needs_input"
    assert not desk.cancelled


def test_a_check_that_fails_names_what_was_recorded_and_what_is_there(memory: Memory) -> None:
    desk = Desk()
    desk.status[facts(8)["order_id"]] = "shipped"
    done = memory.run("cancel", facts(8), desk.tools)
    assert done.status == "needs_input"
    assert done.pending_prompt is None
    assert done.reason is not None
    assert (done.reason.step_id, done.reason.held) == ("order", "7/7")
    assert "shipped" in str(done.reason.now)
    assert not desk.cancelled


def test_recordings_left_out_show_how_well_it_does(memory: Memory) -> None:
    ids = [trace.id for trace in memory.traces()]
    trials = memory.compile(ids, name="again").trials
    assert (trials.count("right"), trials.count("wrong")) == (7, 0)


def test_the_same_recordings_without_a_label_give_the_same_routine(tmp_path: Path) -> None:
    texts = []
    for outcome in ("success", "unknown"):
        with Memory(tmp_path / f"{outcome}.db") as memory:
            traces = [{**recorded(number), "outcome": outcome} for number in range(7)]
            memory.compile([memory.add_trace(trace) for trace in traces], name="cancel")
            with opened(memory.store, "cancel") as package:
                texts.append(package.routine)
    assert texts[0] == texts[1]
