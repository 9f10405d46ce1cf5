"""How the command speaks: tables and bars for people, JSON for programs, errors on stderr."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from em.errors import EmError

GAP = 2
WIDE = 28
LEAST = 32
"""Columns wider than WIDE are cut; the last one keeps LEAST, if anything may go for it."""
WIDTH_OF_A_FILE = 160

Advance = Callable[[int], None]


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    import msgspec

    text = msgspec.json.encode(value)
    if sys.stdout.isatty():
        text = msgspec.json.format(text, indent=2)
    click.echo(text)


def print_error(error: EmError, *, as_json: bool) -> None:
    """An error on standard error, with its place and its fix."""
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode({"error": error.as_dict()}), err=True)
        return
    place = f"{error.place}: " if error.place else ""
    click.echo(click.style("error: ", fg="red", bold=True) + place + error.message, err=True)
    if error.fix:
        click.echo(click.style("  try: ", fg="cyan") + error.fix, err=True)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, may_go: Sequence[str] = ()
) -> None:
    """A table that fits the terminal: the last column gives way, then those that `may_go`.

    What comes from events is printed as it is, never as markup.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = WIDTH_OF_A_FILE
    cells = [[Text(printable(cell)) for cell in row] for row in rows]
    widest = [
        max([len(name), *(row[n].cell_len for row in cells)]) for n, name in enumerate(columns)
    ]
    widths = [min(WIDE, width) for width in widest[:-1]]
    shown = list(range(len(widths)))
    for name in may_go:
        if sum(widths[n] + GAP for n in shown) + LEAST > console.width:
            shown.remove(columns.index(name))
    left = console.width - sum(widths[n] + GAP for n in shown)
    widths.append(max(1, min(widest[-1], left)))
    shown.append(len(columns) - 1)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for n in shown:
        table.add_column(columns[n], overflow="ellipsis", no_wrap=True, width=widths[n])
    for row in cells:
        table.add_row(*(row[n] for n in shown))
    console.print(table)


def printable(text: str) -> str:
    """A text without characters that would steer a terminal."""
    return "".join(char if char.isprintable() else "\N{MIDDLE DOT}" for char in text)


@contextmanager
def progress(what: str, total: int | None, *, unit_bytes: bool = False) -> Iterator[Advance]:
    """A progress bar on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    amount = DownloadColumn() if unit_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
