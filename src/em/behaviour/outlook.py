"""Outlook: what a replay can try of later steps and of the answer before its next call.

An expression can be evaluated as soon as the last result that it uses is there. If it fails, if
explanations of a value differ, or if a guard does not hold, the replay can't reach its end, and
stops before it does anything more. The tree shows which step that result belongs to: each part is
filed under that step, and tried once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from em.behaviour.task import HOLE
from em.behaviour.tree import Node
from em.errors import EmError, ExpressionError
from em.runner.expressions.language import (
    compile_value,
    compile_written,
    names_in,
    parse_reference,
)
from em.runner.expressions.words import check_in_words
from em.values.canonical import Json
from em.values.leaves import texts

FAILURES = (EmError, ValueError, TypeError, LookupError)
"""What evaluating an expression raises if a value is not there."""
ANSWER = "the answer can't be evaluated"


class Part:
    """An expression that a step or an answer needs.

    names: the inputs and results that it uses. mask: the behaviours that need it.
    """

    __slots__ = ("_evaluate", "_place", "mask", "names")

    def __init__(self, place: str, source: Any) -> None:
        self._place = place
        self._evaluate = compile_value(source, "")
        self.names = _names(source)
        self.mask = 0

    def problem(self, scope: Json) -> str:
        """Say why a replay with these values can't reach its end; "" if this part is fine."""
        try:
            self._evaluate(scope)
        except FAILURES as error:
            return self._failure(error)
        return ""

    def _failure(self, error: Exception) -> str:
        what = "" if self._place == ANSWER else "its arguments can't be evaluated: "
        return f"{self._place}: {what}{error}"


class Guarding(Part):
    """A fact that was read before a call, and that must hold again."""

    __slots__ = ("_text",)

    def __init__(self, place: str, text: str) -> None:
        self._place, self._text = place, text
        self._evaluate = compile_written(text, "")
        self.names = frozenset(names_in(text, "", bare=True))
        self.mask = 0

    def problem(self, scope: Json) -> str:
        """Say which fact is another one; "" if it holds."""
        try:
            if self._evaluate(scope) is True:
                return ""
            reason = ""
        except FAILURES as error:
            reason = f": {error}"
        held = "it held when it was recorded that"
        return f"{self._place}: {held} {check_in_words(self._text)}, and does not now{reason}"


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


def _parts(place: str, templates: Any, guards: Sequence[str]) -> Iterator[tuple[Any, Part]]:
    """Yield the expressions of a template one by one, with what tells them apart."""
    for text in texts(templates):
        if "{{" not in text and "{%" not in text:
            continue
        holes = [text] if "{%" in text else [f"{{{{{one}}}}}" for one in HOLE.findall(text)]
        try:
            yield from [(hole, Part(place, hole)) for hole in holes]
        except ExpressionError:  # a constant with braces in it
            yield text, Part(place, text)
    for guard in guards:
        yield (guard,), Guarding(place, guard)


class Outlook:
    """The parts of a tree of behaviours, each filed under the step that it waits for."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._found: dict[tuple[Node, Any], Part] = {}
        self._after: dict[Node, list[Part]] = {}
        todo: list[tuple[Node, int, dict[str, tuple[int, Node]]]] = [(root, 0, {})]
        while todo:
            node, depth, saved = todo.pop()
            step = node.step
            if step is not None:
                place = f"step {depth} ({step.tool})"
                self._add(node.mask, saved, _parts(place, step.args, ()))
                for guard, mask in node.guards.items():
                    self._add(mask, saved, _parts(place, None, [guard]))
                if step.save_as is not None:
                    saved[step.save_as] = (depth, node)
            for number, end in node.ends.items():
                answer = end.answer
                if answer.live is None:
                    self._add(1 << number, saved, _parts(ANSWER, answer.value, answer.guards))
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
