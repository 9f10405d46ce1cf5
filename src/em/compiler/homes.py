"""Kinds of tasks: what the traces of one kind have in common, as a plan.

Traces are of a kind if they have the same effects. Of every value of an effect the places are
kept where it lived in every trace that looked there: the homes of a value. The way to a home is
a chain of reads whose arguments are inputs, results of other reads, or values of the same effect.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.argument_facts import argument_facts
from em.compiler.calls import TracedCall, identifier, read_name, words_of
from em.compiler.evidence import ENOUGH, information, of_constant
from em.compiler.expectations import expectations
from em.compiler.goal_checks import Look, checks, looks
from em.compiler.record_facts import (
    Shown,
    allowed_values,
    distinct,
    fields_of_kinds,
    fixed_ways,
    record_facts,
    states,
    value_at,
    value_facts,
)
from em.compiler.refusals import Seen, by_error, separating
from em.compiler.sources import Place, places, quoted, reference, text_key
from em.compiler.value_looks import look_facts
from em.runner.candidates import pairs_of
from em.runner.expressions.functions import ANY, KEYS, items_of, kind_of
from em.runner.mentions import FUNCTION_WORDS, analysed
from em.runner.quantifiers import shown as quantity_shown
from em.runner.task_plan import Effect, Known, Plan, Read, Slot, asks_for, listed
from em.values.canonical import Json, identical
from em.values.example_shape import EMAIL
from em.values.leaves import mentioned_in

MOST_EXAMPLES = 8
"""Examples of a value that a plan keeps."""
MOST_VALUES = 12
"""Different values up to which an argument is one of a few."""
LONGEST_VALUE = 60
"""Characters of a value that may be one of a few."""
SURE = 3
"""Traces after which an explanation with less than half as many loses its vote."""
FEWEST_SHOWN = 2
"""Traces that must show what a word like `all` means."""
FEWEST_OF_ALL = 2
"""Things in a list that shows what `all` means: of one thing every word means the same."""


MISSING = object()
"""Stands for an argument that a call was made without."""


class Example:
    """A trace as it is learnt from: its calls that succeeded, and what was asked for.

    The index of a call is its position. earlier: calls before the task, that its input names.
    refused: calls with an effect that failed and did nothing, each at the position of the next one.
    """

    def __init__(
        self,
        calls: Sequence[TracedCall],
        said: str,
        earlier: Sequence[Json] = (),
        refused: Sequence[TracedCall] = (),
    ) -> None:
        self.calls, self.said, self.earlier, self.refused = calls, said, earlier, refused
        self._places: dict[str, list[Place]] | None = None
        self._reads: dict[str, list[TracedCall]] = {}
        self._looks: list[Look] | None = None
        for call in calls:
            if call.effect == "read":
                self._reads.setdefault(call.name, []).append(call)

    def _by_value(self) -> dict[str, list[Place]]:
        """Return the places of all values in the results of reads; made when first needed."""
        if self._places is None:
            self._places = {}
            reads = (call for calls in self._reads.values() for call in calls)
            for call in sorted(reads, key=lambda call: call.index):
                for place in places(call.index, call.result):
                    self._places.setdefault(text_key(place.value), []).append(place)
        return self._places

    def places_of(self, value: Any, before: TracedCall) -> Iterator[Place]:
        """Yield where the results of reads before a call hold a value."""
        if value is None or isinstance(value, bool | dict | list):
            return
        for place in self._by_value().get(text_key(value), ()):
            if place.call < before.index:
                yield place

    def reads(self, tool: str, before: TracedCall) -> Iterable[TracedCall]:
        """Return the calls of a read before another call; the last of equal ones counts."""
        last: dict[str, TracedCall] = {}
        for call in self._reads.get(tool, ()):
            if call.index < before.index:
                last[quoted(call.args)] = call
        return last.values()

    def looks(self, write: TracedCall) -> list[Look]:
        """Return the reads that showed what a call with an effect had done."""
        if self._looks is None:
            self._looks = list(looks(self.calls))
        return [look for look in self._looks if look.write is write]

    @property
    def writes(self) -> list[TracedCall]:
        """The calls with an effect."""
        return [call for call in self.calls if call.effect == "write"]


class Home(NamedTuple):
    """Where a value lives: a tool's result, and the way in it with `*` for any item."""

    tool: str
    way: tuple[str, ...]


class Link(NamedTuple):
    """What an argument of a read equals: a value of the effect, or a field of a chosen record."""

    parameter: str
    slot: str
    field: str = ""


class _Found(NamedTuple):
    links: frozenset[Link]
    place: Place


