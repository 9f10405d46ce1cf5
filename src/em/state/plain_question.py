"""Plain questions: how many, how much, when last, list of, by month; answered without a model.

A question is read with the names and values of one type of records. Every word must mean something.
Where several readings are possible, all are computed, and they must agree. Otherwise the question
is not understood, and the reason says which words are not accounted for. The answer is Python code
over the generated classes, which is shown.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import dropwhile, islice, pairwise
from typing import Any, NamedTuple

import msgspec

from em.state.conditions import is_mixed, kind_of_field
from em.state.schema import FieldSchema, TypeSchema
from em.state.state import State
from em.state.types import CURRENCIES, quoted, resolve
from em.state.vocabulary import (
    ORIGINS,
    PRONOUNS,
    SELLERS,
    Clock,
    Filled,
    Meaning,
    Named,
    Number,
    Period,
    Truth,
    Value,
    Vocabulary,
    Word,
    field_words,
    is_same,
    periods_at,
    profile_fields,
    type_words,
    words_of,
)

MAX_READINGS = 200
MAX_WORDS = 60
_HIGH = frozenset("highest largest maximum biggest greatest".split())
_LOW = frozenset("lowest smallest minimum".split())
_TOP = ("top", "top from")
_PAST = frozenset("did was were had spent took made went ate got paid".split())
_DATES = frozenset("date day at on when timestamp datetime time".split())
"""Words of fields for the day of the record itself, which a question need not name."""
_KINDS = frozenset("kind type species breed sort role relation relationship class genre".split())
"""Words of fields whose values say what a record is, so that it counts as one of these."""
_SIGN = re.compile(r"US\$|[$€£¥%]")
_CODES = frozenset(code.lower() for code in CURRENCIES.values()) | {"chf", "cad", "aud", "inr"}
_SHARES = frozenset("percent percentage pct rate share ratio".split())
_LIVES = ("lives_in", "residence", "city", "town")
_NEAR = ("home", "address", "location", "country")
"""Fields that say where somebody lives if none of the closer ones does."""
_WORKS = ("works_at", "works_for", "employer", "company", "workplace")
_BORN = ("birthday", "birth_date", "birthdate", "date_of_birth", "born", "born_on")


class NotUnderstood(Exception):
    """Why a question is not answered without a model."""


class PlainAnswer(msgspec.Struct, frozen=True):
    """A value with the code that gave it, and the events of the records it rests on.

    left_out: which records have no value that the answer needs, in words.
    """

    value: Any
    code: str
    records: int
    event_ids: tuple[str, ...]
    used: Sequence[Any] = ()
    left_out: str = ""


class Shape(NamedTuple):
    """What is asked for, and the words that say of what.

    kind: count, sum, mean, max, min, last, first, list, top or trend. by: month, year or a word for
    a field. periods: the two periods of a trend. sign: `>` or `<` if a trend is asked for by yes
    or no: the second period has more, or less, than the first.
    """

    kind: str
    words: list[str]
    by: str = ""
    periods: tuple[Period, ...] = ()
    sign: str = ""


class Test(NamedTuple):
    """A condition for records, as code about one field of the record `r`.

    is_needed: records without a value there are left out, whatever else they have.
    """

    code: str
    field: str
    is_needed: bool = False


class Reading(NamedTuple):
    """One way to read a question about a type: what is asked for, and the parts of its code."""

    type: TypeSchema
    shape: Shape
    tests: tuple[Test, ...]
    field: FieldSchema | None
    day: FieldSchema | None
    group: FieldSchema | None

    @property
    def names(self) -> set[str]:
        """The names of the fields that its code is about."""
        asked = (self.field, self.day, self.group)
        return {test.field for test in self.tests} | {one.name for one in asked if one is not None}


Vocabularies = dict[str, Vocabulary]
"""What words mean for each collection: reading its records takes most of the time."""


def answer(
    state: State, question: str, today: date, known: Vocabularies | None = None
) -> PlainAnswer:
    """Answer a question; NotUnderstood says why it can't be done without a model.

    known: collects vocabularies for the next question about this state.
    """
    known = {} if known is None else known
    words = words_of(question)
    if not 0 < len(words) <= MAX_WORDS:
        raise NotUnderstood("it has no words" if not words else "it is too long")
    code = _about_profile(state, words)
    if code is not None:
        return _run(state, code)
    shapes = list(_shapes(words, today))
    if not shapes:
        raise NotUnderstood("it asks in another way than how many, how much, when, list, by month")
    codes: dict[str, Reading] = {}
    unknown: list[list[str]] = []
    for shape in shapes:
        for name, type_ in state.collections.items():
            vocabulary = known.get(name) or Vocabulary(state, type_, today)
            known[name] = vocabulary
            for reading in _readings(vocabulary, type_, shape):
                codes.setdefault(_code(reading), reading)
            unknown.append(_unknown(vocabulary, shape.words))
    if not codes:
        raise NotUnderstood(_why(unknown))
    found = _agreed(state, codes, today if _PAST.intersection(words) else None)
    _check_signs(question, codes, found.value)
    return found


def _check_signs(question: str, codes: dict[str, Reading], value: Any) -> None:
    """Signs are words, too: those of a currency must be that of the amounts, % that of a share."""
    signs = set(_SIGN.findall(question))
    if not signs:
        return
    wanted = {CURRENCIES.get(sign, sign).lower() for sign in signs}
    names = {name for reading in codes.values() for name in reading.names}
    parts = {part for name in names for part in name.split("_")}
    if "%" in signs and not parts & _SHARES:
        raise NotUnderstood("nothing accounts for '%'")
    found = (parts & _CODES) | {one.currency.lower() for one in [value] if hasattr(one, "currency")}
    if len(signs) > 1 or ("%" not in signs and not found <= wanted):
        raise NotUnderstood(f"nothing accounts for {min(signs)!r}")


def _agreed(state: State, codes: dict[str, Reading], today: date | None) -> PlainAnswer:
    """Run all readings. today: the question is about the past, so no record may be of later."""
    for reading in codes.values():
        for field in (reading.field, reading.day, reading.group):
            if field is not None and (resolve(field).nullable or is_mixed(field)):
                raise NotUnderstood(f"some values of {field.given!r} can't be read as the others")
    found = []
    for code, reading in codes.items():
        found.append(_run(state, code, reading.shape.kind))
        if today is not None and _is_later(reading, found[-1].used, today):
            raise NotUnderstood("some of the records are of days that are still to come")
    if any(one.value != found[0].value for one in found):
        raise NotUnderstood(f"it can be read in {len(found)} ways, which give different answers")
    left_out = dict.fromkeys(
        filter(None, (_left_out(state, reading) for reading in codes.values()))
    )
    return msgspec.structs.replace(found[0], left_out="; ".join(left_out))


def _left_out(state: State, reading: Reading) -> str:
    """Say which records of a reading are left out, since a value is missing that it needs.

    NotUnderstood if such a record has a value there that could not be read.
    """
    tests = _tests(reading)
    told = []
    for name in dict.fromkeys(test.field for test in tests if test.is_needed):
        missing_too = [_unless_missing(test) for test in tests]
        code = _used(reading, [*missing_too, Test(f"r.{name} is None", name)])
        missing = _scope(state, code)["used"](state)
        given = next(one.given for one in reading.type.fields.values() if one.name == name)
        if any(one.as_given.get(given) is not None for one in missing):
            raise NotUnderstood(f"some values of {given!r} can't be read as the others")
        if missing:
            one = len(missing) == 1
            those = "1 record" if one else f"{len(missing):,} records"
            told.append(f"{those} without {name} {'is' if one else 'are'} left out")
    return "; ".join(told)


def _unless_missing(test: Test) -> Test:
    """Write a condition that holds for records, too, that have no value for it."""
    if not test.is_needed:
        return test
    return Test(f"r.{test.field} is None or ({test.code})", test.field)


def _is_later(reading: Reading, used: Sequence[Any], today: date) -> bool:
    """Tell whether records are of a later day; a day of tolerance for time zones."""
    fields = [one for one in reading.type.fields.values() if kind_of_field(one).startswith("date")]
    days = [reading.day] if reading.day is not None else fields
    found = (getattr(record, one.name) for one in days for record in used)
    dates = (one.date() if isinstance(one, datetime) else one for one in found if one is not None)
    return any(one > today + timedelta(days=1) for one in dates)


def _why(unknown: Sequence[list[str]]) -> str:
    fewest = min(unknown, key=len, default=[])
    if not unknown:
        return "there are no records"
    if not fewest:
        return "its words don't fit together"
    return f"nothing accounts for {', '.join(map(repr, fewest[:5]))}"


def _unknown(vocabulary: Vocabulary, words: Sequence[str]) -> list[str]:
    """Return the words that mean nothing, wherever a meaning may begin."""
    known = [False] * len(words)
    for start in range(len(words)):
        for size, _ in vocabulary.meanings(words, start):
            known[start : start + size] = [True] * size
    return [word for word, is_known in zip(words, known, strict=True) if not is_known]


def _shapes(words: list[str], today: date) -> Iterator[Shape]:
    """Return what a question may ask for, by how it begins and ends."""
    if len(words) > 2 and words[-2] in ("by", "per", "each"):
        for shape in _ungrouped(words[:-2], words[-1], today):
            # "average … per month" may be one number or one for each month.
            if words[-2] == "by" or shape.kind in ("count", "sum"):
                yield shape
    yield from _ungrouped(words, "", today)


def _ungrouped(words: list[str], by: str, today: date) -> Iterator[Shape]:
    text = " ".join(words)
    for pattern, kind in _BEGINNINGS:
        found = re.match(pattern + r"(?: |$)", text)
        if found is not None:
            rest = words_of(text[found.end() :])
            yield Shape(kind, rest, by)
            break
    if found := re.fullmatch(r"when did (.*?)\blast (.*)", text):
        yield Shape("last time", words_of(f"{found[1]} {found[2]}"), by)
    if found := re.fullmatch(r"(?:what|which) (.*?)( from)? most (?:often|frequently)", text):
        yield Shape("top from" if found[2] else "top", words_of(found[1]), by)
    yield from _trend(text, today)
    yield from _change(text, today)
    yield from _more(text, today)


_MY = r"(?:my|the|her|his|their)"
_IS = r"(?:is|was|were|are)"
_BEGINNINGS = (
    (r"(?:on )?how many", "count"),
    (rf"what {_IS} the (?:total )?number of", "count"),
    (r"how much", "sum"),
    (rf"(?:what {_IS} )?{_MY}? ?(?:total|sum of)", "sum"),
    (rf"(?:what {_IS} )?{_MY}? ?(?:average|mean)", "mean"),
    (rf"what {_IS} {_MY} (?:{'|'.join(sorted(_HIGH))})", "max"),
    (rf"what {_IS} {_MY} (?:{'|'.join(sorted(_LOW))})", "min"),
    (rf"when {_IS} {_MY} (?:last|latest|most recent)", "last"),
    (rf"when {_IS} {_MY} (?:first|earliest)", "first"),
    (r"(?:give me |show me |show )?(?:a |the )?list of", "list"),
    (r"(?:list|show me|show|which)", "list"),
)


_UP, _DOWN = r"(?:increase|go up|rise|grow)", r"(?:decrease|go down|fall|shrink|drop)"
_SAME = rf"{_UP} (?:or )?{_DOWN} or (?:stay|remain)(?:ed)? the same"


def _trend(text: str, today: date) -> Iterator[Shape]:
    found = re.fullmatch(
        rf"did {_MY} (?P<what>.*?) {_SAME} from (?P<one>.*?) to (?P<other>.*?)(?: one word.*)?",
        text,
    )
    if found is None:
        return
    one, other = _without_echo(words_of(found["one"])), _without_echo(words_of(found["other"]))
    years = {word for word in (*one, *other) if re.fullmatch(r"(19|20)\d{2}", word)}
    year = int(min(years)) if len(years) == 1 else None
    periods = []
    for part in (one, other):
        whole = [found for size, found in periods_at(part, 0, today, year) if size == len(part)]
        if len(whole) != 1:
            return
        periods.append(whole[0])
    kind, what = _measured(words_of(found["what"]))
    if kind:
        yield Shape(f"trend {kind}", what, "", tuple(periods))


def _measured(what: list[str]) -> tuple[str, list[str]]:
    """Return what is compared, and the words that are left; an empty text if that is not said."""
    if what[-1:] == ["count"]:
        return "count", what[:-1]
    if what[:2] == ["number", "of"]:
        return "count", what[2:]
    kind = {"total": "sum", "average": "mean"}.get(what[0] if what else "", "")
    return kind, what[1:] if kind else what


def _change(text: str, today: date) -> Iterator[Shape]:
    """Read "did the number of trips increase from 2023 to 2024"."""
    found = re.fullmatch(
        rf"did {_MY} (?P<what>.*?) (?:(?P<up>{_UP})|{_DOWN}) from (?P<one>.*?) to (?P<other>.*)",
        text,
    )
    if found is not None:
        kind, what = _measured(words_of(found["what"]))
        periods = _whole_periods(found["one"], found["other"], today)
        if kind and periods:
            yield Shape(f"trend {kind}", what, "", periods, ">" if found["up"] else "<")


def _more(text: str, today: date) -> Iterator[Shape]:
    """Read "did I take more trips in 2024 than in 2023"."""
    found = re.fullmatch(
        r"did (?P<who>.+?) (?:(?P<up>more)|fewer) (?P<what>.+) in (?P<one>.+?)"
        r" than in (?P<other>.+)",
        text,
    )
    if found is not None:
        periods = _whole_periods(found["other"], found["one"], today)
        # What is counted comes first, as behind "how many"; "did" marks who acts.
        words = words_of(f"{found['what']} did {found['who']}")
        if periods:
            yield Shape("trend count", words, "", periods, ">" if found["up"] else "<")


def _whole_periods(one: str, other: str, today: date) -> tuple[Period, ...]:
    """Read two periods, each with its year; nothing if one is open: "in May than in April"."""
    found = []
    for part in map(words_of, (one, other)):
        whole = [period for size, period in periods_at(part, 0, today) if size == len(part)]
        if len(whole) != 1:
            return ()
        found += whole
    return tuple(found)


def _without_echo(words: list[str]) -> list[str]:
    """Drop "jan jun" behind h1, and "jul dec" behind h2: the same months said again."""
    echo = {"h1": ["jan", "jun"], "h2": ["jul", "dec"]}
    if words and words[1:3] == echo.get(words[0]):
        return [words[0], *words[3:]]
    return words


def _readings(vocabulary: Vocabulary, type_: TypeSchema, shape: Shape) -> Iterator[Reading]:
    found = _parses(vocabulary, shape.words, 0)
    for meanings in islice(found, MAX_READINGS):
        yield from Combination(vocabulary, type_, shape, meanings).readings()


def _parses(vocabulary: Vocabulary, words: Sequence[str], start: int) -> Iterator[list[Meaning]]:
    if start == len(words):
        yield []
        return
    for size, meaning in vocabulary.meanings(words, start):
        for rest in _parses(vocabulary, words, start + size):
            yield [meaning, *rest]


class Combination:
    """Puts the meanings of all words together; each must have its part in the answer."""

    def __init__(
        self, vocabulary: Vocabulary, type_: TypeSchema, shape: Shape, meanings: list[Meaning]
    ) -> None:
        self._vocabulary, self._type, self._shape = vocabulary, type_, shape
        self._meanings = meanings
        self._used: set[int] = set()
        self._tests: list[Test] = []

    def readings(self) -> Iterator[Reading]:
        """Return the readings of these meanings, none if they don't fit together."""
        values = [one for one in self._meanings if isinstance(one, Value)]
        if not (self._is_named or values) or self._asks_for_record():
            return
        if (self._shape.kind == "count" or self._shape.sign) and self._counts_values():
            return  # of pens, a record may have ten
        if not (self._values(values) and self._numbers() and self._clocks()):
            return
        for day in self._days():
            yield from self._with_day(day)

    @property
    def _is_named(self) -> bool:
        return any(isinstance(one, Named) for one in self._meanings)

    def _counts_values(self) -> bool:
        """Tell whether a value is counted, and not records: `how many pens did I order`."""
        said = list(dropwhile(lambda one: one is None, self._meanings))
        if not isinstance(said[0], Value):
            return False
        fields = [one.field for one in self._meanings if isinstance(one, Value)]
        head = next(one for one in [*said, None] if not _is_of(one, fields))
        if isinstance(head, Named):  # "italian-cuisine meals"
            return False
        return all(_KINDS.isdisjoint(field_words(one)) for one in fields)

    def _asks_for_record(self) -> bool:
        """Tell whether the one with the highest value is asked for: `my highest rated book`."""
        pairs = pairwise(self._meanings)
        named = any(isinstance(a, Word) and isinstance(b, Named) for a, b in pairs)
        return self._shape.kind in ("max", "min") and named

    def _with_day(self, day: FieldSchema | None) -> Iterator[Reading]:
        used, tests = set(self._used), list(self._tests)
        periods = {one for one in self._meanings if isinstance(one, Period)}
        needs = bool(periods or self._shape.periods)
        needs = needs or self._shape.kind in ("last", "last time", "first")
        needs = needs or self._shape.by in ("month", "year")
        if len(periods) + bool(self._shape.periods) > 1 or needs != (day is not None):
            return
        if self._shape.kind == "last time" and not (day and {*field_words(day)} <= _DATES):
            return  # "when did I last meet …": the date of a contact may be that of the first time
        for period in periods:
            assert day is not None
            tests.append(Test(_within(self._field(day), period), day.name, is_needed=True))
        used |= {n for n, one in self._words() if needs and one.field is day}
        for field, group in self._asked(used):
            asked = (field, group)
            left = [one for n, one in self._words() if n not in used]
            if all(any(one.field is known for known in asked) for one in left):
                yield Reading(self._type, self._shape, tuple(tests), field, day, group)

    def _asked(self, used: set[int]) -> Iterator[tuple[FieldSchema | None, FieldSchema | None]]:
        """Return the field that is added up, averaged or listed, and the one to group by."""
        kind, by = self._shape.kind.removeprefix("trend "), self._shape.by
        groups: list[FieldSchema | None] = [None]
        if by and by not in ("month", "year"):
            groups = [one for one in self._vocabulary.fields_of(by, [by]) if _is_text(one)]
        left = {one.field.name: one.field for n, one in self._words() if n not in used}
        kinds = self._vocabulary.kinds
        for group in groups:
            if kind in ("sum", "mean", "max", "min"):
                measures = [
                    one
                    for one in left.values()
                    if kinds[one.name] in ("number", "money") or one.name in self._vocabulary.mixed
                ]
                if len(measures) == 1:
                    yield measures[0], group
            elif kind in _TOP:
                texts = [one for one in left.values() if _is_text(one)]
                if kind == "top from":
                    texts = [one for one in texts if {*field_words(one)} & (SELLERS | ORIGINS)]
                if len(texts) == 1:
                    yield texts[0], group
            else:
                yield None, group

    def _words(self) -> list[tuple[int, Word]]:
        return [(n, one) for n, one in enumerate(self._meanings) if isinstance(one, Word)]

    def _field(self, field: FieldSchema) -> str:
        is_moment = self._vocabulary.kinds[field.name] == "datetime"
        return f"r.{field.name}.date()" if is_moment else f"r.{field.name}"

    def _values(self, values: Sequence[Value]) -> bool:
        by_field: dict[str, tuple[str, ...]] = {}
        for one in values:
            if by_field.setdefault(one.field.name, one.texts) != one.texts:
                return False  # two values of one field: it is open whether both or either are meant
            self._used |= {n for n, word in self._words() if word.field is one.field}
        fields = {one.field.name: one.field for one in values}
        self._tests += [
            Test(_one_of(fields[name], texts), name) for name, texts in by_field.items()
        ]
        for one_ in self._meanings:
            if isinstance(one_, Truth):
                self._tests.append(Test(f"r.{one_.field.name}", one_.field.name))
            elif isinstance(one_, Filled):
                code = f"{'' if one_.filled else 'not '}r.{one_.field.name}"
                self._tests.append(Test(code, one_.field.name))
        return True

    def _numbers(self) -> bool:
        words = dict(self._words())
        for n, one in enumerate(self._meanings):
            if not isinstance(one, Number):
                continue
            beside = [at for at in (n + 1, n - 1) if at in words and self._is_number(words[at])]
            field = one.unit or (words[beside[0]].field if beside else None)
            if field is None:
                return False
            self._used |= {at for at in beside if words[at].field is field}
            self._tests.append(Test(_compared(field, one), field.name, is_needed=True))
        return True

    def _is_number(self, word: Word) -> bool:
        return self._vocabulary.kinds[word.field.name] == "number"

    def _clocks(self) -> bool:
        clocks = [one for one in self._meanings if isinstance(one, Clock)]
        named = {n: one for n, one in self._words() if self._kind(one.field) == "time"}
        if not clocks:
            return True
        fields = {one.field.name: one.field for one in named.values()} or {
            one.name: one for one in self._vocabulary.fields if self._kind(one) == "time"
        }
        if len(fields) != 1 or len(clocks) != 1:
            return False
        (field,) = fields.values()
        if field.name in self._vocabulary.nightly:
            return False  # an hour after midnight may count as late or as early
        self._used |= named.keys()
        at = clocks[0].at
        code = f"r.{field.name} {clocks[0].op} datetime.time({at.hour}, {at.minute})"
        code = f"r.{field.name} is not None and {code}"
        self._tests.append(Test(code, field.name, is_needed=True))
        return True

    def _kind(self, field: FieldSchema) -> str:
        return self._vocabulary.kinds[field.name]

    def _days(self) -> list[FieldSchema | None]:
        """Return the fields of dates that may be meant, and None for a question without one."""
        dates = [one for one in self._vocabulary.fields if self._kind(one) in ("date", "datetime")]
        names = {one.field.name for _, one in self._words()}
        named = [one for one in dates if one.name in names]
        return [None, *(named or [one for one in dates if {*field_words(one)} <= _DATES])]


