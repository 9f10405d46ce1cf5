"""The schema of a state: a subject's observations, types, rules and policies, not its records.

This is what a checkpoint stores as the artefact; with the bodies of the events it is made from.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from em.errors import InputError
from em.log.event import Draft, subject_stream
from em.log.kinds import event_body
from em.traces.trace import Source
from em.values.canonical import Json
from em.values.times import Moment, moment

FORMAT = 1
"""Format of a state's artefact. A state in another format is compiled again."""

KIND = "state"
"""The kind of a state's artefact."""

PROFILE = "Profile"
"""The type whose fields are facts about the subject itself."""

UNSTRUCTURED = "~unstructured"
"""The type under which observations are listed that could not be structured."""

Severity = Literal["info", "warning", "high", "critical"]
Status = Literal["decided", "confirmed", "stated", "inferred"]
"""How sure a value is."""
Verdict = Literal["proposed", "accepted", "rejected"]
How = Literal["record", "model", "agent", "decision"]
"""How em came to know a fact."""
PolicyName = Literal["latest", "source", "confirmed", "ask"]


class Example(msgspec.Struct, frozen=True):
    """An example of a value, as text, with its event."""

    text: str
    event: str


class FieldSchema(msgspec.Struct):
    """The profile of a field: how often it was seen and with which kinds of values.

    values: the different texts, each with its first event; None once there are too many.
    odd: examples of texts that are not a date, number or amount.
    """

    given: str
    name: str
    count: int = 0
    nulls: int = 0
    kinds: dict[str, int] = {}
    values: dict[str, str] | None = {}
    examples: list[Example] = []
    odd: list[Example] = []
    items: "FieldSchema | None" = None
    nested: "TypeSchema | None" = None


class TypeSchema(msgspec.Struct):
    """A class of records: its names, its fields, and its blocks in the store.

    key: the fields that identify a record; without a key each observation is a new record.
    gone: how many of the counted records were corrected or taken back.
    """

    given: str
    name: str
    collection: str
    key: list[str] | None = None
    count: int = 0
    fields: dict[str, FieldSchema] = {}
    blocks: int = 0
    open_rows: int = 0
    left_out: int = 0
    gone: int = 0


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to choose between contradicting values of a field."""

    name: PolicyName = "latest"
    order: list[str] = []


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checked rule, which the generated module has as a function.

    deadline: a date or a datetime, or the field of the records or the profile that has it.
    each: the records that the rule is about, one by one. verdict: what a person said of it.
    """

    id: str
    severity: Severity
    message: str
    action: str | None = None
    when: Json | None = None
    active_from: str | None = None
    active_until: str | None = None
    deadline: str | Json | None = None
    offset: str | None = None
    events: list[str] = []
    each: Json | None = None
    verdict: Verdict = "proposed"


