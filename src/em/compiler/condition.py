"""Condition: the shortest one that tells the states in which something was done from the others.

A state is what was known at a moment: the inputs and the results of reads, by name. It is looked
at through features, each of which puts a state into one of few categories: a word or flag at a
place, nothing or something there, a word that one element of a list has, the order of two numbers
or dates, a number or a time between two dates that is small or large. A condition is one feature or
two, and names the categories in which the thing was done. A category that no recording had belongs
to neither side; a run that meets one hands over.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from em.compiler.evidence import ENOUGH_TO_ACT, NAMED_ALIKE, of_separation
from em.compiler.places import MISSING, are_comparable, is_number, is_scalar, is_word
from em.compiler.term import field_text, fits_text, literal, singular
from em.runner.expressions.functions import days
from em.values.structure import scalar_of
from em.values.times import is_date, is_month

State = Mapping[str, Any]
"""Values by name: the inputs, and what was read."""
Names = Mapping[str, str]
"""Names of values that a routine knows under another name."""
Path = tuple[str, ...]
"""A name of a state, and the names of fields below it."""
Category = tuple[str, Any]
"""The kind of category and, for words and flags, the value itself."""
MISSING_PART: Category = ("missing", None)
UNKNOWN: Category = ("unknown", None)
"""The category of a state in which that was not read."""

FEW = 3
"""Categories of a plain feature: below, at and above; yes, no and nothing."""
MOST_CATEGORIES = 8
"""Categories from which on a feature tells records apart rather than states."""
LONGEST = 400
"""Characters of a text that can be a state."""


class _OfOne(msgspec.Struct, frozen=True):
    """A feature that looks at one place."""

    path: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The places that it looks at."""
        return (self.path,)


class Field(_OfOne, frozen=True):
    """What stands at a place: a word, a flag, nothing, or a number below, at or above zero."""

    is_written: bool = False

    def category(self, state: State) -> Category:
        """Return the category of a state."""
        value = value_at(state, self.path)
        if value is MISSING:
            return MISSING_PART
        if isinstance(value, dict | list):
            return ("filled" if value else "empty"), None
        number = number_of(value)
        if number is not None:
            return ("zero" if number == 0 else "more" if number > 0 else "less"), None
        return ("null" if value is None else "value"), value

    def text(self, categories: Iterable[Category], names: Names) -> str:
        """Return that a state is in one of some categories, as an expression."""
        found = path_text(self.path, names)
        number = f"{found} | float" if self.is_written else found
        values = [value for kind, value in categories if kind in ("value", "null")]
        if values in ([True], [False]):
            parts = [found if values[0] else f"not {found}"]
        elif len(values) == 1:
            parts = [f"{found} == {literal(values[0])}"]
        else:
            listed = ", ".join(map(literal, sorted(values, key=str)))
            parts = [f"{found} in [{listed}]"] if values else []
        signs = {"zero": "==", "more": ">", "less": "<"}
        parts += [f"{number} {signs[kind]} 0" for kind, _ in categories if kind in signs]
        others = {"missing": f"not given({found})", "filled": found, "empty": f"not {found}"}
        parts += [others[kind] for kind, _ in categories if kind in others]
        return " or ".join(parts)


class Told(_OfOne, frozen=True):
    """Whether an input is given."""

    def category(self, state: State) -> Category:
        """Return the category of a state."""
        return "value", value_at(state, self.path) is not MISSING

    def text(self, categories: Iterable[Category], names: Names) -> str:
        """Return that a state is in one of some categories, as an expression."""
        found = f"given({path_text(self.path, names)})"
        told = {is_given for _, is_given in categories}
        return found if told == {True} else f"not {found}"


