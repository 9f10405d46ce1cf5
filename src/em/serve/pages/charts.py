"""Charts as numbers: where each bar stands. Templates draw them as SVG, and escape what is said."""

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT, GAP = 600.0, 120.0, 2.0


class Bar(NamedTuple):
    """One part of a bar; `series` is the number of its row, from the bottom."""

    x: float
    y: float
    width: float
    height: float
    series: int


class Column(NamedTuple):
    """One moment: its label, its values as they are told, and its bars."""

    label: str
    told: str
    bars: Sequence[Bar]


class Chart(NamedTuple):
    """A bar chart; `told` says in words what it shows."""

    title: str
    names: Sequence[str]
    columns: Sequence[Column]
    highest: str
    told: str


def chart(
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    units: Sequence[str],
) -> Chart:
    """Bars over time; several values of one moment stand on each other.

    units: how a value is told: a word behind it, or `$` before it.
    """
    top = max((sum(values) for _, values in rows), default=0.0) or 1.0
    step = WIDTH / max(1, len(rows))
    columns = [
        Column(label, _told(names, values, units), _bars(values, number * step, step, top))
        for number, (label, values) in enumerate(rows)
    ]
    totals = [sum(values[n] for _, values in rows) for n in range(len(names))]
    highest = max(rows, key=lambda row: sum(row[1]), default=("", [0.0] * len(names)))
    best = _one(sum(highest[1]), units[0])
    words = f"{title}: {_told(names, totals, units)} in all"
    if sum(highest[1]):
        words += f"; most, {best}, on {highest[0]}"
    return Chart(title, names, columns, best if sum(highest[1]) else "", words)


def _bars(values: Sequence[float], x: float, step: float, top: float) -> list[Bar]:
    bars: list[Bar] = []
    base = HEIGHT
    for series, value in enumerate(values):
        if value <= 0:
            continue
        height = max(1.0, HEIGHT * value / top)
        base -= height
        width = max(0.5, step - GAP)
        bars.append(Bar(round(x, 2), round(base, 2), round(width, 2), round(height, 2), series))
    return bars


def _told(names: Sequence[str], values: Sequence[float], units: Sequence[str]) -> str:
    if len(names) == 1:
        return _one(values[0], units[0])
    return ", ".join(f"{_one(value, '')} {name}" for name, value in zip(names, values, strict=True))


def _one(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.2f}"
    return f"${value:,.2f}" if unit == "$" else f"{text} {unit}".strip()


class Span(NamedTuple):
    """Where a step stands in a run, in thousandths of its time."""

    x: float
    width: float


def spans(starts_and_seconds: Sequence[tuple[float, float]]) -> list[Span]:
    """Steps as a waterfall: starts in seconds from any moment, and how long each took."""
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
