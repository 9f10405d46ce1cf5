"""Mining one trace: what can be learned from it alone, without a model."""

from collections.abc import Mapping, Sequence

from em.compiler.calls import TracedCall, calls_of
from em.heuristics.dead_ends import dead_ends
from em.heuristics.heuristic import Evidence, Lesson
from em.heuristics.phrases import call_text, cut, goal_text
from em.heuristics.recoveries import recoveries
from em.traces.trace import KeptTrace, ToolCall, UdfCall
from em.values.call import Effect

CHECK = "check"
"""The call by which a loop decides whether the goal is reached."""
AGENT = "agent"
"""The call of the agent itself in a loop."""
LOOP = "em loop"


def mine(kept: KeptTrace, declared: Mapping[str, Effect | None] | None = None) -> list[Lesson]:
    """The lessons of one trace; none where nothing happened."""
    calls, _ = calls_of(kept.trace, declared or {})
    ids = call_ids(kept)
    if kept.trace.app.get("name") == LOOP:
        return [*recoveries(kept, calls, ids), *_failed_check(kept, calls, ids)]
    return [*recoveries(kept, calls, ids), *dead_ends(kept, calls, ids)]


def call_ids(kept: KeptTrace) -> list[str]:
    """The ids of the events of a trace's calls."""
    pairs = zip(kept.trace.events, kept.happened_ids, strict=True)
    return [event_id for event, event_id in pairs if isinstance(event, ToolCall | UdfCall)]


def _failed_check(kept: KeptTrace, calls: Sequence[TracedCall], ids: Sequence[str]) -> list[Lesson]:
    """What the check, or the agent at its end, said; once is enough, since it is the judge."""
    last = calls[-1] if calls else None
    if last is None or last.name not in (AGENT, CHECK) or not last.failed:
        return []
    goal = goal_text(kept.trace.mission.goal)
    said = cut(" ".join(str(last.error).split()), 600)
    return [
        Lesson(
            trigger=f"working toward the goal: {goal}",
            action=f"Make sure that this does not happen again: {said}",
            analysis=f"An attempt ended with {call_text(last)} failing so.",
            polarity="failure",
            how="failed_check",
            tools=[last.name],
            subject=kept.subject,
            source_task=goal,
            key=f"{kept.trace.mission.goal}|{said}",
            evidence=Evidence(trace=kept.id, failed=[ids[last.index]], note=said),
        )
    ]
