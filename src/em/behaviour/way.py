"""Way: behaviours of one task that make the same calls, with what was captured beside them.

A way is a recording that is followed while all is as recorded, or the routine that recordings
teach. Its behaviours are a set of bits, the newest one highest. What is equal in several of them is
compared once: a call costs the same with one behaviour and with a hundred.
"""

import functools
from collections import defaultdict
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from em.behaviour.behaviour import Behaviour, Capture, Step, Taught
from em.behaviour.codec import copy, decode
from em.behaviour.guards import ENOUGH, Use, uses_in
from em.behaviour.lesson import Course, Recording, is_shown, retraced, teach
from em.behaviour.likeness import Returned, is_fact
from em.behaviour.task import HOLE
from em.compiler.checks import walked
from em.compiler.evidence import information
from em.errors import NotRecordable
from em.runner.expressions.language import Evaluate, compile_value, parse_reference
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
RETURN = "return"
"""The id of the last step of a routine."""
_SCALARS = (str, int, float, bool, type(None))

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


class Spot:
    """A call of a way: one that was recorded for it, and what its checks saw.

    past: by behaviour, what the calls of this step of the routine returned, in all rounds.
    is_asked: whether it may have been made to know something. Not if its name says that it writes,
    or if it gave something else when it was made again.
    """

    def __init__(self, step: Step, past: list[tuple[int, Returned]], *, is_asked: bool) -> None:
        self.step, self.past, self.is_asked = step, past, is_asked
        self.pre: dict[bytes, Sight] = {}
        self.post: dict[bytes, Sight] = {}

    def add(self, step: Step, bit: int) -> None:
        """Add the recorded call of a behaviour, which is the newest."""
        self.step = step
        for sights, capture in ((self.pre, step.pre), (self.post, step.post)):
            if capture is None:
                continue
            key = msgspec.json.encode((capture.value, capture.form), order="sorted")
            sights.setdefault(key, Sight(capture)).mask |= bit


class Tape:
    """A recording that is followed while every call returns what it returned then."""

    is_over, result = True, None

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self.step = 0
        self.output = behaviour.answer.value

    @property
    def is_stopped(self) -> bool:
        """Whether it wants no further call."""
        return self.step == len(self._behaviour.steps)

    @property
    def tool(self) -> str:
        """The tool of the next call."""
        return self._behaviour.steps[self.step].tool

    @property
    def args(self) -> Json:
        """The arguments of the next call."""
        return self._behaviour.steps[self.step].args

    def answer(self, _result: Any) -> None:
        """Go on to the next call."""
        self.step += 1

    def why_stopped(self) -> tuple[str, str, str]:
        """Return why it stopped: it never does by itself."""
        raise NotImplementedError


class Way:
    """Behaviours that make the same calls, oldest first. taught: their routine; None for a tape.

    parts: the steps at which another way of the task goes on in another manner.
    """

    def __init__(self, items: "Sequence[Stored]", taught: Taught | None = None) -> None:
        self.behaviour: Behaviour = items[-1].behaviour
        self.taught = taught
        self.stored: list[Stored] = []
        self.parts: Collection[str] = ()
        self._spots: dict[Any, list[Spot]] = defaultdict(list)
        self._past: dict[Any, list[tuple[int, Returned]]] = defaultdict(list)
        self._handles: set[int] = set()
        self._steps_of: dict[int, Any] = {}
        self._seconds: list[float] = []
        made = [None] * len(items) if taught is None else taught.made[-len(items) :]
        for item, steps in zip(items, made, strict=True):
            self.add(item, steps)

    def course(self, inputs: Json) -> Course | Tape:
        """Begin to follow the way."""
        return Tape(self.behaviour) if self.taught is None else Course(self.taught, inputs)

    def seconds(self, mask: int) -> float:
        """Return how long the calls of the newest of some behaviours took when recorded."""
        return self._seconds[mask.bit_length() - 1]

    @property
    def all(self) -> int:
        """All behaviours of the way."""
        return (1 << len(self.stored)) - 1

    def add(self, item: "Stored", made: Sequence[str] | None = None) -> None:
        """Add a behaviour. made: the steps of the routine that make its calls."""
        bit = 1 << len(self.stored)
        self.stored.append(item)
        self._seconds.append(sum(step.seconds for step in item.behaviour.steps))
        own = item.behaviour
        live = [number for step in own.steps for number in step.live.values()]
        live += [] if own.answer.live is None else [own.answer.live]
        self._handles |= {id(own.steps[number]) for number in live}
        rounds: dict[Any, list[Step]] = defaultdict(list)
        for number, step in enumerate(item.behaviour.steps):
            rounds[number if made is None else made[number]].append(step)
        for key, steps in rounds.items():
            spots, past = self._spots[key], self._past[key]
            if self.taught is not None:
                past += [(bit, Returned(one.args, one.result, own.inputs)) for one in steps]
            while len(spots) < len(steps):
                step = steps[len(spots)]
                spots.append(Spot(step, past, is_asked=_is_asked(own, step)))
                self._steps_of[id(spots[-1])] = key
            for turn, spot in enumerate(spots):
                spot.add(steps[min(turn, len(steps) - 1)], bit)

    def spot(self, step: Any, turn: int) -> Spot:
        """Return what was recorded for a call: of a later round than any, the last one's."""
        spots = self._spots[step]
        return spots[min(turn, len(spots) - 1)]

    def exact(self, taken: Sequence[Any]) -> int:
        """Return the behaviours in whose recordings all these calls returned just this."""
        if self.taught is None:
            return self.all
        mask = 0
        for number, item in enumerate(self.stored):
            steps = item.behaviour.steps
            if all(
                any(
                    step.tool == one.tool.name
                    and identical(step.args, one.args)
                    and identical(step.result, one.result)
                    for step in steps
                )
                for one in taken
            ):
                mask |= 1 << number
        return mask

    def is_handle(self, step: Step) -> bool:
        """Return whether the object that a call returns is passed on or returned."""
        return id(step) in self._handles

    def paths(self, spot: Spot) -> Mapping[str, bool]:
        """Return the paths of a result that the routine takes; by each, whether that is sure."""
        return self._paths.get(self._steps_of[id(spot)], {})

    @functools.cached_property
    def _paths(self) -> Mapping[str, Mapping[str, bool]]:
        """The same by the id of the step that saves the result."""
        assert self.taught is not None
        steps = [one for one in self.taught.routine["steps"] if one["type"] == "tool.call"]
        saved = {one["save_as"]: one["id"] for one in steps}
        found: dict[str, dict[str, bool]] = defaultdict(dict)
        for use in uses_in(self.taught.routine):
            holes = HOLE.findall(use.template) if isinstance(use.template, str) else ()
            for name, parts in filter(None, map(parse_reference, holes)):
                if name in saved:
                    step, path = saved[name], "".join(f".{part}" for part in parts)
                    is_sure = self._is_sure(step, path, use, parts)
                    found[step][path] = found[step].get(path, False) or is_sure
        return found

    def _is_sure(self, step: str, path: str, use: Use, parts: Sequence[str | int]) -> bool:
        """Return whether a value comes from there: it says much, or is called so, or varied.

        What a write made is passed on, and seldom looked at. A fact that never varied stays.
        """
        values = [one.parts[path] for _, one in self._past[step] if path in one.parts]
        is_varied = any(not identical(one, values[0]) for one in values[1:])
        if self._spots[step][0].step.writes or is_varied:
            return True
        if any(map(is_fact, values)):
            return False
        says_much = all(information(one) >= ENOUGH for one in values)
        return not use.is_whole or parts[-1:] == (use.name,) or says_much


