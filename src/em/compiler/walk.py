"""Walk: a recording of a repair as stops: reads in their order, and what was done at each of them.

A read that is made again after a fix is a further visit of its stop. Several reads that are made
again together are visited again together. Calls of one tool at one stop are one act, unless they
differ in an argument that nothing explains: granting one permission and granting another are two.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.example import Call, Example
from em.compiler.places import Key, key_of, plain
from em.errors import RoutineError
from em.values.canonical import Json
from em.values.structure import structured

END = ""
"""The tool of an act that is no call: nothing more was done."""


class Fix(NamedTuple):
    """A call with an effect; `number` is its number among all calls."""

    tool: str
    args: Json
    number: int


class Visit(NamedTuple):
    """One time at a stop: the latest results of all stops until then, and the fixes made there.

    again: how many stops were visited again together; none at the first visit.
    """

    stop: int
    round: int
    results: dict[int, Any]
    fixes: list[Fix]
    again: int = 0


class Walk:
    """What one recording did, stop by stop."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.calls = [call for call in example.calls if call.error is None]
        self.keys: list[tuple[str, Key]] = []
        self.visits: list[Visit] = []
        # By stop: the numbers of the calls that read it.
        self.reads: dict[int, list[int]] = defaultdict(list)
        # The number of the last stop of the common way.
        self.last = 0
        self._results: dict[int, Any] = {}
        number = 0
        while number < len(self.calls):
            number += self._take(number)

    @property
    def tools(self) -> list[str]:
        """The tools of its stops."""
        return [tool for tool, _ in self.keys]

    def _take(self, number: int) -> int:
        """Take the next call, or several reads that are made again; return how many."""
        call = self.calls[number]
        if call.effect != "read":
            if not self.visits:
                raise RoutineError(
                    f"{call.tool} was called before anything was read",
                    place=self.example.name,
                    fix="record what was looked at before",
                )
            self.visits[-1].fixes.append(Fix(call.tool, call.args, number))
            return 1
        if self.visits and self.visits[-1].fixes:
            again = self._again(number)
            if again:
                for one in range(again):
                    stop = len(self.keys) - again + one
                    self._read(stop, number + one)
                self._visit(self.visits[-1].round + 1, again)
                return again
        self.keys.append(_key(call))
        self._read(len(self.keys) - 1, number)
        self._visit(0, 0)
        return 1

    def _read(self, stop: int, number: int) -> None:
        self._results[stop] = self.calls[number].result
        self.reads[stop].append(number)

    def _visit(self, number: int, again: int) -> None:
        stop = len(self.keys) - 1
        self.visits.append(Visit(stop, number, dict(self._results), [], again))

    def _again(self, number: int) -> int:
        """Return how many of the last stops are visited again from a call on."""
        for count in range(1, len(self.keys) + 1):
            following = self.calls[number : number + count]
            if [_key(call) for call in following] == self.keys[-count:]:
                return count
        return 0

    def along(self, tools: Sequence[str]) -> "Walk | None":
        """Return the walk with the numbers of its stops on a longer way; None if it is not on it.

        A stop that it lacks was not visited; from its last stop on it ended early.
        """
        numbers: list[int] = []
        at = 0
        for tool in self.tools:
            if tool not in tools[at:]:
                return None
            at = tools.index(tool, at) + 1
            numbers.append(at - 1)
        made = Walk.__new__(Walk)
        made.__dict__.update(self.__dict__)
        made.visits = [
            visit._replace(
                stop=numbers[visit.stop],
                results={numbers[stop]: result for stop, result in visit.results.items()},
            )
            for visit in self.visits
        ]
        made.last = len(tools) - 1
        made.reads = defaultdict(list, {numbers[stop]: one for stop, one in self.reads.items()})
        return made

    def ends_at(self, visit: Visit) -> bool:
        """Return whether the recording ended at a visit, before the end of the common way."""
        return visit is self.visits[-1] and visit.stop < self.last

    def before(self, visit: Visit) -> list[Visit]:
        """Return the visits that were made before another one."""
        return self.visits[: next(n for n, one in enumerate(self.visits) if one is visit)]

    def visits_of(self, stop: int) -> list[Visit]:
        """Return the visits of a stop."""
        return [visit for visit in self.visits if visit.stop == stop]

    def results_of(self, stop: int) -> list[Any]:
        """Return all that a stop returned."""
        return [self.calls[number].result for number in self.reads.get(stop, ())]


def _key(call: Call) -> tuple[str, Key]:
    return call.tool, key_of(call.args)


def walks_of(name: str, examples: Sequence[Example]) -> tuple[list[str], list[Walk]]:
    """Return the tools of the common way, and the walk of each recording along it."""
    walks = [Walk(example) for example in examples]
    tools = max((walk.tools for walk in walks), key=len)
    found = []
    for walk in walks:
        along = walk.along(tools)
        if along is None:
            raise RoutineError(
                f"recording {walk.example.name or '?'} read things in another order: {walk.tools},"
                f" where others read {tools}",
                place=name,
                fix="compile it apart",
            )
        found.append(along)
    return tools, found


def is_repair(examples: Sequence[Example]) -> bool:
    """Return whether recordings looked, did different things about it, and went on looking.

    They looked again at what they had changed, or at least they all went the same way.
    """
    if len({example.kind for example in examples}) == 1:
        return False
    if not any(call.effect == "read" for one in examples for call in _after_first_write(one)):
        return False
    try:
        _, walks = walks_of("", examples)
    except RoutineError:
        return any(visit.again for example in examples for visit in _visits(example))
    return bool(walks)


def _visits(example: Example) -> list[Visit]:
    try:
        return Walk(example).visits
    except RoutineError:
        return []


def _after_first_write(example: Example) -> Iterator[Call]:
    calls = iter([call for call in example.calls if call.error is None])
    for call in calls:
        if call.effect != "read":
            yield from calls


Rows = Sequence[tuple[Walk, Visit]]
"""The visits of a stop, with the recordings that they belong to."""


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
