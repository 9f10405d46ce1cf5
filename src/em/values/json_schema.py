"""JSON Schema, as input and output are checked by."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from em.errors import RoutineError
from em.values.canonical import Json

_META = "https://json-schema.org/draft/2020-12/schema"
_encode = msgspec.json.Encoder(order="sorted").encode


def problems(schema: Json, value: Any) -> Iterator[tuple[str, str]]:
    """What a value has that its schema does not allow: the path and the problem."""
    for where, message in value_problems(schema, value):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
        yield path.lstrip("."), message


def value_problems(schema: Any, value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The same with the path as its parts."""
    for error in _validator(_encode(schema)).iter_errors(value):
        yield tuple(error.instance_path), str(error.message)


def schema_problem(schema: Any) -> str | None:
    """Why something is no JSON Schema."""
    return next((message for _, message in schema_problems(schema)), None)


def schema_problems(schema: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Everything for which something is no JSON Schema: where in it, and why."""
    meta = schema.get("$schema", _META) if isinstance(schema, dict) else _META
    try:
        found = list(_validator(_encode({"$ref": meta})).iter_errors(schema))
        if not found:
            _validator(_encode(schema))
    except RoutineError as error:
        yield (), error.message.removeprefix("this is no JSON Schema: ")
        return
    for problem in found:
        yield tuple(problem.instance_path), str(problem.message)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(schema), retriever=_never_fetched)
    except (jsonschema_rs.ValidationError, ValueError, TypeError) as error:
        message = str(error).partition("\n")[0]
        raise RoutineError(f"this is no JSON Schema: {message}") from None


def _never_fetched(uri: str) -> Any:
    """A schema comes with a routine that anyone may have sent: it makes no request."""
    raise ValueError(f"schemas are not fetched: {uri}")


_TYPES = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def kind_of(value: Any) -> Json:
    """The type of a value, and no more: what is in it was this time's data."""
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return {"type": name}
    return {}


def of_input(inputs: Json) -> Json:
    """Every input is needed, and of the type it had."""
    return {
        "type": "object",
        "properties": {name: kind_of(value) for name, value in inputs.items()},
        "required": list(inputs),
    }


def of_output(wired: Any, recorded: Any) -> Json:
    """What the routine itself puts together is always there; what it fills in has only a type."""
    if not isinstance(wired, dict) or not isinstance(recorded, dict):
        return kind_of(recorded)
    return {
        "type": "object",
        "properties": {key: of_output(part, recorded[key]) for key, part in wired.items()},
        "required": list(wired),
    }
