"""Geometry of charts, waterfalls and graphs. Templates draw them as SVG and escape all text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.errors import ExpressionError
from em.runner.expressions.language import names_in, texts_in
from em.runner.routine import (
    AssertStep,
    ForEachStep,
    LetStep,
    PromptStep,
    Routine,
    Step,
    ToolStep,
    UdfStep,
)
from em.values.json_schema import properties_of

WIDTH, HEIGHT, GAP = 600.0, 120.0, 2.0


class Bar(NamedTuple):
    """One part of a stacked bar; `series` counts from the bottom."""

    x: float
    y: float
    width: float
    height: float
    series: int


class Column(NamedTuple):
    """One column of a chart: its label, its values as text, and its bars."""

    label: str
    text: str
    bars: Sequence[Bar]


class Chart(NamedTuple):
    """A bar chart. `summary` describes it for screen readers."""

    title: str
    names: Sequence[str]
    columns: Sequence[Column]
    highest: str
    summary: str


def chart(
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    units: Sequence[str],
) -> Chart:
    """Lay out bars over time, with the values of one moment stacked.

    units: for each series, a unit to write after its values, or `$` to write before them.
    """
    top = max((sum(values) for _, values in rows), default=0.0) or 1.0
    step = WIDTH / max(1, len(rows))
    columns = [
        Column(label, _text(names, values, units), _bars(values, number * step, step, top))
        for number, (label, values) in enumerate(rows)
    ]
    totals = [sum(values[n] for _, values in rows) for n in range(len(names))]
    highest = max(rows, key=lambda row: sum(row[1]), default=("", [0.0] * len(names)))
    best = _one(sum(highest[1]), units[0])
    words = f"{title}: {_text(names, totals, units)} in total"
    if sum(highest[1]):
        words += f"; highest on {highest[0]}: {best}"
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


def _text(names: Sequence[str], values: Sequence[float], units: Sequence[str]) -> str:
    if len(names) == 1:
        return _one(values[0], units[0])
    return ", ".join(f"{_one(value, '')} {name}" for name, value in zip(names, values, strict=True))


def _one(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.2f}"
    return f"${value:,.2f}" if unit == "$" else f"{text} {unit}".strip()


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


GRAPH_WIDTH, ROW, BOX = 340, 62, 44
BOX_WIDTH = 236
LONGEST = 29
MOST_STEPS = 120
INPUT = "input"


class Node(NamedTuple):
    """A box: the input, or a step. depth: how many blocks it stands in."""

    id: str
    title: str
    detail: str
    kind: str
    y: int
    depth: int = 0


class Edge(NamedTuple):
    """An arc from a box to one that uses its values: an SVG path and the values' names."""

    path: str
    source: str
    target: str
    names: str


class Graph(NamedTuple):
    """Boxes and arcs. `left_out` counts the steps that are not drawn."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    width: int
    height: int
    left_out: int
    summary: str


def graph_of(routine: Routine) -> Graph:
    """Lay out a routine as a graph of its steps."""
    every = list(_walked(routine.steps, 0))
    shown = every[:MOST_STEPS]
    steps = [step for step, _ in shown]
    inputs = [*properties_of(routine.input_schema)]
    inputs += [secret.name for secret in routine.secrets]
    nodes = [Node(INPUT, "input", _cut(", ".join(map(str, inputs)) or "nothing"), "input", 8)]
    nodes += [_node(step, 8 + ROW * number, depth) for number, (step, depth) in enumerate(shown, 1)]
    made = {step.save_as: number + 1 for number, step in enumerate(steps) if step.save_as}
    for number, step in enumerate(steps, 1):
        made |= dict.fromkeys(step.over, number) if isinstance(step, ForEachStep) else {}
    arcs: dict[tuple[int, int], list[str]] = {}
    for target, step in enumerate(steps, 1):
        for name in sorted(_names(step)):
            source = made.get(name, 0 if name in inputs else None)
            if source is not None and source < target:
                arcs.setdefault((source, target), []).append(name)
    edges = [_edge(nodes, source, target, names) for (source, target), names in arcs.items()]
    summary = "; ".join(f"{edge.target} uses {edge.names} of {edge.source}" for edge in edges)
    left_out = len(every) - len(steps)
    height = 8 + ROW * len(nodes)
    return Graph(
        nodes, edges, GRAPH_WIDTH, height, left_out, summary or "no step uses a value of another"
    )


def _walked(steps: Sequence[Step], depth: int) -> Iterator[tuple[Step, int]]:
    """Yield every step in the order of the text, with how many blocks it stands in."""
    for step in steps:
        yield step, depth
        if isinstance(step, ForEachStep):
            yield from _walked(step.steps, depth + 1)


def _node(step: Step, y: int, depth: int) -> Node:
    detail, kind = _detail(step)
    longest = LONGEST - 2 * depth
    return Node(_cut(step.id), _cut(step.id, longest), _cut(detail, longest), kind, y, depth)


def _detail(step: Step) -> tuple[str, str]:
    if isinstance(step, ToolStep):
        return step.tool, "tool"
    if isinstance(step, UdfStep):
        return step.function, "udf"
    if isinstance(step, AssertStep):
        return step.check, "assert"
    if isinstance(step, PromptStep):
        return step.prompt.message, "prompt"
    if isinstance(step, ForEachStep):
        return ", ".join(f"{name} of {text}" for name, text in step.over.items()), "for_each"
    return msgspec.json.encode(step.value).decode(), "let" if isinstance(
        step, LetStep
    ) else "return"


def _names(step: Step) -> set[str]:
    """Return the names that a step's expressions use."""
    plain: Mapping[str, Any] = msgspec.to_builtins(step)
    found: set[str] = set()
    for text, bare in _expressions(plain):
        try:
            found |= names_in(text, "", bare=bare)
        except ExpressionError:
            continue  # `em routine validate` reports it; the graph shows the rest
    return found


def _expressions(step: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for field, item in step.items():
        if field in ("when", "check"):
            yield str(item), True
        elif field == "over":
            yield from ((str(one), True) for one in item.values())
        elif field not in ("id", "type", "description", "steps"):
            yield from ((text, False) for _, text in texts_in(item, (field,)))


def _edge(nodes: Sequence[Node], source: int, target: int, names: Sequence[str]) -> Edge:
    x = BOX_WIDTH + 8
    start, end = nodes[source].y + BOX // 2 + 6, nodes[target].y + BOX // 2 - 6
    bulge = x + min(GRAPH_WIDTH - x - 6, 14 + 12 * (target - source))
    path = f"M{x} {start} C{bulge} {start} {bulge} {end} {x} {end}"
    return Edge(path, nodes[source].title, nodes[target].title, ", ".join(names))


def _cut(text: str, longest: int = LONGEST) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
