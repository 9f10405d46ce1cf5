"""Example: one recording as the learner reads it: typed inputs, reads, writes and what came of it.

Failed calls are no part of it but for what they refuse. The result of a write counts as a read
for what comes after it. A call may be repeated for each element of a list of the inputs or, where
none has as many, of a list that a read returned, if every round shows something of its element.
"""

import copy
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import Later, TracedApproval, TracedCall, calls_of
from em.compiler.commands import is_bookkeeping
from em.compiler.evidence import ENOUGH_TO_ACT, information, is_small
from em.compiler.places import (
    ELEMENT,
    POSITION,
    RECORD,
    TEXT,
    Key,
    Over,
    Path,
    Place,
    folded,
    follow,
    is_code,
    is_exactly,
    is_scalar,
    is_word,
    key_of,
    last_name,
    lists_in,
    walk,
    wholes,
)
from em.runner.run import REQUEST
from em.runner.tools.coding import is_coding_tool
from em.traces.trace import Approval, KeptTrace, Message, Trace
from em.values.call import Effect
from em.values.canonical import Json, same
from em.values.structure import structured

APPROVAL = "prompt.user"
"""The tool of a question that a person answered: it stands in its place among the writes."""
MOST_IN_BODY = 6
"""Different writes that are repeated together."""
FEWEST_SIGNS = 3
"""Characters of a value that is cut out of a text."""
MOST_PLACES = 50_000
"""Values of one result that are indexed; what stands behind them explains nothing."""


class Call(NamedTuple):
    """A recorded call."""

    tool: str
    args: Json
    result: Any = None
    error: Any = None
    effect: Effect = "read"
    is_udf: bool = False
    is_glance: bool = False
    """It looked around in files or with a shell: what nothing uses of that says nothing."""


class Role(NamedTuple):
    """What a read is for: its tool and, by argument, the input that it repeats.

    None: the argument comes from elsewhere, mostly from another read. So one record that is
    reached in two ways has one role, and two orders of which one was asked for have two.
    """

    tool: str
    sources: tuple[tuple[str, Place | None], ...] = ()
    which: str = ""
    """What tells it from other reads of its tool, where arguments don't: of a session."""

    @property
    def is_lookup(self) -> bool:
        """Whether inputs alone give its arguments: another way to ask for the same."""
        return bool(self.sources) and all(place is not None for _, place in self.sources)

    @property
    def write(self) -> str | None:
        """The tool of the write whose result this is; None for a read."""
        return self.tool[1:] if self.tool.startswith("#") else None


class Read:
    """A recorded read, with the places of every value in its result."""

    def __init__(
        self,
        tool: str,
        args: Json,
        result: Any,
        asked: Iterable[Key] = (),
        named: Collection[str] = (),
    ) -> None:
        self.tool, self.args = tool, args
        self.result = structured(result)
        # The result is a text that writes out a structure, which the routine must read too.
        self.raw = result
        self.is_written_out = self.result is not result
        self._asked = {*asked, *(key_of(one) for one in args.values())}
        self.index: dict[Key, list[tuple[Place, Path]]] = defaultdict(list)
        self.size = 0
        for place, path, value in walk(self.result):
            self.size += 1
            if self.size > MOST_PLACES:
                break
            # If an input names the field, it is one of many.
            is_named = bool(path) and path[-1] in named and place[-1] in named
            where = (*place[:-1], RECORD) if is_named else place
            self.index[key_of(value)].append((where, path))
        for place, path, value in wholes(self.result):
            self.index[key_of(value)].append((place, path))
        if self.is_written_out and isinstance(result, str):
            self.index[key_of(result)].append(((TEXT,), (TEXT,)))

    @cached_property
    def by_place(self) -> Mapping[Place, set[Key]]:
        """The different values at each place of the result."""
        found: dict[Place, set[Key]] = defaultdict(set)
        for key, places in self.index.items():
            for place, _ in places:
                found[place].add(key)
        return found

    @cached_property
    def values(self) -> list[tuple[str, Any]]:
        """The scalars of the result, each with the name of its field."""
        return [(last_name(place), value) for place, _, value in walk(self.result)]

    @cached_property
    def lists(self) -> list[tuple[str, list[Any]]]:
        """The lists of the result that stand in no other one with several elements."""
        return [
            (last_name(place), value)
            for place, _, value in wholes(self.result)
            if isinstance(value, list)
        ]

    def repeats(self, value: Any) -> bool:
        """Return whether a value is one of the arguments: that the result has it says nothing."""
        return key_of(value) in self._asked

    def paths(self, value: Any) -> list[tuple[Place, Path]]:
        """Return where exactly this value stands in the result."""
        found = self.index.get(key_of(value), ())
        return [one for one in found if is_exactly(self._at(one[1]), value)]

    def _at(self, path: Path) -> Any:
        return self.raw if path == (TEXT,) else follow(self.result, path)

    def holds(self, value: Any) -> bool:
        """Return whether the result has a value that was not asked for."""
        return key_of(value) in self.index and not self.repeats(value)


