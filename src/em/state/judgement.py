"""Judgement: what of a model's answer becomes part of a state.

An item is taken only if its words were said, its values are in these words, and the words are the
subject's to say. What others say about themselves, questions, quotations, suppositions and jokes
are left out, and so is what repeats a known record. Each item that is left out is reported.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.errors import InputError
from em.state.assertion import leaves, mentions, unasserted, unchanged
from em.state.extraction import Chunk, FoundConstraint, FoundFact, FoundRecord, Reading
from em.state.fold import partial_moment
from em.state.grounds import Grounds, find_words
from em.state.knowledge import KnownRecord
from em.state.rules import check_shape
from em.state.schema import PROFILE, Extraction
from em.state.speech import ASSISTANTS, Text, around, is_note, is_own, plain_name, unreal
from em.text.terms import words_of
from em.values.canonical import Json
from em.values.times import from_micros

PERSON = "Person"
PERSON_KEY = ["name"]
RELATIONS = frozenset(
    "sister brother mother father mom mum dad parents parent son daughter child kid kids children "
    "wife husband partner girlfriend boyfriend fiancé fiancée friend roommate flatmate neighbour "
    "neighbor colleague coworker boss manager teacher doctor dentist lawyer landlord aunt uncle "
    "cousin niece nephew grandmother grandfather grandma grandpa grandson granddaughter ex twin "
    "stepmother stepfather godmother godfather client customer team dog cat".split()
)
_FIRST = re.compile(r"(?<![\w'’])(?:i|im|ive|me|my|mine|myself|we|us|our|ours)(?![\w])", re.I)
_OTHER = re.compile(r"\s*(?:well|oh|so|and|but|yes|no)?,?\s*(?:he|she|they|his|her|their)\b", re.I)
_MY_OTHER = re.compile(r"\s*(?:my|our) (?:\w+ )?(?P<who>[\w]+)(?:['’]s)?\b", re.IGNORECASE)
_I = re.compile(r"(?<![\w'’])(?:i|im|ive|we|me)(?![\w])", re.IGNORECASE)
_DOES = (
    r"(?:and \w+ )?(?:lives?|works?|moved|likes?|loves?|hates?|prefers?|drinks?|eats?|speaks?|"
    r"wants?|owns?|bought|earns?|studies|plays?|is (?:called|allergic|married)|was born)\b"
)
_NAMED_OTHER = re.compile(rf"\s*(?:[Tt]he \w+|[A-Z]\w+) {_DOES}")
_OTHER_ENDED = re.compile(
    r"\s*(?!(?:I|Just|Yesterday|Today|Also|Then|And|So|Sorry|No|\w+ly)\b)(?P<who>[A-Z]\w+) "
    r"(?:has |just |finally )*(?:quit|left|resigned|retired|moved|was|got|lost|sold|no longer|"
    r"does not|doesn['’]t)\b"
)
_SAYS = re.compile(
    r"\b(?:thinks?|believes?|says?|said|told|tells?|heard|hopes?|knows?|could|might|may|"
    r"should|would)\b",
    re.IGNORECASE,
)
_AGAIN = re.compile(r"\b(?:another|one more|a second|a third|a fourth)\b", re.IGNORECASE)
_ONE = re.compile(
    r"\b(?:same (?:person|one|man|woman|guy)|also known as|aka|goes by|short for|nickname)\b|"
    r"['’]s (?:real |full |actual )?name is\b|\bis (?:called|named)\b",
    re.IGNORECASE,
)
"""Words that say that two names are of one person."""
_NOT_ONE = re.compile(r"\b(?:not|never|different|another|other|or)\b|n['’]t\b", re.IGNORECASE)
_CONFIRMED = re.compile(r"\b(?:confirm|verif|diagnos|certif|official|prove)", re.IGNORECASE)


Found = FoundRecord | FoundFact | FoundConstraint
_NOUNS: Mapping[type, str] = {
    FoundRecord: "record",
    FoundFact: "fact",
    FoundConstraint: "constraint",
}


class Refused(Exception):
    """Why an item of a model's answer is left out."""


