"""A routine as a plain Python function: reads, checks, writes, return, one line each.

`function_text` is for reading. `script_text` adds what the function calls beside its tools, so that
it runs without em. What plain Python can't say is an ExportError that names the step.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from types import ModuleType
from typing import Any

from em.compiler.export import prelude
from em.compiler.export.closure import code_of
from em.compiler.export.expression import FUNCTIONS, python_expression, python_value
from em.compiler.layout import Layout
from em.errors import ExportError
from em.values.canonical import Json

WIDTH = 100
_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list",
    "object": "dict",
}  # fmt: skip
_NEEDS_RUNNER = ("for_each", "retry", "timeout", "on_error", "idempotency_key", "parallel")
_LAYOUT = Layout(lambda value: python_value(value, "", is_plain=True), WIDTH - 8)
"""Of schemas; most lines stand in one or two blocks."""
_PRELUDE = ("check", "expect", "MISSING", "given", "row", "agreed", "side_by_side")
_PYTHON = ("tools", "str", "int", "len", "map", "round")
"""Names of Python that a function may use."""
_CALLED = re.compile(r"(?<![.\w])([a-z_]\w*)\(")
_USED = re.compile(r"(?<![.\w])([a-z_]\w*)\(|\bMISSING\b")


def function_text(document: Json) -> str:
    """Return the function of a routine."""
    return _Function(document).text()


def script_text(document: Json) -> str:
    """Return the function with all that it calls, but for its tools."""
    text, names = function_text(document), names_called(document)
    udfs = {step["function"] for step in _walked(document["steps"]) if step["type"] == "udf.call"}
    own = f"from udf import {', '.join(sorted(udfs))}\n\n\n" if udfs else ""
    return f"{code_of(names)}\n\n{own}{text}"


def names_called(document: Json) -> list[tuple[str, ModuleType]]:
    """Return what the function calls beside its tools, with the modules that have it."""
    used = {call or "MISSING" for call in _USED.findall(function_text(document))}
    known = {**dict.fromkeys(_PRELUDE, prelude), **FUNCTIONS}
    return [(name, module) for name, module in known.items() if name in used]


class _Function:
    def __init__(self, document: Json) -> None:
        self._document = document
        self._schema = document.get("input_schema") or {}
        self._writes = {
            tool["name"] for tool in document.get("tools", ()) if tool.get("effect") != "read"
        }
        self._has_written = False

    def text(self) -> str:
        document = self._document
        self._check_names()
        lines = [self._signature(), *self._docstring()]
        lines += [f"    {line}" for line in self._inputs()]
        lines += [f"    {line}" for line in self._steps(document["steps"])]
        return "\n".join(lines) + "\n"

    def _check_names(self) -> None:
        """Raise if a value has the name of something that the function calls."""
        steps = self._document["steps"]
        taken = {*_PRELUDE, *_PYTHON, *_CALLED.findall(json.dumps(steps))}
        for name in (*self._schema.get("properties", ()), *_saved_names(steps)):
            if not name.isidentifier() or iskeyword(name) or name in taken:
                raise ExportError(f"{name!r} can't be the name of a value in plain Python")

    def _docstring(self) -> Iterator[str]:
        said = self._document.get("description") or f"Do what was recorded as {self._name()}."
        yield '    """' + said.replace("\\", "").replace('"', "'")
        yield ""
        yield "    Raise an exception where something is not as recorded."
        yield "    Nothing was done then, unless a write came before."
        yield '    """'

    def _name(self) -> str:
        name = re.sub(r"\W", "_", self._document["name"])
        return name if name.isidentifier() else f"run_{name}"

    def _signature(self) -> str:
        properties = self._schema.get("properties", {})
        required = self._schema.get("required", ())
        ordered = sorted(properties, key=lambda name: name not in required)
        parts = [
            f"{name}: {_hint(properties[name])}" + ("" if name in required else " = MISSING")
            for name in ordered
        ]
        return _wrapped(f"def {self._name()}(", [*parts, "*", "tools: Any"], ") -> Any:")

    def _inputs(self) -> Iterator[str]:
        """Yield what the inputs must look like."""
        properties = self._schema.get("properties", {})
        required = self._schema.get("required", ())
        for name, schema in properties.items():
            if name in required:
                yield from _expected(name, schema)
            else:
                yield f"if given({name}):"
                yield from (f"    {line}" for line in _expected(name, schema))
        rest = {word: one for word, one in self._schema.items() if word not in _ABOUT_ARGUMENTS}
        if rest:
            values = ", ".join(f"{name}={name}" for name in properties)
            yield from _expected(f"row({values})", rest)

    def _steps(self, steps: Sequence[Json]) -> Iterator[str]:
        """Yield the lines of steps; names that are found in several ways must agree."""
        times = Counter(step["save_as"] for step in steps if "save_as" in step)
        last = {step["save_as"]: number for number, step in enumerate(steps) if "save_as" in step}
        begun: set[str] = set()
        for number, step in enumerate(steps):
            name = step.get("save_as", "")
            if times[name] > 1 and name not in begun:
                begun.add(name)
                yield f"{name} = MISSING"
            lines = [*self._step(step, is_shared=times[name] > 1)]
            if "when" in step:
                yield f"if {self._expression(step, step['when'])}:"
                lines = [f"    {line}" for line in lines]
            yield from lines
            if times[name] > 1 and last[name] == number:
                yield f'check(given({name}), "nothing says which {name}")'

    def _step(self, step: Json, *, is_shared: bool) -> Iterator[str]:
        for field in _NEEDS_RUNNER:
            if step.get(field) is not None:
                raise ExportError(f"plain Python has no {field!r}", place=f"step {step['id']}")
        make = getattr(self, "_" + step["type"].replace(".", "_").replace("return", "end"), None)
        if make is None:
            raise ExportError(f"plain Python has no {step['type']!r}", place=f"step {step['id']}")
        yield from make(step, is_shared)

    def _tool_call(self, step: Json, is_shared: bool) -> Iterator[str]:
        tool = step["tool"]
        is_write = step.get("effect") == "write" or tool in self._writes
        if is_write and not self._has_written:
            self._has_written = True
            yield "# Everything is as recorded: from here on things are done."
        called = f"tools.{tool}" if tool.isidentifier() else f"getattr(tools, {tool!r})"
        yield from self._called(step, called, is_shared)

    def _udf_call(self, step: Json, is_shared: bool) -> Iterator[str]:
        yield from self._called(step, step["function"], is_shared)

    def _called(self, step: Json, called: str, is_shared: bool) -> Iterator[str]:
        args = step.get("args", {})
        place = f"step {step['id']}"
        if all(map(str.isidentifier, args)):
            parts = [f"{name}={python_value(one, place)}" for name, one in args.items()]
        else:
            parts = [f"**{python_value(args, place)}"]
        yield from self._saved(step, _wrapped(f"{called}(", parts, ")"), is_shared)

    def _let(self, step: Json, is_shared: bool) -> Iterator[str]:
        value = python_value(step["value"], f"step {step['id']}")
        yield from self._saved(step, value, is_shared)

    def _saved(self, step: Json, value: str, is_shared: bool) -> Iterator[str]:
        name = step.get("save_as")
        if name is None:
            yield from value.split("\n")
            return
        made = f"agreed({name}, {value})" if is_shared else value
        yield from f"{name} = {made}".split("\n")
        if step.get("expect"):
            yield from _expected(name, step["expect"])

    def _assert(self, step: Json, _is_shared: bool) -> Iterator[str]:
        held = f"# held in {step['held']}" if "held" in step else ""
        message = f", {json.dumps(step['message'])}" if step.get("message") else ""
        line = f"check({self._expression(step, step['check'])}{message})"
        if held and len(line) + len(held) + 2 > _LAYOUT.width:
            yield held
            held = ""
        yield f"{line}  {held}".rstrip()

    def _for_each(self, step: Json, _is_shared: bool) -> Iterator[str]:
        over = {name: self._expression(step, text) for name, text in step["over"].items()}
        most = f", most={step['max']}" if step.get("max") is not None else ""
        each = ", ".join(over) + ("," if len(over) == 1 else "")
        name = step.get("save_as")
        if name:
            yield f"{name} = []"
        yield f"for {each} in side_by_side({', '.join(over.values())}{most}):"
        saved = [*dict.fromkeys(one["save_as"] for one in step["steps"] if "save_as" in one)]
        for one in saved:
            if all("when" in inner for inner in step["steps"] if inner.get("save_as") == one):
                yield f"    {one} = MISSING"
        yield from (f"    {line}" for line in self._steps(step["steps"]))
        if name:
            values = [f"{one}={one}" for one in (*over, *saved)]
            lines = _wrapped(f"{name}.append(row(", values, "))").split("\n")
            yield from (f"    {line}" for line in lines)

    def _end(self, step: Json, _is_shared: bool) -> Iterator[str]:
        yield "return " + python_value(step.get("value"), f"step {step['id']}")

    def _expression(self, step: Json, text: str) -> str:
        return python_expression(text, f"step {step['id']}")


