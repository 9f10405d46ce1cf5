"""Pages of state: a subject's facts, histories, contradictions, records, rules and code; ask."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath

from em.errors import EmError, InputError, NotFound
from em.log.event import RUN_PREFIX, EventQuery, subject_stream
from em.runner.answers import json_or_text
from em.serve.auth import PAGES
from em.serve.pages.forms import form_of
from em.serve.pages.records import Listing, as_json, words
from em.serve.pages.subjects import show_subjects
from em.serve.pages.view import (
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


CARRIED = ("as_of", "facts", "facts_page", "records", "record", "value", "page")
"""Parameters of the address that links of the page carry on, beside the subject."""


class Here:
    """The parts of this page's address. A link or a form changes some of them."""

    def __init__(self, subject: str, chosen: Mapping[str, str]) -> None:
        self.chosen = {"subject": subject, **{n: v for n, v in chosen.items() if v}}

    @classmethod
    def of(cls, request: AnyRequest, subject: str) -> "Here":
        """Read the parameters of a request."""
        return cls(subject, {name: parameter(request, name) for name in CARRIED})

    @classmethod
    def back(cls, form: Mapping[str, Any], subject: str) -> "Here":
        """Return where a form was sent from; only names of ours count."""
        given = dict(parse_qsl(str(form.get("back", ""))[:LONGEST_QUERY]))
        return cls(subject, {name: given.get(name, "") for name in CARRIED})

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
    sought, chosen = parameter(request, "value"), parameter(request, "records")
    listing = Listing(state, chosen, sought) if state.collections else None
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
        table=None if listing is None else listing.table(_page(request, "page")),
        counts=[(name, len(state.collection(name))) for name in state.collections],
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
                key=as_json(key) if key else "",
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
        given=as_json(value),
        is_text=annotation == "str" or annotation.startswith("Literal["),
        field=field.given,
    )


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
        key=as_json(one.key) if one.key else "",
        text=words(one.value),
        policy=one.policy,
        candidates=[
            Candidate(
                words(some[0].value),
                as_json(some[0].value),
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


@post(f"{PAGES}/state/{{act:str}}", include_in_schema=False)
async def post_act(request: AnyRequest, act: FromPath[str]) -> Response[str]:
    """Do what a person decides about a subject, compile its state, and show it."""
    form = await form_of(request)
    service, subject = service_of(request), str(form.get("subject", ""))
    caller = service.caller(request, "write")
    caller.must_see(subject)
    acts = {"checkpoint": lambda *_: None, "rule": _judge, "accept": _accept}
    acts |= {"resolve": _resolve, "correct": _correct, "retract": _retract}
    if act not in acts:
        raise NotFound(f"there is no act {act[:40]!r}")

    def work() -> Response[str]:
        acts[act](service.memory.subjects, subject, form, caller.name)
        service.memory.checkpoint(subject)
        return go_to(Here.back(form, subject)())

    return await asyncio.to_thread(work)


Form = Mapping[str, Any]


def _judge(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Accept or reject a rule that a model derived."""
    verdict: Verdict = "accepted" if form.get("verdict") == "accepted" else "rejected"
    subjects.judge(subject, str(form.get("rule", "")), verdict, by=by)


def _accept(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Let an observation count that anybody may have written."""
    subjects.accept(subject, str(form.get("event", "")), by=by)


def _resolve(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Decide a field by one of the values that were observed, which the form has as JSON."""
    try:
        value = msgspec.json.decode(str(form.get("value", "")))
    except msgspec.MsgspecError:
        value = None
    if value is None:
        raise InputError("expected a value as JSON", place="value")
    event, field = str(form.get("event", "")) or None, str(form.get("field", ""))
    subjects.resolve(subject, field, value=value, event=event, key=_key_in(form), by=by)


def _correct(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Correct a fact, or a field of a record without a key."""
    field, text = str(form.get("field", "")), str(form.get("value", ""))
    value = text if form.get("as") == "text" else json_or_text(text)
    if form.get("record"):
        subjects.correct(subject, _record_in(subjects, subject, form), {field: value}, by=by)
    else:
        subjects.resolve(subject, field, value=value, key=_key_in(form), by=by)


def _retract(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Take back a fact, or a record without a key."""
    if form.get("record"):
        subjects.retract(subject, _record_in(subjects, subject, form), by=by)
    else:
        subjects.retract(subject, str(form.get("field", "")), _key_in(form), by=by)


def _record_in(subjects: Subjects, subject: str, form: Form) -> Any:
    listing = Listing(subjects.state(subject), str(form.get("collection", "")))
    return listing.find(str(form.get("record", "")))


def _key_in(form: Form) -> list[Any]:
    """Return the key of a record, which the form has as JSON."""
    try:
        return msgspec.json.decode(str(form.get("key", "") or "[]"), type=list[Any])
    except msgspec.MsgspecError:
        raise InputError("expected the key of a record as a JSON list", place="key") from None


HANDLERS = [get_state, post_act]