class Has(_OfOne, frozen=True):
    """Whether one element of a list has a word in a field, or is that word."""

    field: Path
    json: str

    def category(self, state: State) -> Category:
        """Return the category of a state."""
        found = value_at(state, self.path)
        if not isinstance(found, list):
            return MISSING_PART
        wanted = msgspec.json.decode(self.json)
        return "value", any(value_at({"": one}, ("", *self.field)) == wanted for one in found)

    def only(self, state: State) -> dict[str, Any] | None:
        """Return the one element that has the word; None if there are several, or none."""
        found, wanted = value_at(state, self.path), msgspec.json.decode(self.json)
        if not isinstance(found, list):
            return None
        fit = [one for one in found if value_at({"": one}, ("", *self.field)) == wanted]
        return fit[0] if len(fit) == 1 and isinstance(fit[0], dict) else None

    def only_text(self, names: Names) -> str:
        """Return that element as an expression."""
        value = literal(msgspec.json.decode(self.json))
        return f"only({path_text(self.path, names)}{fits_text({self.field: value})})"

    def text(self, categories: Iterable[Category], names: Names) -> str:
        """Return that a state is in one of some categories, as an expression."""
        found, value = path_text(self.path, names), literal(msgspec.json.decode(self.json))
        has = f"{value} in {found}"
        if self.field:
            has = f"where({found}{fits_text({self.field: value})})"
        known = [is_there for kind, is_there in categories if kind == "value"]
        if len(known) != 1:
            return f"given({found})"
        return has if known[0] else f"not {has}"


class Order(msgspec.Struct, frozen=True):
    """Which of two numbers or dates is the larger one."""

    left: Path
    right: Path
    is_written: bool = False

    def category(self, state: State) -> Category:
        """Return the category of a state."""
        one, other = value_at(state, self.left), value_at(state, self.right)
        if self.is_written:
            one, other = number_of(one), number_of(other)
        if one is None or other is None or not are_comparable(one, other):
            return MISSING_PART
        return "order", "<" if one < other else ">" if one > other else "=="

    def text(self, categories: Iterable[Category], names: Names) -> str:
        """Return that a state is in one of some categories, as an expression."""
        form = "{} | float" if self.is_written else "{}"
        one = form.format(path_text(self.left, names))
        other = form.format(path_text(self.right, names))
        signs = frozenset(sign for kind, sign in categories if kind == "order")
        return f"{one} {_SIGNS[signs]} {other}"

    @property
    def paths(self) -> tuple[Path, ...]:
        """The places that it looks at."""
        return self.left, self.right


class Level(msgspec.Struct, frozen=True):
    """Whether a number, or the days from one date to another, are few or many.

    low: the most of the few. high: the least of the many; between them nothing is known.
    """

    paths: tuple[Path, ...]
    low: float
    high: float

    def category(self, state: State) -> Category:
        """Return the category of a state."""
        found = measure(self.paths, state)
        if found is None:
            return MISSING_PART
        return "level", "<=" if found <= self.low else ">=" if found >= self.high else ""

    def text(self, categories: Iterable[Category], names: Names) -> str:
        """Return that a state is in one of some categories, as an expression."""
        found = ", ".join(path_text(path, names) for path in self.paths)
        found = f"days({found})" if len(self.paths) > 1 else found
        limits = {"<=": self.low, ">=": self.high}
        signs = [sign for kind, sign in categories if kind == "level"]
        return " or ".join(f"{found} {sign} {literal(limits[sign])}" for sign in signs)


def measure(paths: Sequence[Path], state: State) -> float | None:
    """Return a number of a state, or how many days lie between two of its dates."""
    found = [value_at(state, path) for path in paths]
    if len(found) == 1:
        return found[0] if is_number(found[0]) else None
    return days(*found) if all(map(is_date, found)) else None


def levels(
    yes: Sequence[State], no: Sequence[State], places: Sequence[tuple[Path, ...]]
) -> tuple[list[Level], int]:
    """Return the numbers that are smaller on one side, and how many limits were tried."""
    found, tried = [], 0
    for paths in places:
        sides = [[measure(paths, state) for state in side] for side in (yes, no)]
        known = [[one for one in side if one is not None] for side in sides]
        values = {*known[0], *known[1]}
        if len(values) < 3 or min(map(len, known)) < 2 or known != sides:
            continue
        tried += len(values) - 1
        for few, many in (known, known[::-1]):
            if max(few) < min(many):
                found.append(Level(paths, max(few), min(many)))
    return found, tried


