"""The expression language of routines and workflows.

A text that is exactly one `{{ expression }}` keeps the type of its value; text around it makes
the result a text. `a.b` on a mapping is the key `b`. An undefined name is an error that names it.
The value of an expression is never evaluated again.

References like `a.b[0]` are evaluated here, and so are the expressions that compilers write
(`compile_direct`): they are evaluated in every replay, and Jinja's sandbox costs about twenty times
as much. Everything else goes to Jinja2's sandbox (`jinja`), which is imported only when needed.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import msgspec

from em.errors import ExpressionError
from em.runner.expressions.functions import ABSENT, FUNCTIONS, SCOPE, bounded, given
from em.values.canonical import Json
from em.values.leaves import scalars
from em.values.mismatch import Where, closest
from em.values.syntax_tree import expression_of

if TYPE_CHECKING:
    from em.runner.expressions.jinja import Sandboxed


Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]
Part = str | int
"""A key or a position behind a name."""

WORDS = {"true": True, "false": False, "none": None, "True": True, "False": False, "None": None}
"""The words of expressions that are values."""
PLAIN = frozenset((str, int, float, bool, type(None), list, dict))
"""The types of most values; no value of exactly one of them is a function, or `Missing`."""


def as_text(value: Any) -> str:
    """Return a value as it is written into a text: lists and mappings as JSON."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)


class Missing(str):
    """A missing value that is allowed to be missing: an empty text, as is every part of it."""

    __slots__ = ()

    def __getitem__(self, _part: object) -> "Missing":
        return self


def undefined(name: str, scope: Scope, place: str) -> ExpressionError:
    """Return the error for an undefined name."""
    known = [known for known in scope if not known.startswith("_")]
    fix = closest(name, known) or f"defined are: {', '.join(sorted(known)[:20])}"
    return ExpressionError(f"{name!r} is not defined", place=place, fix=fix, name=name)


def no_such_part(value: Any, part: str | int, place: str) -> ExpressionError:
    """Return the error for a part that a value lacks."""
    if isinstance(value, Mapping):
        keys = [str(key) for key in value]
        fix = closest(part, keys) or f"it has: {', '.join(keys[:20]) or '-'}"
        return ExpressionError(f"there is no {part!r}", place=place, fix=fix, name=str(part))
    if isinstance(value, list | tuple) and isinstance(part, int):
        return ExpressionError(f"there is no item {part}: the list has {len(value)}", place=place)
    return ExpressionError(f"a {type(value).__name__} has no {part!r}", place=place)


_WHOLE = re.compile(r"\s*\{\{(?P<inside>(?:(?!\{\{|\}\}).)*)\}\}\s*", re.DOTALL)
_HOLE = re.compile(r"\{\{((?:(?!\{\{|\}\}).)*)\}\}", re.DOTALL)
_REFERENCE = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\\]*'\]|\[\"[^\"\\]*\"\])*)",
    re.ASCII,
)
_PART = re.compile(r"\.(\w+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]", re.ASCII)


def compile_value(value: Any, place: str) -> Evaluate:
    """Compile a value of a routine; every text in it may hold expressions."""
    if isinstance(value, str):
        return _compile_text(value, place)
    if isinstance(value, dict):
        fields = [(key, compile_value(item, f"{place}.{key}")) for key, item in value.items()]
        return lambda scope: {key: evaluate(scope) for key, evaluate in fields}
    if isinstance(value, list):
        items = [compile_value(item, f"{place}[{n}]") for n, item in enumerate(value)]
        return lambda scope: [evaluate(scope) for evaluate in items]
    return lambda _scope: value


@lru_cache(maxsize=1_024)  # trials run hundreds of drafts that differ in a few expressions
def compile_expression(source: str, place: str) -> Evaluate:
    """Compile a bare expression, as in `when` and `check`."""
    reference = parse_reference(source)
    if reference is not None:
        name, path = reference
        return _compile_reference(name, path, place)
    direct = compile_direct(source, place)
    return direct or _jinja().expression(source.strip(), place)


def parse_reference(source: str) -> tuple[str, tuple[Part, ...]] | None:
    """Split a reference like `a.b[0]` into its name and parts; None for other expressions."""
    match = _REFERENCE.fullmatch(source.strip())
    if match is None or match["name"] in WORDS or iskeyword(match["name"]):
        return None
    parts: list[str | int] = []
    for attribute, index, single, double in _PART.findall(match["path"]):
        parts.append(int(index) if index else attribute or single or double)
    return match["name"], tuple(parts)


def names_in(source: str, place: str, *, bare: bool = False) -> set[str]:
    """Return the names that a text or a bare expression refers to; fail if it does not parse.

    A function that is only called is not among them; a value with its name is.
    """
    text = f"{{{{ {source} }}}}" if bare else source
    return _jinja().names(text, place)


def syntax_of(source: str, place: str, *, bare: bool = False) -> Any:
    """Parse a text or a bare expression into Jinja's tree."""
    return _jinja().syntax(source.strip() if bare else source, place, bare=bare)


