"""Hostile requests as data: `tests/hostile/*.json`, a file for each kind of task.

A file has recordings to learn the kind from (native traces), hostile requests in groups, and right
twins in groups. A hostile request has the words of the kind and asks for something else, or for
nothing: no write may follow. A twin asks for the task, and names the inputs that it means and the
writes that must follow: `recorded` twins are the recordings' own requests, `new values` are the
recorded wordings with other values, `other words` are put differently. A reader of exact templates
does the first two, and may hand over the third.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "tests" / "hostile"

Write = tuple[str, dict[str, Any]]


class Twin(NamedTuple):
    """A request that must be done. `given`: inputs that the caller gives beside the request."""

    request: str
    inputs: dict[str, Any]
    writes: list[Write]
    given: dict[str, Any]


class HostileTask(NamedTuple):
    """One kind of task: recordings, hostile requests and right twins, by group."""

    name: str
    recordings: Sequence[dict[str, Any]]
    answers: Sequence[dict[str, Any]]
    hostile: Mapping[str, Sequence[str]]
    twins: Mapping[str, Sequence[Twin]]

    def requests(self) -> Iterator[str]:
        """Yield every hostile request."""
        for requests in self.hostile.values():
            yield from requests

    def requests_to_do(self, *groups: str) -> Iterator[Twin]:
        """Yield the twins of these groups, or of all."""
        for group in groups or self.twins:
            yield from self.twins[group]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The recorded calls."""
        events = (event for one in self.recordings for event in one["events"])
        return [event for event in events if event["type"] == "tool_call"]


class Desk:
    """The tools of a task: reads answer what is known, writes are noted in `done`."""

    def __init__(self, task: HostileTask) -> None:
        self.done: list[Write] = []
        calls = task.calls
        self._answers = {_key(one): one["result"] for one in (*calls, *task.answers)}
        self._writes = {one["tool"]: one["result"] for one in calls if one["effect"] == "write"}
        self._reads = {one["tool"] for one in calls} - self._writes.keys()

    def tools(self) -> dict[str, Callable[..., Any]]:
        return {name: self._tool(name) for name in (*self._reads, *self._writes)}

    def _tool(self, name: str) -> Callable[..., Any]:
        def read(**args: Any) -> Any:
            key = _key({"tool": name, "args": args})
            if key not in self._answers:
                raise LookupError(f"{name} knows nothing about {args}")
            return self._answers[key]

        def write(**args: Any) -> Any:
            self.done.append((name, args))
            return self._answers.get(_key({"tool": name, "args": args}), self._writes[name])

        return write if name in self._writes else read


def _key(call: Mapping[str, Any]) -> str:
    return json.dumps([call["tool"], call["args"]], sort_keys=True)


def hostile_tasks() -> list[HostileTask]:
    """Every kind of task, in the order of their names."""
    return [_read(file) for file in sorted(FOLDER.glob("*.json"))]


def _read(file: Path) -> HostileTask:
    found = json.loads(file.read_text())
    twins = {group: [_twin(one) for one in said] for group, said in found["twins"].items()}
    return HostileTask(file.stem, found["recordings"], found["answers"], found["hostile"], twins)


def _twin(one: dict[str, Any]) -> Twin:
    writes = [(tool, args) for tool, args in one["writes"]]
    return Twin(one["request"], one["inputs"], writes, one.get("given", {}))
