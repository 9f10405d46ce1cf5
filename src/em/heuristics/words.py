"""The words by which lessons and tasks are compared."""

import re
from functools import lru_cache

_WORD = re.compile(r"[^\W_]+")
_STOP = frozenset(
    "a about after again all also an and any are as at be because been before but by can could did"
    " do does don for from get had has have he her his how i if in instead into is it its just like"
    " me more my no not of on or other our out over own please she should so some such t than that"
    " the their them then there these they this to too under until up use used using very was we"
    " were what when where which who why will with would you your s task fails failed fail"
    " error".split()
)
_ENDINGS = ("ations", "ation", "ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")
_NEGATIONS = re.compile(
    r"\b(?:don'?t|do not|never|avoid|without|stop|refuse to|must not|should not|shouldn'?t|no)\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=8192)
def content_words(text: str) -> frozenset[str]:
    """The words of a text that say something, each cut to its stem."""
    found = (word.lower() for word in _WORD.findall(text))
    return frozenset(_stem(word) for word in found if word not in _STOP)


def telling_words(text: str) -> str:
    """A text without the words that stand in any: what is left is worth a search."""
    return " ".join(word for word in _WORD.findall(text) if word.lower() not in _STOP)


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of two sets of words is in both (Jaccard)."""
    either = len(one | other)
    return len(one & other) / either if either else 0.0


def is_negated(action: str) -> bool:
    """Whether an action says what not to do."""
    return _NEGATIONS.search(action) is not None
