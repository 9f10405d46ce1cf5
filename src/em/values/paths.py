"""Paths as texts: a name on disk is bytes and may not be UTF-8; the log and JSON hold Unicode only.

Python gives such bytes as halves of surrogate pairs, which can't be encoded.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def shown_json(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Encode a value as JSON to be printed, with each text in it as `shown` has it."""
    import msgspec

    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        return msgspec.json.encode(_shown_inside(msgspec.to_builtins(value, enc_hook=enc_hook)))


def _shown_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {_shown_inside(key): _shown_inside(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown_inside(item) for item in value]
    return shown(value) if isinstance(value, str) else value


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
