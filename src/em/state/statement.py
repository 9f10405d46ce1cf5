"""Statements: what a reader says that a text states, as data. `judgement` checks each of them.

The reader is the agent that hands the text in, or a model at the checkpoint. Both say the same:

    {"op": "set", "field": "city", "value": "Porto", "since": "2025-03", "evidence": "moved to …"}
    {"op": "add", "type": "Trip", "record": {"destination": "Rome"}, "evidence": "flew to Rome"}
    {"op": "retract", "field": "employer", "evidence": "I left Acme"}
    {"op": "same", "known": {"destination": "Rome"}, "evidence": "that trip to Rome"}

Evidence: the words of a text that state something, and whether a value stands in them.

A value stands in its evidence word for word, up to case, and the forms of numbers and dates. What a
date leaves out is completed from the time of the event, and from nothing else.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from em.errors import InputError
from em.state.schema import PROFILE, StateSchema, TypeSchema
from em.state.types import CURRENCIES, text_kind, to_date, to_decimal, to_money
from em.text.dates import DaySpan, month_of, spans
from em.text.numbers import MINUS, RUN, InDigits, in_digits, numbers_in
from em.text.terms import stems_of, words_of
from em.values.canonical import Json
from em.values.mismatch import mismatch
from em.values.times import from_micros

USERS = frozenset({"user", "human"})
"""Roles of the subject, where the event names no speaker."""
T = TypeVar("T", bound=msgspec.Struct)
Op = Literal["set", "add", "retract", "same"]
Name = Annotated[str, msgspec.Meta(max_length=60)]
Said = Annotated[str, msgspec.Meta(max_length=4_000)]


class Statement(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One fact that a text states, takes back, or repeats.

    known: the record that it is about: the id of its event, or fields that only it has. again: the
    record is another one like a known one. mistaken: it was never right, so the past changes too.
    """

    op: Op
    type: Name = PROFILE
    key: list[Any] = []
    field: Name = ""
    value: Any = None
    record: Json = {}
    known: str | Json = ""
    since: str | None = None
    again: bool = False
    mistaken: bool = False
    status: Literal["confirmed", "stated", "inferred"] = "stated"
    source: str = ""
    evidence: Annotated[list[Said], msgspec.Meta(max_length=20)] | Said = []

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError("`evidence` is missing: the words of the text that say it")
        has_value = bool(self.field) and self.value is not None
        if self.op == "set" and not has_value and not (self.known and self.record):
            raise ValueError("`set` needs `field` and `value`, or `known` and `record`")
        if self.op == "add" and not self.record:
            raise ValueError("`add` needs a `record`")
        if self.op == "retract" and not self.field and not self.known:
            raise ValueError("`retract` needs a `field` or a `known` record")
        if self.op == "same" and not self.known:
            raise ValueError("`same` needs a `known` record")


class Text(msgspec.Struct, frozen=True):
    """An observation in words that was not read yet.

    facts, rules: what the caller read in it; None if the caller did not read it.
    """

    event: str
    text: str
    at: int
    recorded_at: int
    speaker: str = ""
    source: str = ""
    role: str = ""
    addressee: str = ""
    facts: list[Json] | None = None
    rules: list[Json] | None = None

    @property
    def is_read(self) -> bool:
        """Whether the caller read it."""
        return self.facts is not None or self.rules is not None

    @property
    def is_note(self) -> bool:
        """Whether the event names nobody as its speaker: it may be a note about the subject."""
        return not self.speaker and not self.role

    def names(self, name: str) -> bool:
        """Tell whether the text or its event names somebody; accents and signs don't matter."""
        return any(has_name(name, said) for said in (self.text, self.speaker, self.addressee))

    def is_by(self, names: frozenset[str]) -> bool:
        """Tell whether the event says that the subject, which has these names, speaks."""
        if self.speaker:
            return plain_name(self.speaker) in names
        return not self.role or self.role.lower() in USERS


def plain_name(name: str) -> str:
    """Return a name as names are compared: without case, accents and signs."""
    return " ".join(words_of(name))


def has_name(name: str, text: str) -> bool:
    """Tell whether a name stands in a text."""
    wanted = plain_name(name)
    return bool(wanted) and f" {wanted} " in _padded(text)


