"""HTTP API of traces: trajectories as JSON, and an OTLP/HTTP receiver (JSON and protobuf).

"Trajectory" is the API's word for a trace.
"""

import asyncio
import traceback
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Response, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from em.errors import Conflict, InputError, MissingExtra, TooLarge
from em.log.summary import Cursor
from em.serve.api.shapes import (
    Exact,
    Key,
    Limit,
    Moment,
    Name,
    Offset,
    Page,
    Pagination,
    Place,
    Words,
    acts_once,
    errors,
    reads,
)
from em.serve.auth import Caller
from em.serve.guard import log_line
from em.serve.service import AnyRequest, Pending, read_json, service_of
from em.store.protocol import Store
from em.traces.catalogue import (
    MOST_SCANNED,
    TraceFilter,
    TraceSummary,
    count_traces,
    get_traces,
    list_traces,
)
from em.traces.formats._spans import Span, add_spans
from em.traces.formats.otel import NAME, spans_of
from em.traces.intake import Intake
from em.traces.trace import KeptTrace, Outcome, Trace, label_event, read_trace, trace_events
from em.traces.transcripts import UNEXPECTED
from em.values.canonical import Json
from em.values.times import moment, new_id


class StepIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a trajectory."""

    thought: str | None = None
    action: Annotated[str, msgspec.Meta(description="The tool that was called.")] | None = None
    args: Json = {}
    observation: Annotated[Any, msgspec.Meta(description="The tool's result.")] = None
    error: Annotated[Any, msgspec.Meta(description="The tool's error.")] = None


class TrajectoryIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One attempt at a task: `task` and `steps`, or a trace's `mission` and `events`."""

    task: Annotated[str, msgspec.Meta(max_length=20_000)] | None = None
    steps: list[StepIn] | None = None
    outcome: Outcome = "unknown"
    incomplete: Annotated[
        str, msgspec.Meta(description="Why calls may be missing.", max_length=2_000)
    ] = ""
    input: Json = {}
    final_output: Any = None
    subject: Name | None = None
    mission: Json | None = None
    events: list[Json] | None = None
    app: Json = {}


class LabelIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says about how a trajectory ended."""

    outcome: Outcome
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""


class TrajectoryOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trace, flat. Steps, output and event ids are present where one trace is read."""

    id: str
    task: str
    outcome: Outcome
    subject: str | None
    incomplete: Annotated[
        str, msgspec.Meta(description="Why calls may be missing; it can't be compiled then.")
    ] = ""
    created_at: datetime | None = None
    steps: Sequence[Json] | None = None
    final_output: Any = None
    event_ids: Sequence[str] | None = None

    @classmethod
    def in_short(cls, one: TraceSummary) -> "TrajectoryOut":
        """Show a trace in a list, without its steps."""
        return cls(
            id=one.id,
            task=one.goal,
            outcome=one.outcome,
            incomplete=one.incomplete,
            subject=one.subject,
            created_at=one.at,
        )

    @classmethod
    def of(cls, stored: KeptTrace) -> "TrajectoryOut":
        """Show one trace with its steps."""
        trace = stored.trace
        output = None if trace.final_output is msgspec.UNSET else trace.final_output
        return cls(
            id=stored.id,
            task=trace.mission.goal,
            outcome=trace.outcome,
            incomplete=trace.incomplete,
            subject=stored.subject,
            created_at=stored.at,
            steps=[msgspec.to_builtins(event) for event in trace.events],
            final_output=output,
            event_ids=stored.event_ids,
        )


def to_trace(given: TrajectoryIn) -> Trace:
    """Read a trace from the body of a request."""
    if (given.steps is None) == (given.events is None):
        raise InputError(
            "give `task` and `steps`, or `mission` and `events`", place="steps, events"
        )
    plain = msgspec.to_builtins(given)
    plain.pop("subject", None)
    if given.steps is not None:
        if given.task is None or given.mission is not None:
            raise InputError("give `task`, not `mission`, together with `steps`", place="task")
    elif given.task is not None:
        raise InputError("give `mission`, not `task`, together with `events`", place="task")
    return read_trace(msgspec.json.encode(plain), "body")


@reads("/trajectories", "trajectories")
def list_trajectories(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    task: Words = None,
    outcome: Annotated[
        Outcome | None, QueryParameter(description="Only with this outcome.")
    ] = None,
    subject: Exact = None,
    agent: Exact = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Place = None,
) -> Page[TrajectoryOut]:
    """List trajectories, oldest first. `task` matches a part of the task, ignoring case."""
    service = service_of(request)
    caller = service.caller(request)
    if subject is not None:
        caller.must_see(subject)
    chosen: TraceFilter = {
        "task": task,
        "outcome": outcome,
        "subjects": caller.subjects if subject is None else [subject],
        "agent": agent,
        "since": None if since is None else moment(since, "since"),
        "until": None if until is None else moment(until, "until"),
    }
    found = list_traces(
        service.store,
        before=Cursor.of(cursor),
        limit=offset + limit,
        scan=MOST_SCANNED,
        oldest=True,
        **chosen,
    )
    total = count_traces(service.store, **chosen)
    further = None if found.older is None else str(found.older)
    shown = [TrajectoryOut.in_short(one) for one in found.traces[offset:]]
    return Page(shown, Pagination(limit, offset, total, further))


