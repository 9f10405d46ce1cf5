"""Which traces are worth compiling: those that went the same way, and what each would have saved.

A way is the calls of a trace that did not fail, in their order; one tool that is called several
times in a row counts once, since how often it is depends on the data. What a routine saves is what
the agent needed beside its tools: the model's answers, their tokens, and the time that was not
spent in the calls that are made again.
"""

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from em.compiler.compile_trace import compile_several
from em.errors import EmError
from em.traces.trace import KeptTrace, Message, ToolCall, Trace, UdfCall

KEPT = 20
"""So many traces of one way are held, to try to compile them; all are counted."""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A way that several traces went.

    The savings are of one run, the median of the traces that say so; None where none does.
    problem: why it can't be compiled, if it was tried and can't.
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
        """What the next as many runs would save: tokens first, then time, then answers."""
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


def suggest(traces: Iterable[KeptTrace], *, at_least: int = 2, limit: int = 10) -> list[Suggestion]:
    """The ways that at least so many traces went, the most worth first."""
    groups: dict[tuple[str, ...], _Group] = {}
    for kept in traces:
        way = way_of(kept.trace)
        if way and kept.trace.outcome != "failure":
            _add(groups.setdefault(way, _Group()), kept)
    found = [_suggestion(way, group) for way, group in groups.items() if group.count >= at_least]
    best = sorted(found, key=lambda one: one.worth, reverse=True)[:limit]
    tried = [_tried(one, groups[tuple(one.way)]) for one in best]
    return sorted(tried, key=lambda one: one.worth, reverse=True)


def way_of(trace: Trace) -> tuple[str, ...]:
    """The calls that did not fail, in their order; the same in a row is one."""
    way: list[str] = []
    for call in trace.calls:
        name = _name_of(call)
        if call.error is None and (not way or way[-1] != name):
            way.append(name)
    return tuple(way)


def _name_of(call: ToolCall | UdfCall) -> str:
    """The name of a call; of a shell's, with the program: what a shell does, its command says."""
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
    """What an attempt took beside its tools: answers of the model, tokens, seconds."""
    used = trace.recorded_usage
    said = sum(isinstance(event, Message) and event.role == "assistant" for event in trace.events)
    # Where nobody counted: an answer for each call, and one for what is said at the end.
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
    """With whether it can be compiled, by compiling it."""
    try:
        made = compile_several(group.kept)
    except EmError as error:
        return msgspec.structs.replace(one, problem=str(error))
    return msgspec.structs.replace(one, steps=len(made.draft.recording))
