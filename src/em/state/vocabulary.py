"""What the words of a question can mean for a type of records: its names, fields, values, periods.

The words come from the types and records themselves; beside them there are only words of English
that every question uses. A word that means nothing here is not passed over: the question is not
understood.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import NamedTuple

from em.state.conditions import is_mixed, kind_of_field
from em.state.schema import PROFILE, FieldSchema, TypeSchema
from em.state.state import State
from em.state.types import MONTHS, _words, resolve
from em.text.stems import stem
from em.values.canonical import Json

_TOKEN = re.compile(
    r"'s\b|\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?![\w])\+?|[^\W_]+"
)
_IS_SHORT = re.compile(r"\b(what|where|when|who)'s\b")
FILLERS = frozenset(
    "i my me mine the a an of did do does done was were is are am be been had have has having "
    "take took taken make made go went gone get got eat ate eaten there in on at by for during "
    "to that which who all any both and across recorded inclusive".split()
)
"""Words that say nothing about which records are meant. Others must mean something."""
PRONOUNS = frozenset("she her hers he his him they their them".split())
ORIGINS = frozenset("from origin source departure sender start".split())
COMPANY = frozenset(
    "with companion companions attendee attendees participant participants people guest guests "
    "friend friends person contact".split()
)
SELLERS = frozenset("store shop vendor seller supplier author company brand restaurant".split())
MONEY = frozenset("spend cost pai price expens amount fee".split())
"""Stems of words for what something costs."""
_MONEY_PARTS = frozenset("cost price amount fee total usd eur gbp spent paid spend expense".split())
_DURATION = frozenset("time duration lasted lasting long length".split())
_DURATION_PARTS = frozenset(
    "min mins minute minutes hour hours hr hrs sec secs second seconds day days week weeks "
    "duration length".split()
)
_STARTS = frozenset("start started starts begin began begins begun".split())
_UNITS = {
    "minute": "min",
    "hour": "hr",
    "second": "sec",
    "dollar": "usd",
    "euro": "eur",
    "star": "rating",
}
QUALIFIERS = frozenset(
    "last first next previous prior latest earliest max minimum maximum average avg mean "
    "planned estimated expected budget budgeted target goal net gross tax discount refund refunded "
    "cancelled canceled original old new remaining".split()
)
"""Words that change what a field means: a question about it must say them."""
_SUBJECTS = frozenset("did do does has have".split())
_GENERIC = frozenset("date time at on n num of is id day".split())
_MORE = frozenset("more longer greater higher over above later".split())
_LESS = frozenset("less fewer shorter lower under below earlier".split())


def words_of(text: str) -> list[str]:
    """Split a question into lower-case words, numbers, dates and times."""
    plain = text.casefold().replace("’", "'")
    return _TOKEN.findall(_IS_SHORT.sub(r"\1 is", plain))


def forms(word: str) -> frozenset[str]:
    """Return a word, and what it may be the plural of."""
    found = {word}
    if len(word) > 4 and word.endswith("ies"):
        found.add(word[:-3] + "y")
    if len(word) > 4 and word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        found.add(word[:-2])
    if len(word) > 3 and word.endswith("s") and word[-2] not in "su":
        found.add(word[:-1])
    return frozenset(found)


def is_same(one: str, other: str) -> bool:
    """Tell whether two words are the same, also if one or both are plurals."""
    return not forms(one).isdisjoint(forms(other))


class Named(NamedTuple):
    """The type is named."""


class Value(NamedTuple):
    """Records with one of these texts in a field. before: the preposition before it."""

    field: FieldSchema
    texts: tuple[str, ...]
    before: str = ""


class Word(NamedTuple):
    """A word that names a field. exact: it is part of the field's name."""

    field: FieldSchema
    exact: bool = True


class Truth(NamedTuple):
    """Records in which a field is true."""

    field: FieldSchema


class Filled(NamedTuple):
    """Records in which a list has items, or has none."""

    field: FieldSchema
    filled: bool


