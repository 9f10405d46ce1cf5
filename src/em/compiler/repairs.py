"""Repairs: recordings that look, put right what they find, and look again, as one plain routine.

The reads of the recordings in their order are the way; each read is a stop. A fix is a call with
the condition that separates the visits of its stop at which it was made from those at which it was
not. Calls of one tool at one stop are one act, unless they differ in an argument that nothing
explains. After fixes the stop is visited again if recordings did, and must then look as they left
it. A state that no recording had at a stop hands over.
"""

import copy
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from em.compiler.condition import (
    Condition,
    Field,
    Has,
    Order,
    Path,
    Search,
    State,
)
from em.compiler.evidence import CONSTANTS_SHOWN, Caution
from em.compiler.example import Call, Example, Role, Write
from em.compiler.explanation import Leaf
from em.compiler.facts import Inputs, States
from em.compiler.places import Key, Place, key_of, plain
from em.compiler.space import Slot, Space
from em.compiler.steps import Writer, read_name
from em.compiler.term import Pick, Result, Term, Value, field_text
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


# --- the routine ----------------------------------------------------------------------------------


class Decided(NamedTuple):
    """An act with its condition; None: it is not known when, and `signs` of it hand over.

    is_always: it was made at every visit.
    """

    act: Act
    condition: Condition | None
    signs: list[Condition]
    yes: int
    visits: int
    is_always: bool = False


class _Acts(Space):
    """The explanations of the arguments of fixes, and of the reads of all stops."""

    def __init__(self, walks: Sequence[Walk], acts: Sequence[Act], caution: Caution) -> None:
        self._walks = {id(walk.example): walk for walk in walks}
        self._calls = [act for act in acts if act.tool != END]
        super().__init__([walk.example for walk in walks], caution)

    def _slots(self) -> list[Slot]:
        return [Slot(act.tool, range(n, n + 1)) for n, act in enumerate(self._calls)]

    def slot_of(self, act: Act) -> Slot:
        """Return the slot of an act."""
        return self.slots[self._calls.index(act)]

    def rounds(self, example: Example) -> list[list[Write]]:
        """Return the first call of each act."""
        walk = self._walks[id(example)]
        found: list[list[Write]] = []
        for act in self._calls:
            fixes = [fix for visit in walk.visits for fix in visit.fixes if visit.stop == act.stop]
            made = [fix for fix in fixes if act.is_made_by(fix)][:1]
            found.append(
                [
                    Write(fix.tool, fix.args, walk.calls[fix.number].result, fix.number)
                    for fix in made
                ]
            )
        return found

    def _habits(self) -> list[Role]:
        for walk in self._walks.values():
            for numbers in walk.reads.values():
                self.use(walk.example, None, numbers[0], walk.example.role(numbers[0], None))
        return []


class _Writer(Writer):
    """Prints terms with the names that the results of stops have at the moment."""

    def __init__(self, space: Space) -> None:
        super().__init__(space)
        self.current: dict[Role, str] = {}

    def text(self, term: Term, hint: str = "") -> str:
        """Return a term as an expression; nothing needs a step of its own."""
        if isinstance(term, Result):
            return self.current[term.role]
        if isinstance(term, Pick):
            return self._pick_text(term)
        return super()._text(term, hint)

    def arguments(
        self, leaves: Iterable[tuple[Place, Leaf]], reasons: Mapping[str, str]
    ) -> tuple[Json, list[Json]] | None:
        """Return arguments, and checks that go with them; None if one of them is not explained.

        reasons: by argument, a value of what the call is made for.
        """
        args: Json = {}
        self.top, self._checks = [], {}
        for place, leaf in leaves:
            name = str(place[0])
            found = self._value(leaf, str(place[-1]))
            if name in reasons and (found is None or isinstance(found.term, Value)):
                args[name] = "{{ " + reasons[name] + " }}"
                continue
            found = found or self.constant(leaf)
            if found is None or len(place) != 1 or self.needs(found.term):
                return None
            if any(role not in self.current for role in self.roles_of(found.term)):
                return None
            args[name] = self.value(found.term)
            if isinstance(found.term, Value):
                self.constants.append((name, json.loads(found.term.json)))
            for agreed in found.agreed:
                self._agree_known(agreed)
        return args, self.top

    def _agree_known(self, agreed: Any) -> None:
        """Check that what is known by now agrees with a value."""
        kept = agreed.leaf.explanations
        agreed.leaf.explanations = {
            source: one
            for source, one in kept.items()
            if getattr(source, "role", None) is None or source.role in self.current
        }
        self._agree(*agreed, is_write=False)
        agreed.leaf.explanations = kept