_SIGNS = {
    frozenset({"<"}): "<",
    frozenset({">"}): ">",
    frozenset({"=="}): "==",
    frozenset({"<", "=="}): "<=",
    frozenset({">", "=="}): ">=",
    frozenset({"<", ">"}): "!=",
}
Feature = Field | Told | Has | Order | Level


class Part(msgspec.Struct, frozen=True):
    """One feature of a condition: where it holds, and all categories that recordings had."""

    feature: Feature
    holds: frozenset[Category]
    known: frozenset[Category]

    def is_true(self, state: State) -> bool | None:
        """Return whether it holds; None for a state that no recording had."""
        found = self.feature.category(state)
        return found in self.holds if found in self.known else None

    def text(self, names: Names) -> str:
        """Return it as an expression."""
        return self.feature.text(_sorted(self.holds), names)

    def known_text(self, names: Names) -> str:
        """Return that its category is one that recordings had; empty if nothing else is."""
        if _is_complete(self.feature, self.known):
            return ""
        return self.feature.text(_sorted(self.known), names)


class Condition(msgspec.Struct, frozen=True):
    """Parts that hold together, or, negated, don't: `a and b`, `not (a and b)`.

    others: conditions that separate the recordings as well; in a run they must agree.
    """

    parts: tuple[Part, ...]
    is_negated: bool = False
    others: tuple["Condition", ...] = ()

    def is_true(self, state: State) -> bool | None:
        """Return whether it holds; None for a state that no recording had."""
        found = [part.is_true(state) for part in self.parts]
        return None if None in found else all(found) is not self.is_negated

    def text(self, names: Names | None = None) -> str:
        """Return it as an expression."""
        texts = [part.text(names or {}) for part in self.parts]
        if len(texts) > 1:
            texts = [f"({one})" if " or " in one else one for one in texts]
        made = " and ".join(texts)
        return f"not ({made})" if self.is_negated else made

    def opposite(self, names: Names | None = None) -> str:
        """Return that it does not hold, as an expression."""
        if len(self.parts) > 1 or self.is_negated:
            return f"not ({self.text(names)})"
        (part,) = self.parts
        return part.feature.text(_sorted(part.known - part.holds), names or {})

    def known(self, names: Names | None = None) -> list[str]:
        """Return the checks that hand over where no recording had such a state."""
        found = [part.known_text(names or {}) for part in self.parts]
        return [one for one in found if one]

    @property
    def paths(self) -> set[Path]:
        """The places that it looks at."""
        return {path for part in self.parts for path in part.feature.paths}