class Kind:
    """What was learnt about tasks with the same effects.

    others: tasks of other kinds, which may show further ways to what reads give.
    """

    def __init__(self, examples: Sequence[Example], others: Sequence[Example] = ()) -> None:
        self._examples = examples
        self._reads = _Reads(examples, others)

    def plan(self) -> Plan:
        """Return what the traces have in common."""
        by_tool: dict[str, list[_Instance]] = {}
        for example in self._examples:
            for call in example.writes:
                instance = _Instance(call, example, self._reads)
                by_tool.setdefault(call.name, []).append(instance)
        refused: dict[str, list[_Instance]] = {}
        for example in self._examples:
            for call in example.refused:
                instance = _Instance(call, example, self._reads)
                refused.setdefault(call.name, []).append(instance)
        effects = {
            tool: msgspec.structs.replace(
                _Learner(tool, instances, self._reads, refused.get(tool, ())).effect(),
                after=self._effects_before(tool),
            )
            for tool, instances in by_tool.items()
        }
        for tool, effect in effects.items():
            beside = self._effects_beside(tool, effects)
            effects[tool] = msgspec.structs.replace(effect, beside=beside)
        return self._reads.plan(effects)

    def _effects_beside(self, tool: str, effects: Mapping[str, Effect]) -> list[str]:
        """Return the effects that may follow on the same thing: a trace or a result shows it."""
        found = {other for other in effects if other != tool and self._allows(tool, other, effects)}
        for example in self._examples:
            things = [(call.name, _thing(call, effects[call.name])) for call in example.writes]
            own = [thing for name, thing in things if name == tool and thing is not None]
            found |= {
                name
                for name, thing in things
                if name != tool and any(identical(thing, one) for one in own)
            }
        return sorted(found)

    def _effects_before(self, tool: str) -> list[str]:
        """Return the effects that came before this one in every trace that had both."""
        earlier: set[str] = set()
        later: set[str] = set()
        for example in self._examples:
            writes = [call.name for call in example.writes]
            if tool in writes:
                last = len(writes) - 1 - writes[::-1].index(tool)
                earlier |= set(writes[:last])
                later |= set(writes[writes.index(tool) :])
        return sorted(earlier - later - {tool})

    def _allows(self, tool: str, other: str, effects: Mapping[str, Effect]) -> bool:
        """Return whether what an effect left always had the states that another one needs.

        What it left was read again afterwards, or else it is what the effect returned.
        """
        reads = [
            read
            for example in self._examples
            for call in example.writes
            if call.name == other and effects[other].thing
            for read in example.calls[: call.index]
            if _is_read_of(read, _thing(call, effects[other]))
        ]
        seen = [read.result for read in reads]
        needed = {
            way: allowed_values(way[-1], [value_at(one, way) for one in seen])
            for way in fixed_ways(seen)
            if way
        }
        returned: list[Any] = []
        looked: list[Any] = []
        tools = {read.name for read in reads}
        for example in self._examples:
            for call in example.writes:
                if call.name == tool:
                    returned.append(call.result)
                    looked += _looked_at(example, call, _thing(call, effects[tool]), tools)
        return any(needed.values()) and all(
            any(identical(value_at(one, way), state) for state in states)
            for one in looked or returned
            for way, states in needed.items()
            if states
        )


def _is_read_of(call: TracedCall, thing: Any) -> bool:
    return call.effect == "read" and thing in call.args.values()


def _looked_at(
    example: Example, effect: TracedCall, thing: Any, tools: Collection[str]
) -> Iterator[Any]:
    """Yield what some tools said of a thing after an effect, and before the next one."""
    for call in example.calls[effect.index + 1 :]:
        if call.effect != "read":
            return
        if call.name in tools and _is_read_of(call, thing):
            yield call.result


def _thing(call: TracedCall, effect: Effect) -> Any:
    return call.args.get(effect.thing) if effect.thing else None


# --- reads ----------------------------------------------------------------------------------------


