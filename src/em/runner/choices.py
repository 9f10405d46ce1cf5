"""Choices: what a missing input may be, by the lists that the routine's own reads return.

A routine that chooses `only(orders, id=order_id)`, or checks `order_id in user.orders`, says where
the values of `order_id` come from. The reads that don't need the input are made, and each value is
rehearsed: what a check refuses is no choice. Where other inputs are missing too, nothing can be
rehearsed, and the lists are shown as they are.
"""

import ast
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.errors import EmError
from em.runner.drivers import Effect
from em.runner.expressions.language import compile_expression
from em.runner.rehearsal import Rehearsal
from em.runner.request import Bound
from em.runner.routine import Program, Routine
from em.runner.run import plain
from em.values import json_schema
from em.values.canonical import Json, identical
from em.values.leaves import texts
from em.values.syntax_tree import expression_of

MOST = 10
"""Values that are rehearsed; of a longer list none is."""
_ONLY = ("only", "only_key")
_CHOOSING = (*_ONLY, "where")


def places_of(program: Program, name: str) -> list[tuple[str, str]]:
    """Return the lists that have the values of an input: expression, and field of its rows."""
    found = [
        place
        for step in program.steps
        for text in texts(msgspec.to_builtins(step.source))
        if name in text
        for place in _places(text, name)
    ]
    return [*dict.fromkeys(found)]


def is_listed(routine: Routine, name: str) -> bool:
    """Return whether a run takes the only record with the value of an input, or hands over."""
    found = (
        _places(text, name, _ONLY)
        for step in routine.all_steps
        for text in texts(msgspec.to_builtins(step))
        if name in text
    )
    return any(field for each in found for _, field in each)


def _places(
    text: str, name: str, functions: Sequence[str] = _CHOOSING
) -> Iterator[tuple[str, str]]:
    bare = text.strip().removeprefix("{{").removesuffix("}}").strip()
    try:
        nodes = [*ast.walk(expression_of(bare))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        if isinstance(node, ast.Compare) and _is(node.left, name):
            if isinstance(node.ops[0], ast.In):
                yield ast.unparse(node.comparators[0]), ""
        elif isinstance(node, ast.Call) and _is(node.func, *functions) and node.args:
            fields = [(one.arg, one.value) for one in node.keywords]
            for more in (one for one in node.args[1:] if isinstance(one, ast.Dict)):
                keys = [getattr(key, "value", None) for key in more.keys]
                fields += zip(keys, more.values, strict=True)
            for field, value in fields:
                if isinstance(field, str) and _is(value, name):
                    yield ast.unparse(node.args[0]), field


def _is(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def choices(
    program: Program, options: Json, given: Json, missing: Sequence[str]
) -> Generator[Effect, Any, dict[str, list[Any]]]:
    """Return the values of missing inputs, as far as few are listed and pass all checks."""
    places = {name: found for name in missing if (found := places_of(program, name))}
    if not places:
        return {}
    bound = Bound(inputs=given, how="given")
    looking = Rehearsal(program, **options, bound=bound, lacking=missing)
    yield from looking.run(given)
    fitting = {
        name: _fitting(program, name, _listed(lists, looking.scope))
        for name, lists in places.items()
    }
    listed = {name: values for name, values in fitting.items() if 0 < len(values) <= MOST}
    if len(missing) > 1:
        return listed
    passing: dict[str, list[Any]] = {name: [] for name in listed}
    for name, values in listed.items():
        for value in values:
            inputs = {**given, name: value}
            bound = Bound(inputs=inputs, how="given")
            tried = yield from Rehearsal(program, **options, bound=bound).run(inputs)
            if tried.status == "ok":
                passing[name].append(value)
    return {name: values for name, values in passing.items() if values}


def _listed(places: Sequence[tuple[str, str]], scope: Json) -> Iterator[Any]:
    for text, field in places:
        try:
            rows = compile_expression(text, "")(scope)
        except EmError:
            continue  # it needs what was not read
        rows = rows.values() if field and isinstance(rows, Mapping) else rows
        if isinstance(rows, list | tuple) or (field and not isinstance(rows, str)):
            yield from (
                row.get(field) if field and isinstance(row, Mapping) else row for row in rows
            )


def _fitting(program: Program, name: str, values: Iterator[Any]) -> list[Any]:
    """Return the values that the input may have, each once."""
    schema = json_schema.properties_of(program.routine.input_schema).get(name, {})
    found: list[Any] = []
    for value in map(plain, values):
        fits = value is not None and not any(json_schema.problems(schema, value))
        if fits and not any(identical(value, one) for one in found):
            found.append(value)
    return found