@lru_cache(maxsize=8)
def _padded(text: str) -> str:
    """Return the words of a text, once for all names that are sought in it."""
    return f" {plain_name(text)} "


def read_as(kind: type[T], given: Any, place: str) -> T:
    """Convert one item of what was read; InputError names its place."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        found = mismatch(error)
        raise InputError(found.message, place=".".join(filter(None, (place, found.path)))) from None


ABOUT = (
    "Fill in what the text states: `set` a field of the subject, `add` a record, `retract` an "
    "earlier fact that the text makes impossible (moved away, sold, left), `same` for a known "
    "record; each with its evidence, the words copied from the text."
)
"""What a reader fills in, in one sentence."""


def statement_schema(schema: StateSchema | None) -> Json:
    """Return the JSON Schema of the facts of a text, made from the types that the subject has."""
    types = {} if schema is None else schema.types
    own = ", ".join(types[PROFILE].fields) if PROFILE in types else "such as city"
    text: Json = {"type": "string"}
    properties: Json = {
        "op": {"enum": list(get_args(Op))},
        "field": {**text, "description": f"Of the subject: {own}."},
        "value": {},
        "type": {**text, "description": f"Of the record. Known: {'; '.join(_lines(types))}."},
        "key": {"type": "array", "description": "Of a record that has one, such as a Person."},
        "record": {"type": "object"},
        "known": {"description": "Fields that only the known record has, or its event."},
        "since": {**text, "description": "2025-03 or 2025-03-02."},
        "mistaken": {"type": "boolean", "description": "The old value was never right."},
        "again": {"type": "boolean", "description": "Another one like a known record."},
        "evidence": {**text, "description": "Copied from the text; the value stands in it."},
    }
    required = ["op", "evidence"]
    return {
        "type": "object", "description": ABOUT, "properties": properties, "required": required
    }  # fmt: skip


def _lines(types: Mapping[str, TypeSchema]) -> list[str]:
    others = (one for one in types.values() if one.given != PROFILE)
    found = []
    for type_ in others:
        key = f" (key: {', '.join(type_.key)})" if type_.key else ""
        found.append(f"{type_.given}{key}: {', '.join(type_.fields)}")
    return found or ["none"]


def known_names(schema: StateSchema, most: int) -> str:
    """Return the fields and types of a subject in one line of at most so many characters."""
    own = schema.types[PROFILE].fields if PROFILE in schema.types else {}
    return "; ".join([*filter(None, [", ".join(own)]), *_lines(schema.types)])[:most]


_SIGNS = str.maketrans("’‘`“”–—−", "'''\"\"---")
_ENDS = " \t\n.,;:!?…\"'“”"
_QUOTE = re.compile(r"\"[^\"\n]+\"|“[^“”]+”|«[^«»]+»|^>.*$", re.MULTILINE)
_END = re.compile(r"[.!?\n](?!\w)")
_CLOCK = re.compile(
    r"(?<![\w.,:])(\d{1,2})(?:([:.h])(\d{2}))?(?: ?([ap])\.?m\b)?(?![\d:])", re.IGNORECASE
)
_PARTIAL = re.compile(r"(\d{4})(?:-(\d{2}))?")
_GROUPED = re.compile(r"\d{1,3}(?:[ ,.']\d{3})+|\d+")
_SIGNED = re.compile(rf"(?:(?<!\w)-[$€£¥₹]?|\b(?:{'|'.join(MINUS)}) )$")
"""What stands before digits that have a sign."""
_JOINS = "-/\\@&+#.,:' "
"""Signs that may join characters to one token: an address, a name, a number."""


def find_words(words: str, text: str) -> tuple[int, int] | None:
    """Return where words occur in a text; case, spaces and kinds of quotes don't matter."""
    wanted, _ = _plain(words.strip(_ENDS))
    if not any(map(str.isalnum, wanted)):
        return None
    plain, places = _plain(text)
    start = plain.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if _is_whole(plain, start, end):
            return places[start], places[end - 1] + 1
        # Go on behind this word: a text of one long word must not be searched at each character.
        space = plain.find(" ", start)
        start = plain.find(wanted, space) if space >= 0 else -1
    return None


