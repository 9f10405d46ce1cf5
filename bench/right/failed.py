"""Runs that failed: no routine may come of them unless the user insists."""

from collections.abc import Iterator, Sequence

from bench.figure import Figure
from bench.right.recording import Recording
from bench.right.shelf import SOURCES, Shelf
from bench.right.verdict import Tally, Verdict, share


def refused(shelf: Shelf, runs: Sequence[Recording], *, verbose: bool) -> Iterator[Figure]:
    """Compile each failed run as any other."""
    tally = Tally("failed runs", columns=("refused", "compiled"), verbose=verbose)
    for source in SOURCES:
        for run in runs:
            made = shelf.compiled(run, source)
            found = isinstance(made, str)
            why = made if isinstance(made, str) else str(made.folder)
            tally.add(source, run.name, Verdict("refused" if found else "compiled", why))
    tally.show()
    yield share("failed runs refused by the compiler", tally.count("refused"), tally.count())
