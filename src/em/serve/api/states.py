"""HTTP API of a subject's state: checkpoint, read, ask, check rules, resolve conflicts.

A question's code can't be sent here: it would run in the server's process.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from litestar import Response, get, post
from litestar.params import JSONBody, QueryParameter

from em.errors import NotFound, UsageError
from em.log.event import Draft, check_name
from em.serve.api.shapes import (
    AcceptIn,
    Alerts,
    AnswerOut,
    AskIn,
    CheckIn,
    CheckpointIn,
    CheckpointOut,
    CodeOut,
    ConflictOut,
    Conflicts,
    CorrectIn,
    Kept,
    Origins,
    RecordOut,
    Records,
    ResolveIn,
    RetractIn,
    RuleIn,
    RuleOut,
    Rules,
    StateOut,
)
from em.serve.auth import Access
from em.serve.service import (
    AnyRequest,
    Key,
    Limit,
    Moment,
    Offset,
    Pending,
    errors,
    page,
    service_of,
)
from em.state.decisions import (
    acceptance,
    correction,
    field_decision,
    record_retraction,
    retraction,
    rule_verdict,
)
from em.state.schema import KIND
from em.state.state import State
from em.store.protocol import Commit
from em.values.times import new_id

Subject = Annotated[str, QueryParameter(min_length=1, max_length=512, description="The subject.")]


@post("/checkpoint", responses=errors(404, 409, 410, 502), status_code=200, tags=["state"])
async def post_checkpoint(
    request: AnyRequest, data: JSONBody[CheckpointIn], key: Key = None
) -> Response[CheckpointOut]:
    """Compile what is new about a subject. Repeating it continues where the last one stopped."""
    service = service_of(request)
    service.caller(request, "write").must_see(data.subject)

    def work(data: CheckpointIn, pending: Pending) -> None:
        subjects = service.memory.subjects
        done = subjects.checkpoint(
            data.subject,
            client=service.model() if data.llm else None,
            accept=data.accept,
            again=data.again,
            rebuild=data.rebuild,
        )
        artefact = service.store.artefact(KIND, data.subject)
        sources = () if artefact is None else artefact.from_events
        pending.finish(service.store, CheckpointOut.of(done), 200, sources)

    return await service.carry_out(request, key, data, work)


def _state(
    request: AnyRequest, subject: str, as_of: str | None = None, known_at: str | None = None
) -> State:
    service = service_of(request)
    service.caller(request).must_see(check_name(subject, "subject"))
    return service.memory.state(subject, as_of, known_at=known_at)


@get("/state", responses=errors(404, 409), sync_to_thread=True, tags=["state"])
def get_state(
    request: AnyRequest, subject: Subject, as_of: Moment = None, known_at: Moment = None
) -> StateOut:
    """Return a subject's compiled state: its facts, and the number of records by collection."""
    state = _state(request, subject, as_of, known_at)
    return StateOut(
        subject,
        state.version,
        state.as_record(state.profile),
        {name: len(state.collection(name)) for name in state.collections},
        state.coverage,
        state.unstructured[:100],
        state.unread[:100],
    )


@get("/state/records", responses=errors(404, 409), sync_to_thread=True, tags=["state"])
def get_records(
    request: AnyRequest,
    subject: Subject,
    collection: Annotated[str, QueryParameter(max_length=512)],
    limit: Limit = 50,
    offset: Offset = 0,
    as_of: Moment = None,
    known_at: Moment = None,
) -> Records:
    """List the records of one collection, as they were observed."""
    state = _state(request, subject, as_of, known_at)
    if collection not in state.collections:
        known = ", ".join(state.collections) or "none"
        raise NotFound(
            f"there is no collection {collection!r}", place="collection", fix=f"use one of: {known}"
        )
    shown, pagination = page(state.collection(collection), limit, offset)
    return Records([RecordOut(state.as_record(one), one.event_ids) for one in shown], pagination)


@get("/state/why", responses=errors(404, 409), sync_to_thread=True, tags=["state"])
def get_why(
    request: AnyRequest,
    subject: Subject,
    what: Annotated[
        str,
        QueryParameter(
            max_length=512,
            description="A field such as `profile.city`, or the id of an event that gave records.",
        ),
    ],
    key: Annotated[
        list[str] | None,
        QueryParameter(description="The key of the record whose field it is.", required=False),
    ] = None,
) -> Origins:
    """Return who said something, when, in which words, and whether it is inferred."""
    return Origins(_state(request, subject).origins(what, key or ()))


@get("/state/code", responses=errors(404, 409), sync_to_thread=True, tags=["state"])
def get_code(request: AnyRequest, subject: Subject) -> CodeOut:
    """Return the module that a subject's state was compiled to."""
    state = _state(request, subject)
    return CodeOut(subject, state.version, state.code)


@post("/ask", responses=errors(404, 409, 410, 502), status_code=200, tags=["state"])
async def post_ask(
    request: AnyRequest, data: JSONBody[AskIn], key: Key = None
) -> Response[AnswerOut]:
    """Answer a question about a subject, by code over its records or with passages.

    With `llm` the server's model may write the code, which is stored for the next such question.
    That requires a token with write access.
    """
    service = service_of(request)
    access: Access = "write" if data.llm or key is not None else "read"
    service.caller(request, access).must_see(data.subject)

    def work(data: AskIn, pending: Pending) -> None:
        client = service.model() if data.llm else None
        answer = service.memory.ask(
            data.subject, data.question, code=data.code, llm=client, as_of=data.as_of
        )
        pending.finish(service.store, AnswerOut.of(answer), 200, answer.event_ids)

    return await service.carry_out(request, key, data, work, access)


