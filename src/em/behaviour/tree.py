"""Tree of a task's behaviours: calls that they share from the start are checked and made once.

The behaviours that are still possible are a set of bits, the newest one highest: a call costs the
same with one behaviour and with a hundred.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from em.behaviour.behaviour import NO_CAPTURES, Behaviour, Capture, Captures, Step
from em.behaviour.codec import copy, decode
from em.runner.expressions.language import Evaluate, compile_value
from em.values.canonical import Json
from em.values.leaves import texts

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


class Node:
    """A call, the behaviours that make it, and the calls that may follow.

    live: arguments that are the object of an earlier call, by the number of that call. fixed: the
    arguments that are constants. `only` is the one call that follows where nothing is to be chosen:
    no other call or end does, and it has no check. ends: by behaviour, what tells its answer from
    others.
    """

    def __init__(self, step: Step | None, live: dict[str, int]) -> None:
        self.tool = "" if step is None else step.tool
        self.beside = NO_CAPTURES if step is None else step.beside
        self.live = live
        args = {} if step is None else step.args
        self.fixed = {name for name, value in args.items() if "{{" not in str(value)}
        self.mask = 0
        self.children: list[Node] = []
        self.only: Node | None = None
        self.ends: dict[int, bytes] = {}
        self.end_mask = 0
        self.pre: list[Sight] = []
        self.post: list[Sight] = []
        self.cost = 0.0
        self.gave: dict[str, int] = {}
        self._by_content: dict[bytes, Node] = {}
        self._sights: dict[bytes, Sight] = {}

    def child(self, step: Step, live: dict[str, int]) -> "Node":
        """Return the child of a step; steps that make the same call share one."""
        beside = step.beside
        content = msgspec.json.encode(
            (step.tool, beside.code, step.args, beside.forms, live, step.save_as), order="sorted"
        )
        node = self._by_content.get(content)
        if node is None:
            node = self._by_content[content] = Node(step, live)
            self.children.append(node)
        return node

    def add(self, beside: Captures, bit: int) -> None:
        """Add a behaviour that makes this call, with its captures."""
        self.mask |= bit
        self.gave[beside.gave] = self.gave.get(beside.gave, 0) | bit
        for sights, capture in ((self.pre, beside.pre), (self.post, beside.post)):
            if capture is None:
                continue
            content = (sights is self.pre, capture.value, capture.form)
            key = msgspec.json.encode(content, order="sorted")
            if key not in self._sights:
                self._sights[key] = Sight(capture)
                sights.append(self._sights[key])
            self._sights[key].mask |= bit
            self.cost = max(self.cost, capture.seconds)

    def order(self) -> None:
        """Sort what follows: calls with checks first, the cheapest check first; set `only`."""
        self.children.sort(key=lambda child: (not child.pre, child.cost))
        if len(self.children) == 1 and not self.ends and not self.children[0].pre:
            self.only = self.children[0]


def plant(behaviours: Sequence[Behaviour]) -> Node:
    """Build the tree of some behaviours; the bit of each is its index in the list."""
    root = Node(None, {})
    made = {root}
    for number, behaviour in enumerate(behaviours):
        bit = 1 << number
        node = root
        node.mask |= bit
        places = {step.id: place for place, step in enumerate(behaviour.steps)}
        for step in behaviour.steps:
            live = {name: places[one] for name, one in step.beside.live.items()}
            node = node.child(step, live)
            node.add(step.beside, bit)
            made.add(node)
        answer = (behaviour.returns, behaviour.answer.live)
        node.ends[number] = msgspec.json.encode(answer, order="sorted")
        node.end_mask |= bit
    for node in made:
        node.order()
    return root


def newest(mask: int) -> int:
    """Return the number of the newest behaviour in a set."""
    return mask.bit_length() - 1


def members(mask: int) -> list[int]:
    """Return the numbers in a set, newest first."""
    found = []
    while mask:
        number = mask.bit_length() - 1
        found.append(number)
        mask ^= 1 << number
    return found
