"""Differences: the same task failed here and was solved there; what all solvers did otherwise."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from em.compiler.calls import TracedCall, calls_of
from em.heuristics.heuristic import Evidence, Lesson, Polarity
from em.heuristics.mine import call_ids
from em.heuristics.phrases import call_text, cut, goal_text, value_text
from em.traces.trace import KeptTrace

MOST = 5
"""Differences told of one task; with more of them no single one can be said to have mattered."""


class _Done(NamedTuple):
    """A write that worked, in one attempt."""

    call: TracedCall
    event_id: str


class _Attempt(NamedTuple):
    kept: KeptTrace
    writes: list[_Done]


def differences(attempts: Iterable[KeptTrace]) -> list[Lesson]:
    """Lessons from attempts at the same tasks: what holds for every attempt, not for some."""
    by_task: defaultdict[tuple[str, str | None], list[KeptTrace]] = defaultdict(list)
    for kept in attempts:
        goal = " ".join(kept.trace.mission.goal.split())
        if goal and kept.trace.outcome != "unknown":
            by_task[goal, kept.subject].append(kept)
    return [lesson for group in by_task.values() for lesson in _of_one_task(group)]


def _of_one_task(group: Sequence[KeptTrace]) -> list[Lesson]:
    solved = [_attempt(kept) for kept in group if kept.trace.outcome == "success"]
    failed = [_attempt(kept) for kept in group if kept.trace.outcome == "failure"]
    if not solved or not failed:
        return []
    found = [*_calls_that_differ(solved, failed), *_arguments_that_differ(solved, failed)]
    return found if len(found) <= MOST else []


def _attempt(kept: KeptTrace) -> _Attempt:
    calls, _ = calls_of(kept.trace, {})
    ids = call_ids(kept)
    writes = [call for call in calls if call.effect == "write" and not call.failed]
    return _Attempt(kept, [_Done(call, ids[call.index]) for call in writes])


def _calls_that_differ(solved: list[_Attempt], failed: list[_Attempt]) -> Iterable[Lesson]:
    """Effects that every solver had and no failed attempt, or the other way round."""
    did, did_not = _tools_of(solved), _tools_of(failed)
    everywhere = set.intersection(*did)
    nowhere = set().union(*did_not)
    for tool in sorted(everywhere - nowhere):
        (example, *_) = (done for done in solved[0].writes if done.call.name == tool)
        yield _lesson(
            solved,
            failed,
            f"Call {tool}, as the attempts that solved it did: {call_text(example.call)}.",
            f"{_count(solved)} that solved it called {tool}; {_count(failed)} that failed did not",
            "success",
            tool,
            f"do {tool}",
        )
    for tool in sorted(set.intersection(*did_not) - set().union(*did)):
        yield _lesson(
            solved,
            failed,
            f"Don't call {tool}.",
            f"{_count(failed)} that failed called {tool}; {_count(solved)} that solved it did not",
            "failure",
            tool,
            f"avoid {tool}",
        )


def _arguments_that_differ(solved: list[_Attempt], failed: list[_Attempt]) -> Iterable[Lesson]:
    """An effect that all had once, with a value that all solvers share and nobody else used."""
    once = [_once(attempt) for attempt in (*solved, *failed)]
    for tool in sorted(set.intersection(*(set(calls) for calls in once))):
        right = [calls[tool].args for calls in once[: len(solved)]]
        wrong = [calls[tool].args for calls in once[len(solved) :]]
        for name in sorted(set.intersection(*(set(args) for args in (*right, *wrong)))):
            values = {_said(args[name]) for args in right}
            others = {_said(args[name]) for args in wrong}
            if len(values) == 1 and not values & others:
                new, old = value_text(right[0][name]), value_text(wrong[0][name])
                yield _lesson(
                    solved,
                    failed,
                    f"Call {tool} with {name}={new}, not {old}.",
                    f"{_count(solved)} that solved it called {tool} with {name}={new};"
                    f" {_count(failed)} that failed with {old}",
                    "success",
                    tool,
                    f"{tool}.{name}={new}",
                )


def _said(value: object) -> bytes:
    """A value without the order of a list, which no effect here depends on."""
    plain = sorted(map(msgspec.json.encode, value)) if isinstance(value, list) else value
    return msgspec.json.encode(plain, order="sorted")


def _once(attempt: _Attempt) -> dict[str, TracedCall]:
    counted: defaultdict[str, list[TracedCall]] = defaultdict(list)
    for done in attempt.writes:
        counted[done.call.name].append(done.call)
    return {tool: calls[0] for tool, calls in counted.items() if len(calls) == 1}


def _tools_of(attempts: list[_Attempt]) -> list[set[str]]:
    return [{done.call.name for done in attempt.writes} for attempt in attempts]


def _count(attempts: list[_Attempt]) -> str:
    few = {1: "the attempt", 2: "both attempts"}
    return few.get(len(attempts), f"all {len(attempts)} attempts")


def _lesson(
    solved: list[_Attempt],
    failed: list[_Attempt],
    action: str,
    because: str,
    polarity: Polarity,
    tool: str,
    key: str,
) -> Lesson:
    kept = solved[0].kept
    goal = " ".join(kept.trace.mission.goal.split())

    def ends(attempts: list[_Attempt]) -> list[str]:
        # The effect itself where it is there, else how the attempt ended.
        return [
            next((d.event_id for d in one.writes if d.call.name == tool), one.kept.event_ids[-1])
            for one in attempts
        ]

    return Lesson(
        trigger=f"the task is: {goal_text(goal)}",
        action=action,
        analysis=cut(because[0].upper() + because[1:] + ".", 600),
        polarity=polarity,
        how="difference",
        tools=[tool],
        subject=kept.subject,
        source_task=goal_text(goal),
        key=f"{goal}|{key}",
        evidence=Evidence(trace=kept.id, failed=ends(failed), worked=ends(solved), note=because),
    )
