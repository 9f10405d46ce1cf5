"""Guards: what a behaviour is careful about because nobody reads its routine.

A person who compiles sees which values are constants, and which numbers are not compared. A
behaviour has nobody to show them to. So params stay as recorded where a constant may depend on
them; what only one recording shows is a check all the same; and no value may come from an object
that can't be inspected.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import msgspec

from em.behaviour.behaviour import Behaviour
from em.behaviour.task import HOLE, as_expression, is_plain, param_names, reference
from em.compiler.calls import Names
from em.compiler.checks import walked
from em.compiler.evidence import ENOUGH_TO_ACT, information
from em.compiler.example import Call
from em.compiler.memberships import lists_of, mentions
from em.compiler.places import are_comparable
from em.compiler.relations import stands_in, windows
from em.compiler.situation import Known, Said, Situation, read_off, said_in
from em.errors import NotRecordable
from em.runner.expressions.language import names_in, parse_reference, whole_expression
from em.values.canonical import Json, identical, same
from em.values.leaves import is_informative, leaves, mentioned_in
from em.values.times import is_date

ENOUGH_VALUES = 3
"""Values of a param with which the same was done: then it does not matter."""
ENOUGH = 10.0
"""Bits of a value that two places don't hold by chance."""
SMALL = 3.5
"""Values below this many bits (true, 1, 10) stand everywhere, so they say next to nothing."""
_QUOTED = re.compile(r'\bquoted\(([\w.]+), "(\w+)"\)')


class Use(NamedTuple):
    """A value that a routine gives to a call, or returns: the step, its name, and its template."""

    step: str
    name: str
    template: Any

    @property
    def is_whole(self) -> bool:
        """Whether it is one expression, and no text with one in it."""
        return isinstance(self.template, str) and whole_expression(self.template) is not None

    @property
    def is_made(self) -> bool:
        """Whether it holds an expression that names something."""
        holes = HOLE.findall(self.template) if isinstance(self.template, str) else ()
        return any(parse_reference(one) or names_in(one.strip(), "", bare=True) for one in holes)

    def names(self) -> set[str]:
        """Return the names that its expressions use."""
        holes = HOLE.findall(self.template) if isinstance(self.template, str) else ()
        return {one for hole in holes for one in names_in(hole.strip(), "", bare=True)}


def uses_in(routine: Json) -> Iterator[Use]:
    """Yield the values that a routine gives to calls, and what it returns."""
    for step in walked(routine["steps"]):
        given = step.get("args") if step["type"] == "tool.call" else None
        told = {"": step.get("value")} if step["type"] == "return" else given or {}
        for name, template in told.items():
            for path, one in leaves(template):
                keys = [str(part.key) for part in path if not part.in_collection]
                yield Use(step["id"], keys[-1] if keys else str(name), one)


# ---- params


def pinned(
    routine: Json, behaviours: Sequence[Behaviour], constants: Collection[Any]
) -> dict[str, Json]:
    """Return the checks of params whose other values may have unknown effects.

    constants: the values in writes without a check that nothing explains.
    """
    newest = behaviours[-1]
    names = {*param_names(newest.params).values()}
    uses = [*uses_in(routine)]
    stated = {name: one for name, one in newest.inputs.items() if name not in names}
    is_open = any(
        information(one) >= SMALL and not _is_stated(one, stated, newest.task) for one in constants
    )
    found = {}
    for name in names:
        had: list[Any] = []
        for one in behaviours:
            if not any(identical(one.inputs.get(name), known) for known in had):
                had.append(one.inputs.get(name))
        if len(had) < ENOUGH_VALUES and (is_open or _is_unclear(name, had, uses, newest.inputs)):
            found[name] = {"enum": had}
    return found


def _is_stated(value: Any, stated: Json, task: Any) -> bool:
    """Return whether the task itself has a value, apart from its params."""
    if is_plain(value) or isinstance(value, dict | list):
        return True
    if isinstance(value, str) and len(value.split()) > 1:
        return any(same(leaf, value) for _, leaf in leaves(stated))
    return any(
        same(leaf, value) or (isinstance(leaf, str) and mentioned_in(value, leaf))
        for _, leaf in leaves(task)
    )


def _is_unclear(name: str, had: Sequence[Any], uses: Sequence[Use], inputs: Json) -> bool:
    """Return whether another value of a param may have an unknown effect."""
    value = had[-1]
    # An input of equal value is the param too, so following any of them is enough.
    alike = {name}
    if not is_plain(value):
        alike |= {one for one, its in inputs.items() if identical(its, value)}
    own = [one for one in uses if one.names() & alike]
    if is_plain(value):  # yes and no stand everywhere
        return not own or not all(one.is_whole and one.name in alike for one in own)
    if isinstance(value, int | float) and len(had) == 1:
        # 30 may be 10 times 3, and what has its place is not meant in `in 3 days`.
        known = [leaf for _, leaf in leaves(inputs)]
        numbers = [one.template for one in uses if _is_number(one.template)]
        has_place = any(one.is_whole and one.name in alike for one in own)
        is_in_text = has_place and not all(one.is_whole for one in own)
        return is_in_text or not own or any(one not in known for one in numbers)
    return not own


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- checks


