"""A routine as a graph: steps below each other, and an arc for each value from where it comes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.errors import ExpressionError
from em.runner.expressions.language import names_in
from em.runner.expressions.references import texts_in
from em.runner.routine import AssertStep, PromptStep, Routine, Step, ToolStep, UdfStep

WIDTH, ROW, BOX = 340, 62, 44
BOX_WIDTH = 236
LONGEST = 30
MOST_STEPS = 120
INPUT = "input"


class Node(NamedTuple):
    """A box."""

    id: str
    title: str
    detail: str
    kind: str
    y: int


class Edge(NamedTuple):
    """A value on its way: an SVG path, and its names."""

    path: str
    source: str
    target: str
    names: str


class Graph(NamedTuple):
    """Boxes and arcs; `left_out`: steps beyond what can be drawn."""

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    width: int
    height: int
    left_out: int
    told: str


def graph_of(routine: Routine) -> Graph:
    """Draw a routine."""
    steps = list(routine.steps)[:MOST_STEPS]
    inputs = list(((routine.input_schema or {}).get("properties") or {}).keys())
    inputs += [secret.name for secret in routine.secrets]
    nodes = [Node(INPUT, "input", ", ".join(map(str, inputs)) or "nothing", "input", 8)]
    nodes += [_node(step, 8 + ROW * (number + 1)) for number, step in enumerate(steps)]
    made = {step.save_as: number + 1 for number, step in enumerate(steps) if step.save_as}
    arcs: dict[tuple[int, int], list[str]] = {}
    for target, step in enumerate(steps, 1):
        for name in sorted(_names(step)):
            source = made.get(name, 0 if name in inputs else None)
            if source is not None and source < target:
                arcs.setdefault((source, target), []).append(name)
    edges = [_edge(nodes, source, target, names) for (source, target), names in arcs.items()]
    told = "; ".join(f"{edge.target} uses {edge.names} of {edge.source}" for edge in edges)
    left_out = len(routine.steps) - len(steps)
    height = 8 + ROW * len(nodes)
    return Graph(nodes, edges, WIDTH, height, left_out, told or "no step uses a value of another")


def _node(step: Step, y: int) -> Node:
    detail, kind = _detail(step)
    return Node(_cut(step.id), _cut(step.id), _cut(detail), kind, y)


def _detail(step: Step) -> tuple[str, str]:
    if isinstance(step, ToolStep):
        return step.tool, "tool"
    if isinstance(step, UdfStep):
        return step.function, "udf"
    if isinstance(step, AssertStep):
        return step.check, "assert"
    if isinstance(step, PromptStep):
        return step.prompt.message, "prompt"
    return msgspec.json.encode(step.value).decode(), "return"


def _names(step: Step) -> set[str]:
    """The names that a step's expressions use."""
    plain: Mapping[str, Any] = msgspec.to_builtins(step)
    found: set[str] = set()
    for text, bare in _expressions(plain):
        try:
            found |= names_in(text, "", bare=bare)
        except ExpressionError:
            continue  # `em validate` tells of it; a picture shows the rest
    return found


def _expressions(step: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for field, item in step.items():
        if field in ("when", "check"):
            yield str(item), True
        elif field == "checks":
            yield from ((str(one), True) for part in item.values() for one in part)
        elif field not in ("id", "type", "description"):
            yield from ((text, False) for _, text in texts_in(item, (field,)))


def _edge(nodes: Sequence[Node], source: int, target: int, names: Sequence[str]) -> Edge:
    x = BOX_WIDTH + 8
    start, end = nodes[source].y + BOX // 2 + 6, nodes[target].y + BOX // 2 - 6
    bulge = x + min(WIDTH - x - 6, 14 + 12 * (target - source))
    path = f"M{x} {start} C{bulge} {start} {bulge} {end} {x} {end}"
    return Edge(path, nodes[source].title, nodes[target].title, ", ".join(names))


def _cut(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
