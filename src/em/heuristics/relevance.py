"""Ranking: which lessons fit a task, and why. Candidates come from recall."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from math import exp, log
from typing import NamedTuple

from em.heuristics.heuristic import Heuristic, Ranked, find_heuristic, searched_text
from em.log.stream import HEURISTIC_PREFIX
from em.recall.search import Hit, LessonRecall
from em.store.protocol import Store, Within
from em.text.words import STOP_WORDS, stems_of, words_of
from em.values.times import now

PASSED_OVER = STOP_WORDS | frozenset(
    "error fail failed fails get instead like please task use used using".split()
)
"""Beside what recall passes over: words that stand in any task and any lesson."""
_NEGATIONS = re.compile(
    r"\b(?:don'?t|do not|never|avoid|without|stop|refuse to|must not|should not|shouldn'?t|no)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=8192)
def content_words(text: str) -> frozenset[str]:
    """The words of a text that say something, as recall's index has them."""
    return frozenset(stems_of([word for word in words_of(text) if word not in PASSED_OVER]))


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of two sets of words is in both (Jaccard)."""
    either = len(one | other)
    return len(one & other) / either if either else 0.0


def is_negated(action: str) -> bool:
    """Whether an action says what not to do."""
    return _NEGATIONS.search(action) is not None


Search = Callable[[str, Within, int], Sequence[Hit]]
"""Find up to so many lessons for a text: recall, unless somebody brings another search."""
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

words: the search's own score, beside the best candidate's. coverage: how much of the task and of
the trigger the words in common make up, rare ones counting more. tools: the share of its tools that
are in play (one half where nobody says which are). usefulness: the share of the runs it was handed
to that went well, one half while there are none. frequency: how often it was learned, since what
happened often happens again; one half at twice. recency: fades by half in 60 days. meaning: how
near it is to the task, where there is an embedder; without one it is 0 for all.
"""
SAMENESS = 0.5
"""What a lesson loses that says the same as one before it in the list."""
LEAST_OVERLAP = 0.25
LEAST_WORDS = 2
"""What must be in common for a lesson to count as relevant at all."""
LEAST_NEARNESS = 0.4
"""From this cosine on a lesson counts as relevant by its meaning alone."""
OFTEN = 3
"""A lesson about a tool in play that was learned so often is relevant without a common word."""


class Wanted(NamedTuple):
    """A task, the tools in play (None: not known), and whom it is about."""

    task: str
    tools: Sequence[str] | None = None
    subject: str | None = None


class Candidate(NamedTuple):
    """A lesson that was found: the score of its words, and how near it is in meaning."""

    heuristic: Heuristic
    score: float
    nearness: float


def rank(
    store: Store,
    wanted: Wanted,
    k: int,
    search: Search | None = None,
    at: datetime | None = None,
    notes: list[str] | None = None,
) -> list[Ranked]:
    """The lessons that fit a task, best first; none where none is relevant.

    notes: takes what could not be done.
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
    moment = at or now()
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
    store: Store, wanted: Wanted, search: Search | None, notes: list[str]
) -> list[Candidate]:
    """What recall finds for the task: of what is for everybody, and of what is about the subject;
    and lessons about the tools in play.
    """
    search = search or LessonRecall(store, passed_over=PASSED_OVER)
    scopes = [EVERYBODY]
    if wanted.subject is not None:
        scopes.append(Within(wanted.subject, lessons=True))
    scores: dict[str, tuple[float, float]] = {}
    for scope in scopes:
        hits = search(wanted.task, scope, CANDIDATES)
        scores |= {hit.passage.stream: (hit.score, hit.nearness or 0.0) for hit in hits}
        notes += [note for note in getattr(hits, "notes", ()) if note not in notes]
    if wanted.tools:
        # What is about a tool in play may share no word with the task: it has no score of words.
        by_tool = LessonRecall(store, passed_over=frozenset())
        hits = by_tool(" ".join(wanted.tools), EVERYBODY, CANDIDATES)
        scores = {hit.passage.stream: (0.0, 0.0) for hit in hits} | scores
    found = []
    for stream, (score, nearness) in scores.items():
        heuristic = find_heuristic(store, stream.removeprefix(HEURISTIC_PREFIX))
        if heuristic is not None and not heuristic.retired:
            found.append(Candidate(heuristic, score, nearness))
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
    """How much each word tells among the candidates."""
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


def _tools_in_play(heuristic: Heuristic, wanted: Wanted) -> float:
    tools = set(heuristic.lesson.tools)
    if not tools:
        return 0.5
    if wanted.tools is None:
        return 1.0 if any(tool in wanted.task for tool in tools) else 0.5
    return len(tools & set(wanted.tools)) / len(tools)


def _diverse(scored: list[Ranked], k: int) -> list[Ranked]:
    """The best, each time less what it shares with those chosen before."""
    words = {one.heuristic.id: _said(one.heuristic) for one in scored}
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
            # Lessons of one domain share words: only what says nearly the same loses.
            likeness[name] = max(likeness[name], alike - 0.5)
    return chosen


def _said(heuristic: Heuristic) -> frozenset[str]:
    return content_words(f"{heuristic.lesson.trigger} {heuristic.lesson.action}")
