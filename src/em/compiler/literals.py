"""Values of one run that were written into a routine: right once, wrong ever after."""

import ast
from collections.abc import Iterator
from typing import Any

import msgspec

from em.compiler.draft import Draft
from em.compiler.leaves import is_informative

LONGEST_SHOWN = 80


def written_in(draft: Draft, improved: Draft) -> list[str]:
    """What the draft takes from an input or a result, and the improved routine says itself."""
    allowed = {_text(found.recorded) for found in draft.explained if found.how == "constant"}
    steps = steps_text(improved)
    literals = set(_literals(improved.udf_source))
    problems: dict[str, None] = {}
    for found in draft.explained:
        if found.how in ("constant", "parts") or not is_informative(found.recorded):
            continue
        value = _text(found.recorded)
        if value in allowed:
            continue
        shown = value if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]}…"
        if value in steps:
            problems[f"{shown!r} is written into a step: take it from {found.wired}"] = None
        if value in literals:
            problems[f"{shown!r} is written into udf.py: pass it as an argument"] = None
    return list(problems)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def steps_text(draft: Draft) -> str:
    """What the steps say, but for their descriptions."""
    said = []
    for step in msgspec.to_builtins(draft.routine)["steps"]:
        said.append({key: item for key, item in step.items() if key not in ("description", "id")})
    return "\n".join(_leaves(said))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield _text(value)


def _literals(code: str) -> Iterator[str]:
    """The literals of Python code; what a docstring tells is no part of what it does."""
    tree = ast.parse(code)
    told = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in told:
            value = node.value
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                yield _text(value)
