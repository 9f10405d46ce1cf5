"""Choice: which element of a list was taken, in a way that every recording agrees with.

By what inputs say about it, else by conditions that it always met and others did not: a field that
is the same in all examples, or that is not below or above something known; else, among those, as
the smallest or largest. A tie does not speak against being the smallest; in a run it hands over.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, NamedTuple

import msgspec

from em.compiler.evidence import ENOUGH_TO_ACT, ENOUGH_TO_CHECK, Caution
from em.compiler.example import Example
from em.compiler.explanation import Atom, Explanation, FromInput, FromRead
from em.compiler.places import (
    MISSING,
    Mark,
    Path,
    Place,
    are_comparable,
    at,
    elements,
    follow,
    is_word,
    key_of,
    marks_in,
    overlap,
    plain,
)
from em.compiler.skeleton import Spot
from em.values.canonical import same

MOST_SPOTS = 40
"""Observations on which a choice is tried."""
MOST_ELEMENTS = 200_000
"""Elements of all observations together; of lists as long as that, few observations are enough."""
Positions = int
"""Positions in a list, as the bits of a number: lists of any length are compared at once."""
MOST_CONDITIONS = 3
"""Conditions by which one element is told from others."""
MOST_TRIED = 10
"""Conditions that are tried, up to three at a time."""
MOST_RIVALS = 8
"""Ways to choose that may be left where little evidence speaks for one: all of them must agree."""
Told = Literal["only", "smallest", "largest"]
How = Told | Literal["values", "many"]


Known = Mapping[FromInput | FromRead, Any]
"""What was known before, by where it comes from."""
Knows = Callable[[Spot, int, Any], Known]
"""Tells what was known before a choice and does not depend on it."""


class Bound(NamedTuple):
    """A field of an element that is not below, not above, or just what is known before.

    source: where the limit is known from; None if the least is 1, as for what is in stock.
    """

    field: Place
    how: Literal["least", "most", "equal"]
    source: FromInput | FromRead | None

    def holds(self, element: Any, known: Known) -> bool:
        """Return whether an element keeps to it."""
        value = at(element, self.field)
        limit = 1 if self.source is None else known.get(self.source, MISSING)
        if self.how == "equal":
            return limit is not MISSING and same(value, limit)
        if not are_comparable(value, limit):
            return False
        return bool(value >= limit if self.how == "least" else value <= limit)


class Row(NamedTuple):
    """One choice that was made: from these elements, of those that inputs leave, this one.

    options: the elements that have the value and fit the inputs best. listed: the number of the
    read that returned the list.
    """

    spot: Spot
    elements: list[Any]
    left: list[Any]
    options: list[Any]
    chosen: Any
    agrees: bool
    listed: int


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
    usual: the fixed fields that others of the list often had otherwise.
    """

    how: How
    atoms: list[Atom]
    is_supported: bool
    fixed: dict[Place, Any]
    rows: list[Row]
    way: "Way" = Way()
    others: list["Way"] = []
    usual: dict[Place, Any] = {}

    @property
    def is_single(self) -> bool:
        """Whether one element is told from all others, with enough evidence."""
        return self.is_supported and self.how not in ("many", "values")

    @property
    def chosen(self) -> list[tuple[Example, Any]]:
        """The elements that were chosen."""
        return [(row.spot.example, row.chosen) for row in self.rows]


def choice_of(explanation: Explanation, level: int, known: Knows, caution: Caution) -> Choice:
    """Return how the element of one list on the way to a value is chosen.

    known: tells what else was known.
    """
    memo: dict[int, Choice] = explanation.__dict__.setdefault("choices", {})
    if level not in memo:
        memo[level] = _choice(explanation, level, known)
        if caution.by_person and memo[level].how == "only":
            # A person answers for it that the element was meant by what tells it.
            memo[level].is_supported = True
    return memo[level]


