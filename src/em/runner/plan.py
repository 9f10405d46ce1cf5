"""Plan of a learnt routine: its effects, where each of their values lives, and what it reads."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from em.errors import RoutineError
from em.runner.agreement import INPUTS
from em.runner.mentions import Words, stem
from em.runner.run import PendingPrompt
from em.values.canonical import Json, short

_VERBS = (
    "modify change update edit adjust alter correct",
    "cancel void revoke",
    "return refund",
    "exchange swap replace switch trade",
    "create add open make new",
    "delete remove erase",
    "send mail forward",
    "book reserve",
)
"""Verbs that ask for the same."""


class Slot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value of an effect: where it lives, and how words choose it.

    records: the list or mapping that it is chosen from. key: where a record holds the value; empty
    if it is the value itself, `@` for the key of a mapping. many: several are chosen.
    of: the slot for each of whose records this one has a value; that record is called `item`.
    like: the field of a record that equals that of `item`, but for what the words want changed.
    must: by field, what the chosen record may have there, as when it was recorded. fields: those
    that chosen records had. Another one that is a flag, a state or a number may matter.
    among: further lists that must hold the value. values: those that were recorded, if they are
    few. examples: what it looks like. default: what it is if the words don't say.
    """

    records: str = ""
    key: str = ""
    many: bool = False
    of: str = ""
    like: str = ""
    must: dict[str, list[Any]] = {}
    fields: Sequence[str] = ()
    among: Sequence[str] = ()
    values: Sequence[Any] = ()
    examples: Sequence[Any] = ()
    default: Sequence[str] = ()


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A call with an effect: its values, and the words that ask for it.

    after: effects that came before this one in every trace that had both.
    expects: what its result must be like, as when it was recorded.
    """

    tool: str
    words: Sequence[str] = ()
    slots: dict[str, Slot] = {}
    guards: Sequence[str] = ()
    after: Sequence[str] = ()
    expects: Sequence[str] = ()


class Read(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A read that is made when something needs it: `order(order_id)`."""

    tool: str
    args: Json = {}
    given: Sequence[str] = ()


class Known(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An input of reads, such as who it is about: what it looks like."""

    examples: Sequence[Any] = ()


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a kind of task does, and what it needs to know.

    reads: by name, the reads; where there are several ways to one result, those that can be made
    must agree. inputs: what reads need that no other read gives.
    """

    effects: dict[str, Effect] = {}
    reads: dict[str, list[Read]] = {}
    inputs: dict[str, Known] = {}

    def slot_names(self) -> set[str]:
        """Return the names of all values of all effects."""
        return {name for effect in self.effects.values() for name in effect.slots}


class Unplanned(RoutineError):
    """The words or the inputs don't say enough, or not one thing only.

    inputs: those that are missing. Otherwise other words may help.
    """

    code = "unplanned"

    def __init__(self, message: str, inputs: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.inputs = tuple(inputs)

    def question(self, request: str) -> PendingPrompt:
        """Return what a person is asked: the missing inputs, or the request in other words."""
        names = list(dict.fromkeys(self.inputs)) or [request]
        labels = [f"{names[0]}: {self.message}", *names[1:]]
        fields = [
            {"name": name, "type": "text", "label": label}
            for name, label in zip(names, labels, strict=True)
        ]
        message = f"Before anything is done: {self.message}."
        return PendingPrompt(step_id=INPUTS, message=message, fields=fields)


class NeedsRead(BaseException):
    """A plan needs the result of a read that was not made yet.

    It passes through everything that looks at errors of expressions.
    """

    def __init__(self, tool: str, args: Json) -> None:
        super().__init__(tool)
        self.tool, self.arguments = tool, args


FAILED_READ = {"em": "failed"}
"""Stands for the result of a read that failed."""


class Results:
    """The results of the reads that a plan has made so far."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, need: NeedsRead, value: Any) -> None:
        """Take the result of a read."""
        self._known[_key(need.tool, need.arguments)] = value

    def of(self, tool: str, args: Json) -> Any:
        """Return the result of a read.

        Raises NeedsRead if it was not made, and EmError if it failed.
        """
        key = _key(tool, args)
        if key not in self._known:
            raise NeedsRead(tool, args)
        value = self._known[key]
        if value == FAILED_READ:
            raise Unplanned(f"{tool} found nothing for {short(args)}")
        return value


def _key(tool: str, args: Json) -> str:
    return f"{tool} {msgspec.json.encode(args, order='sorted').decode()}"


class EffectCall(NamedTuple):
    """One effect to be made."""

    effect: str
    args: Json


def asks_for(effect: Effect, text: str) -> bool:
    """Return whether a text has a word that asks for an effect."""
    stems = {stem(word) for word in asking(effect)}
    return any(stem(word) in stems for _, word in Words(text).plain())


def asking(effect: Effect) -> Iterator[str]:
    """Yield the words that ask for an effect, with verbs that mean the same."""
    for word in effect.words:
        yield word
        for verbs in _VERBS:
            alike = verbs.split()
            if word in alike:
                yield from alike
