"""Redaction: secrets are taken out before anything is written, and visibly so.

It sits in the store, not above it, so that no writer can forget it: every body, text and response
of a commit passes here. A secret becomes `[redacted:NAME]`.

Most texts hold no secret, so each shape has anchors: short literals, free of characters that JSON
escapes, one of which stands in every match. A text without any anchor is clean, and one search for
all of them costs about 2 µs; only the others are taken apart.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from em.errors import UsageError

NAMES_KEPT = 4096
MARKER = re.compile(r"\[redacted:[^\[\]]{1,64}\]")


class Shape(NamedTuple):
    """What one kind of secret looks like. A group named `secret` narrows what is taken out."""

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(name: str, anchors: str, pattern: str, *, ignore_case: bool = False) -> Shape:
    # ASCII: else the long s and the Kelvin sign would match letters that the anchors don't have.
    flags = re.ASCII | re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    return Shape(name, tuple(anchors.split("|")), re.compile(pattern, flags))


_EDGE = r"(?<![A-Za-z0-9])"
_NAMES = (
    r"(?:[a-z0-9]{1,32}[_-]){0,4}"
    r"(?P<name>password|passwd|passphrase|pwd|secret|client[_-]?secret|api[_ -]?key|"
    r"(?:secret|private|access)[_-]?key|secret[_-]?access[_-]?key|"
    r"(?:access|refresh|auth|session|api|bot)[_-]?token|token)"
)
_NAME_ANCHORS = (
    "passw|passphrase|pwd|secret|api_key|api-key|api key|apikey|private_key|private-key|privatekey|"
    "access_key|access-key|accesskey|token\"|token'|token=|token:|token |token\\"
)

SHAPES = (
    _shape(
        "private-key",
        "private key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _shape("anthropic-key", "sk-ant-", _EDGE + r"sk-ant-[\w-]{16,}"),
    _shape("openai-key", "sk-", _EDGE + r"sk-(?=[\w-]{0,200}\d)[\w-]{20,}"),
    _shape("github-token", "ghp_|gho_|ghu_|ghs_|ghr_", _EDGE + r"gh[pousr]_[A-Za-z0-9]{30,}"),
    _shape("github-token", "github_pat_", _EDGE + r"github_pat_\w{22,}"),
    _shape("gitlab-token", "glpat-", _EDGE + r"glpat-[\w-]{20,}"),
    _shape("aws-key-id", "akia|asia", _EDGE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("google-key", "aiza", _EDGE + r"AIza[\w-]{35}"),
    _shape("google-token", "ya29.|gocspx-", _EDGE + r"(?:ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,})"),
    _shape("slack-token", "xox|xapp-", _EDGE + r"(?:xox[abeoprs]|xapp)-[\w-]{10,}"),
    _shape(
        "slack-webhook",
        "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[\w/+-]{20,})",
    ),
    _shape(
        "stripe-key",
        "_live_|_test_|whsec_",
        _EDGE + r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,})",
    ),
    _shape("sendgrid-key", "sg.", _EDGE + r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    _shape("huggingface-token", "hf_", _EDGE + r"hf_[A-Za-z0-9]{30,}"),
    _shape("npm-token", "npm_", _EDGE + r"npm_[A-Za-z0-9]{36}"),
    _shape("pypi-token", "pypi-", _EDGE + r"pypi-[\w-]{50,}"),
    _shape("groq-key", "gsk_", _EDGE + r"gsk_[A-Za-z0-9]{32,}"),
    _shape("xai-key", "xai-", _EDGE + r"xai-[A-Za-z0-9]{32,}"),
    _shape("perplexity-key", "pplx-", _EDGE + r"pplx-[A-Za-z0-9]{32,}"),
    _shape("replicate-token", "r8_", _EDGE + r"r8_[A-Za-z0-9]{32,}"),
    _shape("databricks-token", "dapi", _EDGE + r"dapi[0-9a-f]{32}"),
    _shape("digitalocean-token", "_v1_", _EDGE + r"do[opr]_v1_[0-9a-f]{64}"),
    _shape("telegram-token", ":aa", _EDGE + r"\d{8,12}:AA[\w-]{32,}"),
    _shape("jwt", "eyj", _EDGE + r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"),
    _shape(
        "url-password", "://", r"(?<=://)[^\s/:@\"'<>\[]{0,256}:(?P<secret>[^\s/\"'<>]{1,512})@"
    ),
    _shape(
        "authorization",
        "authorization",
        r"\bauthorization\\{0,3}[\"']?\s{0,8}[:=]\s{0,8}\\{0,3}[\"']?"
        r"(?:(?:basic|bearer|token|digest|apikey)\s{1,8})?"
        r"(?!(?:basic|bearer|token|digest|apikey)\s)(?P<secret>[^\s\"'\\,;\[{]{6,})",
        ignore_case=True,
    ),
    _shape(
        "bearer-token",
        "bearer",
        r"\bbearer\s{1,8}(?P<secret>(?=[\w.~+/-]{0,400}\d)[\w.~+/-]{16,}={0,2})",
        ignore_case=True,
    ),
    # name = "value", also as JSON inside a string, with its quotes escaped
    _shape(
        "assigned",
        _NAME_ANCHORS,
        _EDGE + _NAMES + r"\\{0,3}[\"']?\s{0,8}[:=]{1,2}\s{0,8}"
        r"\\{0,3}(?P<quote>[\"'])(?P<secret>[^\"'\\\s][^\"'\\]{0,4095})",
        ignore_case=True,
    ),
    # name=value without quotes: only what looks like no word, no code and no reference
    _shape(
        "assigned",
        _NAME_ANCHORS,
        _EDGE + _NAMES + r"\s{0,8}[:=]\s{0,8}"
        r"(?P<secret>(?=[\w!@#%^*+/=.~-]{0,200}\d)[A-Za-z0-9][\w!@#%^*+/=.~-]{5,}+)(?![(\[{])",
        ignore_case=True,
    ),
)

_SECRET_NAMES = frozenset(
    "password passwd pwd passphrase secret token apikey authorization proxyauthorization cookie "
    "setcookie xapikey xauthtoken privatekey secretkey accesskey credential credentials".split()
)
_SECRET_ENDINGS = tuple(
    "password passwd passphrase secret apikey privatekey secretkey secretaccesskey accesstoken "
    "refreshtoken authtoken bearertoken sessiontoken apitoken bottoken idtoken oauthtoken".split()
)
_FIELD_ANCHORS = (
    *_NAME_ANCHORS.split("|"),
    *"authorization cookie credential secretkey secret_key secret-key".split(),
)
_REFERENCE = re.compile(r"\s*(?:\{\{.*\}\}|\$\{[^}]*\}|\$[A-Za-z_]\w*|<[^<>]*>|\*+|)\s*", re.DOTALL)
_SEPARATORS = re.compile(r"[\s_.-]+")


class Redactor:
    """Takes secrets out of what is about to be written.

    patterns: more shapes, by name (regular expressions; a group `secret` narrows them).
    fields: more names of fields whose value is a secret.
    tool_args: for a tool, the names of its secret arguments.
    """

    def __init__(
        self,
        patterns: Mapping[str, str] | None = None,
        fields: Iterable[str] = (),
        tool_args: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._own = tuple(_own_shape(name, text) for name, text in (patterns or {}).items())
        self._fields = frozenset(_plain(field) for field in fields)
        self._tool_args = {tool: frozenset(names) for tool, names in (tool_args or {}).items()}
        anchors = {anchor for shape in SHAPES for anchor in shape.anchors} | {*_FIELD_ANCHORS}
        self._find_anchor = re.compile(_any_of(anchor.encode() for anchor in anchors)).search
        self._clean_names: set[str] = set()
        # What a user adds has no anchors: then every value is taken apart.
        self._always = bool(self._own or self._fields or self._tool_args)

    def suspects(self, texts: Sequence[bytes]) -> Sequence[int]:
        """Which of these JSON texts may hold a secret: never too few, sometimes too many."""
        if self._always:
            return range(len(texts))
        find = self._find_anchor
        return [n for n, text in enumerate(texts) if find(text.lower())]

    def is_clean_name(self, name: str) -> bool:
        """Whether a name holds no secret; names come again and again, so the answer is kept."""
        if name in self._clean_names:
            return True
        if self.text(name) != name:
            return False
        if len(self._clean_names) >= NAMES_KEPT:
            self._clean_names.clear()
        self._clean_names.add(name)
        return True

    def text(self, text: str) -> str:
        """A text without its secrets."""
        lowered = text.lower()
        for shape in SHAPES:
            if any(anchor in lowered for anchor in shape.anchors):
                text = shape.pattern.sub(_replacement(shape), text)
        for shape in self._own:
            text = shape.pattern.sub(_replacement(shape), text)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without its secrets: in texts, under names of secrets, in keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return self._object(value)
        return value

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        secret_args = self._tool_args.get(str(value.get("tool", "")), frozenset())
        named = value.get("name")
        named_secret = isinstance(named, str) and self._is_secret_name(named)
        clean: dict[str, Any] = {}
        for key, item in value.items():
            if key == "args" and secret_args and isinstance(item, dict):
                kept = {
                    name: _mask(name, arg) if name in secret_args else arg
                    for name, arg in item.items()
                }
                result = self.value(kept)
            elif self._is_secret_name(key):
                result = self._hide(key, item)
            elif key == "value" and named_secret:
                result = self._hide(str(named), item)
            else:
                result = self.value(item)
            clean[_free(self.text(key), clean)] = result
        return clean

    def _is_secret_name(self, name: str) -> bool:
        plain = _plain(name)
        return (
            plain in _SECRET_NAMES or plain in self._fields or plain.endswith(_SECRET_ENDINGS)
        ) and bool(plain)

    def _hide(self, name: str, item: Any) -> Any:
        """Mask what stands under a secret's name; an object there describes one (a schema)."""
        if isinstance(item, list):
            return [self._hide(name, part) for part in item]
        if isinstance(item, bool) or item is None or isinstance(item, dict):
            return self.value(item)
        return _mask(name, item)


