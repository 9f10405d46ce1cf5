"""The typed part of the bench `learn` says what a write meant, and can tell right from wrong."""

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from bench.learn import typed_attacks
from bench.learn.inputs import CannotSay, described, said
from bench.learn.shop import Shop
from bench.learn.typed import Case, Class, Example, TypedShop
from bench.right.recording import recording_of
from bench.right.verdict import Ended
from bench.right.world import Domain, Write

from em.traces.trace import ToolCall

WHO = {"email": "ann@x"}
EXCHANGE, CANCEL, FIND = (
    "exchange_delivered_order_items",
    "cancel_pending_order",
    "find_user_id_by_email",
)
LAMP = {"name": "Lamp", "options": {"color": "red", "size": "small"}}


class Exchange:
    @staticmethod
    def invoke(
        data: Mapping[str, Any],
        order_id: str,
        item_ids: list[str],
        new_item_ids: list[str],
        payment_method_id: str,
    ) -> str:
        del payment_method_id
        order = data["orders"][order_id]
        if order["status"] != "delivered":
            return "Error: the order is not delivered"
        order["status"] = f"{item_ids} for {new_item_ids}"
        return json.dumps(order)


class Cancel:
    @staticmethod
    def invoke(data: Mapping[str, Any], order_id: str, reason: str) -> str:
        order = data["orders"][order_id]
        if order["status"] != "pending":
            return "Error: the order is not pending"
        order["status"] = f"cancelled: {reason}"
        return json.dumps(order)


class Find:
    @staticmethod
    def invoke(data: Mapping[str, Any], email: str) -> str:
        return next(str(key) for key, user in data["users"].items() if user["email"] == email)


class Look:
    @staticmethod
    def invoke(data: Mapping[str, Any], order_id: str) -> str:
        return json.dumps(data["orders"][order_id])


def exchange(order: str) -> Write:
    args = {"item_ids": ["i1"], "new_item_ids": ["i2"], "payment_method_id": "card_1"}
    return Write(EXCHANGE, {"order_id": order, **args})


def cancel(order: str) -> Write:
    return Write(CANCEL, {"order_id": order, "reason": "too late"})


@pytest.fixture
def of() -> Domain:
    variants = {
        key: {"item_id": key, "options": {"color": color, "size": "small"}, "available": True}
        for key, color in (("i1", "red"), ("i2", "blue"))
    }
    items = [{"item_id": "i1", "product_id": "p1", **LAMP}]
    orders = {
        f"W{number}": {
            "order_id": f"W{number}",
            "status": "pending" if number < 4 else "delivered",
            "user_id": "bob" if number in (3, 7) else "ann",
            "items": items,
        }
        for number in range(8)
    }
    card = {"source": "credit_card", "brand": "visa", "last_four": "1234", "id": "card_1"}
    users = {
        name: {
            "name": {"first_name": name, "last_name": "Lee"},
            "email": f"{name}@x",
            "address": {"zip": "10001"},
            "orders": [key for key, order in orders.items() if order["user_id"] == name],
            "payment_methods": {key: {**card, "id": key}},
        }
        for name, key in (("ann", "card_1"), ("bob", "card_2"))
    }
    tasks = [
        task("I'm ann@x. Cancel W1.", cancel("W1")),
        task("I'm ann@x. Exchange the lamp of W4. Cancel W2.", exchange("W4"), cancel("W2")),
        task("I'm ann@x. Cancel W1 and W2.", cancel("W1"), cancel("W2")),
    ]
    tools = {EXCHANGE: Exchange, CANCEL: Cancel, "get_order_details": Look, FIND: Find}
    tables: dict[str, Any] = {
        "orders": orders,
        "users": users,
        "products": {"p1": {"variants": variants}},
    }
    return Domain("retail", tools, tables, {"train": tasks})


def task(instruction: str, *writes: Write) -> SimpleNamespace:
    actions = [SimpleNamespace(name=write.tool, kwargs=write.args) for write in writes]
    return SimpleNamespace(instruction=instruction, user_id="ann", actions=actions)


def run_of(name: str, of: Domain, *writes: Write) -> Any:
    calls = [(FIND, WHO, "ann")]
    for write in writes:
        order = of.tables["orders"][write.args["order_id"]]
        calls.append(("get_order_details", {"order_id": write.args["order_id"]}, json.dumps(order)))
        calls.append((write.tool, write.args, '{"ok": true}'))
    messages: list[dict[str, Any]] = []
    for number, (tool, args, answer) in enumerate(calls):
        function = {"name": tool, "arguments": json.dumps(args)}
        asked = {"id": f"c{number}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": answer},
        ]
    chat = {"task_id": 0, "reward": 1.0, "instruction": name, "messages": messages}
    return recording_of(name, json.dumps(chat).encode())


class Routine:
    """Cancels and exchanges; careful ones look at the order first, and at who asks."""

    def __init__(self, kind: str, *, careful: bool) -> None:
        self.kind, self.careful = kind, careful

    def run(self, inputs: Mapping[str, Any], tools: Mapping[str, Callable[..., Any]]) -> Ended:
        try:
            user = tools[FIND](email=inputs["who"]["email"])
            order = tools["get_order_details"](order_id=inputs["order_id"])
            expected = "pending" if self.kind == CANCEL else "delivered"
            if self.careful and (order["status"], order["user_id"]) != (expected, user):
                return Ended("needs_input", "status or owner")
            args = cancel(inputs["order_id"]) if self.kind == CANCEL else exchange("W4")
            tools[self.kind](**args.args)
        except Exception as error:  # noqa: BLE001 - whatever it is, it hands over
            return Ended("needs_input", repr(error))
        return Ended("ok")


