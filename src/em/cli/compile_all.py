"""`em compile --all`: a routine for every task in the log, here or by workers."""

from typing import Any

import click

from em.cli.options import open_memory
from em.cli.output import count, only_results_on_stdout, print_json, printable, progress
from em.errors import EmError, UsageError


def compile_all(ctx: click.Context, options: dict[str, Any], *, distributed: bool) -> int:
    """Keep a routine for each task that was done. Exit code 1 if something failed."""
    for name in ("name", "tools", "udf", "output", "explain"):
        if options[name]:
            raise UsageError("this is for one task", place=f"--{name}", fix="name its traces")
    if distributed:
        from em.cli.batches import tell_queued
        from em.cli.queue import open_queue

        queue = open_queue(ctx)
        chosen = {name: True for name in ("keep_all", "llm") if options[name]}
        jobs = queue.add_compilations(how=chosen)
        return tell_queued(queue, jobs, "compiling", wait=True, as_json=ctx.obj["json"])
    return _here(ctx, options)


def _here(ctx: click.Context, options: dict[str, Any]) -> int:
    from em.llm import get_llm_client
    from em.traces.catalogue import attempts

    memory = open_memory(ctx)
    client = get_llm_client() if options["llm"] else None
    tasks = attempts(memory.store)
    kept: dict[str, str] = {}
    failed: dict[str, str] = {}
    with only_results_on_stdout(), progress("compiling", len(tasks)) as advance:
        for task, traces in tasks.items():
            try:
                made = memory.compile(traces, keep_all=options["keep_all"], client=client)
                kept[task] = made.ref
            except EmError as error:
                failed[task] = str(error)
            advance(1)
    if ctx.obj["json"]:
        print_json({"kept": kept, "failed": failed})
    else:
        for ref in kept.values():
            click.echo(ref)
        click.echo(f"{count(len(kept), 'task')} compiled", err=True)
        for task, why in failed.items():
            click.echo(f"failed: {printable(task)}: {printable(why)}", err=True)
    return 1 if failed else 0
