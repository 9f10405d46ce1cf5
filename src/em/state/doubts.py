"""Doubts: what a text of the subject may take back, read without a model.

What was read in texts loses its value with little reason, since a pattern may have misread it:
`taken_back`. What was observed as a record keeps its value, and is in doubt only where the subject
plainly denies it, says something else in its place, or says that it ended: `doubted`. The new value
is not read here. A model or a person says it, and then the doubt is gone.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from em.state.knowledge import Knowledge, KnownRecord
from em.state.schema import PROFILE, Entry
from em.state.speech import QUOTE, Text, sentences, unreal
from em.text.contractions import expanded
from em.text.dates import spans
from em.text.terms import STOP_WORDS, words_of
from em.values.canonical import Json
from em.values.times import from_micros

EXPENSE = "Expense"
"""The type of the records that patterns read in texts."""
_TAKEN_BACK = re.compile(
    r"\b(?:i meant|i mean|never said|did(?: not|n['’]t) (?:say|mean)|kidding|joking|joke|scratch|"
    r"forget (?:that|it|what)|ignore|disregard|correction|typo|oops|mistake|mistaken|lied|a lie|"
    r"(?:was|am|is|were) wrong|that['’]s wrong|not true|untrue)\b",
    re.IGNORECASE,
)
"""Words that take back what was just said, whatever it is."""
_CHANGED = re.compile(
    r"\b(?:never|not|no longer|any ?more|actually|sorry|wait|instead|false|used to|quit|"
    r"resigned|retired|fired|laid off|let go|left|leaving|moved?|moving|relocated|changed|switched|"
    r"divorced|separated|renamed|sold|new|ex|former|formerly|was|were|back)\b|n['’]t\b",
    re.IGNORECASE,
)
"""Words that may say that something changed, if it is named beside them."""
_AT_ONCE = re.compile(r"\b(?:actually|sorry|wait|rather)\b|\A(?:no|nope)\b", re.IGNORECASE)
"""Words that may take back what was said shortly before."""
_OF_RECORD = re.compile(
    r"\b(?:not|never|instead|refunded|returned|cancell?ed)\b|n['’]t\b|\d", re.IGNORECASE
)
"""Words that may take back a record, if it is named beside them."""
_SHORTLY = 86_400 * 1_000_000
_ABOUT = {
    "move moved moving relocated live": "city town home address country place residence",
    "quit resigned retired fired laid go left leaving": "employer company job work position boss",
    "divorced separated married": "spouse husband wife partner status",
}
"""Words that say that something changed, and the fields that it may be."""


def taken_back(text: Text, known: Knowledge) -> list[Json]:
    """Return what takes back all that a text may take back, of what was read in texts."""
    back, soon = _TAKEN_BACK.search(text.text), _AT_ONCE.search(text.text)
    said = set(words_of(text.text))
    facts = [
        (field, entry)
        for (type_, _, field), entry in known.facts()
        if type_ == PROFILE and entry.how in ("pattern", "model") and entry.at <= text.at
    ]
    records = [one for one in known.records if one.type == EXPENSE and known.was_said(one)]
    meant = [one for one in facts if _CHANGED.search(text.text) and _is_named(*one, said)]
    if back or soon or _OF_RECORD.search(text.text):
        spent = [one for one in records if said.issuperset(_core(one.record.get("what")))]
    else:
        spent = []
    if not meant and not spent and (back or soon):
        meant, spent = _last(facts, records, None if back else text)
    item = {"events": [text.event], "evidence": [text.text[:500]], "status": "inferred"}
    item |= {"op": "retract", "source": text.source or text.speaker}
    return [
        *({**item, "type": PROFILE, "value": None, "field": field} for field, _ in meant),
        *({**item, "type": EXPENSE, "record": {}, "place": one.place} for one in spent),
    ]


Facts = list[tuple[str, Entry]]


def _last(
    facts: Facts, records: list[KnownRecord], before: Text | None
) -> tuple[Facts, list[KnownRecord]]:
    """Return what was read last; before: only if it was said shortly before this text."""
    last = max((entry.recorded_at for _, entry in facts), default=0)
    newest = max((one.recorded_at for one in records), default=0)
    if newest > last:
        one = max(records, key=lambda one: one.recorded_at)
        return [], [one] if _is_near(one.at, one.recorded_at, before) else []
    return [
        one for one in facts if one[1].recorded_at == last and _is_near(one[1].at, last, before)
    ], []


def _is_near(at: int, recorded_at: int, before: Text | None) -> bool:
    if before is None:
        return True
    return before.at - at <= _SHORTLY or before.recorded_at - recorded_at <= _SHORTLY


def _core(words: Any) -> set[str]:
    """Return the words that carry a meaning; if there are none, one that nobody says."""
    found = {word for word in words_of(str(words)) if word not in STOP_WORDS}
    return found or {""}


def _is_named(field: str, entry: Entry, said: set[str]) -> bool:
    """Tell whether words name a field or its value, or are about such a field."""
    names = set(words_of(field.replace("_", " ")))
    about = {
        name
        for words, fields in _ABOUT.items()
        if said.intersection(words.split())
        for name in fields.split()
    }
    value = words_of(str(entry.value))
    return names <= said or bool(names & about) or (bool(value) and said.issuperset(value))


def doubted(text: Text, known: Knowledge) -> list[Json]:
    """Return the doubts about facts that were observed as records."""
    facts = [
        _Known(frozenset(words_of(field.replace("_", " "))), field, entry)
        for (type_, _, field), entry in known.facts()
        if type_ == PROFILE and entry.how in ("", "record") and entry.at <= text.at
    ]
    found = {
        one.field: words
        for words, plain in _stated(text.text)
        for one in facts
        if isinstance(one.entry.value, str) and _denies(plain, one, text)
    }
    found |= {one.field: said for one in facts if (said := _answered(text.text, one)) is not None}
    item = {"op": "doubt", "type": PROFILE, "value": None, "events": [text.event]}
    item |= {"status": "doubted", "source": text.source or text.speaker}
    return [{**item, "field": field, "evidence": [words]} for field, words in found.items()]


class _Known(NamedTuple):
    """A fact, and the words that name its field."""

    names: frozenset[str]
    field: str
    entry: Entry

    def is_a(self, kind: str) -> bool:
        """Tell whether the field is of a kind, and of the present."""
        return bool(self.names) and self.names <= _KINDS[kind]

    @property
    def value(self) -> str:
        return r"\s+".join(map(re.escape, str(self.entry.value).split()))


_KINDS = {
    "home": frozenset("city town home residence address current place of".split()),
    "employer": frozenset("employer company workplace current".split()),
    "job": frozenset("job profession occupation position role title current".split()),
    "allergy": frozenset("allergy allergies".split()),
    "name": frozenset("name full first last surname".split()),
}
"""The words that names of fields of a kind are made of."""
_LATER = re.compile(
    r"\b(?:next|tomorrow|soon|starting|as of|by then|will|would|going to|gonna|until|yet|wish|hope|"
    r"if|when|unless|once|whether|imagine|suppose|pretend|dream\w*|might|could(?! not)|should|"
    r"almost|nearly|basically|another life|like|says?|said that|thinks?|told|claims?|believes?)\b"
    r"|(?<![A-Z])\bmay\b",
)
"""Words of what is to come, or not said as the speaker's own: `never said` is another matter."""
_PLAIN = (("im", "I am"), ("i", "I"), ("ive", "I have"), ("its", "it is"), ("thats", "that is"))
_OPENING = (
    "update|actually|sorry|no|nope|well|ok|okay|oh|hey|hi|fyi|btw|it turns out|turns out|and|but|"
    "so|then|also|anyway|wait|sadly|unfortunately|luckily|finally|yesterday|today|oops|please"
)
_BEFORE = rf"(?:\A|[,;:(—–]\s*|\s(?:and|but|so|because)\s+)(?:(?:{_OPENING})[,:!]?\s+)*"
_SINCE = (
    r"(?:on \w+|last \w+|this \w+|yesterday|today|in [A-Z]\w+|(?:\w+ ){1,2}ago|recently|"
    r"now|just now)"
)
_BEHIND = (
    "any ?more|any longer|now|at all|after all|either|these days|lol|haha|tho|though|thanks|"
    "and (?:never|i|it)"
)
_END = rf"(?=(?:\s+{_SINCE})?\s*(?:\Z|[^\w\s'’-]|[-–—]\s|(?:{_BEHIND})\b))"
_MORE = r"\s+any(?:\s?more| longer)\b"
_NAME = r"(?-i:[A-ZÀ-ÖØ-Þ])[\w'’-]*(?: (?-i:[A-ZÀ-ÖØ-Þ])[\w'’-]*){0,2}"
_AM = r"I am (?:not|no longer)"
_DO = r"I (?:do not|no longer|did not|never)(?: actually| really| even)?"
_HAVE = r"I (?:have )?(?:just |finally |recently )?"
_WAS = r"I (?:was|got|have been)(?: just)? (?:fired|laid off|let go|sacked)"
_DENIALS: dict[str, tuple[str, ...]] = {
    "home": (
        rf"{_DO} (?:lived?|stay(?:ed)?|resided?) in VALUE{_END}",
        rf"{_AM} (?:living|based) in VALUE{_END}",
        rf"I (?:have )?(?:just )?moved (?:away )?(?:from|out of) VALUE(?:{_END}| to\b)",
        rf"I live in {_NAME},? (?:and )?not (?:in )?VALUE{_END}",
    ),
    "employer": (
        rf"{_DO} work(?:ed)? (?:for|at) VALUE{_END}",
        rf"{_AM} (?:employed (?:by|at)|working (?:for|at)) VALUE{_END}",
        rf"(?:I am |I )?(?:not|no longer) (?:at|with) VALUE{_MORE}",
        rf"I am no longer (?:at|with) VALUE{_END}",
        rf"I work (?:for|at) {_NAME},? (?:and )?not (?:for |at )?VALUE{_END}",
        rf"{_HAVE}(?:quit|resigned from|left my job at|retired from) VALUE{_END}",
        rf"{_WAS}(?: from| by)? VALUE{_END}",
    ),
    "job": (
        rf"{_AM} (?:an?|the) VALUE{_END}",
        rf"(?:not|no longer) (?:an?|the) VALUE{_MORE}",
        rf"{_DO} work(?:ed)? as (?:an?|the) VALUE{_END}",
    ),
    "allergy": (rf"{_AM} allergic to VALUE{_END}", rf"I was never allergic to VALUE{_END}"),
    "name": (rf"{_AM} (?:called |named )?VALUE{_END}",),
}
"""By kind of field, how its value is denied. VALUE stands for the known one."""
_CLAIMS = {
    "home": r"I (?:live|lived|moved|stay) (?:in|to) ",
    "employer": r"I (?:work|worked) (?:for|at) ",
    "job": r"I (?:am|was|work as|worked as) (?:an? )?",
    "allergy": r"I am allergic to ",
    "name": r"(?:I am (?:called )?|my name is )",
}
_ENDED = (
    rf"(?:{_HAVE}(?:quit(?: my job)?|resigned|retired|lost my job)|{_WAS}|they let me go){_END}"
)
"""Says that work ended, whatever it was."""
_GLAD = r"\b(?:happy|happier|glad|thrilled|excited|pleased|relieved|proud) (?:that )?"
_MOVED = rf"(?:{_BEFORE}|{_GLAD}){_HAVE}moved to (?P<to>{_NAME}){_END}"
_NOT_PLACES = frozenset(
    "linux windows mac macos ios android python java javascript typescript rust go ruby kotlin "
    "swift marketing sales engineering product finance legal support operations research design "
    "hr it qa management development data security vim emacs firefox chrome github gitlab notion "
    "slack teams postgres kubernetes docker aws azure monday tuesday wednesday thursday friday "
    "saturday sunday january february march april may june july august september october november "
    "december".split()
)
_INSTEAD = (
    r"(?:(?:\*|sorry|no|oops|actually|typo|correction)[,:.!]?\s*)*"
    r"(?:it is |that is |I meant |I mean |I said )?"
)
_MAY_DENY = re.compile(
    r"\b(?:not|never|no longer|quit|resigned|retired|fired|laid off|let go|let me go|sacked|"
    r"lost my job|left my job|moved)\b",
    re.IGNORECASE,
)
"""In every sentence that denies something; a quick look, since most sentences don't."""
_YES = frozenset("yes yep yeah yup still sure correct true indeed always".split())


