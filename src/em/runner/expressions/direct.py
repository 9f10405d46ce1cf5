"""Direct evaluation of the expressions that compilers write: selections, sums and comparisons.

They are evaluated in every replay, and a call through Jinja's sandbox costs about twenty times as
much. Only references, literals, the functions, the filter `float`, `+ - *`, one comparison, `in`,
`and`, `or`, `not` and `a if b else c` are known here; everything else is left to Jinja.
"""

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

from em.errors import ExpressionError
from em.runner.expressions.functions import FUNCTIONS, bounded
from em.runner.expressions.selection import given
from em.values.syntax_tree import expression_of

Reference = Callable[[str, tuple[str | int, ...], str], Callable[[Any], Any]]
Evaluate = Callable[[Any], Any]

_OWN = FUNCTIONS.keys() - {"len"}
WORDS = {"true": True, "false": False, "none": None, "True": True, "False": False, "None": None}
"""The words of expressions that are values."""
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_COMPARISON = re.compile(r" (?:==|!=|>=|<=|>|<|in|and|or|if) |^not ")
_REFERENCES = (ast.Name, ast.Attribute, ast.Subscript)
LONGEST = 4_000
"""Longer expressions are left to Jinja."""
PLAIN = frozenset((str, int, float, bool, type(None), list, dict))
"""The types of most values; no value of exactly one of them is a function, or `Missing`."""


class _Other(Exception):
    """The expression has a part that is not known here."""


def compile_direct(source: str, place: str, reference: Reference) -> Evaluate | None:
    """Compile an expression for direct evaluation; None if Jinja has to evaluate it.

    reference: compiles a name with the keys and positions behind it.
    """
    try:
        evaluate = _Compiler(place, reference).compiled(_parsed(source))
    except _NOT_KNOWN:
        return None

    def evaluated(scope: Any) -> Any:
        try:
            return evaluate(scope)
        except ExpressionError:
            raise
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise ExpressionError(str(error), place=place) from None

    return evaluated


_NOT_KNOWN = (SyntaxError, ValueError, RecursionError, MemoryError, _Other)
"""What parsing and compiling raise for an expression that Jinja has to evaluate."""


def _parsed(source: str) -> ast.expr:
    selects = any(f"{name}(" in source for name in _OWN)
    if len(source) > LONGEST or not (selects or _COMPARISON.search(source)):
        raise _Other
    return expression_of(source.strip())


