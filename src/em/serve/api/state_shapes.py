"""What goes in and out over HTTP about what was said and what is true."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from em.serve.api.shapes import Name, Pagination, Text
from em.state.checkpoint import Checkpoint
from em.state.questions import Answer
from em.state.rules import Alert
from em.state.schema import Coverage, PolicyName
from em.state.state import Conflict, Unstructured
from em.store.passage import Passage
from em.values.canonical import Json

When = Annotated[str, msgspec.Meta(max_length=64, description="a date or a time, as ISO 8601")]


class PassageOut(msgspec.Struct, frozen=True, kw_only=True):
    """A text that was found, with the event it is from and how well it fits."""

    event_id: str
    text: str
    at: datetime
    recorded_at: datetime
    score: float
    subject: str | None
    stream: str
    kind: str
    speaker: str | None
    role: str | None
    session: str | None
    start: int
    neighbours: Sequence["PassageOut"] = ()

    @classmethod
    def of(cls, passage: Passage) -> "PassageOut":
        """A passage as it is told: where it lies in the index is nobody's business."""
        told = {name: getattr(passage, name) for name in cls.__struct_fields__}
        return cls(**{**told, "neighbours": [cls.of(one) for one in passage.neighbours]})


class RecalledOut(msgspec.Struct, frozen=True):
    """Passages, best first; `notes` says what could not be done."""

    passages: Sequence[PassageOut]
    notes: Sequence[str]


class CheckpointIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose state is compiled, and how. `llm`: also ask the model that the server has."""

    subject: Name
    accept: bool = False
    again: bool = False
    rebuild: bool = False
    llm: bool = False


class CheckpointOut(msgspec.Struct, frozen=True):
    """What a checkpoint did."""

    subject: str
    version: int
    new_events: int
    coverage: Coverage
    changes: Sequence[str]
    problems: Sequence[str]
    rebuilt: bool

    @classmethod
    def of(cls, done: Checkpoint) -> "CheckpointOut":
        """A checkpoint as it is told."""
        return cls(
            done.subject,
            done.version,
            done.new_events,
            done.coverage,
            [str(change) for change in done.changes],
            done.problems,
            done.rebuilt,
        )


class StateOut(msgspec.Struct, frozen=True):
    """What is true about a subject: single facts, and how many records each collection has."""

    subject: str
    version: int
    profile: Json
    collections: dict[str, int]
    coverage: Coverage
    unstructured: Sequence[Unstructured]


class CodeOut(msgspec.Struct, frozen=True):
    """The module that a subject's state was compiled to."""

    subject: str
    version: int
    code: str


class RecordOut(msgspec.Struct, frozen=True):
    """A record as it was given, and the events it is from."""

    record: Any
    event_ids: Sequence[str]


class Records(msgspec.Struct, frozen=True):
    """A page of a collection."""

    records: Sequence[RecordOut]
    pagination: Pagination


class AskIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question in words. `llm`: the model that the server has may write the code for it."""

    subject: Name
    question: Text
    as_of: When | None = None
    llm: bool = False


class AnswerOut(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: by code over the records, or the passages in which it may stand."""

    value: Any
    passages: Sequence[PassageOut]
    route: Literal["code", "recall"]
    question: str
    code: str
    parameters: Json
    records: int
    event_ids: Sequence[str]
    kept: bool
    asked_model: bool
    note: str

    @classmethod
    def of(cls, answer: Answer) -> "AnswerOut":
        """An answer as it is told."""
        told = {name: getattr(answer, name) for name in Answer.__struct_fields__}
        if answer.route == "recall":
            return cls(
                **{**told, "value": None},
                passages=[PassageOut.of(passage) for passage in answer.value],
            )
        return cls(**told, passages=())


class CheckIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action that is about to be taken, and its details by name."""

    subject: Name
    action: Name
    details: Json = {}


class Alerts(msgspec.Struct, frozen=True):
    """The rules that fire, the worst first."""

    alerts: Sequence[Alert]


class EntryOut(msgspec.Struct, frozen=True):
    """A value that a field was said to have: when it was so, and when that was taken in."""

    value: Any
    at: datetime
    recorded_at: datetime
    event_ids: Sequence[str]
    source: str | None
    status: str


class ConflictOut(msgspec.Struct, frozen=True):
    """Values of one field that differ, and how that was settled."""

    field: str
    key: Sequence[Any]
    value: Any
    policy: str
    open: bool
    event_ids: Sequence[str]
    against: Sequence[str]
    entries: Sequence[EntryOut]

    @classmethod
    def of(cls, found: Conflict) -> "ConflictOut":
        """A conflict as it is told."""
        told = {name: getattr(found, name) for name in cls.__struct_fields__}
        entries = [
            EntryOut(*(getattr(one, name) for name in EntryOut.__struct_fields__))
            for one in found.entries
        ]
        return cls(**{**told, "entries": entries})


class Conflicts(msgspec.Struct, frozen=True):
    """What contradicts itself about a subject, open ones first."""

    conflicts: Sequence[ConflictOut]


class ResolveIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's decision about a field: by one of `value`, `event` and `policy`."""

    subject: Name
    field: Name
    value: Any = None
    event: Name | None = None
    policy: PolicyName | None = None
    order: list[Name] = []
    key: list[Any] | None = None
