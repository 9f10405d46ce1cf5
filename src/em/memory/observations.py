"""What a subject was observed to be, say or do."""

from collections.abc import Iterable, Mapping
from typing import Any

from em.errors import InputError
from em.log.event import Draft
from em.log.stream import subject_stream
from em.memory.base import Opened
from em.values.canonical import Json, uncollected
from em.values.times import Moment, moment

DETAILS = ("type", "speaker", "role", "session", "source")
"""What may be said of an observation besides what was observed, and when."""
_FIELDS = frozenset({"subject", "text", "record", "at", *DETAILS})


class Observing(Opened):
    """Keeping observations."""

    def observe(
        self,
        subject: str,
        text_or_record: str | Mapping[str, Any],
        *,
        type: str | None = None,  # noqa: A002 - the name users know from records
        at: Moment | None = None,
        speaker: str | None = None,
        role: str | None = None,
        session: str | None = None,
        source: str | None = None,
    ) -> str:
        """Keep something learned about a subject; the id of its event."""
        details = {
            "type": type,
            "speaker": speaker,
            "role": role,
            "session": session,
            "source": source,
        }
        draft = observation(subject, text_or_record, at, details)
        events = self.log.append_many([draft])
        self._observed(events)
        return events[0].id

    def observe_many(
        self, items: Iterable[tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]]
    ) -> list[str]:
        """Keep many observations in one transaction; the ids of their events.

        An item is `(subject, text_or_record)`, or a mapping with `subject`, either `text` or
        `record`, and optionally what `observe` takes by name.
        """
        with uncollected():
            drafts = []
            for number, item in enumerate(items):
                try:
                    drafts.append(_item(item))
                except InputError as error:
                    error.place = f"item {number}, {error.place}".rstrip(", ")
                    raise
            events = self.log.append_many(drafts)
        self._observed(events)
        return [event.id for event in events]


def observation(
    subject: str,
    text_or_record: str | Mapping[str, Any],
    at: Moment | None,
    details: Mapping[str, str | None],
) -> Draft:
    """The event by which something learned about a subject is kept."""
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


def _item(item: tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]) -> Draft:
    if isinstance(item, tuple) and len(item) == 2:
        subject, content = item
        return observation(subject, content, None, {})
    if not isinstance(item, Mapping):
        raise InputError(
            f"a {type(item).__name__} is no observation",
            fix="give (subject, text_or_record) or a mapping",
        )
    unknown = () if item.keys() <= _FIELDS else item.keys() - _FIELDS
    if unknown or "subject" not in item or ("text" in item) == ("record" in item):
        raise InputError(
            f"no field {min(unknown)!r} in an observation"
            if unknown
            else "an observation has a subject, and either a text or a record",
            fix="give subject, text or record, and optionally at, " + ", ".join(DETAILS),
        )
    content = item["text"] if "text" in item else item["record"]
    details = {name: item[name] for name in DETAILS if name in item}
    return observation(item["subject"], content, item.get("at"), details)
