"""Space of explanations: for every value of every write, all that no recording contradicts.

A value is explained by an input, by a place in the result of a read, or by being constant. The
arguments of the reads that matter are explained in the same way, so the space is a graph, and a
further recording meets it leaf by leaf: what both have gains evidence, the rest is evaluated on
the recording and dies only if everything it needs was recorded and gives something else.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from em.compiler.assumption import has_bits, has_copy, is_computed, is_constant, is_given, varying
from em.compiler.calls import words_of
from em.compiler.choice import fixed_fields
from em.compiler.evidence import (
    ENOUGH_TO_ACT,
    NAMED_ALIKE,
    Caution,
    information,
    is_small,
)
from em.compiler.example import Example, Read, Role, Said, Turn, Write, looped, sequence_of
from em.compiler.explanation import (
    SHARE,
    TRIED,
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
    computed,
    constant,
    descend,
    is_merged,
)
from em.compiler.forms import COUNT, applied, is_measure, part_forms, totals_of
from em.compiler.places import (
    ELEMENT,
    MISSING,
    RECORD,
    Key,
    Over,
    Path,
    Place,
    are_comparable,
    at,
    covers,
    folded,
    follow,
    is_code,
    is_exactly,
    is_flat,
    is_number,
    is_scalar,
    is_word,
    key_of,
    last_name,
    marks_in,
    plain,
    records,
    walk,
)
from em.compiler.skeleton import (
    Part,
    Pieces,
    Spot,
    dates_before,
    is_about,
    is_called,
    is_set_off,
    is_telling,
    lists_before,
    numbers_before,
    skeleton,
    texts_before,
    with_phrase,
)
from em.values.canonical import Json, same
from em.values.times import is_date

MOST_HOLDERS = 100
"""Reads that may explain a value, the nearest before it: one that all have tells none of them."""
MOST_WITNESSES = 1_000
"""Rounds of one loop that are explained in every way; more of the same say nothing new."""
SHORTEST_EDITED = 20
"""Characters of a text from which on it is no chance that another one is nearly the same."""


_Purpose = tuple[Example, Turn | None, Role]


UNNAMED = 4.0
"""Bits that it costs to take a number for the length of a list whose name it has not."""
BITS_OF_DAYS = 6.0
"""Bits of a date that is so many days after another one."""
MOST_READS = 8
"""Reads by which a value is reached, one through the other."""


class Slot:
    """One write of a kind of task: its leaves, and what its lists are made of.

    body: the numbers of the slots that are repeated together. is_repeated: they are repeated.
    """

    def __init__(self, tool: str, body: range) -> None:
        self.tool, self.body = tool, body
        self.is_repeated = False
        self.leaves: dict[Place, Leaf] = defaultdict(Leaf)
        self.lists: dict[Place, set[tuple[str, Place]]] = {}
        self.calls: list[tuple[Json, Any]] = []

    def take_list(self, place: Place, ways: set[tuple[str, Place]]) -> None:
        """Intersect what a list may be made of."""
        self.lists[place] = self.lists[place] & ways if place in self.lists else ways


class Space:
    """The explanations of all leaves of one kind of task."""

    def __init__(self, examples: Sequence[Example], caution: Caution) -> None:
        self.examples, self.caution = examples, caution
        self.roles: dict[Role, dict[str, Leaf]] = defaultdict(lambda: defaultdict(Leaf))
        self.reads: dict[Role, list[tuple[Example, Turn | None, Read]]] = defaultdict(list)
        self._used: set[tuple[int, Turn | None, int]] = set()
        # By purpose: the reads that one example made for it, if several, with the values of each.
        self._several: dict[_Purpose, dict[int, set[Key]]] = defaultdict(lambda: defaultdict(set))
        self.slots = self._slots()
        for example in examples:
            for slot, rounds in zip(self.slots, self.rounds(example), strict=True):
                for one in slot.body if len(rounds) > 1 else ():
                    self.slots[one].is_repeated = True
        self.output = Slot("return", range(0))
        for example in examples:
            self._explain_writes(example)
        for example in examples:
            self._leave_out(example)
        if all(_has_plain_output(example) for example in examples):
            for example in examples:
                spot = Spot(example, None, len(example.reads), {"value": example.output})
                self._take_value(self.output, spot, ())
                self.output.calls.append(({"value": example.output}, None))
        self._settle_several()
        self.habits = [*self._habits(), *self._loop_habits()]
        self._settle_several()
        for leaf in self._leaves():
            self._build(leaf)
            leaf.settle()

    def _slots(self) -> list[Slot]:
        """Return a slot for each write of the kind."""
        slots: list[Slot] = []
        for body in sequence_of(self.examples) or ():
            start = len(slots)
            for tool in body:
                slots.append(Slot(tool, range(start, start + len(body))))
        return slots

    def rounds(self, example: Example) -> list[list[Write]]:
        """Return the writes of an example by slot, in the rounds in which they were made."""
        found: list[list[Write]] = [[] for _ in self.slots]
        if [*example.kind] == [slot.tool for slot in self.slots]:
            writes = iter(example.writes)
            start = 0
            for tools, count in example.blocks:
                for _ in range(count):
                    for one in range(start, start + len(tools)):
                        found[one].append(next(writes))
                start += len(tools)
            return found
        made = [write.tool for write in example.writes]
        number = 0
        while number < len(self.slots):
            body = self.slots[number].body
            names = [self.slots[one].tool for one in body]
            done = sum(map(len, found))
            following = [slot.tool for slot in self.slots[body.stop : body.stop + len(body)]]
            most = 1 if following == names else len(example.writes)
            while len(found[body.start]) < most and made[done : done + len(names)] == names:
                for one, write in zip(body, example.writes[done:], strict=False):
                    found[one].append(write)
                done += len(names)
            number = body.stop
        return found

    def rounds_of(self, slot: Slot, place: Place) -> list[list[Any]]:
        """Return the values at a place of a write in the rounds of each example."""
        number = self.slots.index(slot)
        return [
            [at(write.args, place) for write in self.rounds(example)[number]]
            for example in self.examples
        ]

    def _explain_writes(self, example: Example) -> None:
        for slot, rounds in zip(self.slots, self.rounds(example), strict=True):
            for number, write in enumerate(rounds):
                turn = Turn(number, len(rounds)) if slot.is_repeated else None
                spot = Spot(example, turn, write.before, write.args)
                self._take_value(slot, spot, ())
                slot.calls.append((write.args, write.result))
            if slot.is_repeated and rounds:
                args = [one.args for one in rounds]
                slot.take_list((), self._lists_of(example, args, rounds[0].before))

    def _leave_out(self, example: Example) -> None:
        """Leave out the lists that have elements for which an example did not write."""
        for slot, rounds in zip(self.slots, self.rounds(example), strict=True):
            if slot.is_repeated and not rounds and () in slot.lists:
                slot.lists[()] = {
                    (how, place)
                    for how, place in slot.lists[()]
                    if at(example.scope, place) in (MISSING, [])
                }

    def _take_value(self, slot: Slot, spot: Spot, place: Place) -> None:
        value, example = spot.value, spot.example
        is_whole = bool(place and value and not is_scalar(value)) and any(
            not marks_in(where)
            for _, read in example.holding(value, spot.before)
            for where, _ in read.paths(value)
        )
        if isinstance(value, dict) and not is_whole:
            for name, one in value.items():
                self._take_value(slot, spot._replace(value=one), (*place, name))
        elif isinstance(value, list) and spot.turn is None and not is_whole:
            ways = self._lists_of(example, value, spot.before)
            if self.caution.by_person and not ways and self._is_fixed_list(spot):
                slot.leaves[place].add(self.is_refuted, spot, constant(spot))
                return
            if not value:
                ways.add(("none", ()))
            slot.take_list(place, ways)
            for number, one in enumerate(value):
                inner = Spot(example, Turn(number, len(value)), spot.before, one)
                self._take_value(slot, inner, (*place, ELEMENT))
        elif not self._is_one_more(slot.leaves[place], spot):
            found = self.explain(spot, last_name(place), slot.tool)
            slot.leaves[place].add(self.is_refuted, spot, found)

    def _is_one_more(self, leaf: Leaf, spot: Spot) -> bool:
        """Return whether a value is that of a further round, which needs no other explanation."""
        if spot.turn is None or spot.turn.number < MOST_WITNESSES:
            return False
        return any(
            isinstance(source, FromInput | Constant) and not self.is_refuted(one, spot)
            for source, one in leaf.explanations.items()
        )

    def _is_fixed_list(self, spot: Spot) -> bool:
        """Return whether a list has several elements, and nothing explains any of them."""
        found = [self.explain(spot._replace(value=one), "") for one in spot.value[:MOST_WITNESSES]]
        return len(found) > 1 and all(
            one and all(isinstance(source, Constant) for source in one) for one in found
        )

    def _lists_of(
        self, example: Example, rounds: Sequence[Any], before: int
    ) -> set[tuple[str, Place]]:
        """Return the lists that were gone through, of inputs or of what a read returned."""
        found = looped(example, rounds, before)
        if len(rounds) == 1 and len(self.examples) == 1:
            # Of one round alone nobody knows whether it is the only one or the only one so far.
            found = {place for place in found if not isinstance(place[0], Over)}
        for over in [place[0] for place in found if isinstance(place[0], Over)]:
            self.use(example, None, example.result_lists[over][0], over.role)
        return {("each", place) for place in found}

    def _leaves(self) -> list[Leaf]:
        return [
            *(leaf for slot in (*self.slots, self.output) for leaf in slot.leaves.values()),
            *(leaf for args in self.roles.values() for leaf in args.values()),
        ]

    def _habits(self) -> list[Role]:
        """Return the reads that most examples made before they wrote, whether needed or not.

        Somebody looked before acting. By inputs alone they count at once, through other records
        if they were made once in each of two examples, or in most of three or more.
        """
        made: dict[Role, list[tuple[Example, int]]] = defaultdict(list)
        of_loops = {(one, number) for one, turn, number in self._used if turn is not None}
        for example in self.examples:
            for number in range(example.first_write):
                if (id(example), number) not in of_loops:
                    made[example.role(number, None)].append((example, number))
        found = []
        for role, where in made.items():
            having = len({id(example) for example, _ in where})
            if having < SHARE * len(self.examples):
                continue
            is_single = len(self.examples) >= 3 or self.caution.by_person
            is_single |= having == len(self.examples) > 1
            times = Counter(id(example) for example, _ in where)
            once = sum(count == 1 for count in times.values())
            if role.is_lookup or (is_single and once > SHARE * having):
                found.append(role)
                for example, number in where:
                    if role.is_lookup or times[id(example)] == 1:
                        self.use(example, None, number, role)
                    else:
                        self._several[example, None, role][number] |= set()
        return found

    def _loop_habits(self) -> list[Role]:
        """Return the reads that most examples made in every round of a loop.

        They were made by the element of the round, or by what was read by it.
        """
        made: dict[Role, Counter[int]] = defaultdict(Counter)
        where: dict[Role, list[tuple[Example, Turn, int]]] = defaultdict(list)
        rounds: Counter[int] = Counter()
        for example in self.examples:
            for turn in [turn for turn in example.turns if turn is not None]:
                rounds[id(example)] += 1
                for number in self._reads_of_round(example, turn):
                    role = example.role(number, turn)
                    made[role][id(example)] += 1
                    where[role].append((example, turn, number))
        found = []
        for role, counts in made.items():
            whole = sum(counts[one] >= rounds[one] for one in counts)
            if whole >= SHARE * len(rounds):
                found.append(role)
                for example, turn, number in where[role]:
                    self.use(example, turn, number, role)
        return found

    def _reads_of_round(self, example: Example, turn: Turn) -> Iterator[int]:
        """Yield the reads before the first write that belong to one round of a loop.

        Of two reads for one purpose it can't be told which of them belongs to the round.
        """
        said = [one for place, one in example.said(turn).leaves if ELEMENT in place]
        own = [
            number
            for number in example.asked_with(map(key_of, said), example.first_write)
            if any(place and ELEMENT in place for _, place in example.role(number, turn).sources)
        ]
        # What was read by something that those returned belongs to the round, too; and so does
        # what was read by the element of a list that the round names.
        returned = {key for number in own for key in example.reads[number].index}
        named = self._named_in_lists(example, said)
        found: dict[Role, list[int]] = defaultdict(list)
        for number in sorted({*own, *example.asked_with(returned | named, example.first_write)}):
            args = example.reads[number].args.values()
            values = [one for one in args if information(one) >= ENOUGH_TO_ACT]
            earlier = [example.reads[one] for one in own if one < number]
            if (
                number in own
                or any(key_of(one) in named for one in values)
                or any(_gives(one, each, said) for one in earlier for each in values)
            ):
                found[example.role(number, turn)].append(number)
        for numbers in found.values():
            if len(numbers) == 1 and (id(example), turn, numbers[0]) not in self._used:
                yield numbers[0]

    @staticmethod
    def _named_in_lists(example: Example, said: Sequence[Any]) -> set[Key]:
        """Return the values of those elements of lists that have something that was said."""
        found: set[Key] = set()
        for value in (one for one in said if information(one) >= ENOUGH_TO_ACT):
            for _, read in example.having(value, example.first_write):
                paths = read.paths(value) if isinstance(read.result, list) else ()
                for _, path in paths:
                    found |= {key_of(one) for _, one in plain(follow(read.result, path[:1]))}
        return found

    def explain(
        self,
        spot: Spot,
        name: str,
        tool: str = "",
        *,
        is_part: bool = False,
        is_operand: bool = False,
    ) -> dict[Source, Explanation]:
        """Return all explanations of a value of a call.

        is_part: it is a part of another one. is_operand: another number is computed from it.
        """
        example, turn, before, value = spot
        said = example.leaves(turn, before)
        found: dict[Source, Explanation] = {}
        for place, one in said:
            if is_exactly(one, value):
                source = FromInput(place)
                cost = math.log2(2 * len(said))
                found[source] = Explanation(source, spot, cost, named_alike(place, name))
        cost = math.log2(1 + len(said) + example.sizes[before])
        holders = example.holding(value, before)[-MOST_HOLDERS:]
        is_common = bool(holders) and turn is not None and self._is_common(spot)
        rows = [row for row in holders if not self._is_of_earlier_round(example, row[0], before)]
        for number, _ in rows:
            self._explain_by_read(found, spot, number, cost, name)
        if not is_operand:
            taken = [n for n, one in rows if self._is_taken(spot, one, name, is_common=is_common)]
            self._take_from(spot, taken)
        self._note_unnamed(found, spot)
        self._note_named(found, tool)
        by_input = any(
            isinstance(one.source, FromInput) and one.net >= ENOUGH_TO_ACT for one in found.values()
        )
        if not found and not is_operand:
            found = self._explain_by_computing(spot, name)
        elif is_number(value) and not is_operand and not self.caution.by_person:
            # A small number stands somewhere by chance; how many there are may be why.
            found |= self._explain_by_lists(spot, name)
        if not found and not is_part and is_scalar(value):
            found = self._explain_by_texts(spot) | self._explain_by_edits(spot)
        if self.caution.by_person:
            return found if is_part else self._assumed(found, spot, name)
        if not found or (information(value) - cost < ENOUGH_TO_ACT and not by_input):
            found |= constant(spot)
        return found

    @staticmethod
    def _is_of_earlier_round(example: Example, number: int, before: int) -> bool:
        """Return whether this is the result of a write that was made again since."""
        tool = example.reads[number].tool
        made = example.by_tool[tool]
        last = bisect_left(made, before, key=itemgetter(0)) - 1
        return tool.startswith("#") and number != made[last][0]

    def _assumed(
        self, found: dict[Source, Explanation], spot: Spot, name: str
    ) -> dict[Source, Explanation]:
        """Return what a person takes for granted: the plain explanations, else a constant."""
        kept = {
            source: one
            for source, one in found.items()
            if self._is_plain(source, one, spot, name, rivals=len(found))
        }
        # Whether a number is one that was known, or the same in every run, has to be asked.
        is_open = is_number(spot.value) and any(
            isinstance(source, FromInput)
            or (one.parts and has_bits([part.spots[0].value for part in one.parts]))
            for source, one in found.items()
        )
        if not kept and not is_open and is_constant(spot.value, spot.example, spot.before):
            return constant(spot)
        return kept

    @staticmethod
    def _is_plain(source: Source, one: Explanation, spot: Spot, name: str, *, rivals: int) -> bool:
        """Return whether a person would take an explanation for granted."""
        value, example = spot.value, spot.example
        if isinstance(source, FromInput):
            return is_given(value, last_name(source.place), name, example, spot.before)
        if isinstance(source, FromRead):
            return not is_small(value) or one.named > 0 or _is_computed_by(source, example)
        numbers = numbers_before(spot) if isinstance(source, FromNumbers) else ()
        return isinstance(value, str) or is_computed(value, one.net, numbers, rivals)

    def _explain_by_computing(self, spot: Spot, name: str) -> dict[Source, Explanation]:
        """Return what a number or a date may be computed from."""
        if is_number(spot.value):
            return self._explain_by_numbers(spot) | self._explain_by_lists(spot, name)
        return self._explain_by_days(spot) if is_date(spot.value) else {}

    def _explain_by_numbers(self, spot: Spot) -> dict[Source, Explanation]:
        """Return the pairs of numbers that a number may be computed from."""
        known = self._operands(spot, numbers_before(spot))
        found: dict[Source, Explanation] = {}
        cost = math.log2(1 + 3 * len(known) ** 2)
        for left, (one, by) in known.items():
            for right, (other, by_other) in known.items():
                for sign in ("*", "+", "-"):
                    is_turned = sign != "-" and str(left) > str(right)
                    if left == right or is_turned or not is_telling(sign, one, other):
                        continue
                    if key_of(computed(sign, one, other)) == key_of(spot.value):
                        source = FromNumbers(sign, left, right)
                        found[source] = Explanation(source, spot, cost, parts=[by, by_other])
        self._take_operands(spot, found)
        return found

    def _explain_by_days(self, spot: Spot) -> dict[Source, Explanation]:
        """Return the dates and the numbers of days after them that a date may be."""
        dates = self._operands(spot, dates_before(spot))
        numbers = self._operands(spot, [one for one in numbers_before(spot) if one])
        found: dict[Source, Explanation] = {}
        for left, (one, by) in dates.items():
            for right, (other, by_other) in numbers.items():
                if computed("later", one, other) == spot.value:
                    source = FromNumbers("later", left, right)
                    made = Explanation(source, spot, parts=[by, by_other])
                    # Of two dates of one year many a number is the difference.
                    made.bits = dict.fromkeys(made.bits, BITS_OF_DAYS)
                    made.cost = math.log2(1 + len(dates) * len(numbers))
                    found[source] = made
        self._take_operands(spot, found)
        return found

    def _operands(
        self, spot: Spot, values: Sequence[Any]
    ) -> "dict[FromInput | FromRead, tuple[Any, Explanation]]":
        """Return what may have been computed with, by where it comes from."""
        known: dict[FromInput | FromRead, tuple[Any, Explanation]] = {}
        for value in values:
            operand = spot._replace(value=value)
            for source, one in self.explain(operand, "", is_part=True, is_operand=True).items():
                if isinstance(source, FromInput | FromRead):
                    known[source] = value, one
        return known

    def _take_operands(self, spot: Spot, found: dict[Source, Explanation]) -> None:
        """Use the reads of what was computed with."""
        for value in {part.spots[0].value for one in found.values() for part in one.parts}:
            self.explain(spot._replace(value=value), "", is_part=True)

    def _explain_by_lists(self, spot: Spot, name: str) -> dict[Source, Explanation]:
        """Return the lists whose sum or length a number may be."""
        found: dict[Source, Explanation] = {}
        tried = 1
        for items, _, names in lists_before(spot):
            for form in totals_of(items):
                is_named = form != COUNT or is_called(names, name)
                tried += 1
                made = applied(form, items)
                if made is None or not same(round(made, 6), spot.value):
                    continue
                for source, one in self.explain(spot._replace(value=items), "").items():
                    if isinstance(source, FromInput | FromRead):
                        total_of = FromForm(form, source)
                        named = 0.0 if form != COUNT else NAMED_ALIKE if is_named else -UNNAMED
                        found[total_of] = Explanation(total_of, spot, named=named, parts=[one])
        for one in found.values():
            one.cost = math.log2(tried)
        return found

    def _explain_by_texts(self, spot: Spot) -> dict[Source, Explanation]:
        """Return the texts in which a value stands, found by the wording around it."""
        found: dict[Source, Explanation] = {}
        if is_date(spot.value):
            return found
        is_few = is_small(spot.value)
        for text in (one for one in texts_before(spot) if not is_few or is_measure(one)):
            for form in part_forms(text, spot.value):
                whole = spot._replace(value=text)
                for source, one in self.explain(whole, "", is_part=True).items():
                    if isinstance(source, FromRead):
                        part = FromForm(form, source)
                        found[part] = Explanation(part, spot, parts=[one])
        return found

    def _explain_by_edits(self, spot: Spot) -> dict[Source, Explanation]:
        """Return how a text differs from one that was read in one value only."""
        found: dict[Source, Explanation] = {}
        reads = enumerate(spot.example.reads[: spot.before])
        for number, read in reads if isinstance(spot.value, str) else ():
            if not isinstance(read.raw, str) or read.tool.startswith("#"):
                continue
            for old, new in _edits(read, spot.value):
                pairs = [
                    self.explain(spot._replace(value=one), "", is_part=True) for one in (old, new)
                ]
                for one, by in pairs[0].items():
                    for other, by_other in pairs[1].items():
                        if isinstance(one, FromRead) and isinstance(other, FromInput | FromRead):
                            edit = FromEdit(spot.example.role(number, spot.turn), one, other)
                            found[edit] = Explanation(edit, spot, parts=[by, by_other])
        return found

    def _build(self, leaf: Leaf) -> None:
        """Find the known values that a text is made of, unless it is explained as a whole."""
        if leaf.built or not all(isinstance(spot.value, str) for spot in leaf.spots):
            return
        whole = [one for one in leaf.explanations.values() if not isinstance(one.source, Constant)]
        count = len({id(spot.example) for spot in leaf.spots})
        if not leaf.spots or any(one.examples >= SHARE * count for one in whole):
            return
        leaf.built = [
            self._piece(one) if isinstance(one, list) else one for one in self._skeleton(leaf)
        ]
        if not leaf.built and not self.caution.by_person:
            leaf.built = self._phrased(leaf)
        if len(leaf.built) == 1 and isinstance(leaf.built[0], Leaf) and leaf.built[0].asked:
            leaf.built, leaf.explanations = [], {}
        if all(isinstance(piece, str) for piece in leaf.built):
            leaf.built = []
        elif self.caution.by_person:
            leaf.explanations = {}

    def _piece(self, parts: Sequence[Part]) -> str | Leaf:
        """Return the leaf of a known value in a text; the text itself if it is there by chance."""
        inner = Leaf()
        for part in parts:
            inner.add(self.is_refuted, part.spot, self._explain_piece(part))
            inner.values += part.values
        texts = {part.spot.value for part in parts}
        examples = {id(part.spot.example) for part in parts}
        is_chance = all(one.net <= 0 for one in inner.explanations.values())
        return str(texts.pop()) if is_chance and len(texts) == 1 < len(examples) else inner

    def _phrased(self, leaf: Leaf) -> list[str | Leaf]:
        """Return the pieces of a text with a phrase about an input that is not always given.

        One recording does not show how the words around a value go with another one, unless signs
        set it off from them, as in `Bring: boots.`; then the phrase is never there.
        """
        spots = leaf.spots
        for name in dict.fromkeys(name for spot in spots for name in spot.example.inputs):
            having = [n for n, spot in enumerate(spots) if name in spot.example.inputs]
            found = with_phrase(spots, having) if 0 < len(having) < len(spots) else None
            if found is None:
                continue
            phrase = Leaf()
            phrase.given = name
            texts = {n: _text(found[1], at) for at, n in enumerate(having)}
            phrase.spots = [spot._replace(value=texts.get(n, "")) for n, spot in enumerate(spots)]
            before, inside, after = (
                [one if isinstance(one, str) else self._piece(one) for one in pieces]
                for pieces in found
            )
            told = {id(spots[one].example) for one in having}
            if len(told) > 1 or is_set_off(inside):
                phrase.built = inside
            return [*before, phrase, *after]
        return []

    def _skeleton(self, leaf: Leaf) -> "Iterator[str | list[Part] | Leaf]":
        """Yield the pieces of a text; where a person compiles, what varies is asked for."""
        pieces = skeleton(leaf.spots)
        if not self.caution.by_person:
            yield from pieces
            return
        if has_copy(leaf.spots):
            leaf.explanations = {}
            return
        texts = {spot.value for spot in leaf.spots}
        if not pieces and len(texts) == 1:
            pieces = [*texts]
        for piece in pieces:
            if not isinstance(piece, str):
                yield piece
                continue
            end = 0
            for start, stop in varying(piece, leaf.spots):
                if start > end:
                    yield piece[end:start]
                asked = Leaf()
                asked.asked = piece[start:stop]
                asked.spots = [spot._replace(value=asked.asked) for spot in leaf.spots]
                yield asked
                end = stop
            if end < len(piece):
                yield piece[end:]

    def _explain_piece(self, part: Part) -> dict[Source, Explanation]:
        """Return the explanations of a known value in a text, in whichever form it stands there."""
        found: dict[Source, Explanation] = {}
        for value, form in part.values:
            spot = part.spot._replace(value=value)
            for source, one in self.explain(spot, "", is_part=True).items():
                if isinstance(source, FromInput | FromRead):
                    if form is None:
                        one.spots = [part.spot]
                        found[source] = one
                    else:
                        made = FromForm(form, source)
                        found[made] = Explanation(made, part.spot, one.cost, parts=[one])
        return found

    def _explain_by_read(
        self, found: dict[Source, Explanation], spot: Spot, number: int, cost: float, name: str
    ) -> None:
        example, turn, before, value = spot
        read = example.reads[number]
        role = example.role(number, turn)
        by_place: dict[Place, list[Path]] = defaultdict(list)
        for place, path in read.paths(value):
            by_place[place].append(path)
        for place, paths in by_place.items():
            source = FromRead(role, place)
            new = Explanation(source, spot, cost, named_alike(place, name, read.tool))
            new.choice = math.log2(max(1, example.alternatives(read.tool, place, before)))
            new.atoms = self._atoms(example, turn, read.result, place, paths)
            old = found.setdefault(source, new)
            old.atoms = [
                {atom: bits for atom, bits in own.items() if atom in more}
                for own, more in zip(old.atoms, new.atoms, strict=True)
            ]

    @staticmethod
    def _is_taken(spot: Spot, read: Read, name: str, *, is_common: bool) -> bool:
        """Return whether a value may come from a read.

        In a round of a loop a word that stands in many records does not show which one it is from.
        """
        is_telling = information(spot.value) >= ENOUGH_TO_ACT
        is_telling |= any(
            named_alike(place, name, read.tool) for place, _ in read.paths(spot.value)
        )
        return spot.turn is None or (is_telling and not is_common)

    @staticmethod
    def _is_common(spot: Spot) -> bool:
        """Return whether several reads of one tool have a value."""
        tools = Counter(read.tool for _, read in spot.example.having(spot.value, spot.before))
        return max(tools.values(), default=0) > 1

    def _note_named(self, found: dict[Source, Explanation], tool: str) -> None:
        """Note which values a tool is about, whatever its argument is called."""
        for source, one in found.items() if not self.caution.by_person else ():
            if isinstance(source, FromRead) and is_about(tool, last_name(source.place)):
                one.named = NAMED_ALIKE

    @staticmethod
    def _note_unnamed(found: dict[Source, Explanation], spot: Spot) -> None:
        """Note how large a choice was that no input names."""
        most, is_listed = 0.0, False
        for one in found.values():
            source = one.source
            if not isinstance(source, FromRead) or not marks_in(source.place) or any(one.atoms):
                continue
            is_listed = True
            for _, read in spot.example.having(spot.value, spot.before):
                if read.tool == source.role.tool:
                    values = read.by_place.get(source.place, ())
                    most = max(most, math.log2(max(1, len(values))))
        for one in found.values() if is_listed else ():
            one.unnamed = {id(spot.example): most}

    def _take_from(self, spot: Spot, holders: Sequence[int]) -> None:
        """Use the reads that have a value; wait where an example read several for one purpose."""
        example, turn, _, value = spot
        purposes: dict[Role, list[int]] = defaultdict(list)
        for number in holders:
            purposes[example.role(number, turn)].append(number)
        for role, numbers in purposes.items():
            args = {key_of(example.reads[number].args) for number in numbers}
            if len(args) > 1 and role.write is None:
                telling = {key_of(value)} if information(value) >= ENOUGH_TO_ACT else set()
                for number in numbers:
                    self._several[example, turn, role][number] |= telling
            else:
                for number in numbers:
                    self.use(example, turn, number, role)

    def known_before(self, spot: Spot, listed: int, chosen: Any) -> dict[FromInput | FromRead, Any]:
        """Return the values by which an element of a list may have been chosen.

        listed: the number of the read that returned the list. What was read by what the chosen
        element says, or by that in turn, can't be the reason to choose it.
        """
        example, turn = spot.example, spot.turn
        found: dict[FromInput | FromRead, Any] = {
            FromInput(place): value
            for place, value in example.said(turn).leaves
            if are_comparable(value, value)
        }
        after = {key_of(value) for _, value in plain(chosen) if is_code(value)}
        for number, read in enumerate(example.reads[: spot.before]):
            if number > listed and any(key_of(value) in after for value in read.args.values()):
                after |= {key_of(value) for _, value in plain(read.result) if is_code(value)}
                continue
            role = example.role(number, turn)
            is_used = {(id(example), one, number) for one in (None, turn)} & self._used
            if role.write is None and (is_used or len(example.by_tool[read.tool]) == 1):
                for place, value in plain(read.result):
                    if can_limit(value):
                        found.setdefault(FromRead(role, place), value)
                if role != example.role(listed, turn):
                    for source, value in self._of_elements(spot, role, read).items():
                        found.setdefault(source, value)
        return found

    def _of_elements(self, spot: Spot, role: Role, read: Read) -> dict[FromRead, Any]:
        """Return the values of those elements of a result that were chosen for something else."""
        found: dict[FromRead, Any] = {}
        for place, carrier in self.carriers.get(role, {}).items():
            values = [
                one.value
                for one in carrier.spots
                if one.example is spot.example and one.turn in (None, spot.turn)
            ]
            paths = [
                path for value in values for where, path in read.paths(value) if where == place
            ]
            if len(paths) == 1:
                (depth,) = marks_in(place)
                element = follow(read.result, paths[0][: depth + 1])
                for field, value in plain(element):
                    if can_limit(value):
                        found[FromRead(role, (*place[: depth + 1], *field))] = value
        return found

    @cached_property
    def carriers(self) -> dict[Role, dict[Place, Explanation]]:
        """The explanations that choose an element of a list: by role, and by the place they take.

        What else such an element has is known with it.
        """
        found: dict[Role, dict[Place, Explanation]] = defaultdict(dict)
        for leaf in self._leaves():
            for source, one in leaf.explanations.items():
                if isinstance(source, FromRead) and len(marks_in(source.place)) == 1:
                    old = found[source.role].get(source.place)
                    if old is None or len(one.spots) > len(old.spots):
                        found[source.role][source.place] = one
        return found

    def carrier(self, source: FromRead) -> Explanation | None:
        """Return the explanation that chooses the element of a list in which a place is."""
        cut = marks_in(source.place)[0] + 1
        fits = [
            one
            for place, one in self.carriers.get(source.role, {}).items()
            if place[:cut] == source.place[:cut]
        ]
        return max(fits, key=lambda one: (len(one.spots), one.net), default=None)

    def _settle_several(self) -> None:
        """Use, of several reads for one purpose, the one that has all values that were taken.

        Somebody looked at all orders and then acted on one. If several have all the values, it is
        the one that inputs and the other examples name.
        """
        while self._several:
            (example, turn, role), taken = self._several.popitem()
            if any((id(example), turn, number) in self._used for number in taken):
                continue
            wanted = set().union(*taken.values())
            whole = [one for one in taken if wanted <= example.reads[one].index.keys()]
            for number in [max(whole, key=self._fit_of(example, turn, role))] if whole else taken:
                self.use(example, turn, number, role)

    def _fit_of(
        self, example: Example, turn: Turn | None, role: Role
    ) -> Callable[[int], tuple[int, float]]:
        """Return how well a read agrees with those of other examples, and with the inputs."""
        known = self.roles.get(role, {})

        def fit(number: int) -> tuple[int, float]:
            shared, bits = 0, 0.0
            for name, value in example.reads[number].args.items():
                spot = Spot(example, turn, number, value)
                for source, one in self.explain(spot, name).items():
                    bits = max(bits, sum(sum(each.values()) for each in one.atoms))
                    other = known[name].explanations.get(source) if name in known else None
                    if other is not None:
                        pairs = zip(one.atoms, other.atoms, strict=True)
                        shared += 1 + sum(len({*own} & {*more}) for own, more in pairs)
                        shared += self._alike(source, spot, other.spots)
            return shared, bits

        return fit

    def _alike(self, source: Source, spot: Spot, others: Sequence[Spot]) -> int:
        """Return how many words of the element of a list are those that others always had."""
        if not isinstance(source, FromRead) or len(marks_in(source.place)) != 1:
            return 0
        taken = [self._element(source, one) for one in others[:TRIED]]
        own = self._element(source, spot)
        return sum(same(at(own, field), value) for field, value in fixed_fields(taken).items())

    @staticmethod
    def _element(source: FromRead, spot: Spot) -> Any:
        """Return the element of a list in which a value was found."""
        (depth,) = marks_in(source.place)
        for number, read in spot.example.holding(spot.value, spot.before):
            if spot.example.role(number, spot.turn) == source.role:
                for place, path in read.paths(spot.value):
                    if place == source.place:
                        return follow(read.result, path[: depth + 1])
        return MISSING

    def use(self, example: Example, turn: Turn | None, number: int, role: Role) -> None:
        """Explain the arguments of a read that matters."""
        if (id(example), turn, number) in self._used:
            return
        self._used.add((id(example), turn, number))
        read = example.reads[number]
        self.reads[role].append((example, turn, read))
        self.roles.setdefault(role, defaultdict(Leaf))
        for name, value in read.args.items():
            spot = Spot(example, turn, number, value)
            self.roles[role][name].add(self.is_refuted, spot, self.explain(spot, name))

    def _atoms(
        self, example: Example, turn: Turn | None, result: Any, place: Place, paths: list[Path]
    ) -> list[dict[Atom, float]]:
        """Return, by list on the way, what inputs say about the chosen element."""
        found = []
        for depth in marks_in(place):
            # Of several elements with the value one was chosen: what inputs say of any may count.
            here: dict[Atom, float] = {}
            for path in paths:
                holder = follow(result, path[:depth])
                here |= self._atoms_of(
                    example, turn, holder[path[depth]], path[depth], is_keyed=place[depth] is RECORD
                )
            found.append(here)
        return found

    @staticmethod
    def _atoms_of(
        example: Example, turn: Turn | None, element: Any, key: Any, *, is_keyed: bool
    ) -> dict[Atom, float]:
        """Return what inputs say about one element, in bits."""
        said = example.said(turn, beside=element)
        cost = math.log2(1 + len(said.leaves))
        found = {
            atom: bits
            for field, record in records(element)
            for atom, bits in _record_atoms(said, field, record, cost)
        }
        inside = [(atom.field, where) for atom in found for where in (atom.input, atom.changes)]
        scalars = [(place, one) for place, one in said.leaves if is_scalar(one)]
        for field, value in plain(element):
            for place, wanted in scalars:
                is_told = any(
                    field[: len(outer)] == outer and where and place[: len(where)] == where
                    for outer, where in inside
                )
                if same(wanted, value) and not is_told:
                    found[Atom("equals", field, place)] = information(value) - cost
        for place, wanted in scalars if is_keyed else ():
            if same(wanted, key):
                found[Atom("key", (), place)] = information(wanted) - cost
        return found

    def is_refuted(self, explanation: Explanation, spot: Spot) -> bool:
        """Return whether all that it needs was recorded, and it gives something else."""
        values = self.evaluate(explanation, spot)
        return values is not None and key_of(spot.value) not in map(key_of, values)

    def evaluate(
        self, explanation: Explanation, spot: Spot, depth: int = MOST_READS
    ) -> list[Any] | None:
        """Return the values that it gives; None if something that it needs was not recorded."""
        source, example, turn = explanation.source, spot.example, spot.turn
        if isinstance(source, Constant):
            return [explanation.spots[0].value]
        if isinstance(source, FromInput):
            value = at(example.scope, source.place, None if turn is None else turn.number)
            # An input that was not given can't have been the source here.
            return [] if value is MISSING else [value]
        if isinstance(source, FromForm | FromNumbers | FromEdit):
            return self._evaluate_parts(explanation, spot, depth)
        if depth == 0:
            return None
        wanted: dict[str, set[Key]] = {}
        for name, leaf in self.roles[source.role].items():
            wanted[name] = set()
            for one in leaf.explanations.values():
                if not isinstance(one.source, Constant):
                    found = self.evaluate(one, spot, depth - 1) or ()
                    wanted[name].update(map(key_of, found))
            if not wanted[name]:
                return None
        return self._evaluate_reads(explanation, source, spot, wanted)

    def _evaluate_parts(self, explanation: Explanation, spot: Spot, depth: int) -> list[Any] | None:
        parts = [self.evaluate(one, spot, depth) for one in explanation.parts]
        known = [one for one in parts if one is not None]
        if len(known) < len(parts):
            return None
        source = explanation.source
        if isinstance(source, FromForm):
            return [applied(source.form, value) for value in known[0]]
        if isinstance(source, FromEdit):
            texts = [
                read.raw
                for number, read in spot.example.by_tool[source.role.tool]
                if spot.example.role(number, spot.turn) == source.role
            ]
            return [text.replace(o, n) for text in texts for o in known[0] for n in known[1]]
        assert isinstance(source, FromNumbers)
        made = (computed(source.sign, one, other) for one in known[0] for other in known[1])
        return [one for one in made if one is not MISSING]

    @staticmethod
    def _evaluate_reads(
        explanation: Explanation, source: FromRead, spot: Spot, wanted: dict[str, set[Key]]
    ) -> list[Any] | None:
        found: list[Any] = []
        is_made = False
        for number, read in spot.example.by_tool[source.role.tool]:
            if number >= spot.before or read.args.keys() != wanted.keys():
                continue
            if all(key_of(value) in wanted[name] for name, value in read.args.items()):
                is_made = True
                found += descend(read.result, source.place, explanation.atoms, spot)
        return found if is_made else None


def can_limit(value: Any) -> bool:
    """Return whether an element of a list may be chosen by a value: a word, an id, a measure."""
    return is_word(value) or is_code(value) or are_comparable(value, value)


def _text(pieces: Pieces, number: int) -> str:
    """Return one of the texts that have these pieces."""
    return "".join(one if isinstance(one, str) else one[number].spot.value for one in pieces)


def _record_atoms(
    said: Said, field: Place, record: Json, cost: float
) -> Iterator[tuple[Atom, float]]:
    """Yield what records of the inputs say about a record of an element."""
    for place, wanted in said.records:
        if not is_flat(wanted):
            continue
        if covers(record, wanted):
            bits = sum(map(information, wanted.values())) - cost
            yield Atom("covers", field, place), bits
        for other, changes in said.records:
            if other != place and is_merged(wanted, changes, record):
                bits = max(0.0, sum(map(information, record.values())) - cost)
                # Changing all fields is no change of a record.
                is_telling = len(changes) < len(wanted)
                yield Atom("merges", field, place, other), bits if is_telling else 0.0


def _gives(read: Read, value: Any, said: Sequence[Any]) -> bool:
    """Return whether a read gives a value; of several elements, one that inputs speak of."""
    if not read.holds(value) or not isinstance(read.result, list) or len(read.result) == 1:
        return read.holds(value)
    return any(
        key_of(value) in values and any(key_of(one) in values for one in said)
        for element in read.result
        for values in [{key_of(one) for _, one in plain(element)}]
    )


def _has_plain_output(example: Example) -> bool:
    """Return whether an example ended with a value; an agent's words about its writes are none."""
    if example.output is None:
        return False
    return not (example.writes and isinstance(example.output, str) and " " in example.output)


