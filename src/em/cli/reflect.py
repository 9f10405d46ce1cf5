"""`em reflect`: learn from a trace."""

from pathlib import Path

import click

from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, printable
from em.errors import UsageError
from em.heuristics.heuristic import Lesson
from em.log.stream import trace_stream
from em.memory import Memory
from em.traces.trace import read_trace


@click.command("reflect")
@click.argument("traces", nargs=-1, metavar="[FILE|TRACE]...")
@click.option("--store", "keep", is_flag=True, help="Keep the lessons, and the trace of a FILE.")
@click.option("--all", "everything", is_flag=True, help="Learn from every trace in the log.")
@click.option("--llm", is_flag=True, help="Also ask the configured model.  [EM_LLM_PROVIDER, …]")
@click.option("--subject", help="Whom a FILE is about; its lessons are for that subject alone.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    traces: tuple[str, ...],
    keep: bool,
    everything: bool,
    llm: bool,
    subject: str | None,
) -> None:
    """Say what traces teach: files, or traces of the log by their ids.

    Lessons are mined from what happened; nothing is kept without --store. A model that refuses, or
    whose answer can't be used, leaves nothing behind.
    """
    from em.llm import get_llm_client

    if everything == bool(traces):
        raise UsageError("name traces, or give --all")
    memory = open_memory(ctx, create=True)
    client = get_llm_client() if llm else None
    book = memory.heuristics
    lessons: list[Lesson] = []
    known = []
    for name in traces:
        if not _is_file(name, memory):
            known.append(name)
            continue
        with reading(name) as (source, place):
            kept, events = book.to_keep(read_trace(source.read(), place), subject=subject)
        found = book.lessons_of(kept, client)
        lessons += found
        if keep:
            book.keep(found, events=events)
    if everything:
        known = book.every_trace()
    if known:
        found = book.lessons_in(known, client)
        lessons += found
        if keep:
            book.keep(found)
    _show(ctx, lessons, keep=keep)


def _is_file(name: str, memory: Memory) -> bool:
    if name == "-" or Path(name).exists() or Path(name).suffix:
        return True
    return not memory.store.head(trace_stream(name))[0]


def _show(ctx: click.Context, lessons: list[Lesson], *, keep: bool) -> None:
    if ctx.obj["json"]:
        print_json({"lessons": [{"id": one.id, "lesson": one} for one in lessons], "kept": keep})
        return
    told: dict[str, Lesson] = {one.id: one for one in lessons}
    for heuristic_id, one in told.items():
        click.secho(f"{heuristic_id}  {one.how}", bold=True)
        for name, text in (("when", one.trigger), ("do", one.action), ("because", one.analysis)):
            click.echo(f"  {name:<8}{printable(text)}")
    kept = "kept" if keep else "nothing was kept: --store keeps them"
    if lessons:
        click.echo(f"{count(len(told), 'lesson')}, learned {len(lessons)} times; {kept}", err=True)
    else:
        click.echo("nothing to learn from this", err=True)
