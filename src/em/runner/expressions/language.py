"""The one expression language: Jinja2's sandbox, compiled once; a pure reference never enters it.

A string that is exactly one `{{ expression }}` keeps the value's type; text around it makes a
string. `a.b` on a mapping is the key `b`. An undefined name is an error that says which. A value
that came out of an expression is never looked at for expressions again.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from em.errors import ExpressionError
from em.runner.expressions.functions import FUNCTIONS, as_text
from em.runner.expressions.scope import Evaluate, Missing, Scope, no_such_part, undefined

if TYPE_CHECKING:
    from em.runner.expressions.jinja import Sandboxed

_WHOLE = re.compile(r"\s*\{\{(?P<inside>(?:(?!\{\{|\}\}).)*)\}\}\s*", re.DOTALL)
_HOLE = re.compile(r"\{\{((?:(?!\{\{|\}\}).)*)\}\}", re.DOTALL)
_REFERENCE = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\\]*'\]|\[\"[^\"\\]*\"\])*)",
    re.ASCII,
)
_PART = re.compile(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]", re.ASCII)
_WORDS = frozenset("true false none True False None and or not in is if else".split())


def compile_value(value: Any, place: str) -> Evaluate:
    """Compile a value of a routine: every string in it may hold expressions."""
    if isinstance(value, str):
        return _compile_text(value, place)
    if isinstance(value, dict):
        fields = [(key, compile_value(item, f"{place}.{key}")) for key, item in value.items()]
        return lambda scope: {key: evaluate(scope) for key, evaluate in fields}
    if isinstance(value, list):
        items = [compile_value(item, f"{place}[{n}]") for n, item in enumerate(value)]
        return lambda scope: [evaluate(scope) for evaluate in items]
    return lambda _scope: value


def compile_expression(source: str, place: str) -> Evaluate:
    """Compile a bare expression, as `when` and `check` hold."""
    reference = parse_reference(source)
    if reference is not None:
        name, path = reference
        return _compile_reference(name, path, place)
    return _jinja().expression(source.strip(), place)


def parse_reference(source: str) -> tuple[str, tuple[str | int, ...]] | None:
    """A dotted path as its name and parts; None for anything more than that."""
    match = _REFERENCE.fullmatch(source.strip())
    if match is None or match["name"] in _WORDS:
        return None
    parts: list[str | int] = []
    for attribute, index, single, double in _PART.findall(match["path"]):
        parts.append(int(index) if index else attribute or single or double)
    return match["name"], tuple(parts)


def names_in(source: str, place: str, *, bare: bool = False) -> set[str]:
    """The names that a text or a bare expression refers to; an error if it does not parse."""
    text = f"{{{{ {source} }}}}" if bare else source
    return _jinja().names(text, place)


def syntax_of(source: str, place: str, *, bare: bool = False) -> Any:
    """The tree of a text, or of a bare expression, as Jinja parses it."""
    return _jinja().syntax(source.strip() if bare else source, place, bare=bare)


def lexed(text: str, place: str) -> list[tuple[int, str, str]]:
    """The tokens of a text: their line, kind and signs; together they are the text."""
    return _jinja().lexed(text, place)


def whole_expression(text: str) -> str | None:
    """The expression of a text that is nothing but one."""
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
    """A text around pure references; None for anything more than that."""
    parts = _HOLE.split(text)
    if any(mark in part for part in parts[::2] for mark in ("{{", "}}", "{%", "{#")):
        return None
    references = [parse_reference(part) for part in parts[1::2]]
    if None in references:
        return None
    holes = [_compile_reference(*found, place) for found in references if found is not None]

    def evaluate(scope: Scope) -> str:
        filled = list(parts)
        filled[1::2] = [as_text(hole(scope)) for hole in holes]
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
        return _no_function(value, name, place)

    if path:
        return direct

    def plain(scope: Scope) -> Any:
        try:
            return _no_function(scope[name], name, place)
        except KeyError:
            raise undefined(name, scope, place) from None

    return plain


def _no_function(value: Any, name: str, place: str) -> Any:
    if callable(value):
        raise ExpressionError(f"{name!r} gives a function; call it, or name a key", place=place)
    return "" if type(value) is Missing else value


def _attribute(value: Any, part: str | int, place: str) -> Any:
    """What is no item may be an attribute, as the sandbox allows it."""
    if isinstance(part, str) and not isinstance(value, Mapping):
        found = _jinja().attribute(value, part)
        if found is not _jinja().missing:
            return found
    raise no_such_part(value, part, place)


@lru_cache(maxsize=1)
def _jinja() -> "Sandboxed":
    """Jinja, imported when the first expression needs more than a reference."""
    from em.runner.expressions.jinja import Sandboxed

    return Sandboxed(FUNCTIONS)
