"""The expression language of routines and workflows.

A text that is exactly one `{{ expression }}` keeps the type of its value; text around it makes
the result a text. `a.b` on a mapping is the key `b`. An undefined name is an error that names it.
The value of an expression is never evaluated again. References like `a.b[0]` are compiled here;
selections that compilers write in `direct`; everything else goes to Jinja2's sandbox (`jinja`),
which is imported only when needed.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from em.errors import ExpressionError
from em.runner.expressions.direct import PLAIN, WORDS, compile_direct
from em.runner.expressions.functions import SCOPE
from em.values.canonical import Json
from em.values.json_schema import Declared
from em.values.leaves import scalars
from em.values.mismatch import Found, Where, closest

if TYPE_CHECKING:
    from em.runner.expressions.jinja import Sandboxed


def as_text(value: Any) -> str:
    """Return a value as it is written into a text: lists and mappings as JSON."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)


class Missing(str):
    """A missing value that is allowed to be missing: an empty text, as is every part of it."""

    STANDS_FOR_NOTHING = True

    __slots__ = ()

    def __getitem__(self, _part: object) -> "Missing":
        return self


Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]


def undefined(name: str, scope: Scope, place: str) -> ExpressionError:
    """Return the error for an undefined name."""
    known = [known for known in scope if not known.startswith("_")]
    fix = closest(name, known) or f"defined are: {', '.join(sorted(known)[:20])}"
    return ExpressionError(f"{name!r} is not defined", place=place, fix=fix, name=name)


def no_such_part(value: Any, part: str | int, place: str) -> ExpressionError:
    """Return the error for a part that a value lacks."""
    if isinstance(value, Mapping):
        keys = [str(key) for key in value]
        fix = closest(part, keys) or f"it has: {', '.join(keys[:20]) or '-'}"
        return ExpressionError(f"there is no {part!r}", place=place, fix=fix, name=str(part))
    if isinstance(value, list | tuple) and isinstance(part, int):
        return ExpressionError(f"there is no item {part}: the list has {len(value)}", place=place)
    return ExpressionError(f"a {type(value).__name__} has no {part!r}", place=place)


_WHOLE = re.compile(r"\s*\{\{(?P<inside>(?:(?!\{\{|\}\}).)*)\}\}\s*", re.DOTALL)
_HOLE = re.compile(r"\{\{((?:(?!\{\{|\}\}).)*)\}\}", re.DOTALL)
_REFERENCE = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\\]*'\]|\[\"[^\"\\]*\"\])*)",
    re.ASCII,
)
_PART = re.compile(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]", re.ASCII)


def compile_value(value: Any, place: str) -> Evaluate:
    """Compile a value of a routine; every text in it may hold expressions."""
    if isinstance(value, str):
        return _compile_text(value, place)
    if isinstance(value, dict):
        fields = [(key, compile_value(item, f"{place}.{key}")) for key, item in value.items()]
        return lambda scope: {key: evaluate(scope) for key, evaluate in fields}
    if isinstance(value, list):
        items = [compile_value(item, f"{place}[{n}]") for n, item in enumerate(value)]
        return lambda scope: [evaluate(scope) for evaluate in items]
    return lambda _scope: value


@lru_cache(maxsize=1_024)  # trials run hundreds of drafts that differ in a few expressions
def compile_expression(source: str, place: str) -> Evaluate:
    """Compile a bare expression, as in `when` and `check`."""
    reference = parse_reference(source)
    if reference is not None:
        name, path = reference
        return _compile_reference(name, path, place)
    direct = compile_direct(source, place, _compile_reference)
    return direct or _jinja().expression(source.strip(), place)


def parse_reference(source: str) -> tuple[str, tuple[str | int, ...]] | None:
    """Split a reference like `a.b[0]` into its name and parts; None for other expressions."""
    match = _REFERENCE.fullmatch(source.strip())
    if match is None or match["name"] in WORDS or iskeyword(match["name"]):
        return None
    parts: list[str | int] = []
    for attribute, index, single, double in _PART.findall(match["path"]):
        parts.append(int(index) if index else attribute or single or double)
    return match["name"], tuple(parts)