def _is_of(one: Meaning, fields: Sequence[FieldSchema]) -> bool:
    """Tell whether words are a value, or the name of a field with one."""
    named = isinstance(one, Word) and any(one.field is field for field in fields)
    return isinstance(one, Value) or named


def _is_text(field: FieldSchema) -> bool:
    annotation = resolve(field).annotation
    return annotation == "str" or annotation.startswith("Literal[")


def _one_of(field: FieldSchema, texts: tuple[str, ...]) -> str:
    written = f"({', '.join(map(quoted, texts))},)"
    if resolve(field).annotation.startswith("list"):
        return f"any(one in {written} for one in r.{field.name} or ())"
    if len(texts) == 1:
        return f"r.{field.name} == {quoted(texts[0])}"
    return f"r.{field.name} in {written}"


def _compared(field: FieldSchema, given: Number) -> str:
    is_decimal = resolve(field).annotation == "Decimal"
    written = f'Decimal("{given.number}")' if is_decimal else _plain(given.number)
    return f"r.{field.name} is not None and r.{field.name} {given.op} {written}"


def _plain(number: Decimal) -> str:
    return str(int(number)) if number == int(number) else repr(float(number))


def _within(code: str, period: Period) -> str:
    name = code.removesuffix(".date()")
    first, last = (None if day is None else _day(day) for day in period)
    if first is None:
        return f"{name} is not None and {code} <= {last}"
    if last is None:
        return f"{name} is not None and {code} >= {first}"
    return f"{name} is not None and {first} <= {code} <= {last}"


