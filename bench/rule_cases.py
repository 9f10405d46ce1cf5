"""Seventeen rules about a person: allergies, limits, deadlines, conflicts; each must fire rightly.

Each case has records, a rule as a model would derive it from a text in em's format, and what must
and must not fire. A rule that is refused, or a warning too many or too few, makes the case wrong.
"""

import tempfile
from collections.abc import Iterator
from typing import Any

from bench.figure import Figure
from em import Memory
from em.llm import ScriptedClient

Json = dict[str, Any]


def compared(left: Any, op: str, right: Any) -> Json:
    return {"op": op, "left": left, "right": right}


def item(name: str, **move: str) -> Json:
    return {"item": name, **move}


ALLERGIES = [
    ("Allergy", {"substance": "Penicillin", "severity": "severe", "confirmed": "2023-04-01"}),
    ("Allergy", {"substance": "peanuts", "severity": "mild", "confirmed": "2024-01-09"}),
]
MEETINGS = [
    ("Meeting", {"topic": "budget", "date": "2025-06-03", "begins": "10:00", "ends": "11:00"}),
    ("Meeting", {"topic": "review", "date": "2025-06-03", "begins": "10:30", "ends": "12:00"}),
    ("Meeting", {"topic": "lunch", "date": "2025-06-03", "begins": "12:00", "ends": "13:00"}),
]
TRIPS = [
    ("Trip", {"to": "Hanoi", "leaves": "2025-06-01", "returns": "2025-06-20"}),
    ("Trip", {"to": "Rome", "leaves": "2025-07-01", "returns": "2025-07-04"}),
]
OVERLAP = {
    "all": [
        compared(item("date"), "==", {"outer": "date"}),
        compared(item("begins"), "<", {"outer": "ends"}),
        compared(item("ends"), ">", {"outer": "begins"}),
    ]
}
CASES: list[Json] = [
    {
        "what": "a drug that she is allergic to",
        "records": ALLERGIES,
        "rule": {
            "action": "take",
            "each": {
                "in": "allergies",
                "where": compared(item("substance"), "==", {"detail": "drug"}),
            },
            "message": "{drug}: {severity} allergy since {confirmed}",
        },
        "checks": [
            ("take", {"drug": "penicillin"}, ["penicillin: severe allergy since 2023-04-01"]),
            ("take", {"drug": "ibuprofen"}, []),
        ],
    },
    {
        "what": "a meal with something that she is allergic to",
        "records": ALLERGIES,
        "rule": {
            "action": "eat",
            "each": {
                "in": "allergies",
                "where": compared({"detail": "items"}, "mentions", item("substance")),
            },
            "message": "{substance} in the meal",
        },
        "checks": [
            ("eat", {"items": ["Peanut butter toast", "tea"]}, ["peanuts in the meal"]),
            ("eat", {"items": ["donut", "pea soup"]}, []),
        ],
    },
    {
        "what": "a drug of a group",
        "records": [],
        "rule": {
            "action": "take",
            "when": compared({"detail": "drug"}, "in", {"value": ["ibuprofen", "naproxen"]}),
            "message": "{drug} is an NSAID",
        },
        "checks": [
            ("take", {"drug": "Naproxen"}, ["Naproxen is an NSAID"]),
            ("take", {"drug": "paracetamol"}, []),
        ],
    },
    {
        "what": "two meetings at the same time",
        "records": MEETINGS,
        "rule": {
            "each": {"in": "meetings", "where": {"some": {"in": "meetings", "where": OVERLAP}}},
            "message": "{topic} coincides with another meeting",
        },
        "alerts": [
            (
                "2025-06-01",
                [
                    "budget coincides with another meeting",
                    "review coincides with another meeting",
                ],
            )
        ],
    },
    {
        "what": "a meeting during a trip",
        "records": [*MEETINGS[:1], ("Meeting", {**MEETINGS[1][1], "date": "2025-06-25"}), *TRIPS],
        "rule": {
            "each": {
                "in": "meetings",
                "where": {
                    "some": {
                        "in": "trips",
                        "where": {
                            "all": [
                                compared(item("leaves"), "<=", {"outer": "date"}),
                                compared(item("returns"), ">=", {"outer": "date"}),
                            ]
                        },
                    }
                },
            },
            "message": "{topic} is during a trip",
        },
        "alerts": [("2025-05-01", ["budget is during a trip"])],
    },
    {
        "what": "a prescription of something she is allergic to",
        "records": [
            *ALLERGIES,
            ("Prescription", {"drug": "Penicillin", "date": "2025-05-02"}),
            ("Prescription", {"drug": "Loratadine", "date": "2025-05-02"}),
        ],
        "rule": {
            "each": {
                "in": "prescriptions",
                "where": {
                    "some": {
                        "in": "allergies",
                        "where": compared(item("substance"), "==", {"outer": "drug"}),
                    }
                },
            },
            "message": "{drug} was prescribed, and she is allergic to it",
        },
        "alerts": [
            ("2025-05-03", ["Penicillin was prescribed, and she is allergic to it"]),
        ],
    },
    {
        "what": "a visa that expires before the trip ends",
        "records": [*TRIPS, ("Visa", {"country": "Vietnam", "until": "2025-06-15T12:00:00Z"})],
        "rule": {
            "each": {
                "in": "trips",
                "where": {
                    "some": {
                        "in": "visas",
                        "where": {
                            "all": [
                                compared(item("until"), "<", {"outer": "returns"}),
                                compared(item("until"), ">=", {"outer": "leaves"}),
                            ]
                        },
                    }
                },
            },
            "message": "the visa for {to} expires on the way",
        },
        "alerts": [("2025-05-01", ["the visa for Hanoi expires on the way"])],
    },
    {
        "what": "a visa until noon has not expired at ten",
        "records": [("Visa", {"country": "Vietnam", "until": "2025-06-15T12:00:00Z"})],
        "rule": {
            "action": "enter",
            "when": {
                "some": {"in": "visas", "where": compared(item("until"), "<", {"detail": "at"})}
            },
            "message": "no visa at {at}",
        },
        "checks": [
            ("enter", {"at": "2025-06-15T10:00:00Z"}, []),
            ("enter", {"at": "2025-06-15T13:30:00+02:00"}, []),
            (
                "enter",
                {"at": "2025-06-15T08:00:00-05:00"},
                ["no visa at 2025-06-15T08:00:00-05:00"],
            ),
        ],
    },
    {
        "what": "a passport that is too short for a trip",
        "records": [*TRIPS, ("Profile", {"passport_expires": "2025-12-20"})],
        "rule": {
            "each": {
                "in": "trips",
                "where": {
                    "all": [
                        compared(
                            item("returns", plus="180d"), ">", {"profile": "passport_expires"}
                        ),
                        compared(item("leaves"), ">=", {"now": True}),
                    ]
                },
            },
            "message": "{to}: the passport must be valid for six months",
        },
        "alerts": [
            ("2025-05-01", ["Rome: the passport must be valid for six months"]),
            ("2025-08-01", []),
        ],
    },
    {
        "what": "a passport that expires, with the days that remain",
        "records": [("Profile", {"passport_expires": "2025-12-31"})],
        "rule": {
            "deadline": {"profile": "passport_expires"},
            "offset": "30d",
            "message": "the passport expires in {days_remaining} days",
        },
        "alerts": [
            ("2025-11-30", []),
            ("2025-12-01", ["the passport expires in 30 days"]),
            ("2025-12-30T23:00:00Z", ["the passport expires in 1 days"]),
        ],
    },
    {
        "what": "a check-up half a year after the last",
        "records": [("Visit", {"doctor": "Lee", "date": "2025-01-10"})],
        "rule": {
            "deadline": {"in": "visits", "field": "date", "plus": "180d"},
            "offset": "2w",
            "message": "{doctor}: check-up by {deadline}",
        },
        "alerts": [
            ("2025-06-24", []),
            ("2025-06-25", ["Lee: check-up by 2025-07-09"]),
        ],
    },
    {
        "what": "a budget for a kind of expense, in its currency",
        "records": [
            ("Expense", {"kind": "dining", "amount": "80 EUR"}),
            ("Expense", {"kind": "dining", "amount": "30.50 EUR"}),
            ("Expense", {"kind": "rent", "amount": "900 EUR"}),
        ],
        "rule": {
            "when": compared(
                {
                    "sum": {
                        "in": "expenses",
                        "field": "amount",
                        "where": compared(item("kind"), "==", {"value": "dining"}),
                    }
                },
                ">",
                {"value": "100 EUR"},
            ),
            "message": "more than 100 EUR on dining",
        },
        "alerts": [("2025-05-01", ["more than 100 EUR on dining"])],
    },
    {
        "what": "a limit on a single purchase",
        "records": [],
        "rule": {
            "action": "buy",
            "when": compared({"detail": "price"}, ">", {"value": "200 EUR"}),
            "message": "{price} is above her limit",
        },
        "checks": [
            ("buy", {"price": "1,200 EUR"}, ["1,200 EUR is above her limit"]),
            ("buy", {"price": "99 EUR"}, []),
        ],
    },
    {
        "what": "no alcohol while she takes antibiotics",
        "records": [],
        "rule": {
            "action": "drink",
            "active": {"from": "2025-05-01", "until": "2025-05-10"},
            "when": compared({"detail": "drink"}, "in", {"value": ["wine", "beer"]}),
            "message": "no {drink} with antibiotics",
        },
        "now": "2025-05-03",
        "checks": [
            ("drink", {"drink": "wine"}, ["no wine with antibiotics"]),
            ("drink", {"drink": "water"}, []),
        ],
    },
    {
        "what": "a diet",
        "records": [("Profile", {"diet": "vegetarian"})],
        "rule": {
            "action": "order",
            "when": {
                "all": [
                    compared({"profile": "diet"}, "==", {"value": "vegetarian"}),
                    compared({"detail": "dish"}, "mentions", {"value": ["beef", "chicken", "ham"]}),
                ]
            },
            "message": "{dish} is not vegetarian",
        },
        "checks": [
            ("order", {"dish": "Chicken curry"}, ["Chicken curry is not vegetarian"]),
            ("order", {"dish": "Chickpea curry"}, []),
        ],
    },
    {
        "what": "no calls before nine",
        "records": [],
        "rule": {
            "action": "call",
            "when": compared({"detail": "at"}, "<", {"value": "09:00"}),
            "message": "no calls before nine",
        },
        "checks": [
            ("call", {"at": "08:30"}, ["no calls before nine"]),
            ("call", {"at": "10:15"}, []),
        ],
    },
    {
        "what": "too many meetings on a day",
        "records": MEETINGS,
        "rule": {
            "action": "plan",
            "when": compared(
                {
                    "count": {
                        "in": "meetings",
                        "where": compared(item("date"), "==", {"detail": "day"}),
                    }
                },
                ">=",
                {"value": 3},
            ),
            "message": "three meetings on {day} already",
        },
        "checks": [
            ("plan", {"day": "2025-06-03"}, ["three meetings on 2025-06-03 already"]),
            ("plan", {"day": "2025-06-04"}, []),
        ],
    },
]


