"""Words: say in plain English what an expression of a compiled routine stands for."""

import ast
import re
from collections.abc import Callable
from typing import Any

from em.values.syntax_tree import expression_of

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "is",
    ast.NotEq: "is not",
    ast.Gt: "is above",
    ast.GtE: "is at least",
    ast.Lt: "is below",
    ast.LtE: "is at most",
}
_CONSTANTS = {"true": "true", "false": "false", "none": "empty", "None": "empty"}
_STATEMENTS = frozenset("given distinct stands_once stands_in lists_only".split())
"""Functions that are said as a whole sentence."""
_WRITTEN = frozenset(("float", "string", "lower", "upper", "int"))
"""Forms in which a value is compared, which its words don't say."""
_SUMS: dict[type[ast.operator], str] = {ast.Add: "plus", ast.Sub: "minus", ast.Mult: "times"}


def in_words(text: str) -> str:
    """Say what a value is: `order.total`, the only one of `items`, always 100."""
    bare = text.strip()
    if bare.startswith("{{") and bare.endswith("}}") and bare.count("{{") == 1:
        bare = bare[2:-2].strip()
    if "{{" in bare:
        return _filled_in(bare)
    node = _parsed(bare)
    if node is None:
        return f"`{bare}`"
    if _is_constant(node):
        return f"always {_said(node)}"
    if isinstance(node, ast.Name):
        return f"the input `{node.id}`"
    return _said(node)


def _filled_in(text: str) -> str:
    """Quote a text with values in it: the names of inputs in braces, … for what is computed."""

    def part(found: re.Match[str]) -> str:
        return f"{{{found[1]}}}" if found[1].isidentifier() else "…"

    plain = re.sub(r"\{\{\s*(.*?)\s*\}\}", part, text)
    return f"the text {_quoted(plain)}"


def _quoted(value: Any) -> str:
    """Return a value as JSON writes it."""
    import json

    return json.dumps(value, ensure_ascii=False)


def check_in_words(text: str) -> str:
    """Say what a check requires: `order.status` is "delivered"."""
    node = _parsed(text)
    if node is None:
        return f"`{text}` holds"
    plain = _about_a_selection(node)
    if plain is not None:
        return plain
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.Or) else ", and "
        return word.join(check_in_words(ast.unparse(one)) for one in node.values)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in _STATEMENTS:
        return _said(node)
    if (
        isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.Not)
        and _is_standing(node.operand)
    ):
        return _said(node.operand).replace(" stands in ", " does not stand in ", 1)
    return " ".join(_compared(node) or (_said(node), "holds"))


def _is_standing(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "stands_in"


def _about_a_selection(node: ast.expr) -> str | None:
    """Say that something fits a selection, or that nothing does; None for other checks."""
    is_not = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    call = node.operand if isinstance(node, ast.UnaryOp) and is_not else node
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "where":
        return None
    found = _said(call)
    if not found.startswith("all of "):
        return None
    return f"{'none' if is_not else 'one'} {found.removeprefix('all ')} is there"


def _compared(node: ast.expr | None) -> tuple[str, str, str] | None:
    """Return what is compared, how and with what, in words; None for other checks."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        return _contained(node)
    (right,), how = node.comparators, _COMPARISONS.get(type(node.ops[0]), "?")
    return _said(node.left), how, _said(right)


def _contained(node: ast.Compare) -> tuple[str, str, str]:
    """Say that a value is one of some, or that none of some is this value."""
    (right,), word = node.comparators, "not " if isinstance(node.ops[0], ast.NotIn) else ""
    if _is_constant(node.left) and not isinstance(right, ast.List):
        how = f"is {word}" if isinstance(right, ast.Call) else f"has {'no' if word else ''}"
        return _said(right), how.strip(), _said(node.left)
    several = isinstance(right, ast.List) and [_said(one) for one in right.elts]
    if several and len(several) == 1:
        return _said(node.left), f"is {word}".strip(), several[0]
    among = ", ".join(several) if several else _said(right)
    is_known_list = isinstance(right, ast.List | ast.Call)
    return _said(node.left), f"is {word}{'one of' if is_known_list else 'in'}", among


_TEXT_OR_JOIN = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|~""")


def _parsed(text: str) -> ast.expr | None:
    # Python joins no texts with `~`; `@`, which expressions don't have, stands for it.
    text = _TEXT_OR_JOIN.sub(lambda found: found[1] or "@", text.strip())
    try:
        return expression_of(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last: brackets too deep
        return None


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in _CONSTANTS)


