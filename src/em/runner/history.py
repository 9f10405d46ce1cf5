"""Past runs: one run as its journal records it, lists of runs, and what a run saved.

`read_run` reads a run's stream once and returns a `PastRun`. Everything that shows, resumes or
inspects a run uses it; only this module and `em.runner.journal` know the kinds of events.

A run is cancelled by an event in its own stream. Whoever works on the run finds it with the next
write of its journal, which comes before every call, stores the result of the call that was under
way, and stops. Nobody has to be reached, so a run whose process is gone is cancelled the same way.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, TypedDict, Unpack, get_args

import msgspec

from em.errors import EmError, NotFound, PositionConflict, RoutineError, StoreBusy, UsageError
from em.log.event import RUN_PREFIX, Draft, Event, EventQuery, inner_run_id, run_stream
from em.log.summary import Cursor, Summary, SummaryQuery
from em.redaction.redactor import MARKER
from em.runner.journal import (
    ROUTINE_STARTED,
    WORKFLOW_STARTED,
    ItemKey,
    Restored,
    question_of,
)
from em.runner.package import Package, unpacked
from em.runner.run import (
    HANDED_OVER,
    INPUTS,
    UNDONE,
    Declined,
    Failure,
    Item,
    OutputMissing,
    PendingPrompt,
    Reason,
    RunResult,
    UnexpectedResult,
)
from em.store.protocol import Commit, Store
from em.values.call import Usage
from em.values.canonical import Json
from em.values.files import path_from_text

RunKind = Literal["routine", "workflow"]
RunStatus = Literal[
    "ok", "failed", "needs_input", "handed_over", "running", "cancelled", "forgotten"
]
STATUSES: tuple[RunStatus, ...] = get_args(RunStatus)
"""The statuses that a run may have."""
LOOKED_AT = 2_000
"""Runs that one search passes over; it returns where it stopped, and the next goes on there."""

RECORDING = "recording.json"


class PastStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a past run, or one item of it. `body` is the event's, with its defaults."""

    step: str
    item: Item
    status: str
    began: datetime
    duration_ms: float = 0.0
    attempts: int = 1
    tool: str = ""
    args: Any = None
    result: Any = None
    error: str = ""
    fix: Json | None = None
    event_id: str = ""
    body: Json = {}


