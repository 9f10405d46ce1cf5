"""Strict YAML: plain values, names as texts and each once, no aliases; errors have their line.

A few aliases can expand to gigabytes, and a repeated name would lose one of its values silently.
Texts that look like dates stay texts. `yaml` is imported when the first file is read.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from em.errors import EmError, InputError, RoutineError
from em.values.canonical import depth_of
from em.values.mismatch import Where

if TYPE_CHECKING:
    import yaml


MAX_LEVELS = 100
SAFE_LEVELS = 5000
"""The C parser crashes at about 20,000 levels on a stack of 8 MB."""

_TAG = "tag:yaml.org,2002:"
_LEFT_OUT = (f"{_TAG}timestamp", f"{_TAG}merge")
_NOT_PLAIN = frozenset(f"{_TAG}{name}" for name in ("timestamp", "binary", "omap", "pairs", "set"))
"""Tags of values that JSON does not have; an error if a text asks for one."""


class Repeated(NamedTuple):
    """A name that a mapping has twice."""

    name: str
    line: int
    first_line: int

    def __str__(self) -> str:
        return f"{self.name!r} is repeated; it is first on line {self.first_line}"


def load_yaml(text: bytes, place: str, error: type[EmError]) -> Any:
    """Load a YAML text. Problems raise the given class of error, with their line."""
    return _loaded(text, place, error, _loader(strict=True))


def load_yaml_with_nodes(
    text: bytes, place: str, error: type[EmError]
) -> "tuple[Any, yaml.Node | None]":
    """Load a text with its nodes, to find every problem. The last of repeated names counts."""
    import yaml

    lenient = _loader(strict=False)
    value = _loaded(text, place, error, lenient, always_checked=True)
    return value, yaml.compose(text, Loader=lenient)


def repeated_names(node: "yaml.Node | None") -> Iterator[Repeated]:
    """Yield every name that one mapping has twice."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        lines: dict[tuple[str, Any], int] = {}
        for key, item in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode):
                name = (key.tag, key.value)
                if name in lines:
                    yield Repeated(key.value, line, lines[name])
                lines.setdefault(name, line)
            yield from repeated_names(item)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from repeated_names(item)


class _NameError(Exception):
    """A mapping has a name that is not a text, or one name twice."""

    def __init__(self, message: str, line: int, fix: str = "") -> None:
        self.message, self.line, self.fix = message, line, fix


def _check_names(node: Any, mapping: dict[Any, Any]) -> None:
    """Refuse names that are not texts: JSON has no others, and YAML reads `on` as true."""
    if all(type(name) is str for name in mapping):
        return
    key = next(key for key, _ in node.value if key.tag != f"{_TAG}str")
    kind = key.tag.rpartition(":")[2]
    raise _NameError(
        f"names must be texts, got the {kind} {key.value}", _line_of(key), f"write '{key.value}'"
    )


def _loaded(
    text: bytes, place: str, error: type[EmError], loader: Any, *, always_checked: bool = False
) -> Any:
    import yaml

    try:
        if always_checked or _is_suspect(text):
            _check_events(text, place, error, loader)
        value = yaml.load(text, Loader=loader)  # noqa: S506 - a SafeLoader, made stricter
    except _NameError as problem:
        place = f"{place}:{problem.line}"
        raise error(problem.message, place=place, fix=problem.fix) from None
    except yaml.YAMLError as problem:
        what = getattr(problem, "problem", None) or str(problem).partition("\n")[0]
        raise error(f"not valid YAML: {what}", place=f"{place}{_line(problem, text)}") from None
    except (ValueError, LookupError, RecursionError) as problem:
        # LookupError: of yaml, for a tag that does not fit its text (`!!bool x`, `!!int ""`).
        raise error(f"not valid YAML: {problem}", place=place) from None
    if depth_of(value) > MAX_LEVELS:
        raise error("nested too deeply", place=place)
    return value


