"""Plan: a workflow compiled for the runner, and the check that finds every problem of one."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import msgspec

from em.errors import EmError, InvalidWorkflow
from em.runner.expressions.functions import SCOPE
from em.runner.expressions.language import (
    Evaluate,
    compile_expression,
    compile_value,
    names_in,
    syntax_of,
    texts_in,
    whole_expression,
)
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
from em.runner.tools import Tool, argument_problem
from em.runner.validation import Problem, Severity
from em.text.tags import FIELDS
from em.values import json_schema
from em.values.canonical import Json
from em.values.mismatch import Where, closest, shape_problems
from em.values.strict_yaml import LineNumbers, load_yaml_with_nodes, repeated_names
from em.workflows.definition import (
    FIELD,
    StepDef,
    WorkflowDef,
    WorkflowFile,
    read_workflow,
    said,
    workflows_in,
)
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
    "recall": (
        frozenset({"query"}),
        frozenset({"query", "k", "subject", "everybody", "since", "until", *FIELDS, "metadata"}),
    ),
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


def _needs(step: StepDef) -> list[Need]:
    place = f"step {step.name}, field memory.needs"
    return [parse_need(text, place) for text in step.memory.needs]


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
        fixed = step.when
        return None if fixed is None else lambda _scope: fixed
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
    own = step.gate if isinstance(step.gate, str) else getattr(step.gate, "message", "")
    message = own or f"Run the step {step.name} ({step.tool})?"
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


_SCOPE = frozenset({"params", "memory", "run_id"})


class Flaw(NamedTuple):
    """One problem of a workflow. `where` is the path to it in the definition."""

    where: Where
    message: str
    fix: str = ""
    severity: Severity = "error"


def refuse_invalid(workflow: WorkflowDef, tools: Mapping[str, Tool] | None, file: str) -> None:
    """Raise InvalidWorkflow with every problem if a workflow can't be run. Nothing is run."""
    _refuse(workflow, findings(workflow, tools), file)


def refuse_misfits(workflow: WorkflowDef, tools: Mapping[str, Tool], file: str) -> None:
    """Raise InvalidWorkflow if a workflow that is valid in itself can't be run with these tools."""
    _refuse(workflow, _tools(workflow, tools), file)


def _refuse(workflow: WorkflowDef, problems: Iterable[Flaw], file: str) -> None:
    found = [one for one in problems if one.severity == "error"]
    if not found:
        return
    first = found[0]
    told = [f"{_place(workflow, one.where)}: {one.message}" for one in found]
    others = f" (and {len(found) - 1} more; `em workflow validate` lists them)"
    more = others if len(found) > 1 else ""
    raise InvalidWorkflow(
        f"{first.message}{more}",
        place=f"{file}, workflow {workflow.name}, {_place(workflow, first.where)}",
        fix=first.fix,
        problems=told,
    )


def validate_file(
    file: WorkflowFile, name: str | None = None, tools: Mapping[str, Tool] | None = None
) -> list[Problem]:
    """Return the problems of a file's workflows by line; of one workflow if `name` is given.

    With `tools`, also check that each step's tool is there and takes the step's inputs.
    """
    try:
        value, root = load_yaml_with_nodes(file.text(), file.place, InvalidWorkflow)
        repeated = list(repeated_names(root))
        values = workflows_in(value, file.place)
    except InvalidWorkflow as error:
        _, _, line_text = error.place.rpartition(":")
        number = int(line_text) if line_text.isdecimal() else 1
        return [Problem(file.place, number, "YAML", error.message, error.fix)]
    problems = [
        Problem(file.place, one.line, "YAML", str(one), "keep one of them") for one in repeated
    ]
    if not values and not problems:
        fix = f"write them under `{FIELD}:`"
        problems.append(Problem(file.place, 1, "YAML", "the file has no workflows", fix))
    if name is not None:
        if name not in values:
            file.workflow(name)  # raises NotFound, which lists the names
        values = {name: values[name]}
    lines = LineNumbers(root)
    for own, raw in values.items():
        for one in _of_value(own, raw, tools):
            line = lines.of((FIELD, own, *one.where))
            place = f"workflow {own}, {_place_of(raw, one.where)}"
            problems.append(Problem(file.place, line, place, one.message, one.fix, one.severity))
    return sorted(problems, key=lambda problem: problem.line)


def _of_value(name: str, raw: Any, tools: Mapping[str, Tool] | None) -> Iterator[Flaw]:
    whole = said({**raw, "name": name})
    shape = [Flaw(*one) for one in shape_problems(whole, WorkflowDef)]
    if shape:
        yield from shape
        return
    yield from findings(read_workflow(whole, name), tools)


