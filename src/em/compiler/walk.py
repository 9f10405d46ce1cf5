"""Walk: a recording of a repair as stops: reads in their order, and what was done at each of them.

A read that is made again after a fix is a further visit of its stop. Several reads that are made
again together are visited again together.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.example import Call, Example
from em.compiler.places import Key, key_of
from em.errors import RoutineError
from em.values.canonical import Json


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
