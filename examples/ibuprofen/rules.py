"""A rule of the user's own: a drug against allergies, and against what was eaten."""

from typing import Any

from em.state.rules import Fired, rule

CLASSES = {
    "ibuprofen": "nsaid",
    "naproxen": "nsaid",
    "aspirin": "nsaid",
    "amoxicillin": "penicillin",
}


@rule("take", severity="critical")
def drug_interaction(state: Any, drug: str, meal: Any = None) -> Fired | None:
    """A drug that the person is allergic to, by its name or its class."""
    names = {drug.lower(), CLASSES.get(drug.lower(), "")}
    matches = [one for one in state.allergies if one.substance.lower() in names]
    if matches:
        latest = max(matches, key=lambda one: one.confirmed_date)
        when, how = latest.confirmed_date, latest.severity
        return Fired(f"{latest.substance} allergy, confirmed {when}: {how}", [latest])
    items = meal.items if meal is not None else []
    eaten = [item for item in items for one in state.allergies if one.substance in item]
    return Fired(f"the meal may interact: {', '.join(eaten)}", [meal]) if eaten else None
