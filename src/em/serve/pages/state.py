"""Pages of state: a subject's facts, histories, contradictions, records, rules and code; ask."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from litestar import Response, get, post

from em.errors import EmError, InputError, NotFound
from em.log.event import RUN_PREFIX, EventQuery, subject_stream
from em.runner.answers import json_or_text
from em.serve.auth import PAGES
from em.serve.pages.forms import form_of
from em.serve.pages.records import Listing, Wanted, words
from em.serve.pages.subjects import show_subjects
from em.serve.pages.view import (
    HEADERS,
    LONGEST_QUERY,
    address,
    go_to,
    page,
    parameter,
    whole_number,
)
from em.serve.service import AnyRequest, Service, service_of
from em.state.fold import UNACCEPTED
from em.state.rules import written_condition
from em.state.schema import PROFILE, FieldSchema, TypeSchema, Verdict
from em.state.state import Conflict, Origin, State
from em.state.subjects import Subjects
from em.state.types import resolve
from em.store.protocol import Passage
from em.values.canonical import Json
from em.values.times import moment

FACTS = 50
"""Facts on one page."""
PAST = 20
"""The newest values of a field that its history shows."""
OPEN, SETTLED = 20, 30
"""Contradictions that are listed: those that wait for a person, and the others."""
ITEMS = 50
"""The most items of an answer."""


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


CARRIED = ("as_of", "facts", "facts_page", "records", "record", "sort", "order")
FILTER = ("where", "op", "value", "page")
"""Parameters of the address that links of the page carry on, beside the subject."""


class Here:
    """The parts of this page's address. A link or a form changes some of them."""

    def __init__(self, subject: str, chosen: Mapping[str, str]) -> None:
        self.chosen = {"subject": subject, **{n: v for n, v in chosen.items() if v}}

    @classmethod
    def of(cls, request: AnyRequest, subject: str) -> "Here":
        """Read the parameters of a request."""
        return cls(subject, {name: parameter(request, name) for name in (*CARRIED, *FILTER)})

    @classmethod
    def back(cls, form: Mapping[str, Any], subject: str) -> "Here":
        """Return where a form was sent from; only names of ours count."""
        given = dict(parse_qsl(str(form.get("back", ""))[:LONGEST_QUERY]))
        return cls(subject, {name: given.get(name, "") for name in (*CARRIED, *FILTER)})

    def __call__(self, path: str = "/state", **changes: Any) -> str:
        """Return the address with some parameters changed; empty ones are left out."""
        return address(path, **{**self.chosen, **changes})

    def get(self, name: str) -> str:
        """Return a parameter, or an empty string."""
        return self.chosen.get(name, "")

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return the parameters that a form carries on, beside its own."""
        return [(name, value) for name, value in self.chosen.items() if name not in names]

    @property
    def query(self) -> str:
        """The parameters that lead back here."""
        return urlencode(self.chosen)


def _show(request: AnyRequest, service: Service, subject: str) -> Response[str]:
    if not service.memory.subjects.has_state(subject):
        if not service.store.head(subject_stream(subject))[0]:
            raise NotFound(
                f"there are no observations about {subject!r}",
                fix=f"record one: em observe {subject} TEXT",
            )
        return page(request, "no_state.html", subject=subject)
    here = Here.of(request, subject)
    state = _state(request, service, subject)
    sources = Sources(service)
    question, action = parameter(request, "ask"), parameter(request, "check")
    listing = Listing(state, _wanted(request)) if state.collections else None
    contradictions = state.conflicts()
    return page(
        request,
        "state.html",
        subject=subject,
        here=here,
        state=state,
        as_of=state.as_of,
        question=question,
        answer=_answer(request, service, subject, state.as_of) if question else None,
        profile=_profile(state, sources, parameter(request, "facts"), _page(request, "facts_page")),
        table=None if listing is None else listing.table(),
        counts=None if listing is None else _counts(state),
        record=_record(state, listing, sources, parameter(request, "record")),
        conflicts=[_conflict(state, one, sources) for one in contradictions if one.open][:OPEN],
        settled=[_conflict(state, one, sources) for one in contradictions if not one.open][
            :SETTLED
        ],
        contradictions=contradictions,
        alerts=state.alerts(),
        conditions={one.id: written_condition(one, state.schema) for one in state.rules},
        action=action,
        fired=state.check(action) if action else None,
        unaccepted=UNACCEPTED,
        versions=service.memory.subjects.versions(subject)[-20:],
        changes=service.memory.subjects.diff(subject),
        new_events=max(0, service.store.head(subject_stream(subject))[0] - state.schema.watermark),
    )


def _state(request: AnyRequest, service: Service, subject: str) -> State:
    text = parameter(request, "as_of")
    return service.memory.state(subject, moment(text, "as_of") if text else None)


def _page(request: AnyRequest, name: str) -> int:
    return whole_number(request, name) or 1


def _wanted(request: AnyRequest) -> Wanted:
    given = {name: parameter(request, name) for name in Wanted.__struct_fields__}
    known = {name: text for name, text in given.items() if text and name != "page"}
    return Wanted(page=_page(request, "page"), **known)


def _counts(state: State) -> list[tuple[str, int]]:
    return [(name, len(state.collection(name))) for name in state.collections]


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a field has or had: since when, who said so, and the event."""

    text: str
    at: datetime
    who: str
    words: str
    status: str
    event: str
    is_gone: bool


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A field with its value, who said it, and the values before it.

    field and key name it to a form, or `record` names the record without a key that has it.
    given: the value as JSON. is_text: the value is a text, whatever a person writes.
    """

    name: str
    text: str
    given: str
    is_text: bool
    field: str
    key: str = ""
    record: str = ""
    why: Origin | None = None
    who: str = ""
    run: str = ""
    past: Sequence[Past] = ()
    earlier: int = 0

    @property
    def changed(self) -> bool:
        """Whether the field had different values."""
        return len({(one.text, one.is_gone) for one in self.past}) > 1


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the profile. found: how many facts the words leave of `total`."""

    shown: Sequence[Fact]
    words: str
    found: int
    total: int
    page: int
    pages: int


