"""Task: what an engine is asked to do, with the key that its behaviours are found by.

Params are values that the caller declares to vary; they are found again in texts and structures.
"""

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import Names, identifier
from em.runner.expressions.language import whole_expression
from em.values.canonical import Json, identical
from em.values.leaves import is_informative, leaves

KEY_LENGTH = 32
HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
"""Matches an expression in a template."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an engine: the agent's arguments, tags and params as JSON, and their key.

    `inputs` are the arguments and params under the names that expressions use. `subject` is who the
    task is about.
    """

    arguments: Json
    template: Any
    tags: Sequence[str]
    params: Json
    inputs: Json
    key: str
    subject: str | None = None


class _Leaf(NamedTuple):
    expression: str
    value: str | int | float
    name: str


class Params:
    """The values that the caller declared to vary, and the expressions that stand for them."""

    def __init__(self, params: Json, names: dict[str, str]) -> None:
        self._names = names
        self._wholes = [(names[name], value) for name, value in params.items()]
        self._leaves = [
            _Leaf(reference(names[name], tuple(part.key for part in path)), value, names[name])
            for name, param in params.items()
            for path, value in leaves(param)
            if value is not None
            and not isinstance(value, bool)
            and value != ""
            and not any(part.in_collection for part in path)
        ]
        # Longest first: where "Ana Maria" stands, the param "Ana" must not match.
        self._leaves.sort(key=lambda leaf: -len(str(leaf[1])))

    def whole(self, value: Any, *, place: str = "", cautious: bool = False) -> str | None:
        """Return the expression of the param that equals this value, or None.

        True, False, None and "" match only in a `place` with the param's name. So do short values
        if `cautious`.
        """
        known = [(name, param, name) for name, param in self._wholes]
        for expression, param, name in (*known, *self._leaves):
            short = is_plain(value) or cautious
            out_of_place = short and place != name and not is_informative(value)
            if not out_of_place and identical(param, value):
                return f"{{{{ {expression} }}}}"
        return None

    def within(self, text: str, *, cautious: bool = False) -> str:
        """Return a text with expressions in place of params."""
        pieces: list[tuple[str, bool]] = [(text, False)]
        for expression, value, _ in self._leaves:
            if not cautious or is_informative(value):
                pattern = _pattern(value)
                pieces = [part for piece in pieces for part in _cut(piece, pattern, expression)]
        if pieces == [(text, False)]:
            return text
        if len(pieces) == 1:  # a text that is only a number stays a text
            return pieces[0][0].replace(" }}", " | string }}")
        return "".join(part if is_hole else str(literal(part)) for part, is_hole in pieces)

    def fill(self, value: Any, *, cautious: bool = False, place: str = "") -> Any:
        """Return a value as a template: expressions where params are, literals elsewhere."""
        if not self._wholes:
            return escaped(value)
        whole = self.whole(value, place=place, cautious=cautious)
        if whole is not None:
            return whole
        if isinstance(value, dict):
            return {
                key: self.fill(item, cautious=cautious, place=key) for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.fill(item, cautious=cautious, place=place) for item in value]
        if isinstance(value, str):
            filled = self.within(value, cautious=cautious)
            return literal(value) if filled == value else filled
        return value


def reference(name: str, parts: Sequence[str | int]) -> str:
    """Return the expression of a value by the keys that lead to it."""
    return name + "".join(map(_segment, parts))


def _segment(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if part.isidentifier() else f"[{literal_text(part)}]"


def literal_text(value: Any) -> str:
    """Write a value as an expression."""
    if isinstance(value, Mapping):
        pairs = (f"{literal_text(key)}: {literal_text(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(literal_text, value)) + "]"
    return "none" if value is None else msgspec.json.encode(value).decode()


def literal(value: Any) -> Any:
    """Return a constant, quoted if it would read as an expression."""
    if isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value):
        return f"{{{{ {literal_text(value)} }}}}"
    return value