def _choice(explanation: Explanation, level: int, known: Knows) -> Choice:
    atoms = _telling(explanation.atoms[level], explanation.spots)
    rows = _rows(explanation, level, [*atoms])
    bits = sum(one for one in atoms.values() if one > 0)
    is_said = bits >= ENOUGH_TO_ACT or (bool(atoms) and all(len(row.elements) == 1 for row in rows))
    fixed = fixed_fields([row.chosen for row in rows])
    made = Choice("many", [*atoms], False, fixed, rows)
    made.usual = _usual(made)
    usual = made.usual if is_said else {}
    alone = sum(len(_fitting(row.left, usual)) == 1 for row in rows)
    agreeing = sum(row.agrees for row in rows)
    is_alone = _mostly(rows, lambda row: len(_fitting(row.left, usual)) == 1)
    if atoms and is_alone and alone >= agreeing:
        made.how, made.is_supported = "only", is_said
        made.way = Way(conditions=frozenset(usual))
        if alone < len(rows) and is_said:
            _narrow(made, known)
    elif atoms and is_said and _mostly(rows, lambda row: row.agrees):
        made.how, made.is_supported = "values", True
    elif alone == len(rows):
        # The lists had one element each: no choice was ever made.
        assert isinstance(explanation.source, FromRead)
        is_top = marks_in(explanation.source.place)[0] == level == 0 and len(rows) >= 3
        made.how, made.is_supported = "only", explanation.choice >= ENOUGH_TO_ACT or is_top
    else:
        _choose_among(made, known, is_free=is_said or not atoms)
    return made


def _telling(atoms: dict[Atom, float], spots: Sequence[Spot]) -> dict[Atom, float]:
    """Return the atoms without those that say nothing beside another one.

    One of an input that is not always given only adds to what others say.
    """
    always = {
        atom: bits
        for atom, bits in atoms.items()
        if all(atom.is_told(spot.example, spot.turn) for spot in spots)
    }
    atoms, told = dict(always), sorted(atoms.items(), key=lambda row: -row[1])
    for atom, bits in told if always else ():
        if bits >= ENOUGH_TO_ACT and not any(overlap(atom.field, one.field) for one in atoms):
            atoms[atom] = bits
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


def _mostly(rows: Sequence[Row], holds: Callable[[Row], bool]) -> bool:
    """Return whether something holds for all choices of most examples."""
    every = {id(row.spot.example) for row in rows}
    broken = {id(row.spot.example) for row in rows if not holds(row)}
    return 2 * len(broken) < len(every)


def _rows(explanation: Explanation, level: int, atoms: list[Atom]) -> list[Row]:
    source = explanation.source
    assert isinstance(source, FromRead)
    depth = marks_in(source.place)[level]
    mark, rest = source.place[depth], source.place[depth + 1 :]
    assert isinstance(mark, Mark)
    is_simple = not any(isinstance(step, Mark) for step in rest)
    rows: dict[Any, Row] = {}
    for spot in explanation.spots[:MOST_SPOTS]:
        if sum(len(row.elements) for row in rows.values()) > MOST_ELEMENTS:
            break
        for number, read in spot.example.by_tool[source.role.tool]:
            if number >= spot.before or not read.holds(spot.value):
                continue
            if spot.example.role(number, spot.turn) != source.role:
                continue
            paths = [path for place, path in read.paths(spot.value) if place == source.place]
            if not paths:
                continue
            # Of several elements with the value the one that inputs speak of was chosen.
            told = [_told(read.result, path, depth, atoms, spot) for path in paths]
            paths = [path for path, one in zip(paths, told, strict=True) if one == max(told)]
            path = paths[0]
            holder = follow(read.result, path[:depth])
            options = [follow(read.result, one[: depth + 1]) for one in paths]
            every = elements(holder, mark)
            left = [
                one
                for key, one in every
                if all(atom.holds(key, one, spot.example, spot.turn) is not False for atom in atoms)
            ]
            agrees = is_simple and all(same(at(one, rest), spot.value) for one in left)
            row = Row(spot, [one for _, one in every], left, options, options[0], agrees, number)
            # The same task recorded twice says no more than once.
            turn = None if spot.turn is None else spot.turn.number
            rows.setdefault(key_of([row.elements, spot.value, spot.example.inputs, turn]), row)
    return _settled([*rows.values()])


def _settled(rows: list[Row]) -> list[Row]:
    """Take, of several elements that have the value, one that is like the others chosen."""
    fixed = fixed_fields([row.chosen for row in rows if len(row.options) == 1])
    return [row._replace(chosen=[*_fitting(row.options, fixed), row.chosen][0]) for row in rows]


