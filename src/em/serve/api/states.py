"""HTTP API of a subject's state: checkpoint, read, ask, check rules, resolve conflicts.

A question's code can't be sent here: it would run in the server's process.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from litestar import Response
from litestar.params import JSONBody, QueryParameter

from em.errors import NotFound, UsageError
from em.log.event import Draft, check_name
from em.serve.api.shapes import (
    Items,
    Key,
    Limit,
    Moment,
    Name,
    Offset,
    Page,
    StoredOut,
    Text,
    When,
    acts,
    acts_once,
    fill,
    page_of,
    reads,
)
from em.serve.auth import Access
from em.serve.service import AnyRequest, Pending, service_of
from em.state.checkpoint import Checkpoint
from em.state.decisions import (
    acceptance,
    correction,
    field_decision,
    record_retraction,
    retraction,
    rule_verdict,
)
from em.state.knowledge import Unread
from em.state.questions import Answer
from em.state.rules import Alert, written_condition
from em.state.schema import (
    KIND,
    Constraint,
    Coverage,
    PolicyName,
    Severity,
    StateSchema,
    Verdict,
)
from em.state.state import Conflict, Origin, State, Unstructured
from em.store.protocol import Commit, Passage
from em.values.canonical import Json
from em.values.times import new_id

Subject = Annotated[str, QueryParameter(min_length=1, max_length=512, description="The subject.")]


class CheckpointIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The subject to checkpoint, and how. `llm`: also ask the server's model."""

    subject: Name
    accept: bool = False
    again: bool = False
    rebuild: bool = False
    llm: bool = False


class CheckpointOut(msgspec.Struct, frozen=True):
    """The result of a checkpoint, with its changes as text."""

    subject: str
    version: int
    new_events: int
    coverage: Coverage
    changes: Sequence[str]
    problems: Sequence[str]
    rebuilt: bool
    proposed: Sequence[str]

    @classmethod
    def of(cls, done: Checkpoint) -> "CheckpointOut":
        """Show what a checkpoint did."""
        return fill(cls, done, changes=[str(change) for change in done.changes])


class StateOut(msgspec.Struct, frozen=True):
    """A subject's state: its facts, and the number of records in each collection.

    unread: the newer texts that nobody has read and that mention what is known.
    """

    subject: str
    version: int
    profile: Json
    collections: dict[str, int]
    coverage: Coverage
    unstructured: Sequence[Unstructured]
    unread: Sequence[Unread]


class CodeOut(msgspec.Struct, frozen=True):
    """The module that a subject's state was compiled to."""

    subject: str
    version: int
    code: str


class RecordOut(msgspec.Struct, frozen=True):
    """A record as it was observed, and the ids of its events."""

    record: Any
    event_ids: Sequence[str]


class AskIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, or code for it, which runs in the sandbox.

    llm: the server's model may write code to answer the question.
    """

    subject: Name
    question: Text | None = None
    code: Text | None = None
    as_of: When | None = None
    llm: bool = False


class AnswerOut(msgspec.Struct, frozen=True, kw_only=True):
    """An answer by code (`value`), or the passages that may contain it (`passages`).

    The model has both in `value`; here each has one type.
    """

    value: Any
    passages: Sequence[Passage]
    route: Literal["code", "recall"]
    question: str
    code: str
    parameters: Json
    records: int
    event_ids: Sequence[str]
    kept: bool
    asked_model: bool
    note: str
    unread: Sequence[str]

    @classmethod
    def of(cls, answer: Answer) -> "AnswerOut":
        """Show an answer."""
        if answer.route == "recall":
            return fill(cls, answer, value=None, passages=answer.value)
        return fill(cls, answer, passages=())


class CheckIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action to check before taking it, and its details by name."""

    subject: Name
    action: Name
    details: Json = {}


