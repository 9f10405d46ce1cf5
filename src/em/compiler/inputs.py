"""Inputs of a routine: what the task states, what was said in words, and what has to be asked.

While values are being explained, an input that has no name yet is written as a token in
expressions. Names are given at the end, when it is known how each input is used: two inputs that
want the same name are both named after the tool that uses them, so that a name means the same in
every routine with these tools.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import Names, identifier
from em.compiler.evidence import ENOUGH, INCREDIBLE, OWN_INPUT, information, of_match, of_mention
from em.compiler.sources import Place, places, reference, segment, text_key
from em.runner.routine import Asked, Request
from em.values.canonical import Json, identical
from em.values.leaves import Scalar, mentioned_in

REQUEST = "request"
"""The name of the input that takes a whole request as text."""

_WORDS = re.compile(r"\S+")
_MANY_WORDS = 3
LONGEST_PHRASE = 4
"""Words of a phrase that is looked up in longer texts."""
MOST_LONG_TEXTS = 50


class Use(NamedTuple):
    """An argument that takes an input: its name, the tool, and whether the call has an effect."""

    name: str
    tool: str
    writes: bool


class Input(msgspec.Struct):
    """An input that the task does not name: a value from a text, or one that is asked for."""

    token: str
    """What stands for it in expressions until it has a name."""
    value: Any
    is_said: bool
    uses: list[Use] = []
    candidates: list[str] = []
    found: list[str] = []
    words: str = ""

    @property
    def wanted_name(self) -> Use:
        """The use that it is named after: that of an effect counts most."""
        return next((use for use in self.uses if use.writes), self.uses[0])


class Stated(NamedTuple):
    """A value of the task's structured input, with the expression for it."""

    expression: str
    place: Place
    bits: float
    is_own: bool


