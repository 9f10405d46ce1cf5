"""What `em run --dry-run` prints: the steps, what they call, and what they need."""

import os
import shlex

import click

from em.cli.output import print_json, print_table
from em.runner.package import Package
from em.runner.routine import ToolSpec


def print_plan(package: Package, *, as_json: bool) -> None:
    """The steps of a routine, with nothing run and no secret filled in."""
    kinds = [str(type(step).__struct_config__.tag) for step in package.routine.steps]
    specs = {name: package.routine.says_how(name) for name in package.program.tool_names}
    how = {name: _how(spec) for name, spec in specs.items() if spec is not None}
    rows = [
        (
            step.id,
            kind,
            step.target,
            "write" if step.is_write else "",
            how.get(step.target, "") if step.kind == "tool" else "",
        )
        for step, kind in zip(package.program.steps, kinds, strict=True)
    ]
    columns = ("step", "type", "calls", "effect", "how")
    secrets = {secret.name: secret.variable for secret in package.routine.secrets}
    if as_json:
        steps = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"steps": steps, "secrets": secrets})
        return
    print_table(columns, rows)
    for name, variable in secrets.items():
        is_set = "set" if os.environ.get(variable) else "not set"
        click.echo(f"secret {name} from {variable}, which is {is_set}")


def _how(tool: ToolSpec) -> str:
    """What a declared tool would do: as it is written, so that no secret is filled in."""
    if tool.command is not None:
        return shlex.join(tool.command).replace("'{{", "{{").replace("}}'", "}}")
    if tool.http is not None:
        return f"{tool.http.method} {tool.http.url.partition('?')[0]}"
    if tool.mcp is not None:
        server = shlex.join(tool.mcp.command) if tool.mcp.command else tool.mcp.url
        return f"{tool.tool_of_server} of {server.partition('?')[0]}"
    return ""
