"""`em workflow`: run workflows, resume them, and show what their steps were given and returned."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from em.cli.command import group
from em.cli.conversation import (
    Watcher,
    converse,
    how_to_answer,
    print_failure,
    print_interrupted,
    print_prompt,
)
from em.cli.options import (
    allowed,
    answering,
    as_typed,
    listed,
    listing,
    load_tools,
    open_memory,
    pairs,
    read_object,
    with_tools,
)
from em.cli.output import (
    Columns,
    count,
    emit,
    emit_list,
    note,
    print_error,
    print_fields,
    print_json,
    printable,
    wants_json,
)
from em.cli.queue import enqueue
from em.cli.routine import print_problems
from em.cli.run import OF_RUNS
from em.errors import NotFound, UsageError, WorkflowError
from em.runner.history import STATUSES, RunFilter, find_runs
from em.runner.journal import how_to_resume
from em.runner.tools import ToolRegistry
from em.values.times import new_id, parse_duration
from em.workflows.definition import WorkflowFile, typed_params
from em.workflows.inspection import (
    WorkflowResult,
    as_mermaid,
    as_text,
    edges,
    rehearse,
)
from em.workflows.plan import Plan, refuse_invalid, validate_file
from em.workflows.runs import Workflows

F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 400
"""Characters of a text that are shown without --full."""


def _in_file(function: F) -> F:
    return click.option(
        "-f", "--file", metavar="FILE", help="The file of the workflows.  [em.yaml]"
    )(function)


@group("workflow")
def workflow() -> None:
    """Run workflows whose steps name the context they need, and show what each step got."""


workflow.add_command(enqueue)


@workflow.command("list")
@_in_file
def list_(file: str | None) -> None:
    """List the workflows of em.yaml or of another file."""
    source = WorkflowFile(file)
    found = [source.workflow(name) for name in source.values()]
    columns: Columns = {
        "workflow": "name",
        "params": lambda one: [
            param.name if param.is_required else f"{param.name}={param.default}"
            for param in one.parameters
        ],
        "steps": lambda one: len(one.steps),
        "description": "description",
    }
    none = f"no workflows in {file or 'em.yaml'}; write them under `workflows:`"
    emit_list("workflows", found, columns, none=none)


@workflow.command("run")
@click.argument("name")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@click.option(
    "--params",
    "params_file",
    metavar="JSON|FILE",
    help="Parameters as JSON, or a file with it; - for stdin.",
)
@click.option("--prompt", help="What the user asked for.  [the first required parameter]")
@click.option("--dry-run", is_flag=True, help="Only show the inputs of each step.")
@click.option("--run-id", help="Resume this run, or start it under this id.")
@click.option("--subject", metavar="NAME", help="Who the run is about. Forgotten with them.")
@_in_file
@with_tools
@answering
def run(
    *,
    name: str,
    params: Sequence[str],
    params_file: str | None,
    prompt: str | None,
    dry_run: bool,
    run_id: str | None,
    subject: str | None,
    **shared: Any,
) -> int:
    """Run the workflow NAME. Every step is written to a journal: see `em resume`."""
    answers, yes = shared.pop("answers"), shared.pop("yes")
    file = shared.pop("file")
    read = read_object(params_file) if params_file else {}
    given = read | typed_params(WorkflowFile(file).workflow(name), pairs(params))
    if dry_run:
        tools = load_tools(shared["tools"]) or ToolRegistry()
        steps = rehearse(WorkflowFile(file), name, tools, given, prompt)
        emit({"steps": steps})
        return 0
    workflows = _workflows(file, shared, create=True)
    options = as_typed(shared)
    run_id = run_id or new_id()

    def start(replies: dict[str, Any], watcher: Watcher) -> WorkflowResult:
        return workflows.start(
            name,
            given,
            prompt=prompt,
            run_id=run_id,
            answers=replies,
            on_step=watcher.ended,
            on_start=watcher.began,
            resume_with=options,
            subject=subject,
        )

    replies = read_object(answers) if answers else {}
    result = converse(start, start, replies, yes=yes)
    return _print_end(workflows, run_id, result, options)


def resume_workflow(
    run_id: str, *, answers: dict[str, Any], yes: bool, shared: dict[str, Any], **again: Any
) -> int:
    """Go on with a run of a workflow: `em resume`; return the exit code."""
    taken = {name: value for name, value in shared.items() if name in _OF_WORKFLOWS}
    if odd := as_typed({name: shared[name] for name in shared.keys() - taken.keys()}):
        raise UsageError(
            "a workflow takes no such option", place=odd.split()[0], fix="leave it out"
        )
    workflows = _workflows(None, taken)

    def go(replies: dict[str, Any], watcher: Watcher) -> WorkflowResult:
        return workflows.resume(
            run_id, answers=replies, on_step=watcher.ended, on_start=watcher.began, **again
        )

    return _print_end(workflows, run_id, converse(go, go, answers, yes=yes), as_typed(taken))


_OF_WORKFLOWS = {"tools", "allow_command", "allow_folder", "allow_host", "allow_env"}
"""Options of `em resume` that a workflow takes."""


@workflow.command("inspect")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--recent", is_flag=True, help="Show the newest run.")
@click.option(
    "--all", "every", is_flag=True, help="List runs, the newest first, and what is in memory."
)
@click.option("--full", is_flag=True, help="Don't shorten texts.")
@click.option("--workflow", "name", help="List only runs of this workflow.")
@click.option("--status", type=click.Choice(STATUSES), help="List only runs with this status.")
@listing(50)
def inspect(
    run_id: str | None,
    recent: bool,
    every: bool,
    full: bool,
    name: str | None,
    status: str | None,
    limit: int,
    **chosen: Any,
) -> None:
    """Show what each step of a run was given and returned.

    It also shows the tokens that this saved against the full context. Without RUN and --recent,
    runs are listed; with --all, also how many runs, steps and bytes are in memory by workflow.
    """
    if sum((run_id is not None, recent, every)) > 1:
        raise UsageError("give only one of RUN, --recent and --all", place="inspect")
    workflows = _workflows()
    if run_id is None and not recent:
        only = listed(**chosen)
        wanted: RunFilter = {
            "name": name,
            "status": status,
            "subjects": only["subjects"],
            "since": only["since"],
            "until": only["until"],
        }
        before = only["before"]
        page = find_runs(workflows.store, "workflow", before=before, limit=limit, **wanted)
        left: dict[str, Any] = {"memory": workflows.statistics(**wanted)} if every else {}
        none = "no workflow runs yet; `em workflow run` makes one"
        columns: Columns = {**OF_RUNS, "workflow": "routine"}
        emit_list("runs", page.runs, columns, none=none, older=page.older, more=left)
        if every and not wants_json():
            print_fields(left)
        return
    if run_id is None:
        newest = workflows.runs(limit=1)
        if not newest:
            raise NotFound("there are no workflow runs yet", fix="`em workflow run` makes one")
        run_id = newest[0].run_id
    view = workflows.inspect(run_id)
    emit(view, lambda: print_fields(view, longest=None if full else LONGEST))
    if view.status in ("running", "needs_input"):
        note(f"  resume with: {how_to_resume(view.run_id, view.resume_with)}")


@workflow.command("cleanup")
@click.option(
    "--older-than", default="30d", show_default=True, metavar="AGE", help="An age: 30d, 12h."
)
@click.option("--dry-run", is_flag=True, help="Only list what would be erased.")
def cleanup(older_than: str, dry_run: bool) -> None:
    """Erase the memory of old runs. Runs that something refers to stay."""
    age = parse_duration(older_than, "--older-than", bare_unit="d")
    done = _workflows().cleanup(age / timedelta(days=1), dry_run=dry_run)

    def text() -> None:
        for run_id in done.runs:
            click.echo(run_id)
        for run_id, why in done.left.items():
            note(f"{run_id} stays: {why}")
        what = "would be erased" if dry_run else "erased"
        runs = count(len(done.runs), "run")
        note(f"{what}: {runs}, {done.events:,} entries, {done.bytes:,} bytes")
        if not done.scrubbed:
            note("erased, not yet scrubbed from the disk: run `em forget --finish`")

    emit(done, text)


@workflow.command("validate")
@click.argument("name", required=False)
@_in_file
@with_tools
def validate(name: str | None, file: str | None, tools: str | None) -> int:
    """List every problem of the workflows, with file and line. Exit code 1 if there is an error."""
    return print_problems(validate_file(WorkflowFile(file), name, load_tools(tools)))


@workflow.command("graph")
@click.argument("name")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid flow chart.")
@_in_file
def graph(name: str, mermaid: bool, file: str | None) -> None:
    """Show for each step of a workflow which other steps use its output."""
    source = WorkflowFile(file)
    found = source.workflow(name)
    refuse_invalid(found, None, source.place)
    plan = Plan(found)
    chart = as_mermaid(plan) if mermaid else as_text(plan)
    emit(
        {"edges": [{"from": a, "to": b, "why": why} for a, b, why in edges(plan)]},
        "\n".join(map(printable, chart.split("\n"))),
    )


def _workflows(
    file: str | None = None, shared: Mapping[str, Any] | None = None, *, create: bool = False
) -> Workflows:
    shared = shared or {}
    memory = open_memory(create=create)
    allow = allowed(Path("/"), shared) if shared else None
    return memory.workflows(file, load_tools(shared.get("tools")), allow=allow)


def _print_end(
    workflows: Workflows, run_id: str, result: WorkflowResult | None, options: str
) -> int:
    """Print how a run ended, or how to resume it; return the exit code."""
    if result is None:
        return print_interrupted(workflows.store, run_id, how_to_resume(run_id, options))
    emit(result, lambda: _print_result(result, options))
    return 0 if result.status == "ok" else 1


def _print_result(result: WorkflowResult, options: str) -> None:
    for warning in result.warnings:
        click.echo(click.style("warning: ", fg="yellow") + printable(warning), err=True)
    again = how_to_resume(result.run_id, options)
    if result.failure is not None:
        print_failure(result.failure)
        note(f"  inspect it with: em workflow inspect {result.run_id}")
        note(f"  retry the failed step with: {again} --retry")
    elif result.pending_prompt is not None:
        print_prompt(result.pending_prompt)
        note(f"  try: {again} {how_to_answer(result.pending_prompt)}")
    elif result.status != "ok":
        place = f"run {result.run_id}"
        fix = f"go on where it stopped: {again} --retry" if result.status == "cancelled" else ""
        over = WorkflowError(f"this run is over: {result.status}", place=place, fix=fix)
        print_error(over, as_json=False)
    elif result.output in (None, ""):
        note(f"done, in {count(len(result.steps), 'step')}; it returns nothing")
    elif isinstance(result.output, str):
        click.echo(result.output)
    else:
        print_json(result.output)
    if result.status == "ok" and sys.stderr.isatty():
        note(f"run {result.run_id}; inspect it with: em workflow inspect --recent")