class PastRun:
    """A run of a routine or a workflow, as its journal records it.

    `started` is the body of its first event. `steps` are in the order in which they ended.
    `end` is the body of the event that paused or ended the run, and empty while it is running and
    once it was cancelled; `cancelled` is the body of the event that cancelled it.
    `is_partial`: part of it was forgotten. Nobody knows any more all that it did, so it is never
    resumed.
    """

    def __init__(
        self, run_id: str, events: Sequence[Event], pos: int, *, is_partial: bool = False
    ) -> None:
        first = events[0]
        self.run_id = run_id
        self.subject = first.subject
        self.is_partial = is_partial
        self.events = events
        self.pos = pos
        self.began = first.at
        self.is_workflow = first.kind == WORKFLOW_STARTED
        self.started: Json = first.body or {}
        self.input: Json = self.started["input"]
        self.routine = str(self.started.get("workflow" if self.is_workflow else "routine", ""))
        folder = str(self.started.get("folder", ""))
        self.folder = str(path_from_text(folder)) if folder else ""
        self.stored = str(self.started.get("stored", ""))
        self.routine_hash = str(self.started["hash"])
        self.code: list[tuple[str, str]] = [
            (what, has) for what, has in self.started.get("code", ())
        ]
        self.resume_with = str(self.started.get("resume_with", ""))
        self.ended: datetime | None = None
        self.end: Json = {}
        self.cancelled: Json | None = None
        self.status = "running"
        self.steps: list[PastStep] = []
        self.restored = Restored()
        self._intents: dict[ItemKey, tuple[Json, datetime]] = {}
        for event in events:
            self._take(event)
        if is_partial and not self.is_over:
            self.status, self.end = "forgotten", {}
        self.output = self.end.get("output")
        self.failure: Json | None = self.end.get("failure")
        self.reason: Json | None = self.end.get("reason")
        self.prompt: Json | None = self.end.get("prompt")

    @property
    def is_over(self) -> bool:
        """Whether the run goes no further, unless somebody retries it."""
        return self.status not in ("running", "needs_input")

    @property
    def step_count(self) -> int:
        """How many calls have a result."""
        return len(self.restored.results)

    @cached_property
    def timeline(self) -> Sequence[PastStep]:
        """The steps that ended, then those under way, or where the run failed."""
        lines = self.steps + [self._under_way(*intent) for intent in self._intents.values()]
        failed = (self.failure or {}).get("step_id")
        if failed and not any(line.status == "failed" for line in lines):
            # A step without an effect has no intent: the run's failure is its only trace.
            lines.append(self._under_way({"step": failed}, self.events[-1].at))
        return lines

    @property
    def result_status(self) -> str:
        """The status of the run's result: a run that handed over needs input."""
        return "needs_input" if self.status == HANDED_OVER else self.status

    def result(self) -> RunResult:
        """The result of a run that is over or waits."""
        failure, prompt, reason = self.failure, self.prompt, self.reason
        return RunResult(
            run_id=self.run_id,
            status=self.result_status,  # type: ignore[arg-type]  # a run that is over or waits
            output=self.output,
            failure=None if failure is None else msgspec.convert(failure, Failure),
            pending_prompt=None if prompt is None else msgspec.convert(prompt, PendingPrompt),
            reason=None if reason is None else msgspec.convert(reason, Reason),
        )

    def _take(self, event: Event) -> None:
        body = event.body or {}
        if event.kind == "step_started":
            self._begin(body, event.at)
        elif event.kind == "step_done":
            self._end_step(body, event)
        elif event.kind in ("run_answered", "run_resumed", "run_retried"):
            self._go_on(event.kind, body)
        elif event.kind in ("run_paused", "run_ended", "run_cancelled"):
            self._stop(event, body)

    def _go_on(self, kind: str, body: Json) -> None:
        self.status, self.end, self.ended, self.cancelled = "running", {}, None, None
        if kind == "run_answered":
            self._answer(body["answers"])
        elif kind == "run_resumed":
            # What was read before no longer counts; the log has it.
            self.restored = self.restored.without_reads()
            self.restored.is_asking_anew = False
            self.steps.clear()
            self._intents.clear()

    def _stop(self, event: Event, body: Json) -> None:
        if event.kind == "run_cancelled":
            self.status, self.end, self.ended, self.cancelled = "cancelled", {}, event.at, body
            return
        if "step_id" in body.get("prompt", ()):
            self.restored.ask(body["prompt"])
        self.status, self.end = body.get("status", "needs_input"), body
        if body.get("reason") is not None:
            self.status = HANDED_OVER
            # A call that was announced, and whose arguments then had no value, was not made.
            self._intents.clear()
            self.restored.in_flight.clear()
            self.restored.effects.clear()
        self.ended = event.at if event.kind == "run_ended" else None
        failure = body.get("failure") or {}
        if (failure.get("context") or {}).get("outcome") == UNDONE:
            self._undo(failure.get("step_id"))

    def _undo(self, step: Any) -> None:
        """Take back the call that was under way when the run failed: it had no effect.

        If several were under way, it can't be told which one, and all stay.
        """
        under_way = [key for key in self.restored.in_flight if key[0] == step]
        if len(under_way) == 1:
            self.restored.in_flight.difference_update(under_way)
            self.restored.effects.difference_update(under_way)

    def _answer(self, answers: Json) -> None:
        for step_id, given in answers.items():
            # Inputs are asked for in several rounds, all under one name.
            before = self.restored.answers.get(step_id, {}) if step_id == INPUTS else {}
            self.restored.answers[step_id] = {**before, **given}

    def _begin(self, intent: Json, at: datetime) -> None:
        restored, key = self.restored, _key(intent)
        self._intents[key] = (intent, at)
        if intent.get("item_hash"):
            restored.items[key] = intent["item_hash"]
        restored.in_flight.add(key)
        restored.effects.add(key)
        restored.keys[key] = None if _has_marker(intent.get("key")) else intent.get("key")
        # An answer about an earlier attempt does not count for this one.
        restored.answers.pop(question_of(key), None)

    def _end_step(self, noted: Json, event: Event) -> None:
        restored, key = self.restored, _key(noted)
        intent, _ = self._intents.pop(key, ({}, event.at))
        # A step that is done may carry the intent of the next.
        following = noted.get("next")
        body = {"status": "done", "attempts": 1, **noted}
        body.pop("next", None)
        took = float(body.get("duration_ms", 0.0))
        self.steps.append(
            PastStep(
                step=key[0],
                item=key[1],
                status=str(body["status"]),
                began=event.at - timedelta(milliseconds=took),
                duration_ms=took,
                attempts=int(body["attempts"]),
                tool=str(intent.get("tool", "")),
                args=intent.get("args"),
                result=body.get("result"),
                error=str(body.get("error", "")),
                fix=body.get("fix"),
                event_id=event.id,
                body=body,
            )
        )
        if body.get("item_hash"):
            restored.items[key] = body["item_hash"]
        restored.in_flight.discard(key)
        restored.results[key] = body.get("result")
        restored.ends[key] = (body["status"], str(body.get("error", "")), body.get("fix"))
        if _has_marker(body.get("result")):
            restored.redacted.add(key)
        if following is not None:
            self._begin(following, event.at)

    def _under_way(self, intent: Json, at: datetime) -> PastStep:
        """A step that began and did not end: it failed with the run, or is still running."""
        failure = self.failure or {}
        failed = failure.get("step_id") == intent.get("step")
        return PastStep(
            step=str(intent.get("step")),
            item=intent.get("item"),
            status="failed" if failed else "interrupted" if self.is_over else "under way",
            began=at,
            tool=str(intent.get("tool", "")),
            args=intent.get("args"),
            error=str(failure.get("message", "")) if failed else "",
        )


