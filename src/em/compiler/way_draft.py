"""The draft of a routine that goes the way which several traces have in common.

What their requests have in common is the template of the request, and the rest its inputs. Each
trace is compiled by itself, with those inputs; what holds in all of them is kept.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any

import msgspec

from em.compiler.argument_facts import argument_facts
from em.compiler.branches import NothingDecides, Way, parted
from em.compiler.calls import Names, result_name
from em.compiler.commands import is_bookkeeping
from em.compiler.confirmation import confirmed, names_to_confirm, relaxed
from em.compiler.differences import recorded_scope, settled, told_apart
from em.compiler.draft import Draft, Recorded, names_used
from em.compiler.evidence import ENOUGH, of_constant
from em.compiler.loops import bare, unfolded
from em.compiler.new_files import with_overwritten
from em.compiler.record_facts import Shown, record_facts
from em.compiler.return_value import with_return
from em.compiler.round_draft import draft_rounds
from em.compiler.sources import places, text_key
from em.compiler.templates import Filled, filled, merged_of, templates_of, with_template
from em.compiler.value_looks import look_facts
from em.errors import EmError
from em.runner.agreement import names_in_expression, part_at, single_places
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import compile_expression
from em.runner.routine import Step, ToolStep
from em.traces.trace import Message, ToolCall, Trace
from em.values.canonical import Json
from em.values.leaves import leaves

Compile = Callable[..., Draft]
"""Compiles one trace. `keep`: numbers of reads that stay though nothing uses them here."""


def way_drafts(
    traces: Sequence[Trace],
    said: Sequence[str],
    compile_one: Compile,
    proved: Callable[[Draft], Draft],
) -> Iterator[Draft]:
    """Yield a routine for each template of the requests that leaves nothing to ask.

    said: what each trace was asked for in words. Raise NothingDecides if traces contradict others.
    """
    undecided: NothingDecides | None = None
    whole = (filled(traces, said, template) for template in templates_of(said))
    merged = (filled(traces, said, template) for template in merged_of(said))
    for found in chain(whole, (one for one in merged if one.loops), _unfilled(traces)):
        try:
            draft = _draft(found, traces, said, compile_one)
            if draft is not None:
                draft = proved(draft)
                yield with_template(draft, found) if found.template else draft
        except NothingDecides as error:
            undecided = error if found.template else undecided
        except EmError:
            continue  # one of the traces can't be compiled so, or not be repeated
    if undecided is not None:
        raise undecided


def _unfilled(traces: Sequence[Trace]) -> Iterator[Filled]:
    """Yield traces as they are, if their tasks differ in structured inputs and in no words."""
    said = {
        (trace.mission.goal, *(one.text for one in trace.events if isinstance(one, Message)))
        for trace in traces
    }
    names = {tuple(sorted(trace.mission.input_summary)) for trace in traces}
    plain = all(
        isinstance(value, str | int | float | bool)
        for trace in traces
        for value in trace.mission.input_summary.values()
    )
    if len(said) == 1 and len(names) == 1 and names != {()} and plain:
        yield Filled(traces, range(len(traces)), "", {}, ())


def _draft(
    found: Filled, traces: Sequence[Trace], said: Sequence[str], compile_one: Compile
) -> Draft | None:
    """Return what holds in all traces; None if something is left to ask."""
    ways = _ways(found.traces)
    in_turns = [loop for loop in found.loops if loop.in_turns]
    if len(in_turns) == len(found.loops):
        in_rounds = _in_rounds(found.traces, said, compile_one)
        if in_rounds is not None or in_turns:
            return in_rounds
    if len(ways) > 1 and found.loops:
        return None  # a loop was aligned for one way; several ways with loops are too much at once
    if len(ways) > 1:
        return _parted(list(ways.values()), compile_one)
    return _on_one_way(found, traces, compile_one) if found.template else None


def _on_one_way(found: Filled, traces: Sequence[Trace], compile_one: Compile) -> Draft | None:
    """Return what holds in all traces that made the same calls."""
    drafts = _same_way(found.traces, compile_one, _listing(found.traces))
    if drafts is None:
        return None
    base = _base(drafts)
    draft = _merged(drafts, base, len(traces))
    if draft.routine.asks:
        return None
    origin = found.origins[base]
    for loop in found.loops:
        made = unfolded(draft, loop, origin, traces[origin].calls)
        if made is None:
            return None
        draft = made
    return draft


def _in_rounds(traces: Sequence[Trace], said: Sequence[str], compile_one: Compile) -> Draft | None:
    """Return a routine for traces that did the same to the members of different lists."""
    if all(len(own) == len(set(own)) for own in map(_calls, traces)):
        return None  # nothing was done twice

    def merge(some: Sequence[Trace], keep: Collection[int]) -> Draft | None:
        drafts = _same_way(some, compile_one, keep)
        return None if drafts is None else _merged(drafts, _base(drafts), len(traces))

    try:
        return draft_rounds(traces, said, [compile_one(one) for one in traces], merge)
    except NothingDecides:
        if len(_ways(traces)) > 1:
            raise
        return None  # all went the same way, whatever it was for


def _listing(traces: Sequence[Trace]) -> set[int]:
    """Return the numbers of the calls whose result listed an input in every trace."""
    shared: set[int] | None = None
    for trace in traces:
        given = {text_key(value) for _, value in leaves(trace.mission.input_summary)}
        own = {
            number
            for number, call in enumerate(trace.calls)
            if any(
                one.collections and text_key(one.value) in given for one in places(0, call.result)
            )
        }
        shared = own if shared is None else shared & own
    return shared or set()


def _ways(traces: Sequence[Trace]) -> dict[tuple[str, ...], list[Trace]]:
    """Return the traces by the calls that they made."""
    found: dict[tuple[str, ...], list[Trace]] = {}
    for trace in traces:
        found.setdefault(_calls(trace), []).append(trace)
    return found


def _calls(trace: Trace) -> tuple[str, ...]:
    return tuple(call.tool if isinstance(call, ToolCall) else call.function for call in trace.calls)


def _parted(ways: Sequence[Sequence[Trace]], compile_one: Compile) -> Draft | None:
    """Return a routine for traces that began alike and then went different ways."""
    calls = zip(*(_calls(way[0]) for way in ways), strict=False)
    alike = takewhile(lambda names: len(set(names)) == 1, calls)
    # What was read before the ways part may be the reason, though nothing else uses it.
    first = range(len(list(alike)))
    made = []
    for way in ways:
        drafts = _same_way(way, compile_one, first)
        if drafts is None:
            return None
        made.append(Way(_merged(drafts, _base(drafts), len(way)), drafts))
    return parted(made)


def _merged(drafts: Sequence[Draft], base: int, tasks: int) -> Draft:
    """Return what holds in all drafts, in the words of one of them."""
    first, others = drafts[base], [*drafts[:base], *drafts[base + 1 :]]
    draft = settled(told_apart(relaxed(first, others), others), others)
    draft = with_record_facts(draft, others)
    draft = with_overwritten(with_return(draft, others), [one.calls for one in others])
    if of_constant(tasks) >= ENOUGH:
        draft = confirmed(draft, list(names_to_confirm(draft.routine)))
    return draft


def with_record_facts(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft that acts only on records that are as those of all traces were.

    The facts of a read stand at the first effect after it. others: drafts of successes that make
    the same calls in the same order.
    """
    unnamed = draft
    draft = _with_names(draft)
    scopes = [recorded_scope(draft, one) for one in (draft, *others)]
    effects = {tool.name: tool.effect for tool in draft.routine.tools}
    # What a program prints may be anything.
    printed = {call.name for call in draft.calls if call.shell}
    passed = names_used(draft.routine)
    reads: list[ToolStep] = []
    steps: list[Step] = []
    for step, calls in _with_calls(draft, others):
        if calls is None or not isinstance(step, ToolStep) or step.for_each is not None:
            steps.append(step)
        elif effects.get(step.tool) == "read":
            steps.append(step)
            is_plain = step.when is None and not step.expects and step.tool not in printed
            reads += [step] if step.save_as and is_plain else []
        else:
            own, reads = reads, []
            asked = {text for texts in step.agree.values() for text in texts}
            acted = _acted(step, calls)
            used = str(msgspec.to_builtins(step))
            facts = [
                fact
                for one in own
                for fact in _facts_of(
                    one,
                    scopes,
                    acted,
                    used=used,
                    is_passed_on=one.save_as in passed,
                )
            ]
            # Where both explain an argument, a run asks which of them is meant.
            known = {f"{text.replace(' == ', ' in [', 1)}]" for text in step.guards}
            facts = [
                fact
                for fact in facts
                if fact not in known and fact.partition(" == ")[0] not in asked
            ]
            guards = dict.fromkeys([*step.guards, *facts, *_of_arguments(step, calls)])
            steps.append(msgspec.structs.replace(step, guards=tuple(guards)))
    routine = msgspec.structs.replace(draft.routine, steps=steps)
    needed = names_used(routine)
    steps = [
        msgspec.structs.replace(step, save_as=None)
        if before.save_as is None and step.save_as not in needed
        else step
        for before, step in zip(unnamed.routine.steps, steps, strict=True)
    ]
    routine = msgspec.structs.replace(draft.routine, steps=steps)
    return msgspec.structs.replace(draft, routine=routine)


