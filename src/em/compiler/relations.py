"""Relations: what held between records and inputs in every recording, and must hold again.

A few plain forms: an identifier in one record is what another one was found by; two fields are
equal; a number or date is never above or below another one; a word is always, or never, in a list,
or always in a text; nothing in a list is what the task is about; no more time goes by between a
moment in a record and the time that was read than a number beside it says, or than was ever seen.
Whether chance explains it is decided by pairing the values of one recording with those of another.
"""

import json
import math
import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain, combinations, permutations
from typing import Any, NamedTuple

from em.compiler.choice import Choice, Row
from em.compiler.evidence import (
    ENOUGH_TO_ACT,
    ENOUGH_TO_CHECK,
    NAMED_ALIKE,
    information,
    is_small,
)
from em.compiler.example import Example, Read, Role, Turn
from em.compiler.explanation import SHARE
from em.compiler.facts import has_parts, pattern_of
from em.compiler.memberships import all_are, lists_of, memberships, mentions
from em.compiler.places import (
    ELEMENT,
    Key,
    are_comparable,
    is_code,
    is_number,
    is_scalar,
    is_word,
    key_of,
)
from em.compiler.situation import (
    LENGTH,
    Known,
    Pair,
    Said,
    Situation,
    are_named_alike,
    bare,
    can_be_computed_with,
    equal_text,
    fields,
    is_nested,
    read_off,
    said_in,
    surprise_of,
)
from em.compiler.steps import Block, Writer
from em.compiler.term import field_text, fits_text
from em.runner.expressions.functions import SECONDS, days, elapsed
from em.values.canonical import Json, same
from em.values.times import is_clock, is_date, is_month, seconds_of

ENOUGH_NESTED = 8
"""Examples from which on a field of a record inside another one may identify something."""
RARELY_BROKEN = 0.2
"""Bits for each pair up to which a relation is so common that checking it stops few runs."""
RARELY_BY_CHANCE, ENOUGH_TO_KEEP = 0.1, 3.0
"""Bits for each pair, and of all, between which an order may have held by chance."""
IN_REACH = 3
"""So many times the most that a write took is no limit of it."""
DAY = "[:10]"
"""The day of a moment."""
FEWEST_UNLIKE = 3
"""Lists of several identifiers, before none may stand there twice."""
ENOUGH_VARIED, FEWEST_VARIED = 6, 3
"""Recordings, and different values in them, that show what two places of a record share."""
MOST_ALIKE = 30
"""Places with one value that are compared with each other."""
MOST_RESULTS = 12
"""Numbers, and dates, of one record with which is computed."""
FEWEST_RESULTS = 4
"""Different values of a number before it is what others come to."""
TELLING = 16.0
"""Bits of fewer values that are no chance either."""
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
MOST_NEAR = 15
"""Values next to each other in size that are compared."""
NEARLY = 0.1
"""The share of a limit within which a value comes close to it."""
A_YEAR = 366 * 86_400.0
"""Seconds within which two dates may be a limit for each other."""


