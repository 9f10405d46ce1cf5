"""JSON Schema: check values, check schemas, and derive simple schemas from values."""

import sys
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from em.errors import RoutineError
from em.values.canonical import Json
from em.values.mismatch import Where, dotted

_ONE_SCRIPT = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL")
_BESIDE_LETTERS = frozenset(" .,'’_-")
_IN_CODES = frozenset("_.:/@#+-")


def is_line(text: str) -> bool:
    """Return whether a text is one line without hidden or look-alike characters.

    Control and format characters (line breaks, other directions, zero width) are not printable. A
    word whose letters are of two scripts looks like another word. Nor is there space around it.
    """
    if text != text.strip():
        return False
    if text.isascii():
        return text.isprintable()
    return text.isprintable() and all(_is_of_one_script(word) for word in text.split())


def is_text(text: str) -> bool:
    """Return whether a text of several lines has no hidden or look-alike characters."""
    return all(is_line(one.strip()) for one in text.replace("\t", " ").splitlines())


def is_name(text: str) -> bool:
    """Return whether a line has letters, digits, spaces and the signs of names only."""
    return is_line(text) and all(
        one.isalnum() or one in _BESIDE_LETTERS or unicodedata.category(one)[0] == "M"
        for one in text
    )


def is_code(text: str) -> bool:
    """Return whether a text has the letters, digits and signs that ids have, and nothing else."""
    return bool(text) and text.isascii() and all(one.isalnum() or one in _IN_CODES for one in text)


def _is_of_one_script(word: str) -> bool:
    scripts = {unicodedata.name(one, "").partition(" ")[0] for one in word if one.isalpha()}
    return len(scripts) <= 1 or scripts.issubset(_ONE_SCRIPT)


FORMATS = {"line": is_line, "text": is_text, "name": is_name, "code": is_code}
"""The formats that em adds to those of JSON Schema. They say which signs a text may have."""


_META = "https://json-schema.org/draft/2020-12/schema"
_NOT_VALID = "not a valid JSON Schema: "
_encode = msgspec.json.Encoder(order="sorted").encode