def _day(day: date) -> str:
    return f"datetime.date({day.year}, {day.month}, {day.day})"


def _code(reading: Reading) -> str:
    """Write the functions `used` and `answer` of a reading."""
    return f"{_used(reading, _tests(reading))}\n\ndef answer(state):\n{_body(reading)}"


def _tests(reading: Reading) -> list[Test]:
    """Write the conditions for the records that a reading is about."""
    tests, day, field = list(reading.tests), reading.day, reading.field
    needed = {test.field for test in tests if test.is_needed}
    if day is not None and day.name not in needed:
        tests.append(Test(f"r.{day.name} is not None", day.name, is_needed=True))
    if field is not None:
        tests.append(Test(f"r.{field.name} is not None", field.name, is_needed=True))
    if day is not None and reading.shape.kind.startswith("trend "):
        periods = (_within(str(_day_of(reading)), one) for one in reading.shape.periods)
        code = " or ".join(f"({one})" for one in periods)
        tests.append(Test(code, day.name, is_needed=True))
    return tests


def _used(reading: Reading, tests: Sequence[Test]) -> str:
    codes = [
        f"({test.code})" if " and " in test.code or " or " in test.code else test.code
        for test in tests
    ]
    where = f" if {' and '.join(codes)}" if codes else ""
    return f"def used(state):\n    return [r for r in state.{reading.type.collection}{where}]\n"


