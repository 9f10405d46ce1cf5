"""Speech: who says a text, to whom, and whose "I" it is.

A subject's log holds what the subject said, what others said to it, and notes about it. "I" is the
subject only where the subject speaks: by its id, by a name that its profile has, or as the user
where nobody is named. A text without speaker and role is the subject's own, or a note about it.
"""

import re
from collections.abc import Iterable

import msgspec

from em.text.terms import words_of
from em.values.canonical import Json

USERS = frozenset({"user", "human"})
"""Roles of the subject, where no speaker is named."""
YOU = frozenset({"you", "your"})
"""Words for the subject, where somebody speaks to it."""


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


_END = re.compile(r"[.!?\n](?!\w)")
_BEHIND = re.compile(r"['’]s\b|\s+\w")
"""What stands behind a name that a sentence is about, and not behind one that is only called."""


def sentence_of(text: str, start: int, end: int) -> str:
    """Return the sentence that a part of a text stands in; several if it stands in several."""
    first = max((found.end() for found in _END.finditer(text, 0, start)), default=0)
    last = _END.search(text, max(start, end - 1))
    return text[first : last.end() if last else len(text)].strip()


def is_about(sentence: str, names: Iterable[str]) -> bool:
    """Tell whether this is one sentence that begins with one of these names."""
    if _END.search(sentence, 0, len(sentence) - 1):
        return False
    for name in names:
        found = re.match(rf"\W*{re.escape(name)}(?!\w)", sentence, re.IGNORECASE)
        if found is not None and _BEHIND.match(sentence, found.end()):
            return True
    return False


def names_subject(text: Text, sentence: str, names: frozenset[str]) -> bool:
    """Tell whether a sentence that somebody else says is about the subject."""
    to_all = not text.addressee and not text.speaker and text.role.lower() == "assistant"
    is_to_subject = to_all or plain_name(text.addressee) in names
    return is_about(sentence, {*names, *(YOU if is_to_subject else ())})