class Search:
    """Looks for conditions in stages; what a later stage finds must outweigh more attempts.

    near: names of values that are most likely to matter, such as what was read last.
    acted: by state of `yes`, the values that were acted with. tool: what is called on the
    condition; a field with a word of its name is most likely to decide it. optional: inputs that
    are not always given, and whether the tool is called with them.
    """

    def __init__(
        self,
        yes: Sequence[State],
        no: Sequence[State],
        near: frozenset[str] = frozenset(),
        acted: Sequence[Sequence[Any]] = (),
        tool: str = "",
        optional: Mapping[str, bool] | None = None,
    ) -> None:
        self._acted = acted
        # The first word says what is done; the others, what with.
        self._words = {*name_words(tool)[1:]}
        self._sizes = (len(yes), len(no))
        self._states = [*yes, *no]
        self._near = near
        self._table: dict[Feature, list[Category]] = {}
        self._needed = {(name,) for name, is_needed in (optional or {}).items() if is_needed}
        for name in optional or ():
            told = Told((name,))
            self._table[told] = [told.category(state) for state in self._states]
        for feature in features(self._states, near):
            if isinstance(feature, Field) and Told(feature.path[:1]) in self._table:
                continue
            row = [
                feature.category(state) if is_known(feature, state) else UNKNOWN
                for state in self._states
            ]
            if 1 < len({*row} - {UNKNOWN}) <= MOST_CATEGORIES:
                self._table[feature] = row
        found, self._limits = levels(yes, no, [*_measures(self._states, near)])
        for level in found:
            self._table[level] = [level.category(state) for state in self._states]

    def best(self) -> Condition | None:
        """Return the shortest condition that holds in some states and not in others.

        None if none has enough evidence: the information of the split, less what trying so many
        gives.
        """
        if 0 in self._sizes:
            return None
        tried, every = 0, []
        for number, stage in enumerate(self._stages()):
            here = (number + 1) * self._count(stage)
            tried += here
            parts = [part for one in stage if (part := self._part(one)) is not None]
            every += [(part, here) for part in parts if self._bits([part], here) >= ENOUGH_TO_ACT]
            # A later stage has simpler ones only if this one tells several values apart.
            if any(len(part.known) <= FEW for part, _ in every):
                break
        if every:
            return self._chosen(every)
        return self._pair(tried)

    def _chosen(self, found: list[tuple[Part, int]]) -> Condition:
        """Return the simplest of some conditions; the others must agree with it."""
        found.sort(key=lambda row: (len(row[0].known), self._rank(row[0].feature)))
        (first, here), *rest = found
        is_clear = self._bits([first], here, by_name=False) >= ENOUGH_TO_ACT
        # A write that takes an input can't be made without it.
        is_clear |= isinstance(first.feature, Told) and self._is_named(first.feature)
        others = [part for part, _ in rest]
        if not is_clear:
            others += [part for part in self._plain_parts() if part not in (first, *others)]
        return Condition((first,), others=tuple(Condition((one,)) for one in others))

    def _plain_parts(self) -> Iterator[Part]:
        """Yield what separates the states, and is more than a name for each of them."""
        given = {one for state in self._states for one in state.values() if isinstance(one, str)}
        for feature in self._table:
            part = self._part(feature)
            is_name = isinstance(feature, Has) and msgspec.json.decode(feature.json) in given
            tried = self._limits if isinstance(feature, Level) else 1
            if part is not None and not is_name and self._bits([part], tried) > 0:
                yield part

    def candidates(self) -> list[Condition]:
        """Return all single features that separate the states, with however little evidence."""
        found = [part for one in self._table if (part := self._part(one)) is not None]
        near = [part for part in found if self._is_near(part.feature)]
        return [Condition((part,)) for part in near or found]

    def _count(self, stage: Sequence[Feature]) -> int:
        """Return how many conditions are tried in a stage.

        What has nearly as many values as there are states tells nothing, so it is not tried.
        """
        kinds = [len({*self._table[one]} - {UNKNOWN}) for one in stage]
        limits = self._limits if any(isinstance(one, Level) for one in stage) else 0
        told = sum(of_separation(self._sizes, one, 1) >= ENOUGH_TO_ACT for one in kinds)
        return max(1, told, limits)

    def _stages(self) -> Iterator[Sequence[Feature]]:
        levels = [one for one in self._table if isinstance(one, Level)]
        others = (one for one in self._table if not isinstance(one, Level | Told))
        rest = [one for one in others if not self._is_named(one)]
        single = [one for one in rest if not isinstance(one, Order)]
        orders = [one for one in rest if isinstance(one, Order)]
        yield [one for one in self._table if isinstance(one, Told)]
        yield [
            one for one in self._table if self._is_named(one) and not isinstance(one, Level | Told)
        ]
        yield [one for one in single if self._is_near(one)]
        yield [one for one in orders if self._is_near(one)]
        yield [one for one in single if not self._is_near(one)]
        far = [one for one in orders if not self._is_near(one)]
        yield [one for one in far if _are_alike(one)]
        yield [one for one in far if not _are_alike(one)]
        yield levels

    def _is_near(self, feature: Feature) -> bool:
        return all(path[0] in self._near for path in feature.paths)

    def _is_named(self, feature: Feature) -> bool:
        if isinstance(feature, Told):
            return feature.path in self._needed
        return any(self._words & {*name_words(path[-1])} for path in feature.paths)

    def _rank(self, feature: Feature) -> tuple[int, int, str]:
        return -len(feature.paths), sum(map(len, feature.paths)), str(feature)

    def _part(self, feature: Feature) -> Part | None:
        """Return a feature as a condition, if no category is on both sides."""
        row, cut = self._table[feature], self._sizes[0]
        yes, no = frozenset(row[:cut]) - {UNKNOWN}, frozenset(row[cut:]) - {UNKNOWN}
        if not yes or not no or yes & no or MISSING_PART in yes:
            return None
        if isinstance(feature, Order) and MISSING_PART in no:
            return None  # there was nothing to compare
        return Part(feature, yes, yes | no)

    def _bits(self, parts: Sequence[Part], tried: int, *, by_name: bool = True) -> float:
        kinds = 1 + sum(len(part.known) - 1 for part in parts)
        rows = [self._table[part.feature] for part in parts]
        known = [all(row[n] != UNKNOWN for row in rows) for n in range(len(self._states))]
        cut = self._sizes[0]
        sizes = [sum(known[:cut]), sum(known[cut:])]
        if len(parts) > 1:
            return of_separation(sizes, kinds, tried)
        bits = of_separation(sizes, kinds, 1)
        if by_name and self._is_named(parts[0].feature):
            bits += NAMED_ALIKE
        return bits + self._reason(parts[0].feature) - math.log2(max(tried, 1))

    def _reason(self, feature: Feature) -> float:
        """Return the bits of acting on the one element of a list that a condition is about."""
        if not isinstance(feature, Has) or not self._acted:
            return 0.0
        bits = 0.0
        for state, values in zip(self._states, self._acted, strict=False):
            element = feature.only(state)
            if element is None or not any(one in element.values() for one in values):
                return 0.0
            bits += math.log2(len(value_at(state, feature.path)))
        return bits

    def _pair(self, tried: int) -> Condition | None:
        """Return two features that separate the states together."""
        pairs = math.comb(len(self._table), 2)
        found: list[tuple[Any, Condition]] = []
        for is_negated in (False, True):
            parts = [*self._partial(is_negated=is_negated)]
            for one, other in combinations(parts, 2):
                if one[1] & other[1]:
                    continue
                both = (one[0], other[0])
                if self._bits(both, tried + 2 * pairs) >= ENOUGH_TO_ACT:
                    far = sum(not self._is_near(part.feature) for part in both)
                    kinds = sum(len(part.known) for part in both)
                    ranks = [self._rank(part.feature) for part in both]
                    key = (far, kinds, is_negated, sorted(ranks))
                    found.append((key, Condition(both, is_negated)))
        return min(found, key=lambda row: row[0])[1] if found else None

    def _partial(self, *, is_negated: bool) -> Iterator[tuple[Part, frozenset[int]]]:
        """Yield features that hold on one side throughout, with the other rows that they meet."""
        cut, count = self._sizes[0], len(self._states)
        own = range(cut, count) if is_negated else range(cut)
        rest = range(cut) if is_negated else range(cut, count)
        for feature, row in self._table.items():
            holds = frozenset(row[number] for number in own) - {UNKNOWN}
            known = frozenset(row) - {UNKNOWN}
            if holds and holds != known and MISSING_PART not in known:
                met = frozenset(number for number in rest if row[number] in {*holds, UNKNOWN})
                if len(met) < len(rest):
                    yield Part(feature, holds, known), met