class Relations:
    """Finds relations between what a writer's steps have read, and writes them as checks.

    writer: all its reads are written. args: the arguments of its writes.
    """

    def __init__(self, writer: Writer, args: Sequence[Json]) -> None:
        self._writer = writer
        self._lets = [*writer.lets]
        steps = [*writer.read_steps.values(), *self._lets]
        self._args = args
        self._written = json.dumps([*args])
        self._searched = json.dumps([step["value"] for step, _ in writer.picks])
        self._used = json.dumps([step.get("args", step.get("value")) for step in steps])

    def write(self) -> None:
        """Write all relations that hold in every example, and in every round of every loop."""
        for block in (None, *self._writer.blocks):
            # The same task recorded twice says no more than once.
            found = {key_of(one.told): one for one in self._situations(block)}
            situations = [*found.values()]
            if situations:
                for relation in _RELATIONS:
                    for text, pairs in relation(situations):
                        self._write(text, pairs, block)
                for text, pairs in windows(situations, self.is_used, self._bounded()):
                    self._write(text, pairs, block)
        for step, choice in self._writer.picks:
            block = next((one for one in self._writer.blocks if step in one.steps), None)
            for text, pairs in _orders_inside(str(step["save_as"]), choice):
                self._write(text, pairs, block)
            if block is None:
                for text, pairs in self._orders_of_choice(str(step["save_as"]), choice):
                    self._write(text, pairs, None)

    def is_used(self, text: str) -> bool:
        """Return whether a call or a selection is given what an expression says."""
        return stands_in(text, self._used) or stands_in(text, self._written)

    def _bounded(self) -> Iterator[str]:
        """Yield the expressions of which a check says that they are not above another one."""
        for step in self._writer.top:
            left, sign, right = _sides(str(step.get("check", "")))
            if sign:
                yield left if "<" in sign else right

    def _orders_of_choice(self, name: str, choice: Choice) -> "Found":
        """Yield an order of a field and of something known that chosen elements kept, others not.

        It may be why they were chosen: nothing else shows that the next one keeps to it too.
        """
        rows = [row for row in choice.rows if isinstance(row.chosen, dict)]
        told = [self._numbers(row.spot.example, name) for row in rows]
        fields = [
            field for field, value in (rows[0].chosen if rows else {}).items() if is_number(value)
        ]
        for field in fields:
            for text in (one for one in told[0] if all(one in each for each in told)):
                pairs, beside = [], []
                for row, each in zip(rows, told, strict=True):
                    pairs += _field_pairs([{**row.chosen, "": each[text]}], field, "")
                    others = [one for one in row.elements if one is not row.chosen]
                    made = [{**one, "": each[text]} for one in others if isinstance(one, dict)]
                    beside += _field_pairs(made, field, "")
                sign = _kept(pairs, beside) or _nearly_reached(pairs, beside)
                if sign and len(pairs) == len(rows):
                    yield f"{field_text(name, (field,))} {sign} {text}", pairs

    def _numbers(self, example: Example, but: str) -> dict[str, Any]:
        """Return the numbers that are known in an example, by their expressions."""
        inputs = self._inputs(example, None, None).values()
        found = {one.text: one.value for one in inputs if is_number(one.value) and not one.when}
        for known in self.known(example):
            if known.name != but and not known.when:
                found |= {text: value for text, value in fields(known) if is_number(value)}
        return found

    def known(self, example: Example) -> list[Known]:
        """Return the records that the routine has in an example, outside of loops."""
        return [*self._known_in(example, None, self._writer.top)]

    def _situations(self, block: Block | None) -> Iterator[Situation]:
        for example in self._writer.examples:
            if block is None:
                known = [*self._known_in(example, None, self._writer.top)]
                inputs = self._inputs(example, None, None)
                yield Situation(inputs, known, frozenset(), self._taken(example), self._written)
                continue
            own = frozenset(block.names)
            outer = [*self._known_in(example, None, self._writer.top)]
            for turn in [turn for turn in example.turns if turn is not None]:
                inner = [*self._known_in(example, turn, block.steps)]
                if inner:
                    inputs = self._inputs(example, turn, block)
                    yield Situation(inputs, [*outer, *inner], own)

    def _taken(self, example: Example) -> dict[str, Said]:
        """Return the numbers that writes take which are made once, by their expressions."""
        found: dict[str, Said] = {}
        space = self._writer.space
        for slot, args, made in zip(space.slots, self._args, space.rounds(example), strict=True):
            for name, text in args.items() if made and not slot.is_repeated else ():
                value = made[0].args.get(name)
                is_expression = isinstance(text, str) and text.startswith("{{ ")
                if is_number(value) and is_expression and "}}" not in text[:-2]:
                    bare = text[3:-3]
                    own = bare if _REFERENCE.fullmatch(bare) else f"({bare})"
                    found[own] = Said(own, value)
        return found

    def _inputs(self, example: Example, turn: Turn | None, block: Block | None) -> dict[str, Said]:
        found: dict[str, Said] = {}
        for place, value in example.said(turn).leaves:
            is_here = ELEMENT not in place or (
                block is not None and place[: place.index(ELEMENT)] in block.over
            )
            if is_here:
                text = self._writer.input_text(place)
                is_certain = ELEMENT in place or place in self._writer.always
                when = "" if is_certain else f"given({text})"
                # How many elements there are may be limited.
                is_list = isinstance(value, list)
                one = f"{text}{LENGTH}" if is_list else text
                found[one] = Said(one, len(value) if is_list else value, when)
        return found

    @cached_property
    def _reads(self) -> dict[Role, dict[tuple[int, Turn | None], list[Read]]]:
        """The reads of each role by example and round; those of all rounds have none."""
        found: dict[Role, dict[tuple[int, Turn | None], list[Read]]] = {}
        for role in self._writer.read_steps:
            by_round = found[role] = defaultdict(list)
            for example, turn, read in self._writer.space.reads[role]:
                for one in {turn, None}:
                    by_round[id(example), one].append(read)
        return found

    def _known_in(
        self, example: Example, turn: Turn | None, steps: Sequence[Json]
    ) -> Iterator[Known]:
        writer = self._writer
        # A name that is saved in several ways is always there.
        times = Counter(step.get("save_as") for step in steps)
        here = {id(step) for step in steps}
        for role, step in writer.read_steps.items():
            if id(step) not in here:
                continue
            name = writer.step_of(role)["save_as"]
            when = step.get("when", "") if times[name] == 1 else ""
            reads = self._reads[role].get((id(example), turn))
            if reads:
                by_name = [*_asked(step, reads[0].args)]
                asked = {str(text)[3:-3]: value for _, text, value in by_name}
                named = {str(text)[3:-3]: {one} for one, text, _ in by_name}
                own = step.get("when", "")
                is_searched = stands_in(name, self._searched)
                yield Known(name, reads[0].result, asked, when, own, not asked, named, is_searched)
        for step, choice in writer.picks:
            if id(step) in here:
                rows = [
                    row
                    for row in choice.rows
                    if row.spot.example is example and (turn is None or row.spot.turn == turn)
                ]
                if rows:
                    asked, named = self._asked_for(rows[0])
                    when = step.get("when", "")
                    yield Known(step["save_as"], rows[0].chosen, asked, when, when, named=named)

    def _asked_for(self, row: Row) -> tuple[dict[str, Any], dict[str, set[str]]]:
        """Return what the list was asked by that an element was chosen from."""
        example, number = row.spot.example, row.listed
        for turn in (row.spot.turn, None):
            step = self._writer.read_steps.get(example.role(number, turn))
            if step is not None:
                found = [*_asked(step, example.reads[number].args)]
                asked = {str(text)[3:-3]: value for _, text, value in found}
                return asked, {str(text)[3:-3]: {name} for name, text, _ in found}
        return {}, {}

    def _write(self, text: str, pairs: Sequence[Pair], block: Block | None) -> None:
        step: Json = {"type": "assert", "check": text}
        conditions = sorted({one for pair in pairs for one in pair.when})
        if conditions:
            step["when"] = " and ".join(conditions)
        if not self._is_told(text):
            held = min(len(pairs), len(self._writer.examples))
            self._writer.add_check(step, held, block)

    def _is_told(self, text: str) -> bool:
        """Return whether a step says so already: it names one side after the other, or by it."""
        one, sign, other = _sides(text)
        for step in self._lets:
            value, name = str(step["value"])[3:-3], step["save_as"]
            if {one, other} == {value, name}:
                return True
            for left, right in ((one, other), (other, one)):
                if left.startswith(f"{name}.") and sign and f"({right})" in value:
                    field = left.removeprefix(f"{name}.")
                    if f"{field}=at_" in value:
                        return True
        return False


def stands_in(text: str, said: str) -> bool:
    """Return whether an expression stands in others."""
    return re.search(rf"(?<![\w.]){re.escape(text)}(?!\w)", said) is not None


def _sides(text: str) -> tuple[str, str, str]:
    """Return what a check compares, and its sign between them."""
    return next((text.partition(sign) for sign in _SIGNS if sign in text), ("", "", ""))


_SIGNS = (" == ", " <= ", " >= ", " < ", " > ")
Found = Iterator[tuple[str, list[Pair]]]


