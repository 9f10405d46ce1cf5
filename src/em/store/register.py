"""The register: a chained list of what the store holds, so that `verify` finds what is gone.

The chain of a stream can't show that its end was cut off or that all of it was deleted, and
artefacts and records are in no stream. So each commit appends entries: the head of each stream that
it wrote to, each artefact that it changed, and for each subject whose records it changed their sum.
The link of an entry covers the entry and the link before it.

Where commits run side by side (PostgreSQL), they must not wait for each other's links. Each inserts
what is to be entered into the table `unchained`, and `fold` moves that into the register, some
hundreds at a time. `verify` reads both.

Records are many and are often replaced, so one entry covers all records of a subject: its hash is
the sum of their seals, modulo 2**256, which is brought up to date without reading the others. A
seal is salted, and the salt goes with the content: nothing can be guessed from what is left.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from em.log.chain import (
    ARTEFACT,
    HASH_BYTES,
    RECORDS,
    SALT_BYTES,
    START,
    Entry,
    Holding,
    hash_artefact,
    hash_link,
    seal_of,
    sum_of,
)
from em.store.session import SqlSession, is_side_by_side, select

PAGE = 2_000

Item = tuple[str, str, int, bytes]
"""What an entry is about: noun, key, position and hash."""


class End(NamedTuple):
    """The last entry of the register."""

    n: int = 0
    link: bytes = START


def read_end(session: SqlSession) -> End:
    """Return the end of the register."""
    row = session.execute("SELECT n, link FROM register ORDER BY n DESC LIMIT 1").fetchone()
    return End(*row) if row else End()


def chain_entry(end: End, noun: str, key: str, pos: int, own: bytes) -> tuple[Any, ...]:
    """Return the row of an entry that follows the end of the register."""
    return end.n + 1, noun, key, pos, own, hash_link(end.link, noun, key, pos, own)


def chain_entries(end: End, items: Iterable[Item]) -> list[tuple[Any, ...]]:
    """Return the rows of entries that follow the end of the register."""
    rows: list[tuple[Any, ...]] = []
    for item in items:
        row = chain_entry(end, *item)
        rows.append(row)
        end = End(row[0], row[-1])
    return rows


def put_entries(session: SqlSession, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert entries."""
    session.executemany(
        "INSERT INTO register(n, noun, key, pos, hash, link) VALUES (?, ?, ?, ?, ?, ?)", rows
    )


def append_entries(session: SqlSession, items: Iterable[Item]) -> None:
    """Append entries to the register, or to what is to be entered."""
    if is_side_by_side(session):
        rows = [*items]
        sql = "INSERT INTO unchained(noun, key, pos, hash) VALUES (?, ?, ?, ?)"
        if rows:
            session.executemany(sql, rows)
        return
    rows = chain_entries(read_end(session), items)
    if rows:
        put_entries(session, rows)


FOLDED_AT_ONCE = 2_000


def fold(session: SqlSession) -> int:
    """Move what is to be entered into the register. The caller sees to it that nobody else does.

    Entries about one thing follow each other in the order of their ids, because who writes them
    has locked it. Others have no order. Of several about one thing the last is enough.
    """
    sql = (
        "DELETE FROM unchained WHERE id IN (SELECT id FROM unchained ORDER BY id LIMIT ?)"
        " RETURNING id, noun, key, pos, hash"
    )
    rows = sorted(session.execute(sql, (FOLDED_AT_ONCE,)).fetchall())
    latest: dict[tuple[str, str], Item] = {}
    for _, noun, key, pos, own in rows:
        latest[noun, key] = noun, key, pos, own
    put_entries(session, chain_entries(read_end(session), latest.values()))
    return len(rows)


def new_seal(*fields: Any) -> bytes:
    """Seal the fields of a row with a new salt."""
    return seal_of(os.urandom(SALT_BYTES), *fields)


_ARTEFACT = "id, version, seal, from_events, retired_at"


def register_artefacts(session: SqlSession, ids: Iterable[str]) -> None:
    """Append entries for artefacts as they are now."""
    unique = sorted(set(ids))
    if unique:
        rows = sorted(select(session, _ARTEFACT, "artefacts", "id", unique))
        append_entries(session, map(_artefact_item, rows))


def _artefact_item(row: tuple[Any, ...]) -> Item:
    artefact_id, version, seal, from_events, retired_at = row
    return ARTEFACT, artefact_id, version, hash_artefact(seal, from_events, retired_at)


_CHANGED = "SELECT 1 FROM register WHERE n > ? AND noun = ? LIMIT 1"
_NOT_CHAINED = "SELECT 1 FROM unchained WHERE noun = ? LIMIT 1"


