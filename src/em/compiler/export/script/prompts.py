"""Asking a person in an exported script."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from em.compiler.export.script.ends import NeedsInput
from em.compiler.export.script.values import RoutineProblem


def ask(
    step_id: str, message: Any, fields: list[dict[str, Any]], answers: Mapping[str, Any]
) -> dict[str, Any]:
    """What a person says: from the answers given, else from the terminal; checked."""
    given = answers.get(step_id)
    if given is None:
        if not sys.stdin.isatty():
            raise NeedsInput(step_id, message, fields)
        print(message, file=sys.stderr)
        given = {field["name"]: ask_field(field) for field in fields}
    unknown = sorted(given.keys() - {field["name"] for field in fields})
    if unknown:
        raise NeedsInput(step_id, message, fields, f"nobody asked for {unknown[0]!r}")
    try:
        return {field["name"]: checked(field, given.get(field["name"])) for field in fields}
    except RoutineProblem as error:
        raise NeedsInput(step_id, message, fields, str(error)) from error


def ask_field(field: dict[str, Any]) -> Any:
    """One line from the terminal; an empty one leaves the default."""
    options = ", ".join(str(option) for option in field.get("options", ()))
    hint = {"confirm": " [yes/no]", "multiselect": f" [several of {options}, with commas]"}
    kind = field.get("type", "text")
    asked = (
        f"{field.get('label') or field['name']}{hint.get(kind, f' [{options}]' * bool(options))}"
    )
    line = input(f"{asked}: ").strip()
    if not line:
        return None
    if kind == "multiselect":
        return [part.strip() for part in line.split(",") if part.strip()]
    return json.loads(line) if kind == "json" else line


def checked(field: dict[str, Any], answer: Any) -> Any:
    """An answer as its field asks for it."""
    answer = field.get("default") if answer is None else answer
    if answer is None:
        if field.get("required", True):
            raise RoutineProblem(f"field {field['name']}: an answer is required")
        return None
    kind = field.get("type", "text")
    if kind == "multiselect":
        listed = answer if isinstance(answer, list) else None
        return [one_of(field, item) for item in fitting(listed, field, answer, "a list")]
    if kind == "select":
        return one_of(field, answer)
    return answer if kind == "json" else scalar(field, kind, answer)


def scalar(field: dict[str, Any], kind: str, answer: Any) -> Any:
    """A text, a number, or yes or no."""
    if kind == "confirm":
        words = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
        found = answer if isinstance(answer, bool) else words.get(str(answer).strip().lower())
        return fitting(found, field, answer, "yes or no")
    if kind in ("number", "integer"):
        return fitting(as_number(answer, kind), field, answer, f"a {kind}")
    return fitting(answer if isinstance(answer, str) else None, field, answer, "a text")


def fitting(value: Any, field: dict[str, Any], answer: Any, expected: str) -> Any:
    """The value, unless there is none."""
    if value is None:
        raise RoutineProblem(f"field {field['name']}: {answer!r} is not {expected}")
    return value


def as_number(answer: Any, kind: str) -> int | float | None:
    """A number, also where it was written as a text; None for what is none."""
    try:
        number = float(answer)
    except (TypeError, ValueError):
        return None
    whole = kind == "integer"
    if isinstance(answer, bool) or (whole and number != int(number)):
        return None
    return int(number) if whole or isinstance(answer, int) else number


def one_of(field: dict[str, Any], answer: Any) -> Any:
    """One of the options."""
    for option in field.get("options", ()):
        if answer == option or str(answer) == str(option):
            return option
    options = ", ".join(str(option) for option in field.get("options", ()))
    return fitting(None, field, answer, f"one of: {options}")
