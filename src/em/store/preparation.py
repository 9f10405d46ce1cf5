"""Prepare a commit: check, redact and encode it.

This happens before the transaction begins, so that the write lock is held only while writing.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from em import deadline
from em.errors import BadBody, InputError
from em.log.chain import HASH_BYTES, SALT_BYTES, hash_body
from em.log.event import TRACE_PREFIX, Draft, Event, check_name
from em.log.kinds import SEARCHED, check_body, check_kind, details, searched_text
from em.log.summary import SUMMARISED
from em.redaction.masker import NAMES, Echoes
from em.redaction.redactor import Redactor
from em.store.protocol import ArtefactDraft, Commit, Record, RequestOutcome
from em.text.tags import field_tags
from em.values.canonical import Json, canonical
from em.values.times import from_micros, moment, new_id, new_ids, now, to_micros

if TYPE_CHECKING:
    from em.text.terms import Piece


class PreparedEvent(NamedTuple):
    """An event that lacks only what the transaction gives it: position, times and hashes."""

    id: str
    stream: str
    subject: str | None
    kind: str
    v: int
    at: int | None
    text: bytes | None
    body: Json | None
    imported: Event | None
    sources: tuple[str, ...] = ()
    pieces: "Sequence[Piece]" = ()


class PreparedArtefact(NamedTuple):
    """A version of an artefact with its body encoded."""

    draft: ArtefactDraft
    text: bytes
    body: Json


class PreparedCommit(NamedTuple):
    """A commit that is ready to be written."""

    events: list[PreparedEvent]
    artefacts: list[PreparedArtefact]
    records: list[tuple[Record, bytes | None]]
    lessons: Mapping[str, str | None]
    retire: Sequence[str]
    request: RequestOutcome | None
    given_ids: list[str]
    expected_pos: Mapping[str, int]
    skip_known: bool
    sources: set[str]
    restore: Sequence[str] = ()
    cards: Sequence[tuple[str, bytes]] = ()


def prepare(commit: Commit, redactor: Redactor) -> PreparedCommit:
    """Check, redact and encode a commit."""
    given_ids = [event.id for event in commit.events if event.id is not None]
    events = _checked(commit.events, is_decoded=commit.is_decoded)
    _redact_events(events, given_ids, redactor, {})
    now_ = now()
    events = [one if one.kind not in SEARCHED else with_pieces(one, now_) for one in events]
    deadline.check()  # whoever sent this has been told that it is not done
    sources = {event_id for event in events for event_id in event.sources}
    holders: list[ArtefactDraft | Record] = [*commit.artefacts, *commit.records]
    for holder in holders:
        sources.update(_sources(holder.from_events, "from_events"))
    if commit.request is not None:
        sources.update(_sources(commit.request.from_events, "from_events"))
    return PreparedCommit(
        events=events,
        artefacts=[_artefact(draft, redactor) for draft in commit.artefacts],
        records=[_record(record, redactor) for record in commit.records],
        lessons=_lessons(commit.lessons),
        retire=commit.retire,
        restore=commit.restore,
        cards=[
            (artefact_id, _clean_body(body, f"card of {artefact_id}", redactor)[0])
            for artefact_id, body in commit.cards.items()
        ],
        request=_request(commit.request, redactor),
        given_ids=given_ids,
        expected_pos=commit.expected_pos,
        skip_known=commit.skip_known,
        sources=sources,
    )


def prepare_row(commit: Commit, redactor: Redactor) -> PreparedEvent | None:
    """Prepare a commit that is one new event and nothing else, so that one statement writes it.

    Return None for any other commit, and for one that can't be written: `prepare` says why. Every
    step of a run waits for this, so it does nothing twice and builds nothing that is not stored.
    """
    (draft,) = commit.events
    body, kind = draft.body, draft.kind
    if (
        type(draft) is not Draft or draft.id is not None or draft.at is not None
        or type(kind) is not str or kind in _NOT_ALONE or commit.skip_known
        or type(body) is not dict
        or "from_events" in body or redactor.searches_all or not commit.is_only_events
    ):  # fmt: skip
        return None
    stream, subject, v = draft.stream, draft.subject, draft.v
    try:
        check_name(stream, "stream")
        if subject is not None:
            check_name(subject, "subject")
        check_kind(kind, v)
        text, plain = canonical(body, is_decoded=commit.is_decoded)
        check_body(kind, text)
    except InputError:
        return None
    if redactor.is_suspect(text, stream, subject or ""):
        return None
    return PreparedEvent(new_id(), stream, subject, kind, v, None, text, plain, None)


_NOT_ALONE = SEARCHED | SUMMARISED | {"erased"}
"""Kinds of events that are not written by one statement: other rows belong to them."""


def _checked(
    drafts: Sequence[Draft | Event], *, is_decoded: bool, before: int = 0
) -> list[PreparedEvent]:
    """Check and encode events. before: how many of the batch there were before them."""
    several = len(drafts) > 1 or before > 0
    ids = new_ids(len(drafts)) if several else [new_id()]
    prepared: list[PreparedEvent] = []
    for n, draft in enumerate(drafts):
        try:
            prepared.append(_event(draft, ids[n], is_decoded=is_decoded))
        except InputError as error:
            error.data["index"] = before + n
            if several:
                error.place = f"event {before + n} of the batch, {error.place}"
            raise
    return prepared


def redacted(
    drafts: Sequence[Draft], redactor: Redactor, echoes: dict[str, Echoes], before: int
) -> list[PreparedEvent]:
    """Check, encode and redact a portion of a batch, without what finds its events.

    echoes: by stream, the secrets of the portions before; those of this one are added.
    before: how many events there were before it.
    """
    prepared = _checked(drafts, is_decoded=False, before=before)
    _redact_events(prepared, (), redactor, echoes)
    return prepared


def with_pieces(event: PreparedEvent, now_: datetime) -> PreparedEvent:
    """Add the passages by which an event is found. Its body must be redacted already."""
    text = searched_text(event.kind, event.body)
    if not text:
        return event
    from em.text.terms import pieces  # only what is searched needs the analysis of texts

    at = now_ if event.at is None else from_micros(event.at)
    speaker, role, _ = details(event.body)
    body = event.body or {}
    if event.stream.startswith(TRACE_PREFIX):
        body = {"run": event.stream.removeprefix(TRACE_PREFIX), **body}
    is_assistant = role == "assistant"
    parts = pieces(text, at, speaker, by_assistant=is_assistant, tags=field_tags(body))
    return PreparedEvent(*event[:-1], parts)


def _event(draft: Draft | Event, fresh_id: str, *, is_decoded: bool) -> PreparedEvent:
    check_name(draft.stream, "stream")
    if draft.subject is not None:
        check_name(draft.subject, "subject")
    check_kind(draft.kind, draft.v)
    if draft.id is not None:
        check_name(draft.id, "id")
    imported = draft if isinstance(draft, Event) else None
    at = None if draft.at is None else to_micros(moment(draft.at))
    text, body = None, None
    if imported is None or imported.body is not None:
        if not isinstance(draft.body, dict):
            raise BadBody(
                f"body must be a JSON object, got {type(draft.body).__name__}",
                place="body",
                fix='write {"text": …}',
            )
        text, body = canonical(draft.body, is_decoded=is_decoded)
        check_body(draft.kind, text)
    if imported is not None:
        _check_imported(imported, text)
    elif draft.kind == "erased":
        raise InputError(
            "events of kind 'erased' are written by forgetting only",
            place="kind",
            fix="use memory.forget or `em forget`",
        )
    return PreparedEvent(
        draft.id or fresh_id,
        draft.stream,
        draft.subject,
        draft.kind,
        draft.v,
        at,
        text,
        body,
        imported,
        () if body is None or "from_events" not in body else _sources(body["from_events"]),
    )


def _sources(given: Any, place: str = "body.from_events") -> tuple[str, ...]:
    """Check a list of the ids of source events."""
    if not isinstance(given, list | tuple):
        raise InputError(f"expected a list of event ids, got {type(given).__name__}", place=place)
    return tuple(check_name(event_id, place) for event_id in given)


def _check_imported(event: Event, text: bytes | None) -> None:
    sizes = {"body_hash": HASH_BYTES, "hash": HASH_BYTES}
    if text is not None:
        sizes["salt"] = SALT_BYTES
    for field, size in sizes.items():
        if not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", getattr(event, field) or ""):
            raise InputError(f"{field} must be {size} bytes in hexadecimal", place=field)
    if text is not None:
        salt = bytes.fromhex(event.salt or "")
        if hash_body(salt, text).hex() != event.body_hash:
            raise InputError(
                "the body does not match its hash",
                place="body",
                fix="the line was changed after its export: import an unchanged export",
            )


def _redact_events(
    events: list[PreparedEvent],
    given_ids: Sequence[str],
    redactor: Redactor,
    echoes: dict[str, Echoes],
) -> None:
    names = {event.stream for event in events}
    names.update([event.subject for event in events if event.subject is not None], given_ids)
    for name in redactor.suspect_names(names):
        refuse_secret_name(name, redactor)
    for n in redactor.suspects([event.text or b"" for event in events]):
        event = events[n]
        assert event.text is not None
        body = msgspec.json.decode(event.text)  # what is stored, whatever the writer had
        clean = redactor.value(body)
        if clean == body:
            continue
        if event.imported is not None:
            raise InputError(
                "the event holds a secret, and redacting it would break its hash",
                place=f"event {event.id}",
                fix="import with --rechain, which redacts the secret and hashes the event again",
                index=n,
            )
        text, clean = canonical(clean)
        events[n] = event._replace(text=text, body=clean)
        echoes.setdefault(event.stream, Echoes()).learn(body, clean)
    if echoes:
        _mask_echoes(events, echoes)


def _mask_echoes(events: list[PreparedEvent], echoes: Mapping[str, Echoes]) -> None:
    """Mask in all events of a stream what was a secret in one of them."""
    for n, event in enumerate(events):
        if event.stream not in echoes or event.body is None or event.imported is not None:
            continue
        body = msgspec.json.decode(event.text or b"{}")
        clean = without_echoes(body, echoes[event.stream])
        if clean != body:
            text, clean = canonical(clean)
            events[n] = event._replace(text=text, body=clean)


def without_echoes(body: Json, echoes: Echoes) -> Json:
    """Mask in a body what was a secret in another event of its stream."""
    return {name: item if name in NAMES else echoes.mask(item) for name, item in body.items()}


def refuse_secret_name(name: str, redactor: Redactor, place: str = "stream, subject or id") -> None:
    """Raise InputError for a name that holds a secret: names are stored unredacted."""
    if not redactor.is_clean_name(name):
        raise InputError(
            f"the name {redactor.text(name)!r} holds a secret",
            place=place,
            fix="choose another name: names are never redacted, because things are found by them",
        )


def _clean_body(body: Any, place: str, redactor: Redactor) -> tuple[bytes, Json]:
    text, plain = canonical(body, place)
    if redactor.suspects([text]):
        echoes, clean = Echoes(), redactor.value(plain)
        echoes.learn(plain, clean)
        if echoes and isinstance(clean, dict):
            clean = without_echoes(clean, echoes)
        text, plain = canonical(clean, place)
    return text, plain


def _artefact(draft: ArtefactDraft, redactor: Redactor) -> PreparedArtefact:
    check_name(draft.name, "artefact name")
    check_name(draft.kind, "artefact kind")
    refuse_secret_name(draft.name, redactor)
    place = f"artefact {draft.kind}/{draft.name}"
    if draft.from_log:
        text, body = canonical(draft.body, place)
    else:
        text, body = _clean_body(draft.body, place, redactor)
    return PreparedArtefact(draft, text, body)


def _record(record: Record, redactor: Redactor) -> tuple[Record, bytes | None]:
    for field in ("subject", "type", "id"):
        name = check_name(getattr(record, field), f"record {field}")
        refuse_secret_name(name, redactor)
    if record.body is None:
        return record, None
    place = f"record {record.type}/{record.id}"
    if record.from_log:
        return record, canonical(record.body, place)[0]
    return record, _clean_body(record.body, place, redactor)[0]


def _lessons(lessons: Mapping[str, str | None]) -> Mapping[str, str | None]:
    for stream, event_id in lessons.items():
        check_name(stream, "stream")
        if event_id is not None:
            check_name(event_id, "id")
    return lessons


def _request(request: RequestOutcome | None, redactor: Redactor) -> RequestOutcome | None:
    if request is None or not redactor.suspects([request.response]):
        return request
    return msgspec.structs.replace(request, response=_clean_response(request.response, redactor))


def _clean_response(response: bytes, redactor: Redactor) -> bytes:
    """Redact a response. One without a secret stays as it is, byte for byte."""
    try:
        value = msgspec.json.decode(response)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return redactor.text(response.decode(errors="surrogateescape")).encode(
            errors="surrogateescape"
        )
    clean = redactor.value(value)
    return response if clean == value else canonical(clean)[0]