_ABOUT_ARGUMENTS = ("type", "properties", "required", "additionalProperties", "$schema")
"""Words of the input schema that a signature says, or that are written for each input."""


def _hint(schema: Json) -> str:
    kind = schema.get("type")
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _expected(name: str, schema: Json) -> Iterator[str]:
    for word in _schema_words(schema):
        if word not in prelude.WORDS:
            raise ExportError(f"plain Python has no {word!r} of JSON Schema", place=name)
    start = f"expect({name}, "
    end = f', "{name}")' if name.isidentifier() else ")"
    line = f"{start}{_LAYOUT.flow(schema)}{end}"
    fits = len(line) <= _LAYOUT.width
    lines = [line] if fits else _LAYOUT.broken(schema, 4, len(start), len(end))
    yield from [start + lines[0], *lines[1:-1], lines[-1] + end] if len(lines) > 1 else [line]


def _schema_words(schema: Any) -> Iterator[str]:
    for word, value in schema.items():
        yield word
        inner: Sequence[Any] = ()
        if word == "properties":
            inner = [*value.values()]
        elif word == "anyOf":
            inner = value
        elif word == "items":
            inner = [value]
        for one in inner:
            if isinstance(one, Mapping):
                yield from _schema_words(one)


def _wrapped(head: str, parts: Sequence[str], end: str) -> str:
    """Return a call or a signature: in one line, or with as many parts in a line as fit."""
    line = head + ", ".join(parts) + end
    if len(line) <= WIDTH - 8 or not parts:
        return line
    lines, now = [head], "   "
    for part in parts:
        if len(now) + len(part) + 2 > WIDTH - 8 and now.strip():
            lines.append(now)
            now = "   "
        now += f" {part},"
    return "\n".join([*lines, now, end])


def _saved_names(steps: Sequence[Json]) -> Iterator[str]:
    for step in _walked(steps):
        if "save_as" in step:
            yield step["save_as"]
        yield from step.get("over", ())


def _walked(steps: Sequence[Json]) -> Iterator[Json]:
    for step in steps:
        yield step
        yield from _walked(step.get("steps", ()))