def names_in(source: str, place: str, *, bare: bool = False) -> set[str]:
    """Return the names that a text or a bare expression refers to; fail if it does not parse.

    A function that is only called is not among them; a value with its name is.
    """
    text = f"{{{{ {source} }}}}" if bare else source
    return _jinja().names(text, place)


def syntax_of(source: str, place: str, *, bare: bool = False) -> Any:
    """Parse a text or a bare expression into Jinja's tree."""
    return _jinja().syntax(source.strip() if bare else source, place, bare=bare)


def lexed(text: str, place: str) -> list[tuple[int, str, str]]:
    """Return the tokens of a text: line, kind and characters of each."""
    return _jinja().lexed(text, place)


def whole_expression(text: str) -> str | None:
    """Return the expression of a text that is exactly one `{{ expression }}`, else None."""
    whole = _WHOLE.fullmatch(text)
    return None if whole is None else whole["inside"]


def _compile_text(text: str, place: str) -> Evaluate:
    if "{{" not in text and "{%" not in text:
        return lambda _scope: text
    whole = whole_expression(text)
    if whole is not None:
        return compile_expression(whole, place)
    return _compile_filled(text, place) or _jinja().text(text, place)


def _compile_filled(text: str, place: str) -> Evaluate | None:
    """Compile a text that holds only references; None for other texts."""
    parts = _HOLE.split(text)
    if any(mark in part for part in parts[::2] for mark in ("{{", "}}", "{%", "{#")):
        return None
    references = [parse_reference(part) for part in parts[1::2]]
    if None in references:
        return None
    holes = [_compile_reference(*found, place) for found in references if found is not None]

    def evaluate(scope: Scope) -> str:
        filled = list(parts)
        values = [hole(scope) for hole in holes]
        try:
            filled[1::2] = map(as_text, values)
        except Exception as error:
            raise ExpressionError(
                f"a value can't be written into the text: {error}", place=place
            ) from error
        return "".join(filled)

    return evaluate


def _compile_reference(name: str, path: tuple[str | int, ...], place: str) -> Evaluate:
    def direct(scope: Scope) -> Any:
        try:
            value = scope[name]
        except KeyError:
            raise undefined(name, scope, place) from None
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                value = _attribute(value, part, place)
        return value if type(value) in PLAIN else _not_callable(value, name, place)

    if path:
        return direct

    def plain(scope: Scope) -> Any:
        try:
            value = scope[name]
        except KeyError:
            raise undefined(name, scope, place) from None
        return value if type(value) in PLAIN else _not_callable(value, name, place)

    return plain


def _not_callable(value: Any, name: str, place: str) -> Any:
    if callable(value):
        raise ExpressionError(f"{name!r} is a function; call it, or name a key", place=place)
    return "" if type(value) is Missing else value


def _attribute(value: Any, part: str | int, place: str) -> Any:
    """Return an attribute that the sandbox allows; fail if there is none."""
    if isinstance(part, str) and not isinstance(value, Mapping):
        found = _jinja().attribute(value, part)
        if found is not _jinja().missing:
            return found
    raise no_such_part(value, part, place)


@lru_cache(maxsize=1)
def _jinja() -> "Sandboxed":
    """Import Jinja when the first expression needs more than a reference."""
    from em.runner.expressions.jinja import Sandboxed

    return Sandboxed(SCOPE)


Holds = Literal["bare", "values", "text"]
HOLDS: Mapping[str, Holds] = {
    "when": "bare",
    "check": "bare",
    "checks": "bare",
    "over": "bare",
    "args": "values",
    "for_each": "values",
    "value": "values",
    "prompt": "values",
    "message": "values",
    "idempotency_key": "values",
    "description": "text",
}
"""The fields of a step that hold expressions: bare ones, or in `{{ }}` within values.

In a text for readers they stay as they are; in any other field they are a mistake.
"""


def acting(step: Json) -> Iterator[Any]:
    """Yield what a step says that goes into calls, questions, conditions and results."""
    yield from (
        value
        for field, value in step.items()
        if HOLDS.get(field, "text") != "text" and field != "message"
    )


