"""Jinja2's sandbox as em uses it: keys of mappings first, strict about undefined names, metered.

A routine is data that anyone may have sent, so each evaluation has a budget. Texts, lists, loop
turns and the items that filters yield are paid from it; operations that turn little into much
(repeating, powers, replacing) are checked before they run.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from time import thread_time
from typing import Any

import jinja2
import jinja2.meta
from jinja2 import TemplateSyntaxError, filters, nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from em.errors import ExpressionError
from em.runner.expressions.functions import ABSENT, bounded, check_size, given
from em.runner.expressions.language import Evaluate, Missing, Scope, as_text, undefined
from em.values.canonical import short

MAX_REPEAT = 1_000_000
"""The longest text or list that an expression may make by repeating."""
MAX_WORK = 50_000_000
"""The budget of one evaluation: characters of texts, and items by their cost."""
MAX_SECONDS = 5.0
"""The processor time of one evaluation. A busy machine makes it no shorter."""
_ITEM, _TURN = 8, 100
_PAYMENTS_PER_LOOK = 64
_JOINED, _WEIGHED, _TURNS, _SOUGHT = "em joined", "em weighed", "em turns", "em sought"
_PART, _IF_THERE = "em part", "em if there"

_FUNCTIONS = (
    abs, len, filters.do_batch, filters.do_capitalize, filters.do_default, filters.do_dictsort,
    filters.do_first, filters.do_float, filters.do_groupby, filters.do_int, filters.do_items,
    filters.do_join, filters.do_last, filters.do_list, filters.do_lower, filters.do_map,
    filters.do_max, filters.do_min, filters.do_reject, filters.do_rejectattr, filters.do_replace,
    filters.do_reverse, filters.do_round, filters.do_select, filters.do_selectattr,
    filters.do_slice, filters.do_sort, filters.do_sum, filters.do_title, filters.do_tojson,
    filters.do_trim, filters.do_truncate, filters.do_unique, filters.do_upper,
    filters.do_urlencode,
    filters.FILTERS["string"],
)  # fmt: skip
"""What filters may do: nothing that makes much of little, or that depends on chance."""
_FILTERS = [name for name, function in filters.FILTERS.items() if function in _FUNCTIONS]
_FREE = (len, filters.do_first, filters.do_last, filters.do_default)
"""What looks at no more than one item, or only counts."""
_METHODS = frozenset(
    method.__name__
    for method in (
        str.lower, str.upper, str.strip, str.lstrip, str.rstrip, str.split, str.rsplit,
        str.splitlines, str.startswith, str.endswith, str.title, str.capitalize, str.casefold,
        str.swapcase, str.find, str.rfind, str.index, str.rindex, str.count, str.removeprefix,
        str.removesuffix, str.partition, str.rpartition, float.is_integer,
        *(method for name, method in vars(str).items() if name.startswith("is")),
    )
)  # fmt: skip
"""The methods of plain values whose result is not much larger than the value."""
_OF_MAPPINGS = frozenset(name for name in vars(Mapping) if not name.startswith("_"))
_PLAIN = (str, bytes, bytearray, int, float, complex, list, tuple, set, frozenset, range)
_SIZED = (str, bytes, bytearray, list, tuple)
_STATEMENTS = (nodes.If, nodes.For, nodes.Assign, nodes.Output)
"""What may stand in a text."""


class _Budget:
    __slots__ = ("_payments", "_until", "left")

    def __init__(self) -> None:
        self.left = MAX_WORK
        self._payments = 0
        self._until = 0.0

    def pay(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise _too_much()
        self._payments += 1
        if self._payments % _PAYMENTS_PER_LOOK == 0:
            self._look()

    def _look(self) -> None:
        """Look at the clock. Most evaluations are over before the first look."""
        spent = thread_time()
        if not self._until:
            self._until = spent + MAX_SECONDS
        elif spent > self._until:
            raise SecurityError(f"the expression took more than {MAX_SECONDS:g} seconds")

    def afford(self, cost: int) -> None:
        if cost > self.left:
            raise _too_much()


def _too_much() -> SecurityError:
    return SecurityError("the expression makes or loops over too many values")


_now: ContextVar[_Budget] = ContextVar("_now")


@contextmanager
def budget() -> Iterator[None]:
    """Give one evaluation its budget."""
    token = _now.set(_Budget())
    try:
        yield
    finally:
        _now.reset(token)


def charged(value: Any, *, deep: bool = False) -> Any:
    """Pay for a new value and return it. `deep`: pay for repeated parts each time."""
    if isinstance(value, int):
        return bounded(value)
    if isinstance(value, str | bytes):
        _now.get().pay(len(value))
    elif isinstance(value, Iterator):
        return _paid(value, _now.get(), deep=deep)
    elif deep:
        _weigh(value, _now.get())
    elif isinstance(value, list | tuple | dict | set):
        _now.get().pay(len(value) * _ITEM)
    return value


def _paid(items: Iterator[Any], budget: _Budget, *, deep: bool) -> Iterator[Any]:
    for item in items:
        budget.pay(_ITEM)
        if deep:
            _weigh(item, budget)
        yield item


def _weigh(value: Any, budget: _Budget) -> None:
    """Pay for every part of a value each time it occurs, since it is written as often."""
    rest = [value]
    while rest:
        item = rest.pop()
        budget.pay(_ITEM)
        if isinstance(item, str | bytes):
            budget.pay(len(item))
        elif isinstance(item, dict):
            budget.pay(len(item))
            rest += item
            rest += item.values()
        elif isinstance(item, list | tuple | set):
            budget.pay(len(item))
            rest += item


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large."""
    for value in (left, right):
        if isinstance(value, int):
            bounded(value)
    if operator == "**":
        if abs(right) > 64 or abs(left) > MAX_REPEAT:
            raise SecurityError("the power is too large")
    elif operator == "*":
        _check_product(left, right)
    elif operator == "+":
        if isinstance(left, _SIZED) and isinstance(right, _SIZED):
            _now.get().afford(len(left) + len(right))
    elif operator == "%" and isinstance(left, str | bytes | bytearray):
        raise SecurityError("% does not format texts; write {{ … }} inside the text")


