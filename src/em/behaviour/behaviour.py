"""Behaviour: how a task was done, as a routine with what was captured beside its calls."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.behaviour.codec import Form
from em.compiler.draft import Recorded
from em.log.kinds import event_body
from em.runner.package import read_routine
from em.runner.routine import Program
from em.values.canonical import Json, identical

KIND = "behaviour"
"""The kind of a behaviour's artefact; the artefact's name is `ENGINE/KEY`."""

FORMAT = 5
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


class Captures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands beside a call of the routine: what its checks saw, and how it was recorded.

    code: the fingerprint of the tool. forms: how arguments are restored from JSON. live: arguments
    that are the very object that an earlier step returned, by the id of that step.

    `gave` is a hash of the recorded result. Where several behaviours are possible, the one whose
    recorded results equal this run's is followed. `seen` are hashes of its parts, `asked` of the
    arguments if the call asks something (see `likeness`). `chosen` says that an argument took an
    item of it that nothing explains. `other` is the schema of the result about another record,
    where arguments take values that `expect` therefore leaves open.
    """

    code: str = ""
    forms: Mapping[str, Form] = {}
    live: Mapping[str, str] = {}
    gave: str = ""
    asked: Sequence[str] = ()
    seen: Mapping[str, Sequence[str]] = {}
    chosen: bool = False
    other: Json | None = None
    pre: Capture | None = None
    post: Capture | None = None
    seconds: float = 0.0


NO_CAPTURES = Captures()


class Step(NamedTuple):
    """A call of the routine, with what stands beside it."""

    id: str
    tool: str
    args: Json
    save_as: str | None
    expect: Json | None
    beside: Captures


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
    """What stands beside the return: how it is restored, or the step whose object it is.

    free: by the id of a read, the paths that the answer takes from its result; None if the answer
    takes all that it says from results, so that nothing that was read has to be as recorded.
    """

    form: Form = ""
    live: str | None = None
    free: Mapping[str, Sequence[str]] | None = None


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One way to do a task: a routine, with what was captured beside its calls.

    captures: by the id of the step. `pinned` are params whose use could not be followed, with the
    values that they had when it was recorded: they must have one of these, until there are enough.
    `recordings` are what it was learnt from.
    """

    task: Any
    routine: Json = {}
    captures: Mapping[str, Captures] = {}
    answer: Answer = Answer()
    tags: Sequence[str] = ()
    params: Sequence[str] = ()
    pinned: Mapping[str, Sequence[Any]] = {}
    recordings: Sequence[Recorded] = ()
    seconds: float = 0.0
    tokens: int | None = None
    cost_usd: float | None = None
    format: int = 1

    @functools.cached_property
    def steps(self) -> list[Step]:
        """The calls of the routine, in their order."""
        return [
            Step(
                one["id"],
                one["tool"],
                one.get("args", {}),
                one.get("save_as"),
                one.get("expect"),
                self.captures.get(one["id"], NO_CAPTURES),
            )
            for one in calls_of(self.routine)
        ]

    @functools.cached_property
    def program(self) -> Program:
        """The routine, ready to run."""
        return Program(read_routine(self.routine, "behaviour"))

    @property
    def returns(self) -> Any:
        """What the routine returns, as a template."""
        steps = self.routine.get("steps", ())
        return next((one.get("value") for one in steps if one["type"] == "return"), None)

    def shape(self) -> bytes:
        """Return bytes that are equal for the same calls behind equal checks."""
        found = [(s.tool, s.beside) for s in self.steps]
        return msgspec.json.encode(
            (
                [
                    (tool, one.code, one.forms, one.live, _seen(one.pre), _seen(one.post))
                    for tool, one in found
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


def calls_of(routine: Json) -> list[Json]:
    """Return the calls of a routine, in their order."""
    return [one for one in routine.get("steps", ()) if one.get("type") == "tool.call"]


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