class Number(NamedTuple):
    """A comparison with a number. unit: the field that a unit inside of it names."""

    op: str
    number: Decimal
    unit: FieldSchema | None = None


class Clock(NamedTuple):
    """A comparison with a time of day."""

    op: str
    at: time


class Period(NamedTuple):
    """Days from the first to the last of them; None where it is open."""

    first: date | None
    last: date | None


Meaning = Named | Value | Word | Truth | Filled | Number | Clock | Period | None
"""What some words mean; None for words that say nothing."""
Found = tuple[int, Meaning]
"""How many words mean something, and what."""


class Vocabulary:
    """The meanings of words for one type of a state."""

    def __init__(self, state: State, type_: TypeSchema, today: date) -> None:
        self._today, self._type = today, type_
        self.fields = list(type_.fields.values())
        self.kinds = {field.name: kind_of_field(field) for field in self.fields}
        self.mixed = {field.name for field in self.fields if is_mixed(field)}
        self._names = type_words(type_)
        heads = [type_words(one)[-1] for one in state.collections.values()]
        self._is_alone = heads.count(self._names[-1]) == 1
        self._subject = words_of(state.subject)
        self._fillers = FILLERS | PRONOUNS
        rows = state.rows(type_.collection)
        self._values = self._read_values(rows)
        self.nightly = {field.name for field in self.fields if self._is_nightly(field, rows)}

    def _is_nightly(self, field: FieldSchema, rows: Sequence[Json]) -> bool:
        """Tell whether times of a field lie on both sides of midnight, as bedtimes do."""
        if self.kinds[field.name] != "time":
            return False
        times = {str(row[field.name])[:2] for row in rows if row.get(field.name) is not None}
        return any(hour < "05" for hour in times) and any(hour >= "20" for hour in times)

    def _read_values(self, rows: Sequence[Json]) -> dict[tuple[str, ...], dict[str, set[str]]]:
        """Return the texts of records by their words, then by field."""
        found: dict[tuple[str, ...], dict[str, set[str]]] = {}
        texts = [field for field in self.fields if _holds_texts(field)]
        seen: dict[str, set[str]] = {field.name: set() for field in texts}
        for row in rows:
            for field in texts:
                value = row.get(field.name)
                items = value if isinstance(value, list) else [value]
                seen[field.name].update(one for one in items if isinstance(one, str))
        for name, values in seen.items():
            for value in values:
                if not 0 < len(value) <= 60:
                    continue
                words = words_of(value.replace("_", " "))
                if not words or set(words) <= self._fillers:
                    continue
                for last in forms(words[-1]):
                    known = found.setdefault((*words[:-1], last), {})
                    known.setdefault(name, set()).add(value)
        return found

    def meanings(self, words: Sequence[str], start: int) -> Iterator[Found]:
        """Return everything that the words from a place on can mean."""
        yield from self._values_at(words, start)
        yield from self._type_at(words, start)
        yield from self._lists_at(words, start)
        yield from self._numbers_at(words, start)
        yield from times_at(words, start, self._today)
        for field in self.fields_of(words[start], words):
            follows = words[start + 1 : start + 2] == ["up"]
            if self.kinds[field.name] == "bool":
                yield from self._truth_at(words, start, field)
            else:
                yield 1 + follows, Word(field)
        for field in self._related(words[start], words):
            yield 1, Word(field, exact=False)
        if words[start] in self._fillers:
            yield 1, None
        size = len(self._subject)
        if size and list(words[start : start + size]) == self._subject:
            yield size + (words[start + size : start + size + 1] == ["'s"]), None

    def _values_at(self, words: Sequence[str], start: int) -> Iterator[Found]:
        before = words[start] if words[start] in ("from", "with", "to") else ""
        begin = start + 1 if before else start
        for end in range(begin + 1, min(len(words), begin + 8) + 1):
            known: dict[str, set[str]] = {}
            for last in forms(words[end - 1]):
                for name, texts in self._values.get((*words[begin : end - 1], last), {}).items():
                    known.setdefault(name, set()).update(texts)
            for name, texts in known.items():
                field = next(one for one in self.fields if one.name == name)
                parts = set(field_words(field))
                if before == "from" and not parts & (ORIGINS | SELLERS):
                    continue
                if before == "to" and parts & (ORIGINS | SELLERS):
                    continue
                if before == "with" and not parts & COMPANY:
                    continue
                if _is_qualified(field, words) or self._is_subject(words, start, end):
                    continue
                yield end - start, Value(field, tuple(sorted(texts)), before)

    def _is_subject(self, words: Sequence[str], start: int, end: int) -> bool:
        """Tell whether a value stands where the one who acts is named: "did Bo go"."""
        at = start - 1
        while at >= 0 and words[at] in ("my", "the", "a", "an", "her", "his", "their"):
            at -= 1
        acts = at >= 0 and words[at] in _SUBJECTS
        return acts and (end >= len(words) or not list(self._type_at(words, end)))

    def _type_at(self, words: Sequence[str], start: int) -> Iterator[Found]:
        size = len(self._names)
        here = words[start : start + size]
        if len(here) == size and all(map(is_same, here, self._names)):
            yield size, Named()
        elif size > 1 and self._is_alone and is_same(words[start], self._names[-1]):
            yield 1, Named()
        elif size > 1 and words[start] == self._names[0]:
            rest = words[start + 1 :]
            if all(any(is_same(word, name) for word in rest) for name in self._names[1:]):
                yield 1, None  # "medical cost of all visits"

    def _truth_at(self, words: Sequence[str], start: int, field: FieldSchema) -> Iterator[Found]:
        parts = field_words(field)
        if list(words[start : start + len(parts)]) == parts:
            yield len(parts), Truth(field)

    def _lists_at(self, words: Sequence[str], start: int) -> Iterator[Found]:
        lists = [field for field in self.fields if resolve(field).annotation.startswith("list")]
        for one in lists:
            for other in lists:
                if list(words[start : start + 4 : 2]) == ["neither", "nor"] and (
                    _is_name(words[start + 1], one)
                    and _is_name(words[start + 3 : start + 4], other)
                ):
                    yield 2, Filled(one, filled=False)
            for begin in (["nor"], ["without"], ["without", "any"], ["with", "no"]):
                size = len(begin)
                is_second = begin != ["nor"] or words[max(0, start - 2) : start - 1] == ["neither"]
                follows = _is_name(words[start + size : start + size + 1], one)
                if list(words[start : start + size]) == begin and follows and is_second:
                    yield size + 1, Filled(one, filled=False)
            if list(words[start : start + 3]) == ["at", "least", "one"] and _is_name(
                words[start + 3 : start + 4], one
            ):
                yield 4, Filled(one, filled=True)

    def _numbers_at(self, words: Sequence[str], start: int) -> Iterator[Found]:
        for size, op in _comparison_before(words, start):
            number = _number(words, start + size)
            if number is not None and not words[start + size].endswith("+"):
                yield size + 1, Number(op, number)
        number = _number(words, start)
        if number is None:
            return
        if words[start].endswith("+"):
            yield 1, Number(">=", number)
            return
        yield 1, Number("==", number)
        after = _comparison_behind(words, start + 1)
        if after:
            yield 3, Number(after, number)
        after = _comparison_behind(words, start + 2)
        if after:
            for field in self.fields_of(words[start + 1], words):
                if self.kinds[field.name] == "number":
                    yield 4, Number(after, number, field)

    def fields_of(self, word: str, words: Sequence[str]) -> Iterator[FieldSchema]:
        """Return the fields that a word names: as a part of their names, or as their unit."""
        for field in self.fields:
            if _is_name(word, field) and not _is_qualified(field, words):
                yield field

    def _related(self, word: str, words: Sequence[str]) -> Iterator[FieldSchema]:
        """Return the fields that a word of general meaning stands for."""
        for field in self.fields:
            if _is_name(word, field) or _is_qualified(field, words):
                continue
            parts, kind = set(field_words(field)), self.kinds[field.name]
            counts = kind == "number" or field.name in self.mixed
            is_money = kind == "money" or (counts and parts & _MONEY_PARTS)
            is_time = kind == "number" and parts & _DURATION_PARTS
            begins = kind == "time" and (parts & _STARTS or parts == {"time"})
            if (
                (stem(word) in MONEY and is_money)
                or (word in _DURATION and is_time)
                or (word in _STARTS and begins)
                or (len(word) >= 3 and kind == "" and _begins_with(parts, stem(word)))
            ):
                yield field