class Inputs:
    """Finds the input that a value comes from, and names the inputs.

    mark: how tokens begin; a text that occurs nowhere in the recording.
    """

    def __init__(
        self, mission: Json, goal: str, said: list[str], names: Names, mark: str = "IN__"
    ) -> None:
        self._names, self._mark = names, mark
        self._mission = mission
        self._mission_names = {key: names.free(identifier(key)) for key in mission}
        self._stated: dict[str, list[Place]] = {}
        self._size = 0
        for number, value in enumerate(mission.values()):
            for place in places(number, value):
                self._size += 1
                self._stated.setdefault(text_key(place.value), []).append(place)
        self._keys = list(mission)
        self._short_texts: dict[str, str] = {}
        self._long_texts: dict[str, str] = {}
        # A goal beside structured input is a title; by itself it is the request.
        self.texts = {key: text for key, text in mission.items() if _is_request(text)}
        spoken = "\n".join(text for text in said if text.strip())
        if not spoken and not mission:
            spoken = goal
        self._spoken_as = ""
        if spoken.strip():
            self._spoken_as = names.free(REQUEST)
            self.texts[self._spoken_as] = spoken
        for key, value in mission.items():
            for place in () if key in self.texts else places(0, value):
                if place.is_fixed:
                    self._add_text(place.value, reference(self._mission_names[key], place.parts))
        self._all = "\n".join(self.texts.values())
        tokens = _WORDS.findall(self._all)
        self._words = len(tokens)
        self._codes = sum(any(map(str.isdigit, token)) for token in tokens)
        self._together: dict[str, float] = {}
        self._by_text: dict[str, Input] = {}
        self._by_value: dict[str, str] = {}
        self._secrets: dict[str, str] = {}
        self.made: list[Input] = []

    # --- finding ----------------------------------------------------------------------------------

    def stated(self, value: Scalar, name: str) -> list[Stated]:
        """Return the values of the structured input that equal this one, the best first."""
        found = []
        for place in self._stated.get(text_key(value), ()):
            key = self._keys[place.call]
            last = place.key or key
            is_own = last == name
            bits = of_match(value, self._size) + (OWN_INPUT if is_own else 0.0)
            expression = self._mission_names[key] + "".join(map(segment, place.parts))
            found.append(Stated(expression, place, bits, is_own))
        return sorted(found, key=lambda one: -one.bits)

    def said(self, value: Scalar) -> float:
        """Return the evidence that a value was said in words; 0 if it was not."""
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
        texts = [text for text in record.values() if isinstance(text, str) and text[:1].isupper()]
        known = [text for text in texts if mentioned_in(text, self._all, exactly=True)]
        bits = sum(
            of_mention(text, self._words, self._codes)
            for text in record.values()
            if isinstance(text, str) and mentioned_in(text, self._all, exactly=True)
        )
        if len(known) > 1 or (known and bits >= 2 * ENOUGH):
            self._together = dict.fromkeys(known, bits)

    def mentions(self, value: Any) -> bool:
        """Return whether a field's text was said, in any case: it may have named an item."""
        if not isinstance(value, str) or not self._all:
            return False
        bits = of_mention(value, self._words, self._codes)
        return bits >= ENOUGH and mentioned_in(value, self._all)

    def of_value(self, value: Any) -> str | None:
        """Return the expression of an input that has this value already; None if there is none."""
        for one in self._stated.get(text_key(value), ()):
            if identical(one.value, value) and not one.collections:
                return reference(self._mission_names[self._keys[one.call]], one.parts)
        return self._by_value.get(text_key(value).lower())

    def has(self, key: str) -> bool:
        """Return whether an input has the value of this key, or an item of it has."""
        return key in self._stated or key.lower() in self._by_value

    def whole(self, value: Any) -> str | None:
        """Return the input that is this list or mapping."""
        for key, stated in self._mission.items():
            if isinstance(stated, dict | list) and identical(stated, value):
                return self._mission_names[key]
        return None

    def secret_name(self, marker: str) -> str:
        """Return the name of a secret: that of the input that holds it, or its own."""
        if marker not in self._secrets:
            self._secrets[marker] = self._free_secret_name(marker)
        return self._secrets[marker]

    def _free_secret_name(self, marker: str) -> str:
        for key, stated in self._mission.items():
            if stated == marker:
                return self._mission_names[key]
        own = marker.removeprefix("[redacted:").removesuffix("]")
        return self._names.free(identifier(own))

    def lengths(self, expressions: str) -> Iterator[str]:
        """Yield conditions on the lists of the task that expressions count positions in.

        Steps for two items do not do the work for three.
        """
        named = {name: key for key, name in self._mission_names.items()}
        for found in re.finditer(r"(?<![\w.])([A-Za-z_]\w*)((?:\.\w+|\[\d+\])+)", expressions):
            value = self._mission.get(named.get(found[1], ""))
            way = found[1]
            for key, number in re.findall(r"\.(\w+)|\[(\d+)\]", found[2]):
                if number and isinstance(value, list):
                    yield f"len({way}) == {len(value)}"
                    value, way = value[int(number)], f"{way}[{number}]"
                elif isinstance(value, dict) and key in value:
                    value, way = value[key], f"{way}.{key}"
                else:
                    break

    def numbers(self) -> Json:
        """Return the numbers of the structured input, by name."""
        return {
            self._mission_names[key]: value
            for key, value in self._mission.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }

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

    def take(self, value: Any, use: Use, *, is_said: bool) -> Input:
        """Return the input for a value that was said, or has to be asked for; make it if new."""
        # One id is one input, unless it has two roles: an item may be exchanged for an equal one.
        # Two small numbers may be equal by chance.
        key = msgspec.json.encode(value).decode()
        if not is_said:
            key += f"\0{use.name}"
            key += "" if information(value) >= INCREDIBLE else f"\0{len(self.made)}"
        found = self._by_text.get(key)
        if found is None:
            token = f"{self._mark}{len(self.made)}__"
            found = Input(token=token, value=value, is_said=is_said, uses=[])
            self.made.append(found)
            self._by_text[key] = found
            self._add_text(value, token)
            for place in places(0, value):
                flat = not place.parts or (isinstance(value, list) and len(place.parts) == 1)
                if flat and place.value is not None:
                    expression = reference(token, place.parts)
                    self._by_value.setdefault(text_key(place.value).lower(), expression)
        found.uses.append(use)
        return found

    def must_find(self, token: str, check: str) -> None:
        """Take a check of an input's recorded value, which holds as long as reads still have it."""
        for one in self.made:
            if one.token == token and check not in one.found:
                one.found = [*one.found, check]

    def drop_unused(self, steps: Sequence[msgspec.Struct]) -> None:
        """Forget the inputs that were tried as explanations and that no step uses."""
        used = set(re.findall(rf"{self._mark}\d+__", msgspec.json.encode(steps).decode()))
        self.made = [one for one in self.made if one.token in used]

    # --- naming -----------------------------------------------------------------------------------

    def named(self) -> dict[str, str]:
        """Return the name of each token."""
        wanted: dict[str, list[Input]] = {}
        for one in self.made:
            wanted.setdefault(identifier(one.wanted_name.name or "value"), []).append(one)
        named: dict[str, str] = {}
        for name, inputs in wanted.items():
            for one in inputs:
                full = name
                if len(inputs) > 1:
                    full = identifier(f"{one.wanted_name.tool}_{name}")
                named[one.token] = self._names.free(full)
        return named

    def recorded_names(self) -> dict[str, str]:
        """Return the names of inputs that were recorded with other ones, with those."""
        return {name: key for key, name in self._mission_names.items() if name != key}

    def stated_values(self) -> Json:
        """Return the structured input of the task, without texts that are requests."""
        return {
            self._mission_names[key]: value
            for key, value in self._mission.items()
            if key not in self.texts
        }

    def stated_texts(self) -> Json:
        """Return the texts of the task that may be requests; a call may also take them whole."""
        return {
            self._mission_names[key]: value
            for key, value in self._mission.items()
            if key in self.texts
        }

    def asked(self, named: Mapping[str, str]) -> dict[str, Asked]:
        """Return the inputs that nothing said or stated, with what may explain them."""
        return {
            named[one.token]: Asked(
                recorded=one.value,
                candidates=[
                    with_names(text, named)
                    for text in one.candidates
                    if self._mark not in with_names(text, named)
                ],
                found=tuple(with_names(text, named) for text in one.found),
            )
            for one in self.made
            if not one.is_said
        }

    def request(
        self, named: Mapping[str, str], *, decides: bool, whole: Collection[str]
    ) -> Request | None:
        """Return the template of the request, with the inputs that it mentions.

        decides: whether something that is done may follow from its wording alone.
        whole: the inputs that steps use. A text that is one of them and mentions nothing, such as
        the title of an issue, is not a request.
        """
        names = {self._mission_names.get(key, key): key for key in self.texts}
        if self._spoken_as:
            names = {self._spoken_as: self._spoken_as}
        name = next((name for name in names if name not in whole), next(iter(names), None))
        if name is None:
            return None
        holes: dict[Any, str] = {}
        for one in self.made:
            if one.is_said and isinstance(one.value, list):
                for number, item in enumerate(one.value):
                    holes[item] = f"{named[one.token]}[{number}]"
            elif one.is_said:
                holes[one.value] = named[one.token]
        if name in whole and not holes and not decides:
            return None
        template = "".join(_filled(self.texts[names[name]], holes))
        return Request(input=name, template=template, decides=decides)