def judged(reading: Reading, chunk: Chunk, model: str) -> tuple[Extraction, list[str]]:
    """Return what of an answer is taken, with events for labels, and why the rest is left out."""
    judge = Judge(chunk)
    judge.accept_types(reading)
    found: list[Found] = [*reading.records, *reading.facts, *reading.constraints]
    for one in found:
        judge.take(one)
    extraction = Extraction(
        from_events=list(dict.fromkeys(text.event for text in chunk.texts.values())),
        method="model",
        model=model,
        renames=judge.renames(reading.renames),
        keys=judge.keys,
        records=judge.items["record"],
        facts=judge.items["fact"],
        constraints=judge.items["constraint"],
    )
    return extraction, judge.problems


class Judge:
    """Checks the items of one answer."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk, self._known = chunk, chunk.known
        self.keys: dict[str, list[str]] = {}
        self.items: dict[str, list[Json]] = {"record": [], "fact": [], "constraint": []}
        self.problems: list[str] = []

    def take(self, one: Found) -> None:
        """Check an item, and keep it or the reason why not."""
        noun = _NOUNS[type(one)]
        try:
            if isinstance(one, FoundConstraint):
                found = self.constraint(one)
            else:
                found = self.record(one) if isinstance(one, FoundRecord) else self.fact(one)
        except (Refused, InputError) as error:
            self.problems.append(f"{noun} left out: {error}")
            return
        noun = "record" if "record" in found else noun
        if found not in self.items[noun]:
            self.items[noun].append(found)

    def accept_types(self, reading: Reading) -> None:
        """Accept the keys of new types. Person has one by itself."""
        for one in reading.types:
            known = self._known.schema.types.get(one.type)
            if one.type == PROFILE or (known is not None and known.key != one.key):
                self.problems.append(
                    f"key of {one.type} left out: the type is known with another key, or without; "
                    "a person can declare it (em state key)"
                )
            elif known is None:
                self.keys[one.type] = one.key
        if PERSON not in self._known.schema.types and PERSON not in self.keys:
            named = [one.type for one in reading.records] + [one.type for one in reading.facts]
            if PERSON in named:
                self.keys[PERSON] = PERSON_KEY

    def renames(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the renames of known types, except for the profile's and that of people."""
        fixed = (PROFILE, PERSON)
        known = self._known.schema.types
        left = {old: new for old, new in given.items() if old not in known or {old, new} & {*fixed}}
        self.problems += [f"rename of {old} to {new} left out" for old, new in left.items()]
        return {old: new for old, new in given.items() if old not in left}

    def _key_of(self, type_: str) -> list[str] | None:
        return self.keys.get(type_) or self._known.key_of(type_)

    def constraint(self, found: FoundConstraint) -> Json:
        """Check a rule, except for names of types, which this answer itself may add."""
        check_shape(found)
        item: Json = msgspec.to_builtins(found)
        item["events"] = self._ids(found.events)
        return item

    def _ids(self, labels: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(self._chunk.texts[label].event for label in labels))

    def record(self, found: FoundRecord) -> Json:
        """Check a record, or what is said about a known one."""
        said = Said(found.evidence, [self._chunk.texts[label] for label in found.events])
        target = self._target(found)
        type_ = found.type or (target.type if target is not None else "")
        if not type_:
            raise Refused("it has no type, and names no known record")
        key = [] if type_ == PROFILE else self._key_of(type_)
        item = self._item(found, said)
        item |= {"type": type_, "op": found.op, "record": found.record}
        if key is not None and found.op == "same":
            return self._merged(item, type_, key, found, said)
        if key is not None:
            return self._keyed(item, type_, key, found, said)
        if found.op == "add" and not found.record:
            raise Refused(f"a {type_} without values")
        if found.op in ("add", "update"):
            self._may_state(said, PROFILE, [], record=found.record)
            self._asserted(said, type_, found.record, past=True)
            self._grounded(said, found.record, found.at)
        if found.op == "add":
            target = self._same(type_, found, said)
            item["op"] = "add" if target is None else "same"
        elif target is None:
            raise Refused(f"{found.op} needs the label of a known record, got {found.known!r}")
        else:
            self._may_change(said)
        if target is not None:
            item["place"] = target.place
        item.pop("known", None)
        return item

    def _merged(
        self, item: Json, type_: str, key: list[str], found: FoundRecord, said: "Said"
    ) -> Json:
        """Check that two known records are one: the words must say so, of both by name."""
        one, other = [found.record.get(name) for name in key], [found.known]
        if len(key) != 1 or not all(self._known.has(type_, each) for each in (one, other)):
            raise Refused(f"no two known records of {type_}: {one} and {other}")
        for text, (start, end) in said.places:
            why = unreal(text.text, start, end) or unchanged(text.text, start, end)
            if why is not None or not is_own(text, self._chunk.names):
                raise Refused(f"{said.words!r} is {why or 'not what the subject says'}")
        names = [str(each[0]) for each in (one, other)]
        named = all(find_words(name, said.words) for name in names)
        if not named or not _ONE.search(said.words) or _NOT_ONE.search(said.words):
            raise Refused(
                f"{said.words!r} does not say that {names[0]!r} and {names[1]!r} are one; if they "
                f"are: em state same SUBJECT {names[0]} {names[1]}"
            )
        drop = ("record", "known", "at")
        kept = {name: value for name, value in item.items() if name not in drop}
        return {**kept, "op": "merge", "record": {}, "same": one, "into": other}

    def _target(self, found: FoundRecord) -> KnownRecord | None:
        if not found.known or (found.op == "same" and self._key_of(found.type) is not None):
            return None
        if found.known not in self._chunk.records:
            raise Refused(f"no known record has the label {found.known!r}")
        return self._chunk.records[found.known]

    def _keyed(
        self, item: Json, type_: str, key: list[str], found: FoundRecord, said: "Said"
    ) -> Json:
        """Check a record with a key: its fields are facts."""
        if found.op not in ("add", "update") or not found.record:
            raise Refused(f"{type_} has a key; take its fields back by facts")
        values = [found.record.get(name) for name in key]
        if None in values:
            raise Refused(f"a {type_} without its key {', '.join(key)}")
        self._may_state(said, type_, values, fields=found.record)
        fields = {name: value for name, value in found.record.items() if name not in key}
        self._asserted(said, type_, fields)
        self._grounded(said, fields, found.at)
        item.pop("known", None)
        return {**item, "op": "add"}

    def fact(self, found: FoundFact) -> Json:
        """Check a value of a single-valued field."""
        said = Said(found.evidence, [self._chunk.texts[label] for label in found.events])
        key = [] if found.type == PROFILE else self._key_of(found.type)
        if key is None or len(key) != len(found.key):
            raise Refused(f"the key {found.key} does not fit the type {found.type!r}")
        item = self._item(found, said)
        item |= {"op": found.op, "type": found.type}
        current = self._known.current(found.type, found.key, found.field)
        if found.op == "retract":
            if current is None:
                raise Refused(f"{found.field} has no value that could be taken back")
            self._may_change(said)
            item["value"] = None
        elif found.value is None:
            raise Refused(f"{found.field} without a value")
        else:
            self._may_state(said, found.type, found.key, fields={found.field: found.value})
            self._asserted(said, found.type, {found.field: found.value})
            old = None if current is None or found.op != "update" else current.value
            told = {} if said.grounds.corrects(old, found.value) else {found.field: found.value}
            self._grounded(said, told, found.at)
        if found.mistaken and current is not None and found.op != "add":
            item["at"] = from_micros(current.at).isoformat()
        elif found.at is not None:
            self._grounded(said, {}, found.at)
        item.pop("mistaken", None)
        if (
            found.type != PROFILE
            and found.op != "retract"
            and not self._known.has(found.type, found.key)
        ):
            # The first fact about a record makes the record, with its key.
            own = dict(zip(key, found.key, strict=True))
            item["record"] = {**own, item.pop("field"): item.pop("value")}
            del item["key"]
        return item

    def _item(self, found: FoundRecord | FoundFact, said: "Said") -> Json:
        if found.at is not None:
            partial_moment(found.at)
        item: Json = msgspec.to_builtins(found)
        item["events"] = list(dict.fromkeys(text.event for text in said.texts))
        item["evidence"] = said.evidence
        first = said.texts[0]
        named = item.get("source") or ""
        if not any(find_words(named, f"{one.source} {one.text}") for one in said.texts):
            named = ""
        item["source"] = named or first.source or first.speaker
        if not first.speaker and first.role.lower() in ASSISTANTS:
            item["status"] = "inferred"
        elif found.status == "confirmed" and not _CONFIRMED.search(first.text):
            item["status"] = "stated"
        return item

    def _grounded(self, said: "Said", values: Json, at: str | None) -> None:
        grounds = said.grounds
        for name, value in values.items():
            wrong = grounds.missing(value)
            if wrong is not None:
                raise Refused(f"{name} {wrong!r} is not in the words {said.words!r}")
        if at is not None and not grounds.has_date(at):
            raise Refused(f"the time {at!r} is not in the words {said.words!r}")

    def _asserted(self, said: "Said", type_: str, values: Json, *, past: bool = False) -> None:
        """Refuse values that the words around them deny, or don't say to be so now.

        past: they are of a record of something that happened.
        """
        for name, value in values.items():
            field = f"{'' if type_ == PROFILE else type_}_{name}".lower()
            for leaf in leaves(value):
                spans = [span for text, span in said.places]
                whys = [
                    unasserted(text.text, *span, field, leaf, past=past)
                    for text, span in said.places
                    if len(spans) == 1 or mentions(leaf, text.text[slice(*span)])
                ]
                if whys and None not in whys:
                    raise Refused(f"{name} {leaf!r} is {whys[0]} in {said.words!r}")

    def _may_change(self, said: "Said") -> None:
        """Only the subject takes back or corrects what is known, and not what is to come."""
        for text, (start, end) in said.places:
            own = is_own(text, self._chunk.names)
            if not own and not self._is_about_subject(text, said):
                raise Refused(f"the subject does not say {said.words!r}")
            why = unreal(text.text, start, end, jokes=False) or unchanged(text.text, start, end)
            if why is not None:
                raise Refused(f"{said.words!r} is {why}")
            sentence = around(text.text, start, end)
            if own and not is_note(text) and _ends_other(sentence, self._chunk.names):
                raise Refused(f"{said.words!r} is about somebody else")

    def _may_state(
        self,
        said: "Said",
        type_: str,
        key: Sequence[Any],
        *,
        record: Json | None = None,
        fields: Json | None = None,
    ) -> None:
        """Refuse what states nothing, and what somebody says about somebody else."""
        for text, (start, end) in said.places:
            why = unreal(text.text, start, end)
            if why is not None:
                raise Refused(f"{said.words!r} is {why}")
            sentence = around(text.text, start, end)
            if type_ == PROFILE:
                self._about_subject(text, sentence, said, record, fields)
            elif is_own(text, self._chunk.names):
                self._named(type_, key, sentence)
            else:
                self._told_by_other(text, sentence, type_, key, fields or {})

    def _about_subject(
        self, text: Text, sentence: str, said: "Said", record: Json | None, fields: Json | None
    ) -> None:
        if not is_own(text, self._chunk.names):
            if not self._is_about_subject(text, said):
                raise Refused(f"the subject does not say {said.words!r}")
        elif fields and not is_note(text) and _names_other(sentence, self._chunk.names):
            raise Refused(f"{said.words!r} is about somebody else")
        elif not is_note(text) and (who := _other_person(sentence)) is not None:
            named = [*(fields or {}), *map(str, (record or {}).values())]
            if who not in words_of(" ".join(named)):
                raise Refused(f"{said.words!r} is about somebody else")

    def _is_about_subject(self, text: Text, said: "Said") -> bool:
        """Tell whether another speaker says it about the subject, by name or as `you`."""
        subject = "|".join(re.escape(name) for name in self._chunk.names)
        to_subject = plain_name(text.addressee) in self._chunk.names or (
            not text.addressee and text.role.lower() in ASSISTANTS
        )
        you = "|you|your" if to_subject else ""
        begins = re.compile(rf"\s*(?:{subject}{you})(?:['’](?:s|re|ve))?(?=\s)(?!,)", re.IGNORECASE)
        for one, (start, end) in said.places:
            sentence = around(one.text, start, end)
            if one is not text:
                continue
            found = begins.match(sentence)
            if found is None or _FIRST.search(sentence) or _SAYS.search(sentence):
                return False
            if RELATIONS.intersection(words_of(sentence[found.end() :])[:2]):
                return False
        return True

    def _named(self, type_: str, key: Sequence[Any], sentence: str) -> None:
        """The subject's words must name a record by its key, unless it is known."""
        if self._known.has(type_, key):
            return
        for part in key:
            if isinstance(part, str) and find_words(part, sentence) is None:
                raise Refused(f"the key {part!r} is not in the words {sentence!r}")

    def _told_by_other(
        self, text: Text, sentence: str, type_: str, key: Sequence[Any], fields: Json
    ) -> None:
        """Another speaker may tell about themselves as a Person, and about others by name."""
        who = plain_name(str(key[0])) if type_ == PERSON and key else ""
        if "relation" in fields:
            raise Refused(f"only the subject says who {who!r} is to it")
        if who and who == plain_name(text.speaker):
            if _FIRST.search(sentence) is None or _other_person(sentence) is not None:
                raise Refused(f"{sentence!r} is not about {who!r}")
            return
        begins = plain_name(sentence).startswith(f"{who} ") and str(key[0])[:1].isupper()
        if not who or not begins or who in self._chunk.names:
            raise Refused(f"{text.speaker or text.role} says {sentence!r}, not the subject")

    def _same(self, type_: str, found: FoundRecord, said: "Said") -> KnownRecord | None:
        """Return the known record that a new one only repeats."""
        if _AGAIN.search(said.words):
            return None
        for item in self.items["record"]:
            same = item["type"] == type_ and item["op"] == "add"
            within = same and _is_within(found.record, item["record"])
            around_ = same and _is_within(item["record"], found.record)
            if within or (around_ and item["evidence"] == said.evidence):
                raise Refused(f"the answer has this {type_} twice")
        for known in reversed(self._known.records):
            if known.type == type_ and _is_within(found.record, known.record):
                self.problems.append(f"record taken for one that is known: {found.record!r:.200}")
                return known
        return None


