"""Document: the routine of a behaviour, as the steps that a careful engineer would write.

What can be known before a write is checked and named before it: an assert stands where all is known
that it names, and a later argument that may not be there is a `let` as soon as it can be.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from em.behaviour.task import HOLE
from em.compiler.calls import Names, identifier
from em.errors import ExpressionError
from em.runner.expressions.language import names_in, parse_reference, whole_expression
from em.values.canonical import Json


class Made(NamedTuple):
    """A call of the routine. guards: what must hold before it. note: what the steps don't say."""

    tool: str
    writes: bool
    args: Json
    save_as: str
    guards: Sequence[str]
    expect: Json | None
    note: str = ""


def document(
    name: str,
    inputs: Sequence[str],
    calls: Sequence[Made],
    answer: Any,
    guards: Sequence[str] = (),
) -> Json:
    """Return a routine that makes these calls, and returns the answer behind its guards."""
    found = _Document(inputs, calls)
    steps = [*found.steps(answer, guards)]
    effects = {call.tool: "write" if call.writes else "read" for call in calls}
    return {
        "version": "1",
        "name": identifier(name),
        "checks": "hand_over",
        "tools": [{"name": tool, "effect": effect} for tool, effect in effects.items()],
        "steps": steps,
    }


def ids_of(calls: Sequence[str]) -> list[str]:
    """Return the ids of the steps that call these tools."""
    names = Names()
    return [names.free(identifier(tool)) for tool in calls]


class _Document:
    def __init__(self, inputs: Sequence[str], calls: Sequence[Made]) -> None:
        self._inputs, self._calls = set(inputs), calls
        self._places = {call.save_as: place for place, call in enumerate(calls, 1)}
        self._first = next((n for n, call in enumerate(calls) if call.writes), len(calls))
        self._names, self._ids = Names(), Names()
        for one in (*inputs, *self._places):
            self._names.free(one)
        self._named: dict[str, str] = {}
        # By the number of calls that are made before: what is checked and named then.
        self._before: list[list[Json]] = [[] for _ in range(len(calls) + 1)]

    def steps(self, answer: Any, guards: Sequence[str]) -> Iterator[Json]:
        """Yield the steps in their order."""
        ids = [self._ids.free(identifier(call.tool)) for call in self._calls]
        self._ids.free("return")
        all_guards = [*(call.guards for call in self._calls), guards]
        for number, own in enumerate(all_guards):
            title = ids[number] if number < len(ids) else "return"
            for guard in dict.fromkeys(own):
                place = min(number, max(self._first, self._known(guard, bare=True)))
                step = {"type": "assert", "check": guard}
                self._before[place].append({"id": self._ids.free(f"{title}_check"), **step})
        values: list[Any] = [*(call.args for call in self._calls), answer]
        values = [self._hoisted(value, number) for number, value in enumerate(values)]
        for number, call in enumerate(self._calls):
            yield from self._before[number]
            step = {"id": ids[number], "type": "tool.call", "tool": call.tool}
            step |= {"args": values[number], "save_as": call.save_as}
            more = {"expect": call.expect, "description": call.note}
            yield step | {name: one for name, one in more.items() if one}
        yield from self._before[-1]
        yield {"id": "return", "type": "return", "value": values[-1]}

    def _known(self, expression: str, *, bare: bool = False) -> int:
        """Return how many calls are made before all is known that an expression names."""
        used = names_in(expression, "", bare=bare)
        return max((self._places[name] for name in used if name in self._places), default=0)

    def _hoisted(self, value: Any, number: int) -> Any:
        """Return a template for a call, in which what may be missing is named before a write."""
        if isinstance(value, dict):
            return {name: self._hoisted(one, number) for name, one in value.items()}
        if isinstance(value, list):
            return [self._hoisted(one, number) for one in value]
        if not isinstance(value, str) or "{{" not in value or "{%" in value:
            return value
        whole = whole_expression(value)
        if whole is not None:
            return f"{{{{ {self._name_of(whole.strip(), number)} }}}}"
        return HOLE.sub(lambda hole: f"{{{{ {self._name_of(hole[1].strip(), number)} }}}}", value)

    def _name_of(self, expression: str, number: int) -> str:
        """Return what stands for an expression before a call: a name, or the expression itself."""
        if expression in self._named:
            return self._named[expression]
        with suppress(ExpressionError):  # a constant with braces in it
            known = self._known(expression, bare=True)
            is_late = any(call.writes for call in self._calls[known:number])
            if is_late and names_in(expression, "", bare=True) and not self._is_there(expression):
                reference = parse_reference(expression)
                last = reference[1][-1] if reference and reference[1] else "value"
                name = self._names.free(identifier(str(last)))
                self._named[expression] = name
                step = {"type": "let", "value": f"{{{{ {expression} }}}}", "save_as": name}
                self._before[known].append({"id": self._ids.free(f"{name}_value"), **step})
                return name
        return expression

    def _is_there(self, expression: str) -> bool:
        """Return whether a value is there in any case: an input, a result, a field it must have."""
        reference = parse_reference(expression)
        if reference is None:
            return False
        name, parts = reference
        schema: Any = None
        if name in self._places:
            schema = self._calls[self._places[name] - 1].expect
        for part in parts:
            if not isinstance(schema, dict) or part not in schema.get("required", ()):
                return False
            schema = schema.get("properties", {}).get(part)
        return True
