"""Writers on one PostgreSQL: 32 beside one, each with a stream of its own, and all on one stream.

Every commit is one event and is durable when it returns. A follower reads the log meanwhile, and
must see each event once. Beside it stands a plain table whose writers lock their stream.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from threading import Event, Thread
from typing import Any

from bench.figure import Figure
from bench.server import postgres_address
from em.log.event import Draft, EventQuery
from em.store import Commit, open_store

WRITERS = 32
PROCESSES = 2
BAR = 6.0
ROUNDS = {"quick": (2, 2.0), "whole": (5, 5.0)}
"""Rounds, and the seconds of each measurement."""

Write = Callable[[str, int], object]
"""Commits the n-th event of a stream."""

BODY = {"tool": "search", "args": {"q": "x" * 80}, "ok": True}
PLAIN = (
    "CREATE TABLE IF NOT EXISTS plain(seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " stream TEXT NOT NULL, pos BIGINT NOT NULL, body TEXT NOT NULL, UNIQUE(stream, pos))"
)


@contextmanager
def ours(address: str) -> Iterator[Write]:
    with open_store(address) as store:
        yield lambda stream, n: store.commit(
            Commit(events=[Draft(stream=stream, kind="bench.step", body={**BODY, "n": n})])
        )


@contextmanager
def plain(address: str) -> Iterator[Write]:
    import msgspec
    from psycopg_pool import ConnectionPool

    insert = (
        "INSERT INTO plain(stream, pos, body) SELECT %s,"
        " COALESCE((SELECT MAX(pos) FROM plain WHERE stream = %s), 0) + 1, %s"
    )
    with ConnectionPool(address, min_size=1, max_size=WRITERS) as pool:

        def write(stream: str, n: int) -> None:
            body = msgspec.json.encode({**BODY, "n": n}).decode()
            with pool.connection() as connection:
                connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (stream,)
                )
                connection.execute(insert, (stream, stream, body))

        yield write


def work(side: str, address: str, streams: list[str], seconds: float, pipe: Connection) -> None:
    """Write with a thread for each stream, for some seconds; tell how many commits there were."""
    counts = [0] * len(streams)
    with {"ours": ours, "plain": plain}[side](address) as write:

        def run(number: int) -> None:
            while time.monotonic() < end:
                write(streams[number], counts[number])
                counts[number] += 1

        threads = [Thread(target=run, args=(n,)) for n in range(len(streams))]
        write(f"warm/{streams[0]}", 0)
        pipe.send(None)
        pipe.recv()
        end = time.monotonic() + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    pipe.send(sum(counts))


def rate(side: str, address: str, streams: list[str], seconds: float) -> float:
    """Return the commits a second of one writer for each stream."""
    context = get_context("spawn")
    processes = []
    for first in range(min(PROCESSES, len(streams))):
        here, there = context.Pipe()
        args = (side, address, streams[first::PROCESSES], seconds, there)
        process: Any = context.Process(target=work, args=args)
        process.start()
        processes.append((process, here))
    for _, pipe in processes:
        pipe.recv()
    for _, pipe in processes:
        pipe.send(None)
    count = sum(pipe.recv() for _, pipe in processes)
    for process, _ in processes:
        process.join()
    return float(count / seconds)


class Follower(Thread):
    """Reads the log as it grows."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._store = open_store(address)
        self._over = Event()
        self.seen: list[str] = []

    def run(self) -> None:
        last, more = 0, True
        while more:
            more = not self._over.wait(0.2)
            for row in self._store.rows(EventQuery(after=last)):
                last = row.seq
                self.seen.append(row.id)

    def end(self) -> tuple[int, int]:
        """Return how many events it saw once, and how many there are."""
        self._over.set()
        self.join()
        there = [row.id for row in self._store.rows(EventQuery(by_stream=True))]
        self._store.close()
        once = len(self.seen) == len(set(self.seen))
        return len(set(self.seen) & set(there)) if once else 0, len(there)


def figures(size: str) -> Iterator[Figure]:
    """Yield the figures."""
    rounds, seconds = ROUNDS[size]
    found: list[tuple[float, float, float, float]] = []
    with postgres_address() as address:
        _make_table(address)
        open_store(address).close()
        follower = Follower(address)
        follower.start()
        for n in range(rounds):
            own = [f"w/{n}/{writer}" for writer in range(WRITERS)]
            found.append(
                (
                    rate("ours", address, [f"one/{n}"], seconds),
                    rate("ours", address, own, seconds),
                    rate("ours", address, [f"shared/{n}"] * WRITERS, seconds),
                    rate("plain", address, own, seconds),
                )
            )
        seen, there = follower.end()
    one, many, shared, table = (median(column) for column in zip(*found, strict=True))
    ratio = median(each[1] / each[0] for each in found)
    yield Figure(f"{WRITERS} writers", many, "1 writer", one, "/s", ratio, BAR, True)
    ratio = seen / there
    yield Figure("events a follower saw once", seen, "events", there, "", ratio, 1.0, True)
    ratio = median(each[1] / each[3] for each in found)
    beside = "a plain table, a lock per stream"
    yield Figure(f"{WRITERS} writers", many, beside, table, "/s", ratio, None, True)
    ratio = median(each[2] / each[0] for each in found)
    yield Figure(
        f"{WRITERS} writers on one stream", shared, "1 writer", one, "/s", ratio, None, True
    )


def _make_table(address: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(PLAIN)
