"""Relevance: rank lessons by how well they fit a task. Candidates come from recall."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import exp, log
from typing import NamedTuple

from em.heuristics.heuristic import Heuristic, Ranked, find_heuristic, searched_text
from em.log.event import HEURISTIC_PREFIX
from em.recall.search import LessonRecall
from em.store.protocol import Store, Within
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.values.times import now


@lru_cache(maxsize=8192)
def content_words(text: str) -> frozenset[str]:
    """Return the meaningful words of a text, stemmed as in recall's index."""
    return frozenset(stems_of([word for word in words_of(text) if word not in STOP_WORDS]))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets of words."""
    either = len(one | other)
    return len(one & other) / either if either else 0.0


EVERYBODY = Within("", lessons=True)
"""The scope of lessons that are about no one subject."""

CANDIDATES = 60
WEIGHTS = {
    "coverage": 0.32,
    "tools": 0.25,
    "frequency": 0.18,
    "usefulness": 0.13,
    "words": 0.09,
    "recency": 0.03,
    "meaning": 0.4,
}
"""Parts of a score, each between 0 and 1.

words: the search's score relative to the best candidate. coverage: the share of the task's and the
trigger's words that both have, weighted by rarity. tools: the share of the lesson's tools that the
task may use; 0.5 if that is unknown. usefulness: the share of successful runs with the lesson; 0.5
without any. frequency: how often it was learned; 0.5 for twice. recency: halves every 60 days.
meaning: similarity of vectors; 0 without an embedder.
"""
SAMENESS = 0.5
"""Weight of the penalty for saying the same as a better lesson."""
LEAST_OVERLAP = 0.25
LEAST_WORDS = 2
"""Common words that a lesson needs to be relevant at all."""
LEAST_NEARNESS = 0.4
"""With this cosine a lesson is relevant by its meaning alone."""
OFTEN = 3
"""A lesson about a tool of the task is relevant without common words if learned this often."""


class TaskAtHand(NamedTuple):
    """A task, the tools it may use (None if unknown), and its subject."""

    task: str
    tools: Sequence[str] | None = None
    subject: str | None = None


class LessonCandidate(NamedTuple):
    """A lesson that the search found: its score by words, and its similarity of meaning."""

    heuristic: Heuristic
    score: float
    nearness: float


def rank(
    store: Store,
    wanted: TaskAtHand,
    k: int,
    search: LessonRecall | None = None,
    notes: list[str] | None = None,
) -> list[Ranked]:
    """Return the lessons that fit a task, best first.

    notes: a list to which failures of the search are added.
    """
    pool = candidates(store, wanted, search, [] if notes is None else notes)
    task = content_words(wanted.task)
    relevant = [
        one
        for one in pool
        if one.nearness >= LEAST_NEARNESS or _is_relevant(task, one.heuristic, wanted.tools)
    ]
    if not relevant or k < 1:
        return []
    rarity = _rarity([_words(one.heuristic) for one in pool])
    best = max(one.score for one in relevant) or 1.0
    moment = now()
    scored = []
    for found, score, nearness in relevant:
        parts = {
            "words": max(score, 0.0) / best,
            "coverage": _coverage(task, found, rarity),
            "tools": _tools_in_play(found, wanted),
            "usefulness": found.use.usefulness,
            "frequency": 1 - 2 / (2 + max(found.use.learned, 1)),
            "recency": exp(-max((moment - found.at).days, 0) * log(2) / 60),
            "meaning": max(nearness, 0.0),
        }
        total = sum(WEIGHTS[name] * value for name, value in parts.items())
        scored.append(Ranked(heuristic=found, score=total, reasons=parts))
    scored.sort(key=lambda one: (-one.score, one.heuristic.id))
    return _diverse(scored, k)


def candidates(
    store: Store, wanted: TaskAtHand, search: LessonRecall | None, notes: list[str]
) -> list[LessonCandidate]:
    """Find lessons for a task: general ones, those about the subject, and those about its tools."""
    search = search or LessonRecall(store)
    scopes = [EVERYBODY]
    if wanted.subject is not None:
        scopes.append(Within(wanted.subject, lessons=True))
    scores: dict[str, tuple[float, float]] = {}
    for scope in scopes:
        hits = search(wanted.task, scope, CANDIDATES)
        scores |= {hit.passage.stream: (hit.score, hit.nearness or 0.0) for hit in hits}
        notes += [note for note in hits.notes if note not in notes]
    if wanted.tools:
        # A lesson about a tool may share no word with the task: its score by words is 0.
        by_tool = LessonRecall(store, passed_over=frozenset())
        hits = by_tool(" ".join(wanted.tools), EVERYBODY, CANDIDATES)
        scores = {hit.passage.stream: (0.0, 0.0) for hit in hits} | scores
    found = []
    for stream, (score, nearness) in scores.items():
        heuristic = find_heuristic(store, stream.removeprefix(HEURISTIC_PREFIX))
        if heuristic is not None and not heuristic.retired and heuristic.lesson.is_told:
            found.append(LessonCandidate(heuristic, score, nearness))
    return found


def _words(heuristic: Heuristic) -> frozenset[str]:
    return content_words(searched_text(heuristic.lesson))


def _trigger(heuristic: Heuristic) -> frozenset[str]:
    lesson = heuristic.lesson
    return content_words(f"{lesson.trigger} {' '.join(lesson.tools)}")


def _is_relevant(task: frozenset[str], heuristic: Heuristic, tools: Sequence[str] | None) -> bool:
    common = len(task & _words(heuristic))
    if tools and not set(tools).isdisjoint(heuristic.lesson.tools):
        return common > 0 or heuristic.use.learned >= OFTEN
    smaller = min(len(task), len(_trigger(heuristic))) or 1
    enough = common >= LEAST_WORDS or common == len(task)
    return enough and common / smaller >= LEAST_OVERLAP


def _rarity(pool: Sequence[frozenset[str]]) -> dict[str, float]:
    """Return the inverse document frequency of each word among the candidates."""
    counted = Counter(word for words in pool for word in words)
    size = len(pool)
    return {word: log(1 + (size + 0.5) / (n + 0.5)) for word, n in counted.items()}


def _coverage(task: frozenset[str], heuristic: Heuristic, rarity: dict[str, float]) -> float:
    rarest = max(rarity.values(), default=1.0)

    def weigh(words: frozenset[str]) -> float:
        return sum(rarity.get(word, rarest) for word in words) or 1.0

    trigger = _trigger(heuristic)
    of_task = sum(rarity.get(word, 0.0) for word in task & _words(heuristic)) / weigh(task)
    of_trigger = sum(rarity.get(word, 0.0) for word in task & trigger) / weigh(trigger)
    return (of_task + of_trigger) / 2


def _tools_in_play(heuristic: Heuristic, wanted: TaskAtHand) -> float:
    tools = set(heuristic.lesson.tools)
    if not tools:
        return 0.5
    if wanted.tools is None:
        return 1.0 if any(tool in wanted.task for tool in tools) else 0.5
    return len(tools & set(wanted.tools)) / len(tools)


def _diverse(scored: list[Ranked], k: int) -> list[Ranked]:
    """Choose the best `k`, each time with a penalty for what better ones already say."""
    words = {one.heuristic.id: _advice(one.heuristic) for one in scored}
    chosen: list[Ranked] = []
    likeness = dict.fromkeys(words, 0.0)
    left = list(scored)
    while left and len(chosen) < k:
        best = max(left, key=lambda one: one.score - SAMENESS * likeness[one.heuristic.id])
        left.remove(best)
        chosen.append(best)
        for one in left:
            name = one.heuristic.id
            alike = similarity(words[name], words[best.heuristic.id])
            # Lessons of one domain share words: penalize only near duplicates.
            likeness[name] = max(likeness[name], alike - 0.5)
    return chosen


def _advice(heuristic: Heuristic) -> frozenset[str]:
    return content_words(f"{heuristic.lesson.trigger} {heuristic.lesson.action}")
