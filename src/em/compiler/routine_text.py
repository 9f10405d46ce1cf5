"""The text of a routine: the YAML that a learnt routine is stored and read as.

A value is written in one line if it fits. A step that does not fit is broken between its fields,
and what is too long even for that becomes a block. The text loads back to an equal document, and
equal documents whose fields have the same order have the same text.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from em.errors import RoutineError
from em.runner.routine import Routine, Step
from em.values.canonical import Json
from em.values.strict_yaml import load_yaml

WIDTH = 120
"""Columns of a line. A text that has no place to break may be longer."""
_PLAIN = re.compile(
    r"\d+/\d+|[A-Za-z_^/][A-Za-z0-9_./()$+*=<>%-]*(?: [A-Za-z0-9_./()$+*=<>%-]+)*", re.ASCII
)
"""Texts that may need no quotation marks: nothing in them is a sign of YAML."""
_BLOCK = ("steps",)
"""Fields that are written as a list of blocks even if they would fit in a line."""


def routine_text(document: Json) -> str:
    """Return the YAML text of a routine."""
    return "".join(f"{line}\n" for line in _mapping(document, 0))


def text_of(routine: Routine, old: str = "") -> str:
    """Return the YAML text of a routine whose text is not known, or was another one.

    Fields stand in the order of the old text, else those that all steps have behind a step's own.
    Comments at the top of the old text and above its steps stay.
    """
    made = msgspec.to_builtins(routine)
    made["steps"] = [*map(_own_first, made["steps"])]
    known = load_yaml(old.encode(), "", RoutineError) if old else None
    top, notes = _comments(old)
    text = routine_text(_ordered({"version": "1"} | made, known))
    lines = [f"# {note}\n" for note in top]
    for line in text.splitlines(keepends=True):
        step = _STEP.match(line)
        lines += [f"{step[1]}# {note}\n" for note in notes.get(step[2], ())] if step else ()
        lines.append(line)
    return "".join(lines)


def _comments(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the comments at the top of a text, and those above its steps by their ids."""
    top: list[str] | None = None
    found: dict[str, list[str]] = {}
    notes: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            notes.append(line.lstrip("# "))
        elif line.strip():
            step = _STEP.match(line)
            if top is None:
                top = notes
            elif step is not None:
                found[step[2]] = notes
            notes = []
    return top or [], found


_STEP = re.compile(r"( *)- \{?\s*[\"']?id[\"']?:\s*[\"']?([^\s,\"'}]+)")
_LATER = set.intersection(*({*one.__struct_encode_fields__} for one in get_args(Step)))
_LATER -= {"id", "description", "when"}


def _own_first(step: Json) -> Json:
    """Return a step whose own fields stand before those that every step may have."""
    rest = {name: one for name, one in step.items() if name in _LATER}
    made = {"id": step["id"], **{name: one for name, one in step.items() if name not in _LATER}}
    if "steps" in step:
        made["steps"] = [*map(_own_first, step["steps"])]
    return made | rest


def _ordered(new: Any, old: Any) -> Any:
    """Return a value whose fields stand in the order of another one, step by step."""
    if isinstance(new, list) and isinstance(old, list):
        known = {one["id"]: one for one in old if isinstance(one, dict) and "id" in one}
        return [_ordered(one, known.get(one.get("id"))) if known else one for one in new]
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    names = [name for name in old if name in new]
    return {name: _ordered(new[name], old.get(name)) for name in dict.fromkeys([*names, *new])}


def _mapping(value: Json, indent: int) -> Iterator[str]:
    """Yield the lines of a mapping as a block."""
    for key, held in value.items():
        yield from _field(f"{' ' * indent}{_scalar(key)}:", key, held, indent)


