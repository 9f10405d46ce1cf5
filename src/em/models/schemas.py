"""JSON Schema, as input and output are checked by."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from em.models.canonical import Json

_encode = msgspec.json.Encoder(order="sorted").encode


def problems(schema: Json, value: Any) -> Iterator[tuple[str, str]]:
    """What a value has that its schema does not allow: the path and the problem."""
    for error in _validator(_encode(schema)).iter_errors(value):
        path = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path
        )
        yield path.lstrip("."), str(error.message)


def schema_problem(schema: Any) -> str | None:
    """Why something is no JSON Schema."""
    import jsonschema_rs

    try:
        _validator(_encode(schema))
    except (jsonschema_rs.ValidationError, ValueError, TypeError) as error:
        return str(error).partition("\n")[0]
    return None


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs

    return jsonschema_rs.validator_for(msgspec.json.decode(schema))