def problems(case: Json) -> list[str]:
    """Return what a case does otherwise than it must."""
    rule = {"id": "r", "severity": "warning", **case["rule"], "events": ["e1"]}
    reply = {"facts": [], "constraints": [rule]}
    with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
        for type_, record in case["records"]:
            memory.observe("ana", record, type=type_, at="2025-01-01")
        memory.observe("ana", f"Warn me about {case['what']}.", at="2025-01-02")
        state = memory.checkpoint("ana", llm=ScriptedClient([reply]))
        found = list(state.report.problems)
        if "now" in case:
            state = memory.state("ana", case["now"])
        for action, details, expected in case.get("checks", ()):
            fired = [one.error or one.message for one in state.check(action, **details)]
            if fired != expected:
                found.append(f"{action} {details}: {fired}")
        for now, expected in case.get("alerts", ()):
            fired = [one.error or one.message for one in memory.alerts("ana", now)]
            if fired != expected:
                found.append(f"at {now}: {fired}")
    return found


def figures() -> Iterator[Figure]:
    """All cases; every one must be right."""
    right = 0
    for case in CASES:
        wrong = problems(case)
        right += not wrong
        if wrong:
            print(f"wrong: {case['what']}: {'; '.join(wrong)}")
    yield Figure(
        "rules about a person", right, "all", len(CASES), "right", right / len(CASES), 1, True
    )