class Learner:
    def __init__(self, *without: str, careful: bool = True) -> None:
        self.without, self.careful = without, careful
        self.learnt: list[dict[str, int]] = []

    def learn(self, kinds: Mapping[str, Any], reads: frozenset[str]) -> dict[str, Routine]:
        assert reads == {"get_order_details", FIND}
        self.learnt.append({kind: len(found) for kind, found in kinds.items()})
        known = [kind for kind in kinds if kind not in self.without]
        return {kind: Routine(kind, careful=self.careful) for kind in known}


@pytest.fixture
def shop(of: Domain) -> Shop:
    return Shop(of, [run_of(f"run {n}", of, cancel("W0"), exchange(f"W{n}")) for n in (4, 5, 6)])


def verdicts(shop: Shop, learner: Learner) -> list[str]:
    group = Class(TypedShop(shop), learner)
    return [group.score(case, "all").kind for case in group.shop.cases(None)]


def test_a_write_is_said_by_names_options_and_what_differs(of: Domain) -> None:
    assert said(exchange("W4"), WHO, of.tables) == {
        "who": WHO,
        "order_id": "W4",
        "payment_method_id": "card_1",
        "items": [LAMP],
        "new_items": [{"options": {"color": "blue"}}],
    }


def test_orders_and_cards_can_be_said_without_ids(of: Domain) -> None:
    inputs = said(exchange("W7"), WHO, of.tables)
    assert described({**inputs, "payment_method_id": "card_2"}, of.tables) == {
        "who": WHO,
        "which_order": {"items": [LAMP], "status": "delivered"},
        "payment_method": {"source": "credit_card", "brand": "visa", "last_four": "1234"},
        "items": [LAMP],
        "new_items": [{"options": {"color": "blue"}}],
    }
    with pytest.raises(CannotSay, match="is like another order"):
        described(inputs | {"order_id": "W4"}, of.tables)


def test_each_write_of_a_run_is_a_recording_of_its_kind(shop: Shop) -> None:
    typed = TypedShop(shop)
    assert {kind: len(found) for kind, found in typed.examples.items()} == {EXCHANGE: 3, CANCEL: 3}
    one: Example = typed.examples[EXCHANGE][0]
    assert one.inputs["who"] == WHO
    # The other write of the run is no part of it; what was read before it is.
    assert [call.tool for call in one.trace.calls if isinstance(call, ToolCall)] == [
        FIND,
        "get_order_details",
        "get_order_details",
        EXCHANGE,
    ]


def test_a_larger_size_has_the_recordings_of_a_smaller_one(shop: Shop) -> None:
    typed = TypedShop(shop)
    for draw in range(5):
        names = [
            [one.trace.tags for one in typed.drawn(size, draw)[CANCEL]]
            for size in ("1", "2", "all")
        ]
        assert [len(one) for one in names] == [1, 2, 3]
        assert names[2][:2] == names[1]
        assert names[1][:1] == names[0]


def test_a_learner_learns_all_kinds_once_for_each_size_and_draw(shop: Shop) -> None:
    learner = Learner()
    group = Class(TypedShop(shop), learner)
    for case in group.shop.cases(None):
        for draw in range(2):
            group.score(case, "2", draw)
    assert learner.learnt == [{CANCEL: 2, EXCHANGE: 2}] * 2


def test_tasks_with_one_or_several_writes_are_right(shop: Shop) -> None:
    assert [case.row for case in TypedShop(shop).cases(None)] == ["single", "several", "several"]
    assert verdicts(shop, Learner()) == ["right", "right", "right"]


def test_a_kind_that_was_not_learnt_is_counted(shop: Shop) -> None:
    assert verdicts(shop, Learner(CANCEL)) == ["not learnt"] * 3


def test_nothing_is_written_unless_every_routine_is_prepared(shop: Shop, of: Domain) -> None:
    of.tables["orders"]["W2"]["user_id"] = "bob"
    assert verdicts(shop, Learner()) == ["right", "handed over", "handed over"]


def test_what_was_prepared_does_not_see_the_writes_before_it(shop: Shop) -> None:
    typed = TypedShop(shop)
    case = typed.cases(None)[0]
    twice = Case(case.task, [*case.steps, *case.steps])
    verdict = Class(typed, Learner()).score(twice, "all")
    assert verdict.kind == "partial"
    assert "not pending" in verdict.why


def test_acts_and_twins_are_counted(shop: Shop) -> None:
    def figures(learner: Learner) -> dict[str, tuple[float, float]]:
        group = Class(TypedShop(shop), learner)
        found = typed_attacks.acts(group, ["all"], None, 1, verbose=False)
        return {figure.what.rpartition(": ")[2]: (figure.ours, figure.theirs) for figure in found}

    careful, careless = figures(Learner()), figures(Learner(careful=False))
    # Neither looks at reasons, wishes or lists; only the careful one at status and owner.
    assert careful["acts"][0] < careless["acts"][0]
    assert careful["twins done"] == careless["twins done"]
    assert careful["twins done"][0] == careful["twins done"][1]
    assert figures(Learner(CANCEL, EXCHANGE))["twins done"][0] == 0


def test_each_kind_of_attack_is_made(shop: Shop) -> None:
    typed = TypedShop(shop)
    made = {
        attack.kind
        for case in typed.alone(None)
        for attack in typed_attacks.attacks_on(case, typed.domain)
    }
    assert made == {
        "status changed",
        "owner changed",
        "another person's order",
        "somebody else's payment method",
        "input left out",
        "empty list",
        "same element twice",
        "unknown value",
        "variant unavailable",
    }
