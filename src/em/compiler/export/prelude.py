"""The code that an exported function calls beside its tools. It needs the standard library only.

`em routine export` copies what a script uses. Each definition does what the runner does at that
point. A routine that hands over does so for whatever stops it before its first write: nothing was
done. What stops a script later says what was done, since there is no journal.
"""

import argparse
import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from em.values.canonical import same
from em.values.json_schema import is_code, is_line, is_name, is_text

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""Stands for a value that is not there: an input that was not given, the result of a skipped step.
"""


class CheckFailed(Exception):
    """Something is not as it must be."""


class Failed(Exception):
    """A step failed, and the run with it. made: the calls with an effect that came before."""

    made: Sequence[str] = ()

    def __init__(self, step_id: str, error_type: str, message: str) -> None:
        self.step_id, self.error_type, self.message = step_id, error_type, message
        place = f"step {step_id}: " if step_id else ""
        super().__init__(f"{place}{error_type}: {message}")


class HandedOver(Exception):
    """Something is not as it was recorded, and nothing was done: do the task without the script."""

    def __init__(self, step_id: str, why: str) -> None:
        self.step_id, self.message = step_id, f"handed over: {why}; nothing was done"
        super().__init__(self.message)


# --- the run --------------------------------------------------------------------------------------


class Effects:
    """The calls with an effect of a run. unsure: those that were begun and did not return."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.unsure: list[str] = []

    def noting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a tool that notes that its call was begun, and that it returned."""

        def call(**args: Any) -> Any:
            self.unsure.append(name)
            result = function(**args)
            self.unsure.remove(name)
            self.made.append(name)
            return result

        return call

    def told(self, problem: Any) -> Any:
        """Return an error that says what was done before it."""
        said = [f"It is not known whether {self.unsure[-1]} was done"] if self.unsure else []
        if self.made:
            problem.made = tuple(self.made)
            said.append(f"Done before, and not undone: {', '.join(self.made)}")
            said.append("Finish by hand, and don't start it again from the beginning")
        problem.args = (". ".join([str(problem), *said]),)
        return problem


def run_function(
    function: Callable[..., Any], routine: Mapping[str, Any], given: Any, tools: Any
) -> Any:
    """Run the function of a routine with an input and its tools."""
    effects = Effects()
    brought = bring(tools, routine["tools"], effects)
    more: dict[str, Any] = {"tools": brought}
    more |= {word: secret(*known) for word, known in routine["secrets"].items()}
    try:
        with step("input" if routine["hands_over"] else ""):
            taken = take_input(routine, given)
        output = function(**taken, **more)
        with step(""):
            expect(output, routine["output_schema"], "output")
    except Failed as problem:
        if routine["hands_over"] and not effects.made and not effects.unsure:
            raise HandedOver(problem.step_id, problem.message) from problem.__cause__
        raise effects.told(problem) from problem.__cause__
    return output


@contextmanager
def step(step_id: str) -> Iterator[None]:
    """Report an error inside this block as a failure of the step."""
    try:
        yield
    except Failed:
        raise
    except Exception as error:
        message = str(error) or type(error).__name__
        raise Failed(step_id, type(error).__name__, message) from error


def take_input(routine: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Return the input of a run under the names of its function, if it fits its schema."""
    check(isinstance(given, dict), "the input must be an object")
    schema = routine["input_schema"]
    expect(given, schema, "input")
    return {word: given[name] for name, word in routine["inputs"].items() if name in given}


def secret(name: str, variable: str) -> str:
    """Return a secret from the environment."""
    value = os.environ.get(variable)
    if not value:
        raise Failed("", "CheckFailed", f"the secret {name!r} is not set: set {variable}")
    return value