def _echoes(situations: Sequence[Situation]) -> Found:
    """Yield that a record says by which identifier it was asked for.

    A text that looks like no identifier is one all the same, if it differed between recordings and
    was in all of them what the record was asked for by. Of a list that was searched by a word, some
    elements may have more than this word.
    """
    facts: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    words: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for situation in situations:
        for known in (one for one in situation.known if _is_of_round(situation, one)):
            for text, value, asked, wanted in _asked_and_told(known):
                is_search = known.is_searched and text.startswith("every(")
                is_named = not is_search and _last_name(text) in known.named.get(asked, ())
                is_echo = (is_code(value) and is_code(wanted)) or (is_named and value == wanted)
                is_text = isinstance(value, str) and isinstance(wanted, str)
                if is_echo or (is_text and not text.startswith("every(")):
                    when = (known.asked_when,) if known.asked_when else ()
                    (facts if is_echo else words)[text, asked].append(Pair(value, wanted, when))
    for key, pairs in words.items():
        if len({pair.one for pair in pairs}) > 1:
            facts[key] += pairs
    for (text, asked), pairs in facts.items():
        if all(same(pair.one, pair.other) for pair in pairs):
            is_each = text.startswith("every(")
            yield (all_are(text, asked) if is_each else f"{text} == {asked}"), pairs


def _last_name(text: str) -> str:
    """Return the name of the field that an expression is about."""
    return re.split(r'[."]', text.removesuffix('")'))[-1]