def _check_product(left: Any, right: Any) -> None:
    for what, times in ((left, right), (right, left)):
        if isinstance(what, _SIZED) and len(what) * times > MAX_REPEAT:
            raise SecurityError("the result of * is too long")
    if isinstance(left, int) and isinstance(right, int):
        check_size(left.bit_length() + right.bit_length())


def _check_count(count: int, limit: int = MAX_REPEAT) -> None:
    if abs(count) > limit:
        raise SecurityError(f"the number must be at most {limit:,}, got {count:,}")


def bounded_filters() -> dict[str, Callable[..., Any]]:
    """Return the filters of routines; each pays for its result."""
    known = {name: _charging(name, filters.FILTERS[name]) for name in _FILTERS}
    known |= {name: _strict(name, known[name]) for name in ("int", "float")}
    own: dict[str, Callable[..., Any]] = {
        _JOINED: _join_texts,
        _WEIGHED: _weighed,
        _TURNS: _turns,
        _SOUGHT: _sought,
    }
    own |= {_PART: _part, _IF_THERE: _if_there}
    return known | own


def _is_in(value: Any, held: Any) -> bool:
    """The test `in`, which pays for what it goes through."""
    return value in _sought(held)


def _strict(name: str, convert: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter `int` or `float`, which fails for other texts unless it has a default."""

    @wraps(convert)
    def converted(value: Any, *args: Any, **kwargs: Any) -> Any:
        if args or "default" in kwargs:
            return convert(value, *args, **kwargs)
        found = convert(value, default=None, **kwargs)
        if found is None:
            raise ValueError(f"{short(value)} is not a number ({name})")
        return found

    return converted


def _charging(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    check = _CHECKS.get(name)
    # Some filters take the environment or the context before the value.
    at = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        value = args[at]
        if check is not None:
            value = check(value, *args[at + 1 :], **kwargs)
            args = (*args[:at], value, *args[at + 1 :])
        if function not in _FREE and isinstance(value, _SIZED):
            _now.get().pay(len(value))
        return charged(function(*args, **kwargs), deep=name in ("batch", "slice"))

    return filtered


def _check_join(value: Any, d: Any = "", attribute: Any = None) -> Any:
    items = list(value)
    _now.get().afford(len(items) * (len(str(d)) + 1))
    _weigh(items, _now.get())
    return items


def _check_replace(value: Any, old: Any, new: Any, count: int | None = None) -> Any:
    whole = str(value)
    times = whole.count(str(old))
    if (times if count is None else min(count, times)) * len(str(new)) > MAX_REPEAT:
        raise SecurityError("the result of replace is too long")
    return value


def _check_parts(value: Any, parts: int = 0, fill_with: Any = None, **named: int) -> Any:
    for count in (parts, *named.values()):
        _check_count(count)
    return value


def _check_int(value: Any, default: int = 0, base: int = 10) -> Any:
    if isinstance(value, _SIZED):
        check_size(len(value))
    return value


def _check_round(value: Any, precision: int = 0, method: str = "common") -> Any:
    _check_count(precision, 100)
    return value


def _check_json(value: Any, indent: int | None = None) -> Any:
    _check_count(indent or 0, 8)
    return value


def _check_sum(value: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, int | float):
        raise SecurityError("sum takes only numbers")
    return value


_CHECKS: dict[str, Callable[..., Any]] = {
    "join": _check_join,
    "replace": _check_replace,
    "batch": _check_parts,
    "slice": _check_parts,
    "int": _check_int,
    "round": _check_round,
    "tojson": _check_json,
    "sum": _check_sum,
}


def _join_texts(parts: list[Any]) -> str:
    texts = [str(part) for part in parts]
    _now.get().pay(sum(map(len, texts)))
    return "".join(texts)


def _weighed(value: Any) -> Any:
    return charged(value, deep=True)


def _sought(held: Any) -> Any:
    """Pay for going through a list or a text to look for something; a mapping costs nothing."""
    if isinstance(held, _SIZED):
        _now.get().pay(len(held))
    return held


def _turns(items: Any) -> Any:
    """Pay for each turn of a loop; return a list, since loops may ask for its length."""
    budget, found = _now.get(), []
    for item in items:
        budget.pay(_TURN)
        found.append(item)
    return found


def refuse_statements(tree: nodes.Template) -> None:
    """Refuse statements other than if, for and set, which could run without end."""
    for node in tree.find_all(nodes.Stmt):
        if not isinstance(node, _STATEMENTS):
            what = type(node).__name__.lower()
            raise TemplateSyntaxError(
                f"routines can only use if, for and set, found {what}", node.lineno
            )
        if isinstance(node, nodes.For) and node.recursive:
            raise TemplateSyntaxError("routines can't use recursive loops", node.lineno)


class Counting(NodeTransformer):
    """Adds metering to a tree: for new texts, lists and mappings, and for the turns of loops."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`a ~ b`."""
        self.generic_visit(node)
        return _through(_JOINED, nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`[a, b]`; a list of constants is small."""
        self.generic_visit(node)
        plain = all(isinstance(item, nodes.Const) for item in node.items)
        return node if plain else _through(_WEIGHED, node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`(a, b)`, but not the names that a loop sets."""
        self.generic_visit(node)
        plain = all(isinstance(item, nodes.Const) for item in node.items)
        return node if plain or node.ctx != "load" else _through(_WEIGHED, node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`{a: b}`."""
        self.generic_visit(node)
        return _through(_WEIGHED, node)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`a in b`."""
        self.generic_visit(node)
        for operand in node.ops:
            if operand.op in ("in", "notin") and not isinstance(operand.expr, nodes.Const):
                operand.expr = _through(_SOUGHT, operand.expr)
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`given(a.b)`: what is not there is no error."""
        if isinstance(node.node, nodes.Name) and node.node.name == given.__name__:
            node.args = [_through(_IF_THERE, _lenient(arg)) for arg in node.args]
        self.generic_visit(node)
        return node

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`{% for a in b %}`."""
        self.generic_visit(node)
        node.iter = _through(_TURNS, node.iter)
        return node


def _through(name: str, node: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def _lenient(node: nodes.Node) -> nodes.Node:
    """Return a reference that is undefined where one of its parts is not there."""
    if isinstance(node, nodes.Getattr):
        return _through(_PART, _lenient(node.node), nodes.Const(node.attr, lineno=node.lineno))
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return _through(_PART, _lenient(node.node), node.arg)
    return node


@jinja2.pass_environment
def _part(environment: jinja2.Environment, value: Any, part: Any) -> Any:
    return value if isinstance(value, jinja2.Undefined) else environment.getitem(value, part)


def _if_there(value: Any) -> Any:
    """Return a value, or ABSENT for what is not there. A function is not a value."""
    is_there = not (isinstance(value, jinja2.Undefined | Missing) or callable(value))
    return value if is_there else ABSENT


class _MethodIfCalled(jinja2.StrictUndefined):
    """`order.items()` is the method; `order.items` without such a key is undefined."""

    # Jinja reads these attributes of everything that it calls.
    unsafe_callable = alters_data = False
    jinja_pass_arg = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._undefined_obj, str(self._undefined_name))(*args, **kwargs)


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return the key `b` for `a.b` on a mapping, even if dict has a method of that name."""
        if isinstance(obj, Mapping):
            if attribute in obj:
                return obj[attribute]
            kind = _MethodIfCalled if attribute in _OF_MAPPINGS else self.undefined
            return kind(obj=obj, name=attribute)
        if isinstance(obj, Missing):
            return obj
        if isinstance(obj, _PLAIN) and attribute not in _METHODS:
            return self.unsafe_undefined(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return the key `b` for `a["b"]`, else the same as `a.b`."""
        if isinstance(argument, str) and not isinstance(obj, Mapping):
            return self.getattr(obj, argument)
        try:
            found = obj[argument]
        except (LookupError, TypeError):
            return self.undefined(obj=obj, name=argument)
        return charged(found) if isinstance(argument, slice) else found

    # The parameter names are Jinja's: any other name could also be an argument's.
    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - see above
        """Call a function and pay for its result."""
        return charged(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator within the limits, and pay for its result."""
        check_operands(operator, left, right)
        found = super().call_binop(context, operator, left, right)
        return charged(found, deep=isinstance(found, list | tuple))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        refuse_statements(tree)
        return tree

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        counted = Counting().visit(source)
        counted.set_environment(self)
        return super()._generate(counted, *args, **kwargs)


class Sandboxed:
    """Compiles expressions and texts in Jinja's sandbox."""

    missing = object()

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._environment = _Environment(
            undefined=jinja2.StrictUndefined,
            finalize=_finalize,
            autoescape=False,  # these are values for tools, not HTML
            keep_trailing_newline=True,
        )
        self._environment.globals = dict(functions)
        self._environment.filters = bounded_filters()
        self._environment.tests |= {"in": _is_in}

    def expression(self, source: str, place: str) -> Evaluate:
        """Compile a bare expression; its value keeps its type."""
        with _explained(place, source), budget():
            compiled = self._environment.compile_expression(source, undefined_to_none=False)

        def evaluate(scope: Scope) -> Any:
            with _explained(place, source, scope), budget():
                value = compiled(**scope)
                if isinstance(value, jinja2.Undefined):
                    str(value)  # raises an error that names what is undefined
                return _settled(value)

        return evaluate

    def text(self, source: str, place: str) -> Evaluate:
        """Compile a text with expressions in it."""
        with _explained(place, source), budget():
            template = self._environment.from_string(source)

        def evaluate(scope: Scope) -> Any:
            with _explained(place, source, scope), budget():
                return "".join(map(charged, template.generate(scope)))

        return evaluate

    def names(self, source: str, place: str) -> set[str]:
        """Return the names that a text refers to."""
        with _explained(place, source):
            tree = self._environment.parse(source)
            # Jinja knows the functions, and leaves them out.
            return jinja2.meta.find_undeclared_variables(tree) | self._hidden(tree)

    def _hidden(self, tree: nodes.Template) -> set[str]:
        """Return the names of functions that a text uses as values, and neither calls nor sets."""
        called = {id(call.node) for call in tree.find_all(nodes.Call)}
        names = [name for name in tree.find_all(nodes.Name) if id(name) not in called]
        own = {name.name for name in names if name.ctx != "load"}
        return ({name.name for name in names} - own) & self._environment.globals.keys()

    def syntax(self, source: str, place: str, *, bare: bool) -> Any:
        """Parse a text or a bare expression."""
        with _explained(place, source):
            if not bare:
                return self._environment.parse(source)
            parser = Parser(self._environment, source, state="variable")
            expression = parser.parse_expression()
            if not parser.stream.eos:
                parser.fail("more than one expression")
            return expression

    def lexed(self, source: str, place: str) -> list[tuple[int, str, str]]:
        """Return the tokens of a text."""
        with _explained(place, source):
            return list(self._environment.lex(source))

    def attribute(self, value: Any, name: str) -> Any:
        """Return an attribute that the sandbox allows, else `missing`."""
        found = self._environment.getattr(value, name)
        return self.missing if isinstance(found, jinja2.Undefined) else found


def _finalize(value: Any) -> Any:
    return as_text(value) if isinstance(value, dict | list) else value


def _settled(value: Any) -> Any:
    """Return a list for a lazy filter; refuse functions, which are not values."""
    if isinstance(value, Iterator):
        return list(value)
    if type(value) is Missing:
        return ""
    if callable(value) and not isinstance(value, type):
        raise SecurityError("the value is a function; call it, or name a key")
    return value


class _explained:  # noqa: N801 - reads as a word in `with _explained(…)`
    """Turns Jinja's errors into ExpressionError, with the place and the name."""

    def __init__(self, place: str, source: str, scope: Scope | None = None) -> None:
        self._place, self._source, self._scope = place, source, scope

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, ExpressionError) or not isinstance(error, Exception):
            return
        if isinstance(error, jinja2.TemplateSyntaxError):
            message = f"{self._source.strip()[:80]!r} is not a valid expression: {error.message}"
            raise ExpressionError(message, place=self._place) from error
        if isinstance(error, jinja2.UndefinedError) and self._scope is not None:
            message = str(error)
            name = message.split("'")[1] if message.endswith("is undefined") else ""
            if name and name not in self._scope:
                raise undefined(name, self._scope, self._place) from error
        message = f"{self._source.strip()[:80]!r} failed: {str(error) or type(error).__name__}"
        raise ExpressionError(message, place=self._place) from error
