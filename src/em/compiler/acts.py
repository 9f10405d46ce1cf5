"""Acts: what recordings of repairs did at the stops of their walk, as kinds of calls.

Calls of one tool at one stop are one act, unless they differ in an argument that nothing explains:
granting one permission and granting another are two.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.places import plain
from em.compiler.walk import Fix, Visit, Walk
from em.errors import RoutineError
from em.values.structure import structured

Rows = Sequence[tuple[Walk, Visit]]
"""The visits of a stop, with the recordings that they belong to."""
END = ""
"""The tool of an act that is no call: nothing more was done."""


class Act(NamedTuple):
    """Something that was done at a stop: a tool, and the arguments that tell it from other acts."""

    stop: int
    tool: str
    told: tuple[tuple[str, str], ...] = ()

    def is_made_by(self, fix: Fix) -> bool:
        """Return whether a recorded fix is this act."""
        return fix.tool == self.tool and all(
            json.dumps(fix.args.get(name), sort_keys=True) == value for name, value in self.told
        )

    def is_done(self, walk: Walk, visit: Visit) -> bool:
        """Return whether it was done at a visit."""
        if self.tool == END:
            return walk.ends_at(visit)
        return any(map(self.is_made_by, visit.fixes))


def acts_of(name: str, rows: Rows) -> Iterator[Act]:
    """Yield what was done at the visits of one stop, in an order that all recordings agree with."""
    tools = dict.fromkeys(fix.tool for _, visit in rows for fix in visit.fixes)
    acts: dict[Act, None] = {}
    for tool in tools:
        calls = [
            (walk, visit, fix) for walk, visit in rows for fix in visit.fixes if fix.tool == tool
        ]
        telling = _telling(calls)
        for _, visit, fix in calls:
            told = tuple((one, json.dumps(fix.args.get(one), sort_keys=True)) for one in telling)
            acts[Act(visit.stop, tool, told)] = None
    yield from _in_order(name, [*acts], rows)


def _in_order(name: str, acts: list[Act], rows: Rows) -> Iterator[Act]:
    """Yield acts so that none comes before one that came before it in a recording.

    What ends a run comes first, so that nothing else is done in such a case.
    """
    orders = [
        [next(act for act in acts if act.is_made_by(fix)) for fix in visit.fixes]
        for _, visit in rows
    ]
    if any(len({*order}) < len(order) for order in orders):
        raise RoutineError("a fix was made twice without looking again", place=name)
    ends = [walk.ends_at(visit) for walk, visit in rows]
    goes_on = {
        act for order, is_end in zip(orders, ends, strict=True) if not is_end for act in order
    }
    ending = {act for order, is_end in zip(orders, ends, strict=True) if is_end for act in order}
    end = [Act(rows[0][1].stop, END)] if any(ends) else []
    if not ending:
        yield from end
        end = []
    while acts:
        free = [act for act in acts if not any(_follows(act, order, acts) for order in orders)]
        if not free:
            raise RoutineError(
                f"recordings made {' and '.join(act.tool for act in acts)} in different orders",
                place=name,
                fix="compile them apart",
            )
        first = min(free, key=lambda act: act in goes_on)
        yield first
        acts.remove(first)
        if not ending & {*acts}:
            yield from end
            end = []


def _follows(act: Act, order: Sequence[Act], left: Sequence[Act]) -> bool:
    """Return whether an act came after one that is left, in one recording."""
    return act in order and any(other in left for other in order[: order.index(act)])


def _telling(calls: Sequence[tuple[Walk, Visit, Fix]]) -> list[str]:
    """Return the arguments of a tool that nothing explains in all calls: they tell acts apart."""
    names = dict.fromkeys(name for _, _, fix in calls for name in fix.args)
    found = []
    for name in names:
        common: set[Any] | None = None
        for walk, visit, fix in calls:
            here = {*_sources(walk, visit, fix.args.get(name))}
            common = here if common is None else common & here
        if not common:
            found.append(name)
    return found


def _sources(walk: Walk, visit: Visit, value: Any) -> Iterator[Any]:
    """Yield where a value may come from: it is constant, an input, or was read."""
    yield "constant", json.dumps(value, sort_keys=True)
    for place, one in plain(walk.example.inputs):
        if one == value:
            yield "input", place
    for stop, result in visit.results.items():
        for place, one in plain(structured(result)):
            if one == value:
                yield stop, place
