"""Filters and tests of expressions as Python, for exported scripts."""

import ast
from collections.abc import Sequence

from em.compiler.export.python_nodes import call, going_through, name, part_of
from em.errors import ExportError

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
