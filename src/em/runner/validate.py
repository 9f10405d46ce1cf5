"""Everything that is wrong with a routine at once, each with its line."""

import ast
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml

from em.errors import ExpressionError, RoutineError
from em.models.canonical import Json
from em.models.routine import Routine, Step, ToolSpec
from em.runner import schemas
from em.runner.expressions import expressions_in, names_in
from em.runner.functions import FUNCTIONS
from em.runner.package import ROUTINE, UDF, parse_yaml

_STEPS = {kind.__struct_config__.tag: kind for kind in get_args(Step)}
_BARE = ("when", "check")


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    file: str
    line: int
    place: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.place}: {self.message}"
        return f"{text} ({self.fix})" if self.fix else text


def validate(folder: str | Path) -> list[Problem]:
    """What is wrong with the routine in a folder; nothing, if it can be run."""
    path = Path(folder) / ROUTINE
    try:
        text = path.read_bytes()
        value = parse_yaml(text, str(path))
    except FileNotFoundError:
        return [Problem(str(path), 0, "package", f"there is no {ROUTINE} here")]
    except RoutineError as error:
        file, _, line = error.place.rpartition(":")
        number = int(line) if line.isdecimal() else 0
        return [Problem(file if number else str(path), number, "YAML", error.message)]
    if not isinstance(value, dict):
        return [Problem(str(path), 1, "routine", "a routine is names with values")]
    lines = _Lines(yaml.compose(text, Loader=yaml.SafeLoader))
    checker = _Checker(value, _functions(Path(folder) / UDF))
    found = [
        Problem(str(path), lines.of(where), _place(value, where), message, fix)
        for where, message, fix in checker.problems()
    ]
    return sorted(found, key=lambda problem: problem.line)


Where = tuple[str | int, ...]
Found = tuple[Where, str, str]


class _Lines:
    """From a path in the value to the line it stands on."""

    def __init__(self, root: yaml.Node | None) -> None:
        self._root = root

    def of(self, where: Where) -> int:
        node, line = self._root, 1
        for part in where:
            child = None
            if isinstance(node, yaml.MappingNode):
                for key, item in node.value:
                    if key.value == str(part):
                        child, line = item, key.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                child = node.value[part]
                line = child.start_mark.line + 1
            if child is None:
                break
            node = child
        return line


