"""A routine as a plain Python function: reads, checks, writes, return, one line each.

`function_text` is for reading. A script has the same function, in which each step stands under its
id (`with step("order"):`). What plain Python can't say is an ExportError that names the step.
"""

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from em.compiler.checks import walked
from em.compiler.export import prelude, script
from em.compiler.export.expression import (
    CALLED,
    COPIED,
    Names,
    is_word,
    keywords,
    literal,
    python_expression,
    python_value,
    refused,
)
from em.errors import ExportError
from em.runner.expressions.selection import OMITTED
from em.runner.tools import one_line
from em.values.canonical import Json
from em.values.leaves import texts
from em.values.syntax_tree import module_of

WIDTH = 100
PRELUDE = tuple(
    name
    for name, one in vars(prelude).items()
    if getattr(one, "__module__", "") == prelude.__name__
)
"""What a function may call of `prelude`."""
_OWN = {"tools", "ask", "Any", script.step.__name__, script.awaited.__name__}
_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list",
    "object": "dict",
}  # fmt: skip
_OF_RUNNER = frozenset({"idempotency_key", "parallel", "timeout"})
"""The fields of steps that need the runner; a function does all others."""
_FIELD_TYPES = ("text", "confirm", "json")
_NOTES = frozenset(
    "title description default examples deprecated readOnly writeOnly $schema $comment".split()
)
"""Words of JSON Schema that check nothing."""
_ABOUT_ARGUMENTS = frozenset({"type", "properties", "required", "additionalProperties"})
"""Words of the input schema that a signature says, or that are written for each input."""


def function_text(document: Json) -> str:
    """Return the function of a routine, for reading."""
    return Function(document).text()


