"""Members: calls that were made for the members of a list which a read returned.

The calls of all traces are cut into stages. A stage is a call that every trace made once, or a
round: calls of one tool, or of several that take turns, for the members of a list. What was done
to a member is its way; where members went different ways, `branches` finds what separates them.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.calls import TracedCall
from em.compiler.sources import lists, quoted, text_key
from em.runner.agreement import part_at, single_places
from em.runner.expressions.functions import KEYS, every, keyed
from em.values.call import Effect
from em.values.canonical import Json, identical

MOST_TOOLS = 40
"""Different tools of the traces; with more of them no stages are looked for."""
DEEPEST_FIELD = 2
"""Mappings within each other whose fields may tell members apart."""

GIVEN = -1
"""Stands for the stage of a list that is an input."""

Way = tuple[str, ...]
"""The tools that were called for one member, in their order; none if it was left out."""


class Stage(NamedTuple):
    """Calls that belong together: their tools, and by trace the calls in their order."""

    tools: tuple[str, ...]
    calls: Sequence[Sequence[TracedCall]]

    @property
    def is_single(self) -> bool:
        """Whether every trace made just one call."""
        return len(self.tools) == 1 and all(len(own) == 1 for own in self.calls)

    def effect_of(self, tool: str) -> Effect:
        """Return the effect of a tool in it."""
        return next(call.effect for own in self.calls for call in own if call.name == tool)

    @property
    def is_read(self) -> bool:
        """Whether nothing in it has an effect."""
        return all(call.effect == "read" for own in self.calls for call in own)


class Turn(NamedTuple):
    """What was done to one member of the list of a trace."""

    member: Any
    calls: Mapping[str, TracedCall]
    way: Way


class Source(NamedTuple):
    """A list that a stage returned: the number of the stage, the path of its items, their id.

    key: where a member holds what tells it from the others; empty if it is that itself.
    places: by tool, the argument that is the key of a member.
    """

    stage: int
    path: str
    key: str
    places: Mapping[str, str]


class Round(NamedTuple):
    """A stage that was gone through for the members of a list, by trace; and where that list is.

    body: the tools in the order of a turn. others: further lists that tell the same.
    """

    source: Source
    body: tuple[str, ...]
    turns: Sequence[Sequence[Turn]]
    others: Sequence[Source]

    @property
    def ways(self) -> list[Way]:
        """The ways that members went."""
        return sorted(
            {turn.way for own in self.turns for turn in own}, key=lambda way: (not way, way)
        )

    @property
    def always_first(self) -> str:
        """The tool that every member's turn began with; empty if there is none."""
        first = {turn.way[0] if turn.way else "" for own in self.turns for turn in own}
        return first.pop() if len(first) == 1 else ""


def stages_of(traces: Sequence[Sequence[TracedCall]]) -> list[Stage]:
    """Cut the calls of traces into stages, in an order that all traces went through them.

    Two tools are one stage if some trace called one first, and some trace the other.
    Empty if there are too many tools.
    """
    names = list(dict.fromkeys(call.name for calls in traces for call in calls))
    if len(names) > MOST_TOOLS:
        return []
    before: set[tuple[str, str]] = set()
    for calls in traces:
        first = {call.name: at for at, call in reversed(list(enumerate(calls)))}
        last = {call.name: at for at, call in enumerate(calls)}
        before |= {(one, other) for one in first for other in last if first[one] < last[other]}
    for middle, one, other in itertools.product(names, repeat=3):
        if (one, middle) in before and (middle, other) in before:
            before.add((one, other))
    groups: list[tuple[str, ...]] = []
    for name in names:
        mates = {other for other in names if {(name, other), (other, name)} <= before} | {name}
        group = tuple(one for one in names if one in mates)
        if group not in groups:
            groups.append(group)
    groups.sort(key=lambda group: sum((one[0], group[0]) in before for one in groups))
    return [
        Stage(group, [[call for call in calls if call.name in group] for calls in traces])
        for group in groups
    ]


def rounds_of(stages: Sequence[Stage], given: Sequence[Json] = ()) -> dict[int, Round] | None:
    """Return the round of each stage that is not a single call.

    given: the inputs of each trace; a list among them may be gone through as well.
    Reads that no list explains are left out. None if a call with an effect is not explained.
    """
    found: dict[int, Round] = {}
    for number, stage in enumerate(stages):
        one = None if stage.is_single else _round(stages, number, given)
        if one is not None:
            found[number] = one
        elif not stage.is_single and not stage.is_read:
            return None
    return found


def _round(stages: Sequence[Stage], number: int, given: Sequence[Json]) -> Round | None:
    """Return how a stage went through a list: the one that says most about its members."""
    known = [(at, *one) for at in range(number) for one in _lists(stages[at])]
    known += [(GIVEN, *one) for one in _given_lists(given)]
    made = [
        one
        for at, path, members in known
        if (one := _through(stages[number], at, path, members)) is not None
    ] or [
        one
        for at in range(number)
        for path, members in _keyed_lists(stages[at])
        if (one := _through(stages[number], at, path, members)) is not None
    ]
    # A later list is the better known: it may hold what was read about each member.
    made.sort(key=lambda one: (-_fields(one), -one.source.stage))
    if not made or any(_done(one) != _done(made[0]) for one in made):
        return None
    best = made[0]
    return best._replace(others=[one.source for one in made[1:]])


def _fields(one: Round) -> int:
    return max((len(features(turn.member)) for own in one.turns for turn in own), default=0)


def _done(one: Round) -> list[list[list[int]]]:
    """Return the calls by trace and turn."""
    return [
        [[call.index for call in turn.calls.values()] for turn in own if turn.way]
        for own in one.turns
    ]


