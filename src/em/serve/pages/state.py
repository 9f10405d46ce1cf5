"""Pages of state: the list of subjects; a subject's facts, contradictions, records, rules; ask."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath

from em.errors import EmError, InputError, NotFound
from em.log.event import RUN_PREFIX, EventQuery, subject_stream
from em.runner.answers import json_or_text
from em.serve.auth import PAGES, Caller
from em.serve.pages.forms import acted
from em.serve.pages.table import Column, Filter, ListShape, ListView
from em.serve.pages.view import LONGEST_QUERY, address, go_to, page, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of
from em.state.conditions import kind_of_field
from em.state.fold import UNACCEPTED
from em.state.rules import written_condition
from em.state.schema import PROFILE, Verdict
from em.state.state import Conflict, Origin, State
from em.state.subjects import Subjects, find_subjects
from em.state.types import resolve
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.times import from_micros, moment

FACTS, ROWS = 200, 50
"""Facts that are shown, and records on one page."""
PAST = 20
"""The newest values of a field that its history shows."""
OPEN = 20
"""Contradictions that are listed."""
ITEMS = 50
"""The most items of an answer."""

# --- the list of subjects -------------------------------------------------------------------------

SUBJECTS = ListShape(
    "/state",
    "subjects",
    (Column("Subject"), Column("Events", is_number=True), Column("Last recorded")),
    (Filter("q", "Name", "words", is_first=True),),
)


def show_subjects(request: AnyRequest, service: Service, caller: Caller) -> Response[str]:
    """Show the subjects that the caller may see: searched, page by page."""
    view, store = ListView(SUBJECTS, request), service.store
    found = []
    for name in view.page_of(find_subjects(store, view.get("q"), caller.subjects)):
        stream = subject_stream(name)
        last = next(iter(store.rows(EventQuery(stream=stream, limit=1, newest=True))), None)
        at = None if last is None else from_micros(last.recorded_at)
        found.append({"name": name, "events": store.head(stream)[0], "at": at})
    return page(request, "subjects.html", view=view, subjects=found)


# --- one subject ----------------------------------------------------------------------------------

CARRIED = ("as_of", "facts", "records", "value", "page")
"""Parameters of the address that links of the page carry on, beside the subject."""


class Here:
    """The parts of this page's address. A link or a form changes some of them."""

    def __init__(self, subject: str, chosen: Mapping[str, str]) -> None:
        given = {name: chosen.get(name, "") for name in CARRIED}
        self.chosen = {"subject": subject, **{n: v for n, v in given.items() if v}}
        self.query = urlencode(self.chosen)
        """The parameters that lead back here."""

    def __call__(self, **changes: Any) -> str:
        """Return the address with some parameters changed; empty ones are left out."""
        return address("/state", **{**self.chosen, **changes})

    def get(self, name: str) -> str:
        """Return a parameter, or an empty string."""
        return self.chosen.get(name, "")

    def without(self, *names: str) -> list[tuple[str, str]]:
        """Return the parameters that a form carries on, beside its own."""
        return [(name, value) for name, value in self.chosen.items() if name not in names]


@get(f"{PAGES}/state", include_in_schema=False, sync_to_thread=True)
def get_state(request: AnyRequest) -> Response[str]:
    """Show a subject's state; without a subject, the list of subjects."""
    service = service_of(request)
    caller = service.caller(request)
    subject = parameter(request, "subject")
    if not subject:
        return show_subjects(request, service, caller)
    caller.must_see(subject)
    if not service.memory.subjects.has_state(subject):
        if not service.store.head(subject_stream(subject))[0]:
            raise NotFound(
                f"there are no observations about {subject!r}",
                fix=f"record one: em observe {subject} TEXT",
            )
        return page(request, "no_state.html", subject=subject)
    here = Here(subject, {name: parameter(request, name) for name in CARRIED})
    as_of = here.get("as_of")
    state = service.memory.state(subject, moment(as_of, "as_of") if as_of else None)
    sources = Sources(service.store)
    question = parameter(request, "ask")
    open_ = [one for one in state.conflicts() if one.open]
    return page(
        request,
        "state.html",
        subject=subject,
        here=here,
        state=state,
        as_of=state.as_of,
        question=question,
        is_code=bool(parameter(request, "python")),
        answer=_answer(request, service, subject, state.as_of) if question else None,
        facts=_facts(state, sources, here.get("facts")),
        table=_table(state, here, whole_number(request, "page") or 1),
        counts=[(name, len(state.collection(name))) for name in state.collections],
        conflicts=[_conflict(one, sources) for one in open_[:OPEN]],
        more_conflicts=len(open_[OPEN:]),
        alerts=state.alerts(),
        conditions={one.id: written_condition(one, state.schema) for one in state.rules},
        unaccepted=UNACCEPTED,
        versions=service.memory.subjects.versions(subject)[-20:],
        changes=service.memory.subjects.diff(subject),
        new_events=max(0, service.store.head(subject_stream(subject))[0] - state.schema.watermark),
    )