class Inputs:
    """The names of a routine's inputs, as far as its schema and example show them."""

    def __init__(self, schema: Any, example: Any, secrets: Any = ()) -> None:
        declared = Declared(schema)
        self.is_closed = not declared.is_open and not declared.patterns
        self.names = frozenset(declared.names)
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
        self._known = inputs.names | SCOPE.keys() | functions
        self._functions = SCOPE.keys() | functions
        self.assumed: dict[str, tuple[Where, str]] = {}

    def problems(self) -> Iterator[Found]:
        """Yield every problem of expressions and names."""
        yield from self._all(self._steps, ())

    def _all(self, steps: Sequence[Any], where: Where) -> Iterator[Found]:
        for number, step in enumerate(steps):
            if isinstance(step, dict):
                check = self._block if step.get("type") == "for_each" else self._step
                yield from check(step, (*where, "steps", number))
                if isinstance(step.get("save_as"), str):
                    self._known |= {step["save_as"]}

    def _block(self, step: Json, where: Where) -> Iterator[Found]:
        """Yield the problems of a block. What it saves is local to it, but for its result."""
        over, outside = _mapping(step, "over"), self._known
        for name, source in over.items():
            yield from self._bare(source, (*where, "over", name), frozenset())
        rest = {key: value for key, value in step.items() if key not in ("over", "steps")}
        yield from self._step(rest, where)
        self._known = outside | over.keys()
        yield from self._all(_list(step, "steps"), where)
        self._known = outside

    def _step(self, step: Json, where: Where) -> Iterator[Found]:
        own = {str(step.get("as", "item"))} if step.get("for_each") is not None else set()
        for field, item in step.items():
            path = (*where, field)
            # The item is defined only where the step runs for each one.
            known = set() if field in ("when", "for_each") else own
            if field == "checks":
                yield from self._checks(item, path, known)
            elif HOLDS.get(field) == "bare":
                yield from self._bare(item, path, known)
            elif HOLDS.get(field) == "values":
                yield from self._value(item, path, known)
            elif field not in HOLDS:
                for at, _ in texts_in(item, path):
                    yield at, "an expression here is not evaluated", "write the value itself"

    def _all_bare(self, sources: Any, where: Where, own: Set[str] = frozenset()) -> Iterator[Found]:
        for number, source in enumerate(sources if isinstance(sources, list) else ()):
            yield from self._bare(source, (*where, number), own)

    def _checks(self, checks: Any, where: Where, own: Set[str]) -> Iterator[Found]:
        for when, sources in checks.items() if isinstance(checks, dict) else ():
            known = own | {"result"} if when == "post" else own
            yield from self._all_bare(sources, (*where, when), known)

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
            fix = closest(name, sorted(known - SCOPE.keys()))
            blocks = [path for path, step in all_steps(self._steps) if _saves(step, name)]
            if any(path < where and len(path) > 2 for path in blocks):
                fix = "use the name under which the block saves its turns"
                yield where, f"{name!r} is known only in the block that saves it", fix
            elif blocks:
                yield where, f"{name!r} is used before it exists", fix
            elif self._inputs.is_closed:
                yield where, f"{name!r} is not defined", fix
            else:
                self.assumed.setdefault(name, (where, fix))

    def shadows(self) -> Iterator[Found]:
        """Yield the names of results that no expression can use, or that hide a function."""
        for path, step in all_steps(self._steps):
            named = [(step.get(field), (*path, field)) for field in ("save_as", "as")]
            named += [(name, (*path, "over", name)) for name in _mapping(step, "over")]
            for name, where in named:
                if not isinstance(name, str) or "{{" in name:
                    continue
                if not name.isidentifier():
                    yield where, f"no expression can refer to {name!r}", "use letters, digits and _"
                elif name in self._functions:
                    yield where, f"{name!r} hides the function of that name", "use another name"


def all_steps(steps: Sequence[Any], where: Where = ()) -> Iterator[tuple[Where, Json]]:
    """Yield the steps of a parsed routine with their places, also those in blocks."""
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            path = (*where, "steps", number)
            yield path, step
            yield from all_steps(_list(step, "steps"), path)


def _saves(step: Json, name: str) -> bool:
    return step.get("save_as") == name or name in _mapping(step, "over")


def _mapping(value: Any, field: str) -> Mapping[str, Any]:
    found = value.get(field) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _list(value: Any, field: str) -> list[Any]:
    found = value.get(field) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


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
