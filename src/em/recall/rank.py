"""Ranking by words: BM25F in which the fields are a passage and its neighbours.

A turn of a conversation rarely says everything itself: the answer to a question lacks the words of
the question, and "it was great" lacks what was great. So a word counts, fading, for the passages
around it too, and all of a passage's neighbourhood together is saturated word by word, as BM25F
does with the fields of a document. Everything needed is in the postings: a passage's number says
who its neighbours are, its shape how long it is and whether it is a question.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import nlargest
from math import log, log1p
from typing import NamedTuple

import msgspec

from em.store.protocol import SHAPE_BITS
from em.text.words import QUESTION, length_of


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of the ranking; `bench/recall.py` measures what each is worth."""

    previous: float = 0.5
    """A word in the passage before counts so much here; further away it fades."""
    following: float = 0.4
    fade: float = 0.7
    answer: float = 0.6
    """How much more the passage before counts when it is a question."""
    saturation: float = 0.7
    """The higher, the more a word gains from being there again in the neighbourhood."""
    length: float = 0.3
    """How much a word in a long passage counts less, as `b` in BM25."""
    substance: float = 0.2
    """How much a long passage is preferred as an answer."""
    other_speaker: float = 0.7
    """What a passage keeps if the question names a speaker and somebody else said it."""
    time: float = 1.0
    """What a named time counts, beside a word of the same rarity."""
    vector: float = 0.3
    """What meaning counts, beside all words together."""
    vector_neighbours: float = 0.3

    def shares(self, nearest: float) -> tuple[float, float, float]:
        """How much a word counts for the passages one, two and three away."""
        return nearest, nearest * self.fade, nearest * self.fade**2


ALONE = Weights(previous=0.0, following=0.0)
"""For passages that have no neighbours, as lessons have none."""
TYPICAL_LENGTH = 12.0
"""Content words of a passage of middle length."""
ROLES = {"assistant": 0.95, "tool": 0.8, "system": 0.8}
"""What a passage of a role keeps; any other keeps all. Chosen, not measured."""


_SHAPES = 1 << SHAPE_BITS
_SHAPE = _SHAPES - 1

SPREAD = 1_500
"""Postings whose neighbourhoods are scored in full, rarest words first; the others' words then
only add to the best of these."""
KEPT = 600


class Word(NamedTuple):
    """A word of the question: what it is worth, and who has it. A time has no neighbourhood."""

    weight: float
    postings: Sequence[int]
    spreads: bool = True


def rarity(found: int, total: int) -> float:
    """What a word is worth that so many of all passages have (inverse document frequency)."""
    return log(1 + (max(0, total - found) + 0.5) / (found + 0.5))


@lru_cache(maxsize=16)
def _units(length: float) -> tuple[float, ...]:
    """What one word counts in a passage, by its shape."""
    return tuple(
        1 / (1 - length + length * length_of(shape) / TYPICAL_LENGTH) for shape in range(_SHAPES)
    )


@lru_cache(maxsize=16)
def _substance(weight: float) -> tuple[float, ...]:
    return tuple(1 + weight * log1p(length_of(shape)) for shape in range(_SHAPES))


def substance(shape: int, weights: Weights) -> float:
    """By how much a passage of that shape is preferred as an answer."""
    return _substance(weights.substance)[shape]


def score_words(words: Iterable[Word], weights: Weights) -> dict[int, float]:
    """Scores by number, between 0 and 1: the share of the question that a neighbourhood covers.

    Numbers that no passage has may be among them.
    """
    ordered = sorted(words, key=lambda word: len(word.postings))
    whole = sum(word.weight for word in ordered) or 1.0
    scores: defaultdict[int, float] = defaultdict(float)
    spent = 0
    for word in ordered:
        share = word.weight / whole
        if spent and spent + len(word.postings) > SPREAD:
            if len(scores) > KEPT:
                kept = best_of(scores, KEPT)
                scores = defaultdict(float, {number: score for score, number in kept})
            _probe(word, share, scores, weights)
        elif word.spreads:
            _spread(word, share, scores, weights)
            spent += len(word.postings)
        else:
            for posting in word.postings:
                scores[posting >> SHAPE_BITS] += share / (1 + weights.saturation)
    return scores


def best_of(scores: Mapping[int, float], count: int) -> list[tuple[float, int]]:
    """The highest scores with their numbers; of equals the newer."""
    return nlargest(count, zip(scores.values(), scores, strict=True))


def _spread(word: Word, worth: float, scores: defaultdict[int, float], weights: Weights) -> None:
    """Count a word for each passage that has it and for those around.

    This loop is most of a search, so it is written out for the three neighbours on each side.
    """
    units, answer = _units(weights.length), weights.answer
    after, after_2, after_3 = weights.shares(weights.previous)
    before, before_2, before_3 = weights.shares(weights.following)
    counts: defaultdict[int, float] = defaultdict(float)
    if weights is ALONE:
        for posting in word.postings:
            counts[posting >> SHAPE_BITS] += units[posting & _SHAPE]
    for posting in () if weights is ALONE else word.postings:
        number, unit = posting >> SHAPE_BITS, units[posting & _SHAPE]
        counts[number] += unit
        counts[number + 1] += unit * (after + after * answer if posting & QUESTION else after)
        counts[number + 2] += unit * after_2
        counts[number + 3] += unit * after_3
        counts[number - 1] += unit * before
        counts[number - 2] += unit * before_2
        counts[number - 3] += unit * before_3
    saturation = weights.saturation
    for number, count in counts.items():
        scores[number] += worth * count / (count + saturation)


def _probe(word: Word, worth: float, scores: defaultdict[int, float], weights: Weights) -> None:
    """Add a frequent word to passages that are candidates already."""
    units, saturation = _units(weights.length), weights.saturation
    has = {posting >> SHAPE_BITS: units[posting & _SHAPE] for posting in word.postings}
    around: list[tuple[int, float]] = []
    if word.spreads:
        around += enumerate(weights.shares(weights.previous), 1)
        around += ((-n, share) for n, share in enumerate(weights.shares(weights.following), 1))
    for number in scores:
        count = has.get(number, 0.0)
        for offset, share in around:
            if (unit := has.get(number - offset)) is not None:
                count += unit * share
        if count:
            scores[number] += worth * count / (count + saturation)