def _usual(made: Choice) -> dict[Place, Any]:
    """Return the fields that chosen elements always had, and others of their lists often not.

    Of two appointments for the same reason it is the one that is still booked.
    """
    found: dict[Place, Any] = {}
    for field, value in made.fixed.items():
        sizes = [len(row.elements) for row in made.rows]
        rest = [_fitting(row.elements, {field: value}) for row in made.rows]
        gain = sum(math.log2(size / len(one)) for size, one in zip(sizes, rest, strict=True))
        if gain - math.log2(len(made.fixed)) >= ENOUGH_TO_CHECK:
            found[field] = value
    return found


def _fitting(elements: list[Any], fields: Mapping[Place, Any]) -> list[Any]:
    return [one for one in elements if all(same(at(one, f), v) for f, v in fields.items())]


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


def _choose_among(made: Choice, known: Knows, *, is_free: bool) -> None:
    """Find conditions, and perhaps an extreme, that leave nothing but the chosen element.

    Whatever explains the choice nearly as simply must agree in a run.
    """
    found = sorted(_ways(made, known), key=lambda way: way.cost)
    if not found:
        return
    # What the rounds of a loop have in common was chosen once.
    once = {(id(row.spot.example), key_of([row.left, row.chosen])): row for row in made.rows}
    gain = sum(math.log2(len(row.left)) for row in once.values() if row.left)
    made.how, made.way = found[0].how, found[0]
    certain = gain - found[0].cost
    # With little evidence, whatever fits the recordings must agree in a run, however unlikely.
    reach = ENOUGH_TO_ACT if certain >= ENOUGH_TO_CHECK else math.inf
    made.others = [way for way in found[1:] if way.cost < found[0].cost + reach]
    is_shown = certain > 0 and len({example for example, _ in once}) > 1
    is_enough = certain >= ENOUGH_TO_CHECK or (is_shown and len(made.others) < MOST_RIVALS)
    made.is_supported = is_free and is_enough


def _narrow(made: Choice, known: Knows) -> None:
    """Find further conditions where what inputs say mostly leaves one element, but not always."""
    further = msgspec.structs.replace(made)
    _choose_among(further, known, is_free=True)
    if further.is_supported and further.way.conditions:
        made.how, made.way, made.others = further.how, further.way, further.others


def _ways(made: Choice, knows: Knows) -> list[Way]:
    """Return how the chosen element is told from the others, without needless parts."""
    rows, tried = made.rows, _conditions(made, knows)
    measured = {field for row in rows for field, one in plain(row.chosen) if is_measure(one)}
    compared = [[*_compared(row)] for row in rows]
    known: list[Way] = []
    for count in range(min(len(tried), MOST_CONDITIONS) + 1):
        for chosen in combinations(tried, count):
            left = _left(rows, chosen)
            is_only = all(one.bit_count() == 1 for one in left)
            cost = sum(one.cost for one in chosen) - math.log2(math.factorial(count))
            found: set[tuple[Told, Place]] = {("only", ())}
            for how, by in found if is_only else sorted(_extremes(compared, left), key=str):
                extra = math.log2(1 + 2 * len(measured)) if by else 0.0
                way = Way(how, frozenset(one.condition for one in chosen), by, cost + extra)
                if not any(way.needs_more(other) for other in known):
                    known.append(way)
    return known


class _Tried(NamedTuple):
    """A condition that every chosen element meets, its cost in bits, and by row what it leaves."""

    condition: Place | Bound
    cost: float
    left: list[Positions]


class _Compared(NamedTuple):
    """How a field of the elements that are left compares with the one of the chosen element."""

    field: Place
    below: Positions
    equal: Positions
    above: Positions
    incomparable: Positions


def _conditions(made: Choice, knows: Knows) -> list[_Tried]:
    """Return the conditions that tell elements from others; those that leave the fewest."""
    rows = made.rows
    known = [knows(row.spot, row.listed, row.chosen) for row in rows]
    bounds = _bounds(rows, known)
    families = Counter(map(_family, bounds))
    tried: list[_Tried] = []
    for field, value in made.fixed.items():
        left = [_positions(same(at(one, field), value) for one in row.left) for row in rows]
        tried.append(_Tried(field, math.log2(1 + len(made.fixed)), left))
    for bound in bounds:
        left = [
            _positions(bound.holds(one, told) for one in row.left)
            for row, told in zip(rows, known, strict=True)
        ]
        tried.append(_Tried(bound, math.log2(1 + families[_family(bound)]), left))
    sizes = [len(row.left) for row in rows]
    telling = [one for one in tried if [*map(int.bit_count, one.left)] != sizes]
    return sorted(telling, key=lambda one: one.cost - _gain(sizes, one.left))[:MOST_TRIED]


