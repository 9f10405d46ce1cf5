"""With the recorded request, a routine does as recorded only while the world is as recorded."""

from typing import Any

import pytest

from em.compiler.compile_trace import compile_trace
from em.compiler.package_files import render_routine
from em.runner.engine import run_routine
from em.runner.expressions.functions import fact_of
from em.runner.run import RunResult
from em.traces.trace import Mission, ToolCall, Trace

REQUEST = "Please bring order #W1001 up to date"


class World:
    """Tools whose results can be changed after the recording."""

    def __init__(self, reads: dict[str, Any]) -> None:
        self.reads, self.done = reads, []

    def run(self, folder: Any, given: Any, **options: Any) -> RunResult:
        def read(name: str) -> Any:
            return lambda **_: self.reads[name]

        def write(name: str) -> Any:
            return lambda **args: self.done.append((name, args)) or "done"

        tools = {name: read(name) for name in self.reads}
        tools |= {name: write(name) for name in ("write_note", "archive", "cancel_order", "tell")}
        return run_routine(folder, given, tools, **options)


def recorded(folder: Any, *calls: ToolCall, request: str = REQUEST) -> Any:
    return compiled(folder, {"request": request}, *calls)


def compiled(folder: Any, given: Any, *calls: ToolCall) -> Any:
    mission = Mission(goal="update", input_summary=given)
    draft = compile_trace(Trace(mission=mission, events=list(calls), outcome="success"))
    (folder / "routine.yaml").write_text(render_routine(draft.routine, {}))
    return folder


def read(name: str, result: Any, **args: Any) -> ToolCall:
    return ToolCall(tool=name, args=args, result=result, effect="read")


def write(name: str, **args: Any) -> ToolCall:
    return ToolCall(tool=name, args=args, result="done", effect="write")


ORDER = {"order_id": "#W1001", "weight": 3, "lines": [{"sku": "A-771"}, {"sku": "B-802"}]}


def test_a_value_that_nothing_explains_counts_while_the_reads_return_the_same(
    tmp_path: Any,
) -> None:
    folder = recorded(
        tmp_path,
        read("get_order", ORDER, order_id="#W1001"),
        write("write_note", order_id="#W1001", text="goes by lorry"),
    )
    same = World({"get_order": {**ORDER, "lines": ORDER["lines"][::-1]}})
    assert same.run(folder, {"request": REQUEST}).status == "ok"
    assert same.done == [("write_note", {"order_id": "#W1001", "text": "goes by lorry"})]

    heavier = World({"get_order": {**ORDER, "weight": 4000}})
    asked = heavier.run(folder, {"request": REQUEST})
    assert (asked.status, heavier.done) == ("needs_input", [])
    assert asked.pending_prompt is not None
    assert "since then order changed" in asked.pending_prompt.message


def test_a_list_that_has_grown_is_not_written_as_recorded(tmp_path: Any) -> None:
    folder = recorded(
        tmp_path,
        read("get_order", ORDER, order_id="#W1001"),
        write("archive", order_id="#W1001", skus=["A-771", "B-802"]),
    )
    more = World({"get_order": {**ORDER, "lines": [*ORDER["lines"], {"sku": "C-903"}]}})
    assert more.run(folder, {"request": REQUEST}).status == "needs_input"
    assert more.done == []


def test_a_record_that_was_found_by_something_else_than_its_id_has_guards(tmp_path: Any) -> None:
    request = "Cancel what ana.lopez@shop.example ordered"
    user = {"id": 7, "email": "ana.lopez@shop.example", "active": True}
    folder = recorded(
        tmp_path,
        read("find_user", user, email="ana.lopez@shop.example"),
        write("cancel_order", user_id=7),
        request=request,
    )
    for changed in ({"active": False}, {"email": "bo@shop.example"}):
        world = World({"find_user": {**user, **changed}})
        assert (world.run(folder, {"request": request}).status, world.done) == ("failed", [])
    world = World({"find_user": user})
    assert world.run(folder, {"request": request}).status == "ok"


def test_a_record_with_a_small_number_has_guards(tmp_path: Any) -> None:
    folder = compiled(
        tmp_path,
        {"order_id": 7},
        read("get_order", {"number": 7, "status": "pending"}, id=7),
        write("cancel_order", order_id=7),
    )
    shipped = World({"get_order": {"number": 7, "status": "shipped"}})
    assert (shipped.run(folder, {"order_id": 7}).status, shipped.done) == ("failed", [])