def _asked_and_told(known: Known) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield each value of a record beside each one that it was asked for by, with expressions."""
    told = [*fields(known, nested=False)] if isinstance(known.record, dict) else []
    for text, value in (*told, *_same_in_each(known)):
        for asked, wanted in known.asked.items():
            yield text, value, asked, wanted


def _same_in_each(known: Known) -> Iterator[tuple[str, Any]]:
    """Yield what all elements of a list in a record say, by the expression of the list."""
    for text, values in lists_of(known.name, known.record):
        if text.startswith("every(") and all(same(one, values[0]) for one in values):
            yield text, values[0]


def _identifiers(situations: Sequence[Situation]) -> Found:
    """Yield that an identifier in one record is what another one was found by."""
    facts: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for situation in situations:
        for one in situation.known:
            for text, value in _own_codes(one, nested=len(situations) >= ENOUGH_NESTED):
                for other in situation.known:
                    if other.name != one.name and _is_of_round(situation, one, other):
                        _compare(facts, text, value, one, other)
    tried = math.log2(1 + len(facts))
    told: set[str] = set()
    for (text, other_text), pairs in facts.items():
        bits = sum({key_of(pair.one): information(pair.one) for pair in pairs}.values()) - tried
        if text in told or bits < ENOUGH_TO_ACT:
            continue
        if is_nested(text) and len(pairs) < len(situations):
            continue
        if all(same(pair.one, pair.other) for pair in pairs):
            told.add(text)
            yield f"{text} == {other_text}", pairs


def _is_of_round(situation: Situation, *known: Known) -> bool:
    """Return whether a relation belongs to a round: what is outside of it is checked once."""
    return not situation.own or any(one.name in situation.own for one in known)


def _own_codes(known: Known, *, nested: bool) -> Iterator[tuple[str, Any]]:
    """Yield the identifiers in a record that it was not read by."""
    for text, value in fields(known, nested=nested):
        if is_code(value) and not any(same(value, asked) for asked in known.asked.values()):
            yield text, value


def _compare(
    facts: dict[tuple[str, str], list[Pair]], text: str, value: Any, one: Known, other: Known
) -> None:
    bare = {} if isinstance(other.record, dict | list) else {other.name: other.record}
    for other_when, texts in ((other.asked_when, other.asked), (other.when, bare)):
        when = tuple(sorted({one.when, other_when} - {""}))
        for other_text, found in texts.items():
            if is_code(found) and other_text != text:
                facts[text, other_text].append(Pair(value, found, when))


def _comparable(
    situations: Sequence[Situation],
) -> dict[tuple[str, str], list[tuple[Said, Said]]]:
    """Return pairs of values that may limit each other, by their expressions.

    Of many values only those that are near to each other in size, or are given, can be a limit.
    """
    facts: dict[tuple[str, str], list[tuple[Said, Said]]] = defaultdict(list)
    told = [
        [one for one in own if are_comparable(one.value, one.value)] for own in read_off(situations)
    ]
    near = {
        pair for each, values in zip(situations, told, strict=True) for pair in _near(each, values)
    }
    order = {one.text: n for n, one in enumerate(chain(*reversed(told)))}
    ranked = sorted(near, key=lambda pair: (order[pair[0]], order[pair[1]]))
    for situation, values in zip(situations, told, strict=True):
        by_text, own = {one.text: one for one in values}, situation.own
        for text, other_text in ranked:
            if text in by_text and other_text in by_text:
                one, other = by_text[text], by_text[other_text]
                if not own or one.holder in own or other.holder in own:
                    facts[text, other_text].append((one, other))
    return facts


def _near(situation: Situation, values: Sequence[Said]) -> Iterator[tuple[str, str]]:
    """Yield the expressions of values that are near in size, and those that are given with all."""
    numbers = {one.text: n for n, one in enumerate(values)}
    kinds: dict[bool, list[Said]] = defaultdict(list)
    for one in sorted(values, key=lambda one: _as_number(one.value)):
        kinds[isinstance(one.value, str)].append(one)
    given = [one for one in values if one.text in situation.inputs]
    for kind in kinds.values():
        for n, one in enumerate(kind):
            for other in (*kind[n + 1 : n + 1 + MOST_NEAR], *given):
                first, second = sorted((one.text, other.text), key=numbers.__getitem__)
                if first != second:
                    yield first, second


def _as_pairs(rows: Sequence[tuple[Said, Said]]) -> list[Pair]:
    return [
        Pair(one.value, other.value, tuple(sorted({one.when, other.when} - {""})))
        for one, other in rows
    ]


def _equalities(situations: Sequence[Situation]) -> Found:
    """Yield that two values are equal, which those of other recordings would not be.

    Who pays is whose order it is. Texts in another case, and numbers that are written as texts,
    are the same. What repeats twice why it was read says nothing.
    """
    echoed = {text.partition(" == ")[0] for text, _ in _echoes(situations)}
    values = [
        {one.text: one for one in own if _may_be_equal(one.value)} for own in read_off(situations)
    ]
    tried = math.log2(1 + max(len(one) for one in values) ** 2 / 2)
    inputs = situations[0].inputs
    told: dict[str, str] = {}
    for text, other_text in _equal_in_some(situations, values):
        rows = [(one[text], one[other_text]) for one in values if {text, other_text} <= one.keys()]
        is_told = told.get(text, text) == told.get(other_text, other_text)
        if is_told or {text, other_text} <= echoed or len(rows) < SHARE * len(situations):
            continue
        pairs = [
            Pair(one.value, other.value, tuple(sorted({one.when, other.when} - {""})))
            for one, other in rows
        ]
        holders = {one.holder for one in rows[0]}
        is_inside = text.rpartition(".")[0] == other_text.rpartition(".")[0]
        is_deep = len(holders) == 1 and not is_inside and (is_nested(text) or is_nested(other_text))
        # Enough recordings with values that vary say so of fields that stand deeper in one record.
        is_deep = is_deep and not (_vary(pairs) and "_in(" not in text + other_text)
        # A word that was given and that a record has may be what the record was chosen by.
        are_ids = not any(isinstance(one.value, str) and not is_code(one.value) for one, _ in rows)
        if is_deep or ({text, other_text} & {*inputs} and not are_ids):
            continue
        found = equal_text(text, other_text, pairs)
        named = NAMED_ALIKE if are_named_alike(text, other_text) else 0.0
        bits = _bits_of_equality(pairs, is_one_record=len(holders) == 1) + named
        if len(holders) == 1:
            # Of one record fewer pairs were tried than of all that is known.
            beside = sum(one.holder in holders for one in values[0].values())
            bits += tried - math.log2(1 + beside**2 / 2)
        if found and bits - tried >= ENOUGH_TO_CHECK:
            told[other_text] = told.setdefault(text, text)
            yield found, pairs


def _equal_in_some(
    situations: Sequence[Situation], values: Sequence[dict[str, Said]]
) -> dict[tuple[str, str], None]:
    """Return the pairs of expressions that are equal in some situation."""
    found: dict[tuple[str, str], None] = {}
    for situation, told in zip(situations, values, strict=True):
        alike: dict[str, list[Said]] = defaultdict(list)
        for one in told.values():
            alike[bare(one.value)].append(one)
        for group in alike.values():
            for one, other in combinations(group[:MOST_ALIKE], 2):
                is_here = not situation.own or {one.holder, other.holder} & situation.own
                if is_here and not {one.text, other.text} <= situation.inputs.keys():
                    found[one.text, other.text] = None
    return found


def _may_be_equal(value: Any) -> bool:
    """Return whether a value is equal to another one for a reason: words, ids, numbers."""
    if isinstance(value, list):
        return True
    return is_number(value) or is_code(value) or (isinstance(value, str) and is_word(value))


def _vary(pairs: Sequence[Pair]) -> bool:
    """Return whether enough recordings have enough different values to rule out chance."""
    return len(pairs) >= ENOUGH_VARIED and len({bare(pair.one) for pair in pairs}) >= FEWEST_VARIED


def _bits_of_equality(pairs: Sequence[Pair], *, is_one_record: bool) -> float:
    """Return the evidence that values are equal for a reason.

    Identifiers don't stand in two records by chance; of small numbers only what they say counts,
    unless they vary together within one record.
    """
    ones = {bare(pair.one): pair.one for pair in pairs}
    ids = [one for one in ones.values() if not is_word(one) and not _is_plain_date(one)]
    if all(map(is_small, ones.values())) and not (is_one_record and _vary(pairs)):
        return sum(map(information, ones.values()))
    told = sum(information(one) for one in ids if is_code(one) or isinstance(one, list))
    return max(surprise_of(pairs, lambda one, other: bare(one) == bare(other)), told)


def _is_plain_date(value: Any) -> bool:
    return isinstance(value, str) and are_comparable(value, value)


def _orders(situations: Sequence[Situation]) -> Found:
    """Yield that a number or date was never above, or never below, another one."""
    facts = _comparable(situations)
    inputs = situations[0].inputs
    # Of few inputs fewer pairs were tried than of all that was read.
    families = Counter(sum(text in inputs for text in texts) for texts in facts)
    for (text, other_text), rows in map(_by_day, facts.items()):
        if not all(are_comparable(one.value, other.value) for one, other in rows):
            continue
        is_count = text.endswith(LENGTH) or other_text.endswith(LENGTH)
        if is_count and not all(type(one.value) is type(other.value) is int for one, other in rows):
            continue  # only a whole number limits how many there may be
        is_inside = _EVERY in text + other_text and is_number(rows[0][0].value)
        if is_inside and not (_share_a_word(rows[0]) and _vary(_as_pairs(rows))):
            continue  # the limit of the numbers in a list is named as they are
        pairs = _as_pairs(rows)
        tried = math.log2(1 + families[(text in inputs) + (other_text in inputs)])
        if not {text, other_text} & {*inputs}:
            tried += ENOUGH_TO_CHECK
        sign = order_of(
            pairs,
            tried,
            is_kin=_are_kin(rows[0], situations[0]),
            is_near=_are_near(rows, situations[0]) and not _is_chance(rows, pairs, situations[0]),
        )
        if sign and DAY in text + other_text:
            sign = f"{sign[0]}="
        if sign and _says_all(text, sign, other_text, inputs):
            yield f"{text} {sign} {other_text}", pairs


_Facts = tuple[tuple[str, str], list[tuple[Said, Said]]]


def _by_day(facts: _Facts) -> _Facts:
    """Return a date and a moment as two dates: the last day of something is a part of it."""
    (text, other_text), rows = facts
    lengths = [
        {len(one.value) for one in own if isinstance(one.value, str)}
        for own in zip(*rows, strict=True)
    ]
    if {10} not in lengths or any(len(one) != 1 for one in lengths) or lengths[0] == lengths[1]:
        return facts
    texts = [
        one if size == {10} else f"{one}{DAY}"
        for one, size in zip((text, other_text), lengths, strict=True)
    ]
    cut = [
        (
            one._replace(text=texts[0], value=one.value[:10]),
            other._replace(text=texts[1], value=other.value[:10]),
        )
        for one, other in rows
    ]
    return (texts[0], texts[1]), cut


def _says_all(text: str, sign: str, other_text: str, inputs: Container[str]) -> bool:
    """Return whether an order is one that a list may have to keep.

    It holds for the dates of all its elements, or says how many of them there may be.
    """
    less, more = (text, other_text) if sign[0] == "<" else (other_text, text)
    is_least = more.endswith(LENGTH) and more not in inputs
    return not (is_least or less.endswith(" | min)") or more.endswith(" | max)"))


def _results(situations: Sequence[Situation]) -> Found:
    """Yield that a number is what two others of its record come to, or the days between two dates.

    A total is the price times the count, whoever computed it.
    """
    told = [{one.text: one for one in said_in(each)} for each in situations]
    common = [one for text, one in told[0].items() if all(text in each for each in told)]
    for holder in dict.fromkeys(one.holder for one in common):
        own = [one.text for one in common if one.holder == holder]
        numbers = [
            text for text in own if all(can_be_computed_with(each[text].value) for each in told)
        ]
        dates = [text for text in own if all(is_date(each[text].value) for each in told)]
        for text in numbers[:MOST_RESULTS]:
            values = [each[text].value for each in told]
            if len({*values}) < FEWEST_RESULTS and sum(map(information, {*values})) < TELLING:
                continue
            for made, results in _made_of(told, [one for one in numbers if one != text], dates):
                if [round(one, 2) for one in results] == [round(one, 2) for one in values]:
                    is_decimal = any(isinstance(one, float) for one in (*results, *values))
                    check = f"{text} == {made}"
                    if is_decimal:
                        check = f"{text} | round(2) == ({made}) | round(2)"
                    when = (told[0][text].when,) if told[0][text].when else ()
                    yield check, [Pair(one, one, when) for one in values]
                    break


def _made_of(
    told: Sequence[Mapping[str, Said]], numbers: Sequence[str], dates: Sequence[str]
) -> Iterator[tuple[str, list[float]]]:
    """Yield what comes of two numbers, and the days between two dates, in each situation."""
    for one, other in combinations(numbers[:MOST_RESULTS], 2):
        pairs = [(each[one].value, each[other].value) for each in told]
        if all(map(all, pairs)):
            yield f"{one} * {other}", [left * right for left, right in pairs]
            yield f"{one} + {other}", [left + right for left, right in pairs]
    for one, other in permutations(numbers[:MOST_RESULTS], 2):
        pairs = [(each[one].value, each[other].value) for each in told]
        if all(map(all, pairs)):
            yield f"{one} - {other}", [left - right for left, right in pairs]
    for one, other in permutations(dates[:MOST_RESULTS], 2):
        spans = [days(each[one].value, each[other].value) for each in told]
        yield f"days({one}, {other})", [float(span) for span in spans]


def _farthest(situations: Sequence[Situation]) -> Found:
    """Yield that an input is never below, or never above, all that a list has under its name.

    A reading is not below earlier ones, and not of an earlier day.
    """
    facts: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for situation in situations:
        for known in situation.known:
            rows = known.record if isinstance(known.record, list) and not known.when else []
            for one in situation.inputs.values() if _is_of_round(situation, known) else ():
                name = one.text.rpartition(".")[2]
                values: list[Any] = [row.get(name) for row in rows if isinstance(row, dict)]
                if values and all(are_comparable(one.value, value) for value in values):
                    when = (one.when,) if one.when else ()
                    for how, pick in (("max", max), ("min", min)):
                        text = f'(every({known.name}, "{name}") | {how})'
                        facts[one.text, text].append(Pair(one.value, pick(values), when))
    for (text, other), pairs in facts.items():
        sign = order_of(pairs, 0.0, is_kin=True, is_near=True)
        is_far = sign[:1] == (">" if other.endswith("max)") else "<")
        if sign and is_far and len(pairs) >= SHARE * len(situations):
            yield f"{text} {sign} {other}", pairs


def _orders_inside(name: str, choice: Choice) -> Found:
    """Yield an order of two fields that every chosen element kept and others did not."""
    rows = [row for row in choice.rows if isinstance(row.chosen, dict)]
    others = [one for row in rows for one in row.elements if one is not row.chosen]
    if not rows:
        return
    fields = [field for field, value in rows[0].chosen.items() if are_comparable(value, value)]
    for number, field in enumerate(fields):
        for other in fields[number + 1 :]:
            pairs = _field_pairs([row.chosen for row in rows], field, other)
            beside = _field_pairs(others, field, other)
            sign = _kept(pairs, beside)
            if sign and len(pairs) == len(rows):
                yield f"{field_text(name, (field,))} {sign} {field_text(name, (other,))}", pairs


def _field_pairs(records: Sequence[Any], field: str, other: str) -> list[Pair]:
    return [
        Pair(one[field], one[other], ())
        for one in records
        if isinstance(one, dict) and are_comparable(one.get(field), one.get(other))
    ]


def _kept(pairs: Sequence[Pair], beside: Sequence[Pair]) -> str:
    for sign, holds in (
        ("<", operator.lt),
        ("<=", operator.le),
        (">", operator.gt),
        (">=", operator.ge),
    ):
        if beside and all(holds(pair.one, pair.other) for pair in pairs):
            share = sum(holds(pair.one, pair.other) for pair in beside) / len(beside)
            if -math.log2(max(share, 1e-9)) * len(pairs) >= ENOUGH_TO_CHECK:
                return sign
    return ""


def _nearly_reached(pairs: Sequence[Pair], beside: Sequence[Pair]) -> str:
    """Return the sign of an order that others break, where a pair came close to its limit."""
    gaps = [abs(pair.one - pair.other) / max(abs(pair.one), abs(pair.other), 1) for pair in pairs]
    if len(pairs) < 2 or min(gaps, default=1) > NEARLY:
        return ""
    for sign, holds in (("<=", operator.le), (">=", operator.ge)):
        if all(holds(pair.one, pair.other) for pair in pairs):
            return sign if not all(holds(pair.one, pair.other) for pair in beside) else ""
    return ""


def _are_kin(row: tuple[Said, Said], situation: Situation) -> bool:
    """Return whether two values may be a limit for each other.

    One is an input, or their names have a word in common, or both are dates of which one was read
    without asking for anything: a clock, a rule of the house. Other values are larger or smaller
    without a reason.
    """
    if row[0].words & row[1].words:
        return True
    if any(one.text in situation.inputs for one in row):
        return not _has_number_of_text(row)
    context = {known.name for known in situation.known if known.is_context}
    return isinstance(row[0].value, str) and any(one.holder in context for one in row)


def _are_near(rows: Sequence[tuple[Said, Said]], situation: Situation) -> bool:
    """Return whether two values are so close that either may well limit the other.

    Both are given or stand in one record, they are the length of a list and a number that was
    read for it, their names have a word in common, or they are times of which one is given or the
    time of a clock. Of two prices that were read under one name either may be the larger; what is
    given under the name of what is there (points, of all points) is a part of it, or more than it.
    From enough recordings on dates of any two records are near, and so is any number to one that a
    write takes.
    """
    row = one, other = rows[0]
    given = (one.text in situation.inputs, other.text in situation.inputs)
    if len(rows) >= ENOUGH_TO_ACT and True not in given and _may_limit(rows, situation):
        return True
    # The number of a text, which is one with a unit, has no order with others for that alone.
    is_one_record = one.holder == other.holder and not _has_number_of_text(row)
    if is_one_record or _share_a_word(row):
        return True
    is_one_word = bool(one.words) and one.words == other.words
    if True in given and is_one_word:
        return True
    context = {known.name for known in situation.known if known.is_context}
    is_about_it = True in given or bool({one.holder, other.holder} & context)
    lengths = (one.text.endswith(LENGTH), other.text.endswith(LENGTH))
    if True in lengths:
        # How many things somebody brings has no limit in how many days he stays.
        is_about_it = (is_about_it and False in lengths) or is_one_word
        return type(one.value) is type(other.value) is int and is_about_it and False in given
    return False not in given or (isinstance(one.value, str) and is_about_it)


def _may_limit(rows: Sequence[tuple[Said, Said]], situation: Situation) -> bool:
    """Return whether two values are dates, or a number that a write takes and one not far above.

    The parts of a sum of products have no one measure.
    """
    one, other = rows[0]
    if isinstance(one.value, str):
        return not (_EVERY in one.text and _EVERY in other.text and one.holder == other.holder)
    if other.text in situation.written:
        one, other, rows = other, one, [row[::-1] for row in rows]
    is_product = "sum_of(" in other.text and other.text.count('"') > 2
    if one.text not in situation.written or is_product:
        return False
    is_near = IN_REACH * max(one.value for one, _ in rows) >= min(one.value for _, one in rows)
    return is_near and all(one.value <= other.value for one, other in rows)


_EVERY = "(every("


def _has_number_of_text(row: tuple[Said, Said]) -> bool:
    return any(one.text.startswith("numbers_in(") for one in row)


def _share_a_word(row: tuple[Said, Said]) -> bool:
    """Return whether one name says more of the same thing than the other: points, of all points."""
    return bool(row[0].words & row[1].words) and row[0].words != row[1].words


def _is_chance(
    rows: Sequence[tuple[Said, Said]], pairs: Sequence[Pair], situation: Situation
) -> bool:
    """Return whether two values may have been in order by chance.

    Pairing them otherwise would break the order sometimes, but not so often that it is a wonder
    that it held. Of values that are given, or have a word in common, it is none.
    """
    row = rows[0]
    context = {known.name for known in situation.known if known.is_context}
    is_time = isinstance(row[0].value, str) and any(one.holder in context for one in row)
    if is_time or _share_a_word(row) or any(one.text in situation.inputs for one in row):
        return False
    holds = operator.le if all(pair.one <= pair.other for pair in pairs) else operator.ge
    return RARELY_BY_CHANCE * len(pairs) < surprise_of(pairs, holds) < ENOUGH_TO_KEEP


def order_of(pairs: Sequence[Pair], tried: float, *, is_kin: bool, is_near: bool = False) -> str:
    """Return the sign of an order that never was broken, or "".

    Either it could have been: pairing the values otherwise would break it, so often that chance
    does not explain that they never did. Or hardly a pairing breaks it, and values of one kind
    come close: then it may be a limit that nobody has reached yet, and checking it costs little.
    Values that are near to each other are checked from two pairs on: an order that held n times
    and means nothing breaks the next time in one of about n + 2 cases.
    """
    if len(pairs) < 2 or all(pair.one == pair.other for pair in pairs):
        return ""
    for sign, holds in (("<=", operator.le), (">=", operator.ge)):
        if not all(holds(pair.one, pair.other) for pair in pairs):
            continue
        # Of two values that belong together, either may be the larger: one bit for each pair.
        surprise = min(surprise_of(pairs, holds), len(pairs))
        is_rare = len(pairs) >= ENOUGH_TO_ACT and surprise <= RARELY_BROKEN * len(pairs)
        if (
            (is_near and _are_in_reach(pairs))
            or (is_rare and is_kin and _come_close(pairs))
            or surprise - tried >= ENOUGH_TO_CHECK
        ):
            is_strict = not any(pair.one == pair.other for pair in pairs)
            return sign[0] if is_strict else sign
    return ""


def _come_close(pairs: Sequence[Pair]) -> bool:
    """Return whether two ranges of values that don't overlap are no further apart than wide."""
    ones = [_as_number(pair.one) for pair in pairs]
    others = [_as_number(pair.other) for pair in pairs]
    gap = max(min(ones) - max(others), min(others) - max(ones))
    wide = max(max(ones) - min(ones), max(others) - min(others))
    return gap <= (max(wide, A_YEAR) if isinstance(pairs[0].one, str) else wide)


