"""Reading passages: the part of a search that is the same SQL on both stores."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from em.log.kinds import detail, searched_text
from em.store.passage import FIRST_DOCUMENT, Mark, Passage, Within, scope_range
from em.store.session import Session
from em.values.times import from_micros, moment, to_micros

NOWHERE = (1, 0)
"""A range without numbers, for a subject of whom nothing was said."""
DOCUMENTS = "\ndocuments"
"""Stands for all documents where a subject is asked for; it is no name that a subject may have."""

_PASSAGES = (
    "SELECT p.number, p.starts, p.ends, p.at, p.speaker, p.role,"
    " e.id, e.recorded_at, e.subject, e.stream, e.kind, e.body"
    " FROM passages AS p JOIN events AS e ON e.seq = p.seq WHERE p.number IN ({})"
    " AND e.body IS NOT NULL"
)


def numbers_of(session: Session, subject: str | None) -> tuple[int, int]:
    """The range of numbers that a subject's passages have; of all, without a subject."""
    if subject is None:
        return 0, FIRST_DOCUMENT - 1
    if subject == DOCUMENTS:
        return FIRST_DOCUMENT, 2**62
    sql = "SELECT number FROM scopes WHERE subject = ?"
    row = session.execute(sql, (subject,)).fetchone()
    return NOWHERE if row is None else scope_range(row[0])


def count_passages(session: Session, subject: str | None) -> int:
    """How many passages a subject has; all, without a subject."""
    condition, params = ("", ()) if subject is None else (" WHERE subject = ?", (subject,))
    sql = f"SELECT COALESCE(SUM(passages), 0) FROM scopes{condition}"  # noqa: S608 - fixed words; values are bound
    return int(session.execute(sql, params).fetchone()[0])


def time_conditions(within: Within) -> tuple[str, list[int]]:
    """When it happened, as SQL on the table `passages` (alias `p`)."""
    conditions, params = "", []
    for sign, bound in ((">=", within.since), ("<", within.until)):
        if bound is not None:
            conditions += f" AND p.at {sign} ?"
            params.append(to_micros(moment(bound)))
    return conditions, params


def read_marks(session: Session, numbers: Sequence[int]) -> list[Mark]:
    """What ranking needs of passages, in no order; numbers that nothing has are passed over."""
    sql = "SELECT number, shape, seq, speaker, role, at FROM passages WHERE number IN ({})"
    return [Mark(*row) for row in select_numbers(session, sql, numbers)]


def read_passages(session: Session, numbers: Sequence[int]) -> list[Passage]:
    """Passages with their texts, in no order."""
    decoded: dict[str, tuple[str, str | None]] = {}
    return [_passage(row, decoded) for row in select_numbers(session, _PASSAGES, numbers)]


def _passage(row: Sequence[Any], decoded: dict[str, tuple[str, str | None]]) -> Passage:
    number, start, end, at, speaker, role, event_id, recorded_at, subject, stream, kind, body = row
    # Many passages may come from one large body.
    if event_id not in decoded:
        content = msgspec.json.decode(body)
        decoded[event_id] = (searched_text(kind, content) or "", detail(content, "session"))
    text, session = decoded[event_id]
    return Passage(
        event_id=event_id,
        text=text[start:end],
        at=from_micros(at),
        recorded_at=from_micros(recorded_at),
        score=0.0,
        subject=subject,
        stream=stream,
        kind=kind,
        speaker=speaker,
        role=role,
        session=session,
        start=start,
        number=number,
    )


def select_numbers(
    session: Session, sql: str, numbers: Sequence[int], more: Sequence[Any] = ()
) -> Iterator[Any]:
    """The rows of a statement whose `{}` stands for the numbers, some hundreds at a time.

    more: the values of what follows in the statement.
    """
    for first in range(0, len(numbers), 500):
        part = numbers[first : first + 500]
        marks = ",".join("?" * len(part))
        yield from session.execute(sql.format(marks), (*part, *more)).fetchall()
