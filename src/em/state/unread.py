"""Unread: texts that neither a caller nor a model has read, and what they mention of a state.

A text mentions a value if it has the words of the value, of the field of the profile, of the key
of a record, or of the type of records; words are compared by their stems, as the search index has
them. A text that is older than a value says nothing about it.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from em.log.event import EventQuery
from em.state.knowledge import Knowledge
from em.state.schema import PROFILE, StateSchema
from em.store.protocol import Store
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.values.canonical import Json
from em.values.times import to_micros

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