class Sources:
    """Who said something, as the events tell it."""

    def __init__(self, service: Service) -> None:
        self._store = service.store
        self._bodies: dict[str, Json] = {}

    def read(self, ids: Sequence[str]) -> None:
        """Read events that are asked about next, all at once."""
        missing = [one for one in dict.fromkeys(ids) if one not in self._bodies]
        if missing:
            found = self._store.read(EventQuery(ids=missing))
            self._bodies |= {one.id: one.body or {} for one in found}

    def who(self, entry: Any) -> str:
        """Say who said a value, with the role if the event has one."""
        if entry.how == "decision":
            return f"decided by {entry.speaker or 'a person'}"
        body = self._bodies.get(entry.event_ids[0], {}) if entry.event_ids else {}
        name = entry.speaker or str(body.get("speaker") or "") or entry.source
        role = str(body.get("role") or "")
        return f"{name} ({role})" if name and role and name != role else name or role

    def run(self, event: str) -> str:
        """Return the run that an observation was made in, if the log has it."""
        run = str(self._bodies.get(event, {}).get("run") or "")
        return run if run and self._store.head(f"{RUN_PREFIX}{run}")[0] else ""

    def past(self, entry: Any) -> Past:
        """Return an entry of a history as the page shows it."""
        return Past(
            text=words(entry.value),
            at=entry.at,
            who=self.who(entry),
            words=entry.words,
            status=entry.status,
            event=entry.event_ids[0],
            is_gone=entry.value is None,
        )


