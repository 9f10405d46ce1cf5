"""The layout of nested values as text: in one line where they fit, else broken between parts."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Layout(NamedTuple):
    """How values are written: each scalar and key by `scalar`, in lines of `width` columns."""

    scalar: Callable[[Any], str]
    width: int

    def flow(self, value: Any) -> str:
        """Return a value in one line."""
        if isinstance(value, dict):
            pairs = (f"{self.scalar(key)}: {self.flow(one)}" for key, one in value.items())
            return "{" + ", ".join(pairs) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.flow, value)) + "]"
        return self.scalar(value)

    def broken(self, value: Any, indent: int, used: int, after: int = 0) -> list[str]:
        """Return a list or mapping on several lines; nothing if a part of it is too long.

        indent: of the lines behind the first. used: columns of the first line that are taken.
        after: columns that the last line must leave.
        """
        if not isinstance(value, dict | list) or not value:
            return []
        is_list = isinstance(value, list)
        if isinstance(value, dict):
            parts = [(f"{self.scalar(name)}: ", held) for name, held in value.items()]
        else:
            parts = [("", held) for held in value]
        lines = [" " * used + ("[" if is_list else "{")]
        for number, (name, held) in enumerate(parts, 1):
            is_last = number == len(parts)
            end, left = ("]" if is_list else "}", after) if is_last else (",", 0)
            space = " " if number > 1 else ""
            text = name + self.flow(held) + end
            if len(lines[-1] + space + text) + left <= self.width:
                lines[-1] += space + text
                continue
            if number > 1:
                lines.append(" " * indent)
            if len(lines[-1] + text) + left <= self.width:
                lines[-1] += text
                continue
            inner = self.broken(held, indent + 2, len(lines[-1] + name), left + 1)
            if not inner:
                return []
            lines[-1] += name + inner[0]
            lines += inner[1:]
            lines[-1] += end
        return [lines[0][used:], *lines[1:]]
