"""Inspection: what each step of a past run was given and left, and a rehearsal of a run.

Templates are filled in again from the journal, so filled-in texts need not be stored.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from em.errors import EmError
from em.log.kinds import event_body
from em.log.summary import Summary, event_summary, shown_value
from em.runner.expressions.functions import SCOPE
from em.runner.history import PastRun, PastStep, read_run, run_query
from em.runner.run import Failure, PendingPrompt, RunResult, Status, StepReport
from em.runner.tools import Tool
from em.store.protocol import Store
from em.values.canonical import Json
from em.workflows.definition import WorkflowFile, check_params, prompt_of
from em.workflows.needs import FETCHED
from em.workflows.plan import ASK, ASKS_A_MODEL, Plan, PlannedStep, plan_of, refuse_invalid
from em.workflows.slices import (
    Brought,
    CountTokens,
    RunContext,
    Slice,
    StepTokens,
    about,
    failed_slice,
    record_of,
    slices_of,
    tokens_of,
)


class WorkflowResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: `output` (the last step's) if it is ok, `failure` if it failed.

    `pending_prompt` is set if the run waits for an answer. `status` is `running` if the result was
    read from the journal of a run that has not ended.
    """

    run_id: str
    workflow: str
    status: Status | str
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    steps: Sequence[StepReport] = ()
    outputs: dict[str, Any] = {}
    warnings: Sequence[str] = ()

    @classmethod
    def of(cls, workflow: str, ended: RunResult, **more: Any) -> "WorkflowResult":
        """Return the result of a run of the runner, with what only workflows have."""
        return cls(
            run_id=ended.run_id,
            workflow=workflow,
            output=ended.output,
            failure=ended.failure,
            pending_prompt=ended.pending_prompt,
            **more,
        )


@event_body("workflow_started")
class WorkflowStarted(msgspec.Struct, frozen=True):
    """A workflow starts to run. The event has its whole definition, so a resume needs no file.

    `definition` is JSON as one text: it is written with every run and rarely read.
    """

    workflow: str
    hash: str
    definition: str
    input: Json
    prompt: str | None = None
    resume_with: str = ""
    from_events: list[str] = []


@event_summary("workflow_started")
def _summarise_start(made: Summary, body: Json, _at: datetime) -> None:
    made.name, made.status = body["workflow"], "running"
    made.shown = {"input": shown_value(body["input"]), "hash": body["hash"]}


@event_body("workflow_cleaned")
class WorkflowCleaned(msgspec.Struct, frozen=True):
    """Old workflow runs were erased: which, and why."""

    runs: list[str]
    events: int
    bytes: int = 0
    reason: str = ""


class PastWorkflow:
    """One run of a workflow, as its journal records it."""

    def __init__(self, run: PastRun) -> None:
        self.run = run
        self.run_id = run.run_id
        self.workflow = run.routine
        self.definition: Json = msgspec.json.decode(run.started["definition"])
        self.params: Json = run.input

    @classmethod
    def read(cls, store: Store, run_id: str) -> "PastWorkflow":
        """Read a run; NotFound if there is no such run of a workflow."""
        return cls(read_run(store, run_id, "workflow"))

    @property
    def prompt(self) -> str | None:
        """The prompt that the run started with."""
        given = self.run.started.get("prompt")
        return prompt_of(plan_of(self.definition).workflow, self.params, given)

    @property
    def status(self) -> str:
        """`running`, `needs_input`, `ok` or `failed`."""
        return self.run.status

    def done(self) -> dict[str, PastStep]:
        """Return the steps that ended, by name, without the single items of a list."""
        return {step.step: step for step in self.run.steps if step.item is None}

    def fetched(self) -> dict[str, Json]:
        """Return what each step was given from outside the run."""
        return {
            step.step: step.result["memory"]
            for step in self.run.steps
            if isinstance(step.result, dict) and "memory" in step.result
        }

    def records(self, name: str) -> list[Json]:
        """Return what the calls of a step left, in the order of its items."""
        steps = [step for step in self.run.steps if step.step == name]
        steps.sort(key=lambda step: step.item or 0)
        return [step.result or {} for step in steps]

    def result(self) -> WorkflowResult:
        """Return the result so far."""
        return WorkflowResult.of(
            self.workflow,
            self.run.result(),
            status=self.status,
            steps=[_report(step) for step in self.run.steps],
            outputs={
                step.step: (step.result or {}).get("output")
                for step in self.run.steps
                if step.status == "done" and step.item is None
            },
            warnings=[
                f"step {step.step}: {text}"
                for step in self.run.steps
                for text in (step.result or {}).get("warnings", ())
            ],
        )