def features(states: Sequence[State], near: frozenset[str] = frozenset()) -> Iterator[Feature]:
    """Yield the features of states, each once."""
    singles: dict[Feature, None] = {}
    numbers: dict[Path, str] = {}
    for state in states:
        for name, value in state.items():
            for path, one in _walk(value, (name,)):
                kind = _number_kind(one)
                if kind:
                    numbers.setdefault(path, kind)
                singles.update(dict.fromkeys(_features_at(path, one)))
    yield from singles
    for (left, kind), (right, other) in combinations(numbers.items(), 2):
        is_dated = {"date", "month", "clock"} & {kind, other}
        if (kind == other or not is_dated) and (
            left[0] == right[0] or not near or near & {left[0], right[0]}
        ):
            yield Order(left, right, is_written="written" in (kind, other))


def _measures(states: Sequence[State], near: frozenset[str]) -> Iterator[tuple[Path, ...]]:
    """Yield the places of numbers, and the pairs of places of dates."""
    places: dict[Path, Any] = {}
    for state in states:
        for name, value in state.items():
            places |= dict(_walk(value, (name,)))
    yield from ((path,) for path, value in places.items() if is_number(value))
    dates = [path for path, value in places.items() if is_date(value)]
    for left, right in combinations(dates, 2):
        if left[0] != right[0] and (not near or near & {left[0], right[0]}):
            yield left, right


