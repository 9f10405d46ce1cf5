"""Outlook: what a replay can try of later steps and of the answer before its next write.

An expression can be evaluated as soon as the last result that it uses is there. If it fails, the
replay can't reach its end, and stops before it writes anything more. The tree shows which step that
result belongs to: each part is filed under that step, and tried once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from em.behaviour.behaviour import Twin
from em.behaviour.task import HOLE
from em.behaviour.tree import Node, disagreement
from em.errors import EmError, ExpressionError
from em.runner.expressions.language import Evaluate, compile_value, names_in, parse_reference
from em.values.canonical import Json
from em.values.leaves import texts

FAILURES = (EmError, ValueError, TypeError, LookupError)
"""What evaluating an expression raises if a value is not there."""


class Part:
    """An expression that a step or an answer needs, or two that must be equal.

    names: the inputs and results that it uses. mask: the behaviours that need it.
    """

    __slots__ = ("_evaluate", "_place", "_twin", "mask", "names")

    def __init__(self, place: str, source: Any, twin: Twin | None = None) -> None:
        self._place = place
        self._evaluate = compile_value(source, "")
        self.names = _names(source)
        self._twin: tuple[str, Evaluate, Evaluate] | None = None
        if twin is not None:
            self._twin = twin.argument, self._evaluate, compile_value(twin.value, "")
            self.names |= _names(twin.value)
        self.mask = 0

    def problem(self, scope: Json) -> str:
        """Say why a replay with these values can't reach its end; "" if this part is fine."""
        try:
            if self._twin is not None:
                found = disagreement([self._twin], scope)
                return found and f"{self._place}: {found}"
            self._evaluate(scope)
        except FAILURES as error:
            what = "" if self._place == ANSWER else "its arguments can't be evaluated: "
            return f"{self._place}: {what}{error}"
        return ""


ANSWER = "the answer can't be evaluated"


def _names(source: Any) -> frozenset[str]:
    """Return the names that a template uses; references are read without Jinja."""
    found: set[str] = set()
    for text in texts(source):
        holes = HOLE.findall(text)
        references = [parse_reference(hole) for hole in holes]
        if "{%" in text or None in references:
            found |= names_in(text, "")
        found.update(reference[0] for reference in references if reference is not None)
    return frozenset(found)


def _parts(place: str, templates: Any, twins: Sequence[Twin]) -> Iterator[tuple[Any, Part]]:
    """Yield the expressions of a template one by one, with what tells them apart."""
    for text in texts(templates):
        if "{{" not in text and "{%" not in text:
            continue
        holes = [text] if "{%" in text else [f"{{{{{one}}}}}" for one in HOLE.findall(text)]
        try:
            yield from [(hole, Part(place, hole)) for hole in holes]
        except ExpressionError:  # a constant with braces in it
            yield text, Part(place, text)
    for twin in twins:
        yield (twin.source, str(twin.value)), Part(place, twin.source, twin)


class Outlook:
    """The parts of a tree of behaviours, each filed under the step that it waits for."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._found: dict[tuple[Node, Any], Part] = {}
        self._after: dict[Node, list[Part]] = {}
        todo: list[tuple[Node, int, dict[str, tuple[int, Node]]]] = [(root, 0, {})]
        while todo:
            node, depth, saved = todo.pop()
            if node.step is not None:
                place = f"step {depth} ({node.step.tool})"
                self._add(node.mask, saved, _parts(place, node.step.args, node.step.twins))
                if node.step.save_as is not None:
                    saved[node.step.save_as] = (depth, node)
            for number, end in node.ends.items():
                answer = end.answer
                if answer.live is None:
                    self._add(1 << number, saved, _parts(ANSWER, answer.value, answer.twins))
            # Where there is one way to go on, it may add to the same mapping.
            copies = len(node.children) > 1
            todo += [
                (child, depth + 1, dict(saved) if copies else saved) for child in node.children
            ]

    def _add(
        self, mask: int, saved: dict[str, tuple[int, Node]], parts: Iterator[tuple[Any, Part]]
    ) -> None:
        for content, part in parts:
            waits = [saved[name] for name in part.names if name in saved]
            _, last = max(waits, key=lambda one: one[0], default=(0, self._root))
            known = self._found.get((last, content))
            if known is None:
                known = self._found[last, content] = part
                self._after.setdefault(last, []).append(part)
            known.mask |= mask

    def after(self, node: Node) -> Sequence[Part]:
        """Return the parts that can be tried once this step is done; for the root, at once."""
        return self._after.get(node, ())