def _report(step: PastStep) -> StepReport:
    return StepReport(
        id=step.step,
        status=step.status,  # type: ignore[arg-type]  # the journal has only statuses of the machine
        attempts=step.attempts,
        duration_ms=step.duration_ms,
        error=step.error,
    )


def latest_output(store: Store, workflow: str, step: str) -> tuple[Any, Sequence[str]]:
    """Return a step's output in the newest run of a workflow that has one, and its events."""
    for run in store.summaries.read(run_query("workflow", name=workflow)):
        found = [
            (done.item, done.result["output"], done.event_id)
            for done in read_run(store, run.id, "workflow").steps
            if done.step == step and isinstance(done.result, dict) and "output" in done.result
        ]
        if found:
            is_list = found[0][0] is not None
            outputs = [output for _, output, _ in sorted(found, key=lambda one: one[0] or 0)]
            return (outputs if is_list else found[-1][1]), [one[2] for one in found]
    return None, ()


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    """One step: what it was given, what it left, and what that took."""

    name: str
    tool: str
    status: str
    needs: Sequence[str] = ()
    memory: Json = {}
    """What its needs brought, by name."""
    inputs: Any = None
    """What its tool was called with; a list where it ran for each of several items."""
    output: Any = None
    classification: str = "output"
    metadata: Json = {}
    saved: Sequence[Json] = ()
    error: str = ""
    warnings: Sequence[str] = ()
    duration_ms: float = 0.0
    attempts: int = 0
    tokens: StepTokens | None = None
    """Of a step that asks a model."""


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """A run, step by step; `tokens` of all steps that ask a model."""

    run_id: str
    workflow: str
    status: str
    began: datetime | None = None
    prompt: str | None = None
    params: Json = {}
    steps: Sequence[StepView] = ()
    tokens: StepTokens = StepTokens()
    output: Any = None
    failure: Any = None
    pending_prompt: Any = None
    resume_with: str = ""


def inspect_run(store: Store, run_id: str, count: CountTokens = about) -> RunView:
    """Read a run and return what each step was given and left."""
    return view_of(PastWorkflow.read(store, run_id), count)


def view_of(past: PastWorkflow, count: CountTokens = about) -> RunView:
    """Return what each step of a run was given and left."""
    plan = plan_of(past.definition)
    views = _Replay(plan, past, count).views()
    result = past.result()
    return RunView(
        run_id=past.run_id,
        workflow=past.workflow,
        status=past.status,
        began=past.run.began,
        prompt=past.prompt,
        params=past.params,
        steps=views,
        tokens=_total(views),
        output=result.output,
        failure=result.failure,
        pending_prompt=result.pending_prompt,
        resume_with=past.run.resume_with,
    )


def _total(views: Sequence[StepView]) -> StepTokens:
    total = StepTokens(told=0)
    for view in views:
        if view.tokens is not None:
            total += view.tokens
    return total


