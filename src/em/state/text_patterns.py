"""What can be read in free text without a model: a modest set of patterns, and nothing beyond.

Better none than wrong: a sentence that does not fit from its beginning to its end is left alone.
"""

import re
from datetime import UTC, datetime

from em.state.fold import Text
from em.state.scalars import MONTHS, to_date, to_money
from em.state.schema import PROFILE, Extraction
from em.values.canonical import Json
from em.values.times import from_micros

_NAME = r"(?P<value>[A-Z][\w'’.-]*(?: (?:[A-Z][\w'’.-]*|de|da|do|of|the)){0,3})"
_MONTH = "|".join(name.capitalize() for name in MONTHS if len(name) > 4 or name in ("may", "june"))
_WHEN = rf"(?: in (?P<month>{_MONTH})(?: (?P<year>\d{{4}}))?| on (?P<day>\d{{4}}-\d{{2}}-\d{{2}}))?"
FACTS = (
    ("city", re.compile(rf"I(?: have|'ve)? (?:just )?moved to {_NAME}{_WHEN}")),
    ("city", re.compile(rf"I (?:now )?live in {_NAME}(?: now)?")),
    ("employer", re.compile(rf"I (?:now )?work (?:at|for) {_NAME}(?: now)?")),
    ("name", re.compile(rf"[Mm]y name is {_NAME}")),
)
SPENT = re.compile(
    r"I (?:spent|paid) (?P<amount>[^\s]+(?: [A-Z]{3})?) (?:on|for) (?P<what>[\w' -]{1,60}?)"
    r"(?: on (?P<day>\d{4}-\d{2}-\d{2}))?"
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")


def read_by_patterns(texts: list[Text]) -> list[Extraction]:
    """What the patterns find in each text; a text in which they find nothing has none."""
    found = []
    for text in texts:
        facts: list[Json] = []
        records: list[Json] = []
        left = False
        for sentence in _SENTENCE.split(text.text):
            words = sentence.strip().rstrip(".!?;")
            said, told = _facts(words, text), _records(words, text)
            facts += said
            records += told
            left = left or bool(words and not said and not told)
        if facts or records:
            found.append(
                Extraction(
                    from_events=[text.event],
                    method="pattern",
                    facts=facts,
                    records=records,
                    in_part=[text.event] if left else [],
                )
            )
    return found


def _facts(sentence: str, text: Text) -> list[Json]:
    for field, pattern in FACTS:
        match = pattern.fullmatch(sentence)
        if match is None:
            continue
        at = _when(match.groupdict(), text)
        fact = {"type": PROFILE, "field": field, "value": match["value"], "events": [text.event]}
        return [{**fact, "status": "stated", "source": text.source or text.speaker, "at": at}]
    return []


def _when(found: dict[str, str | None], text: Text) -> str | None:
    """When it happened: the day, or the last such month up to when it was said."""
    if found.get("day"):
        return found["day"] if to_date(str(found["day"])) else None
    if not found.get("month"):
        return None
    said = from_micros(text.at)
    month = MONTHS[str(found["month"]).lower()]
    year = int(found["year"] or 0) or (said.year if month <= said.month else said.year - 1)
    return datetime(year, month, 1, tzinfo=UTC).date().isoformat()


def _records(sentence: str, text: Text) -> list[Json]:
    match = SPENT.fullmatch(sentence)
    if match is None or to_money(match["amount"]) is None:
        return []
    day = match["day"] or from_micros(text.at).date().isoformat()
    if to_date(day) is None:
        return []
    record = {"amount": match["amount"], "what": match["what"], "date": day}
    return [{"type": "Expense", "record": record, "events": [text.event], "status": "stated"}]
