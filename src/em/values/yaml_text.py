"""Additions to a YAML text in which everything else stays as it is: comments, order and spaces."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from em.errors import InputError

if TYPE_CHECKING:
    import yaml

_PLAIN = re.compile(r"[A-Za-z_./][\w./+-]*")


def with_items(text: str, path: tuple[str, str], items: Sequence[str]) -> str:
    """Return a YAML text with more items in the list at `path`, a key in the mapping of a key.

    Raise InputError where the text is not written in a way that is known here.
    """
    import yaml

    before = _loaded(text)
    made = _added(text, yaml.compose(text, Loader=yaml.SafeLoader), path, items)
    wanted = {**before, path[0]: dict(before.get(path[0]) or {})}
    wanted[path[0]][path[1]] = [*(wanted[path[0]].get(path[1]) or ()), *items]
    if not _is_same(_loaded(made), wanted):
        raise InputError("can't be added to this text", place=".".join(path), fix="add it by hand")
    return made


def _loaded(text: str) -> dict[str, Any]:
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
