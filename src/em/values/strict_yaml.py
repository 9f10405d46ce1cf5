"""YAML as em reads it: plain values, each name once, no aliases; what is wrong has its line.

A few aliases can unfold to gigabytes or without end, and of a name that is given twice one value
would be lost in silence. Texts that look like dates stay texts. yaml is imported when the first
file is read.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from em.errors import EmError, RoutineError
from em.values.mismatch import Where

if TYPE_CHECKING:
    import yaml

MAX_LEVELS = 100
SAFE_LEVELS = 5000
"""The C parser dies of some 20,000 levels on a stack of 8 MB."""

_LEFT_OUT = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")


class Repeated(NamedTuple):
    """A name that is given twice."""

    name: str
    line: int
    first_line: int

    def __str__(self) -> str:
        return f"{self.name!r} is given twice, first on line {self.first_line}"


def load_yaml(text: bytes, place: str, error: type[EmError]) -> Any:
    """The value of a YAML text; an error of the given class says what is wrong, and where."""
    return _loaded(text, place, error, _loader(strict=True))


def load_yaml_with_nodes(
    text: bytes, place: str, error: type[EmError]
) -> "tuple[Any, yaml.Node | None]":
    """The same for who looks for every mistake: repeated names too; the last value counts."""
    import yaml

    lenient = _loader(strict=False)
    value = _loaded(text, place, error, lenient, always_checked=True)
    return value, yaml.compose(text, Loader=lenient)


def repeated_names(node: "yaml.Node | None") -> Iterator[Repeated]:
    """Every name that is given twice in one mapping."""
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


class _RepeatedError(Exception):
    def __init__(self, node: Any) -> None:
        found = next(repeated_names(node), None)
        # Nothing is found where two look different and are the same, as 1 and true.
        self.said = str(found or "two names have the same value")
        self.line = found.line if found else node.start_mark.line + 1


def _loaded(
    text: bytes, place: str, error: type[EmError], loader: Any, *, always_checked: bool = False
) -> Any:
    import yaml

    try:
        if always_checked or _is_suspect(text):
            _check_events(text, place, error, loader)
        return yaml.load(text, Loader=loader)  # noqa: S506 - a SafeLoader, made stricter
    except _RepeatedError as problem:
        raise error(problem.said, place=f"{place}:{problem.line}") from None
    except yaml.YAMLError as problem:
        what = getattr(problem, "problem", None) or str(problem).partition("\n")[0]
        raise error(f"this is no YAML: {what}", place=f"{place}{_line(problem, text)}") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"this is no YAML: {problem}", place=place) from None


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
    """Whether there can be an alias, or more levels than the C parser's stack holds.

    A level takes a bracket, or a column of its own. Most files are cleared by this alone.
    """
    brackets = text.count(b"[") + text.count(b"{")
    return (b"*" in text and b"&" in text) or (
        brackets + max(map(len, text.split(b"\n"))) > SAFE_LEVELS
    )


def _check_events(text: bytes, place: str, error: type[EmError], loader: Any) -> None:
    """Refuse aliases and depth while they are but events: the C parser would follow both."""
    import yaml

    level = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise error(
                "aliases are not taken here",
                place=f"{place}:{_line_of(event)}",
                fix="write the value out where it is meant",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        if level > MAX_LEVELS:
            raise error("it is nested too deeply", place=f"{place}:{_line_of(event)}")


@lru_cache(maxsize=2)
def _loader(*, strict: bool) -> Any:
    import yaml

    # In C where it was built.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Lenient(base):  # type: ignore[misc]  # which class it is is known at run time
        yaml_implicit_resolvers = {  # noqa: RUF012 - as yaml declares it
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_OUT]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

    class Strict(Lenient):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            mapping = super().construct_mapping(node, deep)
            if len(mapping) != len(node.value):
                raise _RepeatedError(node)
            return mapping

    return Strict if strict else Lenient


_BYTE = re.compile(r"\(byte (\d+)\)")


class Lines:
    """Where the parts of a YAML or JSON text stand."""

    def __init__(self, root: "yaml.Node | None") -> None:
        self._root = root

    @classmethod
    def of_json(cls, text: bytes) -> "Lines":
        """The lines of a JSON text, which is YAML but for a few odd ones."""
        try:
            return cls(load_yaml_with_nodes(text, "", RoutineError)[1])
        except RoutineError:
            return cls(None)

    @staticmethod
    def in_json(text: bytes, error: Exception) -> int:
        """The line in which a JSON text breaks."""
        found = _BYTE.search(str(error))
        return text.count(b"\n", 0, int(found[1])) + 1 if found else 1

    def of(self, where: Where) -> int:
        """The line of the part at this path, or of what it would stand in."""
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