@post("/check", responses=errors(404, 409), status_code=200, sync_to_thread=True, tags=["state"])
def post_check(request: AnyRequest, data: JSONBody[CheckIn]) -> Alerts:
    """Return the rules that an action would break, most severe first. Nothing is stored."""
    return Alerts(_state(request, data.subject).check(data.action, **data.details))


@get("/alerts", responses=errors(404, 409), sync_to_thread=True, tags=["state"])
def get_alerts(request: AnyRequest, subject: Subject, now: Moment = None) -> Alerts:
    """Return what is due about a subject: deadlines and active windows."""
    return Alerts(_state(request, subject).alerts(now))


@get("/conflicts", responses=errors(404, 409), sync_to_thread=True, tags=["state"])
def get_conflicts(request: AnyRequest, subject: Subject) -> Conflicts:
    """List conflicting values of a subject's fields, and how each was resolved."""
    return Conflicts([ConflictOut.of(one) for one in _state(request, subject).conflicts()])


@post("/resolve", responses=errors(404, 409, 410), tags=["state"])
async def post_resolve(
    request: AnyRequest, data: JSONBody[ResolveIn], key: Key = None
) -> Response[Kept]:
    """Record a person's decision about a field; the next checkpoint applies it."""

    def draft(state: State, data: ResolveIn) -> Draft:
        given = msgspec.structs.asdict(data)
        del given["subject"]
        return field_decision(state, given.pop("field"), **given)

    return await _decide(request, data, key, draft)


D = TypeVar("D", AcceptIn, ResolveIn, CorrectIn, RetractIn, RuleIn)


async def _decide(
    request: AnyRequest, data: D, key: str | None, draft: Callable[[State, D], Draft]
) -> Response[Kept]:
    """Store a person's decision once, whatever else is written about the subject meanwhile."""
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(data.subject)

    def work(data: D, pending: Pending) -> None:
        event = new_id()

        def change() -> Commit:
            made = draft(service.memory.subjects.state(data.subject), data)
            made = msgspec.structs.replace(made, id=event, body={**made.body, "by": caller.name})
            return Commit(events=[made], request=pending.answer(Kept(event), 201, (event,)))

        service.memory.subjects.decide(data.subject, change)

    return await service.carry_out(request, key, data, work)


@post("/state/correct", responses=errors(404, 409, 410), tags=["state"])
async def post_correct(
    request: AnyRequest, data: JSONBody[CorrectIn], key: Key = None
) -> Response[Kept]:
    """Record a person's correction of a record; the next checkpoint applies it.

    A fact is corrected with `/resolve`.
    """

    def draft(state: State, data: CorrectIn) -> Draft:
        return correction(state, data.event_id, data.changes)

    return await _decide(request, data, key, draft)


@post("/state/retract", responses=errors(404, 409, 410), tags=["state"])
async def post_retract(
    request: AnyRequest, data: JSONBody[RetractIn], key: Key = None
) -> Response[Kept]:
    """Take back a fact or a record; the next checkpoint applies it. The log still has both."""

    def draft(state: State, data: RetractIn) -> Draft:
        if (data.field is None) == (data.event_id is None):
            raise UsageError("expected either `field` or `event_id`", place="field")
        if data.field is not None:
            return retraction(state, data.field, data.key)
        return record_retraction(state, data.event_id)

    return await _decide(request, data, key, draft)


@post("/state/accept", responses=errors(404, 409, 410), tags=["state"])
async def post_accept(
    request: AnyRequest, data: JSONBody[AcceptIn], key: Key = None
) -> Response[Kept]:
    """Let an observation count that anybody may have written; the next checkpoint applies it."""
    store = service_of(request).store

    def draft(_state: State, data: AcceptIn) -> Draft:
        return acceptance(store, data.subject, data.event_id, "")

    return await _decide(request, data, key, draft)


@get("/rules", responses=errors(404, 409), sync_to_thread=True, tags=["state"])
def get_rules(request: AnyRequest, subject: Subject) -> Rules:
    """List the rules that a model derived about a subject, with a person's verdict on each."""
    state = _state(request, subject)
    return Rules([RuleOut.of(one, state.schema) for one in state.rules])


@post("/rules", responses=errors(404, 409, 410), tags=["state"])
async def post_rule(request: AnyRequest, data: JSONBody[RuleIn], key: Key = None) -> Response[Kept]:
    """Record a person's verdict on a derived rule; the next checkpoint applies it."""

    def draft(state: State, data: RuleIn) -> Draft:
        return rule_verdict(state, data.rule, data.verdict)

    return await _decide(request, data, key, draft)


HANDLERS = [
    post_checkpoint,
    get_state,
    get_records,
    get_why,
    get_code,
    post_correct,
    post_retract,
    post_accept,
    post_ask,
    post_check,
    get_alerts,
    get_conflicts,
    post_resolve,
    get_rules,
    post_rule,
]
