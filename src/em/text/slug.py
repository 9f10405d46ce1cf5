"""Slugs: texts as they stand in addresses and file names."""

import re
import unicodedata

_NOT_IN_SLUGS = re.compile(r"[^a-z0-9]+")


def slug(text: str, sign: str = "-") -> str:
    """Return a text in lower case, with a sign in place of all that is no letter or digit."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _NOT_IN_SLUGS.sub(sign, plain.lower()).strip(sign or None)