class Write(NamedTuple):
    """A recorded call with an effect; `before` is the number of reads made until then."""

    tool: str
    args: Json
    result: Any
    before: int


class Said(NamedTuple):
    """What the inputs say that is in scope: scalars and records, each with its place."""

    leaves: list[tuple[Place, Any]]
    records: list[tuple[Place, Json]]


class Turn(NamedTuple):
    """One round of a loop: its number, and how many there are."""

    number: int
    of: int


class Example:
    """One recording of a task."""

    def __init__(
        self,
        inputs: Json,
        calls: Sequence[Call],
        *,
        request: str = "",
        output: Any = None,
        name: str = "",
        subject: str = "",
        defaults: Collection[str] = (),
    ) -> None:
        # Every write is one of its own: none is a round of a loop.
        self._is_flat = False
        # Inputs that need not be given: their recorded value is what the task is called by.
        self.defaults = defaults
        self.inputs, self.request, self.output, self.name = inputs, request, output, name
        self.subject = subject
        self.calls = calls
        self.refused = [call for call in calls if call.error is not None]
        self.reads: list[Read] = []
        self.writes: list[Write] = []
        for call in calls:
            if call.error is None:
                self._take(call)
        self._said: dict[Turn | None, Said] = {}
        self._roles: dict[tuple[int, Turn | None], Role] = {}
        self._alternatives: dict[tuple[str, Place], list[tuple[int, int]]] = {}

    def with_inputs(self, inputs: Json) -> "Example":
        """Return the same recording as if other inputs had been given."""
        made = copy.copy(self)
        made.inputs, made._said, made._roles = inputs, {}, {}
        for name in ("result_lists", "scope", "_lists_of", "_given", "_longest_list", "known"):
            vars(made).pop(name, None)
        return made

    def flat(self) -> "Example":
        """Return the same recording in which no write is a round of a loop."""
        made = self.with_inputs(self.inputs)
        made._is_flat = True
        for name in ("blocks", "kind"):
            vars(made).pop(name, None)
        return made

    def _take(self, call: Call) -> None:
        if call.effect == "read":
            self.reads.append(Read(call.tool, call.args, call.result, named=self._texts))
            return
        self.writes.append(Write(call.tool, call.args, call.result, len(self.reads)))
        asked = [key_of(one) for _, _, one in (*walk(call.args), *wholes(call.args))]
        self.reads.append(Read(f"#{call.tool}", {}, call.result, asked))

    @cached_property
    def _texts(self) -> set[str]:
        """The texts among the inputs."""
        return {value for _, _, value in walk(self.inputs) if isinstance(value, str)}

    @cached_property
    def kind(self) -> tuple[str, ...]:
        """The tools that it wrote with, in their order; those that are repeated count once."""
        return tuple(tool for body in self.bodies for tool in body)

    @property
    def bodies(self) -> list[tuple[str, ...]]:
        """The tools that it wrote with, as blocks of which each may have been repeated."""
        return [tools for tools, _ in self.blocks]

    @cached_property
    def blocks(self) -> list[tuple[tuple[str, ...], int]]:
        """The tools that it wrote with, as blocks, and how often each was made."""
        tools = [write.tool for write in self.writes]
        found: list[tuple[tuple[str, ...], int]] = []
        at = 0
        while at < len(tools):
            most = 0 if self._is_flat else MOST_IN_BODY
            lengths = range(1, max(1, min(most, len(tools) - at)) + 1)
            rounds = {length: self._rounds(tools, at, length) for length in lengths}
            length = max(lengths, key=lambda one: (rounds[one] > 1, rounds[one] * one, -one))
            if rounds[length] == 1:
                length = 1
            found.append((tuple(tools[at : at + length]), rounds[length]))
            at += length * rounds[length]
        return found

    def _rounds(self, tools: list[str], at: int, length: int) -> int:
        """Return how often some writes were repeated, each time without using the last round.

        They were repeated for the elements of a list that was given. If there is none with so many,
        the first of them may be for the elements, and those after them are writes of their own.
        """
        count = 1
        while not self._is_flat and count <= self._longest_list:
            start = at + count * length
            if tools[start : start + length] != tools[at : at + length]:
                break
            before = range(start - length, start)
            if any(self._uses(one, before) for one in range(start, start + length)):
                break
            count += 1
        rounds = [self.writes[at + n * length : at + (n + 1) * length] for n in range(count)]
        written = [[write.args for write in one] for one in rounds]
        if count == 1 or looped(self, written, rounds[0][0].before):
            return count
        lists = [one for _, one in lists_in(self.inputs)]
        return max((len(one) for one in lists if self._is_for(one, at, length, count)), default=1)

    @cached_property
    def _longest_list(self) -> int:
        """The length of the longest list that may have been gone through."""
        lists = [one for _, one in lists_in(self.inputs)]
        lists += [items for _, items in self.result_lists.values()]
        return max(map(len, lists), default=0)

    def _is_for(self, elements: list[Any], at: int, length: int, most: int) -> bool:
        """Return whether writes from a number on were made for the elements of a list, in turn."""
        if not 0 < len(elements) <= most:
            return False
        for number, element in enumerate(elements):
            start = at + number * length
            known = {key_of(value) for _, _, value in walk(element)}
            args = [write.args for write in self.writes[start : start + length]]
            if not any(key_of(value) in known for one in args for _, _, value in walk(one)):
                return False
        return True

    def _uses(self, number: int, before: Collection[int]) -> bool:
        """Return whether a write was given something that one of those before it returned."""
        earlier = [self.reads[self.writes[one].before] for one in before]
        return any(
            read.holds(value) and information(value) >= ENOUGH_TO_ACT
            for read in earlier
            for _, _, value in walk(self.writes[number].args)
        )

    @cached_property
    def first_write(self) -> int:
        """The number of reads that were made before the first write."""
        return self.writes[0].before if self.writes else len(self.reads)

    @cached_property
    def by_tool(self) -> Mapping[str, list[tuple[int, Read]]]:
        """The reads of each tool, with their numbers."""
        found: dict[str, list[tuple[int, Read]]] = defaultdict(list)
        for number, read in enumerate(self.reads):
            found[read.tool].append((number, read))
        return found

    @cached_property
    def _holders(self) -> Mapping[Key, list[int]]:
        """By value: the numbers of the reads whose result has it."""
        found: dict[Key, list[int]] = defaultdict(list)
        for number, read in enumerate(self.reads):
            for key in read.index:
                found[key].append(number)
        return found

    @cached_property
    def _given(self) -> set[Key]:
        """The values of the inputs."""
        return {key_of(value) for _, _, value in walk(self.inputs)}

    @cached_property
    def known(self) -> Collection[str]:
        """The texts of inputs and arguments, and the codes that reads returned."""
        told = [value for _, value in self.said(None).leaves]
        told += [value for read in self.reads for value in read.args.values()]
        codes = {one for read in self.reads for _, one in read.values if is_code(one)}
        texts = {str(one) for one in told if is_scalar(one)} | {
            one for one in codes if len(one.split()) == 1
        }
        return {one for one in texts if len(one) >= FEWEST_SIGNS}

    def was_known(self, key: object, before: int) -> bool:
        """Return whether an input has a value, or a read before a number returned it."""
        numbers = self._holders.get(key)  # type: ignore[call-overload]
        return key in self._given or (numbers is not None and numbers[0] < before)

    def having(self, value: Any, before: int) -> list[tuple[int, Read]]:
        """Return the reads before a number whose result has a value, with their numbers."""
        numbers = self._holders.get(key_of(value), [])
        return [(one, self.reads[one]) for one in numbers[: bisect_left(numbers, before)]]

    def holding(self, value: Any, before: int) -> list[tuple[int, Read]]:
        """Return the same without the reads that were asked for the value."""
        return [row for row in self.having(value, before) if not row[1].repeats(value)]

    @cached_property
    def _askers(self) -> Mapping[Key, list[int]]:
        """By value: the numbers of the reads that had it as an argument."""
        found: dict[Key, list[int]] = defaultdict(list)
        for number, read in enumerate(self.reads):
            for value in read.args.values():
                found[key_of(value)].append(number)
        return found

    def asked_with(self, keys: Iterable[Key], before: int) -> list[int]:
        """Return the numbers of the reads before one that had a value as an argument."""
        numbers = {one for key in keys for one in self._askers.get(key, ())}
        return sorted(one for one in numbers if one < before)

    @cached_property
    def sizes(self) -> list[int]:
        """How many values had been read before each read, and at the end."""
        return [0, *accumulate(read.size for read in self.reads)]

    def alternatives(self, tool: str, place: Place, before: int) -> int:
        """Return how many different values reads of a tool before a number had at a place."""
        if (tool, place) not in self._alternatives:
            seen: set[Key] = set()
            counts = self._alternatives[tool, place] = []
            for number, read in self.by_tool[tool]:
                seen |= read.by_place.get(place, set())
                counts.append((number, len(seen)))
        counts = self._alternatives[tool, place]
        known = bisect_left(counts, before, key=itemgetter(0))
        return counts[known - 1][1] if known else 0

    @property
    def turns(self) -> Collection[Turn | None]:
        """The rounds of loops that were looked at."""
        return self._said.keys()

    def said(self, turn: Turn | None, beside: Any = None) -> Said:
        """Return what the inputs say, in a round of a loop also about its own element.

        beside: an element of a list; what it says about itself is left out.
        """
        if turn not in self._said:
            said = self._said[turn] = Said([], [])
            self._gather(self.inputs, (), turn, said, is_inside=False)
            if turn is not None and not self._is_given(turn.of):
                for over, (_, items) in self.result_lists.items():
                    if len(items) == turn.of:
                        element = items[turn.number]
                        self._gather(element, (over, ELEMENT), turn, said, is_inside=True)
                        if turn.of > 1 and is_scalar(element):
                            said.leaves.append(((over, ELEMENT, POSITION), turn.number + 1))
        found = self._said[turn]
        own = self._lists_of.get(id(beside)) if turn is not None and beside is not None else None
        return _without(found, own) if own else found

    def _is_given(self, length: int) -> bool:
        """Return whether the inputs have a list with so many elements."""
        return any(len(one) == length for _, one in lists_in(self.inputs))

    @cached_property
    def result_lists(self) -> dict[Over, tuple[int, list[Any]]]:
        """The lists that reads returned, each with the number of its read."""
        found: dict[Over, tuple[int, list[Any]]] = {}
        for number, read in enumerate(self.reads):
            if read.tool.startswith("#"):
                continue
            for place, items in lists_in(read.result):
                over = Over(self.role(number, None), place)
                found.setdefault(over, (number, items))
                for field, value in self._named_fields(items):
                    some = [one for one in items if same(one.get(field), value)]
                    found.setdefault(over._replace(field=field, value=value), (number, some))
        return found

    @cached_property
    def _lists_of(self) -> Mapping[int, set[Over]]:
        """By the identity of an element: the lists that reads returned and that it stands in."""
        found: dict[int, set[Over]] = defaultdict(set)
        for over, (_, items) in self.result_lists.items():
            for one in items:
                found[id(one)].add(over)
        return found

    def _named_fields(self, items: list[Any]) -> list[tuple[str, Any]]:
        """Return the fields that tell some elements from others, and that the request names."""
        if not all(isinstance(one, dict) for one in items):
            return []
        rows = {(name, value) for one in items for name, value in one.items() if is_word(value)}
        words = {folded(word) for word in re.findall(r"\w+", self.request)}
        return [
            (name, value)
            for name, value in sorted(rows, key=str)
            if name.isidentifier() and (folded(name) in words or folded(str(value)) in words)
            if any(not same(one.get(name), value) for one in items)
        ]

    @cached_property
    def scope(self) -> dict[Any, Any]:
        """The inputs, and beside them the lists that reads returned."""
        lists = {over: items for over, (_, items) in self.result_lists.items()}
        return {**self.inputs, **lists}

    def leaves(self, turn: Turn | None, before: int) -> list[tuple[Place, Any]]:
        """Return what is in scope before a read: inputs, and in a round its own element."""
        found = self.said(turn).leaves
        if turn is None:
            return found
        return [
            (place, value)
            for place, value in found
            if not (place and isinstance(place[0], Over)) or self.result_lists[place[0]][0] < before
        ]

    def _gather(
        self, value: Any, place: Place, turn: Turn | None, said: Said, *, is_inside: bool
    ) -> None:
        if isinstance(value, dict):
            if place:
                said.records.append((place, value))
            for name, one in value.items():
                self._gather(one, (*place, name), turn, said, is_inside=is_inside)
        elif isinstance(value, list):
            if place:
                said.leaves.append((place, value))
            if not is_inside and turn is not None and len(value) == turn.of:
                element = value[turn.number]
                self._gather(element, (*place, ELEMENT), turn, said, is_inside=True)
        else:
            said.leaves.append((place, value))

    def role(self, number: int, turn: Turn | None) -> Role:
        """Return what a read is for."""
        if (number, turn) not in self._roles:
            self._roles[number, turn] = self._role(number, turn)
        return self._roles[number, turn]

    def _role(self, number: int, turn: Turn | None) -> Role:
        read, said = self.reads[number], self.leaves(turn, number)
        # Inputs that stand beside one another belong together: the zip of the name that was given.
        beside = [
            place[:-1]
            for name, value in read.args.items()
            for place, one in said
            if place[-1:] == (name,) and same(one, value)
        ]
        sources: list[tuple[str, Place | None]] = []
        for name, value in sorted(read.args.items()):
            fit = [place for place, one in said if same(one, value)]
            fit.sort(key=lambda place, name=name: _rank(place, name, beside))  # type: ignore[misc]
            is_clear = bool(fit) and (
                information(value) >= ENOUGH_TO_ACT
                or fit[0][-1:] == (name,)
                or (len(fit) == 1 and information(value) >= 3)
            )
            sources.append((name, fit[0] if is_clear else None))
        return Role(read.tool, tuple(sources))