def _is_request(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) >= _MANY_WORDS


def _filled(text: str, holes: Mapping[Any, str]) -> Iterator[str]:
    """Yield a text in parts, with an expression in place of each value."""
    wanted = sorted(map(str, holes), key=len, reverse=True)
    names = {str(value).lower(): name for value, name in holes.items()}
    if not wanted:
        yield from (part for part in (escaped(text),) if part)
        return
    options = "|".join(map(re.escape, wanted))
    pattern = re.compile(rf"(?<![A-Za-z0-9])({options})(?![A-Za-z0-9])", re.IGNORECASE)
    for number, part in enumerate(pattern.split(text)):
        yield f"{{{{ {names[part.lower()]} }}}}" if number % 2 else escaped(part)


def escaped(text: str) -> str:
    """Return a text in which braces are not read as an expression."""
    if "{{" in text or "{%" in text or "{#" in text:
        return "{{ " + msgspec.json.encode(text).decode() + " }}"
    return text


def with_names(expression: str, named: Mapping[str, str]) -> str:
    """Return an expression with names in place of tokens."""
    if not named:
        return expression
    mark = re.match(r".*?(?=\d+__$)", next(iter(named)))
    assert mark is not None
    if mark.group() not in expression:
        return expression
    tokens = rf"{mark.group()}\d+__"
    return re.sub(tokens, lambda found: named.get(found.group(), found.group()), expression)


def named_value(value: Any, named: Mapping[str, str]) -> Any:
    """Return a value of a step with names in place of tokens."""
    if isinstance(value, dict):
        return {key: named_value(item, named) for key, item in value.items()}
    if isinstance(value, list):
        return [named_value(item, named) for item in value]
    return with_names(value, named) if isinstance(value, str) else value