def _day_of(reading: Reading) -> str | None:
    """Write the day of a record."""
    if reading.day is None:
        return None
    return f"r.{reading.day.name}" + (".date()" if kind_of_field(reading.day) == "datetime" else "")


def _body(reading: Reading) -> str:
    kind, field, day = reading.shape.kind, reading.field, _day_of(reading)
    value = "" if field is None else f"r.{field.name}"
    if kind.startswith("trend "):
        return _trend_body(reading.shape, value, str(day))
    group = None if reading.group is None else f"r.{reading.group.name}"
    if reading.shape.by in ("month", "year"):
        size = {"month": 7, "year": 4}[reading.shape.by]
        group = f"{day}.isoformat()[:{size}]"
    if group is not None:
        return _grouped_body(kind, value, group)
    if kind in _TOP:
        return (
            f"    found = [{value} for r in used(state)]\n"
            "    times = {one: found.count(one) for one in found}\n"
            "    most = [one for one in times if times[one] == max(times.values())]\n"
            "    return most[0] if len(most) == 1 else most\n"
        )
    line = {
        "count": "len(used(state))",
        "sum": f"sum({value} for r in used(state))",
        "max": f"max(({value} for r in used(state)), default=None)",
        "min": f"min(({value} for r in used(state)), default=None)",
        "last": f"max(({day} for r in used(state)), default=None)",
        "last time": f"max(({day} for r in used(state)), default=None)",
        "first": f"min(({day} for r in used(state)), default=None)",
        "list": "[as_record(r) for r in used(state)]",
    }.get(kind)
    if line is None:
        return f"    found = [{value} for r in used(state)]\n    return {_MEAN}\n"
    return f"    return {line}\n"