def type_words(type_: TypeSchema) -> tuple[str, ...]:
    """Return the words of a type's name."""
    found = [word.lower() for word in _words(type_.given)]
    return tuple(found) or (type_.name.lower(),)


def _begins_with(parts: set[str], begin: str) -> bool:
    begin = begin[:-1] + "y" if begin.endswith("i") else begin
    return len(begin) >= 3 and any(part.startswith(begin) for part in parts - _GENERIC)


def _holds_texts(field: FieldSchema) -> bool:
    found = resolve(field)
    return found.target == "plain" and ("str" in found.annotation or "Literal" in found.annotation)


def field_words(field: FieldSchema) -> list[str]:
    """Return the words of a field's name."""
    return [word for word in field.name.split("_") if word]


def _is_qualified(field: FieldSchema, words: Sequence[str]) -> bool:
    """Tell whether a field's name has a word that changes its meaning and is not said."""
    return not (QUALIFIERS.intersection(field_words(field)) <= set(words))


def _is_name(word: str | Sequence[str], field: FieldSchema) -> bool:
    """Tell whether a word is a part of a field's name, or its unit."""
    if not isinstance(word, str):
        return bool(word) and _is_name(word[0], field)
    parts = field_words(field)
    own = [part for part in parts if part not in _GENERIC or len(parts) == 1]
    if "day" in parts or "days" in parts:
        own.append("day")
    units = {_UNITS[form] for form in forms(word) if form in _UNITS}
    return any(
        is_same(word, part) or stem(word) == stem(part) or units & forms(part) for part in own
    )


