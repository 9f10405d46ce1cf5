"""Behaviour: one recording of how a task was done, and the routine that recordings teach."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from em.behaviour.codec import Form
from em.compiler.checks import walked
from em.log.kinds import event_body
from em.runner.package import read_routine
from em.runner.routine import Program
from em.runner.tools import Tool
from em.values.canonical import Json

KIND = "behaviour"
"""The kind of a behaviour's artefact; the artefact's name is `ENGINE/KEY`."""

FORMAT = 8
"""The format of the behaviours that are recorded now; older ones are listed, not replayed."""


class Capture(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check's `capture` returned.

    A replay fills in params only, never results: the check must notice when a result differs.
    """

    value: Any
    form: Form = ""
    seconds: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recorded call, with what its checks saw.

    code: the fingerprint of the tool. forms: how arguments are restored from JSON. live: arguments
    that are the very object that an earlier call returned, by the number of that call. writes,
    reads: whether it may have changed something, and told something; in doubt both. opaque: its
    result holds what JSON can't express.
    """

    tool: str
    args: Json = {}
    result: Any = None
    writes: bool = True
    reads: bool = True
    opaque: bool = False
    code: str = ""
    forms: Mapping[str, Form] = {}
    live: Mapping[str, int] = {}
    pre: Capture | None = None
    post: Capture | None = None
    seconds: float = 0.0


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent returned, and how it is restored; or the call whose object it is."""

    value: Any = None
    form: Form = ""
    live: int | None = None


class Taught(msgspec.Struct, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """The routine that recordings teach.

    given: inputs that the routine would ask for, as they always were. made: by recording, the step
    that makes each recorded call; "" for a read that the routine does not need. is_open: a write
    that no check looks at may take one of `given`. is_checked: checks look at all that is done.
    """

    routine: Json
    given: Json = {}
    made: Sequence[Sequence[str]] = ()
    is_open: bool = False
    is_checked: bool = False

    @property
    def calls(self) -> list[Json]:
        """The calls of the routine, in its order, also those of loops."""
        return [one for one in walked(self.routine["steps"]) if one["type"] == "tool.call"]

    @functools.cached_property
    def program(self) -> Program:
        """The routine, ready to run."""
        return Program(read_routine(self.routine, "behaviour"))

    @functools.cached_property
    def tools(self) -> dict[str, Tool]:
        """Tools that stand for those of the routine, whose calls are made elsewhere."""
        return {
            one["name"]: Tool(one["name"], _stand_in(one["name"]), one["effect"])
            for one in self.routine["tools"]
        }


def _stand_in(name: str) -> Callable[..., None]:
    def stand_in(**_args: Any) -> None: ...

    stand_in.__name__ = name
    return stand_in


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """One way to do a task, as it was recorded.

    params: the names of what may vary. inputs: the task's arguments and params, under the names
    that expressions use. taught: the routine, if the recording holds a secret that is not stored.
    Else it is learnt when it is needed: as long as all is as recorded, the recording is followed.
    """

    task: Any
    steps: Sequence[Step] = ()
    answer: Answer = Answer()
    inputs: Json = {}
    tags: Sequence[str] = ()
    params: Sequence[str] = ()
    taught: Taught | None = None
    seconds: float = 0.0
    tokens: int | None = None
    cost_usd: float | None = None
    format: int = 1

    @functools.cached_property
    def seen(self) -> bytes:
        """Bytes that are equal for recordings that may be learnt from together.

        Their checks saw the same, at whatever call of a tool.
        """
        sights = {
            msgspec.json.encode((step.tool, one.value), order="sorted")
            for step in self.steps
            for one in (step.pre, step.post)
            if one is not None
        }
        answer = (self.answer.form, self.answer.live is None, self.answer.value is None)
        return msgspec.json.encode((self.params, answer, sorted(map(bytes.hex, sights))))

    @functools.cached_property
    def tape(self) -> bytes:
        """Bytes that are equal for recordings in which the same was given and returned."""
        calls = [
            (one.tool, one.code, one.forms, one.live, one.args, one.result) for one in self.steps
        ]
        found = (self.params, self.inputs, calls, self.answer)
        return msgspec.json.encode(found, order="sorted")


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
