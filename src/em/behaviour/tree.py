"""The behaviours of one task as a tree: what they share at the beginning is checked and done once.

Which behaviours are still possible is a set of bits, one for each, the newest highest: with a
hundred of them a step costs no more than with one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.behaviour.behaviour import Answer, Behaviour, Capture, Step, Twin
from em.behaviour.codec import Form, copy, restore
from em.runner.expressions.language import Evaluate, compile_value
from em.values.canonical import Json

_SCALARS = (str, int, float, bool, type(None))


_Pair = tuple[str, Evaluate, Evaluate]


def _compile_twins(twins: Sequence[Twin]) -> list[_Pair]:
    return [
        (twin.argument, compile_value(twin.source, "twin"), compile_value(twin.value, "twin"))
        for twin in twins
    ]


def _disagreement(pairs: Sequence[_Pair], scope: Json) -> str:
    for argument, one, other in pairs:
        here, there = one(scope), other(scope)
        if here != there:
            return (
                f"{argument} was {there!r} as an earlier result, which is {here!r} now:"
                " it can't be told which one is meant"
            )
    return ""


class Sight:
    """What a check saw at one step, in the behaviours of `mask`."""

    __slots__ = ("_evaluate", "_known", "capture", "mask")

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.mask = 0
        self._known: tuple[Any] | None = None
        self._evaluate: Evaluate | None = None

    def value(self, scope: Json, hint: Any) -> Any:
        """What it saw, as the capture returned it, with this run's params."""
        if self._known is not None:
            return self._known[0]  # no comparison can change it
        if self._evaluate is None:
            self._evaluate = compile_value(self.capture.value, "check")
        value = restore(copy(self._evaluate(scope)), self.capture.form, hint)
        if isinstance(value, _SCALARS) and _is_constant(self.capture.value):
            self._known = (value,)
        return value


class Node:
    """A step, the behaviours that take it, and what may come after it."""

    def __init__(self, step: Step | None) -> None:
        self.step = step
        self.call = b"" if step is None else _call(step)
        self.mask = 0
        self.children: list[Node] = []
        self.ends: dict[int, End] = {}
        self.end_mask = 0
        self.pre: list[Sight] = []
        self.post: list[Sight] = []
        self.cost = 0.0
        self.gave: dict[str, int] = {}
        self._by_content: dict[bytes, Node] = {}
        self._sights: dict[tuple[str, bytes], Sight] = {}
        self._constants: Json | None = None
        self._evaluated: list[tuple[str, Evaluate]] = []
        self._twins: list[_Pair] = []

    def child(self, step: Step) -> "Node":
        """The node of a step, new or shared."""
        content = _call(step) + msgspec.json.encode((step.twins, step.save_as), order="sorted")
        node = self._by_content.get(content)
        if node is None:
            node = self._by_content[content] = Node(step)
            self.children.append(node)
        return node

    def add(self, step: Step, bit: int) -> None:
        """Note that a behaviour takes this step, with what its checks saw."""
        self.mask |= bit
        self.gave[step.gave] = self.gave.get(step.gave, 0) | bit
        for place, sights, capture in (
            ("pre", self.pre, step.pre),
            ("post", self.post, step.post),
        ):
            if capture is None:
                continue
            content = (place, msgspec.json.encode((capture.value, capture.form), order="sorted"))
            sight = self._sights.get(content)
            if sight is None:
                sight = self._sights[content] = Sight(capture)
                sights.append(sight)
            sight.mask |= bit
            self.cost = max(self.cost, capture.seconds)

    def arguments(self, scope: Json) -> Json:
        """The arguments as JSON, from this run's values."""
        if self._constants is None:
            self._compile()
        arguments = dict(self._constants or {})
        for name, evaluate in self._evaluated:
            arguments[name] = evaluate(scope)
        return arguments

    def disagreement(self, scope: Json) -> str:
        """Where a value may have come from a result that is another now; "" if nowhere."""
        return _disagreement(self._twins, scope)

    def _compile(self) -> None:
        assert self.step is not None
        constants: Json = {}
        evaluated = []
        for name, value in self.step.args.items():
            if isinstance(value, _SCALARS) and _is_constant(value):
                constants[name] = value
            else:
                evaluated.append((name, compile_value(value, f"argument {name}")))
        # Another thread may do the same: whoever sees the constants sees the rest too.
        self._evaluated = evaluated
        self._twins = _compile_twins(self.step.twins)
        self._constants = constants


def _call(step: Step) -> bytes:
    """The same for steps that make the same call."""
    return msgspec.json.encode(
        (step.tool, step.code, step.args, step.forms, step.live), order="sorted"
    )


class End:
    """Where a behaviour is over, and what it then returns."""

    __slots__ = ("_evaluate", "_twins", "answer", "number", "said")

    def __init__(self, number: int, answer: Answer) -> None:
        self.number = number
        self.answer = answer
        self.said = msgspec.json.encode((answer.value, answer.live), order="sorted")
        self._evaluate: Evaluate | None = None
        self._twins: list[_Pair] = []

    def value(self, scope: Json, lives: Sequence[Any], hint: Any) -> Any:
        """The answer, from this run's results."""
        if self.answer.live is not None:
            return lives[self.answer.live]
        if self._evaluate is None:
            self._evaluate = compile_value(self.answer.value, "the return value")
            self._twins = _compile_twins(self.answer.twins)
        if problem := _disagreement(self._twins, scope):
            raise ValueError(problem)
        return restore(copy(self._evaluate(scope)), self.answer.form, hint)


def plant(behaviours: Sequence[Behaviour]) -> Node:
    """The tree of some behaviours; the bit of each is its place in the list."""
    root = Node(None)
    for number, behaviour in enumerate(behaviours):
        bit = 1 << number
        node = root
        node.mask |= bit
        for step in behaviour.steps:
            node = node.child(step)
            node.add(step, bit)
        node.ends[number] = End(number, behaviour.answer)
        node.end_mask |= bit
    _order(root)
    return root


def _order(root: Node) -> None:
    """Children with checks first, the cheapest of them before the others."""
    todo = [root]
    while todo:
        node = todo.pop()
        node.children.sort(key=lambda child: (not child.pre, child.cost))
        todo += node.children


def newest(mask: int) -> int:
    """The number of the newest behaviour in a set."""
    return mask.bit_length() - 1


def members(mask: int) -> list[int]:
    """The numbers in a set, the newest first."""
    return [number for number in range(newest(mask), -1, -1) if mask >> number & 1]


def _is_constant(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" not in value and "{%" not in value
    if isinstance(value, dict):
        return all(map(_is_constant, value.values()))
    if isinstance(value, list):
        return all(map(_is_constant, value))
    return True


def restored(arguments: Json, forms: Mapping[str, Form], hints: Mapping[str, Any]) -> Json:
    """Arguments as the tool takes them."""
    for name, form in forms.items():
        arguments[name] = restore(arguments[name], form, hints.get(name))
    return arguments