class EntryOut(msgspec.Struct, frozen=True):
    """One observed value of a field: when it was true, and when it was recorded."""

    value: Any
    at: datetime
    recorded_at: datetime
    event_ids: Sequence[str]
    source: str | None
    status: str


class ConflictOut(msgspec.Struct, frozen=True):
    """Differing values of one field, and how the conflict was resolved.

    The model's entries are of a generated class, which no schema can describe.
    """

    field: str
    key: Sequence[Any]
    value: Any
    policy: str
    open: bool
    event_ids: Sequence[str]
    against: Sequence[str]
    entries: Sequence[EntryOut]

    @classmethod
    def of(cls, found: Conflict) -> "ConflictOut":
        """Show a conflict."""
        return fill(cls, found, entries=[fill(EntryOut, one) for one in found.entries])


class RuleOut(msgspec.Struct, frozen=True):
    """A rule that a model derived, with a person's verdict and its condition as Python."""

    id: str
    severity: Severity
    message: str
    verdict: Verdict
    action: str | None
    code: str
    event_ids: Sequence[str]

    @classmethod
    def of(cls, rule: Constraint, schema: StateSchema) -> "RuleOut":
        """Show a rule."""
        return fill(cls, rule, code=written_condition(rule, schema), event_ids=rule.events)


class CorrectIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's correction of the record that came from an event: new values of its fields."""

    subject: Name
    event_id: Name
    changes: Json


class AcceptIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An observation that a person accepts, by its event."""

    subject: Name
    event_id: Name


class RetractIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to take back: a field such as `profile.city`, or the record that came from an event.

    key: that of the record whose field it is; empty for the profile.
    """

    subject: Name
    field: Name | None = None
    event_id: Name | None = None
    key: list[Any] = []


class RuleIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's verdict on a rule that a model derived."""

    subject: Name
    rule: Name
    verdict: Verdict


class ResolveIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's decision about a field: `value`, `event` or `policy`.

    Where an event has several values for the field, `value` and `key` say which is right.
    """

    subject: Name
    field: Name
    value: Any = None
    event: Name | None = None
    policy: PolicyName | None = None
    order: list[Name] = []
    key: list[Any] | None = None


@acts_once("/checkpoint", "state", 404, 502, status_code=200)
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


@reads("/state", "state", 404, 409)
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


@reads("/state/records", "state", 404, 409)
def get_records(
    request: AnyRequest,
    subject: Subject,
    collection: Annotated[str, QueryParameter(max_length=512)],
    limit: Limit = 50,
    offset: Offset = 0,
    as_of: Moment = None,
    known_at: Moment = None,
) -> Page[RecordOut]:
    """List the records of one collection, as they were observed."""
    state = _state(request, subject, as_of, known_at)
    if collection not in state.collections:
        known = ", ".join(state.collections) or "none"
        raise NotFound(
            f"there is no collection {collection!r}", place="collection", fix=f"use one of: {known}"
        )
    found = page_of(state.collection(collection), limit, offset)
    shown = [RecordOut(state.as_record(one), one.event_ids) for one in found.items]
    return Page(shown, found.pagination)


@reads("/state/why", "state", 404, 409)
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
) -> Items[Origin]:
    """Return who said something, when, in which words, and whether it is inferred."""
    return Items(_state(request, subject).origins(what, key or ()))


@reads("/state/code", "state", 404, 409)
def get_code(request: AnyRequest, subject: Subject) -> CodeOut:
    """Return the module that a subject's state was compiled to."""
    state = _state(request, subject)
    return CodeOut(subject, state.version, state.code)


@acts_once("/ask", "state", 404, 502, status_code=200)
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


@acts("/check", "state", 404, 409)
def post_check(request: AnyRequest, data: JSONBody[CheckIn]) -> Items[Alert]:
    """Return the rules that an action would break, most severe first. Nothing is stored."""
    return Items(_state(request, data.subject).check(data.action, **data.details))


