"""The draft of a routine with rounds: loops over the members of lists that reads returned.

The calls that every trace made once are compiled together, without the rounds. Each call of a round
is compiled with the member that it was made for as an input. What was learnt about it is then
written for every member: as one step with `for_each`, or as several that share the turns of a loop.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.branches import MOST_REASONS, NothingDecides, Reason, columns_of, reasons_of
from em.compiler.calls import Names, TracedCall, identifier, result_name
from em.compiler.draft import Draft, Recorded, names_used
from em.compiler.evidence import ENOUGH, INCREDIBLE, information, of_mention
from em.compiler.loops import bare, checked_early, renamed, renamed_value
from em.compiler.members import (
    GIVEN,
    Round,
    Source,
    Stage,
    Way,
    features,
    fields_for,
    is_another_each_time,
    rounds_of,
    stages_of,
)
from em.compiler.record_facts import Shown, allowed_values, record_facts
from em.compiler.sources import quoted, reference
from em.compiler.value_looks import look_facts
from em.runner.agreement import names_in_expression, part_at, place_parts, single_places
from em.runner.expressions.functions import ANY, FUNCTIONS, KEYS
from em.runner.expressions.words import check_in_words
from em.runner.routine import AssertStep, ReturnStep, Step, ToolStep, UdfStep
from em.traces.trace import Mission, ToolCall, Trace, UdfCall
from em.values.canonical import Json
from em.values.json_schema import of_input, titles_of
from em.values.leaves import mentioned_in

FEWEST_TRACES = 3
"""Traces that show that something is done to all members, and not to these ones."""
FEWEST_WITH_SEVERAL = 2
"""Traces among them with more than one member."""

MOST_COMPILED = 100
"""How many turns a call is compiled from, evenly spread. Members are learnt from all turns."""

Merge = Callable[[Sequence[Trace], Collection[int]], Draft | None]
"""Compiles traces that made the same calls; the second argument are reads that stay in any case."""


def draft_rounds(
    traces: Sequence[Trace], said: Sequence[str], alone: Sequence[Draft], merge: Merge
) -> Draft | None:
    """Return a routine that goes through lists as all traces did; None if they did not.

    said: what each trace was asked for. alone: the draft of each. Raise NothingDecides if
    something was done to some members, and nothing shows to which ones.
    """
    calls = [draft.calls for draft in alone]
    if len(traces) < FEWEST_TRACES or any(call.failed for own in calls for call in own):
        return None
    stages = stages_of(calls)
    rounds = rounds_of(stages, [trace.mission.input_summary for trace in traces])
    if not rounds:
        return None
    return _Writer(traces, said, alone[0], stages, rounds, merge).draft()


class _Loop(NamedTuple):
    """A round as steps: the list, the name of a member, and what must hold of it by way."""

    number: int
    items: str
    item: str
    ways: Sequence[Way]
    reasons: Sequence[Reason]
    must: Mapping[Way, list[str]]

    def condition(self, way: Way) -> str:
        """Return when a member goes a way; empty if all members do."""
        return self.reasons[0].conditions[self.ways.index(way)] if self.reasons else ""

    def check(self) -> str:
        """Return what must hold of every member: all reasons say the same way, as in a trace."""
        texts = []
        for at, way in enumerate(self.ways):
            own = [*(reason.conditions[at] for reason in self.reasons), *self.must[way]]
            if not own:
                return "true"
            texts.append(" and ".join(f"({text})" for text in dict.fromkeys(own)))
        return texts[0] if len(texts) == 1 else " or ".join(f"({text})" for text in texts)


class _Writer:
    """Writes the steps of a routine with rounds."""

    def __init__(
        self,
        traces: Sequence[Trace],
        said: Sequence[str],
        first: Draft,
        stages: Sequence[Stage],
        rounds: Mapping[int, Round],
        merge: Merge,
    ) -> None:
        self._traces, self._said, self._stages, self._rounds = traces, said, stages, rounds
        self._merge, self._first = merge, first
        self._names = Names()
        for name in FUNCTIONS:
            self._names.free(name)
        self._saved: dict[int, str] = {}
        """The name of each stage's result."""
        self._turn_names: dict[str, str] = {}
        """By tool, the name of its result in a turn."""
        self._ids: dict[str, str] = {}
        """By tool of a round, the id of its step."""
        self._inputs: set[str] = set()
        self._tools: dict[str, Any] = {}

    def draft(self) -> Draft | None:
        """Return the routine."""
        main = self._main()
        if main is None:
            return None
        steps: list[Step] = []
        checks: list[Step] = []
        by_tool = {_target(s): s for s in main.routine.steps if isinstance(s, ToolStep | UdfStep)}
        for number, stage in enumerate(self._stages):
            if stage.is_single:
                step = by_tool.get(stage.tools[0])
                steps += [] if step is None else [step]
            elif number in self._rounds:
                made = self._round(number)
                if made is None:
                    return None
                steps += made[0]
                checks += made[1]
        rest = [s for s in main.routine.steps if not isinstance(s, ToolStep | UdfStep | ReturnStep)]
        if rest:
            return None  # questions to a person
        steps = [*checked_early(steps, checks), self._returning(main)]
        return self._finished(main, steps)

    # --- calls that were made once ----------------------------------------------------------------

    def _main(self) -> Draft | None:
        """Compile the calls that every trace made once; all their results get names."""
        singles = [stage for stage in self._stages if stage.is_single]
        if not singles:
            return self._without_calls()
        folded = [
            _with_calls(trace, [stage.calls[at][0].index for stage in singles], {})
            for at, trace in enumerate(self._traces)
        ]
        reads = [number for number, stage in enumerate(singles) if stage.is_read]
        draft = self._merge(folded, reads)
        if draft is None or any(not asked.is_unused for asked in draft.routine.asks.values()):
            return None
        for name in (*draft.input, *(step.id for step in draft.routine.steps)):
            self._names.free(name)
        saved = {
            _target(step): step.save_as
            for step in draft.routine.steps
            if isinstance(step, ToolStep | UdfStep) and step.save_as is not None
        }
        for number, stage in enumerate(self._stages):
            if stage.is_single and stage.tools[0] in saved:
                self._saved[number] = saved[stage.tools[0]] or ""
                self._names.free(self._saved[number])
        self._take(draft)
        return draft

    def _without_calls(self) -> Draft:
        """Return a draft without any call, for traces that did nothing beside their rounds."""
        steps = [ReturnStep(id="return")]
        routine = msgspec.structs.replace(self._first.routine, steps=steps, asks={}, request=None)
        for name in self._traces[0].mission.input_summary:
            self._names.free(identifier(name))
        return msgspec.structs.replace(self._first, routine=routine, input={})

    def _take(self, draft: Draft) -> None:
        """Note the inputs and tools that a part of the routine needs."""
        self._inputs |= {
            name
            for name in draft.input
            if name not in draft.routine.asks or not draft.routine.asks[name].is_unused
        }
        self._tools |= {tool.name: tool for tool in draft.routine.tools}

    # --- rounds -----------------------------------------------------------------------------------

    def _round(self, number: int) -> tuple[list[Step], list[Step]] | None:
        """Return the steps of a round, and the checks that come before everything."""
        found = self._rounds[number]
        if found.source.stage not in {*self._saved, GIVEN}:
            return None
        item = self._names.free(self._item_name(found.source))
        calls: dict[str, _Call] = {}
        for tool in found.body:
            is_write = self._stages[number].effect_of(tool) == "write"
            self._turn_names[tool] = self._names.free(result_name(tool, is_write=is_write))
            made = self._call(number, tool, item)
            if made is None:
                return None
            calls[tool] = made
        loop = self._loop(number, item, calls)
        if loop is None:
            return None
        if len(found.body) == 1 and _can_select(loop):
            return self._one_step(loop, calls[found.body[0]])
        return self._turns(loop, calls)

    def _item_name(self, source: Source) -> str:
        """Name a member: after the argument that it is, or after its list."""
        if not source.key:
            place = next(iter(source.places.values()))
            return identifier([part for part in place_parts(place) if isinstance(part, str)][-1])
        named = [part for part in source.path.split(".") if part not in (ANY, KEYS)]
        return identifier(_singular(named[-1] if named else self._saved[source.stage]))

    def _call(self, number: int, tool: str, item: str) -> "_Call | None":
        """Compile one call of a round, with what the member gives as its inputs."""
        found = self._rounds[number]
        turns = [
            (at, turn) for at, own in enumerate(found.turns) for turn in own if tool in turn.calls
        ]
        pairs = [(turn.member, turn.calls[tool]) for _, turn in turns]
        turns = turns[:: max(1, len(turns) // MOST_COMPILED)]
        given, fields, must = _given(pairs, tool, self._names)
        ahead = [
            other
            for other in found.body[: found.body.index(tool)]
            if all(other in turn.calls for _, turn in turns)
        ]
        folded, reads = [], set()
        for at, turn in turns:
            own = [stage.calls[at][0] for stage in self._stages if stage.is_single]
            own += [turn.calls[other] for other in (*ahead, tool)]
            own.sort(key=lambda call: call.index)
            reads |= {n for n, call in enumerate(own) if call.effect == "read"}
            values = {name: part_at(turn.calls[tool].args, p) for p, name in given.items()}
            folded.append(_with_calls(self._traces[at], [call.index for call in own], values))
        draft = self._merge(folded, reads)
        if draft is None or any(not asked.is_unused for asked in draft.routine.asks.values()):
            return None
        step = next((s for s in draft.routine.steps if _target(s) == tool), None)
        if not isinstance(step, ToolStep | UdfStep):
            return None
        names = {name: _member(item, fields[name]) for name in given.values()}
        names |= self._renaming(draft, ahead)
        self._take(draft)
        self._inputs -= set(given.values())
        self._names.free(step.id)
        self._ids[tool] = step.id
        made = _Call.of(step, names, [f"{_member(item, n)} == {quoted(v)}" for n, v in must])
        return None if made is None else self._without_known(made, found.source, item)

    def _without_known(self, call: "_Call", source: Source, item: str) -> "_Call":
        """Return a call without the check that a member is on its own list."""
        if source.stage == GIVEN or not self._stages[source.stage].is_single:
            return call
        key = _member(item, source.key)
        path = f"{source.path}.{source.key}" if source.key else source.path
        own = self._saved[source.stage]
        is_on_it = f"among(every({own}, {quoted(path)}), {key})"
        # What the list says of a member is what the member says.
        says = f"fact_of(every({own}, {quoted(source.path)}), {quoted(source.key)}, {key}, "
        texts = [t for t in call.conditions if is_on_it not in t and not t.startswith(says)]
        return call._replace(conditions=texts)

    def _renaming(self, draft: Draft, ahead: Sequence[str]) -> dict[str, str]:
        """Return how the results that a call uses are called in the whole routine."""
        own = {
            _target(step): step.save_as
            for step in draft.routine.steps
            if isinstance(step, ToolStep | UdfStep) and step.save_as is not None
        }
        names = {tool: self._turn_names[tool] for tool in ahead}
        names |= {self._stages[n].tools[0]: name for n, name in self._saved.items()}
        return {own[tool] or "": name for tool, name in names.items() if tool in own}

    def _loop(self, number: int, item: str, calls: Mapping[str, "_Call"]) -> _Loop | None:
        """Return the list of a round, and what separates the ways that its members went."""
        found, stage = self._rounds[number], self._stages[number]
        ways = found.ways
        reasons: list[Reason] = []
        if len(ways) > 1:
            if found.source.stage == GIVEN and () in ways:
                raise _undecided("one that the request names was left out")
            reasons = self._reasons(number, item, ways)
        elif found.source.stage != GIVEN and not stage.is_read and not self._shows_all(found):
            raise _undecided("too few of them show that it is done to all members of the list")
        must = {
            way: [
                *(text for tool in way for text in calls[tool].conditions),
                *(self._states(number, item, way) if way else ()),
            ]
            for way in ways
        }
        source = found.source
        items = self._items(source.stage, source.path)
        return _Loop(number, items, item, ways, reasons, must)

    def _shows_all(self, found: Round) -> bool:
        sizes = [len(own) for own in found.turns]
        several = sum(size > 1 for size in sizes)
        return several >= FEWEST_WITH_SEVERAL and len(set(sizes)) > 1

    def _items(self, stage: int, path: str) -> str:
        """Return the expression of a list."""
        parts = path.split(".")
        if stage == GIVEN:
            return identifier(parts[0])
        name = self._saved[stage]
        if parts[-1] == KEYS:
            return f"keyed({reference(name, tuple(parts[:-1]))})"
        is_list = all(
            isinstance(_at(own[0].result, parts[:-1]), list) for own in self._stages[stage].calls
        )
        if self._stages[stage].is_single and not is_list:
            return f"every({name}, {quoted(path)})"
        return reference(name, tuple(parts[:-1]))

    def _reasons(self, number: int, item: str, ways: Sequence[Way]) -> list[Reason]:
        """Return everything that separates the members; raise if that is not enough."""
        found = self._rounds[number]
        first = found.always_first
        rows: list[list[Json]] = [[] for _ in ways]
        requests: list[list[str]] = [[] for _ in ways]
        for at, own in enumerate(found.turns):
            known = self._known(number, at)
            for turn in own:
                way = ways.index(turn.way)
                row = {_member(item, name): one for name, one in features(turn.member).items()}
                if first and self._stages[number].effect_of(first) == "read":
                    result = features(turn.calls[first].result)
                    row |= {_member(self._turn_names[first], n): one for n, one in result.items()}
                row |= _equalities(row, known)
                rows[way].append(row)
                requests[way].append(self._said[at])
        reasons = [
            _with_mention(_as_equality(reason, ways), ways, requests)
            for reason in reasons_of(columns_of(rows), 1)
        ]
        reasons = sorted(
            (one for one in reasons if _is_credible(one, ways)), key=lambda one: -one.bits
        )
        best = reasons[0].bits if reasons else 0.0
        reasons = [one for one in reasons if best - one.bits < INCREDIBLE]
        if best < ENOUGH:
            why = "too few members show why" if reasons else "nothing shows why"
            raise _undecided(f"some members of a list were treated differently, and {why}")
        if len(reasons) > MOST_REASONS:
            raise _undecided(f"{len(reasons)} things tell the members apart")
        return reasons

    def _known(self, number: int, at: int) -> Json:
        """Return what was known before a round of one trace, by the expression for it."""
        found = {
            identifier(name): value
            for name, value in self._traces[at].mission.input_summary.items()
            if isinstance(value, str | int | float)
        }
        for stage, name in self._saved.items():
            if stage < number and self._stages[stage].is_single:
                own = features(self._stages[stage].calls[at][0].result)
                found |= {_member(name, path): value for path, value in own.items()}
        return found

    def _states(self, number: int, item: str, way: Way) -> Iterator[str]:
        """Yield the flags and states that all members of a way had, and those read about them."""
        found = self._rounds[number]
        turns = [turn for own in found.turns for turn in own]
        yield from _facts(
            item,
            [turn.member for turn in turns if turn.way == way],
            [turn.member for turn in turns],
        )
        yield from self._joins(number, item, way)
        first = found.always_first
        if first and len(found.body) > 1 and self._stages[number].effect_of(first) == "read":
            results = {id(turn): turn.calls[first].result for turn in turns}
            own = [results[id(turn)] for turn in turns if turn.way == way]
            yield from _facts(self._turn_names[first], own, list(results.values()))

    def _joins(self, number: int, item: str, way: Way) -> Iterator[str]:
        """Yield that a field equals something known, where it did so for every member of a way.

        A ticket belongs to the person who is asked about, though nobody said that it must.
        """
        shared: set[tuple[str, str]] | None = None
        values: set[str] = set()
        for at, own in enumerate(self._rounds[number].turns):
            known = self._known(number, at)
            for turn in own:
                if turn.way == way:
                    pairs = {
                        (name, other)
                        for name, value in features(turn.member).items()
                        if name and isinstance(value, str) and information(value) >= ENOUGH
                        for other, held in known.items()
                        if held == value
                    }
                    values |= {str(known[other]) for _, other in pairs}
                    shared = pairs if shared is None else shared & pairs
        if len(values) > 1:
            yield from (f"{_member(item, name)} == {other}" for name, other in sorted(shared or ()))

    # --- steps ------------------------------------------------------------------------------------

    def _checks(self, loop: _Loop) -> list[Step]:
        """Return the checks of a list: each member is there once, and as in a trace."""
        found = self._rounds[loop.number]
        key = found.source.key
        keys = f"every({loop.items}, {quoted(f'*.{key}')})" if key else loop.items
        more = [f"({keys} | unique | list | length) == ({loop.items} | length)"]
        if all(found.turns):
            more.append(f"({loop.items} | length) > 0")
        at = self._ids[found.body[0]]
        made: list[Step] = [
            AssertStep(
                id=self._names.free(f"list_for_{at}"),
                check=" and ".join(f"({text})" for text in more),
                message="the list is empty, or has something twice, which no recording had",
            )
        ]
        text = loop.check()
        if text != "true":
            made.append(
                AssertStep(
                    id=self._names.free(f"members_for_{at}"),
                    for_each=f"{{{{ {loop.items} }}}}",
                    as_=loop.item,
                    check=text,
                    message=_question(loop),
                )
            )
        return made + self._some(loop)

    def _one_step(self, loop: _Loop, call: "_Call") -> tuple[list[Step], list[Step]]:
        """Return a round of one call as a step with `for_each`."""
        taken = next(way for way in loop.ways if way)
        allows = self._allows_none(loop)
        items = _selected(loop, taken, or_none=allows) if loop.reasons else loop.items
        save_as = self._names.free(_plural(loop, call.step))
        self._saved[loop.number] = save_as
        step = msgspec.structs.replace(
            call.step, for_each=f"{{{{ {items} }}}}", as_=loop.item, save_as=save_as
        )
        return [step], self._checks(loop)

    def _allows_none(self, loop: _Loop) -> bool:
        """Return whether nothing was done to any member in a trace."""
        turns = self._rounds[loop.number].turns
        return any(not any(turn.way for turn in own) for own in turns)

    def _some(self, loop: _Loop) -> list[Step]:
        """Return the check that something is done to a member, unless a trace did nothing."""
        if () not in loop.ways or not _can_select(loop) or self._allows_none(loop):
            return []
        chosen = [_selected(loop, way, or_none=True) for way in loop.ways if way]
        at = self._ids[self._rounds[loop.number].body[0]]
        return [
            AssertStep(
                id=self._names.free(f"some_for_{at}"),
                check=" + ".join(f"len({one})" for one in chosen) + " > 0",
                message="nothing on the list is as what was taken in the recordings",
            )
        ]

    def _turns(
        self, loop: _Loop, calls: Mapping[str, "_Call"]
    ) -> tuple[list[Step], list[Step]] | None:
        """Return a round of several calls as steps that share the turns of a loop."""
        found = self._rounds[loop.number]
        first, check = found.always_first, loop.check()
        in_turn = {self._turn_names[tool] for tool in found.body}
        uses = names_in_expression(check) & in_turn
        checks = self._checks(loop)
        if uses:
            # What must be known is read before anything is done, and again in each turn.
            is_read = first and all(
                turn.calls[first].effect == "read" for own in found.turns for turn in own
            )
            if not is_read or uses != {self._turn_names[first]}:
                return None
            checks = [checks[0], *self._looks(loop, calls[first], first, check)]
        leader = self._names.free(f"each_{loop.item}")
        steps: list[Step] = [
            AssertStep(id=leader, for_each=f"{{{{ {loop.items} }}}}", as_=loop.item, check="true")
        ]
        for tool in found.body:
            when = self._when(loop, tool)
            step = msgspec.structs.replace(
                calls[tool].step,
                within=leader,
                as_=loop.item,
                when=when or None,
                save_as=self._turn_names[tool],
            )
            steps.append(step)
            if uses and tool == first:
                steps.append(
                    AssertStep(
                        id=self._names.free(f"still_for_{step.id}"),
                        within=leader,
                        as_=loop.item,
                        check=check,
                        message=_question(loop),
                    )
                )
        return steps, checks

    def _looks(self, loop: _Loop, call: "_Call", tool: str, check: str) -> list[Step]:
        """Return the read of every member before anything is done, and its check."""
        before = self._names.free(f"{loop.item}_before")
        pair = self._names.free(f"{loop.item}_pair")
        look = msgspec.structs.replace(
            call.step,
            id=self._names.free(f"look_{call.step.id}"),
            for_each=f"{{{{ {loop.items} }}}}",
            as_=loop.item,
            save_as=before,
            expects=(),
        )
        names = {loop.item: f"{pair}[0]", self._turn_names[tool]: f"{pair}[1]"}
        known = AssertStep(
            id=self._names.free(f"members_for_{call.step.id}"),
            for_each=f"{{{{ zip({loop.items}, {before}) | list }}}}",
            as_=pair,
            check=renamed(check, names),
            message=renamed_value(_question(loop), names),
        )
        return [look, known]

    def _when(self, loop: _Loop, tool: str) -> str:
        """Return when a tool is called for a member; empty if it always is."""
        if all(tool in way for way in loop.ways):
            return ""
        texts = [loop.condition(way) for way in loop.ways if tool in way]
        return texts[0] if len(texts) == 1 else " or ".join(f"({text})" for text in texts)

    # --- the routine ------------------------------------------------------------------------------

    def _returning(self, main: Draft) -> Step:
        """Return the last step: what the last round returned, unless the agent said something."""
        own = next(step for step in main.routine.steps if isinstance(step, ReturnStep))
        last = len(self._stages) - 1
        says = any(trace.final_output is not msgspec.UNSET for trace in self._traces)
        if last in self._rounds and (not says or own.value is None):
            names = [self._saved[last]] if last in self._saved else []
            names = names or [self._turn_names[self._rounds[last].body[-1]]]
            return msgspec.structs.replace(own, value=f"{{{{ {names[0]} }}}}")
        return own

    def _finished(self, main: Draft, steps: Sequence[Step]) -> Draft | None:
        """Return the draft, as the trace that shows most recorded it."""
        base = max(range(len(self._traces)), key=self._shown)
        stated = self._traces[base].mission.input_summary
        by_name = {identifier(name): value for name, value in stated.items()}
        routine = msgspec.structs.replace(
            main.routine,
            asks={},
            seen={},
            steps=list(steps),
            tools=list(self._tools.values()),
            output_schema=None,
        )
        used = names_used(routine) | {
            name
            for step in steps
            for text in (getattr(step, "check", None), step.when)
            if text
            for name in names_in_expression(text)
        }
        names = [name for name in by_name if name in used]
        if not self._inputs <= {*names} or any(name not in used for name in by_name):
            return None  # something that was said may matter
        given = {name: by_name[name] for name in names}
        schema = of_input(given, titles=titles_of(main.routine.input_schema))
        routine = msgspec.structs.replace(routine, input_schema=schema)
        recording = list(self._recorded(base, steps))
        return msgspec.structs.replace(
            main,
            routine=routine,
            input=given,
            recording=recording,
            output=self._output(base, main, steps, recording),
            comments={},
            explained=(),
        )

    def _shown(self, trace: int) -> tuple[int, int]:
        ways = {turn.way for one in self._rounds.values() for turn in one.turns[trace]}
        turns = sum(len(one.turns[trace]) for one in self._rounds.values())
        return len({tool for way in ways for tool in way}), turns

    def _recorded(self, base: int, steps: Sequence[Step]) -> Iterator[Recorded]:
        """Yield the calls of one trace in the order in which the routine makes them."""
        calls = {call.name: call for s in self._stages if s.is_single for call in s.calls[base]}
        in_turns: set[str] = set()
        for step in steps:
            tool = _target(step)
            if not tool or tool in in_turns:
                continue
            number = next(n for n, stage in enumerate(self._stages) if tool in stage.tools)
            if number not in self._rounds:
                yield _recorded(step, calls[tool])
                continue
            found = self._rounds[number]
            tools = [tool] if step.within is None else list(found.body)
            in_turns |= set() if step.within is None else set(tools)
            ids = {_target(s): s.id for s in steps if s.within == step.within and _target(s)}
            for turn in found.turns[base]:
                for one in tools:
                    if one in turn.calls:
                        own = step.id if step.within is None else ids[one]
                        yield _recorded(step, turn.calls[one], own)

    def _output(
        self, base: int, main: Draft, steps: Sequence[Step], recording: Sequence[Recorded]
    ) -> Any:
        returned = next(step.value for step in steps if isinstance(step, ReturnStep))
        loop = next(
            (
                step
                for step in steps
                if step.save_as and returned == f"{{{{ {step.save_as} }}}}"
                if step.for_each is not None or step.within is not None
            ),
            None,
        )
        if loop is not None:
            return [item.result for item in recording if item.step == loop.id]
        singles = {
            step.save_as: item.result
            for step in steps
            for item in recording
            if step.save_as and item.step == step.id
        }
        for name, result in singles.items():
            if returned == f"{{{{ {name} }}}}":
                return result
        final = self._traces[base].final_output
        return main.output if final is msgspec.UNSET else final


class _Call(NamedTuple):
    """The step of one call of a round, and what must hold of the member that it is made for."""

    step: ToolStep | UdfStep
    conditions: Sequence[str]

    @classmethod
    def of(
        cls, step: ToolStep | UdfStep, names: Mapping[str, str], must: Sequence[str]
    ) -> "_Call | None":
        """Return a step in the words of the whole routine; None if it can't be said for each."""
        conditions = [*must, *(renamed(text, names) for text in step.guards)]
        for place, agreeing in step.agree.items():
            value = bare(part_at(step.args, place))
            if value is None:
                return None
            conditions += [renamed(f"({text}) == ({value})", names) for text in agreeing]
        made = msgspec.structs.replace(
            step,
            args=renamed_value(step.args, names),
            agree={},
            guards=(),
            expects=tuple(renamed(text, names) for text in step.expects),
        )
        return cls(made, list(dict.fromkeys(conditions)))


def _given(
    pairs: Sequence[tuple[Any, TracedCall]], tool: str, names: Names
) -> tuple[dict[str, str], dict[str, str], list[tuple[str, Any]]]:
    """Return which arguments a member gives: the name of an input by place, and its field by name.

    The third are fields that always equalled an argument which never varied: they must still do.
    """
    given: dict[str, str] = {}
    fields: dict[str, str] = {}
    must: list[tuple[str, Any]] = []
    for place, _ in single_places(pairs[0][1].args):
        found = fields_for(pairs, place)
        if not found:
            continue
        values = [part_at(call.args, place) for _, call in pairs]
        *_, last = (part for part in place_parts(place) if isinstance(part, str))
        if is_another_each_time(values):
            name = names.free(identifier(f"{tool}_{last}"))
            best = last if last in found else found[0]
            given[place], fields[name] = name, best
        else:
            must += [(name, values[0]) for name in found if name and name == last]
    return given, fields, must


def _facts(name: str, records: Sequence[Any], every_one: Sequence[Any]) -> Iterator[str]:
    """Yield the flags and states that records had, and that they are as all members were."""
    rows = [features(record) for record in records]
    for path in rows[0] if rows else ():
        seen = (
            allowed_values(path.rpartition(".")[2], [row.get(path) for row in rows]) if path else []
        )
        if seen:
            yield f"{_member(name, path)} in {quoted(seen)}"
        elif path:
            yield from look_facts(_member(name, path), [row.get(path) for row in rows])
    if all(isinstance(one, dict) for one in every_one):
        yield from record_facts(name, [Shown({}, one) for one in records])


def _with_calls(trace: Trace, numbers: Collection[int], given: Json) -> Trace:
    """Return a trace with some of its calls, and with more inputs."""
    events, at = [], -1
    for event in trace.events:
        is_call = isinstance(event, ToolCall | UdfCall)
        at += is_call
        if not is_call or at in numbers:
            events.append(event)
    # A list is gone through by its members alone.
    stated = {k: v for k, v in trace.mission.input_summary.items() if not isinstance(v, list)}
    mission = Mission(goal=trace.mission.goal, input_summary={**stated, **given})
    return msgspec.structs.replace(
        trace, mission=mission, events=events, final_output=trace.final_output
    )


def _recorded(step: Step, call: TracedCall, step_id: str = "") -> Recorded:
    return Recorded(step_id or step.id, call.name, call.is_udf, call.args, call.result)


def _target(step: Step) -> str:
    if isinstance(step, ToolStep):
        return step.tool
    return step.function if isinstance(step, UdfStep) else ""


def _member(name: str, path: str) -> str:
    return reference(name, tuple(path.split("."))) if path else name


def _at(value: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _singular(name: str) -> str:
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else f"one_{name}"


def _plural(loop: _Loop, step: Step) -> str:
    name = step.save_as or f"{step.id}_result"
    return f"{name}s"


def _equalities(row: Json, known: Json) -> Json:
    """Return which fields equal something that was known before."""
    return {
        f"{name} == {other}": value == held
        for name, value in row.items()
        if isinstance(value, str) and value
        for other, held in known.items()
        if isinstance(held, str)
    }


def _as_equality(reason: Reason, ways: Sequence[Way]) -> Reason:
    """Return the reason that a field equals something, as a condition on that field."""
    field, is_equality, other = reason.name.partition(" == ")
    if not is_equality or sorted(map(repr, reason.held)) != ["[False]", "[True]"]:
        return reason
    conditions = [f"{field} {'==' if held[0] else '!='} {other}" for held in reason.held]
    taken = next(at for at, way in enumerate(ways) if way)
    tests = [other] * len(ways) if reason.held[taken][0] else ()
    return Reason(conditions, reason.bits, field, tests)


def _can_select(loop: _Loop) -> bool:
    """Return whether `select` can choose the members that something is done to."""
    own = f"{loop.item}."
    return all(reason.tests and reason.name.startswith(own) for reason in loop.reasons)


def _selected(loop: _Loop, way: Way, *, or_none: bool) -> str:
    """Return the expression of the members that go a way."""
    at = loop.ways.index(way)
    tests = [
        f"{quoted(one.name.removeprefix(f'{loop.item}.'))}: {one.tests[at]}" for one in loop.reasons
    ]
    # Two braces side by side would end the expression.
    where = f"{{{', '.join(tests)}}}".replace("}}", "} }")
    return f"select({loop.items}, where={where}{', or_none=true' if or_none else ''})"


def _with_mention(reason: Reason, ways: Sequence[Way], requests: Sequence[Sequence[str]]) -> Reason:
    """Return a reason with the evidence of requests that said the value which was acted on."""
    if not reason.held:
        return reason
    bits = reason.bits
    for way, held, said in zip(ways, reason.held, requests, strict=True):
        if way and len(held) == 1 and isinstance(held[0], str):
            texts = {*said}
            if all(mentioned_in(held[0], text) for text in texts):
                bits += min(of_mention(held[0], len(text.split()), 1) for text in texts)
    return reason._replace(bits=bits)


def _is_credible(reason: Reason, ways: Sequence[Way]) -> bool:
    """Return whether the values of a field are kinds, and not ids that are another each time."""
    return not reason.held or reason.rarest > 1 or reason.bits >= ENOUGH


def _question(loop: _Loop) -> str:
    taken = next(at for at, way in enumerate(loop.ways) if way)
    texts = [one.conditions[taken] for one in loop.reasons[:2]]
    said = "; ".join(map(check_in_words, texts))
    why = f" (where it was done, {said})" if texts else ""
    return (
        f"it is not clear what to do with {{{{ {loop.item} }}}}: no recording had one like it{why}"
    )


def _undecided(why: str) -> NothingDecides:
    return NothingDecides(
        f"a call was made for members of a list, and {why}",
        place="traces",
        fix="record more of these tasks, with the read that shows why a member is taken",
    )