def _with_names(draft: Draft) -> Draft:
    """Return a draft in which the result of every read has a name."""
    effects = {tool.name: tool.effect for tool in draft.routine.tools}
    names = Names()
    for name in (*FUNCTIONS, *draft.input, *(step.save_as for step in draft.routine.steps)):
        names.free(str(name))
    steps: list[Step] = []
    for step in draft.routine.steps:
        is_read = isinstance(step, ToolStep) and effects.get(step.tool) == "read"
        if isinstance(step, ToolStep) and is_read and step.save_as is None:
            name = names.free(result_name(step.tool, is_write=False))
            steps.append(msgspec.structs.replace(step, save_as=name))
        else:
            steps.append(step)
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, steps=steps)
    )


def _with_calls(
    draft: Draft, others: Sequence[Draft]
) -> Iterator[tuple[Step, Sequence[Recorded] | None]]:
    """Yield the steps of a draft with the calls that they were in each trace."""
    numbers = {item.step: number for number, item in enumerate(draft.recording)}
    for step in draft.routine.steps:
        number = numbers.get(step.id)
        made = None if number is None else [one.recording[number] for one in (draft, *others)]
        yield step, made


def _acted(step: ToolStep, calls: Sequence[Recorded]) -> dict[str, list[Any]]:
    """Return by expression the values that an effect was given in each trace."""
    texts = {place: bare(template) for place, template in single_places(step.args)}
    return {
        text: [part_at(call.args, place) for call in calls]
        for place, text in texts.items()
        if text is not None and names_in_expression(text)
    }


