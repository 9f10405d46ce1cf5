"""The wording of a request: templates with names of inputs, and what the words of a request say.

Only routines with a request need this, so `agreement` imports it when a run has one.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence, Set
from functools import lru_cache
from typing import Any, NamedTuple

from em.errors import RoutineError
from em.runner.agreement import HOLE, place_parts
from em.runner.expressions.functions import kind_of
from em.runner.mentions import (
    Vocabulary,
    ends_a_sentence,
    has_other_words,
    is_item,
    is_placeholder,
    is_several,
    is_value,
    plain_words,
    single_forms,
    vocabulary,
)
from em.runner.signs import odd_signs
from em.text.contractions import expanded
from em.text.courtesies import begun, ended, is_courteous
from em.values.canonical import Json
from em.values.json_schema import examples_of

_INPUT = re.compile(r"[A-Za-z_]\w*(\[\d+\])?")
"""Matches an input in a request, or an item of one."""


class _Hole(NamedTuple):
    """An input in a template, and the words behind it."""

    name: str
    is_item: bool
    """Whether it is one of several values of the input."""
    after: str
    mark: str
    """The sign that ends it if it is quoted."""
    around: re.Pattern[str] | None
    """The words around it. A value that has them in itself holds several."""

    def may_be(self, value: str) -> bool:
        """Return whether a value in lower case can stand here: it holds one value only."""
        if not value or (self.mark and self.mark in value):
            return False
        return self.around is None or not self.around.search(value)


class Template:
    """A request with names of inputs in it, prepared to read them from texts."""

    def __init__(self, template: str) -> None:
        words, names = _split(template)
        self._first = words[0]
        self._holes = [
            _hole(name, before, after)
            for name, before, after in zip(names, words, words[1:], strict=False)
        ]
        self.names = list(dict.fromkeys(hole.name for hole in self._holes))
        # The inputs that stand in quotation marks.
        self.quoted = {
            hole.name
            for hole, before in zip(self._holes, words, strict=False)
            if before and hole.after and not before[-1].isalnum() and hole.after[0] in _MARKS
        }

    def bind(self, text: str) -> Json | None:
        """Return the values that a text has where the template has names; see `bind`."""
        plain = expanded(" ".join(text.split()))
        lower, at = _lower(plain.text), len(self._first)
        if not lower.startswith(self._first):
            return None
        bound: Json = {}
        last = len(self._holes) - 1
        for number, hole in enumerate(self._holes):
            after = hole.after
            if number == last:
                end = len(lower) - len(after) if lower.endswith(after, at) else -1
            else:
                end = lower.find(after, at) if after else -1
            value = plain.original(at, end).strip() if end > at else ""
            if not hole.may_be(_lower(value)):
                return None
            at = end + len(after)
            if hole.is_item:
                bound.setdefault(hole.name, []).append(value)
            elif bound.setdefault(hole.name, value) != value:
                return None
        return bound if at == len(lower) or self._holes else None

    def courteous(self, text: str, free: Collection[str]) -> str:
        """Return a text with the courtesies of the template in the place of its own.

        It is empty if they can't be told from a value. free: inputs whose values are any texts,
        which may begin or end with such words or signs themselves.
        """
        if not self._holes or (not self._first and self._holes[0].name in free):
            return ""
        lead, (_, said) = begun(self._first)[0], begun(" ".join(text.split()))
        words, tail = ended(self._holes[-1].after)
        if words.strip() or self._holes[-1].name not in free:
            said, _ = ended(said)
            return "" if said[-1:] in (*".!?,;:", "") else f"{lead}{said}{tail}"
        is_open = said[-1:].isalnum() and tail in _STOPS
        return f"{lead}{said}{tail if is_open else ''}"


_STOPS = (".", "!")


@lru_cache(maxsize=1_000)
def _template(template: str) -> Template:
    return Template(template)


def bind(template: str, text: str) -> Json | None:
    """Return the values that a text has where a template has names; None if they don't fit.

    Words must be the same, in any case and with any spaces between them; a contraction is the same
    as the words it stands for. A name that stands twice must have one value. A value ends where the
    words behind it begin, so this takes linear time.
    """
    return _template(template).bind(text)


class _Looks(NamedTuple):
    """What the recorded values of an input look like."""

    examples: Sequence[Any]
    kinds: Set[str]
    words: Set[str]
    signs: Set[str]
    forms: Set[str]
    vocabulary: Vocabulary


class Wording:
    """The request of a routine, prepared to read inputs from texts."""

    def __init__(self, request: Any, properties: Json) -> None:
        self._template = _template(request.template)
        self._between, self._each = request.between, request.each
        self._closed = request.closed
        self.names = self._template.names
        self._looks: dict[str, _Looks] = {}
        for name in self.names:
            recorded = examples_of(properties.get(name, {}))
            examples = [part for one in recorded for part in _parts(one)]
            kinds = {kind_of(one) for one in examples or (None,)}
            signs = {sign for one in examples for sign in odd_signs(str(one))}
            words, forms = plain_words(examples), single_forms(examples)
            self._looks[name] = _Looks(examples, kinds, words, signs, forms, vocabulary(examples))

    def bind(self, text: str) -> Json | None:
        """Return the inputs that a request names; None unless they look like the recorded ones.

        Greetings, thanks and `please` may stand before and behind it, or be missing.
        """
        found = self._bound(text)
        if found is None:
            free = [name for name, looks in self._looks.items() if "text" in looks.kinds]
            again = self._template.courteous(text, free)
            found = self._bound(again) if again else None
        return found

    def named(self, text: str) -> Json:
        """Return what a request names in the words of the template, whatever it looks like."""
        return {} if self._between else self._template.bind(text) or {}

    def _bound(self, text: str) -> Json | None:
        bound = self._template.bind(text)
        if bound is None:
            return None
        for name, between in self._between.items():
            items = listed(bound.get(name), between, self._each.get(name, ""))
            if not items:
                return None
            bound[name] = items
        return bound if all(self.fits(name, value) for name, value in bound.items()) else None

    def fits(self, name: str, value: Any) -> bool:
        """Return whether a value of the words looks like the recorded ones."""
        looks, is_named = self._looks[name], name in self._template.quoted
        for part in (value,) if isinstance(value, str) else _parts(value):
            if part in looks.examples:
                continue
            if kind_of(part) not in looks.kinds or not (is_named or is_value(part, looks.words)):
                return False
            if not is_named and not self._is_like(part, looks):
                return False
            if name in self._closed:
                return False
            if name in self._between and not is_item(part, looks.examples):
                return False
        return True

    def _is_like(self, part: Any, looks: _Looks) -> bool:
        """Return whether a value is one value, with the signs and words of recorded ones."""
        return (
            not is_placeholder(part)
            and odd_signs(str(part)) <= looks.signs
            and not has_other_words(part, looks.vocabulary)
            and not is_several(part, looks.forms)
            and not ends_a_sentence(part, looks.examples)
            and not (
                is_courteous(str(part))
                and not any(is_courteous(str(one)) for one in looks.examples)
            )
        )


def listed(text: Any, between: Sequence[str], each: str = "") -> list[Any] | None:
    """Return the items of a list in words; None if it is not clear what they are.

    between: what may stand between two items. each: how an item of several parts reads.
    """
    if not isinstance(text, str):
        return None
    signs = sorted((re.escape(_lower(sign)) for sign in between), key=len, reverse=True)
    ends = [found.span() for found in re.finditer("|".join(signs), _lower(text))]
    starts, stops = [0, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)]
    items = [text[start:stop].strip() for start, stop in zip(starts, stops, strict=True)]
    if not all(items) or len(set(map(_lower, items))) < len(items):
        return None
    if not each:
        return items
    bound = [bind(each, item) for item in items]
    return None if None in bound else bound


def _parts(value: Any) -> Iterator[Any]:
    """Yield the single values of an input that a request names."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _parts(one)
    else:
        yield value


