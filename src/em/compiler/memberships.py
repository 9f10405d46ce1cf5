"""Memberships: a value that is always, or never, among those of a list, and must be so again.

So must one that always stands in a text, as often as it did.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any, NamedTuple

from em.compiler.evidence import ENOUGH_TO_ACT, ENOUGH_TO_CHECK, information, is_small
from em.compiler.places import Key, is_code, is_number, is_scalar, is_word, key_of, plain
from em.compiler.situation import (
    Known,
    Pair,
    Said,
    Situation,
    bare,
    fields,
    said_in,
    surprise_of,
)
from em.compiler.term import field_text
from em.runner.expressions.functions import stands_in
from em.values.canonical import same
from em.values.leaves import is_by_id
from em.values.times import is_date

Found = Iterator[tuple[str, list[Pair]]]
"""Checks with the values that they were found from."""
FEWEST_WORDS = 3
"""Different words from which on they are no states."""
_FORMS: dict[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    " | string": str,
    " | int": int,
    " | lower": lambda value: value.lower(),
    " | upper": lambda value: value.upper(),
}
"""Forms of a value in which it may stand in a list."""


class _Places(NamedTuple):
    """The values of a record by their expressions: single words, and lists of scalars.

    holders: by value, the expressions that have it. forms: by the form of ids, the lists of such.
    """

    single: dict[str, list[Any]]
    lists: dict[str, list[Any]]
    holders: dict[str, list[str]]
    forms: dict[str, list[str]]


class _Listed(NamedTuple):
    """A value in one situation, and those of a record.

    is_asked: the record was read by it. is_bare: only lists of scalars count, not fields of others.
    """

    word: Said
    places: _Places
    is_asked: bool
    is_bare: bool

    @property
    def holders(self) -> list[str]:
        """The expressions that have the value."""
        return self.places.holders.get(bare(self.word.value), [])

    def values(self, place: str) -> list[Any] | None:
        """Return the words at a place; None if there is no such place."""
        if place in self.places.single:
            return self.places.single[place]
        if place.startswith("every("):
            # A list without records has no field of them either.
            is_empty = self.places.lists.get(_LISTED.sub("", place)) == []
            return None if self.is_bare else self.places.lists.get(place, [] if is_empty else None)
        return self.places.lists.get(place)

    def pair(self, places: Sequence[str]) -> Pair:
        """Return the word and all words at some places."""
        return Pair(self.word.value, [*chain(*(self.values(place) or () for place in places))], ())


def memberships(situations: Sequence[Situation]) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that a word always, or never, is among those of a record.

    Who collects something is its owner or in the list of those who may. No medicine is given whose
    substance is in the list of allergies: a word that other recordings show in such a list.
    """
    facts: dict[tuple[str, str], list[_Listed]] = defaultdict(list)
    places: dict[int, _Places] = {}
    for situation in situations:
        for known in situation.known:
            if id(known.record) not in places:
                places[id(known.record)] = _places_in(known)
            for one in _listed(situation, known, places[id(known.record)]):
                facts[one.word.text, known.name].append(one)
    tried = math.log2(1 + len(facts))
    in_lists = _held_anywhere(situations, places)
    for (_, name), rows in facts.items():
        if len(rows) == len(situations):
            if not any(row.is_asked for row in rows):
                yield from _always(rows, tried)
            is_acted_on = situations[0].is_acted_on(rows[0].word.text)
            yield from _never(rows, in_lists[name], is_acted_on=is_acted_on)


def _held_anywhere(
    situations: Sequence[Situation], places: Mapping[int, _Places]
) -> Mapping[str, Mapping[str, list[str]]]:
    """Return by record and value the expressions that have the value in some recording."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for known in chain(*(situation.known for situation in situations)):
        for key, texts in places[id(known.record)].holders.items():
            found[known.name][key] += texts
    return found


def mentions(
    situations: Sequence[Situation], *, unproved: bool = False
) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that what is known elsewhere stands in a text that was read: a bill in its mail.

    unproved: take all but small values, though it may be chance.
    """
    said = [{one.text: one for one in said_in(situation)} for situation in situations]
    tried = math.log2(1 + len(said[0]))
    told: set[tuple[str, Key]] = set()
    for text, other_text in _mentioned(situations[0], [*said[0].values()]):
        if not all({text, other_text} <= one.keys() for one in said):
            continue
        rows = [(one[text], one[other_text]) for one in said]
        pairs = [
            Pair(one.value, other.value, tuple(sorted({one.when, other.when} - {""})))
            for one, other in rows
        ]
        key = other_text, key_of([pair.one for pair in pairs])
        is_told = key in told or not all(_is_mentioned(*pair[:2]) for pair in pairs)
        is_known = unproved and not any(is_small(pair.one) for pair in pairs)
        if is_told or not (is_known or _bits_of_mentions(pairs) - tried >= ENOUGH_TO_CHECK):
            continue
        told.add(key)
        times = 1
        while all(stands_in(pair.other, pair.one, times + 1) for pair in pairs):
            times += 1
        yield f"stands_in({other_text}, {text}{f', {times}' if times > 1 else ''})", pairs


