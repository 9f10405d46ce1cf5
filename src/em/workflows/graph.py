"""The graph of a workflow: which step waits for which, as text or Mermaid."""

from em.workflows.plan import Plan, PlannedStep


def edges(plan: Plan) -> list[tuple[str, str, str]]:
    """From a step to one that uses it, and why."""
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
    """One line for each step, with what it gets."""
    lines = []
    for step in plan.steps:
        definition = step.definition
        marks = [
            *(["gate"] if definition.gate else []),
            *(["when"] if definition.when is not None else []),
            *(["for each"] if definition.for_each is not None else []),
        ]
        told = f" [{', '.join(marks)}]" if marks else ""
        wants = [*definition.memory.needs, *(f"after {name}" for name in definition.waits_for)]
        gets = f"  <- {', '.join(wants)}" if wants else ""
        lines.append(f"{step.name} ({definition.tool}){told}{gets}")
    return "\n".join(lines)


def as_mermaid(plan: Plan) -> str:
    """A Mermaid flow chart."""
    numbers = {step.name: f"s{n}" for n, step in enumerate(plan.steps)}
    lines = ["flowchart TD"]
    for step in plan.steps:
        shown = f"{step.name}<br/>{step.definition.tool}".replace('"', "'")
        lines.append(f'    {numbers[step.name]}["{shown}"]')
    for source, target, why in edges(plan):
        arrow = "-->" if why == "needs" else f"-. {why} .->"
        lines.append(f"    {numbers[source]} {arrow} {numbers[target]}")
    return "\n".join(lines)
