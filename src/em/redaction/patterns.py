"""What secrets look like: known keys, and secrets known by what stands around them.

Each shape has anchors: short literals in lower case, one of which stands in every match, in the
text itself and in its JSON. They make the common case cheap: see `redactor`.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple


class Shape(NamedTuple):
    """One kind of secret. A group `secret` narrows what is taken out, a group `name` names it.

    `begins_with_name`: a match begins with a secret's name, so it is sought from the names' words.
    """

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    begins_with_name: bool = False


def _shape(name: str, anchors: str, pattern: str, *, ignore_case: bool = False) -> Shape:
    # ASCII: else the long s and the Kelvin sign would match letters that the anchors don't have.
    flags = re.ASCII | re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    return Shape(name, tuple(anchors.split("|")), re.compile(pattern, flags))


_EDGE = r"(?<![A-Za-z0-9])"


def _key(name: str, anchors: str, tail: str = r"[\w-]{16,}") -> Shape:
    """A key that is known by how it begins; its anchors are its beginnings."""
    beginnings = "|".join(re.escape(anchor) for anchor in anchors.split("|"))
    return _shape(name, anchors, rf"{_EDGE}(?:{beginnings}){tail}")


KEYS = (
    _key("anthropic-key", "sk-ant-"),
    _shape(
        "openai-key",
        "sk-",
        _EDGE + r"sk-(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Z]|[\w-]{40})[\w-]{20,}",
    ),
    _key("github-token", "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_", r"\w{22,}"),
    _key("gitlab-token", "glpat-|glrt-|glptt-|gldt-"),
    _shape("aws-key-id", "akia|asia", _EDGE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("google-key", "aiza", _EDGE + r"AIza[\w-]{35}"),
    _shape("google-token", "ya29.|gocspx-", _EDGE + r"(?:ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,})"),
    _shape(
        "slack-token", "xox|xapp-", _EDGE + r"(?:xox[abeoprs]|xapp)-(?=[\w-]{0,80}\d)[\w-]{10,}"
    ),
    _shape(
        "webhook",
        "hooks.slack.com|/api/webhooks/",
        r"(?:hooks\.slack\.com/(?:services|workflows)|/api/webhooks)/(?P<secret>[\w/+-]{20,})",
    ),
    _shape(
        "stripe-key",
        "_live_|_test_|whsec_",
        _EDGE + r"(?:(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{20,})",
    ),
    _shape("sendgrid-key", "sg.", _EDGE + r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    _key("huggingface-token", "hf_", r"[A-Za-z0-9]{30,}"),
    _key("npm-token", "npm_", r"[A-Za-z0-9]{36}"),
    _key("pypi-token", "pypi-", r"[\w-]{50,}"),
    _key("rubygems-key", "rubygems_", r"[0-9a-f]{40,}"),
    _key("groq-key", "gsk_", r"[A-Za-z0-9]{32,}"),
    _key("xai-key", "xai-", r"[A-Za-z0-9]{32,}"),
    _key("perplexity-key", "pplx-", r"[A-Za-z0-9]{32,}"),
    _key("replicate-token", "r8_", r"[A-Za-z0-9]{32,}"),
    _key("langsmith-key", "lsv2_"),
    _key("tavily-key", "tvly-"),
    _key("pinecone-key", "pcsk_"),
    _key("nvidia-key", "nvapi-"),
    _key("cerebras-key", "csk-"),
    _key("firecrawl-key", "fc-", r"[0-9a-f]{32}"),
    _key("e2b-key", "e2b_", r"[0-9a-f]{32,}"),
    _key("notion-token", "ntn_|secret_", r"[A-Za-z0-9]{40,}"),
    _key("linear-key", "lin_api_", r"[A-Za-z0-9]{32,}"),
    _key("supabase-key", "sbp_|sb_secret_"),
    _key("vault-token", "hvs.", r"[\w-]{20,}"),
    _key("docker-token", "dckr_pat_"),
    _shape("atlassian-token", "atatt3", _EDGE + r"ATATT3[\w=-]{20,}"),
    _key("grafana-token", "glsa_|glc_"),
    _key("shopify-token", "shpat_|shpca_|shppa_|shpss_", r"[0-9a-f]{32}"),
    _key("figma-token", "figd_"),
    _key("databricks-token", "dapi", r"[0-9a-f]{32}"),
    _key("digitalocean-token", "dop_v1_|doo_v1_|dor_v1_", r"[0-9a-f]{64}"),
    _shape("telegram-token", ":aa", r"(?<!\d)\d{8,12}:AA[\w-]{32,}"),
    _shape("age-key", "age-secret-key-1", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
    _shape("jwt", "eyj", r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"),
    _shape("private-key", "ls0tls1crudjti", r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]{20,}"),
    # Only what a key can hold: code that merely names the first line is left alone.
    _shape(
        "private-key",
        "private key",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?!-----END)[A-Za-z0-9+/=\s:,\\-]){16,}+"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
    ),
)

_KEY_OF = "api|private|access|encryption|account|subscription|signing|master|shared|service|secret"
_WORD = (
    "(?:password|passwd|passphrase|pwd|secret|(?<![a-z])pass|"
    rf"(?:{_KEY_OF})[_ .-]?key|token)"
)
_NAME = rf"(?P<name>[A-Za-z0-9_.-]{{0,40}}?{_WORD})(?![A-Za-z0-9])"
# Behind these two stands one of the signs that may follow a name: "tokens" and "passed" are none.
# White space is there as it is and as JSON writes it, with a backslash.
_BEHIND = "\"'=:\\])<> \t\n\r\f\v"
NAME_ANCHORS = (
    *"passw passphrase pwd secret".split(),
    *(word + sign for word in ("token", "pass") for sign in _BEHIND),
    *(f"{word}{between}key" for word in _KEY_OF.split("|") for between in ("", "_", " ", ".", "-")),
)
_NAMES = "|".join(NAME_ANCHORS)
_BETWEEN = (
    r"\\{0,3}[\"'\])]{0,2}(?:\s{0,4}:\s{0,4}(?:str|string))?"
    r"(?:\s|\\[tnr]){0,8}(?:=>|:=|[:=]{1,2})(?:\s|\\[tnr]){0,8}"
)


def _named(name: str, anchors: str, pattern: str, *, ignore_case: bool = False) -> Shape:
    shape = _shape(name, anchors, pattern, ignore_case=ignore_case)
    return shape._replace(begins_with_name=True)


ASSIGNMENTS = (
    # name = "value" up to the same quote
    _named(
        "assigned",
        _NAMES,
        _EDGE + _NAME + _BETWEEN + r"(?P<quote>[\"'])"
        r"(?P<secret>(?:\\.|(?!(?P=quote))[^\\\n])+)",
        ignore_case=True,
    ),
    # the same as JSON inside a string, its quotes escaped
    _named(
        "assigned",
        _NAMES,
        _EDGE + _NAME + _BETWEEN + r"(?P<quote>\\{1,3}[\"'])(?P<secret>(?:(?!(?P=quote))[^\n])+)",
        ignore_case=True,
    ),
    # name=value without quotes
    _named(
        "unquoted",
        _NAMES,
        _EDGE + _NAME + r"\s{0,8}[:=]\s{0,8}(?P<secret>[^\s\"'`;&,<>()\[\]{}|\\]{6,}+)(?![(\[{])",
        ignore_case=True,
    ),
    _shape(
        "option",
        _NAMES,
        r"(?<!\S)--"
        + _NAME
        + r"[ =]\s{0,4}(?P<secret>[^\s\"'`;&<>()\[\]{}|\\-][^\s\"'`;&|\\]{5,})",
        ignore_case=True,
    ),
    _shape(
        "element",
        _NAMES,
        r"<" + _NAME + r">\s{0,8}(?P<secret>[^<>\s][^<>]{0,4095})<",
        ignore_case=True,
    ),
    _shape(
        "curl-password",
        "curl",
        r"\bcurl\b[^\n]{0,400}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,80}:(?P<secret>[^\s\"']{3,})",
    ),
    _shape(
        "url-password",
        "://",
        r"(?<=://)[^\s/:@\"'<>\[?#]{0,256}:(?P<secret>[^\s/\"'<>?#]{1,4096})@",
    ),
    _shape(
        "authorization",
        "authorization",
        r"\bauthorization\\{0,3}[\"']?\s{0,8}[:=]\s{0,8}\\{0,3}[\"']?"
        r"(?:[A-Za-z][\w-]{1,20}\s{1,8})?(?P<secret>(?=[^\s\"'\\,;\[{]{0,400}[\d=])"
        r"[^\s\"'\\,;\[{]{6,})",
        ignore_case=True,
    ),
    _shape(
        "cookie",
        "cookie",
        r"\b(?:set-)?cookie\\{0,3}[\"']?\s{0,8}:\s{0,8}\\{0,3}[\"']?"
        r"(?P<secret>[^\s=;\"'\\\[]{1,80}=[^\r\n\"'\\]{3,})",
        ignore_case=True,
    ),
    _shape(
        "bearer-token",
        "bearer",
        r"\bbearer\s{1,8}(?P<secret>(?=[\w.~+/-]{0,400}\d)[\w.~+/-]{16,}={0,2})",
        ignore_case=True,
    ),
)

SHAPES = (*KEYS, *ASSIGNMENTS)

# What every word of a name holds; one may begin with the last letter of another.
_ROOTS = re.compile(r"pas(?=s)|pwd|secre(?=t)|token|key")
_LEFT_OF_KEY = re.compile(rf"(?:{_KEY_OF})[_ .-]?\Z")
_LEFT_OF_WORD = re.compile(r"[A-Za-z0-9_.-]{0,40}\Z", re.ASCII)
_ALPHANUMERIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")


def matches(shape: Shape, text: str) -> Iterator[re.Match[str]]:
    """What `shape.pattern.finditer` finds.

    A pattern that begins with a name would be tried at every word of a text; trying it only before
    the words that end a name is many times faster.
    """
    lowered = text.lower()
    if not shape.begins_with_name or len(lowered) != len(text):
        yield from shape.pattern.finditer(text)
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
    r".*(?:password|passwd|passphrase|secret)s?|(?:.*[_. -])?(?:pwd|pass)"
    rf"|.*(?:{_KEY_OF})[_. -]?keys?|.*secret[_. -]key[_. -]base"
    r"|(?:proxy[_-]?)?authorization|(?:set[_-]?)?cookies?|credentials?|auth",
    re.ASCII | re.DOTALL,
)
_TOKEN = re.compile(r"(?P<of>.*?)[_. -]?token", re.ASCII | re.DOTALL)
_HARMLESS_TOKENS = tuple(
    "next page continuation sync cursor pagination bos eos pad unk sep cls mask stop start end"
    " special max min num first last unexpected invalid expected".split()
)


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
REFERENCE = re.compile(r"\s*(?:\{\{.*\}\}|\$\{[^}]*\}|\$[A-Z_][A-Z0-9_]*|\*+|)\s*", re.DOTALL)


def is_plausible(name: str, value: str, *, quoted: bool = True) -> bool:
    """Whether a text under a secret's name can be a secret: no path, no code, no word of prose."""
    lowered = name.lower()
    if REFERENCE.fullmatch(value):
        return False
    if lowered == "token" or lowered.endswith((".token", " token")):
        long = len(value) >= 16 and bool(re.search(r"\d", value)) and " " not in value
        return long and (quoted or _is_no_code(name, value))
    if lowered.endswith(("pwd", "pass")):
        return not _PATH.match(value) and " " not in value
    if lowered == "auth":
        return len(value) >= 12 and bool(re.fullmatch(r"[A-Za-z0-9+/=_.-]+", value))
    return quoted or _is_no_code(name, value)


def _is_no_code(name: str, value: str) -> bool:
    if _IDENTIFIER.fullmatch(value):
        # DB_PASSWORD=correcthorse is a setting, password=self.password is code
        return name.isupper() and "." not in value
    return bool(_DIGIT_OR_SIGN.search(value)) and not value.startswith(("$(", "http"))
