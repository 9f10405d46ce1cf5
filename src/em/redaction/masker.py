"""Hiding values from a model, and putting them back into what it returns.

A hidden value goes back only to where it came from, with nothing around it changed: a model that
was talked into it must not be able to move a card number into a URL.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from em.redaction.markers import ANY_MARKER, put_back
from em.redaction.redactor import MARKER, Redactor, forms
from em.values.canonical import Json
from em.values.leaves import scalars

SHORT = 4
"""Shorter values are hidden in texts only where they stand alone, as a word."""


class CannotHide(Exception):
    """The context can't be read, so what is private in it can't be known."""


class Hidden:
    """The context of a failing step, without what a model may not see.

    names: lower-case names of private arguments.
    """

    def __init__(self, context: Json, names: frozenset[str], redactor: Redactor) -> None:
        self._real = context.get("args", {})
        if names and not isinstance(self._real, dict):
            raise CannotHide
        plain = _as_json({"args": {}, **context})
        found: dict[str, str] = {}
        for part, value in plain.items():
            plain[part] = _without_private(value, names, found)
        # Redacted with its tool, by which a user may have named secret arguments.
        shown: Json = redactor.value(plain)
        for before, after in _leaves_beside(plain, shown):
            found.update(_secrets_in(before, after))
        elsewhere = _Elsewhere(found)
        self.shown: Json = {part: elsewhere.hide(value) for part, value in shown.items()}

    def put_back(self, answer: Any) -> Any:
        """The arguments that a model returned, with the real values. Raises MarkerMoved."""
        return put_back(answer, self.shown.get("args"), self._real)


def _as_json(context: Json) -> Json:
    """A copy as JSON has it: names that are numbers, for one, become texts."""
    try:
        plain: Json = msgspec.json.decode(msgspec.json.encode(context, enc_hook=repr))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CannotHide from error
    return plain


def _without_private(value: Any, names: frozenset[str], found: dict[str, str]) -> Any:
    """The value with a marker under every private name; what it stood for is noted in `found`."""
    if isinstance(value, list):
        return [_without_private(item, names, found) for item in value]
    if not isinstance(value, dict):
        return value
    clean: Json = {}
    for name, item in value.items():
        if str(name).lower() not in names:
            clean[name] = _without_private(item, names, found)
            continue
        marker = clean[name] = _marker(name)
        for _, scalar in scalars(item):
            if scalar is not None and not isinstance(scalar, bool) and str(scalar).strip():
                found[str(scalar)] = marker
    return clean


def _marker(name: Any) -> str:
    return f"<private:{re.sub(r'[<>]', '', str(name))}>"


def _leaves_beside(before: Any, after: Any) -> Iterator[tuple[Any, Any]]:
    """The leaves of a value, each beside what redaction made of it."""
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = list(before.values()), list(after.values())
    if isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            yield from _leaves_beside(one, other)
    elif before != after:
        yield before, after


def _secrets_in(before: Any, after: Any) -> dict[str, str]:
    """What redaction took out of a leaf, and the markers it left.

    Found by what stands between the markers, from left to right and never back: the text of an
    error may be anyone's, and must not be able to keep us busy.
    """
    whole, left = str(before), str(after)
    markers, between = MARKER.findall(left), MARKER.split(left)
    found: dict[str, str] = {}
    at = len(between[0])
    for number, (marker, part) in enumerate(zip(markers, between[1:], strict=True), 1):
        is_last = number == len(markers)
        end = len(whole) - len(part) if is_last else whole.find(part, at + 1) if part else -1
        end = end if end >= 0 else len(whole)
        if whole[at:end].strip():
            found[whole[at:end]] = marker
        at = end + len(part)
    return found


class _Elsewhere:
    """Hides known values wherever else they stand: in the error's message, in other arguments."""

    def __init__(self, found: dict[str, str]) -> None:
        self._markers = {
            form.lower(): marker
            for value, marker in found.items()
            for form in forms(value)
            if not ANY_MARKER.fullmatch(value)
        }
        # Longest first: else a part of a value would be hidden, and its rest shown.
        longest_first = sorted(self._markers, key=len, reverse=True)
        # Markers are matched first, and left alone.
        patterns = [ANY_MARKER.pattern, *map(_pattern, longest_first)]
        self._find = re.compile("|".join(patterns), re.IGNORECASE)

    def hide(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return [self.hide(item) for item in value]
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return value
        return self._markers.get(str(value).lower(), value)

    def _object(self, value: Json) -> Json:
        clean: Json = {}
        for name, item in value.items():
            hidden = self._text(name)
            while hidden in clean:  # two names with hidden parts must not become one
                hidden += "#"
            clean[hidden] = self.hide(item)
        return clean

    def _text(self, text: str) -> str:
        return self._find.sub(self._marker, text)

    def _marker(self, match: re.Match[str]) -> str:
        text = match.group()
        if ANY_MARKER.fullmatch(text):
            return text
        # Letters that match without regard to case need not be equal in lower case.
        return self._markers.get(text.lower(), "<private:value>")


def _pattern(form: str) -> str:
    plain = re.escape(form)
    return plain if len(form) >= SHORT else rf"(?<![A-Za-z0-9]){plain}(?![A-Za-z0-9])"
