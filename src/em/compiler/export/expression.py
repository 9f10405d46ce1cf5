"""An expression of a routine as Python: `order.status` is `order["status"]`, the rest is alike."""

import json
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from em.errors import ExportError
from em.runner.expressions.functions import SELECTIONS

FUNCTIONS: dict[str, ModuleType] = {
    name: sys.modules[function.__module__]
    for name, function in SELECTIONS.items()
    if name != "given"
}
"""The functions of plain routines that a script may have, with the modules they are copied from."""
_BUILTINS = ("len", "sum", "min", "max", "sorted", "round", "any", "all", "abs", "str", "int",
             "float")  # fmt: skip
_SIGNS = {
    "eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=", "in": "in",
    "notin": "not in",
}  # fmt: skip
_OPERATORS: dict[type[nodes.BinExpr], str] = {
    nodes.Add: "+", nodes.Sub: "-", nodes.Mul: "*", nodes.Div: "/", nodes.FloorDiv: "//",
    nodes.Mod: "%", nodes.Pow: "**", nodes.And: "and", nodes.Or: "or",
}  # fmt: skip
_FILTERS: dict[str, Callable[..., str]] = {
    "string": lambda of: f"str({of})",
    "length": lambda of: f"len({of})",
    "lower": lambda of: f"str({of}).lower()",
    "upper": lambda of: f"str({of}).upper()",
    "title": lambda of: f"str({of}).title()",
    "capitalize": lambda of: f"str({of}).capitalize()",
    "trim": lambda of: f"str({of}).strip()",
    "round": lambda of, *digits: f"round({', '.join((of, *digits))})",
    "int": lambda of: f"int({of})",
    "join": lambda of, glue='""': f"{glue}.join(map(str, {of}))",
    "format": lambda of, *values: f"{of} % ({', '.join(values)},)",
}
_JINJA = Environment(autoescape=False)  # noqa: S701 - it parses, and renders nothing


def python_expression(text: str, place: str) -> str:
    """Return a bare expression as Python."""
    try:
        (output,) = _JINJA.parse("{{ " + text + " }}").body
    except (TemplateSyntaxError, ValueError) as error:
        raise ExportError(f"not an expression: {error}", place=place) from None
    assert isinstance(output, nodes.Output)
    return _Printer(place).text(output.nodes[0])


def python_value(value: Any, place: str, *, is_plain: bool = False) -> str:
    """Return a value of a step as Python. is_plain: it has no expressions."""
    if isinstance(value, Mapping):
        inner = (
            f"{json.dumps(name, ensure_ascii=False)}: {python_value(one, place, is_plain=is_plain)}"
            for name, one in value.items()
        )
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(python_value(one, place, is_plain=is_plain) for one in value) + "]"
    if not isinstance(value, str):
        return repr(value)
    return _quoted(value) if is_plain or "{" not in value else _template(value, place)


def _template(text: str, place: str) -> str:
    """Return a text with expressions as Python: an expression alone keeps its type."""
    try:
        body = _JINJA.parse(text).body
    except TemplateSyntaxError as error:
        raise ExportError(f"not a template: {error}", place=place) from None
    if any(not isinstance(one, nodes.Output) for one in body):
        raise ExportError("plain Python has no {% … %} of templates", place=place)
    parts = [part for output in body for part in output.nodes]  # type: ignore[attr-defined]
    if not any(not isinstance(part, nodes.TemplateData) for part in parts):
        return _quoted("".join(part.data for part in parts))
    printer = _Printer(place)
    if len(parts) == 1:
        return printer.text(parts[0])
    words, values = "", []
    for part in parts:
        if isinstance(part, nodes.TemplateData):
            words += part.data.replace("{", "{{").replace("}", "}}")
        else:
            words += "{}"
            values.append(printer.text(part))
    return f"{_quoted(words)}.format({', '.join(values)})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