def escaped(value: Any) -> Any:
    """Return a value as a template that contains no expression."""
    if isinstance(value, dict):
        return {key: escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [escaped(item) for item in value]
    return literal(value)


def as_expression(template: Any) -> str:
    """Return a template as one bare expression."""
    if isinstance(template, dict):
        pairs = (f"{literal_text(key)}: {as_expression(part)}" for key, part in template.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(template, list):
        return f"[{', '.join(map(as_expression, template))}]"
    if not isinstance(template, str) or "{{" not in template:
        return literal_text(template)
    whole = whole_expression(template)
    if whole is not None:
        return whole.strip()
    parts = [
        part.strip() if number % 2 else literal_text(part)
        for number, part in enumerate(HOLE.split(template))
        if part
    ]
    return " ~ ".join([literal_text(""), *parts])


def is_plain(value: Any) -> bool:
    """Return whether a value is too common to show its source."""
    return value is None or isinstance(value, bool) or value == ""


def _cut(
    piece: tuple[str, bool], pattern: re.Pattern[str], expression: str
) -> Iterator[tuple[str, bool]]:
    text, is_hole = piece
    if is_hole:
        yield piece
        return
    for number, part in enumerate(pattern.split(text)):
        if number:
            yield f"{{{{ {expression} }}}}", True
        if part:
            yield part, False


def _pattern(value: str | int | float) -> re.Pattern[str]:
    """Match a param in a text as a whole word: `Mark` doesn't match in `Marketing`."""
    text = re.escape(str(value))
    if isinstance(value, str):
        return re.compile(rf"(?<![A-Za-z0-9]){text}(?![A-Za-z0-9])")
    return re.compile(rf"(?<![A-Za-z0-9.])(?<!\d,){text}(?![A-Za-z0-9])(?!\.\d)")


def make_task(arguments: Json, tags: Sequence[str], params: Json) -> Task:
    """Make a task. Its key covers everything but the values that are declared to vary."""
    if not params:
        # The common case, on the path of every hit.
        text = msgspec.json.encode((arguments, sorted(tags)), order="sorted")
        return Task(
            arguments=arguments,
            template=arguments,
            tags=tags,
            params=params,
            inputs=_inputs(arguments, params)[0],
            key=hashlib.sha256(text).hexdigest()[:KEY_LENGTH],
        )
    inputs, names = _inputs(arguments, params)
    # `{{ "{{" }}` and `{{ name }}` differ, so no text of a task can be taken for a param.
    template = Params(params, names).fill(arguments)
    # An argument that a param is a part of says nothing more than the param.
    own = {*names.values()}
    whole = {name for name, one in arguments.items() if identical(template[name], escaped(one))}
    known = _inputs({name: one for name, one in arguments.items() if name in whole}, params)[0]
    inputs = {name: one for name, one in inputs.items() if name in own or name in known}
    # The JSON types of params are part of the key: "7" and 7 are used in different ways.
    kinds = {name: _kind(value) for name, value in params.items()}
    text = msgspec.json.encode((template, sorted(tags), kinds, _equal_ones(params)), order="sorted")
    return Task(
        arguments=arguments,
        template=template,
        tags=tags,
        params=params,
        inputs=inputs,
        key=hashlib.sha256(text).hexdigest()[:KEY_LENGTH],
    )


def _inputs(arguments: Json, params: Json) -> tuple[Json, dict[str, str]]:
    """Return arguments and params under the names that expressions use, params first."""
    if params:
        others = [
            (name, value)
            for name, value in arguments.items()
            if name not in params or not identical(params[name], value)
        ]
        given = [*params.items(), *others]
    else:
        given = list(arguments.items())
    names = _input_names(tuple([name for name, _ in given]))
    inputs = {name: value for name, (_, value) in zip(names, given, strict=True)}
    return inputs, dict(zip(params, names, strict=False))


@functools.lru_cache(maxsize=256)
def _input_names(names: tuple[str, ...]) -> list[str]:
    """Return the names that expressions use for these; the calls of an agent have the same ones."""
    free = Names()
    return [free.free(identifier(name)) for name in names]


def param_names(params: Sequence[str]) -> dict[str, str]:
    """Return the name that each param has in expressions."""
    return dict(zip(params, _input_names(tuple(params)), strict=True))


def _kind(value: Any) -> str:
    """Return the JSON type of a value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value).__name__


def _equal_ones(params: Json) -> list[list[str]]:
    """Group params of equal value: a recording can't show which of them was used."""
    groups: dict[bytes, list[str]] = {}
    for name in sorted(params):
        groups.setdefault(msgspec.json.encode(params[name], order="sorted"), []).append(name)
    return [group for group in groups.values() if len(group) > 1]
