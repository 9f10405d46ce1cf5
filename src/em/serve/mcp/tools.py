"""The tools that every memory offers. Their docstrings are what agents read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from mcp_types import Tool, ToolAnnotations

from em.errors import InputError
from em.serve.api.shapes import HeuristicOut, TrajectoryOut
from em.serve.api.summaries import summaries
from em.serve.auth import Access, Caller
from em.serve.mcp import arguments
from em.serve.mcp.desk import Desk
from em.store.passage import Passage
from em.text.words import STOP_WORDS
from em.traces.stream import get_traces
from em.values.canonical import Json

Work = Callable[[Desk, Caller, Any], Json]


class BuiltIn(NamedTuple):
    """A tool of em's own."""

    name: str
    title: str
    access: Access
    arguments: type[arguments.Arguments]
    work: Work

    def told(self) -> Tool:
        """The tool as it is listed."""
        reads = self.access == "read"
        return Tool(
            name=self.name,
            title=self.title,
            description=" ".join((self.work.__doc__ or "").split()),
            input_schema=arguments.schema_of(self.arguments),
            annotations=ToolAnnotations(
                read_only_hint=reads, destructive_hint=False, open_world_hint=False
            ),
        )

    def carry_out(self, desk: Desk, caller: Caller, given: Json) -> Json:
        """Do what is asked, as far as this caller may."""
        caller.must(self.access)
        return self.work(desk, caller, arguments.read(self.arguments, given))


def _observe(desk: Desk, caller: Caller, given: arguments.Observe) -> Json:
    """Keep something that was learned about a subject, as a text or as a record of a type.
    Use it for facts, preferences, decisions and events worth knowing in a later session.
    """
    caller.must_see(given.subject)
    if (given.text is None) == (given.record is None):
        raise InputError("it has either `text` or `record`", place="text, record")
    content = given.record if given.text is None else given.text
    assert content is not None
    details = {
        name: getattr(given, name)
        for name in ("type", "at", "speaker", "role", "session", "source")
    }
    return {"id": desk.memory.observe(given.subject, content, **details)}


def _recall(desk: Desk, caller: Caller, given: arguments.Recall) -> Json:
    """Find what was said: the passages that fit a question best, with who said them and when.
    Without a subject, everybody's.
    """
    caller.must_see(given.subject)
    found = desk.memory.recall(
        given.query, given.subject, given.k, since=given.since, until=given.until
    )
    return {"passages": [_passage(one) for one in found], "notes": list(found.notes)}


def _passage(passage: Passage) -> Json:
    shown: Json = msgspec.to_builtins(passage)
    for name in ("number", "neighbours", "start", "recorded_at", "stream", "kind"):
        del shown[name]
    return {name: value for name, value in shown.items() if value is not None}


def _checkpoint(desk: Desk, caller: Caller, given: arguments.Checkpoint) -> Json:
    """Compile what is new about a subject into its state, so that `ask` and `check` know it."""
    caller.must_see(given.subject)
    state = desk.memory.checkpoint(given.subject)
    counts = {name: len(getattr(state, name)) for name in state.collections}
    return {"subject": given.subject, "version": state.version, "records": counts}


def _ask(desk: Desk, caller: Caller, given: arguments.Ask) -> Json:
    """Answer a question about a subject: by code over its compiled state where a question of this
    shape was answered before, else by what was said. `route` says which, `event_ids` from where.
    """
    caller.must_see(given.subject)
    answer = desk.memory.ask(given.subject, given.question, as_of=given.as_of)
    return msgspec.structs.asdict(answer)


def _check(desk: Desk, caller: Caller, given: arguments.Check) -> Json:
    """Before an action, see which rules about a subject speak against it, the worst first.
    An empty list: none does.
    """
    caller.must_see(given.subject)
    alerts = desk.memory.check(given.subject, given.action, **given.details)
    return {"alerts": [msgspec.structs.asdict(alert) for alert in alerts]}


def _brief(desk: Desk, caller: Caller, given: arguments.Brief) -> Json:
    """Before a task, get the lessons of earlier attempts that fit it, as text to read.
    Afterwards call `record_outcome` with the ids of `heuristics`.
    """
    if given.subject is not None:
        caller.must_see(given.subject)
    briefing = desk.memory.brief(
        given.task, given.k, given.tokens, tools=given.tools or None, subject=given.subject
    )
    lessons = [HeuristicOut.of_ranked(one) for one in briefing.heuristics]
    short = [{"id": one.id, "trigger": one.trigger, "action": one.action} for one in lessons]
    return {"text": briefing.text, "heuristics": short}


