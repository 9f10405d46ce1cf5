"""A table of verdicts, and the most common reasons of those that are not right."""

import re
from collections import Counter

from bench.right.verdict import Tally, Verdict

REASONS, WIDTH = 5, 110


class Report(Tally):
    """Like a tally; it also counts why cases were not right, with their values left out."""

    def __init__(self, title: str, *, columns: tuple[str, ...], verbose: bool) -> None:
        super().__init__(title, columns=columns, verbose=verbose)
        self._reasons: Counter[tuple[str, str]] = Counter()

    def add(self, row: str, case: str, verdict: Verdict) -> None:
        super().add(row, case, verdict)
        if verdict.why:
            self._reasons[verdict.kind, general(verdict.why)] += 1

    def show(self) -> None:
        super().show()
        for (kind, why), count in self._reasons.most_common(REASONS):
            print(f"{count:>6}  {kind}: {why[:WIDTH]}")
        print(flush=True)


def general(why: str) -> str:
    """A reason without ids, numbers and quoted values, so that equal reasons are counted as one."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', why)
    return re.sub(r"\S*\d\S*", "…", text)