def unquoted(routine: Json) -> Iterator[str]:
    """Yield that a value needs no quotes where nothing says that the agent would set them.

    A recording in which it had them refutes that.
    """
    told = [use.template for use in uses_in(routine) if isinstance(use.template, str)]
    for value, form in dict.fromkeys(row for one in told for row in _QUOTED.findall(one)):
        yield f'quoted({value}, "{form}") == {value}'


def unproved(routine: Json, recorded: Sequence[tuple[Json, Mapping[str, Call]]]) -> Iterator[str]:
    """Yield how what was given or read was related, and with what is written: it may be why.

    recorded: by recording, the inputs and the calls by the steps of the routine. The order of
    dates, the time between them, what stood in a text, and on which side of the numbers that were
    read those are that a write takes. An order that follows from two others is left out.
    """
    saved = {one["id"]: one["save_as"] for one in routine["steps"] if one["type"] == "tool.call"}
    known = [
        Situation(
            {name: Said(name, one) for name, one in inputs.items()},
            [
                Known(name, calls[step].result, {}, "", is_context=not calls[step].args)
                for step, name in saved.items()
                if step in calls and calls[step].effect == "read"
            ],
            frozenset(),
        )
        for inputs, calls in recorded
    ]
    rows = [{one.text: one.value for one in own} for own in read_off(known)]
    dates = [text for text, value in rows[-1].items() if is_date(value)]
    kept = {
        (one, other)
        for one, other in permutations(dates, 2)
        if all(is_date(row.get(one)) and is_date(row.get(other)) for row in rows)
        and all(row[one] <= row[other] for row in rows)
        and any(row[one] != row[other] for row in rows)
    }
    for one, other in sorted(kept):
        if not any((one, via) in kept and (via, other) in kept for via in dates):
            yield f"{one} <= {other}"
    given = as_expression([use.template for use in uses_in(routine)])
    spans = windows(known, lambda text: stands_in(text, given), {one for one, _ in kept})
    for text, _ in (*spans, *mentions(known, unproved=len(known) == 1)):
        yield text
    yield from _limits(routine, known, [calls for _, calls in recorded])
    if len(known) == 1:
        yield from _counts(known[0])


def echoes(
    routine: Json, recorded: Sequence[tuple[Json, Mapping[str, Call]]], posts: Collection[str]
) -> Iterator[str]:
    """Yield that a write returns again what it was given, as it did. posts: tools with a check."""
    for step in routine["steps"]:
        calls = [made[step["id"]] for _, made in recorded if step["id"] in made]
        if not calls or calls[0].effect != "write" or step["tool"] in posts:
            continue
        for path, value in leaves(calls[-1].result):
            if any(part.in_collection for part in path) or information(value) < ENOUGH_TO_ACT:
                continue
            place = reference(step["save_as"], tuple(part.key for part in path))
            for name, one in calls[-1].args.items():
                if same(one, value) and name in step["args"]:
                    yield f"{place} == {as_expression(step['args'][name])}"
                    break


def _counts(known: Situation) -> Iterator[str]:
    """Yield that as many things are in a list as a number says that was read or given."""
    numbers = [one for one in said_in(known) if _is_number(one.value)]
    for record in known.known:
        for text, items in lists_of(record.name, record.record):
            for one in numbers:
                if len(items) > 1 and one.value == len(items):
                    yield f"{text} | length == {one.text}"


def _limits(
    routine: Json, known: Sequence[Situation], recorded: Sequence[Mapping[str, Call]]
) -> Iterator[str]:
    """Yield on which side of numbers that were read those are that a write takes."""
    read = [call.args for one in recorded for call in one.values() if call.effect == "read"]
    keys = [leaf for _, leaf in leaves(read)]
    rows = [{one.text: one.value for one in own} for own in read_off(known)]
    for step in routine["steps"]:
        calls = [one.get(step["id"]) for one in recorded]
        for name, template in step.get("args", {}).items():
            given = [one.args.get(name) for one in calls if one and one.effect == "write"]
            text = as_expression(template)
            if len(given) < len(rows) or any(same(one, key) for one in given for key in keys):
                continue  # a number that a read was made with is an id
            for other, value in rows[-1].items():
                pairs: list[tuple[Any, Any]] = [
                    (row.get(other), own) for row, own in zip(rows, given, strict=True)
                ]
                if other in text or not all(are_comparable(*one) for one in pairs):
                    continue
                signs = {">=" if one > own else "<=" for one, own in pairs if one != own}
                if len(signs) == 1 and value != given[-1]:
                    yield f"{other} {signs.pop()} {text}"


