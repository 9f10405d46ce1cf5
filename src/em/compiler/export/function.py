"""A routine as a plain Python function: reads, checks, writes, return, one line each.

`function_text` is for reading. A script has the same function, in which each step stands under its
id (`with step('order'):`). Both have what `em compile` writes; anything else is an ExportError that
names the step and the field.
"""

import ast
import builtins
import math
import re
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from keyword import iskeyword
from pprint import pformat
from types import FunctionType, ModuleType
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from em.compiler.checks import walked
from em.compiler.export import prelude
from em.errors import ExportError
from em.runner.expressions.functions import FUNCTIONS, OMITTED
from em.runner.expressions.language import whole_expression
from em.runner.tools import one_line
from em.values.canonical import Json
from em.values.leaves import texts
from em.values.syntax_tree import module_of

WIDTH = 92
PRELUDE = frozenset(
    name
    for name, one in vars(prelude).items()
    if getattr(one, "__module__", "") == prelude.__name__ or name == "MISSING"
)
"""What a function may call of `prelude`."""
COPIED: dict[str, ModuleType] = {
    name: sys.modules[function.__module__]
    for name, function in FUNCTIONS.items()
    if isinstance(function, FunctionType) and function.__name__ == name and name != "given"
}
"""The functions of expressions that a script has copies of, with the modules that define them."""
_BUILTINS = frozenset(name for name in FUNCTIONS if hasattr(builtins, name))
"""The functions of expressions that Python has too."""
_SIGNS = {
    "eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=", "in": "in",
    "notin": "not in",
}  # fmt: skip
_OPERATORS: dict[type[nodes.Node], str] = {
    nodes.Add: "+", nodes.Sub: "-", nodes.Mul: "*", nodes.Div: "/", nodes.FloorDiv: "//",
    nodes.Mod: "%", nodes.Pow: "**", nodes.And: "and", nodes.Or: "or",
}  # fmt: skip
_FILTERS: dict[str, Sequence[str]] = {
    "string": ["str({})"], "length": ["len({})"], "float": ["float({})"], "sum": ["sum({})"],
    "min": ["min({})"], "max": ["max({})"],
    "lower": ["str({}).lower()"], "upper": ["str({}).upper()"], "trim": ["str({}).strip()"],
    "capitalize": ["str({}).capitalize()"], "round": ["round({}, {})", "0"],
    "join": ["{1}.join(map(str, {0}))", "''"],
}  # fmt: skip
"""Filters as Python; one that takes an argument also has its default."""
_RESERVED = {
    *PRELUDE, *COPIED, *_BUILTINS, *"str len float sum min max round map tools Any".split(),
}  # fmt: skip
_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list",
    "object": "dict",
}  # fmt: skip
_OF_RUNNER = ("idempotency_key", "timeout", "retry", "checks", "for_each")
"""The fields of steps that need the runner."""
_NOTES = frozenset(
    "title description default examples deprecated readOnly writeOnly $schema $comment".split()
)
"""Words of JSON Schema that check nothing."""
_JINJA = Environment(autoescape=False, keep_trailing_newline=True)  # noqa: S701 - it only parses


class Names:
    """How values and functions of a routine are called in Python. Here: by their own names."""

    functions: Collection[str] = ()
    """The functions of udf.py."""
    coroutines: Collection[str] = ()

    def variable(self, name: str) -> str:
        """Return the variable that holds a value."""
        return name

    def may_be_missing(self, _name: str) -> bool:
        """Return whether a value that is used may not be there."""
        return False


def refused(construct: str, place: str) -> ExportError:
    """Return the error of something that a script can't do."""
    return ExportError(
        f"an exported script can't do this: {construct}",
        place=place,
        fix="run the routine with `em run`, or move this into a function of udf.py",
    )


def is_word(word: str) -> bool:
    """Return whether Python can use a text as a name."""
    plain = word.isidentifier() and word.isascii() and not word.startswith("__")
    return plain and not iskeyword(word)


def keywords(values: Mapping[str, str]) -> list[str]:
    """Return code as keyword arguments; names that can't be keywords come last."""
    parts = [f"{name}={one}" for name, one in values.items() if is_word(name)]
    odd = [f"{name!r}: {one}" for name, one in values.items() if not is_word(name)]
    return [*parts, *(["**{" + ", ".join(odd) + "}"] if odd else [])]


# --- expressions ----------------------------------------------------------------------------------