class _Reads:
    """What is known about the reads of all traces: how each argument comes about.

    A read whose arguments vary within a task has parameters. The others follow from inputs and
    from other reads, such as who the task is about. Tasks of other kinds may show more ways there.
    """

    def __init__(self, examples: Sequence[Example], others: Sequence[Example] = ()) -> None:
        self._all_calls = [call for example in examples for call in example.calls]
        self._calls: dict[str, list[tuple[TracedCall, Example]]] = {}
        for example in examples:
            for call in example.calls:
                if call.effect == "read":
                    self._calls.setdefault(call.name, []).append((call, example))
        self.parameters: dict[str, tuple[str, ...]] = {}
        self._sources: dict[tuple[str, str], set[str]] = {}
        for tool in self._calls:
            names = self._arguments(tool)
            varying = tuple(name for name in names if self._varies(tool, name))
            for name in names:
                if name not in varying:
                    self._sources[tool, name] = self._whole_results(tool, name)
                    is_on = self._is_acted_on(tool, name) or self._is_joined(tool, name)
                    if not self._sources[tool, name] and is_on:
                        varying = (*varying, name)
            self.parameters[tool] = varying
        self._names: dict[str, str] = {}
        for tool in self._calls:
            self._names[tool] = self._free_name(tool)
        self._pooled = {
            tool: way
            for (reader, name), sources in self._sources.items()
            if sources
            for tool, way in _ways_of_others(others, reader, name).items()
            if tool not in self._calls
        }

    def _arguments(self, tool: str) -> list[str]:
        return list(dict.fromkeys(name for call, _ in self._calls[tool] for name in call.args))

    def _varies(self, tool: str, name: str) -> bool:
        """Return whether an argument was one of a list, or had two values in one trace."""
        seen: dict[int, set[str]] = {}
        for call, example in self._calls[tool]:
            value = call.args.get(name)
            if isinstance(value, dict | list):
                return False
            seen.setdefault(id(example), set()).add(text_key(value))
            if information(value) >= ENOUGH and any(
                place.collections for place in example.places_of(value, call)
            ):
                return True
        return any(len(values) > 1 for values in seen.values())

    def _is_acted_on(self, tool: str, name: str) -> bool:
        """Return whether a read was always about what an effect after it was made on."""
        values = {quoted(call.args.get(name)) for call, _ in self._calls[tool]}
        if len(values) < SURE:
            return False
        if all(information(call.args.get(name)) >= ENOUGH for call, _ in self._calls[tool]):
            return all(bool(_on(name, call, example)) for call, example in self._calls[tool])
        # A short id says little by itself, but it was always the same argument.
        return bool(set.intersection(*(_on(name, *one) for one in self._calls[tool])))

    def _is_joined(self, tool: str, name: str) -> bool:
        """Return whether an argument was always a field of a record that was read before it.

        What requests say is taken from them.
        """
        made = [(call.args.get(name), call, example) for call, example in self._calls[tool]]
        return len({quoted(value) for value, _, _ in made}) > 1 and all(
            any(place.is_fixed and place.parts for place in example.places_of(value, call))
            and not mentioned_in(value, example.said)
            for value, call, example in made
        )

    def _whole_results(self, tool: str, name: str) -> set[str]:
        """Return the reads whose whole result was this argument."""
        return {
            example.calls[place.call].name
            for call, example in self._calls[tool]
            for place in example.places_of(call.args.get(name), call)
            if not place.parts
        }

    def is_global(self, tool: str) -> bool:
        """Return whether a read follows from inputs and other reads."""
        return tool in self.parameters and not self.parameters[tool]

    def reference(self, tool: str, links: Mapping[str, Link]) -> str:
        """Return the expression that makes a read."""
        given = [links[one] for one in self.parameters[tool]]
        texts = [reference("item", (one.field,)) if one.field else one.slot for one in given]
        return f"{self._names[tool]}({', '.join(texts)})"

    def _free_name(self, tool: str) -> str:
        """Return the name of a read: that of the argument it gives, if it gives one."""
        for (_, name), sources in self._sources.items():
            if tool in sources:
                return name
        name = read_name(tool, self._all_calls)
        while name in self._names.values():
            name += "_2"
        return name

    def plan(self, effects: dict[str, Effect]) -> Plan:
        """Return a plan with the reads that effects need, and their inputs."""
        reads: dict[str, list[Read]] = {}
        inputs: dict[str, Known] = {}
        for tool in self._calls:
            args: Json = {}
            for name in self._arguments(tool):
                values = [call.args[name] for call, _ in self._calls[tool] if name in call.args]
                if name in self.parameters[tool]:
                    args[name] = f"{{{{ {name} }}}}"
                elif self._sources.get((tool, name)):
                    args[name] = f"{{{{ {name}() }}}}"
                elif all(identical(value, values[0]) for value in values) and len(values) > SURE:
                    args[name] = values[0]
                else:
                    args[name] = f"{{{{ {identifier(name)} }}}}"
                    known = inputs.get(identifier(name), Known()).examples
                    inputs[identifier(name)] = Known([*known, *distinct(values)][:MOST_EXAMPLES])
            read = Read(tool=tool, args=args, given=self.parameters[tool])
            reads.setdefault(self._names[tool], []).append(read)
        taken = {*reads, *(name for effect in effects.values() for name in effect.slots)}
        for tool, way in self._pooled.items():
            names = {name: identifier(name) for name in way.looks}
            if way.gives in reads and taken.isdisjoint(names.values()):
                args = {name: f"{{{{ {own} }}}}" for name, own in names.items()}
                reads[way.gives].append(Read(tool=tool, args=args))
                for name, own in names.items():
                    known = inputs.get(own, Known()).examples
                    inputs[own] = Known(distinct([*known, *way.looks[name]])[:MOST_EXAMPLES])
        return _needed(Plan(effects=effects, reads=reads, inputs=inputs))


def _on(name: str, read: TracedCall, example: Example) -> set[str]:
    """Return the arguments that all effects after a read have with the value of one of its own."""
    value = read.args.get(name)
    after = [call for call in example.writes if call.index > read.index]
    found = [
        {n for n, v in call.args.items() if not isinstance(v, dict | list) and identical(v, value)}
        for call in after
    ]
    return set.intersection(*found) if found and value is not None else set()


class _OtherWay(NamedTuple):
    """A read of other kinds of task: what it gives, and what its arguments look like."""

    gives: str
    looks: Mapping[str, Sequence[str]]


