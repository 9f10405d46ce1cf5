"""A case: one recording, the tools of its world, and runs with the writes that are right.

An author writes a *flow*: the steps as a function of `do` (its attributes are the tools) and of
the inputs. The flow runs once on the answers of the recorded world, which gives the trace, and
once on the answers of the other world, which gives the expected writes. So a recording is
consistent by construction, and `python -m bench.single` proves it again from the trace alone.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

Flow = Callable[[Any, Any], object]
World = dict[str, dict[str, Any]]
"""The answers of each tool: {tool: {arguments as sorted JSON: result}}; `ANY` fits all calls."""

Write = tuple[str, dict[str, Any]]
Answers = Mapping[str, Any]
"""The result of each tool in one run of a flow; `Each` for a tool that is called repeatedly."""

ANY = "*"
DONE = {"ok": True}


class Each(list[Any]):
    """Results of successive calls of one tool."""


class Made:
    """The result of a tool that writes, for example the id of the new record."""

    def __init__(self, result: object) -> None:
        self.result = result


class Run(NamedTuple):
    """One run of the compiled routine, and the writes that are right in it."""

    inputs: dict[str, Any]
    change: World | None
    expected: list[Write] | Literal["stop"]


class Tools(dict[str, Callable[..., Any]]):
    """Fresh tools by name. `writes` lists the writing calls in order."""

    def __init__(self, effects: Mapping[str, str], world: World) -> None:
        super().__init__()
        self.writes: list[Write] = []
        for tool, effect in effects.items():
            self[tool] = self._tool(tool, effect, world.get(tool, {}))

    def _tool(self, tool: str, effect: str, answers: dict[str, Any]) -> Callable[..., Any]:
        def call(**args: Any) -> Any:
            if effect == "write":
                self.writes.append((tool, copy.deepcopy(args)))
                return copy.deepcopy(answers.get(ANY, DONE))
            if (key := key_of(args)) not in answers:
                raise LookupError(f"{tool}: nothing found for {key}")
            return copy.deepcopy(answers[key])

        call.__name__ = tool
        return call


@dataclass(frozen=True)
class Case:
    """One recording and the runs to judge; `world` is the world in which it was recorded."""

    name: str
    family: str
    trace: dict[str, Any]
    world: World
    runs: list[Run]
    why: str

    def tools(self, world: World | None = None) -> Tools:
        """Return fresh tools that answer as `world` does, by default the recorded one."""
        calls = [event for event in self.trace["events"] if event["type"] == "tool_call"]
        effects = {call["tool"]: call["effect"] for call in calls}
        return Tools(effects, self.world if world is None else world)

    def world_of(self, run: Run) -> World:
        """Return the recorded world with the change of a run."""
        change = run.change or {}
        tools = {**self.world, **change}
        return {tool: {**self.world.get(tool, {}), **change.get(tool, {})} for tool in tools}


class Recorder:
    """Run a flow on given answers and note its calls and the world that they show."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.events: list[dict[str, Any]] = []
        self.world: World = {}

    def __getattr__(self, tool: str) -> Callable[..., Any]:
        def call(**args: Any) -> Any:
            answer = self.answers.get(tool, Made(DONE))
            effect = "write" if isinstance(answer, Made) else "read"
            if isinstance(answer, Made):
                result = answer.result
                self.world.setdefault(tool, {})[ANY] = result
            else:
                before = sum(event["tool"] == tool for event in self.events)
                result = answer[before] if isinstance(answer, Each) else answer
                self.world.setdefault(tool, {})[key_of(args)] = result
            event = {"type": "tool_call", "seq": len(self.events), "tool": tool, "args": args}
            self.events.append(copy.deepcopy(event | {"result": result, "effect": effect}))
            return copy.deepcopy(result)

        return call

    @property
    def writes(self) -> list[Write]:
        """The writing calls in order."""
        return [(e["tool"], e["args"]) for e in self.events if e["effect"] == "write"]


def key_of(args: Mapping[str, Any]) -> str:
    """Return the key under which a world holds the answer for these arguments."""
    return json.dumps(args, sort_keys=True, ensure_ascii=False)


def make(
    name: str,
    family: str,
    flow: Flow,
    ask: str,
    inputs: tuple[dict[str, Any], dict[str, Any]],
    answers: tuple[Answers, Answers],
    why: str,
    *,
    typed: bool = True,
    stop: bool = False,
) -> Case:
    """Build a case with one run from a flow, the inputs and the answers (recorded, other).

    With typed=False the trace has only the request in words, and `stop` says that nothing may be
    written in the run.
    """
    first, output = _run(flow, inputs[0], answers[0], may_fail=False)
    other, _ = _run(flow, inputs[1], answers[1], may_fail=stop)
    request = ask.format(**inputs[0])
    trace: dict[str, Any] = {
        "version": "1",
        "app": {"name": name.removesuffix(f" {family}")},
        "mission": {"goal": request, "input_summary": inputs[0] if typed else {}},
        "events": [{"type": "message", "role": "user", "text": request}, *first.events],
        "outcome": "success",
    }
    if output is not None:
        trace["final_output"] = output
    expected: list[Write] | Literal["stop"] = "stop" if stop else other.writes
    run = Run(inputs[1], _difference(first.world, other.world), expected)
    return Case(name, family, trace, first.world, [run], why)


def _run(
    flow: Flow, inputs: dict[str, Any], answers: Answers, *, may_fail: bool
) -> tuple[Recorder, object]:
    recorder = Recorder(answers)
    try:
        return recorder, flow(recorder, SimpleNamespace(**inputs))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        if not may_fail:
            raise
        return recorder, None


def _difference(old: World, new: World) -> World | None:
    """Return the answers of `new` that `old` does not give, or None."""
    change = {
        tool: {key: v for key, v in answers.items() if old.get(tool, {}).get(key, ...) != v}
        for tool, answers in new.items()
    }
    return {tool: answers for tool, answers in change.items() if answers} or None


def as_json(record: object) -> str:
    """Show a record as JSON text."""
    return json.dumps(record, ensure_ascii=False)


def as_lines(record: Mapping[str, Any]) -> str:
    """Show a record as lines `key: value`."""
    return "\n".join(f"{key}: {value}" for key, value in record.items())


def as_table(record: Mapping[str, Any]) -> str:
    """Show a record as a table of two lines, with two spaces or more between columns."""
    widths = [max(len(str(key)), len(str(value))) + 2 for key, value in record.items()]
    rows = (record.keys(), record.values())
    return "\n".join(
        "".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def fields(text: str) -> dict[str, Any]:
    """Read what `as_json`, `as_lines` or `as_table` wrote."""
    if text.startswith("{"):
        return dict(json.loads(text))
    lines = text.splitlines()
    if ": " in lines[0]:
        return dict(line.split(": ", 1) for line in lines)
    heads, cells = ([part.strip() for part in line.split("  ") if part.strip()] for line in lines)
    return dict(zip(heads, cells, strict=True))
