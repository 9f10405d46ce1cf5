"""Many subjects at once: each process compiles whole subjects on its own store.

Only writing takes turns; so what is compiled is written many subjects at a time.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import Any

from em.errors import EmError
from em.log.event import EventQuery
from em.log.stream import SUBJECT_PREFIX
from em.settings import StateSettings
from em.state.checkpoint import Compiled
from em.state.subjects import Subjects
from em.store import open_store
from em.store.protocol import Store

PORTION = 50
"""Subjects that a process is given at a time, and writes in one transaction."""
MANY_EVENTS = 20_000
"""Events of which on a portion is written before it is full: memory stays bounded."""

NEWS = ("observation", "decided", "erased")
"""Kinds of events that change a state."""


def subjects_of(store: Store, after: int = 0) -> list[str]:
    """Every subject that something was observed about, in the order of names; since a seq."""
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
    **how: Any,
) -> tuple[int, dict[str, str]]:
    """Checkpoint subjects with all cores; how many are done, and what went wrong with others.

    db: where the other processes find the store; as em would find it, where it is not given.
    """
    wanted = processes or os.cpu_count() or 1
    if wanted == 1:
        return _portion(subjects, list(names), how)
    done = 0
    failed: dict[str, str] = {}
    # Started afresh, not forked: a child must not inherit the store's connections.
    with ProcessPoolExecutor(wanted, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(_in_process, db, subjects.settings, portion, how)
            for portion in _portions(names)
        ]
        for job in jobs:
            count, problems = job.result()
            done += count
            failed |= problems
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
    """Compile subjects, and write them a few dozen at a time: the write lock is what is shared."""
    failed: dict[str, str] = {}
    waiting: list[Compiled] = []
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


def _write(subjects: Subjects, waiting: Sequence[Compiled], how: dict[str, Any]) -> dict[str, str]:
    failed: dict[str, str] = {}
    try:
        subjects.write(waiting)
    except EmError:
        # One of them was observed meanwhile, or can't be written: each on its own then.
        for one in waiting:
            try:
                subjects.checkpoint(one.report.subject, **how)
            except EmError as error:
                failed[one.report.subject] = str(error)
    return failed
