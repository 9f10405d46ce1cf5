"""Rank passages by words: BM25F whose fields are a passage and its neighbours.

A turn of a conversation is rarely complete: an answer lacks the words of its question, and "it was
great" lacks what was great. So a word also counts for the passages around it, less with distance,
and its counts in a neighbourhood are saturated together, as BM25F does with the fields of a
document. The postings suffice: a passage's number gives its neighbours, and its shape gives its
length and whether it is a question.

A reranker is a function that scores passages for a question once more, higher for better:

    def rerank(question, passages):
        return [my_model(question, passage.text) for passage in passages]

    Memory("em.db", reranker=rerank)
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush, nlargest
from itertools import chain
from math import isfinite, log, log1p
from typing import NamedTuple

import msgspec

from em.recall.embed import guarded
from em.store.protocol import REACH, SHAPE_BITS, Passage
from em.text.terms import ASSISTANT, QUESTION, length_of


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of the ranking; `bench/recall.py` measures the effect of each."""

    previous: float = 0.4
    """What a word of the previous passage counts; it fades with distance."""
    following: float = 0.4
    fade: float = 0.7
    answer: float = 1.0
    """How much more the previous passage counts if it is a question."""
    saturation: float = 0.7
    """The higher, the more a repeated word gains."""
    length: float = 0.4
    """How much less a word counts in a long passage, as `b` in BM25."""
    substance: float = 0.3
    """How much long passages are preferred as answers."""
    enough: float = 12.0
    """The number of content words from which a longer passage is preferred no further."""
    assistant: float = 0.5
    """The factor of what an assistant said, unless the question asks for that."""
    machine: float = 0.5
    """The factor of what a tool or a system prompt said."""
    assistant_words: float = 0.7
    """What a word counts in a text of an assistant, which uses many."""
    other_speaker: float = 0.7
    """The factor of a passage by another speaker than the one the question names."""
    time: float = 1.0
    """What a named time counts, compared with a word of the same rarity."""
    frame: float = 0.5
    """What a word counts that frames a question: mention, list, describe."""
    asking: float = 0.9
    """The factor of a passage without a role that asks: between people, it rarely answers."""
    other_time: float = 0.6
    """The factor of a passage outside the times that the question names."""
    beside: float = 0.93
    """The factor of a passage for each better one beside it, where a question asks for many."""
    vector: float = 0.3
    """What meaning counts, compared with all words together."""
    vector_neighbours: float = 0.3

    def role(self, role: str | None) -> float:
        """Return the factor of what was said in a role."""
        if role == "assistant":
            return self.assistant
        return self.machine if role in ("tool", "system") else 1.0

    def shares(self, nearest: float) -> tuple[float, float, float]:
        """Return what a word counts for the passages one, two and three away."""
        return nearest, nearest * self.fade, nearest * self.fade**2


ALONE = Weights(previous=0.0, following=0.0, length=0.5, frame=1.0)
"""The weights for passages without neighbours, such as lessons."""
TYPICAL_LENGTH = 12.0
"""The number of content words of a typical passage."""

_SHAPES = 1 << SHAPE_BITS
_SHAPE = _SHAPES - 1
_FAR = 1 << 64

SPREAD = 1_500
"""The number of postings that are scored with their neighbours, rarest words first. More frequent
words then only add to the best of these."""
_SORTED = 4_000
"""Up to this number of scores, sorting them all finds the best sooner than a heap."""
BEST = 600
"""The number of candidates that more frequent words add to."""


class RankedWord(NamedTuple):
    """A word of the question with its weight and postings. `spreads`: it counts for neighbours."""

    weight: float
    postings: Sequence[int]
    spreads: bool = True


def rarity(found: int, total: int) -> float:
    """Return the inverse document frequency of a word that `found` passages have."""
    return log(1 + (max(0, total - found) + 0.5) / (found + 0.5))


