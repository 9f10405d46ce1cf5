"""`em runs`: past runs."""

from typing import Any

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.outcome import failure_lines
from em.cli.output import count, print_json, print_table
from em.cli.savings import print_saved, saved_as_json
from em.errors import EmError
from em.runner.history import RunSummary, find_runs
from em.runner.journal import how_to_resume, read_run


@click.group("runs", no_args_is_help=True)
@everywhere
def command() -> None:
    """Look at past runs of routines."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@everywhere
@click.pass_context
def list_(ctx: click.Context, limit: int) -> None:
    """The newest runs, with what became of them."""
    store = open_memory(ctx).store
    runs = [_shown(run) for run in reversed(find_runs(store, limit=limit).runs)]
    if ctx.obj["json"]:
        print_json({"runs": runs})
    elif runs:
        columns = ("run", "began", "status", "steps", "routine")
        print_table(columns, [tuple(str(run[name]) for name in columns) for run in runs])
    else:
        click.echo("no runs yet; `em run` makes one", err=True)


def _shown(run: RunSummary) -> dict[str, Any]:
    return {
        "run": run.run_id,
        "began": run.began.strftime("%Y-%m-%d %H:%M:%S"),
        "status": run.status,
        "steps": run.steps,
        "routine": run.routine,
    }


@command.command("show")
@click.argument("run_id", metavar="RUN")
@everywhere
@click.pass_context
def show(ctx: click.Context, run_id: str) -> None:
    """One run: its steps with their times, how it ended, and what it saved."""
    store = open_memory(ctx).store
    past = read_run(store, run_id)
    steps = [body for kind, body in past.notes if kind == "step_done"]
    last = past.notes[-1][1]
    if ctx.obj["json"]:
        print_json(
            {
                "run": run_id,
                "status": past.status,
                "input": past.input,
                "steps": steps,
                "end": last,
                "saved": saved_as_json(store, past) if past.status == "ok" else None,
            }
        )
        return
    rows = [
        (
            str(step["step"]) + ("" if step.get("item") is None else f"[{step['item']}]"),
            str(step.get("status", "")),
            f"{step.get('duration_ms', 0):.1f}",
            str(step.get("attempts", "")),
            str(step.get("error") or msgspec.json.encode(step.get("result")).decode())[:400],
        )
        for step in steps
    ]
    if rows:
        print_table(("step", "status", "ms", "attempts", "result"), rows)
    failure = last.get("failure") if past.status == "failed" else None
    for step, item in sorted(past.restored.in_flight, key=str):
        if failure and failure["step_id"] == step:
            continue
        click.echo(f"under way when it stopped: {step}" + ("" if item is None else f"[{item}]"))
    click.echo(f"{past.status}: {count(len(steps), 'step')} in {past.folder or past.stored}")
    for line in failure_lines(failure) if failure else ():
        if line:
            click.echo(line)
    if past.status == "ok":
        click.echo()
        print_saved(store, past)
    if past.status == "ok" and any(step.get("fix") for step in steps):
        _propose(ctx, run_id)
    if past.status in ("running", "needs_input"):
        click.echo(f"  go on with: {how_to_resume(run_id, past.resume_with)}", err=True)


def _propose(ctx: click.Context, run_id: str) -> None:
    """How the routine would do without the fixes of this run."""
    from em.cli.routine import print_healing

    try:
        healing = open_memory(ctx).heal(run_id, dry_run=True)
    except EmError as error:
        click.echo(f"the fixes of this run can't be made a part of the routine: {error}")
        return
    click.echo("\nthe fixes of this run, as a change of the routine:")
    print_healing(healing, run_id)
