"""Example shape: what recorded values look like, without the values themselves.

Ids, names and e-mail addresses of recordings are personal data. A schema that is shown to agents
and other people has `#W00000` for `#W70101` and `name@host` for an e-mail address.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from em.values.leaves import scalars

EMAIL = re.compile(r"(?<![^\s@<>(),;])[^\s@<>(),;]+@[^\s@<>(),;]+")
_TOKEN = re.compile(r"(?<![^\s\"'(){},;])[^\s\"'(){},;\d]*\d[^\s\"'(){},;]*")
FEWEST = 4
"""Digits from which on a word counts as an id. A number needs one more: 2026 may be a year."""
_ID = re.compile(r"([^\d@]{1,12})\d[\d.:/-]*")
LONGEST = 40
"""Characters of a shape that are shown."""
SHORTEST = 3
"""Characters from which on a recorded value is looked for in a text."""


def shapes(values: Sequence[Any]) -> list[Any]:
    """Return what values look like, each shape once; numbers have no shape that helps.

    What all ids begin with is shown as it is: `#W`.
    """
    texts = [value for value in values if isinstance(value, str)]
    prefix = _prefix(texts)
    found: dict[str, Any] = {}
    for value in values:
        if isinstance(value, str):
            found.setdefault(shape(value, prefix))
        elif isinstance(value, list):
            inner = shapes(value)
            found.setdefault(str(inner), inner)
    return [key if value is None else value for key, value in found.items()]


def _prefix(texts: Sequence[str]) -> str:
    """Return what different ids begin with: `#W` if all of them are that with a number."""
    found = [_ID.fullmatch(text) for text in texts]
    beginnings = {match[1] for match in found if match is not None}
    if len(set(texts)) > 1 and len(beginnings) == 1 and None not in found:
        return beginnings.pop()
    return ""


def shape(text: str, prefix: str = "") -> str:
    """Return what a text looks like: 0 for digits, x for letters, the rest as it is."""
    if EMAIL.fullmatch(text.strip()):
        return "name@host"
    masked = "".join(map(_sign, text[len(prefix) :]))
    shown = prefix + masked
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _sign(char: str) -> str:
    if char.isdigit():
        return "0"
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return char


def without_personal_data(text: str, known: Mapping[str, Any]) -> str:
    """Return a text with recorded values as `{name}`, and other ids and addresses as shapes.

    known: recorded values by name.
    """
    values = {
        str(value): name
        for name, recorded in known.items()
        for _, value in scalars(recorded)
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        if len(str(value)) >= SHORTEST
    }
    if values:
        longest_first = sorted(values, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        text = re.sub(
            rf"(?<!\w)(?:{pattern})(?!\w)", lambda found: f"{{{values[found.group()]}}}", text
        )
    text = EMAIL.sub("name@host", text)
    return _TOKEN.sub(lambda found: _without_id(found.group()), text)


def _without_id(token: str) -> str:
    digits = sum(char.isdigit() for char in token)
    is_number = token.strip(".:!?").isdigit()
    return shape(token) if digits >= FEWEST + is_number else token
