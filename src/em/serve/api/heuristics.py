"""HTTP API of heuristics: store, find, brief, reflect, and the seeded benchmark."""

import threading
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter

from em.errors import InputError
from em.heuristics.benchmark import Evaluation, evaluate
from em.heuristics.heuristic import (
    Heuristic,
    How,
    Lesson,
    Polarity,
    Ranked,
    Use,
    count_heuristics,
    find_heuristics,
)
from em.log.summary import Cursor
from em.serve.api.shapes import (
    Key,
    Limit,
    Moment,
    Name,
    Offset,
    Page,
    Pagination,
    Place,
    Text,
    Words,
    acts,
    acts_once,
    errors,
    fill,
    reads,
)
from em.serve.api.traces import TrajectoryIn, to_trace
from em.serve.auth import Caller
from em.serve.service import AnyRequest, Pending, Service, service_of
from em.traces.catalogue import get_traces
from em.traces.trace import Outcome, Source
from em.values.times import moment

TopK = Annotated[int, QueryParameter(ge=1, le=50, description="Return at most this many lessons.")]
Subject = Annotated[
    str | None, QueryParameter(max_length=512, description="The subject to include.")
]


class HeuristicIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lesson: when (trigger), do (action), because (analysis)."""

    trigger: Text
    action: Text
    analysis: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    polarity: Polarity = "success"
    tools: list[Name] = []
    domain: Annotated[str, msgspec.Meta(max_length=512)] = ""
    source_task: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    subject: Name | None = None
    from_events: Annotated[
        list[Name], msgspec.Meta(max_length=100, description="Ids of the events that show it.")
    ] = []


class HeuristicOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A heuristic: its lesson and its use, flat, without the key that only finds duplicates.

    `doubt` says why agents are not told; it is empty if they are. `source` is the least trusted of
    what it comes from.
    `use`, `created_at` and `retired` are there once it is stored, `score` and `reasons` where it
    was found for a task.
    """

    id: str
    trigger: str
    action: str
    analysis: str
    polarity: Polarity
    how: How
    tools: Sequence[str]
    domain: str
    subject: str | None
    source_task: str
    error: str
    program: str
    doubt: str
    source: Source
    from_events: Sequence[str]
    use: Use | None = None
    created_at: datetime | None = None
    retired: bool | None = None
    score: float | None = None
    reasons: dict[str, float] | None = None

    @classmethod
    def of_lesson(cls, lesson: Lesson, **more: Any) -> "HeuristicOut":
        """Show a lesson that may not be stored yet."""
        return fill(cls, lesson, from_events=lesson.evidence.event_ids, **more)

    @classmethod
    def of(cls, one: Heuristic, **more: Any) -> "HeuristicOut":
        """Show a stored heuristic."""
        known = {"id": one.id, "use": one.use, "created_at": one.at, "retired": one.retired}
        return cls.of_lesson(one.lesson, **known, **more)

    @classmethod
    def of_ranked(cls, one: Ranked) -> "HeuristicOut":
        """Show a heuristic that was found for a task."""
        return cls.of(one.heuristic, score=one.score, reasons=one.reasons)


class BriefingOut(msgspec.Struct, frozen=True):
    """A prompt section and the heuristics in it. `notes`: what was skipped, and why."""

    text: str
    heuristics: Sequence[HeuristicOut]
    notes: Sequence[str]


class FeedbackIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of a run that used a heuristic."""

    outcome: Outcome
    task: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    subject: Name | None = None


class RetireIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a heuristic is retired."""

    reason: Annotated[str, msgspec.Meta(max_length=2_000)] = ""


class ReflectIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The trajectory to learn from, given or stored. `llm`: also ask the server's model."""

    trajectory: TrajectoryIn | None = None
    trajectory_id: str | None = None
    store: bool = True
    llm: bool = False


class Reflected(msgspec.Struct, frozen=True):
    """The lessons that were learned. `trajectory_id` is empty if nothing was stored."""

    heuristics: Sequence[HeuristicOut]
    trajectory_id: str
    stored: bool


