"""Find the dates that an English text names, absolute or relative to the moment of speaking.

`spans(["last", "friday"], at)` returns the first and last day of each. Only clear dates count:
"may" is a month only beside a preposition, a day or a year.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from em.text.numbers import UNITS

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august"),
    *("september", "october", "november", "december"),
)
MONTHS = {name: n for n, name in enumerate(_MONTHS, 1)}
MONTHS |= {name[:3]: n for name, n in MONTHS.items()} | {"sept": 9}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_COUNTS = {word: n for word, n in UNITS.items() if 0 < n <= 10}
_COUNTS |= {"a": 1, "an": 1, "couple": 2, "few": 3}
_DAY = timedelta(days=1)

_RELATIVE = (
    "today tonight yesterday tomorrow ago week weeks weekend weekends month months year years night"
    " day days"
)
TRIGGERS = frozenset(
    [*MONTHS, *_WEEKDAYS, *_SEASONS, *_RELATIVE.split(), *map(str, range(1900, 2100))]
)
"""A text without any of these words names no date."""


class DaySpan(NamedTuple):
    """A range of days, the last one included."""

    first: date
    last: date
    any_year: bool = False
    """Whether the text names no year, so that this is the nearest one."""

    @property
    def days(self) -> int:
        """The number of days."""
        return (self.last - self.first).days + 1


MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
"""A pattern of the names of months."""
_weekday = "|".join(_WEEKDAYS)
_season = "|".join(_SEASONS)
_count = r"\d{1,3}|" + "|".join(_COUNTS)
_years = r"(?:19|20)\d\d"
# Matches words joined by one space: 2025-04-07 is 2025 04 07 there.
DATE = re.compile(
    rf"""\b(?:
      (?P<iso>{_years}\ [01]\d\ [0-3]\d)(?:t\d+)?
    | (?P<slashed>\d\d?\ \d\d?)\ (?P<lyear>{_years})
    | (?P<rolling>last|past|previous|next|coming)\ (?P<rcount>{_count})\ (?:of\ )?
        (?P<runit>day|week|month|year)s?
    | (?:(?:in|over|within|during|for)\ the\ last|past)\ (?P<runit1>day|week|month|year)
    | (?P<day>\d\d?)(?:st|nd|rd|th)?\ (?:of\ )?(?P<dmonth>{MONTH})(?:\ (?P<dyear>{_years}))?
    | (?P<mmonth>{MONTH})\ (?:the\ )?(?P<mday>\d\d?)(?:st|nd|rd|th)?(?:\ (?P<myear>{_years}))?
    | (?P<named>{MONTH})\ (?:of\ )?(?P<nyear>{_years})
    | (?P<season>{_season})\ (?:of\ )?(?P<syear>{_years})
    | (?P<which>last|this|next|past|previous|coming)[ ]
        (?P<unit>week(?:end)?|month|year|night|{_weekday}|{MONTH}|{_season})
    | (?P<count>{_count})\ (?:of\ )?(?P<aunit>day|week|weekend|month|year)s?\ ago
    | in\ (?P<fcount>{_count})\ (?P<funit>day|week|month|year)s
    | (?P<near>day\ before\ yesterday|day\ after\ tomorrow|yesterday|today|tonight|tomorrow)
    | (?:in|during|since|until|of|early|late|mid|by|the)[ ]
        (?:(?P<imonth>{MONTH})|(?P<iseason>{_season}))(?!\ (?:of\ )?\d)
    | (?:in|during|since|until|of|by)\ (?P<year>{_years})
    | (?P<weekday>{_weekday})s?
    )\b""",
    re.VERBOSE,
)

BARE = re.compile(rf"(?:(?P<imonth>{MONTH})|(?P<iseason>{_season})|(?P<year>{_years}))\b")
"""A month, a season or a year that stands alone: a date only where one must follow."""

_PLURALS = frozenset({"days", "weeks", "months", "years"})
_COMMON = _PLURALS | {"day", *map(str, range(1900, 2100))}
_COUNT = re.compile(_count)
_BEFORE_YEAR = frozenset({"in", "during", "since", "until", "of", "by"})
_TWO_DIGITS = re.compile(r"[01]\d")


def spans(words: Sequence[str], at: datetime, *, is_ahead: bool = False) -> list[DaySpan]:
    """Return the dates that the words of a text name, for a speaker at that moment.

    is_ahead: a day without a year, and a day of the week, is the next one, not the nearest.
    """
    places = [n for n, word in enumerate(words) if word in TRIGGERS]
    found: dict[DaySpan, bool] = {}
    end = 0
    for n in places:
        if n < end:
            continue
        # A date is a few words around a trigger.
        end = n + 4
        near = words[max(0, n - 3) : end]
        is_alone = words[n] in _COMMON and sum(map(TRIGGERS.__contains__, near)) == 1
        if is_alone and not _may_be_date(words, n):
            continue  # common in records: the pattern would find nothing, at ten times the cost
        for match in DATE.finditer(" ".join(near)):
            for one in read_date(match, at.date()):
                is_weekday = match["weekday"] is not None
                found[_next(one, at.date(), is_weekday) if is_ahead else one] = is_weekday
    if not is_ahead:
        return list(found)
    # Monday, 4 May is one day.
    dates = {one.first.weekday() for one, is_weekday in found.items() if not is_weekday}
    return [one for one, is_day in found.items() if not is_day or one.first.weekday() not in dates]


def _next(one: DaySpan, today: date, is_weekday: bool) -> DaySpan:
    if is_weekday:
        return one if one.first >= today else _one(one.first + _DAY * 7)
    if one.any_year and one.days == 1:
        own = near_date(one, today.year)
        return own if own.first >= today else near_date(one, today.year + 1)
    return one


def _may_be_date(words: Sequence[str], n: int) -> bool:
    """Return whether a common word with no other trigger near it may be part of a date."""
    before = words[n - 1] if n else ""
    if words[n] == "day" or words[n] in _PLURALS:
        return before in ("of", "past", "last") or bool(_COUNT.fullmatch(before))
    if before in _BEFORE_YEAR or (before.isdecimal() and n > 1 and words[n - 2].isdecimal()):
        return True
    return n + 2 < len(words) and bool(_TWO_DIGITS.fullmatch(words[n + 1]))


def read_date(match: re.Match[str], today: date) -> list[DaySpan]:
    """Return what a match of `DATE` means on a day: 5/2/2023 may be two days."""
    groups = {key: value for key, value in match.groupdict().items() if value}
    for key in groups:
        if (read := _READERS.get(key)) is not None:
            try:
                span = read(groups, today)
            except (ValueError, OverflowError):
                return []  # a 31st of February, or outside the years that a date can have
            return [span] if isinstance(span, DaySpan) else span
    raise AssertionError(match[0])


def _slashed(groups: dict[str, str], _today: date) -> list[DaySpan]:
    """Read 5/2/2023 as the 2nd of May and as the 5th of February: countries differ."""
    year, (one, other) = int(groups["lyear"]), map(int, groups["slashed"].split())
    found = []
    for month, day in ((one, other), (other, one)):
        with suppress(ValueError):  # the month 13, or a 31st of February
            found.append(_one(date(year, month, day)))
    return list(dict.fromkeys(found))


def _rolling(groups: dict[str, str], today: date) -> DaySpan:
    """Read "the past two weeks": up to today, or from today on."""
    unit = groups.get("runit") or groups["runit1"]
    ahead = groups.get("rolling") in ("next", "coming")
    number = _number(groups.get("rcount", "one")) * (1 if ahead else -1)
    if unit in ("day", "week"):
        far = today + _DAY * number * (7 if unit == "week" else 1)
    else:
        month = month_of(*_plus_months(today, number * (12 if unit == "year" else 1)))
        far = month.first.replace(day=min(today.day, month.last.day))
    return DaySpan(today, far) if ahead else DaySpan(far, today)


def _day(year: str | None, name: str, number: str, today: date) -> DaySpan:
    month, day = MONTHS[name], int(number)
    if year is not None:
        return _one(date(int(year), month, day))
    # Without a year take the nearest date, with a preference for the past.
    near = date(today.year, month, day)
    if near - today >= timedelta(days=180):
        near = near.replace(year=today.year - 1)
    return DaySpan(near, near, any_year=True)


def _inside(month: int, season: str, today: date) -> DaySpan:
    """Return the nearest month, or season that begins in it, with a preference for the past."""
    year = _year_near(month, today)
    found = _season_of(year, season) if season else month_of(year, month)
    return found._replace(any_year=True)


def near_date(span: DaySpan, year: int) -> DaySpan:
    """Return a date that named no year as the one that begins in a year."""
    away = year - span.first.year
    try:
        first, last = (day.replace(year=day.year + away) for day in (span.first, span.last))
    except ValueError:
        return span  # the 29th of February, or outside the years that a date can have
    return DaySpan(first, last, span.any_year)


def _number(word: str) -> int:
    return int(word) if word.isdecimal() else _COUNTS[word]


def _year_near(month: int, today: date) -> int:
    return today.year if month - today.month < 6 else today.year - 1


def _near(groups: dict[str, str], today: date) -> DaySpan:
    words = groups["near"]
    offset = {"yesterday": -1, "tomorrow": 1}.get(words.split()[-1], 0)
    return _one(today + _DAY * (offset * 2 if words.startswith("day") else offset))


def _counted(count: str, unit: str, today: date, sign: int) -> DaySpan:
    number = sign * _number(count)
    if unit == "day":
        return _one(today + _DAY * number)
    if unit == "week":
        middle = today + _DAY * 7 * number
        return DaySpan(middle - _DAY * 2, middle + _DAY * 2)
    return _UNITS[unit](today, number)


def _which(groups: dict[str, str], today: date) -> DaySpan:
    unit = groups["unit"]
    sign = {"this": 0, "next": 1, "coming": 1}.get(groups["which"], -1)
    if unit in _UNITS:
        return _UNITS[unit](today, sign)
    if unit in _SEASONS:
        year = _year_near(_SEASONS[unit], today) if sign <= 0 else today.year + 1
        return _season_of(year, unit)
    if unit in MONTHS:
        month = MONTHS[unit]
        past = today.year if month < today.month else today.year - 1
        return month_of({-1: past, 0: today.year, 1: past + 1}[sign], month)
    if sign > 0:
        return _one(_weekday_before(unit, today + _DAY) + _DAY * 7)
    last = _weekday_before(unit, today)
    return _one(last if sign < 0 else last + _DAY * 7)


def _weekday_before(name: str, today: date) -> date:
    back = (today.weekday() - _WEEKDAYS.index(name)) % 7 or 7
    return today - _DAY * back


def month_of(year: int, month: int) -> DaySpan:
    """Return the days of a month."""
    return DaySpan(date(year, month, 1), date(year, month, monthrange(year, month)[1]))


def _season_of(year: int, name: str) -> DaySpan:
    first = date(year, _SEASONS[name], 1)
    return DaySpan(first, month_of(*_plus_months(first, 2)).last)


def _plus_months(day: date, number: int) -> tuple[int, int]:
    month = day.year * 12 + day.month - 1 + number
    return month // 12, month % 12 + 1


def _one(day: date) -> DaySpan:
    return DaySpan(day, day)


def _whole_week(today: date, weeks: int, first: int, last: int) -> DaySpan:
    """Return days of a week, this one or another; Monday is 0."""
    monday = today + _DAY * (7 * weeks - today.weekday())
    return DaySpan(monday + _DAY * first, monday + _DAY * last)


def _whole_year(year: int) -> DaySpan:
    return DaySpan(date(year, 1, 1), date(year, 12, 31))


_UNITS: dict[str, Callable[[date, int], DaySpan]] = {
    "week": lambda today, away: _whole_week(today, away, 0, 6),
    "weekend": lambda today, away: _whole_week(today, away, 5, 6),
    "month": lambda today, away: month_of(*_plus_months(today, away)),
    "year": lambda today, away: _whole_year(today.year + away),
    "night": lambda today, away: _one(today + _DAY * away),
}
_Groups = dict[str, str]
_READERS: dict[str, Callable[[_Groups, date], DaySpan | list[DaySpan]]] = {
    "iso": lambda groups, _: _one(date(*map(int, groups["iso"].split()))),
    "slashed": _slashed,
    "rolling": _rolling,
    "runit1": _rolling,
    "dmonth": lambda groups, today: _day(
        groups.get("dyear"), groups["dmonth"], groups["day"], today
    ),
    "mmonth": lambda groups, today: _day(
        groups.get("myear"), groups["mmonth"], groups["mday"], today
    ),
    "named": lambda groups, _: month_of(int(groups["nyear"]), MONTHS[groups["named"]]),
    "season": lambda groups, _: _season_of(int(groups["syear"]), groups["season"]),
    "which": _which,
    "count": lambda groups, today: _counted(groups["count"], groups["aunit"], today, -1),
    "fcount": lambda groups, today: _counted(groups["fcount"], groups["funit"], today, 1),
    "near": _near,
    "imonth": lambda groups, today: _inside(MONTHS[groups["imonth"]], "", today),
    "iseason": lambda groups, today: _inside(_SEASONS[groups["iseason"]], groups["iseason"], today),
    "year": lambda groups, _: _whole_year(int(groups["year"])),
    "weekday": lambda groups, today: _one(_weekday_before(groups["weekday"], today + _DAY)),
}
"""By a group of `DATE`: what a match with it means."""


@lru_cache(maxsize=4_096)
def span_terms(span: DaySpan) -> tuple[str, ...]:
    """Return the index terms of a range of days: `=20250407` and `=202504`."""
    days = span.days if span.days <= 7 else 0
    each = (span.first + _DAY * n for n in range(days))
    return (*(f"={day:%Y%m%d}" for day in each), *month_terms(span))


def month_terms(span: DaySpan) -> Iterator[str]:
    """Yield the index terms of the months of a range, at most twelve."""
    month = span.first.replace(day=1)
    for _ in range(12):
        if month > span.last:
            return
        yield f"={month:%Y%m}"
        if (month.year, month.month) == (date.max.year, 12):
            return
        month = date(*_plus_months(month, 1), 1)
