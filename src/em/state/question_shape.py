"""The shape of a question: its words, with the parameters taken out.

"trips in 2024" and "trips in 2023" have one shape. A text that stands for a parameter must be a
value of the same field as the one it takes the place of: any other phrase is another question.
"""

import re
from collections.abc import Callable
from typing import Any

from em.state.schema import Question
from em.values.canonical import Json

_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATE = r"\d{4}-\d{2}-\d{2}"


def normal(question: str) -> str:
    """A question without what does not matter: case, spaces, how it ends."""
    return _SPACE.sub(" ", question.replace("\0", " ")).strip().rstrip("?.! ").casefold()


def template_of(question: str, parameters: Json) -> tuple[str, Json] | None:
    """The question with its parameters as slots, and those; None if one stands there not once."""
    text = normal(question)
    for name, value in parameters.items():
        word = normal(str(value))
        found = re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text) if word else []
        if len(found) != 1 or not _NAME.fullmatch(name):
            return None
        start = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text)
        assert start is not None
        text = f"{text[: start.start()]}\0{name}\0{text[start.end() :]}"
    return text, parameters


def fit(
    kept: Question, question: str, in_place_of: Callable[[str, str], str | None]
) -> Json | None:
    """The parameters with which a kept question is this one; None if it is another.

    in_place_of: the second text as the records write it, if it is a value of the first one's field.
    """
    parts = kept.template.split("\0")
    pattern = "".join(
        re.escape(part) if number % 2 == 0 else f"(?P<{part}>{_slot(kept.parameters[part])})"
        for number, part in enumerate(parts)
    )
    found = re.fullmatch(pattern, normal(question))
    if found is None:
        return None
    values: Json = {}
    for name, text in found.groupdict().items():
        example = kept.parameters[name]
        value = _value(example, text)
        if isinstance(value, str) and not re.fullmatch(_DATE, value):
            known = normal(example)
            value = example if value == known else in_place_of(known, value)
            if value is None:
                return None
        values[name] = value
    return values


def _slot(example: Any) -> str:
    if isinstance(example, int):
        return r"\d{4}" if 1000 <= example <= 9999 else r"\d{1,9}"
    if isinstance(example, float):
        return r"\d{1,9}(?:\.\d{1,9})?"
    return _DATE if re.fullmatch(_DATE, str(example)) else r"[^\0]{1,60}?"


def _value(example: Any, text: str) -> Any:
    if isinstance(example, int):
        return int(text)
    return float(text) if isinstance(example, float) else text
