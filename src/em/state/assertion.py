"""Assertions: whether the words around a value say that it holds.

"I don't live in Rome", "I might move to Rome" and "I used to live in Rome" all have the value Rome
in words that were said, and none says that Rome is the city. The words that govern a value are
those of its clause: back to a sign or a conjunction behind which a new clause begins with its own
subject. A clause without one shares what governs the clause before it ("not Rome, Milan or Oslo").
"""

import re
from collections.abc import Iterator
from typing import Any

from em.state.grounds import NUMBERS, find_words
from em.state.speech import QUOTE, sentences
from em.text.contractions import expanded
from em.text.terms import STOP_WORDS, stems_of, words_of

_WHO = (
    r"(?:i|im|ive|we|he|she|it|its|they|you|my|our|his|her|their|this|that|there|who|everyone|now|"
    r"currently|today)\b"
)
_BREAK = re.compile(
    r"[^\w\s'’$€£¥₹.%&/@#*+-]+|\s[-–—]\s|\bbut\b|\bexcept\b|"
    rf"\b(?:and|so|because|though|although|however|while|whereas|then|or|as|since)\s+(?={_WHO})",
    re.IGNORECASE,
)
"""Where another clause may begin."""
_OWN = re.compile(rf"\b{_WHO}|\b(?:is|are|am)\b", re.IGNORECASE)
"""What a clause of its own has: a subject, or a verb that has one."""
_ASIDE = re.compile(
    r"\s*(?:as (?:you|i|we|they)|you know|you see|by the way|btw|to be honest|of course|I think|"
    r"I guess|like I said|believe me|trust me|honestly)(?: \w+){0,2}\s*",
    re.IGNORECASE,
)
"""A clause between others, which governs none of them."""
_NEUTRAL = re.compile(
    r"\b(?:could not (?:be|have been) (?:happier|better|more \w+|prouder|gladder)|"
    r"(?:can|could) not (?:believe|resist|help)|not only|not just|not to mention|"
    r"no (?:doubt|regrets?|wonder)|"
    r"(?:not|never) (?:to )?(?:miss|forget|regret|fail|stop|skip|hesitate|doubt|deny|worry)\w*|"
    r"never (?:been|felt) (?:happier|better)|why not|"
    r"(?:should|must|may|might|could|would|will|want to|wanted to|like to) (?:also |just |have )?"
    r"(?:mention|say|add|note|point out|tell|know|remember|recall|guess|notice|hear|see)\w*)\b",
    re.IGNORECASE,
)
"""Words with a negation or a modal verb that take nothing back from what follows them."""
_DENIED = re.compile(
    r"\b(?:not|never|no longer|nobody|none|neither|nor|without|hardly|barely|nowhere|doubt|deny|"
    r"denied|denies|refused?|stopped|quit|instead of|rather than|anything but|far from|"
    r"no (?!i\b|we\b|it\b|its\b|my\b|that\b|in\b|the\b|wait\b|sorry\b|actually\b|really\b|"
    r"problem\b|worries\b|way\b|idea\b|need\b))\b",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"\s+(?:(?:is|are|was|were|does|do|did|has) (?:not|never|no longer)|no longer|no more)\b",
    re.IGNORECASE,
)
_POSSIBLE = re.compile(
    r"\b(?:might|could|would|should|ought to|shall|maybe|perhaps|possibly|probably|unlikely|"
    r"wish(?:es|ed)?|hop(?:e|es|ed|ing)|want(?:s|ed)? to|wanna|tempted to|supposed to|almost|"
    r"nearly|dream\w* (?:of|about|that|i)|think(?:ing)? (?:of|about)|consider(?:s|ed|ing)?|"
    r"not sure|tr(?:y|ies|ied|ying) to|as if|as though|if|unless|whether|in case|imagin(?:e|ing)|"
    r"suppos(?:e|ing)|pretend\w*|let'?s say|let us say|say i|what if|wondering|offered|"
    r"appl(?:ied|ying)|basically|practically|virtually|act like|feels? like|play(?:s|ing)? an?|"
    r"(?:in|from) (?:another|a past|my next|a parallel|the other) (?:life|world|universe)|"
    r"in my dreams?|in (?:the|my|a|this|our) "
    r"(?:novel|story|game|play|movie|film|book|dream|script))\b|\b(?-i:may)\b(?! \d)",
    re.IGNORECASE,
)
_TO_COME = re.compile(
    r"\b(?:will|going to (?=(?-i:[a-z]))|gonna|about to|plan(?:s|ned|ning)? (?:to|on)|"
    r"intend\w* to|(?:am|are|is) (?:moving|relocating|starting|switching|joining)|soon)\b",
    re.IGNORECASE,
)
_USED_TO = re.compile(r"\bused to\b(?! (?:it|that|the)\b)", re.IGNORECASE)
_PAST = re.compile(
    rf"{_USED_TO.pattern}|\b(?:formerly|previously|back then|back when|in the past|when i was|"
    r"once(?! an?\b| per\b| every\b))\b|"
    r"(?<!have )(?<!has )(?<!always )(?<!ever )\b(?:lived|resided|worked) "
    r"(?:in|at|for|as|with|near)\b|"
    r"\b(?:i|he|she|we|they) (?:was|were) (?:an?|living|working|employed|based)\b|"
    r"\b(?:my|his|her|our|their) (?:old|former|previous|ex)\b|"
    r"\b(?:my|his|her|our|their) [\w ]{1,30}?\b(?:was|were)\b(?! (?:\w+ed|born|set)\b)",
    re.IGNORECASE,
)
_THOUGHT = re.compile(
    r"\b(?!(?:i|we|also|still|really|just|do|did|to|would|always|never|not)\b)[\w'’]+ "
    r"(?:also |still |all |always )?(?:thinks?|thought|claims?|claimed|believes?|believed|"
    r"assumes?|assumed|guess(?:es|ed)|insists?|jokes?|joked|imagines?|figured|pretends?|"
    r"suspects?)\b(?! about)",
    re.IGNORECASE,
)
_SAYS_TEXT = re.compile(
    r"\b(?:t-?shirt|shirt|sign|poster|sticker|mug|song|lyrics?|book|novel|play|movie|film|ad|"
    r"horoscope|headline|sentence|story|script|meme|poem|quote|prompt|form|line) "
    r"(?:says?|said|goes|reads?)\b",
    re.IGNORECASE,
)
_QUOTES = re.compile(
    r"\b(?!i\b|we\b)[\w'’]+ (?:(?!i\b|we\b)\w+ )?(?:says?|said|wrote|writes|goes|"
    r"(?:was|is|were) like|replied|answered|asked|texted|shouted|yelled)\s*[:,]\s",
    re.IGNORECASE,
)
_TEXT_GIVEN = re.compile(
    r"\b(?:translate|proofread|rewrite|rephrase|correct|summari[sz]e|paraphrase|edit|check|fix|"
    r"reply to|respond to|here is (?:a|the|my) (?:draft|text|email|letter))\b[^.!?\n]*:|"
    r"^\s*(?:from|fwd?|fw|forwarded|subject|on .{4,80} wrote)\b[^\n]*(?::|\n)",
    re.IGNORECASE | re.MULTILINE,
)
_SPEECH_ACT = re.compile(
    r"if (?:you|anyone|anybody|it matters|that matters|it helps|that helps|memory serves|"
    r"i remember|i recall|i may|i am not mistaken)\b",
    re.IGNORECASE,
)
_CONDITIONS = ("if ", "unless ", "suppose ", "imagine ", "were i ", "had i ")
_NEGATIVE = re.compile(
    r"(?:^|_)(?:dislik|disallow|disabl|non_|no_|not_|never|unwanted|unlik|without|avoid|hate|exclu|"
    r"forbid|refus|lack|missing|reject|cancel|quit|stopped|denied|restrict|except|cannot|cant)"
)
"""Names of fields whose values a negation states: `dislikes`, `not_eaten`."""
_WISHED = re.compile(
    r"(?:^|_)(?:plan|goal|wish|want|hope|dream|inten|future|todo|remind|interest|prefer|request|"
    r"question|idea|applic|offer|consider)"
)
"""Names of what may only be possible."""
_PLANNED = re.compile(
    rf"{_WISHED.pattern}|(?:^|_)(?:next|task|appointment|event|booking|reservation|deadline|upcoming|"
    r"schedul|meeting|trip|flight|visit|travel|move|moving|start|until|expir|due)"
)
"""Names of what may be to come."""
_BEFORE_NOW = re.compile(
    r"(?:^|_)(?:former|previous|old|past|birth|born|origin|hometown|raised|grew|histor|childhood|was|"
    r"used|ex|last|lived|worked|since|ended|until|from)"
)
"""Names of what may be over."""


