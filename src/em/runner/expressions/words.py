"""Words: say in plain English what an expression of a compiled routine stands for."""

import ast
import re
from collections.abc import Callable
from typing import Any

from em.values.canonical import short
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
_FORM_NAMES = {
    "e-mail": "an e-mail",
    "none": "empty",
    **{form: f"a {form}" for form in ("date", "time", "number", "code", "word", "text")},
}
"""What `kind_of` returns, in words."""
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


_NEAR = 40
"""Characters that are shown of a request on each side of what varies."""


def request_in_words(template: str) -> str:
    """Quote the template of a request; of a long one, the words around what varies."""
    parts = re.split(r"(\{\{.*?\}\})", " ".join(template.split()))
    for number in range(0, len(parts), 2):
        text = parts[number]
        if len(text) > 2 * _NEAR:
            head = text[: _NEAR if number else 0].rpartition(" ")[0]
            tail = text[-_NEAR:].partition(" ")[2] if number < len(parts) - 1 else ""
            if not head and not tail:
                head = text[: 2 * _NEAR].rpartition(" ")[0] or text[:_NEAR]
            parts[number] = " ".join(filter(None, (head, "…", tail)))
    return _quoted("".join(parts))


def check_in_words(text: str) -> str:
    """Say what a check requires: `order.status` is "delivered", `result` reports no error."""
    node = _parsed(text)
    plain = _about_a_result(node)
    if plain is not None:
        return plain
    if node is None:
        return f"`{text}` holds"
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.Or) else ", and "
        return word.join(check_in_words(ast.unparse(one)) for one in node.values)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "among" and len(node.args) > 1:
        return f"{_said(node.args[1])} is {_said(node)}"
    return " ".join(_compared(node) or (_said(node), "holds"))


def change_in_words(text: str, now: Any) -> str:
    """Say what was and what is: `order.status` is "paid" now; it was "open" when recorded.

    now: the value of the left side of the check, which does not hold.
    """
    node = _parsed(text)
    about = _change_of_a_result(node, now)
    if about is not None:
        return about
    compared = _compared(node)
    if compared is None:
        return f"{past_in_words(text)}, and does not hold now"
    if _is_one_of(node):
        return f"{compared[0]} is {_in_short(now)} now; it {_past(node, compared)} when recorded"
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        # `now` is not the value that is looked for.
        is_other = isinstance(node.ops[0], ast.NotIn) and _is_constant(node.left)
        end = f"it is {compared[2]} now" if is_other else "it is not so now"
        return f"{past_in_words(text)}; {end}"
    is_now = _in_short(now)
    if _is_form(node) and isinstance(now, str):
        is_now = _FORM_NAMES.get(now, short(now))
    return f"{compared[0]} is {is_now} now; it {_past(node, compared)} when recorded"


def left_of(text: str) -> str:
    """Return the left side of a comparison, also of one with a list of values."""
    if _is_one_of(_parsed(text)):
        return text.partition(" in [")[0]
    return re.split(r" (?:==|>=|<=|>|<|!=) ", text)[0]


def _is_one_of(node: ast.expr | None) -> bool:
    """Return whether a check is that something is one of some values."""
    if not isinstance(node, ast.Compare) or [type(op) for op in node.ops] != [ast.In]:
        return False
    return isinstance(node.comparators[0], ast.List) and not _is_constant(node.left)


def _in_short(value: Any) -> str:
    return "empty" if value is None else short(value)


def _change_of_a_result(node: ast.expr | None, now: Any) -> str | None:
    """Say how what a read returned differs from all recorded results; None for other checks."""
    if not isinstance(node, ast.Compare) or not isinstance(node.left, ast.Call):
        return None
    name, args = ast.unparse(node.left.func), node.left.args
    if name == "size_of" and ast.unparse(node.comparators[0]) != "0":
        return None
    say = _CHANGES.get((name, now != "nothing" and bool(now)))
    if say is None or not args:
        return None
    listed = ", ".join(map(str, now)) if isinstance(now, list) else now
    shown = listed if isinstance(listed, str) else short(listed)
    members = counted(now, "member") if isinstance(now, int) else ""
    return say.format(what=_said(args[0]), now=shown, members=members)


