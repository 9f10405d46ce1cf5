"""The index behind forgetting: from an event to everything that holds something of it.

A holder keeps the list of its sources in its own row too, so that its entries here can be found and
removed when it is replaced.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from em.errors import Conflict
from em.store.session import Session, chunks

_MANY = 100
"""Sources from which on it pays to ask first whether anything was ever erased."""
_ERASED = "SELECT 1 FROM events WHERE kind = 'erased' LIMIT 1"


class Derivation(NamedTuple):
    """`holder` is the id of something that the `noun` (events, artefacts, …) names."""

    source: str
    noun: str
    holder: str


def derivations_of(sources: Iterable[str], noun: str, holder: str) -> list[Derivation]:
    """The entries of one holder."""
    return [Derivation(source, noun, holder) for source in sources]


def put_derivations(session: Session, derivations: Sequence[Derivation]) -> None:
    """Add entries."""
    if derivations:
        session.executemany(
            "INSERT INTO derivations(source, noun, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            derivations,
        )


def drop_derivations(session: Session, noun: str, holders: Iterable[tuple[str, str]]) -> None:
    """Remove the entries of holders, given as their ids and the lists of sources in their rows."""
    gone = [
        Derivation(source, noun, holder)
        for holder, sources in holders
        for source in msgspec.json.decode(sources)
    ]
    if gone:
        session.executemany(
            "DELETE FROM derivations WHERE source = ? AND noun = ? AND holder = ?", gone
        )


def sources_text(event_ids: Iterable[str]) -> str:
    """The list of sources as a holder's row keeps it."""
    return msgspec.json.encode(list(event_ids)).decode()


def holders_of(session: Session, event_ids: Iterable[str]) -> defaultdict[str, set[str]]:
    """Everything that holds something of these events, through any number of steps, by noun."""
    holders: defaultdict[str, set[str]] = defaultdict(set)
    todo = sorted(event_ids)
    seen = set(todo)
    while todo:
        step: set[str] = set()
        for noun, holder in select(session, "noun, holder", "derivations", "source", todo):
            holders[noun].add(holder)
            if noun == "events":
                step.add(holder)
        todo = sorted(step - seen)
        seen |= step
    return holders


def refuse_erased_sources(session: Session, sources: set[str]) -> None:
    """Who compiled from something that was erased since must not bring it back."""
    if len(sources) > _MANY and session.execute(_ERASED).fetchone() is None:
        return
    for event_id, erased in select(session, "id, body IS NULL", "events", "id", sorted(sources)):
        if erased:
            raise Conflict(
                "this was derived from an event that was erased since",
                place=f"event {event_id}",
                fix="compile it again from what is left",
            )


def select(
    session: Session, columns: str, table: str, column: str, values: Sequence[str]
) -> Iterator[Any]:
    """The rows whose column is one of the values."""
    for marks, part in chunks(values):
        sql = f"SELECT {columns} FROM {table} WHERE {column} IN ({marks})"  # noqa: S608 - names from this package; values are bound
        yield from session.execute(sql, part).fetchall()


def delete(session: Session, table: str, column: str, values: Sequence[str]) -> int:
    """Delete the rows whose column is one of the values; how many there were."""
    count = 0
    for marks, part in chunks(values):
        sql = f"DELETE FROM {table} WHERE {column} IN ({marks})"  # noqa: S608 - names from this package; values are bound
        count += session.execute(sql, part).rowcount
    return count
