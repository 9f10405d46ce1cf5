"""Requested: values that only the request has become inputs, named after the argument they feed.

A value of an argument that stands in the request, as whole words and of any length, was asked for.
Over several recordings it must stand in every request, and it must differ: what is the same in
enough recordings is part of the task. A value that an input has is left to it, and so is a name or
a word that an earlier result has. An id that the request says was chosen by who said it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.calls import plain_name
from em.compiler.example import Call, Example, Write
from em.compiler.places import Key, Place, input_places, is_code, is_exactly, is_scalar, key_of

ENOUGH_ALIKE = 3
"""Recordings in which a value of the request must be the same to count as part of the task."""


class Argument(NamedTuple):
    """An argument of a call: the tool, which of its calls it is, and the place in its arguments."""

    tool: str
    number: int
    place: Place


def with_requested(examples: Sequence[Example]) -> list[Example]:
    """Return the examples with the values that stand in their requests as further inputs."""
    found = [dict(_requested(one)) for one in examples]
    common = [one for one in found[0] if all(one in other for other in found[1:])]
    names: dict[Argument, str] = {}
    taken = {str(place[0]) for one in examples for place, _ in input_places(one.inputs) if place}
    by_values: dict[Any, str] = {}
    for argument in common:
        values = [other[argument] for other in found]
        if len(values) >= ENOUGH_ALIKE and len({*map(key_of, values)}) == 1:
            continue
        key = tuple(map(key_of, values))
        if key not in by_values:
            by_values[key] = _fresh(_name(argument), taken)
        names[argument] = by_values[key]
    words = {
        name
        for argument, name in names.items()
        if len({key_of(one[argument]) for one in found}) == 1 and _is_plain(found[0][argument])
    }
    # Where nothing else says what a run is about, the words of the request do.
    has_others = bool(taken - words)
    return [
        _with(
            example,
            {name: values[argument] for argument, name in names.items()},
            defaults=words if has_others else (),
        )
        for example, values in zip(examples, found, strict=True)
    ]


def _with(
    example: Example,
    more: dict[str, Any],
    *,
    defaults: Collection[str] = (),
) -> Example:
    if not more:
        return example
    return Example(
        {**example.inputs, **more},
        example.calls,
        request=example.request,
        output=example.output,
        name=example.name,
        subject=example.subject,
        defaults={*example.defaults, *defaults},
    )


def _requested(example: Example) -> Iterator[tuple[Argument, Any]]:
    """Yield the values of arguments that the request has, and nothing else."""
    given: dict[Key, list[Any]] = defaultdict(list)
    for _, value in input_places(example.inputs):
        given[key_of(value)].append(value)
    times: Counter[str] = Counter()
    before = 0
    repeated = _repeated(example)
    for call in example.calls:
        if call.error is not None:
            continue
        number = times[call.tool]
        times[call.tool] += 1
        for place, value in _values(call):
            if (call.tool, place) in repeated or not _can_be_input(value):
                continue
            is_known = any(is_exactly(value, one) for one in given.get(key_of(value), ()))
            is_known = is_known or (not is_code(value) and bool(example.holding(value, before)))
            if not is_known and stands_in(value, example.request):
                yield Argument(call.tool, number, place), value
        before += 1


def _repeated(example: Example) -> set[tuple[str, Place]]:
    """Return the arguments that differ between the rounds of a loop: its list gives them."""
    seen: dict[tuple[str, Place], set[Any]] = defaultdict(set)
    for call in example.calls:
        for place, value in _values(call):
            seen[call.tool, place].add(key_of(value))
    looped = {tool for body, rounds in _rounds(example) if len(rounds) > 1 for tool in body}
    return {key for key, values in seen.items() if len(values) > 1 and key[0] in looped}


def _rounds(example: Example) -> Iterator[tuple[tuple[str, ...], list[list[Write]]]]:
    """Yield the blocks of writes, each with the writes of its rounds."""
    left = [*example.writes]
    for number, body in enumerate(example.bodies):
        rest = sum(len(one) for one in example.bodies[number + 1 :])
        rounds = []
        while left and len(left) > rest and [one.tool for one in left[: len(body)]] == [*body]:
            rounds.append(left[: len(body)])
            left = left[len(body) :]
            following = example.bodies[number + 1 : number + 2]
            if following == [body]:
                break
        yield body, rounds


def _values(call: Call) -> Iterator[tuple[Place, Any]]:
    for place, value in input_places(call.args):
        if all(isinstance(step, str) for step in place):
            yield place, value


def _can_be_input(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(is_scalar(one) for one in value)
    return value is not None and not isinstance(value, bool) and is_scalar(value)


def _is_plain(value: Any) -> bool:
    """Return whether a value is plain words in lower case."""
    return isinstance(value, str) and _PLAIN.fullmatch(value) is not None


_PLAIN = re.compile(r"[a-z]+(?: [a-z]+)*")


_LARGEST = 1e15
"""Numbers below it have all their digits as floats, so they may be written in other ways."""


def stands_in(value: Any, text: str) -> bool:
    """Return whether a text has a value as whole words; of a list every element."""
    if isinstance(value, list):
        return all(stands_in(one, text) for one in value)
    written = {str(value)}
    if isinstance(value, int | float) and abs(value) < _LARGEST:
        written |= {f"{value:,}", f"{value:.2f}", f"{value:,.2f}", f"{value:g}"}
    return any(_stands(one, text) for one in written if one.strip())


def _stands(words: str, text: str) -> bool:
    left = r"(?<![\w])" if words[0].isalnum() else ""
    right = r"(?![\w]|[.,]\d)" if words[-1].isalnum() else ""
    return re.search(f"{left}{re.escape(words)}{right}", text) is not None


def _name(argument: Argument) -> str:
    return plain_name(str(argument.place[-1]) if argument.place else argument.tool)


def _fresh(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name