def _said(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return _quoted(node.value)
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _called(node, node.func.id)
    plain = _computed(node) if isinstance(node, ast.BinOp) else _behind_a_call(node)
    return f"`{ast.unparse(node)}`" if plain is None else plain


def _computed(node: ast.BinOp) -> str | None:
    """Say what a sum, a joined text or a text that is read as a number is; None for others."""
    if isinstance(node.op, ast.MatMult):
        return f"the text {_quoted(_joined(node))}"
    if isinstance(node.op, ast.BitOr) and ast.unparse(node.right) in _WRITTEN:
        return _said(node.left)
    sign = _SUMS.get(type(node.op))
    return sign and f"{_said(node.left)} {sign} {_said(node.right)}"


def _joined(node: ast.expr) -> str:
    """Return joined texts as one: the names of values in braces, … for what is computed."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return f"{_joined(node.left)}{_joined(node.right)}"
    if isinstance(node, ast.Constant):
        return str(node.value)
    return f"{{{node.id}}}" if isinstance(node, ast.Name) else "…"


def _behind_a_call(node: ast.expr) -> str | None:
    """Say what a field of a selected item is; None for other expressions."""
    path = ""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            path = f".{node.attr}{path}"
        else:
            path = f"[{ast.unparse(node.slice)}]{path}"
        node = node.value
    if not path or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    return f"`{path.lstrip('.')}` of {_called(node, node.func.id)}"


def _called(node: ast.Call, name: str) -> str:
    say = _SAID.get(name)
    try:
        if say is not None:
            return say(node)
    except (LookupError, TypeError):
        pass  # an author wrote it in another way
    return f"`{ast.unparse(node)}`"


def _text(node: ast.expr) -> str:
    """Return a path that is written as a text."""
    if not isinstance(node, ast.Constant):
        raise TypeError
    return str(node.value)


def _items(node: ast.expr) -> str:
    """Name the values that something is selected from."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_items(node.left)} and {_items(node.right)}"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "every":
        return f"`{ast.unparse(node.args[0])}.{_text(node.args[1])}`"
    return _said(node)


def _chosen(node: ast.Call) -> str:
    """Say which one of some values is meant: the only one, or the one with these fields."""
    fields = " and ".join(_fields(node, 1))
    items = _items(node.args[0])
    return f"the one of {items} where {fields}" if fields else f"the only one of {items}"


def _all_that_fit(node: ast.Call) -> str:
    fields = " and ".join(_fields(node, 1))
    items = _items(node.args[0])
    return f"all of {items} where {fields}" if fields else items


def _fields(node: ast.Call, first: int) -> list[str]:
    """Say what the fields of a selection must be; its description may stand at a position."""
    found = []
    for more in node.args[first:]:
        if not isinstance(more, ast.Dict) or None in more.keys:
            raise TypeError
        pairs = zip(more.keys, more.values, strict=True)
        found += [f"{_text(key)} is {_said(one)}" for key, one in pairs if key]
    return [*found, *(f"{one.arg} is {_said(one.value)}" for one in node.keywords)]


def _outermost(node: ast.Call, which: str) -> str:
    fields = " and ".join(_fields(node, 2))
    one = f"the one of {_items(node.args[0])} with the {which} {_text(node.args[1])}"
    return f"{one} where {fields}" if fields else one


def _saying(form: str) -> Callable[[ast.Call], str]:
    """Return a function that fills its arguments in words into a text."""
    return lambda node: form.format(*map(_said, node.args))


_SAID: dict[str, Callable[[ast.Call], str]] = {
    "every": _items,
    "only": _chosen,
    "where": _all_that_fit,
    "only_key": lambda node: f"the key of {_chosen(node)}",
    "smallest": lambda node: _outermost(node, "smallest"),
    "largest": lambda node: _outermost(node, "largest"),
    "given": lambda node: f"{' and '.join(map(_said, node.args))} is given",
    "distinct": lambda node: f"no value of {_items(node.args[0])} is there twice",
    "days": _saying("the days from {0} to {1}"),
    "elapsed": lambda node: _saying(f"the {_text(node.args[2])} from {{0}} to {{1}}")(node),
    "later": _saying("{1} days after {0}"),
    "between": _saying("the part of {0} between {1} and {2}"),
    "line_place": lambda node: _PLACES[_text(node.args[1])](node),
    "next_number": _saying("the number behind the greatest one between {1} and {2} in {0}"),
    "stands_in": lambda node: _saying(
        "{1} stands in {0}" + (" {2} times" if len(node.args) > 2 else "")
    )(node),
    "stands_once": _saying("{1} stands once in {0}"),
    "lists_only": lambda node: (
        f"{_said(node.args[0])} lists only {', '.join(map(_said, node.args[1:]))}"
    ),
    "part_of": lambda node: f"the {_text(node.args[1])} of {_said(node.args[0])}",
    "structure": _saying("{0}"),
    "len": lambda node: f"the number of {_items(node.args[0])}",
}
_PLACES: dict[str, Callable[[ast.Call], str]] = {
    "end": _saying("the end of {0}"),
    "after": _saying("behind {2} in {0}"),
    "before": _saying("before {2} in {0}"),
    "before first": _saying("before the first line of {0} that begins with {2}"),
    "after last": _saying("behind the last line of {0} that begins with {2}"),
    "after block": _saying("the end of the lines of {0} that begin with {2}"),
    "after list": _saying("the end of the list below {2} in {0}"),
    "in order": _saying("in order among the lines of {0} that begin with {2}"),
}
"""What `line_place` finds."""
