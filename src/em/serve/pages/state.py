"""Pages of state: a subject's tables, histories, conflicts, rules and code at any time; ask."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar import Response, get, post

from em.errors import EmError, InputError, NotFound
from em.log.event import EventQuery, subject_stream
from em.runner.answers import json_or_text
from em.serve.auth import PAGES
from em.serve.pages.forms import form_of
from em.serve.pages.subjects import show_subjects
from em.serve.pages.view import address, go_to, page, parameter
from em.serve.service import AnyRequest, Service, service_of
from em.state.origin import Origin
from em.state.rules import written_condition
from em.state.schema import PROFILE
from em.state.state import State
from em.state.subjects import Subjects
from em.store.protocol import Passage
from em.values.times import moment

ROWS = 100


@get(f"{PAGES}/state", include_in_schema=False, sync_to_thread=True)
def get_state(request: AnyRequest) -> Response[str]:
    """Show a subject's state; without a subject, the list of subjects."""
    service = service_of(request)
    caller = service.caller(request)
    subject = parameter(request, "subject")
    if not subject:
        return show_subjects(request, service, caller)
    caller.must_see(subject)
    return _show(request, service, subject)


def _show(request: AnyRequest, service: Service, subject: str) -> Response[str]:
    if not service.memory.subjects.has_state(subject):
        if not service.store.head(subject_stream(subject))[0]:
            raise NotFound(
                f"there are no observations about {subject!r}",
                fix=f"record one: em observe {subject} TEXT",
            )
        return page(request, "no_state.html", subject=subject)
    as_of = _as_of(request)
    state = service.memory.state(subject, as_of)
    question, action = parameter(request, "ask"), parameter(request, "check")
    return page(
        request,
        "state.html",
        subject=subject,
        state=state,
        as_of=as_of,
        slider=_slider(service, subject, as_of),
        profile=_profile(state),
        tables=[_table(state, name) for name in state.collections],
        conflicts=state.conflicts(),
        alerts=state.alerts(),
        conditions={one.id: written_condition(one, state.schema) for one in state.rules},
        action=action,
        fired=state.check(action) if action else None,
        question=question,
        answer=_answer(service, subject, question, as_of) if question else None,
        versions=service.memory.subjects.versions(subject)[-20:],
        changes=service.memory.subjects.diff(subject),
        new_events=max(0, service.store.head(subject_stream(subject))[0] - state.schema.watermark),
    )


def _as_of(request: AnyRequest) -> datetime | None:
    """Return the time to show: the slider's (in seconds) or the typed one."""
    seconds, text = parameter(request, "t"), parameter(request, "as_of")
    if seconds.isdecimal() and len(seconds) <= 12 and not text:
        return datetime.fromtimestamp(int(seconds), UTC)
    return moment(text, "as_of") if text else None


class Slider(msgspec.Struct, frozen=True):
    """The times from the first to the last observation, in seconds."""

    first: int
    last: int
    step: int
    at: int


