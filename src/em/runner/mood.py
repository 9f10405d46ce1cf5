"""Mood: whether words ask for something to be done, or only speak of it.

"Cancel #W1", "I want to cancel #W1" and "could you cancel #W1?" ask. "#W1 was cancelled", "I may
cancel #W1", "will he cancel #W1?" and "the cancel button" don't, with the same words otherwise.
"""

import re
from collections.abc import Collection, Sequence

from em.runner.mentions import FUNCTION_WORDS, Span, analysed, stem
from em.text.courtesies import PLEASE

_OPENINGS = PLEASE | frozenset(
    "now today then also and so plus hi hello hey dear thanks thank ok okay next"
    " finally first firstly second secondly lastly".split()
)
"""Words that may stand before a request without changing it."""
_PREPOSITIONS = frozenset("for in on from of with about regarding concerning to".split())
_PERSONS = frozenset("i you he she it we they who there here".split())
_AUXILIARIES = frozenset(
    "would could should will shall may might can must do does did have has had be been is are was"
    " were am want wants wanted like need needs wish let make made get got".split()
)
_NO_VERBS = frozenset(
    "off up out down away over no yes oh well hello hi hey dear good thanks thank sorry".split()
)
_BREAK = re.compile(r"[,:;.!?()\n—–]|\b(?:and|then|so|also|plus)\b", re.IGNORECASE)
_END = re.compile(r"[.!?](?=\s|\Z)")
_PLEASE = "|".join(f" {word}" for word in sorted(PLEASE))
_QUESTION = re.compile(
    r"(?:(?:can|could|would|will) you"
    rf"|(?:can|could|would|will) you(?:{_PLEASE})? (?:be so kind as to|help me|help me to)"
    rf"|would you be able to)(?:{_PLEASE}| also| now)*"
)
_GERUND = re.compile(
    rf"(?: (?:let us|(?:can|could|would|will) you))?(?:{_PLEASE})?"
    r" (?:proceed with|go ahead with)| would you mind"
)
"""What asks for a verb in its form with -ing: `please proceed with booking`."""
_WISH = re.compile(
    r"(?:(?:i|we|you)(?: also| now| just| really)? (?:want|need|wish)"
    r"|(?:i|we|you) would(?: also| now| just| really)? (?:want|need|wish|like|love)"
    r"|(?:can|could|would|will) you|let us|help me)\b"
)
_REQUEST = re.compile(
    r"(?:(?:i|we|you)(?: also| now| just| really)? (?:want|need|wish)(?: you)? to"
    r"|(?:i|we|you) would(?: also| now| just| really)? (?:want|need|wish|like|love)(?: you)? to"
    r"|(?:can|could|would|will) you"
    r"|(?:i|we) would(?: really| greatly)? appreciate it if you could"
    r"|it would be (?:great|nice|helpful|lovely|wonderful) if you could"
    r"|would you be able to|(?:can|could|would|will) you (?:be so kind as to|help me|help me to)"
    r"|let us|help me|help me to|go ahead|make sure to|make sure you"
    rf")?(?:{_PLEASE}| also| now)*"
)


def is_request(text: str, verb: int) -> bool:
    """Return whether the verb at a position of a text is asked to be done."""
    lead = _lead(text, verb)
    end = _END.search(text, verb)
    return _asks(lead, is_question=end is not None and end.group() == "?")


def _lead(text: str, verb: int) -> list[str]:
    """Return the words before a verb, from the last sign or word that separates on."""
    start = max((found.end() for found in _BREAK.finditer(text[:verb])), default=0)
    return [word for span, word in analysed(text).plain() if start <= span.start < verb]


def _asks(lead: Sequence[str], *, is_question: bool) -> bool:
    """Return whether what stands before a verb makes it a request."""
    words = list(lead)
    while words and words[0] in _OPENINGS:
        words.pop(0)
    if words and words[0] in _PREPOSITIONS:
        # What it is about comes first: for my order #W1 …
        about = _PERSONS | _AUXILIARIES
        words = words[next((n for n, word in enumerate(words) if word in about), len(words)) :]
    said = " ".join(words)
    return (_QUESTION if is_question else _REQUEST).fullmatch(said) is not None


def asks(text: str) -> bool:
    """Return whether some part of a text begins as a request does, whatever its verb is."""
    words = list(analysed(text).plain())
    for start in [0, *(found.end() for found in _BREAK.finditer(text))]:
        inside = [word for span, word in words if span.start >= start]
        while inside and inside[0] in _OPENINGS:
            inside.pop(0)
        end = _END.search(text, start)
        if end is not None and end.group() == "?":
            if _QUESTION.match(" ".join(inside)):
                return True
        elif _WISH.match(" ".join(inside)) or _is_imperative(inside):
            return True
    return False


def commands(text: str) -> bool:
    """Return whether a sentence begins with a verb that is asked for: `Ignore what comes.`"""
    words = [word for _, word in analysed(text).plain()]
    while words and words[0] in _OPENINGS:
        words.pop(0)
    return _is_imperative(words)


def _is_imperative(words: Sequence[str]) -> bool:
    """Return whether words may begin with a verb that is asked for."""
    first, second = [*words, "", ""][:2]
    if not first or first in FUNCTION_WORDS | _NO_VERBS or second in _AUXILIARIES:
        return False
    return not first.endswith(("ed", "ing", "s"))


def requests(text: str, verbs: Collection[str]) -> list[str]:
    """Return the words of a text that ask for one of these verbs to be done."""
    stems = {stem(verb) for verb in verbs}
    return [
        word
        for span, word in analysed(text).plain()
        if (word in verbs and is_request(text, span.start))
        or (word.endswith("ing") and stem(word) in stems and _is_asked_so(text, span.start))
    ]


def leads(text: str, verbs: Collection[str]) -> list[Span]:
    """Return the words before verbs that only ask for them: `Please`, `I would like to`."""
    asked = {*requests(text, verbs)}
    found = []
    for span, word in analysed(text).plain():
        if word in asked and (is_request(text, span.start) or _is_asked_so(text, span.start)):
            begin = max((one.end() for one in _BREAK.finditer(text[: span.start])), default=0)
            lead = [one for one in analysed(text).plain() if begin <= one[0].start < span.start]
            plain = [said for _, said in lead]
            while plain and plain[0] in _OPENINGS:
                plain.pop(0)
            if plain and plain[0] in _PREPOSITIONS:
                about = _PERSONS | _AUXILIARIES
                cut = next((n for n, said in enumerate(plain) if said in about), len(plain))
                lead = lead[len(lead) - len(plain) + cut :]
            if lead:
                found.append(Span(lead[0][0].start, span.start))
    opening = _OPENED.match(text)
    return [*found, *([Span(*opening.span())] if opening is not None else [])]


_OPENED = re.compile(r"\s*(?:(?:and|then|also|plus|next|finally)\b,?\s*)+", re.IGNORECASE)
"""What joins a request to the one before it."""


def _is_asked_so(text: str, verb: int) -> bool:
    return _GERUND.fullmatch("".join(f" {word}" for word in _lead(text, verb))) is not None
