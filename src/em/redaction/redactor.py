"""Remove secrets from everything before it is stored. A secret becomes `[redacted:NAME]`.

The store itself calls the redactor for every body, text and response of a commit, so that no
writer can forget it.

Most texts have no secret. A text without any anchor (see `patterns`) is clean; only the others are
decoded and searched.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from em.redaction.patterns import (
    FIELD_ANCHORS,
    LONGEST_VALUE,
    REFERENCE,
    SHAPES,
    UNQUOTED,
    OwnShape,
    Shape,
    end_of_value,
    first_of,
    is_placeholder,
    is_plausible,
    is_plausible_in_words,
    is_secret_name,
    matches,
)
from em.redaction.randomness import is_random

WORDS = frozenset({"asia"})
"""Anchors that are ordinary words too; in a key, a letter or digit follows them."""


MANY = 256 * 1024
"""Bytes of texts from which on loading the faster search pays for itself."""


def with_anchor(texts: Sequence[bytes]) -> list[int]:
    """Return the numbers of the texts that have an anchor."""
    has_anchor = _search(sum(map(len, texts)))
    # Anchors are ASCII, so that the bytes of a text can stand for its characters.
    return [
        number for number, text in enumerate(texts) if has_anchor(text.lower().decode("latin-1"))
    ]


_is_loaded = False
"""Whether the faster search is loaded."""


def _search(size: int) -> Callable[[str], bool]:
    """Return what finds whether a text in lower case has an anchor. size: of all texts."""
    return _fast_search() if _is_loaded or size >= MANY else _has_anchor


def _has_anchor(lowered: str) -> bool:
    return next(_automaton().iter(lowered), None) is not None


@lru_cache(maxsize=1)
def _fast_search() -> Callable[[str], bool]:
    """Return a search for the same words that is five times as fast as the automaton.

    A JSON Schema's pattern is searched by Rust's `regex`, which is linear in the text. Loading it
    takes as long as the automaton takes for a megabyte.
    """
    import jsonschema_rs

    global _is_loaded  # noqa: PLW0603 - every append asks, and the cache is slow to say
    _is_loaded = True
    words = "|".join(map(re.escape, _automaton()))
    return jsonschema_rs.validator_for({"type": "string", "pattern": words}).is_valid


def shapes_in(lowered: str) -> Iterator[Shape]:
    """Yield the shapes that have an anchor in a text in lower case."""
    there = 0
    for _, shapes in _automaton().iter(lowered):
        there |= shapes
    if there:
        yield from (shape for bit, shape in enumerate(SHAPES) if there >> bit & 1)


@lru_cache(maxsize=1)
def _automaton() -> Any:
    """Build the automaton that finds all anchors in one pass. A bit stands for each shape."""
    import ahocorasick

    anchors = dict.fromkeys(FIELD_ANCHORS, 0)
    for bit, shape in enumerate(SHAPES):
        for anchor in shape.anchors:
            anchors[anchor] = anchors.get(anchor, 0) | 1 << bit
    automaton = ahocorasick.Automaton()
    for anchor, shapes in anchors.items():
        ends = "abcdefghijklmnopqrstuvwxyz0123456789" if anchor in WORDS else ("",)
        for end in ends:
            automaton.add_word(anchor + end, shapes)
    automaton.make_automaton()
    return automaton


NAMES_KEPT = 4096
FEW_NAMES = 64
"""Names of one commit that are remembered as clean; those of a large import don't come again."""
MARKER = re.compile(r"\[redacted:[^\[\]]{1,64}\]")

_SCHEMA_WORDS = frozenset({"type", "$ref", "properties", "anyOf", "oneOf", "allOf", "description"})


