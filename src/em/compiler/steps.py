"""Steps: the space of explanations, written down as a routine that a person can read.

Of the supported explanations of a value the one that needs the fewest reads becomes the value;
the others become checks. What nothing supports is an input.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import READING, plain_name
from em.compiler.checks import walked
from em.compiler.choice import Choice, Way, choice_of
from em.compiler.evidence import ENOUGH_ALIKE, ENOUGH_TO_ACT
from em.compiler.example import APPROVAL, Role
from em.compiler.explanation import (
    Atom,
    Constant,
    Explanation,
    FromEdit,
    FromForm,
    FromInput,
    FromNumbers,
    FromRead,
    Leaf,
    Source,
)
from em.compiler.forms import VALUE, is_part
from em.compiler.places import (
    ELEMENT,
    KEY,
    MISSING,
    POSITION,
    RECORD,
    TEXT,
    Over,
    Place,
    at,
    input_places,
    is_code,
    is_scalar,
    key_of,
    last_name,
    marks_in,
)
from em.compiler.skeleton import checks_of
from em.compiler.space import Slot, Space
from em.compiler.term import (
    At,
    Cases,
    Common,
    Computed,
    Edited,
    Every,
    Field,
    Fits,
    Formed,
    Given,
    KeyOf,
    Limit,
    Merged,
    Nullable,
    Optional,
    Phrase,
    Pick,
    Raw,
    Result,
    Term,
    Text,
    Value,
    Written,
    every_term,
    field_text,
    fits_text,
    literal,
    names_in,
    parts_of,
    path_text,
    singular,
    unused,
)
from em.runner.expressions.language import acting, whole_expression
from em.values.canonical import Json, same


class Block:
    """A loop over lists of inputs, side by side: the steps of one round."""

    def __init__(self, over: dict[Place, str], save_as: str) -> None:
        self.over, self.save_as = over, save_as
        self.steps: list[Json] = []

    @property
    def names(self) -> set[str]:
        """The names that stand for one round only."""
        return {*self.over.values(), *(step["save_as"] for step in self.steps if "save_as" in step)}


class Promoted(msgspec.Struct, frozen=True):
    """An input that the routine asks for because nothing explains the value of an argument.

    may_be_null: some recordings leave the argument out; a null says so.
    """

    slot: int
    place: Place
    name: str
    part: str = ""
    may_be_null: bool = False


class Agreed(NamedTuple):
    """A term that is used for a leaf; the other explanations of the leaf must agree with it."""

    term: Term
    leaf: Leaf
    used: set[Source]


class Chosen(NamedTuple):
    """The term that a value is taken from, and what must agree with it."""

    term: Term
    agreed: list[Agreed]


class Writer:
    """Writes the steps of one kind of task."""

    def __init__(self, space: Space) -> None:
        self.space, self.caution = space, space.caution
        self.examples = space.examples
        given = [{place for place, _ in input_places(one.inputs)} for one in self.examples]
        self.always = set.intersection(*given)
        self.ever = set.union(*given)
        # Inputs that a person wants to be as recorded in every run.
        self.fixed = {
            name: self.examples[0].inputs[name]
            for name in sorted(self.caution.constants)
            if all(name in example.inputs for example in self.examples)
        }
        self.functions = {call.tool for one in self.examples for call in one.calls if call.is_udf}
        # What is saved under the name of a function would hide it.
        self.names = self.functions | {str(place[0]) for place in self.ever if place}
        self.top: list[Json] = []
        self.blocks: list[Block] = []
        self.promoted: dict[tuple[int, Place], Promoted] = {}
        self.constants: list[tuple[str, Any]] = []
        # Inputs that change fields of a record; one without fields changes nothing.
        self.changes: set[Place] = set()
        # Inputs that nothing but an argument depends on.
        self.optional: set[Place] = set()
        # Inputs that are not known yet: steps that find them are still to be written.
        self.hidden: set[Place] = set()
        self._args: dict[Role, dict[str, Term] | None] = {}
        self._used: dict[Role, dict[str, list[Agreed]]] = {}
        self._texts: dict[Term, str] = {}
        self.defaults = {
            name: self.examples[0].inputs[name]
            for name in self.examples[0].defaults
            if all(name in example.defaults for example in self.examples)
        }
        self.read_steps: dict[Role, Json] = {}
        self._structures: dict[Role, Json] = {}
        self._pick_steps: list[tuple[Pick, Json]] = []
        self._choices: dict[Pick, Choice] = {}
        # The choices that are being written down: what limits one must not depend on it.
        self._picking: list[tuple[FromRead, Place]] = []
        # By pick: other ways to choose that explain the recordings as well.
        self._rivals: dict[Pick, list[Pick]] = {}
        self._chosen: set[Pick] = set()
        # By input that only says which element was meant: the element's name, and the fields in
        # which every recording had the same.
        self.portraits: dict[Place, tuple[str, frozenset[str]]] = {}
        self._written: dict[str, str] = {}
        self._checks: dict[tuple[frozenset[str], int], Json] = {}
        # What must agree, with the slot of the write that uses it; None: a read does.
        self._agreed: list[tuple[Agreed, int | None]] = []
        self._slot: int | None = None
        # By check: the slots of the writes that it is for.
        self._serves: dict[int, set[int | None]] = defaultdict(set)

    # ---- from explanations to terms; nothing is written here

    def _is_supported(self, one: Explanation) -> bool:
        """Return whether an explanation may give a value."""
        source = one.source
        if isinstance(source, Constant):
            return True
        enough = -math.inf if self.caution.by_person else ENOUGH_TO_ACT
        if one.net < enough:
            return False
        if isinstance(source, FromNumbers):
            # What is computed shows what it is computed from, however small that is; but a number
            # that was always the same may as well be a constant.
            varied = all(len(part.bits) > 1 or part.net >= enough for part in one.parts)
            return varied and all(map(self._is_told_apart, one.parts))
        if one.parts:
            return all(map(self._is_supported, one.parts))
        # From several recordings it is known how an element of a list was chosen.
        is_chosen = isinstance(source, FromRead) and marks_in(source.place) and len(one.spots) > 1
        is_named = any(one.atoms) or is_chosen or not isinstance(source, FromRead)
        return (is_named or not one.is_open) and self._is_told_apart(one)

    def _is_told_apart(self, one: Explanation) -> bool:
        """Return whether the elements of lists on the way to a value are told from others."""
        source = one.source
        if not isinstance(source, FromRead):
            return True
        choices = [self._choice(one, level) for level in range(len(marks_in(source.place)))]
        return all(choice.how != "many" and choice.is_supported for choice in choices)

    def _choice(self, one: Explanation, level: int) -> Choice:
        """Return how the element of a list is chosen on the way to a value.

        If another value of the same elements shows it in more recordings, it is told by that one.
        """
        own = choice_of(one, level, self.space.known_before, self.caution)
        source = one.source
        assert isinstance(source, FromRead)
        known = self.space.carrier(source) if len(marks_in(source.place)) == 1 else None
        if known is None or known is one or len(known.spots) <= len(one.spots):
            return own
        other = choice_of(known, level, self.space.known_before, self.caution)
        taken = {(id(row.spot.example), row.spot.turn): row.chosen for row in other.rows}
        is_same = all(
            row.chosen is taken.get((id(row.spot.example), row.spot.turn)) for row in own.rows
        )
        return other if is_same and other.is_single and own.rows else own

    def _given(self, place: Place) -> Term | None:
        """Return the term of an input; None for the element of a list that no loop goes over."""
        if place in self.hidden or (ELEMENT in place and self._block_of(place) is None):
            return None
        if place[0] in self.fixed and ELEMENT not in place:
            return Value(json.dumps(at(self.fixed, place)))
        return Given(place)

    def result(self, role: Role) -> Term | None:
        """Return the term of a read, or None if its arguments are not known."""
        return self._result(role, ())

    def argument_of(self, role: Role, name: str) -> Term | None:
        """Return where one argument of a read comes from, or None if that is not known."""
        found = self._value(self.space.roles[role][name], name, (role,))
        return None if found is None else found.term

    def reveal(self, place: Place) -> None:
        """Note that an input is known from here on."""
        self.hidden.discard(place)
        self._args = {role: args for role, args in self._args.items() if args is not None}

    def _block_of(self, place: Place) -> Block | None:
        over = place[: place.index(ELEMENT)]
        return next((block for block in self.blocks if over in block.over), None)

    def _term(
        self, one: Explanation, trail: tuple[Role, ...] = (), *, is_value: bool = True
    ) -> Term | None:
        """Return an explanation as a term, or None if something that it needs is not known.

        is_value: False for a check, in which a value may be one of several.
        """
        source = one.source
        if isinstance(source, Constant):
            return Value(json.dumps(one.spots[0].value))
        if isinstance(source, FromInput):
            return self._given(source.place)
        if isinstance(source, FromForm | FromNumbers | FromEdit):
            return self._made(one, trail, is_value=is_value)
        assert isinstance(source, FromRead), "no other source is left"
        term = self._result(source.role, trail)
        if term is None:
            return None
        if source.place == (TEXT,):
            return Raw(term) if isinstance(term, Result) else None
        return self._inside(term, one, source.place, trail, is_value=is_value)

    def _result(self, role: Role, trail: tuple[Role, ...]) -> Term | None:
        """Return the term of what a call returned, or None if it is not known."""
        if role.write is None:
            return None if self._args_of(role, trail) is None else Result(role)
        # Of two writes with one tool it is not known which of them it was.
        is_clear = [slot.tool for slot in self.space.slots].count(role.write) == 1
        return Written(role.write) if is_clear else None

    def _made(self, one: Explanation, trail: tuple[Role, ...], *, is_value: bool) -> Term | None:
        """Return the term of a value that is made from others."""
        parts = [self._term(part, trail, is_value=is_value) for part in one.parts]
        known = [part for part in parts if part is not None and not isinstance(part, Every)]
        if len(known) < len(parts):
            return None
        if isinstance(one.source, FromForm):
            return Formed(one.source.form, known[0])
        if isinstance(one.source, FromEdit):
            of = self._result(one.source.role, trail)
            return Edited(of, known[0], known[1]) if isinstance(of, Result) else None
        assert isinstance(one.source, FromNumbers)
        is_rounded = any(isinstance(spot.value, float) for spot in one.spots)
        return Computed(one.source.sign, known[0], known[1], is_rounded)

    def _inside(
        self,
        term: Term,
        one: Explanation,
        place: Place,
        trail: tuple[Role, ...],
        *,
        is_value: bool,
    ) -> Term | None:
        """Return the term of what stands at a place of a result."""
        level = 0
        for number, step in enumerate(place):
            if isinstance(step, str):
                term = _field(term, step)
                continue
            if step is KEY:
                break
            rest = place[number + 1 :]
            choice = self._choice(one, level)
            # The value itself was given: comparing with it would prove nothing.
            echoed = [
                atom
                for atom in choice.atoms
                if (atom.how == "key" and rest == (KEY,))
                or (atom.how == "equals" and atom.field == rest)
            ]
            fits = self._fits([atom for atom in choice.atoms if atom not in echoed])
            if fits is None:
                return None
            is_one = (
                choice.is_single
                and not echoed
                and (is_value or bool(choice.atoms) or bool(choice.way.constants))
            )
            if not is_one:
                if is_value and echoed:
                    return None
                return self._of_several(term, choice, fits, place[number:], is_value=is_value)
            picked = self._picked(term, choice, fits, one, place[: number + 1], trail)
            if picked is None:
                return None
            term = picked
            if rest == (KEY,):
                assert isinstance(term, Pick)
                return KeyOf(term.of, term.fits)
            level += 1
        return term

    def _picked(
        self,
        term: Term,
        choice: Choice,
        fits: Fits,
        one: Explanation,
        place: Place,
        trail: tuple[Role, ...],
    ) -> Term | None:
        keys = [atom for atom in choice.atoms if atom.how == "key"]
        if keys:
            key = self._given(keys[0].input)
            assert key is not None
            return At(term, key)
        source = one.source
        assert isinstance(source, FromRead)
        name = singular(last_name(place) or read_name(source.role.tool))
        picks: list[Pick] = []
        if (source, place) in self._picking:
            return None
        self._picking.append((source, place))
        for way in (choice.way, *choice.others):
            fixed = ((field, Value(json.dumps(choice.fixed[field]))) for field in way.constants)
            limits = self._limits(way, trail)
            if limits is not None:
                picks.append(Pick(term, way.how, (*fits, *fixed, *limits), way.by, name))
        self._picking.pop()
        if not picks:
            return None
        self._choices.setdefault(picks[0], choice)
        self._rivals[picks[0]] = picks[1:]
        return picks[0]

    def _limits(self, way: Way, trail: tuple[Role, ...]) -> Fits | None:
        """Return the limits that an element keeps to; None if one of them is not known."""
        found: list[tuple[Place, Term]] = []
        for bound in way.bounds:
            source = bound.source
            if source is None:
                term: Term | None = Value("1")
            elif isinstance(source, FromInput):
                term = self._given(source.place)
            else:
                term = self._result(source.role, trail)
            if term is None:
                return None
            if isinstance(source, FromRead) and marks_in(source.place):
                carrier = self.space.carrier(source)
                assert carrier is not None
                term = self._inside(term, carrier, source.place, trail, is_value=True)
                if term is None or isinstance(term, Every):
                    return None
            elif isinstance(source, FromRead) and source.place:
                term = Field(term, names_in(source.place))
            is_limit = bound.how != "equal"
            found.append((bound.field, Limit(term, bound.how == "least") if is_limit else term))
        return tuple(found)

    def _of_several(
        self, term: Term, choice: Choice, fits: Fits, place: Place, *, is_value: bool
    ) -> Term | None:
        """Return what several elements have in common, or, for a check, all of their values."""
        rest = place[1:]
        if any(isinstance(step, str) and set(step) & set(".*@") for step in place):
            return None
        if is_value:
            if choice.how != "values" or not choice.is_supported or marks_in(rest):
                return None
            return Common(term, rest, fits)
        if fits and rest == (KEY,):
            return None
        return Every(term, place, fits)

    def _fits(self, atoms: Iterable[Atom]) -> Fits | None:
        """Return what inputs say about an element, as conditions; None if an input is missing."""
        found: list[tuple[Place, Term]] = []
        for atom in atoms:
            given = self._given(atom.input)
            if given is None:
                return None
            if atom.how == "key":
                continue
            if atom.how == "merges":
                changes = self._given(atom.changes)
                if changes is None:
                    return None
                given = Merged(given, changes)
            elif self.needs(given):
                self.optional.add(atom.input)
                given = Optional(atom.input)
            found.append((atom.field, given))
        return tuple(found)

    def _args_of(self, role: Role, trail: tuple[Role, ...]) -> dict[str, Term] | None:
        """Return the arguments of a read, or None if one of them is not determined."""
        if role in self._args:
            return self._args[role]
        if role in trail or role not in self.space.roles or not self.space.reads.get(role):
            return None
        args: dict[str, Term] = {}
        used: dict[str, list[Agreed]] = {}
        for name, leaf in self.space.roles[role].items():
            is_fixed = self._is_fixed(role.tool, (name,))
            found = self._same(leaf) if is_fixed else self._value(leaf, name, (*trail, role))
            made = {id(spot.example) for spot in leaf.spots}
            if found is not None and isinstance(found.term, Value | Text) and not is_fixed:
                # What few of the recordings looked for is what they looked for, no constant.
                found = found if 2 * len(made) >= len(self.examples) else None
            if found is None:
                if not trail:
                    self._args[role] = None
                return None
            args[name], used[name] = found.term, found.agreed
        if self._conflicts(args.values()):
            return None
        self._args[role], self._used[role] = args, used
        return args

    def _value(self, leaf: Leaf, name: str, trail: tuple[Role, ...] = ()) -> "Chosen | None":
        """Return the best supported explanation; by which inputs are given, several of them.

        A text that nothing explains as a whole may be made of values that are.
        """
        whole = self._whole(leaf, name, trail)
        is_weak = (
            whole is not None
            and isinstance(whole.term, Value)
            and len(leaf.spots) < ENOUGH_ALIKE
            and not self.caution.by_person
        )
        if not leaf.built or (whole is not None and not is_weak):
            return whole
        # A text that has known values in it is no constant, even if they are not told apart.
        return self._built(leaf, name, trail)

    def _built(self, leaf: Leaf, name: str, trail: tuple[Role, ...]) -> "Chosen | None":
        """Return a text that is made of values which are explained."""
        parts: list[Term] = []
        agreed: list[Agreed] = []
        for piece in leaf.built:
            if isinstance(piece, str):
                parts.append(Value(json.dumps(piece)))
                continue
            if piece.asked:
                parts.append(self._ask_for(piece, name))
                continue
            found = (
                self._phrase(piece, name, trail) if piece.given else self._value(piece, name, trail)
            )
            if found is None:
                return None
            parts.append(found.term)
            agreed += found.agreed
        if self._conflicts(parts):
            return None
        checks = checks_of(leaf.built)
        if len(parts) == 1 and not checks:
            return Chosen(parts[0], agreed)
        return Chosen(Text(tuple(parts), checks), agreed)

    def _phrase(self, piece: Leaf, name: str, trail: tuple[Role, ...]) -> Chosen | None:
        """Return a part of a text that is there if an input is given."""
        place = (piece.given,)
        if not piece.built:
            # It is not known what the phrase would be: the input must not be given.
            self.optional.add(place)
            held = sum(at(one.inputs, place) is MISSING for one in self.examples)
            self.write_check(f"not {self.given_text([place])}", None, held)
            return Chosen(Value('""'), [])
        found = self._value(piece, name, trail)
        if found is None or self.needs(found.term) != {place}:
            return None
        self.optional.add(place)
        return Chosen(Phrase(place, found.term), found.agreed)

    def _ask_for(self, piece: Leaf, name: str) -> Term:
        """Make a part of a text an input."""
        if f"{name or 'text'}_part" in self.caution.constants:
            return Value(json.dumps(piece.asked))
        key = (-1, (piece.asked,))
        if key not in self.promoted:
            made = self.fresh(f"{name or 'text'}_part")
            self.promoted[key] = Promoted(-1, (piece.asked,), made, piece.asked)
            self.always.add((made,))
        return Given((self.promoted[key].name,))

    def _whole(self, leaf: Leaf, name: str, trail: tuple[Role, ...]) -> "Chosen | None":
        tried: list[tuple[Any, int, Explanation, Term]] = []
        for one in sorted(
            leaf.explanations.values(), key=lambda one: _ORDER.index(type(one.source))
        ):
            if not self._is_supported(one):
                continue
            term = self._term(one, trail)
            if term is None or self._conflicts([term]):
                continue
            cost = (
                bool(self.needs(term)),
                len(self.roles_of(term)),
                -one.examples,
                -one.named,
                isinstance(term, KeyOf),
                len(repr(term)),
            )
            tried.append((cost, len(tried), one, term))
        # What few recordings had alike is a constant only if the inputs don't explain it.
        if any(not self._is_weak(row[2]) and not self.roles_of(row[3]) for row in tried):
            tried = [row for row in tried if not self._is_weak(row[2])]
        if not tried:
            return None
        tried.sort(key=lambda row: row[:2])
        cases = [row for row in tried if row[0][0]]
        told = {id(spot.example) for row in cases for spot in row[2].spots}
        first = tried[0]
        covering = len(cases) > 1 and len(told) >= first[2].examples
        if (not first[0][0] and not covering) or len(cases) < 2:
            return Chosen(first[3], [Agreed(first[3], leaf, {first[2].source})])
        terms = tuple(dict.fromkeys(row[3] for row in cases))
        used = {row[2].source for row in cases}
        term = terms[0] if len(terms) == 1 else Cases(name, terms)
        return Chosen(term, [Agreed(term, leaf, used)])

    @staticmethod
    def _is_weak(one: Explanation) -> bool:
        return isinstance(one.source, Constant) and one.examples < ENOUGH_ALIKE

    # ---- what terms need

    def _children(self, term: Term) -> Iterable[Term]:
        if isinstance(term, Result):
            return (self._args.get(term.role) or {}).values()
        return parts_of(term)

    def roles_of(self, term: Term) -> set[Role]:
        """Return the reads that a term needs."""
        found = {term.role} if isinstance(term, Result) else set()
        return found.union(*(self.roles_of(one) for one in self._children(term)))

    def needs(self, term: Term) -> frozenset[Place]:
        """Return the inputs that a term needs and that are not always given."""
        if isinstance(term, Merged) and isinstance(term.changes, Given):
            self.changes.add(term.changes.place)
        if isinstance(term, Given):
            is_certain = any(one[: len(term.place)] == term.place for one in self.always)
            return frozenset() if is_certain or ELEMENT in term.place else frozenset([term.place])
        if isinstance(term, Cases | Phrase):
            return frozenset()
        return frozenset().union(*(self.needs(one) for one in self._children(term)))

    def block(self, term: Term) -> Block | None:
        """Return the loop whose rounds a term belongs to."""
        return next(iter(self._blocks(term)), None)

    def _conflicts(self, terms: Iterable[Term]) -> bool:
        """Return whether terms belong to the rounds of different loops."""
        return len({id(one) for term in terms for one in self._blocks(term)}) > 1

    def _blocks(self, term: Term) -> Iterator[Block]:
        if not isinstance(term, Given):
            for part in self._children(term):
                yield from self._blocks(part)
        elif ELEMENT in term.place and (found := self._block_of(term.place)):
            yield found

    # ---- writing

    def fresh(self, wanted: str) -> str:
        """Return a name that nothing has yet."""
        wanted = f"{wanted}_result" if wanted in self.functions else wanted
        name = unused(plain_name(wanted), self.names)
        self.names.add(name)
        return name

    def steps_of(self, term: Term) -> list[Json]:
        """Return the list of steps that a step for this term belongs to."""
        block = self.block(term)
        return self.top if block is None else block.steps

    def text(self, term: Term, hint: str = "") -> str:
        """Return a term as an expression; write the steps that it needs."""
        if term not in self._texts:
            self._texts[term] = self._text(term, hint)
        return self._texts[term]

    def value(self, term: Term, hint: str = "") -> Any:
        """Return a term as a value of a step; write the steps that it needs."""
        if not isinstance(term, Text):
            return hole(self.text(term, hint))
        made = "".join(
            quoted(json.loads(part.json)) if isinstance(part, Value) else hole_text(self.text(part))
            for part in self.checked(term).parts
        )
        # White space around a single expression would not be written.
        return made if whole_expression(made) is None else hole(self.text(term))

    def _text(self, term: Term, hint: str) -> str:
        if isinstance(term, Result):
            return self._write_read(term.role, hint)
        return str(_TEXTS[type(term)](self, term))

    def edited_text(self, term: Edited) -> str:
        """Return a text with one value replaced, as an expression; it must stand there once."""
        self.text(term.of)
        raw, old = self.read_steps[term.of.role]["save_as"], self.text(term.old)
        self.write_check(f"{raw}.count({old}) == 1", self.block(term), len(self.examples))
        return f"{raw} | replace({old}, {self.text(term.new)})"

    def checked(self, term: Text) -> Text:
        """Write what must hold of the values in a text."""
        for check, numbers in term.checks:
            parts = [term.parts[number] for number in numbers]
            bare = [one.of if isinstance(one, Formed) else one for one in parts]
            text = check.replace(VALUE, " ~ ".join(dict.fromkeys(map(self.text, bare))))
            needed = frozenset().union(*map(self.needs, bare))
            self.write_check(text, self.block(term), len(self.examples), needed)
        return term

    def every_text(self, term: Every) -> str:
        """Return all values at a place, as an expression."""
        base, place = self.text(term.of), term.place
        if term.fits:
            base = f"where({base}{self.fits_text(term.fits)})"
        if place in ((RECORD, KEY), (ELEMENT,)):
            return base
        rest = place[1:] if place[0] is ELEMENT else place
        return f"every({base}, {literal(path_text(rest))})"

    def fits_text(self, fits: Fits) -> str:
        """Return the conditions of a selection."""
        return fits_text({place: self.text(one) for place, one in fits})

    def input_text(self, place: Place) -> str:
        """Return the expression of an input."""
        if place[0] in self.fixed and ELEMENT not in place:
            return literal(at(self.fixed, place))
        if place[0] in self.defaults:
            name, value = field_text(str(place[0]), ()), self.defaults[str(place[0])]
            return f"({name} if given({name}) else {literal(value)})"
        if isinstance(place[0], Over) and ELEMENT not in place:
            return self.text(self._list_term(place[0]))
        if ELEMENT in place:
            block = self._block_of(place)
            assert block is not None
            cut = place.index(ELEMENT)
            if place[-1] is POSITION:
                items = self.input_text(place[:cut])
                return f"({items}.index({block.over[place[:cut]]}) + 1)"
            return field_text(block.over[place[:cut]], names_in(place[cut + 1 :]))
        return field_text(str(place[0]), names_in(place[1:]))

    def given_text(self, places: Iterable[Place]) -> str:
        """Return the condition that some inputs are given."""
        return f"given({', '.join(sorted(map(self.input_text, places)))})"

    def _when(self, term: Term) -> Json:
        needed = self.needs(term)
        return {"when": self.given_text(needed)} if needed else {}

    def _write_read(self, role: Role, hint: str = "", name: str = "") -> str:
        if role in self.read_steps:
            return str(self.step_of(role)["save_as"])
        args = self._args[role]
        assert args is not None
        term = Result(role)
        texts = {one: self.value(each, one) for one, each in args.items()}
        results = [read.result for _, _, read in self.space.reads[role]]
        if not name:
            is_bare = bool(results) and is_scalar(results[0])
            name = self.fresh(hint if is_bare and hint else read_name(role.tool))
        step = {"type": "tool.call", "tool": role.tool, "args": texts, "save_as": name}
        step |= self._when(term)
        self.steps_of(term).append(step)
        self.read_steps[role] = step
        if any(read.is_written_out for _, _, read in self.space.reads[role]):
            step["save_as"] = self.fresh(f"{name}_text")
            value = hole(f"structure({step['save_as']})")
            read = {"type": "let", "value": value, "save_as": name, **self._when(term)}
            self.steps_of(term).append(read)
            self._structures[role] = read
        for one in args:
            self._agreed += [(agreed, None) for agreed in self._used[role][one]]
        return name

    @property
    def lets(self) -> list[Json]:
        """The steps that name a value."""
        steps = [*self.top, *(step for block in self.blocks for step in block.steps)]
        return [step for step in steps if step["type"] == "let"]

    def step_of(self, role: Role) -> Json:
        """Return the step that saves what a read returned: itself, or the structure of its text."""
        return self._structures.get(role, self.read_steps[role])

    def raw_text(self, term: Raw) -> str:
        """Return the name of the text that a read returned."""
        self.text(term.of)
        return str(self.read_steps[term.of.role]["save_as"])

    def look(self, role: Role) -> None:
        """Write a read that recordings made before they acted."""
        if self.space.reads[role]:
            self.result_text(role)

    def result_text(self, role: Role) -> str:
        """Return the name of what a read returned; "" if its arguments are not known."""
        return "" if self._args_of(role, ()) is None else self.text(Result(role))

    def _pick_text(self, term: Pick, portrait: Place = ()) -> str:
        """Return a selection. portrait: the input that says which element was meant."""
        by = f", {literal(path_text(term.by))}" if term.by else ""
        fits, whole = term.fits, ""
        if portrait:
            fits = tuple(row for row in fits if not isinstance(row[1], Given))
            whole = f", holding({self._whole_text(portrait)})"
        return f"{term.how}({self.text(term.of)}{by}{whole}{self.fits_text(fits)})"

    def write_pick(self, term: Pick) -> str:
        """Name an element of a list."""
        portrait = self._portrait(term)
        text = self._pick_text(term, portrait)
        name = self.fresh(term.name if term.name not in self.names else f"{term.name}_found")
        if portrait:
            self.portraits[portrait] = name, self._equal_fields(term, portrait)
        step = {"type": "let", "value": hole(text), "save_as": name, **self._when(term)}
        self.steps_of(term).append(step)
        self._pick_steps.append((term, step))
        if term in self._chosen:
            for rival in self._rivals.get(term, ()):
                held = len(self._choices[term].rows)
                self.write_check(
                    f"{name} == {self._pick_text(rival)}", self.block(term), held, self.needs(term)
                )
        return name

    def _portrait(self, term: Pick) -> Place:
        """Return the input whose fields say nothing but which element was meant; () if none does.

        As with a record that is found by what is in it, a part of its fields may be enough.
        """
        said = [(field, one.place) for field, one in term.fits if isinstance(one, Given)]
        outer = _record_of(said[0][1]) if said else ()
        are_parts = len(said) > 1 and all(_record_of(place) == outer for _, place in said)
        if term.how != "only" or not are_parts:
            return ()
        is_loop = ELEMENT in outer
        if not outer or outer in self.portraits or not (is_loop or outer in self.always):
            return ()
        records = [
            one
            for example in self.examples
            for one in (at(example.inputs, outer[:-1]) if is_loop else [at(example.inputs, outer)])
        ]
        fields = {field[0] for field, place in said if field == place[len(outer) :]}
        is_all = all(isinstance(one, dict) and one.keys() <= fields for one in records)
        is_whole = len(fields) == len(said) and is_all and not any(map(_has_list, records))
        return outer if is_whole else ()

    def _equal_fields(self, term: Pick, portrait: Place) -> frozenset[str]:
        """Return the fields that elements had just as the input says them."""
        found = {str(field[0]) for field, one in term.fits if isinstance(one, Given)}
        for row in self._choices[term].rows:
            number = None if row.spot.turn is None else row.spot.turn.number
            wanted = at(row.spot.example.scope, portrait, number)
            found = {name for name in found if same(wanted.get(name), row.chosen[name])}
        return frozenset(found)

    def _whole_text(self, portrait: Place) -> str:
        """Return the name of a record among the inputs, or of the element of a loop."""
        block = self._block_of(portrait) if ELEMENT in portrait else None
        return str(portrait[0]) if block is None else block.over[portrait[:-1]]

    def _given_text(self, place: Place) -> str:
        """Return an input; a field of one that only says which element was meant, from there."""
        outer = _record_of(place)
        name, equal = self.portraits.get(outer, ("", frozenset()))
        if place[len(outer) :] and place[len(outer)] in equal:
            return field_text(name, names_in(place[len(outer) :]))
        return self.input_text(place)

    def described(self, steps: list[Json]) -> set[Place]:
        """Return the inputs of finished steps that say nothing but which element is meant."""
        texts = [*_texts_of(steps)]
        return {
            place
            for place in self.portraits
            if _is_only_held(self._whole_text(place), texts)
            and (ELEMENT not in place or _is_only_held(str(place[0]), texts))
        }

    @property
    def picks(self) -> list[tuple[Json, Choice]]:
        """The steps that choose an element for a value; not those that serve a check only."""
        return [
            (step, self._choices[term])
            for term, step in self._pick_steps
            if term in self._chosen and term in self._choices
        ]

    def _choose(self, term: Term) -> None:
        """Note the elements that a value is taken from."""
        if isinstance(term, Pick):
            self._chosen.add(term)
        for one in self._children(term):
            self._choose(one)

    def write_cases(self, term: Cases) -> str:
        """Save one name in several ways, each with the inputs that it needs."""
        name = self.fresh(term.name)
        for one in term.terms:
            if isinstance(one, Result) and one.role not in self.read_steps:
                self._write_read(one.role, name=name)
            else:
                text = self.text(one, term.name)
                step = {"type": "let", "value": hole(text), "save_as": name, **self._when(one)}
                self.steps_of(term).append(step)
        return name

    def written_text(self, tool: str) -> str:
        """Return what a write returned, as an expression."""
        name = self.written_name(tool)
        reads = [read for one in self.examples for _, read in one.by_tool[f"#{tool}"]]
        return f"structure({name})" if any(read.is_written_out for read in reads) else name

    def written_name(self, tool: str, slot: Slot | None = None) -> str:
        """Return the name of what a write returned; of several with one tool, the first."""
        same = [one for one in self.space.slots if one.tool == tool]
        if slot is not None and slot is not same[0]:
            return self.fresh("approval" if tool == APPROVAL else f"{tool}_done")
        if tool not in self._written and tool == APPROVAL:
            self._written[tool] = self.fresh("approval")
        if tool not in self._written:
            self._written[tool] = self.fresh(
                f"{tool}_done" if len(self.space.slots) > 1 else "done"
            )
        return self._written[tool]

    # ---- checks

    def agree(self) -> None:
        """Write that the other explanations of each value that is used agree with it."""
        done = 0
        while done < len(self._agreed):
            agreed, self._slot = self._agreed[done]
            done += 1
            self._agree(*agreed, is_write=self._slot is not None)
        self._slot = None

    def limit(self, when: Mapping[int, str]) -> None:
        """Limit the checks of writes that are made on a condition only to that condition."""
        for check in self._checks.values():
            slots = self._serves[id(check)]
            texts = sorted({when[one] for one in slots if one is not None and one in when})
            if texts and slots <= when.keys():
                own = f"{check['when']} and " if "when" in check else ""
                either = " or ".join(texts)
                check["when"] = own + (f"({either})" if own and len(texts) > 1 else either)

    def _agree(self, value: Term, leaf: Leaf, used: set[Source], *, is_write: bool) -> None:
        if any(isinstance(one, Written) for one in every_term(value)):
            return
        ways: set[str] = set()
        for group in _facts(leaf, used, is_write=is_write):
            terms = [
                (term, one)
                for one in group
                for term in [self._term(one, is_value=False)]
                if term is not None and term != value and not self._conflicts([term, value])
                if not self._is_looped(one.source)
            ]
            if not terms:
                continue
            term, one = min(terms, key=lambda row: (isinstance(row[0], KeyOf), len(repr(row[0]))))
            needed = self.needs(value) | (frozenset() if is_write else self.needs(term))
            sign = "in" if isinstance(term, Every) else "=="
            if isinstance(term, Every) and is_write and self._look_at(value, one):
                continue
            self.check(value, sign, term, one.examples, needed)
            if needed:
                ways.add(self.given_text(needed))
        if ways:
            self.write_check(" or ".join(sorted(ways)), None, len(self.examples))

    def _look_at(self, value: Term, one: Explanation) -> bool:
        """Write down the element of a list that an input names, if it was always in one state.

        Others of its list were often in another one.
        """
        source = one.source
        if not isinstance(value, Given) or not isinstance(source, FromRead):
            return False
        depth, *more = marks_in(source.place)
        rest = source.place[depth + 1 :]
        choice = choice_of(one, 0, self.space.known_before, self.caution)
        ids = [is_code(row.spot.value) and len(row.options) == 1 for row in choice.rows]
        base = self._result(source.role, ())
        if more or rest in ((), (KEY,)) or not all(ids) or base is None:
            return False
        of = Field(base, names_in(source.place[:depth])) if depth else base
        name = singular(last_name(source.place[:depth]) or read_name(source.role.tool))
        pick = Pick(of, "only", ((rest, value),), (), name)
        self._choices.setdefault(pick, choice)
        self._chosen.add(pick)
        self.text(pick)
        return True

    def _is_looped(self, source: Source) -> bool:
        """Return whether a loop goes over the list that a value stands in: it is there anyway."""
        if not isinstance(source, FromRead):
            return False
        overs = [place[0] for block in self.blocks for place in block.over]
        return any(
            isinstance(over, Over)
            and over.role == source.role
            and source.place[: len(over.place) + 1] == (*over.place, ELEMENT)
            for over in overs
        )

    def check(
        self, left: Term, sign: str, right: Term, held: int, needed: frozenset[Place] = frozenset()
    ) -> None:
        """Write a check that two terms agree."""
        one, other = self.text(left), self.text(right)
        if one == other:
            return
        block = self.block(left) or self.block(right)
        self.write_check(f"{one} {sign} {other}", block, held, needed)

    def write_check(
        self, text: str, block: Block | None, held: int, needed: frozenset[Place] = frozenset()
    ) -> None:
        """Write a check of some inputs, once."""
        step = {"type": "assert", "check": text}
        if needed:
            step["when"] = self.given_text(needed)
        self.add_check(step, held, block)

    def add_check(self, step: Json, held: int, block: Block | None = None) -> None:
        """Write a check, unless it is there already in this or the other direction."""
        steps = self.top if block is None else block.steps
        key = frozenset(step["check"].split(" == ")), id(steps)
        count = f"{held}/{len(self.examples)}"
        if key not in self._checks:
            self._checks[key] = {**step, "held": count}
            steps.append(self._checks[key])
        elif held > int(self._checks[key]["held"].split("/")[0]):
            self._checks[key]["held"] = count
        self._serves[id(self._checks[key])].add(self._slot)

    # ---- arguments of writes

    def argument(self, number: int, place: Place, leaf: Leaf) -> Term:
        """Return the term of one value of a write; an input if nothing explains it."""
        slot, found = self.space.slots[number], None
        is_loop = slot.is_repeated or ELEMENT in place
        if is_loop:
            self._open_block(slot, place)
        is_complete = ELEMENT in place or len(leaf.spots) == len(slot.calls)
        if self._is_fixed(slot.tool, place) and is_complete:
            found = self._same(leaf)
        if found is None and is_complete and (number, self._list_place(place)) not in self.promoted:
            found = self._value(leaf, last_name(place))
        if found is None and is_complete and not is_loop:
            found = self.constant(leaf)
        if found is None and not is_complete:
            found = self._optional(slot, place, leaf)
        if found is None:
            term = self._promote(slot, number, place, may_be_null=not is_complete and not is_loop)
            self._agreed.append((Agreed(term, leaf, set()), number))
            return term
        term = found.term
        self._choose(term)
        if isinstance(term, Value):
            self.constants.append((f"{slot.tool}.{path_text(place)}", json.loads(term.json)))
        self._agreed += [(agreed, number) for agreed in found.agreed]
        return term

    def constant(self, leaf: Leaf) -> Chosen | None:
        """Return the value that all recordings had, if there are enough of them.

        Where it was read too, it must still be there.
        """
        return None if len(leaf.spots) < self.caution.repeated else self._same(leaf)

    @staticmethod
    def _same(leaf: Leaf) -> Chosen | None:
        first = leaf.spots[0].value
        if any(key_of(spot.value) != key_of(first) for spot in leaf.spots):
            return None
        term = Value(json.dumps(first))
        return Chosen(term, [Agreed(term, leaf, set())])

    def _is_fixed(self, tool: str, place: Place) -> bool:
        """Return whether a person wants an argument to be as recorded in every run."""
        wanted = self.caution.constants - self.fixed.keys()
        names = [name for name in place if isinstance(name, str)]
        return any(not wanted.isdisjoint((one, f"{tool}.{one}", f"{tool}_{one}")) for one in names)

    def output(self) -> dict[Place, Term] | None:
        """Return the terms of what the routine returns; None if something is not explained."""
        slot = self.space.output
        found: dict[Place, Term] = {}
        for place, leaf in slot.leaves.items():
            if any(not isinstance(piece, str) and piece.asked for piece in leaf.built):
                return None
            if ELEMENT in place:
                self._open_block(slot, place)
            chosen = self._value(leaf, last_name(place))
            if chosen is None or len(leaf.spots) < len(slot.calls):
                return None
            found[place] = chosen.term
        return found or None

    def _optional(self, slot: Slot, place: Place, leaf: Leaf) -> "Chosen | None":
        """Return the input that an argument is given just where it is given."""
        for source, one in leaf.explanations.items():
            if not isinstance(source, FromInput) or len(one.spots) < len(leaf.spots):
                continue
            having = {id(spot.example) for spot in leaf.spots}
            told = {
                id(each) for each in self.examples if at(each.inputs, source.place) is not MISSING
            }
            if told == having and source.place not in self.always and ELEMENT not in place:
                term = Optional(source.place)
                self.optional.add(source.place)
                return Chosen(term, [Agreed(Given(source.place), leaf, {source})])
        return None

    @staticmethod
    def _list_place(place: Place) -> Place:
        return place[: place.index(ELEMENT)] if ELEMENT in place else place

    def _open_block(self, slot: Slot, place: Place) -> None:
        ways = slot.lists.get(() if slot.is_repeated else self._list_place(place), set())
        over = sorted((where for how, where in ways if how == "each"), key=str)
        if not over:
            return
        for block in self.blocks:
            if any(where in block.over for where in over):
                return
        for where in over:
            if isinstance(where[0], Over):
                if self._args_of(where[0].role, ()) is None:
                    return
                self.text(self._list_term(where[0]))
        names = {where: self.fresh(_name_of_one(where)) for where in over}
        self.blocks.append(Block(names, self.fresh(f"each_{_name_of_one(over[0])}")))

    @staticmethod
    def _list_term(over: Over) -> Term:
        """Return the list that a read returned."""
        names = names_in(over.place)
        items: Term = Field(Result(over.role), names) if names else Result(over.role)
        if not over.field:
            return items
        return Every(items, (ELEMENT,), (((over.field,), Value(json.dumps(over.value))),))

    def _block_of_rounds(self, slot: Slot) -> Block | None:
        """Return the loop in which a write is repeated."""
        ways = {where for how, where in slot.lists.get((), ()) if how == "each"}
        return next((one for one in self.blocks if ways & one.over.keys()), None)

    def _promote(self, slot: Slot, number: int, place: Place, *, may_be_null: bool = False) -> Term:
        """Make an argument an input, a whole list if it stands in a list."""
        outer = self._list_place(place)
        made = self.promoted.get((number, outer))
        rounds = self._block_of_rounds(slot) if slot.is_repeated else None
        if made is None:
            wanted = plain_name(last_name(outer) or slot.tool)
            name = wanted if wanted not in self.names else self.fresh(f"{slot.tool}_{wanted}")
            self.names.add(name)
            made = Promoted(number, outer, name, may_be_null=may_be_null)
            self.promoted[number, outer] = made
            self.always.add((name,))
            if rounds is not None:
                rounds.over[name,] = self.fresh(_one_of(name))
            elif outer != place:
                over: dict[Place, str] = {(name,): self.fresh(_one_of(name))}
                self.blocks.append(Block(over, self.fresh(f"each_{singular(name)}")))
        inner = (ELEMENT,) if rounds is not None else place[len(outer) :]
        found = (made.name, *inner)
        return Nullable(found) if may_be_null else Given(found)


_TEXTS: dict[Any, Callable[[Writer, Any], str]] = {
    Pick: Writer.write_pick,
    Cases: Writer.write_cases,
    Given: lambda self, term: self._given_text(term.place),
    Optional: lambda self, term: "{0} if given({0}) else omitted".format(
        self.input_text(term.place)
    ),
    Nullable: lambda self, term: "{0} if {0} is not none else omitted".format(
        self.input_text(term.place)
    ),
    Value: lambda _, term: literal(json.loads(term.json)),
    Raw: lambda self, term: self.raw_text(term),
    Written: lambda self, term: self.written_text(term.tool),
    Field: lambda self, term: field_text(self.text(term.of), term.names),
    At: lambda self, term: f"{self.text(term.of)}[{self.text(term.key)}]",
    KeyOf: lambda self, term: f"only_key({self.text(term.of)}{self.fits_text(term.fits)})",
    Common: lambda self, term: (
        f"common({self.text(term.of)}, {literal(path_text(term.place))}{self.fits_text(term.fits)})"
    ),
    Every: Writer.every_text,
    Limit: lambda self, term: f"at_{'least' if term.is_least else 'most'}({self.text(term.of)})",
    Merged: lambda self, term: f"merge({self.text(term.old)}, {self.text(term.changes)})",
    Computed: lambda self, term: (
        f"later({self.text(term.left)}, {self.text(term.right)})"
        if term.sign == "later"
        else f"({self.text(term.left)} {term.sign} {self.text(term.right)}) | round(6)"
        if term.is_rounded
        else f"{self.text(term.left)} {term.sign} {self.text(term.right)}"
    ),
    Edited: Writer.edited_text,
    Formed: lambda self, term: term.form.replace(VALUE, self.text(term.of)),
    Text: lambda self, term: " ~ ".join(map(self.text, self.checked(term).parts)),
    Phrase: lambda self, term: f'({self.text(term.of)} if {self.given_text([term.place])} else "")',
}
"""How terms are printed."""


_ORDER: list[Any] = [FromInput, FromRead, FromForm, FromNumbers, FromEdit, Constant]
"""Explanations that cost as much are preferred in this order."""


def _record_of(place: Place) -> Place:
    """Return the input record, or the element of a list of them, that a place is in."""
    outer = place[: place.index(ELEMENT) + 1] if ELEMENT in place else place[:1]
    return outer if all(isinstance(step, str) or step is ELEMENT for step in outer) else ()


def _texts_of(steps: Sequence[Json]) -> Iterator[str]:
    """Yield the expressions of steps, those in one field as one text, but for lists of loops."""
    for step in walked(steps):
        yield from map(json.dumps, acting({**step, "over": {}}))


def _is_only_held(name: str, texts: Iterable[str]) -> bool:
    """Return whether expressions use a name for nothing but `holding(name)`."""
    used = re.compile(rf"(?<![\w.\"]){re.escape(name)}(?![\w\"]|=(?!=))")
    held = f"holding({name})"
    return all(len(used.findall(text)) == text.count(held) for text in texts)


def _has_list(value: Any) -> bool:
    """Return whether a record holds lists: in a description, a list may be a part of one."""
    if isinstance(value, dict):
        return any(map(_has_list, value.values()))
    return isinstance(value, list)


def _field(term: Term, name: str) -> Term:
    if isinstance(term, Field):
        return Field(term.of, (*term.names, name))
    return Field(term, (name,))


def _name_of_one(place: Place) -> str:
    """Return a name for an element of a list."""
    if not isinstance(place[0], Over):
        return singular(last_name(place))
    return _one_of(last_name(place[0].place) or read_name(place[0].role.tool))


def _one_of(name: str) -> str:
    one = singular(name)
    return one if one != name else f"one_{name}"


def _facts(leaf: Leaf, used: set[Source], *, is_write: bool) -> list[list[Explanation]]:
    """Return the explanations that were not used, by fact.

    Two fields of one element are one fact, of which one check is enough.
    """
    groups: dict[Any, list[Explanation] | None] = {}
    is_named = any(leaf.explanations[one].named for one in used & leaf.explanations.keys())
    for source, one in leaf.explanations.items():
        # Where names say what a value is, it is no constant, however often it was the same.
        if isinstance(source, Constant) and (is_named or not is_write):
            continue
        if isinstance(source, FromRead) and source.role.write is not None:
            continue
        # The words around a part of a text may differ while the part is the same.
        if isinstance(source, FromForm) and is_part(source.form) and source not in used:
            continue
        fact: Any = source
        if isinstance(source, FromRead) and marks_in(source.place):
            fact = (source.role, source.place[: marks_in(source.place)[-1] + 1])
        if source in used:
            groups[fact] = None
        elif fact not in groups:
            groups[fact] = [one]
        elif (group := groups[fact]) is not None:
            group.append(one)
    return [group for group in groups.values() if group is not None]


def hole_text(text: str) -> str:
    """Return an expression as it stands in a text."""
    return "{{ " + text + " }}"


def quoted(text: str) -> str:
    """Return a constant text as it stands in a template."""
    for sign in ("{{", "{%", "{#"):
        text = text.replace(sign, '{{ "' + sign + '" }}')
    return text


def literal_value(value: Any) -> Any:
    """Return a constant as a step has it: its texts are no templates."""
    if isinstance(value, dict):
        return {quoted(str(name)): literal_value(one) for name, one in value.items()}
    if isinstance(value, list):
        return [literal_value(one) for one in value]
    return quoted(value) if isinstance(value, str) else value


def hole(text: str) -> Any:
    """Return an expression as a value of a step; constants are written as they are."""
    try:
        found = json.loads("null" if text == "none" else text)
    except ValueError:
        return hole_text(text)
    is_template = isinstance(found, str) and quoted(found) != found
    return hole_text(text) if is_template else found


def read_name(tool: str) -> str:
    """Return a name for what a tool returns: `order` for `get_order`."""
    words = re.split(r"[^A-Za-z0-9]+", tool.lower().strip("_-."))
    if "by" in words[1:]:
        words = words[: words.index("by")]
    if words[0] in READING and len(words) > 1:
        words = words[1:]
    return "_".join(words) or "result"