@reads("/trajectories/{trajectory_id:str}", "trajectories", 404)
def get_trajectory(request: AnyRequest, trajectory_id: FromPath[str]) -> TrajectoryOut:
    """Return one trajectory with its steps."""
    service = service_of(request)
    subjects = service.caller(request).subjects
    (stored,) = get_traces(service.store, [trajectory_id], subjects=subjects)
    return TrajectoryOut.of(stored)


@acts_once("/trajectories", "trajectories")
async def post_trajectory(
    request: AnyRequest, data: JSONBody[TrajectoryIn], key: Key = None
) -> Response[TrajectoryOut]:
    """Store a trajectory: one attempt at a task."""
    service = service_of(request)
    service.caller(request, "write").must_see(data.subject)

    def work(data: TrajectoryIn, pending: Pending) -> None:
        trace, trace_id = to_trace(data), new_id()
        events = trace_events(trace, trace_id, known_ids=True, subject=data.subject)
        out = TrajectoryOut(
            id=trace_id,
            task=trace.mission.goal,
            outcome=trace.outcome,
            incomplete=trace.incomplete,
            subject=data.subject,
        )
        pending.commit(service.store, events, out)

    return await service.carry_out(request, key, data, work)


@acts_once("/trajectories/{trajectory_id:str}/label", "trajectories", 404)
async def post_label(
    request: AnyRequest, trajectory_id: FromPath[str], data: JSONBody[LabelIn], key: Key = None
) -> Response[TrajectoryOut]:
    """Record how a trajectory ended. The last label counts; labels decide what is compiled."""
    service = service_of(request)
    caller = service.caller(request, "write")

    def work(data: LabelIn, pending: Pending) -> None:
        (stored,) = get_traces(service.store, [trajectory_id], subjects=caller.subjects)
        out = TrajectoryOut(
            id=stored.id,
            task=stored.trace.mission.goal,
            outcome=data.outcome,
            incomplete=stored.trace.incomplete,
            subject=stored.subject,
            created_at=stored.at,
        )
        event = label_event(stored, data.outcome, data.reason)
        pending.commit(service.store, [event], out)

    return await service.carry_out(request, key, data, work)


JSON, PROTOBUF = "application/json", "application/x-protobuf"
TRIES = 5
"""Attempts to store spans while other requests store spans of the same trace."""

OtlpSubject = Annotated[
    str | None,
    HeaderParameter(name="X-Em-Subject", description="The subject of the traces.", max_length=512),
]


@post("/v1/traces", responses=errors(409), status_code=200, tags=["trajectories"])
async def post_otlp(request: AnyRequest, subject: OtlpSubject = None) -> Response[bytes]:
    """Store the calls of agents, models and tools from an OpenTelemetry export of traces.

    Set `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` to this address. Spans of one trace may arrive in
    several exports; a span that is stored already is not stored again.
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
        with _of_another_shape():
            spans = list(spans_of(export))
        _keep(service.store, spans, about)

    await asyncio.to_thread(work)
    answer = b"" if kind == PROTOBUF else b'{"partialSuccess":{}}'
    return Response(answer, media_type=kind if kind == PROTOBUF else JSON)


def _subject(caller: Caller, given: str | None) -> str | None:
    """Return the given subject, or else the only one that the token allows."""
    if given is None and caller.subjects is not None and len(caller.subjects) == 1:
        (given,) = caller.subjects
    caller.must_see(given)
    return given


def _unpacked(body: bytes, encoding: str, limit: int) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise InputError(
            f"Content-Encoding must be gzip or identity, got {encoding[:40]!r}",
            place="Content-Encoding",
        )
    try:
        unpacking = zlib.decompressobj(wbits=31)
        unpacked = unpacking.decompress(body, limit + 1)
    except zlib.error as error:
        raise InputError(f"the body is not valid gzip: {error}", place="body") from None
    if len(unpacked) > limit:
        raise TooLarge(
            f"the unpacked body is larger than {limit:,} bytes",
            place="body",
            fix="export smaller batches",
        )
    return unpacked


def _decoded(body: bytes, kind: str) -> Any:
    if kind == JSON:
        return read_json(body)
    if kind != PROTOBUF:
        raise InputError(
            f"Content-Type must be {JSON} or {PROTOBUF}, got {kind[:80]!r}", place="Content-Type"
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
        raise InputError(
            f"the body is not an OTLP export of traces: {error}", place="body"
        ) from None


@contextmanager
def _of_another_shape() -> Iterator[None]:
    """Refuse spans that can't be read. The log shows where, in case that the error is of em."""
    try:
        yield
    except UNEXPECTED as error:
        trace = "".join(traceback.format_exception(error))
        log_line(level="warning", event="bad_input", path="/v1/traces", trace=trace)
        raise InputError(
            f"a span has another shape than in OTLP: {type(error).__name__}: {error}"[:500],
            place="body",
        ) from error


def _keep(store: Store, spans: Sequence[Span], subject: str | None) -> None:
    for tries in range(1, TRIES + 1):
        intake = Intake(store, subject=subject, source="agent")
        try:
            with _of_another_shape():
                add_spans(intake, NAME, [msgspec.structs.replace(span) for span in spans])
            intake.close()
        except Conflict:
            if tries == TRIES:
                raise
        else:
            return


HANDLERS = [list_trajectories, get_trajectory, post_trajectory, post_label, post_otlp]