def _record_outcome(desk: Desk, caller: Caller, given: arguments.RecordOutcome) -> Json:
    """After a task, say how it ended and what was done. It is kept as a trace, from which routines
    and lessons are made, and the lessons that were given for it are judged by it.
    """
    caller.must_see(given.subject)
    mine = _to_judge(desk, caller, given.heuristics)
    trace: Json = {
        "task": given.task,
        "steps": [_step(step) for step in given.steps],
        "outcome": given.outcome,
        "input": given.input,
    }
    if given.final_output is not None:
        trace["final_output"] = given.final_output
    trace_id = desk.memory.add_trace(trace, subject=given.subject)
    if mine and given.outcome != "unknown":
        desk.memory.feedback(mine, given.outcome, task=given.task)
        return {"trace_id": trace_id, "judged": mine}
    return {"trace_id": trace_id, "judged": []}


def _to_judge(desk: Desk, caller: Caller, ids: list[str]) -> list[str]:
    """Of these lessons those that are the caller's to judge; what is for all is everybody's."""
    mine = []
    for heuristic_id in dict.fromkeys(ids):
        subject = desk.memory.heuristics.get(heuristic_id).lesson.subject
        if subject is not None:
            caller.must_find(subject, f"heuristic {heuristic_id!r}")
        if caller.sees(subject):
            mine.append(heuristic_id)
    return mine


def _step(step: arguments.Step) -> Json:
    said = msgspec.structs.asdict(step)
    return {name: value for name, value in said.items() if value is not None}


def _list_traces(desk: Desk, caller: Caller, given: arguments.ListTraces) -> Json:
    """List attempts at tasks, newest first, with their outcomes."""
    found = list(summaries(desk.store, caller, outcome=given.outcome))[::-1]
    shown = found[given.offset : given.offset + given.limit]
    return {"traces": [_short(one) for one in shown], "total": len(found)}


def _search_traces(desk: Desk, caller: Caller, given: arguments.SearchTraces) -> Json:
    """Find attempts at tasks by words of the task or of what was said in them, best first."""
    wanted = set(given.query.casefold().split())
    wanted = wanted - STOP_WORDS or wanted
    said = _said_in(desk, caller, given.query)
    ranked = []
    for number, one in enumerate(summaries(desk.store, caller, outcome=given.outcome)):
        task = one.task.casefold()
        score = sum(word in task for word in wanted) / len(wanted) + said.get(one.id, 0.0)
        if score:
            ranked.append((-score, -number, one))
    ranked.sort(key=lambda found: found[:2])
    return {"traces": [_short(one) for _, _, one in ranked[: given.limit]], "total": len(ranked)}


def _said_in(desk: Desk, caller: Caller, query: str) -> dict[str, float]:
    """The traces in which something was said that fits, with how well, up to 1."""
    subjects = [None] if caller.subjects is None else sorted(caller.subjects)
    found = [one for subject in subjects for one in desk.memory.recall(query, subject, 50)]
    best = max((one.score for one in found), default=0.0) or 1.0
    scores: dict[str, float] = {}
    for one in found:
        kind, _, trace_id = one.stream.partition("/")
        if kind == "trace":
            scores[trace_id] = max(scores.get(trace_id, 0.0), one.score / best)
    return scores


def _short(one: TrajectoryOut) -> Json:
    shown: Json = msgspec.to_builtins(one)
    return shown


def _read_trace(desk: Desk, caller: Caller, given: arguments.ReadTrace) -> Json:
    """Read one attempt with its steps, their results and errors."""
    (kept,) = get_traces(desk.store, [given.id])
    caller.must_find(kept.subject, f"trace {given.id!r}")
    return _short(TrajectoryOut.of(kept))


BUILT_IN = {
    tool.name: tool
    for tool in (
        BuiltIn("observe", "Remember", "write", arguments.Observe, _observe),
        BuiltIn("recall", "Recall", "read", arguments.Recall, _recall),
        BuiltIn("checkpoint", "Compile a state", "write", arguments.Checkpoint, _checkpoint),
        BuiltIn("ask", "Ask", "read", arguments.Ask, _ask),
        BuiltIn("check", "Check an action", "read", arguments.Check, _check),
        BuiltIn("brief", "Brief", "read", arguments.Brief, _brief),
        BuiltIn(
            "record_outcome", "Record an outcome", "write", arguments.RecordOutcome, _record_outcome
        ),
        BuiltIn("list_traces", "List traces", "read", arguments.ListTraces, _list_traces),
        BuiltIn("search_traces", "Search traces", "read", arguments.SearchTraces, _search_traces),
        BuiltIn("read_trace", "Read a trace", "read", arguments.ReadTrace, _read_trace),
    )
}