def beside(routine: Json, other: Json) -> Json:
    """Return a routine with what another one of the same recordings checks, as far as both read it.

    The names of both are made in one way: where a step of the other is not there, its checks are
    left out.
    """
    own = {_made(one): one for one in routine["steps"] if "save_as" in one}
    known = {one["save_as"] for one in other["steps"] if _made(one) in own}
    found = {one["save_as"]: one for one in own.values()}
    checks, expected = [], dict[str, Json]()
    names = {*other["input_schema"].get("properties", {})} & {
        *routine["input_schema"].get("properties", {})
    }
    for step in other["steps"]:
        if step["type"] == "assert" and names_in(step["check"], "", bare=True) <= known | names:
            checks.append(step["check"])
        elif step.get("save_as") in known and "expect" in step:
            expected[found[step["save_as"]]["id"]] = step["expect"]
    steps = [
        {**one, "expect": {"allOf": [one["expect"], expected[one["id"]]]}}
        if one["id"] in expected and "expect" in one
        else one
        for one in routine["steps"]
    ]
    had = {one.get("check") for one in steps}
    return with_checks({**routine, "steps": steps}, [one for one in checks if one not in had])


def _made(step: Json) -> bytes:
    """Return what a step that saves a value does, under which name."""
    told = [step.get(name) for name in ("save_as", "tool", "args", "value", "over", "when")]
    return msgspec.json.encode(told, order="sorted")


def with_checks(routine: Json, checks: Sequence[str]) -> Json:
    """Return a routine with more checks, each as soon as the names in it are known."""
    steps = [*routine["steps"]]
    saved = {one["save_as"] for one in steps if "save_as" in one}
    ids = Names()
    for one in walked(steps):
        ids.free(one["id"])
    for check in dict.fromkeys(checks):
        needed = names_in(check, "", bare=True) & saved
        at = 0
        for place, step in enumerate(steps):
            if step.get("save_as") in needed:
                at = place + 1
        steps.insert(at, {"id": ids.free("guard"), "type": "assert", "check": check})
    return {**routine, "steps": steps}


def without_checks(routine: Json, but: Collection[str]) -> Json:
    """Return a routine whose calls look at nothing but their own checks.

    but: tools whose results are looked at.
    """

    def bare(steps: Sequence[Json]) -> Iterator[Json]:
        for step in steps:
            if step["type"] == "assert":
                continue
            own = {
                key: one for key, one in step.items() if key != "expect" or step.get("tool") in but
            }
            yield {**own, "steps": [*bare(step["steps"])]} if "steps" in step else own

    return {**routine, "steps": [*bare(routine["steps"])]}


def without_expectations(routine: Json, tools: Collection[str]) -> Json:
    """Return a routine that expects nothing of what these tools return."""
    steps = [
        {key: value for key, value in one.items() if key != "expect"}
        if one.get("tool") in tools
        else one
        for one in routine["steps"]
    ]
    return {**routine, "steps": steps}


# ---- what can't be inspected


def refuse_hidden(behaviour: Behaviour, values: Collection[Any]) -> None:
    """Refuse an id without a source: it may come from an object that can't be inspected.

    values: those that nothing explains.
    """
    steps = behaviour.steps
    # An object that is passed on is a handle, such as a page; other objects were read.
    handles = {source for one in steps for source in one.live.values()}
    given = [*(one.args for one in steps), behaviour.answer.value]
    for number, args in enumerate(given):
        earlier = [(n, one) for n, one in enumerate(steps[:number]) if one.opaque]
        is_read = any(n not in handles for n, _ in earlier)
        known = [behaviour.inputs, given[:number], [one.result for one in steps[:number]]]
        for path, value in leaves(args) if earlier else ():
            if not any(same(value, one) for one in values) or _is_there(value, known):
                continue
            is_text = isinstance(value, str) and is_informative(value)
            is_id = _is_number(value) and value not in (0, 1, -1)
            if is_id or (is_text and (is_read or any(map(str.isdigit, str(value))))):
                name = earlier[0][1].tool
                place = (
                    f"tool {steps[number].tool}, argument {path[0].key}"
                    if number < len(steps)
                    else "the agent's return value"
                )
                raise NotRecordable(
                    f"{value!r} may come from the result of {name}, which can't be inspected",
                    place=place,
                    fix=f"let {name} return a dataclass, a model or plain values",
                )


def _is_there(value: Any, known: Any) -> bool:
    return any(
        same(leaf, value) or (isinstance(leaf, str) and mentioned_in(value, leaf))
        for _, leaf in leaves(known)
    )