def _without(said: Said, own: Collection[Over]) -> Said:
    """Return what is said, without the elements of some lists."""
    return Said(
        [row for row in said.leaves if row[0][0] not in own],
        [row for row in said.records if row[0][0] not in own],
    )


def _rank(place: Place, name: str, beside: list[Place]) -> tuple[bool, int, int, str]:
    return place[-1:] != (name,), -beside.count(place[:-1]), len(place), str(place)


def example_of(
    kept: KeptTrace,
    declared: Mapping[str, Effect | None] | None = None,
    *,
    keep_all: bool = False,
) -> Example:
    """Return a trace as an example, without the calls with which the agent kept notes for itself.

    keep_all: every call counts as a write, so that each is made again, and in its order.
    """
    trace = kept.trace
    traced, approvals = calls_of(trace, declared or {})
    return Example(
        inputs_of(trace),
        [*_calls(traced, approvals, keep_all=keep_all)],
        request=request_of(trace, traced),
        output=None if trace.final_output is msgspec.UNSET else trace.final_output,
        name=kept.id,
        subject=kept.subject or "",
    )


def _calls(
    traced: Sequence[TracedCall], approvals: Sequence[TracedApproval], *, keep_all: bool
) -> Iterator[Call]:
    """Yield the calls of a trace, and the questions that a person answered.

    A write that failed so that nobody knows whether it took effect counts as made, unless the same
    was done later.
    """
    later, asked = Later(traced), [*approvals]
    for call in traced:
        while asked and asked[0].index <= call.index:
            yield _question(asked.pop(0))
        if is_bookkeeping(call.name) and call.effect == "read":
            continue
        error = call.error
        if call.effect_unknown and later.same(call) is None:
            error = None
        effect: Effect = "write" if keep_all else call.effect
        is_glance = effect == "read" and (bool(call.shell) or is_coding_tool(call.name))
        yield Call(call.name, call.args, call.shown, error, effect, call.is_udf, is_glance)
    yield from map(_question, asked)


