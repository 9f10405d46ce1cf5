"""Plan: a workflow compiled for the runner, with each step's call, needs and question."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from em.errors import EmError, InvalidWorkflow
from em.runner.expressions.language import (
    Evaluate,
    compile_expression,
    compile_value,
    names_in,
    whole_expression,
)
from em.runner.expressions.references import texts_in
from em.runner.routine import (
    CompiledStep,
    Program,
    Prompt,
    PromptStep,
    Retry,
    Routine,
    ToolSpec,
    ToolStep,
)
from em.values.canonical import Json
from em.workflows.definition import StepDef, WorkflowDef, read_workflow
from em.workflows.needs import Need, parse_need

COMMAND, HTTP, ASK, ROUTINE = "command", "http", "ask", "run_routine"
BUILT_IN: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "model_call": (
        frozenset({"prompt"}),
        frozenset(
            {"provider", "model", "prompt", "system", "max_tokens", "temperature", "output_schema"}
        ),
    ),
    "parallel_query": (
        frozenset({"prompt", "models"}),
        frozenset({"prompt", "models", "system", "max_tokens", "temperature", "least"}),
    ),
    ROUTINE: (frozenset({"routine"}), frozenset({"routine", "input"})),
    "recall": (frozenset({"query"}), frozenset({"query", "k", "subject"})),
    ASK: (frozenset({"message"}), frozenset({"message", "fields"})),
    COMMAND: (frozenset({"command"}), frozenset({"command", "env", "output"})),
    HTTP: (
        frozenset({"url"}),
        frozenset({"url", "method", "query", "headers", "json", "body", "output"}),
    ),
}
"""The tools that every workflow has: the inputs each must have, and those it may have."""

ASKS_A_MODEL = frozenset({"model_call", "parallel_query"})
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
APPROVE = "approve"


class PlannedStep:
    """A step, ready to run."""

    __slots__ = ("asks", "before", "call", "definition", "name", "needs", "prompt", "waits_for")

    def __init__(self, definition: StepDef, call: CompiledStep, needs: Sequence[Need]) -> None:
        self.definition = definition
        self.name = definition.name
        self.call = call
        self.needs = needs
        call.when = _compiled_when(definition)
        # The question before the step: for an answer, or for approval.
        self.asks = _asked(definition)
        self.prompt = None if self.asks is None else CompiledStep(self.asks, None)
        call.gate = self.prompt
        # The steps whose slices it may see.
        self.before: frozenset[str] = frozenset()
        # The steps that must end before it begins, in a parallel workflow.
        needed = {need.target for need in needs if need.kind == "step"}
        self.waits_for = frozenset(needed | set(definition.waits_for))


class Plan:
    """A workflow, ready to run."""

    def __init__(self, workflow: WorkflowDef) -> None:
        self.workflow = workflow
        specs = {tool.name: tool for tool in workflow.tools}
        made = [_tool_step(step, specs, workflow) for step in workflow.steps]
        routine = Routine(
            name=workflow.name,
            tools=[spec for _, spec in made if spec is not None],
            steps=[step for step, _ in made],
        )
        try:
            self.program = Program(routine)
            self.steps = [
                PlannedStep(definition, call, _needs(definition))
                for definition, call in zip(workflow.steps, self.program.steps, strict=True)
            ]
        except InvalidWorkflow:
            raise
        except EmError as error:
            raise InvalidWorkflow(error.message, place=error.place, fix=error.fix) from None
        # The tool that each step names.
        self.tools = {step.name: step.definition.tool for step in self.steps}
        self._by_name = {step.name: step for step in self.steps}
        questions = [step.asks for step in self.steps if step.asks is not None]
        # Every question, as prompt steps.
        self.questions = Routine(name=workflow.name, steps=questions)
        self._see()

    def _see(self) -> None:
        """Set what each step sees: the steps before it, or in a parallel run those it waits for."""
        names: list[str] = []
        for step in self.steps:
            step.before = frozenset(names)
            names.append(step.name)
        if self.workflow.is_parallel:
            above = {step.name: step.waits_for for step in self.steps}
            for step in self.steps:
                step.before = frozenset(_all_above(step.name, above))

    def step(self, name: str) -> PlannedStep:
        """Return the step of that name."""
        return self._by_name[name]


def plan_of(definition: Json) -> Plan:
    """Plan a workflow from its plain value; the same value is planned once."""
    return _planned(msgspec.json.encode(definition))


@lru_cache(maxsize=64)
def _planned(text: bytes) -> Plan:
    return Plan(read_workflow(msgspec.json.decode(text), "workflow"))


def _all_above(name: str, above: dict[str, frozenset[str]]) -> set[str]:
    found: set[str] = set()
    todo = list(above[name])
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += above.get(one, ())
    return found


def needs_of(step: StepDef, place: str) -> list[Need]:
    """Parse the needs of a step."""
    return [parse_need(text, place) for text in step.memory.needs]


def _needs(step: StepDef) -> list[Need]:
    return needs_of(step, f"step {step.name}, field memory.needs")


def _tool_step(
    step: StepDef, specs: dict[str, ToolSpec], workflow: WorkflowDef
) -> tuple[ToolStep, ToolSpec | None]:
    """Return the call of a step, and its declared tool if it has one."""
    spec = specs.get(step.tool) or Routine(name="", tools=workflow.tools).says_how(step.tool)
    args = step.inputs
    if step.tool in (COMMAND, HTTP):
        spec, args = written_tool(step)
    elif step.tool == ASK:
        args = {}
    if spec is not None:
        spec = spec.renamed(step.name)
    retry = Retry(attempts=step.retry) if isinstance(step.retry, int) else step.retry
    return (
        ToolStep(
            id=step.name,
            tool=step.name,
            args=args,
            save_as=step.name,
            for_each=_for_each(step),
            as_=step.as_,
            parallel=step.parallel,
            retry=retry,
            timeout=step.timeout or workflow.timeout,
            on_error="continue" if step.on_failure == "continue" else "fail",
            # The tool decides whether its call has an effect.
            effect=step.effect or "read",
            idempotency_key=_key(step),
        ),
        spec,
    )


def _key(step: StepDef) -> str | None:
    """Return the idempotency key; a routine's default key resumes its run if repeated."""
    if step.tool != ROUTINE or step.idempotency_key is not None:
        return step.idempotency_key
    item = f"/{{{{ {step.as_} }}}}" if step.for_each is not None else ""
    return f"{{{{ run_id }}}}/{step.name}{item}"