def _key(body: Json) -> ItemKey:
    return str(body.get("step")), body.get("item")


def _has_marker(value: Any) -> bool:
    return MARKER.search(msgspec.json.encode(value).decode()) is not None


def read_run(
    store: Store,
    run_id: str,
    kind: RunKind | None = "routine",
    subjects: Collection[str] | None = None,
) -> PastRun:
    """Read one run in one pass over its stream. `kind` None: of a routine or of a workflow.

    Raises NotFound for a run that is not there, that was erased, of the other kind, or, if
    `subjects` are given, about nobody of them.
    """
    found = list(store.read(EventQuery(stream=run_stream(run_id))))
    events = [event for event in found if event.body is not None and event.kind != "erased"]
    first = events[0].kind if events else ""
    started = {"routine": [ROUTINE_STARTED], "workflow": [WORKFLOW_STARTED]}.get(
        kind or "", [ROUTINE_STARTED, WORKFLOW_STARTED]
    )
    if first in started and (subjects is None or events[0].subject in subjects):
        is_partial = any(event.body is None for event in found)
        return PastRun(run_id, events, found[-1].pos, is_partial=is_partial)
    if kind == "workflow":
        raise NotFound(
            f"there is no workflow run {run_id!r}",
            fix="`em workflow inspect --all` lists the runs of workflows",
        )
    fix = "`em runs list` lists the runs of routines"
    if first == WORKFLOW_STARTED and subjects is None:
        fix = f"it is a workflow's: `em workflow inspect {run_id}`"
    raise NotFound(f"there is no run {run_id!r}", fix=fix)


