"""The analytical questions in words, without a model: right, wrong, or not understood."""

import tempfile
from collections.abc import Iterator
from typing import Any

from bench.analytical import TYPES
from bench.figure import Figure
from bench.state import cases, is_right
from em import Memory

AT_LEAST = 30


def asked(case: dict[str, Any]) -> bool | None:
    """Ask one question; return whether the answer is right, None if it was not understood."""
    with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
        memory.observe_many(
            {"subject": "me", "record": record, "type": TYPES[case["type"]]}
            for record in case["records"]
        )
        memory.checkpoint("me")
        answer = memory.ask("me", case["question"])
    if not answer.plain:
        print(f"{case['question'][:80]}: {answer.note.rpartition('; ')[2]}")
        return None
    right = is_right(case["answer_kind"], case["gold"], answer.value)
    if not right:
        print(f"wrong: {case['question']}: {answer.value!r}, not {case['gold']!r}")
    return right


def figures() -> Iterator[Figure]:
    """Every question, with the records as they are."""
    found = [asked(case) for case in cases()]
    if not found:
        return
    right, wrong = found.count(True), found.count(False)
    share = right / len(found)
    bar = AT_LEAST / 60
    yield Figure(
        "questions in words, no model: right", right, "all", len(found), "right", share, bar, True
    )
    yield Figure(
        "questions in words, no model: wrong", wrong, "all", len(found), "wrong", wrong, 0, False
    )
