"""Expressions of a routine as Python expressions, for exported scripts.

Jinja's tree is walked by the names of its classes, so that `em.runner.expressions.jinja`
stays the only module that imports Jinja. What has no exact counterpart is refused with its place.
"""

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

from em.errors import ExportError
from em.runner.expressions.language import FUNCTIONS, parse_reference, syntax_of, whole_expression


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


COMPARING_TESTS = {
    "eq": ast.Eq, "equalto": ast.Eq, "==": ast.Eq, "ne": ast.NotEq, "!=": ast.NotEq,
    "lt": ast.Lt, "lessthan": ast.Lt, "<": ast.Lt, "le": ast.LtE, "<=": ast.LtE,
    "gt": ast.Gt, "greaterthan": ast.Gt, ">": ast.Gt, "ge": ast.GtE, ">=": ast.GtE,
    "in": ast.In, "sameas": ast.Is,
}  # fmt: skip
TYPE_TESTS = {"string": "str", "boolean": "bool", "float": "float", "mapping": "Mapping"}
PLAIN_FILTERS: dict[str, tuple[str, Sequence[str]]] = {
    "abs": ("abs", ()), "length": ("len", ()), "count": ("len", ()), "list": ("list", ()),
    "string": ("str", ()), "int": ("as_int", ("default", "base")),
    "float": ("as_float", ("default",)), "round": ("rounded", ("precision", "method")),
    "replace": ("replaced", ("old", "new", "count")), "title": ("titled", ()),
    "reverse": ("backwards", ()), "items": ("pairs", ()),
}  # fmt: skip
"""Filters that are one function, with the names of their further arguments."""
TEXT_FILTERS = {"upper": "upper", "lower": "lower", "capitalize": "capitalize", "trim": "strip"}
LAZY = frozenset("map select reject selectattr rejectattr unique reverse items".split())
TESTS_OF_WHAT_MAY_BE_MISSING = frozenset(
    "defined undefined none string mapping number boolean integer float true false".split()
)


