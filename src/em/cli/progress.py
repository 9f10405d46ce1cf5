"""Live progress of a run, on a terminal: the steps that are over, and the one under way."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from em.cli.output import printable
from em.runner.run import StepReport

if TYPE_CHECKING:
    from rich.progress import Progress

SIGNS = {
    "done": ("✓", "green"),
    "skipped": ("-", "dim"),
    "failed": ("✗", "red"),
    "defaulted": ("!", "yellow"),
}


class Watcher:
    """Is told of each step when it begins and when it is over; here, it does not care."""

    def began(self, step_id: str) -> None:
        """A step begins."""

    def ended(self, report: StepReport) -> None:
        """A step is over, or one item of it."""


class _Live(Watcher):
    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)
        self._since = time.perf_counter()

    def began(self, step_id: str) -> None:
        self._bar.reset(self._task, description=printable(step_id))

    def ended(self, report: StepReport) -> None:
        from rich.text import Text

        sign, style = SIGNS[report.status]
        line = Text.assemble((sign, style), f" {printable(report.id)}  ", (_times(report), "dim"))
        if report.error:
            line.append(f"  {printable(report.error)}", style)
        self._bar.console.print(line, soft_wrap=True, highlight=False)


def _times(report: StepReport) -> str:
    if report.status == "skipped":
        return "skipped"
    tries = f", {report.attempts} attempts" if report.attempts > 1 else ""
    return f"{report.duration_ms:.1f} ms{tries}"


@contextmanager
def watching(*, wanted: bool) -> Iterator[Watcher]:
    """Watch a run; nothing is shown unless it is wanted and standard error is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield Watcher()
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # Transient: when it is over, also by Ctrl-C, only the finished steps are left standing.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Live(bar)