class ActiveWindow(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The time in which a rule applies; open at an end that is None."""

    from_: str | None = msgspec.field(default=None, name="from")
    until: str | None = None


class ConstraintDraft(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A constraint as a model writes it, and as the log has it; not checked yet."""

    id: str
    severity: Severity
    message: Annotated[str, msgspec.Meta(min_length=1)]
    action: str | None = None
    when: Json | None = None
    active: ActiveWindow | None = None
    deadline: str | Json | None = None
    offset: str | None = None
    each: Json | None = None


class Coverage(msgspec.Struct):
    """How many observations became records or facts, and how."""

    observations: int = 0
    structured: int = 0
    by_agent: int = 0
    by_model: int = 0
    unstructured: int = 0


class StateSchema(msgspec.Struct):
    """The body of a state's artefact.

    merged: by type, the keys (as JSON) of records that are the same as another, and its key.
    """

    subject: str
    format: int = FORMAT
    watermark: int = 0
    watermark_seq: int = 0
    types: dict[str, TypeSchema] = {}
    policies: dict[str, Policy] = {}
    constraints: list[Constraint] = []
    verdicts: dict[str, Verdict] = {}
    merged: dict[str, dict[str, list[object]]] = {}
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    unstructured: TypeSchema = msgspec.field(
        default_factory=lambda: TypeSchema(UNSTRUCTURED, UNSTRUCTURED, "unstructured")
    )


class Entry(msgspec.Struct, frozen=True):
    """One value of a single-valued field: when it held and was recorded, in microseconds.

    A value of None takes the value back that was there. words: those of the text that say it.
    """

    value: object
    at: int
    recorded_at: int
    events: list[str]
    source: str = ""
    status: Status = "stated"
    how: How = "record"
    words: str = ""
    speaker: str = ""
    origin: Source = "own"


@event_body("extracted")
class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from free text: records, facts and constraints, each with its events.

    An item's `op` is add (also where there is none), update, retract, same or merge; `place` names
    the record without a key that it is about. keys: those of types that a model proposed and em
    accepted. left_out: what was read and not taken, with why.
    """

    from_events: list[str]
    method: Literal["agent", "model"]
    model: str = ""
    records: list[Json] = []
    facts: list[Json] = []
    constraints: list[Json] = []
    keys: dict[str, list[str]] = {}
    left_out: list[str] = []
    failed: str = ""


@event_body("decided")
class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A person's decision about a field: its value, the event that is right, or a policy.

    Without a field it declares the key of a type. undo: the id of an earlier decision to take back.
    place: the record without a key that it corrects, by `changes`, or takes back if there are none.
    retract: take a field's value back.
    rule: the rule that `verdict` is about, with a digest of its content: `ID DIGEST`.
    same: the key of the record whose fields become those of the one with `record_key`.
    accept: the observation from the web that counts from now on.
    by: who decided, as far as the entrance knows: the name of a token, or `local`.
    """

    type: str = ""
    field: str | None = None
    record_key: list[object] | None = None
    value: object = None
    event: str | None = None
    policy: Policy | None = None
    key: list[str] | None = None
    undo: str | None = None
    place: str | None = None
    changes: Json | None = None
    retract: bool = False
    rule: str | None = None
    verdict: Verdict | None = None
    same: list[object] | None = None
    accept: str | None = None
    by: str = ""


@event_body("question")
class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question that code answered, with the code, for the next question of that form."""

    question: str
    code: str
    template: str
    parameters: Json = {}
    uses: list[str] = []


Items = Annotated[list[Json], msgspec.Meta(max_length=1_000)]
"""What a caller read in a text. Each item is judged alone at the checkpoint."""
Scalar = str | int | float | bool
Metadata = Annotated[
    dict[Annotated[str, msgspec.Meta(min_length=1, max_length=128)], Scalar | list[Scalar]],
    msgspec.Meta(max_length=64),
]
"""The caller's own fields of an observation, by which recall can be narrowed."""


@event_body("observation")
class Observation(msgspec.Struct, frozen=True):
    """Something learned about a subject: a text or a record, and who said it.

    facts, rules: what the caller read in the text (see `em.state.statement`); an empty list says
    that it states nothing. Without both, nobody has read the text yet.
    origin: how far it is trusted, as for a trace. What is from the web, where anybody may have
    written it, waits for a person's decision (`Decision.accept`).
    """

    text: str | None = None
    record: Json | None = None
    type: str | None = None
    speaker: str | None = None
    role: str | None = None
    addressee: str | None = None
    session: str | None = None
    agent: str | None = None
    run: str | None = None
    source: str | None = None
    origin: Source | None = None
    metadata: Metadata | None = None
    facts: Items | None = None
    rules: Items | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.record is None):
            raise ValueError("an observation has either `text` or `record`")
        if self.record is not None and (self.facts is not None or self.rules is not None):
            raise ValueError("facts and rules are those of a `text`")


DETAILS = tuple(one for one in Observation.__struct_fields__ if one not in ("text", "record"))
"""Optional fields of an observation, beside its time."""
_FIELDS = frozenset({"subject", "text", "record", "event", "at", *DETAILS})


@event_body("read")
class Handed(msgspec.Struct, frozen=True):
    """What a caller read in a text that was stored before, the only one in `from_events`.

    It takes the place of everything that was read in this text before.
    """

    from_events: Annotated[list[str], msgspec.Meta(min_length=1, max_length=1)]
    facts: Items | None = None
    rules: Items | None = None

    def __post_init__(self) -> None:
        if self.facts is None and self.rules is None:
            raise ValueError("expected `facts` or `rules`")


def observation(
    subject: str,
    text_or_record: str | Mapping[str, Any] | None,
    at: Moment | None,
    details: Mapping[str, Any],
    event: str | None = None,
) -> Draft:
    """Make the event of something learned about a subject.

    event: the text that `facts` and `rules` of the details were read in, if it is stored already.
    """
    body: Json = {name: value for name, value in details.items() if value is not None}
    stream = subject_stream(subject)
    if event is not None:
        if text_or_record is not None or body.keys() - {"facts", "rules"}:
            raise InputError(
                "expected `facts` or `rules` alone beside an event",
                place="event",
                fix="leave out the text and its details: they are stored with the event",
            )
        return Draft(
            stream=stream, kind="read", body={**body, "from_events": [event]}, subject=subject
        )
    if isinstance(text_or_record, str):
        if not text_or_record.strip():
            raise InputError(
                "there is nothing in this text", place="text_or_record", fix="give words"
            )
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
        stream=stream,
        kind="observation",
        body=body,
        subject=subject,
        at=None if at is None else moment(at),
    )


def observations(
    items: Iterable[tuple[str, str | Mapping[str, Any]] | Mapping[str, Any]],
) -> Iterator[Draft]:
    """Make the events of many observations; an error names the item by its number."""
    for number, item in enumerate(items):
        try:
            draft = _item(item)
        except InputError as error:
            error.place = f"item {number}, {error.place}".rstrip(", ")
            raise
        del item
        yield draft
        del draft


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
    has = [name for name in ("text", "record", "event") if name in item]
    if unknown or "subject" not in item or len(has) != 1:
        raise InputError(
            f"unknown field {min(unknown)!r} in an observation"
            if unknown
            else "an observation has a subject, and either a text, a record or an event",
            fix="give subject, text, record or event, and optionally at, " + ", ".join(DETAILS),
        )
    content = item.get("text", item.get("record"))
    details = {name: item[name] for name in DETAILS if name in item}
    return observation(item["subject"], content, item.get("at"), details, item.get("event"))