def _for_each(step: StepDef) -> Any:
    """Wrap a bare expression in braces."""
    given = step.for_each
    if isinstance(given, str) and "{{" not in given and "{%" not in given:
        return f"{{{{ {given} }}}}"
    return given


def written_tool(step: StepDef) -> tuple[ToolSpec, Json]:
    """Turn an inline command or request into a declared tool; its values become arguments."""
    args: Json = {}
    written = _hoisted(step.inputs, args)
    value: Json = {"name": step.name, "effect": step.effect}
    if step.tool == COMMAND:
        value |= written
    else:
        value["output"] = written.pop("output", None)
        value["http"] = written
    try:
        return msgspec.convert(value, ToolSpec), args
    except msgspec.ValidationError as error:
        raise InvalidWorkflow(str(error), place=f"step {step.name}, field inputs") from None


def _hoisted(value: Any, args: Json) -> Any:
    if isinstance(value, dict):
        return {key: _hoisted(item, args) for key, item in value.items()}
    if isinstance(value, list):
        return [_hoisted(item, args) for item in value]
    if not isinstance(value, str):
        return value
    if "{%" in value:
        return _argument(value, args)
    return _EXPRESSION.sub(lambda found: _kept_or_argument(found, args), value)


def _kept_or_argument(found: re.Match[str], args: Json) -> str:
    # The tool itself reads environment variables; they are never stored.
    is_env = "env" in names_in(found[1], "inputs", bare=True)
    return found[0] if is_env else _argument(found[0], args)


def _argument(template: str, args: Json) -> str:
    name = f"value_{len(args) + 1}"
    args[name] = template
    return f"{{{{ {name} }}}}"


def _compiled_when(step: StepDef) -> Evaluate | None:
    if step.when is None or isinstance(step.when, bool):
        said = step.when
        return None if said is None else lambda _scope: said
    place = f"step {step.name}, field when"
    whole = whole_expression(step.when)
    if whole is None and "{%" in step.when:
        return compile_value(step.when, place)
    return compile_expression(step.when if whole is None else whole, place)


def _asked(step: StepDef) -> PromptStep | None:
    asked = question_of(step)
    if asked is None:
        return None
    try:
        prompt = msgspec.convert(asked, Prompt)
    except msgspec.ValidationError as error:
        raise InvalidWorkflow(str(error), place=f"step {step.name}, field inputs") from None
    return PromptStep(id=step.name, prompt=prompt)


def question_of(step: StepDef) -> Json | None:
    """Return the question of a step as it is written."""
    if step.tool == ASK:
        fields = step.inputs.get("fields") or [{"name": "answer"}]
        return {"message": step.inputs.get("message", ""), "fields": fields}
    if step.gate is None or step.gate is False:
        return None
    said = step.gate if isinstance(step.gate, str) else getattr(step.gate, "message", "")
    message = said or f"Run the step {step.name} ({step.tool})?"
    return {"message": message, "fields": [{"name": APPROVE, "type": "confirm"}]}


def templates_of(step: StepDef) -> Iterator[tuple[tuple[str | int, ...], str, bool]]:
    """Yield the texts of a step that may hold expressions: path, text, whether it is bare."""
    yield from _texts(step.inputs, ("inputs",))
    if isinstance(step.when, str):
        whole = whole_expression(step.when)
        is_text = whole is None and "{%" in step.when
        yield ("when",), step.when if whole is None else whole, not is_text
    yield from _texts(_for_each(step), ("for_each",))
    question = None if step.tool == ASK else question_of(step)
    yield from _texts((question or {}).get("message"), ("gate",))
    yield from _texts(step.idempotency_key, ("idempotency_key",))
    for number, text in enumerate(step.memory.needs):
        yield ("memory", "needs", number), text, False


def _texts(
    value: Any, where: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str, bool]]:
    return ((path, text, False) for path, text in texts_in(value, where))
