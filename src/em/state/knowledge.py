"""What is known about a subject while its texts are read: facts, records and types.

It is the stored state with what is new and needs no reading, and grows with each reading. A record
without a key is named by its place (`rows.placed`): its type, its first event, and its number among
the records that this event gave. So a correction finds it again when the state is compiled anew.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.state.fold import Folded, FoldInput, fold, written_key
from em.state.rows import RowBlock, Seen, placed
from em.state.schema import PROFILE, Entry, Extraction, StateSchema, TypeSchema
from em.state.statement import plain_name
from em.store.protocol import Record, Store
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.values.canonical import Json

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
