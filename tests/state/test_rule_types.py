"""Rules compare by type: moments across time zones, amounts in one currency, numbers as numbers."""

from typing import Any

import pytest

from em import Memory
from em.llm import ScriptedClient

E1 = {"events": ["e1"]}


def with_rules(memory: Memory, *rules: dict[str, Any]) -> Any:
    memory.observe("ana", "Some rules.")
    given = [{"severity": "warning", "message": "m", **rule, **E1} for rule in rules]
    model = ScriptedClient([{"facts": [], "constraints": given}])
    return memory.checkpoint("ana", llm=model)


def compared(left: dict[str, Any], op: str, right: Any) -> dict[str, Any]:
    return {"op": op, "left": left, "right": {"value": right}}


@pytest.mark.parametrize(
    ("value", "op", "other", "fires"),
    [
        ("2025-06-01T12:00:00Z", "<", "2025-06-01T10:00:00Z", False),
        ("2025-06-01T12:00:00+09:00", "<", "2025-06-01T10:00:00Z", True),
        ("2025-06-01T12:00:00Z", "==", "2025-06-01T14:00:00+02:00", True),
        ("2025-06-01T12:00:00Z", ">", "2025-06-01T12:00:00", False),
        ("2025-06-01T23:30:00Z", "==", "2025-06-01", True),
        ("2025-06-01T23:30:00Z", "<", "2025-06-02", True),
        ("2025-06-01T23:30:00Z", "<", "2025-06-01", False),
        ("2025-06-01T23:30:00-05:00", "==", "2025-06-02", True),
        ("2025-06-01T12:00:00Z", "in", ["2025-06-01T14:00:00+02:00"], True),
    ],
)
def test_moments_are_compared_across_zones_in_records_and_in_details(
    memory: Memory, value: str, op: str, other: Any, fires: bool
) -> None:
    """A visa until 12:00Z does not expire before 10:00Z."""
    memory.observe("ana", {"kind": "tourist", "expires": value}, type="Visa")
    some = {"some": {"in": "visas", "where": compared({"item": "expires"}, op, other)}}
    with_rules(
        memory,
        {"id": "record", "when": some},
        {"id": "given", "action": "go", "when": compared({"detail": "at"}, op, other)},
    )
    assert bool(memory.alerts("ana", "2025-01-01")) is fires
    assert bool(memory.check("ana", "go", at=value)) is fires


@pytest.mark.parametrize(
    ("record", "op", "other", "fires"),
    [
        ({"n": 9}, "<", 10, True),
        ({"n": "9.50"}, "<", 10, True),
        ({"n": "9.50"}, "==", 9.5, True),
        ({"n": "90 EUR"}, "<", "100 EUR", True),
        ({"n": "$1,000"}, ">", "999.50 USD", True),
        ({"n": "07:30"}, "<", "10:00", True),
        ({"n": "07:30"}, "<", "7:45", True),
        ({"n": "2025-10-01"}, "<", "2025-09-30", False),
        ({"n": True}, "==", "true", True),
        ({"n": "Peanut butter"}, "mentions", "peanuts", True),
        ({"n": "donut"}, "mentions", "nut", False),
        ({"n": ["Milk", "Peanut butter"]}, "mentions", ["nuts", "peanut"], True),
    ],
)
def test_values_are_compared_as_what_they_are(
    memory: Memory, record: dict[str, Any], op: str, other: Any, fires: bool
) -> None:
    memory.observe("ana", record, type="Thing")
    some = {"some": {"in": "things", "where": compared({"item": "n"}, op, other)}}
    state = with_rules(memory, {"id": "r", "when": some})
    assert state.report.problems == []
    assert bool(memory.alerts("ana")) is fires


@pytest.mark.parametrize(
    ("record", "value", "said"),
    [
        ({"n": "2025-06-01"}, "soon", "a date"),
        ({"n": "2025-06-01T10:00:00Z"}, 5, "a moment"),
        ({"n": "07:30"}, "morning", "a time of day"),
        ({"n": 5}, "many", "a number"),
        ({"n": "5 EUR"}, 5, "an amount with its currency"),
        ({"n": True}, "perhaps", "true or false"),
    ],
)
def test_a_rule_that_compares_a_field_with_something_else_is_refused(
    memory: Memory, record: dict[str, Any], value: Any, said: str
) -> None:
    memory.observe("ana", record, type="Thing")
    some = {"some": {"in": "things", "where": compared({"item": "n"}, "<", value)}}
    state = with_rules(memory, {"id": "r", "when": some})
    assert state.module.RULES == ()
    assert said in state.report.problems[0]


@pytest.mark.parametrize(
    ("given", "limit", "fires"),
    [
        ("1,200 EUR", "200 EUR", True),
        ("99 EUR", "200 EUR", False),
        ("10:15", "9:00", True),
        ("8:30", "09:00", False),
        ("10", "9", True),
    ],
)
def test_details_in_words_are_compared_as_what_they_are(
    memory: Memory, given: str, limit: str, fires: bool
) -> None:
    with_rules(memory, {"id": "r", "action": "go", "when": compared({"detail": "n"}, ">", limit)})
    assert bool(memory.check("ana", "go", n=given)) is fires


def test_amounts_of_two_currencies_are_a_failure_that_is_shown(memory: Memory) -> None:
    memory.observe("ana", {"price": "5 EUR"}, type="Thing")
    some = {"some": {"in": "things", "where": compared({"item": "price"}, "<", "9 USD")}}
    with_rules(memory, {"id": "r", "when": some})
    (fired,) = memory.alerts("ana")
    assert "EUR and USD can't be compared" in fired.error