def changed_artefacts(session: SqlSession, since: int | None) -> tuple[int, bool]:
    """Return the number of the last entry, and whether one behind `since` is about an artefact.

    What is not chained yet counts as new at every look. It is looked for first: if it is chained
    between two looks, the second one finds it.
    """
    is_new = is_side_by_side(session) and bool(
        session.execute(_NOT_CHAINED, (ARTEFACT,)).fetchone()
    )
    end = read_end(session).n
    if since == end:
        return end, is_new
    if since is None or end < since:  # the first time, or an older copy was put in its place
        return end, True
    return end, is_new or bool(session.execute(_CHANGED, (since, ARTEFACT)).fetchone())


class Tally:
    """How many records each subject gains or loses, and by how much the sums of seals change."""

    def __init__(self) -> None:
        self._changes: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))

    def add(self, subject: str, seal: bytes) -> None:
        """Count a record that is there from now on."""
        count, total = self._changes[subject]
        self._changes[subject] = count + 1, total + sum_of([seal])

    def subtract(self, subject: str, seal: bytes | None) -> None:
        """Count a record that is gone. A seal that somebody removed is missing in the sum, too."""
        count, total = self._changes[subject]
        self._changes[subject] = count - 1, total - sum_of([seal or b""])

    def save(self, session: SqlSession) -> None:
        """Store the new sums and append their entries."""
        subjects = sorted(self._changes)
        if not subjects:
            return
        known = {
            subject: (count, int.from_bytes(total))
            for subject, count, total in select(
                session, "subject, count, sum", "tallies", "subject", subjects
            )
        }
        rows = [self._row(subject, *known.get(subject, (0, 0))) for subject in subjects]
        session.executemany(
            "INSERT INTO tallies(subject, count, sum) VALUES (?, ?, ?) ON CONFLICT(subject)"
            " DO UPDATE SET count = excluded.count, sum = excluded.sum",
            rows,
        )
        append_entries(session, [(RECORDS, *row) for row in rows])

    def _row(self, subject: str, count: int, total: int) -> tuple[str, int, bytes]:
        more, sum_ = self._changes[subject]
        return subject, count + more, ((total + sum_) % 256**HASH_BYTES).to_bytes(HASH_BYTES)


def read_register(session: SqlSession, after: int) -> Iterator[Entry]:
    """Stream the entries behind a number, in their order; then those that are not chained yet."""
    sql = "SELECT n, noun, key, pos, hash, link FROM register WHERE n > ? ORDER BY n LIMIT ?"
    while rows := session.execute(sql, (after, PAGE)).fetchall():
        for row in rows:
            yield Entry(*row)
        after = rows[-1][0]
    if is_side_by_side(session):
        sql = "SELECT id, noun, key, pos, hash FROM unchained WHERE id > ? ORDER BY id LIMIT ?"
        after = 0
        while rows := session.execute(sql, (after, PAGE)).fetchall():
            for _, noun, key, pos, own in rows:
                yield Entry(0, noun, key, pos, own, START)
            after = rows[-1][0]


def read_holdings(session: SqlSession) -> Iterator[Holding]:
    """Stream artefacts and records as they are, each with whether its seal fits."""
    columns = "id, kind, name, version, body, hash, from_events, created_at, retired_at, seal"
    for row in _pages(session, columns, "artefacts", 1):
        artefact_id, kind, name, version, body, own, from_events, created_at, retired_at, seal = row
        # Erased ones have neither body nor seal.
        fits = (body is None) == (seal is None)
        if fits and seal is not None:
            fits = own == sha256(body.encode()).hexdigest() and seal == seal_of(
                seal[:SALT_BYTES], artefact_id, kind, name, version, own, created_at
            )
        own = hash_artefact(seal, from_events, retired_at)
        yield Holding(ARTEFACT, artefact_id, f"{kind}/{name}", version, fits, own)
    for row in _pages(session, "subject, type, id, body, from_events, seal", "records", 3):
        *fields, seal = row
        fits = seal is not None and seal == seal_of(seal[:SALT_BYTES], *fields)
        yield Holding(RECORDS, row[0], f"{row[1]}/{row[2]}", 0, fits, seal or b"")


def _pages(session: SqlSession, columns: str, table: str, keys: int) -> Iterator[tuple[Any, ...]]:
    """Stream the rows of a table in the order of its first columns, which are its key."""
    order = ", ".join(columns.split(", ")[:keys])
    sql = f"SELECT {columns} FROM {table} WHERE {{}} ORDER BY {order} LIMIT {PAGE}"  # noqa: S608 - fixed words
    beyond = f"({order}) > ({','.join('?' * keys)})"
    rows = session.execute(sql.format("1 = 1")).fetchall()
    while rows:
        yield from rows
        rows = session.execute(sql.format(beyond), rows[-1][:keys]).fetchall()
