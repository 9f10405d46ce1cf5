"""Conditions: the shortest one that separates two sets of states, and what was never met."""

from itertools import pairwise
from typing import Any

from em.compiler.condition import Condition, Search
from em.runner.expressions.language import compile_expression


def holds(text: str, **scope: Any) -> bool:
    return bool(compile_expression(text, "test")(scope))


def best(yes: list[dict[str, Any]], no: list[dict[str, Any]], **more: Any) -> Condition | None:
    return Search(yes, no, **more).best()


def lights(*states: str) -> list[dict[str, Any]]:
    return [
        {"lamp": {"state": one, "room": f"R{n}", "watts": 40 + n}} for n, one in enumerate(states)
    ]


def test_a_word_that_separates_is_the_condition() -> None:
    found = best(lights(*["broken"] * 6), lights(*["fine", "new"] * 3))
    assert found is not None
    assert found.text() == 'lamp.state == "broken"'


def test_a_value_that_no_recording_had_belongs_to_neither_side() -> None:
    found = best(lights(*["broken"] * 6), lights(*["fine", "new"] * 3))
    assert found is not None
    assert found.is_true({"lamp": {"state": "fine"}}) is False
    assert found.is_true({"lamp": {"state": "melted"}}) is None
    (check,) = found.known()
    assert holds(check, lamp={"state": "new"})
    assert not holds(check, lamp={"state": "melted"})


def test_few_states_are_no_evidence() -> None:
    assert best(lights("broken"), lights("fine", "fine")) is None


def test_what_differs_in_every_recording_separates_nothing() -> None:
    yes = [{"order": {"id": f"A{n}"}} for n in range(8)]
    no = [{"order": {"id": f"B{n}"}} for n in range(8)]
    assert best(yes, no) is None


def test_the_order_of_two_numbers_is_a_condition() -> None:
    tanks = [(3.1, 4.0), (2.0, 5.5), (6.4, 7.2), (1.5, 1.9), (8.8, 9.1), (0.4, 6.0)]
    yes = [{"tank": {"level": low, "least_level": high}} for low, high in tanks]
    no = [{"tank": {"level": high, "least_level": low}} for low, high in tanks]
    found = best(yes, no)
    assert found is not None
    assert found.text() == "tank.level < tank.least_level"
    assert found.known() == ["tank.level != tank.least_level"]
    assert found.is_true({"tank": {"level": 2.0, "least_level": 2.0}}) is None


def test_numbers_that_texts_write_out_are_compared_as_numbers() -> None:
    yes = [{"use": {"gb": f"{limit + 1}.5", "limit_gb": f"{limit}.0"}} for limit in range(8, 14)]
    no = [{"use": {"gb": f"{limit - 1}.5", "limit_gb": f"{limit}.0"}} for limit in range(8, 14)]
    found = best(yes, no)
    assert found is not None
    assert holds(found.text(), use={"gb": "110.5", "limit_gb": "20.0"})


def test_dates_are_compared() -> None:
    days = [f"2027-03-{day:02}" for day in range(1, 9)]
    pairs = [*pairwise(days)]
    yes = [{"visit": {"day": late, "due_day": early}} for early, late in pairs]
    no = [{"visit": {"day": early, "due_day": late}} for early, late in pairs]
    found = best(yes, no)
    assert found is not None
    assert found.text() == "visit.day > visit.due_day"


def test_a_word_of_one_element_of_a_list_is_a_condition() -> None:
    yes = [{"bills": [{"id": f"B{n}", "status": "overdue"}, {"status": "paid"}]} for n in range(6)]
    no = [{"bills": [{"id": f"C{n}", "status": "paid"}] * 2} for n in range(6)]
    found = best(yes, no)
    assert found is not None
    assert found.text() == 'where(bills, status="overdue")'


def test_nothing_or_something_is_a_condition() -> None:
    found = best([{"note": None}] * 7, [{"note": f"call {n}"} for n in range(7)])
    assert found is None or found.is_true({"note": None})
    flags = best([{"alarm": True}] * 7, [{"alarm": False}] * 7)
    assert flags is not None
    assert flags.text() == "alarm"
    assert flags.opposite() == "not alarm"


def test_two_fields_together_are_a_condition() -> None:
    places, roaming = ("abroad", "home"), (True, False)
    every = [(place, on) for place in places for on in roaming] * 6
    states: list[dict[str, Any]] = [
        {"place": place, "phone": {"roaming": on}} for place, on in every
    ]
    yes = [one for one in states if one["place"] == "abroad" and not one["phone"]["roaming"]]
    no = [one for one in states if one not in yes]
    found = best(yes, no)
    assert found is not None
    assert found.text() == 'not phone.roaming and place == "abroad"' or found.text() == (
        'place == "abroad" and not phone.roaming'
    )


def test_conditions_that_separate_as_well_are_reported() -> None:
    yes = [{"door": {"state": "open", "lock": "off"}}] * 8
    no = [{"door": {"state": "shut", "lock": "on"}}] * 8
    found = best(yes, no)
    assert found is not None
    assert len(found.others) == 1


def test_what_was_not_read_is_unknown() -> None:
    yes, no = lights(*["broken"] * 6), [*lights(*["fine"] * 6), {"other": 1}]
    found = best(yes, no)
    assert found is not None
    assert found.text() == 'lamp.state == "broken"'


def test_without_evidence_all_that_separates_is_a_sign() -> None:
    signs = Search(lights("broken"), lights("fine", "fine")).candidates()
    assert 'lamp.state == "broken"' in [sign.text() for sign in signs]


def test_the_element_that_was_acted_on_adds_evidence() -> None:
    def bills(n: int, status: str) -> dict[str, Any]:
        others = [{"id": f"P{n}-{one}", "status": "paid"} for one in range(3)]
        return {"bills": [*others, {"id": f"B{n}", "status": status}]}

    yes, no = [bills(n, "overdue") for n in range(2)], [bills(n, "paid") for n in range(5)]
    assert Search(yes, no, frozenset({"bills"})).best() is None
    acted = [["B0"], ["B1"]]
    assert Search(yes, no, frozenset({"bills"}), acted).best() is not None


def test_names_of_a_routine_are_used() -> None:
    found = best(lights(*["broken"] * 6), lights(*["fine"] * 6))
    assert found is not None
    assert found.text({"lamp": "lamp_again"}) == 'lamp_again.state == "broken"'


def test_a_field_named_like_the_tool_needs_fewer_states_and_all_others_must_agree() -> None:
    sizes = [(7.6, 8.5, 8), (7.2, 8.1, 9), (9.0, 9.8, 6), (12.4, 9.9, 2), (6.5, 8.5, 7)]
    states = [
        {"ship": {"draught": one, "tug_limit": limit, "berth": berth, "crew": 5}}
        for one, limit, berth in sizes
    ]
    yes, no = [states[3]], [*states[:3], states[4]]
    assert best(yes, no) is None
    found = best(yes, no, tool="order_tugs")
    assert found is not None
    assert found.text() == "ship.draught > ship.tug_limit"
    assert "ship.berth < ship.crew" in [one.text() for one in found.others]


def test_a_limit_is_written_with_all_its_digits() -> None:
    large = [{"bill": {"cents": 123_456_789 + n}} for n in range(8)]
    small = [{"bill": {"cents": 123_456_781 - n}} for n in range(8)]
    found = best(large, small)
    assert found is not None
    for state in (*large, *small):
        assert holds(found.text(), **state) is (state in large)
        assert all(holds(check, **state) for check in found.known())
    assert not all(holds(check, bill={"cents": 123_456_785}) for check in found.known())