def _question(one: TracedApproval) -> Call:
    return Call(APPROVAL, {"message": one.prompt}, {"answer": one.answer}, effect="write")


def request_of(trace: Trace, calls: Sequence[TracedCall] | None = None) -> str:
    """Return what the user said before the first effect: in messages, else as an input or the goal.

    calls: those of the trace, if they are known already.
    """
    said = [one.text for one in trace.events if isinstance(one, Message) and one.role == "user"]
    if len(said) > 1:
        heard = _heard(trace, calls_of(trace, {})[0] if calls is None else calls)
        if heard:
            return "\n".join(heard)
    given = trace.mission.input_summary.get(REQUEST)
    words = given if isinstance(given, str) else ""
    return "\n".join(said) or words or trace.mission.goal


def _heard(trace: Trace, calls: Sequence[TracedCall]) -> list[str]:
    """Return what the user said before the first effect after that; nothing if there is none."""
    heard: list[str] = []
    made = iter(calls)
    for event in trace.events:
        if isinstance(event, Message):
            heard += [event.text] if event.role == "user" and event.text else []
        elif not isinstance(event, Approval) and next(made).effect == "write" and heard:
            return heard
    return []


def inputs_of(trace: Trace) -> Json:
    """Return the typed inputs of a trace: without those that only repeat what was said."""
    said = {trace.mission.goal, *(one.text for one in trace.events if isinstance(one, Message))}
    return {
        name: value
        for name, value in trace.mission.input_summary.items()
        if name != REQUEST and not (isinstance(value, str) and value and value in said)
    }


