"""A model that errs: more than 200 facts that a text does not state, each in a class of error.

Code sees most classes: words or values that are not in the evidence, another speaker, a date of
elsewhere, a question. What is denied, supposed, or said of a relative, only a reader sees: the
second question, which a model answers here that reads what the text says. The figure without it
says how much rests on it, and its cost is counted beside the cost of reading.
"""

import re
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from bench.figure import Figure
from em import Memory
from em.llm import ScriptedClient

SAID = (
    ("city", "Lisbon", "I live in Lisbon"),
    ("employer", "Acme", "I work for Acme"),
    ("job", "nurse", "I am a nurse"),
    ("age", 34, "I turned 34"),
    ("allergy", "peanuts", "I am allergic to peanuts"),
    ("drink", "green tea", "I drink green tea"),
    ("car", "Fiat", "I drive a Fiat"),
    ("rent", 900, "I pay 900 for rent"),
    ("spouse", "Lia", "I am married to Lia"),
    ("sport", "rowing", "I do rowing on Sundays"),
    ("diet", "vegan", "I eat vegan food"),
    ("school", "Delft", "I study in Delft"),
    ("dose", 20, "I take 20 mg a day"),
    ("birthday", "1990-05-04", "I was born on 4 May 1990"),
    ("shoe_size", 42, "I wear size 42"),
    ("street", "Mill Lane", "My street is Mill Lane"),
)
UNSEEN = ("denied", "supposed", "wished", "a relative")
"""What only a reader of the language sees."""
ANA, BO = {"speaker": "Ana"}, {"speaker": "Bo", "addressee": "Ana"}


class Case(NamedTuple):
    """What is said by whom, and the fact that a model makes of it. known: what is stored before."""

    error: str
    text: str
    speech: dict[str, str]
    fact: dict[str, Any]
    known: dict[str, Any]


def cases() -> Iterator[Case]:
    """Yield the cases: each error with each of the facts."""
    for number, (field, value, words) in enumerate(SAID):
        fact = {"op": "set", "field": field, "value": value, "evidence": words, "events": ["e1"]}
        other = SAID[(number + 1) % len(SAID)]
        yield Case("a value that is nowhere", f"{words}.", ANA, {**fact, "value": "Timbuktu"}, {})
        both, elsewhere = f"{words}. {other[2]}.", {**fact, "value": other[1]}
        yield Case("a value of another sentence", both, ANA, elsewhere, {})
        yield Case("words that nobody said", f"{other[2]}.", ANA, fact, {})
        yield Case("another speaker", f"{words}.", BO, fact, {})
        yield Case("an assistant", f"{words}, as an example.", {"role": "assistant"}, fact, {})
        yield Case("a question", f"Who told you that {words}?", ANA, fact, {})
        yield Case("a quotation", f'He wrote "{words}" on the form.', ANA, fact, {})
        named = f"Ana's brother said so: {words}."
        yield Case(
            "another's words that name the subject", named, BO, {**fact, "evidence": named}, {}
        )
        ended = {"op": "retract", "field": field, "evidence": "I left", "events": ["e1"]}
        yield Case("an end that names nothing", "I left early.", ANA, ended, {field: value})
        yield Case("denied", f"It is not true that {words}.", ANA, fact, {})
        yield Case("supposed", f"If {words} by then, we can talk again.", ANA, fact, {})
        yield Case("wished", f"My dream is that one day {words}.", ANA, fact, {})
        relative = f"My brother says that {words}."
        yield Case("a relative", relative, ANA, {**fact, "evidence": relative}, {})
    for number in range(10, 26):
        below = {"op": "set", "field": "degrees", "events": ["e1"]}
        said = f"It is -{number} outside"
        yield Case("a sign", f"{said}.", ANA, {**below, "value": number, "evidence": said}, {})
        since = f"2025-03-{number}"
        moved = {**below, "value": True, "evidence": "I moved in March", "since": since}
        yield Case("a day that nobody named", "I moved in March.", ANA, moved, {})
        text = f"On {number} March I called. Then I moved."
        yield Case("a date of elsewhere", text, ANA, {**moved, "evidence": "Then I moved"}, {})


def is_wrong(case: Case, second: Any) -> bool:
    """Tell whether a state is another one after an answer with a wrong fact."""

    def reply(request: Any) -> dict[str, Any]:
        asked = re.search(r"^s\d+ ", request.prompt, re.MULTILINE)
        return {"stated": []} if asked else {"facts": [case.fact]}

    with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
        settings = memory.subjects.settings
        memory.subjects.settings = msgspec.structs.replace(settings, second_question=second)
        if case.known:
            memory.observe("ana", case.known, type="Profile", at="2024-01-01")
        memory.observe("ana", case.text, at="2025-04-07T12:00:00Z", **case.speech)
        state = memory.checkpoint("ana", llm=ScriptedClient(reply))
        return sum(map(len, getattr(state.profile, "history", {}).values())) > len(case.known)


def figures() -> Iterator[Figure]:
    """Wrong facts, where code can see the error and where it can't; then what asking costs."""
    every = list(cases())
    for what, is_seen, second, bar in (
        ("code sees the error, no second question", True, "none", 0.0),
        ("only a reader sees it, no second question", False, "none", None),
        ("only a reader sees it, asked about changes", False, "changes", None),
        ("only a reader sees it, asked about all", False, "all", 0.0),
    ):
        chosen = [case for case in every if (case.error not in UNSEEN) == is_seen]
        bad = [case for case in chosen if is_wrong(case, second)]
        if bar is not None:
            for case in bad:
                print(f"wrong: {case.error}: {case.text!r}")
        name = f"an erring model, {what}: wrong facts"
        yield Figure(name, len(bad), "all", len(chosen), "facts", len(bad), bar, False)
    yield from cost()


def cost() -> Iterator[Figure]:
    """What the second question costs when a model reads every sentence of `SAID` at once."""
    facts = [
        {"op": "set", "field": field, "value": value, "evidence": words, "events": [f"e{number}"]}
        for number, (field, value, words) in enumerate(SAID, 1)
    ]

    def reply(request: Any) -> dict[str, Any]:
        asked = re.findall(r"^(s\d+) ", request.prompt, re.MULTILINE)
        return {"stated": asked} if asked else {"facts": facts}

    with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
        for _, _, words in SAID:
            memory.observe("ana", f"{words}.", at="2025-04-07T12:00:00Z", **ANA)
        model = ScriptedClient(reply)
        memory.checkpoint("ana", llm=model)
    first, second = (len(one.prompt) + len(one.system) for one in model.requests)
    yield Figure("characters of the second question", second, "the first", first, "characters",
                 second / first, None, False)  # fmt: skip
