"""Unread: texts that neither a caller nor a model has read, and which stored facts they mention.

A text mentions a field of the profile if it has the words of its name or of its value, a collection
if it has those of its type; words are compared by their stems, as the search index has them. A text
that is older than the value says nothing about it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from em.log.event import EventQuery
from em.state.schema import Entry
from em.store.protocol import Store
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.values.times import to_micros

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")


class Unread(msgspec.Struct, frozen=True):
    """A text that nobody has read, and what it mentions: `profile.city`, `trips`."""

    event_id: str
    text: str
    mentions: tuple[str, ...]


class Mention(msgspec.Struct, frozen=True):
    """What a text must have to mention something: all stems of one of the ways to say it."""

    name: str
    ways: tuple[frozenset[str], ...]
    since: int = 0


def mention_of_type(collection: str, given: str) -> Mention:
    """Return how texts mention the records of a type."""
    return Mention(collection, _ways((_CAMEL.sub(" ", given),)))


def mention_of_field(name: str, given: str, entry: Entry) -> Mention:
    """Return how texts mention a value of the profile."""
    value = "" if isinstance(entry.value, bool) else str(entry.value)
    ways = _ways((_CAMEL.sub(" ", given), value))
    return Mention(f"profile.{name}", ways, entry.at)


def unread_texts(store: Store, ids: Iterable[str], mentions: Iterable[Mention]) -> Iterator[Unread]:
    """Yield the texts that mention something, oldest first."""
    known, wanted = list(mentions), list(ids)
    for event in store.read(EventQuery(ids=wanted)) if known and wanted else ():
        text = (event.body or {}).get("text") or ""
        said, at = frozenset(stems_of(words_of(text))), to_micros(event.at)
        found = [
            one.name for one in known if at >= one.since and any(said >= way for way in one.ways)
        ]
        if found:
            yield Unread(event.id, text, tuple(found))


def by_mention(found: Iterable[Unread]) -> Mapping[str, tuple[str, ...]]:
    """Return the events of the texts by what they mention."""
    events: dict[str, tuple[str, ...]] = {}
    for one in found:
        for name in one.mentions:
            events[name] = (*events.get(name, ()), one.event_id)
    return events


def _ways(texts: Iterable[str]) -> tuple[frozenset[str], ...]:
    found = (stems_of([word for word in words_of(one) if word not in STOP_WORDS]) for one in texts)
    return tuple(frozenset(stems) for stems in found if stems)