def bring(tools: Any, names: Mapping[str, Any], effects: Effects) -> SimpleNamespace:
    """Return the tools by name, from a module, an object or a mapping.

    names: for each tool the first step that calls it, and whether it has an effect.
    """
    found: dict[str, Any] = {}
    for name, (step_id, is_write) in names.items():
        is_mapping = isinstance(tools, Mapping)
        tool = tools.get(name) if is_mapping else getattr(tools, name, None)
        if tool is None:
            raise Failed(step_id, "CheckFailed", f"there is no tool {name!r}")
        found[name] = effects.noting(awaited(tool), name) if is_write else awaited(tool)
    return SimpleNamespace(**found)


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a coroutine function to its end; others as they are."""
    if not inspect.iscoroutinefunction(function):
        return function
    return lambda *args, **named: asyncio.run(function(*args, **named))


# --- the command ----------------------------------------------------------------------------------


def main(run: Callable[..., Any], description: str) -> None:
    """Run this file as a command: print the output as JSON, exit with 1 if a step fails.

    The exit code is 2 if an argument is wrong.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--input", metavar="JSON|FILE", help="the input as JSON; - for stdin")
    parser.add_argument("--tools", metavar="MODULE|FILE", help="where the tools are")
    given = parser.parse_args()
    try:
        # Standard output holds the result alone, whatever tools print.
        with redirect_stdout(sys.stderr):
            try:
                data = typed_object(given.input)
                tools = load_tools(given.tools) if given.tools else {}
            except (ImportError, OSError, SyntaxError, TypeError, ValueError) as problem:
                parser.error(f"{type(problem).__name__}: {problem}")
            output = run(data, tools)
    except (Failed, HandedOver) as problem:
        sys.exit(str(problem))
    print(json.dumps(output, ensure_ascii=False, indent=2))


def typed_object(given: str | None) -> dict[str, Any]:
    """Return a JSON object: what was typed itself, or in a file, or - for standard input."""
    if not given or given.lstrip().startswith("{"):
        found = json.loads(given or "{}")
    else:
        found = json.loads(sys.stdin.read() if given == "-" else Path(given).read_bytes())
    if not isinstance(found, dict):
        raise TypeError(f"{given}: expected a JSON object")
    return found


def load_tools(source: str) -> Any:
    """Import a module by its name, or a file by its path."""
    if not source.endswith(".py"):
        return importlib.import_module(source)
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- values ---------------------------------------------------------------------------------------


def check(holds: Any, message: str | Callable[[], Any] = "") -> None:
    """Raise CheckFailed unless something holds."""
    if not holds:
        said = message() if callable(message) else message
        raise CheckFailed(str(said or "the assertion failed"))


def given(value: Any, *path: Any) -> bool:
    """Return whether a value, or the part of it at a path, is there."""
    for part in path:
        if isinstance(part, int) and isinstance(value, list | tuple):
            if not -len(value) <= part < len(value):
                return False
        elif not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return value is not MISSING


def have(value: Any, name: str) -> Any:
    """Return a value; raise CheckFailed if it is not there."""
    check(value is not MISSING, f"{name!r} is not defined")
    return value


def default_to(value: Any, other: Any) -> Any:
    """Return a value, or the other one if it is not there."""
    return other if value is MISSING else value


def row(**values: Any) -> dict[str, Any]:
    """Return the values that are there, by name."""
    return {name: value for name, value in values.items() if value is not MISSING}


def agreed(old: Any, new: Any) -> Any:
    """Return a value that is found in two ways; raise CheckFailed if they differ."""
    check(old is MISSING or same(old, new), f"two ways lead to {old!r} and {new!r}")
    return new


def side_by_side(*lists: Any, most: int | None = None) -> Iterator[tuple[Any, ...]]:
    """Return the rows of lists that stand side by side; raise CheckFailed if they don't pair up."""
    check(all(isinstance(one, list | tuple) for one in lists), "a loop needs lists")
    check(len({len(one) for one in lists}) == 1, "the lists have different lengths")
    check(most is None or len(lists[0]) <= most, f"there are more than {most} rows")
    return zip(*lists, strict=True)