_CHANGES = {
    ("error_of", True): "{what} reports an error: {now}",
    ("shape_of", False): "there is no such {what} now; all recorded runs had one",
    ("size_of", True): "{what} was empty in all recorded runs; now it has {members}",
    ("size_of", False): "{what} was not empty in any recorded run; now it is",
    ("strange_keys", True): "{what} has a field that no recorded one had: {now}",
    ("empty_keys", True): "{what} had in all recorded runs what is missing now: {now}",
    ("strange_items", True): "{what} has what no recorded one had: {now}",
    ("strange_fields", True): "{what} is unlike all recorded ones: {now}",
    ("strange_text", True): "{what} says what no recorded one said: {now}",
}
"""By function, and whether it returns something now."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 member, 2 members."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def past_in_words(text: str) -> str:
    """Say what a check has shown: `order.status` was "open" when recorded."""
    node = _parsed(text)
    compared = _compared(node)
    if compared is not None:
        return f"{compared[0]} {_past(node, compared)} when recorded"
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "among" and len(node.args) > 1:
        return f"{_said(node.args[1])} was {_said(node)} when recorded"
    return f"{f'`{text}`' if node is None else _said(node)} held when recorded"


def _compared(node: ast.expr | None) -> tuple[str, str, str] | None:
    """Return what is compared, how and with what, in words; None for other checks."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        return _contained(node)
    (right,), how = node.comparators, _COMPARISONS.get(type(node.ops[0]), "?")
    if isinstance(node.left, ast.Call) and _is_form(node):
        form = str(right.value) if isinstance(right, ast.Constant) else ""
        return _said(node.left.args[0]), how, _FORM_NAMES.get(form, _said(right))
    return _said(node.left), how, _said(right)


def _contained(node: ast.Compare) -> tuple[str, str, str]:
    """Say that a value is one of some, or that none of some is this value."""
    (right,), word = node.comparators, "not " if isinstance(node.ops[0], ast.NotIn) else ""
    if _is_constant(node.left) and not isinstance(right, ast.List):
        return _said(right), f"is {word}".strip(), _said(node.left)
    several = isinstance(right, ast.List) and [_said(one) for one in right.elts]
    if several and len(several) == 1:
        return _said(node.left), f"is {word}".strip(), several[0]
    among = ", ".join(several) if several else _said(right)
    return _said(node.left), f"is {word}one of", among


def _is_form(node: ast.expr | None) -> bool:
    """Return whether a check is about what a value looks like."""
    left = node.left if isinstance(node, ast.Compare) else None
    return isinstance(left, ast.Call) and ast.unparse(left.func) == "kind_of" and bool(left.args)


def _past(node: ast.expr | None, compared: tuple[str, str, str]) -> str:
    """Say how something compared when it was recorded."""
    _, how, right = compared
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
        how = "is" if _is_constant(node.comparators[0]) or _is_form(node) else "is the same as"
    return f"{how.replace('is', 'was', 1)} {right}"


def _about_a_result(node: ast.expr | None) -> str | None:
    """Say what is expected of a result; None for other checks."""
    if not isinstance(node, ast.Compare) or [type(op) for op in node.ops] != [ast.Eq]:
        return None
    call, right = node.left, node.comparators[0]
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or not call.args:
        return None
    what, wanted = _said(call.args[0]), ast.unparse(right)
    if call.func.id == "shape_of" and isinstance(right, ast.Constant):
        shape = str(right.value)
        return f"{what} is {shape}" if shape == "nothing" else f"{what} is a {shape}"
    if call.func.id == "strange_items" and not isinstance(call.args[-1], ast.List):
        return f"{what} has just what {_said(call.args[-1])} has"
    say = _EXPECTED.get((call.func.id, wanted.lower()))
    return say and say.format(what, ", ".join(map(_said, call.args[1:])))


_EXPECTED = {
    ("error_of", "none"): "{0} reports no error",
    ("missing_keys", "none"): "{0} has {1}",
    ("empty_keys", "none"): "{0} has {1}",
    ("strange_keys", "none"): "{0} has no field that no recorded one had",
    ("strange_items", "none"): "{0} has nothing that no recorded one had",
    ("strange_fields", "none"): "{0} is like all recorded ones",
    ("strange_text", "none"): "{0} says nothing that no recorded one said",
    ("size_of", "0"): "{0} is empty",
}
"""By function, and what it must return."""


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
    if isinstance(node, ast.BinOp) and type(node.op) in (*_SUMS, ast.MatMult):
        sign = _SUMS.get(type(node.op))
        joined = f"the text {_quoted(_joined(node))}"
        return f"{_said(node.left)} {sign} {_said(node.right)}" if sign else joined
    behind = _behind_a_call(node)
    if behind is not None:
        return behind
    return f"`{ast.unparse(node)}`"


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
    except (IndexError, TypeError):
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


def _pick(node: ast.Call) -> str:
    fields = " and ".join(f"{one.arg} is {_said(one.value)}" for one in node.keywords)
    return f"the one of {_items(node.args[0])} where {fields}"


