"""Where heuristics are kept. What was learned is in the log; what is used is made from it.

A heuristic's stream has what was learned and what became of it. Its artefact and its passages hold
the words of one of those events, so that forgetting that one event takes them, and no other: then
they are made again from the next that is left. Its record counts.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from em.errors import NotFound, PositionConflict
from em.heuristics.heuristic import Heuristic, Learned, Lesson, Use
from em.log.event import Draft, Event, EventQuery
from em.log.stream import HEURISTIC_PREFIX, heuristic_stream
from em.store.protocol import (
    Artefact,
    ArtefactDraft,
    Commit,
    Record,
    RequestOutcome,
    Store,
)
from em.values.ids import new_id

T = TypeVar("T")

KIND = "heuristic"
USE = "heuristic_use"
LEAST_DEAD_ENDS = 2
"""A dead end becomes a warning when it was run into again."""
ATTEMPTS = 20
"""How often a commit is put together anew when somebody else wrote in between."""

Answer = Callable[[Sequence[str]], RequestOutcome]


def learn(
    store: Store,
    lessons: Iterable[Lesson],
    *,
    events: Sequence[Draft] = (),
    answer: Answer | None = None,
) -> list[Heuristic]:
    """Keep lessons, in one transaction with `events` and the response to a request.

    answer: makes the response, given the ids of the events that are written for the lessons.
    What was learned from the same evidence before changes nothing.
    """
    lessons = list(lessons)
    until_first(lambda: store.commit(_to_learn(store, lessons, events, answer)))
    ids = dict.fromkeys(lesson.id for lesson in lessons)
    found = (find(store, heuristic_id) for heuristic_id in ids)
    return [heuristic for heuristic in found if heuristic is not None]


def _to_learn(
    store: Store,
    lessons: Sequence[Lesson],
    events: Sequence[Draft],
    answer: Answer | None,
) -> Commit:
    drafts = {_event_id(lesson): lesson for lesson in lessons}
    ids = list(drafts)
    for start in range(0, len(ids), 500):
        for event in store.read(EventQuery(ids=ids[start : start + 500])):
            drafts.pop(event.id)
    by_id: defaultdict[str, dict[str, Lesson]] = defaultdict(dict)
    for event_id, lesson in drafts.items():
        by_id[lesson.id][event_id] = lesson
    parts = [_parts(store, heuristic_id, group) for heuristic_id, group in by_id.items()]
    return Commit(
        events=[*events, *(draft for part in parts for draft in part.events)],
        artefacts=[artefact for part in parts for artefact in part.artefacts],
        lessons={stream: found for part in parts for stream, found in part.lessons.items()},
        records=[record for part in parts for record in part.records],
        request=None if answer is None else answer(list(drafts)),
        expected_pos={stream: pos for part in parts for stream, pos in part.expected_pos.items()},
    )


def _event_id(lesson: Lesson) -> str:
    """The same evidence for the same lesson is the same event."""
    evidence = lesson.evidence
    if not evidence.trace:
        return new_id()
    said = msgspec.json.encode((lesson.id, evidence.trace, evidence.failed, evidence.worked))
    return f"{lesson.id}-{hashlib.sha256(said).hexdigest()[:16]}"


def _parts(store: Store, heuristic_id: str, group: dict[str, Lesson]) -> Commit:
    """What is written of one heuristic."""
    pos, _ = store.head(heuristic_stream(heuristic_id))
    use = use_of(store, heuristic_id)
    learned = use.learned + sum(_times(lesson) for lesson in group.values())
    drafts = [_learned(event_id, lesson) for event_id, lesson in group.items()]
    event_id, lesson = next(iter(group.items()))
    newest = _newest(store, heuristic_id)
    is_new = newest is None or (newest.body is None and newest.retired_at is None)
    enough = lesson.how != "dead_end" or learned >= LEAST_DEAD_ENDS
    made = is_new and enough
    return Commit(
        events=drafts,
        artefacts=[_artefact(heuristic_id, lesson, event_id)] if made else [],
        lessons={heuristic_stream(heuristic_id): event_id} if made else {},
        records=[_record(heuristic_id, msgspec.structs.replace(use, learned=learned))],
        expected_pos={heuristic_stream(heuristic_id): pos},
    )


def _times(lesson: Lesson) -> int:
    """How often it happened: each call that failed for good counts, and anything else once."""
    return len(lesson.evidence.failed) if lesson.how == "dead_end" else 1


def _learned(event_id: str, lesson: Lesson) -> Draft:
    body = msgspec.to_builtins(Learned(lesson, lesson.evidence.event_ids))
    return Draft(
        stream=heuristic_stream(lesson.id),
        kind="heuristic_learned",
        body=body,
        subject=lesson.subject,
        id=event_id,
    )


def _artefact(heuristic_id: str, lesson: Lesson, event_id: str) -> ArtefactDraft:
    return ArtefactDraft(
        kind=KIND,
        name=heuristic_id,
        body=msgspec.to_builtins(lesson),
        from_events=[event_id, *lesson.evidence.event_ids],
    )


def _record(heuristic_id: str, use: Use) -> Record:
    return Record(
        subject=heuristic_stream(heuristic_id),
        type=USE,
        id=heuristic_id,
        body=msgspec.to_builtins(use),
    )


def use_of(store: Store, heuristic_id: str) -> Use:
    """How often a heuristic was learned and used, and with what end."""
    for record in store.records(heuristic_stream(heuristic_id), USE):
        return msgspec.convert(record.body, Use)
    return Use()


def _newest(store: Store, heuristic_id: str) -> Artefact | None:
    newest = store.artefact(KIND, heuristic_id)
    return newest or next(reversed(list(store.artefacts(KIND, heuristic_id))), None)


def find(store: Store, heuristic_id: str) -> Heuristic | None:
    """The heuristic of that id, also one that is retired; None where there is none."""
    artefact = _newest(store, heuristic_id)
    return None if artefact is None or artefact.body is None else _heuristic(store, artefact)


def get(store: Store, heuristic_id: str) -> Heuristic:
    """The heuristic of that id."""
    found = find(store, heuristic_id)
    if found is None:
        raise NotFound(
            f"there is no heuristic {heuristic_id!r}",
            fix="`em heuristics list` shows those there are",
        )
    return found


def every(store: Store, *, retired: bool = False) -> Iterator[Heuristic]:
    """Every heuristic in use, by its id; with `retired` also the others."""
    return (_heuristic(store, artefact) for artefact in _each(store, retired=retired))


def every_lesson(store: Store) -> Iterator[tuple[str, Lesson]]:
    """The lessons in use by id, without what became of them: that is one more look for each."""
    for artefact in _each(store, retired=False):
        yield artefact.name, msgspec.convert(artefact.body, Lesson)


def _each(store: Store, *, retired: bool) -> Iterator[Artefact]:
    """The newest version of each heuristic that is shown."""
    newest: Artefact | None = None
    for artefact in store.artefacts(KIND):
        if newest is not None and newest.name != artefact.name and _is_shown(newest, retired):
            yield newest
        newest = artefact
    if newest is not None and _is_shown(newest, retired):
        yield newest


def _is_shown(artefact: Artefact, retired: bool) -> bool:
    return artefact.body is not None and (retired or artefact.retired_at is None)


def _heuristic(store: Store, artefact: Artefact) -> Heuristic:
    return Heuristic(
        id=artefact.name,
        lesson=msgspec.convert(artefact.body, Lesson),
        use=use_of(store, artefact.name),
        at=artefact.created_at,
        retired=artefact.retired_at is not None,
    )


def history(store: Store, heuristic_id: str) -> list[Event]:
    """What was learned, what became of it, oldest first, without what was erased."""
    events = store.read(EventQuery(stream=heuristic_stream(heuristic_id)))
    return [event for event in events if event.kind != "erased" and event.body is not None]


def learned_from(store: Store, heuristic_id: str) -> list[Lesson]:
    """Each time it was learned, with its evidence."""
    return [
        msgspec.convert(event.body, Learned).lesson
        for event in history(store, heuristic_id)
        if event.kind == "heuristic_learned"
    ]


Change = Callable[[Heuristic], tuple[Draft, Use]]
"""From a heuristic as it is to what became of it, and its new counts."""


def change(store: Store, heuristic_id: str, become: Change, *, retire: bool = False) -> None:
    """Append what became of a heuristic, with its new counts; retired, it is not found any more."""

    def once() -> None:
        # The position first: what is read after it is refused if somebody writes in between.
        pos, _ = store.head(heuristic_stream(heuristic_id))
        _change(store, *become(get(store, heuristic_id)), pos, retire=retire)

    until_first(once)


def until_first(write: Callable[[], T]) -> T:
    """Read and write again for as long as somebody else is faster."""
    for _ in range(ATTEMPTS):
        try:
            return write()
        except PositionConflict:
            continue
    return write()


def _change(store: Store, draft: Draft, use: Use, pos: int, *, retire: bool) -> None:
    heuristic_id = draft.stream.removeprefix(HEURISTIC_PREFIX)
    commit = Commit(
        events=[draft],
        records=[_record(heuristic_id, use)],
        lessons={draft.stream: None} if retire else {},
        expected_pos={draft.stream: pos},
    )
    store.commit(commit)
    if retire and (artefact := store.artefact(KIND, heuristic_id)) is not None:
        store.retire(artefact.id)


def rebuild(store: Store, erased: Sequence[str]) -> int:
    """After forgetting: make anew, from what is left, the heuristics that held what was erased."""
    ids: dict[str, None] = {}
    for start in range(0, len(erased), 500):
        for event in store.read(EventQuery(ids=erased[start : start + 500])):
            if event.kind == "heuristic_learned":
                ids[event.stream.removeprefix(HEURISTIC_PREFIX)] = None
    return sum(until_first(partial(_rebuild, store, one)) for one in ids)


def _rebuild(store: Store, heuristic_id: str) -> bool:
    pos, _ = store.head(heuristic_stream(heuristic_id))
    left = [
        (event.id, msgspec.convert(event.body, Learned).lesson)
        for event in history(store, heuristic_id)
        if event.kind == "heuristic_learned"
    ]
    learned = sum(_times(lesson) for _, lesson in left)
    use = msgspec.structs.replace(use_of(store, heuristic_id), learned=learned)
    newest = _newest(store, heuristic_id)
    is_gone = newest is not None and newest.body is None and newest.retired_at is None
    enough = bool(left) and (left[0][1].how != "dead_end" or learned >= LEAST_DEAD_ENDS)
    made = is_gone and enough
    store.commit(
        Commit(
            artefacts=[_artefact(heuristic_id, left[0][1], left[0][0])] if made else [],
            lessons={heuristic_stream(heuristic_id): left[0][0]} if made else {},
            records=[_record(heuristic_id, use)],
            expected_pos={heuristic_stream(heuristic_id): pos},
        )
    )
    return made
