"""Templates of a workflow as a routine says them: `memory.x_output` becomes a name of its own."""

from collections.abc import Mapping
from typing import Any

from em.errors import WorkflowError
from em.runner.expressions.language import lexed

Token = tuple[str, str]


class Rewrite:
    """Rewrites what templates refer to; `memory` and `params` by their parts."""

    def __init__(self, memory: Mapping[str, str], params: Mapping[str, str], place: str) -> None:
        self._names = {"memory": memory, "params": params}
        self._place = place

    def value(self, value: Any) -> Any:
        """A value with every text in it rewritten."""
        if isinstance(value, str):
            return self.text(value) if "{{" in value or "{%" in value else value
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value

    def expression(self, source: str) -> str:
        """A bare expression, rewritten."""
        return self.text(f"{{{{ {source} }}}}")[2:-2].strip()

    def text(self, text: str) -> str:
        """A text, rewritten."""
        tokens = [(kind, value) for _, kind, value in lexed(text, self._place)]
        out: list[str] = []
        position = 0
        while position < len(tokens):
            found = self._reference(tokens, position)
            if found is None:
                out.append(tokens[position][1])
                position += 1
            else:
                said, length = found
                out.append(said)
                position += length
        return "".join(out)

    def _reference(self, tokens: list[Token], at: int) -> tuple[str, int] | None:
        kind, value = tokens[at]
        if kind != "name" or value not in self._names or _is_part(tokens, at):
            return None
        rest = tokens[at + 1 : at + 4]
        if rest[:1] == [("operator", ".")] and rest[1:2] and rest[1][0] == "name":
            return self._said(value, rest[1][1]), 3
        if rest[:1] == [("operator", "[")] and len(rest) == 3 and rest[1][0] == "string":
            return self._said(value, rest[1][1][1:-1]), 4
        raise WorkflowError(
            f"{value!r} as a whole can't be compiled", place=self._place, fix="name its parts"
        )

    def _said(self, name: str, part: str) -> str:
        # What nothing brought is empty, as it was in the workflow.
        return self._names[name].get(part, "''")


def _is_part(tokens: list[Token], at: int) -> bool:
    """Whether it is the attribute of something else."""
    before = [token for token in tokens[:at] if token[0] != "whitespace"]
    return bool(before) and before[-1] == ("operator", ".")
