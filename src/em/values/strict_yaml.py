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


class Lines:
    """The line numbers of the parts of a YAML or JSON text."""

    def __init__(self, root: "yaml.Node | None") -> None:
        self._root = root

    @classmethod
    def of_json(cls, text: bytes) -> "Lines":
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


_PLAIN = re.compile(r"[A-Za-z_./][\w./+-]*")


def with_items(text: str, path: tuple[str, str], items: Sequence[str]) -> str:
    """Return a YAML text with more items in the list at `path`, a key in the mapping of a key.

    Raise InputError where the text is not written in a way that is known here.
    """
    import yaml

    before = _as_mapping(text)
    made = _added(text, yaml.compose(text, Loader=yaml.SafeLoader), path, items)
    wanted = {**before, path[0]: dict(before.get(path[0]) or {})}
    wanted[path[0]][path[1]] = [*(wanted[path[0]].get(path[1]) or ()), *items]
    if not _is_same(_as_mapping(made), wanted):
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


def _is_same(made: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Compare two documents; the new items may stand before the others."""
    return bool(_in_any_order(made) == _in_any_order(wanted))


def _in_any_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_any_order(one) for name, one in value.items()}
    return sorted(map(repr, value)) if isinstance(value, list) else value


def _added(text: str, node: "yaml.Node | None", path: tuple[str, ...], items: Sequence[str]) -> str:
    import yaml

    if not path:
        return _with_elements(text, node, items)
    if isinstance(node, yaml.MappingNode) and node.value:
        for key, value in node.value:
            if key.value == path[0]:
                return _added(text, value, path[1:], items)
    return _with_key(text, node, f"{path[0]}: {_flow(path[1:], items)}")


def _with_key(text: str, node: "yaml.Node | None", line: str) -> str:
    """Return the text with a key more in a mapping."""
    import yaml

    if node is None:  # the document has no value yet
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        return _before_the_end(text, node, line)
    if isinstance(node, yaml.MappingNode):
        at, column = node.start_mark.index, node.start_mark.column
        if column == 0:
            return f"{text}{'' if text.endswith(chr(10)) else chr(10)}{line}\n"
        return f"{text[:at]}{line}\n{' ' * column}{text[at:]}"
    return _instead_of_nothing(text, node, "{" + line + "}")


def _with_elements(text: str, node: "yaml.Node | None", items: Sequence[str]) -> str:
    """Return the text with more elements in a list."""
    import yaml

    if not isinstance(node, yaml.SequenceNode):
        return _instead_of_nothing(text, node, _flow((), items))
    if node.flow_style:
        return _before_the_end(text, node, ", ".join(map(_scalar, items)))
    at, column = node.start_mark.index, node.start_mark.column
    lines = "".join(f"- {_scalar(item)}\n{' ' * column}" for item in items)
    return text[:at] + lines + text[at:]


def _before_the_end(text: str, node: "yaml.CollectionNode", addition: str) -> str:
    """Return the text with an addition before the bracket that ends a collection."""
    end = node.end_mark.index - 1
    before = text[:end].rstrip()
    gap = " " if before.endswith(",") else "" if not node.value else ", "
    return before + gap + addition + text[len(before) : end] + text[end:]


def _instead_of_nothing(text: str, node: "yaml.Node | None", value: str) -> str:
    if node is None or node.tag != "tag:yaml.org,2002:null":
        raise InputError("expected a mapping with lists", fix="add it by hand")
    start, end = node.start_mark.index, node.end_mark.index
    gap = "" if text[:start].endswith((" ", "\n")) else " "
    return text[:start] + gap + value + text[end:]


def _flow(path: Sequence[str], items: Sequence[str]) -> str:
    inner = f"[{', '.join(map(_scalar, items))}]"
    return inner if not path else "{" + f"{path[0]}: {_flow(path[1:], items)}" + "}"


def _scalar(item: str) -> str:
    import yaml

    if _PLAIN.fullmatch(item) and yaml.safe_load(item) == item:
        return item
    return yaml.safe_dump(item, default_style='"', width=float("inf")).rstrip("\n")
