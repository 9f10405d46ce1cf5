"""The bounds of an expression: what it makes and goes through is counted, and may not be too much.

A routine is data that anyone may have sent. Each evaluation has a budget; texts, lists, turns of
loops and what filters yield are paid from it, before they are made where little makes much.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.visitor import NodeTransformer

MAX_REPEAT = 1_000_000
"""Length of what an expression may make by repeating."""
MAX_WORK = 50_000_000
"""What one evaluation may make in all: signs of texts, and items by their cost."""
MAX_BITS = 4096
"""Size of a whole number."""
_ITEM, _TURN = 8, 100
_JOINED, _WEIGHED, _TURNS = "em joined", "em weighed", "em turns"

_FILTERS = (
    "abs batch capitalize count d default dictsort e escape filesizeformat first float forceescape"
    " groupby int items join last length list lower map max min reject rejectattr replace reverse"
    " round safe select selectattr slice sort string striptags sum title tojson trim truncate"
    " unique upper urlencode wordcount"
).split()
_METHODS = frozenset(
    "lower upper strip lstrip rstrip split rsplit splitlines startswith endswith title capitalize"
    " casefold swapcase find rfind index rindex count isdigit isdecimal isnumeric isalpha isalnum"
    " isspace islower isupper istitle isidentifier isascii removeprefix removesuffix partition"
    " rpartition is_integer".split()
)
_PLAIN = (str, bytes, bytearray, int, float, complex, list, tuple, set, frozenset, range)
_SIZED = (str, bytes, bytearray, list, tuple)
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Macro: "macro",
    nodes.CallBlock: "call",
    nodes.FilterBlock: "filter",
    nodes.AssignBlock: "set … endset",
    nodes.Block: "block",
    nodes.Extends: "extends",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
}


class _Budget:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_WORK

    def pay(self, cost: int) -> None:
        self.left -= cost
        if self.left < 0:
            raise _too_much()

    def afford(self, cost: int) -> None:
        if cost > self.left:
            raise _too_much()


def _too_much() -> SecurityError:
    return SecurityError("that is too much: it makes or goes through too many things")


_now: ContextVar[_Budget] = ContextVar("_now")


@contextmanager
def budget() -> Iterator[None]:
    """One evaluation, and what it may use."""
    token = _now.set(_Budget())
    try:
        yield
    finally:
        _now.reset(token)


def charged(value: Any, *, deep: bool = False) -> Any:
    """A value that was made, paid for. `deep`: it may hold the same things many times."""
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
    """Pay for everything in a value, as often as it stands there: so often it will be written."""
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


def may_have(value: Any, attribute: str) -> bool:
    """Whether this may be asked of a value: of plain ones only what makes not much of little."""
    return attribute in _METHODS or not isinstance(value, _PLAIN)


def check_operands(operator: str, left: Any, right: Any) -> None:
    """Refuse what would make too much, before it does."""
    if operator == "**":
        if abs(right) > 64 or abs(left) > MAX_REPEAT:
            raise SecurityError("that power is too large")
    elif operator == "*":
        _check_product(left, right)
    elif operator == "+":
        if isinstance(left, _SIZED) and isinstance(right, _SIZED):
            _now.get().afford(len(left) + len(right))
    elif isinstance(left, str | bytes | bytearray):
        raise SecurityError("text is not formatted with %; write {{ … }} inside it")


def _check_product(left: Any, right: Any) -> None:
    for what, times in ((left, right), (right, left)):
        if isinstance(what, _SIZED) and len(what) * times > MAX_REPEAT:
            raise SecurityError("that repeats too often")
    whole = isinstance(left, int) and isinstance(right, int)
    if whole and left.bit_length() + right.bit_length() > MAX_BITS:
        raise SecurityError("that number is too large")


def bounded_function(function: Any) -> Any:
    """The function, or the one that is bounded in its place."""
    if function is sum:
        return _sum
    return _round if function is round else function


def _sum(items: Iterable[Any], start: Any = 0) -> Any:
    total = start
    for item in items:
        if isinstance(item, str | bytes) or isinstance(total, str | bytes):
            raise TypeError("texts are joined, not summed")
        check_operands("+", total, item)
        total = charged(total + item, deep=isinstance(total, list | tuple))
    return total


def _round(number: Any, ndigits: int | None = None) -> Any:
    _check_count(ndigits or 0, 400)
    return round(number, ndigits)


def _check_count(count: int, limit: int = MAX_REPEAT) -> None:
    if abs(count) > limit:
        raise SecurityError(f"more than {limit:,} is too many")


def bounded_filters(filters: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The filters that routines have; what each gives is paid for."""
    known = {name: _charging(name, filters[name]) for name in _FILTERS}
    return known | {_JOINED: _join_texts, _WEIGHED: _weighed, _TURNS: _turns}


_FREE = frozenset("length count first last default d".split())


def _charging(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    check = _CHECKS.get(name)
    # Jinja may give the environment, or the like, before the value.
    at = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        value = args[at]
        if check is not None:
            value = check(value, *args[at + 1 :], **kwargs)
            args = (*args[:at], value, *args[at + 1 :])
        if name not in _FREE and isinstance(value, _SIZED):
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
        raise SecurityError("that replaces too much")
    return value


def _check_parts(value: Any, parts: int = 0, fill_with: Any = None, **named: int) -> Any:
    for count in (parts, *named.values()):
        _check_count(count)
    return value


def _check_round(value: Any, precision: int = 0, method: str = "common") -> Any:
    _check_count(precision, 100)
    return value


def _check_json(value: Any, indent: int | None = None) -> Any:
    _check_count(indent or 0, 8)
    return value


def _check_sum(value: Any, attribute: Any = None, start: Any = 0) -> Any:
    if not isinstance(start, int | float):
        raise SecurityError("only numbers are summed")
    return value


_CHECKS: dict[str, Callable[..., Any]] = {
    "join": _check_join,
    "replace": _check_replace,
    "batch": _check_parts,
    "slice": _check_parts,
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


def _turns(items: Any) -> Any:
    """What a loop goes through, each turn paid for; a list, as loops may ask how long it is."""
    budget, found = _now.get(), []
    for item in items:
        budget.pay(_TURN)
        found.append(item)
    return found


def refuse_statements(tree: nodes.Template) -> None:
    """Only if, for and set stand in the texts of a routine: others could go on without end."""
    for node in tree.find_all(nodes.Stmt):
        if type(node) in _REFUSED:
            what = _REFUSED[type(node)]
            raise TemplateSyntaxError(f"{{% {what} %}} is not for routines", node.lineno)
        if isinstance(node, nodes.For) and node.recursive:
            raise TemplateSyntaxError("a loop is not recursive in routines", node.lineno)


class Counting(NodeTransformer):
    """A tree in which what is put together, and each turn of a loop, is counted."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`a ~ b`."""
        self.generic_visit(node)
        return _through(_JOINED, nodes.List(node.nodes, lineno=node.lineno))

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`[a, b]`; constants alone can't become much."""
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

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's name
        """`{% for a in b %}`."""
        self.generic_visit(node)
        node.iter = _through(_TURNS, node.iter)
        return node


def _through(name: str, node: nodes.Node) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