def _stated(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences that state something, as written and without contractions and quotes."""
    for start, end in sentences(text):
        words = text[start:end].strip()
        if words.startswith(">") or unreal(text, start, end) is not None:
            continue
        plain = QUOTE.sub(" “” ", words.replace("’", "'"))
        plain = expanded(plain).text
        for short, long in _PLAIN:
            plain = re.sub(rf"(?<![\w'-]){short}(?![\w'-])", long, plain, flags=re.IGNORECASE)
        if _MAY_DENY.search(plain):
            yield words, plain


def _denies(plain: str, one: _Known, text: Text) -> bool:
    """Tell whether a sentence denies a fact, or says something else in its place."""
    if _denies_saying(plain, one) or _corrects(plain, one):
        return True
    if _LATER.search(plain):
        return False
    patterns = [form for kind, forms in _DENIALS.items() if one.is_a(kind) for form in forms]
    field = " ".join(words_of(one.field.replace("_", " ")))
    patterns.append(rf"my {field} is (?:not|no longer) VALUE{_END}")
    if any(_finds(_BEFORE + form, plain, one) for form in patterns):
        return True
    works = one.is_a("employer") or one.is_a("job")
    if works and re.search(_BEFORE + _ENDED, plain, re.IGNORECASE):
        return True
    return one.is_a("home") and _moves(plain, one, text)


def _finds(form: str, plain: str, one: _Known) -> bool:
    return re.search(form.replace("VALUE", one.value), plain, re.IGNORECASE) is not None


def _denies_saying(plain: str, one: _Known) -> bool:
    """Tell whether somebody says that they never said it."""
    claims = [claim for kind, claim in _CLAIMS.items() if one.is_a(kind)]
    named = f"(?:{'|'.join([*claims, 'my ' + re.escape(one.field) + ' is '])})?"
    never = r"I (?:never|did not) (?:say|said|tell you|told you|mean|meant)(?: that)? "
    return _finds(rf"{_BEFORE}{never}{named}VALUE{_END}", plain, one)


def _corrects(plain: str, one: _Known) -> bool:
    """Tell whether a sentence only says another name, and not the known one."""
    value = str(one.entry.value)
    if not value[:1].isupper():
        return False
    parts = [re.escape(part) for part in value.split() if len(part) > 2 and part[0].isupper()]
    named = "|".join([one.value, *parts])
    tail = r"(?: (?:with|without|spelled|in) [^,]{1,20})?"
    other = rf"(?:(?P<other>{_NAME}){tail},? (?:and )?)?"
    found = re.fullmatch(
        rf"\s*{_INSTEAD}{other}not (?:in |at |for )?(?P<known>{named})[\W_]*"
        r"(?:(?:like I said|sorry|typo|lol|haha|thanks|please)[\W_]*)*",
        plain,
        re.IGNORECASE,
    )
    return found is not None and found["known"][0].isupper() and found["other"] != found["known"]


def _moves(plain: str, one: _Known, text: Text) -> bool:
    """Tell whether the subject moved to another place, after the known one was observed."""
    found = re.search(_MOVED, plain, re.IGNORECASE)
    if found is None or _finds(r"\b(?:VALUE|back|returned)\b", plain, one):
        return False
    if found["to"].split()[0].lower() in _NOT_PLACES:
        return False
    then = from_micros(text.at)
    known = from_micros(one.entry.at).date()
    read = spans(words_of(plain), then)
    return all(known <= span.last and span.first <= then.date() for span in read)


def _answered(text: str, one: _Known) -> str | None:
    """Return the words that answer a quoted question about a fact, and not by yes."""
    lines = text.strip().split("\n")
    quoted = [line[1:].strip() for line in lines if line.startswith(">")]
    rest = [line.strip() for line in lines if not line.startswith(">") and line.strip()]
    asked = [
        line
        for line in quoted
        if line.endswith("?") and _finds(r"\bstill (?:\w+ ){0,3}VALUE\b", line, one)
    ]
    if not asked or not rest or _YES.intersection(words_of(rest[0])[:2]):
        return None
    named = re.match(rf"(?P<to>{_NAME}),? (?:since|now|these days|for)\b", rest[0])
    if named is not None and named["to"].lower() != str(one.entry.value).lower():
        return rest[0]
    return rest[0] if re.match(r"(?:no|nope|not any ?more)\b", rest[0], re.IGNORECASE) else None
