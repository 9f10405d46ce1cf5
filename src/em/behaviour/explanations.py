"""Explanations: every expression that gives a recorded value from what was known at that time.

A recorded value usually has several: the constant 100, the input `limit`, the field `policy.max`,
the cheapest item, the item that was asked for. All that fit the recording are kept. A replay acts
on them only if they agree, and only if one of them has enough evidence; `weight` does the weighing.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from em.behaviour.inputs import LONGEST_PHRASE, Inputs
from em.behaviour.sources import (
    LONGEST_TEXT,
    Column,
    Place,
    Sources,
    is_computable,
    literal,
    quoted,
    reference,
    text_key,
)
from em.behaviour.weight import (
    ENOUGH,
    EXTREMES,
    SMALL,
    is_incredible,
    of_choice,
    of_constant,
    of_match,
)
from em.compiler.calls import words_of
from em.compiler.evidence import information
from em.runner.expressions.functions import ANY, KEYS
from em.values.canonical import same
from em.values.leaves import Scalar, is_informative

How = Literal[
    "input", "said", "asked", "result", "key", "only", "match", "extreme", "computed", "parts",
    "constant",
]  # fmt: skip

_FEWEST_FIELDS = 3
_NUMBERS = ("number", "no", "nr", "id")
"""Names of arguments that are ids."""
MOST = 12
"""Explanations that are kept of one value. With more of them it stays as it was recorded."""

_CODE = re.compile(r"[#\w@.+-]*\d[\w@+-]*")
_NUMBER = re.compile(r"(?<![\w.,-])\d+(?:\.\d+)?(?![\w]|[.,]\d)")


class Explanation(NamedTuple):
    """One way to get a recorded value: a bare expression, and the evidence for it in bits."""

    expression: str
    how: How
    bits: float
    call: int | None = None


class Leaf(NamedTuple):
    """A value as a step writes it, with what must agree with it."""

    value: Any
    how: How
    bits: float
    agree: tuple[str, ...] = ()


class Explainer:
    """Explains values by the task and by the results that are there so far.

    The same task will be done again: a name that a field shares with an argument counts for much,
    and a list has as many items as when it was recorded.
    """

    def __init__(self, inputs: Inputs, sources: Sources) -> None:
        self._inputs, self._sources = inputs, sources
        self._together: dict[tuple[int, Any], float] = {}
        self.fresh: dict[str, int] = {}
        """Values that a call with an effect returned first, with that call."""

    # --- all explanations of a value --------------------------------------------------------------

    def explanations(self, value: Scalar, name: str) -> list[Explanation]:
        """Return every explanation of a value, the best first.

        A choice earns only the bits of choosing.
        """
        found = [*self._from_inputs(value, name), *self._from_results(value, name)]
        if not any(one.bits >= ENOUGH for one in found):
            found += itertools.islice(self._computed(value), MOST)
        sure = [one for one in found if one.bits >= ENOUGH]
        made = self.fresh.get(text_key(value))
        # A value that a call with an effect just made is no constant, however short it is.
        new = any(one.call is not None and one.call == made for one in sure)
        if not new and not any(one.how == "input" or is_incredible(value) for one in sure):
            found.append(Explanation(quoted(value), "constant", of_constant()))
        return sorted(found, key=lambda one: -one.bits)[: MOST + 1]

    def _from_inputs(self, value: Scalar, name: str) -> Iterator[Explanation]:
        for stated in self._inputs.stated(value, name):
            expression = converted(stated.expression, value, stated.place.value)
            yield Explanation(expression, "input", stated.bits)

    def read_together(self, record: Mapping[str, Any]) -> None:
        """Take the fields of a record that is being wired: together they show where it is from.

        A country says little; beside a street and a postcode of the same address it says enough.
        """
        self._together = {}
        if len(record) < _FEWEST_FIELDS:
            return
        held: dict[tuple[int, Any], dict[str, float]] = {}
        for key, value in record.items():
            for group in () if isinstance(value, dict | list) else self._sources.groups(value):
                place = group[0]
                if place.is_fixed and place.parts and place.parts[-1] == key:
                    held.setdefault((place.call, place.parts[:-1]), {})[key] = information(value)
        for base, fields in held.items():
            if len(fields) >= _FEWEST_FIELDS:
                self._together[base] = sum(fields.values())

    def _from_results(self, value: Scalar, name: str) -> Iterator[Explanation]:
        groups = self._sources.groups(value)
        made = self.fresh.get(text_key(value))
        named = any(self.is_named(group[0], name) for group in groups)
        if information(value) < SMALL and named:
            # 1 and true stand everywhere; only a field of the same name says something.
            groups = [group for group in groups if self.is_named(group[0], name)]
        chosen = max((self._rivals(group[0]) for group in groups), default=1)
        for group in groups:
            place = group[0]
            equal = self.is_named(place, name)
            bits = of_match(value, equal_names=equal)
            if place.is_fixed and place.parts:
                bits = max(bits, self._together.get((place.call, place.parts[:-1]), 0.0))
            if made != place.call and (chosen > 1 or any(g[0].collections for g in groups)):
                bits = min(bits, of_choice(chosen))
            for expression, how, better in self._ways(group, place):
                shown = converted(expression, value, place.value)
                own = max(0.0, bits - EXTREMES) if how == "extreme" else bits
                yield Explanation(shown, how, max(own, better), place.call)

    def is_named(self, place: Place, name: str) -> bool:
        """Return whether a place has an argument's name."""
        return _is_named(place, name, self._sources) or _is_id_of(place, name, self._sources)

    def _rivals(self, place: Place) -> int:
        """Return how many values the recorded one was chosen from, as far as the names tell."""
        if place.collections:
            return max(place.width, self._sources.rivals(place))
        return self._sources.rivals(place)

    # --- ways to a place --------------------------------------------------------------------------

    def _ways(self, group: list[Place], place: Place) -> Iterator[tuple[str, How, float]]:
        """Yield expressions that lead to a place: by keys, and by what tells items apart."""
        name = self._sources.names[place.call]
        if place.is_fixed:
            yield reference(name, place.parts), "key" if place.parts else "result", 0.0
            return
        if len(group) > 1:
            return  # several items hold it: no selection is single
        ways: list[tuple[str, How, float]] = [(name, "key", 0.0)]
        done = 0
        for depth, items in place.collections:
            fixed = place.parts[done:depth]
            ways = [(reference(way, fixed), how, bits) for way, how, bits in ways]
            at = place.parts[depth]
            if place.general[depth] == KEYS:
                return
            ways = [
                (step, _worse(how, chosen), max(bits, more))
                for way, how, bits in ways
                for step, chosen, more in self._selections(way, items, at, place)
            ][:MOST]
            done = depth + 1
        for way, how, bits in ways:
            yield reference(way, place.parts[done:]), how, bits

    def _selections(
        self, way: str, items: Any, at: str | int, place: Place
    ) -> Iterator[tuple[str, How, float]]:
        """Yield what singles out an item: being the only one, a field, being the least.

        A field with the value itself says nothing about why it was chosen.
        """
        if isinstance(items, dict) and isinstance(at, str) and not same(at, place.value):
            known = self._inputs.of_value(at)
            if known is not None or self._inputs.mentions(at):
                known = known or self._mentioned(at, place)
                yield f"value_at({way}, {known})", "match", information(at)
        if len(items) == 1:
            # Whatever else it has in common with the request did not have to choose it.
            yield f"only({way})", "only", 0.0
            return
        item = items[at]
        if not isinstance(item, dict):
            return
        for field, content in _scalar_fields(item):
            column = self._sources.column(items, field)
            if column.count(content) == 1 and not same(content, place.value):
                yield from self._by_field(way, field, content, place)
                yield from _extremes(way, field, content, column)

    def _by_field(
        self, way: str, field: str, content: Any, place: Place
    ) -> Iterator[tuple[str, How, float]]:
        known = self._inputs.of_value(content) if information(content) >= SMALL else None
        if known is None and self._inputs.mentions(content):
            known = self._mentioned(content, place)
        if known is not None:
            yield _picked(way, field, known), "match", information(content)
            return
        if not is_incredible(content):
            return
        for group in self._sources.groups(content):
            other = group[0]
            if other.call != place.call and other.is_fixed:
                there = reference(self._sources.names[other.call], other.parts)
                yield _picked(way, field, there), "match", 0.0
                return

    def _mentioned(self, content: str, place: Place) -> str:
        """Return the input for a text that names an item: `item_name` for one of `items`."""
        named = [part for part in place.general if part not in (ANY, KEYS)]
        kind = named[-2].rstrip("s") if len(named) > 1 else "chosen"
        return self._inputs.take(content, f"{kind}_name", is_said=True).token

    # --- computed ---------------------------------------------------------------------------------

    def _computed(self, value: Scalar) -> Iterator[Explanation]:
        if isinstance(value, bool) or value is None:
            return
        if isinstance(value, int | float):
            if is_computable(value):
                yield from self._arithmetic(value)
        elif is_informative(value):
            yield from self._parts_of_texts(value)

    def _arithmetic(self, value: float) -> Iterator[Explanation]:
        """Yield sums over lists, counts, and simple computations of two numbers."""
        for call, expression in self._sources.totals(value):
            yield Explanation(expression, "computed", 0.0, call)
        given = {name: n for name, n in self._inputs.numbers().items() if is_computable(n)}
        numbers = {**dict(self._sources.numbers), **given}
        by_value: dict[float, list[str]] = {}
        for expression, number in numbers.items():
            by_value.setdefault(round(number, 6), []).append(expression)

        def others(number: float, but: str) -> Iterator[str]:
            return (one for one in by_value.get(round(number, 6), ()) if one != but)

        found: list[tuple[str, str, str]] = []
        for one, a in numbers.items():
            found += [(one, "+", other) for other in others(value - a, one) if one < other]
            found += [(one, "-", other) for other in others(a - value, one) if a != value]
            if a not in (0, 1) and value != a:
                found += [(one, "*", other) for other in others(value / a, one) if one < other]
        for one, sign, other in found:
            # What one of them was may be a constant: hours * 12, where 12 people came by chance.
            a, b = _written(numbers[one]), _written(numbers[other])
            for text in (f"{one} {sign} {other}", f"{one} {sign} {b}", f"{a} {sign} {other}"):
                yield Explanation(text, "computed", 0.0)

    def _parts_of_texts(self, value: str) -> Iterator[Explanation]:
        """Yield the places whose text contains this value between two recognisable ends."""
        for call, expression, text in self._sources.texts:
            if len(value) < len(text) and text.count(value) == 1:
                before, _, after = text.partition(value)
                before, after = _end(before), _start(after)
                if (before or after) and _between(text, before, after) == value:
                    ends = f"{quoted(before)}, {quoted(after)}"
                    yield Explanation(f"between({expression}, {ends})", "computed", 0.0, call)

    # --- texts with values in them ----------------------------------------------------------------

    def template(self, value: str) -> Leaf | None:
        """Explain a text that contains known values; the rest of it stays as it is.

        Where several places hold such a value, they must agree.
        """
        if len(value) > LONGEST_TEXT:
            return None
        holes: dict[str, dict[str, None]] = {}
        for token in dict.fromkeys([*_CODE.findall(value), *_NUMBER.findall(value)]):
            if token != value and self._inputs.said(token) >= ENOUGH:
                holes[token] = {self._inputs.take(token, "", is_said=True).token: None}
        for content, expression in self._known_parts(value):
            holes.setdefault(content, {})[expression] = None
        holes = {content: hole for content, hole in holes.items() if content != value}
        if not holes:
            return None
        options = "|".join(map(re.escape, sorted(holes, key=len, reverse=True)))
        pieces = re.split(rf"(?<![A-Za-z0-9])({options})(?![A-Za-z0-9])", value)
        if len(pieces) == 1:
            return None
        rest = " ".join(pieces[::2])
        bits = sum(information(piece) for piece in set(pieces[1::2]))
        if any(text_key(piece) in self.fresh for piece in pieces[1::2]):
            bits += ENOUGH  # what was just made stands in the text: an old value would be wrong
        chosen = {piece: next(iter(holes[piece])) for piece in pieces[1::2]}
        text = "".join(
            f"{{{{ {chosen[piece]} }}}}" if number % 2 else literal(piece)
            for number, piece in enumerate(pieces)
        )
        agree = [
            _joined(pieces, {**chosen, piece: other})
            for piece in chosen
            for other in list(holes[piece])[1:]
        ][:MOST]
        if _CODE.search(rest):
            bits = 0.0  # an id or a number in the text is not explained
        return Leaf(text, "parts", bits, tuple(agree))

    def _known_parts(self, value: str) -> Iterator[tuple[str, str]]:
        """Yield inputs and fields whose text stands in a text: content and expression."""
        words = dict.fromkeys([*_CODE.findall(value), *_NUMBER.findall(value), *_phrases(value)])
        for content, expression in self._inputs.in_text(value, words):
            if information(content) >= ENOUGH / 2:
                yield content, expression
        for _, expression, content in self._sources.texts:
            if content in value:
                yield content, expression
        for word in words:
            for group in self._sources.groups(word):
                place = group[0]
                lone = information(word) >= ENOUGH or self._sources.rivals(place) == 1
                if place.is_fixed and lone and information(word) >= SMALL:
                    name = self._sources.names[place.call]
                    yield word, reference(name, place.parts)

    # --- membership -------------------------------------------------------------------------------

    def memberships(self, value: Scalar, expression: str) -> list[str]:
        """Return checks that a value is one of the values of a list that held the recorded one."""
        ways = dict.fromkeys(
            (place.call, place.general)
            for group in self._sources.groups(value)
            for place in group[:1]
            if place.collections
        )
        return [
            f"among(every({self._sources.names[call]}, {quoted('.'.join(way))}), {expression})"
            for call, way in ways
        ]