class _Replay:
    """Replays a run from its journal without calling anything."""

    def __init__(self, plan: Plan, past: PastWorkflow, count: CountTokens) -> None:
        self._plan = plan
        self._past = past
        self._count = count
        self._fetched = past.fetched()
        self._steps: dict[str, list[PastStep]] = {}
        for done in past.run.steps:
            self._steps.setdefault(done.step, []).append(done)
        self._in_flight = {step for step, _ in past.run.restored.in_flight}
        order = [step.name for step in plan.steps]
        self._context = RunContext(past.prompt, past.params, order)
        # Collect what all steps left before viewing any: they may have run in parallel.
        for step in plan.steps:
            self._leave(step)

    def _leave(self, step: PlannedStep) -> None:
        done = self._steps.get(step.name, [])
        if not done or done[0].status == "skipped":
            return
        is_list = step.call.for_each is not None
        if not is_list and done[0].status != "done":
            self._context.leave(step.name, [failed_slice(step.name, done[0].error)])
            return
        records = [record_of(record) for record in self._past.records(step.name)]
        self._context.leave(step.name, list(slices_of(step.name, records, is_list=is_list)))

    def views(self) -> list[StepView]:
        return [self._view(step) for step in self._plan.steps]

    def _unfinished(self, step: str) -> Json:
        """Return the status of a step without a result, and the error with which the run failed."""
        failure = self._past.run.failure or {}
        if failure.get("step_id") == step:
            return {"status": "failed", "error": str(failure.get("message", ""))}
        if step not in self._in_flight:
            return {"status": "not begun"}
        return {"status": "interrupted" if self._past.run.is_over else "under way"}

    def _view(self, step: PlannedStep) -> StepView:
        done = self._steps.get(step.name, [])
        definition = step.definition
        shown: Json = {"name": step.name, "tool": definition.tool, "needs": definition.memory.needs}
        if not done:
            return StepView(**shown, **self._unfinished(step.name))
        values, _ = self._context.memory_for(
            step.needs, self._fetched.get(step.name, {}), step.before
        )
        status = done[-1].status
        if status == "skipped":
            return StepView(**shown, status=status, memory=values)
        inputs = self._inputs(step, values)
        records = [record_of(record) for record in self._past.records(step.name)]
        record = records[0] if len(records) == 1 else {}
        is_list = step.call.for_each is not None
        return StepView(
            **shown,
            status=status,
            memory=values,
            inputs=inputs,
            output=[one.get("output") for one in records] if is_list else record.get("output"),
            classification=str(record.get("classification") or "output"),
            metadata=record.get("metadata") or {},
            saved=[saved for one in records for saved in one.get("saved", ())],
            error="; ".join(one.error for one in done if one.error),
            warnings=[text for one in records for text in one.get("warnings", ())],
            duration_ms=max(one.duration_ms for one in done),
            attempts=sum(one.attempts for one in done),
            tokens=self._tokens(step, values, inputs, records),
        )

    def _inputs(self, step: PlannedStep, values: Json, *, bare: bool = False) -> Any:
        """Return what the step was called with; with `bare`, leave its memory empty."""
        scope = self._scope(values)
        if step.definition.tool == ASK:
            return _filled(step, scope)
        try:
            return inputs_of(step, scope, self._scope({}) if bare else scope)
        except EmError as error:
            return {"error": str(error)}

    def _scope(self, values: Json) -> Json:
        brought = Brought(values, strict=False, place="")
        own = {"params": self._past.params, "run_id": self._past.run_id, "memory": brought}
        return {**SCOPE, **own}

    def _tokens(
        self, step: PlannedStep, values: Json, inputs: Any, records: Sequence[Json]
    ) -> StepTokens | None:
        if step.definition.tool not in ASKS_A_MODEL:
            return None
        before = [one.output for one in self._context.left_by(step.before) if not one.failed]
        params = list(self._past.params.values())
        # The prompt may be one of the parameters: count it once.
        everything = [*params, *before, *({self._past.prompt} - {str(one) for one in params})]
        context = sum(tokens_of(one, self._count) for one in everything)
        sent = full = 0
        bare = self._inputs(step, values, bare=True)
        for call, words in zip(_calls(inputs), _calls(bare), strict=True):
            sent += self._read_tokens(call) * _times(call)
            full += (self._read_tokens(words) + context) * _times(call)
        # A step may be given more than the context: an error, or values from outside the run.
        return StepTokens(sent=sent, full=max(sent, full), told=_counted(records))

    def _read_tokens(self, call: Any) -> int:
        """Count the tokens of the texts that a model reads."""
        if not isinstance(call, dict):
            return 0
        return sum(tokens_of(call.get(name), self._count) for name in ("system", "prompt"))


def _calls(inputs: Any) -> list[Any]:
    return inputs if isinstance(inputs, list) else [inputs]


def _times(call: Any) -> int:
    models = call.get("models") if isinstance(call, dict) else None
    return len(models) if isinstance(models, list) and models else 1


def _counted(records: Sequence[Json]) -> int | None:
    """Return the tokens that providers counted; None if one of them did not."""
    counted: list[int] = []
    for record in records:
        metadata = record.get("metadata") or {}
        every = [metadata] if "tokens" in metadata else list(metadata.values())
        for one in every:
            tokens = one.get("tokens") if isinstance(one, dict) else None
            counted.append(int((tokens or {}).get("input", 0)))
    return sum(counted) if counted and all(counted) else None


def inputs_of(step: PlannedStep, scope: Json, within: Json | None = None) -> Any:
    """Return what a step's tool is called with; a list if it runs for each of several items.

    The items come from `scope`, and their arguments from `within` if it is given.
    """
    within = scope if within is None else within
    if step.call.for_each is None:
        return step.call.args(within)
    items = step.call.for_each(scope)
    return [step.call.args({**within, step.call.as_name: item}) for item in items]


