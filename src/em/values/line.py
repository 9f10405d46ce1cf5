"""Lines: plain texts that show what they hold. JSON Schemas ask for them by `format`."""

import unicodedata

_ONE_SCRIPT = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL")
_BESIDE_LETTERS = frozenset(" .,'’_-")
_IN_CODES = frozenset("_.:/@#+-")


def is_line(text: str) -> bool:
    """Return whether a text is one line without hidden or look-alike characters.

    Control and format characters (line breaks, other directions, zero width) are not printable. A
    word whose letters are of two scripts looks like another word. Nor is there space around it.
    """
    if text != text.strip():
        return False
    if text.isascii():
        return text.isprintable()
    return text.isprintable() and all(_is_of_one_script(word) for word in text.split())


def is_name(text: str) -> bool:
    """Return whether a line has letters, digits, spaces and the signs of names only."""
    return is_line(text) and all(
        one.isalnum() or one in _BESIDE_LETTERS or unicodedata.category(one)[0] == "M"
        for one in text
    )


def is_code(text: str) -> bool:
    """Return whether a text has the letters, digits and signs that ids have, and nothing else."""
    return bool(text) and text.isascii() and all(one.isalnum() or one in _IN_CODES for one in text)


def _is_of_one_script(word: str) -> bool:
    scripts = {unicodedata.name(one, "").partition(" ")[0] for one in word if one.isalpha()}
    return len(scripts) <= 1 or scripts.issubset(_ONE_SCRIPT)


FORMATS = {"line": is_line, "name": is_name, "code": is_code}
"""The formats that em adds to those of JSON Schema. They say which signs a text may have."""
