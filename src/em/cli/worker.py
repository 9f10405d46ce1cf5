"""`em worker`: do what is queued."""

import os
import signal
import sys
from types import FrameType

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import count, only_results_on_stdout, print_json, printable


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
def command(
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
        worker = Worker(memory, queues=queues, concurrency=concurrency, tools=registry, tell=_tell)

        def stop(_signal: int, _frame: FrameType | None) -> None:
            if worker.stopping:
                # Threads can't be ended, so the process is; the queue gives its jobs to others.
                os._exit(130)
            worker.stop()

        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, stop)
        _tell(f"worker {worker.id} is there" + ("" if drain else "; Ctrl-C ends it"))
        done = worker.run(drain=drain)
    if ctx.obj["json"]:
        print_json({"worker": worker.id, "jobs": done, "failed": worker.failed})
    else:
        failed = f", {worker.failed:,} of them failed: see em queue list" if worker.failed else ""
        click.echo(f"{count(done, 'job')} done{failed}")
    return 0


def _tell(text: str) -> None:
    click.echo(printable(text), err=True)
    sys.stderr.flush()