def findings(workflow: WorkflowDef, tools: Mapping[str, Tool] | None = None) -> list[Flaw]:
    """Return the problems of a workflow whose fields have the right types.

    Without `tools`, don't check that the tools of its steps are there.
    """
    found = [*_names(workflow), *_need_problems(workflow)]
    if any(one.severity == "error" for one in found):
        return found
    found += _order(workflow)
    found += _templates(workflow)
    found += _tools(workflow, tools)
    if not any(one.severity == "error" for one in found):
        try:
            Plan(workflow)
        except EmError as error:
            found.append(Flaw((), f"{error.place}: {error.message}".strip(": "), error.fix))
    return found


def _names(workflow: WorkflowDef) -> Iterator[Flaw]:
    if not workflow.steps:
        yield Flaw(("steps",), "the workflow has no steps", "write at least one")
    seen: set[str] = set()
    variables: dict[str, str] = {}
    for number, step in enumerate(workflow.steps):
        where: Where = ("steps", number, "name")
        if step.name in seen:
            yield Flaw(where, f"two steps are called {step.name!r}", "rename one of them")
        elif step.variable in variables:
            other = variables[step.variable]
            message = f"the steps {step.name!r} and {other!r} have the same name in templates"
            yield Flaw(where, f"{message}: {step.variable}", "rename one of them")
        seen.add(step.name)
        variables[step.variable] = step.name


def _need_problems(workflow: WorkflowDef) -> Iterator[Flaw]:
    names = [step.name for step in workflow.steps]
    for number, step in enumerate(workflow.steps):
        for position, text in enumerate(step.memory.needs):
            where: Where = ("steps", number, "memory", "needs", position)
            try:
                need = parse_need(text, "needs")
            except EmError as error:
                yield Flaw(where, error.message, error.fix)
                continue
            if need.kind == "step" and need.target not in names:
                words = names if "(" in text else [*names, *_WORDS]
                fix = closest(need.target, words) or f"there are: {', '.join(names)}"
                yield Flaw(where, f"there is no step {need.target!r}", fix)
            elif need.kind == "last_output" and workflow.is_parallel:
                message = "`last_output` is ambiguous in a parallel workflow"
                yield Flaw(where, message, "name the step: tool_output(STEP)")
        for other in step.waits_for:
            if other not in names:
                where = ("steps", number, "depends_on")
                fix = closest(other, names) or f"there are: {', '.join(names)}"
                yield Flaw(where, f"there is no step {other!r}", fix)


_WORDS = ("user_prompt", "last_output", "parameters")


def _order(workflow: WorkflowDef) -> Iterator[Flaw]:
    waits = {
        step.name: [
            *(need.target for need in _needs(step) if need.kind == "step"),
            *step.waits_for,
        ]
        for step in workflow.steps
    }
    numbers = {step.name: number for number, step in enumerate(workflow.steps)}
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        cycle = error.args[1][::-1]
        where: Where = ("steps", numbers[cycle[0]])
        message = f"these steps wait for each other: {' -> '.join(cycle)}"
        yield Flaw(where, message, "remove one of their `needs` or `depends_on`")
        return
    if workflow.is_parallel:
        return
    for name, others in waits.items():
        for other in others:
            if numbers[other] >= numbers[name]:
                yield Flaw(
                    ("steps", numbers[name]),
                    f"the step needs {other!r}, which runs later",
                    f"move it behind {other!r}, or set `parallel: true`",
                )


def _templates(workflow: WorkflowDef) -> Iterator[Flaw]:
    params = [param.name for param in workflow.parameters]
    for number, step in enumerate(workflow.steps):
        brought = _brought(step, params)
        own = {step.as_} if step.for_each is not None else set()
        env = {"env"} if step.tool in ("command", "http") else set()
        known = {*_SCOPE, *own, *env, *SCOPE}
        for inside, text, bare in templates_of(step):
            where: Where = ("steps", number, *inside)
            try:
                names = names_in(text, "", bare=bare)
                parts = list(parts_in(text, bare=bare))
                is_whole = _is_whole_memory(text, bare=bare)
            except EmError as error:
                yield Flaw(where, error.message, error.fix)
                continue
            if is_whole:
                message = "expected a part of `memory`, got all of it"
                yield Flaw(where, message, "write memory.NAME")
            for name in sorted(names - known):
                fix = closest(name, known) or "known names: params, memory" + (
                    f", {step.as_}" if own else ""
                )
                yield Flaw(where, f"{name!r} is not defined", fix)
            for name, part in parts:
                if name == "params" and part not in params:
                    fix = closest(part, params) or f"there are: {', '.join(params) or 'none'}"
                    yield Flaw(where, f"there is no parameter {part!r}", fix)
                if name == "memory" and part not in brought:
                    there = ", ".join(brought) or "nothing"
                    fix = closest(part, brought) or f"its needs bring: {there}"
                    message = f"no need of this step brings {part!r}, so it is empty"
                    yield Flaw(where, message, fix, "error" if workflow.strict else "warning")


