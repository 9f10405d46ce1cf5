"""Rules: a user's own and compiled ones side by side, in a fixed order; none hides the others."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import InputError
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
    model = ScriptedClient([{"records": [], "facts": [], "constraints": list(given)}])
    state = memory.checkpoint("ana", llm=model)
    memory.subjects.rules += collect(globals())
    return state


NSAID = constraint(
    id="nsaid",
    severity="high",
    action="take",
    message="{drug} is an NSAID {unknown}",
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
    assert found[1].message == "Ibuprofen is an NSAID {unknown}"
    assert len(found[1].event_ids) == 1
    assert "nothing_of_that_name" in found[2].error
    (first, _) = memory.check("ana", "take", drug="penicillin")
    assert (first.rule, len(first.event_ids)) == ("allergy", 1)
    assert memory.check("ana", "eat", drug="ibuprofen") == []


def test_a_detail_is_never_read_as_a_template(memory: Memory) -> None:
    with_constraints(memory, {**NSAID, "when": None})
    found = memory.check("ana", "take", drug="{unknown} {drug.__class__}")
    assert found[0].message == "{unknown} {drug.__class__} is an NSAID {unknown}"


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
        ({"message": "{drug.__class__}"}, "no name of a detail"),
        ({"message": "{drug!r}"}, "no name of a detail"),
        ({"message": "{0}"}, "no name of a detail"),
        ({"message": "{drug"}, "without its partner"),
        ({"when": {"op": "==", "left": {"item": "x"}, "right": {"value": 1}}}, "no field 'x'"),
        ({"when": {"op": "exec", "left": {}, "right": {}}}, "no comparison"),
        ({"when": {"python": "1"}}, "no condition"),
        ({"when": {"op": "==", "left": {"eval": "1"}, "right": {"value": 1}}}, "no operand"),
        ({"when": {"some": {"in": "secrets"}}}, "no collection"),
        ({"action": None}, "never be asked"),
        ({"offset": "soon", "deadline": "2025-01-01"}, "no offset"),
        ({"deadline": "2025-02-30"}, "no date or time"),
        ({"id": "x'; import os"}, "an id is"),
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
    with pytest.raises(InputError, match="no Python file"):
        load_rules(tmp_path / "none.py")
