"""Way: calls that behaviours of one task share, with what was captured beside them.

A way is a recording that is followed as long as all is as recorded, or the routine that recordings
teach. Its behaviours are a set of bits, the newest one highest. What is equal in several of them is
compared once: a call costs the same with one behaviour and with a hundred.
"""

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from em.behaviour.behaviour import Behaviour, Beside, Capture, Taught
from em.behaviour.codec import copy, decode
from em.behaviour.course import Course, Tape
from em.behaviour.guards import teach
from em.behaviour.learning import retraced
from em.behaviour.likeness import Returned
from em.errors import NotRecordable
from em.runner.expressions.language import Evaluate, compile_value
from em.values.canonical import Json, identical
from em.values.leaves import texts

if TYPE_CHECKING:
    from em.behaviour.cache import Stored

MOST_RECORDINGS = 16
"""Recordings that a routine is learnt from; the oldest are left out."""
MOST_BYTES = 1_000_000
"""Their size as JSON; the newest is learnt from anyway."""
MOST_TRIED = 4
"""Groups of recordings that one is learnt together with, the newest."""
_SCALARS = (str, int, float, bool, type(None))
_AS_RECORDED = Beside()

Lessons = MutableMapping[tuple[str, ...], Taught | None]
"""What recordings teach, by the ids of their behaviours; None if they contradict each other."""


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

    def __init__(self, recorded: Sequence[Returned]) -> None:
        self.mask, self.recorded = 0, recorded


class Way:
    """Behaviours that make the same calls, oldest first. taught: their routine; None for a tape.

    pre, post, past: by call, what checks saw and what was returned. parts: by call, the answer
    being the last, whether another way goes on in another manner there.
    """

    def __init__(self, items: "Sequence[Stored]", taught: Taught | None = None) -> None:
        self.behaviour: Behaviour = items[-1].behaviour
        self.steps, self.taught = self.behaviour.steps, taught
        self.stored: list[Stored] = []
        self.pre: list[list[Sight]] = [[] for _ in self.steps]
        self.post: list[list[Sight]] = [[] for _ in self.steps]
        self.past: list[list[Past]] = [[] for _ in self.steps]
        self.parts = [False] * (len(self.steps) + 1)
        self._known: dict[bytes, Any] = {}
        self._seconds: list[float] = []
        self.add(items)

    def course(self, inputs: Json) -> Course | Tape:
        """Begin to follow the way."""
        return Tape(self.behaviour) if self.taught is None else Course(self.taught, inputs)

    def beside(self, place: int) -> Beside:
        """Return what stands beside a call."""
        return _AS_RECORDED if self.taught is None else self.taught.beside[place]

    def seconds(self, mask: int) -> float:
        """Return how long the calls of the newest of some behaviours took when recorded."""
        return self._seconds[mask.bit_length() - 1]

    @property
    def all(self) -> int:
        """All behaviours of the way."""
        return (1 << len(self.stored)) - 1

    def add(self, items: "Sequence[Stored]") -> None:
        """Add behaviours whose checks saw the same, the newest last."""
        bits = 0
        for item in items:
            bit = 1 << len(self.stored)
            bits |= bit
            self.stored.append(item)
            self._seconds.append(sum(step.seconds for step in item.behaviour.steps))
            for place, step in enumerate(item.behaviour.steps):
                for name, capture in (("pre", step.pre), ("post", step.post)):
                    if capture is not None:
                        self._sight(name, place, capture).mask |= bit
        for place in range(len(self.steps) if self.taught is not None else 0):
            one = Past([_returned(item.behaviour, place) for item in items])
            one.mask = bits
            self.past[place].append(one)

    def _sight(self, name: str, place: int, capture: Capture) -> Sight:
        key = msgspec.json.encode((name, place, capture.value, capture.form), order="sorted")
        if key not in self._known:
            self._known[key] = Sight(capture)
            getattr(self, name)[place].append(self._known[key])
        found: Sight = self._known[key]
        return found

    def exact(self, results: Sequence[Any]) -> int:
        """Return the behaviours in whose recordings the first calls returned just this."""
        mask = self.all
        for place, result in enumerate(results if self.taught is not None else ()):
            alike = 0
            for one in self.past[place]:
                if any(identical(result, row.result) for row in one.recorded):
                    alike |= one.mask
            mask &= alike
        return mask

    def teaches(self, item: "Stored") -> bool:
        """Return whether the routine does what was recorded."""
        if self.taught is None or item.behaviour.shape != self.behaviour.shape:
            return False
        recorded = item.behaviour.recorded
        course = retraced(self.taught, recorded, self.steps)
        if course is None or not course.is_over:
            return False
        return item.behaviour.answer.live is not None or identical(course.output, recorded.output)

    def next_call(self, place: int) -> bytes:
        """Return what tells the call at a place, or the answer behind the last, from others."""
        if self.taught is None:
            end: Any = self.behaviour.answer.value
            own: Any = [one.args for one in self.steps]
        else:
            end = self.taught.returns
            own = [one["args"] for one in self.taught.calls]
        if place == len(self.steps):
            return msgspec.json.encode((end, self.behaviour.answer.live), order="sorted")
        step = self.steps[place]
        return msgspec.json.encode((step.tool, own[place], step.live), order="sorted")


