"""A heuristic: a lesson with its evidence and its counts of use, and how it is stored.

A heuristic's stream gets an event each time it is learned, used or retired. Its artefact has the
words of one of those events, so that forgetting the event erases them too; then the artefact is
made again from the next event that is left. Its record has the counts.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Literal, NamedTuple, TypedDict, TypeVar, Unpack

import msgspec

from em.errors import NotFound, PositionConflict
from em.heuristics.failure import cut
from em.log.event import HEURISTIC_PREFIX, Draft, Event, EventQuery, heuristic_stream
from em.log.kinds import event_body, event_text
from em.log.summary import Cursor, SummaryQuery
from em.store.protocol import (
    Artefact,
    ArtefactDraft,
    Commit,
    Record,
    RequestOutcome,
    Store,
)
from em.traces.trace import Outcome, Source
from em.values.canonical import Json
from em.values.times import new_id

Polarity = Literal["failure", "success"]
How = Literal["recovery", "model", "given", "difference", "dead_end", "failed_check"]
"""How a lesson was learned. The last three are of older rules, by which none is learned now."""

LONGEST_GOAL = 300
FORM = 4
"""The rules by which lessons are mined now."""
FROM_THE_WEB = "all that shows it had read what anybody may have written"
"""Why a person must accept a lesson."""
ACCEPTED = "accepted by a person"


def goal_text(goal: str) -> str:
    """Write a goal on one line, shortened if it is long."""
    return cut(" ".join(goal.split()), LONGEST_GOAL)


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a lesson was learned: the events that failed and those that worked, with a note."""

    trace: str = ""
    failed: Sequence[str] = ()
    worked: Sequence[str] = ()
    note: str = ""

    @property
    def is_acceptance(self) -> bool:
        """Whether a person accepted the lesson then, and nothing showed it again."""
        return self.note == ACCEPTED

    @property
    def event_ids(self) -> list[str]:
        """The ids of all events of the evidence."""
        return [*self.failed, *self.worked]


