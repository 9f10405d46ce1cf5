"""A replay looks at what a write returned, and hands over before it does anything else."""

from typing import Any

import pytest

from em import Check, Engine


class Shop:
    """Two writes, whose results can be set, and an agent that knows what they mean."""

    def __init__(self, refund: Any, notify: Any = None, check: Check[Any] | None = None) -> None:
        self.returns = {"refund": refund, "notify": notify}
        self.writes: list[str] = []
        self.engine = Engine(name="shop")
        do = {
            name: self.engine.function(name=name, post_check=check)(self._tool(name))
            for name in self.returns
        }

        def agent(order_id: str) -> str:
            do["refund"](order_id)
            do["notify"](order_id)
            return "done"

        self.engine.set_agent(agent)

    def _tool(self, name: str) -> Any:
        def call(order_id: str) -> Any:
            self.writes.append(f"{name} {order_id}")
            return self.returns[name]

        return call

    def __call__(self, order_id: str = "#W1001") -> Any:
        self.writes.clear()
        return self.engine(order_id, params=["order_id"])

    def step(self, number: int) -> Any:
        (way,) = self.engine.cache.lessons(next(iter(self.engine.cache._tasks)))
        assert way.taught is not None
        return [one for one in way.taught.routine["steps"] if one["type"] == "tool.call"][number]


GOOD = {"id": "R-771231", "ok": True, "status": "done", "error": None}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (GOOD, {**GOOD, "ok": False}),
        (GOOD, {**GOOD, "status": "rejected"}),
        (GOOD, {**GOOD, "error": "card expired"}),
        (GOOD, "Error: order not found"),
        ({"id": "R-771231"}, {"error": "order not found"}),
        ({"id": "R-771231"}, {"message": "sorry"}),
        ("R-771231", "Error: order not found"),
        (["R-771231"], "Error: order not found"),
        ("We refunded 50 EUR.", "Error: order not found"),
        (7, None),
    ],
)
@pytest.mark.parametrize("name", ["refund", "notify"])
def test_a_write_that_returns_something_else_hands_over(before: Any, now: Any, name: str) -> None:
    shop = Shop(before, before)
    shop()
    assert shop("#W2002").hit
    shop.returns[name] = now
    result = shop("#W3003")
    assert result.how == "handed_over"
    assert f"({name})" in result.reason
    assert "returned" in result.reason
    assert shop.writes.count("refund #W3003") == 1, "what was done is not done again"
    assert shop.writes.count("notify #W3003") == 1


def test_ids_and_amounts_may_differ() -> None:
    shop = Shop({"id": "R-771231", "ok": True, "amount": 50})
    shop()
    shop.returns["refund"] = {"id": "R-998811", "ok": True, "amount": 70}
    assert shop("#W2002").hit


def test_a_second_recording_shows_what_need_not_be_returned() -> None:
    shop = Shop({"id": "R-771231", "status": "done"})
    shop()
    shop.returns["refund"] = {"id": "R-771232", "status": "queued"}
    assert not shop("#W2002").hit
    assert shop("#W3003").hit
    shop.returns["refund"] = {"id": "R-771233", "status": 7}
    assert not shop("#W4004").hit


def test_where_a_tool_has_a_post_check_the_check_decides() -> None:
    shop = Shop(GOOD, GOOD, check=Check(lambda: 1, lambda now, then: now == then))
    shop()
    assert "expect" not in shop.step(0)
    assert "expect" not in shop.step(1)


@pytest.mark.parametrize(
    "now",
    [
        {**GOOD, "warning": "limit reached"},
        {**GOOD, "id": None},
        {**GOOD, "id": "no such order"},
        {**GOOD, "id": {"code": 7}},
        {},
    ],
)
def test_a_new_field_or_another_kind_of_value_hands_over(now: Any) -> None:
    shop = Shop(GOOD)
    shop()
    assert shop("#W2002").hit
    shop.returns["refund"] = now
    assert shop("#W3003").how == "handed_over"
    assert shop.writes.count("refund #W3003") == 1


def test_a_field_that_repeated_an_argument_must_repeat_it() -> None:
    shop = Shop({"order_id": "#W1001", "ok": True})
    shop()
    shop.returns["refund"] = {"order_id": "#W2002", "ok": True}
    assert shop("#W2002").hit
    assert shop("#W3003").how == "handed_over"


@pytest.mark.parametrize(
    ("now", "hit"),
    [("Refunded 70 to #W2002.", True), ("Could not refund 70 to #W2002.", False), ("", False)],
)
def test_a_sentence_must_be_the_same_but_for_values(now: str, hit: bool) -> None:
    shop = Shop("Refunded 50 to #W1001.")
    shop()
    shop.returns["refund"] = now
    assert shop("#W2002").hit is hit


def test_a_result_that_is_just_an_argument_must_be_it_again() -> None:
    shop = Shop("#W1001")
    shop()
    shop.returns["refund"] = "#W2002"
    assert shop("#W2002").hit
    shop.returns["refund"] = "Error: order not found"
    assert shop("#W3003").how == "handed_over"
