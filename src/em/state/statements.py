"""Statements that patterns read in free text, without a model: few, and all of them right.

A text is read only if the subject says it and each of its sentences is a statement of one of these
forms, or a courtesy. Anything else in it could change what they mean ("Just kidding."), so the
text is left for a model. What such a text may take back is in doubt (`doubts`).
"""

import re
from datetime import date, timedelta
from typing import Any

from em.state.doubts import EXPENSE, doubted, taken_back
from em.state.fold import Material
from em.state.knowledge import Knowledge
from em.state.schema import PROFILE, Extraction
from em.state.speech import Text, is_own
from em.state.types import kind_of, text_kind, to_date, to_money
from em.text.cities import CITIES
from em.text.courtesies import is_courtesy
from em.text.dates import TRIGGERS, spans
from em.text.terms import STOP_WORDS, words_of
from em.values.canonical import Json
from em.values.times import from_micros

_SENTENCE = re.compile(r"(?<=[.!])\s+")
_WORD = r"[A-ZÀ-ÖØ-Þ][\w'’-]*"
_NAME = re.compile(
    rf"{_WORD}(?: (?:{_WORD}|de|da|do|dos|van|von|der|la|bin)){{0,3}}(?<! [a-z]{{2}})"
)
_MY_NAME = re.compile(r"[Mm]y name is (?P<value>.+)")
_HOME = re.compile(
    r"(?P<moved>I(?: have|['’]ve)?(?: just)? moved to )?(?:I (?:now )?live in )?(?P<city>[^,.]+?)"
    r"(?(moved)(?: in (?P<month>[A-Z][a-z]+)(?: (?P<year>\d{4}))?)?|(?: now)?)"
)
_SPENT = re.compile(
    r"(?:(?P<before>[\w ]{3,30}?),? )?I(?: have|['’]ve)? (?:spent|paid) "
    r"(?P<amount>[^\s]+(?: [A-Z]{3})?) (?:on|for) (?P<what>[\w' -]{1,60})"
)
_MY = re.compile(r"[Mm]y (?P<field>[\w -]{1,40}?) is (?P<value>.{1,60}?)(?: now)?")
_NOT_WHAT = STOP_WORDS - {"a", "an", "the"} | frozenset(
    "nothing everything something anything every per maybe perhaps alone instead once twice often "
    "always never sometimes together else yet still almost less combined tops total altogether "
    "apiece extra max min net gross owed short plus minus time times approx about".split()
)
_DATE_WORDS = TRIGGERS | frozenset(
    "on last this the ago day days before two three four five six seven eight nine ten a".split()
)
_NOT_NAMES = frozenset(
    "german american french greek dutch swiss czech thai turk arab iraqi israeli pakistani mexican "
    "moroccan cuban african catholic muslim hindu buddhist protestant republican democrat vegan "
    "black white mud nobody none unknown secret private ok okay god tbd n/a not no classified "
    "redacted taken irrelevant anonymous unimportant confidential hidden legion".split()
)
_NOT_VALUES = frozenset(
    "late happy sad angry sick ill female male married single divorced dead alive old young new "
    "nice great good bad best worst big small rich poor busy free away home open closed gone "
    "broken empty full fine pretty tall short strict kind mean cool crazy smart funny weird true "
    "false".split()
)
_ADJECTIVE = re.compile(r"\w+(?:ish|ese|ian|ean|ic|ful|less|ous|ing|ed|ly|able|ible|ant|ive)")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EMAIL = re.compile(r"[^@\s]+@[\w-]+(?:\.[\w-]+)+")


def read_by_patterns(material: Material, known: Knowledge) -> list[Extraction]:
    """Read texts by patterns; texts without a match have no reading."""
    found = []
    for text in material.texts:
        if not is_own(text, known.names()):
            continue
        items = _statements(text, known)
        doubts = [] if items is not None else [*taken_back(text, known), *doubted(text, known)]
        facts = [one for one in items or doubts if "field" in one]
        records = [one for one in items or doubts if "record" in one]
        if facts or records:
            read = Extraction(
                from_events=[text.event], method="pattern", facts=facts, records=records
            )
            known.add_reading(read, material)
            found.append(read)
    return found


def _statements(text: Text, known: Knowledge) -> list[Json] | None:
    """Return what a text states; None if any sentence of it is not understood."""
    found: list[Json] = []
    for sentence in _SENTENCE.split(text.text.strip()):
        words = sentence[:-1] if sentence[-1:] in (".", "!") else sentence
        if is_courtesy(words.lower()):
            continue
        item = _fact(words, text, known) or _expense(words, text)
        if item is None:
            return None
        said = {"events": [text.event], "status": "stated", "evidence": [sentence]}
        found.append({**item, **said, "source": text.source or text.speaker})
    return found or None


def _fact(words: str, text: Text, known: Knowledge) -> Json | None:
    if found := _MY_NAME.fullmatch(words):
        name = found["value"]
        return _set("name", name) if _is_name(name) else None
    if words.startswith("I") and (found := _HOME.fullmatch(words)) and found["city"] in CITIES:
        if not found["month"]:
            return _set("city", found["city"])
        first = _month(f"in {found['month']} {found['year'] or ''}", text)
        return None if first is None else _set("city", found["city"], first.isoformat())
    if found := _MY.fullmatch(words):
        return _my(found["field"], found["value"], text, known)
    return None


def _set(field: str, value: Any, at: str | None = None) -> Json:
    return {"type": PROFILE, "field": field, "value": value, "at": at}