class _Printer:
    """Prints the nodes of one expression."""

    def __init__(self, place: str) -> None:
        self._place = place

    def text(self, node: nodes.Node) -> str:
        """Return a node as Python."""
        make = getattr(self, f"_{type(node).__name__.lower()}", None)
        if make is not None:
            return str(make(node))
        if isinstance(node, nodes.BinExpr) and type(node) in _OPERATORS:
            sign = _OPERATORS[type(node)]
            return f"{self._inner(node.left)} {sign} {self._inner(node.right)}"
        raise self._problem(type(node).__name__)

    def _inner(self, node: nodes.Node) -> str:
        """Return a node in brackets if it has operators of its own."""
        text = self.text(node)
        is_open = isinstance(node, nodes.BinExpr | nodes.Compare | nodes.Not | nodes.CondExpr)
        return f"({text})" if is_open or isinstance(node, nodes.Concat) else text

    def _name(self, node: nodes.Name) -> str:
        return {"true": "True", "false": "False", "none": "None"}.get(node.name, node.name)

    def _const(self, node: nodes.Const) -> str:
        return _quoted(node.value) if isinstance(node.value, str) else repr(node.value)

    def _getattr(self, node: nodes.Getattr) -> str:
        return f"{self._inner(node.node)}[{_quoted(node.attr)}]"

    def _getitem(self, node: nodes.Getitem) -> str:
        return f"{self._inner(node.node)}[{self.text(node.arg)}]"

    def _compare(self, node: nodes.Compare) -> str:
        parts = [self._inner(node.expr)]
        parts += [f"{_SIGNS[one.op]} {self._inner(one.expr)}" for one in node.ops]
        return " ".join(parts)

    def _not(self, node: nodes.Not) -> str:
        return f"not {self._inner(node.node)}"

    def _neg(self, node: nodes.Neg) -> str:
        return f"-{self._inner(node.node)}"

    def _condexpr(self, node: nodes.CondExpr) -> str:
        if node.expr2 is None:
            raise self._problem("an if without an else")
        parts = [self._inner(one) for one in (node.expr1, node.test, node.expr2)]
        return f"{parts[0]} if {parts[1]} else {parts[2]}"

    def _concat(self, node: nodes.Concat) -> str:
        return " + ".join(f"str({self.text(one)})" for one in node.nodes)

    def _list(self, node: nodes.List) -> str:
        return "[" + ", ".join(map(self.text, node.items)) + "]"

    def _dict(self, node: nodes.Dict) -> str:
        pairs = (f"{self.text(one.key)}: {self.text(one.value)}" for one in node.items)
        return "{" + ", ".join(pairs) + "}"

    def _filter(self, node: nodes.Filter) -> str:
        if node.node is None or node.name not in _FILTERS or node.kwargs:
            raise self._problem(f"the filter {node.name!r}")
        return _FILTERS[node.name](self._inner(node.node), *map(self.text, node.args))

    def _call(self, node: nodes.Call) -> str:
        called = node.node
        args = [self.text(one) for one in node.args]
        args += [f"{one.key}={self.text(one.value)}" for one in node.kwargs]
        if isinstance(called, nodes.Getattr) and isinstance(called.node, nodes.Const):
            return f"{self.text(called.node)}.{called.attr}({', '.join(args)})"
        if not isinstance(called, nodes.Name):
            raise self._problem("a call of something that is no function")
        if called.name == "given":
            return " and ".join(map(self._given, node.args))
        if called.name not in FUNCTIONS and called.name not in _BUILTINS:
            raise self._problem(f"the function {called.name!r}")
        return f"{called.name}({', '.join(args)})"

    def _given(self, node: nodes.Expr) -> str:
        path: list[str] = []
        while isinstance(node, nodes.Getattr):
            path.insert(0, _quoted(node.attr))
            node = node.node
        return f"given({', '.join([self.text(node), *path])})"

    def _problem(self, what: str) -> ExportError:
        return ExportError(
            f"plain Python has no form for this expression: {what}", place=self._place
        )