def python_expression(text: str, place: str, names: Names | None = None) -> str:
    """Return a bare expression as Python."""
    (node,) = _parsed("{{ " + text + " }}", place)
    return _Printer(place, names or Names()).text(node)


def python_value(value: Any, place: str, names: Names | None = None) -> str:
    """Return a value of a step as Python; each text in it may have expressions."""
    if isinstance(value, Mapping):
        inner = (f"{key!r}: {python_value(one, place, names)}" for key, one in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(python_value(one, place, names) for one in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(f"the number {value!r}", place)
    if not isinstance(value, str) or "{" not in value:
        return repr(value)
    whole = whole_expression(value)
    if whole is not None:
        return python_expression(whole, place, names)
    parts = [*_parsed(value, place)]
    if all(isinstance(part, nodes.TemplateData) for part in parts):
        return repr("".join(part.data for part in parts))  # type: ignore[attr-defined]
    printer = _Printer(place, names or Names())
    printed = (
        repr(part.data) if isinstance(part, nodes.TemplateData) else printer.text(part)
        for part in parts
    )
    return f"as_text({', '.join(printed)})"


def _parsed(text: str, place: str) -> Iterator[nodes.Node]:
    try:
        body = _JINJA.parse(text).body
    except TemplateSyntaxError as error:
        raise ExportError(f"not an expression: {error}", place=place) from None
    for output in body:
        if not isinstance(output, nodes.Output):
            raise refused("{% … %} in a text", place)
        yield from output.nodes


class _Printer:
    """Prints one expression in full brackets; `ast.unparse` then drops the needless ones."""

    def __init__(self, place: str, names: Names) -> None:
        self._place, self._names = place, names

    def text(self, node: nodes.Node) -> str:
        """Return a node as Python: `order.status` is `order['status']`, the rest is alike."""
        return ast.unparse(ast.parse(self._code(node), mode="eval"))

    def _code(self, node: nodes.Node | None) -> str:  # noqa: C901, PLR0911, PLR0912 - one case each
        code = self._code
        match node:
            case None:
                return ""
            case nodes.Const():
                return repr(node.value)
            case nodes.Name():
                return self._name(node.name)
            case nodes.Getattr():
                return f"{code(node.node)}[{node.attr!r}]"
            case nodes.Getitem():
                return f"{code(node.node)}[{code(node.arg)}]"
            case nodes.Slice():
                return ":".join(map(code, (node.start, node.stop, node.step)))
            case nodes.List():
                return f"[{', '.join(map(code, node.items))}]"
            case nodes.Dict():
                return (
                    f"{{{', '.join(f'{code(one.key)}: {code(one.value)}' for one in node.items)}}}"
                )
            case nodes.Not() | nodes.Neg():
                return f"({'not ' if isinstance(node, nodes.Not) else '-'}{code(node.node)})"
            case nodes.BinExpr() if type(node) in _OPERATORS:
                return f"({code(node.left)} {_OPERATORS[type(node)]} {code(node.right)})"
            case nodes.Compare():
                rest = (f"{_SIGNS[one.op]} {code(one.expr)}" for one in node.ops)
                return f"({' '.join([code(node.expr), *rest])})"
            case nodes.Concat():
                return f"({' + '.join(f'str({code(one)})' for one in node.nodes)})"
            case nodes.CondExpr() if node.expr2 is not None:
                return f"({code(node.expr1)} if {code(node.test)} else {code(node.expr2)})"
            case nodes.Test(name="none"):
                return f"({code(node.node)} is None)"
            case nodes.Filter():
                return self._filter(node)
            case nodes.Call():
                return self._call(node)
        name = getattr(node, "name", "")
        raise self._problem(f"{type(node).__name__.lower()} {name!r}".removesuffix(" ''"))

    def _name(self, name: str) -> str:
        if name == OMITTED:
            return "MISSING"
        variable = self._names.variable(name)
        return f"have({variable}, {name!r})" if self._names.may_be_missing(name) else variable

    def _filter(self, node: nodes.Filter) -> str:
        args, form = [*map(self._code, node.args)], _FILTERS.get(node.name)
        if isinstance(node.node, nodes.Name) and node.name in ("default", "d") and len(args) == 1:
            return f"default_to({self._names.variable(node.node.name)}, {args[0]})"
        if form is None or node.kwargs or node.dyn_args or len(args) >= max(2, len(form)):
            raise self._problem(f"the filter {node.name!r}")
        return form[0].format(self._code(node.node), *(args or form[1:]))

    def _call(self, node: nodes.Call) -> str:
        if not isinstance(node.node, nodes.Name):
            raise self._problem("the call of a method")
        name = node.node.name
        if name == "given":
            return f"({' and '.join(map(self._asked, node.args))})"
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise self._problem(f"* in the arguments of {name!r}")
        if name not in {*self._names.functions, *COPIED, *_BUILTINS}:
            raise self._problem(f"the function {name!r}")
        args = [*map(self._code, node.args)]
        args += keywords({one.key: self._code(one.value) for one in node.kwargs})
        called = f"awaited({name})" if name in self._names.coroutines else name
        return f"{called}({', '.join(args)})"

    def _asked(self, node: nodes.Node) -> str:
        parts: list[str] = []
        while isinstance(node, nodes.Getattr | nodes.Getitem):
            key = repr(node.attr) if isinstance(node, nodes.Getattr) else self._code(node.arg)
            parts.insert(0, key)
            node = node.node
        if not isinstance(node, nodes.Name):
            raise self._problem("`given` of something other than an input or a part of one")
        return f"given({', '.join([self._names.variable(node.name), *parts])})"

    def _problem(self, what: str) -> ExportError:
        return refused(what, self._place)


# --- functions ------------------------------------------------------------------------------------


def function_text(document: Json) -> str:
    """Return the function of a routine, for reading."""
    return Function(document).text()


class Function(Names):
    """Prints one routine. What the steps use and nothing defines is an input, too.

    A name has one variable: a block may not give a name of its own to what is known outside of it.
    """

    def __init__(
        self,
        document: Json,
        *,
        functions: Collection[str] = (),
        coroutines: Collection[str] = (),
        taken: Collection[str] = (),
        is_script: bool = False,
    ) -> None:
        self._document, self._is_script = document, is_script
        self.functions, self.coroutines = functions, coroutines
        self._schema = document.get("input_schema") or {}
        self._writes = writes_of(document)
        udfs = (step["function"] for step in walked(document["steps"]) if "function" in step)
        self._reserved = {*_RESERVED, *functions, *udfs}
        name = re.sub(r"\W", "_", document["name"], flags=re.ASCII)
        self.name = name if is_word(name) and name not in taken else f"do_{name}"
        self._words: dict[str, str] = {}
        self._known: set[str] = set()
        """The values that are defined here."""
        self._open: set[str] = set()
        """Those that may be missing."""
        self._place = "input_schema"
        self._has_written = False
        required = self._schema.get("required", ())
        named = dict.fromkeys([*required, *self._schema.get("properties", ())])
        self.inputs = {one: self._define(one, is_open=one not in required) for one in named}
        """The inputs of the routine, each with its parameter."""
        secrets = [one["name"] for one in document.get("secrets", ())]
        self.secrets = {one: self._define(one) for one in secrets}
        self._body = [*self._steps(document["steps"])] or ["return None"]

    def text(self) -> str:
        """Return the function."""
        about = self._document.get("description") or f"Do what {self._document['name']} says."
        if self._document.get("checks") == "hand_over":
            about += "\n\nRaise an exception where something is not as recorded.\n"
            about += "Nothing was done then, unless a write came before."
        body = textwrap.indent("\n".join(self._body), "    ")
        return f"{self._signature()}\n{docstring(about, '    ')}{body}\n"

    def names_called(self) -> set[str]:
        """Return the names that the function uses."""
        return {one.id for one in ast.walk(module_of(self.text())) if isinstance(one, ast.Name)}

    def _signature(self) -> str:
        properties, required = self._schema.get("properties", {}), self._schema.get("required", ())
        parts = []
        for name, word in self.inputs.items():
            schema = properties.get(name)
            kind = schema.get("type") if isinstance(schema, Mapping) else None
            hint = _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"
            parts.append(f"{word}: {hint}" + ("" if name in required else " = MISSING"))
        parts += ["*", "tools: Any", *(f"{word}: str" for word in self.secrets.values())]
        return _wrapped(f"def {self.name}(", parts, ") -> Any:")

    # --- names ---

    def variable(self, name: str) -> str:
        """Return the variable that holds a value; what nothing defines is an input."""
        if name not in self._known and name not in self.inputs:
            if name in self._words:
                raise refused(f"{name!r} outside of the block that has it", self._place)
            self.inputs[name] = self._word(name)
        return self._word(name)

    def may_be_missing(self, name: str) -> bool:
        """Return whether a value may not be there."""
        return name in self._open or name not in self._known

    def _word(self, name: str) -> str:
        """Return the variable of a name."""
        if name not in self._words:
            word = re.sub(r"\W", "_", name, flags=re.ASCII)
            word = word if is_word(word) else f"value_{word}".rstrip("_")
            while word in self._reserved or word in self._words.values():
                word += "_"
            self._words[name] = word
        return self._words[name]

    def _define(self, name: str, *, is_open: bool = False) -> str:
        """Return the variable for a value that is saved here."""
        self._known.add(name)
        (self._open.add if is_open else self._open.discard)(name)
        return self._word(name)

    @contextmanager
    def _block(self, names: Collection[str]) -> Iterator[None]:
        """Keep the names that are defined in here to the steps in here."""
        outside = {*self._known, *self.inputs}
        if again := sorted(outside & {*names}):
            raise refused(f"{again[0]!r} in a block and outside of it", self._place)
        yield
        self._known &= outside

    # --- steps ---

    def _steps(self, steps: Sequence[Json]) -> Iterator[str]:
        for step in steps:
            self._place = f"step {step['id']}"
            lines = [*self._made(step)]
            if self._is_script:
                yield f"with step({step['id']!r}):"
                lines = [f"    {line}" for line in lines]
            yield from lines

    def _made(self, step: Json) -> Iterator[str]:
        """Yield the lines of a step, under its condition."""
        for field in _OF_RUNNER:
            if step.get(field) is not None:
                raise refused(f"`{field}`", f"{self._place}, field {field}")
        if step.get("on_error", "fail") != "fail":
            raise refused("`on_error`", f"{self._place}, field on_error")
        about = one_line(step.get("description", ""), 300)
        yield from (f"# {line}" for line in textwrap.wrap(about, WIDTH))
        name, when = step.get("save_as"), step.get("when")
        if name in self.inputs or (step["type"] == "assert" and name):
            raise refused("a result that has the name of an input, or no value", self._place)
        is_again = name in self._known
        condition = None if when is None else python_expression(when, self._at("when"), self)
        if name and condition is not None and not is_again:
            yield f"{self._define(name, is_open=True)} = MISSING"
        is_open = condition is not None and (not is_again or name in self._open)
        lines = [*self._step(step, is_again=is_again)]
        if name and is_open:
            self._open.add(name)
        if condition is not None:
            yield f"if {condition}:"
            lines = [f"    {line}" for line in lines]
        yield from lines

    def _step(self, step: Json, *, is_again: bool) -> Iterator[str]:
        kind, schema = step["type"], step.get("expect")
        if kind == "return":
            yield f"return {self._value(step, 'value')}"
        elif kind == "assert":
            yield from self._assert(step)
        elif kind == "for_each":
            yield from self._for_each(step)
        elif kind in ("let", "tool.call", "udf.call"):
            code = self._value(step, "value") if kind == "let" else self._called(step)
            if step.get("save_as") or schema:
                word = self._define(step.get("save_as") or f"result of {step['id']}")
                code = f"{word} = " + (f"agreed({word}, {code})" if is_again else code)
            if kind == "tool.call" and self._writes[step["tool"]] and not self._has_written:
                self._has_written = True
                yield "# Everything is as recorded: from here on things are done."
            yield from code.split("\n")
        else:
            raise refused(f"`{kind}` steps", self._place)
        if schema:
            word = self._word(step.get("save_as") or f"result of {step['id']}")
            kept = pformat(
                checked_schema(schema, self._at("expect")), width=WIDTH - 4, sort_dicts=False
            )
            yield from _wrapped(
                "expect(", [word, kept.replace("\n", "\n    "), repr(word)], ")"
            ).split("\n")

    def _called(self, step: Json) -> str:
        """Return the call of a tool or a function."""
        args = step.get("args", {})
        if step["type"] == "tool.call":
            tool = step["tool"]
            called = f"tools.{tool}" if is_word(tool) else f"getattr(tools, {tool!r})"
        elif step.get("effect") == "write":
            problem = "a script can't tell whether a function of udf.py did something"
            raise ExportError(problem, place=self._at("effect"), fix="make it a tool")
        elif not is_word(step["function"]):
            raise refused(f"the function {step['function']!r}", self._at("function"))
        else:
            called = step["function"]
            called = f"awaited({called})" if called in self.coroutines else called
        place = self._at("args")
        parts = keywords({name: python_value(one, place, self) for name, one in args.items()})
        if any(OMITTED in text for text in texts(args)):
            parts = [f"**row({', '.join(parts)})"]
        return _wrapped(f"{called}(", parts, ")")

    def _assert(self, step: Json) -> Iterator[str]:
        holds = [python_expression(step["check"], self._at("check"), self)]
        if step.get("message"):
            message = self._value(step, "message")
            is_plain = message == repr(step["message"])
            holds.append(message if is_plain else f"lambda: {message}")
        line = f"check({', '.join(holds)})"
        held = f"# held in {one_line(step['held'], 20)}" if step.get("held") else ""
        yield from [held, line] if len(line) + len(held) > WIDTH else [f"{line}  {held}".rstrip()]

    def _for_each(self, step: Json) -> Iterator[str]:
        over = {
            name: python_expression(one, self._at("over"), self)
            for name, one in step["over"].items()
        }
        most = [f"most={step['max']!r}"] if step.get("max") is not None else []
        saved = [one["save_as"] for one in step["steps"] if "save_as" in one]
        result = self._word(step["save_as"]) if step.get("save_as") else ""
        with self._block([*over, *saved, *filter(None, [step.get("save_as")])]):
            words = [self._define(one) for one in over]
            lines = [*self._steps(step["steps"])]
        if result:
            yield f"{self._define(step['save_as'])} = []"
            each = {one: self._word(one) for one in dict.fromkeys([*over, *saved])}
            lines += _wrapped(f"{result}.append(row(", keywords(each), "))").split("\n")
        yield f"for ({', '.join(words)},) in side_by_side({', '.join([*over.values(), *most])}):"
        yield from (f"    {line}" for line in lines)

    def _value(self, step: Json, field: str) -> str:
        return python_value(step.get(field), self._at(field), self)

    def _at(self, field: str) -> str:
        return f"{self._place}, field {field}"


# --- what a document says -------------------------------------------------------------------------


def writes_of(document: Json) -> dict[str, bool]:
    """Return each tool that is called, and whether it has an effect: in doubt yes.

    An HTTP GET or HEAD is a read.
    """
    declared = {tool["name"]: tool for tool in document.get("tools", ())}
    found: dict[str, bool] = {}
    for step in walked(document["steps"]):
        if step["type"] == "tool.call":
            tool = declared.get(step["tool"], {})
            is_get = "http" in tool and tool["http"].get("method", "GET") in ("GET", "HEAD")
            effect = step.get("effect") or tool.get("effect") or ("read" if is_get else "write")
            found[step["tool"]] = found.get(step["tool"], False) or effect != "read"
    return found


def checked_schema(schema: Any, place: str) -> Any:
    """Return a schema without its notes; raise if it has words that a script does not check."""
    if not isinstance(schema, Mapping):
        return schema
    made: Json = {}
    for word, value in schema.items():
        if word in _NOTES:
            continue
        if word not in prelude.WORDS or (word == "format" and value not in prelude.FORMATS):
            said = f"format {value!r}" if word == "format" else repr(word)
            raise refused(f"{said} of JSON Schema", place)
        if word == "properties":
            made[word] = {name: checked_schema(one, place) for name, one in value.items()}
        elif word == "anyOf":
            made[word] = [checked_schema(one, place) for one in value]
        else:
            is_schema = word in ("items", "additionalProperties")
            made[word] = checked_schema(value, place) if is_schema else value
    return made


def docstring(text: str, pad: str = "") -> str:
    """Return a docstring that holds a text, whatever it is."""
    printable = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    lines: list[str] = []
    for line in printable.replace("\\", "\\\\").replace('"""', "'''").strip().split("\n"):
        is_code = line.startswith("    ")
        lines += [line] if is_code else textwrap.wrap(line, WIDTH - len(pad)) or [""]
    if len(lines) == 1 and not lines[0].endswith('"'):
        return f'{pad}"""{lines[0]}"""\n'
    body = "\n".join(f"{pad}{line}".rstrip() for line in lines[1:])
    return f'{pad}"""{lines[0]}\n{body}\n{pad}"""\n'


def _wrapped(head: str, parts: Sequence[str], end: str) -> str:
    """Return a call or a signature: in one line, or with one part in a line."""
    line = head + ", ".join(parts) + end
    if (len(line) <= WIDTH and "\n" not in line) or not parts:
        return line
    return "\n".join([head, *(f"    {part}," for part in parts), end])