def _select(node: ast.Call) -> str:
    where = [*(one.value for one in node.keywords if one.arg == "where"), *node.args[1:]][0]
    if not isinstance(where, ast.Dict) or not where.keys:
        raise TypeError
    pairs = [(key, one) for key, one in zip(where.keys, where.values, strict=True) if key]
    fields = " and ".join(f"{_text(key)} is {_said(one)}" for key, one in pairs)
    return f"all of {_items(node.args[0])} where {fields}"


def _outermost(node: ast.Call, which: str) -> str:
    return f"the one of {_items(node.args[0])} with the {which} {_text(node.args[1])}"


def _fact(node: ast.Call) -> str:
    key, wanted, field = _text(node.args[1]), _said(node.args[2]), _text(node.args[3])
    return f"`{field}` of {_items(node.args[0])} where {key} is {wanted}"


def _still_found(node: ast.Call) -> str:
    value, path, facts = _said(node.args[1]), _text(node.args[3]), node.args[5]
    said = f"{value} was in `{ast.unparse(node.args[2])}{path and f'.{path}'}`"
    if isinstance(facts, ast.Dict) and facts.keys:
        pairs = zip(facts.keys, facts.values, strict=True)
        said += ", " + ", ".join(f"{_text(key)} {_said(fact)}" for key, fact in pairs if key)
    return said


_SAID: dict[str, Callable[[ast.Call], str]] = {
    "among": lambda node: f"one of {_items(node.args[0])}",
    "every": _items,
    "only": lambda node: f"the only one of {_items(node.args[0])}",
    "pick": _pick,
    "select": _select,
    "least": lambda node: _outermost(node, "smallest"),
    "most": lambda node: _outermost(node, "largest"),
    "fact_of": _fact,
    "still_found": _still_found,
    "least_of": lambda node: f"the smallest {_fact(node)}",
    "strange_keys": lambda node: f"what no recorded one had in {_said(node.args[0])}",
    "strange_items": lambda node: f"what no recorded one had in {_said(node.args[0])}",
    "strange_fields": lambda node: f"what is unlike all recorded ones in {_said(node.args[0])}",
    "parsed": lambda node: _said(node.args[0]),
    "empty_keys": lambda node: f"what is missing in {_said(node.args[0])}",
    "strange_text": lambda node: f"what no recorded one said in {_said(node.args[0])}",
    "size_of": lambda node: f"the size of {_said(node.args[0])}",
    "error_of": lambda node: f"the error of {_said(node.args[0])}",
    "keyed": lambda node: f"the records of {_said(node.args[0])}",
    "value_at": lambda node: f"{_said(node.args[0])} at {_said(node.args[1])}",
    "between": lambda node: (
        f"the part of {_said(node.args[0])} between {_said(node.args[1])} and {_said(node.args[2])}"
    ),
    "line_part": lambda node: (
        f"the part of a line of {_said(node.args[0])} between {_said(node.args[1])} and"
        f" {_said(node.args[2])}"
    ),
    "line_like": lambda node: (
        f"the one line of {_said(node.args[0])} like {' … '.join(map(_said, node.args[1:]))}"
    ),
    "once": lambda node: f"what stands once in {_said(node.args[0])}: {_said(node.args[1])}",
    "lines_before": lambda node: (
        f"the first line of {_said(node.args[0])} that begins with {_said(node.args[1])}"
    ),
    "absent": lambda node: f"{_said(node.args[1])} does not stand in {_said(node.args[0])}",
    "lines_after": lambda node: f"behind {_said(node.args[1])} in {_said(node.args[0])}",
    "lines_above": lambda node: f"before {_said(node.args[1])} in {_said(node.args[0])}",
    "lines_through": lambda node: (
        f"the end of the lines of {_said(node.args[0])} that begin with {_said(node.args[1])}"
    ),
    "sorted_place": lambda node: (
        f"in order among the lines of {_said(node.args[0])} that begin with {_said(node.args[1])}"
    ),
    "stands_once": lambda node: f"{_said(node.args[1])} stands once in {_said(node.args[0])}",
    "lists_only": lambda node: (
        f"{_said(node.args[0])} lists only {', '.join(map(_said, node.args[1:]))}"
    ),
    "line_count": lambda node: f"the end of {_said(node.args[0])}",
    "module_name": lambda node: f"the module of {_said(node.args[0])}",
    "looks_like": lambda node: (
        f"{_said(node.args[0])} begins with a {_text(node.args[1]) or 'sign'} and ends with a"
        f" {_text(node.args[2]) or 'sign'}"
    ),
    "len": lambda node: f"the number of {_items(node.args[0])}",
    "sum": lambda node: f"the sum of {_items(node.args[0])}",
    "str": lambda node: _said(node.args[0]),
    "int": lambda node: _said(node.args[0]),
    "float": lambda node: _said(node.args[0]),
}