def read_stored_run(store: Store, run_id: str, kind: RunKind = "routine") -> PastRun:
    """Read a run that a server could run: of a stored routine or a workflow."""
    past = read_run(store, run_id, kind)
    if not past.is_workflow and not past.stored:
        raise NotFound("only runs of stored routines can be resumed here", place=f"run {run_id}")
    return past


def read_served_run(store: Store, run_id: str, kind: RunKind = "routine") -> PastRun:
    """Read a run that a server may resume: of a stored routine or a workflow, and not over."""
    past = read_stored_run(store, run_id, kind)
    refuse_partial(past, UsageError)
    if past.status not in ("needs_input", "running"):
        raise UsageError(f"the run is over: {past.status}", place=f"run {run_id}")
    return past


def refuse_partial(past: PastRun, error: type[EmError] = RoutineError) -> None:
    """Raise for a run of which a part was forgotten: nobody knows any more all that it did."""
    if past.is_partial:
        raise error(
            "part of this run was forgotten, and with it what it did",
            place=f"run {past.run_id}",
            fix="start a new run",
        )


def run_id_of(event: Event) -> str:
    """The run that an event belongs to."""
    return event.stream.removeprefix(RUN_PREFIX)


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in short. `note`: what it asks, or why it failed."""

    run_id: str
    subject: str | None = None
    routine: str = ""
    stored: str = ""
    status: str = ""
    began: datetime
    ended: datetime | None = None
    steps: int = 0
    note: str = ""


class RunPage(msgspec.Struct, frozen=True):
    """Some runs, newest first; `older` is where to go on, None where nothing is left.

    first: the place of the first run, None if there are none.
    """

    runs: Sequence[RunSummary]
    older: Cursor | None
    first: Cursor | None = None


class RunFilter(TypedDict, total=False):
    """Which runs to list.

    name: the routine or workflow. status: one of STATUSES.
    subjects: about one of these; None for all. since, until: when they began.
    """

    name: str | None
    status: str | None
    subjects: Iterable[str] | None
    since: datetime | None
    until: datetime | None


def find_runs(
    store: Store,
    kind: RunKind = "routine",
    *,
    words: str = "",
    before: Cursor | None = None,
    limit: int | None = 20,
    oldest: bool = False,
    **chosen: Unpack[RunFilter],
) -> RunPage:
    """Find the newest runs whose name, id or input contains the words.

    before: go on behind this place, which an earlier page returned.
    oldest: the oldest first instead.
    """
    found: list[RunSummary] = []
    passed_over, first, last = 0, None, before
    for row in store.summaries.read(run_query(kind, before, oldest=oldest, **chosen)):
        if len(found) == limit or passed_over == LOOKED_AT:
            return RunPage(found, last, first)
        last = row.cursor
        if _has_words(store, row, words):
            first = first or last
            found.append(_in_short(store, row))
        else:
            passed_over += 1
    return RunPage(found, None, first)


def run_query(
    kind: RunKind,
    before: Cursor | None = None,
    *,
    oldest: bool = False,
    **chosen: Unpack[RunFilter],
) -> SummaryQuery:
    """Return the query of the summaries of runs, newest first unless `oldest`."""
    subjects = chosen.get("subjects")
    return SummaryQuery(
        noun="workflow" if kind == "workflow" else "run",
        name=chosen.get("name"),
        status=chosen.get("status") or None,
        subjects=None if subjects is None else list(subjects),
        since=chosen.get("since"),
        until=chosen.get("until"),
        beyond=before,
        oldest=oldest,
    )


def _has_words(store: Store, row: Summary, words: str) -> bool:
    if not words:
        return True
    given: Json = row.shown["input"]
    if given.get("cut"):
        first = EventQuery(stream=row.stream, limit=1)
        given = next(((event.body or {}).get("input", {}) for event in store.read(first)), {})
    shown = [row.stream, row.name, row.shown.get("stored"), given]
    return words.casefold() in msgspec.json.encode(shown).decode().casefold()


def _in_short(store: Store, row: Summary) -> RunSummary:
    steps = row.calls
    if row.status == "running":
        # Its steps are counted when it pauses or ends.
        done = EventQuery(stream=row.stream, kinds=["step_done"])
        steps = sum(event.body is not None for event in store.read(done))
    return RunSummary(
        run_id=row.id,
        subject=row.subject,
        routine=row.name,
        stored=row.shown.get("stored", ""),
        status=row.status,
        began=row.at,
        ended=row.ended,
        steps=steps,
        note=row.shown.get("note", ""),
    )


def end_of_run(store: Store, run_id: str) -> Json:
    """Return the body of the last event that paused or ended a run; empty if there is none.

    It has what a list shows besides the summary: the output, the failure or the question.
    """
    # Behind it may be the notes of erasures.
    query = EventQuery(stream=run_stream(run_id), newest=True, limit=3)
    found = [event for event in store.read(query) if event.kind != "erased" and event.body]
    is_end = bool(found) and found[-1].kind in ("run_ended", "run_paused")
    return (found[-1].body or {}) if is_end else {}


@contextmanager
def package_of(store: Store, past: PastRun) -> Iterator[Package]:
    """Open the package that a run was started from: its folder, or the stored one."""
    if not past.stored:
        yield Package(past.folder, database=store.database)
        return
    with unpacked(store, past.stored) as package:
        yield package


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the agent's run beside this run's; None where it was not recorded."""

    what: str
    agent: float | None
    run: float | None
    saved: float | None