def _month(words: str, text: Text) -> date | None:
    """Return the first day of a month within the year before a text."""
    then = from_micros(text.at)
    read = spans(words_of(words), then)
    if len(read) != 1 or not 28 <= read[0].days <= 31:
        return None
    first = read[0].first
    if read[0].any_year and first > then.date():
        first = first.replace(year=first.year - 1)
    return first if timedelta(0) <= then.date() - first < timedelta(days=366) else None


def _is_name(name: str) -> bool:
    if not _NAME.fullmatch(name):
        return False
    parts = [part.lower() for part in name.split()]
    if len(parts) == 1:
        return parts[0] not in STOP_WORDS | _NOT_NAMES | TRIGGERS
    return not any(part in STOP_WORDS for part in parts if part not in ("do", "de"))


def _is_named_value(value: str) -> bool:
    """Tell whether a value is a name, and no word that says what something is like."""
    word = value.lower()
    return _is_name(value) and word not in _NOT_VALUES and _ADJECTIVE.fullmatch(word) is None


def _my(said: str, value: str, text: Text, known: Knowledge) -> Json | None:
    """Read `my X is Y`, if the profile has a field X, and Y is like its values."""
    type_ = known.schema.types.get(PROFILE)
    fields = () if type_ is None else type_.fields.values()
    named = words_of(said)
    field = next((one for one in fields if words_of(one.given.replace("_", " ")) == named), None)
    if field is None:
        return None
    entries = known.entries(PROFILE, (), field.given)
    meant = _like(value, [one.value for one in entries if one.value is not None], text)
    return None if meant is None else _set(field.given, meant)


def _like(said: str, values: list[Any], text: Text) -> Any:
    """Return the value that words mean for a field with these values; None if in doubt."""
    kinds = {kind_of(value) for value in values}
    if kinds == {"date"}:
        day = to_date(said) or _day(said, text)
        return None if day is None else day.isoformat()
    if kinds and kinds <= {"int", "float"} and not said.startswith("-"):
        read = {"int_text": int, "decimal_text": float}.get(text_kind(said))
        return None if read is None else read(said)
    if kinds == {"money"}:
        return said if to_money(said) and _is_clear(said) else None
    return _like_text(said, values) if kinds else None


def _like_text(said: str, values: list[Any]) -> str | None:
    if not all(isinstance(value, str) for value in values):
        return None
    if all(map(_EMAIL.fullmatch, values)):
        return said if _EMAIL.fullmatch(said) else None
    if all(map(_is_name, values)):
        return said if _is_named_value(said) else None
    return next((value for value in values if value.lower() == said.lower()), None)


def _day(said: str, text: Text) -> date | None:
    """Return the day that words name with its year, and nothing else."""
    words = words_of(said)
    if not any(word.isdecimal() and len(word) == 4 for word in words):
        return None
    if not all(word in _DATE_WORDS or word.isdecimal() for word in words) or "/" in said:
        return None
    read = spans(words, from_micros(text.at))
    return read[0].first if len(read) == 1 and read[0].days == 1 and not read[0].any_year else None


def _is_clear(amount: str) -> bool:
    """Tell whether an amount can be read in one way: 1.200 and ¥ can't."""
    return "¥" not in amount and "-" not in amount and re.search(r"\.\d{3}\b", amount) is None


def _expense(words: str, text: Text) -> Json | None:
    found = _SPENT.fullmatch(words)
    if found is None or to_money(found["amount"]) is None or not _is_clear(found["amount"]):
        return None
    parts = found["what"].split()
    cut = next((n for n, part in enumerate(parts) if _may_be_date(parts, n, part)), len(parts))
    what, behind = parts[:cut], " ".join(parts[cut:])
    if not 0 < len(what) <= 4 or not all(part.islower() and part.isalpha() for part in what):
        return None
    if any(part in _NOT_WHAT or part.endswith("ly") for part in what) or (
        behind and found["before"]
    ):
        return None
    record = {"amount": found["amount"], "what": " ".join(what)}
    when = behind or found["before"]
    if when:
        day = _past_day(when, text)
        if day is None:
            return None
        record["date"] = day.isoformat()
    return {"type": EXPENSE, "record": record}


def _may_be_date(parts: list[str], n: int, part: str) -> bool:
    """Tell whether a date may begin with this word."""
    if part.lower() in ("on", "last", "this", "next", "coming") or part[:1].isdecimal():
        return True
    if part in ("a", "an", "the") and n:
        return True
    numbers = _DATE_WORDS - TRIGGERS - {"a", "the"}
    return part.lower() in TRIGGERS or (part in numbers and n + 1 < len(parts))


def _past_day(said: str, text: Text) -> date | None:
    """Return the one day that words name, if it is not in the future; None if in doubt."""
    words = words_of(said)
    if not all(word in _DATE_WORDS or word.isdecimal() for word in words) or "/" in said:
        return None
    then = from_micros(text.at)
    read = spans(words, then)
    if len(read) != 1 or read[0].days != 1 or read[0].first > then.date():
        return None
    day = read[0].first
    if any(word.startswith(_WEEKDAYS[day.weekday()]) for word in words):
        # On a Monday, "on Monday" may be today or a week ago; on a Friday, "last Monday" too.
        this_week = day >= then.date() - timedelta(days=then.weekday())
        if day == then.date() or ("last" in words and this_week):
            return None
    return day
