"""Mood: whether words ask for something to be done, or only speak of it.

"Cancel #W1", "I want to cancel #W1" and "could you cancel #W1?" ask. "#W1 was cancelled", "I may
cancel #W1", "will he cancel #W1?" and "the cancel button" don't, with the same words otherwise.
"""

import re
from collections.abc import Collection, Sequence

from em.runner.mentions import FUNCTION_WORDS, analysed

_OPENINGS = frozenset(
    "please kindly now today then also and so plus hi hello hey dear thanks thank ok okay next"
    " finally first firstly second secondly lastly".split()
)
"""Words that may stand before a request without changing it."""
_PREPOSITIONS = frozenset("for in on from of with about regarding concerning to".split())
_PERSONS = frozenset(
    "i you he she it we they who i'm i'd i've i'll he's she's it's we're we'd you're they're let's"
    " that's there here here's".split()
)
_AUXILIARIES = frozenset(
    "would could should will shall may might can must do does did have has had be been is are was"
    " were am want wants wanted like need needs wish let make made get got".split()
)
_BREAK = re.compile(r"[,:;.!?()\n—–]|\b(?:and|then|so|also|plus)\b", re.IGNORECASE)
_END = re.compile(r"[.!?](?=\s|\Z)")
_QUESTION = re.compile(r"(?:can|could|would|will) you(?: please| kindly| also| now)*")
_WISH = re.compile(
    r"(?:(?:i|we|you)(?: would|'d)?(?: also| now| just| really)? (?:want|need|wish|like|love)"
    r"|(?:i'd|we'd|you'd)(?: also| now| just| really)? (?:like|love)"
    r"|(?:can|could|would|will) you|let's|let us|help me)\b"
)
_REQUEST = re.compile(
    r"(?:(?:i|we|you)(?: would|'d)?(?: also| now| just| really)? (?:want|need|wish|like|love)"
    r"(?: you)? to"
    r"|(?:i'd|we'd|you'd)(?: also| now| just| really)? (?:like|love)(?: you)? to"
    r"|(?:can|could|would|will) you"
    r"|let's|let us|help me|help me to|go ahead|make sure to|make sure you"
    r")?(?: please| kindly| also| now)*"
)


def is_request(text: str, verb: int) -> bool:
    """Return whether the verb at a position of a text is asked to be done."""
    before = text[:verb]
    start = max((found.end() for found in _BREAK.finditer(before)), default=0)
    lead = [word for span, word in analysed(text).plain() if start <= span.start < verb]
    end = _END.search(text, verb)
    return _asks(lead, is_question=end is not None and end.group() == "?")


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


def _is_imperative(words: Sequence[str]) -> bool:
    """Return whether words may begin with a verb that is asked for."""
    first, second = [*words, "", ""][:2]
    if not first or first in FUNCTION_WORDS or second in _AUXILIARIES:
        return False
    return not first.endswith(("ed", "ing", "s"))


def requests(text: str, verbs: Collection[str]) -> list[str]:
    """Return the words of a text that ask for one of these verbs to be done."""
    return [
        word
        for span, word in analysed(text).plain()
        if word in verbs and is_request(text, span.start)
    ]