@reads("/heuristics", "heuristics")
def list_heuristics(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    source_task: Words = None,
    task: Words = None,
    top_k: TopK = 5,
    subject: Subject = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Place = None,
) -> Page[HeuristicOut]:
    """List the heuristics in use, the newest first; with `task`, those that fit it, best first."""
    service = service_of(request)
    caller = service.caller(request)
    if subject is not None:
        caller.must_see(subject)
    if task is not None:
        best = service.memory.brief(task, top_k, subject=subject).heuristics
        ranked = [HeuristicOut.of_ranked(one) for one in best]
        return Page(ranked, Pagination(top_k, 0, len(ranked)))
    about = caller.lesson_subjects if subject is None else [subject]
    found = find_heuristics(
        service.store,
        limit=limit,
        offset=offset,
        source_task=source_task,
        subjects=about,
        since=None if since is None else moment(since, "since"),
        until=None if until is None else moment(until, "until"),
        before=Cursor.of(cursor),
    )
    total = count_heuristics(service.store, source_task=source_task, subjects=about)
    further = None if found.further is None else str(found.further)
    shown = [HeuristicOut.of(one) for one in found.heuristics]
    return Page(shown, Pagination(limit, offset, total, further))


@get("/heuristics/{heuristic_id:str}", responses=errors(404), tags=["heuristics"])
async def get_heuristic(request: AnyRequest, heuristic_id: FromPath[str]) -> HeuristicOut:
    """Return one heuristic, in use or retired."""
    service = service_of(request)
    return HeuristicOut.of(await service.look_up(lambda: _find(service, request, heuristic_id)))


def _find(service: Service, request: AnyRequest, heuristic_id: str) -> Heuristic:
    subjects = service.caller(request).lesson_subjects
    return service.memory.heuristics.get(heuristic_id, subjects=subjects)


@acts_once("/heuristics", "heuristics")
async def post_heuristic(
    request: AnyRequest, data: JSONBody[HeuristicIn], key: Key = None
) -> Response[HeuristicOut]:
    """Store a lesson. If the same lesson is stored already, this adds evidence to it."""
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(data.subject)

    def work(data: HeuristicIn, pending: Pending) -> None:
        book = service.memory.heuristics
        fields = msgspec.structs.asdict(data)
        event_ids = fields.pop("from_events")
        lesson = Lesson(**fields, source="agent")
        lesson = book.with_evidence(lesson, event_ids, caller.sees, "from_events")
        (known,) = book.known([lesson])
        answered = pending.answer(HeuristicOut.of_lesson(known))
        if answered is None:
            book.keep([known])
            return

        def answer(event_ids: Any) -> Any:
            return msgspec.structs.replace(answered, from_events=tuple(event_ids))

        book.keep([known], answer=answer)

    return await service.carry_out(request, key, data, work)


@acts("/heuristics/{heuristic_id:str}/feedback", "heuristics", 404, 409)
def post_feedback(
    request: AnyRequest, heuristic_id: FromPath[str], data: JSONBody[FeedbackIn]
) -> HeuristicOut:
    """Record the outcome of a run that used a heuristic. Its rank follows its outcomes."""
    service = _may_change(request, heuristic_id)
    if data.subject is not None:
        service.caller(request, "write").must_see(data.subject)
    (found,) = service.memory.feedback(
        [heuristic_id], data.outcome, task=data.task, subject=data.subject
    )
    return HeuristicOut.of(found)


@acts("/heuristics/{heuristic_id:str}/accept", "heuristics", 404, 409)
def post_accept(request: AnyRequest, heuristic_id: FromPath[str]) -> HeuristicOut:
    """Accept a lesson in doubt, which a person has read: briefings then show it to agents."""
    service = _may_change(request, heuristic_id)
    return HeuristicOut.of(service.memory.heuristics.accept(heuristic_id))


@acts("/heuristics/{heuristic_id:str}/retire", "heuristics", 404, 409)
def post_retire(
    request: AnyRequest, heuristic_id: FromPath[str], data: JSONBody[RetireIn]
) -> HeuristicOut:
    """Retire a heuristic. Its history remains readable."""
    service = _may_change(request, heuristic_id)
    return HeuristicOut.of(service.memory.heuristics.retire(heuristic_id, data.reason))


