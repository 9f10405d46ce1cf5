"""Requested: values that only the request has become inputs, named after the argument they feed.

A value of an argument that stands in the request, as whole words and of any length, was asked for;
so was a yes or no whose name stands there.
Over several recordings it must stand in every request whose call has the argument, and it must
differ: what is the same in enough recordings is part of the task. Where some calls leave the
argument out, it is an input that need not be given. A value that an input has is left to it, and so
is a name or a word that an earlier result has. An id that the request says was chosen by who said
it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.calls import plain_name
from em.compiler.example import Call, Example, Write
from em.compiler.places import Key, Place, input_places, is_code, is_exactly, is_scalar, key_of
from em.compiler.term import unused
from em.values.canonical import same

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
    others = [_arguments(one) for one in examples]
    # By recording, the values of an argument that every request says whose call has it.
    said = {
        argument: [one.get(argument, _LEFT_OUT) for one in found]
        for argument in dict.fromkeys(one for each in found for one in each)
        if all(
            argument in one or argument not in other
            for one, other in zip(found, others, strict=True)
        )
    }
    names: dict[Argument, str] = {}
    taken = {str(place[0]) for one in examples for place, _ in input_places(one.inputs) if place}
    words: set[str] = set()
    # What every recording has comes first: what only some have may be the same input.
    for argument, values in sorted(said.items(), key=lambda one: one[1].count(_LEFT_OUT)):
        is_same = len({*map(_key, values)}) == 1
        if is_same and len(values) >= ENOUGH_ALIKE:
            continue
        alike = (
            name
            for one, name in names.items()
            if _agree(values, said[one], has_same_name=_name(one) == _name(argument))
        )
        names[argument] = next(alike, "") or unused(_name(argument), taken)
        taken.add(names[argument])
        if is_same and _is_plain(values[0]):
            words.add(names[argument])
    # Where nothing else says what a run is about, the words of the request do.
    has_others = bool(taken - words)
    return [
        _with(
            example,
            {name: values[argument] for argument, name in names.items() if argument in values},
            defaults=words if has_others else (),
        )
        for example, values in zip(examples, found, strict=True)
    ]


_LEFT_OUT = object()


def _key(value: Any) -> Any:
    return value if value is _LEFT_OUT else key_of(value)


def _agree(values: Sequence[Any], others: Sequence[Any], *, has_same_name: bool) -> bool:
    """Return whether an argument always has the value that another one has.

    One recording of an argument that most calls leave out may agree by chance.
    """
    pairs = [
        (_key(one), _key(other))
        for one, other in zip(values, others, strict=True)
        if one is not _LEFT_OUT
    ]
    is_chance = len(pairs) < len(values) and len({*pairs}) == 1 and not has_same_name
    return not is_chance and all(one == other for one, other in pairs)


def _arguments(example: Example) -> set[Argument]:
    """Return the arguments that the calls of a recording have."""
    times: Counter[str] = Counter()
    found = set()
    for call in example.calls:
        if call.error is None:
            found |= {Argument(call.tool, times[call.tool], place) for place, _ in _values(call)}
            times[call.tool] += 1
    return found


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
            if (call.tool, place) in repeated:
                continue
            is_given = same(example.inputs.get(plain_name(str(place[-1]))), value)
            if isinstance(value, bool) and not is_given and is_named(place, example.request):
                yield Argument(call.tool, number, place), value
            if not _can_be_input(value):
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


def is_named(place: Place, text: str) -> bool:
    """Return whether a text has the name of an argument: `shore power` for `shore_power`."""
    name = plain_name(str(place[-1])) if place else ""
    return bool(name) and _stands(_spaced(name), _spaced(text))


def _spaced(text: str) -> str:
    return _BETWEEN.sub(" ", text).casefold().strip()


_BETWEEN = re.compile(r"[-_\s]+")


def _name(argument: Argument) -> str:
    return plain_name(str(argument.place[-1]) if argument.place else argument.tool)
