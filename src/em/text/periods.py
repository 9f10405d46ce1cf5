"""Find the periods that a question asks about: before May 2023, between August and November.

`em.text.dates` finds the dates that a text names. A question puts them in relation: what lies
before a date is not in it. A period may be open at one end.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from em.text.dates import (
    BARE,
    DATE,
    TRIGGERS,
    DaySpan,
    month_of,
    near_date,
    read_date,
)

_DAY = timedelta(days=1)
_MOST_WORDS = 2_000
_BEFORE = ("before", "prior to", "earlier than")
_UNTIL = ("until", "till", "up to", "by", "as of", "through")
_AFTER = ("after", "later than")
_SINCE = ("since", "starting", "from")
_RELATION = re.compile(
    rf"\b(?P<relation>{'|'.join((*_BEFORE, *_UNTIL, *_AFTER, *_SINCE, 'between'))})"
    r"(?: and including)?(?: the)? "
)
_AND = re.compile(r" (?:and|to|until|till|through)(?: the)? ")
_TO = re.compile(r" (?:to|until|till|through) ")
_NUMBER = re.compile(r"(\d\d?)(?:st|nd|rd|th)?\b(?: (?P<year>(?:19|20)\d\d)\b)?")


class Period(NamedTuple):
    """A range of days, the last one included. None: it is open at that end."""

    first: date | None
    last: date | None
    any_year: bool = False
    """Whether the question names no year, so that this is the nearest one."""

    def holds(self, day: date) -> bool:
        """Return whether a day is in the period."""
        if self.any_year and self.first is not None and self.last is not None:
            first, last, at = ((d.month, d.day) for d in (self.first, self.last, day))
            return first <= at <= last if first <= last else at >= first or at <= last
        return (self.first is None or day >= self.first) and (self.last is None or day <= self.last)


class _Found(NamedTuple):
    """A date in a text, with the position where it ends."""

    spans: list[DaySpan]
    end: int


def periods(words: Sequence[str], at: datetime) -> list[Period]:
    """Return the periods that the words of a question name, asked at that moment."""
    words = words[:_MOST_WORDS]
    if TRIGGERS.isdisjoint(words):
        return []
    return list(dict.fromkeys(_periods(" ".join(words), at.date())))


def _periods(text: str, today: date) -> Iterator[Period]:
    start = 0
    for match in _RELATION.finditer(text):
        if match.start() < start or (first := _date_at(text, match.end(), today)) is None:
            continue
        try:
            begin, found, end = _related(text, match, first, today)
        except (ValueError, OverflowError):
            continue  # outside the years that a date can have
        yield from _plain(text[start:begin], today)
        yield from found
        start = end
    yield from _plain(text[start:], today)


def _plain(text: str, today: date) -> Iterator[Period]:
    start = 0
    while match := DATE.search(text, start):
        found, start = _Found(read_date(match, today), match.end()), match.end()
        ranged = None
        if found.spans and _TO.match(text, start):
            ranged = _range(text, found, today)
        if ranged is None:
            yield from (Period(*span) for span in found.spans)
        else:
            yield ranged[0]
            start = ranged[1]


def _date_at(text: str, start: int, today: date) -> _Found | None:
    """Read the date that begins at a position; a month or a year may stand alone there."""
    for pattern in (DATE, BARE):
        if (match := pattern.match(text, start)) and (spans := read_date(match, today)):
            return _Found(spans, match.end())
    return None


def _related(
    text: str, match: re.Match[str], first: _Found, today: date
) -> tuple[int, list[Period], int]:
    """Return where a relation begins, its periods, and where it ends."""
    relation, begin = match["relation"], match.start()
    if relation in ("between", "from"):
        ranged = _range(text, first, today)
        if ranged is not None:
            return begin, [ranged[0]], ranged[1]
        if relation == "between":
            return begin, [Period(*span) for span in first.spans], first.end
    return begin, [_open(relation, span, today) for span in first.spans], first.end


def _open(relation: str, span: DaySpan, today: date) -> Period:
    """Return the period on one side of a date. `from May` alone means in May."""
    if relation == "from":
        return Period(*span)
    if relation in _SINCE + _AFTER and span.any_year and span.first > today:
        span = near_date(span, today.year - 1)
    if relation in _BEFORE:
        return Period(None, span.first - _DAY)
    if relation in _UNTIL:
        return Period(None, span.last)
    return Period(span.last + _DAY if relation in _AFTER else span.first, None)


def _range(text: str, first: _Found, today: date) -> tuple[Period, int] | None:
    """Read the second date of `between … and …`. A year or a month of one counts for both."""
    joint = _AND.match(text, first.end)
    if joint is None:
        return None
    begin = first.spans[0]
    second = _date_at(text, joint.end(), today)
    if second is None:
        number = _NUMBER.match(text, joint.end())
        if number is None or begin.first != begin.last or int(number[1]) <= begin.first.day:
            return None  # between 5 May and 12
        if number["year"] and begin.any_year:
            begin = near_date(begin, int(number["year"]))._replace(any_year=False)
        last = month_of(begin.first.year, begin.first.month).last
        end = begin.first.replace(day=min(int(number[1]), last.day))
        return Period(begin.first, end, begin.any_year), number.end()
    end_span = second.spans[0]
    any_year = begin.any_year and end_span.any_year
    if begin.any_year and not end_span.any_year:
        begin = near_date(begin, end_span.last.year)
        if begin.first > end_span.last:
            begin = near_date(begin, end_span.last.year - 1)
    elif end_span.any_year:
        end_span = near_date(end_span, begin.first.year)
        if end_span.last < begin.first:
            end_span = near_date(end_span, begin.first.year + 1)
    if end_span.last < begin.first:
        begin, end_span = end_span, begin
    return Period(begin.first, end_span.last, any_year), second.end