def _gain(sizes: list[int], rest: list[Positions]) -> float:
    return sum(
        math.log2(max(1, one) / max(1, other.bit_count()))
        for one, other in zip(sizes, rest, strict=True)
    )


def _family(bound: Bound) -> str:
    """Return the kind of a limit: one of a kind with few limits counts for more."""
    if bound.source is None or bound.how == "equal":
        return bound.how
    return "given" if isinstance(bound.source, FromInput) else "read"


def _bounds(rows: Sequence[Row], known: Sequence[Known]) -> list[Bound]:
    """Return the limits that every chosen element keeps to."""
    if not rows:
        return []
    common = sorted(set.intersection(*({*one} for one in known)), key=str)
    found = []
    for field, value in plain(rows[0].chosen):
        tried = [Bound(field, "least", None)] if _is_stock(rows, field) else []
        for source in common:
            limit = known[0][source]
            if are_comparable(value, limit):
                tried += [Bound(field, "least", source), Bound(field, "most", source)]
            elif isinstance(source, FromRead) and same(value, limit):
                tried.append(Bound(field, "equal", source))
        for bound in tried:
            pairs = zip(rows, known, strict=True)
            if all(bound.holds(row.chosen, told) for row, told in pairs):
                found.append(bound)
    return found


def stock_fields(choice: Choice) -> list[Place]:
    """Return the fields that count a stock: some elements had 0, but never the chosen one."""
    fields = [field for field, _ in plain(choice.rows[0].chosen)] if choice.rows else []
    told = {one.field for one in choice.way.bounds}
    return [
        field
        for field in fields
        if len(field) == 1 and field not in told and _is_stock(choice.rows, field)
        if all(at(row.chosen, field) > 0 for row in choice.rows)
    ]


def _is_stock(rows: Sequence[Row], field: Place) -> bool:
    """Return whether a field of all elements is a whole number, and 0 for some of them."""
    counts = [at(one, field) for row in rows for one in row.elements]
    return all(type(one) is int and one >= 0 for one in counts) and 0 in counts


def _positions(holds: Iterable[bool]) -> Positions:
    """Return where something holds in a list."""
    return int("0" + "".join("1" if one else "0" for one in holds), 2)


def _left(rows: Sequence[Row], conditions: Sequence[_Tried]) -> list[Positions]:
    """Return, by row, the elements that meet all of some conditions."""
    every = [(1 << len(row.left)) - 1 for row in rows]
    for one in conditions:
        every = [kept & left for kept, left in zip(every, one.left, strict=True)]
    return every


def _compared(row: Row) -> Iterator[_Compared]:
    """Yield how the others compare with the chosen element, by field that it has."""
    for field, value in plain(row.chosen):
        signs = []
        for one in row.left:
            other = MISSING if one is row.chosen else at(one, field)
            if one is row.chosen:
                signs.append("chosen")
            elif not are_comparable(value, other):
                signs.append("incomparable")
            else:
                signs.append("below" if other < value else "above" if other > value else "equal")
        found = {sign: _positions(one == sign for one in signs) for sign in _Compared._fields[1:]}
        yield _Compared(field, **found)


def _extremes(
    compared: Sequence[Sequence[_Compared]], left: Sequence[Positions]
) -> set[tuple[Told, Place]]:
    """Return the fields in which every chosen element is the smallest, or the largest, of some.

    A tie fits both, but one choice at least must have been clear.
    """
    common: set[tuple[Told, Place]] | None = None
    clear: set[tuple[Told, Place]] = set()
    for fields, rest in zip(compared, left, strict=True):
        if rest.bit_count() < 2:
            continue
        here: set[tuple[Told, Place]] = set()
        for one in fields:
            if rest & one.incomparable:
                continue
            extremes: list[tuple[Told, Place]] = []
            if not rest & one.below:
                extremes.append(("smallest", one.field))
            if not rest & one.above:
                extremes.append(("largest", one.field))
            here.update(extremes)
            if not rest & one.equal:
                clear.update(extremes)
        common = here if common is None else common & here
    return (common or set()) & clear


def is_measure(value: Any) -> bool:
    """Return whether values of this kind have an order."""
    return are_comparable(value, value)
