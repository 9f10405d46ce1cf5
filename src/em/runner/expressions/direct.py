"""Direct evaluation of the expressions that compilers write: selections, sums and comparisons.

They are evaluated in every replay, and a call through Jinja's sandbox costs about twenty times as
much. Only references, literals, the functions of `SELECTIONS`, `len`, `sum`, `str`, `int`, `float`,
`+ - *` on numbers and one comparison, also with a list of literals, are known here; everything
else is left to Jinja.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

from em.errors import ExpressionError
from em.runner.expressions.functions import FUNCTIONS, SELECTIONS, bounded

Reference = Callable[[str, tuple[str | int, ...], str], Callable[[Any], Any]]
Evaluate = Callable[[Any], Any]

_CALLED = {*SELECTIONS, "len", "sum", "str", "int", "float"}
_WORDS = {"true": True, "false": False, "none": None, "True": True, "False": False, "None": None}
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
_COMPARISON = re.compile(r" (?:==|!=|>=|<=|>|<) | in \[")
LONGEST = 4_000
"""Longer expressions are left to Jinja."""


class _Other(Exception):
    """The expression has a part that is not known here."""


def compile_direct(
    source: str, place: str, reference: Reference, *, is_written: bool = False
) -> Evaluate | None:
    """Compile an expression for direct evaluation; None if Jinja has to evaluate it.

    reference: compiles a name with the keys and positions behind it.
    is_written: a compiler wrote it, so `+`, `-` and `*` are of numbers.
    """
    selects = any(f"{name}(" in source for name in SELECTIONS)
    known = is_written or selects or _COMPARISON.search(source)
    if len(source) > LONGEST or not known:
        return None
    try:
        tree = ast.parse(source.strip(), mode="eval").body
        evaluate = _Compiler(place, reference).compiled(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, _Other):
        return None

    def evaluated(scope: Any) -> Any:
        try:
            return evaluate(scope)
        except ExpressionError:
            raise
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise ExpressionError(str(error), place=place) from None

    return evaluated


class _Compiler:
    def __init__(self, place: str, reference: Reference) -> None:
        self._place, self._reference = place, reference

    def compiled(self, node: ast.expr) -> Evaluate:
        """Return a function that evaluates a part of the expression."""
        if _is_constant(node):
            value = _constant(node)
            return lambda _scope: value
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return self._referred(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node.left, node.ops[0], node.comparators[0])
        if isinstance(node, ast.BinOp):
            return self._computed(node.left, _COMPUTED.get(type(node.op)), node.right)
        if isinstance(node, ast.Dict):
            return self._mapped(node)
        raise _Other

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
        """Compile whether a value is one of a list of literals, or none of them."""
        values = _constants(right.elts) if isinstance(right, ast.List) else None
        if values is None:
            raise _Other
        one = self.compiled(left)
        if is_in:
            return lambda scope: one(scope) in values
        return lambda scope: one(scope) not in values

    def _computed(
        self, left: ast.expr, compute: Callable[[Any, Any], Any] | None, right: ast.expr
    ) -> Evaluate:
        if compute is None:
            raise _Other
        first, second = self.compiled(left), self.compiled(right)

        def computed(scope: Any) -> Any:
            one, other = first(scope), second(scope)
            if type(one) is int and type(other) is int:
                return bounded(compute(bounded(one), bounded(other)))
            return _of_numbers(compute, one, other)

        return computed

    def _referred(self, node: ast.expr) -> Evaluate:
        """Compile a name, or a call, with the keys and positions behind it."""
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
        path = tuple(reversed(parts))
        if isinstance(node, ast.Name):
            return self._reference(node.id, path, self._place)
        made = self._called(node)
        rest = self._reference("_", path, self._place)
        return lambda scope: rest({"_": made(scope)})

    def _called(self, node: ast.Call) -> Evaluate:
        if not isinstance(node.func, ast.Name) or node.func.id not in _CALLED:
            raise _Other
        name, own = node.func.id, FUNCTIONS[node.func.id]
        args = [self.compiled(arg) for arg in node.args]
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

    def _named(self, node: ast.Call) -> Iterator[tuple[str, Evaluate]]:
        for keyword in node.keywords:
            if keyword.arg is None:
                raise _Other
            yield keyword.arg, self.compiled(keyword.value)


def _is_constant(node: ast.expr) -> TypeGuard[ast.Constant | ast.Name]:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in _WORDS)


def _constant(node: ast.Constant | ast.Name) -> str | int | float | None:
    value = _WORDS[node.id] if isinstance(node, ast.Name) else node.value
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