class _Recording(msgspec.Struct):
    usage: Usage = Usage()


def recorded_usage(store: Store, past: PastRun) -> Usage:
    """What the agent's run used, from its package; empty if the package changed since the run."""
    try:
        with package_of(store, past) as package:
            if package.content_hash != past.routine_hash:
                return Usage()
            data = (package.folder / RECORDING).read_bytes()
        return msgspec.json.decode(data, type=_Recording).usage
    except (OSError, RoutineError, NotFound, msgspec.MsgspecError):
        return Usage()


def savings(store: Store, past: PastRun, agent: Usage | None = None) -> list[Saving]:
    """Compare a run with the recorded agent run. `agent`: what that used, where it is known."""
    agent = recorded_usage(store, past) if agent is None else agent
    asked = sum(1 for step in past.steps if step.fix)
    # Without a model there are no tokens and no cost; with one, the journal does not have them.
    nothing = None if asked else 0
    agent_seconds = None if agent.duration_ms is None else agent.duration_ms / 1e3
    figures: list[tuple[str, float | None, float | None]] = [
        ("calls", agent.calls, sum(step.attempts for step in past.steps)),
        ("model calls", agent.model_calls, asked),
        ("seconds", agent_seconds, _seconds(past.steps)),
        ("tokens", agent.tokens, nothing),
        ("cost_usd", agent.cost_usd, nothing),
    ]
    return [
        Saving(
            what=what,
            agent=before,
            run=now,
            saved=None if before is None or now is None else before - now,
        )
        for what, before, now in figures
    ]


def _seconds(steps: Iterable[PastStep]) -> float:
    """The time that steps took, without waiting for a person."""
    longest: dict[str, float] = {}
    for one in steps:
        # Each item of a step counts from where the step began.
        longest[one.step] = max(longest.get(one.step, 0.0), one.duration_ms)
    return sum(longest.values()) / 1e3


RETRIED = ("failed", "cancelled")
"""The statuses of runs that may be retried."""

_FINAL = {
    OutputMissing.__name__: "everything was done, and only the output is missing",
    UnexpectedResult.__name__: "{step} was made and returned something unexpected: look at what it"
    " did, and finish by hand",
    Declined.__name__: "a person did not agree to {step}",
}
"""By the error of a failure: why such a run can't go on."""