class Redactor:
    """Removes secrets from texts and values.

    patterns: more regular expressions by name; a group `secret` narrows what is removed.
    fields: more names of fields with secret values.
    tool_args: the names of a tool's secret arguments.
    """

    def __init__(
        self,
        patterns: Mapping[str, str] | None = None,
        fields: Iterable[str] = (),
        tool_args: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._own = tuple(_own_shape(name, text) for name, text in (patterns or {}).items())
        self._fields = frozenset(field.lower() for field in fields)
        self._tool_args = {tool: frozenset(names) for tool, names in (tool_args or {}).items()}
        self._clean_names: set[str] = set()
        # A user's own rules have no anchors, so that every value must be searched.
        self._always = bool(self._own or self._fields or self._tool_args)

    def suspects(self, texts: Sequence[bytes]) -> Sequence[int]:
        """Return which JSON texts may have a secret: never too few, sometimes too many."""
        if self._always:
            return range(len(texts))
        return with_anchor(texts)

    @property
    def searches_all(self) -> bool:
        """Whether a user's own rules make it search every text."""
        return self._always

    def is_suspect(self, text: bytes, *names: str) -> bool:
        """Return whether a JSON text or one of these names may have a secret."""
        if self._always or not self._clean_names.issuperset(names):
            return bool(self.suspects((text,)) or self.suspect_names(names))
        lowered = text.lower().decode("latin-1")
        return _search(len(lowered))(lowered)

    def suspect_names(self, names: Iterable[str]) -> Iterable[str]:
        """Return the names that may have a secret: never too few, sometimes too many."""
        names = set(names) - self._clean_names
        if not names:
            return ()
        # A secret in one name is no less one between the others, so all are searched at once.
        lowered = "\n".join(names).lower()
        if self._always or _search(len(lowered))(lowered):
            return names
        if len(names) < FEW_NAMES:
            self._note_clean(names)
        return ()

    def is_clean_name(self, name: str) -> bool:
        """Whether a name has no secret in it. Caches clean names, since names repeat."""
        if name in self._clean_names:
            return True
        if self.text(name) != name:
            return False
        self._note_clean((name,))
        return True

    def _note_clean(self, names: Iterable[str]) -> None:
        if len(self._clean_names) >= NAMES_KEPT:
            self._clean_names.clear()
        self._clean_names.update(names)

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        lowered = text.lower()
        for shape in (*shapes_in(lowered), *self._own):
            if all(need in lowered for need in shape.needs):
                text = _without(shape, text)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value without the secrets in its texts, its keys and under secret names."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return self._object(value)
        return value

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        secret_args = self._tool_args.get(str(value.get("tool", "")), frozenset())
        pair = _named_pair(value)
        clean: dict[str, Any] = {}
        taken: dict[str, int] = {}
        for key, item in value.items():
            if key == "args" and secret_args and isinstance(item, dict):
                kept = {
                    name: _mask(name, arg) if name in secret_args else arg
                    for name, arg in item.items()
                }
                result = self.value(kept)
            elif self._is_secret_name(key):
                result = self._hide(key, item)
            elif pair is not None and key.lower() == "value" and self._is_secret_name(pair):
                result = self._hide(pair, item)
            else:
                result = self.value(item)
            name = key if len(key) < 64 and self.is_clean_name(key) else self.text(key)
            clean[_free(name, clean, taken)] = result
        return clean

    def _is_secret_name(self, name: str) -> bool:
        return is_secret_name(name) or name.lower() in self._fields

    def _hide(self, name: str, item: Any) -> Any:
        """Mask the value of a field with a secret name."""
        if isinstance(item, list):
            # Lists such as `errors: {password: […]}` have sentences.
            return [
                self.value(part)
                if isinstance(part, str) and (" " in part or MARKER.search(part))
                else self._hide(name, part)
                for part in item
            ]
        if isinstance(item, dict):
            if not _SCHEMA_WORDS.isdisjoint(item):
                return self.value(item)
            return {key: self._hide(name, part) for key, part in self._object(item).items()}
        if isinstance(item, bool) or item is None:
            return item
        if isinstance(item, str):
            own = name.lower() in self._fields
            return _mask(name, item) if own or is_plausible(name, item) else self.text(item)
        return item if name.lower().endswith(("token", "pass", "pwd")) else _mask(name, item)


def _named_pair(value: Mapping[str, Any]) -> str | None:
    """Return the name in objects such as `{"name": …, "value": …}`."""
    for key, item in value.items():
        if key.lower() in ("name", "key") and isinstance(item, str):
            return item
    return None


def _mask(name: str, item: Any) -> Any:
    if isinstance(item, str) and (MARKER.fullmatch(item) or REFERENCE.fullmatch(item)):
        return item
    return marker(name)


def marker(name: str) -> str:
    """Return the text that replaces a secret."""
    return f"[redacted:{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:64] or 'secret'}]"


def _without(shape: Shape, text: str) -> str:
    """Return a text without the secrets of one shape."""
    parts, end = [], 0
    for match in matches(shape, text):
        if match.start() < end:
            continue
        start, stop = _secret_of(shape, match)
        if start < stop:
            name = _groups(match).get("name") or shape.name
            parts += [text[end:start], marker(name)]
            end = stop
    return "".join([*parts, text[end:]]) if parts else text


def _secret_of(shape: Shape, match: re.Match[str]) -> tuple[int, int]:
    """Return where the secret of a match begins and ends; an empty range if there is none."""
    groups = _groups(match)
    start, stop = match.span("secret") if "secret" in groups else match.span()
    secret = match.string[start:stop]
    if not secret or MARKER.fullmatch(secret):
        return start, start
    if shape.name not in UNQUOTED:
        if _BETWEEN_TEXTS.fullmatch(secret) or not _is_secret(shape, groups, secret):
            return start, start
        return start, stop
    value = match.string[start : start + LONGEST_VALUE]
    value = value[: end_of_value(value, _in_a_url(match))]
    first = first_of(value)
    is_secret = first and _is_secret(shape, groups, first)
    return (start, start + len(value)) if is_secret else (start, start)


_BETWEEN_TEXTS = re.compile(
    r"\s*:(?:[\s\[\]{},:\d.+-]|[eE](?=[\d+-])|null|true|false)*[,\[\]{}]\s*"
)
"""What stands between two texts of JSON, as in `{"password:": null, "b": …}`."""


def _groups(match: re.Match[str]) -> dict[str, str | None]:
    """Return the groups of a match. In JSON, the `n` of a new line stands before a name."""
    groups: dict[str, str | None] = match.groupdict()
    name = groups.get("name") or ""
    if name[:1] in ("n", "r", "t") and match.string[: match.start("name")].endswith("\\"):
        groups["name"] = name[1:]
    return groups


def _in_a_url(match: re.Match[str]) -> bool:
    return match.string[max(0, match.start() - 1) : match.start()] in ("?", "&")


def _is_secret(shape: Shape, groups: Mapping[str, str | None], secret: str) -> bool:
    name = groups.get("name") or ""
    if is_placeholder(name, secret):
        return False
    if shape.name in _OPAQUE:
        return is_random(secret) or any(sign.isdigit() or sign == "=" for sign in secret)
    if shape.name == "in-words":
        return is_secret_name(name) and is_plausible_in_words(name, secret)
    if not name:
        return True
    if name.lower().endswith("token") and secret.isalpha() and not is_random(secret):
        return False  # type_token == "string" is code
    quoted = shape.name != "unquoted"
    return is_secret_name(name) and len(secret) > 2 and is_plausible(name, secret, quoted=quoted)


_OPAQUE = frozenset({"authorization", "bearer-token", "auth"})
"""Places where ordinary words stand too: "bearer authentication"."""


def _free(key: str, clean: Mapping[str, Any], taken: dict[str, int]) -> str:
    """Return a key that no other entry has: two secret keys must not become one."""
    free = key
    while free in clean:
        taken[key] = taken.get(key, 1) + 1
        free = f"{key}#{taken[key]}"
    return free


def _own_shape(name: str, text: str) -> Shape:
    shape = OwnShape(name, (), text)
    _ = shape.pattern  # compiled now, so that a mistake is found when the settings are read
    return shape