_MEAN = "sum(found) / len(found) if found else None"


def _grouped_body(kind: str, value: str, group: str) -> str:
    each = {"count": "len(found)", "sum": "sum(found)", "mean": "sum(found) / len(found)"}
    each |= {"max": "max(found)", "min": "min(found)", "list": "found"}
    item = {"count": "r", "list": "as_record(r)"}.get(kind, value)
    return (
        "    groups = {}\n"
        "    for r in used(state):\n"
        f"        groups.setdefault({group}, []).append({item})\n"
        f"    return {{name: {each.get(kind, 'len(found)')}"
        " for name, found in sorted(groups.items(), key=str)}\n"
    )


def _trend_body(shape: Shape, value: str, day: str) -> str:
    kind = shape.kind.removeprefix("trend ")
    lines = []
    for name, period in zip(("before", "after"), shape.periods, strict=True):
        where = _within(day, period)
        found = f"[{value or 'r'} for r in used(state) if {where}]"
        lines.append(f"    found = {found}")
        line = {"count": "len(found)", "sum": "sum(found)"}.get(kind, _MEAN)
        lines.append(f"    {name} = {line}")
    lines.append("    if before is None or after is None:\n        return None")
    if shape.sign:
        return "\n".join(lines) + f"\n    return after {shape.sign} before\n"
    words = '"increase" if after > before else "decrease" if after < before else "same"'
    return "\n".join(lines) + f"\n    return {words}\n"


