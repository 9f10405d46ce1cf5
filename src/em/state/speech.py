"""Speech: who says a text, to whom, and whose "I" it is.

A subject's log holds what the subject said, what others said to it, and notes about it. "I" is the
subject only where the subject speaks: by its id, by a name that its profile has, or as the user
where nobody is named. A text without speaker and role is the subject's own, or a note about it.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from em.state.frames import framing_of
from em.text.terms import words_of

USERS = frozenset({"user", "human"})
"""Roles of the subject, where no speaker is named."""
ASSISTANTS = frozenset({"assistant", "ai", "bot", "model", "agent", "system", "developer", "tool"})


class Text(msgspec.Struct, frozen=True):
    """An observation in words that was not read yet."""

    event: str
    text: str
    at: int
    recorded_at: int
    speaker: str = ""
    source: str = ""
    role: str = ""
    addressee: str = ""


def plain_name(name: str) -> str:
    """Return a name as names are compared: without case, accents and signs."""
    return " ".join(words_of(name))


def names_of(subject: str, given: Iterable[object] = ()) -> frozenset[str]:
    """Return the names of a subject: its id, and those that its profile has."""
    found = {plain_name(name) for name in (subject, *given) if isinstance(name, str)}
    return frozenset(found - {""})


def is_own(text: Text, names: frozenset[str]) -> bool:
    """Tell whether the subject says it: only then "I" is the subject."""
    if text.speaker:
        return plain_name(text.speaker) in names
    return not text.role or text.role.lower() in USERS


def is_note(text: Text) -> bool:
    """Tell whether nobody is named as its speaker: it may be a note about the subject."""
    return not text.speaker and not text.role


_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?!\s|\Z|[\"'”’)])[^.!?\n]*)*[.!?]*[\"'”’)]*")


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence of a text begins and ends."""
    for found in _SENTENCE.finditer(text):
        if found[0].strip():
            yield found.span()


def around(text: str, start: int, end: int) -> str:
    """Return the sentences that a part of a text stands in."""
    touched = [span for span in sentences(text) if span[0] < end and start < span[1]]
    return text[touched[0][0] : touched[-1][1]].strip() if touched else text[start:end]


QUOTE = re.compile(
    r"\"[^\"\n]+\"|“[^”]+”|«[^»]+»|(?<!\w)[‘'][^'’\n]{3,}(?:\w['’]\w[^'’\n]*)*['’](?!\w)"
)
"""Quoted words."""
_CLAUSE = re.compile(r"[,;:—–]\s+")
_UNREAL = re.compile(
    r"\s*(?:and|but|so|or|then|well|oh)?\s*(?:if(?! you)|unless|suppose|supposing|imagine|pretend|"
    r"what if|as if|as though|were i|had i|i wish|if only|let(?:'|’)?s say|say i)\b",
    re.IGNORECASE,
)


_ASKS = re.compile(
    r"\s*(?:so |and |but )?(?:is|are|am|was|were|do|does|did|can|could|would|should|will|what|"
    r"where|when|how|who|which|why|any)(?:n['’]t)?\b",
    re.IGNORECASE,
)
_ASKS_IT = re.compile(
    r"\b(?:right|correct|true|wrong|sure|so|think|know|say|remember|believe|agree|not)\W*\Z|"
    r"n['’]t \w+\W*\Z|\A\W*\w+ (?:i|we|you|it|that|this|not)\W*\Z",
    re.IGNORECASE,
)
"""Asks whether what was said is so: `right?`, `didn't I?`, `is that true?`."""


def _is_before_question(sentence: str, words: str) -> bool:
    """Tell whether words are a statement with a question behind them: `I live in York, is it far?`.

    They begin the sentence, and the part behind them asks something of its own.
    """
    said, sign, behind = sentence.partition(",")
    within = words.strip().rstrip(",.") in said.strip() and bool(sign)
    own = _ASKS.match(behind) is not None and len(behind.split()) > 2
    return within and own and _ASKS.match(said) is None and _ASKS_IT.search(behind) is None


def unreal(text: str, start: int, end: int, *, jokes: bool = True) -> str | None:
    """Return why a part of a text states nothing: it is a question, a quotation or the like.

    jokes: also if the text says that it is a joke, which takes back what was said before it.
    """
    quotes = [found.span() for found in QUOTE.finditer(text)]
    if any(first <= start and end <= last for first, last in quotes):
        return "a quotation"
    sentence = around(text, start, end)
    asks = sentence.rstrip("\"'”’) ").endswith("?")
    if asks and not _is_before_question(sentence, text[start:end]):
        return "a question"
    left = text.rfind(sentence[:40], 0, start + 1)
    begun = text[max(left, 0) : start]
    clause = _CLAUSE.split(begun)[-1] + text[start:end]
    if _UNREAL.match(clause):
        return "a supposition"
    framed = framing_of(sentence)
    if framed is not None and framed[0] == "supposition":
        return "a supposition"
    framings = [framing_of(text[first:last]) for first, last in sentences(text)] if jokes else []
    is_joke = any(framed is not None and framed[0] == "test" for framed in framings)
    return "a joke or a test" if is_joke else None
