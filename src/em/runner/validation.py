"""Validation: every problem of a routine package at once, each with its file and line."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal

import msgspec

from em.errors import ExpressionError, RoutineError
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import (
    HOLDS,
    compile_expression,
    compile_value,
    names_in,
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
from em.values.strict_yaml import LineNumbers, load_yaml_with_nodes, repeated_names

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
        lines = LineNumbers(root)
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
        inputs = InputNames(value.get("input_schema"), self._json(INPUT)[0], value.get("secrets"))
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
        lines = LineNumbers.of_json((self._folder / name).read_bytes())
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
            return None, [Problem(str(path), LineNumbers.in_json(text, error), "JSON", f"{error}")]
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


class InputNames:
    """The names of a routine's inputs, as far as its schema and example show them."""

    def __init__(self, schema: Any, example: Any, secrets: Any = ()) -> None:
        declared = json_schema.Declared(schema)
        self.is_closed = not declared.is_open and not declared.patterns
        self.names = frozenset(declared.names)
        if not self.is_closed and isinstance(example, dict):
            self.names |= example.keys()
        for secret in secrets if isinstance(secrets, list) else ():
            if isinstance(secret, dict) and isinstance(secret.get("name"), str):
                self.names |= {secret["name"]}


class References:
    """Checks in the order of the steps what each refers to.

    If the schema leaves the input open, a name that nothing defines may be an input: `assumed`
    lists it once, and it is not a problem by itself.
    """

    def __init__(self, steps: list[Any], inputs: InputNames, functions: Set[str]) -> None:
        self._steps = steps
        self._inputs = inputs
        self._known = inputs.names | SCOPE.keys() | functions
        self._functions = SCOPE.keys() | functions
        self.assumed: dict[str, tuple[Where, str]] = {}

    def problems(self) -> Iterator[Found]:
        """Yield every problem of expressions and names."""
        yield from self._all(self._steps, ())

    def _all(self, steps: Sequence[Any], where: Where) -> Iterator[Found]:
        for number, step in enumerate(steps):
            if isinstance(step, dict):
                check = self._block if step.get("type") == "for_each" else self._step
                yield from check(step, (*where, "steps", number))
                if isinstance(step.get("save_as"), str):
                    self._known |= {step["save_as"]}

    def _block(self, step: Json, where: Where) -> Iterator[Found]:
        """Yield the problems of a block. What it saves is local to it, but for its result."""
        over, outside = _mapping(step, "over"), self._known
        for name, source in over.items():
            yield from self._bare(source, (*where, "over", name), frozenset())
        rest = {key: value for key, value in step.items() if key not in ("over", "steps")}
        yield from self._step(rest, where)
        self._known = outside | over.keys()
        yield from self._all(_list_in(step, "steps"), where)
        self._known = outside

    def _step(self, step: Json, where: Where) -> Iterator[Found]:
        own = {str(step.get("as", "item"))} if step.get("for_each") is not None else set()
        for field, item in step.items():
            path = (*where, field)
            # The item is defined only where the step runs for each one.
            known = set() if field in ("when", "for_each") else own
            if field == "checks":
                yield from self._checks(item, path, known)
            elif HOLDS.get(field) == "bare":
                yield from self._bare(item, path, known)
            elif HOLDS.get(field) == "values":
                yield from self._value(item, path, known)
            elif field not in HOLDS:
                for at, _ in texts_in(item, path):
                    yield at, "an expression here is not evaluated", "write the value itself"

    def _all_bare(self, sources: Any, where: Where, own: Set[str] = frozenset()) -> Iterator[Found]:
        for number, source in enumerate(sources if isinstance(sources, list) else ()):
            yield from self._bare(source, (*where, number), own)

    def _checks(self, checks: Any, where: Where, own: Set[str]) -> Iterator[Found]:
        for when, sources in checks.items() if isinstance(checks, dict) else ():
            known = own | {"result"} if when == "post" else own
            yield from self._all_bare(sources, (*where, when), known)

    def _value(self, value: Any, where: Where, own: Set[str]) -> Iterator[Found]:
        for at, text in texts_in(value, where):
            yield from self._text(text, at, own)
        for at in _templated_names(value, where):
            yield at, "an expression in a name is not evaluated", "write the name itself"

    def _bare(self, source: Any, where: Where, own: Set[str]) -> Iterator[Found]:
        if not isinstance(source, str):
            return
        if "{{" in source or "{%" in source:
            yield where, "expected a bare expression, found {{ }}", "remove the {{ }}"
            return
        try:
            compile_expression(source, "")
            used = names_in(source, "", bare=True)
        except ExpressionError as error:
            yield where, error.message, error.fix
        else:
            yield from self._names(used, where, own)

    def _text(self, text: str, where: Where, own: Set[str]) -> Iterator[Found]:
        try:
            compile_value(text, "")
            used = names_in(text, "")
        except ExpressionError as error:
            yield where, error.message, error.fix
        else:
            yield from self._names(used, where, own)

    def _names(self, used: Set[str], where: Where, own: Set[str]) -> Iterator[Found]:
        known = self._known | own
        for name in sorted(used - known):
            fix = closest(name, sorted(known - SCOPE.keys()))
            blocks = [path for path, step in all_steps(self._steps) if _saves(step, name)]
            if any(path < where and len(path) > 2 for path in blocks):
                fix = "use the name under which the block saves its turns"
                yield where, f"{name!r} is known only in the block that saves it", fix
            elif blocks:
                yield where, f"{name!r} is used before it exists", fix
            elif self._inputs.is_closed:
                yield where, f"{name!r} is not defined", fix
            else:
                self.assumed.setdefault(name, (where, fix))

    def shadows(self) -> Iterator[Found]:
        """Yield the names of results that no expression can use, or that hide a function."""
        for path, step in all_steps(self._steps):
            named = [(step.get(field), (*path, field)) for field in ("save_as", "as")]
            named += [(name, (*path, "over", name)) for name in _mapping(step, "over")]
            for name, where in named:
                if not isinstance(name, str) or "{{" in name:
                    continue
                if not name.isidentifier():
                    yield where, f"no expression can refer to {name!r}", "use letters, digits and _"
                elif name in self._functions:
                    yield where, f"{name!r} hides the function of that name", "use another name"


def all_steps(steps: Sequence[Any], where: Where = ()) -> Iterator[tuple[Where, Json]]:
    """Yield the steps of a parsed routine with their places, also those in blocks."""
    for number, step in enumerate(steps):
        if isinstance(step, dict):
            path = (*where, "steps", number)
            yield path, step
            yield from all_steps(_list_in(step, "steps"), path)


def _saves(step: Json, name: str) -> bool:
    return step.get("save_as") == name or name in _mapping(step, "over")


def _mapping(value: Any, field: str) -> Mapping[str, Any]:
    found = value.get(field) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _list_in(value: Any, field: str) -> list[Any]:
    found = value.get(field) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _templated_names(value: Any, where: Where) -> Iterator[Where]:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and ("{{" in key or "{%" in key):
                yield (*where, key)
            yield from _templated_names(item, (*where, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _templated_names(item, (*where, number))
