"""What is read off lists and texts is checked like a field: lengths, sums, dates, words."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from em import Memory

Row = dict[str, Any]
NAMES = ("Ada Moss", "Ben Roy", "Cleo Vant", "Dag Olsen", "Edna Li", "Fynn Hart", "Gus Pell")
DRUGS = ("ibuprofen", "metformin", "ramipril", "codeine", "cetirizine", "digoxin", "warfarin")


def _bill(n: int) -> Row:
    lines = [
        {"sku": f"S-{n}{k}", "count": 1 + (n + k) % 3, "price": 10.5 + n + 3 * k, "faults": []}
        for k in range(2 + n % 3)
    ]
    return {
        "bill": f"B-{n}",
        "lines": lines,
        "total": round(sum(one["count"] * one["price"] for one in lines), 2),
        "boxes": (2, 3, 4, 1, 2, 3)[n % 6],
        "urgency": (5, 3, 6, 4, 2, 5)[n % 6],
        "remark": "",
        "terms": f"From 2026-0{1 + n % 4}-{3 + n:02} to 2026-1{n % 3}-{2 + n:02}.\nNo returns.",
        "drug": {"code": f"D-{n}", "name": DRUGS[n % 7]},
        "paid": "2026-06-10",
        "clerk": NAMES[n % 7],
        "signed": {"by": NAMES[n % 7], "round": 2 + n % 5},
        "round": 2 + n % 5,
        "copies": len(lines),
        "witness": NAMES[(n + 3) % 7],
        "trips": [
            {"miles": 40 + 3 * n + k, "by": NAMES[(3 * n + k + 2) % 7]}
            for k in range(1 + (n > 1) + n % 2)
        ],
        "address": {"street": f"Lane {n}"} | ({"floor": n} if n % 2 else {}),
    }


def _firm(n: int) -> Row:
    return {
        "firm": f"V-{40 + n}",
        "banned": [DRUGS[(n + 2) % 7], DRUGS[(n + 4) % 7]][: n % 3],
        "members": [f"U-{n}{k}" for k in range(2 + n % 4)],
        "seats": 6 + n % 3,
        "packs": 3 + 2 * n,
        "price": 2.25 + n,
        "worth": round((3 + 2 * n) * (2.25 + n), 2),
        "weight": f"{12 + 3 * n} kg",
        "most_miles": 50 + 5 * n,
        "crew": [NAMES[(3 * n + k + 2) % 7] for k in range(1 + (n > 1) + n % 2)],
    }


def _given(n: int) -> Row:
    return {"bill": f"B-{n}", "firm": f"V-{40 + n}"}


class Desk:
    """Tools over one bill and one firm, and what was written with them."""

    def __init__(self, n: int) -> None:
        self.bill, self.firm = _bill(n), _firm(n)
        self.paid: list[Row] = []

    @property
    def tools(self) -> Mapping[str, Callable[..., Any]]:
        return {
            "get_bill": lambda bill: copy.deepcopy(self.bill),
            "get_firm": lambda firm: copy.deepcopy(self.firm),
            "get_time": lambda: {"today": "2026-06-15"},
            "pay": lambda **args: self.paid.append(args) or {"done": True},
        }


def _trace(n: int) -> Row:
    given, desk = _given(n), Desk(n)
    written = {
        "bill": given["bill"],
        "amount": desk.bill["total"],
        "code": desk.bill["drug"]["code"],
        "kilos": 12 + 3 * n,
    }
    calls = [
        ("get_bill", {"bill": given["bill"]}, desk.bill, "read"),
        ("get_firm", {"firm": given["firm"]}, desk.firm, "read"),
        ("get_time", {}, {"today": "2026-06-15"}, "read"),
        ("pay", written, {"done": True}, "write"),
    ]
    return {
        "mission": {"goal": "pay a bill", "input_summary": given},
        "events": [
            {"type": "tool_call", "tool": tool, "args": args, "result": result, "effect": effect}
            for tool, args, result, effect in calls
        ],
        "outcome": "success",
    }


@pytest.fixture(scope="module")
def memory_and_routine() -> Any:
    with Memory(":memory:") as memory:
        ids = [memory.add_trace(_trace(n)) for n in range(6)]
        yield memory, memory.compile(ids, name="pay_bill")


def _run(memory_and_routine: Any, change: Callable[[Desk], object]) -> tuple[str, list[Row]]:
    memory, routine = memory_and_routine
    desk = Desk(7)
    change(desk)
    return memory.run(routine, _given(7), desk.tools).status, desk.paid


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d.bill.update(total=222.5), id="the total is not the sum"),
        pytest.param(lambda d: d.bill["lines"][1].update(count=9), id="a count is another"),
        pytest.param(lambda d: d.bill["lines"][-1].update(faults=["torn"]), id="one has a fault"),
        pytest.param(lambda d: d.bill.update(remark="on hold"), id="a text that was empty"),
        pytest.param(
            lambda d: d.bill.update(terms=d.bill["terms"].replace("2026-04", "2026-07")),
            id="a day before the first date",
        ),
        pytest.param(
            lambda d: d.bill.update(terms=d.bill["terms"].replace("No", "N\u200bo")),
            id="a hidden character",
        ),
        pytest.param(lambda d: d.bill.update(terms=d.bill["terms"] + " Or so."), id="more words"),
        pytest.param(
            lambda d: d.firm.update(members=[f"U-7{k}" for k in range(d.firm["seats"])]),
            id="no seat is left",
        ),
        pytest.param(lambda d: d.firm.update(worth=99.5), id="not the product"),
        pytest.param(
            lambda d: d.firm["banned"].append(d.bill["drug"]["name"]), id="newly in a list"
        ),
        pytest.param(lambda d: d.bill["signed"].update(by="Hal Orr"), id="signed by another"),
        pytest.param(lambda d: d.bill.update(round=5), id="an older round"),
        pytest.param(lambda d: d.bill.update(copies=2), id="a copy too few"),
        pytest.param(lambda d: d.bill["trips"][-1].update(miles=99), id="one is above the limit"),
        pytest.param(lambda d: d.bill["trips"][0].update(by="Hal Orr"), id="one of no crew"),
        pytest.param(lambda d: d.bill.update(witness=d.bill["clerk"]), id="one person is both"),
        pytest.param(lambda d: d.bill["drug"].update(code="X7"), id="a code of another form"),
        pytest.param(lambda d: d.bill["signed"].update(revoked=True), id="a new field inside"),
    ],
)
def test_what_a_list_or_text_says_otherwise_hands_over(
    memory_and_routine: Any, change: Callable[[Desk], object]
) -> None:
    assert _run(memory_and_routine, change) == ("needs_input", [])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: None, id="as it is"),
        pytest.param(
            lambda d: d.bill.update(boxes=4, urgency=3), id="a chance order of small ones"
        ),
        pytest.param(lambda d: d.firm.update(members=["U-70"]), id="fewer members"),
        pytest.param(lambda d: d.firm["banned"].append(DRUGS[5]), id="another drug in the list"),
        pytest.param(
            lambda d: d.bill.update(clerk="Hal Orr", signed={"by": "Hal Orr", "round": 9}, round=9),
            id="another clerk in another round",
        ),
        pytest.param(lambda d: d.firm.update(most_miles=70), id="another limit"),
        pytest.param(
            lambda d: (
                d.bill["trips"][0].update(by="Hal Orr", miles=44),
                d.firm["crew"].__setitem__(0, "Hal Orr"),
            ),
            id="another crew",
        ),
        pytest.param(lambda d: d.bill.update(witness="Hal Orr"), id="another witness"),
        pytest.param(lambda d: d.bill["drug"].update(name="D. aspera"), id="another name"),
        pytest.param(
            lambda d: d.bill["address"].update(floor=2, gate="B"), id="fields that come and go"
        ),
    ],
)
def test_what_matters_to_nobody_is_done(
    memory_and_routine: Any, change: Callable[[Desk], object]
) -> None:
    status, paid = _run(memory_and_routine, change)
    assert (status, [one["kilos"] for one in paid]) == ("ok", [33])
