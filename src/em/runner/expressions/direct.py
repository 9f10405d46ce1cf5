"""Direct evaluation of the expressions that compilers write: selections, sums and comparisons.

They are evaluated in every replay, and a call through Jinja's sandbox costs about twenty times as
much. Only references, literals, the functions of `SELECTIONS`, `len`, `sum`, `str`, `int`, `float`,
`+ - *`, one comparison, `in`, `and`, `or`, `not` and `a if b else c` are known here; everything
else is left to Jinja.

`together` compiles many of them to one function, for guards: a routine has dozens of them.
"""

import ast
import itertools
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, TypeGuard

from em.errors import ExpressionError
from em.runner.expressions.functions import (
    ANY,
    ANY_TEXT,
    FUNCTIONS,
    KEYS,
    SELECTIONS,
    bounded,
    field_kind,
    is_like,
    may_report,
    objection,
)
from em.runner.expressions.selection import given
from em.values.syntax_tree import expression_of

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
_COMPARISON = re.compile(r" (?:==|!=|>=|<=|>|<|in|and|or|if) |^not ")
_SIGNS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.In: "in",
    ast.NotIn: "not in",
}
PARSED = "parsed"
"""The function whose value is read many times, and made once."""
_TYPES: dict[Any, type] = {"mapping": dict, "list": list, "text": str, "boolean": bool}
_FULL = "((not {0}.isspace() and {0}) if type({0}) is str else ({0} or type({0}) in SINGLE))"
"""That a value has something: a text more than spaces, a list a member; a number always has."""
_REFERENCES = (ast.Name, ast.Attribute, ast.Subscript)
LONGEST = 4_000
"""Longer expressions are left to Jinja."""
PLAIN = frozenset((str, int, float, bool, type(None), list, dict))
"""The types of most values; no value of exactly one of them is a function, or `Missing`."""


_BUILT_IN: dict[str, Any] = {
    "__builtins__": {},
    "PLAIN": PLAIN,
    "NUMBERS": (int, float),
    "SINGLE": (int, float, bool),
    **{one.__name__: one for one in (type, str, list, dict, bool, all, map)},
    **{one.__name__: one for one in (field_kind, is_like, objection)},
}
"""What the code of checks has beside the functions of expressions."""


class _Other(Exception):
    """The expression has a part that is not known here."""


def compile_direct(
    source: str, place: str, reference: Reference, *, is_written: bool = False
) -> Evaluate | None:
    """Compile an expression for direct evaluation; None if Jinja has to evaluate it.

    reference: compiles a name with the keys and positions behind it.
    is_written: a compiler wrote it, so `+`, `-` and `*` are of numbers.
    """
    try:
        node = _parsed(source, is_written=is_written)
        evaluate = _Compiler(place, reference, is_written=is_written).compiled(node)
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


def _parsed(source: str, *, is_written: bool = False) -> ast.expr:
    selects = any(f"{name}(" in source for name in SELECTIONS)
    if len(source) > LONGEST or not (is_written or selects or _COMPARISON.search(source)):
        raise _Other
    return expression_of(source.strip())


class Together(NamedTuple):
    """Expressions that were compiled to one function.

    hold: returns True only if each of them holds. After False they must be evaluated one by one,
    to see whether one does not hold, or has no value.
    sources: the expressions; others have parts that are not known here.
    """

    hold: Callable[[Any], bool]
    sources: Collection[str]


def together(sources: Collection[str]) -> Together:
    """Compile expressions to one function of Python that tells whether all of them hold.

    It looks up each value once, and compares plain JSON values only. Where it finds another type,
    a missing key, or a function of udf.py in the place of one of em's, it returns False. It depends
    on nothing but the expressions, so it is kept: a routine is tried on many recordings.
    """
    return _together(tuple(sources))


@lru_cache(maxsize=1_000)
def _together(sources: Sequence[str]) -> Together:
    code = _Conjunction(sources)
    known = [source for source in sources if code.takes(source)]
    check = code.compiled()

    def hold(scope: Any) -> bool:
        try:
            return bool(check(scope))
        except Exception:  # noqa: BLE001 - evaluating them one by one says what is wrong
            return False

    return Together(hold, known)