def _filled(step: PlannedStep, scope: Json) -> Any:
    assert step.prompt is not None
    assert step.prompt.prompt is not None
    return step.prompt.prompt(scope)


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it would be called."""

    name: str
    tool: str
    needs: Sequence[str] = ()
    inputs: Any = None
    asks: str = ""
    """What a person would be asked first."""
    note: str = ""


def rehearse(
    file: WorkflowFile,
    name: str,
    tools: Mapping[str, Tool],
    params: Mapping[str, Any],
    prompt: str | None = None,
) -> list[Rehearsed]:
    """Return every step of a workflow as it would be called."""
    workflow = file.workflow(name)
    refuse_invalid(workflow, tools, file.place)
    plan = Plan(workflow)
    given = check_params(workflow, params)
    started_with = prompt_of(workflow, given, prompt)
    context = RunContext(started_with, given, [step.name for step in plan.steps])
    for step in plan.steps:
        shown = f"<output of {step.name}>"
        context.leave(step.name, [Slice(by=step.name, name=step.name, output=shown)])
    return [_rehearsed(step, context, given) for step in plan.steps]


def _rehearsed(step: PlannedStep, context: RunContext, params: Json) -> Rehearsed:
    fetched = {need.text: f"<{need.text}>" for need in step.needs if need.kind in FETCHED}
    values, unmet = context.memory_for(step.needs, fetched, step.before)
    for need in step.needs:
        if need.kind == "classification" and need.text in unmet:
            values |= dict.fromkeys(need.variables, f"<{need.text}>")
    brought = Brought(values, strict=False, place="")
    scope: Json = {**SCOPE, "params": params, "run_id": "<run id>", "memory": brought}
    definition = step.definition
    note = f"when {definition.when}" if definition.when is not None else ""
    inputs: Any
    try:
        inputs = inputs_of(step, scope)
    except (EmError, TypeError):
        # It depends on the output of an earlier step, such as a list of items.
        inputs = definition.inputs
        note = f"{note}; known once the steps before it have run".lstrip("; ")
    return Rehearsed(
        name=step.name,
        tool=definition.tool,
        needs=definition.memory.needs,
        inputs=inputs,
        asks=_asks(step, scope),
        note=note,
    )


def _asks(step: PlannedStep, scope: Json) -> str:
    if step.prompt is None or step.prompt.prompt is None:
        return ""
    try:
        return str(step.prompt.prompt(scope)["message"])
    except EmError:
        return "?"


def edges(plan: Plan) -> list[tuple[str, str, str]]:
    """Return the edges from a step to one that uses it, with the reason."""
    found: list[tuple[str, str, str]] = []
    for step in plan.steps:
        for need in step.needs:
            if need.kind == "step":
                found.append((need.target, step.name, "needs"))
            elif need.kind == "last_output" and step.before:
                found.append((_before(plan, step), step.name, "last_output"))
        found += [(other, step.name, "depends_on") for other in step.definition.waits_for]
    return list(dict.fromkeys(found))


def _before(plan: Plan, step: PlannedStep) -> str:
    names = [one.name for one in plan.steps]
    return names[names.index(step.name) - 1]


def as_text(plan: Plan) -> str:
    """Return a plan as text: one line for each step, with its needs."""
    lines = []
    for step in plan.steps:
        definition = step.definition
        marks = [
            *(["gate"] if definition.gate else []),
            *(["when"] if definition.when is not None else []),
            *(["for each"] if definition.for_each is not None else []),
        ]
        shown = f" [{', '.join(marks)}]" if marks else ""
        wants = [*definition.memory.needs, *(f"after {name}" for name in definition.waits_for)]
        gets = f"  <- {', '.join(wants)}" if wants else ""
        lines.append(f"{step.name} ({definition.tool}){shown}{gets}")
    return "\n".join(lines)


def as_mermaid(plan: Plan) -> str:
    """Return a plan as a Mermaid flow chart."""
    numbers = {step.name: f"s{n}" for n, step in enumerate(plan.steps)}
    lines = ["flowchart TD"]
    for step in plan.steps:
        shown = f"{step.name}<br/>{step.definition.tool}".replace('"', "'")
        lines.append(f'    {numbers[step.name]}["{shown}"]')
    for source, target, why in edges(plan):
        arrow = "-->" if why == "needs" else f"-. {why} .->"
        lines.append(f"    {numbers[source]} {arrow} {numbers[target]}")
    return "\n".join(lines)