class Repairs:
    """Learns one routine from recordings of repairs."""

    def __init__(
        self,
        name: str,
        examples: Sequence[Example],
        caution: Caution = CONSTANTS_SHOWN,
    ) -> None:
        self._name = name
        prepared = [copy.copy(example) for example in examples]
        self._tools, self._walks = walks_of(name, prepared)
        for walk in self._walks:
            _name_roles(walk)
        self._rows = [
            [(walk, visit) for walk in self._walks for visit in walk.visits_of(stop)]
            for stop in range(len(self._tools))
        ]
        self._acts = [act for rows in self._rows for act in acts_of(name, rows)]
        # A fix is made only in a state that was seen: what all recordings of it wrote is enough.
        caution = msgspec.structs.replace(caution, repeated=1)
        self._space = _Acts(self._walks, self._acts, caution)
        self._writer = _Writer(self._space)
        self._names = [self._writer.fresh(read_name(tool)) for tool in self._tools]
        self._done = {
            act: self._writer.fresh(f"{act.tool}_done") for act in self._acts if act.tool != END
        }
        self._is_structured = [self._writes_structure(stop) for stop in range(len(self._tools))]
        self._states: dict[int, State] = {}
        self._steps: list[Json] = []
        # The calls of a visit, until everything that they depend on is written.
        self._calls: list[Json] = []
        # The names under which the results of stops are known at the moment.
        self._now = {name: f"given({name})" for name in self._done.values()}

    # ---- what recordings did

    def _writes_structure(self, stop: int) -> bool:
        """Return whether a stop returns texts that all write out a structure."""
        found = [one for walk in self._walks for one in walk.results_of(stop)]
        return all(isinstance(one, str) and not isinstance(structured(one), str) for one in found)

    def _state(self, walk: Walk, visit: Visit) -> State:
        """Return what was known at a visit, by name: inputs, what was read, and what was done."""
        if id(visit) not in self._states:
            state = dict(walk.example.inputs)
            for stop, result in visit.results.items():
                state[self._names[stop]] = self._read(stop, result)
            before = walk.before(visit)
            for act, name in self._done.items():
                if act.stop <= visit.stop:
                    state[name] = any(
                        one.stop == act.stop and any(map(act.is_made_by, one.fixes))
                        for one in before
                    )
            self._states[id(visit)] = state
        return self._states[id(visit)]

    def _read(self, stop: int, result: Any) -> Any:
        return structured(result) if self._is_structured[stop] else result

    @cached_property
    def _decided(self) -> list[Decided]:
        """The acts of all stops with their conditions."""
        found: list[Decided] = []
        for stop in range(len(self._tools)):
            found += self._decided_at(stop)
        return found

    def _decided_at(self, stop: int) -> Iterator[Decided]:
        visits = self._rows[stop]
        again = max((visit.again for _, visit in visits), default=0)
        near = frozenset(self._names[stop - max(again - 1, 0) : stop + 1])
        acts = [one for one in self._acts if one.stop == stop]
        done = {act: tuple(act.is_done(*row) for row in visits) for act in acts}
        left = [True] * len(visits)
        for act in acts:
            rows = [n for n, is_made in enumerate(done[act]) if is_made or left[n]]
            together = [one for one in acts if done[one] == done[act]]
            yes = [self._state(*visits[n]) for n in rows if done[act][n]]
            no = [self._state(*visits[n]) for n in rows if not done[act][n]]
            acted = [_values(visits[n][1].fixes, together) for n in rows if done[act][n]]
            search = Search(yes, no, near, acted)
            condition = search.best()
            signs = [] if condition else search.candidates()
            yield Decided(act, condition, signs, len(yes), len(rows), is_always=not no)
            if act.tool == END:
                # What comes after it is not reached where a recording ended.
                left = [not is_made for is_made in done[act]]

    # ---- the routine

    def steps(self) -> list[Json]:
        """Return the steps of the routine."""
        for stop in range(len(self._tools)):
            self._write_stop(stop)
        last = self._now.get(self._names[-1], self._names[-1])
        self._steps.append({"type": "return", "value": "{{ " + last + " }}"})
        self._steps = _used_only(_without_repetition(self._steps))
        return self._steps

    @property
    def constants(self) -> list[tuple[str, Any]]:
        """Arguments that are always the same."""
        return [*dict(self._writer.constants).items()]

    def _write_stop(self, stop: int) -> None:
        """Write a read, what is done about it, and the further visits."""
        visits = [visit for walk in self._walks for visit in walk.visits_of(stop)]
        rounds = 1 + max(visit.round for visit in visits)
        again = max(visit.again for visit in visits)
        self._write_read(stop, self._names[stop], "")
        self._writer.current[self._role(stop)] = self._names[stop]
        decided = [one for one in self._decided if one.act.stop == stop]
        made = self._act(decided, 0, "")
        for number in range(1, rounds):
            if not made:
                return
            when = " or ".join(made)
            group = range(stop - again + 1, stop + 1)
            before = {one: self._now.get(self._names[one], self._names[one]) for one in group}
            for one in group:
                name = self._writer.fresh(f"{self._names[one]}_again")
                self._write_read(one, name, when)
                self._now[self._names[one]] = name
            made = self._act(decided, number, when)
            for one in group:
                self._settle(one, when, before[one])

    def _settle(self, stop: int, when: str, before: str) -> None:
        """Name the latest result of a stop that may have been visited again."""
        name = self._names[stop]
        now = self._writer.fresh(f"{name}_now")
        value = "{{ " + f"{self._now[name]} if {when} else {before}" + " }}"
        self._steps.append({"type": "let", "value": value, "save_as": now})
        self._now[name] = now
        self._writer.current[self._role(stop)] = now

    def _role(self, stop: int) -> Role:
        walk = next(walk for walk in self._walks if stop in walk.reads)
        return walk.example.role(walk.reads[stop][0], None)

    def _write_read(self, stop: int, name: str, when: str) -> None:
        role = self._role(stop)
        leaves = self._writer.space.roles[role].items()
        found = self._writer.arguments((((one,), leaf) for one, leaf in leaves), {})
        if found is None:
            raise RoutineError(
                f"nothing explains the arguments of {self._tools[stop]}",
                place=self._name,
                fix="record with typed inputs, or give more recordings",
            )
        args, checks = found
        condition = {"when": when} if when else {}
        if not when:
            self._steps += [{**check, **condition} for check in checks]
        step: Json = {"type": "tool.call", "tool": self._tools[stop], "args": args}
        expect, count = self._expected(stop)
        states: Json = {"expect": expect, "held": f"{count}/{len(self._walks)}"}
        if not self._is_structured[stop]:
            self._steps.append({**step, "save_as": name, **condition, **states})
            return
        text = self._writer.fresh(f"{name}_text")
        self._steps.append({**step, "save_as": text, **condition})
        value = "{{ structure(" + text + ") }}"
        let = {"type": "let", "value": value, "save_as": name}
        self._steps.append({**let, **condition, **states})

    def _expected(self, stop: int) -> tuple[Json, int]:
        rows = [
            (walk, self._read(stop, result))
            for walk in self._walks
            for result in walk.results_of(stop)
        ]
        values = [value for _, value in rows]
        schema = States(self._free).schema(
            values, (self._names[stop],), is_text=self._is_structured[stop]
        )
        return schema, len({id(walk) for walk, _ in rows})

    @cached_property
    def _free(self) -> set[Path]:
        """The places whose values are compared with others."""
        return {
            path
            for one in self._decided
            for condition in ([one.condition, *one.condition.others] if one.condition else ())
            for part in condition.parts
            if isinstance(part.feature, Order)
            for path in part.feature.paths
        }

    # ---- what is done at a stop

    def _act(self, decided: Sequence[Decided], number: int, when: str) -> list[str]:
        """Write what is done at a visit; return the conditions on which something was.

        All conditions and checks come before the first call, so that nothing is left half done.
        """
        made: list[str] = []
        known: dict[str, str] = {}
        here = {self._done[one.act] for one in decided if one.act in self._done}
        for one in decided:
            if one.is_always:
                self._call(one, "")
                continue
            if one.condition is None:
                self._leave(one, when)
                continue
            text = one.condition.text(self._now)
            if not self._is_made(one.act, number):
                if not number and {path[0] for path in one.condition.paths} <= here:
                    continue  # it is about what is done only now
                check = {"type": "assert", "check": one.condition.opposite(self._now)}
                self._steps.append({**check, **({"when": when} if when else {})})
                continue
            if text not in known:
                known[text] = self._decide(one, text, when)
            if one.act.tool == END:
                self._calls.append({"type": "return", "value": None, "when": known[text]})
                self._make_calls()
                made = [name for name in made if name != known[text]]
            elif self._call(one, known[text]) and known[text] not in made:
                made.append(known[text])
        self._make_calls()
        return made

    def _make_calls(self) -> None:
        self._steps += self._calls
        self._calls = []

    def _is_made(self, act: Act, number: int) -> bool:
        """Return whether a recording made an act at a visit with this number."""
        return any(
            visit.round == number and act.is_done(walk, visit)
            for walk in self._walks
            for visit in walk.visits_of(act.stop)
        )

    def _decide(self, one: Decided, text: str, when: str) -> str:
        """Write a condition under a name of its own, and the checks that it needs."""
        condition = one.condition
        assert condition is not None
        held = {"held": f"{one.visits}/{one.visits}", **({"when": when} if when else {})}
        for part in condition.parts:
            known = part.known_text(self._now)
            known_names = {*self._names, *self._done.values()}
            is_expected = isinstance(part.feature, Field) and part.feature.path[0] in known_names
            if known and not is_expected and not isinstance(part.feature, Has):
                self._steps.append({"type": "assert", "check": known, **held})
        name = self._writer.fresh(f"needs_{one.act.tool}" if one.act.tool else "is_over")
        value = f"({when}) and ({text})" if when else text
        self._steps.append({"type": "let", "value": "{{ " + value + " }}", "save_as": name})
        for other in condition.others:
            check = f"{name} == ({other.text(self._now)})"
            self._steps.append({"type": "assert", "check": check, **held})
        return name

    def _leave(self, one: Decided, when: str) -> None:
        """Write that an act that nothing explains is left to others."""
        what = one.act.tool or "nothing more"
        message = f"{one.yes} of {one.visits} recordings did {what} here, and it is not known when"
        condition = {"when": when} if when else {}
        texts = [sign.opposite(self._now) for sign in one.signs] or ["false"]
        for text in texts:
            step: Json = {"type": "assert", "check": text, "message": message}
            self._steps.append({**step, **condition})

    def _reasons(self, one: Decided) -> dict[str, str]:
        """Return the arguments that are fields of the one element that a condition is about."""
        parts = one.condition.parts if one.condition else ()
        found: dict[str, str] = {}
        for feature in (part.feature for part in parts if isinstance(part.feature, Has)):
            common: dict[str, set[str]] = {}
            for row in self._rows[one.act.stop]:
                element = feature.only(self._state(*row)) or {}
                for fix in filter(one.act.is_made_by, row[1].fixes):
                    for name, value in fix.args.items():
                        here = {field for field, own in element.items() if own == value}
                        common[name] = common.get(name, here) & here
            base = feature.only_text(self._now)
            for name, fields in common.items():
                if fields:
                    field = name if name in fields else min(fields)
                    found[name] = field_text(base, (field,))
        return found

    def _call(self, one: Decided, when: str) -> bool:
        """Write the call of an act; return whether it can be made."""
        condition = {"when": when} if when else {}
        slot = self._space.slot_of(one.act)
        found = self._writer.arguments(slot.leaves.items(), self._reasons(one))
        if found is None:
            message = f"nothing explains the arguments of {one.act.tool}"
            check = f"not ({when})" if when else "false"
            self._steps.append({"type": "assert", "check": check, "message": message})
            return False
        args, checks = found
        self._steps += [{**check, **condition} for check in checks]
        step: Json = {"type": "tool.call", "tool": one.act.tool, "args": args, "effect": "write"}
        name = self._done[one.act]
        if any(step.get("save_as") == name for step in self._steps):
            name = self._writer.fresh(name)
        self._calls.append({**step, "save_as": name, **condition, "held": f"{one.yes}/{one.yes}"})
        return True

    def input_schema(self) -> Json:
        """Return the schema of the inputs; those that no call uses are states like any other."""
        inputs = [walk.example.inputs for walk in self._walks]
        names = {name for one in inputs for name in _names_in(one)}
        schema = Inputs(names).schema(inputs)
        schema.setdefault("properties", {})
        used = {name for step in self._steps for name in _words(step.get("args", {}))}
        for name in schema["properties"]:
            values = [one[name] for one in inputs if name in one]
            if name not in used:
                schema["properties"][name] = States().schema(values, (name,))
        return {**schema, "additionalProperties": False}