class _Checker:
    def __init__(self, value: Json, functions: set[str] | None) -> None:
        self._value = value
        self._functions = functions
        steps = value.get("steps")
        self._steps: list[Any] = steps if isinstance(steps, list) else []

    def problems(self) -> Iterator[Found]:
        yield from _unknown(self._value, Routine.__struct_encode_fields__, ())
        for field in ("input_schema", "output_schema"):
            schema = self._value.get(field)
            if schema is not None and (problem := schemas.schema_problem(schema)):
                yield (field,), f"this is no JSON Schema: {problem}", ""
        yield from self._top()
        yield from self._ids()
        yield from self._flow()
        names = self._inputs()
        for number, step in enumerate(self._steps):
            where: Where = ("steps", number)
            if not isinstance(step, dict):
                yield where, "a step is names with values", ""
                continue
            yield from self._shape(step, where)
            yield from self._targets(step, where)
            yield from self._expressions(step, where, names)
            if isinstance(step.get("save_as"), str):
                names.add(step["save_as"])

    def _top(self) -> Iterator[Found]:
        """The routine without its steps, which are checked one by one."""
        known = _known(self._value, Routine)
        steps = known.pop("steps", [])
        if not isinstance(steps, list):
            yield ("steps",), "steps are a list", ""
        tools = known.get("tools")
        if isinstance(tools, list):
            for number, tool in enumerate(tools):
                if isinstance(tool, dict):
                    yield from _unknown(tool, ToolSpec.__struct_encode_fields__, ("tools", number))
            known["tools"] = [
                _known(tool, ToolSpec) if isinstance(tool, dict) else tool for tool in tools
            ]
        try:
            msgspec.convert(known, Routine)
        except msgspec.ValidationError as error:
            yield from _told(error, ())

    def _ids(self) -> Iterator[Found]:
        seen: set[str] = set()
        for number, step in enumerate(self._steps):
            step_id = step.get("id") if isinstance(step, dict) else None
            if isinstance(step_id, str):
                if step_id in seen:
                    yield ("steps", number, "id"), f"two steps are called {step_id!r}", ""
                seen.add(step_id)

    def _flow(self) -> Iterator[Found]:
        for number, step in enumerate(self._steps[:-1]):
            if isinstance(step, dict) and step.get("type") == "return" and "when" not in step:
                yield ("steps", number + 1), "no step behind a return is ever reached", "remove it"
                return

    def _inputs(self) -> set[str]:
        schema = self._value.get("input_schema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        names = set(properties) if isinstance(properties, dict) else set()
        self._any_input = not isinstance(properties, dict)
        for secret in self._value.get("secrets") or ():
            names.add(str(secret.get("name")) if isinstance(secret, dict) else "")
        return names | set(FUNCTIONS) | (self._functions or set())

    def _shape(self, step: Json, where: Where) -> Iterator[Found]:
        kind = _STEPS.get(step.get("type"))
        if kind is None:
            close = get_close_matches(str(step.get("type")), [str(tag) for tag in _STEPS], 1)
            known = ", ".join(sorted(str(tag) for tag in _STEPS))
            fix = f"did you mean {close[0]!r}?" if close else f"there are: {known}"
            yield (*where, "type"), f"there is no step type {step.get('type')!r}", fix
            return
        fields = (*kind.__struct_encode_fields__, "type")
        yield from _unknown(step, fields, where)
        try:
            msgspec.convert({key: item for key, item in step.items() if key in fields}, kind)
        except msgspec.ValidationError as error:
            yield from _told(error, where)

    def _targets(self, step: Json, where: Where) -> Iterator[Found]:
        declared = [
            str(tool.get("name"))
            for tool in self._value.get("tools") or ()
            if isinstance(tool, dict)
        ]
        tool, function = step.get("tool"), step.get("function")
        if step.get("type") == "tool.call" and declared and tool not in declared:
            yield (*where, "tool"), f"the tool {tool!r} is not declared", _closest(tool, declared)
        known = self._functions
        if step.get("type") == "udf.call" and known is not None and function not in known:
            fix = _closest(function, sorted(known)) or f"write it in {UDF}"
            yield (*where, "function"), f"there is no function {function!r}", fix

    def _expressions(self, step: Json, where: Where, names: set[str]) -> Iterator[Found]:
        own = {str(step.get("as", "item"))} if step.get("for_each") is not None else set()
        for field, item in step.items():
            path = (*where, field)
            if field in _BARE and isinstance(item, str):
                yield from self._names(item, path, names | own, bare=True)
            elif field == "checks" and isinstance(item, dict):
                for when, sources in item.items():
                    for source in sources if isinstance(sources, list) else ():
                        result = {"result"} if when == "post" else set()
                        yield from self._names(str(source), path, names | own | result, bare=True)
            elif field not in ("id", "type", "description", "save_as", "as"):
                for _, text in expressions_in(item):
                    yield from self._names(text, path, names | own)

    def _names(
        self, source: str, where: Where, known: set[str], *, bare: bool = False
    ) -> Iterator[Found]:
        try:
            used = names_in(source, "", bare=bare)
        except ExpressionError as error:
            yield where, error.message, ""
            return
        if self._any_input:
            return
        for name in sorted(used - known):
            later = any(isinstance(s, dict) and s.get("save_as") == name for s in self._steps)
            why = "is used before it exists" if later else "is not defined"
            yield where, f"{name!r} {why}", _closest(name, sorted(known - set(FUNCTIONS)))


def _unknown(value: Json, fields: Any, where: Where) -> Iterator[Found]:
    for key in value:
        if key not in fields:
            yield (*where, key), f"there is no field {key!r}", _closest(key, list(fields))


def _known(value: Json, kind: type[msgspec.Struct]) -> Json:
    """Without what the kind does not have, which is told by itself."""
    return {key: item for key, item in value.items() if key in kind.__struct_encode_fields__}


def _closest(name: Any, known: list[str]) -> str:
    close = get_close_matches(str(name), known, 1)
    return f"did you mean {close[0]!r}?" if close else ""


def _told(error: msgspec.ValidationError, where: Where) -> Iterator[Found]:
    message, _, path = str(error).partition(" - at `$")
    field = path.rstrip("`").lstrip(".").partition(".")[0].partition("[")[0]
    yield ((*where, field) if field else where), message, ""


def _place(value: Json, where: Where) -> str:
    if len(where) >= 2 and where[0] == "steps":
        step = value["steps"][where[1]]
        step_id = step.get("id", where[1]) if isinstance(step, dict) else where[1]
        field = f", field {where[2]}" if len(where) > 2 else ""
        return f"step {step_id}{field}"
    return ".".join(str(part) for part in where) or "routine"


def _functions(path: Path) -> set[str] | None:
    """The functions that udf.py defines, without running it; None where there is no such file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (FileNotFoundError, SyntaxError, ValueError):
        return None if not path.exists() else set()
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
