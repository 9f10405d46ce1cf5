"""Judgement: which statements become part of a state, whoever read them.

A statement is taken if its words stand in the text, its value stands in these words (or is a truth
value, or a text that its field is known to have), and the event's speaker may say it: what somebody
else says must name the subject. A statement about a question or a quotation, or one that changes
what is known, is open: a second question to a model may decide it. The rest is left out, with why.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.errors import InputError
from em.state.evidence import Evidence, find_words
from em.state.fold import partial_moment
from em.state.knowledge import Knowledge, KnownRecord
from em.state.rules import check_shape
from em.state.schema import PROFILE, ConstraintDraft, Extraction, FieldSchema
from em.state.speech import Text, is_about, is_own, names_subject, plain_name, sentence_of
from em.state.statement import Statement
from em.state.types import resolve
from em.text.terms import words_of
from em.values.canonical import Json
from em.values.times import from_micros

PERSON = "Person"
PERSON_KEY = ["name"]


class Refused(Exception):
    """Why a statement is left out."""


class Open(NamedTuple):
    """A statement that code can't decide alone, with its texts and the reason."""

    statement: Statement
    texts: Sequence[Text]
    why: str


class Judge:
    """Checks what was read in some texts.

    labels: the known records by the names that the reader has for them. opens_all: every statement
    is open.
    """

    def __init__(
        self,
        known: Knowledge,
        labels: Mapping[str, KnownRecord] | None = None,
        *,
        opens_all: bool = False,
    ) -> None:
        self._known, self._names = known, known.names()
        self._labels, self._opens_all = labels or {}, opens_all
        self.keys: dict[str, list[str]] = {}
        self.items: dict[str, list[Json]] = {"record": [], "fact": [], "constraint": []}
        self.open: list[Open] = []
        self.problems: list[str] = []

    def extraction(self, events: Sequence[str], **how: Any) -> Extraction:
        """Return what was taken, as the log stores it."""
        return Extraction(
            from_events=list(dict.fromkeys(events)),
            keys=self.keys,
            records=self.items["record"],
            facts=self.items["fact"],
            constraints=self.items["constraint"],
            left_out=self.problems,
            **how,
        )

    def add_keys(self, proposed: Mapping[str, list[str]], types: Sequence[str]) -> None:
        """Accept the keys of new types. Person has one by itself, if it is among the types."""
        for type_, key in proposed.items():
            known = self._known.schema.types.get(type_)
            if type_ == PROFILE or (known is not None and known.key != key):
                self.problems.append(
                    f"key of {type_} left out: the type is known with another key, or without; "
                    "a person can declare it (em state key)"
                )
            elif known is None:
                self.keys[type_] = key
        if PERSON in types and PERSON not in self._known.schema.types:
            self.keys.setdefault(PERSON, PERSON_KEY)

    def renames(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the renames of known types, except for the profile's and that of people."""
        fixed = (PROFILE, PERSON)
        known = self._known.schema.types
        left = {old: new for old, new in given.items() if old not in known or {old, new} & {*fixed}}
        self.problems += [f"rename of {old} to {new} left out" for old, new in left.items()]
        return {old: new for old, new in given.items() if old not in left}

    def take_rule(self, found: ConstraintDraft, events: Sequence[str]) -> None:
        """Check a rule, except for names of types, which the same reading may add."""
        try:
            check_shape(found)
        except InputError as error:
            self.problems.append(f"rule left out: {error}")
            return
        item = {**msgspec.to_builtins(found), "events": list(dict.fromkeys(events))}
        self.items["constraint"].append(item)

    def take(self, one: Statement, texts: Sequence[Text], *, confirmed: bool = False) -> None:
        """Check a statement; keep it, the reason why not, or that it is open.

        confirmed: a second question said that the text states it as true.
        """
        try:
            said = self._said(one, texts)
            item, why = self._item(one, said)
        except (Refused, InputError) as error:
            self.left_out(one, str(error))
            return
        why = "a question" if said.is_asked else "a quotation" if said.is_quoted else why
        if (why or self._opens_all) and not confirmed:
            self.open.append(Open(one, texts, why or "not certain"))
            return
        noun = "record" if "record" in item else "fact"
        if item not in self.items[noun]:
            self.items[noun].append(item)

    def left_out(self, one: Statement, why: str) -> None:
        """Note why a statement is left out."""
        what = f"{one.type}.{one.field}" if one.field else one.type
        self.problems.append(f"{one.op} {what} left out: {why}")

    def take_changes(self) -> None:
        """Take open statements that only change what is known; leave out the rest."""
        waiting, self.open = self.open, []
        for one in waiting:
            if one.why in ("a question", "a quotation"):
                self.left_out(one.statement, f"its evidence stands in {one.why}")
            else:
                self.take(one.statement, one.texts, confirmed=True)

    def _key_of(self, type_: str) -> list[str] | None:
        return [] if type_ == PROFILE else self.keys.get(type_) or self._known.key_of(type_)

    def _said(self, one: Statement, texts: Sequence[Text]) -> Evidence:
        """Return the evidence of a statement, if its words were said by whom they count."""
        said = Evidence(one.evidence, texts)
        if said.unsaid is not None:
            raise Refused(f"nobody said {said.unsaid!r}")
        who = self._person(one)
        for text, (start, end) in said.places:
            if is_own(text, self._names):
                continue
            by = text.speaker or text.role
            if "relation" in one.record or one.field == "relation":
                raise Refused(f"{by} says who somebody is, not the subject")
            sentence = sentence_of(text.text, start, end)
            if who:
                is_named = who[:1].isupper() and is_about(sentence, [who])
                may_say = is_named or plain_name(who) == plain_name(text.speaker)
            else:
                may_say = names_subject(text, sentence, self._names)
            if not may_say:
                raise Refused(f"{by} says {sentence!r}, which is not about {who or 'the subject'}")
        return said

    def _person(self, one: Statement) -> str:
        """Return the key of the record of somebody else that a statement is about."""
        key = self._key_of(one.type) or []
        values = one.key or [one.record.get(name) for name in key]
        return str(values[0]) if values and key else ""

    def _item(self, one: Statement, said: Evidence) -> tuple[Json, str]:
        """Return the item to store, and what it changes."""
        common: Json = {"type": one.type, "events": [text.event for text in said.texts]}
        common |= {"evidence": said.given, "status": self._status(one, said)}
        common["source"] = self._source(one, said) or said.texts[0].source or said.texts[0].speaker
        if one.since is not None:
            partial_moment(one.since)
            if not said.has_date(one.since):
                raise Refused(f"the time {one.since!r} is not in the text")
            common["at"] = one.since
        key = self._key_of(one.type)
        if one.op == "same" and key:
            return self._merged(one, key, said, common), "makes two records one"
        if one.field:
            return self._fact(one, key, said, common)
        if key is not None and not one.known:
            return self._keyed(one, key, said, common)
        return self._record(one, said, common)

    def _fact(
        self, one: Statement, key: list[str] | None, said: Evidence, item: Json
    ) -> tuple[Json, str]:
        if key is None or len(key) != len(one.key):
            raise Refused(f"the key {one.key} does not fit the type {one.type!r}")
        current = self._known.current(one.type, one.key, one.field)
        if one.op == "retract" and current is None:
            raise Refused(f"{one.field} has no value that could be taken back")
        old = None if current is None else current.value
        if one.op != "retract":
            self._grounded(one.type, {one.field: one.value}, said, old)
            self._named(one.type, one.key, said)
        if one.mistaken and current is not None:
            item["at"] = from_micros(current.at).isoformat()
        change = "" if old is None or old == one.value else f"changes {one.field} from {old!r}"
        value = None if one.op == "retract" else one.value
        if one.type != PROFILE and value is not None and not self._known.has(one.type, one.key):
            # The first fact about a record makes the record, with its key.
            own = dict(zip(key, one.key, strict=True))
            return {**item, "op": "add", "record": {**own, one.field: value}}, change
        op = "add" if one.op == "set" else one.op
        return {**item, "op": op, "key": one.key, "field": one.field, "value": value}, change

    def _keyed(
        self, one: Statement, key: list[str], said: Evidence, item: Json
    ) -> tuple[Json, str]:
        """Check a record with a key: its fields are facts."""
        values = [one.record.get(name) for name in key]
        if one.op == "retract" or None in values:
            raise Refused(f"a {one.type} is named by its key {', '.join(key)}, and its `field`")
        self._named(one.type, values, said)
        fields = {name: value for name, value in one.record.items() if name not in key}
        self._grounded(one.type, fields, said)
        known = {name: self._known.current(one.type, values, name) for name in fields}
        changed = [n for n, was in known.items() if was is not None and was.value != fields[n]]
        change = f"changes {', '.join(changed)}" if changed else ""
        return {**item, "op": "add", "record": one.record}, change

    def _record(self, one: Statement, said: Evidence, item: Json) -> tuple[Json, str]:
        """Check a record without a key, or what is said about a known one."""
        target = self._target(one) if one.known else None
        if one.op == "add":
            self._grounded(one.type, one.record, said)
            target = None if one.again else self._alike(one)
            found = {**item, "op": "add" if target is None else "same", "record": one.record}
            return (found if target is None else {**found, "place": target.place}), ""
        if target is None:
            raise Refused(f"{one.op} needs a `known` record")
        item |= {"type": target.type, "place": target.place, "record": one.record}
        if one.op == "same":
            return {**item, "op": "same"}, ""
        if one.op == "set":
            self._grounded(target.type, one.record, said)
            return {**item, "op": "update"}, f"changes {target.record!r:.200}"
        return {**item, "op": "retract", "record": {}}, f"takes back {target.record!r:.200}"

    def _merged(self, one: Statement, key: list[str], said: Evidence, item: Json) -> Json:
        """Check that two known records are one: the words must name both."""
        first = one.key or [one.record.get(name) for name in key]
        known = one.known if isinstance(one.known, dict) else {key[0]: one.known}
        other = [known.get(name) for name in key]
        for each in (first, other):
            if not self._known.has(one.type, each):
                raise Refused(f"no known {one.type} has the key {each}")
            self._named(one.type, each, said, is_known=False)
        return {**item, "op": "merge", "record": {}, "same": first, "into": other}

    def _target(self, one: Statement) -> KnownRecord:
        """Return the known record that a statement is about; Refused unless it is one."""
        if isinstance(one.known, str) and one.known in self._labels:
            return self._labels[one.known]
        found = [known for known in self._known.records if _is_meant(one.known, known)]
        if one.type != PROFILE:
            found = [known for known in found if known.type == one.type]
        if not found or any(known.record != found[0].record for known in found):
            raise Refused(f"{len(found)} known records are {one.known!r:.200}")
        return found[-1]

    def _grounded(self, type_: str, values: Json, said: Evidence, old: Any = None) -> None:
        schema = self._known.schema.types.get(type_)
        for name, value in values.items():
            wrong = said.missing(value)
            field = None if schema is None else schema.fields.get(name)
            is_known = _is_member(value, field) or _corrects(old, value, said)
            if wrong is not None and not is_known:
                raise Refused(f"{name} {wrong!r} is not in the words {said.words!r}")

    def _named(
        self, type_: str, key: Sequence[Any], said: Evidence, *, is_known: bool = True
    ) -> None:
        """The words must name a record by its key, unless it is known, speaks or is spoken to."""
        if type_ == PROFILE or (is_known and self._known.has(type_, key)):
            return
        by = {plain_name(one) for text in said.texts for one in (text.speaker, text.addressee)}
        for part in key:
            spoken = any(find_words(str(part), text.text) for text in said.texts)
            if not spoken and plain_name(str(part)) not in by:
                raise Refused(f"the key {part!r} is not in the words {said.words!r}")

    def _alike(self, one: Statement) -> KnownRecord | None:
        """Return the known record that a new one only repeats."""
        for item in self.items["record"]:
            if item["type"] == one.type and _is_within(one.record, item["record"]):
                raise Refused(f"the same {one.type} was read twice; for another one: `again`")
        for known in reversed(self._known.records):
            if known.type == one.type and _is_within(one.record, known.record):
                self.problems.append(
                    f"add {one.type} taken for a known one: {one.record!r:.200}; for another "
                    "one: `again`"
                )
                return known
        return None

    def _source(self, one: Statement, said: Evidence) -> str:
        named = (f"{text.source} {text.text}" for text in said.texts)
        return one.source if any(find_words(one.source, words) for words in named) else ""

    def _status(self, one: Statement, said: Evidence) -> str:
        """Return how sure it is: confirmed only by a source that the text or its event names."""
        first = said.texts[0]
        if not first.speaker and not is_own(first, self._names):
            return "inferred"
        by = self._source(one, said) or first.source
        is_other = bool(by) and plain_name(by) != plain_name(first.speaker)
        return "stated" if one.status == "confirmed" and not is_other else one.status


def _is_member(value: Any, field: FieldSchema | None) -> bool:
    """Tell whether a field is known to have one of a few texts, and this is one of them."""
    is_closed = field is not None and resolve(field, "X").annotation.startswith("Literal[")
    return is_closed and field is not None and value in (field.values or ())


def _is_meant(known: str | Json, record: KnownRecord) -> bool:
    if isinstance(known, str):
        return record.place.rsplit("/", 2)[1] == known
    return _is_within(known, record.record)


def _corrects(old: Any, new: Any, said: Evidence) -> bool:
    """Tell whether words correct a part of a known text: its other words were said before."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    added = [word for word in words_of(new) if word not in words_of(old)]
    return bool(added) and all(word in words_of(said.words) for word in added)


def _is_within(new: Json, known: Json) -> bool:
    """Tell whether a record has nothing that a known one has not."""
    return all(_plain(known.get(name)) == _plain(value) for name, value in new.items())


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    return float(value) if type(value) in (int, float) else value
