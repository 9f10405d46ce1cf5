"""The store beside the same work written by hand on the bare driver."""

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from bench.figure import Figure, in_turns, rate_figure, seconds, time_figure
from bench.server import postgres_address
from em import Draft, Memory

BATCH = 1_000
BATCHES = 40
SINGLES = 2_000
STREAM = 100_000
LARGE = 1_000_000

EVENTS_TABLE = """
CREATE TABLE events(
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, stream TEXT NOT NULL, pos INTEGER NOT NULL,
    subject TEXT, kind TEXT NOT NULL, v INTEGER NOT NULL, at INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL, body TEXT, salt BLOB, body_hash BLOB NOT NULL, hash BLOB NOT NULL,
    UNIQUE(stream, pos));
CREATE INDEX events_subject ON events(subject, seq) WHERE subject IS NOT NULL;
CREATE INDEX events_kind ON events(kind, seq);
"""
INSERT = "INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
numbers = count()


def small_body(n: int) -> dict[str, Any]:
    """A tool call as agents make them."""
    return {
        "tool": "get_order_details",
        "args": {"order_id": f"#W{n:07}"},
        "result": {"status": "pending", "items": [n % 7, n % 11], "total": n * 0.25},
        "duration_ms": 12.5,
    }


def drafts(start: int, size: int) -> list[Draft]:
    return [
        Draft(stream="run", kind="tool_call", body=small_body(n), subject="ana")
        for n in range(start, start + size)
    ]


def plain_connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def plain_rows(start: int, size: int) -> list[tuple[Any, ...]]:
    """The same rows, their JSON encoded; ids and hashes are there already."""
    blob = b"h" * 32
    return [
        (
            n + 1,
            f"{n:028x}",
            *("run", n + 1, "ana", "tool_call", 1, n, n),
            json.dumps(small_body(n), separators=(",", ":")),
            *(blob[:16], blob, blob),
        )
        for n in range(start, start + size)
    ]


def ours_appends(folder: Path, sizes: Sequence[int]) -> float:
    with Memory(folder / f"{next(numbers)}.db") as memory:
        portions, start = [], 0
        for size in sizes:
            portions.append(drafts(start, size))
            start += size
        return seconds(lambda: [memory.log.append_many(portion) for portion in portions])


def plain_appends(folder: Path, sizes: Sequence[int]) -> float:
    with closing(plain_connection(folder / f"{next(numbers)}.plain")) as connection:
        connection.executescript(EVENTS_TABLE)

        def work() -> None:
            start = 0
            for size in sizes:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(INSERT, plain_rows(start, size))
                connection.execute("COMMIT")
                start += size

        return seconds(work)


def append() -> Iterator[Figure]:
    for what, beside, sizes, bar in (
        (
            "append, batches of 1,000, chain and redaction on",
            "sqlite3 executemany, JSON encoded, same indexes and pragmas",
            [BATCH] * BATCHES,
            0.3,
        ),
        (
            "append one by one, each committed",
            "sqlite3, one insert per transaction, same pragmas",
            [1] * SINGLES,
            0.5,
        ),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sides = in_turns(
                lambda folder=folder, sizes=sizes: ours_appends(folder, sizes),
                lambda folder=folder, sizes=sizes: plain_appends(folder, sizes),
                rounds=7,
            )
        yield rate_figure(what, beside, sum(sizes), sides, bar)


def read() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "em.db"
        with Memory(path) as memory, closing(plain_connection(path)) as connection:
            for start in range(0, STREAM, BATCH):
                memory.log.append_many(drafts(start, BATCH))

            def ours() -> float:
                return seconds(lambda: [event.body for event in memory.log.read(stream="run")])

            def plain(decode: Callable[[str], Any]) -> float:
                sql = "SELECT * FROM events WHERE stream = ? ORDER BY pos"

                def work() -> list[Any]:
                    rows = connection.execute(sql, ("run",))
                    return [decode(row[9]) for row in rows]

                return seconds(work)

            what = f"read one stream of {STREAM:,} events"
            beside = "sqlite3 select of the same rows, json.loads"
            sides = in_turns(ours, lambda: plain(json.loads), rounds=5)
            yield rate_figure(what, beside, STREAM, sides, 0.4)

            import msgspec

            beside = "the same with msgspec's decoder (no bar)"
            sides = in_turns(ours, lambda: plain(msgspec.json.Decoder().decode), rounds=5)
            yield rate_figure(what, beside, STREAM, sides, None)


def opening() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        large, empty = Path(name) / "large.db", Path(name) / "empty.db"
        Memory(empty).close()
        with Memory(large) as memory:
            for start in range(0, LARGE, 10 * BATCH):
                memory.log.append_many(drafts(start, 10 * BATCH))

        def opened(path: Path) -> float:
            def work() -> None:
                for _ in range(20):
                    Memory(path).close()

            return seconds(work) / 20

        sides = in_turns(lambda: opened(large), lambda: opened(empty), rounds=9)
        yield time_figure(f"open a log of {LARGE:,} events", "open an empty one", sides, 3.0)


def postgres() -> Iterator[Figure]:
    import psycopg

    with (
        postgres_address() as address,
        Memory(address) as memory,
        psycopg.connect(address) as plain,
    ):
        plain.execute("CREATE TABLE plain (LIKE events INCLUDING INDEXES)")
        plain.commit()
        base = count(0, BATCH * BATCHES)

        def ours() -> float:
            start = next(base)
            portions = [drafts(start + n * BATCH, BATCH) for n in range(BATCHES)]
            return seconds(lambda: [memory.log.append_many(p) for p in portions])

        def theirs() -> float:
            start = next(base)

            def work() -> None:
                for n in range(BATCHES):
                    with plain.cursor().copy("COPY plain FROM STDIN") as copy:
                        for row in plain_rows(start + n * BATCH, BATCH):
                            copy.write_row(row)
                    plain.commit()

            return seconds(work)

        sides = in_turns(ours, theirs, rounds=5)
        yield rate_figure(
            "append to PostgreSQL, batches of 1,000",
            "psycopg COPY of the same rows, same indexes (no bar)",
            BATCH * BATCHES,
            sides,
            None,
        )