def _is_whole(plain: str, start: int, end: int) -> bool:
    """Tell whether a part of a text begins and ends with whole tokens, and leaves out no sign."""
    if _is_begun(plain, start) or _is_continued(plain, end):
        return False
    starts_number = plain[start].isdigit() or plain[start] in CURRENCIES
    return not (starts_number and _SIGNED.search(plain[max(0, start - 12) : start]))


def _is_begun(plain: str, start: int) -> bool:
    """Tell whether the token at a place began before it: `+49`, `ana@gmail`, `Smith-Jones`."""
    sign, before = plain[start - 1 : start], plain[max(0, start - 2) : max(0, start - 1)]
    if not sign or sign not in _JOINS or sign == "#":
        return _is_word(sign)
    if sign in ",: ":
        return before.isdigit() and plain[start].isdigit()
    return sign in "/\\@+" or _is_word(before)


def _is_continued(plain: str, end: int) -> bool:
    """Tell whether the token before a place goes on there: `C++`, `gmail.com`, `07:30`."""
    sign, after = plain[end : end + 1], plain[end + 1 : end + 2]
    if not sign or sign not in _JOINS:
        return _is_word(sign)
    if sign in ",: ":
        return plain[end - 1].isdigit() and after.isdigit()
    if sign == "'":
        return _is_word(after) and not (after == "s" and not _is_word(plain[end + 2 : end + 3]))
    return sign in "+#" or _is_word(after)


@lru_cache(maxsize=4)
def _plain(text: str) -> tuple[str, list[int]]:
    """Return a text in lower case with single spaces and plain signs, and where each one stood."""
    chars: list[str] = []
    places: list[int] = []
    signs = text.translate(_SIGNS)
    for place, char in enumerate(signs):
        lower = " " if char.isspace() else char.lower()
        is_dash = text[place] in "–—" and (signs[place - 1 : place] + " ")[0].isalnum()
        for one in " - " if is_dash else (lower if len(lower) == 1 else char):
            if one != " " or chars[-1:] != [" "]:
                chars.append(one)
                places.append(place)
    return "".join(chars), places


@lru_cache(maxsize=4)
def _quotes(text: str) -> list[tuple[int, int]]:
    """Return where a text quotes, once for all of its facts."""
    return [found.span() for found in _QUOTE.finditer(text)]


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