@lru_cache(maxsize=16)
def _units(length: float, assistant: float) -> tuple[float, ...]:
    """Return what one word counts in a passage, by shape."""
    return tuple(
        (assistant if shape & ASSISTANT else 1.0)
        / (1 - length + length * length_of(shape) / TYPICAL_LENGTH)
        for shape in range(_SHAPES)
    )


@lru_cache(maxsize=16)
def _substance(weight: float, enough: float) -> tuple[float, ...]:
    return tuple(1 + weight * log1p(min(enough, length_of(shape))) for shape in range(_SHAPES))


def substance(shape: int, weights: Weights) -> float:
    """Return how much a passage of this shape is preferred as an answer."""
    return _substance(weights.substance, weights.enough)[shape]


def score_words(
    words: Iterable[RankedWord], weights: Weights, most: int | None = None
) -> dict[int, float]:
    """Score passages by the share of the question, from 0 to 1, that their neighbourhood covers.

    The result may have numbers without a passage.

    most: how many of the best are wanted; others may be left out. None: all.
    """
    ordered = sorted(words, key=lambda word: len(word.postings))
    whole = sum(word.weight for word in ordered) or 1.0
    spreading, frequent = _split(ordered)
    scores: defaultdict[int, float] = defaultdict(float)
    crowded, lone = _by_company(spreading) if most is not None else (spreading, [])
    for word in crowded:
        _spread(word, word.weight / whole, scores, weights)
    if lone:
        _add_lone(lone, whole, scores, weights, max(most or 0, BEST if frequent else 0))
    for word in frequent:
        share = word.weight / whole
        if len(scores) > BEST:
            best = best_of(scores, BEST)
            scores = defaultdict(float, {number: score for score, number in best})
        _probe(word, share, scores, weights)
    return scores


def _split(words: Sequence[RankedWord]) -> tuple[list[RankedWord], list[RankedWord]]:
    """Part words, rarest first, into those that spread and the more frequent ones."""
    spent = 0
    for n, word in enumerate(words):
        if spent and spent + len(word.postings) > SPREAD:
            return list(words[:n]), list(words[n:])
        spent += len(word.postings) if word.spreads else 0
    return list(words), []


def _by_company(words: Sequence[RankedWord]) -> tuple[list[RankedWord], list[RankedWord]]:
    """Part the postings of words into those that have others near, and those that stand alone.

    Around a posting that stands alone nothing adds up, so its passages' scores are known from its
    shape. In a large scope most postings do.
    """
    merged = sorted(chain.from_iterable(word.postings for word in words))
    far = [-_FAR, *merged, _FAR]
    apart_by = (2 * REACH + 1) << SHAPE_BITS
    lone = {
        posting
        for before, posting, after in zip(far, merged, far[2:], strict=False)
        if posting - before > apart_by and after - posting > apart_by
    }
    if not lone:
        return list(words), []
    crowded, alone = [], []
    for word in words:
        own = [posting for posting in word.postings if posting in lone]
        alone.append(word._replace(postings=own))
        if len(own) < len(word.postings):
            others = [posting for posting in word.postings if posting not in lone]
            crowded.append(word._replace(postings=others))
    return crowded, alone


def _add_lone(
    words: Sequence[RankedWord], whole: float, scores: dict[int, float], weights: Weights, most: int
) -> None:
    """Add the passages around postings that stand alone, where they are among the best `most`."""
    shared = [
        (word.postings, word.weight / whole, *_around(weights, word.spreads)) for word in words
    ]
    tops = [
        share * top[posting & _SHAPE] for postings, share, top, _ in shared for posting in postings
    ]
    least = 0.0
    if len(tops) + len(scores) > most:
        least = sorted(chain(scores.values(), tops))[-most]
    for postings, share, top, table in shared:
        enough = least / share if share else 0.0
        for posting in postings:
            if top[posting & _SHAPE] >= enough:
                first = (posting >> SHAPE_BITS) - REACH
                for number, value in enumerate(table[posting & _SHAPE], first):
                    if value:
                        scores[number] = share * value