def _facts_of(
    read: ToolStep,
    scopes: Sequence[Json],
    acted: Mapping[str, Sequence[Any]],
    *,
    used: str,
    is_passed_on: bool,
) -> Iterator[str]:
    """Yield what the results of a read had in common in all traces."""
    given = [bare(template) for _, template in single_places(read.args)]
    texts = [one for one in given if one is not None and names_in_expression(one)]
    name = str(read.save_as)
    seen = []
    for scope in scopes:
        values = {text: _value_of(text, scope) for text in texts}
        seen.append(Shown(values, scope.get(name)))
    own = {text: values for text, values in acted.items() if text not in texts}
    yield from record_facts(name, seen, own, used=used, is_passed_on=is_passed_on)


def _value_of(text: str, scope: Json) -> Any:
    try:
        return compile_expression(text, "")(scope)
    except EmError:
        return None


def _of_arguments(step: ToolStep, calls: Sequence[Recorded]) -> Iterator[str]:
    """Yield what was so of the arguments that expressions give."""
    given: dict[str, list[Any]] = {}
    for place, template in single_places(step.args):
        text = bare(template)
        if text is not None and names_in_expression(text):
            given[text] = [part_at(call.args, place) for call in calls]
    yield from argument_facts(given)
    for text, values in given.items():
        yield from look_facts(text, values)


def _same_way(
    traces: Sequence[Trace], compile_one: Compile, keep: Collection[int] = ()
) -> list[Draft] | None:
    """Compile traces that made the same calls. A read that one of them needs stays in all."""
    drafts = [compile_one(trace, keep=keep) for trace in traces]
    kept = [{n for n, verdict in enumerate(one.verdicts) if verdict.keep} for one in drafts]
    needed = set.union(*kept, *map(read_before_effects, drafts))
    if any(own != needed for own in kept):
        drafts = [compile_one(trace, keep=needed) for trace in traces]
    return drafts if len({_way(draft) for draft in drafts}) == 1 else None


def read_before_effects(draft: Draft) -> set[int]:
    """Return the reads before the last effect: what all traces saw there must be so again."""
    writes = [call.index for call in draft.calls if call.effect == "write"]
    return {
        call.index
        for call in draft.calls[: max(writes, default=0)]
        if call.effect == "read"
        and not (call.failed or call.shell or call.is_udf or is_bookkeeping(call.name))
    }


def _way(draft: Draft) -> tuple[str, ...]:
    return tuple(item.name for item in draft.recording)


def _base(drafts: Sequence[Draft]) -> int:
    """Return the draft that checks most: a trace with a short value alone has too few checks."""
    return max(range(len(drafts)), key=lambda number: _checks(drafts[number]))


def _checks(draft: Draft) -> int:
    return sum(
        len(step.guards) + sum(map(len, step.agree.values())) for step in draft.routine.steps
    )
