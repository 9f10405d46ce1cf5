"""Observation: something learned about a subject, a text or a record."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from em.errors import InputError
from em.log.event import Draft
from em.log.kinds import event_body
from em.log.stream import subject_stream
from em.values.canonical import Json
from em.values.times import Moment, moment

DETAILS = ("type", "speaker", "role", "session", "source")
"""Optional fields of an observation, beside its time."""
_FIELDS = frozenset({"subject", "text", "record", "at", *DETAILS})


@event_body("observation")
class Observation(msgspec.Struct, frozen=True):
    """Something learned about a subject: a text or a record, and who said it."""

    text: str | None = None
    record: Json | None = None
    type: str | None = None
    speaker: str | None = None
    role: str | None = None
    session: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.record is None):
            raise ValueError("an observation has either `text` or `record`")


def observation(
    subject: str,
    text_or_record: str | Mapping[str, Any],
    at: Moment | None,
    details: Mapping[str, str | None],
) -> Draft:
    """Make the event of something learned about a subject."""
    body: Json = {name: value for name, value in details.items() if value is not None}
    if isinstance(text_or_record, str):
        body["text"] = text_or_record
    elif isinstance(text_or_record, Mapping):
        body["record"] = dict(text_or_record)
    else:
        raise InputError(
            f"a {type(text_or_record).__name__} can't be observed",
            place="text_or_record",
            fix="give a text or a mapping",
        )
    return Draft(
        stream=subject_stream(subject),
        kind="observation",
        body=body,
        subject=subject,
        at=None if at is None else moment(at),
    )


def observations(
    items: Iterable[tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]],
) -> Sequence[Draft]:
    """Make the events of many observations; an error names the item by its number."""
    drafts = []
    for number, item in enumerate(items):
        try:
            drafts.append(_item(item))
        except InputError as error:
            error.place = f"item {number}, {error.place}".rstrip(", ")
            raise
    return drafts


def _item(item: tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]) -> Draft:
    if isinstance(item, tuple) and len(item) == 2:
        subject, content = item
        return observation(subject, content, None, {})
    if not isinstance(item, Mapping):
        raise InputError(
            f"expected an observation, got a {type(item).__name__}",
            fix="give (subject, text_or_record) or a mapping",
        )
    unknown = () if item.keys() <= _FIELDS else item.keys() - _FIELDS
    if unknown or "subject" not in item or ("text" in item) == ("record" in item):
        raise InputError(
            f"unknown field {min(unknown)!r} in an observation"
            if unknown
            else "an observation has a subject, and either a text or a record",
            fix="give subject, text or record, and optionally at, " + ", ".join(DETAILS),
        )
    content = item["text"] if "text" in item else item["record"]
    details = {name: item[name] for name in DETAILS if name in item}
    return observation(item["subject"], content, item.get("at"), details)