def leaves(value: Any) -> Iterator[Any]:
    """Yield the single values in a value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def mentions(value: Any, words: str) -> bool:
    """Tell whether words have a value, or a part of it, as it is written."""
    found = {stem for word in words_of(str(value)) for stem in stems_of([word])}
    return bool(found.intersection(stems_of(words_of(words))))


def unasserted(text: str, start: int, end: int, name: str, value: Any, *, past: bool) -> str | None:
    """Return why words of a text don't say that a value holds; None if they do.

    name: of the type and the field, in lower case. past: what was before counts, too, as for things
    that happened once.
    """
    if value is None or isinstance(value, bool):
        return None
    reasons = []
    for at, until in _places(text, start, end, value):
        why = _quoted(text, at, until) or _reason(text, at, until, name, past=past)
        if why is None:
            return None
        reasons.append(why)
    return reasons[0] if reasons else None


def _quoted(text: str, start: int, end: int) -> str | None:
    line = text[text.rfind("\n", 0, start) + 1 :]
    quotes = [found.span() for found in QUOTE.finditer(text)]
    in_quotes = any(first < start and end < last for first, last in quotes)
    if line.lstrip().startswith(">") or in_quotes:
        return "a quotation"
    return "a text that was given" if _TEXT_GIVEN.search(text[:start]) else None


def _places(text: str, start: int, end: int, value: Any) -> Iterator[tuple[int, int]]:
    """Yield where a value stands in words of a text; each clause, if it stands there otherwise."""
    words = text[start:end]
    spans = [*_written(words, str(value))] if isinstance(value, str) else []
    for first, last in spans or [*_numbers(words, value)] or _clauses(words):
        yield start + first, start + last


def _written(words: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield where a text stands in words; else where its words stand."""
    at = 0
    while (span := find_words(value, words[at:])) is not None:
        yield at + span[0], at + span[1]
        at += span[1]
    stems = set(stems_of([word for word in words_of(value) if word not in STOP_WORDS]))
    for one in re.finditer(r"[\w'’]+", words) if not at else ():
        if stems.intersection(stems_of(words_of(one[0]))):
            yield one.span()


