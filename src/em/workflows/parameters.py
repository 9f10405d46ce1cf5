"""The parameters of a run: checked, converted where they came as text, defaults filled in."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any

import msgspec

from em.errors import InputError
from em.values.canonical import Json
from em.workflows.definition import Param, ParamType, WorkflowDef

_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def check_params(workflow: WorkflowDef, given: Mapping[str, Any]) -> Json:
    """The parameters of a run; what is missing, unknown or of the wrong type is an error."""
    known = {param.name: param for param in workflow.parameters}
    place = f"workflow {workflow.name}, params"
    for name in given:
        if name not in known:
            close = get_close_matches(str(name), known, 1)
            there = ", ".join(known) or "none"
            raise InputError(
                f"there is no parameter {name!r}",
                place=place,
                fix=f"did you mean {close[0]!r}?" if close else f"there are: {there}",
            )
    missing = [name for name, param in known.items() if param.is_required and name not in given]
    if missing:
        raise InputError(
            f"the parameter {missing[0]!r} is missing",
            place=place,
            fix=f"give it: --param {missing[0]}=…, or params={{{missing[0]!r}: …}}",
        )
    return {
        name: _checked(param, given[name], f"{place}.{name}") if name in given else param.default
        for name, param in known.items()
    }


def prompt_of(workflow: WorkflowDef, params: Mapping[str, Any], prompt: str | None) -> str | None:
    """What started the run: the prompt, or the first required parameter."""
    if prompt is not None:
        return prompt
    required = [param.name for param in workflow.parameters if param.is_required]
    return str(params[required[0]]) if required else None


def _checked(param: Param, value: Any, place: str) -> Any:
    if param.type is not None and value is not None:
        read = _READ[param.type]
        try:
            value = read(value)
        except (ValueError, TypeError, msgspec.MsgspecError):
            raise InputError(
                f"{value!r} is not {_ARTICLE[param.type]} {param.type}"[:300], place=place
            ) from None
    if param.options and value not in param.options:
        options = ", ".join(map(str, param.options))
        raise InputError(f"{value!r} is none of: {options}"[:300], place=place)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
        raise ValueError
    return int(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool):
        raise TypeError
    number = value if isinstance(value, int) else float(value)
    if not isfinite(number):
        raise ValueError
    return number


def _yes_or_no(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    raise ValueError


def _list(value: Any) -> list[Any]:
    """A list; from a command line, JSON or parts with commas."""
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            return msgspec.json.decode(value, type=list[Any])
        return [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list):
        raise TypeError
    return value


def _object(value: Any) -> Json:
    if isinstance(value, str):
        return msgspec.json.decode(value, type=dict[str, Any])
    if not isinstance(value, dict):
        raise TypeError
    return value


_READ: dict[ParamType, Callable[[Any], Any]] = {
    "string": _text,
    "integer": _whole,
    "number": _number,
    "boolean": _yes_or_no,
    "list": _list,
    "object": _object,
}
_ARTICLE: dict[ParamType, str] = dict.fromkeys(_READ, "a") | {"integer": "an", "object": "an"}