def _are_in_reach(pairs: Sequence[Pair]) -> bool:
    """Return whether a limit is no more than so many times what was reached."""
    if isinstance(pairs[0].one, str):
        return _come_close(pairs)
    ones, others = [abs(pair.one) for pair in pairs], [abs(pair.other) for pair in pairs]
    return bool(FAR_FROM_IT * min(max(ones), max(others)) >= max(min(ones), min(others)))


def _as_number(value: Any) -> float:
    if isinstance(value, str):
        value = f"1970-01-01T{value}" if is_clock(value) else value
        value = f"{value}-01" if is_month(value) else value
        return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp()
    return float(value)


def _absences(situations: Sequence[Situation]) -> Found:
    """Yield that no element of a list is about the same thing as the task.

    Looking through a list that nothing is taken from is a look whether something is there.
    """
    facts: dict[str, list[Pair]] = defaultdict(list)
    found: set[str] = set()
    for situation in situations:
        values = said_in(situation)
        for known in situation.known:
            record = known.record if isinstance(known.record, list) else []
            rows = [row for row in record if isinstance(row, dict)]
            others = [one for one in values if one.holder != known.name] if rows else []
            if situation.own and known.name not in situation.own:
                others = [one for one in others if one.holder in situation.own]
            for name in dict.fromkeys(name for row in rows for name in row):
                for one in (one for one in others if _may_be_same(one, name, rows)):
                    text = f"not where({known.name}, {name}={one.text})"
                    if any(same(row.get(name), one.value) for row in rows):
                        found.add(text)
                    facts[text].append(Pair(one.value, None, (one.when,) if one.when else ()))
    for text, pairs in facts.items():
        if text not in found and len(pairs) >= 2:
            yield text, pairs