def _brought(step: StepDef, params: list[str]) -> list[str]:
    """Return the names that a step's needs bring."""
    names: list[str] = []
    for need in _needs(step):
        if need.kind in ("user_prompt", "parameters"):
            names += params
        names += need.variables
    return names


def _is_whole_memory(text: str, *, bare: bool) -> bool:
    """Tell whether a template uses all of `memory`, which has parts but no text of its own."""
    from jinja2 import nodes

    tree = syntax_of(text, "", bare=bare)
    written = [part for output in tree.find_all(nodes.Output) for part in output.nodes]
    return any(isinstance(one, nodes.Name) and one.name == "memory" for one in [tree, *written])


def parts_in(text: str, *, bare: bool) -> Iterator[tuple[str, str]]:
    """Yield each reference to a part of `memory` or `params`, as (name, part)."""
    from jinja2 import nodes

    tree = syntax_of(text, "", bare=bare)
    every = [tree] if isinstance(tree, nodes.Getattr | nodes.Getitem) else []
    for node in [*every, *tree.find_all((nodes.Getattr, nodes.Getitem))]:
        if not isinstance(node.node, nodes.Name) or node.node.name not in ("memory", "params"):
            continue
        if isinstance(node, nodes.Getattr):
            yield node.node.name, node.attr
        elif isinstance(node.arg, nodes.Const):
            yield node.node.name, str(node.arg.value)


def _tools(workflow: WorkflowDef, tools: Mapping[str, Tool] | None) -> Iterator[Flaw]:
    declared = {tool.name for tool in workflow.tools}
    for number, step in enumerate(workflow.steps):
        where: Where = ("steps", number, "tool")
        own = (tools or {}).get(step.tool)
        if own is not None:
            problem = argument_problem(own, [*step.inputs, *_given_names(own)])
            if problem:
                yield Flaw(("steps", number, "inputs"), problem)
        elif step.tool in BUILT_IN:
            yield from _inputs(step, number)
        elif step.tool.startswith("mcp__"):
            continue  # which MCP servers there are is known when the workflow runs
        elif tools is not None and step.tool not in declared:
            known = [*BUILT_IN, *declared, *tools]
            fix = closest(step.tool, known) or "pass a module that defines it: --tools"
            yield Flaw(where, f"there is no tool {step.tool!r}", fix)


def _given_names(tool: Tool) -> list[str]:
    """Return the tool's parameters that em fills in itself."""
    return [name for name in ("memory_manager", "idempotency_key") if name in tool.parameters]


def _inputs(step: StepDef, number: int) -> Iterator[Flaw]:
    required, known = BUILT_IN[step.tool]
    where: Where = ("steps", number, "inputs")
    for name in sorted(required - step.inputs.keys()):
        yield Flaw(where, f"the tool {step.tool!r} needs the input {name!r}")
    for name in sorted(step.inputs.keys() - known, key=str):
        fix = closest(name, known) or f"its inputs are: {', '.join(sorted(known))}"
        yield Flaw((*where, name), f"the tool {step.tool!r} has no input {name!r}", fix)
    if step.tool == "recall" and "everybody" in step.inputs:
        yield from _everybody(step, (*where, "everybody"))
    schema = step.inputs.get("output_schema")
    if isinstance(schema, dict):
        for inside, problem in json_schema.schema_problems(schema):
            yield Flaw((*where, "output_schema", *inside), f"not a valid JSON Schema: {problem}")


def _everybody(step: StepDef, where: Where) -> Iterator[Flaw]:
    """Check that a search of everybody is written as such: no parameter may widen one."""
    if not isinstance(step.inputs["everybody"], bool):
        yield Flaw(where, "`everybody` must be true or false", "write everybody: true")
    elif step.inputs["everybody"] and "subject" in step.inputs:
        yield Flaw(where, "`everybody` and `subject` exclude each other", "leave one out")


def _place(workflow: WorkflowDef, where: Where) -> str:
    return _place_of(msgspec.to_builtins(workflow), where)


def _place_of(value: Any, where: Where) -> str:
    rest, start = where, ""
    if len(where) >= 2 and where[0] == "steps" and isinstance(where[1], int):
        step = value["steps"][where[1]]
        start = f"step {step.get('name', where[1]) if isinstance(step, dict) else where[1]}"
        rest = where[2:]
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
    field = parts.lstrip(".")
    if not start:
        return field or "workflow"
    return f"{start}, field {field}" if field else start