def _ways_of_others(others: Sequence[Example], reader: str, name: str) -> dict[str, _OtherWay]:
    """Return the reads whose result was an argument of another read, in every task that made both.

    Of their own arguments only the looks are kept: they are about other people.
    """
    made: dict[str, list[TracedCall]] = {}
    denied: set[str] = set()
    for example in others:
        for call in example.calls:
            if call.name == reader and not isinstance(call.args.get(name), dict | list):
                wanted = call.args.get(name)
                for read in example.calls[: call.index]:
                    if read.effect != "read" or isinstance(read.result, dict | list):
                        continue
                    if identical(read.result, wanted) and _is_said(read, example):
                        made.setdefault(read.name, []).append(read)
                    else:
                        denied.add(read.name)
    found: dict[str, _OtherWay] = {}
    for tool, calls in made.items():
        looks = {arg: [faceless(call.args.get(arg)) for call in calls] for arg in calls[0].args}
        same = all(call.args.keys() == calls[0].args.keys() for call in calls)
        different = {quoted(call.args) for call in calls}
        constant = any(len({quoted(c.args.get(arg)) for c in calls}) == 1 for arg in looks)
        if tool not in denied and same and looks and not constant and len(different) >= SURE:
            found[tool] = _OtherWay(name, {arg: distinct(own) for arg, own in looks.items()})
    return found


def _is_said(read: TracedCall, example: Example) -> bool:
    """Return whether all arguments of a read stand in the words of its task."""
    values = list(read.args.values())
    return bool(values) and all(
        isinstance(one, str | int | float) and mentioned_in(one, example.said) for one in values
    )


def acted_with(calls: Sequence[TracedCall], given: Collection[str]) -> dict[str, list[Any]]:
    """Return the arguments that all calls of an effect had, but those that a read was made with."""
    return {
        name: [call.args[name] for call in calls]
        for name in calls[0].args
        if name.isidentifier() and name not in given and all(name in call.args for call in calls)
    }


def faceless(value: Any) -> str:
    """Return a value that looks like another one, and says nothing else about it."""
    text = str(value)
    if EMAIL.fullmatch(text.strip()):
        return "name@host.example"
    if text.isalpha():
        return "Name" if text[:1].isupper() else "name"
    return re.sub(r"[^\W\d_]", "x", re.sub(r"\d", "0", text))


def _needed(plan: Plan) -> Plan:
    """Return a plan without reads and inputs that nothing uses."""
    text = msgspec.json.encode(plan.effects).decode()
    used: set[str] = set()
    todo = [name for name in plan.reads if f"{name}(" in text]
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            own = msgspec.json.encode(plan.reads[name]).decode()
            todo += [other for other in plan.reads if f"{other}(" in own]
    reads = {name: read for name, read in plan.reads.items() if name in used}
    own = msgspec.json.encode(reads).decode()
    inputs = {name: known for name, known in plan.inputs.items() if f"{{{{ {name} }}}}" in own}
    return Plan(effects=plan.effects, reads=reads, inputs=inputs)


# --- effects --------------------------------------------------------------------------------------


class _Instance:
    """One recorded call with an effect, and where its values stood before it."""

    def __init__(self, call: TracedCall, example: Example, reads: _Reads) -> None:
        self.call, self.example, self._reads = call, example, reads
        self.homes: dict[str, dict[Home, list[_Found]]] = {}
        """By argument and home: for each value of it what was found there."""
        self.records: dict[str, list[Any]] = {}
        # The second time the records are known to which others may belong.
        for _ in range(2):
            for name, value in call.args.items():
                self._find(name, value)

    def looks(self) -> list[Look]:
        """Return the reads that showed what the call had done."""
        return self.example.looks(self.call)

    def _find(self, name: str, value: Any) -> None:
        values = value if isinstance(value, list) else [value]
        if not values or any(isinstance(one, dict | list) for one in values):
            self.homes[name] = {}
            return
        found: dict[Home, list[_Found]] = {}
        for number, one in enumerate(values):
            for home, item in self._of_value(name, number, one):
                if len(found.setdefault(home, [])) == number:
                    found[home].append(item)
        self.homes[name] = {h: items for h, items in found.items() if len(items) == len(values)}
        for home, items in self.homes[name].items():
            records = [_record(one.place) for one in items]
            if all(isinstance(record, dict) for record in records) and home.way[-1] != KEYS:
                self.records.setdefault(name, records)

    def _of_value(self, name: str, number: int, value: Any) -> Iterator[tuple[Home, _Found]]:
        if information(value) < ENOUGH / 2:
            return
        for place in self.example.places_of(value, self.call):
            read = self.example.calls[place.call]
            if any(text_key(value) == text_key(one.value) for one in places(0, read.args)):
                continue  # it was read with this value, so the result only repeats it
            links = frozenset(
                link
                for parameter in self._reads.parameters.get(read.name, ())
                for link in self._links(parameter, read.args.get(parameter), name, number)
            )
            yield Home(read.name, place.general), _Found(links, place)

    def _links(self, parameter: str, value: Any, name: str, number: int) -> Iterator[Link]:
        for other, given in self.call.args.items():
            if other != name and not isinstance(given, dict | list) and identical(given, value):
                yield Link(parameter, other)
        for other, records in self.records.items():
            if other != name and number < len(records):
                for field, content in records[number].items():
                    if not isinstance(content, dict | list) and identical(content, value):
                        yield Link(parameter, other, field)

    def looked(self, home: Home, links: Mapping[str, Link], name: str) -> bool:
        """Return whether the trace made the reads that would show a value at a home."""
        value = self.call.args.get(name)
        for number in range(len(value) if isinstance(value, list) else 1):
            wanted = {p: self._linked(link, number) for p, link in links.items()}
            if not any(
                all(identical(call.args.get(p), wanted[p]) for p in wanted)
                for call in self.example.reads(home.tool, self.call)
            ):
                return False
        return True

    def _linked(self, link: Link, number: int) -> Any:
        if not link.field:
            return self.call.args.get(link.slot)
        records = self.records.get(link.slot, ())
        return records[number].get(link.field) if number < len(records) else None