def _differences(situations: Sequence[Situation]) -> Found:
    """Yield that two inputs of one form never were the same: nobody gives to himself."""
    facts: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for situation in situations:
        texts = [one for one in situation.inputs.values() if isinstance(one.value, str)]
        for one, other in combinations(texts, 2):
            are_codes = is_code(one.value) and is_code(other.value)
            if are_codes:
                are_alike = pattern_of([one.value, other.value]) is not None
            else:
                are_alike = _share_a_word((one, other))
            if are_alike and not is_date(one.value):
                when = tuple(sorted({one.when, other.when} - {""}))
                facts[one.text, other.text].append(Pair(one.value, other.value, when))
    for (text, other_text), pairs in facts.items():
        is_always = len(pairs) == len(situations) > 1
        if is_always and not any(same(pair.one, pair.other) for pair in pairs):
            yield f"{text} != {other_text}", pairs


def _never_alike(situations: Sequence[Situation]) -> Found:
    """Yield that two names or ids of a look, beside each other in a record, never were the same."""
    facts: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for situation in situations if len(situations) >= ENOUGH_VARIED else ():
        for known in situation.known if not situation.own else ():
            texts = [(text, one) for text, one in fields(known) if isinstance(one, str)]
            for (text, one), (other_text, other) in combinations(texts, 2):
                is_beside = text.rpartition(".")[0] == other_text.rpartition(".")[0]
                if is_beside and not known.when and _look(one) and _look(one) == _look(other):
                    facts[text, other_text].append(Pair(one, other, ()))
    for (text, other_text), pairs in facts.items():
        columns = [
            {bare(one) for one in each} for each in zip(*(o[:2] for o in pairs), strict=True)
        ]
        is_varied = all(len(one) >= ENOUGH_TO_ACT for one in columns)
        is_always = len(pairs) == len(situations) and is_varied
        if is_always and not any(same(pair.one, pair.other) for pair in pairs):
            yield f"{text} != {other_text}", pairs