_NOW = "(?:currently |now )?"
_PROFILE_FORMS = (
    (rf"where (?:do|does) @ {_NOW}live(?: now)?", (_LIVES, _NEAR)),
    (rf"where (?:am|is|are) @ {_NOW}living(?: now)?", (_LIVES, _NEAR)),
    (rf"where (?:do|does) @ {_NOW}work(?: now)?", (_WORKS,)),
    (rf"where (?:am|is|are) @ {_NOW}working(?: now)?", (_WORKS,)),
    (rf"(?:who|whom) (?:do|does) @ {_NOW}work for(?: now)?", (_WORKS,)),
    (r"when (?:was|were) @ born", (_BORN,)),
)
"""Questions with words of their own, and the fields that answer them: the first group with any."""
_PROFILE_NAMES = (
    r"(?:what|who|where|when) (?:is|are|was|were) @(?: 's)? (?:current )?(?P<name>.+)",
    r"(?:what|who) (?:is|are|was|were) the (?:current )?(?P<name>.+) of @",
    r"(?:tell|show|give) me @(?: 's)? (?:current )?(?P<name>.+)",
    rf"(?:what|which) (?P<name>city|town|country) (?:do|does) @ {_NOW}live in(?: now)?",
    rf"in (?:what|which) (?P<name>city|town|country) (?:do|does) @ {_NOW}live(?: now)?",
)
"""Questions that name the field. `@` stands for the subject."""


