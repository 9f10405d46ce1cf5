"""Courtesies: what greets, thanks or says please. It asks for nothing, and nothing depends on it.

The list is closed: one for all who compare words.
"""

import re

_TO_WHOM = "there|again|team|folks|sir|madam|sir or madam"
_GREETINGS = (
    rf"(?:(?:hi|hello|hey|hiya|dear|greetings|good (?:morning|afternoon|evening|day))"
    rf"(?: (?:{_TO_WHOM}))*)"
)
_THANKS = (
    r"(?:(?:many thanks|thanks|thank you|thx|cheers)"
    r"(?: (?:again|a lot|so much|very much|in advance|for your help))*)"
)
_PLEASE = r"(?:please|pls|plz|kindly)"
_OTHERS = r"(?:(?:with )?(?:best|kind|warm) regards|ok|okay|alright)"
_ONE = rf"(?:{_GREETINGS}|{_THANKS}|{_PLEASE}|{_OTHERS})"
_COURTESY = re.compile(rf"{_ONE}(?:(?: and)? {_ONE})*")
_BEFORE = re.compile(
    rf"\s*(?:{_ONE}\s*[,.!]\s*|{_GREETINGS}\s+)*(?:{_PLEASE}\s+)?(?=\S|\Z)", re.IGNORECASE
)
_BEHIND = re.compile(
    rf"(?:\s*[,.!–—-]?\s*\b{_PLEASE})?(?:\s*[,.!–—-]?\s*\b{_THANKS})?\s*[.!]?\s*\Z", re.IGNORECASE
)
_THANKED = re.compile(rf"[\s,–—-]*\b{_THANKS}[\s.!]*\Z", re.IGNORECASE)
_MAY_THANK = re.compile(r"please|pl[sz]|kindly|thank|thx|cheers", re.IGNORECASE)
"""Matches in every text that says please or thanks, and in few others."""
_GREETED = re.compile(rf"\s*{_ONE}(?:(?: and)? {_ONE})*\s*[,!]", re.IGNORECASE)

PLEASE = frozenset("please pls plz kindly".split())


def is_courtesy(words: str) -> bool:
    """Return whether words only greet or thank; in lower case, with one space between them."""
    return _COURTESY.fullmatch(words) is not None


def courtesies(text: str) -> list[tuple[int, int]]:
    """Return where a sentence greets at its beginning, and thanks at its end."""
    found = [_GREETED.match(text), _THANKED.search(text)]
    return [one.span() for one in found if one is not None]


def begun(text: str) -> tuple[str, str]:
    """Return the courtesies that a text begins with, and the rest."""
    found = _BEFORE.match(text)
    at = found.end() if found is not None else 0
    return text[:at], text[at:]


def ended(text: str) -> tuple[str, str]:
    """Return a text without the courtesies that it ends with, and these; a full stop is one."""
    found = _BEHIND.search(text)
    at = found.start() if found is not None else len(text)
    return text[:at], text[at:]


def is_courteous(text: str) -> bool:
    """Return whether a text ends with words that say please or thanks; they may not be its own."""
    return bool(_MAY_THANK.search(text)) and any(map(str.isalpha, ended(text)[1]))