class Lesson(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lesson: when (trigger), do (action), because (analysis).

    key: identifies the lesson; lessons in free words have none and are compared by their words.
    polarity: whether the lesson tells what worked or what failed. how: how it was learned.
    program: the tool whose failure it is about. error: the words of that failure.
    form: the rules by which it was mined. Lessons of older forms are shown, and not told.
    leads: from what to what it leads. doubt: why it is not told to agents; "" if it is.
    source: the least trusted of what it comes from.
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
    program: str = ""
    form: int = 0
    leads: Sequence[str] = ()
    doubt: str = ""
    source: Source = "own"
    evidence: Evidence = Evidence()

    @property
    def is_outdated(self) -> bool:
        """Whether it was mined by older rules, which asked for less evidence."""
        return self.how not in ("model", "given") and bool(self.evidence.trace) and self.form < FORM

    @property
    def is_told(self) -> bool:
        """Whether agents may be told."""
        return not self.doubt and not self.is_outdated

    @property
    def id(self) -> str:
        """The lesson's id: a hash of its key or words, the same wherever it was learned."""
        words = self.key or f"{self.trigger}\n{self.action}".casefold()
        content = msgspec.json.encode((self.subject, self.how if self.key else "", words))
        return "h" + hashlib.sha256(content).hexdigest()[:15]


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Counts: how often a heuristic was learned and used, and how those runs ended.

    doubted: how often only what is in doubt showed it, such as a session that had read the web.
    """

    learned: int = 0
    doubted: int = 0
    used: int = 0
    helped: int = 0
    hindered: int = 0
    last_used: str = ""

    @property
    def seen(self) -> str:
        """How often it was learned, in words."""
        count = self.learned or self.doubted
        return "seen once" if count == 1 else f"learned {count}x"

    def shown_by(self, lessons: Iterable[Lesson]) -> "Use":
        """Count lessons as learned once more each, unless a person only accepted them."""
        doubts = [bool(one.doubt) for one in lessons if not one.evidence.is_acceptance]
        return msgspec.structs.replace(
            self,
            learned=self.learned + doubts.count(False),
            doubted=self.doubted + doubts.count(True),
        )

    @property
    def usefulness(self) -> float:
        """The share of successful runs, pulled toward one half while there are few."""
        return (self.helped + 1) / (self.helped + self.hindered + 2)


class Heuristic(msgspec.Struct, frozen=True, kw_only=True):
    """A lesson in a memory, with its counts of use."""

    id: str
    lesson: Lesson
    use: Use
    at: datetime
    retired: bool = False


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A heuristic that fits a task: its score, and the parts of the score by name."""

    heuristic: Heuristic
    score: float
    reasons: dict[str, float]


class Briefing(msgspec.Struct, frozen=True, kw_only=True):
    """A section of a prompt with the lessons for a task; empty if none is relevant.

    notes: what failed on the way, such as a call of the embedder.
    """

    text: str
    heuristics: Sequence[Ranked] = ()
    notes: Sequence[str] = ()

    @property
    def ids(self) -> list[str]:
        """The ids of its heuristics, to pass to `memory.feedback` when the run has ended."""
        return [ranked.heuristic.id for ranked in self.heuristics]

    def __bool__(self) -> bool:
        return bool(self.heuristics)


@event_body("heuristic_learned")
class Learned(msgspec.Struct, frozen=True):
    """Body of an event: a lesson was learned from these events."""

    lesson: Lesson
    from_events: list[str] = []


@event_text("heuristic_learned")
def learned_text(body: Json) -> str:
    """Return the words by which a lesson is found."""
    return searched_text(msgspec.convert(body, Learned).lesson)


def searched_text(lesson: Lesson) -> str:
    """Return the words by which a lesson is found."""
    words = (lesson.trigger, lesson.action, " ".join(lesson.tools), lesson.domain)
    return "\n".join(filter(None, words))


@event_body("heuristic_used")
class Used(msgspec.Struct, frozen=True):
    """Body of an event: a heuristic was used in a run with this outcome."""

    outcome: Outcome
    task: str = ""
    trace: str = ""
    from_events: list[str] = []


@event_body("heuristic_retired")
class Retired(msgspec.Struct, frozen=True):
    """Body of an event: a heuristic was retired; `into`: the one it was merged into."""

    reason: str = ""
    into: str = ""


T = TypeVar("T")

KIND = "heuristic"
IN_USE = "in use"
USE = "heuristic_use"
ATTEMPTS = 20
"""How often to retry a commit when another writer was first."""

Respond = Callable[[Sequence[str]], RequestOutcome]


def learn(
    store: Store,
    lessons: Iterable[Lesson],
    *,
    events: Sequence[Draft] = (),
    answer: Respond | None = None,
) -> list[Heuristic]:
    """Store lessons in one transaction with `events` and the response to a request.

    answer: makes the response, given the ids of the events that the lessons become. A lesson that
    was already learned from the same evidence changes nothing.
    """
    lessons = _without_circles(store, lessons)
    ids = dict.fromkeys(lesson.id for lesson in lessons)
    restore_heuristics(store, ids)
    until_first(lambda: store.commit(_to_learn(store, lessons, events, answer)))
    found = (find_heuristic(store, heuristic_id) for heuristic_id in ids)
    return [heuristic for heuristic in found if heuristic is not None]


def _without_circles(store: Store, lessons: Iterable[Lesson]) -> list[Lesson]:
    """Doubt each lesson that leads to where lessons that are told lead back from."""
    lessons = list(lessons)
    if not any(lesson.leads for lesson in lessons):
        return lessons
    ways: defaultdict[str, set[str]] = defaultdict(set)
    for _, known in every_lesson(store):
        if known.leads and known.is_told:
            ways[known.leads[0]].add(known.leads[1])
    found = []
    for lesson in lessons:
        before, after = lesson.leads or ("", "")
        leads_back = bool(lesson.leads) and before in _reached(ways, after)
        if lesson.leads and not leads_back:
            ways[before].add(after)
        doubt = "another lesson leads back from it" if leads_back else ""
        found.append(msgspec.structs.replace(lesson, doubt=lesson.doubt or doubt))
    return found


def _reached(ways: Mapping[str, set[str]], start: str) -> set[str]:
    reached, open_ends = {start}, [start]
    while open_ends:
        new = ways.get(open_ends.pop(), set()) - reached
        reached |= new
        open_ends += new
    return reached


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
    """Return the event's id, the same for the same lesson and evidence."""
    evidence = lesson.evidence
    if not evidence.trace:
        return new_id()
    content = msgspec.json.encode((lesson.id, evidence.trace, evidence.failed, evidence.worked))
    made = f"{lesson.id}-{hashlib.sha256(content).hexdigest()[:16]}"
    return f"{made}-accepted" if evidence.is_acceptance else made


def _parts(store: Store, heuristic_id: str, group: dict[str, Lesson]) -> Commit:
    """Make the part of the commit that is about one heuristic."""
    stream = heuristic_stream(heuristic_id)
    pos, _ = store.head(stream)
    use = use_of(store, heuristic_id)
    drafts = [_learned(event_id, lesson) for event_id, lesson in group.items()]
    newest = _newest(store, heuristic_id)
    event_id, lesson = min(group.items(), key=lambda one: bool(one[1].doubt))
    is_new = newest is None or (newest.body is None and newest.retired_at is None)
    is_clear = newest is not None and bool((newest.body or {}).get("doubt")) and not lesson.doubt
    stays = is_new or (is_clear and newest is not None and newest.retired_at is None)
    made, index = _artefact(heuristic_id, lesson, event_id), None if lesson.doubt else event_id
    return Commit(
        events=drafts,
        artefacts=[made] if stays else [],
        lessons={stream: index} if stays else {},
        records=[_record(heuristic_id, use.shown_by(group.values()))],
        expected_pos={stream: pos},
    )


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


def lesson_sources(store: Store, heuristic_ids: Iterable[str]) -> list[str]:
    """Return the events that these heuristics were learned in, with their evidence."""
    found = [store.artefact(KIND, heuristic_id) for heuristic_id in heuristic_ids]
    events = [event for one in found if one is not None for event in one.from_events]
    return list(dict.fromkeys(events))


def use_of(store: Store, heuristic_id: str) -> Use:
    """Return the counts of a heuristic."""
    for record in store.records(heuristic_stream(heuristic_id), USE):
        return msgspec.convert(record.body, Use)
    return Use()


def _newest(store: Store, heuristic_id: str) -> Artefact | None:
    newest = store.artefact(KIND, heuristic_id)
    return newest or next(reversed(list(store.artefacts(KIND, heuristic_id))), None)


def find_heuristic(store: Store, heuristic_id: str) -> Heuristic | None:
    """Find a heuristic by its id, also a retired one; None if there is none."""
    artefact = _newest(store, heuristic_id)
    return None if artefact is None or artefact.body is None else _heuristic(store, artefact)


def get_heuristic(
    store: Store, heuristic_id: str, *, subjects: Collection[str] | None = None
) -> Heuristic:
    """Return the heuristic with this id; NotFound if there is none.

    subjects: look only among those about one of these; "" stands for those about nobody.
    """
    found = find_heuristic(store, heuristic_id)
    if found is None or (subjects is not None and (found.lesson.subject or "") not in subjects):
        raise NotFound(
            f"no heuristic {heuristic_id!r}",
            fix="`em lessons list` shows their ids",
        )
    return found


class HeuristicFilter(TypedDict, total=False):
    """Which heuristics to list, and from where on: see `list_heuristics`."""

    retired: bool
    source_task: str | None
    subjects: Iterable[str] | None
    since: datetime | None
    until: datetime | None
    before: Cursor | None
    oldest: bool


def list_heuristics(
    store: Store,
    *,
    retired: bool = False,
    source_task: str | None = None,
    subjects: Iterable[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: Cursor | None = None,
    oldest: bool = False,
) -> Iterator[tuple[Cursor, Heuristic]]:
    """Iterate over heuristics, the newest first, each with the place where a list goes on after it.

    It reads those that are taken. retired: also those out of use. source_task, subjects: learned
    from this task, about one of these subjects. since, until: when they were stored as they are.
    before: go on behind this place. oldest: the oldest first instead.
    """
    query = SummaryQuery(
        noun="lesson",
        status=None if retired else IN_USE,
        name=source_task,
        subjects=None if subjects is None else list(subjects),
        since=since,
        until=until,
        beyond=before,
        oldest=oldest,
    )
    for row in store.summaries.read(query):
        found = find_heuristic(store, row.id)
        if found is not None and source_task in (None, found.lesson.source_task):
            yield row.cursor, found


class FoundHeuristics(NamedTuple):
    """A page of heuristics, the place of the first, and where to go on; None if it is the last."""

    heuristics: Sequence[Heuristic]
    first: Cursor | None
    further: Cursor | None


def find_heuristics(
    store: Store, *, limit: int, offset: int = 0, **chosen: Unpack[HeuristicFilter]
) -> FoundHeuristics:
    """Return a page of the heuristics that `list_heuristics` yields. It reads no others."""
    found = list(islice(list_heuristics(store, **chosen), offset, offset + limit + 1))
    shown = found[:limit]
    return FoundHeuristics(
        [one for _, one in shown],
        shown[0][0] if shown else None,
        shown[-1][0] if len(found) > limit else None,
    )


def count_heuristics(
    store: Store, *, source_task: str | None = None, subjects: Iterable[str] | None = None
) -> int:
    """Count the heuristics in use, up to as many as a list counts."""
    about = None if subjects is None else list(subjects)
    return store.summaries.count(
        SummaryQuery(noun="lesson", status=IN_USE, name=source_task, subjects=about)
    )


def every_heuristic(store: Store, *, retired: bool = False) -> Iterator[Heuristic]:
    """Iterate over the heuristics in use, sorted by id; with `retired` also the retired ones."""
    return (_heuristic(store, artefact) for artefact in _each(store, retired=retired))


def every_lesson(store: Store) -> Iterator[tuple[str, Lesson]]:
    """Iterate over the lessons in use with their ids. Cheaper than `every_heuristic`: no counts."""
    for artefact in _each(store, retired=False):
        yield artefact.name, msgspec.convert(artefact.body, Lesson)


def _each(store: Store, *, retired: bool) -> Iterator[Artefact]:
    """Iterate over the newest version of each heuristic that is to be shown."""
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
    """Return the events of a heuristic, oldest first, without erased ones."""
    events = store.read(EventQuery(stream=heuristic_stream(heuristic_id)))
    return [event for event in events if event.kind != "erased" and event.body is not None]


def learned_from(store: Store, heuristic_id: str) -> list[Lesson]:
    """Return the lesson each time it was learned, with its evidence."""
    return [
        msgspec.convert(event.body, Learned).lesson
        for event in history(store, heuristic_id)
        if event.kind == "heuristic_learned"
    ]


Change = Callable[[Heuristic], tuple[Draft, Use]]
"""Given a heuristic, returns the event to append and the new counts."""


def change_heuristic(
    store: Store, heuristic_id: str, become: Change, *, retire: bool = False
) -> None:
    """Append an event about a heuristic with its new counts; `retire` also takes it out of use."""

    def once() -> None:
        # Read the position first: if another writer comes after it, the commit is refused.
        pos, _ = store.head(heuristic_stream(heuristic_id))
        _change(store, *become(get_heuristic(store, heuristic_id)), pos, retire=retire)

    until_first(once)


def until_first(write: Callable[[], T]) -> T:
    """Call `write` again while another writer was first."""
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
    """Rebuild heuristics from the events that are left after some were erased; return how many."""
    ids: dict[str, None] = {}
    for start in range(0, len(erased), 500):
        for event in store.read(EventQuery(ids=erased[start : start + 500])):
            if event.kind == "heuristic_learned":
                ids[event.stream.removeprefix(HEURISTIC_PREFIX)] = None
    return sum(until_first(partial(_rebuild, store, one)) for one in ids)


def restore_heuristics(store: Store, heuristic_ids: Iterable[str] | None = None) -> int:
    """Make lessons from their events that have none yet, as after an import; return how many.

    heuristic_ids: only these; by default all that the log has events of.
    """
    if heuristic_ids is None:
        streams = store.streams(HEURISTIC_PREFIX)
        heuristic_ids = [stream.removeprefix(HEURISTIC_PREFIX) for stream in streams]
    missing = [one for one in heuristic_ids if _is_unmade(store, one)]
    return sum(until_first(partial(_rebuild, store, one)) for one in missing)


def _is_unmade(store: Store, heuristic_id: str) -> bool:
    has_events = store.head(heuristic_stream(heuristic_id))[0] > 0
    return has_events and _newest(store, heuristic_id) is None


def _rebuild(store: Store, heuristic_id: str) -> bool:
    pos, _ = store.head(heuristic_stream(heuristic_id))
    events = history(store, heuristic_id)
    left = [
        (event.id, msgspec.convert(event.body, Learned).lesson)
        for event in events
        if event.kind == "heuristic_learned"
    ]
    newest = _newest(store, heuristic_id)
    is_gone = newest is None or (newest.body is None and newest.retired_at is None)
    is_retired = any(event.kind == "heuristic_retired" for event in events)
    before = use_of(store, heuristic_id)
    counts = _counted(events) if before == Use() else before
    counts = msgspec.structs.replace(counts, learned=0, doubted=0)
    use = counts.shown_by(lesson for _, lesson in left)
    shown = sorted(left, key=lambda pair: bool(pair[1].doubt))[:1] if is_gone else []
    if not shown and use == before:
        return False
    told = [event_id for event_id, lesson in shown if not is_retired and not lesson.doubt]
    made = [_artefact(heuristic_id, lesson, event_id) for event_id, lesson in shown]
    store.commit(
        Commit(
            artefacts=[msgspec.structs.replace(one, retired=is_retired) for one in made],
            lessons={heuristic_stream(heuristic_id): event_id for event_id in told},
            records=[_record(heuristic_id, use)],
            expected_pos={heuristic_stream(heuristic_id): pos},
        )
    )
    return bool(made)


def _counted(events: Iterable[Event]) -> Use:
    """Count from its events how often a lesson was used, and how those runs ended."""
    used = [event for event in events if event.kind == "heuristic_used"]
    ends = [(event.body or {})["outcome"] for event in used]
    return Use(
        used=len(used),
        helped=ends.count("success"),
        hindered=ends.count("failure"),
        last_used=used[-1].recorded_at.isoformat() if used else "",
    )
