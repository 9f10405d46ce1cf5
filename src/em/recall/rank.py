"""Ranking by words: BM25F in which the fields are a passage and its neighbours.

A turn of a conversation rarely says everything itself: the answer to a question lacks the words of
the question, and "it was great" lacks what was great. So a word counts, fading, for the passages
around it too, and all of a passage's neighbourhood together is saturated word by word, as BM25F
does with the fields of a document. Everything needed is in the postings: a passage's number says
who its neighbours are, its shape how long it is and whether it is a question.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import nlargest
from math import log, log1p
from typing import NamedTuple

from em.models.passage import SHAPE_BITS
from em.models.words import QUESTION, length_of
from em.recall.weights import TYPICAL_LENGTH, Weights

_SHAPES = 1 << SHAPE_BITS

SPREAD = 4_000
"""Postings whose neighbourhoods are scored in full, rarest words first; the others' words then
only add to the best of these."""
KEPT = 1_000


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
    scores: defaultdict[int, float] = defaultdict(float)
    spent = 0
    for word in ordered:
        if spent and spent + len(word.postings) > SPREAD:
            if len(scores) > KEPT:
                scores = defaultdict(float, nlargest(KEPT, scores.items(), key=lambda s: s[1]))
            _probe(word, scores, weights)
        else:
            _spread(word, scores, weights)
            spent += len(word.postings)
    best = sum(word.weight for word in ordered) or 1.0
    return {number: score / best for number, score in scores.items()}


def _spread(word: Word, scores: defaultdict[int, float], weights: Weights) -> None:
    if not word.spreads:
        for posting in word.postings:
            scores[posting >> SHAPE_BITS] += word.weight / (1 + weights.saturation)
        return
    units, offsets, answer = _units(weights.length), weights.offsets(), 1 + weights.answer
    counts: defaultdict[int, float] = defaultdict(float)
    for posting in word.postings:
        number, unit = posting >> SHAPE_BITS, units[posting & (_SHAPES - 1)]
        counts[number] += unit
        for offset, share in offsets:
            counts[number + offset] += unit * share
        if posting & QUESTION and offsets:
            counts[number + 1] += unit * offsets[0][1] * (answer - 1)
    worth, saturation = word.weight, weights.saturation
    for number, count in counts.items():
        scores[number] += worth * count / (count + saturation)


def _probe(word: Word, scores: defaultdict[int, float], weights: Weights) -> None:
    """Add a frequent word to passages that are candidates already."""
    units, saturation = _units(weights.length), weights.saturation
    has = {posting >> SHAPE_BITS: units[posting & (_SHAPES - 1)] for posting in word.postings}
    offsets = weights.offsets() if word.spreads else ()
    for number in scores:
        count = has.get(number, 0.0)
        for offset, share in offsets:
            count += has.get(number - offset, 0.0) * share
        if count:
            scores[number] += word.weight * count / (count + saturation)
