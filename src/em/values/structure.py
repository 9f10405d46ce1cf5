"""Structure of texts: JSON, Python literals, `key: value` lines and tables, read as such."""

import re
from typing import Any, NoReturn

MOST = 1_000_000
"""Characters of a text that is looked at; a longer one stays a text unless it is JSON."""
_LINE = re.compile(
    r"[-*•]?[ \t]{0,8}([A-Za-z_][\w \-/().]{0,60}?)[ \t]{0,8}[:=][ \t]{1,8}(\S.{0,2000})"
)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?")
_RULE = re.compile(r"[-:|=+\s]+")
_COLUMN = re.compile(r"\S+(?: \S+)*")
_HEADING = re.compile(r"[A-Za-z_#][\w #./()%-]{0,40}")


_FENCE = re.compile(r"```[\w+-]{0,20}[ \t]{0,8}\n")


def structured(value: Any) -> Any:
    """Return the structure that a text writes out, or the value itself if there is none.

    A single text block of MCP counts as its text, and a text that is one fenced block as what is
    inside of it.
    """
    text = _only_block(value)
    if not isinstance(text, str):
        return value
    found = _written_out(text)
    return value if found is None else found


def _only_block(value: Any) -> Any:
    """Return the text of a result of MCP that has one text block, else the value itself."""
    blocks = value.get("content") if isinstance(value, dict) else value
    if isinstance(blocks, list) and len(blocks) == 1 and isinstance(blocks[0], dict):
        block = blocks[0]
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            return block["text"]
    return value


def _written_out(value: str) -> Any:
    """Return the structure that a text writes out, or None."""
    text = value.strip()
    fence = _FENCE.match(text)
    if fence is not None and text.endswith("\n```") and text.count("```") == 2:
        text = text[fence.end() : -3].strip()
    if text[:1] in ("{", "["):
        return _literal(text)
    if "\n" not in text or len(text) > MOST:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _fields(lines) or _table(lines) or _columns(text)


def _literal(text: str) -> Any:
    """Return the list or mapping that JSON or a Python literal writes out, or None.

    It needs the standard library only, since exported scripts have a copy of it.
    """
    import json  # only a text that may be JSON needs it

    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        if len(text) > MOST:
            return None
        import ast  # only a text that is no JSON needs it

        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None
    return _plain(found) if isinstance(found, dict | list | tuple) else None


def _refuse(name: str) -> NoReturn:
    """Refuse NaN and infinities, which are not JSON."""
    raise ValueError(name)


def _plain(value: Any) -> Any:
    """Return a value with lists for tuples and sets, and texts for keys."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _fields(lines: list[str]) -> dict[str, Any] | None:
    """Return the fields of lines that all say `key: value`, or None."""
    found: dict[str, Any] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or match[1] in found:
            return None
        found[match[1]] = scalar_of(match[2].strip())
    return found if len(found) >= 2 else None


def scalar_of(text: str) -> Any:
    """Return the number or truth value that a text writes out, or the text.

    A number that would be written otherwise, such as 12.50, stays a text.
    """
    if _NUMBER.fullmatch(text):
        number = float(text) if "." in text else int(text)
        return number if str(number) == text else text
    return {"true": True, "false": False, "null": None, "none": None}.get(text.lower(), text)


def _table(lines: list[str]) -> list[dict[str, Any]] | None:
    """Return the rows of a table whose first line names its columns, or None."""
    sign = next((one for one in ("|", "\t", ";", ",") if one in lines[0]), None)
    if sign is None or len(lines) < 2:
        return None
    if sign == "|":
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        rows = [row for row, line in zip(rows, lines, strict=True) if not _RULE.fullmatch(line)]
    else:
        import csv  # only tables need it
        import io

        try:
            rows = [*csv.reader(io.StringIO("\n".join(lines)), delimiter=sign)]
        except csv.Error:
            return None
    if len(rows) < 2 or len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
        return None
    names = [name.strip() for name in rows[0]]
    if len({*names}) != len(names) or not all(map(_HEADING.fullmatch, names)):
        return None
    return [
        {name: scalar_of(cell.strip()) for name, cell in zip(names, row, strict=True)}
        for row in rows[1:]
    ]


def _columns(text: str) -> list[dict[str, Any]] | None:
    """Return the rows of a table whose columns begin where their names do, or None."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _RULE.fullmatch(line)]
    if len(lines) < 2:
        return None
    names = [(match.start(), match[0]) for match in _COLUMN.finditer(lines[0])]
    if len(names) < 2 or lines[0][:1].isspace() or len({name for _, name in names}) < len(names):
        return None
    if not all(_HEADING.fullmatch(name) for _, name in names):
        return None
    starts = [start for start, _ in names]
    rows = []
    for line in lines[1:]:
        ends = [*starts[1:], len(line)]
        cells = [line[start:end] for start, end in zip(starts, ends, strict=True)]
        # A cell that reaches into the next column shows that these are no columns.
        if any(cell and not cell.endswith(" ") for cell in cells[:-1]) or not cells[0].strip():
            return None
        rows.append(
            {
                name: scalar_of(cell.strip()) if cell.strip() else None
                for (_, name), cell in zip(names, cells, strict=True)
            }
        )
    return rows
