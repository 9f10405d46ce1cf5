"""Tools that a test defines, recordings of calls to them, and runs of what was learnt."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from em import Memory
from em.runner.run import RunResult
from em.traces.trace import Mission, ToolCall, Trace

Task = tuple[Mapping[str, Any], Sequence[tuple[Any, ...]]]
"""Inputs by name, and calls: a tool with its arguments in order."""


class World:
    """Reads return what a test says, and know whether the recordings are over; writes are noted."""

    def __init__(self, folder: Path) -> None:
        self.memory = Memory(folder / "em.db")
        self.is_new: Any = False
        self.written: list[tuple[Any, ...]] = []
        self.tools: dict[str, Callable[..., Any]] = {}
        self._arguments: dict[str, Sequence[str]] = {}
        self._writes: set[str] = set()

    def read(self, name: str, arguments: Sequence[str], result: Callable[..., Any]) -> None:
        """Add a read. result: called with the values of the arguments, and `is_new`."""

        def call(**args: Any) -> Any:
            return result(*(args[one] for one in arguments), self.is_new)

        self.tools[name], self._arguments[name] = call, arguments

    def write(self, name: str, arguments: Sequence[str]) -> None:
        """Add a tool that changes something."""

        def call(**args: Any) -> Any:
            self.written.append(tuple(args.get(one) for one in arguments))
            return {"done": True}

        self.tools[name], self._arguments[name] = call, arguments
        self._writes.add(name)

    def trace(self, given: Mapping[str, Any], calls: Iterable[tuple[Any, ...]]) -> Trace:
        """Make these calls and return their recording."""
        events = []
        for tool, *values in calls:
            args = dict(zip(self._arguments[tool], values, strict=False))
            effect: Any = "write" if tool in self._writes else "read"
            result = self.tools[tool](**args)
            events.append(ToolCall(tool=tool, args=args, result=result, effect=effect))
        return Trace(mission=Mission("a task", dict(given)), events=events, outcome="success")

    def learn(self, tasks: Iterable[Task]) -> None:
        """Record these tasks and compile them."""
        ids = [self.memory.add_trace(self.trace(*task)) for task in tasks]
        self.routine = self.memory.compile(ids, name="task")
        self.written.clear()

    def run(self, given: Mapping[str, Any], *, changed: Any = False) -> RunResult:
        """Run what was learnt; changed: what reads get as `is_new`."""
        self.is_new = changed
        self.written.clear()
        return self.memory.run(self.routine, dict(given), self.tools)

    def refuses(self, given: Mapping[str, Any], *, changed: Any = False) -> None:
        """Assert that nothing is written."""
        ended = self.run(given, changed=changed)
        assert self.written == []
        assert ended.status in ("needs_input", "failed")

    def does(
        self, given: Mapping[str, Any], *written: tuple[Any, ...], changed: Any = False
    ) -> None:
        """Assert what is written."""
        ended = self.run(given, changed=changed)
        assert ended.status == "ok", (ended.reason, ended.failure, ended.pending_prompt)
        assert self.written == [*written]
