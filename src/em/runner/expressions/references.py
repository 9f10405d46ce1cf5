"""Checks of a routine's expressions: each must parse, and each name must be defined before it."""

from collections.abc import Iterator, Mapping, Set
from typing import Any

from em.errors import ExpressionError
from em.runner.expressions.language import FUNCTIONS, compile_expression, compile_value, names_in
from em.values.canonical import Json
from em.values.leaves import scalars
from em.values.mismatch import Found, Where, closest

_NEVER_EVALUATED = (
    "id",
    "type",
    "tool",
    "function",
    "save_as",
    "as",
    "effect",
    "on_error",
    "retry",
)
_SCHEMA_IS_OPEN = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "additionalProperties")


class Inputs:
    """The names of a routine's inputs, as far as its schema and example show them."""

    def __init__(self, schema: Any, example: Any, secrets: Any = ()) -> None:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        self.is_closed = isinstance(properties, dict) and not any(
            schema.get(word) for word in _SCHEMA_IS_OPEN
        )
        self.names = frozenset(properties if isinstance(properties, dict) else ())
        if not self.is_closed and isinstance(example, dict):
            self.names |= example.keys()
        for secret in secrets if isinstance(secrets, list) else ():
            if isinstance(secret, dict) and isinstance(secret.get("name"), str):
                self.names |= {secret["name"]}


class References:
    """Checks in the order of the steps what each refers to.

    If the schema leaves the input open, a name that nothing defines may be an input: `assumed`
    lists it once, and it is not a problem by itself.
    """

    def __init__(self, steps: list[Any], inputs: Inputs, functions: Set[str]) -> None:
        self._steps = steps
        self._inputs = inputs
        self._known = inputs.names | FUNCTIONS.keys() | functions
        self._functions = FUNCTIONS.keys() | functions
        self.assumed: dict[str, tuple[Where, str]] = {}

    def problems(self) -> Iterator[Found]:
        """Yield every problem of expressions and names."""
        for number, step in enumerate(self._steps):
            if isinstance(step, dict):
                yield from self._step(step, ("steps", number))
                if isinstance(step.get("save_as"), str):
                    self._known |= {step["save_as"]}

    def _step(self, step: Json, where: Where) -> Iterator[Found]:
        own = {str(step.get("as", "item"))} if step.get("for_each") is not None else set()
        for field, item in step.items():
            path = (*where, field)
            # The item is defined only where the step runs for each one.
            known = set() if field in ("when", "for_each") else own
            if field in ("when", "check"):
                yield from self._bare(item, path, known)
            elif field == "checks":
                yield from self._checks(item, path, known)
            elif field in _NEVER_EVALUATED:
                for at, _ in texts_in(item, path):
                    yield at, "an expression here is not evaluated", "write the value itself"
            elif field != "description":
                yield from self._value(item, path, known)

    def _checks(self, checks: Any, where: Where, own: Set[str]) -> Iterator[Found]:
        for when, sources in checks.items() if isinstance(checks, dict) else ():
            known = own | {"result"} if when == "post" else own
            for number, source in enumerate(sources if isinstance(sources, list) else ()):
                yield from self._bare(source, (*where, when, number), known)

    def _value(self, value: Any, where: Where, own: Set[str]) -> Iterator[Found]:
        for at, text in texts_in(value, where):
            yield from self._text(text, at, own)
        for at in _templated_names(value, where):
            yield at, "an expression in a name is not evaluated", "write the name itself"

    def _bare(self, source: Any, where: Where, own: Set[str]) -> Iterator[Found]:
        if not isinstance(source, str):
            return
        if "{{" in source or "{%" in source:
            yield where, "expected a bare expression, found {{ }}", "remove the {{ }}"
            return
        try:
            compile_expression(source, "")
            used = names_in(source, "", bare=True)
        except ExpressionError as error:
            yield where, error.message, error.fix
        else:
            yield from self._names(used, where, own)

    def _text(self, text: str, where: Where, own: Set[str]) -> Iterator[Found]:
        try:
            compile_value(text, "")
            used = names_in(text, "")
        except ExpressionError as error:
            yield where, error.message, error.fix
        else:
            yield from self._names(used, where, own)

    def _names(self, used: Set[str], where: Where, own: Set[str]) -> Iterator[Found]:
        known = self._known | own
        for name in sorted(used - known):
            fix = closest(name, sorted(known - FUNCTIONS.keys()))
            if any(isinstance(step, dict) and step.get("save_as") == name for step in self._steps):
                yield where, f"{name!r} is used before it exists", fix
            elif self._inputs.is_closed:
                yield where, f"{name!r} is not defined", fix
            else:
                self.assumed.setdefault(name, (where, fix))

    def shadows(self) -> Iterator[Found]:
        """Yield the names of results that no expression can use, or that hide a function."""
        for number, step in enumerate(self._steps):
            for field in ("save_as", "as"):
                name = step.get(field) if isinstance(step, Mapping) else None
                if not isinstance(name, str) or "{{" in name:
                    continue
                where: Where = ("steps", number, field)
                if not name.isidentifier():
                    yield where, f"no expression can refer to {name!r}", "use letters, digits and _"
                elif name in self._functions:
                    yield where, f"{name!r} hides the function of that name", "use another name"


def texts_in(value: Any, where: Where) -> Iterator[tuple[Where, str]]:
    """Yield every text of a value that holds expressions, with its path."""
    for path, text in scalars(value, where):
        if isinstance(text, str) and ("{{" in text or "{%" in text):
            yield path, text


def _templated_names(value: Any, where: Where) -> Iterator[Where]:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and ("{{" in key or "{%" in key):
                yield (*where, key)
            yield from _templated_names(item, (*where, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _templated_names(item, (*where, number))