# --- helpers --------------------------------------------------------------------------------------


def converted(expression: str, value: Any, found: Any) -> str:
    """Return an expression, converted if the call has a number as a text or the reverse."""
    if isinstance(value, str) and not isinstance(found, str):
        return f"str({expression})"
    if isinstance(found, str) and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{'int' if isinstance(value, int) else 'float'}({expression})"
    return expression


def _is_named(place: Place, name: str, sources: Sources) -> bool:
    """Return whether a field has an argument's name; the `id` of an order matches `order_id`."""
    key = place.key.lower()
    plain = name.lower()
    if not plain:
        return False
    if key == plain or (key and plain.endswith(f"_{key}") and key != "id"):
        return True
    if key == "id":
        kind = sources.kind_of(place)
        return plain in (f"{kind.holder}_id", kind.holder, f"{kind.holder.rstrip('s')}_id", "id")
    return not place.parts and plain in (sources.names[place.call], f"{plain}_id")


def _is_id_of(place: Place, name: str, sources: Sources) -> bool:
    """Return whether an argument is the id, or the thing, that a call is named after.

    The `id` in the result of `create_order` is an `order`, and the id of whatever ends in `id`. The
    whole result of `new_ticket` is a `ticket`; that of `stock` is not a `quantity`.
    """
    plain = name.lower()
    nothing = place.value is None or isinstance(place.value, bool)
    if not plain or nothing or place.key not in ("", "id") or place.collections:
        return False
    words = words_of(sources.names[place.call])
    about = {*words, *(f"{word}s" for word in words), *(f"{word}_id" for word in words)}
    return plain in about or plain in _NUMBERS or plain.endswith("id")


