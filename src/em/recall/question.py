"""A question as the index takes it: its words, and the speakers and times it names."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from em.text.dates import Span, month_terms, span_terms, spans
from em.text.terms import STOP_WORDS, stems_of, words_of

MAX_CHARS = 100_000
MAX_WORDS = 64
_YEARS_BACK = 30

IsSpeaker = Callable[[Sequence[str]], Sequence[bool]]


class Question(NamedTuple):
    """A question. A time is a group of words; any of them may match."""

    words: list[str]
    speakers: frozenset[str]
    times: list[list[str]]
    text: str


def read_question(text: str, now: datetime, are_speakers: IsSpeaker) -> Question:
    """Parse a question; `are_speakers` tells for each word whether a speaker has that name."""
    text = text[:MAX_CHARS]
    words = words_of(text)
    content = [word for word in words if word not in STOP_WORDS] or words
    stems = list(dict.fromkeys(stems_of(content)))[:MAX_WORDS]
    named = [stem for stem, known in zip(stems, are_speakers(stems), strict=True) if known]
    rest = [stem for stem in stems if stem not in named]
    times = [_time_group(span, now) for span in spans(words, now)]
    return Question(rest, frozenset(named), times, _without(text, named))


def _time_group(span: Span, now: datetime) -> list[str]:
    """Return the words of a time. A month without a year is that month of any year."""
    terms = dict.fromkeys(_terms(span))
    if span.any_year:
        for year in range(now.year + 1, now.year - _YEARS_BACK, -1):
            away = year - span.first.year
            try:
                first, last = (day.replace(year=day.year + away) for day in span[:2])
            except ValueError:
                continue  # the 29th of February
            terms |= dict.fromkeys(_terms(Span(first, last)))
    return list(terms)


def _terms(span: Span) -> Sequence[str]:
    # Search a day as a day: its month would match thirty others.
    return [term for term in span_terms(span) if len(term) > 7] or list(month_terms(span))


def _without(text: str, names: Sequence[str]) -> str:
    """Remove the names of speakers, which are searched apart from the words."""
    if not names:
        return text
    parts = [
        part
        for part in re.split(r"(\s+)", text)
        if not set(stems_of([word for word in words_of(part) if len(word) > 1])) & set(names)
    ]
    return "".join(parts).strip() or text
