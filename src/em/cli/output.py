"""Print results: tables and progress bars for people, JSON for programs, errors on stderr."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TypeVar

import click

from em.errors import EmError
from em.values.files import shown, shown_json

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

T = TypeVar("T")
GAP = "  "
WIDE = 28
LEAST = 32
NARROW = 10
"""Where a table does not fit, columns are cut to WIDE. The last one gets at least LEAST if others
can be dropped; else all get NARROW."""
WIDTH_OF_A_FILE = 160

SHOWN_AFTER = 0.5
"""Seconds after which a command shows how far it is."""

Advance = Callable[[int], None]


def wants_json() -> bool:
    """Return whether `--json` was given."""
    return bool(click.get_current_context().obj["json"])


def emit(data: Any, text: str | Callable[[], None]) -> None:
    """Print a result: `data` as JSON with `--json`, else `text`.

    Args:
        data: What `--json` prints, or a function that returns it.
        text: What people read: a line, or a function that prints.
    """
    if wants_json():
        print_json(data() if callable(data) else data)
    elif isinstance(text, str):
        click.echo(text)
    else:
        text()


def note(text: str) -> None:
    """Print a line on standard error, without the control characters that it may contain."""
    click.echo(printable(text), err=True)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    import msgspec

    text = shown_json(value)
    if sys.stdout.isatty():
        text = msgspec.json.format(text, indent=2)
    click.echo(text)


@contextmanager
def only_results_on_stdout() -> Iterator[None]:
    """Send everything that tools print to standard error, also from subprocesses.

    Programs that read our standard output get results only.
    """
    sys.stdout.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # there is no standard output, or no standard error
        with redirect_stdout(sys.stderr):
            yield
        return
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def print_error(error: EmError, *, as_json: bool) -> None:
    """Print an error on standard error, with its place and its fix."""
    if as_json:
        click.echo(shown_json({"error": error.as_dict()}), err=True)
        return
    place = f"{error.place}: " if error.place else ""
    what = printable(place + error.message)
    click.echo(click.style("error: ", fg="red", bold=True) + what, err=True)
    if error.fix:
        click.echo(click.style("  try: ", fg="cyan") + printable(error.fix), err=True)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    may_go: Sequence[str] = (),
    whole: Sequence[str] | None = None,
) -> None:
    """Print a table that fits the terminal.

    Args:
        columns: The titles.
        rows: A text for each column.
        may_go: Columns that are dropped first where there is too little room, in this order.
        whole: Columns that are never cut or dropped, since the next command needs them; by default
            the first.
    """
    from rich.cells import cell_len, set_cell_size

    cells = [[printable(cell) for cell in row] for row in rows]
    widest = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    kept = {columns.index(name) for name in (columns[:1] if whole is None else whole)}
    going = [columns.index(name) for name in may_go]
    widths = _fitted(widest, going, kept, terminal_width())
    last = len(columns) - 1
    below = len(columns) > 1 and last not in kept and widths[last] < min(widest[last], NARROW)
    if below:  # the last column stands in a line of its own, and what is unreadable goes
        beside = _fitted(widest[:last], [n for n in going if n < last], kept, terminal_width())
        wide = {n for n, width in beside.items() if width >= min(widest[n], NARROW)}
        widths = {n: width for n, width in beside.items() if n in kept | wide}

    def cut_to(text: str) -> str:
        room = terminal_width() - len(GAP)
        cut = cell_len(text) > room
        return GAP + set_cell_size(text, room - cut).rstrip() + "…" * cut

    def line(row: Sequence[str]) -> str:
        parts = []
        for n, width in widths.items():
            cut = cell_len(row[n]) > width
            parts.append(set_cell_size(row[n], width - cut) + "…" * cut)
        return GAP.join(parts).rstrip()

    click.secho(line(columns), bold=True)
    for row in cells:
        click.echo(line(row))
        if below:
            click.echo(cut_to(row[last]))


def emit_list(
    name: str,
    found: Sequence[T],
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    none: str | Callable[[], str],
    older: object = None,
    may_go: Sequence[str] = (),
) -> None:
    """Print a list: under its name as JSON, as a table for people, as a note where it is empty.

    older: where the list goes on; None on its last page.
    """

    def text() -> None:
        if not found:
            note(none if isinstance(none, str) else none())
            return
        print_table(columns, map(row, found), may_go=may_go)
        if older is not None:
            note(f"… there are more: repeat with --cursor {older}")

    emit({name: found, **({} if older is None else {"next": str(older)})}, text)


def _fitted(widest: list[int], may_go: list[int], kept: set[int], room: int) -> dict[int, int]:
    """Return the widths of the columns that are shown, by their numbers.

    Where there is too little room, wide columns are cut, then columns are dropped, then the others
    become narrow. The last column gets the room that is left.
    """
    last = len(widest) - 1
    widths = dict(enumerate(widest))

    def missing() -> int:
        return sum(widths.values()) + len(GAP) * (len(widths) - 1) - room

    def cut(most: int, most_of_last: int) -> None:
        for n in widths.keys() - kept if missing() > 0 else ():
            widths[n] = min(widths[n], most_of_last if n == last else most)

    def drop(numbers: Iterable[int]) -> None:
        for n in numbers:
            if missing() > 0 and n in widths.keys() - kept - {last}:
                del widths[n]

    cut(WIDE, LEAST)
    drop(may_go)
    cut(NARROW, NARROW)
    drop(reversed(range(last)))
    if last not in kept:
        widths[last] = max(1, min(widest[last], widths[last] - missing()))
    return widths


def terminal_width() -> int:
    """Return the columns of the terminal, or of a wide page if the output is a file."""
    if not sys.stdout.isatty():
        return WIDTH_OF_A_FILE
    import shutil

    return shutil.get_terminal_size().columns


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 event, 2 events."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def shortened(text: str, longest: int) -> str:
    """Return a text on one line, cut behind a word and marked with … if it is longer."""
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    return f"{line[:longest].rpartition(' ')[0] or line[:longest]} …"


def printable(text: str) -> str:
    """Replace the characters that would control a terminal."""
    return "".join(char if char.isprintable() else "\N{MIDDLE DOT}" for char in shown(text))


class Bar:
    """How far a command is: called with how much more is done, or told `at` what place it is."""

    def __init__(self, what: str, total: int | None, *, unit_bytes: bool = False) -> None:
        self.done = 0
        self._what, self._total, self._is_bytes = what, total, unit_bytes
        self._began = time.monotonic()
        self._shown: Progress | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def __call__(self, more: int) -> None:
        """Count more as done."""
        self.at(self.done + more, self._total)

    def at(self, done: int, total: int | None) -> None:
        """Set how much is done, and of how much if that is known."""
        self.done, self._total = done, total
        if self._shown is not None:
            self._shown.update(self._shown.task_ids[0], completed=done, total=total)

    def show(self) -> None:
        """Draw it on standard error, unless it was hidden before."""
        from rich.console import Console
        from rich.progress import Progress

        columns = _columns(self._began, is_bytes=self._is_bytes, is_open=self._total is None)
        with self._lock:
            if self._is_over:
                return
            shown = Progress(*columns, console=Console(stderr=True), transient=True)
            shown.add_task(self._what, total=self._total, completed=self.done)
            self._shown = shown
            shown.start()

    def hide(self) -> None:
        """Remove it from the terminal for good, as before a question to a person."""
        with self._lock:
            self._is_over = True
            if self._shown is not None:
                self._shown.stop()


def _columns(began: float, *, is_bytes: bool, is_open: bool) -> "list[ProgressColumn]":
    """Return the columns of a bar. If its end is not known, it shows the time that passed."""
    from rich import filesize
    from rich import progress as bars
    from rich.text import Text

    class Rate(bars.ProgressColumn):
        def render(self, task: bars.Task) -> Text:
            rate = task.completed / max(time.monotonic() - began, 0.001)
            if is_bytes:
                return Text(f"{filesize.decimal(int(rate))}/s")
            return Text(f"{rate:,.0f}/s" if rate >= 1 else f"{rate * 60:,.0f}/min")

    return [
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.DownloadColumn() if is_bytes else bars.MofNCompleteColumn(),
        Rate(),
        bars.TimeElapsedColumn() if is_open else bars.TimeRemainingColumn(),
    ]


@contextmanager
def progress(what: str, total: int | None = None, *, unit_bytes: bool = False) -> Iterator[Bar]:
    """Show how far a command is on standard error, if that is a terminal and it takes a while."""
    bar = Bar(what, total, unit_bytes=unit_bytes)
    if not sys.stderr.isatty() or wants_json():
        yield bar
        return
    waiting = threading.Timer(SHOWN_AFTER, bar.show)
    waiting.daemon = True
    waiting.start()
    try:
        yield bar
    finally:
        waiting.cancel()
        waiting.join()
        bar.hide()
