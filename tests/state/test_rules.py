"""Rules: a user's own and compiled ones side by side, in a fixed order; none hides the others."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import InputError, StateHeld
from em.llm import ScriptedClient
from em.state.rules import Fired, alert, collect, load_rules, rule


@rule("take", severity="critical")
def allergy(state: Any, drug: str, **_more: Any) -> Fired | None:
    found = [a for a in state.allergies if a.substance.lower() == drug.lower()]
    return Fired(f"allergic to {drug}", evidence=found) if found else None


@rule("take")
def broken(state: Any, drug: str) -> str:
    return str(state.nothing_of_that_name)


@alert(severity="info")
def every_day(state: Any, now: Any) -> list[str]:
    return [f"it is {now.year}", ""]


def constraint(**given: Any) -> dict[str, Any]:
    return {"id": "c", "severity": "warning", "message": "m", "events": ["e1"], **given}


def with_constraints(memory: Memory, *given: dict[str, Any]) -> Any:
    memory.observe("ana", {"substance": "Penicillin"}, type="Allergy")
    memory.observe("ana", "Some rules.")
    model = ScriptedClient([{"facts": [], "constraints": list(given)}])
    state = memory.checkpoint("ana", llm=model)
    memory.subjects.rules += collect(globals())
    return state


NSAID = constraint(
    id="nsaid",
    severity="high",
    action="take",
    message="{drug} is an NSAID",
    when={"op": "in", "left": {"detail": "drug"}, "right": {"value": ["ibuprofen"]}},
)


def test_both_kinds_fire_side_by_side_the_worst_first(memory: Memory) -> None:
    with_constraints(memory, NSAID, {**NSAID, "id": "also", "message": "{drug}!"})
    found = memory.check("ana", "take", drug="Ibuprofen")
    assert [(one.rule, one.severity) for one in found] == [
        ("also", "high"),
        ("nsaid", "high"),
        ("broken", "warning"),
    ]
    assert found[1].message == "Ibuprofen is an NSAID"
    assert len(found[1].event_ids) == 1
    assert "nothing_of_that_name" in found[2].error
    (first, _) = memory.check("ana", "take", drug="penicillin")
    assert (first.rule, len(first.event_ids)) == ("allergy", 1)
    assert memory.check("ana", "eat", drug="ibuprofen") == []


def test_a_detail_is_never_read_as_a_template(memory: Memory) -> None:
    with_constraints(memory, {**NSAID, "when": None})
    found = memory.check("ana", "take", drug="{unknown} {drug.__class__}")
    assert found[0].message == "{unknown} {drug.__class__} is an NSAID"


def test_deadlines_are_due_from_their_offset_on(memory: Memory) -> None:
    due = constraint(id="tax", message="tax by {deadline}", deadline="2025-06-01", offset="14d")
    with_constraints(memory, due)
    assert [one.rule for one in memory.alerts("ana", "2025-05-17")] == ["every_day"]
    (tax, _) = memory.alerts("ana", "2025-05-18")
    assert (tax.message, tax.overdue) == ("tax by 2025-06-01", False)
    assert memory.alerts("ana", "2025-06-02")[0].overdue


def test_active_windows(memory: Memory) -> None:
    window = {"from": "2025-05-01", "until": "2025-05-10"}
    with_constraints(memory, constraint(active=window, message="no alcohol"))
    for day, rules in (("2025-04-30", 1), ("2025-05-01", 2), ("2025-05-10", 1)):
        assert len(memory.alerts("ana", day)) == rules


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"message": "{drug.__class__}"}, "the name of a detail"),
        ({"message": "{drug!r}"}, "the name of a detail"),
        ({"message": "{0}"}, "the name of a detail"),
        ({"message": "{drug"}, "braces in pairs"),
        ({"when": {"op": "==", "left": {"item": "x"}, "right": {"value": 1}}}, "no field 'x'"),
        ({"when": {"op": "exec", "left": {}, "right": {}}}, "op is 'exec'"),
        ({"when": {"python": "1"}}, "expected a condition"),
        ({"when": {"op": "==", "left": {"eval": "1"}, "right": {"value": 1}}}, "unknown operand"),
        ({"when": {"some": {"in": "secrets"}}}, "no collection"),
        ({"action": None}, "never be evaluated"),
        ({"offset": "soon", "deadline": "2025-01-01"}, "offset must be"),
        ({"deadline": "2025-02-30"}, "expected a date or time"),
        ({"id": "x'; import os"}, "the id must be"),
    ],
)
def test_a_constraint_that_reaches_too_far_is_refused_and_told(
    memory: Memory, change: dict[str, Any], said: str
) -> None:
    state = with_constraints(memory, {**NSAID, **change})
    assert state.module.RULES == ()
    assert said in state.report.problems[0]


def test_rules_come_from_a_file_of_the_users_own(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "my_rules.py"
    file.write_text(
        "from em.state.rules import rule\n"
        "@rule('go')\ndef stay(state):\n    'Stay here.'\n    return True\n"
    )
    with_constraints(memory)
    memory.subjects.rules[:] = load_rules(file)
    assert [one.message for one in memory.check("ana", "go")] == ["Stay here."]
    file.write_text("1 / 0")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        load_rules(file)
    with pytest.raises(InputError, match="expected a Python file"):
        load_rules(tmp_path / "none.py")


def test_a_deadline_can_follow_a_field_of_records(memory: Memory) -> None:
    for name, day in (("Leo", "2025-01-10"), ("Mia", "2025-03-01"), ("Old", None)):
        memory.observe("ana", {"name": name, "seen": day}, type="Visit")
    rule_ = constraint(
        id="check-up",
        message="{name}: check-up by {deadline}",
        deadline={"in": "visits", "field": "seen", "plus": "180d"},
        offset="2w",
    )
    state = with_constraints(memory, rule_)
    visits = state.visits
    assert [one.rule for one in memory.alerts("ana", "2025-06-24")] == ["every_day"]
    (leo, _) = memory.alerts("ana", "2025-06-25")
    assert (leo.message, leo.overdue) == ("Leo: check-up by 2025-07-09", False)
    assert set(visits[0].event_ids) < set(leo.event_ids)  # and the text that the rule is from
    both = memory.alerts("ana", "2025-08-20")[:2]
    assert [(one.message[:3], one.overdue) for one in both] == [("Leo", True), ("Mia", False)]


def test_a_deadline_can_follow_the_profile_and_a_condition(memory: Memory) -> None:
    memory.observe("ana", {"passport": "2025-06-01"}, type="Profile", at="2024-01-01")
    follows = constraint(id="renew", deadline={"profile": "passport"}, offset="30d")
    only = constraint(
        id="penicillin",
        deadline={
            "in": "allergies",
            "field": "since",
            "where": {"op": "==", "left": {"item": "substance"}, "right": {"value": "latex"}},
        },
    )
    memory.observe("ana", {"substance": "Latex", "since": "2025-01-01"}, type="Allergy")
    memory.observe("ana", {"substance": "Nuts", "since": "2025-01-02"}, type="Allergy")
    with_constraints(memory, follows, only)
    rules = [one.rule for one in memory.alerts("ana", "2025-05-10")]
    assert rules == ["penicillin", "renew", "every_day"]
    memory.observe("ana", {"passport": "2035-06-01"}, type="Profile")
    memory.checkpoint("ana")
    assert [one.rule for one in memory.alerts("ana", "2025-05-10")] == ["penicillin", "every_day"]


@pytest.mark.parametrize(
    ("deadline", "said"),
    [
        ({"in": "allergies", "field": "substance"}, "has no dates"),
        ({"in": "allergies", "field": "nothing"}, "no field 'nothing'"),
        ({"in": "secrets", "field": "x"}, "no collection"),
        ({"in": "allergies"}, "no field 'None'"),
        ({"profile": "x"}, "no field 'x'"),
        ({"in": "allergies", "field": "since", "plus": "soon"}, "plus must be"),
        ({"in": "allergies", "field": "since", "eval": "1"}, "object with `in`"),
        ("soon", "expected a date or time"),
    ],
)
def test_a_deadline_that_is_nowhere_is_refused(memory: Memory, deadline: Any, said: str) -> None:
    memory.observe("ana", {"substance": "Nuts", "since": "2025-01-02"}, type="Allergy")
    state = with_constraints(memory, constraint(deadline=deadline))
    assert state.module.RULES == ()
    assert said in state.report.problems[0]


def test_a_deadline_whose_field_holds_no_dates_any_more_holds_the_checkpoint(
    memory: Memory,
) -> None:
    memory.observe("ana", {"name": "Leo", "seen": "2025-01-10"}, type="Visit")
    with_constraints(memory, constraint(deadline={"in": "visits", "field": "seen"}))
    memory.observe("ana", {"name": "Mia", "seen": "in spring"}, type="Visit")
    with pytest.raises(StateHeld, match="rule c"):
        memory.checkpoint("ana")
    assert memory.checkpoint("ana", accept=True).module.RULES == ()


def test_moments_are_compared_across_time_zones_and_a_day_is_over_when_it_ends(
    memory: Memory,
) -> None:
    with_constraints(
        memory,
        constraint(id="a-day", deadline="2025-06-01"),
        constraint(id="a-moment", deadline="2025-06-01T10:00:00+02:00", offset="3h"),
        constraint(
            id="window",
            active={"from": "2025-06-01T00:00:00-05:00", "until": "2025-06-01T06:00:00Z"},
        ),
    )

    def at(now: str) -> dict[str, bool]:
        return {one.rule: one.overdue for one in memory.alerts("ana", now)[:-1]}

    assert at("2025-06-01T00:30:00+01:00") == {}  # still May in UTC
    assert at("2025-06-01T04:59:00Z") == {"a-day": False}
    assert at("2025-06-01T07:00:00+02:00") == {"a-day": False, "a-moment": False, "window": False}
    assert at("2025-06-01T08:00:00Z") == {"a-day": False, "a-moment": False}
    assert at("2025-06-01T08:00:01Z") == {"a-day": False, "a-moment": True}
    assert at("2025-06-02") == {"a-day": True, "a-moment": True}


def test_the_order_is_the_same_in_whatever_order_rules_came(memory: Memory) -> None:
    def worst(state: Any, drug: str) -> str:
        raise ValueError("no")

    def info(state: Any, drug: str) -> list[str]:
        return ["b", "a"]

    marked = [
        rule("take", severity="critical")(worst).em_rule,  # type: ignore[attr-defined]
        rule("take", severity="info")(info).em_rule,  # type: ignore[attr-defined]
    ]
    with_constraints(memory, NSAID, {**NSAID, "id": "a"})
    orders = []
    for rules in (marked, marked[::-1]):
        memory.subjects.rules[:] = rules
        found = memory.check("ana", "take", drug="ibuprofen")
        orders.append([(one.rule, one.message, bool(one.error)) for one in found])
    assert orders[0] == orders[1] == [
        ("worst", "the rule failed", True),
        ("a", "ibuprofen is an NSAID", False),
        ("nsaid", "ibuprofen is an NSAID", False),
        ("info", "a", False),
        ("info", "b", False),
    ]  # fmt: skip


def test_a_rule_that_is_called_with_other_details_is_told_as_failed(memory: Memory) -> None:
    with_constraints(memory)
    (one, other) = memory.check("ana", "take", dose=3)
    assert "missing 1 required" in one.error
    assert "missing 1 required" in other.error or "unexpected" in other.error


def test_a_rule_that_raises_half_way_is_one_alert(memory: Memory) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text")

    def odd(state: Any) -> Any:
        return ["first", Odd()]

    with_constraints(memory)
    memory.subjects.rules[:] = [rule("go")(odd).em_rule]  # type: ignore[attr-defined]
    (found,) = memory.check("ana", "go")
    assert (found.message, found.error) == ("the rule failed", "ValueError: no text")