def looped(example: Example, rounds: Sequence[Any], before: int) -> set[Place]:
    """Return the lists that were gone through: one round for each element.

    rounds: what was written in each of them. before: the number of reads that were made before.
    """
    given: set[Place] = {
        place for place, one in lists_in(example.inputs) if len(one) == len(rounds)
    }
    if given or not rounds:
        return given
    best: tuple[int, Over] | None = None
    for over, (number, items) in example.result_lists.items():
        if number >= before or len(items) != len(rounds):
            continue
        hits = [_hits(example, one, written) for one, written in zip(items, rounds, strict=True)]
        if all(hits) and (best is None or sum(hits) > best[0]):
            best = sum(hits), over
    return set() if best is None else {(best[1],)}


def _hits(example: Example, element: Any, written: Any) -> int:
    """Return how many values of an element were written, also in texts, or led to what was."""
    values = [value for _, _, value in walk(written)]
    own = [one for _, _, one in walk(element) if not is_small(one)]
    found = sum(any(_is_in(one, value) for value in values) for one in own)
    for number in example.asked_with(map(key_of, own), len(example.reads)):
        read = example.reads[number]
        is_own = any(is_exactly(one, arg) for one in own for arg in read.args.values())
        found += is_own and any(read.holds(value) for value in values)
    return found