def _may_change(request: AnyRequest, heuristic_id: str) -> Service:
    """Return the service if the caller may write about the subject of a heuristic."""
    service = service_of(request)
    service.caller(request, "write").must_see(_find(service, request, heuristic_id).lesson.subject)
    return service


@reads("/brief", "heuristics")
def get_brief(
    request: AnyRequest,
    task: Annotated[str, QueryParameter(max_length=2_000)],
    k: TopK = 5,
    tokens: Annotated[int | None, QueryParameter(ge=0, le=1_000_000)] = None,
    tools: Annotated[
        list[str] | None, QueryParameter(description="Names of the tools in use.")
    ] = None,
    subject: Subject = None,
) -> BriefingOut:
    """Return a prompt section with the best lessons for a task; empty if none fits."""
    service = service_of(request)
    caller = service.caller(request)
    if subject is not None:
        caller.must_see(subject)
    briefing = service.memory.brief(task, k, tokens, tools=tools, subject=subject)
    found = [HeuristicOut.of_ranked(one) for one in briefing.heuristics]
    return BriefingOut(briefing.text, found, briefing.notes)


_LOOKED_AT = ResponseSpec(Reflected, generate_examples=False, description="Nothing was stored.")


@acts_once("/reflect", "heuristics", 404, 502, more={200: _LOOKED_AT})
async def post_reflect(
    request: AnyRequest, data: JSONBody[ReflectIn], key: Key = None
) -> Response[Reflected]:
    """Learn lessons from a trajectory. If the model fails, nothing is stored."""
    service = service_of(request)
    caller = service.caller(request, "write")
    if (data.trajectory is None) == (data.trajectory_id is None):
        raise InputError(
            "give either `trajectory` or `trajectory_id`", place="trajectory, trajectory_id"
        )
    if data.trajectory is not None:
        caller.must_see(data.trajectory.subject)
    return await service.carry_out(
        request, key, data, lambda data, pending: _reflect(service, caller, data, pending)
    )


def _reflect(service: Service, caller: Caller, data: ReflectIn, pending: Pending) -> None:
    book = service.memory.heuristics
    client = service.model() if data.llm else None
    if data.trajectory is not None:
        trace = to_trace(data.trajectory)
        stored, events = book.to_keep(trace, subject=data.trajectory.subject)
    else:
        given = [data.trajectory_id or ""]
        (stored,) = get_traces(service.store, given, subjects=caller.subjects)
        events = []
    lessons = book.known(book.lessons_of(stored, client))
    shown = {lesson.id: HeuristicOut.of_lesson(lesson) for lesson in lessons}
    trace_id = stored.id if data.store or not events else ""
    out = Reflected(list(shown.values()), trace_id, data.store)
    evidence = [event for lesson in lessons for event in lesson.evidence.event_ids]
    if not data.store:
        # What is only looked at has no events: with no subject either, nothing could forget it.
        unstored = {draft.id for draft in events}
        is_nobodys = bool(events) and stored.subject is None
        known = () if is_nobodys else (*stored.event_ids, *evidence)
        sources = (event for event in known if event not in unstored)
        pending.finish(service.store, out, 200, sources)
        return
    answered = pending.answer(out, 201, tuple(dict.fromkeys([*stored.event_ids, *evidence])))
    if answered is not None:
        book.keep(lessons, events=events, answer=lambda _ids: answered)
    elif lessons or events:
        book.keep(lessons, events=events)


_one_at_a_time = threading.Lock()


@lru_cache(maxsize=8)
def _evaluated(seed: int, tasks: int) -> Evaluation:
    return evaluate(seed, tasks)


@reads("/evaluate", "heuristics")
def get_evaluate(
    request: AnyRequest,
    seed: Annotated[int, QueryParameter(ge=0, le=1_000)] = 0,
    tasks: Annotated[int, QueryParameter(ge=1, le=300)] = 100,
) -> Evaluation:
    """Run the seeded retrieval benchmark in a temporary store. The memory is not touched."""
    service_of(request).caller(request)
    with _one_at_a_time:
        return _evaluated(seed, tasks)


HANDLERS = [
    list_heuristics,
    get_heuristic,
    post_heuristic,
    post_feedback,
    post_accept,
    post_retire,
    get_brief,
    post_reflect,
    get_evaluate,
]