def _mentioned(situation: Situation, said: Sequence[Said]) -> Iterator[tuple[str, str]]:
    """Yield what stands in texts of other records."""
    texts = [one for one in said if one.text not in situation.inputs]
    texts = [one for one in texts if isinstance(one.value, str) and len(one.value.split()) > 1]
    begun: dict[str, list[Said]] = defaultdict(list)
    for one in said:
        begun[_begin(one.value)].append(one)
    found = [
        (one, other)
        for other in texts
        for begin in dict.fromkeys(map(_begin, _WORDS.findall(str(other.value))))
        for one in begun.get(begin, ())
        if one.holder != other.holder and _is_mentioned(one.value, other.value)
    ]
    order = {one.text: number for number, one in enumerate(said)}
    for one, other in sorted(found, key=lambda pair: order[pair[0].text]):
        if not situation.own or {one.holder, other.holder} & situation.own:
            yield one.text, other.text


_WORDS = re.compile(r"\w+")


def _begin(value: Any) -> str:
    """Return what a value begins with where it stands in a text: its first word, or first digit."""
    word = _WORDS.search(str(value))
    begin = word[0] if word else ""
    return begin[0] if begin[:1].isdigit() else begin


def _is_mentioned(value: Any, text: Any) -> bool:
    """Return whether a value is a part of a text."""
    if not isinstance(text, str) or (isinstance(value, str) and value not in text):
        return False  # most are in none: a search is dear
    is_part = is_number(value) or (isinstance(value, str) and value != text)
    return is_part and stands_in(text, value)


def _bits_of_mentions(pairs: Sequence[Pair]) -> float:
    """Return the evidence that values stand in texts for a reason."""
    surprise = surprise_of(pairs, lambda one, other: stands_in(other, one))
    ones = {bare(pair.one): pair.one for pair in pairs}
    if not all(map(is_small, ones.values())):
        return surprise
    longest = max(len(pair.other.split()) for pair in pairs)
    told = sum(map(information, ones.values())) - len(ones) * math.log2(longest)
    return min(surprise, told)


def _listed(situation: Situation, known: Known, places: _Places) -> Iterator[_Listed]:
    """Yield the values that may be among those of a record."""
    for word in said_in(situation) if places.lists and not known.when else ():
        is_own = word.holder == known.name
        is_asked = word.value in known.asked.values()
        is_here = not situation.own or {word.holder, known.name} & situation.own
        is_telling = is_word(word.value) or is_code(word.value) or is_number(word.value)
        if is_telling and not word.when and not is_own and is_here:
            # A word that was given may be what tells a record of a list from others.
            is_given = word.text in situation.inputs and is_word(word.value)
            yield _Listed(word, places, is_asked, is_given)


