"""`em workflow compile`: a run becomes a routine."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, printable
from em.cli.workflow_tools import load_tools, with_tools
from em.errors import UsageError
from em.runner.library import keep_routine
from em.runner.package import write_files
from em.values.mismatch import closest
from em.workflows.to_routine import Frozen


@click.command("compile")
@click.argument("run_id", metavar="RUN")
@click.option("-o", "--output", required=True, metavar="DIR", help="Where to write the package.")
@click.option("--name", help="The routine's name.  [the workflow's]")
@click.option("--freeze", multiple=True, metavar="STEP", help="Freeze what this step said.")
@click.option("--yes", is_flag=True, help="Freeze whatever the model said, without a question.")
@click.option("--keep", is_flag=True, help="Keep it in the log too, to be run by its name.")
@with_tools
@everywhere
@click.pass_context
def compile_(
    ctx: click.Context,
    /,
    run_id: str,
    output: str,
    name: str | None,
    freeze: Sequence[str],
    yes: bool,
    keep: bool,
    tools: str | None,
) -> None:
    """Make a routine of RUN that needs no model.

    What a model said alike in several runs becomes a constant. For the rest you are asked; what you
    don't freeze becomes an input of the routine.
    """
    workflows = open_memory(ctx).workflows(None, load_tools(tools))
    ask = sys.stdin.isatty() and not ctx.obj["json"]

    def may_freeze(one: Frozen) -> bool:
        return yes or one.step in freeze or (ask and _ask_to_freeze(one))

    made = workflows.compile(run_id, may_freeze, name=name)
    unknown = sorted(set(freeze) - {one.step for one in made.frozen})
    if unknown:
        steps = [one.step for one in made.frozen]
        fix = closest(unknown[0], steps) or f"there are: {', '.join(steps) or 'none'}"
        raise UsageError(f"no model was asked by {unknown[0]!r}", place="--freeze", fix=fix)
    write_files(made.files, Path(output))
    ref = keep_routine(workflows.store, made.files, made.from_events).ref if keep else ""
    if ctx.obj["json"]:
        told = [msgspec.structs.replace(one, value=None) for one in made.frozen]
        print_json({"folder": output, "kept": ref, "inputs": made.inputs, "frozen": told})
        return
    for one in made.frozen:
        seen = f"the same in {one.alike} of {count(one.runs, 'run')}"
        what = "frozen" if one.frozen else f"an input, {one.name}"
        click.echo(f"{printable(one.step)}: {what} ({seen})")
    click.echo(f"written to {output}" + (f", kept as {ref}" if ref else ""), err=True)


def _ask_to_freeze(one: Frozen) -> bool:
    text = one.value if isinstance(one.value, str) else msgspec.json.encode(one.value).decode()
    click.echo(f"{printable(one.step)} said: {printable(text[:400])}", err=True)
    click.echo(f"the same in {one.alike} of {count(one.runs, 'run')}", err=True)
    if one.holds:
        click.echo(f"it holds the value of: {', '.join(one.holds)}", err=True)
    return click.confirm("Freeze it? Else it becomes an input", default=False, err=True)