def _numbers(words: str, value: Any) -> Iterator[tuple[int, int]]:
    """Yield where the number of a value stands in words, as digits or as a word."""
    wanted = {float(one) for one in re.findall(r"\d{1,15}(?:\.\d{1,9})?", str(value))}
    for one in re.finditer(r"\d[\d,]*(?:\.\d+)?|[a-z]+", words, re.IGNORECASE):
        number = NUMBERS.get(one[0].lower())
        if one[0][0].isdecimal():
            number = float(one[0].replace(",", ""))
        if number in wanted:
            yield one.span()


def _clauses(words: str) -> Iterator[tuple[int, int]]:
    at = 0
    for found in [*_BREAK.finditer(words), None]:
        until = len(words) if found is None else found.start()
        if words[at:until].strip():
            yield until, until
        at = until if found is None else found.end()


def _reason(text: str, at: int, until: int, name: str, *, past: bool) -> str | None:
    first, last = _sentence(text, at, until)
    before = _plain(text[first:at])
    governing = _governing(before)
    behind = _plain(text[until:last]) if at < until else ""
    if _SAYS_TEXT.search(before) or _QUOTES.search(before):
        return "a quotation"
    if not _NEGATIVE.search(name) and _is_denied(governing, behind):
        return "denied"
    if _THOUGHT.search(governing):
        return "what somebody thinks"
    if (why := _open(before, governing, name)) is not None:
        return why
    over = not _BEFORE_NOW.search(name) and (_USED_TO if past else _PAST).search(governing)
    return "past" if over else None


def _sentence(text: str, at: int, until: int) -> tuple[int, int]:
    whole = (0, len(text))
    return next(((a, b) for a, b in sentences(text) if a <= at < b or a < until <= b), whole)


def _is_denied(governing: str, behind: str) -> bool:
    since = re.search(r"\b(?:since|until|before|after|by)\s*\Z", governing, re.IGNORECASE)
    if _DENIED.search(governing) and since is None:
        return True
    return _DENIED_AFTER.match(behind) is not None


def _open(before: str, governing: str, name: str = "") -> str | None:
    """Return why something is not so yet: it is only possible, or to come."""
    is_possible = _POSSIBLE.search(governing) or _is_conditional(before)
    if is_possible and not _WISHED.search(name):
        return "not said to be so"
    return "to come" if _TO_COME.search(governing) and not _PLANNED.search(name) else None


def unchanged(text: str, start: int, end: int) -> str | None:
    """Return why words of a text don't take anything back now; None if they may."""
    if (why := _quoted(text, start, end)) is not None:
        return why
    first, _ = _sentence(text, start, end)
    said = _plain(text[first:end])
    if _SAYS_TEXT.search(said) or _QUOTES.search(said):
        return "a quotation"
    return _open(said, _governing(said))


def _plain(words: str) -> str:
    said = expanded(words.replace("’", "'")).text
    said = re.sub(r"(?<![\w'])im(?![\w'])", "i am", said, flags=re.IGNORECASE)
    return _NEUTRAL.sub("", said)


def _governing(before: str) -> str:
    """Return the words of a sentence that govern what follows them."""
    parts: list[str] = []
    at = 0
    for found in _BREAK.finditer(before):
        parts.append(before[at : found.start()])
        at = found.end()
        if found[0].lower() in ("but", "except"):
            parts = []
    parts = [part for part in (*parts, before[at:]) if not _ASIDE.fullmatch(part)]
    governing = parts.pop() if parts else ""
    while parts and not _OWN.search(governing):
        governing = f"{parts.pop()} {governing}"
    return governing


def _is_conditional(before: str) -> bool:
    """Tell whether a clause before depends on a condition: `If I get the job, …`."""
    return any(
        part.strip().lower().startswith(_CONDITIONS) and not _SPEECH_ACT.match(part.strip())
        for part in _BREAK.split(before)
    )