def _number(words: Sequence[str], at: int) -> Decimal | None:
    if at >= len(words) or not re.fullmatch(r"[\d,]+(\.\d+)?\+?", words[at]):
        return None
    return Decimal(words[at].rstrip("+").replace(",", ""))


def _comparison_before(words: Sequence[str], start: int) -> Iterator[tuple[int, str]]:
    two = tuple(words[start : start + 2])
    if two in (("at", "least"), ("no", "less")):
        yield 2, ">="
    if two == ("at", "most"):
        yield 2, "<="
    if len(two) == 2 and two[1] == "than" and two[0] in _MORE:
        yield 2, ">"
    if len(two) == 2 and two[1] == "than" and two[0] in _LESS:
        yield 2, "<"
    if words[start] in ("over", "above"):
        yield 1, ">"
    if words[start] in ("under", "below"):
        yield 1, "<"
    if words[start] == "exactly":
        yield 1, "=="


def _comparison_behind(words: Sequence[str], at: int) -> str:
    if list(words[at : at + 1]) != ["or"] or at + 1 >= len(words):
        return ""
    return ">=" if words[at + 1] in _MORE else "<=" if words[at + 1] in _LESS else ""


def times_at(words: Sequence[str], start: int, today: date) -> Iterator[Found]:
    """Return the periods and times of day that begin here."""
    yield from _clocks_at(words, start)
    word = words[start]
    if word in ("between", "from"):
        yield from _ranges_at(words, start + 1, 1, ("and", "to", "through", "until"))
    yield from _ranges_at(words, start, 0, ("through", "to"))
    for size, op in ((1, word),) if word in ("before", "after", "since", "until") else ():
        for length, found in periods_at(words, start + size, today):
            yield from ((size + length, one) for one in _open(op, found))
    begin = 1 if word in ("in", "during") else 0
    is_year = bool(words[start + begin : start + begin + 2] == ["calendar", "year"])
    for length, found in periods_at(words, start + begin + 2 * is_year, today):
        # A bare year may be any number.
        if begin or is_year or length > 1 or not words[start].isdigit():
            yield begin + 2 * is_year + length, found