def problems(schema: Json, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the path and the problem of everything in a value that its schema refuses."""
    for where, message in value_problems(schema, value):
        yield dotted(where), message


def value_problems(schema: Any, value: Any) -> Iterator[tuple[Where, str]]:
    """Do the same, with the path as a tuple of its parts."""
    if _is_unloaded() and _is_simple(schema) and _simply_fits(schema, value):
        return
    for error in _validator(_encode(schema)).iter_errors(value):
        yield tuple(error.instance_path), str(error.message)


class Misfit(NamedTuple):
    """What in a value a schema refuses: where, the problem in words, what is wanted, what is there.

    wanted: the words of the schema that refuse it, as `{"const": "pending"}`. also: what else the
    schema refuses in the same value.
    """

    where: str
    message: str
    wanted: Json
    found: Any
    also: "tuple[Misfit, ...]" = ()


MOST_MISFITS = 8
"""Things that are named of one value that does not fit."""


def misfit(schema: Json, value: Any) -> Misfit | None:
    """Return the first thing in a value that its schema refuses, with the next; None if it fits."""
    found = tuple(islice(_misfits(schema, value), MOST_MISFITS))
    return found[0]._replace(also=found[1:]) if found else None


def _misfits(schema: Json, value: Any) -> Iterator[Misfit]:
    for error in _validator(_encode(schema)).iter_errors(value):
        wanted: Any = schema
        *_, word = path = list(error.schema_path)
        for part in path:
            wanted = _part_of(wanted, part)
        found = value
        for part in error.instance_path:
            found = found[part]
        where = dotted(tuple(error.instance_path))
        yield Misfit(where, str(error.message), {str(word): wanted}, found)


def _part_of(schema: Any, part: str | int) -> Any:
    """Return a part of a schema; None behind a reference, where it is elsewhere."""
    try:
        return schema[part]
    except (KeyError, IndexError, TypeError):
        return None


def matcher(schema: Json) -> Callable[[Any], bool]:
    """Return a function that tells whether a value fits; the first call compiles the schema."""
    is_valid: Callable[[Any], bool] | None = None

    def fits(value: Any) -> bool:
        nonlocal is_valid
        if is_valid is None:
            is_valid = _validator(_encode(schema)).is_valid
        return is_valid(value)

    return fits


def schema_problem(schema: Any) -> str | None:
    """Return why something is not a valid JSON Schema, or None."""
    return next((message for _, message in schema_problems(schema)), None)


def schema_problems(schema: Any) -> Iterator[tuple[Where, str]]:
    """Yield everything that is wrong with a JSON Schema: where, and what."""
    if _is_unloaded() and _is_simple(schema):
        return
    meta = schema.get("$schema", _META) if isinstance(schema, dict) else _META
    try:
        found = list(_validator(_encode({"$ref": meta})).iter_errors(schema))
        if not found:
            _validator(_encode(schema))
    except RoutineError as error:
        yield (), error.message.removeprefix(_NOT_VALID)
        return
    for problem in found:
        yield tuple(problem.instance_path), str(problem.message)


def _is_unloaded() -> bool:
    """Whether the validator would have to be loaded, which takes longer than a small command."""
    return "jsonschema_rs" not in sys.modules


_DEEPEST = 20
_SAFE_NUMBER = 2**53
_SIMPLE_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _is_simple(schema: Any, level: int = 0) -> bool:
    """Whether a schema is valid and has only words that `_simply_fits` checks."""
    if not isinstance(schema, dict) or level > _DEEPEST:
        return False
    return all(_is_simple_word(word, value, level) for word, value in schema.items())


def _is_simple_word(word: Any, value: Any, level: int) -> bool:
    if word == "properties":
        return isinstance(value, dict) and all(
            isinstance(name, str) and _is_simple(one, level + 1) for name, one in value.items()
        )
    if word == "items":
        return _is_simple(value, level + 1)
    if word == "required":
        names = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return names and len(set(value)) == len(value)
    if word == "examples":
        return isinstance(value, list) and _simply_fits({}, value)
    if word == "additionalProperties":
        return isinstance(value, bool)
    return isinstance(value, str) and (
        word in ("title", "description") or (word == "type" and value in _SIMPLE_TYPES)
    )


def _simply_fits(schema: Json, value: Any, level: int = 0) -> bool:
    """Whether a value certainly fits a simple schema. If not, the validator has to say."""
    kind = type(value)
    wanted = _SIMPLE_TYPES.get(schema.get("type", ""))
    if level > _DEEPEST or (wanted is not None and kind not in wanted):
        return False
    if kind is list:
        items = schema.get("items", {})
        return all(_simply_fits(items, one, level + 1) for one in value)
    if kind is dict:
        known = schema.get("properties", {})
        is_closed = schema.get("additionalProperties") is False
        return all(name in value for name in schema.get("required", ())) and all(
            type(name) is str
            and (name in known or not is_closed)
            and _simply_fits(known.get(name, {}), one, level + 1)
            for name, one in value.items()
        )
    if kind is str:
        return _is_unicode(value)
    if kind is int or kind is float:
        return bool(-_SAFE_NUMBER < value < _SAFE_NUMBER)
    return kind is bool or value is None


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in text)


MOST_STEPS = 100_000
"""Steps back that a pattern with look-around may take: other patterns take none. A value that needs
more does not fit: a schema from elsewhere must not stop em."""


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            msgspec.json.decode(schema),
            retriever=_refuse_fetch,
            validate_formats=True,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MOST_STEPS),
            formats=FORMATS,
        )
    except (jsonschema_rs.ValidationError, ValueError, TypeError) as error:
        message = str(error).partition("\n")[0]
        raise RoutineError(_NOT_VALID + message) from None


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern of a schema is found in a name, in bounded time as in all of a schema."""
    return bool(_validator(_encode({"pattern": pattern})).is_valid(name))


def limits_text(schema: Json) -> bool:
    """Return whether a schema says which texts fit: more than the signs that they may have."""
    is_listed = bool(schema.keys() & {"enum", "const", "pattern"})
    return is_listed or schema.get("format", "line") not in FORMATS


def _refuse_fetch(uri: str) -> Any:
    """Refuse to fetch a schema: routines come from anyone and must not cause requests."""
    raise ValueError(f"em fetches no schemas, got the address {uri}")


_TYPES = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def kind_of(value: Any) -> Json:
    """Return a schema of the type of a value only: what is in it may differ next time."""
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return {"type": name}
    return {}


def of_input(inputs: Json) -> Json:
    """Return a schema of recorded inputs, with the type and the recorded value of each."""
    return {
        "type": "object",
        "properties": {
            name: {**kind_of(value), "examples": [value]} for name, value in inputs.items()
        },
        "required": list(inputs),
        "additionalProperties": False,
    }


def properties_of(schema: Any) -> dict[str, Json]:
    """Return the schemas of an object's properties, by name; true and false say nothing: {}."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: one if isinstance(one, dict) else {} for name, one in properties.items()}


def examples_of(schema: Any) -> list[Any]:
    """Return the examples that a schema gives."""
    examples = schema.get("examples") if isinstance(schema, dict) else None
    return examples if isinstance(examples, list) else []


def by_names(schema: Any, value: Json) -> Json:
    """Return an object under the names that its schema declares: a title may stand for its name.

    An input that was recorded as `in`, a word of expressions, is called `the_in` by a routine.
    """
    titles = {
        name: one["title"]
        for name, one in properties_of(schema).items()
        if isinstance(one.get("title"), str)
    }
    undeclared = Declared(schema).without(value) if titles else ()
    names = {
        title: name for name, title in titles.items() if title in undeclared and name not in value
    }
    return {names.get(name, name): one for name, one in value.items()} if names else value


class Declared:
    """The names that a schema of an object declares, wherever in it they stand.

    is_open: other names may come too: the schema says so, or it lists no properties.
    """

    def __init__(self, schema: Any) -> None:
        self.names: set[str] = set()
        self.patterns: list[str] = []
        self.is_open = False
        self._root = schema
        self._lists_properties = False
        self._seen: list[Any] = []
        self._take(schema)
        self.is_open = self.is_open or not self._lists_properties

    def without(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that the schema does not declare."""
        if self.is_open:
            return []
        rest = [name for name in names if name not in self.names]
        return [name for name in rest if not any(_matches(one, name) for one in self.patterns)]

    def _take(self, part: Any) -> None:
        if not isinstance(part, dict) or any(part is one for one in self._seen):
            return
        self._seen.append(part)
        if isinstance(part.get("properties"), dict):
            self._lists_properties = True
            self.names |= part["properties"].keys()
        self.names |= {name for name in _list(part.get("required")) if isinstance(name, str)}
        patterns = part.get("patternProperties")
        self.patterns += patterns if isinstance(patterns, dict) else ()
        for word in ("additionalProperties", "unevaluatedProperties"):
            # A schema for other names is checked as a part of the whole.
            self.is_open = self.is_open or part.get(word, False) is not False
        for word in ("allOf", "anyOf", "oneOf"):
            for inner in _list(part.get(word)):
                self._take(inner)
        for word in ("if", "then", "else"):
            self._take(part.get(word))
        dependent = part.get("dependentSchemas")
        for inner in dependent.values() if isinstance(dependent, dict) else ():
            self._take(inner)
        if isinstance(part.get("$ref"), str):
            self._take_reference(part["$ref"])

    def _take_reference(self, reference: str) -> None:
        found = self._root
        for name in reference.split("/")[1:]:
            key = unquote(name).replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if (reference == "#" or reference.startswith("#/")) and isinstance(found, dict):
            self._take(found)
        else:
            self.is_open = True  # it may declare anything


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def closed(schema: Json) -> Json:
    """Return a schema that refuses by itself what a routine refuses: undeclared names."""
    found = Declared(schema)
    if found.is_open or "additionalProperties" in schema:
        return schema
    own = {*schema.get("properties", ()), *schema.get("patternProperties", ())}
    # `additionalProperties` knows the names beside it only.
    word = "additionalProperties" if found.names <= own else "unevaluatedProperties"
    return {**schema, word: False}


def partial(schema: Json) -> Json:
    """Return a schema for a part of an object: it says nothing about what must be there."""
    words = ("$schema", "$defs", "definitions", "type", "properties", "additionalProperties")
    return {word: schema[word] for word in words if word in schema}


def lacking(schema: Any, known: Container[str]) -> list[str]:
    """Return the declared inputs that are required and not known.

    Of inputs that stand for one another (`anyOf`) the first are required if none is known.
    """
    part = schema if isinstance(schema, dict) else {}
    names = [*_list(part.get("required"))]
    for one in (part, *_list(part.get("allOf"))):
        ways = [_list(way.get("required")) for way in _list(one.get("anyOf"))]
        if ways and all(ways) and not any(all(name in known for name in way) for way in ways):
            names += ways[0]
    declared = properties_of(part)
    return [one for one in dict.fromkeys(names) if one in declared and one not in known]
