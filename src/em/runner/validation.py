"""Validation: every problem of a routine package at once, each with its file and line."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from em.errors import ExpressionError, RoutineError
from em.runner.expressions.language import (
    Inputs,
    References,
    all_steps,
    compile_value,
    texts_in,
)
from em.runner.package import ROUTINE, UDF, udf_names
from em.runner.routine import Routine, ToolSpec
from em.runner.template import parse_template
from em.runner.tools import Tool, argument_problem
from em.runner.tools.declarations import argument_names
from em.values import json_schema
from em.values.canonical import Json
from em.values.files import read_file
from em.values.mismatch import Found, Where, closest, dotted, shape_problems
from em.values.strict_yaml import Lines, load_yaml_with_nodes, repeated_names

INPUT = "input.json"
OUTPUT = "expected_output.json"
RECORDING = "recording.json"

Severity = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True):
    """One problem of a package; a warning may be intended."""

    file: str
    line: int
    place: str
    message: str
    fix: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        sign = "" if self.severity == "error" else "warning: "
        text = f"{self.file}:{self.line}: {sign}{self.place}: {self.message}"
        return f"{text} ({self.fix})" if self.fix else text


def validate(
    folder: str | Path,
    *,
    tools: Mapping[str, Tool] | None = None,
    udfs: Mapping[str, Any] | None = None,
) -> list[Problem]:
    """Return every problem of the routine in a folder; without errors it can run.

    With `tools`, each tool that a step calls must be among them or be declared with a command or
    an address. `udfs` are functions beside those of udf.py.
    """
    found = list(_Package(Path(folder), tools, udfs or {}).problems())
    return sorted(found, key=lambda problem: (problem.file != _routine(folder), problem.line))


def _routine(folder: str | Path) -> str:
    return str(Path(folder) / ROUTINE)


class _Package:
    def __init__(
        self, folder: Path, tools: Mapping[str, Tool] | None, udfs: Mapping[str, Any]
    ) -> None:
        self._folder = folder
        self._tools = tools
        self._udfs = udfs

    def problems(self) -> Iterator[Problem]:
        path = self._folder / ROUTINE
        try:
            text = read_file(path, RoutineError)
            value, root = load_yaml_with_nodes(text, str(path), RoutineError)
        except FileNotFoundError:
            yield Problem(str(path), 0, "package", f"there is no {ROUTINE} here")
            return
        except RoutineError as error:
            yield _at(error, path, "YAML")
            yield from self._functions()[1]
            return
        lines = Lines(root)
        for name in repeated_names(root):
            yield Problem(str(path), name.line, "YAML", str(name), "keep one of them")
        if not isinstance(value, dict):
            yield Problem(str(path), 1, "routine", "a routine must be a mapping of names to values")
            return

        def told(found: Found, severity: Severity = "error") -> Problem:
            where, message, fix = found
            place = _place(value, where)
            return Problem(str(path), lines.of(where), place, message, fix, severity)

        yield from map(told, self._routine(value))
        yield from self._referring(value, told)
        yield from self._recorded(value)

    def _routine(self, value: Json) -> Iterator[Found]:
        """Check the routine by itself: its fields, its schemas, its steps' ids and order."""
        yield from shape_problems(value, Routine)
        for where, schema in _schemas(value):
            for inside, problem in json_schema.schema_problems(schema):
                yield (*where, *inside), f"invalid JSON Schema: {problem}", ""
        yield from _templates(value)
        steps = _steps(value)
        yield from _ids(steps)
        yield from _flow(steps)
        yield from _requests(value)
        yield from self._called(value, steps)

    def _called(self, value: Json, steps: list[Any]) -> Iterator[Found]:
        declared = {
            str(tool.get("name")): tool
            for tool in _list(value.get("tools"))
            if isinstance(tool, dict)
        }
        own = _declared_arguments(declared)
        for where, name, args in _calls(steps):
            if _of_a_server(name, declared):
                continue
            if declared and name not in declared:
                fix = closest(name, declared)
                yield (*where, "tool"), f"the tool {name!r} is not declared", fix
            elif name in own and name not in (self._tools or {}):
                yield from _arguments(args, own[name], (*where, "args"))
            elif self._tools is not None and name not in self._tools:
                fix = closest(name, list(self._tools)) or "pass a module that has it (--tools)"
                yield (*where, "tool"), f"there is no tool {name!r}", fix
            if self._tools is not None and name in self._tools and isinstance(args, dict):
                problem = argument_problem(self._tools[name], args)
                if problem:
                    yield (*where, "args"), problem, ""

    def _functions(self) -> tuple[frozenset[str] | None, list[Problem]]:
        """Return the functions (None if only running udf.py can tell) and udf.py's problems."""
        path = self._folder / UDF
        if not path.exists():
            return frozenset(self._udfs), []
        try:
            names = udf_names(path)
        except RoutineError as error:
            return None, [_at(error, path, "Python")]
        return None if names is None else names | self._udfs.keys(), []

    def _referring(self, value: Json, told: Callable[..., Problem]) -> Iterator[Problem]:
        steps = _steps(value)
        functions, broken = self._functions()
        yield from broken
        if functions is not None:
            yield from map(told, self._own_calls(steps, functions))
        inputs = Inputs(value.get("input_schema"), self._json(INPUT)[0], value.get("secrets"))
        references = References(steps, inputs, functions or frozenset())
        yield from map(told, references.problems())
        for found in references.shadows():
            yield told(found, "warning")
        for name, (where, fix) in references.assumed.items():
            if functions is not None:
                message = f"no step saves {name!r}: it must come with the input"
                yield told((where, message, fix or "name it in input_schema"), "warning")

    def _own_calls(self, steps: list[Any], functions: frozenset[str]) -> Iterator[Found]:
        there_is_a_file = (self._folder / UDF).exists()
        for where, step in all_steps(steps):
            name = step.get("function")
            if isinstance(name, str) and name not in functions and step.get("type") == "udf.call":
                fix = closest(name, functions) or f"write it in {UDF}"
                missing = "" if there_is_a_file else f": there is no {UDF}"
                yield (*where, "function"), f"there is no function {name!r}{missing}", fix

    def _recorded(self, value: Json) -> Iterator[Problem]:
        """Check that the recording fits the routine."""
        for name, field in ((INPUT, "input_schema"), (OUTPUT, "output_schema"), (RECORDING, "")):
            recorded, problems = self._json(name)
            yield from problems
            schema = value.get(field)
            if not problems and (self._folder / name).exists() and schema is not None:
                yield from self._fits(name, recorded, schema, field)
        if (self._folder / RECORDING).exists():
            for name in (INPUT, OUTPUT):
                if not (self._folder / name).exists():
                    message = f"{RECORDING} is there, {name} is missing"
                    yield Problem(
                        str(self._folder / name), 0, "package", message, "compile it again"
                    )

    def _fits(self, name: str, recorded: Any, schema: Any, field: str) -> Iterator[Problem]:
        if any(json_schema.schema_problems(schema)):
            return  # reported already
        lines = Lines.of_json((self._folder / name).read_bytes())
        if field == "input_schema" and isinstance(recorded, dict):
            declared = json_schema.Declared(schema)
            for extra in declared.without(recorded):
                message = f"{field} does not declare {extra!r}"
                fix = closest(extra, declared.names)
                place = str(self._folder / name)
                yield Problem(place, lines.of((extra,)), extra, message, fix)
            recorded = {
                key: value for key, value in recorded.items() if not declared.without([key])
            }
        for where, problem in json_schema.value_problems(schema, recorded):
            place = dotted(where) or "value"
            message = f"it does not fit {field}: {problem}"
            yield Problem(str(self._folder / name), lines.of(where), place, message)

    def _json(self, name: str) -> tuple[Any, list[Problem]]:
        path = self._folder / name
        try:
            text = read_file(path, RoutineError)
            value = msgspec.json.decode(text)
        except FileNotFoundError:
            return None, []
        except RoutineError as error:
            return None, [_at(error, path, "JSON")]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return None, [Problem(str(path), Lines.in_json(text, error), "JSON", f"{error}")]
        if name == INPUT and not isinstance(value, dict):
            return None, [
                Problem(str(path), 1, "JSON", "the input must be a mapping of names to values")
            ]
        return value, []


