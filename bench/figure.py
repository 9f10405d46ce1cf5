"""One figure: ours beside its limit, measured in turns so that the machine's noise hits both."""

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple


class Figure(NamedTuple):
    """`ratio` is ours / theirs of what is named by `unit`; the bar is a lower or an upper bound."""

    what: str
    ours: float
    beside: str
    theirs: float
    unit: str
    ratio: float
    bar: float | None
    lower_bound: bool

    @property
    def cleared(self) -> bool:
        if self.bar is None:
            return True
        return self.ratio >= self.bar if self.lower_bound else self.ratio <= self.bar


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(
    ours: Callable[[], float], theirs: Callable[[], float], rounds: int
) -> tuple[float, float, float]:
    """Median seconds of each side, and the median of their ratios, round by round."""
    ours(), theirs()  # warm up: imports, caches, the disk
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return (
        median(mine for mine, _ in pairs),
        median(other for _, other in pairs),
        median(mine / other for mine, other in pairs),
    )


def rate_figure(
    what: str,
    beside: str,
    count: int,
    sides: tuple[float, float, float],
    at_least: float | None,
) -> Figure:
    mine, other, ratio = sides
    return Figure(what, count / mine, beside, count / other, "/s", 1 / ratio, at_least, True)


def time_figure(
    what: str, beside: str, sides: tuple[float, float, float], at_most: float | None
) -> Figure:
    mine, other, ratio = sides
    return Figure(what, mine * 1e3, beside, other * 1e3, "ms", ratio, at_most, False)
