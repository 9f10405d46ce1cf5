"""Remove secrets from everything before it is stored. A secret becomes `[redacted:NAME]`.

The store itself calls the redactor for every body, text and response of a commit, so that no
writer can forget it.

Most texts have no secret. A text without any anchor (see `signatures`) is clean; only the others
are decoded and searched, as often as something is found.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import re2

from em import deadline
from em.errors import UsageError
from em.redaction.linear import Pattern, compiled, compiled_text, error, is_all, made_once, options
from em.redaction.names import ANCHORS, is_secret_name
from em.redaction.signatures import Signature, signatures
from em.redaction.slots import (
    LONGEST_VALUE,
    Found,
    end_of_value,
    first_of,
    is_between,
    named_secrets,
)
from em.redaction.strength import (
    CHOSEN,
    RANDOM,
    is_placeholder,
    is_plausible,
    is_random,
    is_reference,
    strength,
)
from em.redaction.view import QUOTES, View

NAMES_KEPT = 4096
FEW_NAMES = 64
"""Names of one commit that are remembered as clean; those of a large import don't come again."""
MARKER = re.compile(r"\[redacted:[^\[\]]{1,64}\]")
LONGEST_PATTERN = 2_000
"""How large a pattern of the settings may be."""
ROUNDS = 4
"""How often a text is searched at most: what a secret hid may be found once it is gone."""
LONGEST_KEY = 20_000
"""Characters that a private key may take, with what a program puts between its lines."""

_SCHEMA_WORDS = frozenset({"type", "$ref", "properties", "anyOf", "oneOf", "allOf", "description"})


def _of_anchors(**changes: Any) -> Any:
    return options(encoding=re2.Options.Encoding.UTF8, case_sensitive=False, **changes)


def _any_anchor() -> Pattern:
    """Return a pattern that matches in every text with a secret, in any case."""
    words = [ANCHORS, *(part for one in signatures() for part in one.anchors.split(" "))]
    source = "|".join(dict.fromkeys(words))
    return re2.compile(source, _of_anchors(never_capture=True))


def _anchors() -> Any:
    """Return the set of what the anchors of each signature begin with."""
    anchors = re2.Set.SearchSet(_of_anchors())
    for signature in signatures():
        # A pattern that matches nothing keeps the numbers of the others.
        anchors.Add(signature.begins.replace(" ", "|") or r"[^\x00-\x{10FFFF}]")
    anchors.Compile()
    return anchors


def _names() -> Pattern:
    return re2.compile(ANCHORS, _of_anchors(never_capture=True))


def _repeating() -> Pattern:
    """Return a pattern for the anchors that the set of beginnings lacks."""
    words = [one.anchors.replace(" ", "|") for one in signatures() if not one.begins]
    return re2.compile("|".join(words), _of_anchors(never_capture=True))


def has_anchor(text: bytes) -> bool:
    """Return whether a text, or its JSON, may have a secret: UTF-8, in any case."""
    return made_once("any anchor", _any_anchor).search(text) is not None


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
        self._own = dict(patterns or {})
        for name, text in self._own.items():
            _check_pattern(name, text)
        self._fields = frozenset(field.lower() for field in fields)
        self._tool_args = {tool: frozenset(names) for tool, names in (tool_args or {}).items()}
        self._clean_names: set[str] = set()
        # A user's own rules have no anchors, so that every value must be searched.
        self._always = bool(self._own or self._fields or self._tool_args)

    def suspects(self, texts: Sequence[bytes]) -> Sequence[int]:
        """Return which JSON texts may have a secret: never too few, sometimes too many."""
        if self._always:
            return range(len(texts))
        return [number for number, text in enumerate(texts) if has_anchor(text)]

    @property
    def searches_all(self) -> bool:
        """Whether a user's own rules make it search every text."""
        return self._always

    def is_suspect(self, text: bytes, *names: str) -> bool:
        """Return whether a JSON text or one of these names may have a secret."""
        if self._always or not self._clean_names.issuperset(names):
            return bool(self.suspects((text,)) or self.suspect_names(names))
        return has_anchor(text)

    def suspect_names(self, names: Iterable[str]) -> Iterable[str]:
        """Return the names that may have a secret: never too few, sometimes too many."""
        names = set(names) - self._clean_names
        if not names:
            return ()
        # A secret in one name is no less one between the others, so all are searched at once.
        if self._always or has_anchor("\n".join(names).encode("utf-8", "replace")):
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
        for _ in range(ROUNDS):
            deadline.check()
            if not self._own and not has_anchor(text.encode("utf-8", "replace")):
                return text
            clean = _replaced(text, [*_secrets_in(text), *self._own_in(text)])
            if clean == text:
                return text
            text = clean
        return text

    def _own_in(self, text: str) -> Iterator[Found]:
        """Yield what the patterns of the settings find."""
        for name, source in self._own.items():
            pattern = compiled_text(source)
            for match in pattern.finditer(text):
                start, end = match.span(pattern.groupindex.get("secret", 0))
                if start < end and not MARKER.fullmatch(text[start:end]):
                    yield Found(start, end, name)

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
    if isinstance(item, str) and (MARKER.fullmatch(item) or is_reference(item)):
        return item
    return marker(name)


