"""Where workflows are written: `workflows:` of em.yaml, or of a file that is named."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from em.errors import InvalidWorkflow, NotFound
from em.settings import FILE, Settings
from em.values.canonical import Json
from em.values.strict_yaml import load_yaml
from em.workflows.definition import WorkflowDef, read_workflow

FIELD = "workflows"


class WorkflowFile:
    """The workflows of one file, by name, as they are written."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else Path(FILE)
        self._named = path is not None
        # The text that was read last, and what was made of it.
        self._read: tuple[bytes, dict[str, Json]] = (b"", {})
        self._made: dict[str, WorkflowDef] = {}

    @property
    def place(self) -> str:
        """How it is told."""
        return str(self.path)

    def text(self) -> bytes:
        """What stands in it; nothing where there is no em.yaml."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            if not self._named:
                return b""
            raise InvalidWorkflow("this file does not exist", place=self.place) from None
        except OSError as error:
            raise InvalidWorkflow(f"it can't be read: {error.strerror}", place=self.place) from None

    def values(self) -> dict[str, Json]:
        """Each workflow as its plain value."""
        text = self.text()
        if text != self._read[0]:
            value = load_yaml(text, self.place, InvalidWorkflow)
            self._read, self._made = (text, workflows_in(value, self.place)), {}
        return self._read[1]

    def workflow(self, name: str) -> WorkflowDef:
        """The workflow of that name; the first thing that is wrong with it is told."""
        values = self.values()
        if name not in values:
            close = get_close_matches(name, values, 1)
            there = f"there are: {', '.join(values)}" if values else self._none()
            raise NotFound(
                f"there is no workflow {name!r}",
                place=self.place,
                fix=f"did you mean {close[0]!r}?" if close else there,
            )
        if name not in self._made:
            value = {**values[name], "name": name}
            self._made[name] = read_workflow(value, f"{self.place}, workflow {name}")
        return self._made[name]

    def _none(self) -> str:
        return f"it has none; write them under `{FIELD}:`" + (
            "" if self._named else ", or name their file (--file)"
        )


def workflows_in(value: Any, place: str) -> dict[str, Json]:
    """The workflows of a file's value."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidWorkflow(
            "a file of workflows is names with values", place=place, fix=f"write `{FIELD}:`"
        )
    known = Settings.__struct_fields__
    for name in value:
        if name not in known:
            close = get_close_matches(str(name), known, 1)
            raise InvalidWorkflow(
                f"{name!r} is no part of such a file",
                place=place,
                fix=f"did you mean {close[0]!r}?" if close else f"write `{FIELD}:`",
            )
    found = value.get(FIELD) or {}
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise InvalidWorkflow(
            "workflows are names, each with its params and steps", place=f"{place}, {FIELD}"
        )
    return {str(name): one for name, one in found.items()}
