"""Portions: checkpoint many subjects with all cores, and write many of them in one transaction."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from em.errors import EmError
from em.log.event import SUBJECT_PREFIX, EventQuery
from em.settings import StateSettings
from em.state.checkpoint import NewState
from em.state.subjects import Subjects
from em.store import open_store
from em.store.protocol import Store

PORTION = 50
"""Subjects that a process gets at a time, and writes in one transaction."""
MANY_EVENTS = 20_000
"""Write a portion early once it has this many events, to bound memory."""

NEWS = ("observation", "read", "decided", "erased")
"""Kinds of events that change a state."""


def subjects_of(store: Store, after: int = 0) -> list[str]:
    """List the subjects with observations, sorted by name; only those with news after a seq."""
    if not after:
        return [name.removeprefix(SUBJECT_PREFIX) for name in store.streams(SUBJECT_PREFIX)]
    news = store.rows(EventQuery(kinds=NEWS, after=after))
    return sorted({row.subject for row in news if row.subject is not None})


def checkpoint_many(
    subjects: Subjects,
    names: Iterable[str],
    *,
    processes: int | None = None,
    db: str | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
    **how: Any,
) -> tuple[int, dict[str, str]]:
    """Checkpoint subjects with all cores; return how many succeeded, and the errors of others.

    db: the store's address for the other processes; by default the one that em would choose.
    progress: called with the number of subjects that were looked at, and of all of them.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    wanted = processes or os.cpu_count() or 1
    every = list(names)
    done = 0
    failed: dict[str, str] = {}

    def take(report: tuple[int, dict[str, str]]) -> None:
        nonlocal done
        done += report[0]
        failed.update(report[1])
        progress(done + len(failed), len(every))

    if wanted == 1:
        for portion in _portions(every):
            take(_portion(subjects, portion, how))
        return done, failed
    # Spawn, don't fork: a child must not inherit the store's connections.
    with ProcessPoolExecutor(wanted, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(_in_process, db, subjects.settings, portion, how)
            for portion in _portions(every)
        ]
        for job in jobs:
            take(job.result())
    return done, failed


def _portions(names: Iterable[str]) -> Iterator[list[str]]:
    left = iter(names)
    while portion := list(islice(left, PORTION)):
        yield portion


_opened: dict[str | None, Subjects] = {}


def _in_process(
    db: str | None, settings: StateSettings, names: Sequence[str], how: dict[str, Any]
) -> tuple[int, dict[str, str]]:
    if db not in _opened:
        _opened[db] = Subjects(open_store(db, None, create=False), settings)
    return _portion(_opened[db], names, how)


def _portion(
    subjects: Subjects, names: Sequence[str], how: dict[str, Any]
) -> tuple[int, dict[str, str]]:
    """Compile subjects and write many at a time, because all processes share the write lock."""
    failed: dict[str, str] = {}
    waiting: list[NewState] = []
    for name in names:
        try:
            found = subjects.compile(name, **how)
        except EmError as error:
            failed[name] = str(error)
            continue
        if found.commit is not None:
            waiting.append(found)
        if len(waiting) >= PORTION or sum(one.report.new_events for one in waiting) >= MANY_EVENTS:
            failed |= _write(subjects, waiting, how)
            waiting = []
    if waiting:
        failed |= _write(subjects, waiting, how)
    return len(names) - len(failed), failed


def _write(subjects: Subjects, waiting: Sequence[NewState], how: dict[str, Any]) -> dict[str, str]:
    failed: dict[str, str] = {}
    try:
        subjects.write(waiting)
    except EmError:
        # One of them has new events or can't be written: write each on its own.
        for one in waiting:
            try:
                subjects.checkpoint(one.report.subject, **how)
            except EmError as error:
                failed[one.report.subject] = str(error)
    return failed
