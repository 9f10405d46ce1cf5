"""`em recall`: find what was said."""

from contextlib import ExitStack
from typing import Any

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.output import Advance, count, print_json, print_table, printable, progress
from em.errors import UsageError
from em.memory import Memory
from em.store.protocol import Passage


@click.command()
@click.argument("words", nargs=-1)
@click.option("--subject", help="Only what is about this subject.")
@click.option("--since", metavar="TIME", help="Only what happened at or after this moment.")
@click.option("--until", metavar="TIME", help="Only what happened before this moment.")
@click.option("--k", "-k", default=10, show_default=True, help="How many passages.")
@click.option("--in-order", is_flag=True, help="As they were said, not best first.")
@click.option(
    "--neighbours", default=0, metavar="N", help="Show so many passages before and after each."
)
@click.option("--embed", is_flag=True, help="First give every passage its vector.")
@everywhere
@click.pass_context
def recall(ctx: click.Context, /, words: tuple[str, ...], embed: bool, **chosen: Any) -> None:
    """Find what was said: the passages that fit WORDS, a question or a few words, best first.

    Names of speakers and times count: em recall what did Ana do last week
    """
    if not words and not embed:
        raise UsageError("nothing to look for", fix='em recall "what did Ana say about the trip"')
    memory = open_memory(ctx)
    if embed:
        _embed(memory)
    if not words:
        return
    found = memory.recall(" ".join(words), **chosen)
    if ctx.obj["json"]:
        print_json({"passages": [_as_dict(passage) for passage in found], "notes": found.notes})
        return
    for note in found.notes:
        click.echo(f"note: {printable(note)}", err=True)
    if not found:
        click.echo("nothing found", err=True)
    elif chosen["neighbours"]:
        _print_windows(found)
    else:
        rows = [
            (f"{p.score:.2f}", _when(p), p.speaker or p.role or "", p.event_id, p.text)
            for p in found
        ]
        print_table(("SCORE", "AT", "BY", "EVENT", "TEXT"), rows, may_go=("EVENT",))


def _embed(memory: Memory) -> None:
    bar = ExitStack()
    advance: Advance | None = None
    told = 0

    def tell(done: int, total: int) -> None:
        nonlocal advance, told
        if advance is None:
            advance = bar.enter_context(progress("embedding", total))
        advance(done - told)
        told = done

    with bar:
        memory.embed(tell)
    click.echo(f"embedded {count(told, 'passage')}", err=True)


def _when(passage: Passage) -> str:
    return passage.at.strftime("%Y-%m-%d %H:%M")


def _print_windows(found: list[Passage]) -> None:
    for n, passage in enumerate(found):
        if n:
            click.echo()
        click.secho(f"{passage.score:.2f}  {_when(passage)}  {passage.event_id}", bold=True)
        window = sorted([*passage.neighbours, passage], key=lambda item: item.number)
        for item in window:
            sign = ">" if item.number == passage.number else " "
            by = f"{item.speaker or item.role}: " if item.speaker or item.role else ""
            click.echo(f"{sign} {printable(by + item.text)}")


def _as_dict(passage: Passage) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(passage)
    del shown["number"]  # where it lies in the index is nobody else's business
    shown["neighbours"] = [_as_dict(item) for item in passage.neighbours]
    for item in shown["neighbours"]:
        del item["neighbours"], item["score"]
    return shown