def _open(op: str, found: Period) -> list[Period]:
    """Return what a preposition makes of a period. "until" may include it or not."""
    assert found.first is not None
    assert found.last is not None
    day = timedelta(days=1)
    return {
        "before": [Period(None, found.first - day)],
        "until": [Period(None, found.last), Period(None, found.first - day)],
        "after": [Period(found.last + day, None)],
        "since": [Period(found.first, None)],
    }[op]


def _clocks_at(words: Sequence[str], start: int) -> Iterator[Found]:
    signs = {
        ("before",): "<",
        ("after",): ">",
        ("at", "or", "after"): ">=",
        ("at", "or", "before"): "<=",
    }
    for begin, op in signs.items():
        size = len(begin)
        found = words[start + size : start + size + 1]
        if tuple(words[start : start + size]) == begin and found and ":" in found[0]:
            hour, minute = map(int, found[0].split(":"))
            if hour < 24 and minute < 60:
                yield size + 1, Clock(op, time(hour, minute))


def _ranges_at(
    words: Sequence[str], start: int, before: int, links: tuple[str, ...]
) -> Iterator[Found]:
    """Return a range of two days: 2024-01-01 through 2024-06-30."""
    if len(words) < start + 3 or words[start + 1] not in links:
        return
    first, last = _day(words[start]), _day(words[start + 2])
    if first is not None and last is not None and first <= last:
        yield before + 3, Period(first, last)


def _day(word: str) -> date | None:
    try:
        return date.fromisoformat(word) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", word) else None
    except ValueError:
        return None


def periods_at(
    words: Sequence[str], start: int, today: date, year: int | None = None
) -> Iterator[tuple[int, Period]]:
    """Return the periods that begin here: 2024, q4 2024, may of 2024, 2024-05-02, last year.

    year: the year of a part of one, where the words name none.
    """
    if start >= len(words):
        return
    word, rest = words[start], list(words[start + 1 : start + 3])
    day = _day(word)
    if day is not None:
        yield 1, Period(day, day)
    if _is_year(word):
        yield 1, _months(int(word), 1, 12)
    months = _part_of_year(word)
    if months is not None:
        if rest and _is_year(rest[0]):
            yield 2, _months(int(rest[0]), *months)
        elif rest[:1] == ["of"] and len(rest) > 1 and _is_year(rest[1]):
            yield 3, _months(int(rest[1]), *months)
        elif year is not None:
            yield 1, _months(year, *months)
    # "in the last year" may be the last twelve months.
    if word in ("this", "last") and not (start and words[start - 1] == "the"):
        yield from _near(word, rest[:1], today)


def _near(word: str, unit: list[str], today: date) -> Iterator[tuple[int, Period]]:
    """Return this or last year or month."""
    if unit == ["year"]:
        yield 2, _months(today.year - (word == "last"), 1, 12)
    if unit == ["month"]:
        month = today.replace(day=1) if word == "this" else today.replace(day=1) - timedelta(1)
        yield 2, _months(month.year, month.month, month.month)


def _is_year(word: str) -> bool:
    return bool(re.fullmatch(r"(19|20)\d{2}", word))


def _part_of_year(word: str) -> tuple[int, int] | None:
    if found := re.fullmatch(r"q([1-4])", word):
        return 3 * int(found[1]) - 2, 3 * int(found[1])
    if found := re.fullmatch(r"h([12])", word):
        return 6 * int(found[1]) - 5, 6 * int(found[1])
    month = MONTHS.get(word)
    return None if month is None else (month, month)


def _months(year: int, first: int, last: int) -> Period:
    after = datetime(year + last // 12, last % 12 + 1, 1).date()  # noqa: DTZ001 - only its day
    return Period(date(year, first, 1), after - timedelta(days=1))


def profile_fields(state: State) -> list[FieldSchema]:
    """Return the fields of the profile."""
    type_ = state.schema.types.get(PROFILE)
    return [] if type_ is None else list(type_.fields.values())
