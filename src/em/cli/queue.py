"""`em queue`: what is queued, what became of it; and `em workflow enqueue`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from em.cli.batches import read_lines_of_json, tell_queued
from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, print_table, printable
from em.cli.run_options import read_object
from em.errors import InputError, UsageError
from em.values.times import parse_duration

if TYPE_CHECKING:
    from em.work.queue import JobView, Queue

F = TypeVar("F", bound=Callable[..., Any])
STATES = ("queued", "running", "waiting", "done", "failed", "cancelled")


@click.group("queue", no_args_is_help=True)
@everywhere
def command() -> None:
    """Look at queued work, cancel it, or try again what failed (extra `distributed`)."""


def open_queue(ctx: click.Context, *, create: bool = False) -> "Queue":
    """The queue beside the log, closed when the command ends."""
    from em.work.queue import Queue

    queue = Queue(open_memory(ctx, create=create))
    ctx.call_on_close(queue.close)
    return queue


def queueing(command: F) -> F:
    """The options of queueing."""
    for option in (
        click.option("--wait", is_flag=True, help="Wait until it is done, and tell how it went."),
        click.option(
            "--chunk",
            type=click.IntRange(1, 10_000),
            default=1,
            show_default=True,
            help="So many runs make one job: small ones are done faster so.",
        ),
        click.option("--queue", help="The queue it goes to.  [default]"),
    ):
        command = option(command)
    return command


@command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only those of this state.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@everywhere
@click.pass_context
def list_(ctx: click.Context, state: Any, limit: int) -> None:
    """Jobs, the newest first, and the workers that are there."""
    queue = open_queue(ctx)
    jobs, workers = queue.jobs(state=state, limit=limit), queue.workers()
    if ctx.obj["json"]:
        print_json({"jobs": jobs, "workers": workers})
        return
    if jobs:
        columns = ("job", "queued", "state", "queue", "what", "of it")
        print_table(columns, [_row(view) for view in jobs], may_go=("queue", "queued"))
    else:
        click.echo("nothing here; `em workflow enqueue` queues a run", err=True)
    for worker, place in workers.items():
        click.echo(printable(f"worker {worker} ({place})"), err=True)


def _row(view: "JobView") -> tuple[str, ...]:
    at = "" if view.queued_at is None else view.queued_at.strftime("%Y-%m-%d %H:%M:%S")
    what = f"{view.kind} {view.name}".strip()
    return (view.id, at, view.state, view.queue or "", what, _of_it(view))


def _of_it(view: "JobView") -> str:
    if view.report is None:
        return view.problem or str(view.items)
    parts = [f"{view.report.done} done"]
    for name, found in (("waiting", view.report.waiting), ("failed", view.report.failed)):
        if found:
            parts.append(f"{len(found)} {name}")
    return ", ".join(parts)


@command.command("show")
@click.argument("job_id", metavar="JOB")
@everywhere
@click.pass_context
def show(ctx: click.Context, job_id: str) -> None:
    """One job: what it is to do, what became of it, and why something failed."""
    queue = open_queue(ctx)
    view = queue.job(job_id)
    if ctx.obj["json"]:
        what = None if view.kind == "" else queue.what(job_id)
        print_json({"job": view, "what": what})
        return
    for name in ("id", "state", "kind", "name", "items", "queue", "worker", "attempts", "problem"):
        value = getattr(view, name)
        if value not in ("", None):
            click.echo(f"{name:<10}{printable(str(value))}")
    if view.report is None:
        return
    click.echo(f"{'done':<10}{view.report.done:,}")
    for title, found in (("waiting", view.report.waiting), ("failed", view.report.failed)):
        for name, why in found.items():
            click.echo(f"{title:<10}{printable(name)}: {printable(why)}")
    if view.report.failed:
        click.echo(f"  try again: em queue retry {job_id}", err=True)


@command.command("cancel")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@everywhere
@click.pass_context
def cancel(ctx: click.Context, jobs: tuple[str, ...]) -> None:
    """Take jobs out of the queue. One that runs ends after the run, or subject, under way."""
    queue = open_queue(ctx)
    views = [queue.cancel(job) for job in jobs]
    if ctx.obj["json"]:
        print_json({"jobs": views})
    else:
        click.echo(f"cancelled: {count(len(views), 'job')}")


@command.command("retry")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--wait", is_flag=True, help="Wait until it is done, and tell how it went.")
@everywhere
@click.pass_context
def retry(ctx: click.Context, jobs: tuple[str, ...], wait: bool) -> int:
    """Queue again what failed of these jobs, or all of those that were cancelled.

    A workflow goes on at the step that failed; a routine begins a new run.
    """
    queue = open_queue(ctx)
    again = [queue.retry(job) for job in jobs]
    return tell_queued(queue, again, "trying again", wait=wait, as_json=ctx.obj["json"])


@command.command("clear")
@click.option("--older-than", default="7d", show_default=True, metavar="AGE", help="As 7d, 12h.")
@everywhere
@click.pass_context
def clear(ctx: click.Context, older_than: str) -> None:
    """Drop jobs from the queue that ended so long ago. What the log knows of them stays."""
    dropped = open_queue(ctx).clear(parse_duration(older_than, "--older-than", bare_unit="d"))
    if ctx.obj["json"]:
        print_json({"dropped": dropped})
    else:
        click.echo(f"dropped: {count(dropped, 'job')}")


@command.command("run")
@click.argument("routine")
@click.option("--input", "input_file", metavar="FILE", help="The input, as JSON; - for stdin.")
@click.option("--each", metavar="FILE", help="A run for each line, which is its input as JSON.")
@queueing
@everywhere
@click.pass_context
def run(
    ctx: click.Context,
    routine: str,
    input_file: str | None,
    each: str | None,
    queue: str | None,
    chunk: int,
    wait: bool,
) -> int:
    """Queue runs of ROUTINE, one that is kept (`em routine keep`), in the version of now."""
    opened = open_queue(ctx)
    jobs = opened.add_runs(
        routine, _given(input_file, each, {}, "--input"), chunk=chunk, queue=queue
    )
    return tell_queued(opened, jobs, routine, wait=wait, as_json=ctx.obj["json"])


@click.command("enqueue")
@click.argument("name")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@click.option("--params", "params_file", metavar="FILE", help="Parameters, as JSON; - for stdin.")
@click.option("--each", metavar="FILE", help="A run for each line: its parameters, as JSON.")
@click.option("--prompt", help="What started it; else the first required parameter.")
@click.option("-f", "--file", metavar="FILE", help="Where the workflows are.  [em.yaml]")
@queueing
@everywhere
@click.pass_context
def enqueue(
    ctx: click.Context,
    name: str,
    params: Sequence[str],
    params_file: str | None,
    each: str | None,
    prompt: str | None,
    file: str | None,
    queue: str | None,
    chunk: int,
    wait: bool,
) -> int:
    """Queue runs of the workflow NAME, as it is written now, for `em worker`."""
    opened = open_queue(ctx, create=True)
    jobs = opened.add_workflow_runs(
        name,
        _given(params_file, each, pairs(params), "--params"),
        prompt=prompt,
        file=file,
        chunk=chunk,
        queue=queue,
    )
    return tell_queued(opened, jobs, name, wait=wait, as_json=ctx.obj["json"])


def pairs(params: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE`, as it is typed."""
    given: dict[str, Any] = {}
    for text in params:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{text!r} is no NAME=VALUE", place="--param")
        given[name] = value
    return given


def _given(
    file: str | None, each: str | None, more: dict[str, Any], option: str
) -> list[dict[str, Any]]:
    """What the runs are given: one set, or one for each line."""
    if file is not None and each is not None:
        raise UsageError(f"either {option} or --each", place="--each")
    if each is not None:
        found = [{**one, **more} for one in read_lines_of_json(each)]
        if not found:
            raise InputError("there is no line in it", place=each)
        return found
    return [{**(read_object(file) if file is not None else {}), **more}]
