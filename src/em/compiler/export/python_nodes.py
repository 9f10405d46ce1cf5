"""Nodes of Python's syntax tree, as the exporter puts them together."""

import ast
import math
from typing import Any

from em.errors import ExportError


def name(word: str) -> ast.expr:
    """A name."""
    return ast.Name(word, ast.Load())


def call(function: str | ast.expr, *args: ast.expr, **keywords: ast.expr) -> ast.Call:
    """A call."""
    target = name(function) if isinstance(function, str) else function
    named = [ast.keyword(word, value) for word, value in keywords.items()]
    return ast.Call(target, list(args), named)


def constant(value: Any, place: str) -> ast.expr:
    """A plain value."""
    if isinstance(value, dict):
        keys: list[ast.expr | None] = [constant(key, place) for key in value]
        return ast.Dict(keys, [constant(item, place) for item in value.values()])
    if isinstance(value, list | tuple):
        items = [constant(item, place) for item in value]
        kind = ast.List if isinstance(value, list) else ast.Tuple
        return kind(items, ast.Load())
    if isinstance(value, float) and math.isnan(value):
        raise ExportError("NaN can't be written in Python", place=place)
    if value is None or isinstance(value, str | bytes | bool | int | float):
        return ast.Constant(value)
    raise ExportError(f"a {type(value).__name__} can't be written in Python", place=place)


def part_of(value: ast.expr, *path: ast.expr, **rest: ast.expr) -> ast.expr:
    """A part of a value; a path within a path is one path."""
    is_path = isinstance(value, ast.Call) and ast.unparse(value.func) == "at"
    if isinstance(value, ast.Call) and is_path and not value.keywords:
        return call("at", *value.args, *path, **rest)
    return call("at", value, *path, **rest)


def going_through(
    items: ast.expr, variable: str, item: ast.expr, *holds: ast.expr
) -> ast.GeneratorExp:
    """Something of each item for which all holds."""
    target = ast.Name(variable, ast.Store())
    return ast.GeneratorExp(item, [ast.comprehension(target, items, list(holds), 0)])