def _values(fixes: Sequence[Fix], acts: Sequence[Act]) -> list[Any]:
    """Return the values that were acted with."""
    made = [fix for fix in fixes if any(act.is_made_by(fix) for act in acts)]
    return [value for fix in made for value in fix.args.values()]


def _name_roles(walk: Walk) -> None:
    """Give each stop of a walk, with all its visits, a role of its own."""
    example = walk.example
    roles: dict[tuple[int, Any], Role] = {}
    for stop, numbers in walk.reads.items():
        role = example.role(numbers[0], None)
        marked = Role(role.tool, (*role.sources, ("", (str(stop),))))
        roles |= {(number, None): marked for number in numbers}
    example._roles = roles


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _names_in(one)


def _words(value: Any) -> set[str]:
    return {*re.findall(r"[A-Za-z_]\w*", json.dumps(value))}


def _without_repetition(steps: Sequence[Json]) -> list[Json]:
    """Return steps without checks that an earlier step makes, with or without a condition."""
    kept: list[Json] = []
    made: set[tuple[str, str]] = set()
    for step in steps:
        if step["type"] == "assert":
            text, when = step["check"], step.get("when", "")
            if {(text, when), (text, "")} & made:
                continue
            made.add((text, when))
        kept.append(step)
    return kept


def _used_only(steps: list[Json]) -> list[Json]:
    """Return steps without values that are named and never used."""
    while True:
        words = [_words({**step, "save_as": ""}) for step in steps]
        kept = [
            step
            for number, step in enumerate(steps)
            if step["type"] != "let"
            or "expect" in step
            or any(step["save_as"] in one for one in words[number + 1 :])
        ]
        if len(kept) == len(steps):
            return kept
        steps = kept
