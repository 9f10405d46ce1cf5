"""From a path in a value to the line of its file."""

import re

import yaml

from em.errors import RoutineError
from em.values.mistakes import Where
from em.values.strict_yaml import load_yaml_with_nodes

_BYTE = re.compile(r"\(byte (\d+)\)")


class Lines:
    """Where the parts of a YAML or JSON text stand."""

    def __init__(self, root: yaml.Node | None) -> None:
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
