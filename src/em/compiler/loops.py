"""Loops: calls that were repeated for each item of a list that the request names.

`Select A, B and C` and one call for each of them show what stands between the items, and which
calls are one step with `for_each`. To compile such traces, each is folded: of the repeated calls
one is left, with its item as an input. What is learnt about that call is then unfolded again. An
item may have several parts (`swap A for B, C for D`); parts of one item stay together.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import Names, identifier
from em.compiler.differences import in_expression
from em.compiler.draft import Draft, Recorded
from em.compiler.sources import quoted
from em.runner.agreement import names_in_expression, part_at, place_parts, single_places
from em.runner.routine import AssertStep, ReturnStep, Step, ToolStep, UdfStep
from em.traces.trace import Call, ToolCall
from em.values.canonical import Json
from em.values.json_schema import of_input, titles_of
from em.values.leaves import texts

_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
LONGEST_SIGN = 8
"""Letters and signs between two items of a list."""


class Listed(NamedTuple):
    """A list in words: its items by the places of the arguments they are, and how it reads."""

    places: tuple[str, ...]
    items: Sequence[Mapping[str, Any]]
    between: frozenset[str]
    each: str


class Run(NamedTuple):
    """The calls of one trace that were made for the items of a list: where they begin."""

    start: int
    listed: Listed


class Loop(NamedTuple):
    """A list that requests name, and the calls that are made with it.

    name: of the list. items: the names of what an item has, by place; of a plain item one name.
    lists: the list in each trace. runs: where its calls begin in each trace; no runs if the list
    is one argument, or if several calls were made for each item before the next (`in_turns`).
    """

    name: str
    items: Mapping[str, str]
    lists: Sequence[Sequence[Any]]
    runs: Sequence[Sequence[Run]]
    between: Sequence[str]
    each: str
    in_turns: bool = False


def loop_of(
    texts: Sequence[str],
    calls: Sequence[Sequence[Call]],
    others: Sequence[Loop],
    names: Names,
) -> Loop | None:
    """Return the list that the values of a request are; None if they are not lists.

    texts: the value of each trace. calls: those of each trace. others: loops that were found.
    """
    whole = _as_argument(texts, calls)
    if whole is not None:
        name, read = whole
        return Loop(
            names.free(identifier(name)),
            {},
            [[item[""] for item in one.items] for one in read],
            (),
            _between(read),
            "",
        )
    left = [folded(own, others, trace, 0) for trace, own in enumerate(calls)]
    runs = _as_calls(texts, calls, left)
    if runs is None:
        return None if others else _in_turns(texts, calls, names)
    read = [own[0].listed for own in runs]
    places = read[0].places
    plain = {place: _last(place) for place in places}
    items = {place: names.free(identifier(plain[place])) for place in places}
    if len(places) == 1:
        lists: list[list[Any]] = [[item[places[0]] for item in one.items] for one in read]
        name = names.free(f"{items[places[0]]}s")
        return Loop(name, items, lists, runs, _between(read), "")
    each = _HOLE.sub(lambda hole: f"{{{{ {items[hole[1].strip()]} }}}}", read[0].each)
    name = names.free("items")
    lists = [[{items[p]: one[p] for p in places} for one in own.items] for own in read]
    return Loop(name, items, lists, runs, _between(read), each)


def _in_turns(texts: Sequence[str], calls: Sequence[Sequence[Call]], names: Names) -> Loop | None:
    """Return a list for each item of which several calls were made, before those for the next."""
    longest = max(range(len(texts)), key=lambda at: len(texts[at]))
    for tool, place in dict.fromkeys(
        (_named(call), place) for call in calls[longest] for place, _ in single_places(call.args)
    ):
        read = []
        for text, own in zip(texts, calls, strict=True):
            found = [dict(single_places(call.args)) for call in own if _named(call) == tool]
            items = [{place: one[place]} for one in found if place in one]
            one = _read(text, items, (place,))
            if one is None or len(one.items) < len(items):
                break
            read.append(one)
        if len(read) == len(texts) and any(len(one.items) > 1 for one in read):
            lists = [[item[place] for item in one.items] for one in read]
            name = names.free(f"{identifier(_last(place))}s")
            return Loop(name, {}, lists, (), _between(read), "", in_turns=True)
    return None


def _between(read: Sequence[Listed]) -> list[str]:
    return sorted(frozenset().union(*(one.between for one in read)), key=lambda s: (-len(s), s))


def _last(place: str) -> str:
    *_, last = (part for part in place_parts(place) if isinstance(part, str))
    return last


# --- reading lists --------------------------------------------------------------------------------


def _as_argument(
    texts: Sequence[str], calls: Sequence[Sequence[Call]]
) -> tuple[str, list[Listed]] | None:
    """Return the argument that is the list in every trace, with its items."""
    if len({len(own) for own in calls}) > 1:
        return None
    for number, call in enumerate(calls[0]):
        for name in call.args:
            read = [
                _read(text, [{"": item} for item in value], ("",))
                for text, own in zip(texts, calls, strict=True)
                if isinstance(value := own[number].args.get(name), list) and value
            ]
            found = [one for one in read if one is not None]
            if len(found) == len(texts) and any(len(one.items) > 1 for one in found):
                return name, found
    return None


def _as_calls(
    texts: Sequence[str], calls: Sequence[Sequence[Call]], left: Sequence[Sequence[int]]
) -> list[list[Run]] | None:
    """Return the runs of calls of every trace that were made for the items of its list."""
    longest = max(range(len(texts)), key=lambda at: len(texts[at]))
    for places in _place_sets(texts[longest], calls[longest]):
        found = [_runs(text, own, places) for text, own in zip(texts, calls, strict=True)]
        aligned = _aligned(found, calls, left)
        if aligned is not None:
            return aligned
    return None


def _place_sets(text: str, calls: Sequence[Call]) -> Iterator[tuple[str, ...]]:
    """Yield places of arguments that may be an item, single ones first."""
    seen: set[tuple[str, ...]] = set()
    several: list[tuple[str, ...]] = []
    for call in calls:
        held = tuple(
            place for place, value in single_places(call.args) if _find(text, value, 0) is not None
        )
        several.append(held)
        for place in held:
            if (place,) not in seen:
                seen.add((place,))
                yield (place,)
    yield from dict.fromkeys(places for places in several if len(places) > 1)


def _runs(text: str, calls: Sequence[Call], places: tuple[str, ...]) -> list[Run]:
    """Return the runs of calls of one tool that have the items of a text, from left to right."""
    found: list[Run] = []
    start = 0
    while start < len(calls):
        items = []
        for call in calls[start:]:
            if _named(call) != _named(calls[start]):
                break
            own = dict(single_places(call.args))
            if not own.keys() >= set(places):
                break
            items.append({place: own[place] for place in places})
        read = _read(text, items, places)
        if read is None:
            start += 1
        else:
            found.append(Run(start, read))
            start += len(read.items)
    return found


def _aligned(
    found: Sequence[Sequence[Run]],
    calls: Sequence[Sequence[Call]],
    left: Sequence[Sequence[int]],
) -> list[list[Run]] | None:
    """Return the runs that all traces have at the same step; None if there are none.

    left: the numbers of the calls that other loops leave.
    """
    if not any(len(run.listed.items) > 1 for own in found for run in own):
        return None
    by_step: list[dict[tuple[str, int], Run]] = []
    for own, made, numbers in zip(found, calls, left, strict=True):
        steps: dict[tuple[str, int], Run] = {}
        before = 0
        for run in own:
            at = sum(number < run.start for number in numbers)
            steps[_named(made[run.start]), at - before] = run
            before += len(run.listed.items) - 1
        by_step.append(steps)
    shared = set.intersection(*(set(steps) for steps in by_step))
    several = {key for steps in by_step for key, run in steps.items() if len(run.listed.items) > 1}
    if not shared or not several <= shared:
        return None
    order = sorted(shared, key=lambda key: key[1])
    runs = [[steps[key] for key in order] for steps in by_step]
    ways = {run.listed.each for own in runs for run in own}
    return runs if len(ways) == 1 else None


def _named(call: Call) -> str:
    return call.tool if isinstance(call, ToolCall) else call.function


def _read(text: str, items: Sequence[Mapping[str, Any]], places: tuple[str, ...]) -> Listed | None:
    """Read items in a text from its beginning; None unless the first of them fill it."""
    at, between, each = 0, set(), ""
    for number, item in enumerate(items):
        spans = sorted(
            (span, place) for place in places if (span := _find(text, item[place], at)) is not None
        )
        if len(spans) < len(places):
            return None
        first, last = spans[0][0][0], spans[-1][0][1]
        sign = text[at:first]
        way = _way(text, spans) if len(places) > 1 else ""
        if way is None or (number and way != each):
            return None
        if bool(sign) != bool(number) or len(sign) > LONGEST_SIGN:
            return None
        between |= {sign} if sign else set()
        at, each = last, way
        if at == len(text):
            return Listed(places, items[: number + 1], frozenset(between), each)
    return None


def _way(text: str, spans: Sequence[tuple[tuple[int, int], str]]) -> str | None:
    """Return how an item of several parts reads, with the places of its parts as names."""
    parts = []
    end = spans[0][0][0]
    for (start, stop), place in spans:
        if start < end:
            return None
        parts += [text[end:start], f"{{{{ {place} }}}}"]
        end = stop
    return "".join(parts)


def _find(text: str, value: Any, at: int) -> tuple[int, int] | None:
    """Return where a value stands as a word of its own."""
    if isinstance(value, bool | dict | list) or value is None or not str(value).strip():
        return None
    wanted = str(value).strip()
    found = text.find(wanted, at)
    while found >= 0:
        end = found + len(wanted)
        apart = not (found and text[found - 1].isalnum() and wanted[0].isalnum())
        if apart and not (text[end : end + 1].isalnum() and wanted[-1].isalnum()):
            return found, end
        found = text.find(wanted, found + 1)
    return None


# --- folding --------------------------------------------------------------------------------------


def folded(calls: Sequence[Call], loops: Sequence[Loop], trace: int, turn: int) -> list[int]:
    """Return the numbers of the calls of a trace that are left: of each run, that of one turn."""
    left = list(range(len(calls)))
    for loop in loops:
        for run in loop.runs[trace] if loop.runs else ():
            count = len(run.listed.items)
            dropped = set(range(run.start, run.start + count)) - {run.start + min(turn, count - 1)}
            left = [number for number in left if number not in dropped]
    return left


def turns(loops: Sequence[Loop], trace: int) -> int:
    """Return how many times the longest loop of a trace was gone through."""
    return max((len(loop.lists[trace]) for loop in loops if loop.runs), default=1)


def inputs_of(loop: Loop, trace: int, turn: int) -> Json:
    """Return the inputs of a folded trace: the item of one turn, or the whole list."""
    own = loop.lists[trace]
    if not loop.runs:
        return {loop.name: list(own)}
    item = own[min(turn, len(own) - 1)]
    return dict(item) if isinstance(item, dict) else {next(iter(loop.items.values())): item}


# --- unfolding ------------------------------------------------------------------------------------


def unfolded(draft: Draft, loop: Loop, trace: int, calls: Sequence[Call]) -> Draft | None:
    """Return a draft in which a step is made for each item of a list; None if that can't be.

    trace: the number of the trace that the draft was made of. calls: all calls of that trace.
    """
    if not loop.runs:
        return draft
    items = set(loop.items.values())
    steps = draft.routine.steps
    looping = [
        step for step in steps if isinstance(step, ToolStep | UdfStep) and items & _uses(step)
    ]
    rest = [step for step in steps if step not in looping]
    if len(looping) != len(loop.runs[trace]) or any(items & _uses(step) for step in rest):
        return None
    saved = {step.save_as for step in looping if step.save_as is not None}
    using = [step for step in steps if saved & _uses(step)]
    if any(not isinstance(step, ReturnStep) for step in using):
        return None  # what one turn returned is a list of results now
    made: list[Step] = []
    checks: list[Step] = []
    for step in steps:
        if step not in looping:
            made.append(step)
            continue
        pair = _looped(step, loop)
        if pair is None:
            return None
        check, one = pair
        checks += [] if check is None else [check]
        made.append(one)
    return _with_list(_with_steps(draft, checked_early(made, checks)), loop, trace, calls)


def _uses(step: Step) -> set[str]:
    """Return the names that a step refers to."""
    own = msgspec.to_builtins(step)
    bare = [own.get("check"), own.get("when"), *own.get("guards", ())]
    bare += [text for agreeing in own.get("agree", {}).values() for text in agreeing]
    holes = [hole for text in texts(own) for hole in _HOLE.findall(text)]
    return {name for text in (*bare, *holes) if text for name in names_in_expression(text)}


def _looped(step: ToolStep | UdfStep, loop: Loop) -> tuple[AssertStep | None, Step] | None:
    """Return a step with `for_each`, and the check of every item that has to come before it."""
    is_plain = not loop.each
    own = next(iter(loop.items.values())) if is_plain else f"each_{loop.name}"
    named = {} if is_plain else {name: f"{own}.{name}" for name in loop.items.values()}
    conditions = list(step.guards)
    for place, agreeing in step.agree.items():
        value = bare(part_at(step.args, place))
        if value is None:
            return None
        conditions += [f"({text}) == ({value})" for text in agreeing]
    conditions = [renamed(text, named) for text in conditions]
    common: dict[str, Any] = {"for_each": f"{{{{ {loop.name} }}}}", "as_": own}
    check = None
    if conditions:
        check = AssertStep(
            id=f"check_{step.id}",
            check=" and ".join(f"({text})" for text in conditions),
            message=f"an item of {loop.name} is not as it was in the recordings",
            **common,
        )
    args = renamed_value(step.args, named)
    expects = tuple(renamed(text, named) for text in step.expects)
    looped = msgspec.structs.replace(
        step, args=args, agree={}, guards=(), reasons={}, expects=expects, **common
    )
    return check, looped


def bare(template: Any) -> str | None:
    """Return an argument as an expression; None if it is a text with expressions in it."""
    if not isinstance(template, str) or "{{" not in template:
        return quoted(template)
    inner = template.strip().removeprefix("{{").removesuffix("}}")
    return None if "{{" in inner or "}}" in inner else inner.strip()


def renamed(text: str, named: Mapping[str, str]) -> str:
    """Return an expression with expressions in place of names."""
    for name, expression in named.items():
        text = in_expression(text, name, expression)
    return text


def renamed_value(value: Any, named: Mapping[str, str]) -> Any:
    """Return a value with expressions in place of names in its templates."""
    if isinstance(value, dict):
        return {key: renamed_value(item, named) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed_value(item, named) for item in value]
    if not isinstance(value, str):
        return value
    return _HOLE.sub(lambda hole: f"{{{{{renamed(hole[1], named)}}}}}", value)


def checked_early(steps: Sequence[Step], checks: Sequence[Step]) -> list[Step]:
    """Return steps with the checks of items as early as what they need is there.

    A refusal then comes before anything was done.
    """
    made, placed = list(steps), list[Step]()
    saved = {step.save_as for step in (*steps, *checks) if step.save_as is not None}
    for check in checks:
        needed = _uses(check) & saved
        at = max((number for number, step in enumerate(made) if step.save_as in needed), default=-1)
        while at + 1 < len(made) and made[at + 1] in placed:
            at += 1
        made.insert(at + 1, check)
        placed.append(check)
    return made


def _with_steps(draft: Draft, steps: Sequence[Step]) -> Draft:
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, steps=steps)
    )


def _with_list(draft: Draft, loop: Loop, trace: int, calls: Sequence[Call]) -> Draft:
    """Return a draft with a list as its input, and with the recording of every turn."""
    items = set(loop.items.values())
    given = {name: value for name, value in draft.input.items() if name not in items}
    given[loop.name] = list(loop.lists[trace])
    looped = [step for step in draft.routine.steps if step.for_each == f"{{{{ {loop.name} }}}}"]
    runs = dict(
        zip(
            [step.id for step in looped if isinstance(step, ToolStep | UdfStep)],
            loop.runs[trace],
            strict=True,
        )
    )
    recording = [
        one
        for item in draft.recording
        for one in (_turns_of(item, runs[item.step], calls) if item.step in runs else [item])
    ]
    last = next((step for step in looped if _is_returned(draft, step)), None)
    output = draft.output
    if last is not None:
        output = [item.result for item in recording if item.step == last.id]
    schema = of_input(given, titles=titles_of(draft.routine.input_schema))
    schema["properties"][loop.name]["minItems"] = 1
    routine = msgspec.structs.replace(
        draft.routine,
        input_schema=schema,
        output_schema=None if last is not None else draft.routine.output_schema,
    )
    return msgspec.structs.replace(
        draft, routine=routine, input=given, recording=recording, output=output
    )


def _is_returned(draft: Draft, step: Step) -> bool:
    if step.save_as is None:
        return False
    return any(
        isinstance(one, ReturnStep) and one.value == f"{{{{ {step.save_as} }}}}"
        for one in draft.routine.steps
    )


def _turns_of(item: Recorded, run: Run, calls: Sequence[Call]) -> list[Recorded]:
    return [
        Recorded(item.step, item.name, item.is_udf, call.args, call.result)
        for call in calls[run.start : run.start + len(run.listed.items)]
    ]
