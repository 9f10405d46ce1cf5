"""The lessons of a store as one object: reflect, brief, record feedback, maintain.

Memory delegates to `Heuristics`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from em.compiler.calls import TracedCall, calls_of
from em.errors import InputError
from em.heuristics import health
from em.heuristics.brief import brief
from em.heuristics.failure import SessionWords, session_of, shape_of_call
from em.heuristics.heuristic import (
    ACCEPTED,
    FROM_THE_WEB,
    Briefing,
    Evidence,
    Heuristic,
    Lesson,
    Respond,
    every_heuristic,
    get_heuristic,
    goal_text,
    learn,
    learned_from,
    restore_heuristics,
)
from em.heuristics.reflection import call_ids, mine, reflect
from em.heuristics.relevance import TaskAtHand
from em.llm.client import LlmClient
from em.log.event import TRACE_PREFIX, Draft, Event, EventQuery
from em.recall.embed import Embed, Progress
from em.recall.search import LessonRecall
from em.redaction.masker import without_secrets
from em.settings import Settings
from em.store import redactor_of
from em.store.protocol import Store
from em.traces.catalogue import get_traces, trace_ids
from em.traces.trace import KeptTrace, Outcome, Source, Trace, as_kept, least_trusted, trace_events
from em.values.times import new_id

Sees = Callable[[str | None], bool]


class Heuristics:
    """The lessons in a store.

    embed: an embedder, to find lessons by meaning too.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        *,
        embed: Embed | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._recall = LessonRecall(store, embed)

    def embed_all(self, progress: Progress | None = None) -> None:
        """Compute the missing vectors of lessons; does nothing without an embedder."""
        self._recall.embed_all(progress)

    def reflect(
        self,
        trace: Trace | str | Sequence[str],
        client: LlmClient | None = None,
        *,
        subject: str | None = None,
    ) -> list[Heuristic]:
        """Learn from a new trace, which is stored too, or from stored traces."""
        if isinstance(trace, Trace):
            stored, events = self.to_keep(trace, subject=subject)
            return self.keep(self.lessons_of(stored, client), events=events)
        ids = [trace] if isinstance(trace, str) else trace
        return self.keep(self.lessons_in(ids, client))

    def lessons_in(
        self,
        trace_ids: Sequence[str],
        client: LlmClient | None = None,
        *,
        progress: Callable[[int], None] = lambda _count: None,
    ) -> list[Lesson]:
        """Find the lessons of stored traces without storing them.

        progress: called with 1 for each trace that was read.
        """
        traces = get_traces(self._store, trace_ids)
        lessons: list[Lesson] = []
        for stored in traces:
            lessons += self.lessons_of(stored, client)
            progress(1)
        return lessons

    def to_keep(self, trace: Trace, *, subject: str | None = None) -> tuple[KeptTrace, list[Draft]]:
        """Redact a trace; return it as it will be stored, and the events to store."""
        settings = self._settings or Settings.load()
        clean = without_secrets(trace, redactor_of(settings))
        trace_id = new_id()
        events = trace_events(clean, trace_id, known_ids=True, subject=subject)
        return as_kept(clean, trace_id, subject), events

    def lessons_of(self, stored: KeptTrace, client: LlmClient | None = None) -> list[Lesson]:
        """Find the lessons of a trace without storing them."""
        return [*mine(stored), *(() if client is None else reflect(stored, client))]

    def keep(
        self,
        lessons: Sequence[Lesson],
        *,
        events: Sequence[Draft] = (),
        answer: Respond | None = None,
    ) -> list[Heuristic]:
        """Store lessons. One that says the same as a stored lesson becomes evidence for it."""
        for lesson in lessons:
            if not lesson.trigger.strip() or not lesson.action.strip():
                raise InputError("a lesson needs a trigger and an action", place="trigger, action")
        known = self.known(lessons)
        return learn(self._store, known, events=events, answer=answer)

    def lesson(
        self,
        when: str,
        do: str,
        because: str = "",
        *,
        evidence: Sequence[str] = (),
        subject: str | None = None,
        task: str = "",
        source: Source = "own",
        sees: Sees = lambda _subject: True,
    ) -> Heuristic:
        """Store a lesson in words. evidence: ids of the events that show it.

        source: who says it. sees: tells whether they may see what is about a subject.
        """
        lesson = Lesson(
            trigger=when,
            action=do,
            analysis=because,
            subject=subject,
            source_task=goal_text(task),
            source=source,
        )
        (kept,) = self.keep([self.with_evidence(lesson, evidence, sees)])
        return kept

    def with_evidence(
        self, lesson: Lesson, event_ids: Sequence[str], sees: Sees, place: str = "evidence"
    ) -> Lesson:
        """Return a lesson with events that show it: about its subject or nobody, and to be seen.

        If one is a call that failed, the lesson is about that failure of its tool.
        """
        shown = self.check_evidence(event_ids, lesson.subject, sees, place)
        traces = dict.fromkeys(
            one.stream.removeprefix(TRACE_PREFIX)
            for one in shown
            if one.stream.startswith(TRACE_PREFIX)
        )
        failed: dict[str, tuple[TracedCall, SessionWords]] = {}
        found = get_traces(self._store, [*traces]) if traces else []
        origins = {kept.trace.origin for kept in found}
        for kept in found:
            calls, _ = calls_of(kept.trace, {}, as_made=True)
            session = session_of(kept.trace, calls)
            pairs = zip(call_ids(kept), calls, strict=True)
            failed |= {event_id: (call, session) for event_id, call in pairs if call.failed}
        # Nobody's event says by itself whether it went wrong: then the lesson does.
        against = [one.id for one in shown if one.id in failed]
        if lesson.polarity == "failure" and not against:
            against = [one.id for one in shown]
        made = msgspec.structs.replace(
            lesson,
            doubt=FROM_THE_WEB if origins == {"web"} else "",
            source=least_trusted([lesson.source, *origins]),
            evidence=Evidence(
                failed=against,
                worked=[one.id for one in shown if one.id not in against],
            ),
        )
        if not against or against[0] not in failed or failed[against[0]][0].is_udf:
            return made
        call, session = failed[against[0]]
        return msgspec.structs.replace(
            made,
            tools=[*made.tools] or [call.name],
            program=call.name,
            error=shape_of_call(call, session),
        )

    def check_evidence(
        self,
        event_ids: Sequence[str],
        subject: str | None,
        sees: Sees,
        place: str = "evidence",
    ) -> list[Event]:
        """Return these events; InputError if one isn't there, or is not for a lesson about this."""
        query = EventQuery(ids=list(event_ids))
        found = {event.id: event for event in self._store.read(query)} if event_ids else {}
        for event_id in event_ids:
            event = found.get(event_id)
            is_there = event is not None and event.body is not None and sees(event.subject)
            if event is None or not is_there or event.subject not in (None, subject):
                raise InputError(
                    f"there is no event {event_id!r} about {subject or 'everybody'}",
                    place=place,
                    fix="use ids of events about the lesson's subject, or none",
                )
        return [found[event_id] for event_id in event_ids]

    def known(self, lessons: Sequence[Lesson]) -> list[Lesson]:
        """Replace lessons by the stored ones that say the same in other words."""
        return health.without_duplicates(self._store, lessons)

    def brief(
        self,
        task: str,
        k: int = 5,
        tokens: int | None = None,
        *,
        tools: Sequence[str] | None = None,
        subject: str | None = None,
        client: LlmClient | None = None,
    ) -> Briefing:
        """Write a briefing with the best lessons for a task; empty if none is relevant."""
        wanted = TaskAtHand(task, tools, subject)
        return brief(self._store, wanted, k=k, tokens=tokens, search=self._recall, client=client)

    def feedback(
        self,
        heuristic_ids: str | Sequence[str],
        outcome: Outcome,
        *,
        task: str = "",
        subject: str | None = None,
    ) -> list[Heuristic]:
        """Record a run's outcome for these lessons. Lessons whose runs keep failing are retired."""
        ids = [heuristic_ids] if isinstance(heuristic_ids, str) else heuristic_ids
        return health.feedback(self._store, ids, outcome, task=task, subject=subject)

    def note_told(
        self, session: str, heuristic_ids: Iterable[str], trace_ids: Sequence[str]
    ) -> None:
        """Store which lessons a session with these traces was told, until it is judged."""
        told = health.LessonsTold(sorted(heuristic_ids), trace_ids)
        health.note_told(self._store, session, told)

    def judge_session(self, session: str, trace_ids: Sequence[str]) -> dict[str, Outcome]:
        """Judge the lessons that a session was told, once. trace_ids: those of its traces."""
        told = health.take_told(self._store, session)
        return self.judge(trace_ids or told.traces, told.lessons)

    def judge(self, trace_ids: Sequence[str], heuristic_ids: Collection[str]) -> dict[str, Outcome]:
        """Record for the lessons that a session was told whether they helped in it."""
        traces = get_traces(self._store, trace_ids) if heuristic_ids else []
        found = health.judged(self._store, traces, heuristic_ids)
        for heuristic_id, outcome in found.items():
            health.feedback(self._store, [heuristic_id], outcome, trace=traces[0].id)
        return found

    def get(self, heuristic_id: str, *, subjects: Collection[str] | None = None) -> Heuristic:
        """Return the heuristic with this id; NotFound if there is none.

        subjects: look only among those about one of these; "" stands for those about nobody.
        """
        return get_heuristic(self._store, heuristic_id, subjects=subjects)

    def every(self, *, retired: bool = False) -> Iterator[Heuristic]:
        """Iterate over the heuristics in use by id; with `retired` also the retired ones."""
        return every_heuristic(self._store, retired=retired)

    def evidence(self, heuristic_id: str) -> list[Lesson]:
        """Return the lesson each time it was learned, with its evidence."""
        return learned_from(self._store, heuristic_id)

    def accept(self, heuristic_id: str) -> Heuristic:
        """Let agents be told a lesson that a person has read, and nobody else vouches for."""
        lesson = self.get(heuristic_id).lesson
        if lesson.doubt:
            evidence = msgspec.structs.replace(lesson.evidence, note=ACCEPTED)
            learn(self._store, [msgspec.structs.replace(lesson, doubt="", evidence=evidence)])
        return self.get(heuristic_id)

    def retire(self, heuristic_id: str, reason: str = "") -> Heuristic:
        """Retire a heuristic: it stays in the log, and is not used any more."""
        return health.retire(self._store, heuristic_id, reason)

    def retire_outdated(self) -> list[Heuristic]:
        """Retire the lessons that were mined by older rules."""
        old = [one.id for one in self.every() if one.lesson.is_outdated]
        return [self.retire(heuristic_id, "mined by older rules") for heuristic_id in old]

    def restore(self) -> int:
        """Make lessons again from the log that an import brought; return how many."""
        return restore_heuristics(self._store)

    def merge(self, keep: str, others: Sequence[str]) -> Heuristic:
        """Merge heuristics: all evidence goes to `keep`, the others are retired."""
        return health.merge(self._store, keep, others)

    def every_trace(self) -> list[str]:
        """The ids of the traces there are, oldest first."""
        return trace_ids(self._store)