def _is_in(one: Any, value: Any) -> bool:
    return is_exactly(one, value) or (isinstance(value, str) and str(one) in value)


Body = tuple[str, ...]
"""Tools that are called one after the other, perhaps in several rounds."""


def sequence_of(examples: Sequence[Example]) -> list[Body] | None:
    """Return the writes of a kind in their order; None if it is not clear what the order is.

    If a shorter recording fits the longest in several ways, it is not known which it left out.
    """
    longest = max(examples, key=lambda one: len(one.writes))
    most = max(examples, key=lambda one: len(one.kind))
    if all(_ways(one.kind, most.kind) == 1 for one in examples):
        return longest.bodies if longest.kind == most.kind else most.bodies
    return _merged([one.bodies for one in examples])


def _ways(short: Sequence[str], long: Sequence[str]) -> int:
    """Return in how many ways some writes are a part of others, in their order."""
    found = [1] + [0] * len(short)
    for tool in long:
        for number in range(len(short), 0, -1):
            if short[number - 1] == tool:
                found[number] += found[number - 1]
    return found[-1]


def _merged(sequences: Sequence[Sequence[Body]]) -> list[Body] | None:
    """Return one order that all sequences keep to, in which each tool has one place.

    Recordings that have no write in common are of different kinds.
    """
    bodies = dict.fromkeys(body for one in sequences for body in one)
    tools = [tool for body in bodies for tool in body]
    is_one = any(all(body in one for one in sequences) for body in bodies)
    is_clear = len({*tools}) == len(tools)
    if not is_one or not is_clear or any(len({*one}) < len(one) for one in sequences):
        return None
    before: dict[Body, dict[Body, None]] = {body: {} for body in bodies}
    for one in sequences:
        for first, then in pairwise(one):
            before[then][first] = None
    try:
        return [*TopologicalSorter(before).static_order()]
    except CycleError:
        return None
