"""Contents: a record is found by what is in it, where callers don't have its id."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from em.compiler.evidence import BY_PERSON
from em.compiler.example import Call, Example
from em.compiler.learner import learn
from em.runner.engine import run_routine
from em.runner.run import RunResult

READS = {
    "find_customer",
    "get_customer",
    "get_repair",
    "list_repairs",
    "search_repairs",
    "get_own_repair",
}
PARTS = (
    "brake chain pedal saddle spoke tyre fork bell lamp rack stem crank hub rim lever cable"
    " mudguard basket mirror pump"
).split()
NAMES = "Ada Bo Cy Di Ed Fay Gus Hal Ida Jo Kit Lou".split()


class Workshop:
    """A workshop for bicycles: customers have repairs, a repair has parts and a state."""

    def __init__(self) -> None:
        self.customers: dict[str, Any] = {}
        self.repairs: dict[str, Any] = {}
        self.calls: list[Call] = []
        for n, name in enumerate(NAMES):
            key = f"C-{310 + n}"
            kinds = [("credit", "visa", 4100), ("credit", "amex", 5300), ("gift", "house", 0)]
            cards = {
                f"card_{5200 + 10 * n + one}": {"kind": kind, "brand": brand, "last": f"{last + n}"}
                for one, (kind, brand, last) in enumerate(kinds)
            }
            phone = f"555-01{n:02}"
            self.customers[key] = {
                "customer_id": key,
                "name": name,
                "phone": phone,
                "repairs": [],
                "cards": cards,
            }
            for one in range(4):
                parts = [PARTS[(3 * n + 2 * one + more) % 20] for more in range(2)]
                self.add(key, parts, ["waiting", "done"][(n + one) % 2])

    def add(self, customer: str, parts: list[str], status: str) -> str:
        key = f"R-{7001 + 13 * len(self.repairs)}"
        self.repairs[key] = {
            "repair_id": key,
            "customer_id": customer,
            "status": status,
            "bill": 4019 + 37 * len(self.repairs),
            "parts": [
                {"name": name, "size": PARTS.index(name) + 20, "colour": "black"} for name in parts
            ],
        }
        self.customers[customer]["repairs"].append(key)
        return key

    def call(self, tool: str, **args: Any) -> Any:
        result = copy.deepcopy(getattr(self, tool)(**args))
        effect: Any = "read" if tool in READS else "write"
        self.calls.append(Call(tool, args, result, None, effect))
        return result

    def tools(self) -> dict[str, Callable[..., Any]]:
        return {name: self._tool(name) for name in (*READS, "stop_repair", "charge", "refund")}

    def _tool(self, name: str) -> Callable[..., Any]:
        return lambda **args: self.call(name, **args)

    def find_customer(self, phone: str) -> str:
        return next(key for key, one in self.customers.items() if one["phone"] == phone)

    def get_customer(self, customer_id: str) -> Any:
        return self.customers[customer_id]

    def get_repair(self, repair_id: str) -> Any:
        return self.repairs[repair_id]

    def get_own_repair(self, customer_id: str, repair_id: str) -> Any:
        return {"owner": customer_id, **self.repairs[repair_id]}

    def list_repairs(self, customer_id: str) -> Any:
        rows = [self.repairs[key] for key in self.customers[customer_id]["repairs"]]
        return [{name: row[name] for name in ("repair_id", "status")} for row in rows]

    def search_repairs(self, customer_id: str) -> Any:
        return [self.repairs[key] for key in self.customers[customer_id]["repairs"]]

    def stop_repair(self, repair_id: str, reason: str) -> Any:
        return {"repair_id": repair_id, "status": "stopped", "reason": reason}

    def refund(self, customer_id: str, amount: int, reason: str) -> Any:
        return {"customer_id": customer_id, "amount": amount, "done": True}

    def charge(self, repair_id: str, card_id: str) -> Any:
        return {"repair_id": repair_id, "card_id": card_id, "paid": True}

    @property
    def writes(self) -> list[tuple[str, Any]]:
        return [(one.tool, one.args) for one in self.calls if one.effect == "write"]


SHOP = Workshop()


def customer(number: int) -> dict[str, Any]:
    found: dict[str, Any] = [*SHOP.customers.values()][number]
    return found


def repairs(number: int, status: str = "waiting") -> list[Any]:
    own = [SHOP.repairs[key] for key in customer(number)["repairs"]]
    return [one for one in own if one["status"] == status]


def wanted(number: int) -> Any:
    """The repair that a request is about: a waiting one."""
    return repairs(number)[number % 2]


def asked(number: int, **more: Any) -> dict[str, Any]:
    reason = ["too expensive", "takes too long"][number % 2]
    return {"phone": customer(number)["phone"], "reason": reason, **more}


def by_part(number: int) -> dict[str, Any]:
    return asked(number, part=wanted(number)["parts"][0]["name"])


def by_parts(number: int) -> dict[str, Any]:
    some = wanted(number)["parts"][: 1 + number % 2]
    return asked(number, parts=[{"name": one["name"], "size": one["size"]} for one in some])


def by_description(number: int) -> dict[str, Any]:
    parts = [{"name": one["name"]} for one in wanted(number)["parts"]]
    return asked(number, which={"parts": parts, "status": "waiting"})


def by_id(number: int) -> dict[str, Any]:
    return asked(number, repair_id=wanted(number)["repair_id"])


def stop(shop: Workshop, number: int, given: dict[str, Any], *, reads_all: bool = True) -> None:
    key = shop.call("find_customer", phone=given["phone"])
    record = shop.call("get_customer", customer_id=key)
    chosen = wanted(number)["repair_id"]
    for one in record["repairs"] if reads_all else [chosen]:
        shop.call("get_repair", repair_id=one)
    shop.call("stop_repair", repair_id=chosen, reason=given["reason"])


def recorded(number: int, given: dict[str, Any], **more: Any) -> Example:
    shop = Workshop()
    stop(shop, number, given, **more)
    return Example(given, shop.calls)


def routine_of(examples: list[Example]) -> dict[str, Any]:
    return learn("task", examples).routine


def run(folder: Path, routine: dict[str, Any], given: Any, shop: Workshop) -> RunResult:
    folder.mkdir(exist_ok=True)
    (folder / "routine.yaml").write_text(json.dumps(routine))
    return run_routine(folder, given, shop.tools())


def stopped(number: int) -> list[tuple[str, Any]]:
    repair = wanted(number)["repair_id"]
    return [("stop_repair", {"repair_id": repair, "reason": asked(number)["reason"]})]


def hands_over(folder: Path, routine: dict[str, Any], given: Any, shop: Workshop) -> bool:
    ended = run(folder, routine, given, shop)
    return ended.status == "needs_input" and not shop.writes


WAYS = [by_part, by_parts, by_description]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def routine(way: Any) -> dict[str, Any]:
    return routine_of([recorded(number, way(number)) for number in range(6)])


def test_a_record_is_found_by_what_is_in_it(
    tmp_path: Path, way: Any, routine: dict[str, Any]
) -> None:
    for number in range(6, 12):
        shop = Workshop()
        assert run(tmp_path, routine, way(number), shop).status == "ok"
        assert shop.writes == stopped(number)


@pytest.mark.parametrize("way", [by_parts, by_description])
def test_one_recording_is_enough_to_find_it(tmp_path: Path, way: Any) -> None:
    routine = routine_of([recorded(0, way(0))])
    other, given = repairs(0)[1], way(0)
    parts = [{"name": one["name"]} for one in other["parts"]]
    said = {"parts": parts} if way is by_parts else {"which": {"parts": parts}}
    shop = Workshop()
    assert run(tmp_path, routine, {**given, **said}, shop).status == "ok"
    assert [args["repair_id"] for _, args in shop.writes] == [other["repair_id"]]


def test_siblings_that_nobody_read_are_read(tmp_path: Path, way: Any) -> None:
    some = [recorded(number, way(number), reads_all=False) for number in range(6)]
    shop = Workshop()
    assert run(tmp_path, routine_of(some), way(8), shop).status == "ok"
    assert shop.writes == stopped(8)


def test_two_that_fit_hand_over(tmp_path: Path, way: Any, routine: dict[str, Any]) -> None:
    shop = Workshop()
    parts = [one["name"] for one in wanted(8)["parts"]]
    shop.add(customer(8)["customer_id"], parts, "waiting")
    assert hands_over(tmp_path, routine, way(8), shop)


def test_none_that_fits_hands_over(tmp_path: Path, way: Any, routine: dict[str, Any]) -> None:
    shop = Workshop()
    for part in shop.repairs[wanted(8)["repair_id"]]["parts"]:
        part["name"] = "gear"
    assert hands_over(tmp_path, routine, way(8), shop)


@pytest.mark.parametrize(("more", "is_done"), [(21, True), (22, False)])
def test_more_than_25_candidates_hand_over(
    tmp_path: Path, way: Any, routine: dict[str, Any], more: int, is_done: bool
) -> None:
    shop = Workshop()
    for _ in range(more):
        shop.add(customer(8)["customer_id"], ["pump"], "waiting")
    ended = run(tmp_path, routine, way(8), shop)
    assert ended.status == ("ok" if is_done else "needs_input")
    assert shop.writes == (stopped(8) if is_done else [])


def test_checks_of_the_record_stay_behind_the_choice(
    tmp_path: Path, way: Any, routine: dict[str, Any]
) -> None:
    shop = Workshop()
    shop.repairs[wanted(8)["repair_id"]]["customer_id"] = "C-310"
    assert hands_over(tmp_path, routine, way(8), shop)
    shop = Workshop()
    shop.repairs[wanted(8)["repair_id"]]["status"] = "done"
    assert hands_over(tmp_path, routine, way(8), shop)


def test_all_of_several_descriptions_must_be_found(tmp_path: Path) -> None:
    routine = routine_of([recorded(number, by_parts(number)) for number in range(6)])
    given = by_parts(8)
    given["parts"].append({"name": "gear"})
    assert hands_over(tmp_path, routine, given, Workshop())


def refund(number: int) -> Example:
    shop, given = Workshop(), by_description(number)
    key = shop.call("find_customer", phone=given["phone"])
    record = shop.call("get_customer", customer_id=key)
    bills = {one: shop.call("get_repair", repair_id=one)["bill"] for one in record["repairs"]}
    amount = bills[wanted(number)["repair_id"]]
    shop.call("refund", customer_id=key, amount=amount, reason=given["reason"])
    return Example(given, shop.calls)


def test_a_record_is_found_of_which_another_part_is_needed(tmp_path: Path) -> None:
    routine = routine_of([refund(number) for number in range(6)])
    for number in range(6, 12):
        example, shop = refund(number), Workshop()
        assert run(tmp_path, routine, example.inputs, shop).status == "ok"
        assert shop.writes == [(example.calls[-1].tool, example.calls[-1].args)]


def by_owner(number: int) -> Example:
    """The read of a repair needs another argument, which is the same for all."""
    shop, given = Workshop(), by_part(number)
    key = shop.call("find_customer", phone=given["phone"])
    record = shop.call("get_customer", customer_id=key)
    for one in record["repairs"]:
        shop.call("get_own_repair", customer_id=key, repair_id=one)
    chosen = wanted(number)["repair_id"]
    shop.call("stop_repair", repair_id=chosen, reason=given["reason"])
    return Example(given, shop.calls)


def test_the_read_may_need_other_arguments_too(tmp_path: Path) -> None:
    routine = routine_of([by_owner(number) for number in range(6)])
    for number in range(6, 12):
        shop = Workshop()
        assert run(tmp_path, routine, by_part(number), shop).status == "ok"
        assert shop.writes == stopped(number)


# ---- states


def test_a_state_chooses_if_siblings_had_other_states(tmp_path: Path) -> None:
    routine = routine_of([recorded(number, by_part(number)) for number in range(10)])
    shop = Workshop()
    parts = [one["name"] for one in wanted(10)["parts"]]
    shop.add(customer(10)["customer_id"], parts, "done")
    assert run(tmp_path, routine, by_part(10), shop).status == "ok"
    assert shop.writes == stopped(10)


def test_a_state_does_not_choose_if_no_sibling_had_another_one(tmp_path: Path) -> None:
    def alone(number: int) -> Example:
        shop = Workshop()
        for key in shop.customers:
            own = shop.customers[key]["repairs"]
            own[:] = [one for one in own if shop.repairs[one]["status"] == "waiting"]
        stop(shop, number, by_part(number))
        return Example(by_part(number), shop.calls)

    routine = routine_of([alone(number) for number in range(10)])
    shop = Workshop()
    parts = [one["name"] for one in wanted(10)["parts"]]
    shop.add(customer(10)["customer_id"], parts, "done")
    assert hands_over(tmp_path, routine, by_part(10), shop)


def listed(number: int) -> Example:
    """The list says the state, and only those that wait were read."""
    shop, given = Workshop(), by_part(number)
    key = shop.call("find_customer", phone=given["phone"])
    for row in shop.call("list_repairs", customer_id=key):
        if row["status"] == "waiting":
            shop.call("get_repair", repair_id=row["repair_id"])
    chosen = wanted(number)["repair_id"]
    shop.call("stop_repair", repair_id=chosen, reason=given["reason"])
    return Example(given, shop.calls)


def test_a_state_in_the_list_saves_reads(tmp_path: Path) -> None:
    routine = routine_of([listed(number) for number in range(10)])
    shop = Workshop()
    assert run(tmp_path, routine, by_part(10), shop).status == "ok"
    assert shop.writes == stopped(10)
    read = {one.args["repair_id"] for one in shop.calls if one.tool == "get_repair"}
    assert read == {one["repair_id"] for one in repairs(10)}


@pytest.mark.parametrize("count", [3, 10])
def test_a_record_in_another_state_is_not_acted_on(tmp_path: Path, count: int) -> None:
    routine = routine_of([listed(number) for number in range(count)])
    shop = Workshop()
    shop.repairs[wanted(10)["repair_id"]]["status"] = "done"
    assert hands_over(tmp_path, routine, by_part(10), shop)
    given = {**by_part(10), "repair_id": wanted(10)["repair_id"]}
    assert hands_over(tmp_path, routine, given, shop)


# ---- ids


def test_an_id_is_accepted_too(tmp_path: Path) -> None:
    routine = routine_of([recorded(number, by_description(number)) for number in range(6)])
    shop = Workshop()
    assert run(tmp_path, routine, by_id(8), shop).status == "ok"
    assert shop.writes == stopped(8)
    read = [one.args["repair_id"] for one in shop.calls if one.tool == "get_repair"]
    assert read == [wanted(8)["repair_id"]]


def test_an_id_decides_where_a_description_fits_two(
    tmp_path: Path, way: Any, routine: dict[str, Any]
) -> None:
    shop = Workshop()
    parts = [one["name"] for one in wanted(8)["parts"]]
    shop.add(customer(8)["customer_id"], parts, "waiting")
    given = {**way(8), "repair_id": wanted(8)["repair_id"]}
    assert run(tmp_path, routine, given, shop).status == "ok"
    assert shop.writes == stopped(8)


def test_an_id_that_the_description_does_not_fit_hands_over(
    tmp_path: Path, way: Any, routine: dict[str, Any]
) -> None:
    other = next(one for one in repairs(8) if one is not wanted(8))
    given = {**way(8), "repair_id": other["repair_id"]}
    assert hands_over(tmp_path, routine, given, Workshop())


def test_an_id_of_somebody_else_hands_over(tmp_path: Path) -> None:
    routine = routine_of([recorded(number, by_description(number)) for number in range(6)])
    given = {**by_id(8), "repair_id": wanted(3)["repair_id"]}
    assert hands_over(tmp_path, routine, given, Workshop())


def test_recordings_with_ids_stay_as_they_are() -> None:
    routine = routine_of([recorded(number, by_id(number)) for number in range(6)])
    assert not [step for step in routine["steps"] if step["type"] == "for_each"]
    assert {*routine["input_schema"]["required"]} == {"phone", "repair_id", "reason"}


def test_recordings_may_show_both(tmp_path: Path) -> None:
    ways = [by_description, by_id]
    routine = routine_of([recorded(number, ways[number % 2](number)) for number in range(6)])
    for way in ways:
        for number in (8, 9):
            shop = Workshop()
            assert run(tmp_path, routine, way(number), shop).status == "ok"
            assert shop.writes == stopped(number)


# ---- descriptions


@pytest.mark.parametrize("which", [{}, {"parts": []}, {"parts": [{}]}, {"parts": [{"name": ""}]}])
def test_an_empty_description_is_refused(tmp_path: Path, which: Any) -> None:
    routine = routine_of([recorded(number, by_description(number)) for number in range(6)])
    shop = Workshop()
    own = shop.customers[customer(8)["customer_id"]]["repairs"]
    own[:] = [wanted(8)["repair_id"]]
    assert hands_over(tmp_path, routine, asked(8, which=which), shop)


def test_nothing_said_is_asked_for(tmp_path: Path) -> None:
    routine = routine_of([recorded(number, by_description(number)) for number in range(6)])
    assert hands_over(tmp_path, routine, asked(8), Workshop())


def test_any_part_of_a_description_is_enough_if_one_record_fits(tmp_path: Path) -> None:
    routine = routine_of([recorded(number, by_description(number)) for number in range(6)])
    given = by_description(8)
    del given["which"]["status"]
    shop = Workshop()
    assert run(tmp_path, routine, given, shop).status == "ok"
    assert shop.writes == stopped(8)
    vague = asked(8, which={"status": "waiting"})
    assert hands_over(tmp_path, routine, vague, Workshop())


def test_what_the_record_does_not_have_hands_over(tmp_path: Path) -> None:
    routine = routine_of([recorded(number, by_description(number)) for number in range(6)])
    given = by_description(8)
    given["which"]["urgent"] = True
    assert hands_over(tmp_path, routine, given, Workshop())


# ---- where the list itself says enough


def card(number: int) -> dict[str, Any]:
    own = customer(number)["cards"]
    key = [*own][number % 3]
    names = ["kind"] if own[key]["kind"] == "gift" else ["brand", "last"]
    return {"card_id": key, "said": {name: own[key][name] for name in names}}


def charge(number: int) -> Example:
    shop = Workshop()
    given = {
        "phone": customer(number)["phone"],
        "repair_id": wanted(number)["repair_id"],
        "card": card(number)["said"],
    }
    key = shop.call("find_customer", phone=given["phone"])
    shop.call("get_customer", customer_id=key)
    shop.call("get_repair", repair_id=given["repair_id"])
    shop.call("charge", repair_id=given["repair_id"], card_id=card(number)["card_id"])
    return Example(given, shop.calls)


def test_a_card_is_found_by_its_kind(tmp_path: Path) -> None:
    routine = routine_of([charge(number) for number in range(7)])
    assert not [step for step in routine["steps"] if step["type"] == "for_each"]
    for number in range(7, 12):
        example, shop = charge(number), Workshop()
        assert run(tmp_path, routine, example.inputs, shop).status == "ok"
        assert shop.writes == [(example.calls[-1].tool, example.calls[-1].args)]


def test_two_cards_of_a_kind_hand_over(tmp_path: Path) -> None:
    routine = routine_of([charge(number) for number in range(7)])
    shop = Workshop()
    own = shop.customers[customer(8)["customer_id"]]["cards"]
    own["card_1"] = dict(own[card(8)["card_id"]])
    assert hands_over(tmp_path, routine, charge(8).inputs, shop)
    inputs = {name: one for name, one in charge(8).inputs.items() if name != "card"}
    inputs["card_id"] = card(8)["card_id"]
    assert run(tmp_path, routine, inputs, shop).status == "ok"


def searched(number: int) -> Example:
    """One read returns the whole records."""
    shop, given = Workshop(), by_part(number)
    key = shop.call("find_customer", phone=given["phone"])
    shop.call("search_repairs", customer_id=key)
    chosen = wanted(number)["repair_id"]
    shop.call("stop_repair", repair_id=chosen, reason=given["reason"])
    return Example(given, shop.calls)


def test_records_that_the_list_has_are_not_read_again(tmp_path: Path) -> None:
    routine = routine_of([searched(number) for number in range(6)])
    for number in range(6, 12):
        shop = Workshop()
        assert run(tmp_path, routine, by_part(number), shop).status == "ok"
        assert shop.writes == stopped(number)
    assert len(shop.calls) == 3


def test_a_description_may_be_part_of_a_larger_input(tmp_path: Path) -> None:
    def nested(number: int) -> dict[str, Any]:
        given = by_description(number)
        return {"phone": given["phone"], "order": {"which": given["which"], "note": "by phone"}}

    def solved(number: int) -> Example:
        shop = Workshop()
        stop(shop, number, {**nested(number), "reason": "too expensive"})
        return Example(nested(number), shop.calls)

    routine = routine_of([solved(number) for number in range(8)])
    shop = Workshop()
    assert run(tmp_path, routine, nested(9), shop).status == "ok"
    assert [args["repair_id"] for _, args in shop.writes] == [wanted(9)["repair_id"]]
    given = nested(9)
    given["order"]["which"] = {}
    assert hands_over(tmp_path, routine, given, Workshop())


def test_what_the_customer_was_found_by_does_not_tell_which_of_the_repairs_is_meant() -> None:
    def repair(number: int) -> dict[str, Any]:
        return {"repair_id": f"R-70{number}1", "zip": "80273", "status": "waiting"}

    keys = [repair(number)["repair_id"] for number in range(3)]
    customer = {"customer_id": "C-3101", "repairs": keys}
    calls = [
        Call("find_customer", {"zip": "80273"}, customer),
        Call("get_repair", {"repair_id": keys[0]}, repair(0)),
        Call("stop_repair", {"repair_id": keys[0]}, {"stopped": True}, None, "write"),
    ]
    learnt = learn("stop", [Example({"zip": "80273"}, calls)], caution=BY_PERSON).routine
    assert "zip=zip" not in str(learnt["steps"])
