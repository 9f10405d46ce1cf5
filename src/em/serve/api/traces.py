"""Over HTTP: trajectories, which are traces by another name; also as OpenTelemetry exports them.

The receiver speaks OTLP/HTTP, as JSON and as protobuf.
"""

import asyncio
import zlib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from em.errors import Conflict, InputError, MissingExtra, TooLarge
from em.serve.api.shapes import Trajectories, TrajectoryIn, TrajectoryOut
from em.serve.auth import Caller
from em.serve.service import AnyRequest, Key, Limit, Offset, Pending, errors, page, service_of
from em.store.protocol import Store
from em.traces.catalogue import get_traces, list_traces
from em.traces.formats._spans import Span, tell_spans
from em.traces.formats.otel import NAME, spans_of
from em.traces.intake import Intake
from em.traces.trace import Outcome, Trace, read_trace, trace_events
from em.values.ids import new_id

Query = Annotated[str | None, QueryParameter(max_length=2_000)]


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
    outcome: Annotated[
        Outcome | None, QueryParameter(description="Only with this outcome.")
    ] = None,
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
def get_trajectory(request: AnyRequest, trajectory_id: FromPath[str]) -> TrajectoryOut:
    """One trajectory with its steps."""
    service = service_of(request)
    caller = service.caller(request)
    (kept,) = get_traces(service.store, [trajectory_id])
    caller.must_find(kept.subject, f"trace {trajectory_id!r}")
    return TrajectoryOut.of(kept)


@post("/trajectories", responses=errors(409, 410), tags=["trajectories"])
async def post_trajectory(
    request: AnyRequest, data: JSONBody[TrajectoryIn], key: Key = None
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


JSON, PROTOBUF = "application/json", "application/x-protobuf"
TRIES = 5
"""So often spans are told anew because others of the same trace came in at the same time."""

OtlpSubject = Annotated[
    str | None,
    HeaderParameter(name="X-Em-Subject", description="Whose traces they are.", max_length=512),
]


@post("/v1/traces", responses=errors(409), status_code=200, tags=["trajectories"])
async def post_otlp(request: AnyRequest, subject: OtlpSubject = None) -> Response[bytes]:
    """Keep the traces in an export of OpenTelemetry's: what agents, models and tools did.

    Set `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` to this address. Spans of one trace may come in many
    exports; what is there already is not kept twice.
    """
    service = service_of(request)
    caller = service.caller(request, "write")
    about = _subject(caller, subject)
    body = await request.body()
    encoding = request.headers.get("content-encoding", "")
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip()
    limit = service.settings.api.max_request_bytes

    def work() -> None:
        export = _decoded(_unpacked(body, encoding, limit), kind)
        _keep(service.store, list(spans_of(export)), about)

    await asyncio.to_thread(work)
    answer = b"" if kind == PROTOBUF else b'{"partialSuccess":{}}'
    return Response(answer, media_type=kind if kind == PROTOBUF else JSON)


def _subject(caller: Caller, given: str | None) -> str | None:
    """The subject that was named, or the only one that a token may write of."""
    if given is None and caller.subjects is not None and len(caller.subjects) == 1:
        (given,) = caller.subjects
    caller.must_see(given)
    return given


def _unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise InputError(
            f"{encoding[:40]!r} is not taken", place="Content-Encoding", fix="use gzip"
        )
    try:
        unpacking = zlib.decompressobj(wbits=31)
        unpacked = unpacking.decompress(body, limit + 1)
    except zlib.error as error:
        raise InputError(f"this is no gzip: {error}", place="body") from None
    if len(unpacked) > limit:
        raise TooLarge(f"a body has at most {limit:,} bytes", fix="send smaller batches")
    return unpacked


def _decoded(body: bytes, kind: str) -> Any:
    if kind == JSON:
        return msgspec.json.decode(body)
    if kind != PROTOBUF:
        raise InputError(
            f"{kind[:80]!r} is not taken", place="Content-Type", fix=f"send {JSON} or {PROTOBUF}"
        )
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )
    except ImportError:
        raise MissingExtra("otlp", "OTLP as protobuf") from None
    try:
        return MessageToDict(ExportTraceServiceRequest.FromString(body))
    except (DecodeError, RecursionError) as error:
        raise InputError(f"this is no export of traces: {error}", place="body") from None


def _keep(store: Store, spans: Sequence[Span], subject: str | None) -> None:
    for tries in range(1, TRIES + 1):
        intake = Intake(store, subject=subject)
        try:
            tell_spans(intake, NAME, [msgspec.structs.replace(span) for span in spans])
            intake.close()
        except Conflict:
            if tries == TRIES:
                raise
        else:
            return


HANDLERS = [list_trajectories, get_trajectory, post_trajectory, post_otlp]
