"""Memberships: a word that is always, or never, among those of a list, and must be so again."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from em.compiler.evidence import ENOUGH_TO_ACT, ENOUGH_TO_CHECK
from em.compiler.places import is_word
from em.compiler.situation import (
    MOST_CROSSED,
    Known,
    Pair,
    Said,
    Situation,
    fields,
    said_in,
    surprise_of,
)
from em.compiler.term import field_text
from em.values.canonical import same


class _Listed(NamedTuple):
    """A word in one situation, and the words of a record by their places, single and in lists."""

    word: Said
    single: dict[str, list[Any]]
    lists: dict[str, list[Any]]

    def pair(self, places: Sequence[str]) -> Pair:
        """Return the word and all words at some places."""
        every = self.single | self.lists
        return Pair(self.word.value, [one for place in places for one in every[place]], ())


def memberships(situations: Sequence[Situation]) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that a word always, or never, is among those of a record.

    Who collects something is its owner or in the list of those who may. No medicine is given whose
    substance is in the list of allergies: a word that other recordings show in such a list.
    """
    facts: dict[tuple[str, str], list[_Listed]] = defaultdict(list)
    for situation in situations:
        for known in situation.known:
            for one in _listed(situation, known):
                facts[one.word.text, known.name].append(one)
    tried = math.log2(1 + len(facts))
    for rows in facts.values():
        if len(rows) == len(situations):
            yield from _always(rows, tried)
            yield from _never(rows)


def _listed(situation: Situation, known: Known) -> "Iterator[_Listed]":
    """Yield the words that may be among those of a record."""
    single, lists = _word_places(known)
    for word in said_in(situation) if lists and not known.when else ():
        is_own = word.holder == known.name or word.value in known.asked.values()
        is_here = not situation.own or {word.holder, known.name} & situation.own
        if is_word(word.value) and not word.when and not is_own and is_here:
            yield _Listed(word, single, lists)


def _always(rows: "Sequence[_Listed]", tried: float) -> Iterator[tuple[str, list[Pair]]]:
    """Yield that a word is always in a list, or else is one other word."""
    single = [one for one in rows[0].single if all(one in row.single for row in rows)]
    lists = [one for one in rows[0].lists if all(one in row.lists for row in rows)]
    for way in [*((one,) for one in lists), *product(single, lists)]:
        pairs = [row.pair(way) for row in rows]
        alone = [{_is_in(*row.pair([one])[:2]) for row in rows} for one in way]
        is_needed = len(way) == 1 or alone == [{True, False}] * 2
        if is_needed and all(_is_in(*pair[:2]) for pair in pairs):
            if surprise_of(pairs, _is_in) - tried >= ENOUGH_TO_CHECK:
                yield f"{rows[0].word.text} in {_joined(way, lists)}", pairs
            return


def _never(rows: "Sequence[_Listed]") -> Iterator[tuple[str, list[Pair]]]:
    """Yield that a word is in no list of words of its kind."""
    for one in rows[0].lists:
        if len(rows) < ENOUGH_TO_ACT or any(one not in row.lists for row in rows):
            continue
        pairs = [row.pair((one,)) for row in rows]
        crossed = product(pairs[:MOST_CROSSED], repeat=2)
        is_of_kind = any(_is_in(word.one, words.other) for word, words in crossed)
        if is_of_kind and not any(_is_in(*pair[:2]) for pair in pairs):
            yield f"{rows[0].word.text} not in {one}", pairs


def _word_places(known: Known) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return the words of a record by their places: single ones, and lists of them."""
    single = {text: [value] for text, value in fields(known, nested=False) if is_word(value)}
    record = known.record if isinstance(known.record, dict) else {}
    lists = {
        field_text(known.name, (name,)): value
        for name, value in record.items()
        if isinstance(value, list) and all(map(is_word, value))
    }
    return single, lists


def _joined(places: Sequence[str], lists: Collection[str]) -> str:
    """Return one list of what stands at some places, as an expression."""
    found = [one if one in lists else f"[{one}]" for one in places]
    return found[0] if len(found) == 1 else f"({' + '.join(found)})"


def _is_in(value: Any, words: Sequence[Any]) -> bool:
    return any(same(value, one) for one in words)