class _Way(NamedTuple):
    """A home that no trace contradicts, how its reads are made, and how many traces had it."""

    home: Home
    links: Mapping[str, Link]
    traces: int


class _Learner:
    """Learns one effect from all calls of it."""

    def __init__(
        self,
        tool: str,
        instances: Sequence[_Instance],
        reads: _Reads,
        refused: Sequence[_Instance] = (),
    ) -> None:
        self._tool, self._instances, self._reads, self._refused = tool, instances, reads, refused
        self._names = list(dict.fromkeys(name for one in instances for name in one.call.args))
        self._ways = {name: self._kept(name) for name in self._names}

    def effect(self) -> Effect:
        """Return the effect as a plan has it; a value that others need stands before them."""
        slots = {name: self._slot(name) for name in self._names}
        if sum(bool(slot.records and slot.many and not slot.of) for slot in slots.values()) > 1:
            # Nothing tells which list a word like `all` means.
            slots = {n: msgspec.structs.replace(slot, whole=()) for n, slot in slots.items()}
        each = self._each()
        reasons = self._refusals()
        guards = [*reasons, *self._facts(), *self._relations()]
        guards += self._of_records(str(slots), guards)
        guards += self._of_values(slots)
        # What is not there, or is an error, has no fields.
        guards.sort(key=lambda text: not text.startswith(("error_of(", "shape_of(")))
        return Effect(
            tool=self._tool,
            words=self._words(),
            slots=dict(sorted(slots.items(), key=lambda one: self._depth(one[0]))),
            guards=list(dict.fromkeys(guards)),
            reasons=reasons,
            expects=expectations(
                self._instances[0].call,
                [one.call for one in self._instances[1:]],
                beside=(call for one in self._instances for call in one.example.calls),
            ),
            each=each if each and slots[each].records and not slots[each].of else "",
            apart=self._apart(),
            thing=next(iter(self._ids()), ""),
            checks=checks([look for one in self._instances for look in one.looks()]),
        )

    def _apart(self) -> list[str]:
        """Return the ids that no two calls of a task shared; if no task had two, the first id."""
        ids = self._ids()
        tasks: dict[int, list[Json]] = {}
        for one in self._instances:
            tasks.setdefault(id(one.example), []).append(one.call.args)
        several = [calls for calls in tasks.values() if len(calls) > 1]
        if not several:
            return ids[:1]
        return [
            name
            for name in ids
            if all(len(distinct(args[name] for args in calls)) == len(calls) for calls in several)
        ]

    def _ids(self) -> list[str]:
        """Return the values that were an id in every call."""
        return [
            name
            for name in self._names
            if all(kind_of(one.call.args.get(name)) == "code" for one in self._instances)
        ]

    def _each(self) -> str:
        """Return the value that one sentence named several times, once for each call."""
        effect = Effect(tool=self._tool, words=self._words())
        by_trace: dict[int, list[_Instance]] = {}
        for one in self._instances:
            by_trace.setdefault(id(one.example), []).append(one)
        shown: set[str] = set()
        for several in by_trace.values():
            calls = [one.call.args for one in several]
            values = {n: distinct(args.get(n) for args in calls) for n in self._names}
            varying = [name for name, held in values.items() if len(held) > 1]
            if len(varying) == 1 and len(values[varying[0]]) == len(calls):
                ids = _listed_ids(effect, varying[0], several[0].example.said)
                if ids and ids == sorted(map(str, values[varying[0]])):
                    shown.add(varying[0])
        for name in [*shown]:
            for several in by_trace.values():
                ids = _listed_ids(effect, name, several[0].example.said)
                if ids and ids != sorted(str(one.call.args.get(name)) for one in several):
                    shown.discard(name)
        return shown.pop() if len(shown) == 1 else ""

    def _words(self) -> list[str]:
        values = {word.rstrip("s") for name in self._names for word in words_of(name)}
        words = words_of(self._tool)
        return [w for w in words if w.rstrip("s") not in values and w not in FUNCTION_WORDS]

    def _depth(self, name: str) -> int:
        way = self._primary(name)
        if way is None or not way.links:
            return 0
        return 1 + max(self._depth(link.slot) for link in way.links.values())

    # --- homes ------------------------------------------------------------------------------------

    def _kept(self, name: str) -> list[_Way]:
        """Return the homes of a value that no trace contradicts, the best known first."""
        found: dict[Home, list[frozenset[Link]]] = {}
        for one in self._instances:
            for home, items in one.homes.get(name, {}).items():
                found.setdefault(home, []).append(frozenset.intersection(*(i.links for i in items)))
        ways: list[_Way] = []
        for home, several in found.items():
            links = _one_each(frozenset.intersection(*several), self._reads.parameters[home.tool])
            if links is not None and not self._is_denied(name, home, links):
                ways.append(_Way(home, links, len(several)))
        most = max((way.traces for way in ways), default=0)
        if most >= SURE:
            ways = [way for way in ways if way.traces * 2 >= most]
        return sorted(ways, key=lambda way: (-way.traces, way.home.way.count(ANY), way.home))

    def _is_denied(self, name: str, home: Home, links: Mapping[str, Link]) -> bool:
        """Return whether a trace looked there and did not find the value."""
        return any(
            home not in one.homes.get(name, {}) and one.looked(home, links, name)
            for one in self._instances
            if name in one.call.args
        )

    def _primary(self, name: str) -> _Way | None:
        """Return the home that a value is chosen from: one whose records say more than their id."""
        listed = [way for way in self._ways[name] if _is_list(way.home)]
        telling = [way for way in listed if self._is_telling(name, way.home)]
        return next(iter(telling or listed or self._ways[name]), None)

    def _is_telling(self, name: str, home: Home) -> bool:
        return home.way[-1] != KEYS and any(len(record) > 1 for record in self._chosen(name, home))

    # --- slots ------------------------------------------------------------------------------------

    def _slot(self, name: str) -> Slot:
        values = [one.call.args[name] for one in self._instances if name in one.call.args]
        many = all(isinstance(value, list) for value in values)
        flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
        plain = [one for one in distinct(flat) if not isinstance(one, dict | list)]
        shown = Slot(examples=plain[:MOST_EXAMPLES], many=many)
        way = self._primary(name)
        if way is None:
            if not many and self._is_constant(name, plain):
                return Slot(values=plain, default=[quoted(plain[0])])
            return Slot(values=plain, many=many) if _is_one_of_few(plain, flat) else shown
        if not _is_list(way.home):
            fixed = [one for one in self._ways[name] if not _is_list(one.home)]
            return msgspec.structs.replace(shown, default=[self._at(o, o.home.way) for o in fixed])
        return self._choice(name, way, shown)

    def _is_constant(self, name: str, distinct: Sequence[Any]) -> bool:
        """Return whether a value was the same in enough tasks, though no request said it."""
        requests = {one.example.said for one in self._instances}
        said = any(mentioned_in(value, text) for value in distinct for text in requests)
        return len(distinct) == 1 and not said and of_constant(len(requests)) >= ENOUGH

    def _choice(self, name: str, way: _Way, shown: Slot) -> Slot:
        """Return the slot of a value that is chosen from a list."""
        records, key = _split(way.home.way)
        of = next((link.slot for link in way.links.values() if link.field), "")
        others = [
            one
            for one in self._ways[name]
            if one is not way and _is_list(one.home) and not _is_paired(one)
        ]
        return msgspec.structs.replace(
            shown,
            records=self._at(way, records),
            key=key,
            of=of,
            like=self._like(name, of) if of else "",
            must=self._must(name, way.home),
            fields=self._fields(name, way.home),
            whole=self._whole(name, way.home, key) if shown.many and not of else (),
            among=[]
            if of
            else [
                f"every({self._reads.reference(one.home.tool, one.links)},"
                f" {quoted('.'.join(one.home.way))})"
                for one in others
            ],
        )

    def _whole(self, name: str, home: Home, key: str) -> list[str]:
        """Return the words that meant all of a list, or all but the named ones, in enough traces.

        Words that meant something else in a trace don't count.
        """
        effect = Effect(tool=self._tool, words=self._words())
        traces: dict[str, set[int]] = {}
        denied: set[str] = set()
        for one in self._instances:
            found = one.homes.get(name, {}).get(home, ())
            lists = [item.place.collections[-1][1] for item in found if item.place.collections]
            if not lists or any(not identical(held, lists[0]) for held in lists):
                continue
            pairs = pairs_of(lists[0], key)
            meant = quantity_shown(effect, name, one.example.said, pairs)
            if meant is None or len(pairs) < FEWEST_OF_ALL:
                continue
            values = sorted(quoted(value) for value in one.call.args[name])
            if values == sorted(quoted(value) for value, _ in meant.pairs):
                traces.setdefault(meant.phrase, set()).add(id(one.example))
            else:
                denied.add(meant.phrase)
        return sorted(p for p, t in traces.items() if len(t) >= FEWEST_SHOWN and p not in denied)

    def _at(self, way: _Way, parts: Sequence[str]) -> str:
        return reference(self._reads.reference(way.home.tool, way.links), tuple(parts))

    def _like(self, name: str, of: str) -> str:
        """Return the field by which a record is like another: a mapping with the same keys."""
        fields: list[set[str]] = []
        for one in self._instances:
            pairs = zip(one.records.get(of, ()), one.records.get(name, ()), strict=False)
            fields += [_alike(old, new) for old, new in pairs]
        return min(set.intersection(*fields), default="") if fields else ""

    def _chosen(self, name: str, home: Home) -> list[Json]:
        """Return the records that were chosen."""
        records = [
            _record(item.place)
            for one in self._instances
            for item in one.homes.get(name, {}).get(home, ())
        ]
        return [record for record in records if isinstance(record, dict)]

    def _fields(self, name: str, home: Home) -> list[str]:
        """Return the fields that chosen records had, or records of another kind beside them."""
        own = {str(field) for record in self._chosen(name, home) for field in record}
        lists = {
            id(items): items
            for one in self._instances
            for item in one.homes.get(name, {}).get(home, ())
            for _, items in item.place.collections[-1:]
        }
        beside = [record for items in lists.values() for record in items_of(items)]
        return sorted(own | fields_of_kinds(beside))

    def _must(self, name: str, home: Home) -> dict[str, list[Any]]:
        """Return the flags and states that all chosen records had."""
        records = self._chosen(name, home)
        found: dict[str, list[Any]] = {}
        for field in records[0] if records else ():
            allowed = allowed_values(str(field), [record.get(field) for record in records])
            if allowed:
                found[str(field)] = allowed
        return found

    # --- guards -----------------------------------------------------------------------------------

    def _linked_reads(
        self, instances: Sequence[_Instance] | None = None, *, also_global: bool = False
    ) -> dict[str, list[tuple[_Instance, TracedCall]]]:
        """Return the reads that are made with values of the effect, by their expression.

        also_global: those that follow from inputs as well, such as of the customer.
        """
        found: dict[str, list[tuple[_Instance, TracedCall]]] = {}
        unknown: dict[str, list[tuple[_Instance, TracedCall]]] = {}
        of = self._instances if instances is None else instances
        for tool, parameters in self._reads.parameters.items():
            for one in of if parameters or also_global else ():
                for call in one.example.reads(tool, one.call):
                    links = {p: _same_value(one.call, call.args.get(p), p) for p in parameters}
                    known = {p: link for p, link in links.items() if link is not None}
                    if len(known) == len(links):
                        text = self._reads.reference(tool, known)
                        found.setdefault(text, []).append((one, call))
                    elif len(parameters) == 1:
                        unknown.setdefault(tool, []).append((one, call))
        for tool, made in unknown.items():
            for field in self._joins(tool, made, dict(found)):
                link = Link(self._reads.parameters[tool][0], field)
                found[self._reads.reference(tool, {link.parameter: link})] = made
        return found

    def _joins(
        self,
        tool: str,
        made: Sequence[tuple[_Instance, TracedCall]],
        known: Mapping[str, Sequence[tuple[_Instance, TracedCall]]],
    ) -> list[str]:
        """Return the fields of records that a read was made with, each time that it was made."""
        (parameter,) = self._reads.parameters[tool]
        fields: list[set[str]] = []
        for one, call in made:
            value = call.args.get(parameter)
            fields.append(
                {
                    reference(text, way)
                    for text, others in known.items()
                    for other, read in others
                    if other is one and read.index < call.index
                    for way in fixed_ways([read.result])
                    if way and identical(value_at(read.result, way), value)
                }
            )
        return sorted(set.intersection(*fields))

    def _facts(self) -> Iterator[str]:
        """Yield what was so of the records that were acted on, in every trace."""
        for text, made in self._linked_reads().items():
            yield from states(text, [call.result for _, call in made])

    def _of_records(self, used: str, guards: Sequence[str]) -> Iterator[str]:
        """Yield what all records had in common that every trace read, or that are read anyway.

        used: the expressions of values. guards: those that are evaluated anyway.
        """
        evaluated = f"{used} {guards}"
        for text, made in self._linked_reads(also_global=True).items():
            if text in evaluated or {id(one) for one, _ in made} == {
                id(o) for o in self._instances
            }:
                seen = [Shown(self._made_with(text, one), call.result) for one, call in made]
                given = {name for shown in seen for name in shown.given}
                calls = [one.call for one, _ in made]
                yield from record_facts(text, seen, acted_with(calls, given), used=used)

    def _made_with(self, text: str, one: _Instance) -> Json:
        """Return the values of an effect that a read was made with."""
        given = text.partition("(")[2].rstrip(")").split(", ")
        return {name: one.call.args[name] for name in given if name in one.call.args}

    def _of_values(self, slots: Mapping[str, Slot]) -> Iterator[str]:
        """Yield how values looked that reads gave, and what was so of arguments."""
        given: dict[str, list[Any]] = {}
        for name, slot in slots.items():
            values = [one.call.args.get(name, MISSING) for one in self._instances]
            if not name.isidentifier() or any(one is MISSING for one in values):
                continue
            if slot.default and not slot.records and any("(" in text for text in slot.default):
                yield from value_facts(name, values)
            given[name] = values
            yield from look_facts(name, values)
        yield from argument_facts(given)

    def _refusals(self) -> dict[str, str]:
        """Return checks that tell the calls that failed from all that succeeded, with the error."""
        if not self._refused:
            return {}
        good = self._linked_reads(also_global=True)
        found: dict[str, str] = {}
        for error, failed in by_error((one.call.error, one) for one in self._refused).items():
            bad = self._linked_reads(failed, also_global=True)
            for text, made in bad.items():
                if text in good and len({id(one) for one, _ in made}) == len(failed):
                    done = [Seen(one.call.args, call.result) for one, call in good[text]]
                    not_done = [Seen(one.call.args, call.result) for one, call in made]
                    for check in separating(text, done, not_done, self._names):
                        found.setdefault(check, error)
        return found

    def _relations(self) -> Iterator[str]:
        """Yield that a record belongs to whom the task is about, where it always did."""
        for text, made in self._linked_reads().items():
            for parts in fixed_ways([made[0][1].result]):
                values = [(one, value_at(call.result, parts)) for one, call in made]
                if any(information(value) < ENOUGH for _, value in values):
                    continue
                for tool in self._reads.parameters:
                    if self._reads.is_global(tool) and self._is_result_of(tool, values):
                        yield f"{reference(text, parts)} == {self._reads.reference(tool, {})}"

    def _is_result_of(self, tool: str, values: Sequence[tuple[_Instance, Any]]) -> bool:
        """Return whether a read gave these values, in every trace that made it."""
        known = [
            (value, [call.result for call in one.example.reads(tool, one.call)])
            for one, value in values
        ]
        made = [(value, results) for value, results in known if results]
        return bool(made) and all(any(identical(v, r) for r in results) for v, results in made)


