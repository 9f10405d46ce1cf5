"""A heuristic: a lesson with its evidence and its counts of use, and how it lies in the store.

A heuristic's stream has an event each time it was learned, used or retired. Its artefact holds the
words of one of those events, so that forgetting that event erases them and nothing else; they are
then made again from the next event that is left. Its record holds the counts.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, TypeVar

import msgspec

from em.errors import NotFound, PositionConflict
from em.log.event import Draft, Event, EventQuery
from em.log.kinds import event_body, event_text
from em.log.stream import HEURISTIC_PREFIX, heuristic_stream
from em.store.protocol import (
    Artefact,
    ArtefactDraft,
    Commit,
    Record,
    RequestOutcome,
    Store,
)
from em.traces.trace import Outcome
from em.values.canonical import Json
from em.values.ids import new_id

Polarity = Literal["failure", "success"]
How = Literal["recovery", "difference", "dead_end", "failed_check", "model", "given"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a lesson was learned: the events that failed, those that worked, and what happened."""

    trace: str = ""
    failed: Sequence[str] = ()
    worked: Sequence[str] = ()
    note: str = ""

    @property
    def event_ids(self) -> list[str]:
        """Every event it speaks of."""
        return [*self.failed, *self.worked]


class Lesson(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When (trigger), do (action), because (analysis).

    key: what makes two lessons the same one; lessons in free words have none.
    polarity: whether it says what worked, or what failed.
    """

    trigger: str
    action: str
    analysis: str = ""
    polarity: Polarity = "success"
    how: How = "given"
    tools: Sequence[str] = ()
    error: str = ""
    domain: str = ""
    subject: str | None = None
    source_task: str = ""
    key: str = ""
    evidence: Evidence = Evidence()

    @property
    def id(self) -> str:
        """The same lesson has the same id, wherever it was learned."""
        words = self.key or f"{self.trigger}\n{self.action}".casefold()
        said = msgspec.json.encode((self.subject, self.how if self.key else "", words))
        return "h" + hashlib.sha256(said).hexdigest()[:15]


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """How often a heuristic was learned and handed out, and how those runs ended."""

    learned: int = 0
    used: int = 0
    helped: int = 0
    hindered: int = 0
    last_used: str = ""

    @property
    def usefulness(self) -> float:
        """The share of its runs that went well, drawn to one half while there are few."""
        return (self.helped + 1) / (self.helped + self.hindered + 2)


class Heuristic(msgspec.Struct, frozen=True, kw_only=True):
    """A lesson in a memory."""

    id: str
    lesson: Lesson
    use: Use
    at: datetime
    retired: bool = False


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A heuristic that fits a task: its score, and each reason with its part of it."""

    heuristic: Heuristic
    score: float
    reasons: dict[str, float]


class Briefing(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt section with the lessons for a task; empty where none is relevant.

    notes: what could not be done, such as asking an embedder.
    """

    text: str
    heuristics: Sequence[Ranked] = ()
    notes: Sequence[str] = ()

    @property
    def ids(self) -> list[str]:
        """What to name when the outcome is known (`memory.feedback`)."""
        return [ranked.heuristic.id for ranked in self.heuristics]

    def __bool__(self) -> bool:
        return bool(self.heuristics)


@event_body("heuristic_learned")
class Learned(msgspec.Struct, frozen=True):
    """Body of an event: a lesson was learned, from these events."""

    lesson: Lesson
    from_events: list[str] = []


@event_text("heuristic_learned")
def learned_text(body: Json) -> str:
    """Return the words by which a lesson is found."""
    return searched_text(msgspec.convert(body, Learned).lesson)


def searched_text(lesson: Lesson) -> str:
    """Return the words by which a lesson is found."""
    return "\n".join(
        filter(None, (lesson.trigger, lesson.action, " ".join(lesson.tools), lesson.domain))
    )


@event_body("heuristic_used")
class Used(msgspec.Struct, frozen=True):
    """Body of an event: a heuristic was handed out, and its run ended so."""

    outcome: Outcome
    task: str = ""
    trace: str = ""
    from_events: list[str] = []


@event_body("heuristic_retired")
class Retired(msgspec.Struct, frozen=True):
    """Body of an event: a heuristic was taken out of use; `into`: merged into another one."""

    reason: str = ""
    into: str = ""


T = TypeVar("T")

KIND = "heuristic"
USE = "heuristic_use"
LEAST_DEAD_ENDS = 2
"""A dead end becomes a warning when it was run into again."""
ATTEMPTS = 20
"""How often a commit is put together anew when somebody else wrote in between."""

Respond = Callable[[Sequence[str]], RequestOutcome]


def learn(
    store: Store,
    lessons: Iterable[Lesson],
    *,
    events: Sequence[Draft] = (),
    answer: Respond | None = None,
) -> list[Heuristic]:
    """Keep lessons, in one transaction with `events` and the response to a request.

    answer: makes the response, given the ids of the events that are written for the lessons.
    What was learned from the same evidence before changes nothing.
    """
    lessons = list(lessons)
    until_first(lambda: store.commit(_to_learn(store, lessons, events, answer)))
    ids = dict.fromkeys(lesson.id for lesson in lessons)
    found = (find_heuristic(store, heuristic_id) for heuristic_id in ids)
    return [heuristic for heuristic in found if heuristic is not None]


def _to_learn(
    store: Store,
    lessons: Sequence[Lesson],
    events: Sequence[Draft],
    answer: Respond | None,
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


def find_heuristic(store: Store, heuristic_id: str) -> Heuristic | None:
    """The heuristic of that id, also one that is retired; None where there is none."""
    artefact = _newest(store, heuristic_id)
    return None if artefact is None or artefact.body is None else _heuristic(store, artefact)


def get_heuristic(store: Store, heuristic_id: str) -> Heuristic:
    """The heuristic of that id."""
    found = find_heuristic(store, heuristic_id)
    if found is None:
        raise NotFound(
            f"there is no heuristic {heuristic_id!r}",
            fix="`em heuristics list` shows those there are",
        )
    return found


def every_heuristic(store: Store, *, retired: bool = False) -> Iterator[Heuristic]:
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


def change_heuristic(
    store: Store, heuristic_id: str, become: Change, *, retire: bool = False
) -> None:
    """Append what became of a heuristic, with its new counts; retired, it is not found any more."""

    def once() -> None:
        # The position first: what is read after it is refused if somebody writes in between.
        pos, _ = store.head(heuristic_stream(heuristic_id))
        _change(store, *become(get_heuristic(store, heuristic_id)), pos, retire=retire)

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
    artefact = store.artefact(KIND, heuristic_id) if retire else None
    commit = Commit(
        events=[draft],
        records=[_record(heuristic_id, use)],
        lessons={draft.stream: None} if retire else {},
        retire=[] if artefact is None else [artefact.id],
        expected_pos={draft.stream: pos},
    )
    store.commit(commit)


def rebuild_heuristics(store: Store, erased: Sequence[str]) -> int:
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
