"""The code around an exported function: how a run of it begins and ends, and its command.

`em routine export` copies what a script needs of it; it has only the standard library. A routine
that hands over does so for whatever stops it before its first write: nothing was done. What stops a
script later says what was done, since there is no journal.
"""

import argparse
import asyncio
import functools
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from em.compiler.export.prelude import CheckFailed, UnknownOutcome, check, expect


class Failed(Exception):
    """A step failed, and the run with it. made: the calls with an effect that came before."""

    made: Sequence[str] = ()

    def __init__(self, step_id: str, error_type: str, message: str) -> None:
        self.step_id, self.error_type, self.message = step_id, error_type, message
        place = f"step {step_id}: " if step_id else ""
        super().__init__(f"{place}{error_type}: {message}")


class NeedsInput(Exception):
    """A person must answer a prompt, and no answer was given. made: as for `Failed`."""

    made: Sequence[str] = ()

    def __init__(
        self, step_id: str, message: str, fields: list[dict[str, Any]], problem: str = ""
    ) -> None:
        self.step_id, self.message, self.fields = step_id, message, fields
        why = f" ({problem})" if problem else ""
        super().__init__(f"step {step_id} waits for an answer: {message}{why}")


class HandedOver(NeedsInput):
    """Something is not as it was recorded, and nothing was done: do the task without the script."""

    def __init__(self, step_id: str, why: str) -> None:
        super().__init__(step_id, f"handed over: {why}; nothing was done", [])
        self.args = (self.message,)


class Effects:
    """The calls with an effect of a run. unsure: those that broke off."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.made: list[str] = []
        self.unsure: list[str] = []

    def noting(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Return a tool that notes that its call was begun, and how it ended."""

        def call(**args: Any) -> Any:
            self.begun.append(name)
            try:
                result = function(**args)
            except Exception as error:
                self.unsure.append(name)
                if breaks_off(error):
                    raise UnknownOutcome(f"{type(error).__name__}: {error}") from error
                raise
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


def breaks_off(error: BaseException | None) -> bool:
    """Return whether a call that raised this may have been made all the same."""
    if error is None or isinstance(error, ConnectionRefusedError):
        return False
    status = getattr(getattr(error, "response", None), "status_code", getattr(error, "code", None))
    is_late = isinstance(error, TimeoutError | ConnectionError) or "Timeout" in type(error).__name__
    is_server = isinstance(status, int) and 500 <= status < 600
    return is_late or is_server or breaks_off(error.__cause__ or error.__context__)


def run_function(
    function: Callable[..., Any], routine: Mapping[str, Any], given: Any, tools: Any, answers: Any
) -> Any:
    """Run the function of a routine with an input, its tools and answers to its prompts."""
    effects = Effects()
    brought = bring(tools, routine["tools"], effects)
    secrets = {word: secret(*known) for word, known in routine["secrets"].items()}
    more: dict[str, Any] = {"tools": brought, **secrets}
    if routine["prompts"]:
        more["ask"] = functools.partial(ask, answers=answers or {})
    try:
        with step("input" if routine["hands_over"] else ""):
            taken = take_input(routine, given)
        ahead(answers or {}, routine["prompts"])
        output = function(**taken, **more)
        with step(""):
            expect(output, routine["output_schema"], "output")
    except NeedsInput as problem:
        raise effects.told(problem) from problem.__cause__
    except Failed as problem:
        if routine["hands_over"] and not effects.begun:
            raise HandedOver(problem.step_id, problem.message) from problem.__cause__
        raise effects.told(problem) from problem.__cause__
    return output


@contextmanager
def step(step_id: str) -> Iterator[None]:
    """Report an error inside this block as a failure of the step."""
    try:
        yield
    except (Failed, NeedsInput):
        raise
    except Exception as error:
        message = str(error) or type(error).__name__
        raise Failed(step_id, type(error).__name__, message) from error


def take_input(routine: Mapping[str, Any], given: Any) -> dict[str, Any]:
    """Return the input of a run under the names of its function, if it fits its schema."""
    check(isinstance(given, dict), "the input must be an object")
    schema = routine["input_schema"]
    missing = [name for name in schema.get("required", ()) if name not in given]
    if missing and routine["hands_over"] and not set(given) - set(schema.get("properties", given)):
        fields = [{"name": name, "type": "json"} for name in missing]
        raise NeedsInput("inputs", f"give {', '.join(missing)}", fields)
    expect(given, schema, "input")
    return {word: given[name] for name, word in routine["inputs"].items() if name in given}


def ahead(answers: Mapping[str, Any], prompts: Sequence[Any]) -> None:
    """Ask now for what would be asked after an effect: a script can't go on where it stopped."""
    for step_id, message, fields, is_later in prompts:
        if is_later and (step_id in answers or not sys.stdin.isatty()):
            why = f"{message} (it is asked after a call with an effect: answer it before the run)"
            ask(step_id, why, fields, answers)


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

    @functools.wraps(function)
    def wait(*args: Any, **named: Any) -> Any:
        return asyncio.run(function(*args, **named))

    return wait


# --- prompts --------------------------------------------------------------------------------------


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
    except CheckFailed as error:
        raise NeedsInput(step_id, message, fields, str(error)) from error


def ask_field(field: dict[str, Any]) -> Any:
    """Read one line from the terminal; an empty line means the default."""
    kind = field.get("type", "text")
    hint = " [yes/no]" if kind == "confirm" else ""
    line = input(f"{field.get('label') or field['name']}{hint}: ").strip()
    return (json.loads(line) if kind == "json" else line) if line else None


def checked(field: dict[str, Any], answer: Any) -> Any:
    """Return an answer in the type of its field: text, confirm or json."""
    place, kind = f"field {field['name']}", field.get("type", "text")
    answer = field.get("default") if answer is None else answer
    if answer is None and field.get("required", True):
        raise CheckFailed(f"{place}: an answer is required")
    if answer is None or kind == "json" or (kind == "text" and isinstance(answer, str)):
        return answer
    words = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
    agreed = answer if isinstance(answer, bool) else words.get(str(answer).strip().lower())
    if kind == "text" or agreed is None:
        wanted = "a text" if kind == "text" else "yes or no"
        raise CheckFailed(f"{place}: {answer!r} is not {wanted}")
    return agreed


# --- the command ----------------------------------------------------------------------------------


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
            except CheckFailed as problem:
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
        raise CheckFailed(f"{place}: can't be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise CheckFailed(f"{place}: expected a JSON object: {problem}") from None
    if not isinstance(found, dict):
        raise CheckFailed(f"{place}: expected a JSON object")
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
        raise CheckFailed(f"{source}: the tools can't be loaded: {problem}") from problem
    raise CheckFailed(f"{source}: expected a Python file or the name of a module")
