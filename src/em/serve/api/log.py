"""HTTP API of the log: store observations, recall, read events, verify the chain."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.params import JSONBody, QueryParameter

from em.deadline import suspended
from em.errors import InputError
from em.log.event import EventQuery, run_stream, trace_stream
from em.runner.history import read_run
from em.serve.api.shapes import (
    Exact,
    Key,
    Limit,
    Moment,
    Name,
    StoredOut,
    acts,
    acts_once,
    fill,
    reads,
)
from em.serve.service import AnyRequest, Pending, service_of
from em.state.schema import DETAILS, observation
from em.store.protocol import Erasure, Passage
from em.traces.catalogue import get_traces
from em.traces.trace import Source, least_trusted
from em.values.canonical import Json
from em.values.times import moment, new_id


class ObservationIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something learned about a subject: a text or a record.

    facts, rules: what the text states, each with its evidence; the next checkpoint checks them.
    event: the id of a stored text that they were read in, in place of the text.
    """

    subject: Name
    text: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    record: Json | None = None
    type: Name | None = None
    at: str | None = None
    speaker: Name | None = None
    role: Name | None = None
    addressee: Name | None = None
    session: Name | None = None
    agent: Name | None = None
    run: Name | None = None
    source: Name | None = None
    origin: Source | None = None
    metadata: Json | None = None
    facts: list[Json] | None = None
    rules: list[Json] | None = None
    event: Name | None = None


class EventOut(msgspec.Struct, frozen=True):
    """An event without `salt` and `body_hash`, which only serve to verify the chain."""

    seq: int
    id: str
    stream: str
    pos: int
    subject: str | None
    kind: str
    v: int
    at: datetime
    recorded_at: datetime
    body: Json | None
    hash: str


class Events(msgspec.Struct, frozen=True):
    """Events, oldest first. For the next page pass the last `seq` as `after`."""

    items: Sequence[EventOut]
    more: bool


class ForgetIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to forget: events, the events of traces and runs, everything about a subject.

    dry_run: erase nothing, only list what would be erased.
    """

    events: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    traces: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    runs: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    subject: Name | None = None
    reason: Annotated[str, msgspec.Meta(max_length=10_000)] = ""
    dry_run: bool = False


class Verified(msgspec.Struct, frozen=True):
    """Whether the log verifies, and the problems found."""

    ok: bool
    events: int
    problems: Sequence[str]


class RecallOut(msgspec.Struct, frozen=True):
    """Passages, best first. `notes`: what was skipped, and why."""

    items: Sequence[Passage]
    notes: Sequence[str]


@reads("/log", "log")
def get_log(
    request: AnyRequest,
    stream: Exact = None,
    subject: Exact = None,
    kind: Exact = None,
    since: Exact = None,
    until: Exact = None,
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


@reads("/log/verify", "log")
def get_verify(request: AnyRequest) -> Verified:
    """Verify that no event was changed, reordered or removed."""
    service = service_of(request)
    service.caller(request).must_see(None)
    report = service.memory.log.verify()
    problems = [str(msgspec.to_builtins(finding)) for finding in report.findings[:100]]
    return Verified(report.ok, report.events, problems)


@acts_once("/observations", "log")
async def post_observation(
    request: AnyRequest, data: JSONBody[ObservationIn], key: Key = None
) -> Response[StoredOut]:
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
        service.follow(pending.commit(service.store, [draft], StoredOut(str(draft.id))))

    return await service.carry_out(request, key, data, work)


@reads("/recall", "recall")
def get_recall(
    request: AnyRequest,
    question: Annotated[str, QueryParameter(name="query", max_length=10_000)],
    subject: Exact = None,
    k: Annotated[
        int, QueryParameter(ge=1, le=200, description="Return at most this many passages.")
    ] = 10,
    since: Moment = None,
    until: Moment = None,
    neighbours: Annotated[int, QueryParameter(ge=0, le=10)] = 0,
    role: Exact = None,
    speaker: Exact = None,
    session: Exact = None,
    agent: Exact = None,
    run: Exact = None,
    metadata: Annotated[
        str | None,
        QueryParameter(max_length=4_096, description="A JSON object of fields that must match."),
    ] = None,
) -> RecallOut:
    """Return the passages that fit a question best. A token limited to subjects gives `subject`."""
    service = service_of(request)
    service.caller(request).must_see(subject)
    found = service.memory.recall(
        question, subject, k, since, until, neighbours=neighbours, role=role, speaker=speaker,
        session=session, agent=agent, run=run, metadata=_object(metadata),
    )  # fmt: skip
    return RecallOut(list(found), found.notes)


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


@acts("/forget", "log", 404)
def post_forget(request: AnyRequest, data: JSONBody[ForgetIn]) -> Erasure:
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
        return memory.forget(ids, subject=data.subject, reason=data.reason, dry_run=data.dry_run)


HANDLERS = [post_observation, get_recall, get_log, get_verify, post_forget]