def _at(error: RoutineError, path: Path, place: str) -> Problem:
    """Turn an error whose place ends in a line into a problem."""
    _, _, line = error.place.rpartition(":")
    return Problem(str(path), int(line) if line.isdecimal() else 0, place, error.message, error.fix)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _steps(value: Json) -> list[Any]:
    return _list(value.get("steps"))


def _schemas(value: Json) -> Iterator[tuple[Where, Any]]:
    for field in ("input_schema", "output_schema"):
        if value.get(field) is not None:
            yield (field,), value[field]
    for number, tool in enumerate(_list(value.get("tools"))):
        for field in ("args_schema", "result_schema"):
            if isinstance(tool, dict) and tool.get(field) is not None:
                yield ("tools", number, field), tool[field]
    for where, step in all_steps(_steps(value)):
        if step.get("expect") is not None:
            yield (*where, "expect"), step["expect"]


def _calls(steps: list[Any]) -> Iterator[tuple[Where, str, Any]]:
    """Yield the tools that steps call: where each is named, and its arguments."""
    for where, step in all_steps(steps):
        if step.get("type") == "tool.call" and isinstance(step.get("tool"), str):
            yield where, step["tool"], step.get("args") or {}


def _of_a_server(name: str, declared: Mapping[str, Json]) -> bool:
    """Return whether a tool belongs to a declared MCP server."""
    try:
        tools = msgspec.convert(list(declared.values()), list[ToolSpec])
    except msgspec.ValidationError:
        return False  # reported by itself
    found = Routine(name="", tools=tools).says_how(name)
    return found is not None and found.mcp is not None


