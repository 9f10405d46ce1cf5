"""Search over everything: subjects, traces, routines, runs, lessons and texts, in groups.

Each group is found where it is stored: runs and traces among their newest summaries, texts and
lessons in the index of words, the rest by name. So a search costs the same in a log of any size.
A group that was not searched to its end leads to the list, which goes on.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from litestar import Response, get

from em.heuristics.heuristic import find_heuristic
from em.log.event import HEURISTIC_PREFIX, TRACE_PREFIX, run_stream
from em.recall.search import LessonRecall, Recall
from em.runner.card import list_routines
from em.runner.history import RunKind, find_runs
from em.serve.auth import PAGES, Caller
from em.serve.pages.view import address, page, parameter, short
from em.serve.service import AnyRequest, Service, service_of
from em.state.subjects import find_subjects
from em.store.protocol import Passage, Within
from em.traces.catalogue import MOST_SCANNED, list_traces, summaries_of

BELOW_BOX = 5
"""Results of a group below the box in the header."""
ON_PAGE = 10
"""Results of a group on the page of a search."""
LONGEST_ID = 80
"""Characters of the longest words that may be the id of a run or a trace."""


class Hit(NamedTuple):
    """One result. note: what else tells it from others."""

    title: str
    address: str
    note: str = ""
    at: datetime | None = None


class HitGroup(NamedTuple):
    """Results of one kind. more: the address of the list that goes on, if there may be more."""

    name: str
    hits: Sequence[Hit]
    more: str = ""


class SiteSearch:
    """A search by one caller, who gets what the lists show them. most: results of a group."""

    def __init__(self, service: Service, caller: Caller, words: str, most: int) -> None:
        self._store, self._caller, self._words, self._most = service.store, caller, words, most
        self._may_be_id = len(words) <= LONGEST_ID and words.isprintable()

    def groups(self) -> list[HitGroup]:
        """Return the groups that have results."""
        parts: list[Callable[[], HitGroup]] = [self._subjects, self._traces]
        if self._caller.subjects is None:
            parts += [
                self._routines,
                lambda: self._runs("Runs", "routine", "/runs"),
                lambda: self._runs("Workflows", "workflow", "/workflows"),
            ]
        parts += [self._lessons, self._texts]
        return [group for find in parts if (group := find()).hits]

    def _group(
        self, name: str, hits: Iterable[Hit], more: str, *, is_cut: bool = False
    ) -> HitGroup:
        found = list(hits)
        more = more if is_cut or len(found) > self._most else ""
        return HitGroup(name, found[: self._most], more)

    def _subjects(self) -> HitGroup:
        names = islice(
            find_subjects(self._store, self._words, self._caller.subjects), self._most + 1
        )
        hits = [Hit(name, address("/state", subject=name)) for name in names]
        return self._group("Subjects", hits, address("/state", q=self._words))

    def _traces(self) -> HitGroup:
        found = list_traces(
            self._store,
            subjects=self._caller.subjects,
            task=self._words,
            limit=self._most + 1,
            scan=MOST_SCANNED,
        )
        named = summaries_of(self._store, [self._words]) if self._may_be_id else []
        seen = [one for one in named if self._caller.sees(one.subject)]
        hits = [
            Hit(short(one.title, 200), address("/trace", id=one.id), one.outcome, one.at)
            for one in (*seen, *found.traces)
        ]
        more = address("/traces", task=self._words)
        return self._group("Traces", hits, more, is_cut=found.older is not None)

    def _routines(self) -> HitGroup:
        hits = [
            Hit(one.name, address("/routine", ref=one.ref), short(one.about, 80), one.at)
            for one in list_routines(self._store, self._words)
        ]
        return self._group("Routines", hits, address("/routines", q=self._words))

    def _runs(self, name: str, kind: RunKind, path: str) -> HitGroup:
        found = find_runs(self._store, kind, words=self._words, limit=self._most + 1)
        hits = {
            one.run_id: Hit(
                one.stored or one.routine or one.run_id,
                address("/run", id=one.run_id),
                one.status.replace("needs_input", "needs an answer"),
                one.began,
            )
            for one in found.runs
        }
        if self._may_be_id:
            noun = "workflow" if kind == "workflow" else "run"
            for row in self._store.summaries.of([run_stream(self._words)]).values():
                if row.noun == noun:
                    hits[row.id] = Hit(row.name, address("/run", id=row.id), row.status, row.at)
        more = address(path, q=self._words)
        return self._group(name, hits.values(), more, is_cut=found.older is not None)

    def _lessons(self) -> HitGroup:
        search, hits = LessonRecall(self._store), []
        scopes: Sequence[str | None] = self._caller.lesson_subjects or [None]
        for subject in scopes:
            for found in search(self._words, Within(subject, lessons=True), self._most + 1):
                hits.append((found.score, found.passage.stream.removeprefix(HEURISTIC_PREFIX)))
        best = [lesson for _, lesson in sorted(hits, reverse=True)[: self._most + 1]]
        more = address("/lessons", task=self._words)
        return self._group("Lessons", map(self._lesson, best), more)

    def _lesson(self, lesson_id: str) -> Hit:
        found = find_heuristic(self._store, lesson_id)
        lesson = None if found is None else found.lesson
        title = lesson_id if lesson is None else f"{lesson.trigger} → {lesson.action}"
        return Hit(short(title, 200), address("/lesson", id=lesson_id))

    def _texts(self) -> HitGroup:
        """Find texts by their words alone: embedding each keystroke would be slow."""
        search, best = Recall(self._store), list[Passage]()
        for subject in [None] if self._caller.subjects is None else sorted(self._caller.subjects):
            best += search.recall(self._words, Within(subject), self._most + 1)
        best.sort(key=lambda one: -one.score)
        return self._group("Texts", map(_text, best), address("/recall", q=self._words))


def _text(passage: Passage) -> Hit:
    """Return a passage as a result: it leads to its trace, or to its event."""
    if passage.stream.startswith(TRACE_PREFIX):
        leads_to = address("/trace", id=passage.stream.removeprefix(TRACE_PREFIX))
    else:
        leads_to = address("/event", id=passage.event_id)
    return Hit(short(passage.text, 200), leads_to, passage.subject or "", passage.at)


def _groups(request: AnyRequest, most: int) -> tuple[str, list[HitGroup]]:
    service = service_of(request)
    caller = service.caller(request)
    words = parameter(request, "q")
    return words, SiteSearch(service, caller, words, most).groups() if words else []


@get(f"{PAGES}/search", include_in_schema=False, sync_to_thread=True)
def get_search(request: AnyRequest) -> Response[str]:
    """Show what a search finds, in groups; each leads to its list, which goes on."""
    words, groups = _groups(request, ON_PAGE)
    return page(request, "search.html", sought=words, groups=groups)


@get(f"{PAGES}/search/found", include_in_schema=False, sync_to_thread=True)
def get_found(request: AnyRequest) -> Response[str]:
    """Return the results as options of a list, for the script of the box in the header."""
    words, groups = _groups(request, BELOW_BOX)
    return page(request, "found.html", sought=words, groups=groups)


HANDLERS = [get_search, get_found]