class _Conjunction:
    """Code that checks expressions one after the other.

    What an expression says gets into the code in two ways only: as the `repr` of a text or number,
    and as a function or an operator of the closed sets above. The names of values become texts:
    `order.status == "open"` is `type(v0 := scope['order']) in PLAIN and
    type(v1 := v0['status']) in PLAIN and (v1 == 'open')`.
    """

    def __init__(self, sources: Collection[str] = ()) -> None:
        self._conditions: list[str] = []
        self._functions: set[str] = set()
        # The variables that hold the values at these paths.
        self._variables: dict[tuple[str | int, ...], str] = {}
        # What else the code has by name: constants, and checks of the members of lists.
        self._held: dict[str, Any] = {}
        self._count = 0
        # The only fields that a value has if it is as recorded; none of them reports an error.
        self._silent = dict(filter(None, map(_silent_fields, sources)))

    def takes(self, source: str) -> bool:
        """Add an expression; return False if it has a part that is not known here."""
        count, variables = len(self._conditions), dict(self._variables)
        try:
            self._conditions.append(self._code(_parsed(source)))
        except _NOT_KNOWN:
            del self._conditions[count:]
            self._variables = variables
            return False
        return True

    def compiled(self) -> Callable[[Any], Any]:
        """Return the function. It checks first that the functions are em's own."""
        own = [f"scope.get({name!r}, {name}) is {name}" for name in sorted(self._functions)]
        code = f"lambda scope: {' and '.join([*own, *self._conditions]) or True}"
        names = {name: FUNCTIONS[name] for name in self._functions}
        scope = {**_BUILT_IN, **names, **self._held}
        check: Callable[[Any], Any] = eval(code, scope)  # noqa: S307 - only what `_code` wrote
        return check

    def _code(self, node: ast.expr) -> str:
        if _is_constant(node):
            return _literal(_constant(node))
        if isinstance(node, _REFERENCES):
            start, path = _reference_in(node)
            name = self._made(start) if isinstance(start, ast.Call) else start.id
            return self._variable((name, *path))
        if isinstance(node, ast.Call):
            is_kept = _function_in(node) == PARSED
            return self._variable((self._made(node),)) if is_kept else self._call(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._comparison(node.left, node.ops[0], node.comparators[0])
        return self._structure(node)

    def _structure(self, node: ast.expr) -> str:
        if isinstance(node, ast.List):
            return f"[{', '.join(map(self._code, node.elts))}]"
        if isinstance(node, ast.Dict):
            keys = [self._code(key) for key in node.keys if key and _is_constant(key)]
            pairs = zip(keys, map(self._code, node.values), strict=True)
            return f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"
        raise _Other

    def _call(self, node: ast.Call) -> str:
        name = _function_in(node)
        if node.keywords:
            raise _Other
        self._functions.add(name)
        return f"{name}({', '.join(map(self._code, node.args))})"

    def _made(self, node: ast.Call) -> str:
        """Return the name under which the value of a call is kept, which is evaluated once.

        No value of the scope has it: a name has no brackets.
        """
        code = self._call(node)
        if (code,) not in self._variables:
            variable = self._variables[code,] = f"v{len(self._variables)}"
            self._conditions.append(f"type({variable} := {code}) in PLAIN")
        return code

    def _comparison(self, left: ast.expr, how: ast.cmpop, right: ast.expr) -> str:
        sign = _SIGNS.get(type(how))
        if sign is None:
            raise _Other
        if isinstance(how, ast.Eq) and isinstance(left, ast.Call) and _is_constant(right):
            short = self._in_short(left, _constant(right))
            if short is not None:
                self._functions.add(_function_in(left))
                return short
        if not isinstance(how, ast.In | ast.NotIn):
            return f"({self._code(left)} {sign} {self._code(right)})"
        if not isinstance(right, ast.List):
            raise _Other
        return f"({self._code(left)} {sign} {self._code(right)})"

    # --- checks of records ------------------------------------------------------------------------

    def _in_short(self, node: ast.Call, wanted: Any) -> str | None:
        """Return faster code for a check of a record; None if there is none.

        It may be false though the check holds, but never the other way round.
        """
        name, args = _function_in(node), node.args
        if name == "shape_of" and wanted in _TYPES and len(args) == 1:
            return f"type({self._code(args[0])}) is {_TYPES[wanted].__name__}"
        if name == "strange_fields" and wanted is None and len(args) == 2:
            return self._likeness(args[0], _known_fields(args[1]))
        is_plain = wanted is None and args and isinstance(args[0], _REFERENCES)
        return self._of_keys(name, args[0], args[1:]) if is_plain else None

    def _of_keys(self, name: str, value: ast.expr, rest: Sequence[ast.expr]) -> str | None:
        """Return faster code for a check of the keys of a mapping; None if there is none."""
        keys = _constants(rest)
        if name == "error_of" and ast.unparse(value) in self._silent:
            return self._only_keys(self._silent[ast.unparse(value)], value, "error_of({0})")
        if name == "strange_keys" and keys is not None:
            others = "".join(f", {key!r}" for key in keys)
            return self._only_keys(frozenset(keys), value, f"strange_keys({{0}}{others})")
        if name == "empty_keys" and keys is not None:
            fields = [ast.Subscript(value, ast.Constant(key)) for key in keys]
            return " and ".join(_FULL.format(self._code(field)) for field in fields) or "True"
        return None

    def _only_keys(self, keys: frozenset[Any], value: ast.expr, otherwise: str) -> str:
        """Return code that a mapping has only these keys, or else that a function finds nothing."""
        code = self._code(value)
        return f"({code}.keys() <= {self._hold(keys)} or {otherwise.format(code)} is None)"

    def _likeness(self, value: ast.expr, known: Mapping[str, Any]) -> str:
        """Return code that checks in one walk that a record has no strange fields."""
        tree: dict[str, Any] = {}
        for path, was in known.items():
            node = tree
            for part in path.split("."):
                node = node.setdefault(part, {})
            node[""] = was
        own = self._code(value)
        way = next((path for path, name in self._variables.items() if name == own), None)
        if way is not None:
            return self._walk(tree, own, own, way)
        held = self._fresh()
        return self._walk(tree, f"({held} := {own})", held)

    def _walk(
        self,
        tree: Mapping[str, Any],
        first: str,
        value: str,
        path: tuple[str | int, ...] | None = None,
    ) -> str:
        """Return code for a tree of fields: under a part of a path what follows, under "" its kind.

        first: the code of the value where it is used first. path: the way to it, if it has
        variables.
        """
        parts = []
        fields = {part: own for part, own in tree.items() if part not in ("", ANY, KEYS)}
        if "" in tree:
            parts.append(self._kind(tree[""], first, value))
        if KEYS in tree or fields:
            parts.append(f"type({value if parts else first}) is dict")
        if KEYS in tree:
            names = tree[KEYS][""]
            others = "".join(f", {one!r}" for one in names)
            held = self._hold(frozenset(names))
            self._held["strange_keys"] = FUNCTIONS["strange_keys"]
            parts.append(f"({value}.keys() <= {held} or strange_keys({value}{others}) is None)")
        for name, own in fields.items():
            inner = None if path is None else (*path, name)
            known = self._variables.get(inner) if inner is not None else None
            if known is not None:
                parts.append(self._walk(own, known, known, inner))
            else:
                held = self._fresh()
                parts.append(self._walk(own, f"({held} := {value}.get({name!r}))", held))
        if ANY in tree:
            check = self._hold(self._function(tree[ANY]))
            members = f"{value} if type({value}) is list else {value}.values()"
            is_empty = f"not {value if parts else first}"
            parts.append(f"({is_empty} or all(map({check}, {members})))")
        return " and ".join(parts) or "True"

    def _function(self, tree: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Return the check of one member of a list."""
        member = self._fresh()
        code = f"lambda {member}: {self._walk(tree, member, member)}"
        check: Callable[[Any], Any] = eval(code, {**_BUILT_IN, **self._held})  # noqa: S307 - as above
        return check

    def _kind(self, was: Any, first: str, value: str) -> str:
        """Return code that checks the kind of a value, or that it is one of some."""
        if was == "number":
            return f"type({first}) in NUMBERS"
        if was == "text":
            return f"type({first}) is str and not objection({value})"
        if isinstance(was, list):
            if all(isinstance(one, str) for one in was):
                return f"({first}) in {self._hold(frozenset(was))}"
        elif was in _TYPES or was == ANY_TEXT:
            return f"type({first}) is {_TYPES.get(was, str).__name__}"
        elif " or " not in was:
            return f"field_kind({first}) == {was!r}"
        return f"is_like({first}, {self._hold(was)})"

    def _hold(self, value: Any) -> str:
        """Return the name under which the code has a value."""
        name = f"c{len(self._held)}"
        self._held[name] = value
        return name

    def _fresh(self) -> str:
        self._count += 1
        return f"w{self._count}"

    def _variable(self, path: tuple[str | int, ...]) -> str:
        """Return the variable of a value. It gets the value where it is needed first."""
        if path not in self._variables:
            holder = self._variable(path[:-1]) if path[1:] else "scope"
            variable = self._variables[path] = f"v{len(self._variables)}"
            self._conditions.append(f"type({variable} := {holder}[{path[-1]!r}]) in PLAIN")
        return self._variables[path]


def _silent_fields(source: str) -> tuple[str, frozenset[Any]] | None:
    """Return a value and its only fields, if a check says so and none may report an error."""
    if not source.startswith("strange_keys("):
        return None
    try:
        node = _parsed(source)
    except _NOT_KNOWN:
        return None
    call = node.left if isinstance(node, ast.Compare) else None
    keys = _constants(call.args[1:]) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or keys is None or any(map(may_report, keys)):
        return None
    return ast.unparse(call.args[0]), frozenset(keys)


def _known_fields(node: ast.expr) -> dict[str, Any]:
    """Return what `strange_fields` is given, if it is a literal of the right form."""
    known = ast.literal_eval(_with_constants(node))
    if not isinstance(known, dict) or not all(isinstance(path, str) for path in known):
        raise _Other
    for path, was in known.items():
        is_names = path.rpartition(".")[2] == KEYS
        if not isinstance(was, list) and (is_names or not isinstance(was, str)):
            raise _Other
    return known


def _with_constants(node: ast.expr) -> ast.expr:
    """Return an expression in which `true`, `false` and `none` are the values they stand for."""
    return _Constants().visit(node)  # type: ignore[no-any-return]  # what a transformer returns


class _Constants(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a word that stands for a value."""
        if node.id not in _WORDS:
            raise _Other
        return ast.copy_location(ast.Constant(_WORDS[node.id]), node)


def _literal(value: str | float | None) -> str:
    if isinstance(value, float) and not isfinite(value):
        raise _Other
    return repr(value)


class _Compiler:
    def __init__(self, place: str, reference: Reference, *, is_written: bool) -> None:
        self._place, self._reference, self._is_written = place, reference, is_written

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
            return self._computed(node.left, _COMPUTED.get(type(node.op)), node.right)
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

    def _computed(
        self, left: ast.expr, compute: Callable[[Any, Any], Any] | None, right: ast.expr
    ) -> Evaluate:
        if compute is None:
            raise _Other
        first, second = self.compiled(left), self.compiled(right)
        joins = compute is operator.add and not self._is_written

        def computed(scope: Any) -> Any:
            one, other = first(scope), second(scope)
            if type(one) is int and type(other) is int:
                return bounded(compute(bounded(one), bounded(other)))
            if joins and type(one) is str and type(other) is str:
                return one + other
            return _of_numbers(compute, one, other)

        return computed

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
    if not isinstance(node.func, ast.Name) or node.func.id not in _CALLED:
        raise _Other
    return node.func.id


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