def _lists(stage: Stage) -> Iterator[tuple[str, list[list[Any]]]]:
    """Yield the lists that a stage of reads returned in every trace, by the path of their items."""
    if not stage.is_read or (not stage.is_single and len(stage.tools) > 1):
        return
    if not stage.is_single:
        # What was read for each member is a list itself.
        yield "*", [[call.result for call in own] for own in stage.calls]
        return
    found = [dict(lists(own[0].result)) for own in stage.calls]
    for path in found[0]:
        if all(path in one for one in found):
            yield path, [one[path] for one in found]


def _keyed_lists(stage: Stage) -> Iterator[tuple[str, list[list[Any]]]]:
    """Yield the mappings of records that a single read returned in every trace, as lists.

    Their path ends with `@`: what tells a record from the others is the key that it stands under.
    """
    if not stage.is_read or not stage.is_single:
        return
    results = [own[0].result for own in stage.calls]
    for path, _ in lists(results[0]):
        *parts, _ = path.split(".")
        held = [every(one, ".".join(parts)) if parts else [one] for one in results]
        try:
            yield ".".join([*parts, KEYS]), [keyed(one[0]) for one in held]
        except (LookupError, TypeError, ValueError):
            continue  # not a mapping of records, or not in every trace


def _given_lists(given: Sequence[Json]) -> Iterator[tuple[str, list[list[Any]]]]:
    """Yield the lists among the inputs of all traces."""
    for name in given[0] if given else ():
        found = [one.get(name) for one in given]
        if all(isinstance(one, list) for one in found):
            yield f"{name}.*", [list(one or ()) for one in found]


def _through(stage: Stage, at: int, path: str, members: Sequence[Sequence[Any]]) -> Round | None:
    """Return the turns of a stage, if each call was made for a member, in the order of the list."""
    for key in _keys(members):
        known = [{quoted(_key(one, key)): one for one in own} for own in members]
        places = {tool: _places(stage, tool, known) for tool in stage.tools}
        if any(len(found) != 1 for found in places.values()):
            continue  # no argument is the key, or two are
        source = Source(at, path, key, {tool: found[0] for tool, found in places.items()})
        turns = [
            _turns(own, list(held), source) for own, held in zip(stage.calls, members, strict=True)
        ]
        body = _body(stage.tools, [turn.way for own in turns if own for turn in own])
        if all(own is not None for own in turns) and body is not None:
            return Round(source, body, [own for own in turns if own is not None], ())
    return None


def _keys(members: Sequence[Sequence[Any]]) -> list[str]:
    """Return where all members hold a value that no other of their list has."""
    every_one = [one for own in members for one in own]
    if not every_one:
        return []
    if all(not isinstance(one, dict | list) for one in every_one):
        names = [""]
    else:
        held = [features(one) for one in every_one]
        names = [name for name in held[0] if all(name in one for one in held)]
    return [
        name
        for name in names
        if all(len({quoted(_key(one, name)) for one in own}) == len(own) for own in members)
    ]


def _key(member: Any, key: str) -> Any:
    return every(member, key)[0] if key else member


def _places(stage: Stage, tool: str, known: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the arguments of a tool that were the key of a member in every call."""
    shared: set[str] | None = None
    order: list[str] = []
    for own, keys in zip(stage.calls, known, strict=True):
        for call in own:
            if call.name == tool:
                here = [place for place, value in single_places(call.args) if quoted(value) in keys]
                order = order or here
                shared = set(here) if shared is None else shared & set(here)
    return [place for place in order if place in (shared or ())]


def _turns(
    calls: Sequence[TracedCall], members: Sequence[Any], source: Source
) -> list[Turn] | None:
    """Return what was done to each member; None if that was not in the order of the list."""
    positions = {quoted(_key(one, source.key)): at for at, one in enumerate(members)}
    made: list[list[TracedCall]] = [[] for _ in members]
    last = -1
    for call in calls:
        at = positions[quoted(part_at(call.args, source.places[call.name]))]
        if at < last or any(one.name == call.name for one in made[at]):
            return None
        made[at].append(call)
        last = at
    return [
        Turn(member, {call.name: call for call in own}, tuple(call.name for call in own))
        for member, own in zip(members, made, strict=True)
    ]


def _body(tools: Sequence[str], ways: Sequence[Way]) -> tuple[str, ...] | None:
    """Return the tools in an order that all turns have; None if there is none."""
    before = {pair for way in ways for pair in itertools.combinations(way, 2)}
    if any((other, one) in before for one, other in before):
        return None
    left, order = list(tools), []
    while left:
        first = [one for one in left if not any((other, one) in before for other in left)]
        if not first:
            return None
        order.append(first[0])
        left.remove(first[0])
    return tuple(order)


def features(member: Any, path: str = "") -> Json:
    """Return the single values of a member by their path."""
    if not isinstance(member, dict):
        return {} if isinstance(member, list) else {path: member}
    found: Json = {}
    for name, value in member.items():
        if isinstance(name, str) and name.isidentifier() and path.count(".") < DEEPEST_FIELD - 1:
            found |= features(value, f"{path}.{name}" if path else name)
    return found


def fields_for(turns: Sequence[tuple[Any, TracedCall]], place: str) -> list[str]:
    """Return the fields of members that were an argument in every call made for them."""
    shared: list[str] | None = None
    for member, call in turns:
        value = part_at(call.args, place)
        own = [name for name, held in features(member).items() if identical(held, value)]
        shared = own if shared is None else [name for name in shared if name in own]
    return shared or []


def is_another_each_time(values: Sequence[Any]) -> bool:
    """Return whether values vary."""
    return len({text_key(one) for one in values}) > 1
