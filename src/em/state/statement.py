"""Statements: what a reader says that a text states, as data. `judgement` checks each of them.

The reader is the agent that hands the text in, or a model at the checkpoint. Both say the same:

    {"op": "set", "field": "city", "value": "Porto", "since": "2025-03", "evidence": "moved to …"}
    {"op": "add", "type": "Trip", "record": {"destination": "Rome"}, "evidence": "flew to Rome"}
    {"op": "retract", "field": "employer", "evidence": "I left Acme"}
    {"op": "same", "known": {"destination": "Rome"}, "evidence": "that trip to Rome"}
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from em.errors import InputError
from em.state.schema import PROFILE, StateSchema, TypeSchema
from em.text.terms import words_of
from em.values.canonical import Json
from em.values.mismatch import mismatch

USERS = frozenset({"user", "human"})
"""Roles of the subject, where the event names no speaker."""
T = TypeVar("T", bound=msgspec.Struct)
Op = Literal["set", "add", "retract", "same"]
Name = Annotated[str, msgspec.Meta(max_length=60)]
Said = Annotated[str, msgspec.Meta(max_length=4_000)]


class Statement(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One fact that a text states, takes back, or repeats.

    known: the record that it is about: the id of its event, or fields that only it has. again: the
    record is another one like a known one. mistaken: it was never right, so the past changes too.
    """

    op: Op
    type: Name = PROFILE
    key: list[Any] = []
    field: Name = ""
    value: Any = None
    record: Json = {}
    known: str | Json = ""
    since: str | None = None
    again: bool = False
    mistaken: bool = False
    status: Literal["confirmed", "stated", "inferred"] = "stated"
    source: str = ""
    evidence: Annotated[list[Said], msgspec.Meta(max_length=20)] | Said = []

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError("`evidence` is missing: the words of the text that say it")
        has_value = bool(self.field) and self.value is not None
        if self.op == "set" and not has_value and not (self.known and self.record):
            raise ValueError("`set` needs `field` and `value`, or `known` and `record`")
        if self.op == "add" and not self.record:
            raise ValueError("`add` needs a `record`")
        if self.op == "retract" and not self.field and not self.known:
            raise ValueError("`retract` needs a `field` or a `known` record")
        if self.op == "same" and not self.known:
            raise ValueError("`same` needs a `known` record")


class Text(msgspec.Struct, frozen=True):
    """An observation in words that was not read yet.

    facts, rules: what the caller read in it; None if the caller did not read it.
    """

    event: str
    text: str
    at: int
    recorded_at: int
    speaker: str = ""
    source: str = ""
    role: str = ""
    addressee: str = ""
    facts: list[Json] | None = None
    rules: list[Json] | None = None

    @property
    def is_read(self) -> bool:
        """Whether the caller read it."""
        return self.facts is not None or self.rules is not None

    @property
    def is_note(self) -> bool:
        """Whether the event names nobody as its speaker: it may be a note about the subject."""
        return not self.speaker and not self.role

    def names(self, name: str) -> bool:
        """Tell whether the text or its event names somebody; accents and signs don't matter."""
        return any(has_name(name, said) for said in (self.text, self.speaker, self.addressee))

    def is_by(self, names: frozenset[str]) -> bool:
        """Tell whether the event says that the subject, which has these names, speaks."""
        if self.speaker:
            return plain_name(self.speaker) in names
        return not self.role or self.role.lower() in USERS


def plain_name(name: str) -> str:
    """Return a name as names are compared: without case, accents and signs."""
    return " ".join(words_of(name))


def has_name(name: str, text: str) -> bool:
    """Tell whether a name stands in a text."""
    wanted = plain_name(name)
    return bool(wanted) and f" {wanted} " in _padded(text)


@lru_cache(maxsize=8)
def _padded(text: str) -> str:
    """Return the words of a text, once for all names that are sought in it."""
    return f" {plain_name(text)} "


def read_as(kind: type[T], given: Any, place: str) -> T:
    """Convert one item of what was read; InputError names its place."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        found = mismatch(error)
        raise InputError(found.message, place=".".join(filter(None, (place, found.path)))) from None


ABOUT = (
    "Fill in what the text states: `set` a field of the subject, `add` a record, `retract` an "
    "earlier fact that the text makes impossible (moved away, sold, left), `same` for a known "
    "record; each with its evidence, the words copied from the text."
)
"""What a reader fills in, in one sentence."""


def statement_schema(schema: StateSchema | None) -> Json:
    """Return the JSON Schema of the facts of a text, made from the types that the subject has."""
    types = {} if schema is None else schema.types
    own = ", ".join(types[PROFILE].fields) if PROFILE in types else "such as city"
    text: Json = {"type": "string"}
    properties: Json = {
        "op": {"enum": list(get_args(Op))},
        "field": {**text, "description": f"Of the subject: {own}."},
        "value": {},
        "type": {**text, "description": f"Of the record. Known: {'; '.join(_lines(types))}."},
        "key": {"type": "array", "description": "Of a record that has one, such as a Person."},
        "record": {"type": "object"},
        "known": {"description": "Fields that only the known record has, or its event."},
        "since": {**text, "description": "2025-03 or 2025-03-02."},
        "mistaken": {"type": "boolean", "description": "The old value was never right."},
        "again": {"type": "boolean", "description": "Another one like a known record."},
        "evidence": {**text, "description": "Copied from the text; the value stands in it."},
    }
    required = ["op", "evidence"]
    return {
        "type": "object", "description": ABOUT, "properties": properties, "required": required
    }  # fmt: skip


def _lines(types: Mapping[str, TypeSchema]) -> list[str]:
    others = (one for one in types.values() if one.given != PROFILE)
    found = []
    for type_ in others:
        key = f" (key: {', '.join(type_.key)})" if type_.key else ""
        found.append(f"{type_.given}{key}: {', '.join(type_.fields)}")
    return found or ["none"]


def known_names(schema: StateSchema, most: int) -> str:
    """Return the fields and types of a subject in one line of at most so many characters."""
    own = schema.types[PROFILE].fields if PROFILE in schema.types else {}
    return "; ".join([*filter(None, [", ".join(own)]), *_lines(schema.types)])[:most]