class Filters:
    """Translates filters and tests; `python_expressions` builds on it."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._depth = 0

    def _tested(self, test: str, value: ast.expr, args: list[ast.expr]) -> ast.expr:
        if test in COMPARING_TESTS and len(args) == 1:
            return ast.Compare(value, [COMPARING_TESTS[test]()], args)
        if test in ("defined", "undefined"):
            operator = ast.IsNot() if test == "defined" else ast.Is()
            return ast.Compare(value, [operator], [name("MISSING")])
        if test in ("none", "true", "false"):
            wanted = {"none": None, "true": True, "false": False}[test]
            return ast.Compare(value, [ast.Is()], [ast.Constant(wanted)])
        if test in TYPE_TESTS:
            return call("isinstance", value, name(TYPE_TESTS[test]))
        return self._tested_otherwise(test, value, args)

    def _tested_otherwise(self, test: str, value: ast.expr, args: list[ast.expr]) -> ast.expr:
        if test in ("even", "odd") or (test == "divisibleby" and len(args) == 1):
            by = args[0] if args else ast.Constant(2)
            rest = ast.Constant(1 if test == "odd" else 0)
            return ast.Compare(call("remainder", value, by), [ast.Eq()], [rest])
        if test in ("lower", "upper"):
            return call(ast.Attribute(call("str", value), f"is{test}", ast.Load()))
        if test in ("sequence", "iterable", "number", "integer"):
            return call(f"is_{test}", value)
        raise self._refused(f"the test {test!r}")

    def _filtered(
        self, word: str, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        if word in PLAIN_FILTERS:
            function, names = PLAIN_FILTERS[word]
            given = self._bound(word, names, args, keywords)
            return call(function, value, **given)
        if word in TEXT_FILTERS:
            chars = list(self._bound(word, ("chars",), args, keywords).values())
            return call(ast.Attribute(call("str", value), TEXT_FILTERS[word], ast.Load()), *chars)
        translate = getattr(self, f"_filter_{word}", None)
        if translate is None:
            raise self._refused(f"the filter {word!r}")
        found: ast.expr = translate(value, args, keywords)
        return found

    def _bound(
        self, word: str, names: Sequence[str], args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> dict[str, ast.expr]:
        """Arguments by their names."""
        if len(args) > len(names) or not keywords.keys() <= set(names[len(args) :]):
            raise self._refused(f"the filter {word!r} with these arguments")
        return {**dict(zip(names, args, strict=False)), **keywords}

    def _filter_default(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        given = self._bound("default", ("default_value", "boolean"), args, keywords)
        other = given.get("default_value", ast.Constant(""))
        boolean = [given["boolean"]] if "boolean" in given else []
        return call("default_to", value, other, *boolean)

    _filter_d = _filter_default

    def _filter_first(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        self._bound("first", (), args, keywords)
        return call("first_of", value)

    def _filter_last(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        self._bound("last", (), args, keywords)
        return call("last_of", value)

    def _filter_join(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        given = self._bound("join", ("d", "attribute"), args, keywords)
        items = self._each(value, given["attribute"]) if "attribute" in given else value
        return call("joined", items, given.get("d", ast.Constant("")))

    def _filter_sum(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        given = self._bound("sum", ("attribute", "start"), args, keywords)
        items = self._each(value, given["attribute"]) if "attribute" in given else value
        return call("sum", items, *([given["start"]] if "start" in given else []))

    def _filter_min(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        return self._extreme("min", value, args, keywords)

    def _filter_max(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        return self._extreme("max", value, args, keywords)

    def _extreme(
        self, word: str, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        given = self._bound(word, ("case_sensitive", "attribute"), args, keywords)
        by = self._getter(given.pop("attribute", None))
        return call("extreme", name(word), value, by, **given)

    def _filter_sort(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        given = self._bound("sort", ("reverse", "case_sensitive", "attribute"), args, keywords)
        attribute = given.pop("attribute", None)
        by = self._getter(attribute, several=True)
        return call("ordered", value, by, **given)

    def _filter_unique(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        given = self._bound("unique", ("case_sensitive", "attribute"), args, keywords)
        by = self._getter(given.pop("attribute", None))
        return call("distinct", value, by, **given)

    def _filter_map(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        if not args and keywords.keys() == {"attribute"}:
            return self._each(value, keywords["attribute"])
        if not args or not isinstance(args[0], ast.Constant) or "attribute" in keywords:
            raise self._refused("the filter 'map' with these arguments")
        variable = self._variable()
        if args[0].value in ("default", "d", *LAZY):
            raise self._refused(f"the filter 'map' with {args[0].value!r}")
        item = self._filtered(str(args[0].value), name(variable), args[1:], keywords)
        return going_through(value, variable, item)

    def _filter_select(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        return self._chosen(value, args, keywords, by_attribute=False, wanted=True)

    def _filter_reject(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        return self._chosen(value, args, keywords, by_attribute=False, wanted=False)

    def _filter_selectattr(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        return self._chosen(value, args, keywords, by_attribute=True, wanted=True)

    def _filter_rejectattr(
        self, value: ast.expr, args: list[ast.expr], keywords: dict[str, ast.expr]
    ) -> ast.expr:
        return self._chosen(value, args, keywords, by_attribute=True, wanted=False)

    def _chosen(
        self,
        value: ast.expr,
        args: list[ast.expr],
        keywords: dict[str, ast.expr],
        *,
        by_attribute: bool,
        wanted: bool,
    ) -> ast.expr:
        """The items for which a test holds, or does not."""
        if keywords or (by_attribute and not args):
            raise self._refused("a choice with these arguments")
        variable = self._variable()
        test = args[1:] if by_attribute else args
        word = test[0].value if test and isinstance(test[0], ast.Constant) else None
        what: ast.expr = name(variable)
        if by_attribute:
            path = self._path(args[0])
            lenient = word in TESTS_OF_WHAT_MAY_BE_MISSING
            what = part_of(what, *path, **({"otherwise": name("MISSING")} if lenient else {}))
        if test and word is None:
            raise self._refused("a test that is not named")
        holds = self._tested(str(word), what, test[1:]) if test else what
        if not wanted:
            holds = ast.UnaryOp(ast.Not(), holds)
        return going_through(value, variable, name(variable), holds)

    def _each(self, value: ast.expr, attribute: ast.expr) -> ast.expr:
        variable = self._variable()
        return going_through(value, variable, part_of(name(variable), *self._path(attribute)))

    def _getter(self, attribute: ast.expr | None, *, several: bool = False) -> ast.expr:
        """What to compare items by: themselves, or a part of each."""
        variable = self._variable()
        texts = [attribute]
        if several and isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
            texts = [ast.Constant(part) for part in attribute.value.split(",")]
        parts = [
            name(variable) if part is None else part_of(name(variable), *self._path(part))
            for part in texts
        ]
        taken = ast.arguments(
            posonlyargs=[], args=[ast.arg(variable)], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        return ast.Lambda(taken, ast.List(parts, ast.Load()) if several else parts[0])

    def _path(self, attribute: ast.expr) -> list[ast.expr]:
        if not isinstance(attribute, ast.Constant) or not isinstance(attribute.value, str | int):
            raise self._refused("an attribute that is not named")
        if isinstance(attribute.value, int):
            return [attribute]
        parts = attribute.value.split(".")
        return [ast.Constant(int(part) if part.isdigit() else part) for part in parts]

    def _variable(self) -> str:
        """A name for the item that a filter looks at; routines can't have it."""
        self._depth += 1
        return f"it_{self._depth}_" if self._depth > 1 else "it_"

    def _refused(self, what: str, fix: str = "") -> ExportError:
        return ExportError(
            f"{what} has no counterpart in an exported script",
            place=self._place,
            fix=fix or "write it in another way, or as a function in udf.py",
        )


