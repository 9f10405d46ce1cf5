"""Heuristics of a memory as one object: learn, brief, say what became of it, look after it."""

from collections.abc import Iterator, Sequence

import msgspec

from em.errors import InputError
from em.heuristics import health
from em.heuristics.brief import brief
from em.heuristics.heuristic import (
    Briefing,
    Heuristic,
    Lesson,
    Respond,
    every_heuristic,
    every_lesson,
    get_heuristic,
    learn,
    learned_from,
)
from em.heuristics.reflection import differences, mine, reflect
from em.heuristics.relevance import PASSED_OVER, Search, Wanted
from em.llm.client import LlmClient
from em.log.event import Draft
from em.recall.embed import Embed, Progress
from em.recall.search import LessonRecall
from em.settings import Settings
from em.store import redactor_of
from em.store.protocol import Store
from em.traces.catalogue import get_traces, list_traces
from em.traces.trace import KeptTrace, Outcome, Trace, as_kept, trace_events
from em.values.ids import new_id

ATTEMPTS_COMPARED = 5_000
"""How many of the newest traces are looked at for other attempts at the same task."""


class Heuristics:
    """The lessons in a store.

    embed: an embedder, so that recall finds lessons by their meaning too.
    search: where candidates come from, if not from recall.
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
        """Give every lesson its vector; nothing is done where there is no embedder."""
        self._recall.embed_all(progress)

    def reflect(
        self,
        trace: Trace | str | Sequence[str],
        client: LlmClient | None = None,
        *,
        subject: str | None = None,
    ) -> list[Heuristic]:
        """Learn from a trace, which is kept too, or from traces by their ids; the lessons, kept."""
        if isinstance(trace, Trace):
            kept, events = self.to_keep(trace, subject=subject)
            return self.keep(self.lessons_of(kept, client), events=events)
        ids = [trace] if isinstance(trace, str) else trace
        return self.keep(self.lessons_in(ids, client))

    def lessons_in(self, trace_ids: Sequence[str], client: LlmClient | None = None) -> list[Lesson]:
        """What can be learned from traces of this memory; nothing is kept."""
        traces = get_traces(self._store, trace_ids)
        lessons = [lesson for kept in traces for lesson in _of_one(kept, client)]
        return [*lessons, *differences(self._same_tasks(traces))]

    def to_keep(self, trace: Trace, *, subject: str | None = None) -> tuple[KeptTrace, list[Draft]]:
        """A trace without its secrets as it will be kept, and the events that keep it."""
        settings = self._settings or Settings.load()
        clean = msgspec.convert(redactor_of(settings).value(msgspec.to_builtins(trace)), Trace)
        trace_id = new_id()
        events = trace_events(clean, trace_id, known_ids=True, subject=subject)
        return as_kept(clean, trace_id, subject), events

    def lessons_of(self, kept: KeptTrace, client: LlmClient | None = None) -> list[Lesson]:
        """What can be learned from a trace, beside the others of this memory; nothing is kept."""
        return [*_of_one(kept, client), *differences(self._same_tasks([kept]))]

    def keep(
        self,
        lessons: Sequence[Lesson],
        *,
        events: Sequence[Draft] = (),
        answer: Respond | None = None,
    ) -> list[Heuristic]:
        """Keep lessons; what says the same as one that is there becomes evidence for it."""
        for lesson in lessons:
            if not lesson.trigger.strip() or not lesson.action.strip():
                raise InputError("a lesson has a trigger and an action", place="trigger, action")
        known = self.known(lessons)
        return learn(self._store, known, events=events, answer=answer)

    def known(self, lessons: Sequence[Lesson]) -> list[Lesson]:
        """The lessons as they will be kept: one that is there in other words is that one."""
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
        """A prompt section with the best lessons for a task; empty where none is relevant."""
        wanted = Wanted(task, tools, subject)
        return brief(self._store, wanted, k=k, tokens=tokens, search=self._search, client=client)

    def feedback(
        self, heuristic_ids: str | Sequence[str], outcome: Outcome, *, task: str = ""
    ) -> list[Heuristic]:
        """Say how a run ended that these were handed to; one that goes along with failures ends."""
        ids = [heuristic_ids] if isinstance(heuristic_ids, str) else heuristic_ids
        return health.feedback(self._store, ids, outcome, task=task)

    def get(self, heuristic_id: str) -> Heuristic:
        """The heuristic of that id."""
        return get_heuristic(self._store, heuristic_id)

    def every(self, *, retired: bool = False) -> Iterator[Heuristic]:
        """Every heuristic in use, by its id; with `retired` also the others."""
        return every_heuristic(self._store, retired=retired)

    def every_lesson(self) -> Iterator[tuple[str, Lesson]]:
        """The lessons in use by their ids, without what became of them."""
        return every_lesson(self._store)

    def evidence(self, heuristic_id: str) -> list[Lesson]:
        """Each time a heuristic was learned, with its evidence."""
        return learned_from(self._store, heuristic_id)

    def contradictions(self, heuristic: Heuristic) -> list[health.Contradiction]:
        """The lessons that say the contrary of this one."""
        return health.contradictions(self._store, heuristic)

    def retire(self, heuristic_id: str, reason: str = "") -> Heuristic:
        """Take a heuristic out of use."""
        return health.retire(self._store, heuristic_id, reason)

    def merge(self, keep: str, others: Sequence[str]) -> Heuristic:
        """Put heuristics together under the words of the first."""
        return health.merge(self._store, keep, others)

    def _same_tasks(self, traces: Sequence[KeptTrace]) -> list[KeptTrace]:
        """These traces, and the other attempts of their subjects at the same tasks."""
        tasks = {
            (kept.trace.mission.goal, kept.subject)
            for kept in traces
            if kept.trace.outcome != "unknown"
        }
        found = {kept.id: kept for kept in traces}
        for one in reversed(list_traces(self._store, limit=ATTEMPTS_COMPARED).traces):
            if (one.goal, one.subject) in tasks and one.id not in found:
                found[one.id] = get_traces(self._store, [one.id])[0]
        return list(found.values())

    def every_trace(self) -> list[str]:
        """The ids of the traces there are, oldest first."""
        return [one.id for one in reversed(list_traces(self._store).traces)]


def _of_one(kept: KeptTrace, client: LlmClient | None) -> list[Lesson]:
    said = [] if client is None else reflect(kept, client)
    return [*mine(kept), *said]
