"""Where a value does not match its type.

`mismatch` reads the one problem that a msgspec decoder stopped at; `shape_problems` finds them all.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

Where = tuple[str | int, ...]
"""A path in a value."""

Found = tuple[Where, str, str]
"""Where, what is wrong, and how to fix it."""


class TypeMismatch(NamedTuple):
    """The problem that msgspec found, and its path (`steps[0].tool`), empty for the whole."""

    message: str
    path: str

    def place(self, whole: str, word: str = "field ") -> str:
        """Name the part after the place of the whole: `em.yaml, field steps[0]`."""
        return f"{whole}, {word}{self.path}" if self.path else whole


def mismatch(error: Exception) -> TypeMismatch:
    """Split the text of a msgspec error into what is wrong and where."""
    message, _, path = str(error).partition(" - at `$")
    return TypeMismatch(message, path.rstrip("`").lstrip("."))


def dotted(where: Where) -> str:
    """Return a path as a text: `steps[0].args.to`."""
    parts = (f"[{part}]" if type(part) is int else f".{part}" for part in where)
    return "".join(parts).lstrip(".")


def shape_problems(value: Any, kind: Any, where: Where = ()) -> Iterator[Found]:
    """Yield everything in a value that its type refuses, at any depth."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    structs = [member for member in members if _is_struct(member)]
    item_kinds = [get_args(member)[0] for member in members if get_origin(member) is Sequence]
    if isinstance(value, dict) and structs:
        yield from _one_of(value, structs, where)
    elif isinstance(value, list) and item_kinds:
        for number, item in enumerate(value):
            yield from shape_problems(item, item_kinds[0], (*where, number))
    else:
        yield from _refused(value, kind, where)


def options_at(kind: Any, path: str) -> list[str]:
    """Return the values that a type allows at a path (`tools[0].effect`), if it names them."""
    found = _members(msgspec.inspect.type_info(kind))
    for name in re.findall(r"\.{3}|[^.[\]]+", path):  # msgspec writes `[...]` for any key
        found = [member for one in found for inner in _inside(one, name) for member in inner]
    literals = [one for one in found if isinstance(one, msgspec.inspect.LiteralType)]
    return [str(value) for one in literals for value in one.values]


def _members(kind: msgspec.inspect.Type) -> list[msgspec.inspect.Type]:
    if isinstance(kind, msgspec.inspect.Metadata):
        return _members(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return [member for one in kind.types for member in _members(one)]
    return [kind]


def _inside(kind: msgspec.inspect.Type, name: str) -> Iterator[list[msgspec.inspect.Type]]:
    """Yield the types of what has this name, or this number, in a value of a type."""
    if isinstance(kind, msgspec.inspect.StructType):
        yield from (_members(one.type) for one in kind.fields if one.encode_name == name)
    elif isinstance(kind, msgspec.inspect.CollectionType):
        yield _members(kind.item_type)
    elif isinstance(kind, msgspec.inspect.DictType):
        yield _members(kind.value_type)


def closest(name: Any, known: Collection[str]) -> str:
    """Return a fix with the known name that is closest to a wrong one, or an empty text."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), known, 1)
    return f"did you mean {close[0]!r}?" if close else ""


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _one_of(value: dict[str, Any], structs: Sequence[Any], where: Where) -> Iterator[Found]:
    tags = {struct.__struct_config__.tag: struct for struct in structs}
    if None in tags:
        yield from _struct(value, structs[0], where)
        return
    tag_field = structs[0].__struct_config__.tag_field
    tag = value.get(tag_field)
    if isinstance(tag, str) and tag in tags:
        yield from _struct(value, tags[tag], where)
    elif tag is None:
        yield where, f"the field {tag_field!r} is missing", f"use one of: {', '.join(sorted(tags))}"
    else:
        fix = closest(tag, tags) or f"use one of: {', '.join(sorted(tags))}"
        yield (*where, tag_field), f"unknown {tag_field} {tag!r}", fix


def _struct(value: dict[str, Any], kind: Any, where: Where) -> Iterator[Found]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=True)
    tag_field = kind.__struct_config__.tag_field
    found: list[Found] = []
    for key, item in value.items():
        if key in fields:
            found += shape_problems(item, hints[fields[key].name], (*where, key))
        elif key != tag_field:
            found.append(((*where, key), f"unknown field {key!r}", closest(key, fields)))
    found += [
        (where, f"the field {name!r} is missing", "")
        for name, field in fields.items()
        if field.required and name not in value
    ]
    # Check rules over several fields only if each field is right by itself.
    yield from found or _refused(value, kind, where)


def _refused(value: Any, kind: Any, where: Where) -> Iterator[Found]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        found = mismatch(error)
        field = found.path.partition(".")[0].partition("[")[0]
        yield ((*where, field) if field else where), found.message, ""
    except RecursionError:
        yield where, "nested too deeply", ""
