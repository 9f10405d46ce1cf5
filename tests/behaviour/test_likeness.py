"""What was read must be what was read when it was recorded, until a recording shows otherwise."""

from collections.abc import Callable
from typing import Any

import pytest

from em import Check, Engine
from em.behaviour.result import Result


class Desk:
    """One record to read, one call that writes."""

    def __init__(self) -> None:
        self.record: Any = {"status": "open", "views": 10, "owner": "ana_1001"}
        self.reply: Any = {"ok": True}
        self.writes: list[tuple[Any, ...]] = []

    def engine(self, agent: Callable[..., Any], check: Check[Any] | None = None) -> Engine:
        engine = Engine(name="desk", enough=1)

        def get_record(number: int = 1) -> Any:
            return self.record

        def close(number: int) -> Any:
            self.writes.append(("close", number))
            return self.reply

        def mail(to: str) -> None:
            self.writes.append(("mail", to))

        tools = (
            engine.function()(get_record),
            engine.function(pre_check=check, effect="write")(close),
            engine.function(effect="write")(mail),
        )
        return engine.set_agent(lambda *args: agent(*tools, *args))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def closes(get: Any, close: Any, _mail: Any) -> str:
    """Close what nobody has locked. The rest of the record does not matter, which is not known."""
    if not get().get("locked"):
        close(7)
    return "done"


def writes_of(desk: Desk, result: Result) -> list[str]:
    return [step.tool for step in result.steps if step.replayed and step.tool != "get_record"]


@pytest.mark.parametrize(
    "change",
    [
        {"status": "closed"},
        {"views": 11},
        {"locked": True},
        {"tags": []},
        {"owner": None},
    ],
)
def test_a_field_that_was_only_looked_at_and_changed_hands_over(desk: Desk, change: Any) -> None:
    engine = desk.engine(closes)
    engine()
    desk.record = {**desk.record, **change}
    result = engine()
    assert result.how == "handed_over"
    assert writes_of(desk, result) == []
    (field,) = change
    assert f"step 1 (get_record) returned another {field}" in result.reason


def test_a_second_recording_shows_that_a_number_does_not_matter(desk: Desk) -> None:
    engine = desk.engine(closes)
    for views in (10, 11):
        desk.record = {**desk.record, "views": views}
        assert not engine()
    desk.record = {**desk.record, "views": 99}
    assert engine(), "two recordings differ in it"


def test_of_a_status_only_the_recorded_ones_are_known_to_be_fine(desk: Desk) -> None:
    engine = desk.engine(closes)
    for status in ("open", "waiting"):
        desk.record = {**desk.record, "status": status}
        assert not engine()
    for status in ("open", "waiting"):
        desk.record = {**desk.record, "status": status}
        assert engine(), status
    desk.record = {**desk.record, "status": "shipped"}
    assert not engine()


def test_the_order_of_keys_does_not_count_that_of_items_does(desk: Desk) -> None:
    engine = desk.engine(closes)
    desk.record = {"a": 1, "b": {"x": 1, "y": 2}, "items": ["p", "q"]}
    engine()
    desk.record = {"items": ["p", "q"], "b": {"y": 2, "x": 1}, "a": 1}
    assert engine()
    desk.record = {**desk.record, "items": ["q", "p"]}
    assert not engine()


def test_what_an_argument_takes_may_change(desk: Desk) -> None:
    engine = desk.engine(lambda get, close, mail: mail(get()["owner"]) or None)
    engine()
    desk.record = {**desk.record, "owner": "bo_2002"}
    assert engine().hit
    assert desk.writes[-1] == ("mail", "bo_2002")


def test_what_stands_in_two_places_is_not_sure_to_be_what_was_taken(desk: Desk) -> None:
    engine = desk.engine(lambda get, close, mail: mail(get()["approver"]) or None)
    desk.record = {"owner": "ana_1001", "approver": "ana_1001"}
    engine()
    desk.record = {"owner": "bo_2002", "approver": "ana_1001"}
    assert not engine()
    assert desk.writes[-1] == ("mail", "ana_1001")


def test_a_read_about_something_else_is_not_compared(desk: Desk) -> None:
    def agent(get: Any, close: Any, _mail: Any, number: int) -> str:
        get(number)
        close(number)
        return "done"

    engine = desk.engine(agent)
    engine(4001, params={"number": 4001})
    desk.record = {**desk.record, "views": 5000}
    assert engine(4002, params={"number": 4002}).hit
    assert not engine(4001, params={"number": 4001}), "the same record, and it has changed"