class Said:
    """The words that a model gives as evidence, where they stand, and who says them."""

    def __init__(self, given: Sequence[str] | str, texts: Sequence[Text]) -> None:
        evidence = [given] if isinstance(given, str) else list(given)
        self.evidence, self.words = evidence, " … ".join(evidence)
        self.places: list[tuple[Text, tuple[int, int]]] = []
        if not evidence:
            raise Refused("it has no evidence: words of the text that say it")
        for words in evidence:
            found = [(text, span) for text in texts if (span := find_words(words, text.text))]
            if not found:
                raise Refused(f"nobody said {words!r}")
            self.places.append(found[0])
        used = [text for text, _ in self.places]
        self.texts = [*dict.fromkeys(used)]
        self.grounds = Grounds(
            [text.text[start:end] for text, (start, end) in self.places],
            [(text.text, from_micros(text.at)) for text in self.texts],
        )


def _other_person(sentence: str) -> str | None:
    """Return who a sentence is about, if that is a third person and the speaker is not in it."""
    if _I.search(sentence):
        return None
    if found := _OTHER.match(sentence):
        return words_of(found[0])[-1]
    found = _MY_OTHER.match(sentence)
    for part in () if found is None else words_of(found[0]):
        if part in RELATIONS:
            return part
    return None


def _names_other(sentence: str, names: frozenset[str]) -> bool:
    """Tell whether a sentence of the subject begins with what somebody else does."""
    found = _NAMED_OTHER.match(sentence)
    if found is None or _FIRST.search(sentence):
        return False
    return words_of(found[0])[0] not in names


def _ends_other(sentence: str, names: frozenset[str]) -> bool:
    """Tell whether a sentence of the subject says what ended for somebody else."""
    found = _OTHER_ENDED.match(sentence)
    named = found is not None and words_of(found["who"])[0] not in names
    return named or _other_person(sentence) is not None


def _is_within(new: Json, known: Json) -> bool:
    """Tell whether a record has nothing that a known one has not."""
    return all(_plain(known.get(name)) == _plain(value) for name, value in new.items())


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    return float(value) if type(value) in (int, float) else value
