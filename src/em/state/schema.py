"""State: what a checkpoint knows of a subject's types, rules and policies; not its records."""

from typing import Annotated, Literal

import msgspec

from em.log.kinds import event_body
from em.values.canonical import Json

FORMAT = 1
"""Of what a state's artefact holds; another one is compiled anew."""

PROFILE = "Profile"
"""The type whose fields are facts about the subject itself."""

UNSTRUCTURED = "~unstructured"
"""Where the observations stand that nothing could be made of."""

Severity = Literal["info", "warning", "high", "critical"]
Status = Literal["decided", "confirmed", "stated", "inferred"]
PolicyName = Literal["latest", "source", "confirmed", "ask"]


class Example(msgspec.Struct, frozen=True):
    """A value that was seen, as text, and the event it stood in."""

    text: str
    event: str


class FieldSchema(msgspec.Struct):
    """A field as it was seen: how often, with which kinds of values. Its type follows from it.

    values: texts seen, each with the first event that had it; None once there are too many.
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
    """A class of records: its names, its fields, and where its records lie.

    key: the fields that say which record is meant; a type without one has a record each time.
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


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How contradicting values of one field are settled."""

    name: PolicyName = "latest"
    order: list[str] = []


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule in the checked format, compiled to a function of the generated module.

    deadline: a day or a moment, or where the records or the profile say it.
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


class Coverage(msgspec.Struct):
    """What became of the observations so far."""

    observations: int = 0
    structured: int = 0
    by_pattern: int = 0
    by_model: int = 0
    in_part: int = 0
    unstructured: int = 0


class StateSchema(msgspec.Struct):
    """What the artefact of a state holds."""

    subject: str
    format: int = FORMAT
    watermark: int = 0
    watermark_seq: int = 0
    types: dict[str, TypeSchema] = {}
    policies: dict[str, Policy] = {}
    constraints: list[Constraint] = []
    renames: dict[str, str] = {}
    coverage: Coverage = msgspec.field(default_factory=Coverage)
    unstructured: TypeSchema = msgspec.field(
        default_factory=lambda: TypeSchema(UNSTRUCTURED, UNSTRUCTURED, "unstructured")
    )


class Entry(msgspec.Struct, frozen=True):
    """One value that a single-valued field was said to have, with both times, in microseconds."""

    value: object
    at: int
    recorded_at: int
    events: list[str]
    source: str = ""
    status: Status = "stated"


@event_body("extracted")
class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of free text: records, facts and constraints, each with its events.

    in_part: the events of whose text something was left over.
    """

    from_events: list[str]
    method: Literal["model", "pattern"]
    model: str = ""
    records: list[Json] = []
    facts: list[Json] = []
    constraints: list[Json] = []
    renames: dict[str, str] = {}
    in_part: list[str] = []
    failed: str = ""


@event_body("decided")
class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A person settles a field: by a value, by one of the events, or by a policy from now on.

    Without a field it declares a type: the fields that are its records' key. undo: the event of an
    earlier decision, which then counts no more.
    """

    type: str = ""
    field: str | None = None
    record_key: list[object] | None = None
    value: object = None
    event: str | None = None
    policy: Policy | None = None
    key: list[str] | None = None
    undo: str | None = None


@event_body("question")
class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was answered by code, and the code."""

    question: str
    code: str
    template: str
    parameters: Json = {}
    uses: list[str] = []
