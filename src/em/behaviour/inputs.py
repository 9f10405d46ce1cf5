"""Inputs of a task: what it states, what its texts mention, and what nothing explains.

While values are being explained, a value that a text mentions or that nothing explains is written
as a token in expressions. A behaviour has nobody to ask: its recorded value takes its place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from em.behaviour.sources import Place, places, quoted, reference, segment, text_key
from em.behaviour.task import Task, param_names
from em.behaviour.weight import ENOUGH, OWN_INPUT, of_mention, of_stated
from em.compiler.calls import Names, identifier
from em.compiler.evidence import information
from em.values.canonical import Json, identical
from em.values.leaves import Scalar, is_informative, mentioned_in

LONGEST_PHRASE = 4
"""Words of a phrase that is looked up in longer texts."""
MOST_LONG_TEXTS = 50
_WORDS = re.compile(r"\S+")
_MANY_WORDS = 3
_MARK = "EM_INPUT__"
_TOKEN = re.compile(rf"{_MARK}\d+__")


class Input(NamedTuple):
    """A value that a text mentions, or that nothing explains, and the token that stands for it."""

    token: str
    value: Scalar


class Stated(NamedTuple):
    """A value of the task, with the expression for it."""

    expression: str
    place: Place
    bits: float


class Inputs:
    """Finds the input of a task that a value comes from.

    named: the params that an argument has under their own name; they are not searched in other
    short values.
    """

    def __init__(self, task: Task, names: Names, named: set[str]) -> None:
        self._params = set(param_names(task.params).values())
        self._elsewhere = self._params - named
        self._task = task.inputs
        self._names = {key: names.free(identifier(key)) for key in task.inputs}
        self._keys = list(task.inputs)
        self._stated: dict[str, list[Place]] = {}
        self._size = 0
        self._texts = {key: text for key, text in task.inputs.items() if _is_request(text)}
        self._short_texts: dict[str, str] = {}
        self._long_texts: dict[str, str] = {}
        for number, (key, value) in enumerate(task.inputs.items()):
            for place in places(number, value):
                self._size += 1
                self._stated.setdefault(text_key(place.value), []).append(place)
                if place.is_fixed and key not in self._texts:
                    self._add_text(place.value, reference(self._names[key], place.parts))
        self._all = "\n".join(self._texts.values())
        tokens = _WORDS.findall(self._all)
        self._words = len(tokens)
        self._codes = sum(any(map(str.isdigit, token)) for token in tokens)
        self._together: dict[str, float] = {}
        self._by_text: dict[str, Input] = {}
        self._by_value: dict[str, str] = {}
        self._made: list[Input] = []

    # --- what the task states ---------------------------------------------------------------------

    def stated(self, value: Scalar, name: str) -> list[Stated]:
        """Return the values of the task that equal this one, the best first.

        A param was declared to be used.
        """
        found: list[tuple[bool, Stated]] = []
        telling = value is not None and not isinstance(value, bool) and value != ""
        for place in self._stated.get(text_key(value), ()):
            key = self._keys[place.call]
            param = self._names[key]
            is_own = (place.key or key) == name
            follows = param in self._params and is_informative(value)
            follows = follows or (param in self._elsewhere and telling)
            bits = of_stated(value, self._size) + OWN_INPUT * (is_own + follows)
            expression = param + "".join(map(segment, place.parts))
            found.append((is_own, Stated(expression, place, bits)))
        found.sort(key=lambda one: (-one[1].bits, not one[0]))
        return [stated for _, stated in found]

    def of_value(self, value: Any) -> str | None:
        """Return the expression of an input that has this value already; None if there is none."""
        for one in self._stated.get(text_key(value), ()):
            if identical(one.value, value) and not one.collections:
                return reference(self._names[self._keys[one.call]], one.parts)
        return self._by_value.get(text_key(value).lower())

    def whole(self, value: Any) -> str | None:
        """Return the input that is this list or mapping."""
        for key, stated in self._task.items():
            if isinstance(stated, dict | list) and identical(stated, value):
                return self._names[key]
        return None

    def numbers(self) -> Json:
        """Return the numbers of the task, by name."""
        return {
            self._names[key]: value
            for key, value in self._task.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

    # --- what its texts mention -------------------------------------------------------------------

    def said(self, value: Scalar) -> float:
        """Return the evidence that a text of the task says a value; 0 if none does."""
        if isinstance(value, bool) or value is None or not self._all:
            return 0.0
        text = str(value)
        short = not any(map(str.isdigit, text)) and len(text) < 4 and not text[:1].isupper()
        if short or not mentioned_in(value, self._all, exactly=True):
            return 0.0
        return max(of_mention(value, self._words, self._codes), self._together.get(text, 0.0))

    def say_together(self, record: Mapping[str, Any]) -> None:
        """Take the arguments of a call: a first and a last name were said together, or not at all.

        A name alone says little; beside the other names of the same person it says enough.
        """
        self._together = {}
        texts = [text for text in record.values() if isinstance(text, str)]
        said = [text for text in texts if mentioned_in(text, self._all, exactly=True)]
        known = [text for text in said if text[:1].isupper()]
        bits = sum(of_mention(text, self._words, self._codes) for text in said)
        if len(known) > 1 or (known and bits >= 2 * ENOUGH):
            self._together = dict.fromkeys(known, bits)

    def mentions(self, value: Any) -> bool:
        """Return whether a field's text was said, in any case: it may have named an item."""
        if not isinstance(value, str) or not self._all:
            return False
        bits = of_mention(value, self._words, self._codes)
        return bits >= ENOUGH and mentioned_in(value, self._all)

    def is_of_param(self, value: Any) -> bool:
        """Return whether a text that is a param contains a value."""
        return any(
            key in self._params and mentioned_in(value, text) for key, text in self._texts.items()
        )

    def in_text(self, text: str, phrases: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield text and expression of every input that a longer text contains.

        phrases: the runs of words of that text.
        """
        for phrase in phrases:
            expression = self._short_texts.get(phrase)
            if expression is not None:
                yield phrase, expression
        for content, expression in self._long_texts.items():
            if content in text:
                yield content, expression

    def _add_text(self, value: Any, expression: str) -> None:
        """Let longer texts contain this input."""
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            content = str(value)
            long = len(content.split()) > LONGEST_PHRASE
            known = self._long_texts if long else self._short_texts
            if not long or len(known) < MOST_LONG_TEXTS:
                known.setdefault(content, expression)

    # --- what has no name -------------------------------------------------------------------------

    def take(self, value: Scalar, name: str, *, is_said: bool) -> Input:
        """Return the input for a value that was said, or that nothing explains; make it if new.

        name: the argument that takes it.
        """
        # One id is one input, unless it has two roles: an item may be exchanged for an equal one.
        # Two small numbers may be equal by chance.
        key = msgspec.json.encode(value).decode()
        if not is_said:
            key += f"\0{name}"
            key += "" if information(value) >= ENOUGH else f"\0{len(self._made)}"
        found = self._by_text.get(key)
        if found is None:
            found = Input(f"{_MARK}{len(self._made)}__", value)
            self._made.append(found)
            self._by_text[key] = found
            self._add_text(value, found.token)
            if value is not None:
                self._by_value.setdefault(text_key(value).lower(), found.token)
        return found

    def of_token(self, token: str) -> Input | None:
        """Return the input that a token stands for; None if it is no token."""
        return next((one for one in self._made if one.token == token), None)

    def without_tokens(self, expression: str) -> str:
        """Return an expression with recorded values in the place of tokens."""
        if _MARK not in expression:
            return expression
        values = {one.token: quoted(one.value) for one in self._made}
        return _TOKEN.sub(lambda found: values.get(found.group(), found.group()), expression)


def _is_request(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) >= _MANY_WORDS