class Function(Names):
    """Prints one routine. What the steps use and nothing defines is an input, too."""

    def __init__(
        self,
        document: Json,
        *,
        functions: Collection[str] = (),
        coroutines: Collection[str] = (),
        taken: Collection[str] = (),
        is_script: bool = False,
    ) -> None:
        self._document = document
        self.functions, self.coroutines = functions, coroutines
        self._is_script = is_script
        self._schema = document.get("input_schema") or {}
        self._hands_over = document.get("checks") == "hand_over"
        self._writes = writes_of(document)
        self._reserved = {*PRELUDE, *_OWN, *COPIED, *CALLED, *functions, *_udfs_of(document)}
        name = re.sub(r"\W", "_", document["name"], flags=re.ASCII)
        self.name = name if is_word(name) and name not in taken else f"do_{name}"
        self._words: set[str] = set()
        """All variables, also those of blocks."""
        self._variables: dict[str, str] = {}
        self._open: set[str] = set()
        """The values that may be missing here."""
        self._local: set[str] = set()
        """The values that are defined in the block that is printed now, or in the function."""
        self._again: set[str] = set()
        """The steps that save a value under a name that another step has saved."""
        self._has_written = False
        self._is_block = False
        self.inputs: dict[str, str] = {}
        """The inputs of the routine, each with its parameter."""
        required = self._schema.get("required", ())
        for name in dict.fromkeys([*required, *self._schema.get("properties", ())]):
            self.inputs[name] = self._define(name, is_open=name not in required)
        secrets = [one["name"] for one in document.get("secrets", ())]
        self.secrets = {name: self._define(name) for name in secrets}
        checks = [] if is_script else [*self._input_checks()]
        self._body = [*checks, *self._steps(document["steps"])] or ["return None"]

    def text(self) -> str:
        """Return the function."""
        lines = [self._signature(), *self._docstring(), *(f"    {line}" for line in self._body)]
        return "\n".join(lines) + "\n"

    def names_called(self) -> set[str]:
        """Return the names that the function uses and does not define."""
        tree = module_of(self.text())
        return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    # --- names ---

    def variable(self, name: str) -> str:
        """Return the variable that holds a value; what nothing defines is an input."""
        if name not in self._variables and name not in self.inputs:
            self.inputs[name] = self._free(name, self._words)
        return self._variables.get(name) or self.inputs[name]

    def may_be_missing(self, name: str) -> bool:
        """Return whether a value may not be there."""
        return name in self._open or name not in self._variables

    def _free(self, name: str, taken: Collection[str]) -> str:
        """Return a variable that holds no other value."""
        word = re.sub(r"\W", "_", name, flags=re.ASCII)
        word = word if is_word(word) else f"value_{word}".rstrip("_")
        while word in self._reserved or word in taken:
            word += "_"
        self._words.add(word)
        return word

    def _fresh(self, name: str) -> str:
        """Return a variable that holds nothing here, and no input."""
        return self._free(name, {*self._variables.values(), *self.inputs.values()})

    def _define(self, name: str, *, is_open: bool = False) -> str:
        """Return the variable for a value that is saved here; in a block it is the block's own."""
        if name not in self._local:
            self._local.add(name)
            is_input = name in self.inputs and name not in self._variables and not self._is_block
            self._variables[name] = self.inputs[name] if is_input else self._fresh(name)
        (self._open.add if is_open else self._open.discard)(name)
        return self._variables[name]

    @contextmanager
    def _block(self) -> Iterator[None]:
        """Keep the names that are defined in here to the steps in here."""
        before = self._variables, self._open, self._local, self._is_block
        self._variables, self._open = dict(self._variables), set(self._open)
        self._local, self._is_block = set(), True
        try:
            yield
        finally:
            self._variables, self._open, self._local, self._is_block = before

    # --- the frame ---

    def _signature(self) -> str:
        properties, required = self._schema.get("properties", {}), self._schema.get("required", ())
        parts = [
            f"{word}: {_hint(properties.get(name))}" + ("" if name in required else " = MISSING")
            for name, word in self.inputs.items()
        ]
        parts += ["*", "tools: Any", *(f"{word}: str" for word in self.secrets.values())]
        if any(step["type"] == "prompt.user" for step in walked(self._document["steps"])):
            parts.append("ask: Any")
        return _wrapped(f"def {self.name}(", parts, ") -> Any:")

    def _docstring(self) -> list[str]:
        about = self._document.get("description") or f"Do what {self._document['name']} says."
        if self._hands_over:
            about += "\n\nRaise an exception where something is not as recorded.\n"
            about += "Nothing was done then, unless a write came before."
        return docstring(about, "    ").rstrip("\n").split("\n")

    def _input_checks(self) -> Iterator[str]:
        """Yield what the inputs must look like."""
        properties = self._schema.get("properties", {})
        for name, schema in properties.items():
            word, kept = self.inputs[name], checked_schema(schema, name)
            if not kept:
                continue
            lines = _expected(word, kept)
            if name in self._open:
                yield f"if given({word}):"
                lines = [f"    {line}" for line in lines]
            yield from lines
        rest = {word: one for word, one in self._schema.items() if word not in _ABOUT_ARGUMENTS}
        if kept := checked_schema(rest, "input_schema"):
            values = keywords({name: self.inputs[name] for name in properties})
            yield from _expected(f"row({', '.join(values)})", kept)

    # --- steps ---

    def _steps(self, steps: Sequence[Json]) -> Iterator[str]:
        """Yield the lines of steps; a value that is found in several ways must agree."""
        saves = Counter(step["save_as"] for step in steps if "save_as" in step)
        seen: Counter[str] = Counter()
        for step in steps:
            name, lines = step.get("save_as", ""), []
            seen[name] += 1
            if name and seen[name] > 1:
                self._again.add(step["id"])
            elif saves[name] > 1 and name in self._local:
                raise refused("an input that steps save twice", f"step {step['id']}, field save_as")
            if name and "when" in step and name not in self._local:
                lines.append(f"{self._define(name, is_open=True)} = MISSING")
            is_open = bool(name) and "when" in step and name in self._open
            lines += self._made(step)
            if is_open:
                self._open.add(name)
            if self._is_script:
                yield f"with step({literal(step['id'])}):"
                lines = [f"    {line}" for line in lines]
            yield from lines

    def _made(self, step: Json) -> Iterator[str]:
        """Yield the lines of a step, under its condition."""
        for field in sorted(step.keys() & _OF_RUNNER):
            raise refused(f"`{field}`", f"step {step['id']}, field {field}")
        about = one_line(step.get("description", ""), 300)
        yield from (f"# {line}" for line in textwrap.wrap(about, WIDTH - 10))
        when = step.get("when")
        if when is None:
            yield from self._step(step)
            return
        condition = python_expression(when, f"step {step['id']}, field when", self)
        yield f"if {condition}:"
        yield from (f"    {line}" for line in self._step(step))

    def _step(self, step: Json) -> Iterator[str]:
        makers = {
            "tool.call": self._call, "udf.call": self._call, "assert": self._assert,
            "let": self._let, "for_each": self._for_each, "prompt.user": self._prompt,
        }  # fmt: skip
        kind = step["type"]
        if kind == "return":
            yield f"return {self._value(step, 'value')}"
            return
        if kind not in makers:
            raise refused(f"`{kind}` steps", f"step {step['id']}")
        yield from makers[kind](step)

    def _saved(self, step: Json, code: str) -> str:
        """Return code whose value gets the name that the step says, if it says one."""
        if not step.get("save_as"):
            return code
        word = self._define(step["save_as"])
        return f"{word} = " + (f"agreed({word}, {code})" if step["id"] in self._again else code)

    def _call(self, step: Json) -> Iterator[str]:
        is_write = self._is_write(step)
        if is_write and not self._has_written and self._hands_over:
            yield "# Everything is as recorded: from here on things are done."
        self._has_written |= is_write
        if step.get("for_each") is None:
            yield from self._called(step)
        else:
            yield from self._looped(step, self._called)

    def _looped(self, step: Json, made: Callable[[Json], Iterator[str]]) -> Iterator[str]:
        """Yield the loop of a step with `for_each`: its result is the list of all results."""
        over = python_value(step["for_each"], f"step {step['id']}, field for_each", self)
        name, is_call = step.get("save_as"), step["type"] != "assert"
        results = self._fresh(name) if name else ""
        with self._block():
            self._variables[""] = results
            item = self._define(step.get("as", "item"))
            one = "each result"
            inner = [*made({**step, "for_each": None, "save_as": one if name and is_call else ""})]
            result = self._variables.get(one, "")
        if name:
            yield f"{results} = []"
        yield f"for ({item},) in side_by_side({over}):"
        yield from (f"    {line}" for line in inner)
        if name and is_call:
            yield f"    {results}.append({result})"
        if name:
            yield from self._renamed(step, results if is_call else "None")

    def _renamed(self, step: Json, results: str) -> Iterator[str]:
        """Yield the assignment of the results of a loop, if they have not their name already."""
        line = self._saved(step, results)
        if line != f"{results} = {results}":
            yield line

    def _called(self, step: Json) -> Iterator[str]:
        """Yield a call with its checks."""
        checks, schema = step.get("checks") or {}, step.get("expect")
        is_caught = step.get("on_error", "fail") != "fail"
        if checks and is_caught:
            raise refused("`checks` with `on_error`", f"step {step['id']}, field checks")
        for text in checks.get("pre", ()):
            yield self._checked(step, text, "pre")
        call = self._attempted(step, self._repeated(step, self._target(step)), schema)
        if not step.get("save_as") and not checks.get("post") and (not schema or is_caught):
            yield from call.split("\n")
            return
        if step.get("save_as"):
            yield from self._saved(step, call).split("\n")
            word = self._variables[step["save_as"]]
        else:
            word = self._fresh("result")
            yield from f"{word} = {call}".split("\n")
        if checks.get("post"):
            with self._block():
                self._variables["result"] = word
                lines = [self._checked(step, text, "post") for text in checks["post"]]
            yield from lines
        if schema and not is_caught:
            yield from _expected(word, checked_schema(schema, f"step {step['id']}, field expect"))

    def _checked(self, step: Json, text: str, when: str) -> str:
        holds = python_expression(text, f"step {step['id']}, field checks", self)
        return f"check({holds}, {literal(f'the {when}-check failed: {text}')})"

    def _target(self, step: Json) -> str:
        """Return the call of a tool or a function."""
        place, args = f"step {step['id']}, field args", step.get("args", {})
        if step["type"] == "tool.call":
            tool = step["tool"]
            called = f"tools.{tool}" if is_word(tool) else f"getattr(tools, {literal(tool)})"
        elif step.get("effect") == "write":
            problem = "a script can't tell whether a function of udf.py did something"
            raise ExportError(
                problem, place=f"step {step['id']}, field effect", fix="make it a tool"
            )
        elif not is_word(step["function"]):
            raise refused(
                f"the function {step['function']!r}", f"step {step['id']}, field function"
            )
        else:
            called = step["function"]
            called = f"awaited({called})" if called in self.coroutines else called
        parts = keywords({name: python_value(one, place, self) for name, one in args.items()})
        if any(OMITTED in text for text in texts(args)):
            parts = [f"**row({', '.join(parts)})"]
        return _wrapped(f"{called}(", parts, ")")

    def _repeated(self, step: Json, call: str) -> str:
        retry = step.get("retry")
        if retry is None:
            return call
        if self._is_write(step):
            raise refused("`retry` of a write", f"step {step['id']}, field retry")
        known = {"attempts": 3, "backoff": 0.1, **retry}
        said = ", ".join(f"{name}={flow(value)}" for name, value in known.items())
        return f"again(lambda: {call}, {said})"

    def _attempted(self, step: Json, code: str, schema: Any = None) -> str:
        """Return code that goes on with the value of `on_error` where it fails."""
        on_error = step.get("on_error", "fail")
        if on_error == "fail":
            return code
        otherwise = on_error.get("default") if isinstance(on_error, Mapping) else None
        parts = [f"lambda: {code}", flow(otherwise)]
        if schema:
            parts.append(flow(checked_schema(schema, f"step {step['id']}, field expect")))
        return f"attempt({', '.join(parts)})"

    def _let(self, step: Json) -> Iterator[str]:
        value = self._attempted(step, self._value(step, "value"), step.get("expect"))
        yield self._saved(step, value)
        if step.get("expect") and step.get("on_error", "fail") == "fail":
            schema = checked_schema(step["expect"], f"step {step['id']}, field expect")
            yield from _expected(self._variables[step["save_as"]], schema)

    def _assert(self, step: Json) -> Iterator[str]:
        if step.get("for_each") is not None:
            if step.get("on_error", "fail") != "fail":
                raise refused("`on_error`", f"step {step['id']}, field on_error")
            yield from self._looped(step, self._assert)
            return
        held = f"# held in {one_line(step['held'], 20)}" if step.get("held") else ""
        message = self._value(step, "message") if step.get("message") else ""
        if message and message != literal(step["message"]):
            message = f"lambda: {message}"
        holds = python_expression(step["check"], f"step {step['id']}, field check", self)
        line = self._attempted(
            step, f"check({', '.join([holds, message] if message else [holds])})"
        )
        line = self._saved(step, line)
        if held and len(line) + len(held) + 2 > WIDTH - 8:
            yield held
            held = ""
        yield f"{line}  {held}".rstrip()

    def _prompt(self, step: Json) -> Iterator[str]:
        prompt, place = step["prompt"], f"step {step['id']}, field prompt"
        for field in prompt.get("fields", ()):
            if field.get("type", "text") not in _FIELD_TYPES:
                raise refused(f"the field {field['name']!r} of type {field['type']}", place)
        message = python_value(prompt["message"], place, self)
        fields = python_value(prompt.get("fields", []), place, self)
        line = _wrapped("ask(", [literal(step["id"]), message, fields], ")")
        yield from self._saved(step, line).split("\n")

    def _for_each(self, step: Json) -> Iterator[str]:
        place = f"step {step['id']}, field over"
        over = {name: python_expression(one, place, self) for name, one in step["over"].items()}
        most = [f"most={literal(step['max'])}"] if step.get("max") is not None else []
        name = step.get("save_as")
        result = self._fresh(name) if name else ""
        with self._block():
            self._variables[""] = result
            words = [self._define(one) for one in over]
            lines = [*self._steps(step["steps"])]
            saved = [one["save_as"] for one in step["steps"] if "save_as" in one]
            each = {one: self._variables[one] for one in dict.fromkeys([*over, *saved])}
        if result:
            yield f"{result} = []"
        rows = ", ".join([*over.values(), *most])
        yield f"for {', '.join(words)}{',' * (len(words) == 1)} in side_by_side({rows}):"
        if result:
            lines += _wrapped(f"{result}.append(row(", keywords(each), "))").split("\n")
        yield from (f"    {line}" for line in lines)
        if name:
            yield from self._renamed(step, result)
            if step.get("expect"):
                schema = checked_schema(step["expect"], f"step {step['id']}, field expect")
                yield from _expected(self._variables[name], schema)

    def _is_write(self, step: Json) -> bool:
        return step["type"] == "tool.call" and self._writes[step["tool"]]

    def _value(self, step: Json, field: str) -> str:
        return python_value(step.get(field), f"step {step['id']}, field {field}", self)