@pytest.mark.parametrize(
    ("rule", "slot"),
    [
        ({"action": "take", "when": compared({"detail": "drug"}, "==", "x")}, "dose"),
        ({"action": "take", "when": compared({"detail": "drug"}, "==", "x")}, "days_remaining"),
        ({"deadline": "2025-06-01"}, "name"),
        ({"deadline": {"in": "visits", "field": "seen"}}, "nothing"),
        ({"active": {"until": "2025-06-01"}}, "deadline"),
        ({"each": {"in": "visits"}}, "days_remaining"),
    ],
)
def test_a_slot_that_nothing_fills_in_is_refused(
    memory: Memory, rule: dict[str, Any], slot: str
) -> None:
    memory.observe("ana", {"name": "Leo", "seen": "2025-01-10"}, type="Visit")
    state = with_rules(memory, {"id": "r", **rule, "message": f"see {{{slot}}}"})
    assert state.module.RULES == ()
    assert f"nothing fills {{{slot}}} in" in state.report.problems[0]


def test_a_detail_that_a_caller_leaves_out_is_said_in_words(memory: Memory) -> None:
    with_rules(memory, {"id": "r", "action": "take", "message": "ask about {drug}"})
    (fired,) = memory.check("ana", "take")
    assert fired.message == "ask about (drug: not given)"


def test_deadlines_offer_the_days_that_remain(memory: Memory) -> None:
    memory.observe("ana", {"name": "Leo", "Seen at": "2025-06-10"}, type="Visit")
    few = {"op": "<=", "left": {"detail": "days_remaining"}, "right": {"value": 3}}
    deadline = {"in": "visits", "field": "Seen at"}
    with_rules(
        memory,
        {
            "id": "soon",
            "deadline": deadline,
            "offset": "30d",
            "message": "{name}: {days_remaining} days until {deadline}",
        },
        {"id": "very-soon", "deadline": deadline, "offset": "30d", "when": few},
    )
    (soon,) = memory.alerts("ana", "2025-06-01T23:00:00Z")
    assert (soon.message, soon.days_remaining) == ("Leo: 9 days until 2025-06-10", 9)
    assert [one.rule for one in memory.alerts("ana", "2025-06-07")] == ["soon", "very-soon"]
    late = memory.alerts("ana", "2025-06-12")[0]
    assert (late.days_remaining, late.overdue) == (-2, True)


def test_a_rule_is_about_each_record_with_its_fields_and_its_evidence(memory: Memory) -> None:
    memory.observe("ana", {"substance": "Penicillin", "severity": "severe"}, type="Allergy")
    memory.observe("ana", {"substance": "Latex", "severity": "mild"}, type="Allergy")
    where = {"op": "==", "left": {"item": "substance"}, "right": {"detail": "drug"}}
    with_rules(
        memory,
        {
            "id": "allergy",
            "action": "take",
            "each": {"in": "allergies", "where": where},
            "message": "{drug}: {severity} allergy",
        },
    )
    (fired,) = memory.check("ana", "take", drug="penicillin")
    assert (fired.message, len(fired.event_ids)) == ("penicillin: severe allergy", 2)
    assert memory.check("ana", "take", drug="aspirin") == []


def test_records_that_conflict_are_found_and_none_conflicts_with_itself(memory: Memory) -> None:
    def same(field: str) -> dict[str, Any]:
        return {"op": "==", "left": {"item": field}, "right": {"outer": field}}

    where = {"all": [same("date"), same("time")]}
    each = {"in": "dinners", "where": {"some": {"in": "dinners", "where": where}}}
    for name, day in (("Bo", 1), ("Cy", 2), ("Di", 1)):
        record = {"with": name, "date": f"2025-06-0{day}", "time": "19:30"}
        memory.observe("ana", record, type="Dinner")
    with_rules(memory, {"id": "twice", "each": each, "message": "dinner with {with} at {time}"})
    found = memory.alerts("ana")
    assert [one.message for one in found] == [
        "dinner with Bo at 19:30:00",
        "dinner with Di at 19:30:00",
    ]


def test_dates_can_be_moved_and_compared_with_another_record_and_with_now(memory: Memory) -> None:
    memory.observe("ana", {"passport_expires": "2025-09-01"}, type="Profile")
    memory.observe("ana", {"to": "Hanoi", "returns": "2025-05-20"}, type="Trip")
    memory.observe("ana", {"to": "Rome", "returns": "2025-01-20"}, type="Trip")
    late = {
        "op": ">",
        "left": {"item": "returns", "plus": "180d"},
        "right": {"profile": "passport_expires"},
    }
    ahead = {"op": ">=", "left": {"item": "returns"}, "right": {"now": True}}
    each = {"in": "trips", "where": {"all": [late, ahead]}}
    with_rules(memory, {"id": "passport", "each": each, "message": "{to}: renew it"})
    assert [one.message for one in memory.alerts("ana", "2025-05-01")] == ["Hanoi: renew it"]
    assert memory.alerts("ana", "2025-06-01") == []


def test_a_window_without_a_moment_is_refused(memory: Memory) -> None:
    window = {"from": "2025-06-02", "until": "2025-06-01"}
    state = with_rules(memory, {"id": "r", "active": window})
    assert "ends before it begins" in state.report.problems[0]