def _about_profile(state: State, words: Sequence[str]) -> str | None:
    """Return the code for a question about the profile; None if it is none."""
    fields = {field.name: field for field in profile_fields(state)}
    text = _with_subject(state, words)
    for pattern, groups in _PROFILE_FORMS:
        if re.fullmatch(pattern, text):
            codes = (_agreed_field(state, fields, names) for names in groups)
            return next((code for code in codes if code is not None), None)
    for pattern in _PROFILE_NAMES:
        found = re.fullmatch(pattern, text)
        for name in () if found is None else _fields_named(fields, found["name"].split()):
            if {"was", "were"}.intersection(words):
                _check_past(state, name)
            return _agreed_field(state, fields, (name,))
    return None


def _with_subject(state: State, words: Sequence[str]) -> str:
    """Return a question with `@` for the subject, which has several words in some names."""
    own = {"i", "my", *PRONOUNS, *words_of(state.subject)}
    marked = ["@" if word in own else word for word in words]
    return " ".join(
        word for n, word in enumerate(marked) if word != "@" or marked[n - 1 : n] != ["@"]
    )


def _fields_named(fields: dict[str, FieldSchema], asked: Sequence[str]) -> Iterator[str]:
    for name, field in fields.items():
        parts = field_words(field)
        if len(parts) == len(asked) and all(map(is_same, parts, asked)):
            yield name