def _slider(service: Service, subject: str, as_of: datetime | None) -> Slider | None:
    stream = subject_stream(subject)
    begins = next(iter(service.store.read(EventQuery(stream=stream, limit=1))), None)
    ends = next(iter(service.store.read(EventQuery(stream=stream, limit=1, newest=True))), None)
    if begins is None or ends is None:
        return None
    first, last = int(begins.at.timestamp()), int(ends.at.timestamp()) + 1
    first, last = min(first, last - 1), max(first, last)
    at = last if as_of is None else max(first, min(last, int(as_of.timestamp())))
    return Slider(first, last, max(1, (last - first) // 200), at)


class Fact(msgspec.Struct, frozen=True):
    """A single-valued field: its value, all values that were observed, and where it comes from."""

    name: str
    value: Any
    history: Sequence[Any]
    why: Origin | None = None


def _profile(state: State) -> list[Fact]:
    if PROFILE not in state.schema.types:
        return []
    facts = _facts(state, state.profile, state.schema.types[PROFILE].fields.values())
    return [
        msgspec.structs.replace(one, why=state.why(f"profile.{one.name}"))
        if one.value is not None
        else one
        for one in facts
    ]


def _facts(state: State, record: Any, fields: Any) -> list[Fact]:
    plain = state.as_record(record)
    history = getattr(record, "history", {})
    return [
        Fact(field.given, plain.get(field.given), history.get(field.name, ()))
        for field in fields
        if field.given in plain or field.name in history
    ]


class Row(msgspec.Struct, frozen=True):
    """A record: its fields, its events, its key as JSON, and whether it was inferred."""

    facts: Sequence[Fact]
    event_ids: Sequence[str]
    key: str
    inferred: bool


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A collection: its columns and first records. Records with a key have histories."""

    name: str
    type: str
    key: str
    columns: Sequence[str]
    rows: Sequence[Row]
    count: int


def _table(state: State, name: str) -> Table:
    type_ = state.collections[name]
    records = getattr(state, name)
    columns = [field.given for field in type_.fields.values()]
    rows = []
    for record in records[:ROWS]:
        facts = {fact.name: fact for fact in _facts(state, record, type_.fields.values())}
        plain = state.as_record(record)
        key = msgspec.json.encode([plain.get(name) for name in type_.key or ()]).decode()
        shown = [facts.get(column, Fact(column, None, ())) for column in columns]
        inferred = type_.key is None and state.inferred(record)
        rows.append(Row(shown, record.event_ids, key, inferred))
    return Table(
        name=name,
        type=type_.name,
        key=", ".join(type_.key or ()),
        columns=columns,
        rows=rows,
        count=len(records),
    )


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to show: a value with its code, or passages, or the problem."""

    problem: EmError | None = None
    answer: Any = None
    passages: Sequence[Passage] = ()


def _answer(service: Service, subject: str, question: str, as_of: datetime | None) -> Answered:
    try:
        found = service.memory.ask(subject, question, as_of=as_of)
    except EmError as error:
        return Answered(problem=error)
    return Answered(answer=found, passages=found.value if found.route == "recall" else ())


@post(f"{PAGES}/checkpoint", include_in_schema=False)
async def post_checkpoint(request: AnyRequest) -> Response[str]:
    """Make a checkpoint of a subject."""
    form = await form_of(request)
    service = service_of(request)
    subject = str(form.get("subject", ""))
    service.caller(request, "write").must_see(subject)
    await asyncio.to_thread(service.memory.checkpoint, subject)
    return go_to(address("/state", subject=subject))


@post(f"{PAGES}/rule", include_in_schema=False)
async def post_rule(request: AnyRequest) -> Response[str]:
    """Accept or reject a rule that a model derived."""
    form = await form_of(request)
    service = service_of(request)
    subject, rule = str(form.get("subject", "")), str(form.get("rule", ""))
    service.caller(request, "write").must_see(subject)
    accept = form.get("verdict") == "accepted"
    judge = service.memory.accept_rule if accept else service.memory.reject_rule
    await asyncio.to_thread(judge, subject, rule)
    return go_to(address("/state", subject=subject))


@post(f"{PAGES}/correct", include_in_schema=False)
async def post_correct(request: AnyRequest) -> Response[str]:
    """Correct a fact, or a field of a record that came from an event."""
    form = await form_of(request)
    subjects, subject = _deciding(request, form)
    field, value = str(form.get("field", "")), json_or_text(str(form.get("value", "")))
    event = str(form.get("event", ""))
    if event:
        await asyncio.to_thread(subjects.correct, subject, event, {field: value})
    else:
        key = _key_in(form)
        await asyncio.to_thread(subjects.resolve, subject, field, value=value, key=key)
    return await _decided(subjects, subject)


@post(f"{PAGES}/retract", include_in_schema=False)
async def post_retract(request: AnyRequest) -> Response[str]:
    """Take back a fact, or the record that came from an event."""
    form = await form_of(request)
    subjects, subject = _deciding(request, form)
    what = str(form.get("event", "") or form.get("field", ""))
    await asyncio.to_thread(subjects.retract, subject, what, _key_in(form))
    return await _decided(subjects, subject)


def _deciding(request: AnyRequest, form: Mapping[str, Any]) -> tuple[Subjects, str]:
    service, subject = service_of(request), str(form.get("subject", ""))
    service.caller(request, "write").must_see(subject)
    return service.memory.subjects, subject


def _key_in(form: Mapping[str, Any]) -> list[Any]:
    """Return the key of a record, which the form has as JSON."""
    try:
        return msgspec.json.decode(str(form.get("key", "") or "[]"), type=list[Any])
    except msgspec.MsgspecError:
        raise InputError("expected the key of a record as a JSON list", place="key") from None


async def _decided(subjects: Subjects, subject: str) -> Response[str]:
    """Apply what a person decided, and show it."""
    await asyncio.to_thread(subjects.checkpoint, subject)
    return go_to(address("/state", subject=subject))


HANDLERS = [get_state, post_checkpoint, post_rule, post_correct, post_retract]
