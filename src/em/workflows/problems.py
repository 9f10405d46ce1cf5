"""Everything that is wrong with workflows at once, each with its file and line."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from em.errors import EmError, InvalidWorkflow
from em.runner.expressions.language import FUNCTIONS, names_in, syntax_of
from em.runner.tools import Tool, argument_problem
from em.runner.validation import Problem, Severity
from em.values import json_schema as schemas
from em.values.mismatch import Where, closest, shape_problems
from em.values.strict_yaml import Lines, load_yaml_with_nodes, repeated_names
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
from em.workflows.plan import BUILT_IN, Plan, templates_of

_SCOPE = frozenset({"params", "memory", "run_id"})


class Finding(NamedTuple):
    """One thing that is wrong, and where in the workflow."""

    where: Where
    message: str
    fix: str = ""
    severity: Severity = "error"


def refuse_invalid(workflow: WorkflowDef, tools: Mapping[str, Tool] | None, file: str) -> None:
    """Raise if a workflow can't be run: before anything runs, with all that is wrong."""
    found = [one for one in findings(workflow, tools) if one.severity == "error"]
    if not found:
        return
    first = found[0]
    told = [f"{_place(workflow, one.where)}: {one.message}" for one in found]
    more = f" (and {len(found) - 1} more: `em workflow validate`)" if len(found) > 1 else ""
    raise InvalidWorkflow(
        f"{first.message}{more}",
        place=f"{file}, workflow {workflow.name}, {_place(workflow, first.where)}",
        fix=first.fix,
        problems=told,
    )


def validate_file(
    file: WorkflowFile, name: str | None = None, tools: Mapping[str, Tool] | None = None
) -> list[Problem]:
    """What is wrong with the workflows of a file, or with one; with `tools`, those too."""
    try:
        value, root = load_yaml_with_nodes(file.text(), file.place, InvalidWorkflow)
        repeated = list(repeated_names(root))
        values = workflows_in(value, file.place)
    except InvalidWorkflow as error:
        _, _, told = error.place.rpartition(":")
        number = int(told) if told.isdecimal() else 1
        return [Problem(file.place, number, "YAML", error.message, error.fix)]
    problems = [
        Problem(file.place, one.line, "YAML", str(one), "keep one of them") for one in repeated
    ]
    if not values and not problems:
        fix = "write them under `workflows:`"
        problems.append(Problem(file.place, 1, "YAML", "there are no workflows in it", fix))
    if name is not None:
        if name not in values:
            file.workflow(name)  # raises, and says which there are
        values = {name: values[name]}
    lines = Lines(root)
    for own, raw in values.items():
        for one in _of_value(own, raw, tools):
            line = lines.of((FIELD, own, *one.where))
            place = f"workflow {own}, {_place_of(raw, one.where)}"
            problems.append(Problem(file.place, line, place, one.message, one.fix, one.severity))
    return sorted(problems, key=lambda problem: problem.line)


def _of_value(name: str, raw: Any, tools: Mapping[str, Tool] | None) -> Iterator[Finding]:
    whole = said({**raw, "name": name})
    shape = [Finding(*one) for one in shape_problems(whole, WorkflowDef)]
    if shape:
        yield from shape
        return
    yield from findings(read_workflow(whole, name), tools)


def findings(workflow: WorkflowDef, tools: Mapping[str, Tool] | None = None) -> list[Finding]:
    """What is wrong with a workflow whose shape is right. Without `tools`, none is looked for."""
    found = [*_names(workflow), *_needs(workflow)]
    if any(one.severity == "error" for one in found):
        return found
    found += _order(workflow)
    found += _templates(workflow)
    found += _tools(workflow, tools)
    if not any(one.severity == "error" for one in found):
        try:
            Plan(workflow)
        except EmError as error:
            found.append(Finding((), f"{error.place}: {error.message}".strip(": "), error.fix))
    return found


def _names(workflow: WorkflowDef) -> Iterator[Finding]:
    if not workflow.steps:
        yield Finding(("steps",), "it has no steps", "write at least one")
    seen: set[str] = set()
    variables: dict[str, str] = {}
    for number, step in enumerate(workflow.steps):
        where: Where = ("steps", number, "name")
        if step.name in seen:
            yield Finding(where, f"two steps are called {step.name!r}", "rename one")
        elif step.variable in variables:
            other = variables[step.variable]
            yield Finding(where, f"{step.name!r} and {other!r} are the same in a template")
        seen.add(step.name)
        variables[step.variable] = step.name


def _needs(workflow: WorkflowDef) -> Iterator[Finding]:
    names = [step.name for step in workflow.steps]
    for number, step in enumerate(workflow.steps):
        for position, text in enumerate(step.memory.needs):
            where: Where = ("steps", number, "memory", "needs", position)
            try:
                need = parse_need(text, "needs")
            except EmError as error:
                yield Finding(where, error.message, error.fix)
                continue
            if need.kind == "step" and need.target not in names:
                words = names if "(" in text else [*names, *_WORDS]
                fix = closest(need.target, words) or f"there are: {', '.join(names)}"
                yield Finding(where, f"there is no step {need.target!r}", fix)
            elif need.kind == "last_output" and workflow.is_parallel:
                message = "`last_output` means nothing where steps run side by side"
                yield Finding(where, message, "name the step: tool_output(…)")
        for other in step.waits_for:
            if other not in names:
                where = ("steps", number, "depends_on")
                fix = closest(other, names) or f"there are: {', '.join(names)}"
                yield Finding(where, f"there is no step {other!r}", fix)


_WORDS = ("user_prompt", "last_output", "parameters")


def _own_needs(step: StepDef) -> list[Need]:
    return [parse_need(text, "needs") for text in step.memory.needs]


