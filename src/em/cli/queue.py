"""`em queue`, `em workflow enqueue`, `em worker`: queue jobs, follow them, and run them."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from em import telemetry
from em.cli.command import command, group
from em.cli.options import (
    added,
    limited,
    load_tools,
    open_memory,
    pairs,
    person,
    read_object,
    read_objects,
    with_tools,
)
from em.cli.output import (
    Advance,
    Columns,
    count,
    emit,
    emit_list,
    note,
    only_results_on_stdout,
    print_fields,
    progress,
)
from em.errors import InputError, StoreUnreachable, UsageError
from em.values.times import parse_duration

if TYPE_CHECKING:
    from em.memory import Memory
    from em.work.job import JobView
    from em.work.queue import Queue

STATES = ("queued", "running", "waiting", "done", "failed", "cancelled")
KINDS = ("routine", "workflow", "checkpoint", "compile", "reflect", "embed")
"""As `em.work.job` has them; commands load it only when they need it."""
POLL = 0.5
"""Seconds between two looks at jobs that are waited for."""
PATIENCE = 5.0
"""Seconds without a worker before a note says so."""
SHOWN = 20
"""Jobs, or failures, that are listed."""


@group("queue")
def queue() -> None:
    """List, show, cancel and retry queued jobs."""


def open_queue(*, create: bool = False) -> "Queue":
    """Open the queue of the memory. It is closed when the command ends."""
    from em.work.queue import Queue

    opened = Queue(open_memory(create=create))
    click.get_current_context().call_on_close(opened.close)
    return opened


waiting = click.option("--wait", is_flag=True, help="Wait for the jobs, and report their results.")
queueing = added(
    click.option("--queue", help="The queue to use.  [default]"),
    click.option(
        "--chunk",
        type=click.IntRange(1, 10_000),
        default=1,
        show_default=True,
        help="Runs per job. Larger jobs are faster for short runs.",
    ),
    waiting,
)
"""The options of commands that queue jobs."""


@queue.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state.")
@click.option("--kind", type=click.Choice(KINDS), help="Only jobs of this kind.")
@click.option("--subject", metavar="NAME", help="Only jobs about this subject.")
@limited(20)
def list_(state: Any, kind: Any, subject: str | None, limit: int) -> None:
    """List jobs, the newest first, and the running workers."""
    opened = open_queue()
    jobs = opened.jobs(state=state, kind=kind, subject=subject, limit=limit)
    workers = opened.workers()
    columns: Columns = {
        "job": "id",
        "queued": "queued_at",
        "state": "state",
        "queue": "queue",
        "what": lambda one: f"{one.kind} {one.name}".strip(),
        "result": _result,
    }
    none = f"no {state or 'queued'} jobs; `em workflow enqueue` and `em queue run` add jobs"
    emit_list("jobs", jobs, columns, none=none, more={"workers": workers})
    for name, place in workers.items():
        note(f"worker {name} ({place})")


def _result(view: "JobView") -> str:
    if view.report is None:
        return view.problem or count(view.items, "item")
    ended = {"waiting": view.report.waiting, "failed": view.report.failed}
    more = "".join(f", {len(found)} {name}" for name, found in ended.items() if found)
    return f"{view.report.done} done{more}"


@queue.command("show")
@click.argument("job_id", metavar="JOB")
def show(job_id: str) -> None:
    """Show a job: its content, results and failures."""
    opened = open_queue()
    view = opened.job(job_id)
    what = None if view.kind == "" else opened.what(job_id)
    emit({"job": view, "what": what}, lambda: print_fields(view))
    if view.report and view.report.failed:
        note(f"try: em queue retry {view.id}")


@queue.command("cancel")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
def cancel(jobs: tuple[str, ...]) -> None:
    """Cancel jobs. A running job stops before its next step, or after its current subject."""
    opened = open_queue()
    views = [opened.cancel(job, by=person()) for job in jobs]
    emit({"jobs": views}, f"cancelled: {count(len(views), 'job')}")


@queue.command("retry")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@waiting
def retry(jobs: tuple[str, ...], wait: bool) -> int:
    """Queue the failed items of jobs again.

    Of a cancelled job, all items are queued again. A workflow, and a run of a routine that had an
    effect, continue at the step that failed if that can't do anything twice. A run that did nothing
    starts anew.
    """
    opened = open_queue()
    again = [opened.retry(job) for job in jobs]
    return report_queued(opened, again, "retrying", wait=wait)


@queue.command("clear")
@click.option(
    "--older-than", default="7d", show_default=True, metavar="AGE", help="An age: 7d, 12h."
)
def clear(older_than: str) -> None:
    """Remove jobs from the queue that ended longer ago than AGE. Their events stay in the log."""
    dropped = open_queue().clear(parse_duration(older_than, "--older-than", bare_unit="d"))
    emit({"dropped": dropped}, f"removed: {count(dropped, 'job')}")


@queue.command("run")
@click.argument("routine")
@click.option(
    "--input",
    "input_file",
    metavar="JSON|FILE",
    help="The input as JSON, or a file with it; - for stdin.",
)
@click.option("--each", metavar="FILE", help="Queue a run for each line of JSON, its input.")
@click.option("--subject", metavar="NAME", help="Who the runs are about. Forgotten with them.")
@queueing
def run(routine: str, input_file: str | None, each: str | None, wait: bool, **how: Any) -> int:
    """Queue runs of a stored routine. ROUTINE is its name; the current version is used."""
    opened = open_queue()
    jobs = opened.add_runs(routine, _given(input_file, each, {}, "--input"), **how)
    return report_queued(opened, jobs, routine, wait=wait)


@command("enqueue")
@click.argument("name")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@click.option(
    "--params",
    "params_file",
    metavar="JSON|FILE",
    help="Parameters as JSON, or a file with it; - for stdin.",
)
@click.option("--each", metavar="FILE", help="Queue a run for each line of JSON, its parameters.")
@click.option("--prompt", help="What the user asked for.  [the first required parameter]")
@click.option("-f", "--file", metavar="FILE", help="The file of the workflows.  [em.yaml]")
@click.option("--subject", metavar="NAME", help="Who the runs are about. Forgotten with them.")
@queueing
def enqueue(
    name: str,
    params: Sequence[str],
    params_file: str | None,
    each: str | None,
    wait: bool,
    **how: Any,
) -> int:
    """Queue runs of a workflow, as it is written now."""
    from em.workflows.definition import WorkflowFile, typed_params

    words = typed_params(WorkflowFile(how["file"]).workflow(name), pairs(params))
    opened = open_queue(create=True)
    jobs = opened.add_workflow_runs(name, _given(params_file, each, words, "--params"), **how)
    return report_queued(opened, jobs, name, wait=wait)


def _given(
    file: str | None, each: str | None, more: dict[str, Any], option: str
) -> list[dict[str, Any]]:
    """Return the inputs of the runs: one, or one for each line of --each."""
    if file is not None and each is not None:
        raise UsageError(f"give either {option} or --each, not both", place="--each")
    if each is not None:
        found = [{**one, **more} for one in read_objects(each)]
        if not found:
            raise InputError("expected at least one line of JSON, found none", place=each)
        return found
    return [{**(read_object(file) if file is not None else {}), **more}]


def report_queued(opened: "Queue", jobs: Sequence[str], what: str, *, wait: bool) -> int:
    """Print which jobs were queued; with `wait`, their results. Return the exit code."""
    if wait:
        return _follow(opened, jobs, what)

    def text() -> None:
        for job in jobs[:SHOWN]:
            click.echo(job)
        if len(jobs) > SHOWN:
            note(f"and {len(jobs) - SHOWN:,} more")
        workers = len(opened.workers())
        state = f"{count(workers, 'worker')} running" if workers else _NO_WORKER
        note(f"queued: {count(len(jobs), 'job')}; {state}")

    emit(lambda: {"jobs": jobs, "runs": opened.runs(jobs)}, text)
    return 0


_NO_WORKER = "no worker is running: start `em worker`"


def _follow(opened: "Queue", jobs: Sequence[str], what: str) -> int:
    """Wait for jobs and print their results. Return 1 if something failed."""
    try:
        with progress(what, len(jobs)) as advance:
            _wait(opened, jobs, advance)
    except KeyboardInterrupt:
        note("no longer waiting; the jobs go on: `em queue list` shows them")
        return 130
    report = opened.reports(jobs)

    def text() -> None:
        click.echo(f"{report.done:,} done")
        _print_reasons("waiting", report.waiting)
        _print_reasons("failed", report.failed)

    emit({"done": report.done, "waiting": report.waiting, "failed": report.failed}, text)
    return 1 if report.failed else 0


def _wait(opened: "Queue", jobs: Sequence[str], advance: Advance) -> None:
    alone_since = time.monotonic()
    noted = False
    over = 0
    while over < len(jobs):
        try:
            counts = opened.counts(jobs)
        except StoreUnreachable:  # keep waiting: the workers wait for the database too
            time.sleep(POLL)
            continue
        advance(counts.over - over)
        over = counts.over
        if counts.workers:
            alone_since, noted = time.monotonic(), False
        elif not noted and time.monotonic() - alone_since > PATIENCE:
            note(f"{_NO_WORKER}, here or on another machine")
            noted = True
        if over < len(jobs):
            time.sleep(POLL)


def _print_reasons(title: str, found: Mapping[str, str]) -> None:
    for name, why in islice(found.items(), SHOWN):
        note(f"{title}: {name}: {why}")
    if len(found) > SHOWN:
        note(f"{title}: and {len(found) - SHOWN:,} more")


@command("worker")
@click.option("--queue", "queues", multiple=True, help="Only this queue. Repeatable.  [all]")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    help="Jobs of a queue that this worker runs at a time.  [work.concurrency]",
)
@with_tools
@click.option("--drain", is_flag=True, help="Exit when no job is queued or running.")
def worker(queues: tuple[str, ...], concurrency: int | None, tools: str | None, drain: bool) -> int:
    """Run queued jobs: runs, checkpoints, compilations. You can start several workers.

    Ctrl-C stops it after the current items and returns the rest to the queue. A second Ctrl-C stops
    it at once.
    """
    from em.work.worker import Worker

    memory = open_memory(create=True)
    registry = load_tools(tools)
    with only_results_on_stdout():
        running = Worker(
            memory, queues=queues, concurrency=concurrency, tools=registry, report=_report
        )

        def stop(_signal: int, _frame: FrameType | None) -> None:
            if running.stopping:
                # Threads can't be stopped, so exit. Other workers take over the jobs.
                os._exit(130)
            running.stop()

        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, stop)
        _report(f"worker {running.id} is running" + ("" if drain else "; stop it with Ctrl-C"))
        telemetry.start()
        telemetry.watch("em.queue.depth", "em.job.state", lambda: _depth(memory))
        try:
            if drain:
                with progress("jobs") as bar:
                    done = running.run(drain=True, advance=bar.at)
            else:
                done = running.run()
        finally:
            telemetry.stop()
    failed = f", {running.failed:,} of them failed: see `em queue list`" if running.failed else ""
    emit(
        {"worker": running.id, "jobs": done, "failed": running.failed},
        f"{count(done, 'job')} done{failed}",
    )
    return 0


def _depth(memory: "Memory") -> dict[str, int]:
    """Count the jobs that wait and that run."""
    from em.work.queue import Queue

    with Queue(memory) as queue:
        return {"queued": queue.count(state="queued"), "running": queue.count(state="running")}


def _report(text: str) -> None:
    note(text)
    sys.stderr.flush()
