"""Runs as people look at them: the newest first, in short; one run step by step, with its times."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from em.errors import NotFound
from em.log.event import Event, EventQuery
from em.log.stream import RUN_PREFIX, run_stream
from em.runner.journal import PastRun, read_run
from em.store.log import newest_first
from em.store.protocol import Store
from em.values.canonical import Json

LOOKED_AT = 2_000
"""Runs that one search passes over; where it ended is told, and the next goes on from there."""


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in short. `seq` is the number of the event that it began with."""

    run_id: str
    seq: int
    began: datetime
    status: str
    steps: int
    routine: str
    stored: str = ""
    failure: Json | None = None
    prompt: Json | None = None
    is_workflow: bool = False


class RunPage(msgspec.Struct, frozen=True):
    """Some runs, newest first; `older` is where to go on, None where nothing is left."""

    runs: Sequence[RunSummary]
    older: int | None


def find_runs(
    store: Store,
    *,
    words: str = "",
    status: str = "",
    before: int | None = None,
    limit: int = 20,
) -> RunPage:
    """The newest runs whose routine, id or input has the words, and that have this status."""
    found: list[RunSummary] = []
    passed_over = 0
    for event in newest_first(store, "run_started", before=before):
        if len(found) == limit or passed_over == LOOKED_AT:
            return RunPage(found, event.seq + 1)
        run = summary(store, event) if _has_words(event, words) else None
        if run is not None and status in ("", run.status):
            found.append(run)
        else:
            passed_over += 1
    return RunPage(found, None)


def _has_words(event: Event, words: str) -> bool:
    if not words:
        return True
    body = event.body or {}
    shown = [event.stream, body.get("routine"), body.get("stored"), body.get("input")]
    return words.casefold() in msgspec.json.encode(shown).decode().casefold()


def summary(store: Store, started: Event) -> RunSummary:
    """One run in short, from the event that it began with."""
    run_id = started.stream.removeprefix(RUN_PREFIX)
    return summary_of(read_run(store, run_id), started)


def run_summary(store: Store, run_id: str) -> RunSummary:
    """One run in short, by its id: of a routine, or of a workflow, whose journal is the same."""
    first = next(iter(store.read(EventQuery(stream=run_stream(run_id), limit=1))), None)
    if first is not None and first.kind == "workflow_started" and first.body is not None:
        return _workflow_summary(store, first, run_id)
    past = read_run(store, run_id)
    assert first is not None
    return summary_of(past, first)


def _workflow_summary(store: Store, first: Event, run_id: str) -> RunSummary:
    last = next(iter(store.read(EventQuery(stream=first.stream, limit=1, newest=True))))
    said = last.body or {}
    is_over = last.kind in ("run_ended", "run_paused")
    return RunSummary(
        run_id=run_id,
        seq=first.seq,
        began=first.at,
        status=str(said.get("status", "needs_input")) if is_over else "running",
        steps=0,
        routine=str((first.body or {}).get("workflow", "")),
        failure=said.get("failure"),
        prompt=said.get("prompt"),
        is_workflow=True,
    )


def summary_of(past: PastRun, started: Event) -> RunSummary:
    """The same, of a run that was read."""
    kind, last = past.notes[-1]
    body = started.body or {}
    return RunSummary(
        run_id=past.run_id,
        seq=started.seq,
        began=started.at,
        status=past.status,
        steps=len(past.restored.results),
        routine=str(body.get("routine", "")),
        stored=past.stored,
        failure=last.get("failure") if kind == "run_ended" else None,
        prompt=last.get("prompt") if kind == "run_paused" else None,
    )


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a run, or one item of it: when it began, how long it took, what became of it."""

    step: str
    item: int | None
    status: str
    began: datetime
    duration_ms: float
    attempts: int = 1
    tool: str = ""
    args: Any = None
    result: Any = None
    error: str = ""
    fix: Json | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its steps in the order in which they ended; those under way come last."""

    run: RunSummary
    input: Json
    steps: Sequence[StepLine]
    ended: datetime | None
    output: Any = None
    answers: Json = {}


def timeline(store: Store, run_id: str) -> Timeline:
    """A run, step by step."""
    past = read_run(store, run_id)
    events = [event for event in store.read(EventQuery(stream=run_stream(run_id))) if event.body]
    if not events:
        raise NotFound(f"there is no run {run_id!r}")
    intents: dict[tuple[str, int | None], tuple[Json, datetime]] = {}
    steps: list[StepLine] = []
    for event in events:
        body = event.body or {}
        if event.kind == "step_done":
            steps.append(_line(body, event.at, intents.pop(_key(body), ({}, event.at))[0]))
        intent = body.get("next") if event.kind == "step_done" else body
        if intent and event.kind in ("step_done", "step_started"):
            intents[_key(intent)] = (intent, event.at)
    run = summary_of(past, events[0])
    last = events[-1]
    steps += [_under_way(intent, at, run) for intent, at in intents.values()]
    failed = (run.failure or {}).get("step_id")
    if failed and not any(line.status == "failed" for line in steps):
        # A step without an effect leaves no intent: its failure is all that is told of it.
        steps.append(_under_way({"step": failed}, last.at, run))
    return Timeline(
        run=run,
        input=past.input,
        steps=steps,
        ended=last.at if last.kind == "run_ended" else None,
        output=(last.body or {}).get("output") if last.kind == "run_ended" else None,
        answers=past.restored.answers,
    )


def _key(body: Json) -> tuple[str, int | None]:
    return str(body.get("step")), body.get("item")


def _line(body: Json, at: datetime, intent: Json) -> StepLine:
    took = float(body.get("duration_ms", 0.0))
    return StepLine(
        step=str(body["step"]),
        item=body.get("item"),
        status=str(body.get("status", "done")),
        began=at - timedelta(milliseconds=took),
        duration_ms=took,
        attempts=int(body.get("attempts", 1)),
        tool=str(intent.get("tool", "")),
        args=intent.get("args"),
        result=body.get("result"),
        error=str(body.get("error", "")),
        fix=body.get("fix"),
    )


def _under_way(intent: Json, at: datetime, run: RunSummary) -> StepLine:
    """A step that began and has not ended: it failed with the run, or is still at it."""
    failure = run.failure or {}
    failed = failure.get("step_id") == intent.get("step")
    return StepLine(
        step=str(intent.get("step")),
        item=intent.get("item"),
        status="failed" if failed else "under way",
        began=at,
        duration_ms=0.0,
        tool=str(intent.get("tool", "")),
        args=intent.get("args"),
        error=str(failure.get("message", "")) if failed else "",
    )