def lexed(text: str, place: str) -> list[tuple[int, str, str]]:
    """Return the tokens of a text: line, kind and characters of each."""
    return _jinja().lexed(text, place)


def whole_expression(text: str) -> str | None:
    """Return the expression of a text that is exactly one `{{ expression }}`, else None."""
    whole = _WHOLE.fullmatch(text)
    return None if whole is None else whole["inside"]


def _compile_text(text: str, place: str) -> Evaluate:
    if "{{" not in text and "{%" not in text:
        return lambda _scope: text
    whole = whole_expression(text)
    if whole is not None:
        return compile_expression(whole, place)
    return _compile_filled(text, place) or _jinja().text(text, place)


def _compile_filled(text: str, place: str) -> Evaluate | None:
    """Compile a text that holds only references; None for other texts."""
    parts = _HOLE.split(text)
    if any(mark in part for part in parts[::2] for mark in ("{{", "}}", "{%", "{#")):
        return None
    references = [parse_reference(part) for part in parts[1::2]]
    if None in references:
        return None
    holes = [_compile_reference(*found, place) for found in references if found is not None]

    def evaluate(scope: Scope) -> str:
        filled = list(parts)
        values = [hole(scope) for hole in holes]
        try:
            filled[1::2] = map(as_text, values)
        except Exception as error:
            raise ExpressionError(
                f"a value can't be written into the text: {error}", place=place
            ) from error
        return "".join(filled)

    return evaluate


def _compile_reference(name: str, path: tuple[Part, ...], place: str) -> Evaluate:
    def direct(scope: Scope) -> Any:
        try:
            value = scope[name]
        except KeyError:
            raise undefined(name, scope, place) from None
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                value = _attribute(value, part, place)
        return value if type(value) in PLAIN else _not_callable(value, name, place)

    if path:
        return direct

    def plain(scope: Scope) -> Any:
        try:
            value = scope[name]
        except KeyError:
            raise undefined(name, scope, place) from None
        return value if type(value) in PLAIN else _not_callable(value, name, place)

    return plain


def _not_callable(value: Any, name: str, place: str) -> Any:
    if callable(value):
        raise ExpressionError(f"{name!r} is a function; call it, or name a key", place=place)
    return "" if type(value) is Missing else value


def _attribute(value: Any, part: str | int, place: str) -> Any:
    """Return an attribute that the sandbox allows; fail if there is none."""
    if isinstance(part, str) and not isinstance(value, Mapping):
        found = _jinja().attribute(value, part)
        if found is not _jinja().missing:
            return found
    raise no_such_part(value, part, place)


@lru_cache(maxsize=1)
def _jinja() -> "Sandboxed":
    """Import Jinja when the first expression needs more than a reference."""
    from em.runner.expressions.jinja import Sandboxed

    return Sandboxed(SCOPE)


Holds = Literal["bare", "values", "text"]
HOLDS: Mapping[str, Holds] = {
    "when": "bare",
    "check": "bare",
    "checks": "bare",
    "over": "bare",
    "args": "values",
    "for_each": "values",
    "value": "values",
    "prompt": "values",
    "message": "values",
    "idempotency_key": "values",
    "description": "text",
}
"""The fields of a step that hold expressions: bare ones, or in `{{ }}` within values.

In a text for readers they stay as they are; in any other field they are a mistake.
"""


def acting(step: Json) -> Iterator[Any]:
    """Yield what a step says that goes into calls, questions, conditions and results."""
    yield from (
        value
        for field, value in step.items()
        if HOLDS.get(field, "text") != "text" and field != "message"
    )


def texts_in(value: Any, where: Where) -> Iterator[tuple[Where, str]]:
    """Yield every text of a value that holds expressions, with its path."""
    for path, text in scalars(value, where):
        if isinstance(text, str) and ("{{" in text or "{%" in text):
            yield path, text


# --- the expressions that compilers write ---------------------------------------------------------

LONGEST = 4_000
"""Longer expressions are left to Jinja."""
_SELECTS = tuple(f"{name}(" for name in FUNCTIONS if name != "len")
_COMPARES = re.compile(r" (?:==|!=|>=|<=|>|<|in|and|or|if) |^not ")
_REFERENCES = (ast.Name, ast.Attribute, ast.Subscript)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.In, ast.NotIn)


class _Other(Exception):
    """The expression has a part that only Jinja knows."""


