"""The sample of the third document: the user as typed objects, and its rule, word for word."""

import importlib.util
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.state.rules import collect

SAMPLE = """
def check_drug_interaction(drug: str, meal: Meal, user: User) -> str | None:
    matches = [a for a in user.allergies if a.substance.lower() == drug.lower()]
    if matches:
        latest = max(matches, key=lambda a: a.confirmed_date)
        return f"Allergy logged {latest.confirmed_date}: {latest.severity}"
    conflicts = [item for item in meal.items if any(a.substance.lower() in item.lower() for a in user.allergies)]
    if conflicts:
        return f"Meal items may interact: {', '.join(conflicts)}"
    return None
"""  # noqa: E501 - word for word
EXAMPLE = Path(__file__).parents[2] / "examples" / "ibuprofen" / "rules.py"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        for substance, severity, day in (
            ("Peanut", "severe", "2024-05-01"),
            ("Ibuprofen", "mild", "2023-01-01"),
            ("Ibuprofen", "severe", "2025-01-01"),
        ):
            allergy = {"substance": substance, "severity": severity, "confirmed_date": day}
            memory.observe("ana", allergy, type="Allergy")
        for items in (["peanut soup", "bread"], ["rice"]):
            meal = {"items": items, "timestamp": "2025-04-09T12:30:00"}
            memory.observe("ana", meal, type="Meal")
        yield memory


def test_the_rule_of_the_sample_runs_on_the_state(memory: Memory) -> None:
    state: Any = memory.checkpoint("ana")
    names: dict[str, Any] = {"Meal": object, "User": object}
    exec(SAMPLE, names)
    check = names["check_drug_interaction"]
    soup, rice = state.meals
    assert check("IBUPROFEN", rice, state) == f"Allergy logged {date(2025, 1, 1)}: severe"
    assert check("aspirin", soup, state) == "Meal items may interact: peanut soup"
    assert check("aspirin", rice, state) is None


def test_the_rule_of_the_example_has_no_regard_to_case_and_looks_into_dishes(
    memory: Memory,
) -> None:
    spec = importlib.util.spec_from_file_location("rules_of_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    memory.subjects.rules += collect(vars(module))
    state: Any = memory.checkpoint("ana")
    soup, rice = state.meals
    (alert,) = memory.check("ana", "take", drug="Paracetamol", meal=soup)
    assert alert.message == "the meal may interact: peanut soup"
    (alert,) = memory.check("ana", "take", drug="IBUPROFEN", meal=rice)
    assert alert.message == "Ibuprofen allergy, confirmed 2025-01-01: severe"
    assert memory.check("ana", "take", drug="Paracetamol", meal=rice) == []
