"""Tree of a task's behaviours: steps that they share from the start are checked and done once.

The behaviours that are still possible are a set of bits, the newest one highest: a step costs the
same with one behaviour and with a hundred.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.behaviour.behaviour import Answer, Behaviour, Capture, Step
from em.behaviour.codec import Form, copy, decode
from em.runner.expressions.language import Evaluate, compile_value
from em.values.canonical import Json
from em.values.json_schema import misfit

_SCALARS = (str, int, float, bool, type(None))


class Sight:
    """What a check captured at one step, in the behaviours of `mask`.

    `known` is the value, once `is_known`: it is immutable and without params, so it is shared.
    """

    __slots__ = ("_evaluate", "capture", "is_known", "known", "mask")

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.mask = 0
        self.known: Any = None
        self.is_known = False
        self._evaluate: Evaluate | None = None

    def value(self, scope: Json, hint: Any) -> Any:
        """Return the capture with this run's params filled in."""
        if self._evaluate is None:
            self._evaluate = compile_value(self.capture.value, "check")
        value = decode(copy(self._evaluate(scope)), self.capture.form, hint)
        if isinstance(value, _SCALARS) and _is_constant(self.capture.value):
            self.known, self.is_known = value, True
        return value


class Node:
    """A step, the behaviours that take it, and the steps that may follow.

    `only` is the one step that follows where nothing is to be chosen: no other step or end does,
    and it has no check.
    """

    def __init__(self, step: Step | None) -> None:
        self.step = step
        self.call = b"" if step is None else _call(step)
        self.mask = 0
        self.children: list[Node] = []
        self.only: Node | None = None
        self.ends: dict[int, End] = {}
        self.end_mask = 0
        self.pre: list[Sight] = []
        self.post: list[Sight] = []
        self.cost = 0.0
        self.gave: dict[str, int] = {}
        self.guards: dict[str, int] = {}
        self.expects: dict[bytes, tuple[Json, int]] = {}
        self._by_content: dict[bytes, Node] = {}
        self._sights: dict[tuple[str, bytes], Sight] = {}
        self._constants: Json | None = None
        self._evaluated: list[tuple[str, Evaluate]] = []

    def child(self, step: Step) -> "Node":
        """Return the child of a step; steps that make the same call share one."""
        content = _call(step) + msgspec.json.encode(step.save_as)
        node = self._by_content.get(content)
        if node is None:
            node = self._by_content[content] = Node(step)
            self.children.append(node)
        return node

    def add(self, step: Step, bit: int) -> None:
        """Add a behaviour that takes this step, with its captures."""
        self.mask |= bit
        self.gave[step.gave] = self.gave.get(step.gave, 0) | bit
        for guard in step.guards:
            self.guards[guard] = self.guards.get(guard, 0) | bit
        if step.expect is not None and not step.reads:
            text = msgspec.json.encode(step.expect, order="sorted")
            self.expects[text] = (step.expect, self.expects.get(text, ({}, 0))[1] | bit)
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
        """Return the arguments as JSON, from this run's values."""
        if self._constants is None:
            self._compile()
        arguments = dict(self._constants or {})
        for name, evaluate in self._evaluated:
            arguments[name] = evaluate(scope)
        return arguments

    def surprised(self, result: Any) -> Iterator[tuple[int, str]]:
        """Yield the behaviours in which a call returned something else, and what."""
        for schema, mask in self.expects.values():
            if found := misfit(schema, result):
                yield mask, f"{found.where or 'it'} fits its schema: {found.message}"

    def _compile(self) -> None:
        assert self.step is not None
        constants: Json = {}
        evaluated = []
        for name, value in self.step.args.items():
            if isinstance(value, _SCALARS) and _is_constant(value):
                constants[name] = value
            else:
                evaluated.append((name, compile_value(value, f"argument {name}")))
        # Other threads may do the same. Set `_constants` last: it marks the rest as ready.
        self._evaluated = evaluated
        self._constants = constants


def _call(step: Step) -> bytes:
    """Return bytes that are equal for steps that make the same call."""
    return msgspec.json.encode(
        (step.tool, step.code, step.args, step.forms, step.live), order="sorted"
    )


class End:
    """The end of a behaviour, and the answer that it returns."""

    __slots__ = ("_evaluate", "answer", "content", "number")

    def __init__(self, number: int, answer: Answer) -> None:
        self.number = number
        self.answer = answer
        self.content = msgspec.json.encode((answer.value, answer.live), order="sorted")
        self._evaluate: Evaluate | None = None

    def value(self, scope: Json, lives: Sequence[Any], hint: Any) -> Any:
        """Return the answer from this run's results."""
        if self.answer.live is not None:
            return lives[self.answer.live]
        if self._evaluate is None:
            self._evaluate = compile_value(self.answer.value, "the return value")
        return decode(copy(self._evaluate(scope)), self.answer.form, hint)


def plant(behaviours: Sequence[Behaviour]) -> Node:
    """Build the tree of some behaviours; the bit of each is its index in the list."""
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
    """Sort children: those with checks first, the cheapest check first; set `only`."""
    todo = [root]
    while todo:
        node = todo.pop()
        node.children.sort(key=lambda child: (not child.pre, child.cost))
        if len(node.children) == 1 and not node.ends and not node.children[0].pre:
            node.only = node.children[0]
        todo += node.children


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


def _is_constant(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" not in value and "{%" not in value
    if isinstance(value, dict):
        return all(map(_is_constant, value.values()))
    if isinstance(value, list):
        return all(map(_is_constant, value))
    return True


def restored(arguments: Json, forms: Mapping[str, Form], hints: Mapping[str, Any]) -> Json:
    """Return arguments decoded into the types that the tool takes."""
    for name, form in forms.items():
        arguments[name] = decode(arguments[name], form, hints.get(name))
    return arguments