OPERATORS: dict[str, ast.operator] = {
    "Add": ast.Add(), "Sub": ast.Sub(), "Mul": ast.Mult(), "Div": ast.Div(),
    "FloorDiv": ast.FloorDiv(), "Pow": ast.Pow(),
}  # fmt: skip
COMPARISONS: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq, "ne": ast.NotEq, "gt": ast.Gt, "gteq": ast.GtE, "lt": ast.Lt, "lteq": ast.LtE,
    "in": ast.In, "notin": ast.NotIn,
}  # fmt: skip
METHODS = frozenset(
    "get items keys values upper lower strip lstrip rstrip split rsplit splitlines startswith"
    " endswith title capitalize swapcase casefold find rfind index rindex count isdigit isalpha"
    " isalnum isdecimal isnumeric isspace isupper islower istitle partition rpartition removeprefix"
    " removesuffix copy".split()
)
"""What the sandbox lets texts, lists and mappings do, and what is the same outside of it."""
Names = Callable[[str, str], tuple[ast.expr, bool]]
"""From a name and its place to what it is in Python, and whether it may be missing."""


class Translator(Filters):
    """Translates what stands at one place; `names` says what a name is there."""

    def __init__(self, names: Names, functions: frozenset[str], place: str) -> None:
        super().__init__(place)
        self._names, self._functions = names, functions

    def value(self, value: Any) -> ast.expr:
        """A value of a routine: every string in it may hold expressions."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            keys: list[ast.expr | None] = [constant(key, self._place) for key in value]
            return ast.Dict(keys, [self.value(item) for item in value.values()])
        if isinstance(value, list):
            return ast.List([self.value(item) for item in value], ast.Load())
        return constant(value, self._place)

    def expression(self, source: str) -> ast.expr:
        """A bare expression."""
        reference = parse_reference(source)
        if reference is not None:
            word, path = reference
            found = self._name(word)
            return part_of(found, *(ast.Constant(part) for part in path)) if path else found
        return self._settled(syntax_of(source, self._place, bare=True))

    def _text(self, text: str) -> ast.expr:
        if "{{" not in text and "{%" not in text:
            return ast.Constant(text)
        whole = whole_expression(text)
        if whole is not None:
            return self.expression(whole)
        return _joined(self._pieces(syntax_of(text, self._place).body))

    def _pieces(self, nodes: Sequence[Any]) -> list[ast.expr]:
        """What a text is made of."""
        pieces: list[ast.expr] = []
        for node in nodes:
            kind = type(node).__name__
            if kind == "Output":
                pieces += [self._piece(part) for part in node.nodes]
            elif kind == "If":
                pieces.append(self._either(node))
            else:
                raise self._refused(f"{{% {kind.lower()} %}}")
        return pieces

    def _piece(self, node: Any) -> ast.expr:
        if type(node).__name__ == "TemplateData":
            return ast.Constant(node.data)
        if self._is_lazy(node):
            raise self._refused("a filter that gives its items one by one, in a text", "add | list")
        found = self._strict(node)
        is_text = isinstance(found, ast.Constant) and isinstance(found.value, str)
        return found if is_text else call("as_text", found)

    def _either(self, node: Any) -> ast.expr:
        rest = list(node.else_)
        last: ast.expr = _joined(self._pieces(rest))
        for branch in reversed(node.elif_):
            last = ast.IfExp(self._strict(branch.test), _joined(self._pieces(branch.body)), last)
        return ast.IfExp(self._strict(node.test), _joined(self._pieces(node.body)), last)

    def _settled(self, node: Any) -> ast.expr:
        """What an expression gives in the end: what comes item by item is a list."""
        kind = type(node).__name__
        if kind == "Filter" and node.name == "tojson":
            raise self._refused("the filter 'tojson'", "put the value itself, it stands as JSON")
        found = self._strict(node)
        if isinstance(found, ast.GeneratorExp):
            return ast.ListComp(found.elt, found.generators)
        target = node.node.name if kind == "Call" and type(node.node).__name__ == "Name" else ""
        if target in ("zip", "enumerate"):
            return call("list", found)
        return call("settled", found) if self._is_lazy(node, or_own=True) else found

    def _is_lazy(self, node: Any, *, or_own: bool = False) -> bool:
        """Whether it may give its items one by one; with `or_own`, functions of udf.py too."""
        kind = type(node).__name__
        if kind == "Filter":
            return node.name in LAZY
        if kind == "Call" and type(node.node).__name__ == "Name":
            own = or_own and node.node.name in self._functions
            return own or node.node.name in ("zip", "enumerate")
        if kind in ("CondExpr", "And", "Or"):
            parts = (getattr(node, part, None) for part in ("left", "right", "expr1", "expr2"))
            return any(part is not None and self._is_lazy(part, or_own=or_own) for part in parts)
        return False

    def _name(self, word: str) -> ast.expr:
        found, may_be_missing = self._names(word, self._place)
        return call("have", found, ast.Constant(word)) if may_be_missing else found

    def _strict(self, node: Any) -> ast.expr:
        """The value of a node; an error where it is not there."""
        kind = type(node).__name__
        translate = getattr(self, f"_on_{kind.lower()}", None)
        if translate is not None:
            found: ast.expr = translate(node)
            return found
        if kind in OPERATORS:
            return ast.BinOp(self._strict(node.left), OPERATORS[kind], self._strict(node.right))
        if kind in ("And", "Or"):
            joint: ast.boolop = ast.And() if kind == "And" else ast.Or()
            return ast.BoolOp(joint, [self._strict(node.left), self._strict(node.right)])
        if kind in ("Not", "Neg", "Pos"):
            sign: dict[str, ast.unaryop] = {"Not": ast.Not(), "Neg": ast.USub(), "Pos": ast.UAdd()}
            return ast.UnaryOp(sign[kind], self._strict(node.node))
        raise self._refused(kind)

    def _lenient(self, node: Any) -> ast.expr:
        """The value of a node, or MISSING."""
        kind = type(node).__name__
        if kind == "Name":
            return self._names(node.name, self._place)[0]
        if kind in ("Getattr", "Getitem"):
            found = self._strict(node)
            if isinstance(found, ast.Call):
                found.keywords.append(ast.keyword("otherwise", name("MISSING")))
            return found
        if kind == "Filter" and node.name in ("first", "last", "min", "max"):
            found = self._on_filter(node)
            found.keywords.append(ast.keyword("otherwise", name("MISSING")))  # type: ignore[attr-defined]  # these are calls
            return found
        return self._strict(node)

    # One method for each class of Jinja's tree, found by its name.

    def _on_name(self, node: Any) -> ast.expr:
        return self._name(node.name)

    def _on_const(self, node: Any) -> ast.expr:
        return constant(node.value, self._place)

    def _on_list(self, node: Any) -> ast.expr:
        return ast.List([self._strict(item) for item in node.items], ast.Load())

    def _on_tuple(self, node: Any) -> ast.expr:
        return ast.Tuple([self._strict(item) for item in node.items], ast.Load())

    def _on_dict(self, node: Any) -> ast.expr:
        keys: list[ast.expr | None] = [self._strict(pair.key) for pair in node.items]
        return ast.Dict(keys, [self._strict(pair.value) for pair in node.items])

    def _on_getattr(self, node: Any) -> ast.expr:
        return part_of(self._strict(node.node), ast.Constant(node.attr))

    def _on_getitem(self, node: Any) -> ast.expr:
        value = self._strict(node.node)
        if type(node.arg).__name__ != "Slice":
            return part_of(value, self._strict(node.arg))
        parts = [
            part and self._strict(part) for part in (node.arg.start, node.arg.stop, node.arg.step)
        ]
        return ast.Subscript(value, ast.Slice(*parts), ast.Load())

    def _on_mod(self, node: Any) -> ast.expr:
        return call("remainder", self._strict(node.left), self._strict(node.right))

    def _on_concat(self, node: Any) -> ast.expr:
        parts = [call("str", self._strict(part)) for part in node.nodes]
        whole: ast.expr = parts[0]
        for part in parts[1:]:
            whole = ast.BinOp(whole, ast.Add(), part)
        return whole

    def _on_compare(self, node: Any) -> ast.expr:
        operators: list[ast.cmpop] = [COMPARISONS[operand.op]() for operand in node.ops]
        others = [self._strict(operand.expr) for operand in node.ops]
        return ast.Compare(self._strict(node.expr), operators, others)

    def _on_condexpr(self, node: Any) -> ast.expr:
        other = (
            call("undefined", ast.Constant("the condition does not hold, and there is no else"))
            if node.expr2 is None
            else self._strict(node.expr2)
        )
        return ast.IfExp(self._strict(node.test), self._strict(node.expr1), other)

    def _on_call(self, node: Any) -> ast.expr:
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise self._refused("a call with * or **")
        args = [self._strict(arg) for arg in node.args]
        keywords = {item.key: self._strict(item.value) for item in node.kwargs}
        kind = type(node.node).__name__
        if kind == "Getattr":
            if node.node.attr not in METHODS:
                raise self._refused(f"the method {node.node.attr!r}")
            found = call("method_of", self._strict(node.node.node), ast.Constant(node.node.attr))
            return call(found, *args, **keywords)
        word = node.node.name if kind == "Name" else ""
        if word not in self._functions and word not in FUNCTIONS:
            raise self._refused("a call of something that is no function")
        if word in ("str", "int", "float") and (len(args) != 1 or keywords):
            raise self._refused(f"{word}() with more than one value")
        self._names(f"{word}()", self._place)
        return call(word, *args, **keywords)

    def _on_test(self, node: Any) -> ast.expr:
        lenient = node.name in TESTS_OF_WHAT_MAY_BE_MISSING
        value = self._lenient(node.node) if lenient else self._strict(node.node)
        return self._tested(node.name, value, [self._strict(arg) for arg in node.args])

    def _on_filter(self, node: Any) -> ast.expr:
        if node.node is None or node.dyn_args is not None or node.dyn_kwargs is not None:
            raise self._refused("a filter with * or **")
        if node.name in ("default", "d"):
            value = self._lenient(node.node)
        else:
            value = self._strict(node.node)
        args = [self._strict(arg) for arg in node.args]
        keywords = {item.key: self._strict(item.value) for item in node.kwargs}
        return self._filtered(node.name, value, args, keywords)


def _joined(pieces: list[ast.expr]) -> ast.expr:
    """Pieces of a text as one: an f-string."""
    parts: list[ast.expr] = []
    for piece in pieces:
        known = isinstance(piece, ast.Constant)
        if known and parts and isinstance(parts[-1], ast.Constant):
            parts[-1] = ast.Constant(parts[-1].value + piece.value)  # type: ignore[attr-defined]  # it is one
        else:
            parts.append(piece)
    if not parts:
        return ast.Constant("")
    if len(parts) == 1:
        return parts[0]
    sum_: ast.expr = parts[0]
    if any(_is_awkward(part) for part in parts):
        for part in parts[1:]:
            sum_ = ast.BinOp(sum_, ast.Add(), part)
        return sum_
    return ast.JoinedStr(
        [part if isinstance(part, ast.Constant) else ast.FormattedValue(part, -1) for part in parts]
    )


def _is_awkward(part: ast.expr) -> bool:
    """What an f-string of Python 3.11 can't hold in its braces, or nobody could read there."""
    if isinstance(part, ast.Constant):
        text = str(part.value)
        return "\\" in repr(text) or ("'" in text and '"' in text)
    if any(isinstance(node, ast.Lambda | ast.Dict | ast.JoinedStr) for node in ast.walk(part)):
        return True
    shown = ast.unparse(part)
    return "\\" in shown or '"' in shown or len(shown) > 60
