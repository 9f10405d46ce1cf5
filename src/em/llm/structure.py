"""Answers by schema: asking for them in words, reading them from text, saying what is wrong."""

import json
import re
from itertools import islice
from typing import Any

import msgspec

from em.values import json_schema as schemas
from em.values.canonical import Json

PROBLEMS_TOLD = 20
PLACES_TRIED = 20
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)


def in_words(schema: Json) -> str:
    """Ask for a schema where the server can't be told to hold the answer to it."""
    return (
        "Answer with one JSON value and nothing else: no prose, no code fence."
        f" It must fit this JSON Schema:\n{msgspec.json.encode(schema).decode()}"
    )


def correction(problems: list[str], schema: Json) -> str:
    """What is said to a model whose answer can't be used."""
    told = "\n".join(f"- {problem}" for problem in problems)
    return f"That answer can't be used:\n{told}\n\n{in_words(schema)}"


def read(text: str, schema: Json) -> tuple[Any, list[str]]:
    """The value in a model's text, and what is wrong with it."""
    try:
        value = _decode(text)
    except (ValueError, RecursionError) as error:
        return None, [f"it is no JSON: {error}"]
    found = schemas.problems(schema, value)
    problems = [f"{path or 'the value'}: {problem}" for path, problem in found]
    return value, problems[:PROBLEMS_TOLD]


def _decode(text: str) -> Any:
    """JSON as it is; else in a code fence; else the first object or list in the text."""
    for candidate in (text, *_FENCE.findall(text)):
        try:
            return msgspec.json.decode(candidate)
        except msgspec.DecodeError:
            continue
    problem = "there is none in the text"
    text = _THOUGHTS.sub("", text)
    for start in islice(re.finditer(r"[{\[]", text), PLACES_TRIED):
        found = text[start.start() :]
        try:
            _, end = json.JSONDecoder().raw_decode(found)
            # Read by the same decoder as above: the standard library's takes NaN for JSON.
            return msgspec.json.decode(found[:end])
        except (ValueError, RecursionError) as error:
            problem = str(error)
    raise ValueError(problem)


def is_closed(schema: Any) -> bool:
    """Whether an object at the top, and every one below, names all that may stand in it.

    The structured modes of providers ask for that; a free-form object would come back empty.
    """
    return isinstance(schema, dict) and schema.get("type") == "object" and _closed(schema)


def _closed(part: Any) -> bool:
    if isinstance(part, list):
        return all(map(_closed, part))
    if not isinstance(part, dict):
        return True
    if part.get("$ref") is not None and not str(part["$ref"]).startswith("#/$defs/"):
        return False
    is_object = part.get("type") == "object" or "object" in _types(part)
    if is_object and (part.get("additionalProperties") is not False or "properties" not in part):
        return False
    if not _says_a_type(part):
        return False
    names = ("properties", "$defs", "definitions")
    below = [sub for name in names for sub in part.get(name, {}).values()]
    below += [part[name] for name in ("items", "anyOf", "allOf", "oneOf") if name in part]
    return all(map(_closed, below))


def _types(part: Json) -> list[Any]:
    found = part.get("type")
    return found if isinstance(found, list) else []


def _says_a_type(part: Json) -> bool:
    return not {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}.isdisjoint(part)


def all_required(schema: Any) -> bool:
    """Whether every property of every object is required, as OpenAI's strict mode asks."""
    if isinstance(schema, list):
        return all(map(all_required, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) and set(properties) != set(schema.get("required", ())):
        return False
    return all(map(all_required, schema.values()))