class PastValue(NamedTuple):
    """A value that a field has or had: since when, who said so, and the event."""

    text: str
    at: datetime
    who: str
    words: str
    event: str
    is_gone: bool


class ShownFact(msgspec.Struct, kw_only=True):
    """A field with its value, who said it, and the values before it.

    field: its name for a form. is_text: the value is a text, whatever a person writes.
    """

    name: str
    text: str
    is_text: bool
    field: str
    why: Origin | None
    who: str
    run: str
    past: Sequence[PastValue]
    earlier: int

    @property
    def changed(self) -> bool:
        """Whether the field had different values."""
        return len({(one.text, one.is_gone) for one in self.past}) > 1


class Sources:
    """Who said something, as the events tell it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._bodies: dict[str, Json] = {}

    def read(self, entries: Sequence[Any]) -> None:
        """Read the events of entries that are asked about next, all at once."""
        ids = [id_ for one in entries for id_ in one.event_ids[:1]]
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

    def past(self, entry: Any) -> PastValue:
        """Return an entry of a history as the page shows it."""
        is_gone = entry.value is None
        text, event = words(entry.value), entry.event_ids[0]
        return PastValue(text, entry.at, self.who(entry), entry.words, event, is_gone)


def _facts(state: State, sources: Sources, sought: str) -> Json | None:
    """Return the fields of the profile that have some words, and how many there are."""
    if PROFILE not in state.schema.types:
        return None
    plain, history = state.as_record(state.profile), state.profile.history
    fields = state.schema.types[PROFILE].fields.values()
    known = [one for one in fields if one.given in plain or one.name in history]
    found = [one for one in known if _has(sought, one.given, words(plain.get(one.given)))]
    origins = state.field_origins(state.schema.types[PROFILE], [])
    entries = {one.name: history.get(one.name, ()) for one in found[:FACTS]}
    sources.read([one for some in entries.values() for one in some])
    shown = []
    for field in found[:FACTS]:
        why, some = origins.get(field.name), entries[field.name]
        annotation = resolve(field).annotation
        shown.append(
            ShownFact(
                name=field.given,
                text=words(plain.get(field.given)),
                is_text=annotation == "str" or annotation.startswith("Literal["),
                field=f"{PROFILE.lower()}.{field.given}",
                why=why,
                who="" if why is None else sources.who(why),
                run="" if why is None else sources.run(why.event_ids[0]),
                past=[sources.past(one) for one in reversed(some[-PAST:])],
                earlier=max(0, len(some) - PAST),
            )
        )
    return {"shown": shown, "words": sought, "found": len(found), "total": len(known)}


def _has(sought: str, *texts: str) -> bool:
    text = " ".join(texts).casefold()
    return all(word in text for word in sought.casefold().split())


def _conflict(one: Conflict, sources: Sources) -> Json:
    """Return a field with several values, each with what speaks for it and how a form names it."""
    sources.read(one.entries)
    grouped: dict[str, list[Any]] = {}
    for entry in reversed(one.entries):
        grouped.setdefault(as_json(entry.value), []).append(entry)
    return {
        "field": one.field,
        "name": one.field.partition(".")[2],
        "of": ", ".join(map(words, one.key)),
        "key": as_json(one.key) if one.key else "",
        "candidates": [
            (words(some[0].value), given, [sources.past(entry) for entry in some[:PAST]])
            for given, some in grouped.items()
        ],
    }


def _table(state: State, here: Here, page_: int) -> Json | None:
    """Return one page of a collection: the records that have some words, as they were recorded."""
    if not state.collections:
        return None
    name = here.get("records") or next(iter(state.collections))
    if name not in state.collections:
        known = ", ".join(state.collections)
        raise NotFound(
            f"there is no collection {name[:80]!r}", place="records", fix=f"use one of: {known}"
        )
    type_, every, sought = state.collections[name], state.collection(name), here.get("value")
    found = [
        one
        for one in every
        if not sought or _has(sought, *map(words, state.as_record(one).values()))
    ]
    pages = max(1, -(-len(found) // ROWS))
    page_ = min(max(1, page_), pages)
    rows = []
    for record in found[(page_ - 1) * ROWS : page_ * ROWS]:
        plain, history = state.as_record(record), getattr(record, "history", {})
        cells = []
        for field in type_.fields.values():
            value = plain.get(field.given)
            past = [one.value for one in reversed(history.get(field.name, ()))]
            before = dict.fromkeys(words(one) for one in past if one != value)
            cells.append((words(value), list(before)))
        inferred = type_.key is None and state.inferred(record)
        rows.append((cells, record.event_ids, inferred))
    fields = type_.fields.values()
    return {
        "name": name,
        "key": ", ".join(type_.key or ()),
        "columns": [one.given for one in fields],
        "numbers": [one.given for one in fields if kind_of_field(one) == "number"],
        "rows": rows,
        "found": len(found),
        "total": len(every),
        "page": page_,
        "pages": pages,
    }


def words(value: Any) -> str:  # noqa: PLR0911 - one line for each kind of value
    """Return a value as a person would write it: a text as it is, other values without quotes."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list) and not any(isinstance(one, dict | list) for one in value):
        return ", ".join(map(words, value))
    if isinstance(value, Mapping) and value.keys() == {"amount", "currency"}:
        return f"{value['amount']} {value['currency']}"
    if hasattr(value, "currency") and hasattr(value, "amount"):
        return f"{value.amount} {value.currency}"
    return str(value) if isinstance(value, int | float | Decimal) else as_json(value)