def _look(text: str) -> str:
    """Return the look of an id or of a name of several words; "" for other texts."""
    if is_code(text):
        return "" if is_date(text) or has_parts(text) else re.sub("[0-9]+", "0", text)
    return " " if is_word(text) and text.istitle() and has_parts(text) else ""


def _unlike(situations: Sequence[Situation]) -> Found:
    """Yield that no identifier stands twice in a list, of which several had some."""
    facts: dict[str, list[Pair]] = defaultdict(list)
    repeated: set[str] = set()
    for situation in situations:
        known_lists = () if situation.own else situation.known
        for known in (one for one in known_lists if not (one.when or one.is_searched)):
            for text, values in lists_of(known.name, known.record):
                if len(values) > 1 and all(map(is_code, values)):
                    facts[text].append(Pair(values, None, ()))
                    if len({*map(key_of, values)}) < len(values):
                        repeated.add(text)
    for text, pairs in facts.items():
        if text not in repeated and len(pairs) >= FEWEST_UNLIKE:
            yield f"distinct({text})", pairs


def _may_be_same(one: Said, name: str, rows: Sequence[Json]) -> bool:
    """Return whether a value and a field of rows are of one kind: by name, and by form."""
    if one.text.rpartition(".")[2] != name or not (is_code(one.value) or is_date(one.value)):
        return False
    return any(isinstance(row.get(name), str) for row in rows)


def _asked(step: Json, args: Json) -> Iterator[tuple[str, Any, Any]]:
    """Yield the arguments of a read that are no constants: name, template and value."""
    for name, text in step["args"].items():
        if isinstance(text, str) and text.startswith("{{"):
            yield name, text, args.get(name)


_RELATIONS = (
    _echoes,
    _identifiers,
    _equalities,
    _results,
    _orders,
    _farthest,
    memberships,
    mentions,
    _absences,
    _differences,
    _never_alike,
    _unlike,
)


FAR_FROM_IT = 10
"""A limit so many times what was ever reached is about something else."""
FEWEST_SEEN = 10
"""Units of time below which a smaller unit says how long it ever took."""