def _declared_arguments(declared: Mapping[str, Json]) -> dict[str, tuple[set[str], set[str]]]:
    """Return, for each declared tool, the arguments it needs and those it may get."""
    found = {}
    for name, value in declared.items():
        try:
            spec = msgspec.convert(value, ToolSpec)
            # Only the server knows the arguments of its tools.
            needed = argument_names(spec) if spec.says_how and spec.mcp is None else None
        except (msgspec.ValidationError, RoutineError):
            continue  # reported by itself
        if needed is not None:
            properties = (spec.args_schema or {}).get("properties")
            may = set(properties) if isinstance(properties, dict) else set()
            found[name] = needed, needed | may
    return found


def _arguments(args: Any, known: tuple[set[str], set[str]], where: Where) -> Iterator[Found]:
    if not isinstance(args, dict):
        return
    needed, may = known
    for name in sorted(needed - args.keys() - {"idempotency_key"}):
        yield where, f"the argument {name!r} is missing", ""
    for name in sorted(args.keys() - may, key=str):
        yield (*where, name), f"the tool takes no argument {name!r}", closest(name, may)


def _templates(value: Json) -> Iterator[Found]:
    """Yield the expressions of declared tools that don't parse."""
    for number, tool in enumerate(_list(value.get("tools"))):
        for field in ("command", "http"):
            part = tool.get(field) if isinstance(tool, dict) else None
            for where, text in texts_in(part, ("tools", number, field)):
                try:
                    compile_value(text, "")
                except ExpressionError as error:
                    yield where, error.message, error.fix
        if isinstance(tool, dict) and isinstance(tool.get("shell"), str):
            from em.runner.tools.shell import template_of

            try:
                template_of(msgspec.convert(tool, ToolSpec))
            except msgspec.ValidationError:
                continue  # reported by itself
            except RoutineError as error:
                yield ("tools", number, "shell"), error.message, error.fix


def _ids(steps: list[Any]) -> Iterator[Found]:
    seen: set[str] = set()
    for where, step in all_steps(steps):
        step_id = step.get("id")
        if isinstance(step_id, str):
            if step_id in seen:
                yield (*where, "id"), f"two steps have the id {step_id!r}", ""
            seen.add(step_id)


def _flow(steps: list[Any]) -> Iterator[Found]:
    for number, step in enumerate(steps[:-1]):
        if isinstance(step, dict) and step.get("type") == "return" and step.get("when") is None:
            yield ("steps", number + 1), "a step behind a return never runs", "remove it"
            return


def _requests(value: Json) -> Iterator[Found]:
    """Yield the templates that can't be read, and their holes that are not inputs."""
    declared = json_schema.Declared(value.get("input_schema"))
    for number, text in enumerate(_list(value.get("requests"))):
        try:
            holes = parse_template(text).inputs if isinstance(text, str) else ()
        except RoutineError as error:
            yield ("requests", number), error.message, error.fix
            continue
        for hole in declared.without(dict.fromkeys(holes)):
            fix = closest(hole, declared.names) or "declare it in input_schema"
            yield ("requests", number), f"{hole!r} is not an input", fix


def _place(value: Json, where: Where) -> str:
    found, rest, step_id = value, where, None
    while len(rest) >= 2 and rest[0] == "steps" and isinstance(rest[1], int):
        step = found["steps"][rest[1]]
        step_id = step.get("id", rest[1]) if isinstance(step, dict) else rest[1]
        found, rest = step, rest[2:]
    if step_id is None:
        return dotted(where) or "routine"
    return f"step {step_id}, field {dotted(rest)}" if rest else f"step {step_id}"