def _features_at(path: Path, value: Any) -> Iterator[Feature]:
    yield Field(path, isinstance(value, str) and number_of(value) is not None)
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict):
            for field, word in one.items():
                if is_word(word):
                    yield Has(path, (field,), msgspec.json.encode(word).decode())
        elif is_word(one):
            yield Has(path, (), msgspec.json.encode(one).decode())


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield what stands in a value and what no list separates from it."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from _walk(one, (*path, name))
    elif not isinstance(value, str) or len(value) <= LONGEST:
        yield path, value


def is_known(feature: Feature, state: State) -> bool:
    """Return whether all that a feature looks at was read."""
    return all(path[0] in state for path in feature.paths)


def value_at(state: State, path: Path) -> Any:
    """Return what stands at a path of a state, or MISSING."""
    value: Any = state
    for step in path:
        if not isinstance(value, Mapping) or step not in value:
            return MISSING
        value = value[step]
    return value


def number_of(value: Any) -> float | None:
    """Return the number that a value is, or that a text writes out."""
    found = scalar_of(value) if isinstance(value, str) else value
    return found if is_number(found) else None


def _number_kind(value: Any) -> str:
    if number_of(value) is not None:
        return "written" if isinstance(value, str) else "number"
    if not is_scalar(value) or not are_comparable(value, value):
        return ""
    return "date" if is_date(value) else "month" if is_month(value) else "clock"


def path_text(path: Path, names: Names) -> str:
    """Return the expression of a place in a state."""
    return field_text(names.get(path[0], path[0]), path[1:])


def _sorted(categories: Iterable[Category]) -> list[Category]:
    return sorted(categories, key=repr)


def _is_complete(feature: Feature, known: frozenset[Category]) -> bool:
    """Return whether there can be no other category, but for a value that is missing."""
    if isinstance(feature, Order):
        return len(known) == 3
    if isinstance(feature, Level):
        are_whole = isinstance(feature.low, int) and isinstance(feature.high, int)
        return are_whole and feature.high - feature.low == 1 and MISSING_PART not in known
    return {value for kind, value in known if kind == "value"} == {True, False} and (
        isinstance(feature, Has | Told)
    )


def _are_alike(order: Order) -> bool:
    """Return whether two places share a word of their names."""
    return bool({*name_words(order.left[-1])} & {*name_words(order.right[-1])})


def name_words(name: str) -> list[str]:
    """Return the words of a name, each as one of several: `order`, `tug` for `order_tugs`."""
    return [singular(word) for word in re.findall(r"[a-z]+", name.lower())]