class _Span(NamedTuple):
    """The time from one moment to another in one situation, and the numbers that may limit it."""

    start: Said
    end: Said
    limits: Mapping[str, Said]

    @property
    def are_dates(self) -> bool:
        """Whether both are dates without a time."""
        return all(is_date(one.value) and len(one.value) == 10 for one in (self.start, self.end))

    def lasted(self, unit: str) -> float:
        """Return how long it took; for no unit, how many days the calendar has between them."""
        if unit:
            return elapsed(self.start.value, self.end.value, unit)
        both = (self.start.value, self.end.value)
        return days(both[0], both[1]) if all(map(is_date, both)) else math.inf

    def pair(self, unit: str, limit: str) -> Pair:
        """Return how long it took beside a limit."""
        other = self.limits[limit]
        when = tuple(sorted({self.start.when, self.end.when, other.when} - {""}))
        return Pair(self.lasted(unit), other.value, when)


def windows(
    situations: Sequence[Situation], is_used: Callable[[str], bool], bounded: Iterable[str]
) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that no more time went by than a number says, or than ever was seen.

    is_used: whether a step uses what was read. bounded: moments that a check limits already.
    """
    rows: dict[tuple[str, str], list[_Span]] = defaultdict(list)
    for situation, values in zip(situations, read_off(situations), strict=True):
        for span in _spans(situation, values, is_used):
            rows[span.start.text, span.end.text].append(span)
    always = {
        texts: spans
        for texts, spans in rows.items()
        if len(spans) == len(situations) > 1 and all(span.lasted("seconds") >= 0 for span in spans)
    }
    limited = {texts: found for texts, spans in always.items() if (found := _limited(spans))}
    yield from limited.values()
    told = {*bounded, *(end for _, end in limited)}
    # Of a record that has a clock and a deadline, one says what the other is read for.
    done = {spans[0].end.holder for (_, end), spans in always.items() if end in told}
    for spans in always.values():
        end = spans[0].end
        is_read = end.text not in situations[0].inputs
        if is_read and end.holder not in done and not is_used(end.text):
            yield _longest(spans)


def _spans(
    situation: Situation, told: Sequence[Said], is_used: Callable[[str], bool]
) -> Iterator[_Span]:
    """Yield the spans from each moment to the time that was read or given."""
    moments = [one for one in told if seconds_of(one.value) is not None]
    context = {known.name for known in situation.known if known.is_context}
    ends = [one for one in moments if one.text in situation.inputs or one.holder in context]
    if not ends or len(ends) == len(moments) == 1:
        return
    limits = {one.text: one for one in _numbers(situation, is_used)}
    for end in ends:
        for start in moments:
            is_here = not situation.own or {start.holder, end.holder} & situation.own
            if start.holder != end.holder and is_here:
                yield _Span(start, end, limits)


def _numbers(situation: Situation, is_used: Callable[[str], bool]) -> Iterator[Said]:
    """Yield the numbers that may be limits: rules of the house, and what nothing else uses."""
    for known in situation.known:
        if not known.is_context and is_used(known.name):
            continue
        for one in (known, *_named_elements(known, situation)):
            for text, value in fields(one):
                if is_number(value) and seconds_of(value) is None:
                    yield Said(text, value, known.when)


def _named_elements(known: Known, situation: Situation) -> Iterator[Known]:
    """Yield the elements of a record's lists and mappings that a value of another one names."""
    values = [
        one for one in said_in(situation) if one.holder != known.name and is_scalar(one.value)
    ]
    for text, held in _holders(known.name, known.record):
        rows: dict[tuple[str, Key], list[Any]] = defaultdict(list)
        for row in held if isinstance(held, list) else ():
            for name, value in row.items() if isinstance(row, dict) else ():
                if is_scalar(value) and not is_number(value):
                    rows[str(name), key_of(value)].append(row)
        names = {name for name, _ in rows}
        for one in values if rows or isinstance(held, dict) else ():
            if isinstance(held, dict) and isinstance(one.value, str) and one.value in held:
                yield Known(f"{text}[{one.text}]", held[one.value], {}, known.when)
            for name in names:
                if len(found := rows.get((name, key_of(one.value)), [])) == 1:
                    picked = f"only({text}{fits_text({(name,): one.text})})"
                    yield Known(picked, found[0], {}, known.when)


def _holders(text: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the lists and records inside a value that stand in no list, by their expressions."""
    if isinstance(value, list | dict):
        yield text, value
    for name, one in value.items() if isinstance(value, dict) else ():
        yield from _holders(field_text(text, (str(name),)), one)


def _limited(spans: Sequence[_Span]) -> tuple[str, list[Pair]] | None:
    """Return the tightest limit that was kept in all spans, and came near enough to be one."""
    found: list[tuple[float, str, list[Pair]]] = []
    both = f"{spans[0].start.text}, {spans[0].end.text}"
    for limit in spans[0].limits:
        if any(limit not in span.limits for span in spans):
            continue
        for unit, length in (*SECONDS.items(), ("", SECONDS["days"])):
            pairs = [span.pair(unit, limit) for span in spans]
            longest, most = (
                max(each) for each in zip(*((o.one, o.other) for o in pairs), strict=True)
            )
            is_kept = all(pair.one <= pair.other for pair in pairs)
            if is_kept and longest * FAR_FROM_IT >= most:
                took = f"days({both})"
                if unit and not (unit == "days" and spans[0].are_dates):
                    took = f'elapsed({both}, "{unit}")'
                total = sum(pair.other for pair in pairs) * length
                found.append((total, f"{took} <= {limit}", pairs))
    if not found:
        return None
    _, text, pairs = min(found, key=lambda row: (row[0], len(row[1])))
    return text, pairs


def _longest(spans: Sequence[_Span]) -> tuple[str, list[Pair]]:
    """Return that no more time may go by than in any of the spans."""
    both = f"{spans[0].start.text}, {spans[0].end.text}"
    if all(span.are_dates for span in spans):
        unit, took = "days", f"days({both})"
    else:
        longest = max(span.lasted("seconds") for span in spans)
        unit = next(
            (unit for unit, each in reversed(SECONDS.items()) if longest >= FEWEST_SEEN * each),
            "seconds",
        )
        took = f'elapsed({both}, "{unit}")'
    most = math.ceil(max(span.lasted(unit) for span in spans))
    when = tuple(sorted({spans[0].start.when, spans[0].end.when} - {""}))
    return f"{took} <= {most}", [Pair(span.lasted(unit), most, when) for span in spans]
