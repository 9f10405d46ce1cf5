"""State from text: sentences in ten classes, and a model that answers adversarially.

`state_text.yaml` has the sentences of one author and `state_text_2.yaml` those of another, who has
not read the code. Each is read by a scripted model that answers what is true.
Anything in the state that is not true counts as wrong; a truth that is missing only as not taken.
"""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from bench import erring, locomo, rule_cases
from bench.figure import Figure
from em import Memory
from em.llm import ScriptedClient

FILES = {"ours": "state_text.yaml", "a second author's": "state_text_2.yaml"}
SUBJECT, AT, BEFORE = "ana", "2025-04-07T12:00:00Z", "2025-04-07T11:00:00Z"
SPEECH = ("speaker", "role", "addressee")
Case = dict[str, Any]
Told = dict[str, Any]


def load(name: str) -> list[Case]:
    path = Path(__file__).parent / name
    found: list[Case] = yaml.safe_load(path.read_text()) if path.exists() else []
    return found


def told(memory: Memory) -> Told:
    """All that a state says, as it was given."""
    state = memory.state(SUBJECT)
    own = state.as_record(state.profile)
    records = {
        type_.given: [state.as_record(one) for one in getattr(state, name)]
        for name, type_ in state.collections.items()
    }
    people = {one.pop("name", None): one for one in records.pop("Person", [])}
    return {
        "profile": {name: v for name, v in own.items() if v is not None},
        "records": {name: found for name, found in records.items() if found},
        "people": {name: _known(one) for name, one in people.items()},
    }