def compile_direct(source: str, place: str) -> Evaluate | None:
    """Compile an expression to Python's own code; None if Jinja has to evaluate it.

    The code calls the functions of expressions and reads references, by names that are made here;
    it has no other names, attributes or builtins.
    """
    if len(source) > LONGEST:
        return None
    if not any(name in source for name in _SELECTS) and not _COMPARES.search(source):
        return None
    made = _Direct(place)
    try:
        tree = ast.parse("lambda scope: None", mode="eval")
        assert isinstance(tree.body, ast.Lambda)
        tree.body.body = made.compiled(expression_of(source.strip()))
        code = compile(ast.fix_missing_locations(tree), "<expression>", "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError, _Other):
        return None
    evaluate: Evaluate = eval(code, made.names)  # noqa: S307 - built here from known parts

    def evaluated(scope: Scope) -> Any:
        try:
            return evaluate(scope)
        except ExpressionError:
            raise
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise ExpressionError(str(error), place=place) from None

    return evaluated


class _Direct:
    """Turns the tree of an expression into one whose names are all defined in `names`."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.names: dict[str, Any] = {"__builtins__": {}}

    def compiled(self, node: ast.expr) -> ast.expr:
        """Return the tree of a part of the expression."""
        if _is_constant(node):
            return ast.Constant(_constant(node))
        if isinstance(node, _REFERENCES):
            return self._referred(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.BinOp):
            return self._computed(node)
        if not _is_composed(node):
            raise _Other
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, self.compiled(value))
            elif field in ("values", "elts", "comparators"):
                setattr(node, field, [self.compiled(one) for one in value])
        return node

    def _call(self, function: Callable[..., Any], *args: ast.expr) -> ast.Call:
        """Return a call of a function by a name that is made for it."""
        name = f"_{len(self.names)}"
        self.names[name] = function
        return ast.Call(ast.Name(name, ast.Load()), list(args), [])

    def _computed(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.op, ast.BitOr):
            # A filter binds tighter than `|` does in Python.
            is_float = isinstance(node.right, ast.Name) and node.right.id == "float"
            if not is_float or not isinstance(node.left, (*_REFERENCES, ast.Call)):
                raise _Other
            return self._call(float, self.compiled(node.left))
        compute = _COMPUTED.get(type(node.op))
        if compute is None:
            raise _Other
        return self._call(compute, self.compiled(node.left), self.compiled(node.right))

    def _referred(self, node: ast.expr) -> ast.expr:
        """Compile a name, or a call, with the keys and positions behind it."""
        start, path = _reference_in(node)
        if isinstance(start, ast.Name):
            return self._call(_compile_reference(start.id, path, self._place), _scope())
        read = _compile_reference("_", path, self._place)
        return self._call(read, ast.Dict([ast.Constant("_")], [self._called(start)]))

    def _called(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS or any(one.arg is None for one in node.keywords):
            raise _Other
        if name != given.__name__:
            args = [self.compiled(arg) for arg in node.args]
        else:
            if node.keywords or not all(isinstance(arg, _REFERENCES) for arg in node.args):
                raise _Other
            args = [self._given(*_reference_in(arg)) for arg in node.args]
        own = FUNCTIONS[name]
        # A function of udf.py with that name counts, as it does for Jinja.
        function = self._call(lambda scope: scope.get(name, own), _scope())
        named = [ast.keyword(one.arg, self.compiled(one.value)) for one in node.keywords]
        return ast.Call(function, args, named)

    def _given(self, start: ast.expr, path: tuple[Part, ...]) -> ast.expr:
        """Compile an argument of `given`: what is not there is ABSENT, and no error."""
        if not isinstance(start, ast.Name):
            raise _Other
        name = start.id
        read = _compile_reference(name, path, self._place)

        def found(scope: Scope) -> Any:
            try:
                value = scope[name]
                for part in path:
                    value = value[part]
            except (KeyError, IndexError):
                return ABSENT
            except TypeError:
                try:
                    value = read(scope)  # an attribute of an object
                except ExpressionError:
                    return ABSENT
            is_there = type(value) in PLAIN or not (callable(value) or isinstance(value, Missing))
            return value if is_there else ABSENT

        return self._call(found, _scope())


def _scope() -> ast.Name:
    return ast.Name("scope", ast.Load())


def _reference_in(node: ast.expr) -> tuple[ast.Name | ast.Call, tuple[Part, ...]]:
    """Return a name, or a call, and the keys and positions behind it."""
    parts: list[Part] = []
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


def _is_composed(node: ast.expr) -> bool:
    """Return whether Python evaluates a node of parts as Jinja does."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and isinstance(node.ops[0], _COMPARISONS)
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not) or (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and isinstance(node.operand.value, int | float)
        )
    if isinstance(node, ast.Dict):
        return all(isinstance(key, ast.Constant) for key in node.keys)
    return isinstance(node, ast.BoolOp | ast.IfExp | ast.List)


def _is_constant(node: ast.expr) -> TypeGuard[ast.Constant | ast.Name]:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in WORDS)


def _constant(node: ast.Constant | ast.Name) -> str | int | float | None:
    value = WORDS[node.id] if isinstance(node, ast.Name) else node.value
    if not isinstance(value, str | int | float | None):
        raise _Other
    return value


def _computing(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operator for two numbers, two texts or two lists; it refuses other values."""

    def computed(one: Any, other: Any) -> Any:
        if type(one) is int and type(other) is int:
            return bounded(compute(bounded(one), bounded(other)))
        if compute is operator.add and type(one) is type(other) and type(one) in (str, list):
            return one + other
        for value in (one, other):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"expected a number, got a {type(value).__name__}")
        return compute(one, other)

    return computed


_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _computing(operator.add),
    ast.Sub: _computing(operator.sub),
    ast.Mult: _computing(operator.mul),
}