def named_alike(place: Place, name: str, tool: str = "") -> float:
    """Return what it says that an argument is called like a place, or like a thing and its place.

    `order_id` and `order` are named like the `id` of what `create_order` returned.
    """
    if not name or folded(last_name(place)) == folded(name):
        return NAMED_ALIKE if name else 0.0
    own, thing = {*words_of(name)}, {*words_of(tool)}
    is_of_thing = bool(own & thing) and (not place or own <= thing | {*words_of(last_name(place))})
    return NAMED_ALIKE if is_of_thing else 0.0


def _is_computed_by(source: FromRead, example: Example) -> bool:
    """Return whether a value is the whole result of a function: it was called to compute it."""
    return source.place == () and any(
        call.is_udf and call.tool == source.role.tool for call in example.calls
    )


def _edits(read: Read, text: str) -> Iterator[tuple[str, str]]:
    """Yield the values (old, new) of which replacing the one by the other gives a text.

    old: a value of what was read that stands in its text once.
    """
    raw = read.raw
    if len(raw) < SHORTEST_EDITED or raw == text:
        return
    for _, _, old in walk(read.result):
        if not isinstance(old, str) or not old or old == raw or raw.count(old) != 1:
            continue
        before, _, after = raw.partition(old)
        is_edit = text.startswith(before) and text.endswith(after)
        if is_edit and len(text) >= len(before) + len(after):
            yield old, text[len(before) : len(text) - len(after)]
