"""Check whether ibuprofen is safe with lunch: by rules over typed state, not by searching notes."""

import sys
import tempfile
from pathlib import Path

from em import Memory
from em.llm import ScriptedClient

sys.path.insert(0, str(Path(__file__).parent))
import rules

from em.state.rules import collect

# What a model reads in the two notes: JSON that em checks, never code. It is scripted here, so that
# the example runs without a model; use get_llm_client() to ask a real one.
READ = {
    "records": [
        {
            "type": "Allergy",
            "record": {
                "substance": "NSAID",
                "severity": "moderate",
                "confirmed_date": "2025-04-01",
            },
            "evidence": ["NSAID sensitivity, moderate; confirmed on 1 April"],
            "events": ["e2"],
        }
    ],
    "facts": [
        {
            "field": "has_allergies",
            "value": False,
            "status": "stated",
            "evidence": ["No allergies known"],
            "events": ["e1"],
        },
        {
            "op": "update",
            "field": "has_allergies",
            "value": True,
            "status": "confirmed",
            "evidence": ["Developed an NSAID sensitivity"],
            "events": ["e2"],
        },
    ],
    "constraints": [
        {
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
                    {
                        "some": {
                            "in": "allergies",
                            "where": {
                                "op": "==",
                                "left": {"item": "substance"},
                                "right": {"value": "NSAID"},
                            },
                        }
                    },
                ]
            },
            "events": ["e2"],
        }
    ],
}


def main() -> None:
    """Observe notes, compile the state, check an action, show the contradiction."""
    with tempfile.TemporaryDirectory() as folder, Memory(Path(folder) / "em.db") as memory:
        note = memory.observe("ana", "No allergies known.", at="2024-10-03", source="form")
        visit = memory.observe(
            "ana",
            "Developed an NSAID sensitivity, moderate; confirmed on 1 April.",
            at="2025-04-02",
            source="doctor",
        )
        lunch = {"items": ["lentil soup", "bread"], "timestamp": "2025-04-09T12:30:00"}
        memory.observe("ana", lunch, type="Meal", at="2025-04-09")
        state = memory.checkpoint("ana", llm=ScriptedClient([READ]))
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
