"""What the tools take, as agents read it."""

from typing import Annotated, Any

import msgspec

from em.errors import InputError
from em.traces.trace import Outcome
from em.values.canonical import Json


def _said(description: str, **limits: Any) -> msgspec.Meta:
    return msgspec.Meta(description=description, **limits)


Subject = Annotated[
    str, _said("Whom or what it is about, such as a user's name.", min_length=1, max_length=512)
]
Limit = Annotated[int, _said("At most so many.", ge=1, le=100)]
Moment = Annotated[str, _said("A moment: 2024-05-02 or 2024-05-02T10:00:00Z.", max_length=64)]
Words = Annotated[
    str, _said("A question, or a few words.", min_length=1, max_length=2_000, pattern=r"\S")
]
Task = Annotated[
    str, _said("What is to be done, in a sentence.", min_length=1, max_length=20_000, pattern=r"\S")
]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of one tool."""


class Observe(Arguments, frozen=True):
    """Something learned about a subject: a text or a record."""

    subject: Subject
    text: Annotated[str, _said("What was said or seen.", max_length=1_000_000)] | None = None
    record: Annotated[Json, _said("In place of a text: names with values.")] | None = None
    type: Annotated[str, _said("The class of a record, such as Trip.")] | None = None
    at: Moment | None = None
    speaker: str | None = None
    role: str | None = None
    session: str | None = None
    source: str | None = None


class Recall(Arguments, frozen=True):
    """What to look for, and where."""

    query: Words
    subject: Subject | None = None
    k: Limit = 10
    since: Moment | None = None
    until: Moment | None = None


class Ask(Arguments, frozen=True):
    """A question about a subject."""

    subject: Subject
    question: Words
    as_of: Moment | None = None


class Checkpoint(Arguments, frozen=True):
    """Whose state to compile."""

    subject: Subject


class Check(Arguments, frozen=True):
    """An action that is about to be taken."""

    subject: Subject
    action: Annotated[str, _said("The action, as rules name it, such as book.", min_length=1)]
    details: Annotated[Json, _said("Its details by name.")] = {}


class Brief(Arguments, frozen=True):
    """A task that is about to be done."""

    task: Task
    subject: Subject | None = None
    tools: Annotated[list[str], _said("The names of the tools in play.")] = []
    k: Limit = 5
    tokens: Annotated[int, _said("How long it may be.", ge=0, le=1_000_000)] | None = None


class Step(msgspec.Struct, frozen=True):
    """One step of an attempt."""

    thought: str | None = None
    action: Annotated[str, _said("The tool that was called.")] | None = None
    args: Json = {}
    observation: Annotated[Any, _said("What it gave.")] = None
    error: Annotated[Any, _said("What went wrong.")] = None


class RecordOutcome(Arguments, frozen=True):
    """How an attempt at a task ended."""

    task: Task
    outcome: Outcome
    steps: Annotated[list[Step], _said("What was done, in its order.")] = []
    input: Annotated[Json, _said("What the task was given.")] = {}
    final_output: Any = None
    heuristics: Annotated[list[str], _said("Ids of the lessons that `brief` gave for it.")] = []
    subject: Subject | None = None


class ListTraces(Arguments, frozen=True):
    """Which attempts to list."""

    outcome: Outcome | None = None
    limit: Limit = 20
    offset: Annotated[int, _said("Leave out so many.", ge=0, le=2**31 - 1)] = 0


class SearchTraces(Arguments, frozen=True):
    """Which attempts to find."""

    query: Words
    outcome: Outcome | None = None
    limit: Limit = 10


class ReadTrace(Arguments, frozen=True):
    """Which attempt to read."""

    id: Annotated[str, _said("The id of a trace.", min_length=1, max_length=512)]


class Resume(Arguments, frozen=True):
    """A run that waits, and what a person answered."""

    run_id: Annotated[str, _said("The id that the run was told by.", min_length=1, max_length=512)]
    answers: Annotated[
        dict[str, Json], _said("By the id of the step that asks: its fields with values.")
    ] = {}
    input: Annotated[Json, _said("The input again, if it held secrets.")] | None = None


def schema_of(kind: type[Arguments]) -> Json:
    """The JSON Schema of a tool's arguments, with nothing to look up elsewhere than in itself."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    own: Json = components.pop(kind.__name__)
    own.pop("title", None)
    return {**own, "$defs": components} if components else own


def read(kind: type[Arguments], given: Json) -> Any:
    """The arguments as the tool takes them."""
    try:
        return msgspec.convert(given, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        message, _, where = str(error).partition(" - at `$.")
        raise InputError(message, place=where.rstrip("`") or "arguments") from None
