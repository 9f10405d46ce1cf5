"""`em recall`: search what was said."""

from typing import Any

import click

from em.cli.command import command
from em.cli.options import open_memory, pairs
from em.cli.output import Columns, count, emit, emit_list, note, printable, progress
from em.errors import EmbedderError, UsageError
from em.memory import Memory
from em.store.protocol import Passage


@command("recall")
@click.argument("words", nargs=-1)
@click.option("--subject", help="Only passages about this subject.")
@click.option("--role", help="Only what was said in this role, such as user.")
@click.option("--speaker", help="Only what this speaker said.")
@click.option("--session", help="Only this conversation.")
@click.option("--agent", help="Only what was said to or by this agent.")
@click.option("--run", help="Only this run of an agent, or this trace.")
@click.option(
    "--metadata", multiple=True, metavar="KEY=VALUE", help="Only with this field. Repeatable."
)
@click.option("--since", metavar="TIME", help="Only passages at or after this time.")
@click.option("--until", metavar="TIME", help="Only passages before this time.")
@click.option("--k", "-k", default=10, show_default=True, help="How many passages.")
@click.option("--in-order", is_flag=True, help="Sort by time, not best first.")
@click.option("--neighbours", default=0, metavar="N", help="Show N passages before and after each.")
@click.option("--embed", is_flag=True, help="First compute the vectors of new passages.")
def recall(words: tuple[str, ...], embed: bool, metadata: tuple[str, ...], **chosen: Any) -> None:
    """Search for the passages that fit WORDS, a question or keywords, best first.

    Names of speakers and times are understood: em recall what did Ana do last week
    """
    if not words and not embed:
        raise UsageError(
            "no words to search for", fix='em recall "what did Ana say about the trip"'
        )
    memory = open_memory()
    if embed:
        _embed(memory, searches=bool(words))
    if not words:
        return
    found = memory.recall(" ".join(words), metadata=pairs(metadata, "--metadata"), **chosen)

    def text() -> None:
        for line in found.notes:
            note(f"note: {line}")
        if not found:
            note("no passages found")
        elif chosen["neighbours"]:
            _print_windows(found)
        else:
            emit_list("passages", found, _COLUMNS, none="", whole=("event",))

    emit({"passages": list(found), "notes": found.notes}, text)


def _embed(memory: Memory, *, searches: bool) -> None:
    """Compute missing vectors. If that fails, a search that follows goes on by words."""
    left = 0
    with progress("embedding") as bar:
        try:
            left = memory.embed(bar.at)
        except EmbedderError as error:
            if not searches:
                raise
            note(f"note: the embedder failed: {error}")
    note(f"embedded {count(bar.done, 'passage')}")
    if left:
        note(f"note: {count(left, 'passage')} could not be embedded; words find them")


_COLUMNS: Columns = {
    "score": lambda one: f"{one.score:.2f}",
    "at": lambda one: f"{one.at:%Y-%m-%d %H:%M}",
    "by": lambda one: one.speaker or one.role,
    "event": "event_id",
    "text": "text",
}


def _print_windows(found: list[Passage]) -> None:
    for n, passage in enumerate(found):
        if n:
            click.echo()
        click.secho(
            f"{passage.score:.2f}  {passage.at:%Y-%m-%d %H:%M}  {passage.event_id}", bold=True
        )
        window = sorted([*passage.neighbours, passage], key=lambda item: item.number)
        for item in window:
            sign = ">" if item.number == passage.number else " "
            by = f"{item.speaker or item.role}: " if item.speaker or item.role else ""
            click.echo(f"{sign} {printable(by + item.text)}")
