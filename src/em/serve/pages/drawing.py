"""Geometry of charts and waterfalls. Templates draw them as SVG and escape all text."""

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT, GAP = 600.0, 120.0, 2.0


class Bar(NamedTuple):
    """One part of a stacked bar; `series` counts from the bottom."""

    x: float
    y: float
    width: float
    height: float
    series: int


class Chart(NamedTuple):
    """A bar chart of counts. columns: label, values as text, bars. summary: for screen readers."""

    title: str
    names: Sequence[str]
    columns: Sequence[tuple[str, str, Sequence[Bar]]]
    summary: str


def chart(title: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> Chart:
    """Lay out counts over time, with those of one moment stacked."""
    top = max((sum(counts) for _, counts in rows), default=0) or 1
    step = WIDTH / max(1, len(rows))
    columns = [
        (label, _words(names, counts), _bars(counts, number * step, step, top))
        for number, (label, counts) in enumerate(rows)
    ]
    totals = [sum(counts[n] for _, counts in rows) for n in range(len(names))]
    return Chart(title, names, columns, f"{title}: {_words(names, totals)} in total")


def _bars(counts: Sequence[int], x: float, step: float, top: int) -> list[Bar]:
    bars: list[Bar] = []
    base, width = HEIGHT, max(0.5, step - GAP)
    for series, count in enumerate(counts):
        if count > 0:
            height = max(1.0, HEIGHT * count / top)
            base -= height
            bars.append(Bar(round(x, 2), round(base, 2), round(width, 2), round(height, 2), series))
    return bars


def _words(names: Sequence[str], counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in zip(names, counts, strict=True))


class Span(NamedTuple):
    """The position of a step in a run, in thousandths of the run's duration."""

    x: float
    width: float


def spans(starts_and_seconds: Sequence[tuple[float, float]]) -> list[Span]:
    """Lay out steps as a waterfall, from their starts and durations in seconds."""
    first = min((start for start, _ in starts_and_seconds), default=0.0)
    last = max((start + took for start, took in starts_and_seconds), default=0.0)
    whole = (last - first) or 1.0
    found = []
    for start, took in starts_and_seconds:
        width = max(4.0, 1_000 * took / whole)
        found.append(
            Span(round(min(1_000 * (start - first) / whole, 1_000 - width), 1), round(width, 1))
        )
    return found
