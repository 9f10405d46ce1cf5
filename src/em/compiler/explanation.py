"""Explanation: where a value of a call may come from, and the evidence for it in bits.

A value is explained by an input, by a place in the result of a read, by values that it is made of,
or by being constant. What inputs say about the chosen element of a list is noted by atoms. A leaf
is one value over all examples, with everything that may explain it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from em.compiler.evidence import ENOUGH_TO_ACT, information
from em.compiler.example import Example, Role, Turn
from em.compiler.places import (
    KEY,
    MISSING,
    Key,
    Mark,
    Place,
    at,
    covers,
    elements,
    is_flat,
    is_number,
    key_of,
)
from em.compiler.skeleton import Spot
from em.runner.expressions.functions import later
from em.values.canonical import same

SHARE = 0.5
"""Once one explanation has three confirmations, others need this share of them to keep a vote."""
TRIED = 25
"""Earlier observations on which a new explanation is evaluated."""


class FromInput(msgspec.Struct, frozen=True):
    """The value is an input."""

    place: Place


class FromRead(msgspec.Struct, frozen=True):
    """The value stands at a place in the result of a read."""

    role: Role
    place: Place


class Constant(msgspec.Struct, frozen=True):
    """The value is always the same."""

    key: Key


class FromForm(msgspec.Struct, frozen=True):
    """The value is another one in a plain form: an amount with two decimals, a slug."""

    form: str
    of: FromInput | FromRead


class FromNumbers(msgspec.Struct, frozen=True):
    """The value is computed from two numbers, or from a date and a number of days."""

    sign: Literal["*", "+", "-", "later"]
    left: FromInput | FromRead
    right: FromInput | FromRead


class FromEdit(msgspec.Struct, frozen=True):
    """The value is the text that a read returned, with one value in it replaced."""

    role: Role
    old: FromInput | FromRead
    new: FromInput | FromRead


Source = FromInput | FromRead | FromForm | FromNumbers | FromEdit | Constant


class Atom(NamedTuple):
    """What inputs say about the chosen element of a list.

    equals: its field is that input. key: its id is. covers: its record has all fields of that
    input's record. merges: its record is the input's record with the fields of `changes` changed.
    """

    how: Literal["equals", "key", "covers", "merges"]
    field: Place
    input: Place
    changes: Place = ()

    def holds(self, key: Any, element: Any, example: Example, turn: Turn | None) -> bool | None:
        """Return whether it is so; None if an input that it needs is not given."""
        if not self.is_told(example, turn):
            return None
        number = None if turn is None else turn.number
        wanted = at(example.scope, self.input, number)
        changes = at(example.scope, self.changes, number)
        found = key if self.how == "key" else at(element, self.field)
        if found is MISSING:
            return False
        if self.how == "covers":
            return covers(found, wanted)
        return is_merged(wanted, changes, found) if self.how == "merges" else same(wanted, found)

    def is_told(self, example: Example, turn: Turn | None) -> bool:
        """Return whether the inputs that it needs are given."""
        number = None if turn is None else turn.number
        found = [at(example.scope, place, number) for place in (self.input, self.changes)]
        return MISSING not in found


def is_merged(old: Any, changes: Any, new: Any) -> bool:
    """Return whether a record is another one with some of its fields changed."""
    if not (is_flat(old) and isinstance(changes, dict) and is_flat(new)):
        return False
    return changes.keys() <= old.keys() and same({**old, **changes}, new)


class Explanation:
    """One explanation of a leaf, with the evidence for it in bits."""

    def __init__(
        self,
        source: Source,
        spot: Spot,
        cost: float = 0.0,
        named: float = 0.0,
        parts: Sequence["Explanation"] = (),
    ) -> None:
        self.source = source
        self.spots = [spot]
        self.bits: dict[Key, float] = {key_of(spot.value): information(spot.value)}
        self.cost, self.named = cost, named
        # Bits of the choice among the values that stood at such places.
        self.choice = 0.0
        # By list on the way to the value: what inputs say about the chosen element, in bits.
        self.atoms: list[dict[Atom, float]] = []
        # By example in which a list has the value too: bits of the choice, which no input names.
        self.unnamed: dict[int, float] = {}
        # The explanations of the values that this one is made from.
        self.parts = [*parts]

    @property
    def net(self) -> float:
        """The evidence for it, less what trying so many places gives by chance."""
        if isinstance(self.source, Constant):
            return 0.0
        # Where names are equal, each further example that agrees counts, if only for a little.
        again = self.examples - 1 if self.named else 0
        return sum(self.bits.values()) - self.cost + self.named + again

    @property
    def is_open(self) -> bool:
        """Whether it may have been a choice that no input names, made too seldom to be known."""
        is_mostly = len(self.unnamed) > (1 - SHARE) * self.examples
        return is_mostly and 0 < sum(self.unnamed.values()) < ENOUGH_TO_ACT

    @property
    def examples(self) -> int:
        """In how many examples it was found."""
        return len({id(spot.example) for spot in self.spots})

    def meet(self, other: "Explanation") -> None:
        """Take the evidence of a further example.

        What inputs say about the chosen element must be so wherever they are given.
        """
        self.atoms = [
            _met(own, self.spots, more, other.spots)
            for own, more in zip(self.atoms, other.atoms, strict=True)
        ]
        self.spots += other.spots
        self.bits.update(other.bits)
        self.cost = max(self.cost, other.cost)
        self.choice += other.choice
        self.unnamed.update(other.unnamed)
        for own_part, part in zip(self.parts, other.parts, strict=True):
            own_part.meet(part)


def _met(
    own: dict[Atom, float], ours: list[Spot], more: dict[Atom, float], theirs: list[Spot]
) -> dict[Atom, float]:
    """Return what inputs say about the elements of both, in bits."""
    both = {atom: bits + more[atom] for atom, bits in own.items() if atom in more}
    both |= {
        atom: bits
        for some, others, spots in ((own, more, theirs), (more, own, ours))
        for atom, bits in some.items()
        if atom not in others and not any(atom.is_told(one.example, one.turn) for one in spots)
    }
    return both


def constant(spot: Spot) -> dict[Source, Explanation]:
    """Return that a value is always the same."""
    source = Constant(key_of(spot.value))
    return {source: Explanation(source, spot)}


Refutes = Callable[[Explanation, Spot], bool]
"""Tells whether an explanation gives another value than an observation has."""


class Leaf:
    """One value of a call over all examples, with everything that may explain it."""

    def __init__(self) -> None:
        self.explanations: dict[Source, Explanation] = {}
        self.refuted: set[Source] = set()
        self.spots: list[Spot] = []
        # A text as constant texts and leaves between them, where that explains it.
        self.built: list[str | Leaf] = []
        # The known values that it may be as a part of a text, each with its form.
        self.values: list[tuple[Any, str | None]] = []
        # A part of a text that nothing explains and that hardly is constant.
        self.asked = ""
        # The input that a phrase of a text is about: without it, the phrase is not there.
        self.given = ""

    def add(self, is_refuted: Refutes, spot: Spot, found: dict[Source, Explanation]) -> None:
        """Meet the explanations of a further example."""
        for source, one in {**found, **self.explanations}.items():
            if source in found and source in self.explanations:
                one.meet(found[source])
            else:
                tried = self.spots[:TRIED] if source in found else [spot]
                if any(is_refuted(one, each) for each in tried):
                    self.refuted.add(source)
        kept = {**self.explanations, **found} | self.explanations
        self.explanations = {
            source: one for source, one in kept.items() if source not in self.refuted
        }
        self.spots.append(spot)

    def settle(self) -> None:
        """Take their vote from explanations that were rarely confirmed."""
        every = self.explanations.values()
        # A constant has no evidence of its own.
        most = max((len(one.spots) for one in every if one.net >= ENOUGH_TO_ACT), default=0)
        if most >= 3:
            self.explanations = {
                source: one
                for source, one in self.explanations.items()
                if len(one.spots) >= SHARE * most
                or (isinstance(source, FromRead) and source.role.is_lookup)
            }


def computed(sign: str, one: Any, other: Any) -> Any:
    """Return what comes of two numbers, or of a date and of days; MISSING if nothing does.

    Money is exact to the cent.
    """
    if sign == "later":
        try:
            return later(one, other)
        except ValueError:
            return MISSING
    if not is_number(one) or not is_number(other):
        return MISSING
    made = {"*": one * other, "+": one + other, "-": one - other}[sign]
    return round(made, 6) if isinstance(made, float) else made


def descend(
    value: Any, place: Place, atoms: Sequence[dict[Atom, float]], spot: Spot, key: Any = None
) -> list[Any]:
    """Return the values at a place, of the elements that inputs choose, as far as given."""
    for number, step in enumerate(place):
        if step is KEY:
            return [key]
        if isinstance(step, Mark):
            return _descend_each(value, step, place[number + 1 :], atoms, spot)
        if not isinstance(value, dict) or step not in value:
            return []
        value = value[step]
    return [value]


def _descend_each(
    value: Any, mark: Mark, rest: Place, atoms: Sequence[dict[Atom, float]], spot: Spot
) -> list[Any]:
    found: list[Any] = []
    for number, element in elements(value, mark):
        told = [atom.holds(number, element, spot.example, spot.turn) for atom in atoms[0]]
        if False not in told:
            found += descend(element, rest, atoms[1:], spot, number)
    return found
