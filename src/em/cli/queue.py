"""`em queue`: what is queued, what became of it; and `em workflow enqueue`."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from em.cli.files import reading
from em.cli.options import everywhere, open_memory, read_object
from em.cli.output import (
    Advance,
    count,
    only_results_on_stdout,
    print_json,
    print_table,
    printable,
    progress,
)
from em.errors import InputError, StoreUnreachable, UsageError
from em.values.times import parse_duration

if TYPE_CHECKING:
    from em.work.queue import JobView, Queue

EVERY = 0.5
PATIENCE = 5.0
"""Seconds without a worker before that is told."""
SHOWN = 20


def tell_queued(
    queue: "Queue", jobs: Sequence[str], what: str, *, wait: bool, as_json: bool
) -> int:
    """Say what was queued; with `wait`, what became of it."""
    if wait:
        return _follow(queue, jobs, what, as_json=as_json)
    if as_json:
        print_json({"jobs": jobs, "runs": queue.runs(jobs)})
        return 0
    for job in jobs[:SHOWN]:
        click.echo(job)
    if len(jobs) > SHOWN:
        click.echo(f"and {len(jobs) - SHOWN:,} more", err=True)
    there = len(queue.workers())
    click.echo(
        f"queued: {count(len(jobs), 'job')}; "
        + (f"{count(there, 'worker')} there" if there else "no worker is there: start `em worker`"),
        err=True,
    )
    return 0


def _follow(queue: "Queue", jobs: Sequence[str], what: str, *, as_json: bool) -> int:
    """Wait for jobs, and print their report. Exit code 1 if something failed."""
    try:
        with progress(what, len(jobs)) as advance:
            _wait(queue, jobs, advance)
    except KeyboardInterrupt:
        click.echo("it goes on without you: `em queue list` shows how far it is", err=True)
        return 130
    report = queue.reports(jobs)
    if as_json:
        print_json({"done": report.done, "waiting": report.waiting, "failed": report.failed})
    else:
        click.echo(f"{report.done:,} done")
        _tell("waiting", report.waiting)
        _tell("failed", report.failed)
    return 1 if report.failed else 0


def _wait(queue: "Queue", jobs: Sequence[str], advance: Advance) -> None:
    alone = time.monotonic()
    told = False
    over = 0
    while over < len(jobs):
        try:
            counts = queue.counts(jobs)
        except StoreUnreachable:  # it is waited for as the jobs are
            time.sleep(EVERY)
            continue
        advance(counts.over - over)
        over = counts.over
        if counts.workers:
            alone, told = time.monotonic(), False
        elif not told and time.monotonic() - alone > PATIENCE:
            click.echo("no worker is there: start `em worker`, here or elsewhere", err=True)
            told = True
        if over < len(jobs):
            time.sleep(EVERY)


def _tell(title: str, found: Mapping[str, str]) -> None:
    for name, why in islice(found.items(), SHOWN):
        click.echo(f"{title}: {printable(name)}: {printable(why)}", err=True)
    if len(found) > SHOWN:
        click.echo(f"{title}: and {len(found) - SHOWN:,} more", err=True)


def read_lines_of_json(file: str) -> Iterator[dict[str, Any]]:
    """The objects of a file, one in each line."""
    with reading(file) as (source, name):
        for number, line in enumerate(source, 1):
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                place = f"{name}:{number}"
                raise InputError(f"this is no JSON object: {error}", place=place) from None


F = TypeVar("F", bound=Callable[..., Any])
STATES = ("queued", "running", "waiting", "done", "failed", "cancelled")


@click.group("queue", no_args_is_help=True)
@everywhere
def queue() -> None:
    """Look at queued work, cancel it, or try again what failed (extra `distributed`)."""


def open_queue(ctx: click.Context, *, create: bool = False) -> "Queue":
    """The queue beside the log, closed when the command ends."""
    from em.work.queue import Queue

    queue = Queue(open_memory(ctx, create=create))
    ctx.call_on_close(queue.close)
    return queue


def queueing(function: F) -> F:
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
        function = option(function)
    return function


@queue.command("list")
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


@queue.command("show")
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


@queue.command("cancel")
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


@queue.command("retry")
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


@queue.command("clear")
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


@queue.command("run")
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


@click.command("worker")
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be repeated.  [all]")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    help="Jobs of a queue that a worker does at a time; holds for all its workers from now on.",
)
@click.option("--tools", metavar="MODULE|FILE", help="Where the tools are.")
@click.option("--drain", is_flag=True, help="End when nothing is queued or running any more.")
@everywhere
@click.pass_context
def worker(
    ctx: click.Context,
    queues: tuple[str, ...],
    concurrency: int | None,
    tools: str | None,
    drain: bool,
) -> int:
    """Do queued work: runs, checkpoints, compilations. As many workers as you like may run.

    Ctrl-C ends it after what is under way, and gives the rest back; a second one at once.
    """
    from em.runner.tools import ToolRegistry
    from em.work.worker import Worker

    memory = open_memory(ctx, create=True)
    with only_results_on_stdout():
        registry = ToolRegistry.load(tools) if tools else None
        running = Worker(memory, queues=queues, concurrency=concurrency, tools=registry, tell=_note)

        def stop(_signal: int, _frame: FrameType | None) -> None:
            if running.stopping:
                # Threads can't be ended, so the process is; the queue gives its jobs to others.
                os._exit(130)
            running.stop()

        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, stop)
        _note(f"worker {running.id} is there" + ("" if drain else "; Ctrl-C ends it"))
        done = running.run(drain=drain)
    if ctx.obj["json"]:
        print_json({"worker": running.id, "jobs": done, "failed": running.failed})
    else:
        failed = f", {running.failed:,} of them failed: see em queue list" if running.failed else ""
        click.echo(f"{count(done, 'job')} done{failed}")
    return 0


def _note(text: str) -> None:
    click.echo(printable(text), err=True)
    sys.stderr.flush()
