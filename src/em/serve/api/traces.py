"""Over HTTP: trajectories, which are traces by another name."""

from typing import Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import Parameter

from em.errors import InputError
from em.serve.api.shapes import Trajectories, TrajectoryIn, TrajectoryOut
from em.serve.idempotency import Pending
from em.serve.service import AnyRequest, Key, Limit, Offset, errors, page, service_of
from em.traces.catalogue import get_traces, list_traces, trace_events
from em.traces.trace import Outcome, Trace, read_trace
from em.values.ids import new_id

Query = Annotated[str | None, Parameter(max_length=2_000)]


def to_trace(given: TrajectoryIn) -> Trace:
    """What a client sent, as a trace."""
    if (given.steps is None) == (given.events is None):
        raise InputError(
            "a trajectory has `task` and `steps`, or `mission` and `events`", place="steps, events"
        )
    said = msgspec.to_builtins(given)
    said.pop("subject", None)
    if given.steps is not None:
        if given.task is None or given.mission is not None:
            raise InputError("with `steps` there is `task`, and no `mission`", place="task")
    elif given.task is not None:
        raise InputError("with `events` there is `mission`, and no `task`", place="task")
    return read_trace(msgspec.json.encode(said), "body")


@get("/trajectories", responses=errors(), sync_to_thread=True, tags=["trajectories"])
def list_trajectories(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    task: Query = None,
    outcome: Annotated[Outcome | None, Parameter(description="Only with this outcome.")] = None,
) -> Trajectories:
    """Trajectories, oldest first, whose task contains `task`, in upper or lower case."""
    service = service_of(request)
    subjects = service.caller(request).subjects
    found = list_traces(service.store, task=task, outcome=outcome, subjects=subjects).traces
    shown, pagination = page(reversed(found), limit, offset)
    return Trajectories([TrajectoryOut.in_short(one) for one in shown], pagination)


@get(
    "/trajectories/{trajectory_id:str}",
    responses=errors(404),
    sync_to_thread=True,
    tags=["trajectories"],
)
def get_trajectory(request: AnyRequest, trajectory_id: str) -> TrajectoryOut:
    """One trajectory with its steps."""
    service = service_of(request)
    caller = service.caller(request)
    (kept,) = get_traces(service.store, [trajectory_id])
    caller.must_find(kept.subject, f"trace {trajectory_id!r}")
    return TrajectoryOut.of(kept)


@post("/trajectories", responses=errors(409, 410), tags=["trajectories"])
async def post_trajectory(
    request: AnyRequest, data: TrajectoryIn, key: Key = None
) -> Response[TrajectoryOut]:
    """Keep one attempt at a task."""
    service = service_of(request)
    service.caller(request, "write").must_see(data.subject)

    def work(data: TrajectoryIn, pending: Pending) -> None:
        trace, trace_id = to_trace(data), new_id()
        events = trace_events(trace, trace_id, known_ids=True, subject=data.subject)
        out = TrajectoryOut(
            id=trace_id,
            task=trace.mission.goal,
            outcome=trace.outcome,
            subject=data.subject,
        )
        pending.commit(service.store, events, out)

    return await service.carry_out(request, key, data, work)


HANDLERS = [list_trajectories, get_trajectory, post_trajectory]
