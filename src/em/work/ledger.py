"""Ledger: the rows of the jobs of a queue: which wait, which a worker has, how the others ended.

A worker takes a job by writing its id into the row, in a transaction that no two workers share: a
SQLite file has one writer at a time, and PostgreSQL skips rows that somebody else has locked. The
row is freed again if the worker gives it back or dies. The rows hold ids, kinds and states, never
names of subjects, inputs or results.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from em.store.session import SqlSession, delete, select
from em.values.times import now_micros
from em.work.database import Database
from em.work.job import Kind, State

Outcome = Literal["done", "waiting", "failed", "cancelled"]
WEIGHT = 0.3
"""The weight of the newest job in the mean time of an item."""
_OPEN = "outcome IS NULL"
_FREE = "outcome IS NULL AND worker IS NULL"
_STATES = {"queued": _FREE, "running": "outcome IS NULL AND worker IS NOT NULL", "open": _OPEN}


class Entry(NamedTuple):
    """The row of a job. deaths: how many workers died while they ran it."""

    id: str
    kind: str
    queue: str
    worker: str | None
    deaths: int
    outcome: Outcome | None
    ended_at: int | None
    part_of: str | None

    @property
    def state(self) -> State:
        """The state of the job."""
        return self.outcome or ("queued" if self.worker is None else "running")


_COLUMNS = ", ".join(Entry._fields)


class Wanted(NamedTuple):
    """Which jobs to list, or to count: then `open` stands for the queued and the running ones."""

    state: State | Literal["open"] | None = None
    kind: str | None = None
    queue: str | None = None

    def fits(self, entry: Entry) -> bool:
        """Return whether a row is one of these."""
        return (
            self.state in (None, entry.state)
            and self.kind in (None, entry.kind)
            and self.queue in (None, entry.queue)
        )

    def where(self) -> tuple[str, list[str]]:
        """Return the condition in SQL, with its parameters."""
        parts, params = ["1 = 1"], list[str]()
        if self.state in _STATES:
            parts.append(_STATES[self.state])
        elif self.state is not None:
            parts.append("outcome = ?")
            params.append(self.state)
        for column, value in (("kind", self.kind), ("queue", self.queue)):
            if value is not None:
                parts.append(f"{column} = ?")
                params.append(value)
        return " AND ".join(parts), params


class Ledger:
    """The rows of all jobs of a queue."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enter(self, rows: Iterable[Sequence[str | None]]) -> None:
        """Queue jobs, except those that are there: each with kind, queue, key and `part_of`."""
        sql = (
            "INSERT INTO jobs(id, kind, queue, key, part_of) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING"
        )
        with self._database.writing() as session:
            session.executemany(sql, rows)

    def take(
        self,
        worker: str,
        queue: str,
        most: int,
        *,
        limit: int | None = None,
        but_not: Sequence[str] = (),
    ) -> list[str]:
        """Give a worker jobs of a queue, the oldest first, up to `most`; return their ids.

        A worker without a heartbeat gets none.
        limit: jobs of this queue that may run at a time, over all workers.
        but_not: jobs that the worker must not get.
        """
        marks = ",".join("?" * (len(but_not) + 1))  # PostgreSQL takes no empty list
        sql = f"SELECT id FROM jobs WHERE {_FREE} AND queue = ? AND id NOT IN ({marks}) ORDER BY id"  # noqa: S608 - constants; values are bound
        sql += " LIMIT ?" + (" FOR UPDATE SKIP LOCKED" if self._database.is_postgres else "")
        with self._database.writing(queue if limit is not None else "") as session:
            # Whoever buries this worker waits for us, or we for them: a job that nobody watches
            # would be lost.
            known = "SELECT 1 FROM workers WHERE id = ?"
            known += " FOR SHARE" if self._database.is_postgres else ""
            if session.execute(known, (worker,)).fetchone() is None:
                return []
            if limit is not None:
                most = min(most, limit - _count(session, Wanted("running", queue=queue)))
            found = session.execute(sql, (queue, "", *but_not, max(0, most))).fetchall()
            for (job_id,) in found:
                session.execute("UPDATE jobs SET worker = ? WHERE id = ?", (worker, job_id))
        return [job_id for (job_id,) in found]

    def free(self, worker: str) -> None:
        """Queue the jobs again that a worker has, and remove it from the running ones."""
        sql = f"UPDATE jobs SET worker = NULL WHERE {_OPEN} AND worker = ?"  # noqa: S608 - a constant
        with self._database.writing() as session:
            session.execute("DELETE FROM workers WHERE id = ?", (worker,))
            session.execute("DELETE FROM slots WHERE worker = ?", (worker,))
            session.execute(sql, (worker,))

    def bury(self, worker: str, beat: int) -> int | None:
        """Queue the jobs of a dead worker again; return how many, and count its death for each.

        None if its heartbeat has advanced, or somebody else was first.
        """
        jobs = f"UPDATE jobs SET worker = NULL, deaths = deaths + 1 WHERE {_OPEN} AND worker = ?"  # noqa: S608 - a constant
        with self._database.writing() as session:
            gone = "DELETE FROM workers WHERE id = ? AND beat = ?"
            if not session.execute(gone, (worker, beat)).rowcount:
                return None
            session.execute("DELETE FROM slots WHERE worker = ?", (worker,))
            return session.execute(jobs, (worker,)).rowcount

    def beat(self, worker: str, place: str) -> None:
        """Advance the heartbeat of a worker; the first one makes it known."""
        sql = (
            "INSERT INTO workers(id, beat, place) VALUES (?, 1, ?)"
            " ON CONFLICT(id) DO UPDATE SET beat = workers.beat + 1"
        )
        with self._database.writing() as session:
            session.execute(sql, (worker, place))

    def workers(self) -> list[tuple[str, int, str]]:
        """Return the running workers, each with its heartbeat and its place."""
        return [tuple(row) for row in self._read("SELECT id, beat, place FROM workers", ())]

    def end(self, job_id: str, outcome: Outcome) -> None:
        """Store how a job ended, unless it has ended."""
        sql = f"UPDATE jobs SET outcome = ?, ended_at = ? WHERE id = ? AND {_OPEN}"  # noqa: S608 - a constant
        with self._database.writing() as session:
            session.execute(sql, (outcome, now_micros(), job_id))

    def queues_with_work(self) -> Iterator[str]:
        """Yield the names of the queues that have jobs for a worker."""
        last = ""
        sql = f"SELECT min(queue) FROM jobs WHERE {_FREE} AND queue > ?"  # noqa: S608 - a constant
        while True:
            with self._database.reading() as session:
                (found,) = session.execute(sql, (last,)).fetchone()
            if found is None:
                return
            yield found
            last = found

    def waiting(self, most: int) -> int:
        """Count the jobs that have not ended, up to `most`."""
        sql = f"SELECT count(*) FROM (SELECT id FROM jobs WHERE {_OPEN} LIMIT ?) AS found"  # noqa: S608 - a constant
        return int(self._read(sql, (most,))[0][0])

    def with_key(self, key: str) -> str | None:
        """Return the id of the job that was queued with this key."""
        return next(
            (row[0] for row in self._read("SELECT id FROM jobs WHERE key = ?", (key,))), None
        )

    def find(self, ids: Sequence[str]) -> dict[str, Entry]:
        """Return the rows of these jobs, by id."""
        with self._database.reading() as session:
            return {row[0]: Entry(*row) for row in select(session, _COLUMNS, "jobs", "id", ids)}

    def parts(self, ids: Sequence[str]) -> list[Entry]:
        """Return the jobs that were split off from these."""
        with self._database.reading() as session:
            return [Entry(*row) for row in select(session, _COLUMNS, "jobs", "part_of", ids)]

    def newest(self, wanted: Wanted, size: int) -> Iterator[Entry]:
        """Yield jobs, the newest first; reads `size` of them at a time."""
        last = "z"  # behind every id, which is hexadecimal
        where, params = wanted.where()
        sql = f"SELECT {_COLUMNS} FROM jobs WHERE {where} AND id < ? ORDER BY id DESC LIMIT ?"  # noqa: S608 - constants; values are bound
        while rows := self._read(sql, (*params, last, size)):
            yield from (Entry(*row) for row in rows)
            if len(rows) < size:
                return
            last = rows[-1][0]

    def count(self, wanted: Wanted) -> int:
        """Count jobs."""
        with self._database.reading() as session:
            return _count(session, wanted)

    def learn(self, kind: Kind, seconds: float) -> None:
        """Note how long an item of a kind took."""
        sql = (
            "INSERT INTO rates(kind, seconds) VALUES (?, ?) ON CONFLICT(kind)"
            " DO UPDATE SET seconds = rates.seconds * ? + excluded.seconds * ?"
        )
        with self._database.writing() as session:
            session.execute(sql, (kind, seconds, 1 - WEIGHT, WEIGHT))

    def seconds(self, kind: Kind) -> float | None:
        """Return how long an item of this kind took lately; None if none was done yet."""
        found = self._read("SELECT seconds FROM rates WHERE kind = ?", (kind,))
        return found[0][0] if found else None

    def clear(self, until: int, most: int) -> int:
        """Remove jobs that ended before a moment, up to `most`; return how many."""
        sql = "SELECT id FROM jobs WHERE outcome IS NOT NULL AND coalesce(ended_at, 0) < ? LIMIT ?"
        with self._database.writing() as session:
            found = [row[0] for row in session.execute(sql, (until, most)).fetchall()]
            return delete(session, "jobs", "id", found)

    def _read(self, sql: str, params: Sequence[Any]) -> list[Any]:
        with self._database.reading() as session:
            return session.execute(sql, params).fetchall()


def _count(session: SqlSession, wanted: Wanted) -> int:
    where, params = wanted.where()
    return int(session.execute(f"SELECT count(*) FROM jobs WHERE {where}", params).fetchone()[0])  # noqa: S608 - constants; values are bound
