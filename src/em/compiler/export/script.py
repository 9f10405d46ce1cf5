"""The code that exported scripts run on.

`em export` copies this module into every script, so it imports only the standard library. Each
definition behaves as the runner does; tests compare both.
"""

import argparse
import asyncio
import copy
import functools
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

MISSING: Any = object()
"""Stands for an input that was not given."""


class RoutineProblem(Exception):
    """An expression, an answer or the input does not fit the routine."""


class CheckFailed(RoutineProblem):
    """An assertion does not hold."""


class UnexpectedResult(RoutineProblem):
    """A call was made, and returned something else than it must."""


class Failure(NamedTuple):
    """Why a run failed."""

    step_id: str
    error_type: str
    message: str


def failure_of(step_id: str, error: Exception, _context: Any = None) -> Failure:
    """Return an error as the failure of a step."""
    return Failure(step_id, type(error).__name__, str(error) or type(error).__name__)


class Failed(Exception):
    """A step failed, and the run with it. made: the calls with an effect that came before."""

    made: Sequence[str] = ()

    def __init__(self, failure: Failure) -> None:
        self.step_id, self.error_type, self.message = failure
        place = f"step {self.step_id}: " if self.step_id else ""
        super().__init__(f"{place}{self.error_type}: {self.message}")


class NeedsInput(Exception):
    """A person must answer a prompt, and no answer was given. made: as for `Failed`."""

    made: Sequence[str] = ()

    def __init__(
        self, step_id: str, message: str, fields: list[dict[str, Any]], problem: str = ""
    ) -> None:
        self.step_id, self.message, self.fields = step_id, message, fields
        why = f" ({problem})" if problem else ""
        super().__init__(f"step {step_id} waits for an answer: {message}{why}")


@contextmanager
def step(step_id: str, made: Sequence[str] = ()) -> Iterator[None]:
    """Report an error inside this block as a failure of the step.

    made: the steps with an effect that were done. There is no journal, so the error tells them.
    """
    try:
        yield
    except (Failed, NeedsInput) as problem:
        raise having_made(problem, made) from problem.__cause__
    except Exception as error:
        raise having_made(Failed(failure_of(step_id, error)), made) from error


def having_made(problem: Any, made: Sequence[str]) -> Any:
    """Return an error that says what was done before it."""
    if made and not problem.made:
        problem.made = tuple(made)
        before = f"Done before, and not undone: {', '.join(made)}"
        fix = "Finish by hand, and don't start it again from the beginning"
        problem.args = (f"{problem}. {before}. {fix}",)
    return problem


def ahead(answers: Any, prompts: Sequence[tuple[str, str, list[dict[str, Any]]]]) -> None:
    """Ask now for what would be asked after an effect: a script can't go on where it stopped."""
    for step_id, message, fields in prompts:
        if step_id in (answers or {}) or not sys.stdin.isatty():
            why = f"{message} (it is asked after a call with an effect: answer it before the run)"
            ask(step_id, why, fields, answers or {})


def secret(name: str, variable: str) -> str:
    """Return a secret from the environment."""
    value = os.environ.get(variable)
    if not value:
        problem = RoutineProblem(f"the secret {name!r} is not set: set {variable}")
        raise Failed(failure_of("", problem))
    return value


def bring(tools: Any, names: dict[str, str]) -> SimpleNamespace:
    """Return the tools by name, from a module, an object or a mapping.

    `names` gives for each tool the first step that calls it; a missing tool fails that step.
    """
    found: Any = tools
    if not isinstance(tools, Mapping):
        found = {name: getattr(tools, name, None) for name in names}
    for name, step_id in names.items():
        if found.get(name) is None:
            raise Failed(failure_of(step_id, RoutineProblem(f"there is no tool {name!r}")))
    return SimpleNamespace(**{name: awaited(found[name]) for name in names})


def awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs a coroutine function to its end; others as they are."""
    if not inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    def wait(*args: Any, **named: Any) -> Any:
        return asyncio.run(function(*args, **named))

    return wait


def attempt(call: Callable[[], Any], otherwise: Any) -> Any:
    """Return what a call returns, or the other value where it fails."""
    try:
        return call()
    except UnexpectedResult:
        raise
    except Exception:  # noqa: BLE001 - the step goes on whatever fails
        return otherwise


def expected(result: Any, *checks: tuple[str, Callable[[Any], Any]]) -> Any:
    """Return the result of a call that was made; fail unless it is as it must be."""
    for words, holds in checks:
        try:
            if holds(result):
                continue
            reason = "it is not so"
        except Exception as error:  # noqa: BLE001 - what can't be seen does not hold
            reason = f"it can't be seen: {error!r}"
        raise UnexpectedResult(
            f"the call was made and returned {json_text(result)[:300]}; it was expected that"
            f" {words}, and now {reason}. Nothing was done after it: finish by hand, and don't run"
            " it again"
        )
    return result


def expected_of(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    *checks: tuple[str, Callable[[Any, Any], Any]],
) -> Any:
    """Make a call; fail unless its result is as it must be, also beside what it was given."""
    before = copy.deepcopy(dict(given))
    result = function(**given)
    return expected(
        result,
        *((words, functools.partial(_beside, holds, before)) for words, holds in checks),
    )


def _beside(holds: Callable[[Any, Any], Any], given: Any, result: Any) -> Any:
    return holds(result, given)


def ensure(holds: Any, message: Callable[[], Any]) -> None:
    """Fail unless an assertion holds."""
    if not holds:
        raise CheckFailed(str(message() or "the assertion does not hold"))


def have(value: Any, name: str) -> Any:
    """Return a value unless it is missing."""
    if value is MISSING:
        raise RoutineProblem(f"{name!r} is not defined")
    return value


def default_to(value: Any, other: Any) -> Any:
    """Return a value, or the other one where it is missing."""
    return other if value is MISSING else value


def as_text(*parts: Any) -> str:
    """Join parts into one text; structures are written as JSON."""
    return "".join(
        json_text(part) if isinstance(part, dict | list) else str(part) for part in parts
    )


def json_text(value: Any) -> str:
    """Return a value as compact JSON."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_key(key)}:{json_text(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_text(item) for item in value) + "]"
    return json_number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def json_number(value: float) -> str:
    """Return a float in its shortest form, as em writes it."""
    if not math.isfinite(value):
        return "null"
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    if int(exponent) == -5:
        return ("-" if value < 0 else "") + "0.0000" + digits.lstrip("-").replace(".", "")
    return f"{digits}e{int(exponent)}"


def json_key(key: Any) -> str:
    """Return a key as JSON: always a text."""
    return json_text(key if isinstance(key, str) else json_text(key))


