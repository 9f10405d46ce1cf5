"""Streaming events out of SQL: page by page, so that no reader holds a transaction open.

A page ends after so many rows or so many bytes, whichever comes first: memory stays bounded, a slow
consumer blocks nobody, and forgetting never waits for a reader of this process.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import msgspec

from em.errors import StoreCorrupt, UsageError
from em.log.event import Event, EventQuery, Row, check_name
from em.values.times import from_micros, moment, to_micros

COLUMNS = "seq, id, stream, pos, subject, kind, v, at, recorded_at, body, salt, body_hash, hash"
MAX_NAMES = 10_000
PAGE_ROWS = 2_000
PAGE_BYTES = 16 * 1024 * 1024

_SEQ, _STREAM, _POS, _BODY = 0, 2, 3, 9
_decode = msgspec.json.Decoder().decode


class Page(NamedTuple):
    """One page as SQL."""

    sql: str
    params: list[Any]
    raw: bool


class FetchPage(Protocol):
    """Fetch a page's rows; `max_bytes` of bodies is where it may end early."""

    def __call__(self, page: Page, max_bytes: int) -> list[tuple[Any, ...]]:
        """Fetch it."""


def check_query(query: EventQuery) -> None:
    """Refuse what no event can have: a name that is none, a number out of range."""
    for place in ("stream", "subject"):
        name = getattr(query, place)
        if name is not None:
            check_name(name, place)
    for place in ("kinds", "ids"):
        names = getattr(query, place)
        if len(names) > MAX_NAMES:
            raise UsageError(f"at most {MAX_NAMES:,} at a time", place=place)
        for name in names:
            check_name(name, place)
    for place in ("limit", "after", "before"):
        number: object = getattr(query, place)
        if number is not None and (not isinstance(number, int) or not 0 <= number < 2**62):
            raise UsageError(f"{number!r} makes no sense", place=place, fix="give a whole number")
    if query.newest and query.limit is None:
        raise UsageError("the newest events of a log need a limit", place="limit")


def stream_rows(
    query: EventQuery, newest_seq: int, fetch: FetchPage, *, raw: bool = False
) -> Iterator[tuple[Any, ...]]:
    """The rows of a query in its order, up to the newest there was when reading began."""
    if query.before is not None:
        newest_seq = min(newest_seq, query.before - 1)
    if query.newest:
        page = _newest_page(query, newest_seq)._replace(raw=raw)
        yield from reversed(fetch(page, max_bytes=1 << 62))
        return
    left = query.limit if query.limit is not None else 1 << 62
    last: tuple[Any, ...] | None = None
    while left > 0:
        size = min(left, PAGE_ROWS)
        page = _page(query, newest_seq, last, size)._replace(raw=raw)
        rows = fetch(page, max_bytes=PAGE_BYTES)
        yield from rows
        if not rows:
            return
        left -= len(rows)
        last = rows[-1]


def _page(query: EventQuery, newest_seq: int, last: tuple[Any, ...] | None, size: int) -> Page:
    where, params = _conditions(query, newest_seq)
    if query.by_stream:
        order = "stream, pos"
        if last is not None:
            where.append("(stream, pos) > (?, ?)")
            params += [last[_STREAM], last[_POS]]
    elif query.stream is not None:
        # Within a stream, positions and seq run the same way; positions have the better index.
        order = "pos"
        if last is not None:
            where.append("pos > ?")
            params.append(last[_POS])
    else:
        order = "seq"
        where.append("seq > ?")
        params.append(query.after if last is None else last[_SEQ])
    return Page(_select(where) + f" ORDER BY {order} LIMIT ?", [*params, size], raw=False)


def _newest_page(query: EventQuery, newest_seq: int) -> Page:
    where, params = _conditions(query, newest_seq)
    order = "seq" if query.stream is None else "pos"  # as above
    return Page(
        _select(where) + f" ORDER BY {order} DESC LIMIT ?", [*params, query.limit], raw=False
    )


def _select(where: list[str]) -> str:
    return f"SELECT {COLUMNS} FROM events WHERE {' AND '.join(where)}"  # noqa: S608 - fixed words; values are bound


def _conditions(query: EventQuery, newest_seq: int) -> tuple[list[str], list[Any]]:
    where: list[str] = ["seq <= ?"]
    params: list[Any] = [newest_seq]
    if query.after and (query.by_stream or query.newest or query.stream is not None):
        where.append("seq > ?")
        params.append(query.after)
    for column in ("stream", "subject"):
        value = getattr(query, column)
        if value is not None:
            where.append(f"{column} = ?")
            params.append(value)
    for column, values in (("kind", query.kinds), ("id", query.ids)):
        if values:
            where.append(f"{column} IN ({','.join('?' * len(values))})")
            params += values
    if query.since is not None:
        where.append("at >= ?")
        params.append(to_micros(moment(query.since, "since")))
    if query.until is not None:
        where.append("at < ?")
        params.append(to_micros(moment(query.until, "until")))
    return where, params


def bounded(rows: Iterator[tuple[Any, ...]], max_bytes: int) -> list[tuple[Any, ...]]:
    """Rows up to the first whose body passes `max_bytes` in all."""
    taken: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += len(row[_BODY] or "")
        if size > max_bytes:
            break
    return taken


def to_event(row: tuple[Any, ...]) -> Event:
    """A row as the event it is."""
    seq, event_id, stream, pos, subject, kind, v, at, recorded_at, body, salt, body_hash, own = row
    try:
        return Event(
            seq,
            event_id,
            stream,
            pos,
            subject,
            kind,
            v,
            from_micros(at),
            from_micros(recorded_at),
            None if body is None else _decode(body),
            None if salt is None else salt.hex(),
            body_hash.hex(),
            own.hex(),
        )
    except (msgspec.DecodeError, AttributeError, TypeError, OverflowError) as error:
        raise StoreCorrupt(
            f"event {event_id} can't be read: {error}",
            place=f"stream {stream!r}, position {pos}",
            fix="run `em log verify` to see what else was changed",
        ) from error


def to_row(row: tuple[Any, ...]) -> Row:
    """A row as it lies there."""
    return Row(*row)
