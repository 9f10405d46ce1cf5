"""Dead ends: calls that failed, and that nothing made good."""

from collections import defaultdict
from collections.abc import Sequence

from em.compiler.calls import TracedCall
from em.compiler.leaves import leaves
from em.heuristics.heuristic import Evidence, Lesson
from em.heuristics.phrases import (
    call_text,
    error_shape,
    error_text,
    goal_text,
    names_text,
)
from em.heuristics.recoveries import appeared_nowhere, recovered_by
from em.traces.trace import KeptTrace


def dead_ends(kept: KeptTrace, calls: Sequence[TracedCall], ids: Sequence[str]) -> list[Lesson]:
    """One lesson for each way of failing for good; it counts from the second time on."""
    by_shape: defaultdict[tuple[str, str, str], list[TracedCall]] = defaultdict(list)
    for call in calls:
        if call.failed and recovered_by(call, calls) is None:
            made_up = names_text(_made_up(call, calls))
            by_shape[call.name, error_shape(call.error), made_up].append(call)
    return [
        _lesson(kept, shape, made_up, failed, ids)
        for (_, shape, made_up), failed in by_shape.items()
    ]


def _made_up(call: TracedCall, calls: Sequence[TracedCall]) -> list[str]:
    """Arguments whose values had appeared nowhere before; those that the error names, if any."""
    said = error_text(call.error)
    made_up: list[str] = []
    named: list[str] = []
    for name in sorted(call.args):
        value = call.args[name]
        blamed = [leaf for _, leaf in leaves(value) if leaf and str(leaf) in said]
        if appeared_nowhere(blamed or value, call, calls):
            (named if blamed else made_up).append(name)
    return named or made_up


def _lesson(
    kept: KeptTrace, shape: str, made_up: str, failed: Sequence[TracedCall], ids: Sequence[str]
) -> Lesson:
    first, tool = failed[0], failed[0].name
    said = f"{call_text(first)} failed ({error_text(first.error)}), and nothing made it good"
    if len(failed) > 1:
        said += f"; so did {len(failed) - 1} more of the same in that attempt"
    if made_up:
        action = (
            f"Don't make up {made_up}: look it up first, or ask. {tool} fails with a value that"
            " no earlier result gave and nobody said."
        )
        said += f"; its {made_up} had appeared nowhere before"
    else:
        action = (
            f"Don't just repeat {tool}: in these attempts nothing made it good afterwards."
            " Check what it asks for before you call it, or go another way."
        )
    return Lesson(
        trigger=f"{tool} fails with: {shape}",
        action=action,
        analysis=said + ".",
        polarity="failure",
        how="dead_end",
        tools=[tool],
        error=shape,
        subject=kept.subject,
        source_task=goal_text(kept.trace.mission.goal),
        key=f"{tool}|{shape}|{made_up}",
        evidence=Evidence(trace=kept.id, failed=[ids[call.index] for call in failed], note=said),
    )