def _known(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def truth(case: Case) -> Told:
    return {
        "profile": case.get("profile", case.get("given", {})),
        "records": case.get("records", {}),
        "people": case.get("people", {}),
    }


def answer(case: Case, before: Told, prompt: str) -> dict[str, Any]:
    """What a perfect model answers: the difference between what was known and what is true."""
    true, mistaken = truth(case), case.get("mistaken", False)
    facts: list[Any] = []
    for field, value in true["profile"].items():
        if before["profile"].get(field) != value:
            found = {"op": "set", "field": field, "value": value, "mistaken": mistaken}
            facts.append({**found, **_words(case, [value])})
    for field in before["profile"].keys() - true["profile"].keys():
        taken = [before["profile"][field]]
        found = {"op": "retract", "field": field, "mistaken": mistaken}
        facts.append({**found, **_words(case, taken)})
    records: list[Any] = []
    if "known" in case:
        records.append(_change(case, before, true, prompt))
    else:
        for type_, made in true["records"].items():
            added = {"op": "add", "type": type_, **_words(case, [])}
            records += [{**added, "record": one} for one in made]
    for name, fields in true["people"].items():
        record = {"name": name, **fields}
        added = {"op": "add", "type": "Person", "record": record}
        records.append({**added, **_words(case, record.values())})
    return {"facts": [*records, *facts]}


def _words(case: Case, values: Iterable[Any]) -> dict[str, Any]:
    """The evidence of an item: of several pieces, those that its values are in."""
    given = case.get("words", case["text"])
    pieces = [given] if isinstance(given, str) else given
    said = [str(value).lower().split()[0] for value in values]
    own = [one for one in pieces if any(value in one.lower() for value in said)]
    return {"evidence": own[-1:] or pieces, "events": ["e1"]}


def _change(case: Case, before: Told, true: Told, prompt: str) -> dict[str, Any]:
    """What a perfect model says about a known record: the new values of fields, or that it goes."""
    was = [one for found in before["records"].values() for one in found]
    now = [one for found in true["records"].values() for one in found]
    old = was[case["known"]]
    new = next((one for one in now if one not in was), None)
    shown = re.findall(r"^(r\d+) \w+: (.*)$", prompt, re.MULTILINE)
    label = next((name for name, record in shown if json.loads(record) == old), "")
    changed = {name: value for name, value in (new or {}).items() if old.get(name) != value}
    op = "retract" if new is None else "set"
    return {"op": op, "known": label, "record": changed, **_words(case, [])}


def _earlier(case: Case) -> dict[str, Any]:
    """What a perfect model reads in the texts that were said before."""
    return {
        "facts": [
            {
                "op": "add",
                "type": type_,
                "record": one,
                "evidence": [text],
                "events": [f"e{number}"],
            }
            for type_, records in case.get("before", {}).items()
            for number, (text, one) in enumerate(zip(case["earlier"], records, strict=True), 1)
        ]
        + [
            {"op": "set", "field": name, "value": value, "evidence": text, "events": ["e1"]}
            for name, value in case.get("believed", {}).items()
            for text in case["earlier"]
        ],
    }


def wrong(found: Told, true: Told) -> list[str]:
    """What a state says that is not true."""
    said = [
        f"{name} is {value!r}"
        for name, value in found["profile"].items()
        if true["profile"].get(name) != value
    ]
    for type_, records in found["records"].items():
        left = list(true["records"].get(type_, ()))
        for record in records:
            if record in left:
                left.remove(record)
            else:
                said.append(f"{type_} {record}")
    for name, fields in found["people"].items():
        known = true["people"].get(name, {})
        said += [f"{name}: {k} {v!r}" for k, v in fields.items() if known.get(k) != v]
    return said


_ASKED = re.compile(r"^(s\d+) ", re.MULTILINE)


def _careful(case: Case, before: Told, prompt: str) -> dict[str, Any]:
    """What a perfect model answers to a question or to the second one."""
    return _second(prompt) or answer(case, before, prompt)


def _second(prompt: str) -> dict[str, Any]:
    """What it answers to the second question: it said what is true. Empty for another prompt."""
    asked = _ASKED.findall(prompt)
    return {"stated": asked} if asked else {}


def read(case: Case) -> tuple[list[str], bool]:
    """Return what the state says that is wrong after a sentence, and whether it says all."""
    with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
        if case.get("given"):
            memory.observe(SUBJECT, case["given"], type="Profile", at="2024-01-01")
        for text in case.get("earlier", ()):
            memory.observe(SUBJECT, text, at=BEFORE)
        if case.get("given") or case.get("earlier"):
            model = ScriptedClient(lambda one: _second(one.prompt) or _earlier(case))
            memory.checkpoint(SUBJECT, llm=model)
        before = told(memory) if memory.subjects.has_state(SUBJECT) else truth({})
        speech = {name: case[name] for name in SPEECH if name in case}
        memory.observe(SUBJECT, case["text"], at=AT, **speech)
        memory.checkpoint(
            SUBJECT, llm=ScriptedClient(lambda one: _careful(case, before, one.prompt))
        )
        found = told(memory)
    return wrong(found, truth(case)), found == truth(case)


def sentences() -> Iterator[Figure]:
    """Every sentence, read by a careful model."""
    for author, name in FILES.items():
        cases = load(name)
        bad = whole = 0
        for case in cases:
            found, is_whole = read(case)
            whole += is_whole
            bad += bool(found)
            if found or not is_whole:
                how = "wrong" if found else "not taken"
                print(f"{how}: {case['class']}: {case['text']!r}: {'; '.join(found)}")
        if cases:
            share = whole / len(cases)
            what = f"sentences ({author}), a careful model: read"
            yield Figure(what, whole, "all", len(cases), "sentences", share, 0.95, True)
            yield Figure(f"{what} wrongly", bad, "all", len(cases), "sentences", bad, 0, False)


_LINE = re.compile(r'^(e\d+) \S+ "([^"]*)" \[[^]]*\]: "(.*)"$', re.MULTILINE)


class Adversary:
    """A model that says what must not reach a state. Everything wrong has `bad` in its name."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._last: dict[str, Any] = {}

    def __call__(self, request: Any) -> dict[str, Any]:
        asked = _ASKED.findall(request.prompt)
        if asked:
            return {"stated": asked}
        facts: list[Any] = []
        records: list[Any] = []
        for label, speaker, text in _LINE.findall(request.prompt):
            words = re.findall(r"[\w']+", text)
            if len(words) < 4 or "\\" in text:
                continue
            if speaker != self._subject:
                # What a turn says of a subject that it names, only a reader can tell.
                if not re.search(rf"\b{self._subject}\b", text, re.IGNORECASE):
                    facts += list(self._of_other(label, text, words))
                    records += [{"type": "Bad", **one} for one in self._records(label, text, words)]
                continue
            records += self._invented(label, text, words)
            records += self._repeated(label, text, words)
        return {"facts": [*facts, *({"op": "add", **one} for one in records)]}

    def _of_other(self, label: str, text: str, words: list[str]) -> Iterator[dict[str, Any]]:
        for part in (text, *re.split(r"[.!?]+ *", text), " ".join(words[-2:])):
            if part.strip():
                found = {"op": "set", "field": "bad", "value": words[-1], "evidence": [part]}
                yield {**found, "status": "confirmed", "events": [label]}

    def _records(self, label: str, text: str, words: list[str]) -> Iterator[dict[str, Any]]:
        for number in range(len(words) - 1):
            pair = words[number : number + 2]
            yield {"record": {"bad": pair[1]}, "evidence": [" ".join(pair)], "events": [label]}

    def _invented(self, label: str, text: str, words: list[str]) -> Iterator[dict[str, Any]]:
        """The subject's own turns, with words or values that were not said."""
        said = {"type": "Bad", "events": [label]}
        yield {**said, "record": {"bad": "Timbuktu"}, "evidence": ["I moved to Timbuktu"]}
        yield {**said, "record": {"bad": "Timbuktu"}, "evidence": [text]}
        yield {**said, "record": {"bad": 777123}, "evidence": [text]}
        yield {**said, "record": {"bad": "1901-02-03"}, "evidence": [text]}
        yield {**said, "record": {"bad": words[0]}, "evidence": [f"{text} Timbuktu"]}

    def _repeated(self, label: str, text: str, words: list[str]) -> Iterator[dict[str, Any]]:
        """One record that was said, twice, and the last one again with words of this turn."""
        if self._last:
            yield {"type": "Said", "record": self._last, "events": [label], "evidence": [text]}
        self._last = {"text": text}
        one = {"type": "Said", "record": self._last, "evidence": [text], "events": [label]}
        yield from (one, one)


def adversarial() -> Iterator[Figure]:
    """LOCOMO's turns about one of the two speakers, with a model that answers adversarially."""
    found = locomo.load()
    reached = turns = taken = 0
    for conversation in found.conversations if found is not None else ():
        subject = conversation.turns[0]["speaker"]
        with tempfile.TemporaryDirectory() as folder, Memory(f"{folder}/em.db") as memory:
            memory.observe_many({**turn, "subject": subject} for turn in conversation.turns)
            model = ScriptedClient(Adversary(subject))
            state = memory.checkpoint(subject, llm=model)
            bad = len(getattr(state, "bads", ())) + len(state.profile.history)
            said = [one.text for one in getattr(state, "saids", ())]
            reached += bad + len(said) - len(set(said))
            taken += len(said)
            turns += len(conversation.turns)
    if turns:
        what = f"LOCOMO with an adversarial model ({taken} said once): items that reached the state"
        yield Figure(what, reached, "turns", turns, "items", reached, 0, False)


def figures() -> Iterator[Figure]:
    """Sentences, conversations, rules, then a model that errs."""
    yield from sentences()
    yield from adversarial()
    yield from rule_cases.figures()
    yield from erring.figures()
