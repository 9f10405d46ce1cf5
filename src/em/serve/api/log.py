"""HTTP API of the log: store observations, recall, read events, verify the chain."""

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from em.deadline import suspended
from em.errors import InputError
from em.log.event import EventQuery, run_stream, trace_stream
from em.runner.history import read_run
from em.serve.api.shapes import (
    EventOut,
    Events,
    ForgetIn,
    Forgotten,
    Kept,
    ObservationIn,
    PassageOut,
    RecalledOut,
    Verified,
    fill,
)
from em.serve.service import AnyRequest, Key, Limit, Moment, Pending, errors, service_of
from em.state.schema import DETAILS, observation
from em.traces.catalogue import get_traces
from em.traces.trace import least_trusted
from em.values.times import moment, new_id

Name = Annotated[str | None, QueryParameter(max_length=512)]


@get("/log", responses=errors(), sync_to_thread=True, tags=["log"])
def get_log(
    request: AnyRequest,
    stream: Name = None,
    subject: Name = None,
    kind: Name = None,
    since: Name = None,
    until: Name = None,
    after: Annotated[int, QueryParameter(ge=0, le=2**62)] = 0,
    limit: Limit = 50,
) -> Events:
    """List events, oldest first. A token limited to subjects must give `subject`."""
    service = service_of(request)
    service.caller(request).must_see(subject)
    query = EventQuery(
        stream=stream,
        subject=subject,
        kinds=[] if kind is None else [kind],
        since=None if since is None else moment(since, "since"),
        until=None if until is None else moment(until, "until"),
        after=after,
        limit=limit + 1,
    )
    found = list(service.store.read(query))
    return Events([fill(EventOut, event) for event in found[:limit]], len(found) > limit)


@get("/log/verify", responses=errors(), sync_to_thread=True, tags=["log"])
def get_verify(request: AnyRequest) -> Verified:
    """Verify that no event was changed, reordered or removed."""
    service = service_of(request)
    service.caller(request).must_see(None)
    report = service.memory.log.verify()
    problems = [str(msgspec.to_builtins(finding)) for finding in report.findings[:100]]
    return Verified(report.ok, report.events, problems)


@post("/observations", responses=errors(409, 410), tags=["log"])
async def post_observation(
    request: AnyRequest, data: JSONBody[ObservationIn], key: Key = None
) -> Response[Kept]:
    """Record an observation about a subject; return the id of its event."""
    service = service_of(request)
    service.caller(request, "write").must_see(data.subject)

    def work(data: ObservationIn, pending: Pending) -> None:
        if sum(one is not None for one in (data.text, data.record, data.event)) != 1:
            raise InputError("give either `text`, `record` or `event`", place="text, record, event")
        content = data.record if data.text is None else data.text
        details = {name: getattr(data, name) for name in DETAILS}
        if data.event is None:
            details["origin"] = least_trusted(["agent", data.origin or "own"])
        draft = observation(data.subject, content, data.at, details, data.event)
        draft = msgspec.structs.replace(draft, id=new_id())
        service.follow(pending.commit(service.store, [draft], Kept(str(draft.id))))

    return await service.carry_out(request, key, data, work)


@get("/recall", responses=errors(), sync_to_thread=True, tags=["recall"])
def get_recall(
    request: AnyRequest,
    question: Annotated[str, QueryParameter(name="query", max_length=10_000)],
    subject: Annotated[str | None, QueryParameter(max_length=512)] = None,
    k: Annotated[
        int, QueryParameter(ge=1, le=200, description="Return at most this many passages.")
    ] = 10,
    since: Moment = None,
    until: Moment = None,
    neighbours: Annotated[int, QueryParameter(ge=0, le=10)] = 0,
    role: Name = None,
    speaker: Name = None,
    session: Name = None,
    agent: Name = None,
    run: Name = None,
    metadata: Annotated[
        str | None,
        QueryParameter(max_length=4_096, description="A JSON object of fields that must match."),
    ] = None,
) -> RecalledOut:
    """Return the passages that fit a question best. A token limited to subjects gives `subject`."""
    service = service_of(request)
    service.caller(request).must_see(subject)
    found = service.memory.recall(
        question, subject, k, since, until, neighbours=neighbours, role=role, speaker=speaker,
        session=session, agent=agent, run=run, metadata=_object(metadata),
    )  # fmt: skip
    return RecalledOut([PassageOut.of(passage) for passage in found], found.notes)


def _object(given: str | None) -> dict[str, Any]:
    if given is None:
        return {}
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise InputError(
            f"expected a JSON object: {problem}",
            place="metadata",
            fix='give metadata={"project":"atlas"}, encoded for a URL',
        ) from None


@post("/forget", responses=errors(404), status_code=200, sync_to_thread=True, tags=["log"])
def post_forget(request: AnyRequest, data: JSONBody[ForgetIn]) -> Forgotten:
    """Erase events and everything made of them; or only list that, with `dry_run`.

    Not for tokens that are limited to subjects: what was made of one subject's data may be
    another's. Repeating it does no harm.
    """
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    memory, ids = service.memory, list(data.events)
    streams = [trace_stream(kept.id) for kept in get_traces(service.store, data.traces)]
    streams += [run_stream(read_run(service.store, one, None).run_id) for one in data.runs]
    for stream in streams:
        found = service.store.read(EventQuery(stream=stream))
        ids += [event.id for event in found if event.kind != "erased"]
    with suspended():  # half of it must not be left
        erasure = memory.forget(ids, subject=data.subject, reason=data.reason, dry_run=data.dry_run)
    return fill(Forgotten, erasure)


HANDLERS = [post_observation, get_recall, get_log, get_verify, post_forget]
