"""HTTP API of heuristics: store, find, brief, reflect, and the seeded benchmark."""

import threading
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter

from em.errors import InputError
from em.heuristics.benchmark import Evaluation, evaluate
from em.heuristics.heuristic import Heuristic, Lesson, count_heuristics, find_heuristics
from em.log.summary import Cursor
from em.serve.api.shapes import (
    BriefingOut,
    FeedbackIn,
    HeuristicIn,
    HeuristicOut,
    Heuristics,
    Pagination,
    Reflected,
    ReflectIn,
    RetireIn,
)
from em.serve.api.traces import to_trace
from em.serve.auth import Caller
from em.serve.service import (
    AnyRequest,
    Key,
    Limit,
    Moment,
    Offset,
    Pending,
    Place,
    Service,
    errors,
    service_of,
)
from em.traces.catalogue import get_traces
from em.values.times import moment

TopK = Annotated[int, QueryParameter(ge=1, le=50, description="Return at most this many lessons.")]
Query = Annotated[str | None, QueryParameter(max_length=2_000)]
Subject = Annotated[
    str | None, QueryParameter(max_length=512, description="The subject to include.")
]


@get("/heuristics", responses=errors(), sync_to_thread=True, tags=["heuristics"])
def list_heuristics(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    source_task: Query = None,
    task: Query = None,
    top_k: TopK = 5,
    subject: Subject = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Place = None,
) -> Heuristics:
    """List the heuristics in use, the newest first; with `task`, those that fit it, best first."""
    service = service_of(request)
    caller = service.caller(request)
    if subject is not None:
        caller.must_see(subject)
    if task is not None:
        best = service.memory.brief(task, top_k, subject=subject).heuristics
        ranked = [HeuristicOut.of_ranked(one) for one in best]
        return Heuristics(ranked, Pagination(top_k, 0, len(ranked)))

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
    return Heuristics(
        [HeuristicOut.of(one) for one in found.heuristics],
        Pagination(limit, offset, total, None if found.further is None else str(found.further)),
    )


@get("/heuristics/{heuristic_id:str}", responses=errors(404), tags=["heuristics"])
async def get_heuristic(request: AnyRequest, heuristic_id: FromPath[str]) -> HeuristicOut:
    """Return one heuristic, in use or retired."""
    service = service_of(request)
    return HeuristicOut.of(await service.look_up(lambda: _find(service, request, heuristic_id)))


def _find(service: Service, request: AnyRequest, heuristic_id: str) -> Heuristic:
    subjects = service.caller(request).lesson_subjects
    return service.memory.heuristics.get(heuristic_id, subjects=subjects)


@post("/heuristics", responses=errors(409, 410), tags=["heuristics"])
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
        out = HeuristicOut.of_lesson(known)
        answered = pending.answer(out)
        if answered is None:
            book.keep([known])
            return

        def answer(event_ids: Any) -> Any:
            return msgspec.structs.replace(answered, from_events=tuple(event_ids))

        book.keep([known], answer=answer)

    return await service.carry_out(request, key, data, work)


@post(
    "/heuristics/{heuristic_id:str}/feedback",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["heuristics"],
)
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


@post(
    "/heuristics/{heuristic_id:str}/accept",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["heuristics"],
)
def post_accept(request: AnyRequest, heuristic_id: FromPath[str]) -> HeuristicOut:
    """Let agents be told a lesson in doubt: a person has read it."""
    service = _may_change(request, heuristic_id)
    return HeuristicOut.of(service.memory.heuristics.accept(heuristic_id))


@post(
    "/heuristics/{heuristic_id:str}/retire",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["heuristics"],
)
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


@get("/brief", responses=errors(), sync_to_thread=True, tags=["heuristics"])
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


@post(
    "/reflect",
    responses={
        200: ResponseSpec(Reflected, generate_examples=False, description="Nothing was stored."),
        **errors(404, 409, 410, 502),
    },
    tags=["heuristics"],
)
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


@get("/evaluate", responses=errors(), sync_to_thread=True, tags=["heuristics"])
def get_evaluate(
    request: AnyRequest,
    seed: Annotated[int, QueryParameter(ge=0, le=1_000)] = 0,
    tasks: Annotated[int, QueryParameter(ge=1, le=300)] = 100,
) -> Evaluation:
    """Run the seeded retrieval benchmark in a temporary store. The memory is not touched."""
    service = service_of(request)
    service.caller(request)
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