def _returned(behaviour: Behaviour, place: int) -> Returned:
    step = behaviour.steps[place]
    return Returned(step.args, step.result, behaviour.inputs)


def newest(way: Way, mask: int, most: int = 1) -> list["Stored"]:
    """Return the newest of some behaviours of a way."""
    return [one for n, one in enumerate(way.stored) if mask >> n & 1][: -most - 1 : -1]


def tapes_of(stored: "Sequence[Stored]") -> list[Way]:
    """Return the recordings that may be followed as they are, in the order of trying them."""
    known: dict[bytes, Way] = {}
    for item in stored:
        if item.behaviour.taught is not None:
            continue
        key = item.behaviour.tape
        if key in known:
            known[key].add([item])
        else:
            known[key] = Way([item])
    return _in_order([*known.values()])


def taught_by(name: str, stored: "Sequence[Stored]", known: Lessons) -> list[Way]:
    """Return the ways that recordings teach, in the order of trying them.

    Those whose checks saw the same are learnt from together. What one recording alone teaches
    serves another that is alone too, if it does what that shows. known: what was learnt before.
    """
    groups: dict[bytes, list[Stored]] = {}
    for item in stored:
        groups.setdefault(item.behaviour.seen, []).append(item)
    found: list[Way] = []
    of_one: list[Way] = []
    for items in reversed(groups.values()):
        shared = next((way for way in of_one if len(items) == 1 and way.teaches(items[0])), None)
        if shared is not None:
            shared.add(items)
            continue
        own = [Way(*lesson) for lesson in _lessons(name, _newest(items), known)]
        found += own
        of_one += own if len(items) == 1 else []
    return _in_order(found)


def _newest(items: "Sequence[Stored]") -> "list[Stored]":
    """Return the newest behaviours, as many as are learnt from."""
    found: list[Stored] = []
    left = MOST_BYTES
    for item in reversed(items[-MOST_RECORDINGS:]):
        left -= len(item.behaviour.tape)
        if found and left < 0:
            break
        found.insert(0, item)
    return found


def _lessons(
    name: str, items: "Sequence[Stored]", known: Lessons
) -> "list[tuple[Sequence[Stored], Taught]]":
    """Return what recordings teach together; where they contradict each other, in groups."""

    def learnt(chosen: "Sequence[Stored]") -> Taught | None:
        key = tuple(item.id for item in chosen)
        if key not in known:
            kept = [one.behaviour.taught for one in chosen[-1:]]
            try:
                known[key] = kept[0] or teach(name, [one.behaviour for one in chosen])
            except NotRecordable:
                known[key] = None
        return known[key]

    whole = learnt(items)
    if whole is not None:
        return [(items, whole)]
    groups: list[tuple[Sequence[Stored], Taught]] = []
    for item in items:
        for group in reversed(groups[-MOST_TRIED:]):
            both = [*group[0], item]
            if (taught := learnt(both)) is not None:
                groups.remove(group)
                groups.append((both, taught))
                break
        else:
            if (alone := learnt([item])) is not None:
                groups.append(([item], alone))
    return groups


def _in_order(ways: list[Way]) -> list[Way]:
    """Return ways as they are tried: those with more checks first, then the newest."""
    calls = {id(way): [way.next_call(n) for n in range(len(way.steps) + 1)] for way in ways}
    follow: dict[tuple[bytes, ...], set[bytes]] = {}
    for own in calls.values():
        for place, call in enumerate(own):
            follow.setdefault(tuple(own[:place]), set()).add(call)
    ends: dict[tuple[bytes, ...], int] = {}
    for way in ways:
        begin = tuple(calls[id(way)][:-1])
        ends[begin] = max(ends.get(begin, 0), way.stored[-1].version)
    ranks = {}
    for way in ways:
        own = calls[id(way)]
        begins = [tuple(own[:n]) for n in range(len(own))]
        way.parts = [len(follow[begin]) > 1 for begin in begins]
        # Before one that ends, those are tried that begin alike and go on.
        version = max(ends.get(begin, 0) for begin in begins)
        ranks[id(way)] = (sum(map(bool, way.pre)), version, len(own))
    return sorted(ways, key=lambda way: ranks[id(way)], reverse=True)