def as_text(*parts: Any) -> str:
    """Join parts into one text; structures are written as JSON."""
    return "".join(
        json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if isinstance(part, dict | list)
        else str(part)
        for part in parts
    )


# --- schemas --------------------------------------------------------------------------------------


def expect(value: Any, schema: Any, name: str = "the value") -> None:
    """Raise CheckFailed unless a value fits a JSON Schema, of which em exports these words."""
    if isinstance(schema, bool):
        check(schema, f"{name} is not allowed")
        return
    for word, wanted in schema.items():
        if word in _KEEPS and not _KEEPS[word](value, wanted):
            raise CheckFailed(f"{name} must have {word} {wanted!r}, and is {value!r:.200}")
    if isinstance(value, Mapping):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for missing in [one for one in schema.get("required", ()) if one not in value]:
            raise CheckFailed(f"{name}: {missing!r} is a required property")
        for key, one in value.items():
            expect(one, known.get(key, rest), f"{name}.{key}")
    if isinstance(value, list | tuple) and "items" in schema:
        for number, one in enumerate(value):
            expect(one, schema["items"], f"{name}[{number}]")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, _TYPES[kind])


_TYPES: dict[str, Any] = {
    "null": type(None), "boolean": bool, "number": (int, float), "string": str,
    "array": (list, tuple), "object": Mapping,
}  # fmt: skip


def _is_fit(value: Any, schema: Any) -> bool:
    try:
        expect(value, schema)
    except CheckFailed:
        return False
    return True


def _equals(one: Any, other: Any) -> bool:
    """Compare as JSON does: 1 equals 1.0, but not true."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equals, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equals(one[key], other[key]) for key in one)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _has_format(text: str, form: str) -> bool:
    try:
        return bool(FORMATS[form](text))
    except ValueError:
        return False


FORMATS: dict[str, Any] = {
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text),
    "date": lambda text: len(text) == 10 and date.fromisoformat(text),
    "date-time": lambda text: datetime.fromisoformat(text).tzinfo,
    "line": is_line,
    "text": is_text,
    "name": is_name,
    "code": is_code,
}
"""The formats of JSON Schema that `expect` knows, and em's own."""


def _are_distinct(values: Sequence[Any]) -> bool:
    pairs = ((one, other) for n, one in enumerate(values) for other in values[:n])
    return not any(_equals(one, other) for one, other in pairs)


def _of(kind: str, keeps: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """Return a check of values of a kind; others fit."""
    return lambda value, wanted: not _is(value, kind) or bool(keeps(value, wanted))


_KEEPS: dict[str, Any] = {
    "type": lambda v, w: any(_is(v, kind) for kind in ([w] if isinstance(w, str) else w)),
    "const": _equals,
    "enum": lambda v, w: any(_equals(v, one) for one in w),
    "anyOf": lambda v, w: any(_is_fit(v, one) for one in w),
    "pattern": _of("string", lambda v, w: re.search(w, v)),
    "format": _of("string", _has_format),
    "minLength": _of("string", lambda v, w: len(v) >= w),
    "maxLength": _of("string", lambda v, w: len(v) <= w),
    "minItems": _of("array", lambda v, w: len(v) >= w),
    "maxItems": _of("array", lambda v, w: len(v) <= w),
    "uniqueItems": _of("array", lambda v, w: not w or _are_distinct(v)),
    "minProperties": _of("object", lambda v, w: len(v) >= w),
    "maxProperties": _of("object", lambda v, w: len(v) <= w),
    "minimum": _of("number", lambda v, w: v >= w),
    "maximum": _of("number", lambda v, w: v <= w),
    "exclusiveMinimum": _of("number", lambda v, w: v > w),
    "exclusiveMaximum": _of("number", lambda v, w: v < w),
}
WORDS = frozenset({*_KEEPS, "required", "properties", "additionalProperties", "items"})
"""The words of JSON Schema that `expect` knows."""
