"""What is known of ten people: records, facts that contradict each other, and some in doubt."""

import random
from collections.abc import Iterator
from typing import Any

from em import Memory
from em.llm import ScriptedClient

PEOPLE = "ana bo cy di ed flo gus hal iva jon".split()
CITIES = "Porto Lisbon Faro Braga Madrid Seville Bern Basel Oslo Turin".split()
SHOPS = "bakery grocer bookshop pharmacy florist".split()
SAID = [
    "I like window seats, and I get up early.",
    "Please write, I am rarely at the phone.",
    "The concert on Saturday was wonderful.",
    "On trains I book the quiet coach.",
    "My sister visits me every spring.",
    "Seats at the aisle suit my knee better.",
    "I read two newspapers before breakfast.",
    "The window in the kitchen needs paint.",
    "On Sundays I walk along the river.",
    "I would rather travel by night train than fly.",
]
# What a model reads in the notes of the first one: scripted, since there is no model here.
READ = {
    "facts": [
        {"op": "add", "type": "Allergy",
         "record": {"substance": "NSAID", "severity": "moderate", "confirmed_date": "2025-04-01"},
         "evidence": ["NSAID sensitivity, moderate; confirmed on 1 April"], "events": ["e2"]},
        {"op": "set", "field": "has_allergies", "value": False, "status": "stated",
         "evidence": ["No allergies known"], "events": ["e1"]},
        {"op": "set", "field": "has_allergies", "value": True, "status": "confirmed",
         "evidence": ["Developed an NSAID sensitivity"], "events": ["e2"]},
    ],
    "constraints": [
        {"id": "nsaid", "severity": "high", "action": "take", "message": "{drug} is an NSAID",
         "when": {"all": [
             {"op": "in", "left": {"detail": "drug"},
              "right": {"value": ["ibuprofen", "naproxen", "aspirin"]}},
             {"some": {"in": "allergies", "where": {
                 "op": "==", "left": {"item": "substance"}, "right": {"value": "NSAID"}}}},
         ]},
         "events": ["e2"]},
    ],
}  # fmt: skip


def fill(memory: Memory, count: int, records: int) -> None:
    """Observe people, and compile what is known of each."""
    first = PEOPLE[0]
    memory.observe(first, "No allergies known.", at="2024-10-03", source="form")
    visit = "Developed an NSAID sensitivity, moderate; confirmed on 1 April."
    memory.observe(first, visit, at="2025-04-02", source="doctor")
    memory.checkpoint(first, llm=ScriptedClient([READ, {"stated": ["s1", "s2", "s3"]}]))
    for number, subject in enumerate(PEOPLE[:count]):
        memory.observe_many(_about(number, subject, records if number < 2 else 30))
        memory.checkpoint(subject)
    # One that nobody has compiled yet, and one that has something new since.
    memory.observe("kit", "I live in Bern.", speaker="Kit", at="2026-11-02")
    memory.observe(PEOPLE[1], SAID[2], speaker="Bo", at="2026-11-09")


def _about(number: int, subject: str, records: int) -> Iterator[dict[str, Any]]:
    draw = random.Random(number)
    name = subject.title()

    def record(type_: str, at: str, values: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"subject": subject, "record": values, "type": type_, "at": at, **more}

    def said(at: str, text: str) -> dict[str, Any]:
        return {"subject": subject, "text": text, "at": at, "speaker": name}

    form = {"name": name, "city": CITIES[number], "employer": "Nokia", "diet": "vegetarian"}
    yield record("Profile", "2025-01-10", form, source="form")
    yield record("Profile", "2025-09-03", {"city": CITIES[(number + 1) % 10]}, source=subject)
    for month in range(1, 9):
        city = CITIES[draw.randrange(10)]
        day = f"2026-{month:02}-{draw.randrange(1, 28):02}"
        trip = {"destination": city, "date": day, "cost_usd": round(draw.uniform(90, 900), 2)}
        yield record("Trip", day, trip)
    for _ in range(records):
        day = f"2026-{draw.randrange(1, 11):02}-{draw.randrange(1, 28):02}"
        cost = round(draw.uniform(2, 80), 2)
        spent = {"shop": draw.choice(SHOPS), "date": day, "amount_usd": cost}
        yield record("Expense", day, spent)
    for place in range(1 + number % 3):
        yield said(f"2026-10-0{place + 1}", SAID[(number + 3 * place) % len(SAID)])
    if number % 3 == 0:
        yield said("2026-10-20", "I quit Nokia on Friday.")
