"""Choice: which element of a list was taken, in a way that every recording agrees with.

By what inputs say about it, else by conditions that it always met and others did not: a field that
is the same in all examples, or that is not below or above something known; else, among those, as
the smallest or largest. A tie does not speak against being the smallest; in a run it hands over.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

import msgspec

from em.compiler.evidence import BY_ITSELF, ENOUGH_TO_ACT, Caution
from em.compiler.example import Example
from em.compiler.explanation import Atom, Explanation, FromInput, FromRead
from em.compiler.places import (
    MISSING,
    Mark,
    Path,
    Place,
    at,
    elements,
    follow,
    is_number,
    is_word,
    key_of,
    marks_in,
    plain,
)
from em.compiler.skeleton import Spot
from em.values.canonical import same
from em.values.times import is_clock, is_date

MOST_SPOTS = 40
"""Observations on which a choice is tried."""
Known = Mapping[FromInput | FromRead, Any]
"""Numbers and dates that were known before, by where they come from."""
Left = list[list[Any]]
"""By row: the elements that are left."""
MOST_CONDITIONS = 3
"""Conditions by which one element is told from others."""
MOST_TRIED = 10
"""Conditions of which some are tried together."""
Told = Literal["only", "smallest", "largest"]
How = Told | Literal["values", "many"]


class Bound(NamedTuple):
    """A field of an element that is not below, or not above, a value that is known before."""

    field: Place
    is_least: bool
    source: FromInput | FromRead

    def holds(self, element: Any, known: Mapping[FromInput | FromRead, Any]) -> bool:
        """Return whether an element keeps to it."""
        value, limit = at(element, self.field), known.get(self.source, MISSING)
        if not are_comparable(value, limit):
            return False
        return bool(value >= limit if self.is_least else value <= limit)


class Row(NamedTuple):
    """One choice that was made: from these elements, of those that inputs leave, this one."""

    spot: Spot
    elements: list[Any]
    left: list[Any]
    chosen: Any
    agrees: bool


class Way(NamedTuple):
    """A way to tell an element from others: by conditions, and perhaps as the least or most.

    conditions: fields that are as they always were, and limits. by: the field of an extreme.
    """

    how: Told = "only"
    conditions: frozenset[Place | Bound] = frozenset()
    by: Place = ()
    cost: float = 0.0

    def needs_more(self, other: "Way") -> bool:
        """Return whether another way does with a part of what this one needs."""
        is_same = (self.how, self.by) == (other.how, other.by)
        return other.conditions <= self.conditions and (is_same or other.how == "only")

    @property
    def constants(self) -> list[Place]:
        """The fields that are as they always were."""
        return sorted((one for one in self.conditions if not isinstance(one, Bound)), key=str)

    @property
    def bounds(self) -> list[Bound]:
        """The limits that it keeps to."""
        return sorted((one for one in self.conditions if isinstance(one, Bound)), key=str)


class Choice(msgspec.Struct):
    """How the element is told from the others.

    only: one fits. values: several fit, and all have the value. smallest, largest: by a field.
    many: nothing tells it. fixed: fields that every chosen element had. rows: the choices made.
    way: how it is told, beside what inputs say. others: ways that explain the recordings as well.
    """

    how: How
    atoms: list[Atom]
    is_supported: bool
    fixed: dict[Place, Any]
    rows: list[Row]
    way: "Way" = Way()
    others: list["Way"] = []

    @property
    def is_single(self) -> bool:
        """Whether one element is told from all others, with enough evidence."""
        return self.is_supported and self.how not in ("many", "values")

    @property
    def chosen(self) -> list[tuple[Example, Any]]:
        """The elements that were chosen."""
        return [(row.spot.example, row.chosen) for row in self.rows]


def choice_of(explanation: Explanation, level: int, caution: Caution = BY_ITSELF) -> Choice:
    """Return how the element of one list on the way to a value is chosen."""
    memo: dict[int, Choice] = explanation.__dict__.setdefault("choices", {})
    if level not in memo:
        memo[level] = _choice(explanation, level)
        if caution.by_person and memo[level].how == "only":
            # A person answers for it that the element was meant by what tells it.
            memo[level].is_supported = True
    return memo[level]


def _choice(explanation: Explanation, level: int) -> Choice:
    atoms = _telling(explanation.atoms[level])
    rows = _rows(explanation, level, [*atoms])
    bits = sum(one for one in atoms.values() if one > 0)
    is_said = bits >= ENOUGH_TO_ACT or (bool(atoms) and all(len(row.elements) == 1 for row in rows))
    fixed = fixed_fields([row.chosen for row in rows])
    made = Choice("many", [*atoms], False, fixed, rows)
    alone = sum(len(row.left) == 1 for row in rows)
    agreeing = sum(row.agrees for row in rows)
    if atoms and alone > len(rows) / 2 and alone >= agreeing:
        made.how, made.is_supported = "only", is_said
    elif atoms and agreeing > len(rows) / 2 and is_said:
        made.how, made.is_supported = "values", True
    elif alone == len(rows):
        # The lists had one element each: no choice was ever made.
        assert isinstance(explanation.source, FromRead)
        is_top = marks_in(explanation.source.place)[0] == level == 0 and len(rows) >= 3
        made.how, made.is_supported = "only", explanation.choice >= ENOUGH_TO_ACT or is_top
    else:
        _choose_among(made, is_free=is_said or not atoms)
    return made


def _telling(atoms: dict[Atom, float]) -> dict[Atom, float]:
    """Return the atoms without those that say nothing beside another one."""
    # A merged record that was never told apart from plain equality.
    kept = {atom: bits for atom, bits in atoms.items() if atom.how != "merges" or bits > 0}
    for merged in [atom for atom in kept if atom.how == "merges"]:
        kept = {
            atom: bits
            for atom, bits in kept.items()
            if atom.how != "covers"
            or atom.field != merged.field
            or atom.input not in (merged.input, merged.changes)
        }
    return kept


def _rows(explanation: Explanation, level: int, atoms: list[Atom]) -> list[Row]:
    source = explanation.source
    assert isinstance(source, FromRead)
    depth = marks_in(source.place)[level]
    mark, rest = source.place[depth], source.place[depth + 1 :]
    assert isinstance(mark, Mark)
    is_simple = not any(isinstance(step, Mark) for step in rest)
    rows: dict[Any, Row] = {}
    for spot in explanation.spots[:MOST_SPOTS]:
        for number, read in spot.example.by_tool[source.role.tool]:
            if number >= spot.before or not read.holds(spot.value):
                continue
            if spot.example.role(number, spot.turn) != source.role:
                continue
            paths = [path for place, path in read.paths(spot.value) if place == source.place]
            if not paths:
                continue
            # Of several elements with the value the one that inputs speak of was chosen.
            path = max(paths, key=lambda one: _told(read.result, one, depth, atoms, spot))
            holder = follow(read.result, path[:depth])
            every = elements(holder, mark)
            left = [
                one
                for key, one in every
                if all(atom.holds(key, one, spot.example, spot.turn) for atom in atoms)
            ]
            agrees = is_simple and all(same(at(one, rest), spot.value) for one in left)
            chosen = holder[path[depth]]
            row = Row(spot, [one for _, one in every], left, chosen, agrees)
            # The same task recorded twice says no more than once.
            turn = None if spot.turn is None else spot.turn.number
            rows.setdefault(key_of([row.elements, spot.value, spot.example.inputs, turn]), row)
    return [*rows.values()]


def _told(result: Any, path: Path, depth: int, atoms: list[Atom], spot: Spot) -> int:
    """Return how many atoms hold for the element of a list that a path goes through."""
    element = follow(result, path[: depth + 1])
    return sum(bool(atom.holds(path[depth], element, spot.example, spot.turn)) for atom in atoms)


def fixed_fields(chosen: list[Any]) -> dict[Place, Any]:
    """Return the fields that are words or flags and had one value in every chosen record."""
    if not chosen or not all(isinstance(one, dict) for one in chosen):
        return {}
    return {
        (name,): value
        for name, value in chosen[0].items()
        if is_word(value) and all(same(one.get(name), value) for one in chosen)
    }


def _choose_among(made: Choice, *, is_free: bool) -> None:
    """Find conditions, and perhaps an extreme, that leave nothing but the chosen element.

    Whatever explains the choice nearly as simply must agree in a run.
    """
    found = sorted(_ways(made), key=lambda way: way.cost)
    if not found:
        return
    # What the rounds of a loop have in common was chosen once.
    once = {(id(row.spot.example), key_of([row.left, row.chosen])): row for row in made.rows}
    gain = sum(math.log2(len(row.left)) for row in once.values() if row.left)
    made.how, made.way = found[0].how, found[0]
    made.others = [way for way in found[1:] if way.cost < found[0].cost + ENOUGH_TO_ACT]
    made.is_supported = is_free and gain - found[0].cost >= ENOUGH_TO_ACT


def _ways(made: Choice) -> list[Way]:
    """Return how the chosen element is told from the others, without needless parts."""
    rows, tried = made.rows, _conditions(made)
    measured = {field for row in rows for field, one in plain(row.chosen) if is_measure(one)}
    known: list[Way] = []
    for count in range(min(len(tried), MOST_CONDITIONS) + 1):
        for chosen in combinations(tried, count):
            left = [
                [one for one in row.left if all(id(one) in kept for kept in every)]
                for row, *every in zip(rows, *(one.left for one in chosen), strict=True)
            ]
            is_only = all(len(one) == 1 for one in left)
            cost = sum(one.cost for one in chosen) - math.log2(math.factorial(count))
            found: set[tuple[Told, Place]] = {("only", ())}
            for how, by in found if is_only else sorted(_extremes(rows, left), key=str):
                extra = math.log2(1 + 2 * len(measured)) if by else 0.0
                way = Way(how, frozenset(one.condition for one in chosen), by, cost + extra)
                if not any(way.needs_more(other) for other in known):
                    known.append(way)
    return known


class _Tried(NamedTuple):
    """A condition that every chosen element meets, its cost in bits, and by row what it leaves."""

    condition: Place | Bound
    cost: float
    left: list[set[int]]


def _conditions(made: Choice) -> list[_Tried]:
    """Return the conditions that tell elements from others; those that leave the fewest."""
    rows = made.rows
    known = [known_before(row.spot) for row in rows]
    bounds = _bounds(rows, known)
    inputs = sum(isinstance(bound.source, FromInput) for bound in bounds)
    tried: list[_Tried] = []
    for field, value in made.fixed.items():
        left = [{id(one) for one in row.left if same(at(one, field), value)} for row in rows]
        tried.append(_Tried(field, math.log2(1 + len(made.fixed)), left))
    for bound in bounds:
        left = [
            {id(one) for one in row.left if bound.holds(one, told)}
            for row, told in zip(rows, known, strict=True)
        ]
        count = inputs if isinstance(bound.source, FromInput) else len(bounds)
        tried.append(_Tried(bound, math.log2(1 + count), left))
    sizes = [len(row.left) for row in rows]
    telling = [one for one in tried if [*map(len, one.left)] != sizes]
    return sorted(telling, key=lambda one: one.cost - _gain(sizes, one.left))[:MOST_TRIED]


def _gain(sizes: list[int], rest: list[set[int]]) -> float:
    return sum(
        math.log2(max(1, one) / max(1, len(other))) for one, other in zip(sizes, rest, strict=True)
    )


def known_before(spot: Spot) -> Known:
    """Return the numbers and dates that were known before, by where they come from."""
    found: dict[FromInput | FromRead, Any] = {
        FromInput(place): value
        for place, value in spot.example.said(spot.turn).leaves
        if are_comparable(value, value)
    }
    for number, read in enumerate(spot.example.reads[: spot.before]):
        role = spot.example.role(number, spot.turn)
        if role.write is None:
            for place, value in plain(read.result):
                if are_comparable(value, value):
                    found.setdefault(FromRead(role, place), value)
    return found


def _bounds(rows: Sequence[Row], known: Sequence[Known]) -> list[Bound]:
    """Return the limits that every chosen element keeps to."""
    if not rows:
        return []
    common = set.intersection(*({*one} for one in known))
    fields = [field for field, value in plain(rows[0].chosen) if are_comparable(value, value)]
    found = []
    for source in sorted(common, key=str):
        for field in fields:
            for is_least in (True, False):
                bound = Bound(field, is_least, source)
                pairs = zip(rows, known, strict=True)
                if all(bound.holds(row.chosen, told) for row, told in pairs):
                    found.append(bound)
    return found


def _extremes(rows: Sequence[Row], left: Left) -> set[tuple[Told, Place]]:
    """Return the fields in which every chosen element is the smallest, or the largest.

    A tie fits both, but one choice at least must have been clear.
    """
    common: set[tuple[Told, Place]] | None = None
    clear: set[tuple[Told, Place]] = set()
    for row, rest in zip(rows, left, strict=True):
        if len(rest) < 2:
            continue
        here: set[tuple[Told, Place]] = set()
        for field, value in plain(row.chosen):
            others = [at(one, field) for one in rest if one is not row.chosen]
            if not all(are_comparable(value, other) for other in others):
                continue
            for how, least, is_clear in (
                ("smallest", value <= min(others), value < min(others)),
                ("largest", value >= max(others), value > max(others)),
            ):
                if least:
                    here.add((how, field))  # type: ignore[arg-type]
                if is_clear:
                    clear.add((how, field))  # type: ignore[arg-type]
        common = here if common is None else common & here
    return (common or set()) & clear


def is_measure(value: Any) -> bool:
    """Return whether values of this kind have an order."""
    return are_comparable(value, value)


def are_comparable(one: Any, other: Any) -> bool:
    """Return whether two values have an order: numbers, dates, times of day."""
    if is_number(one) and is_number(other):
        return True
    return (is_date(one) and is_date(other)) or (is_clock(one) and is_clock(other))
