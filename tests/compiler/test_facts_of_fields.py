"""Fields inside of records must be as all recordings saw them: nested, in lists, beside others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorded_world import World

Record = Callable[[int, bool], Any]
NEXT = {"loan_id": "LOAN-608"}


def loans(path: Path, record: Record, count: int) -> World:
    """A bank that looks at a loan, and pays out its sum."""
    world = World(path)

    def loan(loan_id: str, is_new: bool) -> Any:
        number = int(loan_id[5:])
        return {"loan_id": loan_id, "total": number * 10 + 0.75, **record(number, is_new)}

    world.read("get_loan", ("loan_id",), loan)
    world.write("pay_out", ("loan_id", "total"))
    own = [f"LOAN-{number}" for number in range(601, 601 + count)]
    world.learn(
        ({"loan_id": one}, [("get_loan", one), ("pay_out", one, loan(one, False)["total"])])
        for one in own
    )
    return world


ALWAYS: dict[str, Record] = {
    "a flag of a member": lambda n, new: {"papers": [{"title": f"paper {n}", "signed": not new}]},
    "a member that is no record": lambda n, new: {"papers": ["lost"] if new else [{"page": n}]},
    "a field of a member that is gone": lambda n, new: {
        "papers": [{"page": n, **({} if new else {"signed": True})}]
    },
    "a flag three levels deep in a list": lambda n, new: {"a": {"b": [{"c": {"open": not new}}]}},
    "a word in a list": lambda n, new: {"holders": {"marks": ["sanctioned"] if new else ["known"]}},
    "a code": lambda n, new: {"cur": "JPY" if new else "EUR"},
    "a flag for a number": lambda n, new: {"years": True if new else 3 + n % 4},
}


@pytest.mark.parametrize("case", ALWAYS)
def test_a_field_must_be_as_all_recordings_had_it(tmp_path: Path, case: str) -> None:
    loans(tmp_path, ALWAYS[case], 5).refuses(NEXT, changed=True)


@pytest.mark.parametrize("case", ["a code", "a flag for a number"])
def test_a_field_must_be_as_recorded_even_by_one_recording(tmp_path: Path, case: str) -> None:
    loans(tmp_path, ALWAYS[case], 1).refuses(NEXT, changed=True)


@pytest.mark.parametrize("case", ALWAYS)
def test_a_field_as_recorded_is_no_reason_to_hand_over(tmp_path: Path, case: str) -> None:
    loans(tmp_path, ALWAYS[case], 5).does(NEXT, ("LOAN-608", 6080.75))


@pytest.mark.parametrize("left", [70, -5, None])
def test_a_number_inside_of_a_record_that_was_zero_must_be_so(tmp_path: Path, left: Any) -> None:
    world = loans(tmp_path, lambda n, new: {"fees": {"open": left if new else 0, "paid": n}}, 5)
    world.refuses(NEXT, changed=True)
    world.does(NEXT, ("LOAN-608", 6080.75))


@pytest.mark.parametrize("times", [100, 0.001])
def test_what_is_written_is_of_the_order_of_size_that_was_seen(
    tmp_path: Path, times: float
) -> None:
    """A sum in cents is no sum in euro."""
    world = loans(tmp_path, lambda n, new: {"total": n * (times if new else 1)}, 5)
    world.refuses(NEXT, changed=True)
    world.does({"loan_id": "LOAN-5990"}, ("LOAN-5990", 5990))


EIGHT: dict[str, Record] = {
    "a level": lambda n, new: {"risk_level": 4 if new else 1},
    "a number that was always the same": lambda n, new: {"payments": 20 if new else 12},
}


@pytest.mark.parametrize("case", EIGHT)
def test_a_number_that_eight_recordings_had_must_be_so_again(tmp_path: Path, case: str) -> None:
    world = loans(tmp_path, EIGHT[case], 8)
    world.refuses({"loan_id": "LOAN-619"}, changed=True)
    world.does({"loan_id": "LOAN-619"}, ("LOAN-619", 6190.75))


SEVERAL: dict[str, Record] = {
    "a payee who is another": lambda n, new: {
        "holder": f"Holder{n}",
        "payee": "Somebody" if new else f"Holder{n}",
    },
    "an end before the start": lambda n, new: {
        "start": f"2026-0{5 if new else 3}-02",
        "end": f"2026-04-{n % 20 + 1:02}",
    },
    "a note that speaks against it": lambda n, new: {"note": "DO NOT PAY" if new else "seen"},
}


@pytest.mark.parametrize("case", SEVERAL)
def test_what_several_recordings_had_in_common_must_be_so_again(tmp_path: Path, case: str) -> None:
    world = loans(tmp_path, SEVERAL[case], 5)
    world.refuses(NEXT, changed=True)
    world.does(NEXT, ("LOAN-608", 6080.75))


def test_what_varied_is_not_compared(tmp_path: Path) -> None:
    names = ("Ana Lund", "do not call Bo", "Cy", "Di Vang", "Eva")

    def loan(number: int, is_new: bool) -> Any:
        rate = (1, 8, 3, 7, 5)[number % 5]
        return {"who": "Fay" if is_new else names[number % 5], "rate": rate, "left": 9 - rate}

    loans(tmp_path, loan, 5).does(NEXT, ("LOAN-608", 6080.75), changed=True)


def parcels(path: Path) -> World:
    """A depot that weighs parcels, and pays a fee for heavy ones only."""
    world = World(path)
    weights = [n * 0.3 + 0.5 for n in range(9)] + [n * 0.4 + 6.2 for n in range(9)]

    def parcel(parcel_id: str, is_new: Any) -> Any:
        number = int(parcel_id[4:]) - 100
        weight = is_new if number >= len(weights) else weights[number]
        return {"parcel_id": parcel_id, "weight": weight}

    world.read("get_parcel", ("parcel_id",), parcel)
    world.write("pay_fee", ("parcel_id",))
    world.write("send", ("parcel_id",))
    tasks = []
    for number, weight in enumerate(weights, 100):
        own = f"PAR-{number}"
        fee = [("pay_fee", own)] if weight > 5 else []
        tasks.append(({"parcel_id": own}, [("get_parcel", own), *fee, ("send", own)]))
    world.learn(tasks)
    return world


def test_a_number_decides_and_between_what_was_seen_nothing_is_done(tmp_path: Path) -> None:
    world = parcels(tmp_path)
    for weight in (True, "2.0", -1, None, 4.0, 5.5):
        world.refuses({"parcel_id": "PAR-300"}, changed=weight)
    world.does({"parcel_id": "PAR-300"}, ("PAR-300",), changed=2.0)
    world.does({"parcel_id": "PAR-300"}, ("PAR-300",), ("PAR-300",), changed=7.4)