def marker(name: str) -> str:
    """Return the text that replaces a secret."""
    return f"[redacted:{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:64] or 'secret'}]"


def _replaced(text: str, secrets: Sequence[Found]) -> str:
    """Return a text with markers for its secrets. Those that overlap become one, as the longest."""
    parts, done = [], 0
    one: Found | None = None
    for found in sorted(secrets, key=lambda found: found.start):
        if one is None or found.start >= one.end:
            if one is not None:
                parts += [text[done : one.start], marker(one.name)]
                done = one.end
            one = found
        else:
            longer = found.end - found.start > one.end - one.start
            name = found.name if longer else one.name
            one = Found(one.start, max(one.end, found.end), name)
    if one is not None:
        parts += [text[done : one.start], marker(one.name)]
        done = one.end
    return "".join([*parts, text[done:]])


def _secrets_in(text: str) -> Iterator[Found]:
    """Yield the secrets of a text: by their form first, then by the names before them."""
    view = View(text)
    data = text.encode("utf-8", "replace")
    there = set(made_once("anchors", _anchors).Match(data) or ())
    has_repeating = made_once("repeating", _repeating).search(data) is not None
    for number, signature in enumerate(signatures()):
        if number in there or (has_repeating and not signature.begins):
            yield from (_placed(view, found) for found in _signed(view, signature))
    if made_once("names", _names).search(data) is not None:
        yield from (_placed(view, found) for found in named_secrets(view))


def _placed(view: View, found: Found) -> Found:
    return Found(*view.span(found.start, found.end), found.name)


def _signed(view: View, signature: Signature) -> Iterator[Found]:
    """Yield the secrets of one form."""
    pattern = compiled(signature.pattern)
    groups = pattern.groupindex
    group = groups.get(b"secret", 0)
    for match in pattern.finditer(view.data):
        deadline.check()
        start, end = match.span(group)
        if signature.form == "block":
            end = _end_of_key(view.data, end)
        elif "unquoted" in signature.form:
            end = start + end_of_value(
                view.data[start : min(end, start + LONGEST_VALUE)], in_a_url=False
            )
        if signature.form == "members":
            for member in compiled(_MEMBER).finditer(view.data, start, end):
                yield Found(member.start(1), member.end(1), signature.name)
            continue
        name = match.group(b"name") if b"name" in groups else None
        name = name.decode() if name else ""
        text = view.original(start, end) if end > start else ""
        if text and _has_form(signature, name, text):
            yield Found(start, end, name or signature.name)


def _has_form(signature: Signature, name: str, secret: str) -> bool:
    if "unquoted" in signature.form:
        secret = first_of(secret)
    if not secret or is_between(secret) or is_placeholder(name, secret):
        return False
    fits = FORMS.get(signature.form.split(" ")[0])
    return fits is None or fits(name, secret)


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


