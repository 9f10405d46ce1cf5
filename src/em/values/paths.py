"""Paths as texts: a name on disk is bytes and may not be UTF-8; the log and JSON hold Unicode only.

Python gives such bytes as halves of surrogate pairs, which can't be encoded.
"""

import os
from pathlib import Path

_URI = "file://"


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored and printed: it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str | Path) -> str:
    r"""Return a path, or what was typed, to be printed: a byte that is not UTF-8 as `\xff`."""
    text = str(text)
    if is_unicode(text):
        return text
    try:
        return os.fsencode(text).decode(errors="backslashreplace")
    except UnicodeEncodeError:  # not from a path
        return text.encode(errors="backslashreplace").decode()


def path_to_text(path: str | Path) -> str:
    """Return an absolute path to be stored: itself, or a file: URI if it is not Unicode.

    `path_from_text` finds the path again: an absolute path never begins with `file:`.
    """
    text = str(path)
    return text if is_unicode(text) else Path(text).as_uri()


def path_from_text(text: str) -> Path:
    """Return the path that `path_to_text` has stored."""
    if not text.startswith(_URI):
        return Path(text)
    from urllib.parse import unquote_to_bytes

    return Path(os.fsdecode(unquote_to_bytes(text.removeprefix(_URI))))
