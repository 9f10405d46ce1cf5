"""Slugs: texts as they stand in addresses, file names and code."""

import re
import unicodedata

_NOT_IN_SLUGS = re.compile(r"[^a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
CASES = ("dashed", "underscored", "spaced", "camel", "pascal")
"""How `cased` can write words: `date-picker`, `date_picker`, `date picker`, `datePicker`, …"""


def cased(text: str, case: str) -> str:
    """Return the words of a name, which may be written in any of the cases, in one of them."""
    words = slug(_HUMP.sub(" ", text), " ").split()
    if case in ("camel", "pascal"):
        named = "".join(map(str.capitalize, words))
        return named if case == "pascal" else named[:1].lower() + named[1:]
    return {"dashed": "-", "underscored": "_", "spaced": " "}[case].join(words)


def has_humps(text: str) -> bool:
    """Return whether a text is a name of several words in camel case."""
    return text.isidentifier() and _HUMP.search(text) is not None


def slug(text: str, sign: str = "-") -> str:
    """Return a text in lower case, with a sign in place of all that is no letter or digit."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _NOT_IN_SLUGS.sub(sign, plain.lower()).strip(sign or None)
