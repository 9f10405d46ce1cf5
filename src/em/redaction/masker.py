"""Replace known secrets with markers, and put them back into what a model returned.

`Masker` finds a value in every form in which it is written: escaped, quoted, in Base64. A hidden
value goes back only to where it came from, with nothing around it changed: a model that follows an
injected instruction must not be able to move a card number into a URL.
"""

import os
import re
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import quote, quote_plus

import msgspec
import re2

from em import deadline
from em.errors import InputError
from em.redaction.linear import Pattern, options, outlive
from em.redaction.redactor import MARKER, Redactor, marker
from em.values.canonical import Json, identical
from em.values.leaves import scalars, texts

ANY_MARKER = re.compile(rf"<private:[^<>]*>|{MARKER.pattern}")
MOST_TEXTS = 500
"""How many texts one pattern finds."""


class Masker:
    """Replaces known values with their markers, in texts, keys and numbers, in any case.

    values: the marker of each value.
    inside_from: the length from which on a value is found inside other texts.
    short_words: find shorter values where they stand as a word; else only as a whole text.
    """

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        *,
        inside_from: int = 3,
        short_words: bool = False,
    ) -> None:
        self._inside_from = inside_from
        self._short_words = short_words
        self._markers: dict[str, str] = {}
        self._marks: dict[str, None] = {}
        self._forms: dict[str, str] = {}
        self._finder: tuple[tuple[int, ...], tuple[Pattern, ...]] | None = None
        for value, mark in (values or {}).items():
            self.add(value, mark)

    def __bool__(self) -> bool:
        return bool(self._markers)

    def add(self, value: str, mark: str) -> None:
        """Mask this value from now on."""
        if not value or self._markers.get(value) == mark:
            return
        self._markers[value] = mark
        self._marks[mark] = None
        for form in forms(value):
            if len(form) >= self._inside_from or self._short_words:
                self._forms.setdefault(_folded(form), mark)

    def _patterns(self) -> Sequence[Pattern]:
        """Return what finds all markers and forms; compiled when it is first needed.

        Without a lock, which a fork could leave held for ever: patterns are used only while they
        were made by this process and nothing was added since they were begun.
        """
        version = (os.getpid(), len(self._marks), len(self._forms))
        finder = self._finder
        if finder is None or finder[0] != version:
            if finder is not None and finder[0][0] != version[0]:
                outlive(finder)
            self._finder = finder = (version, self._compile())
        return finder[1]

    def _compile(self) -> tuple[Pattern, ...]:
        known = list(self._forms)  # other threads may add meanwhile
        long = [form for form in known if len(form) >= self._inside_from]
        short = [form for form in known if len(form) < self._inside_from]
        return (
            *_any_of([*map(_folded, list(self._marks)), *long], "({})"),
            *_any_of(short, r"(?:\A|[^a-z0-9])({})(?:[^a-z0-9]|\z)"),
        )

    def mask(self, value: Any) -> Any:
        """Return a value with a marker in the place of every known one."""
        if not self._markers:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list | tuple):
            return [self.mask(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._forms.get(str(value).lower(), value)
        return value

    def _object(self, value: dict[Any, Any]) -> dict[Any, Any]:
        clean: dict[Any, Any] = {}
        for key, item in value.items():
            name = self.mask(key)
            while name in clean:  # two keys with secrets in them must not become one
                name = f"{name}#"
            clean[name] = self.mask(item)
        return clean

    def _text(self, text: str) -> str:
        deadline.check()
        if text in self._markers:
            return self._markers[text]
        parts: list[str] = []
        at = 0
        for start, end in self._found(_folded(text)):
            if start >= at:
                parts += (text[at:start], self._marker(text[start:end]))
                at = end
        return "".join((*parts, text[at:]))

    def _found(self, folded: str) -> Iterator[tuple[int, int]]:
        """Yield where values and markers stand in a text, the longest first of each start.

        Else a part of a value would be masked, and its rest shown.
        """
        data = folded.encode("utf-8", "surrogatepass")
        found: set[tuple[int, int]] = set()
        for pattern in self._patterns():
            at = 0
            while match := pattern.search(data, at):
                start, at = match.span(1)
                found.add((start, at))
        done = signs = 0  # bytes and characters up to where the last one begins
        for start, end in sorted(found, key=lambda one: (one[0], -one[1])):
            signs += _length(data[done:start])
            done = start
            yield signs, signs + _length(data[start:end])

    def _marker(self, found: str) -> str:
        if found in self._marks:
            return found
        return self._forms.get(_folded(found), marker("secret"))


def _any_of(texts: Sequence[str], pattern: str) -> Iterator[Pattern]:
    """Yield patterns that find texts, the longest where several begin."""
    made = options(longest_match=True)
    for start in range(0, len(texts), MOST_TEXTS):
        some = "|".join(map(re2.escape, texts[start : start + MOST_TEXTS]))
        yield re2.compile(pattern.format(some).encode("utf-8", "surrogatepass"), made)


def _length(data: bytes) -> int:
    return len(data.decode("utf-8", "surrogatepass"))


def _folded(text: str) -> str:
    """Return a text without case, with as many letters as before."""
    return text.lower() if text.isascii() else text.translate(_fold()).lower()


_CASED = (*range(0x2000), *range(0xA640, 0xA650), 0xFB05, 0xFB06)
"""Codes among which several lower cases have one upper case."""


@lru_cache(maxsize=1)
def _fold() -> dict[int, str]:
    """Return one lower case for the letters that have one upper case, where `lower` has several."""
    first: dict[str, str] = {}
    folded: dict[int, str] = {0x130: "i"}  # of which `lower` makes two letters
    for code in _CASED:
        letter = chr(code)
        lower = first.setdefault(letter.upper(), letter.lower())
        if lower != letter.lower():
            folded[code] = lower
    return {**folded, 0x3A3: "σ"}  # of which `lower` makes another letter at the end of a word


class MarkerMoved(Exception):
    """An answer has a marker where none was shown."""


def put_back(answer: Any, shown: Any, real: Any) -> Any:
    """Return the answer with the real value wherever it has exactly what was shown.

    Raises MarkerMoved.
    """
    if identical(answer, shown):
        return real
    if isinstance(answer, dict) and isinstance(shown, dict) and isinstance(real, dict):
        known = dict(zip(shown, real.items(), strict=True))
        clean: Json = {}
        for name, item in answer.items():
            if name in known:
                real_name, real_item = known[name]
                clean[real_name] = put_back(item, shown[name], real_item)
            else:
                refuse_markers(name)
                clean[name] = refuse_markers(item)
        return clean
    return refuse_markers(answer)


def refuse_markers(value: Any) -> Any:
    """Return a value if no marker stands in it, else raise MarkerMoved."""
    for text in texts(value, names=True):
        if found := ANY_MARKER.search(text):
            raise MarkerMoved(f"{found.group()} stands where its value may not go")
    return value


class CannotHide(Exception):
    """The context can't be written as JSON, so private values in it can't be found."""


class Hidden:
    """The context of a failing step, with markers for what a model may not see.

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
        # Redact the whole context: users name secret arguments by their tool.
        shown: Json = redactor.value(plain)
        found.update(taken_out(plain, shown))
        found = {value: mark for value, mark in found.items() if not ANY_MARKER.fullmatch(value)}
        # The same values may stand elsewhere: in the error's message, in other arguments.
        masker = Masker(found, inside_from=4, short_words=True)
        self.shown: Json = {part: masker.mask(value) for part, value in shown.items()}

    def put_back(self, answer: Any) -> Any:
        """Return the arguments that a model returned, with the real values.

        Raises MarkerMoved.
        """
        return put_back(answer, self.shown.get("args"), self._real)


def _as_json(context: Json) -> Json:
    """Copy a context as JSON has it: keys that are numbers, for example, become texts."""
    try:
        plain: Json = msgspec.json.decode(msgspec.json.encode(context, enc_hook=repr))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CannotHide from error
    return plain


def _without_private(value: Any, names: frozenset[str], found: dict[str, str]) -> Any:
    """Put a marker under every private name; add the values it stands for to `found`."""
    if isinstance(value, list):
        return [_without_private(item, names, found) for item in value]
    if not isinstance(value, dict):
        return value
    clean: Json = {}
    for name, item in value.items():
        if str(name).lower() not in names:
            clean[name] = _without_private(item, names, found)
            continue
        mark = clean[name] = f"<private:{re.sub(r'[<>]', '', str(name))}>"
        for _, scalar in scalars(item):
            if scalar is not None and not isinstance(scalar, bool) and str(scalar).strip():
                found[str(scalar)] = mark
    return clean


SHORTEST_ECHO = 4
"""Shorter values are found everywhere, and protect nothing."""


class Echoes(Masker):
    """Masks what redaction took out of some values wherever it stands in others.

    A tool that is given a password may print it, and there nothing tells that it is one. Values of
    fewer than 8 letters are masked as whole words only.
    """

    def __init__(self) -> None:
        super().__init__(inside_from=8, short_words=True)

    def learn(self, before: Any, after: Any) -> None:
        """Learn what redaction took out of a value."""
        for value, mark in taken_out(before, after).items():
            if len(value) >= SHORTEST_ECHO and not ANY_MARKER.fullmatch(value):
                self.add(value, mark)


NAMES = frozenset({"tool", "function", "step", "type", "name", "outcome", "status"})
"""Fields by which things are found: redacted, but an ordinary word there is not an echo."""
_REFUSED = frozenset({"subject", "subjects", "routine", "workflow"})
"""Fields whose values the store uses as names. It refuses a secret there, so they stay."""

S = TypeVar("S", bound=msgspec.Struct)


def without_secrets(shape: S, redactor: Redactor) -> S:
    """Return a struct without the secrets in it, and without their echoes in other fields.

    For whoever works with something before it is stored: once a secret is out, the store can't
    tell any more where it is echoed.
    """
    plain = msgspec.to_builtins(shape)
    clean = redactor.value(plain)
    if clean == plain:
        return shape
    try:
        redacted = msgspec.convert(clean, type(shape))
    except msgspec.ValidationError as error:
        raise InputError(
            f"a secret stands where it can't be taken out: {error}", place="body"
        ) from None
    echoes = Echoes()
    echoes.learn(plain, clean)
    masked: S = _masked(redacted, shape, echoes)
    return masked


def _masked(clean: Any, raw: Any, echoes: Echoes) -> Any:
    """Mask echoes in the fields of a redacted struct. raw: the same before its redaction."""
    if isinstance(clean, list) and any(isinstance(one, msgspec.Struct) for one in clean):
        return [_masked(one, other, echoes) for one, other in zip(clean, raw, strict=True)]
    if isinstance(clean, str | dict | list | tuple):
        return echoes.mask(clean)
    if not isinstance(clean, msgspec.Struct):
        return clean
    fields: Json = {}
    for name, value in msgspec.structs.asdict(clean).items():
        before = getattr(raw, name)
        if name in _REFUSED:
            fields[name] = before
        elif name not in NAMES | _choices(type(clean)):
            fields[name] = _masked(value, before, echoes)
    return msgspec.structs.replace(clean, **fields)


@lru_cache(maxsize=256)
def _choices(shape: type[msgspec.Struct]) -> frozenset[str]:
    """Return the fields of a struct that have one of a few words, which are no secrets."""
    return frozenset(
        field.name
        for field in msgspec.structs.fields(shape)
        if any(get_origin(one) is Literal for one in (field.type, *get_args(field.type)))
    )


def taken_out(before: Any, after: Any) -> dict[str, str]:
    """Return what redaction took out of a value, each with the marker that it left."""
    found: dict[str, str] = {}
    for one, other in _changed_leaves(before, after):
        found.update(_secrets_in(one, other))
    return found


def _changed_leaves(before: Any, after: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the leaves that redaction changed, before and after; it may change keys as well."""
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = list(before.values()), list(after.values())
    if isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=False):
            yield from _changed_leaves(one, other)
    elif before != after:
        yield before, after


def _secrets_in(before: Any, after: Any) -> dict[str, str]:
    """Return what redaction took out of a leaf, with the markers that it left.

    Searches for the text between the markers, from left to right without going back, so that a
    hostile error message can't make this slow.
    """
    whole, left = str(before), str(after)
    markers, between = MARKER.findall(left), MARKER.split(left)
    found: dict[str, str] = {}
    at = len(between[0])
    for number, (mark, part) in enumerate(zip(markers, between[1:], strict=True), 1):
        is_last = number == len(markers)
        end = len(whole) - len(part) if is_last else whole.find(part, at + 1) if part else -1
        end = end if end >= 0 else len(whole)
        if whole[at:end].strip():
            found[whole[at:end]] = mark
        at = end + len(part)
    return found


SHORTEST_FORM = 3
"""Shorter forms are left out: they would be found everywhere."""


_SHORTEST_BASE64 = 8


def forms(value: str) -> set[str]:
    """Return a value and the other forms in which programs write it. Compare without case."""
    return {value} | {form for form in _others(value) if len(form) >= SHORTEST_FORM}


def _others(value: str) -> Iterator[str]:
    import html  # with a table of all entities, for runs with secrets only

    yield value.strip()
    for escape in (_json, _ascii_json):
        once = escape(value)
        yield once
        yield escape(once)
    # As the filter `tojson` writes it.
    signs = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"}
    yield _json(value).translate(signs)
    yield _ascii_json(value).translate(signs)
    yield repr(value)[1:-1]
    yield ascii(value)[1:-1]
    yield html.escape(value)
    yield html.escape(value).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    raw = value.encode(errors="replace")
    for safe in ("", "/"):
        yield quote(raw, safe=safe)
        yield quote_plus(raw, safe=safe)
    yield from _base64(raw)
    yield from _numbers(value)


def _json(value: str) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)[1:-1]


def _ascii_json(value: str) -> str:
    import json

    return json.dumps(value)[1:-1]


def _base64(raw: bytes) -> Iterator[str]:
    """Yield the Base64 of a value alone, and its part that is the same inside longer data."""
    codes = [b2a_base64(raw, newline=False).decode()]
    for before in range(3):
        code = b2a_base64(bytes(before) + raw, newline=False).decode()
        codes.append(code[(0, 2, 3)[before] : len(code) - (0, 3, 2)[(before + len(raw)) % 3]])
    for code in codes:
        if len(code) >= _SHORTEST_BASE64:
            yield code
            yield code.rstrip("=").replace("+", "-").replace("/", "_")


def _numbers(value: str) -> Iterator[str]:
    """Yield the value as a number, as JSON and Python write it."""
    for kind in (int, float):
        try:
            yield str(kind(value))
        except (ValueError, OverflowError):
            return
