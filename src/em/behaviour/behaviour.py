"""Behaviour: how a task was done, as a routine with what was captured beside its calls."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.behaviour.codec import Form
from em.compiler.draft import Recorded
from em.log.kinds import event_body
from em.runner.package import read_routine
from em.runner.routine import Program
from em.values.canonical import Json

KIND = "behaviour"
"""The kind of a behaviour's artefact; the artefact's name is `ENGINE/KEY`."""

FORMAT = 6
"""The format of the behaviours that are recorded now; older ones are listed, not replayed."""


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

    asks: the call may have asked something. watched: no check looks at what is done after it, so
    that what it returns must be as recorded. free: paths that later values take, which may differ.
    fixed: paths that hold what nothing explains, which must not; "" for all of the result.
    """

    code: str = ""
    forms: Mapping[str, Form] = {}
    live: Mapping[str, str] = {}
    asks: bool = False
    watched: bool = False
    free: Sequence[str] = ()
    fixed: Sequence[str] = ()
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


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands beside the return: how it is restored, or the step whose object it is."""

    form: Form = ""
    live: str | None = None


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One way to do a task: a routine, with what was captured beside its calls.

    captures: by the id of the step. `recordings` are what it was learnt from.
    """

    task: Any
    routine: Json = {}
    captures: Mapping[str, Captures] = {}
    answer: Answer = Answer()
    tags: Sequence[str] = ()
    params: Sequence[str] = ()
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

    @functools.cached_property
    def way(self) -> bytes:
        """Bytes that are equal for behaviours which differ in what checks and recordings saw."""
        beside = [
            msgspec.structs.replace(step.beside, pre=None, post=None, seconds=0.0)
            for step in self.steps
        ]
        return msgspec.json.encode((self.routine, beside, self.answer), order="sorted")

    @functools.cached_property
    def shape(self) -> bytes:
        """Bytes that are equal for the same calls behind checks that saw the same."""
        found = [
            (s.tool, s.beside.code, s.beside.forms, s.beside.live, _seen(s.beside.pre),
             _seen(s.beside.post))
            for s in self.steps
        ]  # fmt: skip
        return msgspec.json.encode((found, self.answer), order="sorted")


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