def _profile(state: State, sources: Sources, wanted: str, page_: int) -> Facts | None:
    if PROFILE not in state.schema.types:
        return None
    type_ = state.schema.types[PROFILE]
    plain, history = state.as_record(state.profile), state.profile.history
    known = [one for one in type_.fields.values() if one.given in plain or one.name in history]
    sought = wanted.casefold().split()
    found = [one for one in known if _has(sought, one.given, words(plain.get(one.given)))]
    pages = max(1, -(-len(found) // FACTS))
    page_ = min(max(1, page_), pages)
    shown = found[(page_ - 1) * FACTS : page_ * FACTS]
    return Facts(
        shown=_facts(state, type_, state.profile, shown, sources),
        words=wanted,
        found=len(found),
        total=len(known),
        page=page_,
        pages=pages,
    )


def _has(sought: Sequence[str], *texts: str) -> bool:
    text = " ".join(texts).casefold()
    return all(word in text for word in sought)


def _facts(
    state: State, type_: TypeSchema, record: Any, fields: Sequence[FieldSchema], sources: Sources
) -> list[Fact]:
    """Return fields of a record with a key, or of the profile."""
    plain = state.as_record(record)
    key = [plain.get(name) for name in type_.key or ()]
    origins = state.field_origins(type_, key)
    entries = {one.name: record.history.get(one.name, ()) for one in fields}
    sources.read([id_ for some in entries.values() for one in some for id_ in one.event_ids[:1]])
    found = []
    for field in fields:
        why, some = origins.get(field.name), entries[field.name]
        fact = _fact(field, plain.get(field.given))
        found.append(
            msgspec.structs.replace(
                fact,
                field=f"{type_.name.lower()}.{field.given}",
                key=_json(key) if key else "",
                why=why,
                who="" if why is None else sources.who(why),
                run="" if why is None else sources.run(why.event_ids[0]),
                past=[sources.past(one) for one in reversed(some[-PAST:])],
                earlier=max(0, len(some) - PAST),
            )
        )
    return found


def _fact(field: FieldSchema, value: Any) -> Fact:
    annotation = resolve(field).annotation
    return Fact(
        name=field.given,
        text=words(value),
        given=_json(value),
        is_text=annotation == "str" or annotation.startswith("Literal["),
        field=field.given,
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One record with all of its fields. A record without a key has one origin for all."""

    ref: str
    collection: str
    title: str
    facts: Sequence[Fact]
    has_key: bool
    why: Origin | None = None
    who: str = ""
    events: Sequence[str] = ()


def _record(state: State, listing: Listing | None, sources: Sources, ref: str) -> Record | None:
    if listing is None or not ref:
        return None
    found, type_ = listing.find(ref), listing.type
    plain = listing.given(found)
    fields = list(type_.fields.values())
    title = ", ".join(words(plain.get(name)) for name in type_.key or ()) or type_.name
    if type_.key is not None:
        facts = _facts(state, type_, found, fields, sources)
        return Record(ref=ref, collection=listing.name, title=title, facts=facts, has_key=True)
    why = state.why(found)
    sources.read(found.event_ids)
    facts = [_fact(one, plain.get(one.given)) for one in fields]
    return Record(
        ref=ref,
        collection=listing.name,
        title=title,
        facts=[msgspec.structs.replace(one, record=ref) for one in facts],
        has_key=False,
        why=why,
        who="" if why is None else sources.who(why),
        events=found.event_ids,
    )


class Candidate(msgspec.Struct, frozen=True):
    """A value that a field may have, with what speaks for it. given: the value as JSON."""

    text: str
    given: str
    is_chosen: bool
    evidence: Sequence[Past]


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """A field with several values: each can be chosen."""

    field: str
    name: str
    of: str
    key: str
    text: str
    policy: str
    candidates: Sequence[Candidate]


def _conflict(state: State, one: Conflict, sources: Sources) -> Contradiction:
    sources.read([id_ for entry in one.entries for id_ in entry.event_ids[:1]])
    grouped: list[list[Any]] = []
    for entry in reversed(one.entries):
        same = next((some for some in grouped if some[0].value == entry.value), None)
        if same is None:
            grouped.append([entry])
        else:
            same.append(entry)
    return Contradiction(
        field=one.field,
        name=one.field.partition(".")[2],
        of=", ".join(map(words, one.key)),
        key=_json(one.key) if one.key else "",
        text=words(one.value),
        policy=one.policy,
        candidates=[
            Candidate(
                words(some[0].value),
                _json(some[0].value),
                not one.open and some[0].value == one.value,
                [sources.past(entry) for entry in some[:PAST]],
            )
            for some in grouped
        ],
    )


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to show: a text, pairs or rows with the code, or passages, or the problem."""

    problem: EmError | None = None
    answer: Any = None
    passages: Sequence[Passage] = ()
    text: str = ""
    pairs: Sequence[tuple[str, str]] = ()
    items: Sequence[str] = ()
    more: int = 0


def _answer(
    request: AnyRequest, service: Service, subject: str, as_of: datetime | None
) -> Answered:
    asked, is_code = parameter(request, "ask"), bool(parameter(request, "python"))
    question, code = (None, asked) if is_code else (asked, None)
    try:
        found = service.memory.ask(subject, question, code=code, as_of=as_of)
    except EmError as error:
        return Answered(problem=error)
    value = found.value
    if found.route == "recall":
        return Answered(answer=found, passages=value)
    if isinstance(value, Mapping):
        pairs = [(words(name), words(one)) for name, one in value.items()]
        return Answered(answer=found, pairs=pairs[:ITEMS], more=max(0, len(pairs) - ITEMS))
    if isinstance(value, list):
        items = [_line(one) for one in value[:ITEMS]]
        return Answered(answer=found, items=items, more=max(0, len(value) - ITEMS))
    return Answered(answer=found, text=words(value))


def _line(value: Any) -> str:
    """Return a record as one line."""
    if not isinstance(value, Mapping):
        return words(value)
    return ", ".join(f"{name}: {words(one)}" for name, one in value.items())


@get(f"{PAGES}/state/csv", include_in_schema=False, sync_to_thread=True)
def get_csv(request: AnyRequest) -> Response[str]:
    """Return the records that the page's filter leaves, all of them, as CSV."""
    service = service_of(request)
    subject = parameter(request, "subject")
    service.caller(request).must_see(subject)
    state = _state(request, service, subject)
    if not state.collections:
        raise NotFound(f"{subject!r} has no records", place="records")
    listing = Listing(state, _wanted(request))
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{subject}-{listing.name}").strip("-")[:80] or "records"
    headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(listing.csv(), media_type="text/csv", headers=headers)


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
    subjects, subject, by = _deciding(request, form)
    verdict: Verdict = "accepted" if form.get("verdict") == "accepted" else "rejected"
    await asyncio.to_thread(subjects.judge, subject, str(form.get("rule", "")), verdict, by=by)
    return go_to(address("/state", subject=subject))


@post(f"{PAGES}/accept", include_in_schema=False)
async def post_accept(request: AnyRequest) -> Response[str]:
    """Let an observation count that anybody may have written."""
    form = await form_of(request)
    subjects, subject, by = _deciding(request, form)
    await asyncio.to_thread(subjects.accept, subject, str(form.get("event", "")), by=by)
    return await _decided(subjects, subject, form)


@post(f"{PAGES}/resolve", include_in_schema=False)
async def post_resolve(request: AnyRequest) -> Response[str]:
    """Decide a field by one of the values that were observed, which the form has as JSON."""
    form = await form_of(request)
    subjects, subject, by = _deciding(request, form)
    try:
        value = msgspec.json.decode(str(form.get("value", "")))
    except msgspec.MsgspecError:
        value = None
    if value is None:
        raise InputError("expected a value as JSON", place="value")
    field, event, key = str(form.get("field", "")), str(form.get("event", "")), _key_in(form)
    decision = {"value": value, "event": event or None, "key": key, "by": by}
    await asyncio.to_thread(subjects.resolve, subject, field, **decision)
    return await _decided(subjects, subject, form)


@post(f"{PAGES}/correct", include_in_schema=False)
async def post_correct(request: AnyRequest) -> Response[str]:
    """Correct a fact, or a field of a record without a key."""
    form = await form_of(request)
    subjects, subject, by = _deciding(request, form)
    field, text = str(form.get("field", "")), str(form.get("value", ""))
    value = text if form.get("as") == "text" else json_or_text(text)
    if form.get("record"):
        await asyncio.to_thread(_correct_record, subjects, subject, form, {field: value}, by)
    else:
        key = _key_in(form)
        await asyncio.to_thread(subjects.resolve, subject, field, value=value, key=key, by=by)
    return await _decided(subjects, subject, form)


@post(f"{PAGES}/retract", include_in_schema=False)
async def post_retract(request: AnyRequest) -> Response[str]:
    """Take back a fact, or a record without a key."""
    form = await form_of(request)
    subjects, subject, by = _deciding(request, form)
    if form.get("record"):
        await asyncio.to_thread(_retract_record, subjects, subject, form, by)
        form.pop("back", None)  # the record that the address names is gone
    else:
        what, key = str(form.get("field", "")), _key_in(form)
        await asyncio.to_thread(subjects.retract, subject, what, key, by=by)
    return await _decided(subjects, subject, form)


def _correct_record(
    subjects: Subjects, subject: str, form: Mapping[str, Any], changes: Json, by: str
) -> None:
    subjects.correct(subject, _record_in(subjects, subject, form), changes, by=by)


def _retract_record(subjects: Subjects, subject: str, form: Mapping[str, Any], by: str) -> None:
    subjects.retract(subject, _record_in(subjects, subject, form), by=by)


def _record_in(subjects: Subjects, subject: str, form: Mapping[str, Any]) -> Any:
    wanted = Wanted(records=str(form.get("collection", "")))
    return Listing(subjects.state(subject), wanted).find(str(form.get("record", "")))


def _deciding(request: AnyRequest, form: Mapping[str, Any]) -> tuple[Subjects, str, str]:
    """Return the states, the subject, and who decides."""
    service, subject = service_of(request), str(form.get("subject", ""))
    caller = service.caller(request, "write")
    caller.must_see(subject)
    return service.memory.subjects, subject, caller.name


def _key_in(form: Mapping[str, Any]) -> list[Any]:
    """Return the key of a record, which the form has as JSON."""
    try:
        return msgspec.json.decode(str(form.get("key", "") or "[]"), type=list[Any])
    except msgspec.MsgspecError:
        raise InputError("expected the key of a record as a JSON list", place="key") from None


async def _decided(subjects: Subjects, subject: str, form: Mapping[str, Any]) -> Response[str]:
    """Apply what a person decided, and show the page that it was decided on."""
    await asyncio.to_thread(subjects.checkpoint, subject)
    return go_to(Here.back(form, subject)())


HANDLERS = [
    get_state,
    get_csv,
    post_checkpoint,
    post_rule,
    post_accept,
    post_resolve,
    post_correct,
    post_retract,
]
