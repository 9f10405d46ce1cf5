"""What each step of a run was given and left, made again from the journal; and a run in advance.

Templates are filled in from what the journal holds, so nothing of it is kept twice.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from em.errors import EmError
from em.log.event import EventQuery
from em.runner.expressions.functions import FUNCTIONS
from em.runner.journal import stream_of
from em.store.protocol import Store
from em.values.canonical import Json
from em.workflows.past_runs import PastWorkflow
from em.workflows.plan import ASK, ASKS_A_MODEL, Plan, PlannedStep, plan_of
from em.workflows.slices import Brought, Context, as_record, failed_slice, slices_of
from em.workflows.tokens import CountTokens, Tokens, about, tokens_of


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
    tokens: Tokens | None = None
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
    tokens: Tokens = Tokens()
    output: Any = None
    failure: Any = None
    pending_prompt: Any = None
    resume_with: str = ""


def inspect_run(store: Store, run_id: str, count: CountTokens = about) -> RunView:
    """A run as its journal tells it."""
    past = PastWorkflow(store, run_id)
    plan = plan_of(past.definition)
    views = _Replay(plan, past, count).views()
    result = past.result()
    (first,) = store.read(EventQuery(stream=stream_of(run_id), limit=1))
    return RunView(
        run_id=run_id,
        workflow=past.workflow,
        status=past.status,
        began=first.at,
        prompt=past.prompt,
        params=past.params,
        steps=views,
        tokens=_total(views),
        output=result.output,
        failure=result.failure,
        pending_prompt=result.pending_prompt,
        resume_with=past.run.resume_with,
    )


def _total(views: Sequence[StepView]) -> Tokens:
    total = Tokens(told=0)
    for view in views:
        if view.tokens is not None:
            total += view.tokens
    return total


class _Replay:
    """Goes through a run again without calling anything."""

    def __init__(self, plan: Plan, past: PastWorkflow, count: CountTokens) -> None:
        self._plan = plan
        self._past = past
        self._count = count
        self._fetched = past.fetched()
        self._bodies: dict[str, list[Json]] = {}
        for body in past.steps_done():
            self._bodies.setdefault(str(body["step"]), []).append(body)
        self._in_flight = {step for step, _ in past.run.restored.in_flight}
        order = [step.name for step in plan.steps]
        self._context = Context(past.prompt, past.params, order)
        # What each step left is known before any is looked at: they may have run side by side.
        for step in plan.steps:
            self._leave(step)

    def _leave(self, step: PlannedStep) -> None:
        bodies = self._bodies.get(step.name, [])
        if not bodies or bodies[0]["status"] == "skipped":
            return
        is_list = step.call.for_each is not None
        if not is_list and bodies[0]["status"] != "done":
            self._context.leave(step.name, [failed_slice(step.name, bodies[0].get("error", ""))])
            return
        records = [as_or_record(record) for record in self._past.records(step.name)]
        self._context.leave(step.name, list(slices_of(step.name, records, is_list=is_list)))

    def views(self) -> list[StepView]:
        return [self._view(step) for step in self._plan.steps]

    def _view(self, step: PlannedStep) -> StepView:
        bodies = self._bodies.get(step.name, [])
        definition = step.definition
        shown: Json = {"name": step.name, "tool": definition.tool, "needs": definition.memory.needs}
        if not bodies:
            status = "under way" if step.name in self._in_flight else "not begun"
            return StepView(**shown, status=status)
        values, _ = self._context.memory_for(
            step.needs, self._fetched.get(step.name, {}), step.before
        )
        status = str(bodies[-1]["status"])
        if status == "skipped":
            return StepView(**shown, status=status, memory=values)
        inputs = self._inputs(step, values)
        records = [as_or_record(record) for record in self._past.records(step.name)]
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
            error="; ".join(body["error"] for body in bodies if body.get("error")),
            warnings=[text for one in records for text in one.get("warnings", ())],
            duration_ms=max(float(body.get("duration_ms", 0.0)) for body in bodies),
            attempts=sum(int(body.get("attempts", 1)) for body in bodies),
            tokens=self._tokens(step, values, inputs, records),
        )

    def _inputs(self, step: PlannedStep, values: Json, *, bare: bool = False) -> Any:
        """What the step was called with; `bare`, with nothing of its memory filled in."""
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
        return {**FUNCTIONS, **own}

    def _tokens(
        self, step: PlannedStep, values: Json, inputs: Any, records: Sequence[Json]
    ) -> Tokens | None:
        if step.definition.tool not in ASKS_A_MODEL:
            return None
        before = [one.output for one in self._context.left_by(step.before) if not one.failed]
        params = list(self._past.params.values())
        # The prompt may be one of the parameters: nobody would send it twice.
        everything = [*params, *before, *({self._past.prompt} - {str(one) for one in params})]
        context = sum(tokens_of(one, self._count) for one in everything)
        sent = full = 0
        bare = self._inputs(step, values, bare=True)
        for call, words in zip(_calls(inputs), _calls(bare), strict=True):
            sent += self._said(call) * _times(call)
            full += (self._said(words) + context) * _times(call)
        # A step may be given what is no part of the context: an error, or what was looked up.
        return Tokens(sent=sent, full=max(sent, full), told=_told(records))

    def _said(self, call: Any) -> int:
        """The tokens of what a model reads."""
        if not isinstance(call, dict):
            return 0
        return sum(tokens_of(call.get(name), self._count) for name in ("system", "prompt"))


def _calls(inputs: Any) -> list[Any]:
    return inputs if isinstance(inputs, list) else [inputs]


def _times(call: Any) -> int:
    models = call.get("models") if isinstance(call, dict) else None
    return len(models) if isinstance(models, list) and models else 1


def _told(records: Sequence[Json]) -> int | None:
    """What providers counted; None where one of them did not."""
    counted: list[int] = []
    for record in records:
        metadata = record.get("metadata") or {}
        every = [metadata] if "tokens" in metadata else list(metadata.values())
        for one in every:
            tokens = one.get("tokens") if isinstance(one, dict) else None
            counted.append(int((tokens or {}).get("input", 0)))
    return sum(counted) if counted and all(counted) else None


def as_or_record(value: Any) -> Json:
    """A record of the journal; what a person said of a call is a plain value."""
    return value if isinstance(value, dict) and "output" in value else as_record(value)


def inputs_of(step: PlannedStep, scope: Json, within: Json | None = None) -> Any:
    """What a step's tool is called with; for each item where there are several.

    The items come from `scope`, and their arguments from `within` where it is given.
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
