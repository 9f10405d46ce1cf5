"""A user's own rule: warn before a drug that conflicts with an allergy or a meal."""

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
    """Warn if the person is allergic to the drug or its class, or the meal may interact."""
    names = {drug.lower(), CLASSES.get(drug.lower(), "")}
    matches = [one for one in state.allergies if one.substance.lower() in names]
    if matches:
        latest = max(matches, key=lambda one: one.confirmed_date)
        when, how = latest.confirmed_date, latest.severity
        return Fired(f"{latest.substance} allergy, confirmed {when}: {how}", [latest])
    items = meal.items if meal is not None else []
    known = [one.substance.lower() for one in state.allergies]
    eaten = [item for item in items if any(one in item.lower() for one in known)]
    return Fired(f"the meal may interact: {', '.join(eaten)}", [meal]) if eaten else None