class _Compiler:
    def __init__(self, place: str, reference: Reference) -> None:
        self._place, self._reference = place, reference

    def compiled(self, node: ast.expr) -> Evaluate:
        """Return a function that evaluates a part of the expression."""
        if _is_constant(node):
            value = _constant(node)
            return lambda _scope: value
        if isinstance(node, _REFERENCES):
            return self._referred(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node.left, node.ops[0], node.comparators[0])
        if isinstance(node, ast.BinOp):
            return self._computed(node)
        return self._composed(node)

    def _composed(self, node: ast.expr) -> Evaluate:
        if isinstance(node, ast.BoolOp | ast.UnaryOp | ast.IfExp):
            return self._logical(node)
        if isinstance(node, ast.Dict | ast.List):
            return self._mapped(node) if isinstance(node, ast.Dict) else self._list(node)
        raise _Other

    def _logical(self, node: ast.BoolOp | ast.UnaryOp | ast.IfExp) -> Evaluate:
        """Compile `and`, `or`, `not` and `a if b else c`; what is not needed is not evaluated."""
        if isinstance(node, ast.IfExp):
            when, then = self.compiled(node.test), self.compiled(node.body)
            otherwise = self.compiled(node.orelse)
            return lambda scope: then(scope) if when(scope) else otherwise(scope)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.Not):
                value = self.compiled(node.operand)
                return lambda scope: not value(scope)
            number = _constant(node.operand) if _is_constant(node.operand) else None
            if not isinstance(node.op, ast.USub) or not isinstance(number, int | float):
                raise _Other
            return lambda _scope: -number
        *parts, last = [self.compiled(part) for part in node.values]
        ends = isinstance(node.op, ast.Or)

        def joined(scope: Any) -> Any:
            for part in parts:
                value = part(scope)
                if bool(value) is ends:
                    return value
            return last(scope)

        return joined

    def _list(self, node: ast.List) -> Evaluate:
        values = _constants(node.elts)
        if values is None:
            parts = [self.compiled(one) for one in node.elts]
            return lambda scope: [part(scope) for part in parts]
        return lambda _scope: [*values]

    def _mapped(self, node: ast.Dict) -> Evaluate:
        if any(not isinstance(key, ast.Constant) for key in node.keys):
            raise _Other
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        values = [self.compiled(value) for value in node.values]
        return lambda scope: dict(zip(keys, [value(scope) for value in values], strict=True))

    def _compared(self, left: ast.expr, how: ast.cmpop, right: ast.expr) -> Evaluate:
        if isinstance(how, ast.In | ast.NotIn):
            return self._listed(left, right, is_in=isinstance(how, ast.In))
        join = _COMPARED.get(type(how))
        if join is None:
            raise _Other
        one = self.compiled(left)
        if _is_constant(right):
            value = _constant(right)
            if join is operator.eq:  # most guards
                return lambda scope: one(scope) == value
            return lambda scope: join(one(scope), value)
        other = self.compiled(right)
        return lambda scope: join(one(scope), other(scope))

    def _listed(self, left: ast.expr, right: ast.expr, *, is_in: bool) -> Evaluate:
        """Compile whether a value is one of a list, or none of it."""
        values = _constants(right.elts) if isinstance(right, ast.List) else None
        one = self.compiled(left)
        if values is None:
            several = self.compiled(right)
            return lambda scope: (one(scope) in several(scope)) is is_in
        if is_in:
            return lambda scope: one(scope) in values
        return lambda scope: one(scope) not in values

    def _computed(self, node: ast.BinOp) -> Evaluate:
        if isinstance(node.op, ast.BitOr):
            return self._filtered(node.left, node.right)
        compute = _COMPUTED.get(type(node.op))
        if compute is None:
            raise _Other
        first, second = self.compiled(node.left), self.compiled(node.right)
        joins = compute is operator.add

        def computed(scope: Any) -> Any:
            one, other = first(scope), second(scope)
            if type(one) is int and type(other) is int:
                return bounded(compute(bounded(one), bounded(other)))
            if joins and type(one) is str and type(other) is str:
                return one + other
            return _of_numbers(compute, one, other)

        return computed

    def _filtered(self, value: ast.expr, by: ast.expr) -> Evaluate:
        """Compile `value | float`. A filter binds tighter than `|` does in Python."""
        is_float = isinstance(by, ast.Name) and by.id == "float"
        if not is_float or not isinstance(value, (*_REFERENCES, ast.Call)):
            raise _Other
        number = self.compiled(value)
        return lambda scope: float(number(scope))

    def _referred(self, node: ast.expr) -> Evaluate:
        """Compile a name, or a call, with the keys and positions behind it."""
        start, path = _reference_in(node)
        if isinstance(start, ast.Name):
            return self._reference(start.id, path, self._place)
        made = self._called(start)
        rest = self._reference("_", path, self._place)
        return lambda scope: rest({"_": made(scope)})

    def _called(self, node: ast.Call) -> Evaluate:
        name = _function_in(node)
        own = FUNCTIONS[name]
        args = [self.compiled(arg) for arg in node.args]
        if name == given.__name__ and not node.keywords:
            return self._given(node.args, args)
        named = list(self._named(node))
        # A function of udf.py with that name counts, as it does for Jinja.
        if len(args) == 1 and not named:
            only = args[0]
            return lambda scope: scope.get(name, own)(only(scope))
        rest = _constants(node.args[1:])
        if args and not named and rest is not None:
            value = args[0]
            return lambda scope: scope.get(name, own)(value(scope), *rest)
        if len(args) == 2 and not named:
            first, second = args
            return lambda scope: scope.get(name, own)(first(scope), second(scope))

        def called(scope: Any) -> Any:
            function = scope.get(name, own)
            return function(
                *[arg(scope) for arg in args], **{key: value(scope) for key, value in named}
            )

        return called

    def _given(self, nodes: Sequence[ast.expr], args: Sequence[Evaluate]) -> Evaluate:
        """Compile `given`, for which a missing name or part is no error."""
        if not all(isinstance(node, _REFERENCES) for node in nodes):
            raise _Other
        paths = [_reference_in(node) for node in nodes]
        names = [(start.id, path) for start, path in paths if isinstance(start, ast.Name)]
        if len(names) != len(paths):
            raise _Other

        def is_given(scope: Any) -> Any:
            function = scope.get(given.__name__, given)
            if function is not given:
                return function(*[arg(scope) for arg in args])
            return all(map(_is_there, names, args, itertools.repeat(scope)))

        return is_given

    def _named(self, node: ast.Call) -> Iterator[tuple[str, Evaluate]]:
        for keyword in node.keywords:
            if keyword.arg is None:
                raise _Other
            yield keyword.arg, self.compiled(keyword.value)


def _is_there(way: tuple[str, tuple[str | int, ...]], read: Evaluate, scope: Any) -> bool:
    """Return whether there is a value behind a name and a path. A function is not a value."""
    name, path = way
    try:
        value = scope[name]
        for part in path:
            value = value[part]
    except (KeyError, IndexError):
        return False
    except TypeError:
        try:
            value = read(scope)  # an attribute of an object
        except ExpressionError:
            return False
    return type(value) in PLAIN or not (callable(value) or is_missing(value))


def is_missing(value: Any) -> bool:
    """Return whether a value stands for one that is allowed to be missing."""
    return getattr(type(value), "STANDS_FOR_NOTHING", False) is True


def _reference_in(node: ast.expr) -> tuple[ast.Name | ast.Call, tuple[str | int, ...]]:
    """Return a name, or a call, and the keys and positions behind it."""
    parts: list[str | int] = []
    while not isinstance(node, ast.Name | ast.Call):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            key = node.slice.value
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise _Other
            parts.append(key)
        else:
            raise _Other
        node = node.value
    return node, tuple(reversed(parts))


def _function_in(node: ast.Call) -> str:
    """Return the name of the function that is called, one of those that are known here."""
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        raise _Other
    return node.func.id


def _is_constant(node: ast.expr) -> TypeGuard[ast.Constant | ast.Name]:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in WORDS)


def _constant(node: ast.Constant | ast.Name) -> str | int | float | None:
    value = WORDS[node.id] if isinstance(node, ast.Name) else node.value
    if not isinstance(value, str | int | float | None):
        raise _Other
    return value


def _constants(nodes: Sequence[ast.expr]) -> list[str | int | float | None] | None:
    """Return the values of literals; None if one of them is not a literal."""
    values = [_constant(node) for node in nodes if _is_constant(node)]
    return values if len(values) == len(nodes) else None


def _of_numbers(compute: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Compute with two numbers, or join two lists; other values are refused."""
    if compute is operator.add and isinstance(one, list) and isinstance(other, list):
        return one + other
    for value in (one, other):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"expected a number, got a {type(value).__name__}")
    return compute(one, other)
