"""Record facts: what all recorded results of one read had in common, and must have again.

Whatever all traces saw before an effect is evidence. A record that reports an error, says that it
is another one, has a field, a flag, a state, a word or a number that none of the recorded ones had,
is empty where they were not, or does not allow as much as they did, is not acted on. The same holds
in every form of a routine.
"""

import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.calls import words_of
from em.compiler.evidence import ENOUGH, information
from em.compiler.guards import STATUSES, describes, fact
from em.compiler.sources import is_collection, quoted, reference
from em.runner.expressions.functions import (
    ANY,
    KEYS,
    NUMBER,
    error_of,
    every,
    kind_of,
    parsed,
    shape_of,
    size_of,
    turns_of,
)
from em.values.canonical import identical

MOST_WORDS = 40
"""Different members of a list that are still a few words, and no data."""
NAME_LIKE = r"[^\W_][\w.'’@-]*(?: [\w.'’@-]+){0,4}"
"""What may be another one each time behind the label of a line."""
DEEPEST = 4
"""Mappings within each other whose facts are looked at."""
FEWEST_SHARED = 1 / 2
"""Share of the keys that all results have, if keys are names of fields and no data."""
FEWEST_SAME = 3
"""How many results must have the same value before it is taken for a rule."""
MANY_TIMES = 3
"""How often each word of a list stood there, if it is one of a few."""
FEWEST_ORDERED = 3
"""Different pairs of values that show that one is never above the other."""
MOST_TURNS = 400
"""Words side by side in recorded texts up to which another one is asked about. A longer text is a
document, and each has its own words."""
_PLAIN = frozenset({"e-mail", "date", "time", "number", "code", "word"})

Way = tuple[str, ...]


class Shown(NamedTuple):
    """The result of a read, and by expression the values that it was made with."""

    given: Mapping[str, Any]
    result: Any


def record_facts(
    text: str,
    seen: Sequence[Shown],
    acted: Mapping[str, Sequence[Any]] | None = None,
    *,
    is_used: bool = True,
    is_passed_on: bool = False,
) -> Iterator[str]:
    """Yield what was so of all results of a read. text: the expression of the result.

    acted: by expression, the values that the effect was given each time. is_used: something is
    chosen from the result, so that other members of its lists don't matter. is_passed_on: another
    call gets it, so that a text is data, and another one each time.
    """
    results = [one.result for one in seen]
    if not results:
        return
    if all(isinstance(one, str) and not isinstance(parsed(one), str) for one in results):
        meant = [one._replace(result=parsed(one.result)) for one in seen]
        yield from record_facts(f"parsed({text})", meant, acted, is_used=is_used)
        return
    if all(error_of(one) is None for one in results):
        yield f"error_of({text}) == none"
    yield from _sizes(text, results)
    if any(one is None for one in results):
        return
    shapes = {shape_of(one) for one in results}
    if len(shapes) == 1:
        yield f"shape_of({text}) == {quoted(shapes.pop())}"
    yield from _same_as_given(text, seen)
    yield from _keys(text, results)
    yield from states(text, results)
    orders = _orders(results, acted or {})
    for way, checks in orders.items():
        yield from (f"{reference(text, way)} {check}" for check in checks)
    yield from _constants(text, results, but=orders)
    yield from _lists(text, results)
    if not is_used:
        if not is_passed_on:
            yield from text_facts(text, seen)
        yield from _members(text, results)


