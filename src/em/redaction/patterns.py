"""What secrets look like: known keys, and secrets known by where they stand.

The patterns are data: `signatures`. Each has anchors, which make the common case cheap: see
`redactor`.
"""

import math
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

from em.errors import UsageError
from em.redaction import signatures
from em.redaction.randomness import is_mixture, is_random

BUDGET, BUDGET_OF_A_CHARACTER = 0.5, 1e-6
"""Seconds that the search for a pattern of the settings may take in one text."""
LONGEST_PATTERN, MOST_REPEATED = 2_000, 10_000
"""How large a pattern of the settings may be: `regex` writes repetitions out."""


class Shape:
    """One kind of secret. A group `secret` narrows what is taken out, a group `name` names it.

    `begins_with_name`: a match begins with a secret's name, so it is sought from the names' words.
    `needs`: texts in lower case that every match holds, so a text without them is not searched.
    """

    def __init__(
        self,
        name: str,
        anchors: tuple[str, ...],
        source: str,
        flags: int = 0,
        begins_with_name: bool = False,
        needs: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.anchors = anchors
        self.begins_with_name = begins_with_name
        self.needs = needs
        self._source = source
        self._flags = flags

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression, compiled when it is first needed."""
        return re.compile(self._source, self._flags)

    def found_in(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches in a text."""
        yield from self.pattern.finditer(text)


_NOT_A_COUNT = re.compile(r"(\\N\{[^{}]*\}|\\.)|\{(?!(?:\d+,?\d*|,\d*)\})", re.DOTALL)
"""A brace that stands for itself, which `regex` takes for an inexact match: `token{i}`."""


def _literal(found: re.Match[str]) -> str:
    return found[1] or r"\{"


class OwnShape(Shape):
    """A shape that the settings name, with a budget of time and size: anybody may have written it.

    The standard library can't end a search; `regex` can, and takes its patterns.
    """

    @cached_property
    def pattern(self) -> Any:
        """The regular expression, compiled by `regex`."""
        import regex

        counts = [int(one) for one in re.findall(r"(?<=[{,])\d{1,9}(?=[,}])", self._source)]
        if len(self._source) > LONGEST_PATTERN or math.prod(filter(None, counts)) > MOST_REPEATED:
            raise UsageError(
                f"the pattern is too large: at most {LONGEST_PATTERN:,} characters, and numbers of"
                f" repetitions that multiply to at most {MOST_REPEATED:,}",
                place=self.place,
                fix="split it, or write + or * instead of a large number",
            )
        try:
            re.compile(self._source)  # what it refuses is a mistake, though `regex` may take it
            return regex.compile(_NOT_A_COUNT.sub(_literal, self._source))
        except (re.error, regex.error) as error:
            raise UsageError(
                f"expected a regular expression, got {self._source!r}: {error}", place=self.place
            ) from None

    @property
    def place(self) -> str:
        """The setting that names it."""
        return f"redact.patterns.{self.name}"

    def found_in(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches in a text, or raise if the search takes too long."""
        seconds = BUDGET + len(text) * BUDGET_OF_A_CHARACTER
        try:
            yield from self.pattern.finditer(text, timeout=seconds)
        except TimeoutError:
            raise UsageError(
                f"the pattern takes too long on a text of {len(text):,} characters; nothing was"
                " written",
                place=self.place,
                fix="write it without a repetition inside of a repetition, as in (a+)+",
            ) from None


_EDGE = r"(?<![A-Za-z0-9])"
_KEY_OF = "|".join(signatures.KEY_OF)
_WORD = (
    "(?:password|passwd|passphrase|passcode|passwort|kennwort|wachtwoord|senha|pwd|secret"
    "|(?<![a-z])(?:pass|pw)|"
    rf"(?:{_KEY_OF})[_ .-]?key(?:[_.-]base)?|token)"
)
_NAME = rf"(?P<name>[A-Za-z0-9_.-]{{0,40}}?{_WORD})(?![A-Za-z0-9])"
# Behind these two stands one of the signs that may follow a name: "tokens" and "passed" are none.
# White space is there as it is and as JSON writes it, with a backslash.
_BEHIND = "\"'=:\\])<> \t\n\r\f\v"
NAME_ANCHORS = (
    *"passw passphrase passcode kennwort wachtwoord senha pwd secret".split(),
    *(f"pw{sign}" for sign in "\"'=: \\"),
    *(word + sign for word in ("token", "pass") for sign in _BEHIND),
    *(f"{word}{between}key" for word in signatures.KEY_OF for between in ("", "_", " ", ".", "-")),
)
_BETWEEN = (
    r"\\{0,3}[\"'\])]{0,2}(?:\s{0,4}:\s{0,4}(?:str|string))?"
    r"(?:\s|\\[tnr]){0,8}(?:=>|:=|[:=]{1,2})(?:\s|\\[tnr]){0,8}"
)
# ASCII: else the long s and the Kelvin sign would match letters that the anchors don't have.
_FLAGS = re.ASCII | re.DOTALL


def _filled(pattern: str) -> str:
    for part, text in (("{edge}", _EDGE), ("{name}", _NAME), ("{between}", _BETWEEN)):
        pattern = pattern.replace(part, text)
    return pattern


def _key(entry: dict[str, Any]) -> Shape:
    """A key that is known by how it begins; its anchors are its beginnings."""
    beginnings = "|".join(map(re.escape, entry["begins"]))
    tail = entry.get("tail", r"[\w-]{16,}")
    source = f"{_EDGE}(?:{beginnings}){tail}"
    return Shape(entry["name"], tuple(begin.lower() for begin in entry["begins"]), source, _FLAGS)


def _shape(entry: dict[str, Any]) -> Shape:
    return Shape(entry["name"], tuple(entry["anchors"]), _filled(entry["pattern"]), _FLAGS)


def _place(entry: dict[str, Any]) -> Shape:
    return Shape(
        entry["name"],
        tuple(entry.get("anchors", NAME_ANCHORS)),
        _filled(entry["pattern"]),
        _FLAGS if entry.get("case") else _FLAGS | re.IGNORECASE,
        entry.get("begins_with_name", False),
        tuple(entry.get("needs", ())),
    )


SHAPES = (
    *map(_key, signatures.KEYS),
    *map(_shape, signatures.SHAPES),
    *map(_place, signatures.PLACES),
)

# What every word of a name holds; one may begin with the last letter of another.
_ROOTS = re.compile(r"pas(?=s)|pwd?|secre(?=t)|token|key|kennwort|wachtwoord|senha")
_LEFT_OF_KEY = re.compile(rf"(?:{_KEY_OF})[_ .-]?\Z")
_LEFT_OF_WORD = re.compile(r"[A-Za-z0-9_.-]{0,40}\Z", re.ASCII)
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def matches(shape: Shape, text: str) -> Iterator[re.Match[str]]:
    """What `shape.found_in` finds.

    A pattern that begins with a name would be tried at every word of a text; trying it only before
    the words that end a name is many times faster.
    """
    lowered = text.lower()
    if not shape.begins_with_name or len(lowered) != len(text):
        yield from shape.found_in(text)
        return
    end = 0  # where the last match ended, or up to where it was tried in vain
    for root in _ROOTS.finditer(lowered):
        at = root.start()
        if root.group() == "key":
            word = _LEFT_OF_KEY.search(lowered, max(0, at - 16), at)
            if word is None:
                continue
            at = word.start()
        if at < end:
            continue
        found = _beginning_before(shape.pattern, text, end, at)
        if found is not None:
            yield found
        # A match that is tried at a place is tried with every word behind it.
        end = at + 1 if found is None else found.end()


def _beginning_before(
    pattern: re.Pattern[str], text: str, end: int, at: int
) -> re.Match[str] | None:
    """A match whose name goes on to the word at a place, and begins as early as it can."""
    left = _LEFT_OF_WORD.search(text, max(end, at - 40), at)
    for start in range(left.start() if left else at, at + 1):
        if not start or text[start - 1] not in _ALPHANUMERIC:
            found = pattern.match(text, start)
            if found is not None:
                return found
    return None


FIELD_ANCHORS = (*NAME_ANCHORS, 'auth"', "authorization", "cookie", "credential")

_FIELD = re.compile(
    r".*(?:password|passwd|passphrase|passcode|passwort|kennwort|wachtwoord|senha|secret)s?"
    r"|(?:.*[_. -])?(?:pwd|pass|pw)"
    rf"|.*(?:{_KEY_OF})[_. -]?keys?|.*secret[_. -]key[_. -]base"
    r"|(?:proxy[_-]?)?authorization|(?:set[_-]?)?cookies?|credentials?|auth",
    re.ASCII | re.DOTALL,
)
_TOKEN = re.compile(r"(?P<of>.*?)[_. -]?token", re.ASCII | re.DOTALL)
_HARMLESS_TOKENS = signatures.HARMLESS_TOKENS


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is a secret, if it can be one."""
    lowered = name.lower()
    if _FIELD.fullmatch(lowered):
        return True
    token = _TOKEN.fullmatch(lowered)
    return token is not None and not token["of"].endswith(_HARMLESS_TOKENS)


_PATH = re.compile(r"[/~.]|[A-Za-z]:[\\/]")
_IDENTIFIER = re.compile(r"[A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)*")
_DIGIT_OR_SIGN = re.compile(r"[\d!@#$%^*+/=~]")
_CHOSEN = (
    r"(?!.*(?:pass|pwd|secret|token|key|arg|user|value|hash|md5|sha|base64|b64|utf|crypt|argon))"
    r"(?=[a-z]*\d)[a-z0-9]{6,}"
)
"""A password as people choose them, hunter2 or s3cr3t, and not the second of two variables."""
_LETTER_AND_DIGIT = re.compile(r"(?=.*[A-Za-z]).*\d", re.DOTALL)
REFERENCE = re.compile(r"\s*(?:\{\{.*\}\}|\$\{[^}]*\}|\$[A-Z_][A-Z0-9_]*|\*+|)\s*", re.DOTALL)
_PLACEHOLDERS = frozenset(signatures.PLACEHOLDERS)
_YOURS = r"<?your[-_ ].*|(?:[a-z]+[-_])+(?:key|token|secret|password)|x{3,}|\.{3,}"
_WORDS = re.compile(r"[^a-z0-9]+")


def is_placeholder(name: str, value: str) -> bool:
    """Whether a text stands in the place of a secret: a reference, the name once more, no text."""
    lowered = value.lower()
    return (
        bool(REFERENCE.fullmatch(value))
        or lowered in _PLACEHOLDERS
        or not any(map(str.isalnum, value))
        or _WORDS.sub("", name.lower()).endswith(_WORDS.sub("", lowered) or "-")
        or bool(re.fullmatch(_YOURS, value, re.IGNORECASE | re.DOTALL) and not is_random(value))
    )


def is_plausible(name: str, value: str, *, quoted: bool = True) -> bool:
    """Whether a text under a secret's name can be a secret: no path, no code, no word of prose."""
    lowered = name.lower()
    if REFERENCE.fullmatch(value):
        return False
    if lowered == "token" or lowered.endswith((".token", " token")):
        if is_random(value) and " " not in value:
            return True
        long = len(value) >= 16 and bool(re.search(r"\d", value)) and " " not in value
        return long and (quoted or _is_no_code(name, value))
    if lowered.endswith(("pwd", "pass", "pw")):
        is_value = not _PATH.match(value) and " " not in value
        return is_value and (quoted or _is_no_code(name, value))
    if lowered == "auth":
        return len(value) >= 12 and bool(re.fullmatch(r"[A-Za-z0-9+/=_.-]+", value))
    return quoted or _is_no_code(name, value)


def _is_no_code(name: str, value: str) -> bool:
    if is_random(value):
        return True
    if _IDENTIFIER.fullmatch(value):
        # DB_PASSWORD=correcthorse is a setting, password=self.password is code
        is_setting = name.isupper() and "." not in value
        return is_setting or bool(re.fullmatch(_CHOSEN, value, re.IGNORECASE))
    return bool(_DIGIT_OR_SIGN.search(value)) and not value.startswith(("$(", "http", "//"))


def is_plausible_in_words(name: str, value: str) -> bool:
    """Whether what follows "my password is" can be one: no word, no date."""
    if is_random(value):
        return True
    if value.isdigit():
        return "pass" in name.lower()
    return bool(_LETTER_AND_DIGIT.match(value)) and value[0] not in "/~."


UNQUOTED = frozenset(
    {"unquoted", "option", "in-words", "pair", "authorization", "set-command", "bearer-token"}
)
"""Shapes whose secret ends at a sign that could be a part of it, too."""

LONGEST_VALUE = 4096
_SHORTEST = 6
_PUNCTUATION = ".,;:)]}>|"
_VALUE = re.compile(r"[^\s\"'`]*")
_NEXT = re.compile(r"[;&,|](?=[\w.-]+[=:])|</|\\[nrt]")
_DELIMITER = re.compile(r"[;&,<>()\[\]{}|\\]")


def end_of_value(text: str, in_a_url: bool) -> int:
    """Return where a value without quotes ends: at white space, a quote, or the next setting."""
    found = _VALUE.match(text)
    value = found.group() if found else ""
    if text[len(value) : len(value) + 1] in ('"', "'"):
        value = value.rstrip("\\")  # in JSON, the sign belongs to the quote
    following = re.search(r"[&#<]", value) if in_a_url else _NEXT.search(value)
    if following:
        value = value[: following.start()]
    return len(value.rstrip(_PUNCTUATION))


def first_of(value: str) -> str:
    """Return the part of a value that tells whether it is a secret.

    That is what stands before a sign that separates. What stands before a bracket is a function or
    a list, so that nothing is left; of a mixture of signs, all is.
    """
    delimiter = _DELIMITER.search(value)
    if delimiter is None:
        return value
    first = value[: delimiter.start()]
    if len(first) >= _SHORTEST and delimiter.group() not in "([{":
        return first
    return value if is_mixture(value) or (not first.isalpha() and is_random(value)) else ""
