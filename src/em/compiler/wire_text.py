"""How wired values are written: references, literals, and texts with expressions in them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.leaves import Path, Segment, is_informative
from em.values.canonical import Json

NUMBER = re.compile(r"(?<![\w.,-])\d+(?:\.\d+)?(?![\w]|[.,]\d)")
"""Numbers that stand in a text as words of their own."""


def cut(
    pieces: list[tuple[str, bool]], content: str, expression: str
) -> tuple[list[tuple[str, bool]], bool]:
    """Texts with an expression in the place of what it stands for; and whether it was there."""
    cut: list[tuple[str, bool]] = []
    for text, is_expression in pieces:
        if is_expression or content not in text:
            cut.append((text, is_expression))
            continue
        for number, part in enumerate(around(content, text)):
            cut += [(expression, True)] if number else []
            cut += [(part, False)] if part else []
    return cut, len(cut) != len(pieces)


def around(content: str, text: str) -> list[str]:
    """What stands around a content; a number counts only where it is a word of its own."""
    if not NUMBER.fullmatch(content):
        return text.split(content)
    parts, done = [], 0
    for found in NUMBER.finditer(text):
        if found.group() == content:
            parts.append(text[done : found.start()])
            done = found.end()
    return [*parts, text[done:]]


def plain_path(path: Path) -> str:
    """A path as it is told."""
    return ".".join(str(part.key) for part in path)


def is_text(value: Any) -> bool:
    """A text that says enough to be found in others."""
    return isinstance(value, str) and is_informative(value)


def record_with(
    result: Any, recorded: Json, constants: Sequence[str], at_least: int
) -> tuple[Path, Mapping[str, Any]] | None:
    """The part of a result that has the same names and values as these arguments, most of them."""
    best: tuple[int, Path, Mapping[str, Any]] | None = None
    todo: list[tuple[Path, Any]] = [((), result)]
    while todo:
        path, value = todo.pop()
        if not isinstance(value, dict):
            continue
        hits = sum(
            key in value and equal(value[key], item)
            for key, item in recorded.items()
            if not isinstance(item, dict | list)
        )
        if hits >= at_least and any(key in value for key in constants) and hits > (best or (0,))[0]:
            best = (hits, path, value)
        todo += [((*path, Segment(key, False, value)), item) for key, item in value.items()]
    return None if best is None else (best[1], best[2])


def is_wired(value: Any) -> bool:
    """Whether a value is an expression, or a text that holds one."""
    return isinstance(value, str) and "{{" in value


def equal(found: Any, value: Any) -> bool:
    """The same value, or the same number written as a text."""
    if isinstance(found, bool) or isinstance(value, bool) or found is None or value is None:
        return found is value
    if type(found) is type(value) or not isinstance(found, str | int | float):
        return bool(found == value)
    return str(found).strip() == str(value).strip()


def reference(source: str, value: Any, found: Any) -> str:
    """A reference, converted where the trace wrote a number as text or the other way round."""
    if isinstance(value, str) and not isinstance(found, str):
        source = f"str({source})"
    elif isinstance(found, str) and isinstance(value, int | float):
        source = f"{'int' if isinstance(value, int) else 'float'}({source})"
    return f"{{{{ {source} }}}}"


def inside(expression: str) -> str:
    """The expression between the braces."""
    return expression.removeprefix("{{ ").removesuffix(" }}")


def plain_segment(part: Segment) -> str:
    """One step of a path as an expression writes it."""
    key = part.key
    if part.in_collection and isinstance(part.of, dict):
        key = list(part.of)[int(key)]
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if key.isidentifier() else f"[{msgspec.json.encode(key).decode()}]"


def literal(value: Any) -> Any:
    """A constant that no expression is read out of."""
    if isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value):
        return "{{ " + msgspec.json.encode(value).decode() + " }}"
    return value
