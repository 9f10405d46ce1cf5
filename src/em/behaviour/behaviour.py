"""Behaviour: how a task was done, as steps whose values come from where they came from."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.behaviour.codec import Form
from em.log.kinds import event_body
from em.values.canonical import Json

KIND = "behaviour"
"""The kind of artefact that a behaviour is; its name is `ENGINE/KEY`."""


class Capture(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check saw. Only params vary in it: what a result changes, the check must see."""

    value: Any
    form: Form = ""
    seconds: float = 0.0


class Twin(msgspec.Struct, frozen=True):
    """A result that held the same value as a constant: if it differs now, nobody knows."""

    argument: str
    source: str
    value: Any


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call. `args` hold expressions; `live` names arguments that are a step's own object.

    `gave` is a hash of its result: of several ways that are possible, the one is taken that was
    recorded with the same results.
    """

    tool: str
    code: str
    args: Json = {}
    forms: Mapping[str, Form] = {}
    live: Mapping[str, int] = {}
    twins: Sequence[Twin] = ()
    save_as: str | None = None
    gave: str = ""
    pre: Capture | None = None
    post: Capture | None = None
    seconds: float = 0.0


def result_hash(result: Any) -> str:
    """A short hash of a result."""
    text = msgspec.json.encode(result, order="sorted")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent returned: an expression over the steps' results, or a step's own object."""

    value: Any = None
    form: Form = ""
    live: int | None = None
    twins: Sequence[Twin] = ()


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A way to do one task. `pinned` are params whose use could not be followed."""

    task: Any
    steps: Sequence[Step]
    answer: Answer = Answer()
    tags: Sequence[str] = ()
    params: Sequence[str] = ()
    pinned: Json = {}
    seconds: float = 0.0
    tokens: int | None = None
    cost_usd: float | None = None
    routine: str | None = None

    def digest(self) -> bytes:
        """The same for behaviours that do the same, however long they took."""
        return msgspec.json.encode(
            (
                [(s.tool, s.code, s.args, s.live, _seen(s.pre), _seen(s.post)) for s in self.steps],
                self.answer,
                self.pinned,
            ),
            order="sorted",
        )


def _seen(capture: Capture | None) -> Any:
    return None if capture is None else (capture.value,)


@event_body("behaviour_recorded")
class BehaviourRecorded(msgspec.Struct, frozen=True):
    """A run became a behaviour of an engine; `key` is the task's."""

    engine: str
    key: str
    steps: int
    seconds: float = 0.0
    from_events: list[str] = []


@event_body("behaviour_replayed")
class BehaviourReplayed(msgspec.Struct, frozen=True):
    """A behaviour was replayed: to its end (`hit`), or until the agent took over.

    `results` are those of its steps, in their order; the steps are the behaviour's.
    """

    engine: str
    key: str
    outcome: str
    versions: list[int]
    results: list[Any] = []
    params: Json | None = None
    seconds: float = 0.0
    saved: Json | None = None
    reason: str = ""
    cause: str = ""
    from_events: list[str] = []


@event_body("behaviour_missed")
class BehaviourMissed(msgspec.Struct, frozen=True):
    """An engine had nothing to replay, or nothing that fits: the agent did it."""

    engine: str
    key: str
    reason: str
    seconds: float = 0.0
    versions: list[int] = []
    handed_over: bool = False
    error: str = ""


@event_body("behaviour_retired")
class BehaviourRetired(msgspec.Struct, frozen=True):
    """A behaviour was taken out of use."""

    engine: str
    key: str
    version: int
    reason: str
    recorded: str = ""
