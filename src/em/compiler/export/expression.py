"""An expression of a routine as Python: `order.status` is `order["status"]`, the rest is alike."""

import builtins
import math
import sys
from collections.abc import Collection, Mapping
from keyword import iskeyword
from types import FunctionType, MethodDescriptorType, ModuleType
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from em.errors import ExportError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import whole_expression
from em.runner.expressions.selection import OMITTED

COPIED: dict[str, ModuleType] = {
    name: sys.modules[function.__module__]
    for name, function in FUNCTIONS.items()
    if isinstance(function, FunctionType) and function.__name__ == name and name != "given"
}
"""The functions of expressions that a script has copies of, with the modules that define them."""
_BUILTINS = frozenset(name for name in FUNCTIONS if hasattr(builtins, name))
"""The functions of expressions that Python has too."""
_SIGNS = {
    "eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=", "in": "in",
    "notin": "not in",
}  # fmt: skip
_OPERATORS: dict[type[nodes.BinExpr], str] = {
    nodes.Add: "+", nodes.Sub: "-", nodes.Mul: "*", nodes.Div: "/", nodes.FloorDiv: "//",
    nodes.Mod: "%", nodes.Pow: "**", nodes.And: "and", nodes.Or: "or",
}  # fmt: skip
_FILTERS: dict[str, Any] = {
    "string": str, "length": len, "float": float, "sum": sum, "round": round,
    "lower": str.lower, "upper": str.upper, "capitalize": str.capitalize, "trim": str.strip,
    "join": str.join,
}  # fmt: skip
"""The filters that are a function of Python, or a method of texts."""
_MAY_TAKE_ONE = ("round", "join")
_METHODS = {name for name, one in _FILTERS.items() if isinstance(one, MethodDescriptorType)}
CALLED = _BUILTINS | {"map"} | {_FILTERS[name].__name__ for name in _FILTERS.keys() - _METHODS}
"""The functions of Python that an expression may call."""
_JINJA = Environment(autoescape=False, keep_trailing_newline=True)  # noqa: S701 - it only parses


class Names:
    """How values and functions of a routine are called in Python. Here: by their own names."""

    functions: Collection[str] = ()
    """The functions of udf.py."""
    coroutines: Collection[str] = ()

    def variable(self, name: str) -> str:
        """Return the variable that holds a value."""
        return name

    def may_be_missing(self, _name: str) -> bool:
        """Return whether a value that is used may not be there."""
        return False


def python_expression(text: str, place: str, names: Names | None = None) -> str:
    """Return a bare expression as Python."""
    return _Printer(place, names or Names()).text(_tree(text, place))


def python_value(value: Any, place: str, names: Names | None = None) -> str:
    """Return a value of a step as Python; each text in it may have expressions."""
    if isinstance(value, Mapping):
        inner = (f"{literal(key)}: {python_value(one, place, names)}" for key, one in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(python_value(one, place, names) for one in value) + "]"
    if isinstance(value, str) and "{" in value:
        return _template(value, place, names or Names())
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(f"the number {value!r}", place)
    return literal(value)


def literal(value: Any) -> str:
    """Return a scalar as Python: a text in double quotes where that needs no more escapes."""
    shown = repr(value)
    if not isinstance(value, str) or shown[0] == '"' or '"' in value:
        return shown
    return '"' + shown[1:-1].replace("\\'", "'") + '"'


def refused(construct: str, place: str) -> ExportError:
    """Return the error of something that a script can't do."""
    return ExportError(
        f"an exported script can't do this: {construct}",
        place=place,
        fix="run the routine with `em run`, or move this into a function of udf.py",
    )


def is_word(word: str) -> bool:
    """Return whether Python can use a text as a name."""
    plain = word.isidentifier() and word.isascii() and not word.startswith("__")
    return plain and not iskeyword(word)


def keywords(values: Mapping[str, str]) -> list[str]:
    """Return code as keyword arguments; names that can't be keywords come last."""
    parts = [f"{name}={one}" for name, one in values.items() if is_word(name)]
    odd = [f"{literal(name)}: {one}" for name, one in values.items() if not is_word(name)]
    return [*parts, *(["**{" + ", ".join(odd) + "}"] if odd else [])]


def _tree(text: str, place: str) -> nodes.Node:
    try:
        (output,) = _JINJA.parse("{{ " + text + " }}").body
        assert isinstance(output, nodes.Output)
        (tree,) = output.nodes
    except (TemplateSyntaxError, ValueError, AssertionError) as error:
        raise ExportError(f"not an expression: {error}", place=place) from None
    return tree


def _template(text: str, place: str, names: Names) -> str:
    """Return a text with expressions as Python: an expression alone keeps its type."""
    whole = whole_expression(text)
    if whole is not None:
        return python_expression(whole, place, names)
    try:
        body = _JINJA.parse(text).body
    except TemplateSyntaxError as error:
        raise ExportError(f"not a template: {error}", place=place) from None
    if any(not isinstance(one, nodes.Output) for one in body):
        raise refused("{% … %} in a text", place)
    parts = [part for output in body for part in output.nodes]  # type: ignore[attr-defined]
    if all(isinstance(part, nodes.TemplateData) for part in parts):
        return literal("".join(part.data for part in parts))
    printed = (
        literal(part.data)
        if isinstance(part, nodes.TemplateData)
        else _Printer(place, names).text(part)
        for part in parts
    )
    return f"as_text({', '.join(printed)})"


def _called_name(node: nodes.Call) -> str:
    return node.node.name if isinstance(node.node, nodes.Name) else ""


def _path(node: nodes.Node) -> tuple[str, list[str]]:
    """Return the name and the parts of a reference; no name for another expression."""
    parts: list[str] = []
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Const):
            return "", []
        part = node.attr if isinstance(node, nodes.Getattr) else node.arg.value  # type: ignore[attr-defined]
        parts.insert(0, literal(part))
        node = node.node
    return (node.name, parts) if isinstance(node, nodes.Name) else ("", [])