def _waits(workflow: WorkflowDef) -> dict[str, list[str]]:
    return {
        step.name: [
            *(need.target for need in _own_needs(step) if need.kind == "step"),
            *step.waits_for,
        ]
        for step in workflow.steps
    }


def _order(workflow: WorkflowDef) -> Iterator[Finding]:
    waits = _waits(workflow)
    cycle = _cycle(waits)
    numbers = {step.name: number for number, step in enumerate(workflow.steps)}
    if cycle:
        where: Where = ("steps", numbers[cycle[0]])
        yield Finding(where, f"these steps wait for each other: {' -> '.join(cycle)}")
        return
    if workflow.is_parallel:
        return
    for name, others in waits.items():
        for other in others:
            if numbers[other] >= numbers[name]:
                yield Finding(
                    ("steps", numbers[name]),
                    f"it needs {other!r}, which comes later",
                    "put it behind that step, or write `parallel: true`",
                )


def _cycle(waits: Mapping[str, list[str]]) -> list[str]:
    """Steps that wait for each other, in a circle; none where all is well."""
    over: set[str] = set()
    for start in waits:
        path: list[str] = []
        todo = [(start, iter(waits[start]))]
        path.append(start)
        while todo:
            name, others = todo[-1]
            other = next(others, None)
            if other is None:
                todo.pop()
                path.pop()
                over.add(name)
            elif other in path:
                return [*path[path.index(other) :], other]
            elif other not in over:
                todo.append((other, iter(waits[other])))
                path.append(other)
    return []


def _templates(workflow: WorkflowDef) -> Iterator[Finding]:
    params = [param.name for param in workflow.parameters]
    for number, step in enumerate(workflow.steps):
        brought = _brought(step, params)
        own = {step.as_} if step.for_each is not None else set()
        env = {"env"} if step.tool in ("command", "http") else set()
        known = {*_SCOPE, *own, *env, *FUNCTIONS}
        for inside, text, bare in templates_of(step):
            where: Where = ("steps", number, *inside)
            try:
                names = names_in(text, "", bare=bare)
                parts = list(_parts(text, bare=bare))
                is_whole = _is_whole_memory(text, bare=bare)
            except EmError as error:
                yield Finding(where, error.message, error.fix)
                continue
            if is_whole:
                yield Finding(where, "`memory` is no text", "name what of it: memory.NAME")
            for name in sorted(names - known):
                fix = closest(name, known) or "there are: params, memory" + (
                    f", {step.as_}" if own else ""
                )
                yield Finding(where, f"{name!r} is not defined", fix)
            for name, part in parts:
                if name == "params" and part not in params:
                    fix = closest(part, params) or f"there are: {', '.join(params) or 'none'}"
                    yield Finding(where, f"there is no parameter {part!r}", fix)
                if name == "memory" and part not in brought:
                    fix = closest(part, brought) or f"its needs bring: {', '.join(brought) or '-'}"
                    message = f"no need of this step brings {part!r}: it is empty"
                    yield Finding(where, message, fix, "error" if workflow.strict else "warning")


def _brought(step: StepDef, params: list[str]) -> list[str]:
    """The names that a step's needs bring."""
    names: list[str] = []
    for need in _own_needs(step):
        if need.kind in ("user_prompt", "parameters"):
            names += params
        names += need.variables
    return names


def _is_whole_memory(text: str, *, bare: bool) -> bool:
    """Whether a text says `memory` itself, which has parts and no words."""
    from jinja2 import nodes

    tree = syntax_of(text, "", bare=bare)
    said = [part for output in tree.find_all(nodes.Output) for part in output.nodes]
    return any(isinstance(one, nodes.Name) and one.name == "memory" for one in [tree, *said])


def _parts(text: str, *, bare: bool) -> Iterator[tuple[str, str]]:
    """`memory.x` and `params.x` in a text."""
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


def _tools(workflow: WorkflowDef, tools: Mapping[str, Tool] | None) -> Iterator[Finding]:
    declared = {tool.name for tool in workflow.tools}
    for number, step in enumerate(workflow.steps):
        where: Where = ("steps", number, "tool")
        own = (tools or {}).get(step.tool)
        if own is not None:
            problem = argument_problem(own, [*step.inputs, *_given_names(own)])
            if problem:
                yield Finding(("steps", number, "inputs"), problem)
        elif step.tool in BUILT_IN:
            yield from _inputs(step, number)
        elif step.tool.startswith("mcp__"):
            continue  # the user's own servers are known when it is run
        elif tools is not None and step.tool not in declared:
            known = [*BUILT_IN, *declared, *tools]
            fix = closest(step.tool, known) or "give a module that has it: --tools"
            yield Finding(where, f"there is no tool {step.tool!r}", fix)


def _given_names(tool: Tool) -> list[str]:
    """What em itself passes to a function that asks for it."""
    return [name for name in ("memory_manager", "idempotency_key") if name in tool.parameters]


def _inputs(step: StepDef, number: int) -> Iterator[Finding]:
    required, known = BUILT_IN[step.tool]
    where: Where = ("steps", number, "inputs")
    for name in sorted(required - step.inputs.keys()):
        yield Finding(where, f"the tool {step.tool!r} needs the input {name!r}")
    for name in sorted(step.inputs.keys() - known, key=str):
        close = get_close_matches(str(name), known, 1)
        fix = f"did you mean {close[0]!r}?" if close else f"it takes: {', '.join(sorted(known))}"
        yield Finding((*where, name), f"the tool {step.tool!r} takes no input {name!r}", fix)
    schema = step.inputs.get("output_schema")
    if isinstance(schema, dict):
        for inside, problem in schemas.schema_problems(schema):
            yield Finding((*where, "output_schema", *inside), f"this is no JSON Schema: {problem}")


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
