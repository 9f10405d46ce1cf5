"""A model that errs: 200 facts that a text does not state, in eight classes of error.

Code sees the first six: words or values that are not in the text, another speaker, a question, a
quotation. What is denied or supposed is left to the second question, which a model answers that
reads what the text says; the figure without it says how much rests on that model.
"""

import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from bench.figure import Figure
from em import Memory
from em.llm import ScriptedClient

SEEN = ("invented value", "invented words", "another speaker", "an assistant", "question", "quote")
UNSEEN = ("denied", "supposed")
SAID = (
    ("city", "Lisbon", "I live in Lisbon"),
    ("employer", "Acme", "I work for Acme"),
    ("job", "nurse", "I am a nurse"),
    ("age", 34, "I turned 34"),
    ("allergy", "peanuts", "I am allergic to peanuts"),
    ("pet", "dog", "I have a dog"),
    ("drink", "green tea", "I drink green tea"),
    ("car", "Fiat", "I drive a Fiat"),
    ("rent", 900, "I pay 900 for rent"),
    ("spouse", "Lia", "I am married to Lia"),
    ("language", "Dutch", "I speak Dutch"),
    ("sport", "rowing", "I do rowing on Sundays"),
    ("diet", "vegan", "I eat vegan food"),
    ("phone", "555 0199", "My number is 555 0199"),
    ("school", "Delft", "I study in Delft"),
    ("bank", "Triodos", "My bank is Triodos"),
    ("dose", 20, "I take 20 mg a day"),
    ("team", "Ajax", "I play for Ajax"),
    ("birthday", "1990-05-04", "I was born on 4 May 1990"),
    ("shoe_size", 42, "I wear size 42"),
    ("street", "Mill Lane", "My street is Mill Lane"),
    ("doctor", "Weber", "My doctor is Weber"),
    ("budget", "300 EUR", "I can spend 300 EUR"),
    ("seat", "window", "I take the window seat"),
    ("airline", "TAP", "I fly with TAP"),
)


class Case(NamedTuple):
    """What is said by whom, and the fact that a model makes of it."""

    error: str
    text: str
    speech: dict[str, str]
    fact: dict[str, Any]


def cases() -> Iterator[Case]:
    """Yield the cases: each error with each of the facts."""
    ana = {"speaker": "Ana"}
    for number, (field, value, words) in enumerate(SAID):
        fact = {"op": "set", "field": field, "value": value, "evidence": words, "events": ["e1"]}
        other = SAID[(number + 1) % len(SAID)]
        yield Case("invented value", f"{words}.", ana, {**fact, "value": other[1]})
        yield Case("invented words", f"{other[2]}.", ana, fact)
        yield Case("another speaker", f"{words}.", {"speaker": "Bo", "addressee": "Ana"}, fact)
        yield Case("an assistant", f"{words}, as an example.", {"role": "assistant"}, fact)
        yield Case("question", f"Who told you that {words}?", ana, fact)
        yield Case("quote", f'He wrote "{words}" on the form.', ana, fact)
        yield Case("denied", f"It is not true that {words}.", ana, fact)
        yield Case("supposed", f"If {words} by then, we can talk again.", ana, fact)


def is_wrong(case: Case, second: Any) -> bool:
    """Tell whether a state has the fact, after an answer with it."""

    def reply(request: Any) -> dict[str, Any]:
        is_second = re.match(r"s\d+ ", request.prompt) is not None
        return {"stated": []} if is_second else {"facts": [case.fact]}

    with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
        settings = memory.subjects.settings
        memory.subjects.settings = msgspec.structs.replace(settings, second_question=second)
        memory.observe("ana", case.text, at="2025-04-07T12:00:00Z", **case.speech)
        state = memory.checkpoint("ana", llm=ScriptedClient(reply))
        return bool(getattr(state.profile, "history", {}))


def figures() -> Iterator[Figure]:
    """Wrong facts, where code can see the error and where it can't."""
    every = list(cases())
    for what, errors, second, bar in (
        ("code sees the error", SEEN, "none", 0.0),
        ("denied or supposed, no second question", UNSEEN, "none", None),
        ("denied or supposed, with the second question", UNSEEN, "all", 0.0),
    ):
        chosen = [case for case in every if case.error in errors]
        bad = [case for case in chosen if is_wrong(case, second)]
        if bar is not None:
            for case in bad:
                print(f"wrong: {case.error}: {case.text!r}")
        name = f"an erring model, {what}: wrong facts"
        yield Figure(name, len(bad), "all", len(chosen), "facts", len(bad), bar, False)
