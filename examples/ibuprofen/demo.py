"""Check whether ibuprofen is safe with lunch: by rules over typed state, not by searching notes."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from em import Memory

sys.path.insert(0, str(Path(__file__).parent))
import rules

from em.state.rules import collect

# What the agent read in its two notes: facts with the words that state them, and a rule. em checks
# both; a model can do the same at the checkpoint.
NONE_KNOWN = {
    "op": "set",
    "field": "has_allergies",
    "value": False,
    "evidence": "No allergies known",
}
SENSITIVE: list[dict[str, Any]] = [
    {
        "op": "add",
        "type": "Allergy",
        "record": {"substance": "NSAID", "severity": "moderate", "confirmed_date": "2025-04-01"},
        "evidence": "NSAID sensitivity, moderate; confirmed on 1 April",
    },
    {
        "op": "set",
        "field": "has_allergies",
        "value": True,
        "status": "confirmed",
        "evidence": "Developed an NSAID sensitivity",
    },
]
NSAID = {"some": {"in": "allergies", "where": {
    "op": "==", "left": {"item": "substance"}, "right": {"value": "NSAID"},
}}}  # fmt: skip
RULE = {
    "id": "nsaid",
    "severity": "high",
    "action": "take",
    "message": "{drug} is an NSAID",
    "when": {
        "all": [
            {
                "op": "in",
                "left": {"detail": "drug"},
                "right": {"value": ["ibuprofen", "naproxen", "aspirin"]},
            },
            NSAID,
        ]
    },
}


def main() -> None:
    """Observe notes, compile the state, check an action, show the contradiction."""
    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "em.db") as memory:
        note = memory.observe(
            "ana", "No allergies known.", at="2024-10-03", source="form", facts=[NONE_KNOWN]
        )
        visit = memory.observe(
            "ana",
            "Developed an NSAID sensitivity, moderate; confirmed on 1 April.",
            at="2025-04-02",
            source="doctor",
            facts=SENSITIVE,
            rules=[RULE],
        )
        lunch = {"items": ["lentil soup", "bread"], "timestamp": "2025-04-09T12:30:00"}
        memory.observe("ana", lunch, type="Meal", at="2025-04-09")
        state = memory.checkpoint("ana")
        memory.subjects.rules += collect(vars(rules))

        print("Is it safe to take ibuprofen with lunch?")
        for alert in memory.check("ana", "take", drug="ibuprofen", meal=state.meals[-1]):
            print(f"  {alert.severity}: {alert.message}")
            assert alert.event_ids == (visit,)
        print(
            "And paracetamol?", memory.check("ana", "take", drug="paracetamol") or "nothing fires"
        )

        (conflict,) = memory.conflicts("ana")
        print(f"{conflict.field} is {conflict.value}, by the policy {conflict.policy!r}:")
        for entry in conflict.entries:
            print(f"  {entry.at.date()} {entry.source}: {entry.value} ({entry.status})")
        assert (conflict.event_ids, conflict.against) == ((visit,), (note,))
        before = memory.state("ana", as_of="2025-01-01")
        fired = before.check("take", drug="ibuprofen")
        print(f"as of January: {before.profile.has_allergies}, {fired}")


if __name__ == "__main__":
    main()
