"""Behaviour: how a task was done, as calls whose arguments are wired to their sources."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.behaviour.codec import Form
from em.compiler.draft import Recorded
from em.log.kinds import event_body
from em.values.canonical import Json, identical

KIND = "behaviour"
"""The kind of a behaviour's artefact; the artefact's name is `ENGINE/KEY`."""

FORMAT = 4
"""The format of the behaviours that are recorded now; older ones are listed, not replayed."""

ENOUGH_VALUES = 3
"""Values of a param with which the same was done: then it does not matter."""


class Capture(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check's `capture` returned.

    A replay fills in params only, never results: the check must notice when a result differs.
    """

    value: Any
    form: Form = ""
    seconds: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call. `args` are expressions; `live` maps an argument to the step that returned it.

    `guards` must hold before the call; each is tried as soon as it can be. `expect` is the JSON
    Schema of what it returns: of a call that only `reads` where it reads another record, of another
    call always.

    `gave` is a hash of the recorded result. Where several behaviours are possible, the one whose
    recorded results equal this run's is followed. `seen` are hashes of its parts, `asked` of the
    arguments if the call asks something (see `likeness`). `chosen` says that an argument took an
    item of it that nothing explains.
    """

    tool: str
    code: str
    args: Json = {}
    forms: Mapping[str, Form] = {}
    live: Mapping[str, int] = {}
    guards: Sequence[str] = ()
    expect: Json | None = None
    reads: bool = False
    save_as: str | None = None
    gave: str = ""
    asked: Sequence[str] = ()
    seen: Mapping[str, Sequence[str]] = {}
    chosen: bool = False
    pre: Capture | None = None
    post: Capture | None = None
    seconds: float = 0.0


def result_hash(result: Any) -> str:
    """Return a short hash of a result."""
    if type(result) in (int, bool, type(None)):
        return _hash_of_scalar(result)  # what most writes return, on the path of every hit
    text = msgspec.json.encode(result, order="sorted")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


@functools.lru_cache(maxsize=1024, typed=True)
def _hash_of_scalar(value: int | bool | None) -> str:
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=8).hexdigest()


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent returned: an expression over the results, or the object of step `live`.

    `guards` are as those of a step.
    """

    value: Any = None
    form: Form = ""
    live: int | None = None
    guards: Sequence[str] = ()


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to do a task.

    `pinned` are params whose use could not be followed, with the values that they had when it was
    recorded: they must have one of these, until there are enough. `recordings` are what it was
    learnt from.
    """

    task: Any
    steps: Sequence[Step]
    answer: Answer = Answer()
    tags: Sequence[str] = ()
    params: Sequence[str] = ()
    pinned: Mapping[str, Sequence[Any]] = {}
    recordings: Sequence[Recorded] = ()
    seconds: float = 0.0
    tokens: int | None = None
    cost_usd: float | None = None
    routine: str | None = None
    format: int = 1

    def shape(self) -> bytes:
        """Return bytes that are equal for the same calls behind equal checks."""
        return msgspec.json.encode(
            (
                [
                    (s.tool, s.code, s.forms, s.live, _seen(s.pre), _seen(s.post))
                    for s in self.steps
                ],
                (self.answer.form, self.answer.live),
            ),
            order="sorted",
        )

    def pin(self, params: Json) -> str:
        """Return a param that must be another one for this behaviour; "" if none must."""
        for name, values in self.pinned.items():
            is_known = any(identical(params.get(name), value) for value in values)
            if len(values) < ENOUGH_VALUES and not is_known:
                return name
        return ""


def _seen(capture: Capture | None) -> Any:
    return None if capture is None else (capture.value,)


@event_body("behaviour_recorded")
class BehaviourRecorded(msgspec.Struct, frozen=True):
    """A run was stored as a behaviour of an engine; `key` is the task's."""

    engine: str
    key: str
    steps: int
    seconds: float = 0.0
    from_events: list[str] = []


@event_body("behaviour_replayed")
class BehaviourReplayed(msgspec.Struct, frozen=True):
    """A behaviour was replayed: to its end (`hit`), or until the agent took over.

    `results` are the results of its steps, in order. The steps themselves are in the behaviour.
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
    """An engine had no behaviour that fits: the agent did the task."""

    engine: str
    key: str
    reason: str
    seconds: float = 0.0
    versions: list[int] = []
    handed_over: bool = False
    error: str = ""
    from_events: list[str] = []


@event_body("behaviour_retired")
class BehaviourRetired(msgspec.Struct, frozen=True):
    """A behaviour was retired: it is stored, and no longer replayed."""

    engine: str
    key: str
    version: int
    reason: str
    recorded: str = ""