def _lists(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield that a list of words has no other ones, if those that it had were few."""
    for way in _ways_to_lists(results):
        lists = [value_at(one, way) for one in results]
        if not all(isinstance(one, list) and one for one in lists):
            continue
        if not all(isinstance(value, str) for one in lists for value in one):
            continue
        known = distinct(value for one in lists for value in one)
        if len(known) > MOST_WORDS or any(kind_of(value) != "word" for value in known):
            continue  # ids are data, though the same ones may come again
        always = [v for v in known if all(any(identical(v, o) for o in one) for one in lists)]
        is_same = len(always) == len(known) and len(lists) >= FEWEST_SAME
        if is_same or len(known) <= sum(map(len, lists)) / MANY_TIMES:
            parts = f"{quoted(known)}, {quoted(always)}"
            yield f"strange_items({reference(text, way)}, {parts}) == none"


def _ways_to_lists(results: Sequence[Any]) -> list[Way]:
    found = [
        {(str(key),) for key, value in one.items() if isinstance(value, list) and "." not in key}
        for one in results
        if isinstance(one, dict) and not is_collection(one)
    ]
    ways = set.intersection(*found) if found and len(found) == len(results) else set()
    return [*([()] if all(isinstance(one, list) for one in results) else []), *sorted(ways)]


def _members(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield that the members of a list are as all recorded ones were, where none is chosen."""
    members = [one for held in results if isinstance(held, list) for one in held]
    if not members or not all(isinstance(one, dict) for one in members):
        return
    keys = sorted({str(key) for one in members for key, value in one.items() if size_of(value)})
    states = {}
    for key in keys:
        allowed = allowed_values(key, [one.get(key) for one in members])
        if allowed:
            states[key] = allowed
    yield f"strange_members({text}, {quoted(keys)}, {quoted(states)}) == none"


def _sizes(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield that a result is empty, or is not, as all recorded ones were."""
    if all(isinstance(one, str) for one in results):
        if len({bool(one.strip()) for one in results}) == 1:
            yield f'{text} {"!=" if results[0].strip() else "=="} ""'
    elif all(one is None or isinstance(one, str | list | dict) for one in results):
        sizes = {size_of(one) > 0 for one in results}
        # A record that has something under a key is not empty.
        is_record = all(isinstance(one, dict) and not is_collection(one) for one in results)
        if len(sizes) == 1 and not (is_record and sizes == {True}):
            yield f"size_of({text}) {'> 0' if sizes.pop() else '== 0'}"


def states(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield the flags and states that all results had which had them."""
    for way in fixed_ways(results):
        held = [every(one, ".".join(way)) if way else [one] for one in results]
        allowed = allowed_values(_last(way), [one[0] for one in held if one])
        if allowed and all(held):
            yield f"{reference(text, way)} in {quoted(allowed)}"
        elif allowed:
            may = [[], *([one] for one in allowed)]
            yield f"every({text}, {quoted('.'.join(way))}) in {quoted(may)}"


def _constants(text: str, results: Sequence[Any], but: Collection[Way]) -> Iterator[str]:
    """Yield the texts and numbers that were the same in enough results, and the signs of others.

    but: what may vary, since it was compared with what was acted with.
    """
    for way in fixed_ways(results):
        values = [value_at(one, way) for one in results]
        is_text = all(isinstance(one, str) and one.strip() for one in values)
        numeric = all(map(is_number, values))
        is_same = len(distinct(values)) == 1 and len(values) >= FEWEST_SAME and way not in but
        if is_same and (numeric or (is_text and way)) and not allowed_values(_last(way), values):
            yield f"{reference(text, way)} == {quoted(values[0])}"
        elif numeric and sign_of(values):
            yield f"{reference(text, way)} {sign_of(values)}"


def _last(way: Way) -> str:
    return way[-1] if way else ""


def text_facts(text: str, seen: Sequence[Shown]) -> Iterator[str]:
    """Yield that a text says nothing that no recorded one said, and leaves nothing out."""
    if not all(isinstance(one.result, str) and one.result.strip() for one in seen):
        return
    given = dict.fromkeys(key for one in seen for key in one.given)
    values = [[one.given.get(key) for key in given] for one in seen]
    texts = [one.result for one in seen]
    if allowed_values("", texts):
        return  # it is a state
    kinds = {kind_of(one) for one in texts}
    if kinds <= _PLAIN - {"word"}:
        if len(kinds) == 1:
            yield f"kind_of({text}) == {quoted(kinds.pop())}"
        return  # ids are another each time
    free = _free_labels(texts)
    turns = [turns_of(own, held, free) for own, held in zip(texts, values, strict=True)]
    numbers = [
        [word for turn in own for word in turn.split() if word[0].isdigit()] for own in turns
    ]
    if any(own != numbers[0] for own in numbers):
        free = [*free, NUMBER]
        turns = [turns_of(own, held, free) for own, held in zip(texts, values, strict=True)]
    known = list(dict.fromkeys(turn for own in turns for turn in own))
    always = [turn for turn in known if all(turn in own for own in turns)]
    if len(known) <= MOST_TURNS:
        parts = f"[{', '.join(given)}], {quoted(free)}, {quoted(known)}, {quoted(always)}"
        yield f"strange_text({text}, {parts}) == none"


def _free_labels(texts: Sequence[str]) -> list[str]:
    """Return the labels of lines, as `owner` of `Owner: Ana`, that say something else each time."""
    held: dict[str, list[str]] = {}
    for text in texts:
        for line in text.lower().split("\n"):
            label, colon, value = line.partition(":")
            if colon and re.fullmatch(NAME_LIKE, value.strip()):
                held.setdefault(label.strip(), []).append(value.strip())
    return [
        label
        for label, values in held.items()
        if len(values) == len({*values}) == len(texts) >= FEWEST_ORDERED
    ]


def _orders(results: Sequence[Any], acted: Mapping[str, Sequence[Any]]) -> dict[Way, list[str]]:
    """Return which numbers and dates of a record were never below, or above, what was acted with.

    An amount stays within the balance, and a day before the end. Once or twice may be chance.
    """
    found: dict[Way, list[str]] = {}
    for way in fixed_ways(results):
        held = [value_at(one, way) for one in results]
        for expression, values in acted.items():
            pairs = list(zip(held, values, strict=True))
            if len(distinct(pairs)) < FEWEST_ORDERED or not all(_comparable(*one) for one in pairs):
                continue
            if all(there == here for there, here in pairs):
                continue  # it is the same value, or explained by it
            for sign, holds in ((">=", operator.ge), ("<=", operator.le)):
                if all(holds(there, here) for there, here in pairs):
                    found.setdefault(way, []).append(f"{sign} {expression}")
    return found


def _comparable(one: Any, other: Any) -> bool:
    """Return whether two values are numbers, or days or times that are written alike."""
    if is_number(one) and is_number(other):
        return True
    both = isinstance(one, str) and isinstance(other, str) and len(one) == len(other)
    return both and kind_of(one) == kind_of(other) and kind_of(one) in ("date", "time")


def _same_as_given(text: str, seen: Sequence[Shown]) -> Iterator[str]:
    """Yield that a record names what it was asked for by, as all recorded ones did."""
    for expression, first in seen[0].given.items():
        values = [one.given.get(expression) for one in seen]
        if isinstance(first, dict | list | bool) or first is None:
            continue
        if len(distinct(values)) == 1 and information(first) < ENOUGH:
            continue
        for way in filter(None, fixed_ways([one.result for one in seen])):
            held = [value_at(one.result, way) for one in seen]
            if all(identical(a, b) for a, b in zip(held, values, strict=True)):
                yield f"{reference(text, way)} == {expression}"


def _keys(text: str, results: Sequence[Any], way: Way = ()) -> Iterator[str]:
    """Yield that a record has no other fields, and has those that all recorded ones had."""
    maps = [one for one in results if isinstance(one, dict) and not is_collection(one)]
    if not maps or len(maps) < len(results) or len(way) >= DEEPEST:
        return
    known = list(dict.fromkeys(str(key) for one in maps for key in one))
    shared = [key for key in known if all(key in one for one in maps)]
    if not shared or len(shared) < len(known) * FEWEST_SHARED:
        return
    # What was always empty is as new as what was not there.
    used = [key for key in known if any(size_of(one.get(key)) for one in maps)]
    yield f"strange_keys({', '.join([reference(text, way), *map(quoted, used)])}) == none"
    full = [key for key in shared if all(size_of(one[key]) for one in maps)]
    if full:
        yield f"empty_keys({', '.join([reference(text, way), *map(quoted, full)])}) == none"
    for key in shared:
        if not describes(key):
            yield from _keys(text, [one[key] for one in maps], (*way, key))


def value_facts(name: str, values: Sequence[Any]) -> Iterator[str]:
    """Yield how the values of an argument looked that a read gave: an e-mail, a number above 0."""
    shapes = {shape_of(one) for one in values}
    if len(shapes) != 1 or not name.isidentifier():
        return
    shape = shapes.pop()
    if shape == "number":
        yield f'shape_of({name}) == "number"'
        if sign_of(values):
            yield f"{name} {sign_of(values)}"
    elif shape == "boolean":
        yield f'shape_of({name}) == "boolean"'
    elif shape == "text":
        kinds = {kind_of(one) for one in values}
        # A name may have one word or two.
        names = any(kind_of(one) == "word" and one[:1].isupper() for one in values)
        if len(kinds) == 1 and kinds <= _PLAIN and not names:
            yield f"kind_of({name}) == {quoted(kinds.pop())}"
        else:
            yield f'shape_of({name}) == "text"'
            if all(values):
                yield f'{name} != ""'


def sign_of(values: Sequence[Any]) -> str:
    """Return the sign that all numbers had, as the end of a comparison; empty if they differ."""
    if all(one > 0 for one in values):
        return "> 0"
    if all(one == 0 for one in values):
        return "== 0"
    if all(one >= 0 for one in values):
        return ">= 0"
    if all(one < 0 for one in values):
        return "< 0"
    return "<= 0" if all(one <= 0 for one in values) else ""


def allowed_values(field: str, values: Sequence[Any]) -> list[Any]:
    """Return the values that a flag or a state had, if it always had one of a few."""
    if not values or not all(isinstance(v, bool | str) and fact("x", field, v) for v in values):
        return []
    found = distinct(values)
    few = len(found) <= len(values) / 2 and not isinstance(found[0], bool)
    return found if len(found) == 1 or few else []


def fields_of_kinds(records: Sequence[Any]) -> set[str]:
    """Return the fields with a text that belong to a kind of record, as `brand` to a card.

    Another field that all records have tells the kind: it has few values, and no other kind has the
    field. A state tells none: what only cancelled ones have speaks against them.
    """
    maps = [one for one in records if isinstance(one, dict)]
    shared = set.intersection(*({*one} for one in maps)) if maps else set()
    kinds = [
        field
        for field in shared
        if STATUSES.isdisjoint(words_of(str(field)))
        and len(distinct(one[field] for one in maps)) <= len(maps) / 2
    ]
    found: set[str] = set()
    for field in {key for one in maps for key in one} - shared:
        having = [one for one in maps if field in one]
        others = [one for one in maps if field not in one]
        if len(others) >= FEWEST_SAME and all(isinstance(one[field], str) for one in having):
            for kind in kinds:
                own, other = ({quoted(one[kind]) for one in some} for some in (having, others))
                if len(own) == 1 and own.isdisjoint(other):
                    found.add(str(field))
    return found


def fixed_ways(results: Sequence[Any]) -> list[Way]:
    """Return the ways to the values of results that keys alone lead to."""
    return list(dict.fromkeys(way for one in results for way in _fixed(one)))


def _fixed(result: Any, parts: Way = ()) -> Iterator[Way]:
    if isinstance(result, dict) and not is_collection(result):
        for key, value in result.items():
            is_name = isinstance(key, str) and "." not in key and key not in (ANY, KEYS)
            is_fact = is_name and not (isinstance(value, dict) and describes(key))
            if len(parts) < DEEPEST and is_fact:
                yield from _fixed(value, (*parts, key))
    elif not isinstance(result, list | dict):
        yield parts


def value_at(result: Any, way: Sequence[str]) -> Any:
    """Return the value of a result on a way; None if there is none."""
    found = every(result, ".".join(way)) if way else [result]
    return found[0] if found else None


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the different ones of some values."""
    return list({quoted(value): value for value in values}.values())


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and no flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