# --- what a document says -------------------------------------------------------------------------


def writes_of(document: Json) -> dict[str, bool]:
    """Return each tool that is called, and whether it has an effect: in doubt yes."""
    declared = {tool["name"]: _effect_of(tool) for tool in document.get("tools", ())}
    found: dict[str, bool] = {}
    for step in walked(document["steps"]):
        if step["type"] == "tool.call":
            is_write = (step.get("effect") or declared.get(step["tool"])) != "read"
            found[step["tool"]] = found.get(step["tool"], False) or is_write
    return found


def _effect_of(tool: Json) -> str | None:
    """Return the declared effect of a tool; an HTTP GET or HEAD is a read."""
    http = tool.get("http")
    is_read = http is not None and http.get("method", "GET") in ("GET", "HEAD")
    return tool.get("effect") or ("read" if is_read else None)


def _udfs_of(document: Json) -> set[str]:
    return {step["function"] for step in walked(document["steps"]) if step["type"] == "udf.call"}


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


# --- layout ---------------------------------------------------------------------------------------


def docstring(text: str, pad: str) -> str:
    """Return a docstring that holds a text, whatever it is."""
    printable = "".join(char if char.isprintable() or char == "\n" else " " for char in text)
    safe = printable.replace("\\", "\\\\").replace('"""', "'''").strip()
    lines: list[str] = []
    for line in safe.split("\n"):
        wrapped = textwrap.wrap(line, WIDTH - 6 - len(pad)) or [""]
        lines += [line] if line.startswith("    ") else wrapped
    if len(lines) == 1 and not lines[0].endswith('"'):
        return f'{pad}"""{lines[0]}"""\n'
    body = "\n".join(f"{pad}{line}".rstrip() for line in lines[1:])
    return f'{pad}"""{lines[0]}\n{body}\n{pad}"""\n'


