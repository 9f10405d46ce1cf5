"""Suggestions of traces to compile: those that took the same path, and what a routine would save.

A path is the successful calls of a trace in their order. Repeated calls of one tool in a row count
once, since their number depends on the data. A routine saves what the agent needed besides its
tools: the model's answers, their tokens, and the time outside the calls that the routine repeats.
"""

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from em.compiler.compile_trace import compile_several
from em.errors import EmError
from em.traces.trace import KeptTrace, Message, ToolCall, Trace, UdfCall

KEPT = 20
"""Traces of one path that are kept to try compiling them; all are counted."""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A path that several traces took.

    model_calls, tokens, seconds: the savings of one run, as the median of the traces that report
    them; None if none does.
    problem: why the traces can't be compiled; empty if they can.
    """

    goal: str
    way: Sequence[str]
    traces: Sequence[str]
    count: int
    steps: int
    model_calls: float
    tokens: float | None
    seconds: float | None
    problem: str = ""

    @property
    def worth(self) -> tuple[bool, float, float, float]:
        """What as many runs again would save: tokens first, then time, then model calls."""
        return (
            not self.problem,
            (self.tokens or 0.0) * self.count,
            (self.seconds or 0.0) * self.count,
            self.model_calls * self.count,
        )


class _Group:
    def __init__(self) -> None:
        self.kept: list[KeptTrace] = []
        self.ids: list[str] = []
        self.count = 0
        self.model_calls: list[float] = []
        self.tokens: list[float] = []
        self.seconds: list[float] = []


def suggest(
    traces: Iterable[KeptTrace],
    *,
    at_least: int = 2,
    limit: int = 10,
    allow_unlabelled: bool = False,
) -> list[Suggestion]:
    """Return the paths that at least `at_least` traces took, the largest savings first.

    Only traces that say that they succeeded count; with `allow_unlabelled` also those that don't
    say how they ended.
    """
    usable = {"success", "unknown"} if allow_unlabelled else {"success"}
    groups: dict[tuple[str, ...], _Group] = {}
    for kept in traces:
        way = way_of(kept.trace)
        if way and kept.trace.outcome in usable and not kept.trace.incomplete:
            _add(groups.setdefault(way, _Group()), kept)
    found = [_suggestion(way, group) for way, group in groups.items() if group.count >= at_least]
    best = sorted(found, key=lambda one: one.worth, reverse=True)[:limit]
    tried = [_tried(one, groups[tuple(one.way)]) for one in best]
    return sorted(tried, key=lambda one: one.worth, reverse=True)


def way_of(trace: Trace) -> tuple[str, ...]:
    """Return a trace's path: its successful calls in order, repeats in a row once."""
    way: list[str] = []
    for call in trace.calls:
        name = _name_of(call)
        if call.error is None and (not way or way[-1] != name):
            way.append(name)
    return tuple(way)


def _name_of(call: ToolCall | UdfCall) -> str:
    """Return the name of a call; for a shell with the program, which says what it does."""
    name = call.tool if isinstance(call, ToolCall) else call.function
    command = call.args.get("command", call.args.get("cmd"))
    words = command.split(maxsplit=1) if isinstance(command, str) else command
    if isinstance(words, list) and words and isinstance(words[0], str):
        return f"{name} {words[0][:40]}"
    return name


def _add(group: _Group, kept: KeptTrace) -> None:
    group.count += 1
    group.ids.append(kept.id)
    if len(group.kept) < KEPT:
        group.kept.append(kept)
    answers, tokens, seconds = spared(kept.trace)
    group.model_calls.append(answers)
    if tokens is not None:
        group.tokens.append(tokens)
    if seconds is not None:
        group.seconds.append(seconds)


def spared(trace: Trace) -> tuple[float, float | None, float | None]:
    """Return what an attempt took besides its tools: model calls, tokens, seconds."""
    used = trace.recorded_usage
    said = sum(isinstance(event, Message) and event.role == "assistant" for event in trace.events)
    # If it was not counted: one model call for each tool call, and one for the final answer.
    answers = used.model_calls if used.model_calls is not None else max(said, len(trace.calls) + 1)
    in_tools = [call.duration_ms for call in _made_again(trace)]
    seconds = None
    if used.duration_ms is not None and None not in in_tools:
        again = sum(took for took in in_tools if took is not None)
        seconds = max(0.0, used.duration_ms - again) / 1e3
    return float(answers), used.tokens, seconds


def _made_again(trace: Trace) -> list[ToolCall | UdfCall]:
    return [call for call in trace.calls if call.error is None]


def _suggestion(way: tuple[str, ...], group: _Group) -> Suggestion:
    goals = [kept.trace.mission.goal for kept in group.kept]
    return Suggestion(
        goal=next((goal for goal in goals if goal), ""),
        way=way,
        traces=group.ids,
        count=group.count,
        steps=len(way),
        model_calls=median(group.model_calls),
        tokens=median(group.tokens) if group.tokens else None,
        seconds=median(group.seconds) if group.seconds else None,
    )


def _tried(one: Suggestion, group: _Group) -> Suggestion:
    """Try to compile the traces, and add the number of steps or the problem."""
    try:
        made = compile_several(group.kept)
    except EmError as error:
        return msgspec.structs.replace(one, problem=str(error))
    return msgspec.structs.replace(one, steps=len(made.draft.recording))
