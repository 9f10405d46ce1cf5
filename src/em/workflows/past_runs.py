"""Runs of workflows as their journals tell them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from em.errors import NotFound
from em.log.event import Event, EventQuery
from em.runner.journal import PastRun, read_run, stream_of
from em.runner.run import Failure, PendingPrompt, StepReport
from em.store.protocol import Store
from em.values.canonical import Json
from em.workflows.outcome import WorkflowResult
from em.workflows.parameters import prompt_of
from em.workflows.plan import plan_of
from em.workflows.workflow_machine import Done

STARTED = "workflow_started"


class PastWorkflow:
    """One run of a workflow, read from the log."""

    def __init__(self, store: Store, run_id: str) -> None:
        try:
            self.run: PastRun = read_run(store, run_id, STARTED)
        except NotFound:
            raise NotFound(
                f"there is no workflow run {run_id!r}",
                fix="`em workflow inspect --all` shows those there are",
            ) from None
        self.run_id = run_id
        started = self.run.notes[0][1]
        self.workflow = str(started["workflow"])
        self.definition: Json = msgspec.json.decode(started["definition"])
        self.params: Json = started["input"]
        self._said: str | None = started.get("prompt")

    @property
    def prompt(self) -> str | None:
        """What started it."""
        return prompt_of(plan_of(self.definition).workflow, self.params, self._said)

    @property
    def status(self) -> str:
        """`running`, `needs_input`, `ok` or `failed`."""
        return self.run.status

    def done(self) -> dict[str, Done]:
        """The steps that are over as a whole."""
        found: dict[str, Done] = {}
        for body in self.steps_done():
            if body.get("item") is None:
                found[str(body["step"])] = Done(
                    status=str(body["status"]),
                    records=[body.get("result") or {}],
                    error=str(body.get("error", "")),
                )
        return found

    def steps_done(self) -> Iterator[Json]:
        """What the journal says of each call."""
        return (body for kind, body in self.run.notes if kind == "step_done")

    def fetched(self) -> dict[str, Json]:
        """What each step was given that is not of the run."""
        return {
            str(body["step"]): body["result"]["memory"]
            for body in self.steps_done()
            if isinstance(body.get("result"), dict) and "memory" in body["result"]
        }

    def records(self, step: str) -> list[Json]:
        """What the calls of a step left, in the order of its items."""
        bodies = [body for body in self.steps_done() if body["step"] == step]
        bodies.sort(key=lambda body: body.get("item") or 0)
        return [body.get("result") or {} for body in bodies]

    def result(self) -> WorkflowResult:
        """What became of it."""
        kind, last = self.run.notes[-1]
        ended = last if kind == "run_ended" else {}
        failure = ended.get("failure")
        prompt = last.get("prompt") if kind == "run_paused" else None
        warnings = [
            f"step {body['step']}: {text}"
            for body in self.steps_done()
            for text in (body.get("result") or {}).get("warnings", ())
        ]
        return WorkflowResult(
            run_id=self.run_id,
            workflow=self.workflow,
            status=self.status,
            output=ended.get("output"),
            failure=None if failure is None else msgspec.convert(failure, Failure),
            pending_prompt=None if prompt is None else msgspec.convert(prompt, PendingPrompt),
            steps=[_report(body) for body in self.steps_done()],
            outputs={
                str(body["step"]): (body.get("result") or {}).get("output")
                for body in self.steps_done()
                if body["status"] == "done" and body.get("item") is None
            },
            warnings=warnings,
        )


def _report(body: Json) -> StepReport:
    return StepReport(
        id=str(body["step"]),
        status=body["status"],
        attempts=int(body.get("attempts", 1)),
        duration_ms=float(body.get("duration_ms", 0.0)),
        error=str(body.get("error", "")),
    )


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """A run in short."""

    run_id: str
    workflow: str
    began: datetime
    status: str
    steps: int


def started_runs(store: Store, limit: int | None = None) -> list[Event]:
    """The events with which workflow runs began, newest first; erased ones are not there."""
    query = EventQuery(kinds=[STARTED], limit=limit, newest=limit is not None)
    return [event for event in reversed(list(store.read(query))) if event.body is not None]


def run_id_of(event: Event) -> str:
    """The run that an event belongs to."""
    return event.stream.removeprefix(stream_of(""))


def run_line(store: Store, event: Event) -> RunLine:
    """A run in short, from the event with which it began."""
    run_id = run_id_of(event)
    past = PastWorkflow(store, run_id)
    return RunLine(
        run_id=run_id,
        workflow=past.workflow,
        began=event.at,
        status=past.status,
        steps=sum(1 for _ in past.steps_done()),
    )


def latest_output(store: Store, workflow: str, step: str) -> tuple[Any, Sequence[str]]:
    """The output of a step in the newest run of a workflow that has one; and its events."""
    for event in started_runs(store):
        if (event.body or {}).get("workflow") != workflow:
            continue
        found, ids = [], []
        for done in store.read(EventQuery(stream=event.stream, kinds=["step_done"])):
            body = done.body or {}
            result = body.get("result")
            if body.get("step") == step and isinstance(result, dict) and "output" in result:
                found.append((body.get("item"), result["output"]))
                ids.append(done.id)
        if found:
            is_list = found[0][0] is not None
            return ([output for _, output in sorted(found)] if is_list else found[-1][1]), ids
    return None, ()