def _check_past(state: State, name: str) -> None:
    """Refuse "what was her city" if there were several: it is open which one is meant."""
    values = [entry.value for entry in state.profile.history.get(name, ())]
    if any(value != values[0] for value in values):
        raise NotUnderstood(f"{name!r} had several values, and it is open which one is meant")


def _agreed_field(state: State, fields: dict[str, FieldSchema], names: Sequence[str]) -> str | None:
    """Return the code for the first of these fields with a value; all that have one must agree."""
    found = [name for name in names if getattr(state.profile, name, None) is not None]
    for name in names:
        if name in fields and name not in found and state.profile.history.get(name):
            if state.profile.history[name][-1].value is None:
                continue  # it was taken back
            raise NotUnderstood(f"the values of {name!r} contradict each other, or can't be read")
    if any(getattr(state.profile, name) != getattr(state.profile, found[0]) for name in found):
        raise NotUnderstood(f"{' and '.join(map(repr, found))} say different things")
    return f"def answer(state):\n    return state.profile.{found[0]}\n" if found else None


EXAMPLES = 3
MANY_RECORDS = 2_000
"""With more records than this, examples ask about the profile only: others read every record."""


def examples(state: State, today: date) -> list[str]:
    """Return questions that this state answers without a model, a few of different kinds."""
    found: list[str] = []
    known: Vocabularies = {}
    for kind in (_own_examples(state), _record_examples(state)):
        understood = (question for question in kind if _is_answered(state, question, today, known))
        found += islice(understood, EXAMPLES - 1)
    return found[:EXAMPLES]


def _is_answered(state: State, question: str, today: date, known: Vocabularies) -> bool:
    try:
        answer(state, question, today, known)
    except NotUnderstood:
        return False
    return True


def _own_examples(state: State) -> Iterator[str]:
    simple = (str, int, float, Decimal, date)
    fields = profile_fields(state)
    known = [one for one in fields if isinstance(getattr(state.profile, one.name, None), simple)]
    is_name = re.fullmatch(r"[\w .-]{1,30}", state.subject) is not None
    does, whose = (
        ("does " + state.subject, f"{state.subject}'s") if is_name else ("do they", "their")
    )
    if any(one.name in (*_LIVES, *_NEAR) for one in known):
        yield f"Where {does} live?"
    if any(one.name in _WORKS for one in known):
        yield f"Where {does} work?"
    others = [one for one in known if one.name not in (*_LIVES, *_NEAR, *_WORKS)]
    for one in others[:10]:
        yield f"What is {whose} {' '.join(field_words(one))}?"


def _record_examples(state: State) -> Iterator[str]:
    if sum(type_.count for type_ in state.collections.values()) > MANY_RECORDS:
        return
    for type_ in islice(state.collections.values(), 2):
        words = " ".join(type_words(type_))
        yield f"How many {type_.collection.replace('_', ' ')}?"
        yield f"When was the last {words}?"


def _scope(state: State, code: str) -> dict[str, Any]:
    """Return the functions of code that em wrote, beside the state's classes."""
    scope: dict[str, Any] = dict(vars(state.module))
    exec(compile(code, "<question>", "exec"), scope)  # noqa: S102 - written by em, values quoted
    return scope


def _run(state: State, code: str, kind: str = "") -> PlainAnswer:
    """Run code that em wrote, in this process. kind: that of the shape, if it is about records."""
    scope = _scope(state, code)
    try:
        value = scope["answer"](state)
        used = scope["used"](state) if "used" in scope else None
    except TypeError as error:  # amounts of two currencies
        raise NotUnderstood(str(error)) from None
    if used is None:
        name = code.rsplit(".", 1)[1].strip()
        entry = [one for one in state.profile.history[name] if one.value == value]
        ids = [
            event
            for one in entry[-1:] or state.profile.history[name][-1:]
            for event in one.event_ids
        ]
        return PlainAnswer(value, code, 1, tuple(dict.fromkeys(ids)))
    if isinstance(value, list) and kind in _TOP:
        raise NotUnderstood("several are equally frequent" if value else "there are no records")
    if value is None:
        raise NotUnderstood("there are no such records")
    ids = [event for record in used for event in record.event_ids]
    return PlainAnswer(value, code, len(used), tuple(dict.fromkeys(ids)), used)
