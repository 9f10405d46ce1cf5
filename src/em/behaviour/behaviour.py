"""Behaviour: how a task was done, as calls whose arguments are wired to their sources."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.behaviour.codec import Form
from em.behaviour.weight import ENOUGH, of_constant
from em.log.kinds import event_body
from em.values.canonical import Json, identical

KIND = "behaviour"
"""The kind of a behaviour's artefact; the artefact's name is `ENGINE/KEY`."""

FORMAT = 3
"""The format of the behaviours that are recorded now. Those of format 1 have no guards, those of
format 2 say otherwise what a write must return: they are listed and exported, not replayed."""


class Capture(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check's `capture` returned.

    A replay fills in params only, never results: the check must notice when a result differs.
    """

    value: Any
    form: Form = ""
    seconds: float = 0.0


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call. `args` are expressions; `live` maps an argument to the step that returned it.

    `agree` are the other expressions that gave an argument when it was recorded, by its place; they
    must give it again. `guards` are facts that were read before the call and must hold again;
    `expects` are facts about what a write returned, and are checked directly after it; so is
    `expect`, a JSON Schema that an imported routine has for the result.

    `gave` is a hash of the recorded result. Where several behaviours are possible, the one whose
    recorded results equal this run's is followed. `seen` are hashes of its parts, `asked` of the
    arguments if the call asks something (see `likeness`), and `kinds` the JSON Schema of what it
    returns where it asks about another record. `chosen` says that an argument took an
    item of it that nothing explains.
    """

    tool: str
    code: str
    args: Json = {}
    forms: Mapping[str, Form] = {}
    live: Mapping[str, int] = {}
    agree: dict[str, list[str]] = {}
    guards: Sequence[str] = ()
    expects: Sequence[str] = ()
    expect: Json | None = None
    save_as: str | None = None
    gave: str = ""
    asked: Sequence[str] = ()
    seen: Mapping[str, Sequence[str]] = {}
    kinds: Json | None = None
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

    `agree` are the other expressions that gave a part of it, by its place. `uses` are the paths
    whose values it takes, by the name of the result.
    """

    value: Any = None
    form: Form = ""
    live: int | None = None
    agree: Mapping[str, Sequence[str]] = {}
    uses: Mapping[str, Sequence[str]] = {}


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to do a task.

    `pinned` are params whose use could not be followed: they must be equal on a replay, or equal to
    one of `others`, with which another recording did the same. Enough of those show that the
    param does not matter.
    """

    task: Any
    steps: Sequence[Step]
    answer: Answer = Answer()
    tags: Sequence[str] = ()
    params: Sequence[str] = ()
    pinned: Json = {}
    others: Mapping[str, Sequence[Any]] = {}
    seconds: float = 0.0
    tokens: int | None = None
    cost_usd: float | None = None
    routine: str | None = None
    format: int = 1

    def digest(self) -> bytes:
        """Return bytes that are equal for behaviours that do the same, whatever time they took."""
        return msgspec.json.encode(
            (
                [(s.tool, s.code, s.args, s.live, _seen(s.pre), _seen(s.post)) for s in self.steps],
                (self.answer.value, self.answer.form, self.answer.live),
            ),
            order="sorted",
        )

    def tried(self, name: str) -> list[Any]:
        """Return the values of a pinned param with which just this was done."""
        return [self.pinned[name], *self.others.get(name, ())]

    def pin(self, params: Json) -> str:
        """Return a param that must be another one for this behaviour; "" if none must."""
        for name in self.pinned:
            tried = self.tried(name)
            if of_constant(len(tried)) < ENOUGH and not any(
                identical(params.get(name), value) for value in tried
            ):
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