class _Printer:
    """Prints the nodes of one expression."""

    def __init__(self, place: str, names: Names) -> None:
        self._place, self._names = place, names

    def text(self, node: nodes.Node) -> str:
        """Return a node as Python."""
        make = getattr(self, f"_{type(node).__name__.lower()}", None)
        if make is not None:
            return str(make(node))
        if isinstance(node, nodes.BinExpr) and type(node) in _OPERATORS:
            is_power = isinstance(node, nodes.Pow)
            left, right = (self._inner(one, is_tight=is_power) for one in (node.left, node.right))
            return f"{left} {_OPERATORS[type(node)]} {right}"
        raise self._problem(type(node).__name__)

    def _inner(self, node: nodes.Node, *, is_tight: bool = False) -> str:
        """Return a node in brackets if it has operators of its own."""
        text = self.text(node)
        is_open = isinstance(
            node,
            nodes.BinExpr | nodes.Compare | nodes.Not | nodes.CondExpr | nodes.Concat | nodes.Test,
        )
        return f"({text})" if is_open or (is_tight and isinstance(node, nodes.Neg)) else text

    def _condexpr(self, node: nodes.CondExpr) -> str:
        if node.expr2 is None:
            raise self._problem("an if without an else")
        return " ".join(
            [self._inner(node.expr1), "if", self._inner(node.test), "else", self._inner(node.expr2)]
        )

    def _name(self, node: nodes.Name) -> str:
        name = node.name
        if name == OMITTED:
            return "MISSING"
        variable = self._names.variable(name)
        if not self._names.may_be_missing(name):
            return variable
        return f"have({variable}, {literal(name)})"

    def _const(self, node: nodes.Const) -> str:
        return literal(node.value)

    def _getattr(self, node: nodes.Getattr) -> str:
        return f"{self._inner(node.node, is_tight=True)}[{literal(node.attr)}]"

    def _getitem(self, node: nodes.Getitem) -> str:
        return f"{self._inner(node.node, is_tight=True)}[{self.text(node.arg)}]"

    def _slice(self, node: nodes.Slice) -> str:
        parts = ["" if one is None else self.text(one) for one in (node.start, node.stop)]
        return ":".join([*parts, *([] if node.step is None else [self.text(node.step)])])

    def _compare(self, node: nodes.Compare) -> str:
        parts = [self._inner(node.expr)]
        parts += [f"{_SIGNS[one.op]} {self._inner(one.expr)}" for one in node.ops]
        return " ".join(parts)

    def _test(self, node: nodes.Test) -> str:
        if node.name != "none":
            raise self._problem(f"the test {node.name!r}")
        return f"{self._inner(node.node)} is None"

    def _not(self, node: nodes.Not) -> str:
        return f"not {self._inner(node.node)}"

    def _neg(self, node: nodes.Neg) -> str:
        return f"-{self._inner(node.node)}"

    def _concat(self, node: nodes.Concat) -> str:
        return " + ".join(f"str({self.text(one)})" for one in node.nodes)

    def _list(self, node: nodes.List) -> str:
        return "[" + ", ".join(map(self.text, node.items)) + "]"

    def _dict(self, node: nodes.Dict) -> str:
        pairs = (f"{self.text(one.key)}: {self.text(one.value)}" for one in node.items)
        return "{" + ", ".join(pairs) + "}"

    def _filter(self, node: nodes.Filter) -> str:
        is_plain = node.node is not None and not node.kwargs and not node.dyn_args
        if is_plain and isinstance(node.node, nodes.Name) and node.name in ("default", "d"):
            if len(node.args) == 1:
                variable = self._names.variable(node.node.name)
                return f"default_to({variable}, {self.text(node.args[0])})"
        elif is_plain and node.name in _FILTERS and len(node.args) <= (node.name in _MAY_TAKE_ONE):
            assert node.node is not None
            of, args = self._inner(node.node, is_tight=True), [*map(self.text, node.args)]
            name = _FILTERS[node.name].__name__
            if node.name == "join":
                return f"{''.join(args) or literal('')}.join(map(str, {of}))"
            if node.name == "round":
                return f"round({of}, {''.join(args) or 0})"
            return f"str({of}).{name}()" if node.name in _METHODS else f"{name}({of})"
        raise self._problem(f"the filter {node.name!r}")

    def _call(self, node: nodes.Call) -> str:
        name = _called_name(node)
        if not name:
            raise self._problem("the call of a method")
        if name == "given":
            return " and ".join(map(self._asked, node.args))
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise self._problem(f"* in the arguments of {name!r}")
        if name not in self._names.functions and name not in COPIED and name not in _BUILTINS:
            raise self._problem(f"the function {name!r}")
        args = [self.text(one) for one in node.args]
        args += keywords({one.key: self.text(one.value) for one in node.kwargs})
        called = f"awaited({name})" if name in self._names.coroutines else name
        return f"{called}({', '.join(args)})"

    def _asked(self, node: nodes.Expr) -> str:
        name, parts = _path(node)
        if not name:
            raise self._problem("`given` of something that is no reference")
        return f"given({', '.join([self._names.variable(name), *parts])})"

    def _problem(self, what: str) -> ExportError:
        return refused(what, self._place)