def _line_of(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _line(problem: Exception, text: bytes) -> str:
    mark = getattr(problem, "problem_mark", None)
    if mark is not None:
        return f":{mark.line + 1}"
    position = getattr(problem, "position", None)
    if position is None:
        return ""
    line = text.count(b"\n", 0, position) + 1
    return f":{line}"


def _is_suspect(text: bytes) -> bool:
    """Whether a text can have an alias, or more levels than the C parser can take.

    Each level takes a bracket or a column, so that most files need no further check.
    """
    brackets = text.count(b"[") + text.count(b"{")
    return (b"*" in text and b"&" in text) or (
        brackets + max(map(len, text.split(b"\n"))) > SAFE_LEVELS
    )


def _check_events(text: bytes, place: str, error: type[EmError], loader: Any) -> None:
    """Refuse aliases and deep nesting in the event stream, before the C parser builds values."""
    import yaml

    level = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise error(
                "YAML aliases are not supported",
                place=f"{place}:{_line_of(event)}",
                fix="write the value out in each place",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MAX_LEVELS:
            raise error("nested too deeply", place=f"{place}:{_line_of(event)}")


@lru_cache(maxsize=2)
def _loader(*, strict: bool) -> Any:
    import yaml

    # The parser in C, if PyYAML was built with it.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Lenient(base):  # type: ignore[misc]  # the class is known at run time only
        yaml_implicit_resolvers = {  # noqa: RUF012 - as yaml declares it
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_OUT]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }
        yaml_constructors = {  # noqa: RUF012 - as yaml declares it
            tag: make for tag, make in base.yaml_constructors.items() if tag not in _NOT_PLAIN
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            _check_names(node, mapping)
            return mapping

    class Strict(Lenient):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) != len(node.value):
                found = next(repeated_names(node), None)
                # None is found if two names differ in their tags only.
                message = str(found or "two names have the same value")
                raise _NameError(message, found.line if found else _line_of(node))
            return mapping

    return Strict if strict else Lenient


_BYTE = re.compile(r"\(byte (\d+)\)")


class LineNumbers:
    """The line numbers of the parts of a YAML or JSON text."""

    def __init__(self, root: "yaml.Node | None") -> None:
        self._root = root

    @classmethod
    def of_json(cls, text: bytes) -> "LineNumbers":
        """Find the lines of a JSON text, which is nearly always valid YAML."""
        try:
            return cls(load_yaml_with_nodes(text, "", RoutineError)[1])
        except RoutineError:
            return cls(None)

    @staticmethod
    def in_json(text: bytes, error: Exception) -> int:
        """Return the line at which decoding a JSON text failed."""
        found = _BYTE.search(str(error))
        return text.count(b"\n", 0, int(found[1])) + 1 if found else 1

    def of(self, where: Where) -> int:
        """Return the line of the part at a path, or of its closest parent."""
        import yaml

        node, line = self._root, 1
        for part in where:
            child = None
            if isinstance(node, yaml.MappingNode):
                for key, item in node.value:
                    if str(key.value).lower() == str(part).lower():
                        child, line = item, key.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                child = node.value[part]
                line = child.start_mark.line + 1
            if child is None:
                break
            node = child
        return line


def with_items(text: str, path: tuple[str, str], items: Sequence[str]) -> str:
    """Return a YAML text with more items in the list at `path`, a key in the mapping of a key.

    That mapping is written anew on one line; everything else stays as it is. Raise InputError where
    something would be lost, such as a comment in it.
    """
    import yaml

    before, (outer, inner) = _as_mapping(text), path
    held = before.get(outer) or {}
    known = held.get(inner) or [] if isinstance(held, dict) else None
    if not isinstance(known, list):
        raise InputError("expected a mapping with lists", place=outer, fix="add it by hand")
    wanted = {**held, inner: [*known, *items]}
    written = yaml.safe_dump(wanted, default_flow_style=True, sort_keys=False, width=float("inf"))
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    node = next((value for key, value in pairs if key.value == outer), None)
    if node is None:
        gap = "\n" if text and not text.endswith("\n") else ""
        made = f"{text}{gap}{outer}: {written}"
    else:
        start, end = node.start_mark.index, node.end_mark.index
        old = text[start:end]
        # What ends with line breaks is a block, and the comments behind it.
        kept = old[len(re.sub(r"(?:\s*(?:#.*)?\n)*\Z", "", old)) :]
        made = f"{text[:start].rstrip()} {written.rstrip()}{kept}{text[end:]}"
        if "#" in old.removesuffix(kept):
            made = ""
    if not made or _as_mapping(made) != {**before, outer: wanted}:
        raise InputError("can't be added to this text", place=".".join(path), fix="add it by hand")
    return made


def _as_mapping(text: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"expected YAML: {error}") from None
    if not isinstance(found, dict | None):
        raise InputError("expected a mapping")
    return found or {}