def flow(value: Any) -> str:
    """Return a JSON value as Python, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {flow(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(map(flow, value)) + "]" if isinstance(value, list) else literal(value)


def _broken(head: str, value: Any, end: str = "") -> str:
    """Return code around a JSON value: in one line, or broken between its parts."""
    line = f"{head}{flow(value)}{end}"
    if len(line) <= WIDTH - 8 or not isinstance(value, dict | list):
        return line
    if isinstance(value, list):
        return _wrapped(f"{head}[", [_broken("", one) for one in value], f"]{end}")
    parts = [_broken(f"{literal(key)}: ", one) for key, one in value.items()]
    return _wrapped(f"{head}{{", parts, f"}}{end}")


def constant(name: str, value: Any) -> str:
    """Return the assignment of a JSON value to a constant."""
    return _broken(f"{name}: dict[str, Any] = ", value)


def _hint(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return _TYPES.get(kind, "Any") if isinstance(kind, str) else "Any"


def _expected(code: str, schema: Any) -> list[str]:
    end = f", {literal(code)})" if code.isidentifier() else ")"
    return _broken(f"expect({code}, ", schema, end).split("\n")


def _wrapped(head: str, parts: Sequence[str], end: str) -> str:
    """Return a call or a signature: in one line, or with as many parts in a line as fit."""
    line = head + ", ".join(parts) + end
    if (len(line) <= WIDTH - 8 and "\n" not in line) or not parts:
        return line
    lines = [""]
    for part in parts:
        is_full = len(lines[-1]) + len(part) + 6 > WIDTH - 8
        if lines[-1] and (is_full or "\n" in lines[-1] + part):
            lines.append("")
        lines[-1] = f"{lines[-1]} {part},".lstrip(" ")
    return "\n".join([head, textwrap.indent("\n".join(lines), "    "), end])