def test_where_a_check_passes_it_has_compared_what_matters(desk: Desk) -> None:
    check = Check(lambda: desk.record["status"], lambda now, then: now == then)
    engine = desk.engine(lambda get, close, mail: close(7) if get() else None, check)
    engine()
    desk.record = {**desk.record, "views": 99}
    assert engine().hit


@pytest.mark.parametrize("reply", [{"ok": False}, {"ok": True, "status": "declined"}, None])
def test_a_write_that_was_refused_this_time_stops_the_replay(desk: Desk, reply: Any) -> None:
    def agent(_get: Any, close: Any, mail: Any) -> str:
        done = close(7)
        if done and done["ok"] and done.get("status", "accepted") == "accepted":
            mail("ana_1001")
        return "done"

    desk.reply = {"ok": True, "status": "accepted", "number": 5}
    engine = desk.engine(agent)
    engine()
    desk.writes.clear()
    desk.reply = {**desk.reply, "number": 6}
    assert engine().hit, "a new number is what writes return"
    desk.writes.clear()
    desk.reply = reply
    engine()
    assert desk.writes == [("close", 7)]


def test_an_answer_is_not_given_from_a_world_that_is_gone(desk: Desk) -> None:
    def agent(get: Any, _close: Any, _mail: Any) -> str:
        return "many" if get()["views"] > 50 else "few"

    engine = desk.engine(agent)
    assert engine().value == "few"
    desk.record = {**desk.record, "views": 80}
    result = engine()
    assert result.value == "many"
    assert "step 1 (get_record) returned another views" in result.reason


def test_an_answer_that_takes_all_from_results_is_always_this_runs(desk: Desk) -> None:
    engine = desk.engine(lambda get, close, mail: get())
    engine()
    desk.record = {"anything": "else"}
    assert engine().value == {"anything": "else"}


def test_an_item_taken_by_its_position_needs_the_recorded_list(desk: Desk) -> None:
    engine = desk.engine(lambda get, close, mail: mail(get()[0]["to"]) or None)
    lists = [["ana_1001", "bo_2002"], ["cy_3003", "di_4004"], ["ed_5005", "flo_6006"]]
    for names in lists:
        desk.record = [{"to": name} for name in names]
        assert not engine(), "no recording explains the choice"
        assert desk.writes[-1] == ("mail", names[0])
        assert engine()


def test_an_item_taken_by_its_position_may_depend_on_a_param(desk: Desk) -> None:
    def agent(get: Any, _close: Any, mail: Any, part: str) -> str:
        mail(get()[0 if part == "morning" else 1]["to"])
        return f"see you in the {part}"

    desk.record = [{"to": "ana_1001"}, {"to": "bo_2002"}]
    engine = desk.engine(agent)
    for part, to in (("morning", "ana_1001"), ("evening", "bo_2002")):
        assert not engine(part, params={"part": part})
        assert desk.writes[-1] == ("mail", to)
        assert engine(part, params={"part": part})


@pytest.mark.parametrize("name", ["stock", "check_stock", "order_status"])
def test_a_tool_whose_effect_is_not_known_may_have_been_asked_something(name: str) -> None:
    engine = Engine(enough=1)
    left, bought = [5], []
    stock = engine.function(name=name)(lambda item: left[0])
    buy = engine.function(name="buy")(bought.append)
    engine.set_agent(lambda item: buy(item) if stock(item) > 0 else None)
    engine("lamp")
    left[0] = 0
    engine("lamp")
    assert bought == ["lamp"]


def test_stock_that_varied_may_vary_and_is_still_not_gone(desk: Desk) -> None:
    engine = desk.engine(lambda get, close, mail: close(7) if get()["views"] > 0 else None)
    for views in (10, 20):
        desk.record = {"views": views}
        engine()
    desk.record = {"views": 30}
    assert engine().hit
    desk.writes.clear()
    desk.record = {"views": 0}
    engine()
    assert desk.writes == []


def test_a_large_result_is_compared_as_a_whole(desk: Desk) -> None:
    engine = desk.engine(closes)
    desk.record = {f"field_{n}": n for n in range(1000)}
    engine()
    assert engine()
    desk.record = {**desk.record, "field_7": 8}
    assert not engine()
