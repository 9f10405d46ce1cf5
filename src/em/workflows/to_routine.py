"""Compile a run of a workflow to a routine that needs no model.

A model's answer becomes a constant if it was the same in every run, and an input otherwise.
The routine is proved by replaying the run: it must make the same calls with the same arguments
and return the same output.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.calls import identifier, infer_effect
from em.compiler.draft import Draft, GivenUdfs, Recorded, package_texts
from em.compiler.example import APPROVAL, Call
from em.compiler.replay_world import World
from em.errors import WorkflowError
from em.runner.expressions.language import lexed, whole_expression
from em.runner.history import run_query
from em.runner.routine import (
    AssertStep,
    LetStep,
    Program,
    Prompt,
    PromptStep,
    ReturnStep,
    Routine,
    Step,
    ToolSpec,
    ToolStep,
    UdfStep,
)
from em.store.protocol import Store
from em.values.call import Effect
from em.values.canonical import Json, identical
from em.values.json_schema import kind_of, of_input
from em.workflows.inspection import PastWorkflow, RunView, StepView, view_of
from em.workflows.needs import FETCHED
from em.workflows.plan import (
    ASK,
    ASKS_A_MODEL,
    COMMAND,
    HTTP,
    ROUTINE,
    Plan,
    PlannedStep,
    parts_in,
    plan_of,
    question_of,
    templates_of,
    written_tool,
)


def with_name(value: Any, name: str, place: str) -> Any:
    """Write a value whose templates say `memory` with another name for it."""
    if isinstance(value, dict):
        return {key: with_name(item, name, place) for key, item in value.items()}
    if isinstance(value, list):
        return [with_name(item, name, place) for item in value]
    if not isinstance(value, str) or not ("{{" in value or "{%" in value):
        return value
    written, before = "", ""
    for _, kind, token in lexed(value, place):
        written += name if (kind, token) == ("name", "memory") and before != "." else token
        before = before if kind == "whitespace" else token
    return written


FEWEST = 2
"""The fewest runs that must agree before an output is frozen without asking."""


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """A value from outside the workflow, such as a model's answer, and whether it is a constant.

    `runs`: how many runs have a value for it; `alike`: how many of them have this value.
    `holds`: parameters whose values the text contains. Such a constant may be wrong for other
    parameters. `frozen`: true for a constant, false for an input of the routine.
    """

    name: str
    step: str
    value: Any
    runs: int
    alike: int
    holds: Sequence[str] = ()
    frozen: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether enough runs have a value, and all have the same."""
        return self.runs >= FEWEST and self.alike == self.runs


class CompiledWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A routine package as texts by file name, and the values that could be frozen in it."""

    name: str
    files: dict[str, str]
    frozen: Sequence[Frozen]
    inputs: Sequence[str]
    from_events: Sequence[str]


MayFreeze = Callable[[Frozen], bool]
"""Decides whether to freeze a value where runs differ, or where there is only one run."""


def compile_run(
    store: Store,
    run_id: str,
    may_freeze: MayFreeze,
    *,
    name: str | None = None,
    effect_of: Callable[[str], Effect | None] = lambda _tool: None,
) -> CompiledWorkflow:
    """Compile a run to a routine that repeats it without a model.

    A value that is not frozen becomes an input of the routine. `effect_of` returns the effect of
    a tool, or None if it is not known. Raise WorkflowError if the run or a step can't be compiled.
    """
    past = PastWorkflow.read(store, run_id)
    if past.status != "ok":
        raise WorkflowError(
            f"only a run with status ok can be compiled, this one is {past.status}",
            place=f"run {run_id}",
            fix="resume it, or compile another run",
        )
    views = [view_of(past), *_others(store, past)]
    builder = _Builder(plan_of(past.definition), past, views, may_freeze, effect_of)
    draft = builder.build(name)
    _prove(draft)
    return CompiledWorkflow(
        name=draft.name,
        files=package_texts(draft),
        frozen=builder.frozen,
        inputs=list(draft.input),
        from_events=[event.id for event in past.run.events],
    )


def _prove(draft: Draft) -> None:
    """Replay the run: the routine must make the same calls and return the same output.

    Its constants are called too: they must return what the model answered.
    """
    recorded = draft.recordings[0]
    for call in recorded.calls:
        if call.is_udf and not identical(draft.udfs.functions[call.tool](), call.result):
            raise _not_repeated(draft, f"{call.tool} returns another value")
    # A write is answered only if it is the next recorded one, and so is each call of a tool here.
    calls = [call if call.is_udf else call._replace(effect="write") for call in recorded.calls]
    world = World(recorded.inputs, calls)
    outcome = world.run(Program(draft.routine))
    if outcome.verdict != "right":
        raise _not_repeated(draft, outcome.reason)
    if not identical(world.output, draft.output):
        raise _not_repeated(draft, "it returns another output")


def _not_repeated(draft: Draft, why: str) -> WorkflowError:
    return WorkflowError(
        f"the routine does not repeat the run: {why}",
        place=f"workflow {draft.name}",
        fix="compile another run, or run the workflow itself",
    )


def _others(store: Store, past: PastWorkflow) -> Iterator[RunView]:
    """Yield the other successful runs of the same version of the workflow."""
    for run in store.summaries.read(run_query("workflow", name=past.workflow, status="ok")):
        if run.shown["hash"] == past.run.routine_hash and run.id != past.run_id:
            yield view_of(PastWorkflow.read(store, run.id))


def _constants(frozen: Sequence[Frozen]) -> str:
    parts = ['"""Answers of a model as constants; written by `em workflow compile`."""\n']
    for one in frozen:
        if one.frozen:
            seen = f"{one.alike} of {one.runs} runs" if one.runs > 1 else "one run"
            note = f"    # The output of {one.step!r} in {seen}.\n"
            parts.append(f"\n\ndef {one.name}():\n{note}    return {one.value!r}\n")
    return "".join(parts)


class _Builder:
    """Build the routine and its recording, step by step."""

    def __init__(
        self,
        plan: Plan,
        past: PastWorkflow,
        views: Sequence[RunView],
        may_freeze: MayFreeze,
        effect_of: Callable[[str], Effect | None],
    ) -> None:
        self._plan = plan
        self._past = past
        self._views = views
        self._may_freeze = may_freeze
        self._effect_of = effect_of
        self._declared = {tool.name: tool for tool in plan.workflow.tools}
        self._inputs: Json = dict(past.params)
        self._tools: dict[str, ToolSpec] = {}
        self._steps: list[Step] = []
        self._recording: list[Call] = []
        # By step: the expression for its output in the routine.
        self._outputs: dict[str, str] = {}
        self.frozen: list[Frozen] = []
        self._let("params", {name: name for name in past.params})

    def build(self, name: str | None) -> Draft:
        view = self._views[0]
        ran = [step for step in self._ordered() if self._put(step)]
        last = self._outputs[ran[-1].name] if ran else "none"
        self._steps.append(ReturnStep(id="output", value=f"{{{{ {last} }}}}"))
        routine = Routine(
            name=name or identifier(view.workflow),
            description=self._plan.workflow.description,
            tools=list(self._tools.values()),
            input_schema=of_input(self._inputs),
            output_schema=kind_of(view.output),
            steps=self._steps,
        )
        document = {"version": "1", **msgspec.to_builtins(routine)}
        document["steps"] = [_in_order(step) for step in document["steps"]]
        recorded = Recorded(inputs=self._inputs, calls=self._recording, output=view.output)
        source = _constants(self.frozen)
        functions: Json = {}
        exec(compile(source, "udf.py", "exec"), functions)  # noqa: S102 - constants only
        own = {one.name: functions[one.name] for one in self.frozen if one.frozen}
        return Draft(
            document={key: part for key, part in document.items() if part},
            recordings=[recorded],
            output=view.output,
            udfs=GivenUdfs(own, source),
        )

    def _ordered(self) -> list[PlannedStep]:
        """Return the steps in an order in which each comes after those it waits for."""
        left, ordered = list(self._plan.steps), []
        while left:
            names = {step.name for step in left}
            step = next(step for step in left if not step.waits_for & names)
            left.remove(step)
            ordered.append(step)
        return ordered

    def _view(self, step: str, run: int = 0) -> StepView:
        return next(view for view in self._views[run].steps if view.name == step)

    def _put(self, step: PlannedStep) -> bool:
        """Add the routine's steps for one step; return whether it has an output."""
        definition, view = step.definition, self._view(step.name)
        variable = f"{definition.variable}_output"
        is_answer = definition.tool in ASKS_A_MODEL or definition.tool == "recall"
        if is_answer and definition.when is None:
            self._outputs[step.name] = variable
            outputs = [self._view(step.name, n) for n in range(len(self._views))]
            seen = [one.output for one in outputs if one.status == "done"]
            self._constant(variable, step.name, view.output, seen)
            return True
        if definition.tool == ROUTINE or is_answer:
            what = f"a step that calls {definition.tool!r}"
            condition = "" if definition.tool == ROUTINE else " and has `when`"
            raise WorkflowError(f"{what}{condition} can't be compiled", place=f"step {step.name}")
        self._let(f"{definition.variable}_memory", self._names(step))
        when = None if definition.when is None else _bare(definition.when)
        when = when and self._written(step, f"{{{{ {when} }}}}")[2:-2].strip()
        agreed = self._question(step, variable, when)
        if definition.tool == ASK:
            self._outputs[step.name] = _answer(variable, definition.inputs)
            return view.status == "done"
        may_lack = when is not None or definition.on_failure == "continue"
        wrapped = f"{variable}.output" if view.metadata or view.classification != "output" else ""
        output = wrapped or variable
        self._outputs[step.name] = f"({output} | default(''))" if may_lack else output
        self._call(step, variable, agreed or when, raw=bool(wrapped))
        return view.status == "done"

    def _let(self, name: str, parts: Mapping[str, str]) -> None:
        """Give templates the parameters, or the memory of a step, under one name."""
        if parts:
            value = {part: f"{{{{ {expression} }}}}" for part, expression in parts.items()}
            self._steps.append(LetStep(id=name, value=value, save_as=name))

    def _written(self, step: PlannedStep, value: Any) -> Any:
        """Write a value of a step with the name that its memory has in the routine."""
        return with_name(value, f"{step.definition.variable}_memory", f"step {step.name}")

    def _constant(self, name: str, step: str, value: Any, seen: Sequence[Any]) -> None:
        """Add a value: a constant if all runs agree or `may_freeze` allows it, else an input."""
        one = Frozen(
            name=name,
            step=step,
            value=value,
            runs=len(seen),
            alike=sum(identical(value, other) for other in seen),
            holds=_contained(value, self._past.params),
        )
        one = msgspec.structs.replace(one, frozen=one.is_sure or self._may_freeze(one))
        self.frozen.append(one)
        if not one.frozen:
            self._inputs[name] = value
            return
        self._steps.append(UdfStep(id=name.removesuffix("_output"), function=name, save_as=name))
        self._recording.append(Call(name, {}, value, is_udf=True))

    def _names(self, step: PlannedStep) -> dict[str, str]:
        """Return, for each name in the `memory` of a step, its expression in the routine."""
        names: dict[str, str] = {}
        for number, need in enumerate(step.needs):
            if need.kind in ("user_prompt", "parameters"):
                names |= {name: name for name in self._past.params}
            if need.kind == "classification":
                raise WorkflowError(
                    "a need for a classification can't be compiled",
                    place=f"step {step.name}, need {need.text}",
                    fix="name the step that it comes from: tool_output(STEP)",
                )
            names |= dict.fromkeys(need.variables, self._source(step, number))
        for _, text, bare in templates_of(step.definition):
            # A name without a value is an empty text, as in the workflow.
            named = (part for name, part in parts_in(text, bare=bare) if name == "memory")
            names |= {part: "''" for part in named if part not in names}
        return names

    def _source(self, step: PlannedStep, number: int) -> str:
        need = step.needs[number]
        if need.kind == "step":
            return self._outputs.get(need.target, "''")
        if need.kind == "last_output":
            return next(reversed(self._outputs.values()), "''")
        if need.kind == "parameters":
            pairs = ", ".join(f"{name!r}: {name}" for name in self._past.params)
            return f"{{{pairs}}}"
        if need.kind == "user_prompt":
            return self._prompt()
        assert need.kind in FETCHED
        name = f"{step.definition.variable}_{need.variables[0]}"
        seen = [self._view(step.name, n).memory for n in range(len(self._views))]
        values = [one.get(need.variables[0]) for one in seen]
        self._constant(name, f"{step.name}, {need.text}", values[0], values)
        return name

    def _prompt(self) -> str:
        """Return the input that has the prompt: the first required parameter, or `user_prompt`."""
        required = [param.name for param in self._plan.workflow.parameters if param.is_required]
        if required and str(self._past.params[required[0]]) == self._past.prompt:
            return required[0]
        self._inputs["user_prompt"] = self._past.prompt or ""
        return "user_prompt"

    def _question(self, step: PlannedStep, variable: str, when: str | None) -> str | None:
        """Add the question of a step to the routine.

        Return the condition under which the step then makes its call; None if it needs no other.
        A call behind a gate is made only if the person approves.
        """
        asked = question_of(step.definition)
        if asked is None:
            return None
        is_gate = step.definition.tool != ASK
        name = f"{step.definition.variable}_gate" if is_gate else variable
        prompt = msgspec.convert(self._written(step, asked), Prompt)
        self._steps.append(PromptStep(id=name, prompt=prompt, save_as=name, when=when))
        answers = self._past.run.restored.answers
        if step.name in answers:
            given = answers[step.name]
            answer = {field.name: given.get(field.name, field.default) for field in prompt.fields}
            question = Call(APPROVAL, {"message": prompt.message}, answer, effect="write")
            self._recording.append(question)
        if not is_gate:
            return None
        agreed = f"{name}.approve" if when is None else f"({when}) and {name}.approve"
        if step.definition.on_failure == "continue":
            return agreed
        message = "a person did not agree to this step"
        self._steps.append(
            AssertStep(id=f"{name}_check", check=f"{name}.approve", message=message, when=when)
        )
        return None

    def _call(self, step: PlannedStep, variable: str, when: str | None, *, raw: bool) -> None:
        definition, planned = step.definition, step.call.source
        assert isinstance(planned, ToolStep)
        tool, spec = definition.tool, self._declared.get(definition.tool)
        if tool in (COMMAND, HTTP):
            spec, _ = written_tool(definition)
            tool = spec.name
        elif spec is None:
            spec = ToolSpec(name=tool, effect=definition.effect or self._effect_of(tool))
        self._tools[tool] = spec
        if "run_id" in (definition.idempotency_key or ""):
            self._inputs["run_id"] = self._past.run_id
        call = msgspec.structs.replace(
            planned,
            id=definition.variable,
            tool=tool,
            when=when,
            save_as=variable,
            timeout=definition.timeout,
            effect=definition.effect,
            args=self._written(step, planned.args),
            for_each=self._written(step, planned.for_each),
            idempotency_key=self._written(step, planned.idempotency_key),
        )
        self._steps.append(call)
        self._record(step, spec, raw=raw)

    def _record(self, step: PlannedStep, spec: ToolSpec, *, raw: bool) -> None:
        view = self._view(step.name)
        if view.status != "done":
            return
        made = view.inputs if isinstance(view.inputs, list) else [view.inputs]
        effect = step.definition.effect or spec.effect or infer_effect(spec.name)
        outputs = view.output if step.call.for_each is not None else [view.output]
        for args, output in zip(made, outputs, strict=True):
            result = output
            if raw:
                result = {"output": output, "classification": view.classification}
                result |= {"metadata": view.metadata} if view.metadata else {}
            self._recording.append(Call(spec.name, args, result, effect=effect))


def _in_order(step: Json) -> Json:
    """Return the fields of a step in the order in which people read them."""
    first, last = ("id", "type", "when", "tool", "function", "args"), ("save_as",)
    names = [*first, *(name for name in step if name not in first + last), *last]
    return {name: step[name] for name in names if name in step}


def _bare(when: str | bool) -> str:
    if isinstance(when, bool):
        return "true" if when else "false"
    return whole_expression(when) or when


def _answer(variable: str, inputs: Json) -> str:
    """Return the expression for the answer to `ask`: its only field, or all fields."""
    fields = inputs.get("fields") or [{"name": "answer"}]
    return f"{variable}.{fields[0]['name']}" if len(fields) == 1 else variable


def _contained(value: Any, params: Json) -> list[str]:
    """Return the parameters whose values the value contains."""
    text = msgspec.json.encode(value).decode().lower()
    return [
        name
        for name, given in params.items()
        if isinstance(given, str) and len(given) > 2 and given.lower() in text
    ]