def _always(rows: Sequence[_Listed], tried: float) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that a value is always in a list, or that a word else is one other word."""
    held = [{*row.holders} for row in rows]
    anywhere = dict.fromkeys(chain(*(row.holders for row in rows)))
    found = [one for one in anywhere if all(row.values(one) is not None for row in rows)]
    single = [one for one in found if one in rows[0].places.single]
    lists = [one for one in found if one not in rows[0].places.single]
    is_mixed = is_word(rows[0].word.value)
    for way in [*((one,) for one in lists), *(product(single, lists) if is_mixed else ())]:
        is_needed = len(way) == 1 or not any(all(one in each for each in held) for one in way)
        if not is_needed or not all(each.intersection(way) for each in held):
            continue
        pairs = [row.pair(way) for row in rows]
        text = contained_text(rows[0].word.text, _joined(way, lists), pairs)
        if len(way) == 1 and all(_is_each(pair) for pair in pairs):
            text = all_are(way[0], rows[0].word.text)
        if text and _bits(pairs) - tried >= ENOUGH_TO_CHECK:
            yield text, pairs
            return


def all_are(list_text: str, text: str) -> str:
    """Return the check that all elements of a list are one value."""
    return f"{list_text} == [{text}] * ({list_text} | length)"


def _is_each(pair: Pair) -> bool:
    return all(one == pair.one for one in pair.other)


def contained_text(text: str, list_text: str, pairs: Sequence[Pair]) -> str:
    """Return the check that a value stands in a list, in some form; "" if none does."""
    form = next((form for form, made in _FORMS.items() if _stands_in(pairs, made)), None)
    return "" if form is None else f"{text}{form} in {list_text}"


def _stands_in(pairs: Sequence[Pair], form: Callable[[Any], Any]) -> bool:
    """Return whether each value stands in its list just so, if it is written in this form."""
    try:
        return all(form(pair.one) in pair.other for pair in pairs)
    except (AttributeError, ValueError):
        return False


def _bits(pairs: Sequence[Pair]) -> float:
    """Return the evidence for a membership: of small numbers only what they say counts."""
    ones = {bare(pair.one): pair.one for pair in pairs}
    if all(map(is_small, ones.values())):
        longest = max(len(pair.other) for pair in pairs)
        return sum(map(information, ones.values())) - len(ones) * math.log2(longest)
    return surprise_of(pairs, _is_in)


def _never(rows: Sequence[_Listed], known: Mapping[str, list[str]], *, is_acted_on: bool) -> Found:
    """Yield that a word is in no list of words of its kind, or an id in none of such ids.

    known: by value, the lists of this record that have it in some recording. is_acted_on: the word
    is about what writes take, so that no list of words that differ may name it.
    """
    words = [row.word.value for row in rows]
    are_words = len(rows) >= ENOUGH_TO_ACT and all(map(is_word, words))
    form = _form(words[0]) if len(rows) > 1 else ""
    ids = chain(*(row.places.forms.get(form, ()) for row in rows))
    told = {one for word in words for one in known.get(bare(word), ())} if are_words else set()
    are_names = are_words and is_acted_on and len({*words}) >= FEWEST_WORDS
    others = rows[0].places.lists if are_names else ()
    for one in dict.fromkeys(chain(ids, sorted(told), others)):
        if any(row.values(one) is None or one in row.holders for row in rows):
            continue
        pairs = [row.pair((one,)) for row in rows]
        values = [*chain(*(pair.other for pair in pairs))]
        if one in told and all(pair.other for pair in pairs):
            is_kin = True
        elif are_names and not one.startswith("every("):
            is_kin = all(map(is_word, values)) and len({*map(bare, values)}) >= FEWEST_WORDS
        else:
            is_kin = _are_of_one_form([*words, *values])
        if is_kin:
            yield f"{rows[0].word.text} not in {one}", pairs


def _form(value: Any) -> str:
    """Return the form of an id, in which digits may differ; "" for others, and for dates."""
    if not isinstance(value, str) or not is_code(value) or is_date(value):
        return ""
    return "@" if "@" in value else re.sub("[0-9]+", "0", value)


def _are_of_one_form(values: Sequence[Any]) -> bool:
    """Return whether values are ids of one form: letters are the same, digits may differ."""
    return len({*map(_form, values)} | {""}) == 2


_LISTED = re.compile(r'^every\(|, "[^"]*"\)$')


def _places_in(known: Known) -> _Places:
    """Return the single words of a record, and the lists of scalars in it by their expressions."""
    single = {text: [value] for text, value in fields(known, nested=False) if is_word(value)}
    # What a choice is made from has others than the task is about.
    is_chosen_from = known.is_searched and isinstance(known.record, list)
    lists = {} if is_chosen_from else dict(lists_of(known.name, known.record))
    holders: dict[str, list[str]] = defaultdict(list)
    forms: dict[str, list[str]] = defaultdict(list)
    for text, values in (*single.items(), *lists.items()):
        for key in dict.fromkeys(map(bare, values)):
            holders[key].append(text)
        if text in lists and (form := _form(next(iter(values), None))):
            forms[form].append(text)
    return _Places(single, lists, holders, forms)


def lists_of(text: str, value: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of scalars in a record, and the fields of records in its lists."""
    if isinstance(value, dict) and not is_by_id(value):
        for name, one in value.items():
            yield from lists_of(field_text(text, (str(name),)), one)
    elif isinstance(value, list) and all(map(is_scalar, value)):
        yield text, value
    elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
        found: dict[str, list[Any]] = defaultdict(list)
        for row in value:
            for place, one in plain(row):
                if all(str(name).isidentifier() for name in place):
                    found[".".join(map(str, place))].append(one)
        for path, values in found.items():
            if len(values) == len(value):
                yield f'every({text}, "{path}")', values


def _joined(places: Sequence[str], lists: Collection[str]) -> str:
    """Return one list of what stands at some places, as an expression."""
    found = [one if one in lists else f"[{one}]" for one in places]
    return found[0] if len(found) == 1 else f"({' + '.join(found)})"


def _is_in(value: Any, words: Sequence[Any]) -> bool:
    return any(same(value, one) for one in words)