def ask(
    step_id: str, message: Any, fields: list[dict[str, Any]], answers: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a person's answer to a prompt: from `answers`, else from the terminal."""
    given = answers.get(step_id)
    if given is None:
        if not sys.stdin.isatty():
            raise NeedsInput(step_id, message, fields)
        print(message, file=sys.stderr)
        given = {field["name"]: ask_field(field) for field in fields}
    unknown = sorted(given.keys() - {field["name"] for field in fields})
    if unknown:
        raise NeedsInput(step_id, message, fields, f"the prompt has no field {unknown[0]!r}")
    try:
        return {field["name"]: checked(field, given.get(field["name"])) for field in fields}
    except RoutineProblem as error:
        raise NeedsInput(step_id, message, fields, str(error)) from error


def ask_field(field: dict[str, Any]) -> Any:
    """Read one line from the terminal; an empty line means the default."""
    kind = field.get("type", "text")
    hint = " [yes/no]" if kind == "confirm" else ""
    line = input(f"{field.get('label') or field['name']}{hint}: ").strip()
    return (json.loads(line) if kind in ("json", "integer", "number") else line) if line else None


def checked(field: dict[str, Any], answer: Any) -> Any:
    """Return an answer in the type of its field: text, a number, confirm or json."""
    place, kind = f"field {field['name']}", field.get("type", "text")
    answer = field.get("default") if answer is None else answer
    if answer is None and field.get("required", True):
        raise RoutineProblem(f"{place}: an answer is required")
    if answer is None or kind == "json" or (kind == "text" and isinstance(answer, str)):
        return answer
    if kind in ("integer", "number"):
        return checked_number(answer, place, whole=kind == "integer")
    words = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
    agreed = answer if isinstance(answer, bool) else words.get(str(answer).strip().lower())
    if kind == "text" or agreed is None:
        expected = "a text" if kind == "text" else "yes or no"
        raise RoutineProblem(f"{place}: {answer!r} is not {expected}")
    return agreed


def checked_number(answer: Any, place: str, *, whole: bool) -> int | float:
    """Return an answer as a number; a whole one stays whole."""
    try:
        number = json.loads(answer) if isinstance(answer, str) else answer
    except ValueError:
        number = None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not math.isfinite(number) or (whole and number % 1):
        raise RoutineProblem(f"{place}: {answer!r} is not a {'whole ' if whole else ''}number")
    return int(number) if whole else number


def check_shape(schema: dict[str, Any], value: Any, what: str) -> None:
    """Fail unless the input or the output fits its JSON Schema."""
    found = list(misfits(schema, value, what))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        problem = RoutineProblem(f"the {what} does not fit its schema: {found[0]}{more}")
        raise Failed(failure_of("", problem))


def misfits(schema: Any, value: Any, place: str) -> Iterator[str]:
    """Yield each way in which a value does not fit its JSON Schema."""
    if not isinstance(schema, dict):
        if schema is False:
            yield f"{place}: nothing is allowed here"
        return
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    if names and not any(is_of(value, name) for name in names):
        yield f"{place}: {value!r} is not of type {' or '.join(names)}"
    options = [schema["const"]] if "const" in schema else schema.get("enum", [value])
    if not any(alike(value, option) for option in options):
        yield f"{place}: {value!r} is not one of {options!r}"
    yield from misfits_inside(schema, value, place)


def misfits_inside(schema: dict[str, Any], value: Any, place: str) -> Iterator[str]:
    """Yield each way in which the parts of a value do not fit."""
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{place}: {name!r} is a required property"
        for name, part in value.items():
            yield from misfits(known.get(name, rest), part, f"{place}.{name}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from misfits(schema.get("items", True), item, f"{place}[{number}]")


def is_of(value: Any, name: str) -> bool:
    """Return whether a value is of a type of JSON Schema."""
    if isinstance(value, bool) or value is None:
        return name == ("null" if value is None else "boolean")
    if isinstance(value, float) and name == "integer":
        return value.is_integer()
    kinds: dict[str, Any] = {
        "string": str, "integer": int, "number": (int, float), "array": (list, tuple),
        "object": dict,
    }  # fmt: skip
    return isinstance(value, kinds.get(name, ()))


def alike(one: Any, other: Any) -> bool:
    """Compare as JSON does: 1 equals 1.0, but not true."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def main(run: Callable[..., Any], description: str) -> None:
    """Run this file as a command: print the output as JSON, exit with 1 if a step fails.

    The exit code is 2 if an argument is wrong.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--input", metavar="JSON|FILE", help="the input as JSON; - for stdin")
    parser.add_argument("--tools", metavar="MODULE|FILE", help="where the tools are")
    parser.add_argument(
        "--answers", metavar="JSON|FILE", help="answers: {step: {field: value}}, as JSON"
    )
    given = parser.parse_args()
    try:
        # Standard output holds the result alone, whatever tools print.
        with redirect_stdout(sys.stderr):
            try:
                data, answers = typed_object(given.input), typed_object(given.answers)
                tools = load_tools(given.tools) if given.tools else {}
            except RoutineProblem as problem:
                parser.error(str(problem))
            output = run(data, tools, answers)
    except (Failed, NeedsInput) as problem:
        sys.exit(str(problem))
    print(json.dumps(output, ensure_ascii=False, indent=2))


def typed_object(given: str | None) -> dict[str, Any]:
    """Return a JSON object: what was typed itself, or in a file, or - for standard input."""
    if not given:
        return {}
    is_typed = given.lstrip().startswith("{")
    place = "the JSON object that was typed" if is_typed else given
    try:
        if is_typed:
            text = given.encode()
        else:
            text = sys.stdin.buffer.read() if given == "-" else Path(given).read_bytes()
        found = json.loads(text.decode("utf-8-sig"))
    except OSError as problem:
        raise RoutineProblem(f"{place}: can't be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise RoutineProblem(f"{place}: expected a JSON object: {problem}") from None
    if not isinstance(found, dict):
        raise RoutineProblem(f"{place}: expected a JSON object")
    return found


def load_tools(source: str) -> Any:
    """Import a module by its name, or a file by its path."""
    try:
        if source.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(source).stem, source)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        if all(source.split(".")):
            return importlib.import_module(source)
    except (ImportError, OSError, SyntaxError) as problem:
        raise RoutineProblem(f"{source}: the tools can't be loaded: {problem}") from problem
    raise RoutineProblem(f"{source}: expected a Python file or the name of a module")
