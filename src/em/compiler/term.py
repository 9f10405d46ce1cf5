"""Term: where a value of a routine comes from, as a value that can be compared and printed.

A term is one explanation, decided. The writer of steps prints it; a chosen element and the result
of a read get a name of their own, everything else is printed where it is used.
"""

import json
import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Literal

import msgspec

from em.compiler.example import Role
from em.compiler.places import ELEMENT, KEY, RECORD, Place

Fits = tuple[tuple[Place, "Term"], ...]
"""Fields of an element with the values that they must have."""


class Node(msgspec.Struct, frozen=True):
    """A term: what it is made of stands in its fields, or in tuples there."""


class Given(Node, frozen=True):
    """An input; with ELEMENT in its place, of the element of a loop."""

    place: Place


class Optional(Node, frozen=True):
    """An argument that is left out unless its input is given."""

    place: Place


class Nullable(Node, frozen=True):
    """An argument that is left out where its input is null."""

    place: Place


class Value(Node, frozen=True):
    """A constant, as JSON."""

    json: str


class Result(Node, frozen=True):
    """What a read returned."""

    role: Role


class Raw(Node, frozen=True):
    """The text that a read returned, where its structure is read too."""

    of: Result


class Written(Node, frozen=True):
    """What an earlier write returned."""

    tool: str


class Field(Node, frozen=True):
    """A field of a record."""

    of: "Term"
    names: tuple[str, ...]


class At(Node, frozen=True):
    """The record of a mapping under a key."""

    of: "Term"
    key: "Term"


class Pick(Node, frozen=True):
    """One element of a list: the only one that fits, or the smallest or largest of those."""

    of: "Term"
    how: Literal["only", "smallest", "largest"]
    fits: Fits
    by: Place = ()
    name: str = ""


class KeyOf(Node, frozen=True):
    """The id of the one record of a mapping that fits."""

    of: "Term"
    fits: Fits


class Common(Node, frozen=True):
    """The value that a field has in all elements that fit."""

    of: "Term"
    place: Place
    fits: Fits


class Every(Node, frozen=True):
    """All values at a place, of the elements that fit."""

    of: "Term"
    place: Place
    fits: Fits = ()


class Limit(Node, frozen=True):
    """What a field of an element must not be below, or not above."""

    of: "Term"
    is_least: bool


class Merged(Node, frozen=True):
    """A record with some of its fields changed."""

    old: "Term"
    changes: "Term"


class Text(Node, frozen=True):
    """A text that is put together from other values; `checks` are bare expressions on `{n}`.

    checks: what must hold of the n-th part, so that it is the same text but for the values.
    """

    parts: tuple["Term", ...]
    checks: tuple[tuple[str, tuple[int, ...]], ...] = ()


class Phrase(Node, frozen=True):
    """A part of a text that is there if an input is given."""

    place: Place
    of: "Term"


class Formed(Node, frozen=True):
    """A value in one of the plain forms: `shown(title, "slug")`."""

    form: str
    of: "Term"


class Computed(Node, frozen=True):
    """Two numbers, computed with, rounded if they are decimals; or a date and days after it."""

    sign: Literal["*", "+", "-", "later"]
    left: "Term"
    right: "Term"
    is_rounded: bool = False


class Edited(Node, frozen=True):
    """The text that a read returned, with one value in it replaced."""

    of: Result
    old: "Term"
    new: "Term"


class Cases(Node, frozen=True):
    """One value in several ways, by which inputs are given."""

    name: str
    terms: tuple["Term", ...]


Term = (
    Given | Optional | Nullable | Value | Result | Raw | Written | Field | At | Pick | KeyOf
    | Common | Every | Limit | Merged | Text | Phrase | Formed | Computed | Edited | Cases
)  # fmt: skip


def parts_of(term: Term) -> Iterator[Term]:
    """Yield the terms that a term is made of; those of a read's arguments are not known here."""
    yield from _terms_in(msgspec.structs.astuple(term))


def _terms_in(value: Any) -> Iterator[Any]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _terms_in(one)


def every_term(term: Term) -> Iterator[Term]:
    """Yield a term and all terms inside it."""
    yield term
    for one in parts_of(term):
        yield from every_term(one)


_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def literal(value: Any) -> str:
    """Return a value as an expression writes it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return json.dumps(value, ensure_ascii=False)


def field_text(base: str, names: tuple[str, ...]) -> str:
    """Return the expression of a field."""
    for name in names:
        base += f".{name}" if _NAME.fullmatch(name) else f"[{json.dumps(name)}]"
    return base


def names_in(place: Place) -> tuple[str, ...]:
    """Return the names of fields in a place."""
    return tuple(step for step in place if isinstance(step, str))


def path_text(place: Place) -> str:
    """Return a place as the functions of expressions take it: `items.*.id`."""
    signs: dict[Any, str] = {ELEMENT: "*", RECORD: "*", KEY: "@"}
    steps = [signs.get(step, step) if not isinstance(step, str) else step for step in place]
    # The keys of a mapping are asked for in place of its records.
    return ".".join(str(step) for step in steps).replace("*.@", "@")


def fits_text(fits: Mapping[Place, str]) -> str:
    """Return the conditions of a selection as arguments: `, name=wanted.name`."""
    nested: dict[str, Any] = {}
    for place, text in fits.items():
        holder = nested
        for step in place[:-1]:
            holder = holder.setdefault(str(step), {})
        holder[str(place[-1])] = text
    named = {name: one for name, one in nested.items() if _NAME.fullmatch(name)}
    other = {name: one for name, one in nested.items() if name not in named}
    first = f", {_mapping_text(other)}" if other else ""
    return first + "".join(f", {name}={_mapping_text(one)}" for name, one in named.items())


def _mapping_text(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    inner = ", ".join(f"{json.dumps(name)}: {_mapping_text(one)}" for name, one in value.items())
    return "{" + inner + "}"


def unused(wanted: str, taken: Container[str]) -> str:
    """Return a name that nothing has yet: `order`, or `order_2`."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


def singular(name: str) -> str:
    """Return a name for one of several: `item` for `items`."""
    if name.endswith("ies"):
        return f"{name[:-3]}y"
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def paths_in(said: str) -> set[str]:
    """Return the paths of fields that expressions name, and of what these are parts of."""
    found = {*_PATH.findall(said)}
    for path in [*found]:
        while (path := path.rpartition(".")[0]) and path not in found:
            found.add(path)
    return found


_PATH = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*")