def _field(head: str, key: str, value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of one field: in one line, broken between its parts, or as a block."""
    line = f"{head} {_flow(value)}"
    if _is_lines(value):
        yield f"{head} |{'' if value.endswith(chr(10)) else '-'}"
        yield from (f"{' ' * (indent + 2)}{one}" if one else "" for one in value.splitlines())
    elif not _is_filled(value) or (key not in _BLOCK and _fits(line, value)):
        yield line
    elif isinstance(value, dict):
        yield head
        yield from _mapping(value, indent + 2)
    elif key not in _BLOCK and (lines := _broken(value, indent + 2, len(head) + 1)):
        yield f"{head} {lines[0]}"
        yield from lines[1:]
    else:
        yield head
        for item in value:
            yield from _item(item, indent)


def _item(value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of an element of a list."""
    start = f"{' ' * indent}- "
    line = start + _flow(value)
    if not _is_filled(value) or _fits(line, value):
        yield line
        return
    lines = _broken(value, indent + 3, len(start)) or [*_block(value, indent + 2)]
    yield start + lines[0].lstrip(" ")
    yield from lines[1:]


def _block(value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _mapping(value, indent)
    else:
        for item in value:
            yield from _item(item, indent)


def _is_filled(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _fits(line: str, value: Any) -> bool:
    return len(line) <= WIDTH and not _has_blocks(value)


def _broken(value: Any, indent: int, used: int, after: int = 0) -> list[str]:
    """Return a list or mapping on several lines; nothing if a part is too long, or needs a block.

    indent: of the lines behind the first. used: columns of the first line that are taken. after:
    columns that the last line must leave.
    """
    if not _is_filled(value) or _has_blocks(value):
        return []
    opening, closing = "[]" if isinstance(value, list) else "{}"
    rows = value.items() if isinstance(value, dict) else (("", held) for held in value)
    parts = [(f"{_scalar(name)}: " if opening == "{" else "", held) for name, held in rows]
    lines = [" " * used + opening]
    for number, (name, held) in enumerate(parts, 1):
        end, left = (closing, after) if number == len(parts) else (",", 0)
        space = " " if number > 1 else ""
        text = name + _flow(held) + end
        if len(lines[-1] + space + text) + left <= WIDTH:
            lines[-1] += space + text
            continue
        if number > 1:
            lines.append(" " * indent)
        if len(lines[-1] + text) + left <= WIDTH:
            lines[-1] += text
            continue
        inner = _broken(held, indent + 2, len(lines[-1] + name), left + 1)
        if not inner:
            return []
        lines[-1] += name + inner[0]
        lines += inner[1:]
        lines[-1] += end
    return [lines[0][used:], *lines[1:]]


def _has_blocks(value: Any) -> bool:
    """Return whether a value needs more than one line by its nature."""
    if isinstance(value, dict):
        return any(
            (key in _BLOCK and isinstance(held, list) and held) or _has_blocks(held)
            for key, held in value.items()
        )
    return any(map(_has_blocks, value)) if isinstance(value, list) else _is_lines(value)


def _flow(value: Any) -> str:
    """Return a value in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(map(_flow, value)) + "]" if isinstance(value, list) else _scalar(value)


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return _number(value) if isinstance(value, float) else json.dumps(value)
    if _PLAIN.fullmatch(value) and _means_itself(value):
        return value
    if not value.isprintable() or len(value.encode("utf-16-le", "surrogatepass")) > 2 * len(value):
        return _escaped(value)
    if '"' in value and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number so that YAML reads the same one: `1e+16` needs a point."""
    text = json.dumps(value)
    mantissa, sign, exponent = text.partition("e")
    return f"{mantissa}.0{sign}{exponent}" if sign and "." not in mantissa else text


def _means_itself(text: str) -> bool:
    try:
        return bool(load_yaml(text.encode(), "", RoutineError) == text)
    except RoutineError:
        return False


def _escaped(text: str) -> str:
    """Return a text in quotation marks in which every unusual sign is an escape."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(sign: str) -> str:
    if sign in '\\"':
        return f"\\{sign}"
    if sign == "\n":
        return "\\n"
    if sign.isprintable() and sign.isascii():
        return sign
    code = ord(sign)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def _is_lines(value: Any) -> bool:
    """Return whether a text is written as a block of lines: more than one, and nothing unusual."""
    return (
        isinstance(value, str)
        and "\n" in value.rstrip("\n")
        and not value.startswith((" ", "\n"))
        and not value.endswith("\n\n")
        and all(one.isprintable() and one == one.rstrip() for one in value.split("\n"))
    )