def retry_problem(past: PastRun) -> str:
    """Return in words why a run can't go on where it stopped; an empty text if it can.

    What its journal has is not done again. The step where it stopped is done once more only if that
    can't do anything twice: it reads, it surely had no effect, or it has an idempotency key.
    """
    if past.is_partial:
        return "part of this run was forgotten, and with it what it did"
    if past.status == HANDED_OVER:
        return "it handed over and did nothing: start a new run"
    if past.status not in RETRIED:
        return f"it has neither failed nor been cancelled: {past.status}"
    return _failure_problem(past) or _call_problem(past)


def refuse_retry(past: PastRun, error: type[EmError] = RoutineError) -> None:
    """Raise if a run can't go on where it stopped."""
    problem = retry_problem(past)
    if problem:
        raise error(
            f"this run can't be retried: {problem}",
            place=f"run {past.run_id}",
            fix="look at what was done, and start a new run for the rest",
        )


def _failure_problem(past: PastRun) -> str:
    """Return why a run would fail again, whatever changes outside it."""
    failure = past.failure or {}
    kind, step = failure.get("error_type", ""), failure.get("step_id", "")
    if kind in _FINAL:
        return _FINAL[kind].format(step=step)
    if past.status == "failed" and not step and not past.steps:
        return "it failed before its first step: start a new run"
    return ""


def _call_problem(past: PastRun) -> str:
    """Return which calls may have happened and must not be made again."""
    restored = past.restored
    doubtful = [key for key in restored.in_flight if restored.keys.get(key) is None]
    if not doubtful:
        return ""
    names = ", ".join(sorted(question_of(key).removesuffix("?") for key in doubtful))
    return f"{names} may have happened, has no idempotency key, and must not be done twice"


TRIES = 200
"""How often to try while the run writes its own steps."""


def cancel_run(store: Store, run_id: str, *, by: str = "", kind: RunKind | None = None) -> PastRun:
    """Cancel a run of a routine or a workflow, and the runs inside it; return it as it is then.

    by: who wants it, for the log. Raises UsageError if the run is over.
    """
    past = read_run(store, run_id, kind)
    stream = run_stream(run_id)
    body = {"by": by} if by else {}
    event = Draft(stream=stream, kind="run_cancelled", body=body, subject=past.subject)
    for _ in range(TRIES):
        _refuse_over(past)
        try:
            store.commit(Commit(events=[event], expected_pos={stream: past.pos}))
        except PositionConflict:
            past = read_run(store, run_id, kind)
        else:
            _cancel_inner(store, past, by)
            return read_run(store, run_id, kind)
    raise StoreBusy(
        "the run writes its steps faster than it can be cancelled",
        place=f"run {run_id}",
        fix="try again",
    )


def _refuse_over(past: PastRun) -> None:
    if past.is_over:
        raise UsageError(f"the run is over: {past.status}", place=f"run {past.run_id}")


def _cancel_inner(store: Store, past: PastRun, by: str) -> None:
    """Cancel the routines that steps of a workflow's run are running."""
    keys = [past.restored.keys.get(call) for call in past.restored.in_flight]
    for key in keys if past.is_workflow else ():
        inner = inner_run_id(str(key))
        if store.head(run_stream(inner))[0]:
            with suppress(UsageError):  # it has just ended
                cancel_run(store, inner, by=by, kind="routine")


def cancel_runs(store: Store, run_ids: list[str], *, by: str) -> None:
    """Cancel those of these runs that have begun and are not over."""
    for run_id in run_ids:
        newest = EventQuery(stream=run_stream(run_id), newest=True, limit=1)
        if any(event.kind not in ("run_ended", "run_cancelled") for event in store.read(newest)):
            with suppress(UsageError):
                cancel_run(store, run_id, by=by)