@reads("/alerts", "state", 404, 409)
def get_alerts(request: AnyRequest, subject: Subject, now: Moment = None) -> Items[Alert]:
    """Return what is due about a subject: deadlines and active windows."""
    return Items(_state(request, subject).alerts(now))


@reads("/conflicts", "state", 404, 409)
def get_conflicts(request: AnyRequest, subject: Subject) -> Items[ConflictOut]:
    """List conflicting values of a subject's fields, and how each was resolved."""
    return Items([ConflictOut.of(one) for one in _state(request, subject).conflicts()])


@acts_once("/resolve", "state", 404)
async def post_resolve(
    request: AnyRequest, data: JSONBody[ResolveIn], key: Key = None
) -> Response[StoredOut]:
    """Record a person's decision about a field; the next checkpoint applies it."""

    def draft(state: State, data: ResolveIn) -> Draft:
        given = msgspec.structs.asdict(data)
        del given["subject"]
        return field_decision(state, given.pop("field"), **given)

    return await _decide(request, data, key, draft)


D = TypeVar("D", AcceptIn, ResolveIn, CorrectIn, RetractIn, RuleIn)


async def _decide(
    request: AnyRequest, data: D, key: str | None, draft: Callable[[State, D], Draft]
) -> Response[StoredOut]:
    """Store a person's decision once, whatever else is written about the subject meanwhile."""
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(data.subject)

    def work(data: D, pending: Pending) -> None:
        event = new_id()

        def change() -> Commit:
            made = draft(service.memory.subjects.state(data.subject), data)
            made = msgspec.structs.replace(made, id=event, body={**made.body, "by": caller.name})
            return Commit(events=[made], request=pending.answer(StoredOut(event), 201, (event,)))

        service.memory.subjects.decide(data.subject, change)

    return await service.carry_out(request, key, data, work)


@acts_once("/state/correct", "state", 404)
async def post_correct(
    request: AnyRequest, data: JSONBody[CorrectIn], key: Key = None
) -> Response[StoredOut]:
    """Record a person's correction of a record; the next checkpoint applies it.

    A fact is corrected with `/resolve`.
    """
    return await _decide(
        request, data, key, lambda state, data: correction(state, data.event_id, data.changes)
    )


@acts_once("/state/retract", "state", 404)
async def post_retract(
    request: AnyRequest, data: JSONBody[RetractIn], key: Key = None
) -> Response[StoredOut]:
    """Take back a fact or a record; the next checkpoint applies it. The log still has both."""

    def draft(state: State, data: RetractIn) -> Draft:
        if (data.field is None) == (data.event_id is None):
            raise UsageError("expected either `field` or `event_id`", place="field")
        if data.field is not None:
            return retraction(state, data.field, data.key)
        return record_retraction(state, data.event_id)

    return await _decide(request, data, key, draft)


@acts_once("/state/accept", "state", 404)
async def post_accept(
    request: AnyRequest, data: JSONBody[AcceptIn], key: Key = None
) -> Response[StoredOut]:
    """Let an observation count that anybody may have written; the next checkpoint applies it."""
    store = service_of(request).store
    return await _decide(
        request, data, key, lambda _, data: acceptance(store, data.subject, data.event_id, "")
    )


@reads("/rules", "state", 404, 409)
def get_rules(request: AnyRequest, subject: Subject) -> Items[RuleOut]:
    """List the rules that a model derived about a subject, with a person's verdict on each."""
    state = _state(request, subject)
    return Items([RuleOut.of(one, state.schema) for one in state.rules])


@acts_once("/rules", "state", 404)
async def post_rule(
    request: AnyRequest, data: JSONBody[RuleIn], key: Key = None
) -> Response[StoredOut]:
    """Record a person's verdict on a derived rule; the next checkpoint applies it."""
    return await _decide(
        request, data, key, lambda state, data: rule_verdict(state, data.rule, data.verdict)
    )


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
