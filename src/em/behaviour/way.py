"""Way: a routine that behaviours of one task share, with what was captured beside its calls.

The behaviours of a way are a set of bits, the newest one highest. What is equal in several of them
is compared once: a call costs the same with one behaviour and with a hundred.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from em.behaviour.behaviour import Behaviour, Capture
from em.behaviour.codec import copy, decode
from em.behaviour.likeness import Returned
from em.runner.expressions.language import Evaluate, compile_value
from em.values.canonical import Json, identical
from em.values.leaves import texts

if TYPE_CHECKING:
    from em.behaviour.cache import Stored

_SCALARS = (str, int, float, bool, type(None))


class Sight:
    """What a check captured at one call, in the behaviours of `mask`.

    `known` is the value, once `is_known`: it is immutable and without params, so it is shared.
    """

    __slots__ = ("_evaluate", "capture", "is_known", "known", "mask")

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.mask = 0
        self.known: Any = None
        self.is_known = False
        self._evaluate: Evaluate | None = None

    def value(self, inputs: Json, hint: Any) -> Any:
        """Return the capture with this run's params filled in."""
        if self._evaluate is None:
            self._evaluate = compile_value(self.capture.value, "check")
        value = decode(copy(self._evaluate(inputs)), self.capture.form, hint)
        if isinstance(value, _SCALARS) and not any("{" in one for one in texts(self.capture.value)):
            self.known, self.is_known = value, True
        return value


class Past:
    """What a call returned in the recordings of the behaviours of `mask`."""

    __slots__ = ("mask", "recorded")

    def __init__(self, recorded: Sequence[tuple[Json, Any, Json]]) -> None:
        self.mask, self.recorded = 0, [Returned(*row) for row in recorded]

    def has(self, result: Any) -> bool:
        """Return whether a recording had just this result."""
        return any(identical(result, one.result) for one in self.recorded)


class Way:
    """Behaviours that make the same calls and return the same, oldest first.

    places: by argument of each call, the call whose very object it is. pre, post, past: by call,
    what checks saw and what was returned. parts: by call, the answer being the last, whether
    another way goes on in another manner there.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour, self.program, self.steps = behaviour, behaviour.program, behaviour.steps
        ids = [step.id for step in self.steps]
        self.live = [
            {name: ids.index(one) for name, one in step.beside.live.items()} for step in self.steps
        ]
        answer = behaviour.answer.live
        self.live_answer = None if answer is None else ids.index(answer)
        self.stored: list[Stored] = []
        self.pre: list[list[Sight]] = [[] for _ in ids]
        self.post: list[list[Sight]] = [[] for _ in ids]
        self.past: list[list[Past]] = [[] for _ in ids]
        self.parts = [False] * (len(ids) + 1)
        self._known: dict[bytes, Any] = {}
        self._seconds: list[float] = []

    def seconds(self, mask: int) -> float:
        """Return how long the calls of the newest of some behaviours took when recorded."""
        return self._seconds[mask.bit_length() - 1]

    @property
    def all(self) -> int:
        """All behaviours of the way."""
        return (1 << len(self.stored)) - 1

    def add(self, item: "Stored") -> None:
        """Add a behaviour, the newest."""
        bit = 1 << len(self.stored)
        self.stored.append(item)
        self._seconds.append(sum(step.beside.seconds for step in item.behaviour.steps))
        recordings = item.behaviour.recordings
        for place, step in enumerate(item.behaviour.steps):
            for name, capture in (("pre", step.beside.pre), ("post", step.beside.post)):
                if capture is not None:
                    content = (name, place, capture.value, capture.form)
                    self._one_of(getattr(self, name)[place], content, Sight, capture).mask |= bit
            calls = [one.calls[place] for one in recordings]
            past = [
                (call.args, call.result, one.inputs)
                for call, one in zip(calls, recordings, strict=True)
            ]
            self._one_of(self.past[place], ("past", place, past), Past, past).mask |= bit

    def _one_of(self, known: list[Any], content: Any, kind: Any, value: Any) -> Any:
        key = msgspec.json.encode(content, order="sorted")
        if key not in self._known:
            self._known[key] = kind(value)
            known.append(self._known[key])
        return self._known[key]

    def exact(self, results: Sequence[Any]) -> int:
        """Return the behaviours in whose recordings the first calls returned just this."""
        mask = self.all
        for place, result in enumerate(results):
            alike = (one.mask for one in self.past[place] if one.has(result))
            mask &= _union(alike)
        return mask

    def next_call(self, place: int) -> bytes:
        """Return what tells the call at a place, or the answer behind the last, from others."""
        if place == len(self.steps):
            return msgspec.json.encode((self.behaviour.returns, self.live_answer), order="sorted")
        step = self.steps[place]
        return msgspec.json.encode((step.tool, step.args, self.live[place]), order="sorted")


def newest(way: Way, mask: int, most: int = 1) -> list["Stored"]:
    """Return the newest of some behaviours of a way."""
    return [one for n, one in enumerate(way.stored) if mask >> n & 1][: -most - 1 : -1]


def _union(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def ways_of(stored: "Sequence[Stored]") -> list[Way]:
    """Return the ways of a task in the order in which they are tried.

    Those with more checks come first, then the newest.
    """
    known: dict[bytes, Way] = {}
    for item in stored:
        key = item.behaviour.way
        if key not in known:
            known[key] = Way(item.behaviour)
        known[key].add(item)
    ways = [*known.values()]
    calls = {id(way): [way.next_call(n) for n in range(len(way.steps) + 1)] for way in ways}
    follow: dict[tuple[bytes, ...], set[bytes]] = {}
    for own in calls.values():
        for place, call in enumerate(own):
            follow.setdefault(tuple(own[:place]), set()).add(call)
    ranks = {}
    for way in ways:
        own = calls[id(way)]
        way.parts = [len(follow[tuple(own[:n])]) > 1 for n in range(len(own))]
        # Before one that ends, those are tried that begin alike and go on.
        ends = [one for one in ways if own[: len(one.steps)] == calls[id(one)][:-1]]
        version = max(one.stored[-1].version for one in ends)
        ranks[id(way)] = (sum(map(bool, way.pre)), version, len(own))
    return sorted(ways, key=lambda way: ranks[id(way)], reverse=True)
