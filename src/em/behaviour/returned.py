"""Returned: what a call returned, as far as it must return that again.

The learner says what a record must look like again. Here nothing else may stand in it, a field that
repeated an argument must repeat it, and a text must be the same but for values that were known and
for words with a digit. So a write that says `Error: not found`, or `warning` in a field that it did
not have, is noticed without knowing these words.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from em.behaviour.sources import Parts, places, reference
from em.compiler.evidence import ENOUGH_TO_ACT, information
from em.runner.expressions.language import GIVEN
from em.values.canonical import Json, identical
from em.values.leaves import is_by_id, leaves

RESULT = "result"
"""The name of a call's result in its own expectations."""
MOST_REPEATED = 12
"""Fields of one result that must repeat an argument."""
LONGEST_TEXT = 2_000
"""Of a longer text only the type is expected."""
MOST_KNOWN = 500
"""Known values that are looked for in texts."""
_FREE = re.compile(r"\S*\d\S*")


def repeated(args: Json, result: Any) -> dict[Parts, str]:
    """Return the fields of a result that repeat an argument, with the check that they do again."""
    given = [place for place in places(0, args) if place.is_fixed]
    found: dict[Parts, str] = {}
    for place in places(0, result):
        if not place.is_fixed or len(found) == MOST_REPEATED:
            continue
        alike = [one for one in given if identical(one.value, place.value)]
        named = [one for one in alike if one.parts[-1:] == place.parts[-1:]]
        if named or (alike and information(place.value) >= ENOUGH_TO_ACT):
            source = (named or alike)[0]
            found[place.parts] = (
                f"{reference(RESULT, place.parts)} == {reference(GIVEN, source.parts)}"
            )
    return found


class _Known(NamedTuple):
    """Values as texts, the longest first: what the task and the call gave, and all there were."""

    given: list[str]
    every: list[str]


def schema_of(result: Any, repeats: Collection[Parts], given: Any, known: Any) -> Json | None:
    """Return the JSON Schema of what a write must return again; None if anything will do.

    given: what the task and the call gave. known: all values that there were; as a part of a text
    they may differ, as a whole text only those that were given.
    """
    from em.compiler.constancy import Look

    if result is None:
        return None
    values = _Known(_texts(given), _texts(known))
    return _closed(Look("", {}).schema([result], RESULT), result, (), repeats, values)


def kinds_of(result: Any) -> Json | None:
    """Return the JSON Schema of the kinds of values that a read returned; None for nothing.

    Where it is about another record, its values may differ; but what was a number is no text, what
    was there is there, and a field that is new may speak against acting.
    """
    from em.compiler.constancy import Look

    if result is None:
        return None
    return _with_names(Look("", {}, only_kinds=True).schema([result], RESULT), result)


def _with_names(schema: Json, value: Any) -> Json:
    """Return a schema that also refuses new fields."""
    if not isinstance(value, dict) or is_by_id(value):
        return schema
    fields = schema.get("properties", {})
    inner = {name: _with_names(one, value[name]) for name, one in fields.items()}
    names = {"propertyNames": {"enum": [*value]}}
    return {**schema, **({"properties": inner} if inner else {}), **names}


def _texts(values: Any) -> list[str]:
    found = {str(value) for _, value in leaves(values) if value not in (None, "", True, False)}
    return sorted(found, key=len, reverse=True)[:MOST_KNOWN]


def _closed(
    schema: Json, value: Any, parts: Parts, repeats: Collection[Parts], known: _Known
) -> Json:
    """Return a schema that also refuses new fields and other texts."""
    if isinstance(value, dict) and not is_by_id(value):
        fields = {
            name: _closed(inner, value[name], (*parts, name), repeats, known)
            for name, inner in schema.get("properties", {}).items()
        }
        return {
            **schema,
            **({"required": [*fields], "properties": fields} if fields else {}),
            "propertyNames": {"enum": [*value]},
        }
    if isinstance(value, str) and value.strip():
        return {"type": "string", **_wording(value, known, is_free=parts in repeats)}
    if parts in repeats:
        return {name: one for name, one in schema.items() if name == "type"}
    return schema


def _wording(text: str, known: _Known, *, is_free: bool) -> Json:
    if is_free or text in known.given or len(text) > LONGEST_TEXT:
        return {"minLength": 1}
    return {"pattern": f"^{''.join(_pattern(text, known.every))}$"}


def _pattern(text: str, known: list[str]) -> Iterator[str]:
    """Yield the parts of a pattern: what was known is free, and so is a word with a digit."""
    held = [re.escape(one) for one in known if one in text and one != text]
    split = re.compile(rf"(?<!\w)(?:{'|'.join(held)})(?!\w)|{_FREE.pattern}" if held else _FREE)
    end = 0
    for match in split.finditer(text):
        yield re.escape(text[end : match.start()])
        yield r"[\s\S]+" if _FREE.fullmatch(match[0]) is None else r"\S+"
        end = match.end()
    yield re.escape(text[end:])


def common(one: Json | None, other: Json | None) -> Json | None:
    """Return the schema that two recordings of one step allow."""
    if not one or not other:
        return None
    if one == other:
        return one
    made: Json = {name: part for name, part in one.items() if other.get(name) == part}
    if one.get("type") != other.get("type"):
        made.pop("type", None)
    if {"const", "enum"} & one.keys() and {"const", "enum"} & other.keys():
        made.pop("const", None)
        values = [
            *_allowed(one),
            *(value for value in _allowed(other) if value not in _allowed(one)),
        ]
        return {**made, "enum": values}
    if "propertyNames" in one and "propertyNames" in other:
        names = [*one["propertyNames"].get("enum", ()), *other["propertyNames"].get("enum", ())]
        made["propertyNames"] = {"enum": [*dict.fromkeys(names)]}
    if "properties" in one and "properties" in other:
        both = [name for name in one["properties"] if name in other["properties"]]
        fields = {name: common(one["properties"][name], other["properties"][name]) for name in both}
        made["properties"] = {name: field for name, field in fields.items() if field}
        made["required"] = [name for name in one["required"] if name in other["required"]]
    return made


def _allowed(schema: Json) -> list[Any]:
    return [*schema.get("enum", [schema.get("const")])]
