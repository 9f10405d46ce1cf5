"""The words by which lessons and tasks are compared."""

import re
from functools import lru_cache

from em.recall.document_search import telling
from em.text.words import STOP_WORDS, stems_of, words_of

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


def telling_words(text: str) -> str:
    """A text without the words that stand in any: what is left is worth a search."""
    return telling(text, PASSED_OVER)


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of two sets of words is in both (Jaccard)."""
    either = len(one | other)
    return len(one & other) / either if either else 0.0


def is_negated(action: str) -> bool:
    """Whether an action says what not to do."""
    return _NEGATIONS.search(action) is not None