_RANK: dict[str, int] = {"key": 0, "only": 1, "match": 2, "extreme": 3}


def _worse(one: How, other: How) -> How:
    return max(one, other, key=lambda how: _RANK.get(how, 0))


def _is_name(field: Any) -> bool:
    return isinstance(field, str) and field.isidentifier()


def _scalar_fields(item: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that may tell an item from others, also those of a mapping in it."""
    for field, content in item.items():
        if not _is_name(field):
            continue
        inner = content.items() if isinstance(content, dict) else ()
        for path, value in [(field, content), *((f"{field}.{key}", one) for key, one in inner)]:
            if not isinstance(value, dict | list | bool) and value is not None:
                yield path, value


def _picked(way: str, path: str, known: str) -> str:
    """Return the selection of the one item that has a known value at a path."""
    if _is_name(path):
        return f"pick({way}, {path}={known})"
    return f"pick_at({way}, {quoted(path)}, {known})"


def _extremes(
    way: str, field: str, content: Any, column: Column
) -> Iterator[tuple[str, How, float]]:
    """Yield that an item is the least or most by a number or a date."""
    if not (isinstance(content, int | float) or _is_date(content)):
        return
    if content == column.least:
        yield f"least({way}, {quoted(field)})", "extreme", 0.0
    if content == column.most:
        yield f"most({way}, {quoted(field)})", "extreme", 0.0


def _is_date(value: Any) -> bool:
    return isinstance(value, str) and re.match(r"\d{4}-\d{2}-\d{2}", value) is not None


_ENDS = re.compile(r"\S*\s?\Z")
_STARTS = re.compile(r"\A\s?\S*")


def _end(text: str) -> str:
    found = _ENDS.search(text)
    return found.group() if found else ""


def _start(text: str) -> str:
    found = _STARTS.search(text)
    return found.group() if found else ""


def _between(text: str, before: str, after: str) -> str | None:
    if (before and text.count(before) != 1) or not (before or after):
        return None
    rest = text.partition(before)[2] if before else text
    if after and rest.count(after) != 1:
        return None
    return rest.partition(after)[0] if after else rest


def _phrases(text: str) -> Iterator[str]:
    """Yield the runs of one to four words of a text, without the signs around them."""
    words = [word.strip(".,;:!?()[]\"'") for word in text.split()]
    for size in range(1, LONGEST_PHRASE + 1):
        for start in range(len(words) - size + 1):
            phrase = " ".join(words[start : start + size])
            if len(phrase) >= 2:
                yield phrase


def _joined(pieces: Sequence[str], holes: Mapping[str, str]) -> str:
    """Return a text with values in it as one expression; every second piece is a value."""
    parts = [
        holes[piece] if number % 2 else quoted(piece)
        for number, piece in enumerate(pieces)
        if piece
    ]
    return " ~ ".join([quoted(""), *parts])


def _written(number: float) -> str:
    """Return a number as expressions write it."""
    return repr(int(number) if number == int(number) else number)