def test_an_argument_of_a_later_effect_that_is_not_there_stops_the_run_before_the_first(
    tmp_path: Any,
) -> None:
    folder = recorded(
        tmp_path,
        read("get_order", {**ORDER, "phone": "+351 912 345 678"}, order_id="#W1001"),
        write("cancel_order", order_id="#W1001"),
        write("tell", phone="+351 912 345 678"),
    )
    world = World({"get_order": ORDER})
    assert (world.run(folder, {"request": REQUEST}).status, world.done) == ("failed", [])


def test_a_read_that_held_a_chosen_value_is_made_again_and_before_the_first_effect(
    tmp_path: Any,
) -> None:
    """A flight is chosen from a search. The booking that is given up for it must not be lost."""
    flights = [{"flight": "HAT266", "seats": 3}, {"flight": "HAT112", "seats": 5}]
    request = "Give up booking #W1001 and put me on another flight on 2026-05-22"
    folder = recorded(
        tmp_path,
        read("get_order", {"order_id": "#W1001", "flight": "HAT900"}, order_id="#W1001"),
        write("cancel_order", order_id="#W1001"),
        read("search", flights, date="2026-05-22"),
        write("archive", order_id="#W1001", flights=["HAT266", "HAT900"]),
        request=request,
    )
    order = {"order_id": "#W1001", "flight": "HAT900"}
    same = World({"get_order": order, "search": flights})
    assert (same.run(folder, {"request": request}).status, len(same.done)) == ("ok", 2)
    full = World({"get_order": order, "search": [{**flights[0], "seats": 0}, flights[1]]})
    assert (full.run(folder, {"request": request}).status, full.done) == ("needs_input", [])


FLIGHTS = [
    {"flight": "HAT266", "status": "available", "seats": 3},
    {"flight": "HAT112", "status": "available", "seats": 5},
]
LEGS = [{"flight": "HAT266", "on": "2026-05-22"}, {"flight": "HAT900", "on": "2026-05-27"}]
BOOKING = {"order_id": "#W1001", "legs": [{"flight": "HAT900"}]}


@pytest.fixture
def rebooked(tmp_path: Any) -> Any:
    return recorded(
        tmp_path,
        read("get_order", BOOKING, order_id="#W1001"),
        write("cancel_order", order_id="#W1001"),
        read("search", FLIGHTS, date="2026-05-22"),
        write("archive", order_id="#W1001", flights=LEGS),
        request="Give up booking #W1001 and put me on another flight on 2026-05-22",
    )


GIVEN = {"order_id": "#W1001", "date": "2026-05-22", "flights": LEGS}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (FLIGHTS[1:], "it is not there any more"),
        ([{**FLIGHTS[0], "status": "cancelled"}, FLIGHTS[1]], 'status is "cancelled" now'),
        ([{**FLIGHTS[0], "seats": 0}, FLIGHTS[1]], "seats is 0 now"),
        ([{"flight": "HAT266", "seats": 3}], "it has no status any more"),
    ],
)
def test_a_choice_that_is_given_by_name_must_still_be_there_and_look_the_same(
    rebooked: Any, found: Any, why: str
) -> None:
    world = World({"get_order": BOOKING, "search": found})
    asked = world.run(rebooked, GIVEN)
    assert (asked.status, world.done) == ("needs_input", [])
    assert asked.pending_prompt is not None
    assert f'"HAT266" was in `search_result.*`, status "available", seats 3; {why}' in str(
        asked.pending_prompt.message
    )


def test_another_choice_or_other_details_of_it_are_no_reason_to_ask(rebooked: Any) -> None:
    world = World({"get_order": BOOKING, "search": [{**FLIGHTS[0], "seats": 90}, FLIGHTS[1]]})
    assert world.run(rebooked, GIVEN).status == "ok"
    other = [{"flight": "HAT112", "on": "2026-05-22"}, LEGS[1]]
    world = World({"get_order": BOOKING, "search": FLIGHTS[1:]})
    assert world.run(rebooked, {**GIVEN, "flights": other}).status != "failed"


def test_who_was_told_that_a_choice_is_gone_may_choose_another_one(rebooked: Any) -> None:
    world = World({"get_order": BOOKING, "search": FLIGHTS[1:]})
    other = [{"flight": "HAT112", "on": "2026-05-22"}, LEGS[1]]
    done = world.run(rebooked, GIVEN, answers={"inputs": {"flights": other}})
    assert (done.status, world.done[-1]) == (
        "ok",
        ("archive", {"order_id": "#W1001", "flights": other}),
    )


def test_of_several_values_each_must_be_found() -> None:
    items = [{"id": "a", "status": "new"}, {"id": "b", "status": "new"}]
    assert fact_of(items, "id", ["a", "b"], "status") == "new"
    with pytest.raises(ValueError, match='no record has "c" as its id'):
        fact_of(items, "id", ["a", "c"], "status")
