"""The lessons of a store as one object: reflect, brief, record feedback, maintain.

Memory delegates to `Heuristics`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from em.errors import InputError
from em.heuristics import health
from em.heuristics.brief import brief
from em.heuristics.heuristic import (
    Briefing,
    Heuristic,
    Lesson,
    Respond,
    every_heuristic,
    get_heuristic,
    learn,
    learned_from,
    restore_heuristics,
)
from em.heuristics.reflection import differences, mine, reflect
from em.heuristics.relevance import PASSED_OVER, Search, Wanted
from em.llm.client import LlmClient
from em.log.event import Draft
from em.recall.embed import Embed, Progress
from em.recall.search import LessonRecall
from em.redaction.masker import without_secrets
from em.settings import Settings
from em.store import redactor_of
from em.store.protocol import Store
from em.traces.catalogue import get_traces, list_traces, trace_ids
from em.traces.outcomes import outcome_of_kept
from em.traces.trace import KeptTrace, Outcome, Trace, as_kept, trace_events
from em.values.ids import new_id

ATTEMPTS_COMPARED = 5_000
"""How many of the newest traces are searched for other attempts at the same task."""


class Heuristics:
    """The lessons in a store.

    embed: an embedder, to find lessons by meaning too. search: replaces recall as the source of
    candidates.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings | None = None,
        *,
        embed: Embed | None = None,
        search: Search | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._recall = LessonRecall(store, embed, PASSED_OVER)
        self._search = search or self._recall

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
            lessons += _of_one(stored, client)
            progress(1)
        return [*lessons, *differences(self._same_tasks(traces))]

    def to_keep(self, trace: Trace, *, subject: str | None = None) -> tuple[KeptTrace, list[Draft]]:
        """Redact a trace; return it as it will be stored, and the events to store."""
        settings = self._settings or Settings.load()
        clean = without_secrets(trace, redactor_of(settings))
        trace_id = new_id()
        events = trace_events(clean, trace_id, known_ids=True, subject=subject)
        return as_kept(clean, trace_id, subject), events

    def lessons_of(self, stored: KeptTrace, client: LlmClient | None = None) -> list[Lesson]:
        """Find the lessons of a trace, alone and beside stored traces, without storing them."""
        return [*_of_one(stored, client), *differences(self._same_tasks([stored]))]

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
        wanted = Wanted(task, tools, subject)
        return brief(self._store, wanted, k=k, tokens=tokens, search=self._search, client=client)

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

    def contradictions(self, heuristic: Heuristic) -> list[health.Contradiction]:
        """Return the lessons in use that contradict this one."""
        return health.contradictions(self._store, heuristic)

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

    def _same_tasks(self, traces: Sequence[KeptTrace]) -> list[KeptTrace]:
        """Add the other attempts of the same subjects at the same tasks."""
        tasks = {
            (stored.trace.mission.goal, stored.subject)
            for stored in traces
            if outcome_of_kept(stored) != "unknown"
        }
        found = {stored.id: stored for stored in traces}
        for one in reversed(list_traces(self._store, limit=ATTEMPTS_COMPARED).traces):
            if (one.goal, one.subject) in tasks and one.id not in found:
                found[one.id] = get_traces(self._store, [one.id])[0]
        return list(found.values())

    def every_trace(self) -> list[str]:
        """The ids of the traces there are, oldest first."""
        return trace_ids(self._store)


def _of_one(stored: KeptTrace, client: LlmClient | None) -> list[Lesson]:
    by_model = [] if client is None else reflect(stored, client)
    return [*mine(stored), *by_model]
