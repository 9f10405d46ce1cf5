"""What stands in an exported script for the parts of em that its agreement is written with.

A script that must ask or refuse has a copy of `em.runner.agreement`, so that both decide alike.
This module is copied with it. It gives that code the names that it imports from em: errors,
prompts, and expressions, which the exporter has translated to Python.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, NamedTuple

from em.compiler.export.script import (
    NeedsInput,
    RoutineProblem,
    ask,
    json_text,
    misfits,
)

Json = dict[str, Any]
Evaluate = Callable[[Any], Any]

EXPRESSIONS: dict[str, Evaluate] = {}
"""The expressions of the routine; a script has its own here."""
TEXTS: dict[str, Evaluate] = {}
"""Texts of arguments that hold expressions; a script has its own here."""


class EmError(RoutineProblem):
    """The base of all errors."""

    def __init__(self, message: str, *, place: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.message, self.place, self.fix = message, place, fix

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text} ({self.fix})" if self.fix else text


class RoutineError(EmError):
    """The routine, its input or an answer is wrong."""


class PendingPrompt(NamedTuple):
    """What a run asks a person."""

    step_id: str
    message: str
    fields: list[Json]


class Known(dict[str, Any]):
    """What a run knows so far: its inputs, its secrets and the results of its steps."""

    def __missing__(self, name: str) -> Any:
        """Raise if something is not known."""
        raise EmError(f"{name!r} is not defined")


def compile_expression(text: str, _place: str) -> Evaluate:
    """Return the function that the exporter made of an expression."""
    return evaluating(EXPRESSIONS[text])


def together(_texts: Collection[str]) -> tuple[Evaluate, Collection[str]]:
    """Leave every expression to be evaluated by itself."""
    return lambda _known: True, ()


def whole_expression(text: str) -> str | None:
    """Return the expression of a text that is exactly one `{{ expression }}`, else None."""
    whole = re.fullmatch(r"\s*\{\{(?P<inside>(?:(?!\}\}|\{\{).)*)\}\}\s*", text, re.DOTALL)
    return None if whole is None else whole["inside"]


def compile_value(value: Any, place: str) -> Evaluate:
    """Return a function that fills the expressions of a value."""
    if isinstance(value, dict):
        parts = {key: compile_value(item, place) for key, item in value.items()}
        return lambda known: {key: part(known) for key, part in parts.items()}
    if isinstance(value, list):
        items = [compile_value(item, place) for item in value]
        return lambda known: [item(known) for item in items]
    if isinstance(value, str) and value in TEXTS:
        return evaluating(TEXTS[value])
    return lambda _known: value


def evaluating(evaluate: Evaluate) -> Evaluate:
    """Return a function whose errors are those of expressions."""

    def evaluated(known: Any) -> Any:
        try:
            return evaluate(known)
        except EmError:
            raise
        except KeyError as error:
            raise EmError(f"there is no {error.args[0]!r}") from None
        except Exception as error:  # noqa: BLE001 - whatever fails, the expression has no value
            raise EmError(str(error)) from None

    return evaluated


def identical(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON; 1, 1.0 and true are not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def short(value: Any) -> str:
    """Return a value as JSON, cut to the length that fits in a message."""
    text = json_text(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


def scalars(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every scalar of a value with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from scalars(item, (*where, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from scalars(item, (*where, number))
    else:
        yield where, value


def digest_unordered(value: Any) -> str:
    """Return a short hash of a value in which the order of keys and of items does not count."""
    return sha256(_encoded(_sorted(value)).encode()).hexdigest()[:16]


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return sorted(map(_sorted, value), key=_encoded)
    return value


def _encoded(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def asking_for(
    request: Any, asks: Mapping[str, Json], seen: Mapping[str, str], schema: Any
) -> SimpleNamespace:
    """Return what a routine says about its request and the inputs that it asks for."""
    named = {name: SimpleNamespace(**asked) for name, asked in asks.items()}
    text = None if request is None else SimpleNamespace(**request)
    return SimpleNamespace(request=text, asks=named, seen=seen, input_schema=schema)


def answering(answers: Any, schema: Any) -> Callable[[PendingPrompt], Json]:
    """Return a function that answers questions about inputs: from `answers`, else a person does."""
    known = (schema or {}).get("properties", {})

    def answer(prompt: PendingPrompt) -> Json:
        step_id, message, fields = prompt
        given = (answers or {}).get(step_id, {})
        names = [field["name"] for field in fields]
        own = {step_id: {name: given[name] for name in names if name in given}}
        if len(own[step_id]) < len(names):
            own = {}
        taken = ask(step_id, message, fields, own)
        for field in fields:
            name, is_doubt = field["name"], field["type"] == "confirm"
            for problem in () if is_doubt else misfits(known.get(name), taken[name], name):
                raise NeedsInput(step_id, message, fields, problem)
        return taken

    return answer
