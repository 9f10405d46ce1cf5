"""The learner: recordings of one kind of task become a routine that acts where they all agree."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from em.compiler.example import Call, Example
from em.compiler.learner import learn
from em.errors import RoutineError
from em.runner.engine import run_routine
from em.runner.run import RunResult

READS = {"find_person", "get_order", "get_person", "list_carriers"}


class Shop:
    """A small shop: people have orders, an order has items and belongs to a person."""

    def __init__(self) -> None:
        names = (
            "Ada Berg, Ben Cole, Cleo Dunn, Dov Ek, Ewa Falk, Finn Gray, Gina Holt, Hal Ives,"
            " Iris Jung, Jon Kerr"
        ).split(", ")
        self.people = {
            f"P-{700 + n}": {
                "person_id": f"P-{700 + n}",
                "name": name,
                "email": f"{name.split()[0].lower()}@mail.example",
                "orders": [f"W-{5100 + 7 * n}", f"W-{8200 + 3 * n}"],
                "blocked": False,
            }
            for n, name in enumerate(names)
        }
        self.orders: dict[str, dict[str, Any]] = {
            order: {
                "order_id": order,
                "person_id": key,
                "status": "pending",
                "items": [
                    {"item_id": f"{order}-{one}", "name": name, "price": price + one}
                    for one, (name, price) in enumerate(
                        [("lamp", 20 + 3 * n), ("desk", 150 - 5 * n), ("chair", 60 + n)]
                    )
                ],
            }
            for n, (key, person) in enumerate(self.people.items())
            for order in person["orders"]
        }
        self.calls: list[Call] = []

    def call(self, tool: str, **args: Any) -> Any:
        result = copy.deepcopy(getattr(self, tool)(**args))
        effect: Any = "read" if tool in READS else "write"
        self.calls.append(Call(tool, args, result, None, effect))
        return result

    def tools(self) -> dict[str, Callable[..., Any]]:
        names = [*READS, "cancel_order", "return_items", "send_note"]
        return {name: self._tool(name) for name in names}

    def _tool(self, name: str) -> Callable[..., Any]:
        return lambda **args: self.call(name, **args)

    def find_person(self, email: str) -> str:
        return next(key for key, one in self.people.items() if one["email"] == email)

    def get_person(self, person_id: str) -> Any:
        return self.people[person_id]

    def get_order(self, order_id: str) -> Any:
        return self.orders[order_id]

    def list_carriers(self) -> Any:
        return [{"carrier": "Bike", "days": 2}, {"carrier": "Van", "days": 1}]

    def cancel_order(self, order_id: str, reason: str) -> Any:
        self.orders[order_id]["status"] = "cancelled"
        return {"order_id": order_id, "status": "cancelled", "reason": reason}

    def return_items(self, order_id: str, item_ids: list[str]) -> Any:
        return {"order_id": order_id, "item_ids": item_ids, "status": "returned"}

    def send_note(self, to: str, text: str) -> Any:
        return {"to": to, "sent": True}

    @property
    def writes(self) -> list[tuple[str, Any]]:
        return [(one.tool, one.args) for one in self.calls if one.effect == "write"]


def person(number: int) -> dict[str, Any]:
    return [*Shop().people.values()][number]


def facts(number: int) -> dict[str, Any]:
    who = person(number)
    reason = ["no longer needed", "ordered by mistake"][number % 2]
    return {"email": who["email"], "order_id": who["orders"][number % 2], "reason": reason}


def cancel(shop: Shop, given: dict[str, Any]) -> None:
    key = shop.call("find_person", email=given["email"])
    shop.call("get_person", person_id=key)
    shop.call("get_order", order_id=given["order_id"])
    shop.call("cancel_order", order_id=given["order_id"], reason=given["reason"])


def recorded(solve: Callable[[Shop, Any], None], given: dict[str, Any]) -> Example:
    shop = Shop()
    solve(shop, given)
    return Example(given, shop.calls)


def routine_of(examples: list[Example], name: str = "task") -> dict[str, Any]:
    return learn(name, examples).routine


def run(folder: Path, routine: dict[str, Any], given: Any, shop: Shop) -> RunResult:
    folder.mkdir(exist_ok=True)
    (folder / "routine.yaml").write_text(json.dumps(routine))
    return run_routine(folder, given, shop.tools())


@pytest.fixture
def cancelling() -> dict[str, Any]:
    return routine_of([recorded(cancel, facts(number)) for number in range(6)])


def test_another_order_is_cancelled_without_a_model(
    tmp_path: Path, cancelling: dict[str, Any]
) -> None:
    shop = Shop()
    ended = run(tmp_path, cancelling, facts(8), shop)
    assert ended.status == "ok"
    assert shop.writes == [
        ("cancel_order", {"order_id": facts(8)["order_id"], "reason": facts(8)["reason"]})
    ]


def _shipped(shop: Shop) -> None:
    shop.orders[facts(8)["order_id"]]["status"] = "shipped"


def _of_somebody_else(shop: Shop) -> None:
    shop.orders[facts(8)["order_id"]]["person_id"] = "P-701"


def _blocked(shop: Shop) -> None:
    shop.people[person(8)["person_id"]]["blocked"] = True


def _no_items(shop: Shop) -> None:
    shop.orders[facts(8)["order_id"]]["items"] = []


def _without_owner(shop: Shop) -> None:
    del shop.orders[facts(8)["order_id"]]["person_id"]


@pytest.mark.parametrize(
    "change", [_shipped, _of_somebody_else, _blocked, _no_items, _without_owner]
)
def test_what_all_recordings_had_must_be_so_again(
    tmp_path: Path, cancelling: dict[str, Any], change: Callable[[Shop], None]
) -> None:
    shop = Shop()
    change(shop)
    ended = run(tmp_path, cancelling, facts(8), shop)
    assert ended.status == "needs_input"
    assert ended.reason is not None
    assert not shop.writes


@pytest.mark.parametrize(
    "given",
    [
        {**facts(8), "reason": "because"},
        {**facts(8), "order_id": "W-1"},
        {**facts(8), "order_id": person(2)["orders"][0]},
        {**facts(8), "email": "nobody"},
        {**facts(8), "reason": ""},
        {**facts(8), "speed": "fast"},
    ],
)
def test_inputs_that_no_recording_resembles_do_nothing(
    tmp_path: Path, cancelling: dict[str, Any], given: dict[str, Any]
) -> None:
    shop = Shop()
    assert run(tmp_path, cancelling, given, shop).status == "needs_input"
    assert not shop.writes


def give_back(shop: Shop, given: dict[str, Any]) -> None:
    order = shop.call("get_order", order_id=given["order_id"])
    found = [
        next(one["item_id"] for one in order["items"] if one["name"] == wanted["name"])
        for wanted in given["items"]
    ]
    shop.call("return_items", order_id=given["order_id"], item_ids=found)


def returned(number: int) -> dict[str, Any]:
    names = ["lamp", "desk", "chair"]
    wanted = [{"name": names[(number + one) % 3]} for one in range(1 + number % 3)]
    return {"order_id": facts(number)["order_id"], "items": wanted}


def test_several_things_are_found_by_what_was_said_about_each(tmp_path: Path) -> None:
    routine = routine_of([recorded(give_back, returned(number)) for number in range(5)])
    shop = Shop()
    assert run(tmp_path, routine, returned(8), shop).status == "ok"
    assert shop.writes == [
        (call.tool, call.args) for call in recorded(give_back, returned(8)).calls[-1:]
    ]


@pytest.mark.parametrize(
    "items", [[], [{"name": "lamp"}, {"name": "LAMP"}], [{"name": "sofa"}], [{}]]
)
def test_lists_that_name_nothing_or_a_thing_twice_do_nothing(
    tmp_path: Path, items: list[Any]
) -> None:
    routine = routine_of([recorded(give_back, returned(number)) for number in range(5)])
    shop = Shop()
    ended = run(tmp_path, routine, {**returned(8), "items": items}, shop)
    assert ended.status == "needs_input"
    assert not shop.writes


def write_note(shop: Shop, given: dict[str, Any]) -> None:
    key = shop.call("find_person", email=given["email"])
    who = shop.call("get_person", person_id=key)
    order = shop.call("get_order", order_id=given["order_id"])
    shop.call(
        "send_note",
        to=who["email"],
        text=f"Dear {who['name'].split()[0]}, your order {order['order_id']} is {order['status']}.",
    )


@pytest.mark.parametrize("size", [3, 6])
def test_a_text_is_put_together_from_what_was_read(tmp_path: Path, size: int) -> None:
    given = [{"email": facts(n)["email"], "order_id": facts(n)["order_id"]} for n in range(10)]
    routine = routine_of([recorded(write_note, given[number]) for number in range(size)])
    shop = Shop()
    assert run(tmp_path, routine, given[8], shop).status == "ok"
    assert shop.writes == [("send_note", recorded(write_note, given[8]).calls[-1].args)]


def test_a_value_that_nothing_explains_is_asked_for() -> None:
    examples = [recorded(cancel, facts(number)) for number in range(4)]
    hidden = [
        Example({name: one.inputs[name] for name in ("email", "order_id")}, one.calls)
        for one in examples
    ]
    made = learn("task", hidden)
    assert made.asked == ["reason"]
    assert made.routine["input_schema"]["required"] == ["email", "order_id", "reason"]


def test_recordings_that_did_different_things_are_no_kind() -> None:
    examples = [recorded(cancel, facts(1)), recorded(give_back, returned(1))]
    with pytest.raises(RoutineError):
        learn("task", examples)


def test_more_recordings_never_make_it_worse(tmp_path: Path) -> None:
    examples = [recorded(cancel, facts(number)) for number in range(8)]
    right: set[int] = set()
    for size in range(1, 9):
        routine = routine_of(examples[:size])
        done = set()
        for number in (8, 9):
            shop = Shop()
            ended = run(tmp_path / f"{size}-{number}", routine, facts(number), shop)
            assert not shop.writes or shop.writes == [
                (one.tool, one.args)
                for one in recorded(cancel, facts(number)).calls
                if one.effect == "write"
            ]
            if ended.status == "ok":
                done.add(number)
        assert right <= done
        right = done
    assert right == {8, 9}


# ---- several writes with one tool


def linked(number: int) -> Example:
    """Two notes are made, and the second one is linked."""
    first, second = f"N-{3000 + number}", f"N-{6000 + 7 * number}"
    calls = [
        Call("add_note", {"text": f"tea {number}"}, {"note_id": first}, None, "write"),
        Call("add_note", {"text": f"oil {number}"}, {"note_id": second}, None, "write"),
        Call("link_note", {"note_id": second}, {"linked": True}, None, "write"),
    ]
    return Example({"one": f"tea {number}", "other": f"oil {number}"}, calls)


def test_writes_that_no_list_accounts_for_are_made_one_by_one() -> None:
    learnt = learn("note", [linked(number) for number in range(9)])
    steps = [step for step in learnt.routine["steps"] if step.get("tool") == "add_note"]
    assert [step["args"]["text"] for step in steps] == ["{{ one }}", "{{ other }}"]
    assert len({step["save_as"] for step in steps}) == 2


def test_the_result_of_one_of_several_alike_writes_is_not_guessed() -> None:
    learnt = learn("note", [linked(number) for number in range(9)])
    (link,) = [step for step in learnt.routine["steps"] if step.get("tool") == "link_note"]
    assert link["args"]["note_id"] == "{{ note_id }}"
    assert "note_id" in learnt.asked


def boxes(number: int) -> Example:
    """Some boxes are ticked, then the form is sent."""
    names = [f"box {number + one}" for one in range(1 + number % 3)]
    ticked = [Call("click", {"name": name}, "done", None, "write") for name in names]
    send = Call("click", {"name": "Send"}, "done", None, "write")
    return Example({"names": names}, [*ticked, send])


def test_one_more_write_after_those_for_a_list_is_no_round_of_it() -> None:
    learnt = learn("tick", [boxes(number) for number in range(9)])
    loop, send = learnt.routine["steps"][-3:-1]
    assert loop["type"] == "for_each"
    assert send["args"] == {"name": "Send"}


def read_off(number: int) -> Example:
    """A value is read off a table, by the name of its row."""
    rows = {
        "Colour": f"tone {number * 13}",
        "Weight": f"{number * 3 + 40} kg",
        "Maker": f"firm {number}",
    }
    wanted = [*rows][number % 3]
    look = Call("look", {}, {"rows": rows}, None, "read")
    return Example(
        {"row": wanted}, [look, Call("enter", {"text": rows[wanted]}, "done", None, "write")]
    )


def test_an_input_can_name_a_field() -> None:
    learnt = learn("table", [read_off(number) for number in range(1, 9)])
    (enter,) = [step for step in learnt.routine["steps"] if step.get("tool") == "enter"]
    assert enter["args"] == {"text": "{{ look.rows[row] }}"}


def paid(number: int, owner: str = "") -> list[Call]:
    who, order = f"U-{100 + number}", f"O-{500 + 3 * number}"
    record = {"order_id": order, "user_id": owner or who, "method": f"pm_{900 + number}"}
    return [
        Call("get_user", {"email": f"p{number}@x.example"}, {"user_id": who}),
        Call("get_order", {"order_id": order}, record),
        Call("pay", {"method": record["method"]}, {"ok": True}, None, "write"),
    ]


def refunded(number: int, placed: str = "") -> list[Call]:
    order = f"O-{500 + 3 * number}"
    day = placed or f"2026-03-{1 + number:02}"
    return [
        Call("clock", {}, {"now": f"2026-03-{1 + number + number % 7:02}"}),
        Call("get_order", {"order_id": order}, {"order_id": order, "placed": day}),
        Call("get_policy", {}, {"return_days": 30}),
        Call("refund", {"order_id": order}, {"ok": True}, None, "write"),
    ]


def played(folder: Path, routine: dict[str, Any], given: Any, calls: list[Call]) -> tuple[str, int]:
    """Run a routine on the answers of recorded calls; return its status and how often it wrote."""
    made: list[str] = []

    def tool(call: Call) -> Callable[..., Any]:
        return lambda **_args: made.append(call.effect) or call.result

    folder.mkdir(exist_ok=True)
    (folder / "routine.yaml").write_text(json.dumps(routine))
    ended = run_routine(folder, given, {call.tool: tool(call) for call in calls})
    return ended.status, made.count("write")


def test_somebody_elses_order_is_not_paid(tmp_path: Path) -> None:
    def given(number: int) -> dict[str, str]:
        return {"email": f"p{number}@x.example", "order_id": f"O-{500 + 3 * number}"}

    routine = routine_of([Example(given(number), paid(number)) for number in range(6)])
    assert played(tmp_path, routine, given(8), paid(8)) == ("ok", 1)
    assert played(tmp_path, routine, given(8), paid(8, "U-101")) == ("needs_input", 0)


def test_nothing_is_refunded_outside_of_the_window_that_was_read(tmp_path: Path) -> None:
    def given(number: int) -> dict[str, str]:
        return {"order_id": f"O-{500 + 3 * number}"}

    routine = routine_of([Example(given(number), refunded(number)) for number in range(6)])
    assert played(tmp_path, routine, given(8), refunded(8)) == ("ok", 1)
    for placed in ("2025-11-01", "2026-01-15"):
        assert played(tmp_path, routine, given(8), refunded(8, placed)) == ("needs_input", 0)


def joined(number: int, places: int = 0, others: tuple[str, ...] = ("M-9", "M-8")) -> list[Call]:
    group, members = (
        f"G-{40 + number}",
        [f"M-{300 + 10 * number + n}" for n in range(1 + number % 3)],
    )
    rows = [{"member_id": one} for one in others]
    return [
        Call("get_group", {"group_id": group}, {"group_id": group, "places": places or 4 + number}),
        Call("list_members", {"group_id": group}, rows),
        *(
            Call("get_member", {"member_id": one}, {"member_id": one, "phone": f"0{one[2:]}55"})
            for one in members
        ),
        *(Call("join", {"phone": f"0{one[2:]}55"}, {"ok": True}, None, "write") for one in members),
    ]


def test_a_list_is_not_longer_than_a_limit_and_names_nobody_who_is_there(tmp_path: Path) -> None:
    def given(number: int) -> dict[str, Any]:
        calls = [call for call in joined(number) if call.tool == "get_member"]
        return {"group_id": f"G-{40 + number}", "members": [one.args["member_id"] for one in calls]}

    def joins(calls: list[Call]) -> int:
        known = {(one.tool, *one.args.values()): one.result for one in calls}
        made: list[Any] = []

        def tool(name: str) -> Callable[..., Any]:
            return lambda **args: made.append(name) or known[name, *args.values()]

        run_routine(tmp_path, given(8), {call.tool: tool(call.tool) for call in calls})
        return made.count("join")

    routine = routine_of([Example(given(number), joined(number)) for number in range(8)])
    (tmp_path / "routine.yaml").write_text(json.dumps(routine))
    assert joins(joined(8)) == 3
    assert joins(joined(8, places=2)) == 0
    assert joins(joined(8, others=("M-9", "M-382"))) == 0


def booked(number: int, *, wind: int = 0, room: str = "") -> list[Call]:
    boat, quay = f"BT-{600 + number}", f"QY-{30 + number}"
    berth = {"quay_id": quay, "max_wind": 30 + number, "boat_id": room or boat}
    return [
        Call("find_boat", {"name": f"Gull {number}"}, {"boat_id": boat, "quay_id": quay}),
        Call("get_quay", {"quay_id": quay}, berth),
        Call("get_weather", {"day": f"2026-04-{1 + number:02}"}, {"wind": wind or 20 + number}),
        Call("book", {"boat_id": boat}, {"ok": True}, None, "write"),
    ]


def test_two_recordings_show_a_limit_and_whose_record_it_is(tmp_path: Path) -> None:
    def given(number: int) -> dict[str, str]:
        return {"name": f"Gull {number}", "day": f"2026-04-{1 + number:02}"}

    routine = routine_of([Example(given(number), booked(number)) for number in range(2)])
    assert played(tmp_path, routine, given(5), booked(5)) == ("ok", 1)
    assert played(tmp_path, routine, given(5), booked(5, wind=44)) == ("needs_input", 0)
    assert played(tmp_path, routine, given(5), booked(5, room="BT-611")) == ("needs_input", 0)


def zoned(number: int, zone: str = "north", status: str = "open") -> list[Call]:
    plot = f"PL-{80 + number}"
    return [
        Call("get_plot", {"plot_id": plot}, {"plot_id": plot, "zone": zone, "status": status}),
        Call("get_zone", {"zone": zone}, {"office": f"OF-{zone}-1", "fee": 12}),
        Call("apply", {"office": f"OF-{zone}-1"}, {"ok": True}, None, "write"),
    ]


def test_a_word_by_which_something_is_read_is_no_state(tmp_path: Path) -> None:
    def given(number: int) -> dict[str, str]:
        return {"plot_id": f"PL-{80 + number}"}

    routine = routine_of([Example(given(number), zoned(number)) for number in range(3)])
    assert played(tmp_path, routine, given(7), zoned(7, "south")) == ("ok", 1)
    assert played(tmp_path, routine, given(7), zoned(7, status="sold")) == ("needs_input", 0)


def moored(number: int, lines: int = 2, name: str = "lines") -> list[Call]:
    boat = f"BT-{600 + number}"
    return [
        Call("get_boat", {"boat_id": boat}, {"boat_id": boat, name: lines, "length": 31 + number}),
        Call("moor", {"boat_id": boat, "lines": lines}, {"ok": True}, None, "write"),
    ]


def test_a_value_that_was_always_the_same_must_be_the_same_again(tmp_path: Path) -> None:
    def after(size: int, name: str = "lines") -> tuple[str, int]:
        rows = [Example({"boat_id": f"BT-{600 + n}"}, moored(n, name=name)) for n in range(size)]
        calls = moored(50, lines=3, name=name)
        return played(tmp_path, routine_of(rows), {"boat_id": "BT-650"}, calls)

    assert after(5) == after(8) == ("needs_input", 0)
    assert after(5, "tier")[1] == 0
