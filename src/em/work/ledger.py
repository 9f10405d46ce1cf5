"""Ledger: what em itself knows of each queued job, in the queue's database.

DBOS has the state of a job while it is open. The ledger has how it ended, how often a worker died
of it, whether it was cancelled, and how long the items of each kind take. Its rows hold ids, kinds
and states, never names of subjects, inputs or results.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from em.work.database import Database, sa
from em.work.job import Kind

Outcome = Literal["done", "waiting", "failed", "cancelled"]
WEIGHT = 0.3
"""The weight of the newest job in the mean time of an item."""


class Entry(NamedTuple):
    """The row of a job. deaths: how many workers died while they ran it."""

    id: str
    kind: str
    queue: str
    deaths: int
    outcome: Outcome | None
    part_of: str | None


class Wanted(NamedTuple):
    """Which jobs to list. outcomes: only these; None in it stands for jobs that are open."""

    outcomes: Collection[str | None] | None = None
    kind: str | None = None
    queue: str | None = None

    def fits(self, entry: Entry) -> bool:
        """Return whether a row is one of these."""
        return (
            (self.outcomes is None or entry.outcome in self.outcomes)
            and self.kind in (None, entry.kind)
            and self.queue in (None, entry.queue)
        )


class Ledger:
    """The rows of all jobs of a queue."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = database.jobs
        self._rates = database.rates

    def enter(
        self,
        connection: sa.Connection,
        job_id: str,
        kind: str,
        queue: str,
        *,
        key: str | None = None,
        outcome: str | None = None,
        part_of: str | None = None,
    ) -> bool:
        """Add a job, in the caller's transaction. Return False if it is there already.

        part_of: the job that it was split off from, at first.
        """
        row: dict[str, Any] = {"id": job_id, "kind": kind, "queue": queue, "deaths": 0}
        row |= {"key": key, "outcome": outcome, "part_of": part_of}
        add = self._database.insert(self._jobs).values(row).on_conflict_do_nothing()
        # RETURNING, because not every driver reports how many rows were inserted.
        return connection.execute(add.returning(self._jobs.c.id)).scalar() is not None

    def waiting(self, connection: sa.Connection, most: int) -> int:
        """Count the jobs that have not ended, up to `most`."""
        is_open = sa.select(self._jobs.c.id).where(self._jobs.c.outcome.is_(None)).limit(most)
        return connection.execute(
            sa.select(sa.func.count()).select_from(is_open.subquery())
        ).scalar_one()

    def with_key(self, key: str) -> str | None:
        """Return the id of the job that was queued with this key."""
        query = sa.select(self._jobs.c.id).where(self._jobs.c.key == key)
        with self._database.translated(), self._database.engine.begin() as connection:
            return connection.execute(query).scalar()

    def find(self, ids: Sequence[str]) -> dict[str, Entry]:
        """Return the rows of these jobs, by id."""
        query = sa.select(*self._columns()).where(self._jobs.c.id.in_(ids))
        with self._database.translated(), self._database.engine.begin() as connection:
            return {row.id: Entry(*row) for row in connection.execute(query)}

    def parts(self, ids: Sequence[str], *, is_open: bool = False) -> dict[str, str]:
        """Return the jobs that were split off from these, each with the job that it is part of."""
        jobs = self._jobs.c
        query = sa.select(jobs.id, jobs.part_of).where(jobs.part_of.in_(ids))
        if is_open:
            query = query.where(jobs.outcome.is_(None))
        with self._database.translated(), self._database.engine.begin() as connection:
            return {row.id: row.part_of for row in connection.execute(query)}

    def newest(self, wanted: Wanted, size: int) -> Iterator[Entry]:
        """Yield jobs, the newest first; reads `size` of them at a time."""
        last: str | None = None
        while True:
            query = self._where(sa.select(*self._columns()), wanted)
            if last is not None:
                query = query.where(self._jobs.c.id < last)
            query = query.order_by(self._jobs.c.id.desc()).limit(size)
            with self._database.translated(), self._database.engine.begin() as connection:
                rows = connection.execute(query).all()
            yield from (Entry(*row) for row in rows)
            if len(rows) < size:
                return
            last = rows[-1].id

    def count(self, wanted: Wanted) -> int:
        """Count jobs."""
        query = self._where(sa.select(sa.func.count()).select_from(self._jobs), wanted)
        with self._database.translated(), self._database.engine.begin() as connection:
            return int(connection.execute(query).scalar_one())

    def end(self, job_id: str, outcome: Outcome, took: Mapping[Kind, float] | None = None) -> None:
        """Store how a job ended, and the seconds that an item of its kind took."""
        with self._database.translated(), self._database.engine.begin() as connection:
            connection.execute(
                sa.update(self._jobs).where(self._jobs.c.id == job_id).values(outcome=outcome)
            )
            for kind, seconds in (took or {}).items():
                self._learn(connection, kind, seconds)

    def _learn(self, connection: sa.Connection, kind: Kind, seconds: float) -> None:
        rates = self._rates
        add = self._database.insert(rates).values(kind=kind, seconds=seconds)
        mean = rates.c.seconds * (1 - WEIGHT) + seconds * WEIGHT
        connection.execute(
            add.on_conflict_do_update(index_elements=["kind"], set_={"seconds": mean})
        )

    def seconds(self, kind: Kind) -> float | None:
        """Return how long an item of this kind took lately; None if none was done yet."""
        query = sa.select(self._rates.c.seconds).where(self._rates.c.kind == kind)
        with self._database.translated(), self._database.engine.begin() as connection:
            return connection.execute(query).scalar()

    def died(self, ids: Sequence[str]) -> None:
        """Count the death of a worker for the jobs that it had."""
        jobs = self._jobs
        with self._database.translated(), self._database.engine.begin() as connection:
            connection.execute(
                sa.update(jobs).where(jobs.c.id.in_(ids)).values(deaths=jobs.c.deaths + 1)
            )

    def drop(self, ids: Sequence[str]) -> None:
        """Remove the rows of these jobs."""
        with self._database.translated(), self._database.engine.begin() as connection:
            connection.execute(sa.delete(self._jobs).where(self._jobs.c.id.in_(ids)))

    def _columns(self) -> Sequence[sa.Column[Any]]:
        jobs = self._jobs.c
        return [jobs.id, jobs.kind, jobs.queue, jobs.deaths, jobs.outcome, jobs.part_of]

    def _where(self, query: "sa.Select[Any]", wanted: Wanted) -> "sa.Select[Any]":
        jobs = self._jobs.c
        if wanted.outcomes is not None:
            named = [one for one in wanted.outcomes if one is not None]
            either = [jobs.outcome.in_(named)] if named else []
            either += [jobs.outcome.is_(None)] if None in wanted.outcomes else []
            query = query.where(sa.or_(*either))
        if wanted.kind is not None:
            query = query.where(jobs.kind == wanted.kind)
        if wanted.queue is not None:
            query = query.where(jobs.queue == wanted.queue)
        return query
