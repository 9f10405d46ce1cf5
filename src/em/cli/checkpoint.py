"""`em checkpoint`: compile what is new about subjects."""

import time
from contextlib import suppress
from typing import Any

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, printable
from em.errors import EmError, UsageError
from em.memory import Memory
from em.state.checkpoint import Checkpoint


@click.command("checkpoint")
@click.argument("subjects", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="Every subject with something new.")
@click.option("--llm", is_flag=True, help="Ask the configured model what free text says.")
@click.option("--accept", is_flag=True, help="Also if it breaks kept questions or rules.")
@click.option("--again", is_flag=True, help="Read again what no model has read well.")
@click.option("--rebuild", is_flag=True, help="All of it anew, from the log.")
@click.option("--processes", type=click.IntRange(1, 256), help="With --all.  [as many as cores]")
@click.option("--distributed", is_flag=True, help="With --all: let workers do it (`em worker`).")
@click.option("--watch", is_flag=True, help="Go on as observations come in, until Ctrl-C.")
@click.option(
    "--every", type=float, default=2.0, show_default=True, help="With --watch, in seconds."
)
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    /,
    subjects: tuple[str, ...],
    everyone: bool,
    llm: bool,
    processes: int | None,
    distributed: bool,
    watch: bool,
    every: float,
    **how: bool,
) -> int:
    """Compile what is new about SUBJECTS into typed state."""
    if everyone == bool(subjects) and not watch:
        raise UsageError("whose state?", fix="name subjects, or --all")
    if distributed:
        if subjects or watch or processes:
            raise UsageError("workers do it for --all only", place="--distributed")
        return _by_workers(ctx, {**how, "llm": llm})
    memory = open_memory(ctx)
    options: dict[str, Any] = {**how, "client": _client() if llm else None}
    if watch:
        with suppress(KeyboardInterrupt):  # which is how it is meant to end
            _watch(memory, subjects, every, options, as_json=ctx.obj["json"])
        return 0
    if everyone:
        return _all(memory, processes, options, as_json=ctx.obj["json"])
    reports = [memory.subjects.checkpoint(subject, **options) for subject in subjects]
    if ctx.obj["json"]:
        print_json({"checkpoints": reports})
    else:
        for report in reports:
            show(report)
    return 0


def _by_workers(ctx: click.Context, how: dict[str, bool]) -> int:
    from em.cli.batches import tell_queued
    from em.cli.queue import open_queue

    queue = open_queue(ctx)
    chosen = {name: True for name, said in how.items() if said}
    jobs = queue.add_checkpoints(how=chosen)
    return tell_queued(queue, jobs, "checkpoints", wait=True, as_json=ctx.obj["json"])


def _client() -> Any:
    from em.llm import get_llm_client

    return get_llm_client()


def _all(memory: Memory, processes: int | None, options: dict[str, Any], *, as_json: bool) -> int:
    if options["client"] is not None:
        processes = 1
    done, failed = memory.checkpoint_many(processes=processes, **options)
    if as_json:
        print_json({"subjects": done, "failed": failed})
    else:
        click.echo(f"{count(done, 'subject')} compiled")
        for subject, why in failed.items():
            click.echo(f"{subject}: {printable(why)}", err=True)
    return 1 if failed else 0


def _watch(
    memory: Memory, subjects: tuple[str, ...], every: float, how: dict[str, Any], *, as_json: bool
) -> None:
    from em.state.parallel import subjects_of

    seen = 0
    while True:
        newest = memory.log.head_seq()
        news = subjects_of(memory.store, seen) if newest > seen else []
        seen = newest
        for subject in [name for name in news if not subjects or name in subjects]:
            try:
                report = memory.subjects.checkpoint(subject, **how)
            except EmError as error:  # one subject's trouble does not stop the watch
                click.echo(f"{subject}: {printable(str(error))}", err=True)
                continue
            if report.new_events:
                if as_json:
                    print_json(report)
                else:
                    show(report)
        time.sleep(every)


def show(report: Checkpoint) -> None:
    """A report for people."""
    cover = report.coverage
    click.echo(
        f"{report.subject}: version {report.version}, {count(report.new_events, 'new event')}; "
        f"{cover.structured:,} of {count(cover.observations, 'observation')} structured"
        + (f", {cover.by_pattern:,} of them by patterns" if cover.by_pattern else "")
        + (f", {cover.by_model:,} by the model" if cover.by_model else "")
        + (f", {cover.in_part:,} only in part (em state show)" if cover.in_part else "")
        + (f"; {cover.unstructured:,} not (em state show)" if cover.unstructured else "")
    )
    for change in report.changes:
        click.echo(f"  {printable(str(change))}")
    for broken in report.accepted:
        click.echo(f"  accepted: breaks {printable(broken.what)}")
    for problem in report.problems:
        click.echo(f"  {printable(problem)}", err=True)
