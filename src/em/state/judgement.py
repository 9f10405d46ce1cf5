"""Judgement: which statements become part of a state, whoever read them.

A statement is taken if its evidence stands in a text word for word, its value stands in the
evidence (or is a truth value, or a text that its field is known to have), and the event's speaker
may say it. Another speaker's words count for that speaker; about anybody else they must have the
name. What code can't decide is open, and a second question to a model may decide it. The rest is
left out, with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple, TypeVar

import msgspec

from em.errors import InputError
from em.state.evidence import Evidence, find_words
from em.state.fold import partial_moment
from em.state.knowledge import Knowledge, KnownRecord
from em.state.rules import check_shape
from em.state.schema import PROFILE, ConstraintDraft, Extraction, FieldSchema
from em.state.statement import Statement, Text, plain_name, read_as
from em.state.types import resolve
from em.values.canonical import Json
from em.values.times import from_micros

PERSON = "Person"
PERSON_KEY = ["name"]


S = TypeVar("S", bound=Statement)


class LeftOut(Exception):
    """Why a statement is left out."""


class Open(NamedTuple):
    """A statement that code can't decide alone, with its texts and the reason.

    is_doubted: without a second question it is left out; else it is taken.
    """

    statement: Statement
    texts: Sequence[Text]
    why: str
    is_doubted: bool


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

    def take_rule(self, given: Json, place: str, events: Sequence[str]) -> None:
        """Check a rule, except for names of types, which the same reading may add."""
        try:
            found = read_as(ConstraintDraft, given, place)
            check_shape(found)
        except InputError as error:
            self.problems.append(f"rule left out: {error}")
            return
        item = {**msgspec.to_builtins(found), "events": list(dict.fromkeys(events))}
        self.items["constraint"].append(item)

    def read(self, given: Sequence[Json], kind: type[S]) -> list[S]:
        """Convert what was read; an item of another form is left out alone."""
        found = []
        for number, one in enumerate(given):
            try:
                found.append(read_as(kind, one, f"facts[{number}]"))
            except InputError as error:
                self.problems.append(f"{error.place} left out: {error.message}")
        return found

    def take(self, one: Statement, texts: Sequence[Text], *, confirmed: bool = False) -> None:
        """Check a statement; keep it, the reason why not, or that it is open.

        confirmed: a second question said that the text states it as true.
        """
        try:
            said = _said(one, texts)
            doubt = next(self._doubts(one, said), "")
            item, change = self._item(one, said)
        except (LeftOut, InputError) as error:
            self.left_out(one, str(error))
            return
        if said.inexact and not doubt:
            doubt = f"its evidence has {said.inexact[0]!r} in another form"
        why = doubt or change
        if (why or self._opens_all) and not confirmed:
            self.open.append(Open(one, texts, why or "it is not certain", bool(doubt)))
            return
        noun = "record" if "record" in item else "fact"
        if item not in self.items[noun]:
            self.items[noun].append(item)

    def left_out(self, one: Statement, why: str) -> None:
        """Note why a statement is left out."""
        what = f"{one.type}.{one.field}" if one.field else one.type
        self.problems.append(f"{one.op} {what} left out: {why}")

    def close(self) -> None:
        """Decide without a second question: leave out what is in doubt, and take the changes."""
        waiting, self.open = self.open, []
        for one in waiting:
            if one.is_doubted:
                self.left_out(one.statement, one.why)
            else:
                self.take(one.statement, one.texts, confirmed=True)

    def _key_of(self, type_: str) -> list[str] | None:
        return [] if type_ == PROFILE else self.keys.get(type_) or self._known.key_of(type_)

    def _doubts(self, one: Statement, said: Evidence) -> Iterator[str]:
        """Yield why code can't decide a statement; Refused if another speaker can't say it."""
        who = self._person(one)
        whom = repr(who) if who else "the subject"
        for text in said.texts:
            if text.is_by(self._names) or (who and plain_name(who) == plain_name(text.speaker)):
                continue
            by = text.speaker or text.role
            if not any(map(said.names, [who] if who else self._names)):
                raise LeftOut(f"{by} says it, and its evidence does not name {whom}")
            yield f"{by} says it, and only a reader can tell whether it is about {whom}"
        if who and not self._known.has(one.type, [who]) and not self._is_named(who, said):
            yield f"its evidence does not name {who!r}"
        if said.is_asked:
            yield "its evidence stands in a question"
        if said.is_quoted:
            yield "its evidence stands in a quotation"
        if not self._is_linked(one, said):
            yield "its evidence names neither the field nor the value that it changes"

    def _is_named(self, who: str, said: Evidence) -> bool:
        """Tell whether the evidence or the event names somebody."""
        by = {plain_name(one) for text in said.texts for one in (text.speaker, text.addressee)}
        return said.names(who) or plain_name(who) in by

    def _is_linked(self, one: Statement, said: Evidence) -> bool:
        """Tell whether the evidence names what a statement takes back or changes."""
        if one.field and one.op == "retract":
            entry = self._known.current(one.type, one.key, one.field)
            values = {one.field: entry.value if entry else None}
        elif one.known and one.op in ("set", "retract"):
            values = self._target(one).record
        else:
            return True
        return any(
            said.names(name)
            or (not isinstance(value, bool) and value is not None and said.missing(value) is None)
            for name, value in values.items()
        )

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
            if not said.has_date(one.since[:10]):
                raise LeftOut(f"the time {one.since!r} is not in its evidence")
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
            raise LeftOut(f"expected the key {key} of a {one.type}, got {one.key}")
        current = self._known.current(one.type, one.key, one.field)
        if one.op == "retract" and current is None:
            raise LeftOut(f"{one.field} has no value to take back")
        old = None if current is None else current.value
        if one.op != "retract":
            if not (one.mistaken and _corrects(old, one.value, said)):
                self._grounded(one.type, {one.field: one.value}, said)
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
            raise LeftOut(f"expected the key {key} of a {one.type}, and a `field` to take back")
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
            raise LeftOut(f"{one.op} needs a `known` record")
        item |= {"type": target.type, "place": target.place, "record": one.record}
        if one.op != "retract":
            self._grounded(target.type, one.record, said)
        if one.op == "same":
            return {**item, "op": "same"}, ""
        if one.op == "set":
            return {**item, "op": "update"}, f"changes {target.record!r:.200}"
        return {**item, "op": "retract", "record": {}}, f"takes back {target.record!r:.200}"

    def _merged(self, one: Statement, key: list[str], said: Evidence, item: Json) -> Json:
        """Check that two known records are one: the words must name both."""
        first = one.key or [one.record.get(name) for name in key]
        known = one.known if isinstance(one.known, dict) else {key[0]: one.known}
        other = [known.get(name) for name in key]
        for each in (first, other):
            if not self._known.has(one.type, each):
                raise LeftOut(f"no known {one.type} has the key {each}")
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
            raise LeftOut(f"expected one known record {one.known!r:.200}, found {len(found)}")
        return found[-1]

    def _grounded(self, type_: str, values: Json, said: Evidence) -> None:
        schema = self._known.schema.types.get(type_)
        for name, value in values.items():
            wrong = said.missing(value)
            field = None if schema is None else schema.fields.get(name)
            if wrong is not None and not _is_member(value, field):
                raise LeftOut(f"{name} {wrong!r} is not in its evidence {said.words!r}")

    def _named(
        self, type_: str, key: Sequence[Any], said: Evidence, *, is_known: bool = True
    ) -> None:
        """The text must name a record by its key, unless it is known."""
        if type_ == PROFILE or (is_known and self._known.has(type_, key)):
            return
        for part in key:
            if not any(text.names(str(part)) for text in said.texts):
                raise LeftOut(f"the key {part!r} is not in the text")

    def _alike(self, one: Statement) -> KnownRecord | None:
        """Return the known record that a new one only repeats."""
        for item in self.items["record"]:
            if item["type"] == one.type and _is_within(one.record, item["record"]):
                raise LeftOut(f"the same {one.type} was read twice; for another one: `again`")
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
        if not first.speaker and not first.is_by(self._names):
            return "inferred"
        by = self._source(one, said) or first.source
        is_other = bool(by) and plain_name(by) != plain_name(first.speaker)
        return "stated" if one.status == "confirmed" and not is_other else one.status


def _said(one: Statement, texts: Sequence[Text]) -> Evidence:
    """Return the evidence of a statement, which must stand in its texts."""
    said = Evidence(one.evidence, texts)
    if said.unsaid is not None:
        raise LeftOut(f"the text does not have the words {said.unsaid!r}")
    return said


def _is_member(value: Any, field: FieldSchema | None) -> bool:
    """Tell whether a field is known to have one of a few texts, and this is one of them."""
    is_closed = field is not None and resolve(field, "X").annotation.startswith("Literal[")
    return is_closed and field is not None and value in (field.values or ())


def _is_meant(known: str | Json, record: KnownRecord) -> bool:
    if isinstance(known, str):
        return record.place.rsplit("/", 2)[1] == known
    return _is_within(known, record.record)


def _corrects(old: Any, new: Any, said: Evidence) -> bool:
    """Tell whether the evidence has the one run of words in which a corrected value differs."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    words = new.split()
    parts = SequenceMatcher(None, old.split(), words, autojunk=False).get_opcodes()
    changed = [" ".join(words[one[3] : one[4]]) for one in parts if one[0] != "equal"]
    is_one_of_many = len(changed) == 1 < len(parts)
    return is_one_of_many and find_words(changed[0], said.words) is not None


def _is_within(new: Json, known: Json) -> bool:
    """Tell whether a record has nothing that a known one has not."""
    return all(_plain(known.get(name)) == _plain(value) for name, value in new.items())


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    return float(value) if type(value) in (int, float) else value
