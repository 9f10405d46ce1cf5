"""What is known about a subject while its texts are read: facts, records and types.

It is the stored state with what is new and needs no reading, and grows with each reading. A record
without a key is named by its place (`rows.placed`): its type, its first event, and its number among
the records that this event gave. So a correction finds it again when the state is compiled anew.

Unread: texts that neither a caller nor a model has read, and what they mention of a state.

A text mentions a value if it has the words of the value, of the field of the profile, of the key
of a record, or of the type of records; words are compared by their stems, as the search index has
them. A text that is older than a value says nothing about it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.log.event import EventQuery
from em.state.fold import Folded, FoldInput, fold, written_key
from em.state.rows import RowBlock, Seen, placed
from em.state.schema import PROFILE, Entry, Extraction, StateSchema, TypeSchema
from em.state.statement import plain_name
from em.store.protocol import Record, Store
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.values.canonical import Json
from em.values.times import to_micros

ALIKE = 30
"""Records that a model is shown beside the texts that it reads."""


class KnownRecord(msgspec.Struct, frozen=True):
    """A record without a key, by the field names it was given with, and its place."""

    type: str
    place: str
    record: Json
    at: int
    recorded_at: int = 0


FactKey = tuple[str, str, str]
"""Type, key as JSON, and field of a fact."""


class Knowledge:
    """What is known about a subject."""

    def __init__(self, schema: StateSchema, declared: Mapping[str, list[str]]) -> None:
        self.schema, self._declared = schema, dict(declared)
        self.records: list[KnownRecord] = []
        self._entries: dict[FactKey, list[Entry]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def stored(self, store: Store) -> None:
        """Add what the stored state has."""
        for type_ in self.schema.types.values():
            found = store.records(self.schema.subject, type_.name)
            if type_.key is None:
                self._add_rows(type_, found)
                continue
            for record in found:
                assert record.body is not None
                facts = msgspec.convert(record.body["facts"], dict[str, list[Entry]])
                for field, entries in facts.items():
                    key = fact_key(type_.given, record.body["key"], field)
                    self._entries.setdefault(key, []).extend(entries)

    def _add_rows(self, type_: TypeSchema, stored: Iterable[Record]) -> None:
        given = {field.name: field.given for field in type_.fields.values()}
        seen: list[Seen] = []
        for record in stored:
            block = msgspec.convert(record.body, RowBlock)
            rows: list[Json] = msgspec.json.decode(block.rows)
            times = zip(block.times(), block.ends(), strict=True)
            for row, ((at, known), gone) in zip(rows, times, strict=True):
                events, as_given = row.pop("event_ids"), row.pop("as_given", {})
                named = {given.get(name, name): value for name, value in row.items()}
                seen.append(Seen({**named, **as_given}, events, at, known, gone))
        self._add_seen(type_.given, seen)

    def _add_seen(self, given: str, seen: Sequence[Seen]) -> None:
        for place, one in placed(given, seen, self._counts):
            if not one.gone:
                found = KnownRecord(given, place, one.record, one.at, one.recorded_at)
                self.records.append(found)

    def add(self, material: FoldInput) -> None:
        """Add what is new and needs no reading, or was read already."""
        part = FoldInput(
            records=material.records,
            extractions=material.extractions,
            decisions=material.decisions,
            times=material.times,
            speech=material.speech,
        )
        self._add_folded(fold(self.schema, part, self._declared))

    def add_reading(self, found: Extraction, material: FoldInput) -> None:
        """Add what was just read in texts."""
        first = material.times.get(found.from_events[0], (0, 0))
        part = FoldInput(
            extractions=[(found, *first)], times=material.times, speech=material.speech
        )
        self._add_folded(fold(self.schema, part, self._declared))

    def _add_folded(self, folded: Folded) -> None:
        for given, seen in folded.seen.items():
            self._add_seen(given, seen)
        for fact in folded.facts:
            key = fact_key(fact.type, fact.key, fact.field)
            self._entries.setdefault(key, []).append(fact.entry)

    def entries(self, type_: str, key: Sequence[Any], field: str) -> list[Entry]:
        """Return all values that a field had, in the order in which they became known."""
        return self._entries.get(fact_key(type_, key, field), [])

    def current(self, type_: str, key: Sequence[Any], field: str) -> Entry | None:
        """Return the value that a field has now; None if it has none."""
        entry = max(self.entries(type_, key, field), key=_time, default=None)
        return entry if entry is not None and entry.value is not None else None

    def facts(self) -> Iterator[tuple[FactKey, Entry]]:
        """Yield the current facts."""
        for key, entries in self._entries.items():
            entry = max(entries, key=_time)
            if entry.value is not None:
                yield key, entry

    def has(self, type_: str, key: Sequence[Any]) -> bool:
        """Tell whether a record with this key is known."""
        wanted = fact_key(type_, key, "")[:2]
        return any(known[:2] == wanted for known in self._entries)

    def names(self) -> frozenset[str]:
        """Return the names of the subject."""
        given = [entry.value for entry in self.entries(PROFILE, (), "name")]
        names = (plain_name(one) for one in (self.schema.subject, *given) if isinstance(one, str))
        return frozenset(filter(None, names))

    def key_of(self, type_: str) -> list[str] | None:
        """Return the key of a type; None if it has none or is not known."""
        known = self.schema.types.get(type_)
        return None if known is None else known.key

    def alike(self, texts: Iterable[str]) -> list[KnownRecord]:
        """Return the records that share words with texts, those with the most first."""
        said = set(_stems(" ".join(texts)))
        counted = [
            (
                sum(
                    1
                    for one in set(_stems(" ".join(map(str, known.record.values()))))
                    if one in said
                ),
                number,
            )
            for number, known in enumerate(self.records)
        ]
        best = sorted((one for one in counted if one[0]), key=lambda one: (-one[0], -one[1]))
        return [self.records[number] for _, number in best[:ALIKE]]


def _time(entry: Entry) -> tuple[int, int]:
    return entry.at, entry.recorded_at


def fact_key(type_: str, key: Sequence[Any], field: str) -> FactKey:
    """Return the name of a fact, by which it is found."""
    return type_, written_key(key), field


def _stems(text: str) -> list[str]:
    return stems_of([word for word in words_of(text) if word not in STOP_WORDS])


_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
LONGEST = 60
"""Longer values of records are no names, and a text that has all their words repeats them."""
Way = frozenset[str]
"""The stems that a text must have to mention something."""


class Unread(msgspec.Struct, frozen=True):
    """A text that nobody has read, and what it mentions: `profile.city`, `trips`."""

    event_id: str
    text: str
    mentions: tuple[str, ...]


class Mentions:
    """What texts may mention, by one of the stems of each way to say it."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, Way], int] = {}

    @classmethod
    def of_state(cls, schema: StateSchema, store: Store) -> "Mentions":
        """Return what may be mentioned of the types of a schema, with the stored values."""
        found, known = cls(), Knowledge(schema, {})
        known.stored(store)
        for type_ in schema.types.values():
            if type_.given != PROFILE:
                found.add(type_.collection, type_.given, 0)
        for (given, key, field), entry in known.facts():
            type_ = schema.types[given]
            owner = "profile" if given == PROFILE else type_.collection
            name = f"{owner}.{type_.fields[field].name}"
            for said in (entry.value, field if given == PROFILE else key):
                found.add(name, said, entry.at)
        for record in known.records:
            found.add_record(schema.types[record.type].collection, record.record, record.at)
        return found

    def add(self, name: str, said: Any, since: int) -> None:
        """Add what is said where something is mentioned; None and truth values say nothing."""
        words = words_of(
            _CAMEL.sub(" ", "" if said is None or isinstance(said, bool) else str(said))
        )
        way = frozenset(stems_of([word for word in words if word not in STOP_WORDS]))
        if way:
            self._since[name, way] = min(since, self._since.get((name, way), since))

    def add_record(self, name: str, record: Json, since: int) -> None:
        """Add the names in a record: its short texts, without numbers and dates."""
        for value in record.values():
            for one in value if isinstance(value, list) else (value,):
                if isinstance(one, str) and len(one) <= LONGEST and not any(map(str.isdigit, one)):
                    self.add(name, one, since)

    def texts(self, store: Store, ids: Iterable[str]) -> Iterator[Unread]:
        """Yield which of these texts mention something, oldest first."""
        by_stem: defaultdict[str, list[tuple[str, Way]]] = defaultdict(list)
        for name, way in self._since:
            by_stem[min(way)].append((name, way))
        wanted = list(ids) if by_stem else []
        for event in store.read(EventQuery(ids=wanted)) if wanted else ():
            text, at = (event.body or {}).get("text") or "", to_micros(event.at)
            said = frozenset(stems_of(words_of(text)))
            found = {
                one[0]
                for stem in said & by_stem.keys()
                for one in by_stem[stem]
                if one[1] <= said and self._since[one] <= at
            }
            if found:
                yield Unread(event.id, text, tuple(sorted(found)))


def by_mention(found: Iterable[Unread]) -> Mapping[str, tuple[str, ...]]:
    """Return the events of the texts by what they mention."""
    events: dict[str, tuple[str, ...]] = {}
    for one in found:
        for name in one.mentions:
            events[name] = (*events.get(name, ()), one.event_id)
    return events