def _any_of(words: Iterable[bytes]) -> bytes:
    """A regular expression for any of the words; shared beginnings once: three times faster."""
    by_first: dict[bytes, set[bytes]] = {}
    for word in words:
        by_first.setdefault(word[:1], set()).add(word[1:])
    branches = [
        re.escape(first) + (b"" if b"" in rest else _any_of(rest))
        for first, rest in sorted(by_first.items())
    ]
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"


def _mask(name: str, item: Any) -> Any:
    if isinstance(item, str) and (MARKER.fullmatch(item) or _REFERENCE.fullmatch(item)):
        return item
    return marker(name)


def marker(name: str) -> str:
    """What stands where a secret was."""
    return f"[redacted:{re.sub(r'[^A-Za-z0-9_.-]+', '_', name)[:64] or 'secret'}]"


def _replacement(shape: Shape) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        groups = match.groupdict()
        whole = match.group()
        secret = groups.get("secret", whole)
        if not secret or MARKER.search(secret) or _REFERENCE.fullmatch(secret):
            return whole
        name = groups.get("name") or shape.name
        if secret is whole:
            return marker(name)
        start = match.start("secret") - match.start()
        return whole[:start] + marker(name) + whole[start + len(secret) :]

    return replace


def _free(key: str, taken: Mapping[str, Any]) -> str:
    """A key that no other entry has: two secrets as keys must not become one entry."""
    number, free = 2, key
    while free in taken:
        free, number = f"{key}#{number}", number + 1
    return free


def _plain(name: str) -> str:
    return _SEPARATORS.sub("", name.lower())


def _own_shape(name: str, text: str) -> Shape:
    try:
        return Shape(name, (), re.compile(text))
    except re.error as error:
        raise UsageError(
            f"{text!r} is no regular expression: {error}", place=f"redact.patterns.{name}"
        ) from None
