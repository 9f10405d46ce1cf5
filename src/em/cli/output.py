"""Print results: JSON for programs; tables, fields and progress bars for people; errors.

Most commands have an object or a list of them to show. `emit` prints an object field by field, and
`emit_list` prints a list as a table, by the names of the attributes that are its columns.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from em.errors import EmError
from em.values.files import shown, shown_json

if TYPE_CHECKING:
    from rich.progress import Progress

GAP = "  "
WIDE = 28
LEAST = 32
"""Where a table does not fit, columns are cut to WIDE, and the last one to LEAST."""
WIDTH_OF_A_FILE = 160
SHOWN_AFTER = 0.5
"""Seconds after which a command shows how far it is."""

Advance = Callable[[int], None]
Columns = Mapping[str, str | Callable[[Any], Any]]
"""The titles of a table, each with the attribute it shows or a function that returns the value."""


def wants_json() -> bool:
    """Return whether `--json` was given."""
    return bool(click.get_current_context().obj["json"])


def emit(data: Any, text: str | Callable[[], object] | None = None) -> None:
    """Print a result: `data` as JSON with `--json`, else `text`.

    Args:
        data: What `--json` prints, or a function that returns it.
        text: What people read: a line, or a function that prints; by default the fields of `data`.
    """
    if wants_json():
        print_json(data() if callable(data) else data)
    elif isinstance(text, str):
        click.echo(text)
    elif text is not None:
        text()
    else:
        print_fields(data() if callable(data) else data)


def emit_list(
    name: str,
    found: Sequence[Any],
    columns: Columns,
    *,
    none: str | Callable[[], str],
    older: object = None,
    whole: Sequence[str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Print a list: under its name as JSON, as a table for people, as a note where it is empty.

    older: where the list goes on; None on its last page. more: what JSON has beside the list.
    """

    def text() -> None:
        if not found:
            note(none if isinstance(none, str) else none())
            return
        rows = [[cell(_value(one, column)) for column in columns.values()] for one in found]
        print_table([*columns], rows, whole=whole)
        if older is not None:
            note(f"… there are more: repeat with --cursor {older}")

    more = {**(more or {}), **({} if older is None else {"next": str(older)})}
    emit({name: found, **more}, text)


def _value(one: Any, column: str | Callable[[Any], Any]) -> Any:
    if callable(column):
        return column(one)
    return one.get(column) if isinstance(one, dict) else getattr(one, column)


_CELLS: Sequence[tuple[type, Callable[[Any], str]]] = (
    (str, str),
    (bool, lambda value: "yes" if value else "no"),
    (int, "{:,}".format),
    (float, lambda value: f"{value:,.3f}".rstrip("0").rstrip(".")),
    (datetime, "{:%Y-%m-%d %H:%M:%S}".format),
)


def cell(value: Any) -> str:
    """Return a value as people read it, on one line."""
    if value is None:
        return ""
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    shows = (show for kind, show in _CELLS if isinstance(value, kind))
    return next(shows, lambda other: shown_json(other).decode())(value)


def json_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else shown_json(value).decode()


def print_fields(value: Any, *, longest: int | None = None) -> None:
    """Print what an object has, a line for each field. Fields that are empty are left out.

    longest: characters of a text after which it is cut; None shows all.
    """
    import msgspec

    def below(fields: Mapping[str, Any], indent: str) -> None:
        for name, field in fields.items():
            if field is None or (isinstance(field, str | list | tuple | dict) and not field):
                continue
            title = indent + printable(name)
            nested = field if isinstance(field, list | tuple) else [field]
            if all(isinstance(one, dict) for one in nested):
                for number, one in enumerate(nested, 1):
                    click.secho(title if nested[1:] == [] else f"{title} {number}", bold=True)
                    below(one, f"{indent}  ")
                continue
            text = cell(field)
            if longest is not None and len(text) > longest:
                text = f"{text[:longest]}… ({len(text):,} characters; --full shows all)"
            lines = [printable(line) for line in text.split("\n")]
            click.echo(f"{title + ':':<12} " + f"\n{indent}  ".join(lines))

    below(msgspec.to_builtins(value, builtin_types=(datetime,)), "")


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
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, whole: Sequence[str] | None = None
) -> None:
    """Print a table that fits the terminal.

    Where there is too little room, wide columns are cut, then columns before the last one are
    dropped. whole: columns that are never cut or dropped, since the next command needs them; by
    default the first.
    """
    from rich.cells import cell_len, set_cell_size

    cells = [[printable(cell) for cell in row] for row in rows]
    widest = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    kept = {columns.index(name) for name in (columns[:1] if whole is None else whole)}
    last = len(columns) - 1
    widths = dict(enumerate(widest))

    def missing() -> int:
        return sum(widths.values()) + len(GAP) * (len(widths) - 1) - terminal_width()

    if missing() > 0:
        for n in widths.keys() - kept:
            widths[n] = min(widths[n], LEAST if n == last else WIDE)
    for n in reversed(range(last)):
        if missing() > 0 and n not in kept:
            del widths[n]
    if last not in kept:
        widths[last] = max(1, min(widest[last], widths[last] - missing()))

    def line(row: Sequence[str]) -> str:
        parts = []
        for n, width in widths.items():
            cut = cell_len(row[n]) > width
            parts.append(set_cell_size(row[n], width - cut) + "…" * cut)
        return GAP.join(parts).rstrip()

    click.secho(line(columns), bold=True)
    for row in cells:
        click.echo(line(row))


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
        from rich import progress as bars
        from rich.console import Console

        with self._lock:
            if self._is_over:
                return
            self._shown = bars.Progress(
                bars.TextColumn("{task.description}"),
                bars.BarColumn(),
                bars.DownloadColumn() if self._is_bytes else bars.MofNCompleteColumn(),
                bars.TimeElapsedColumn() if self._total is None else bars.TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._shown.add_task(self._what, total=self._total, completed=self.done)
            self._shown.start()

    def hide(self) -> None:
        """Remove it from the terminal for good, as before a question to a person."""
        with self._lock:
            self._is_over = True
            if self._shown is not None:
                self._shown.stop()


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