_MARKS = "\"”»'"
"""Signs that end a quoted text."""


def _hole(place: str, before: str, after: str) -> _Hole:
    name, *position = place_parts(place)
    words = [re.escape(one.strip()) for one in (before, after) if any(map(str.isalnum, one))]
    return _Hole(
        name=str(name),
        is_item=bool(position),
        after=after,
        mark=after[:1] if after[:1] in tuple(_MARKS) else "",
        around=re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)") if words else None,
    )


def names_of_request(template: str) -> list[str]:
    """Return the inputs that a request mentions, each once."""
    return list(_template(template).names)


def _lower(text: str) -> str:
    """Return a text in lower case, without the few letters that would become two."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(one.lower() if len(one.lower()) == 1 else one for one in text)


def _split(template: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words around the names of a template, one more than there are names."""
    words, names = [""], []
    for number, part in enumerate(HOLE.split(template)):
        hole = part.strip()
        if number % 2 and _INPUT.fullmatch(hole):
            names.append(hole)
            words.append("")
        else:
            words[-1] += _quoted_text(hole) if number % 2 else part
    plain = [re.sub(r"\s+", " ", part) for part in words]
    plain[0], plain[-1] = plain[0].lstrip(), plain[-1].rstrip()
    return tuple(_lower(expanded(part).text) for part in plain), tuple(names)


def _quoted_text(hole: str) -> str:
    """Return a text that a template quotes because it holds braces."""
    try:
        text = json.loads(hole)
    except ValueError:
        text = None
    if not isinstance(text, str):
        raise RoutineError(
            f"a request can hold inputs and quoted texts, got {hole!r}",
            place="request.template",
            fix="write the name of an input, as in {{ order_id }}",
        )
    return text