def as_json(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()


def _answer(request: AnyRequest, service: Service, subject: str, as_of: datetime | None) -> Json:
    """Answer a question: a text, pairs or items with the code, or passages, or the problem."""
    asked, is_code = parameter(request, "ask"), bool(parameter(request, "python"))
    question, code = (None, asked) if is_code else (asked, None)
    shown: Json = {"problem": None, "passages": (), "text": "", "pairs": (), "lines": (), "more": 0}
    try:
        found = service.memory.ask(subject, question, code=code, as_of=as_of)
    except EmError as error:
        return {**shown, "problem": error}
    value, shown["answer"] = found.value, found
    if found.route == "recall":
        shown["passages"] = value
    elif isinstance(value, Mapping):
        pairs = islice(value.items(), ITEMS)
        shown |= {"pairs": [(words(a), words(b)) for a, b in pairs], "more": len(value) - ITEMS}
    elif isinstance(value, list):
        shown |= {"lines": [_line(one) for one in value[:ITEMS]], "more": len(value) - ITEMS}
    else:
        shown["text"] = words(value)
    return shown


def _line(value: Any) -> str:
    """Return a record as one line."""
    if not isinstance(value, Mapping):
        return words(value)
    return ", ".join(f"{name}: {words(one)}" for name, one in value.items())


# --- what a person decides ------------------------------------------------------------------------

Form = Mapping[str, Any]


@post(f"{PAGES}/state/{{act:str}}", include_in_schema=False)
async def post_act(request: AnyRequest, act: FromPath[str]) -> Response[str]:
    """Do what a person decides about a subject, compile its state, and show it."""

    def do(service: Service, form: Json, caller: Caller) -> Response[str]:
        subject = str(form.get("subject", ""))
        caller.must_see(subject)
        if act not in _ACTS:
            raise NotFound(f"there is no act {act[:40]!r}")
        _ACTS[act](service.memory.subjects, subject, form, caller.name)
        service.memory.checkpoint(subject)
        back = dict(parse_qsl(str(form.get("back", ""))[:LONGEST_QUERY]))
        return go_to(Here(subject, back)())

    return await acted(request, do)


def _judge(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Accept or reject a rule that a model derived."""
    verdict: Verdict = "accepted" if form.get("verdict") == "accepted" else "rejected"
    subjects.judge(subject, str(form.get("rule", "")), verdict, by=by)


def _accept(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Let an observation count that anybody may have written."""
    subjects.accept(subject, str(form.get("event", "")), by=by)


def _resolve(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Decide a field by one of the values that were observed, which the form has as JSON."""
    value = _json_in(form, "value", "null")
    if value is None:
        raise InputError("expected a value as JSON", place="value")
    event, field = str(form.get("event", "")) or None, str(form.get("field", ""))
    subjects.resolve(subject, field, value=value, event=event, key=_key_in(form), by=by)


def _correct(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Correct a fact."""
    field, text = str(form.get("field", "")), str(form.get("value", ""))
    value = text if form.get("as") == "text" else json_or_text(text)
    subjects.resolve(subject, field, value=value, key=_key_in(form), by=by)


def _retract(subjects: Subjects, subject: str, form: Form, by: str) -> None:
    """Take back a fact."""
    subjects.retract(subject, str(form.get("field", "")), _key_in(form), by=by)


_ACTS: Mapping[str, Callable[[Subjects, str, Form, str], None]] = {
    "checkpoint": lambda _subjects, _subject, _form, _by: None,
    "rule": _judge,
    "accept": _accept,
    "resolve": _resolve,
    "correct": _correct,
    "retract": _retract,
}


def _json_in(form: Form, name: str, default: str) -> Any:
    """Return what a form has as JSON."""
    try:
        return msgspec.json.decode(str(form.get(name, "") or default))
    except msgspec.MsgspecError:
        raise InputError("expected a value as JSON", place=name) from None


def _key_in(form: Form) -> list[Any]:
    """Return the key of the record whose field it is; empty for the profile."""
    key = _json_in(form, "key", "[]")
    return key if isinstance(key, list) else [key]


HANDLERS = [get_state, post_act]
