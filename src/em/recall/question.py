"""A question as the index takes it: its words, and the speakers and times it names."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from em.text.dates import DaySpan, month_of, near_date
from em.text.periods import Period, periods
from em.text.terms import STOP_WORDS, stems_of, words_of

MAX_CHARS = 100_000
MAX_WORDS = 64
_YEARS_BACK = 30
_OF_ASSISTANT = re.compile(
    r"\b(?:(?:did|have|had) (?:you|the assistant)"
    r"|(?:you|the assistant) (?:\w+ )?(?:\w{3,}ed|said|told|gave|wrote)"
    r"|your (?:\w+ )?(?:answer|advice|\w+ion)s?)\b"
)
"""A question for what the assistant said: did you say, you told me. Not: would you suggest."""
_OF_BOTH = re.compile(r"\bsummar\w+")
_OF_MANY = re.compile(
    r"\b(?:how\ many|list|all|every|each|both|different|in\ total|in\ order|across|throughout"
    r"|over\ time|summar\w+|progress\w*|(?:kind|type|sort)s?\ of|which\ (?:\w+\ )?\w+s"
    r"|what\ (?:\w+\ )?\w+s\ (?:has|have|did|does|do|are|were))\b",
    re.VERBOSE,
)
"""A question that counts or lists: how many, which books, a summary of."""

FRAME = frozenset(
    stems_of(
        "say tell mention describe discuss talk refer state share feel think mean name accord list"
        " order item summary summarize summarise overview provide give show explain clarify"
        " conversation chat discussion question answer bring aspect topic comprehensive detail"
        " please help remind recall remember consider regard base".split()
    )
)
"""Words that frame a question: what to do with the answer, rather than what it is about."""

IsSpeaker = Callable[[Sequence[str]], Sequence[bool]]


class Question(NamedTuple):
    """A question. A time is a group of words; any of them may match.

    periods: the times that have begun, which come first among `times`. Nothing was said yet in one
        that lies ahead, so it only adds to what names it.

    text: the question without the names of speakers, for an embedder.
    of_assistant: whether it asks for what an assistant said.
    of_both: whether it asks for a summary, so that the user's turns count no more than others'.
    of_many: whether it counts or lists, so that several passages answer it together.
    of_asking: whether it asks what somebody asked.
    """

    words: list[str]
    speakers: frozenset[str]
    times: list[list[str]]
    periods: list[Period]
    text: str
    of_assistant: bool = False
    of_both: bool = False
    of_many: bool = False
    of_asking: bool = False


def read_question(text: str, now: datetime, are_speakers: IsSpeaker) -> Question:
    """Parse a question; `are_speakers` tells for each word whether a speaker has that name."""
    text = text[:MAX_CHARS]
    words = words_of(text)
    content = [word for word in words if word not in STOP_WORDS] or words
    stems = list(dict.fromkeys(stems_of(content)))[:MAX_WORDS]
    named = [stem for stem, known in zip(stems, are_speakers(stems), strict=True) if known]
    rest = [stem for stem in stems if stem not in named]
    asked = sorted(periods(words, now), key=lambda period: _is_ahead(period, now.date()))
    joined = " ".join(words[:MAX_WORDS])
    return Question(
        words=rest,
        speakers=frozenset(named),
        times=[_time_group(period, now.date()) for period in asked],
        periods=[period for period in asked if not _is_ahead(period, now.date())],
        text=_without(text, named),
        of_assistant=_OF_ASSISTANT.search(joined) is not None,
        of_both=_OF_BOTH.search(joined) is not None,
        of_many=_OF_MANY.search(joined) is not None,
        of_asking="ask" in stems,
    )


def _is_ahead(period: Period, today: date) -> bool:
    return period.first is not None and period.first > today


def _time_group(period: Period, today: date) -> list[str]:
    """Return the words of a period. A month without a year is that month of any year."""
    first, last = period.first, period.last
    if first is None or last is None:
        near, far = min(today, last or today), max(today, first or today)
        first = first or _in_year(near, near.year - _YEARS_BACK)
        last = last or _in_year(far, far.year + 1)
    terms = dict.fromkeys(_terms(first, last))
    if period.any_year:
        for year in range(today.year + 1, today.year - _YEARS_BACK, -1):
            other = near_date(DaySpan(first, last), year)
            terms |= dict.fromkeys(_terms(other.first, other.last))
    return list(terms)


def _in_year(day: date, year: int) -> date:
    return date(min(max(year, date.min.year), date.max.year), day.month, min(day.day, 28))


def _terms(first: date, last: date) -> Iterator[str]:
    """Yield the words of a range of days: whole months by their month, other days one by one."""
    while first <= last:
        end = month_of(first.year, first.month).last
        if first.day == 1 and end <= last:
            yield f"={first:%Y%m}"
        else:
            end = min(end, last)
            yield from (f"={first:%Y%m}{day:02d}" for day in range(first.day, end.day + 1))
        if end == date.max:
            return
        first = end + timedelta(days=1)


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