# --- helpers --------------------------------------------------------------------------------------


def _record(place: Place) -> Any:
    """Return the innermost item of a list or mapping that holds a place."""
    if not place.collections:
        return None
    depth, items = place.collections[-1]
    return items[place.parts[depth]]


def _listed_ids(effect: Effect, name: str, said: str) -> list[str]:
    """Return the ids that the one sentence of a request lists which asks for an effect."""
    words = analysed(said)
    pieces = [words.part(span) for span in words.pieces()]
    asking = [piece for piece in pieces if asks_for(effect, piece.text)]
    return sorted(text for _, text in listed(effect, name, asking[0])) if len(asking) == 1 else []


def _is_list(home: Home) -> bool:
    return ANY in home.way or KEYS in home.way


def _is_paired(way: _Way) -> bool:
    return any(link.field for link in way.links.values())


def _split(way: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the way to a list, and the path of the value within an item of it."""
    last = max(number for number, part in enumerate(way) if part in (ANY, KEYS))
    if way[last] == KEYS:
        return way[:last], KEYS
    return way[:last], ".".join(way[last + 1 :])


def _one_each(links: frozenset[Link], parameters: Sequence[str]) -> dict[str, Link] | None:
    """Return a link for each parameter of a read; None if one has none."""
    chosen: dict[str, Link] = {}
    for parameter in parameters:
        fitting = sorted(link for link in links if link.parameter == parameter)
        if not fitting:
            return None
        chosen[parameter] = fitting[0]
    return chosen


def _same_value(call: TracedCall, value: Any, parameter: str) -> Link | None:
    """Return which argument of a call has this value."""
    # A short id may equal something else by chance, but that has another name.
    for name in sorted(call.args, key=lambda one: one != parameter):
        given = call.args[name]
        if not isinstance(given, dict | list) and identical(given, value):
            return Link(parameter, name)
    return None


def _alike(old: Json, new: Json) -> set[str]:
    """Return the mappings that two records have with the same keys."""
    return {
        field
        for field, value in new.items()
        if isinstance(value, dict)
        and isinstance(old.get(field), dict)
        and value.keys() == old[field].keys()
    }


def _is_one_of_few(distinct: Sequence[Any], values: Sequence[Any]) -> bool:
    """Return whether a value is one of a few words. An id is one only if it was used again."""
    if len(distinct) > MOST_VALUES or any(len(str(one)) > LONGEST_VALUE for one in distinct):
        return False
    has_digits = any(char.isdigit() for one in distinct for char in str(one))
    return not has_digits or len(distinct) <= len(values) / 2