def _is_asked(behaviour: Behaviour, step: Step) -> bool:
    again = [one for one in behaviour.steps if one.tool == step.tool]
    is_changing = any(
        identical(one.args, step.args) and not identical(one.result, step.result) for one in again
    )
    return not step.writes or (step.reads and not is_changing)


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
            known[key].add(item)
        else:
            known[key] = Way([item])
    return _in_order([*known.values()])


def taught_by(name: str, stored: "Sequence[Stored]", known: Lessons) -> list[Way]:
    """Return the ways that recordings teach, in the order of trying them.

    Those whose checks saw the same are learnt from together. What one recording alone teaches
    serves another that is alone too, if it does what that shows. known: what was learnt before.
    """
    groups: dict[bytes, list[Stored]] = defaultdict(list)
    for item in stored:
        groups[item.behaviour.seen].append(item)
    found: list[Way] = []
    of_one: list[Way] = []
    for items in reversed(groups.values()):
        if len(items) == 1 and any(_serves(way, items[0]) for way in of_one):
            continue
        own = [Way(*lesson) for lesson in _lessons(name, _newest(items), known)]
        found += own
        of_one += own if len(items) == 1 else []
    calls = [_calls(way) for way in found]
    for way, done in zip(found, calls, strict=True):
        acts = [act for act, _ in done]
        others = [[act for act, _ in other] for other in calls]
        way.parts = {
            step
            for number, (act, steps) in enumerate(done)
            if any(
                other[:number] == acts[:number] and other[number : number + 1] != [act]
                for other in others
            )
            for step in steps
        }
    return _in_order(found)


def _serves(way: Way, item: "Stored") -> bool:
    """Add a behaviour to a way of one that does what it shows; return whether it does."""
    assert way.taught is not None
    recording = Recording.of(item.behaviour)
    course, steps = retraced(way.taught, recording)
    if item.behaviour.params != way.behaviour.params or not is_shown(course, steps, recording):
        return False
    way.add(item, steps)
    return True


def _calls(way: Way) -> list[tuple[bytes, list[str]]]:
    """Return what a routine does, in its order, with the ids of the steps that do it."""
    assert way.taught is not None
    found = []
    for step in way.taught.routine["steps"]:
        if step["type"] in ("tool.call", "for_each", "return"):
            made = [one for one in walked([step]) if one["type"] != "assert"]
            told = [[one.get(name) for name in _ACTS] for one in made]
            text = msgspec.json.encode((told, way.taught.given), order="sorted")
            found.append((text, [one["id"] for one in made]))
    return found


_ACTS = ("tool", "args", "over", "value", "when")


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
        return [(items[-len(whole.made) :], whole)]
    groups: list[tuple[Sequence[Stored], Taught]] = []
    for item in items:
        for group in reversed(groups[-MOST_TRIED:]):
            both = [*group[0], item]
            if (taught := learnt(both)) is not None:
                groups.remove(group)
                groups.append((both[-len(taught.made) :], taught))
                break
        else:
            if (alone := learnt([item])) is not None:
                groups.append(([item], alone))
    return groups


def _in_order(ways: list[Way]) -> list[Way]:
    """Return ways as they are tried: those with more checks first, then the newest.

    Before one that ends, those are tried that begin alike and go on.
    """
    calls = {
        id(way): [
            msgspec.json.encode((one.tool, one.args), order="sorted") for one in way.behaviour.steps
        ]
        for way in ways
    }
    ends = {tuple(calls[id(way)]): way.stored[-1].version for way in ways}

    def rank(way: Way) -> tuple[int, int, int]:
        own = calls[id(way)]
        version = max(ends.get(tuple(own[:number]), 0) for number in range(len(own) + 1))
        return sum(one.pre is not None for one in way.behaviour.steps), version, len(own)

    return sorted(ways, key=rank, reverse=True)
