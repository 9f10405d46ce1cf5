"""Names of the generated module: valid, ASCII, never twice, never something Python means."""

import builtins
import keyword
import re
import unicodedata
from collections.abc import Container

MAX_NAME = 60
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[^A-Za-z0-9]+")

RESERVED_FIELDS = frozenset(
    "event_ids as_given history datetime Decimal Any Literal Money field str int float bool list "
    "dict tuple object self None True False".split()
)
"""Names that the body of a generated class uses itself."""

RESERVED_CLASSES = frozenset(
    "State Entry Rule Money Any Literal Decimal Mapping Sequence Callable Fraction".split()
) | frozenset(name for name in dir(builtins) if name[:1].isupper())

RESERVED_COLLECTIONS = frozenset(
    "check alerts ask code schema history conflicts subject version as_of module profile rules "
    "datetime coverage watermark unstructured collections run evidence types".split()
)
"""Names of a state's own attributes."""


def _ascii(text: str) -> str:
    """Letters without their marks; what is left beyond ASCII is spelled out, so none is mistaken.

    Letters of two scripts that look alike must not become the same name.
    """
    parts = []
    for char in unicodedata.normalize("NFKD", text[:MAX_NAME]):
        if char.isascii():
            parts.append(char)
        elif not unicodedata.combining(char):
            parts.append(f"_u{ord(char):04x}_" if char.isalnum() else "_")
    return "".join(parts)


def _words(text: str) -> list[str]:
    return [word for word in _NOT_WORD.split(_CAMEL.sub("_", _ascii(text))) if word]


def field_name(given: str, taken: Container[str]) -> str:
    """The attribute for a field."""
    name = "_".join(_words(given)).lower() or "field"
    if name[0].isdigit():
        name = f"n_{name}"
    if keyword.iskeyword(name):
        name += "_"
    if name in RESERVED_FIELDS:
        name += "_"
    return _free(name, taken)


def class_name(given: str, taken: Container[str]) -> str:
    """The class for a type of records."""
    words = _words(given) or ["record"]
    name = "".join(word[:1].upper() + word[1:] for word in words)
    if name[0].isdigit():
        name = f"N{name}"
    if name in RESERVED_CLASSES or keyword.iskeyword(name):
        name += "Record"
    return _free(name, taken)


def collection_name(class_: str, taken: Container[str]) -> str:
    """The attribute that holds a class's records: Trip, trips."""
    name = _plural("_".join(_words(class_)).lower())
    if name in RESERVED_COLLECTIONS or keyword.iskeyword(name):
        name += "_"
    return _free(name, taken)


def _plural(word: str) -> str:
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word if word.endswith("s") and not word.endswith("ss") else word + "es"
    return word + "s"


def _free(name: str, taken: Container[str]) -> str:
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