def _is_opaque(_: str, secret: str) -> bool:
    """Ordinary words stand there too: "bearer authentication"."""
    return _has_digit(secret) or "=" in secret or (is_random(secret) and "." not in secret)


def _is_base62(_: str, secret: str) -> bool:
    kinds = (str.isdigit, str.isupper, str.islower)
    last = secret.replace("-", "_").rpartition("_")[2]
    return all(any(map(kind, last)) for kind in kinds) and is_random(last)


FORMS: Mapping[str, Callable[[str, str], bool]] = {
    "opaque": _is_opaque,
    "mixed": lambda _, secret: (
        _has_digit(secret) and (len(secret) > _LONG or any(map(str.isupper, secret)))
    ),
    "base62": _is_base62,
    # A key for a cache, a table or a page is no secret.
    "made": lambda name, secret: (
        _has_digit(secret)
        and is_random(secret)
        and not name.lower().replace("-", "_").replace(".", "_").endswith(_HARMLESS_KEYS)
    ),
    # Of a certificate or a public key the lines are no secret.
    "lines": lambda name, secret: not name and is_random(secret[:64]),
    "no": lambda _, secret: len(secret) > _PORT and not is_all(r"\d{1,5}[/?#].*", secret),
    "source": lambda _, secret: not secret.startswith(("env:", "file:", "fd:", "stdin")),
    "digit": lambda _, secret: _has_digit(secret),
    "chosen": lambda _, secret: strength(secret) >= CHOSEN,
    "random": lambda _, secret: strength(secret) >= RANDOM,
}
"""How a value must look by the first word of the column `form`, given its name and itself."""
_PORT = 3
_LONG = 42
_HARMLESS_KEYS: tuple[str, ...] = tuple(
    word + end
    for word in (
        "cache sort partition primary foreign object group idempotency dedup hash index unique"
        " public s3 row query lookup message i18n translation page file map state node registry"
        " storage record item entry shard bucket dict json react artifact run build"
    ).split()
    for end in ("key", "_key")
)
_MEMBER = rf":[ \t]*[{QUOTES}]?([^\s{QUOTES},{{}}|>]{{6,}})"
_LAST_LINE = r"-----END [A-Za-z0-9 ]{0,60}-----"
_BODY = rf"(?:[A-Za-z0-9+/=\s:,.\\()\[\]>|;{QUOTES}]|-[^-])*"


def _end_of_key(data: bytes, start: int) -> int:
    """Return where a private key ends whose first line ends at a place; 0 if none follows.

    Only what a key can hold, and what programs put between its lines: code that merely names the
    first line is left alone.
    """
    body = compiled(_BODY).match(data, start, start + LONGEST_KEY)
    if not compiled(r"[A-Za-z0-9+/]*\d[A-Za-z0-9+/=]*").search(body.group()):
        return 0
    if not any(len(run) >= _RUN for run in compiled(r"[A-Za-z0-9+/=]+").findall(body.group())):
        return 0
    last = compiled(_LAST_LINE).match(data, body.end())
    end: int = (last or body).end()
    return end if last else start + len(data[start:end].rstrip())


_RUN = 16
"""Characters of a key's shortest line."""


def _free(key: str, clean: Mapping[str, Any], taken: dict[str, int]) -> str:
    """Return a key that no other entry has: two secret keys must not become one."""
    free = key
    while free in clean:
        taken[key] = taken.get(key, 1) + 1
        free = f"{key}#{taken[key]}"
    return free


def _check_pattern(name: str, text: str) -> None:
    """Raise if a pattern of the settings is none, so that a mistake is found when they are read."""
    place = f"redact.patterns.{name}"
    if len(text) > LONGEST_PATTERN:
        raise UsageError(
            f"the pattern is too large: at most {LONGEST_PATTERN:,} characters",
            place=place,
            fix="split it",
        )
    try:
        compiled_text(text)
    except error() as wrong:
        raise UsageError(
            f"expected a regular expression as RE2 reads it, got {text!r}: {wrong}",
            place=place,
            fix="RE2 has no looks ahead or behind, no references to groups, and repeats at most"
            " 1,000 times",
        ) from None