class Evidence:
    """Words, where they stand, and who says them.

    unsaid: the first that no text has. inexact: values that have another form there (tea, teas).
    """

    def __init__(self, given: Sequence[str] | str, texts: Sequence[Text]) -> None:
        self.given = [given] if isinstance(given, str) else list(given)
        self.words = " … ".join(self.given)
        self.places: list[tuple[Text, tuple[int, int]]] = []
        self.unsaid = None if self.given else ""
        self.inexact: list[str] = []
        for words in self.given:
            found = [(text, span) for text in texts if (span := find_words(words, text.text))]
            self.places += found[:1]
            if not found and self.unsaid is None:
                self.unsaid = words
        self.texts = list({text.event: text for text, _ in self.places}.values())

    @property
    def is_asked(self) -> bool:
        """Whether a sentence that it stands in is a question."""
        ends = (_END.search(text.text, end - 1) for text, (_, end) in self.places)
        return any(found is not None and found[0] == "?" for found in ends)

    @property
    def is_quoted(self) -> bool:
        """Whether it stands in quotation marks, or in a quoted line."""
        return any(
            first <= start and end <= last
            for text, (start, end) in self.places
            for first, last in _quotes(text.text)
        )

    def names(self, name: str) -> bool:
        """Tell whether a name stands in the words, without regard to accents and signs."""
        return has_name(name, self.words)

    def missing(self, value: Any) -> Any:
        """Return the first part of a value that was not said; None if all of it was."""
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, dict | list):
            parts = value.values() if isinstance(value, dict) else value
            return next((one for one in map(self.missing, parts) if one is not None), None)
        said = self._has_text(value) if isinstance(value, str) else self._has_number(value)
        return None if said else value

    def has_date(self, value: str) -> bool:
        """Tell whether the words name this day, or a date within this month or year."""
        day = to_date(value) if text_kind(value) == "date" else None
        if day is not None:
            return day in self._days
        found = _PARTIAL.fullmatch(value)
        return found is not None and (
            any(_is_within(span, found) for span in self._spans)
            or find_words(value, self.words) is not None
        )

    @cached_property
    def _spans(self) -> list[DaySpan]:
        said = ((text.text[slice(*place)], text.at) for text, place in self.places)
        return [one for words, at in said for one in spans(words_of(words), from_micros(at))]

    @cached_property
    def _days(self) -> frozenset[date]:
        """The days that are named; for "two weeks ago", which is read as five days, the middle."""
        counted = [one for one in self._spans if one.days in (1, 5)]
        return frozenset(one.first + (one.last - one.first) / 2 for one in counted)

    @cached_property
    def _digits(self) -> list[InDigits]:
        return list(in_digits(_plain(self.words)[0]))

    def _has_number(self, value: Any) -> bool:
        wanted = to_decimal(value)
        in_words = map(Decimal, numbers_in(words_of(self.words)))
        return wanted in (*in_words, *(one.value for one in self._digits))

    def _has_text(self, value: str) -> bool:
        if find_words(value, self.words) is not None or self.has_date(value):
            return True
        kind = text_kind(value)
        if kind in ("time", "datetime"):
            day, clock = ("", value) if kind == "time" else (value[:10], value[11:])
            return clock[:5] in self._clock and (not day or self.has_date(day))
        if value.isdigit():
            return self._has_digits(value)
        if kind in ("int_text", "decimal_text"):
            return self._has_number(value)
        if (money := to_money(value)) is not None:
            return any(one.value == money[0] and _is_of(one, money[1]) for one in self._digits)
        return self._has_forms(value)

    def _has_digits(self, value: str) -> bool:
        """Tell whether these digits stand there, in groups of three or in words, and whole.

        They may name something: "004417" is no "4417", and "0761-555-20" has no "555".
        """
        plain, _ = _plain(self.words)
        if any(
            "".join(filter(str.isdigit, found.group())) == value
            and _GROUPED.fullmatch(found.group())
            and _is_whole(plain, *found.span())
            for found in RUN.finditer(plain)
        ):
            return True
        said = numbers_in([word for word in words_of(self.words) if not word.isdigit()])
        return Decimal(value) in map(Decimal, said)

    def _has_forms(self, value: str) -> bool:
        """Tell whether the words have other forms of these, in their order; note it if so."""
        if any(map(str.isdigit, value)) or not (wanted := stems_of(words_of(value))):
            return False
        found = f" {' '.join(wanted)} " in f" {' '.join(stems_of(words_of(self.words)))} "
        self.inexact += [value] if found else []
        return found

    @cached_property
    def _clock(self) -> frozenset[str]:
        """The times of day: a number alone is none, and "7.30" only with am or pm."""
        found = set()
        for hour, sign, minute, half in _CLOCK.findall(self.words):
            if half or sign in (":", "h"):
                number = int(hour) % 12 + 12 * (half.lower() == "p") if half else int(hour)
                found.add(f"{number:02}:{minute or '00'}")
        return frozenset(found)


def _is_of(amount: InDigits, currency: str) -> bool:
    """Tell whether a currency stands beside a number: its sign, or its code (EUR, euros)."""
    before, after = amount.before.rstrip("- "), amount.after.lstrip()
    signs = [sign for sign, code in CURRENCIES.items() if code == currency]
    named = after.upper().startswith((currency, *signs)) or before.upper().endswith(currency)
    dollars = before.upper().endswith(f"{currency[:2]}$")
    return named or dollars or (before.endswith(tuple(signs)) and not before[-2:-1].isalpha())


def _is_within(span: DaySpan, found: re.Match[str]) -> bool:
    year, month = int(found[1]), found[2]
    try:
        whole = (
            month_of(year, int(month)) if month else DaySpan(date(year, 1, 1), date(year, 12, 31))
        )
    except ValueError:
        return False
    return whole.first <= span.first and span.last <= whole.last
