"""What a JSON value says beyond its JSON type: a date, a time, a decimal, an amount of money.

Each conversion is exact or refused: a date that could be two days is none, and whatever does not
come back as it was given is kept beside the typed value.
"""

import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

LONGEST = 40
"""Characters of a text that may be more than a text."""

_TRUTHS = frozenset({"true", "false", "True", "False"})
_DIGIT = re.compile(r"\d")
_NUMERIC = frozenset("-0123456789")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_TIME = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?")
_DATETIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?")
_INT = re.compile(r"-?(0|[1-9]\d{0,30})")
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,30})\.\d{1,30}")
_MONEY = re.compile(
    r"(?P<sign>-?)(?:(?P<symbol>US\$|[$€£¥])|(?P<before>[A-Z]{3}) )(?P<first>[\d,]+(?:\.\d+)?)"
    r"|(?P<last>-?[\d,]+(?:\.\d+)?) ?(?:(?P<behind>[A-Z]{3})|(?P<euro>€))"
)
_GROUPED = re.compile(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")
CURRENCIES = {"US$": "USD", "$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_KNOWN = frozenset(
    "USD EUR GBP JPY CHF CAD AUD NZD CNY INR BRL SEK NOK DKK".split()
    + "PLN CZK HUF MXN ZAR KRW SGD HKD".split()
)
MONTHS = {
    name: number
    for number, name in enumerate(
        "january february march april may june july".split()
        + "august september october november december".split(),
        1,
    )
}
MONTHS |= {name[:3]: number for name, number in MONTHS.items()} | {"sept": 9}
_DAY_MONTH = re.compile(r"(\d{1,2})\.? ([A-Za-z]{3,9})\.?,? (\d{4})")
_MONTH_DAY = re.compile(r"([A-Za-z]{3,9})\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})")
_NUMERIC_DATES = (
    (re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})"), (1, 2, 3)),
    (re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})"), (3, 2, 1)),
)


def kind_of(value: Any) -> str:
    """The kind of a JSON value; texts are looked into."""
    kind = _KINDS.get(type(value))
    return text_kind(value) if kind is None else kind


_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    list: "list",
    dict: "object",
    type(None): "null",
}


def text_kind(text: str) -> str:
    """What a text says, by its shape alone."""
    if not 0 < len(text) <= LONGEST:
        return "text"
    if text in _TRUTHS:
        return "bool_text"
    if _DIGIT.search(text) is None:
        return "text"  # whatever else there is has a digit
    # What begins with a letter can only be a date in words or an amount.
    for kind, test in _TESTS if text[0] in _NUMERIC else _WORDY:
        if test(text):
            return kind
    return _slashed_kind(text)


def _slashed_kind(text: str) -> str:
    """A date with slashes: the number above 12 tells the day; without one nothing does."""
    found = _SLASHED.fullmatch(text)
    if found is None or (to_date(text, "dmy") is None and to_date(text, "mdy") is None):
        return "text"
    if int(found[1]) > 12:
        return "date_dmy"
    return "date_mdy" if int(found[2]) > 12 else "date_slashed"


def to_date(text: str, order: str = "") -> date | None:
    """A date in ISO 8601, in words, with dots or year first; with slashes only in a known order."""
    try:
        if _ISO_DATE.fullmatch(text):
            return date.fromisoformat(text)
        for pattern, (year, month, day) in _NUMERIC_DATES:
            if found := pattern.fullmatch(text):
                return date(int(found[year]), int(found[month]), int(found[day]))
        return _in_words(text) or _slashed(text, order)
    except (ValueError, KeyError):
        return None


def _in_words(text: str) -> date | None:
    if found := _DAY_MONTH.fullmatch(text):
        return date(int(found[3]), MONTHS[found[2].lower()], int(found[1]))
    if found := _MONTH_DAY.fullmatch(text):
        return date(int(found[3]), MONTHS[found[1].lower()], int(found[2]))
    return None


def _slashed(text: str, order: str) -> date | None:
    found = _SLASHED.fullmatch(text) if order else None
    if found is None:
        return None
    first, second, year = int(found[1]), int(found[2]), int(found[3])
    return date(year, second, first) if order == "dmy" else date(year, first, second)


def _dated_in_words(text: str) -> date | None:
    try:
        return _in_words(text)
    except (ValueError, KeyError):
        return None


def to_time(text: str) -> time | None:
    """A time of day."""
    try:
        return time.fromisoformat(text) if _TIME.fullmatch(text) else None
    except ValueError:
        return None


def to_datetime(text: str) -> datetime | None:
    """A moment; its zone is kept, and none is made up."""
    try:
        return datetime.fromisoformat(text) if _DATETIME.fullmatch(text) else None
    except ValueError:
        return None


def to_decimal(value: Any) -> Decimal | None:
    """A number, exactly as it was written."""
    if type(value) in (int, float):
        return Decimal(repr(value))
    if isinstance(value, str) and (_INT.fullmatch(value) or _DECIMAL.fullmatch(value)):
        return Decimal(value)
    return None


def to_money(text: str) -> tuple[Decimal, str] | None:
    """An amount with its currency; none without one."""
    found = _MONEY.fullmatch(text)
    if found is None:
        return None
    symbol = found["symbol"] or found["euro"]
    currency = CURRENCIES[symbol] if symbol else (found["before"] or found["behind"])
    number = (found["sign"] or "") + (found["first"] or found["last"])
    if currency not in _KNOWN or not _GROUPED.fullmatch(number):
        return None
    try:
        return Decimal(number.replace(",", "")), currency
    except InvalidOperation:
        return None


def written_datetime(value: datetime) -> str:
    """A moment as JSON has it here."""
    text = value.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text


_TESTS: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("date", to_date),
    ("time", to_time),
    ("datetime", to_datetime),
    ("int_text", _INT.fullmatch),
    ("decimal_text", _DECIMAL.fullmatch),
    ("money", to_money),
)
_WORDY: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("date", _dated_in_words),
    ("money", to_money),
)