@lru_cache(maxsize=32)
def _around(
    weights: Weights, spreads: bool
) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """Return what a word counts for the passages around one that has it, by that one's shape.

    The first is the most that it counts for one of them.
    """
    by_shape = []
    for shape, unit in enumerate(_units(weights.length, weights.assistant_words)):
        after, *farther = weights.shares(weights.previous)
        after += after * weights.answer if shape & QUESTION else 0.0
        shares = [*reversed(weights.shares(weights.following)), 1.0, after, *farther]
        counts = [unit * share for share in shares]
        if not spreads:
            counts = [float(place == REACH) for place in range(len(shares))]
        by_shape.append(tuple(count / (count + weights.saturation) for count in counts))
    return tuple(map(max, by_shape)), tuple(by_shape)


def best_of(scores: Mapping[int, float], count: int) -> list[tuple[float, int]]:
    """Return the highest scores with their numbers; of equal ones the newer."""
    pairs = zip(scores.values(), scores, strict=True)
    if len(scores) > _SORTED:
        return nlargest(count, pairs)
    if len(scores) <= count:
        return sorted(pairs, reverse=True)
    # Sorting numbers alone is quick, and few pairs are left to sort.
    least = sorted(scores.values())[-count]
    return sorted([pair for pair in pairs if pair[0] >= least], reverse=True)[:count]


def apart(scores: Mapping[int, float], factor: float) -> dict[int, float]:
    """Lower the score of each passage by a factor for each better one within two places of it.

    A question that counts or lists wants other places, not more of one. Scores only fall, so a
    heap whose entries are corrected when they come up gives the order.
    """
    heap: list[tuple[float, int]] = [(-score, -number) for number, score in scores.items()]
    heapify(heap)
    final: dict[int, float] = {}
    while heap:
        was, number = heappop(heap)
        better = sum(-number + offset in final for offset in (-2, -1, 1, 2))
        now = -scores[-number] * factor**better
        if now > was and heap and (now, number) > heap[0]:
            heappush(heap, (now, number))
        else:
            final[-number] = -now
    return final


def _spread(
    word: RankedWord, worth: float, scores: defaultdict[int, float], weights: Weights
) -> None:
    """Count a word for each passage that has it, and for its neighbours if it spreads.

    A search spends most of its time here, so the three neighbours on each side are written out.
    """
    if not word.spreads:
        for posting in word.postings:
            scores[posting >> SHAPE_BITS] += worth * (1 / (1 + weights.saturation))
        return
    units, answer = _units(weights.length, weights.assistant_words), weights.answer
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
        scores[number] += worth * (count / (count + saturation))


def _probe(
    word: RankedWord, worth: float, scores: defaultdict[int, float], weights: Weights
) -> None:
    """Add a frequent word to the passages that are candidates already."""
    units, saturation = _units(weights.length, weights.assistant_words), weights.saturation
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
            scores[number] += worth * (count / (count + saturation))


Rerank = Callable[[str, Sequence[Passage]], Sequence[float]]

RERANKED = 100
"""How many passages a reranker gets. The first 100 hold nearly all of the evidence."""


def reranked(
    rerank: Rerank, query: str, passages: list[Passage], timeout: float
) -> tuple[list[Passage], str]:
    """Return passages in the reranker's order, with its scores. If it fails, say why instead."""

    def work() -> list[float]:
        return [float(score) for score in rerank(query, tuple(passages))]

    try:
        scores = guarded(work, timeout)
    except Exception as error:  # noqa: BLE001 - the user's code; recall goes on without it
        return passages, f"not reranked: {type(error).__name__}: {error}"
    if len(scores) != len(passages) or not all(map(isfinite, scores)):
        return passages, f"not reranked: expected {len(passages)} finite scores, got {len(scores)}"
    order = sorted(range(len(passages)), key=lambda n: -scores[n])
    return [msgspec.structs.replace(passages[n], score=scores[n]) for n in order], ""
