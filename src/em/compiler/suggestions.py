"""Suggestions of traces to compile: those with the same effects, and what a routine would save.

Traces belong together if they are of one `kind`. Sessions of coding agents belong together if they
changed the same kinds of files and were asked for in similar words, or if they made the same
changes, whatever the words. A routine saves what the agent needed besides its tools: the model's
answers, their tokens and price, and the time outside the calls that the routine repeats.

A log may have many thousands of traces. They are listed by the tools that they called, and of those
with the same tools the newest are read and counted, once each. Compiled and proved are only the
groups that can be among the best, each on a sample of its traces.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby, islice
from statistics import median
from typing import NamedTuple

import msgspec

from em.compiler.calls import calls_of, tried_in_vain
from em.compiler.checks import walked
from em.compiler.commands import is_done_by_em
from em.compiler.compile_trace import Compiled, compile_several
from em.compiler.example import request_of
from em.compiler.kind import are_alike, kind_of, name_of_call, session_effects, way_of
from em.compiler.sessions import is_session
from em.errors import EmError
from em.runner.card import retired_refs
from em.runner.package import kept_routines
from em.runner.standing import why_waiting
from em.runner.trial import TrialCounts, Trials
from em.store.protocol import Store
from em.traces.catalogue import get_traces, trace_rows
from em.traces.outcomes import outcome_of_kept
from em.traces.trace import KeptTrace, Message, Trace
from em.values.leaves import texts

SAMPLE = 20
"""Traces of a group that are compiled and proved: the newest. All are counted."""
MOST_READ = 500
"""Traces that are looked at for the group of one: the newest."""
READ_ALIKE = 200
"""Traces with the same tools that are read and counted: the newest."""
MOST_EVER_READ = 5_000
"""Traces that are read in all."""
MOST_PROVED = 3
"""Groups that are proved for each one that is returned, at most."""

Progress = Callable[[int, int], None]
"""Called with how many traces were read and groups were proved, and how many there are."""


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """Traces with the same effects.

    effects: the tools with an effect that they call; empty if they only read.
    way: the calls of the newest of them, repeats in a row once.
    sample: the traces that were compiled, to see whether it works and how well.
    model_calls, tokens, seconds, cost_usd: the savings of one run, as the median of the traces
    that report them; None if none does.
    words: what the requests of a coding agent's sessions say. Sessions that change the same kinds
    of files do many kinds of work. If they say it in different words, the changes.
    unlabelled: how many of the traces don't say how they ended.
    waits: why a routine of them would not be used by itself, but wait for a person.
    problem: why the traces are not worth compiling; empty if they are.
    kept_as: the routine in use that was learnt from some of them.
    """

    goal: str
    effects: Sequence[str]
    way: Sequence[str]
    traces: Sequence[str]
    sample: Sequence[str]
    count: int
    steps: int
    model_calls: float
    tokens: float | None
    seconds: float | None
    cost_usd: float | None
    proof: TrialCounts | None = None
    right_share: float = 0.0
    words: Sequence[str] = ()
    unlabelled: int = 0
    problem: str = ""
    waits: str = ""
    kept_as: str = ""

    def worth(self, share: float | None = None) -> tuple[bool, float, float, float]:
        """Return what as many runs again would save: tokens first, then time, then model calls.

        share: of the runs that are right, if it is not the proven one.
        """
        runs = self.count * (self.right_share if share is None else share)
        return (
            not self.problem,
            (self.tokens or 0.0) * runs,
            (self.seconds or 0.0) * runs,
            self.model_calls * runs,
        )


class Suggestions(list[Suggestion]):
    """Suggestions, the most worthwhile first. more: groups that were not looked at, or cut off."""

    more = 0


class _Group:
    """What is known of a group while traces are counted; the traces themselves are let go."""

    def __init__(self, effects: tuple[str, ...], words: tuple[str, ...] = ()) -> None:
        self.effects, self.words = effects, words
        self.unlabelled = 0
        self.ids: list[str] = []
        self.ways: dict[tuple[str, ...], list[str]] = {}
        self.goal = ""
        self.way: tuple[str, ...] = ()
        self.spared: list[Spared] = []

    def add(self, kept: KeptTrace, way: tuple[str, ...]) -> None:
        """Count a trace."""
        self.ids.append(kept.id)
        self.goal = self.goal or kept.trace.mission.goal
        self.way = way
        calls = tuple(name_of_call(call) for call in kept.trace.calls if call.error is None)
        self.ways.setdefault(calls, []).append(kept.id)
        self.spared.append(spared(kept.trace))

    def suggestion(self, calls: tuple[str, ...] = ()) -> Suggestion:
        """Return all traces as a suggestion, or those that made the same calls."""
        ids = self.ways[calls] if calls else self.ids
        way = tuple(name for name, _ in groupby(calls)) or self.way
        tokens, seconds, cost = (
            median(known) if (known := [one for one in own if one is not None]) else None
            for own in zip(*(one[1:] for one in self.spared), strict=True)
        )
        return Suggestion(
            goal=self.goal,
            effects=self.effects,
            way=way,
            traces=ids,
            sample=ids[-SAMPLE:],
            count=len(ids),
            words=self.words,
            unlabelled=self.unlabelled,
            steps=len(way),
            model_calls=median(one.model_calls for one in self.spared),
            tokens=tokens,
            seconds=seconds,
            cost_usd=cost,
        )


def suggest(
    store: Store,
    task: str | None = None,
    *,
    at_least: int = 2,
    limit: int = 10,
    allow_unlabelled: bool = False,
    about: Sequence[str] = (),
    progress: Progress | None = None,
) -> Suggestions:
    """Return the groups of at least `at_least` traces, the largest proven savings first.

    task: some words of their goal. Only traces that succeeded count, as they say or as their last
    test run or push shows. Sessions of coding agents count if nothing says that they failed; with
    `allow_unlabelled` all others of which nobody knows, too. about: only the groups of these
    traces, among the newest.
    """
    usable = {"success", "unknown"} if allow_unlabelled else {"success"}
    ids = _to_read(store, task, usable, MOST_READ if about else None)
    tell = progress or (lambda _done, _total: None)
    groups: _Groups = {}
    for number, trace_id in enumerate(ids, 1):
        (kept,) = get_traces(store, [trace_id])
        outcome = outcome_of_kept(kept)
        is_open = outcome == "unknown" and kept.label is None and is_session(kept.trace)
        is_usable = outcome in usable or is_open
        if outcome == "unknown" and tried_in_vain(calls_of(kept.trace, {})[0]) is not None:
            is_usable = False
        if is_usable and not is_done_by_em(kept.trace) and (way := way_of(kept.trace)):
            for group in _groups_of(kept.trace, groups):
                group.add(kept, way)
                group.unlabelled += outcome == "unknown"
        tell(number, len(ids) + min(limit, len(groups)))
    # Of groups that have the same traces, the first.
    different = {frozenset(one.ids): one for one in reversed(groups.values())}
    found = [
        (one.suggestion(), one)
        for one in reversed(different.values())
        if len(one.ids) >= at_least and (not about or not {*about}.isdisjoint(one.ids))
    ]
    in_use = kept_from(store) if found else {}
    proved: list[Suggestion] = []
    # The best first: a group that can't be among those that are returned is not proved.
    for one, group in sorted(found, key=lambda pair: pair[0].worth(1.0), reverse=True):
        top = sorted(proved, key=Suggestion.worth, reverse=True)[:limit]
        enough = len(top) == limit and top[-1].worth() >= one.worth(1.0)
        if enough or len(proved) >= limit * MOST_PROVED:
            break
        proved.append(_best_of(one, group, store, in_use, at_least))
        tell(len(ids) + len(proved), len(ids) + max(len(proved), min(limit, len(found))))
    best = sorted(_without_parts(proved), key=Suggestion.worth, reverse=True)
    made = Suggestions(best[:limit])
    made.more = len(found) - len(proved) + len(best) - len(made)
    return made


def _to_read(store: Store, task: str | None, usable: set[str], newest: int | None) -> list[str]:
    """Choose the traces to read, oldest first by their own time.

    Of traces that called the same tools only the newest are read.
    """
    chosen: list[str] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for row in islice(trace_rows(store, task=task), newest):
        if row.status in (*usable, "unknown") and not row.shown.get("incomplete"):
            tools = tuple(sorted(row.shown.get("tools") or ()))
            seen[tools] += 1
            if seen[tools] <= READ_ALIKE and len(chosen) < MOST_EVER_READ:
                chosen.append(row.id)
    return chosen[::-1]


_Groups = dict[tuple[tuple[str, ...], tuple[str, ...], str], _Group]
"""By effects, and by what the traces have in common besides."""


def _groups_of(trace: Trace, groups: _Groups) -> list[_Group]:
    """Return the groups of a trace: by its effects, for a session also by what was asked for.

    A session has others too. `release 2.0.1: fix the tooltip` and `release 2.1.0: add dark mode`
    only begin alike. Requests for one chore may have no word in common, but the sessions changed
    the same files, or files of the same kinds.
    """
    done, (effects, way, words) = session_effects(trace), kind_of(trace, {})
    if done is None or not done.kinds:
        return [groups.setdefault((effects, () if effects else way, ""), _Group(effects))]
    alike = (
        known
        for (_, _, by), known in groups.items()
        if by == "words" and known.effects == effects and are_alike(known.words, words)
    )
    found = next(alike, None)
    keys = {"begins": words[:1], "changes": done.changes, "kinds": done.kinds_of_changes}
    if found is None:
        keys = {"words": words, **keys}
    made = [
        groups.setdefault((effects, what, by), _Group(effects, what))
        for by, what in keys.items()
        if what or by == "words"
    ]
    return made if found is None else [found, *made]


def _without_parts(proved: Sequence[Suggestion]) -> list[Suggestion]:
    """Leave out what a larger group does as well, and a larger one that only its part does."""
    left: list[Suggestion] = []
    for one in sorted(proved, key=lambda one: (not one.problem, one.count), reverse=True):
        own = {*one.traces}
        if not any(
            own <= {*other.traces} and other.right_share >= one.right_share
            if not one.problem
            else own >= {*other.traces}
            for other in left
            if not other.problem
        ):
            left.append(one)
    return left


class Spared(NamedTuple):
    """What an attempt took besides its tools."""

    model_calls: float
    tokens: float | None
    seconds: float | None
    cost_usd: float | None


def spared(trace: Trace) -> Spared:
    """Return what an attempt took besides its tools."""
    used = trace.recorded_usage
    said = sum(isinstance(event, Message) and event.role == "assistant" for event in trace.events)
    # If it was not counted: one model call for each tool call, and one for the final answer.
    answers = used.model_calls if used.model_calls is not None else max(said, len(trace.calls) + 1)
    in_tools = [call.duration_ms for call in trace.calls if call.error is None]
    seconds = None
    if used.duration_ms is not None and None not in in_tools:
        again = sum(took for took in in_tools if took is not None)
        seconds = max(0.0, used.duration_ms - again) / 1e3
    return Spared(float(answers), used.tokens, seconds, used.cost_usd)


# --- proof ----------------------------------------------------------------------------------------


def _best_of(
    one: Suggestion, group: _Group, store: Store, in_use: Mapping[str, str], at_least: int
) -> Suggestion:
    """Prove a group. If it is not worth it, prove those that made the most common calls."""
    proved = _proved(one, store, in_use)
    way = max(group.ways, key=lambda way: len(group.ways[way]))
    if not proved.problem or len(group.ways) == 1 or len(group.ways[way]) < at_least:
        return proved
    same_way = _proved(group.suggestion(way), store, in_use)
    return proved if same_way.problem else same_way


def _proved(one: Suggestion, store: Store, in_use: Mapping[str, str]) -> Suggestion:
    """Compile a sample of a group; add the proof and the number of steps, or the problem."""
    kept = get_traces(store, one.sample)
    events = (event for trace in kept for event in trace.event_ids)
    ref = next((in_use[event] for event in events if event in in_use), "")
    one = msgspec.structs.replace(one, kept_as=ref)
    try:
        made = compile_several(kept)
    except EmError as error:
        return msgspec.structs.replace(one, problem=str(error))
    trials: Trials = made.draft.trials
    return msgspec.structs.replace(
        one,
        steps=len(made.draft.routine.steps),
        proof=trials.counts,
        right_share=trials.right_share,
        waits=why_waiting(store, made.draft.proof),
        problem=_why_constant(made, kept) or (_why_unproved(made) if one.words else ""),
    )


def kept_from(store: Store, *, proposed: bool = False) -> dict[str, str]:
    """Map the events from which routines in use were made to `name@version` of those.

    proposed: also of those that wait for a person.
    """
    retired = retired_refs(store) if proposed else frozenset[str]()
    return {
        event: one.ref
        for one in kept_routines(store)
        if one.body is not None
        if one.retired_at is None or (proposed and one.ref not in retired)
        for event in one.from_events
    }


def _why_unproved(made: Compiled) -> str:
    """Say that a routine did none of the tasks it was tried on, or that nobody asked for them."""
    trials = made.draft.trials
    if made.asked:
        return f"no request says what {made.asked[0]} is"
    if not trials or trials.count("right"):
        return ""
    return f"in none of its trials it did what was done; {trials.reasons()[0]}"


def _why_constant(made: Compiled, traces: Sequence[KeptTrace]) -> str:
    """Say why a routine would do the same on every run; empty if its effects depend on a task."""
    steps = [*walked(made.draft.document["steps"])]
    if all(step["type"] == "return" for step in steps):
        return "it would only give an answer that was recorded"
    writes = [step for step in steps if step.get("effect") == "write"]
    depends = any(
        "when" in step or "{{" in text or "{%" in text
        for step in writes
        for text in ("", *texts(step.get("args")))
    )
    if not writes or depends:
        return ""
    if len({request_of(kept.trace) for kept in traces}) > 1:
        return "it would do the same on every run, though the requests differ"
    if any(step.get("args") for step in writes):
        return "it would do the same on every run: nothing varies in these traces"
    return ""
