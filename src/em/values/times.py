"""Moments, durations, and ids that begin with a moment.

Callers get datetimes in UTC, the store has microseconds since 1970.
"""

import os
import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Any

from em.errors import EmError, InputError

Moment = datetime | date | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw]?)", re.IGNORECASE | re.ASCII)
_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?", re.ASCII)
_MONTH = re.compile(r"[0-9]{4}-(?:0[1-9]|1[0-2])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = timedelta(days=100_000)


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def now_micros() -> int:
    """Return the current time as the store has it."""
    return time.time_ns() // 1_000


def moment(value: Moment, field: str = "at") -> datetime:
    """Read a datetime, a date, or either in ISO 8601. Without a time zone it is UTC."""
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if isinstance(value, str):
        value = _parse(value, field)
    if not isinstance(value, date):
        raise InputError(
            f"expected a datetime, a date or ISO 8601 text, got {type(value).__name__}",
            place=field,
        )
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise InputError(
            f"{value.isoformat()} is not between the years 1 and 9999 in UTC", place=field
        ) from None


def _parse(text: str, field: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"expected a date or time, got {text[:80]!r}",
            place=field,
            fix="write 2025-04-07 or 2025-04-07T09:30:00Z",
        ) from None


def is_date(value: Any) -> bool:
    """Return whether a value is a date, or a date and a time, as ISO 8601 writes them."""
    if not isinstance(value, str) or not 10 <= len(value) <= 40 or value[4:5] != "-":
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


DATE_FORMS = (
    "%d %B %Y", "%B %d, %Y", "%B %d %Y", "%d %b %Y", "%b %d, %Y", "%b %d %Y",
    "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y",
)  # fmt: skip
"""How people write a date, beside ISO 8601: formats of `strftime`, in Python's own language."""
_PADDED = re.compile(r"\b0(?=\d)")


def written_dates(day: date) -> dict[str, str]:
    """Return the texts that write a date, each with its format; `5/2/2026` may be another day.

    The first format counts: May is a whole name.
    """
    texts = ((day.strftime(form), form) for form in reversed(DATE_FORMS))
    return {one: form for text, form in texts for one in (text, _PADDED.sub("", text))}


def read_date(text: str, form: str) -> date | None:
    """Return the date that a text writes in a format of `strftime`; None if it does not."""
    try:
        return datetime.strptime(text, form).date()  # noqa: DTZ007 - a date has no time zone
    except ValueError:
        return None


def is_month(value: Any) -> bool:
    """Return whether a value is a month as ISO 8601 writes it: 2025-04."""
    return isinstance(value, str) and _MONTH.fullmatch(value) is not None


def is_clock(value: Any) -> bool:
    """Return whether a value is a time of day such as 07:30 or 07:30:15."""
    return isinstance(value, str) and _CLOCK.fullmatch(value) is not None


def seconds_of(value: Any) -> float | None:
    """Return the seconds since 1970 of a date in ISO 8601 or of a number of them; None for others.

    A number counts the seconds or the milliseconds of a moment between 2001 and 2286.
    """
    if is_date(value):
        return moment(value).timestamp()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return next((value / unit for unit in (1, 1000) if 1e9 <= value / unit < 1e10), None)
    return None


def to_micros(value: datetime) -> int:
    """Return whole microseconds since 1970, without rounding errors."""
    return (value - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the datetime of microseconds since 1970."""
    return _EPOCH + timedelta(0, 0, micros)


def parse_duration(
    text: str,
    setting: str,
    *,
    bare_unit: str = "",
    expected: str = "a duration (30s, 10m, 12h, 7d or 2w)",
    place: str = "",
    error: type[EmError] = InputError,
) -> timedelta:
    """Parse a duration: a number and its unit, s, m, h, d or w.

    setting: the name that the error shows.
    bare_unit: the unit of a number without one; by default such a number is an error.
    expected: what the error says the setting must be.
    """
    if found := _DURATION.fullmatch(text.strip()):
        number, unit = float(found[1]), found[2].lower() or bare_unit
        if unit and (length := timedelta(**{_UNITS[unit]: number})) < _LONGEST:
            return length
    raise error(f"{setting} must be {expected}, got {text[:40]!r}", place=place)


def new_ids(count: int) -> list[str]:
    """Make identifiers that sort by time, and within one call by their order.

    Sorted ids are also much cheaper to insert into an index.
    """
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    random = os.urandom(8 * count).hex()
    return sorted(stamp + random[start : start + 16] for start in range(0, 16 * count, 16))


def new_id() -> str:
    """Make one identifier: the millisecond of its creation and 64 random bits, in hexadecimal."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(8).hex()}"


def made_at(identifier: str) -> datetime:
    """Return when an identifier was made."""
    return datetime.fromtimestamp(int(identifier[:12], 16) / 1e3, UTC)
