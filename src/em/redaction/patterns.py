"""Whether a name is a secret's, and whether what stands behind it can be a secret."""

from functools import lru_cache

from em.redaction import signatures
from em.redaction.linear import compiled, has, is_all
from em.redaction.plain import english
from em.redaction.randomness import is_mixture, is_random

_KEY_OF = "|".join(signatures.KEY_OF)
_PASSWORDS = "|".join(signatures.PASSWORDS)
NAME_WORDS = f"(?:{_KEY_OF})[_ .-]?key(?:[_.-]base)?|{_PASSWORDS}|pwd|pass|pw|psk|token"
"""With which a secret's name ends; a pattern."""
_SECRET_NAME = (
    rf".*(?:{_PASSWORDS})s?|(?:.*[_. -])?(?:pwd|pass|pw|psk)"
    rf"|.*(?:{_KEY_OF})[_. -]?keys?|.*secret[_. -]key[_. -]base"
    r"|(?:proxy[_-]?)?authorization|(?:set[_-]?)?cookies?|credentials?|auth"
)
FIELD_ANCHORS = (
    rf"{_PASSWORDS}|pwd|(?:^|[^a-z])(?:pass|pw|psk)|(?:{_KEY_OF})[_ .-]?key|token"
    r"|auth\"|authorization|cookie|credential|" + "|".join(signatures.FOREIGN)
)
"""What stands in every text that has a secret behind a name; a pattern."""
REFERENCE = r"\s*(?:\{\{.*\}\}|\$\{[^}]*\}|\$[A-Z_][A-Z0-9_]*|\*+|)\s*"
LONGEST_VALUE = 4096
_SHORTEST = 6
_YOURS = r"<?your[-_ ].*|(?:[a-z]+[-_])+(?:key|token|secret|password)|x{3,}|\.{3,}"
_CODED = "pass pwd secret token key arg user value hash md5 sha base64 b64 utf crypt argon".split()


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is a secret, if it can be one."""
    lowered = english(name).lower()
    if is_all(_SECRET_NAME, lowered):
        return True
    of, token, behind = lowered.rpartition("token")
    return bool(token) and not behind and not of.rstrip("_. -").endswith(signatures.HARMLESS_TOKENS)


def is_reference(value: str) -> bool:
    """Whether a text names where a secret is kept: `${DB_PASSWORD}`, stars, or nothing."""
    return is_all(REFERENCE, value)


def is_placeholder(name: str, value: str) -> bool:
    """Whether a text stands in the place of a secret: a reference, the name once more, no text."""
    lowered = value.lower()
    plain = _letters(lowered)
    return (
        is_reference(value)
        or lowered in signatures.PLACEHOLDERS
        or not any(map(str.isalnum, value))
        or (bool(plain) and _letters(name.lower()).endswith(plain))
        or (is_all(_YOURS, lowered) and not is_random(value))
    )


def _letters(text: str) -> str:
    return "".join(sign for sign in text if sign.isascii() and sign.isalnum())


def is_plausible(name: str, value: str, *, quoted: bool = True) -> bool:
    """Whether a text under a secret's name can be a secret: no path, no code, no word of prose."""
    lowered = name.lower()
    if is_reference(value):
        return False
    if lowered == "token" or lowered.endswith((".token", " token")):
        if is_random(value) and " " not in value:
            return True
        long = len(value) >= 16 and any(map(str.isdigit, value)) and " " not in value
        return long and (quoted or _is_no_code(name, value))
    if lowered.endswith(("pwd", "pass", "pw", "psk")):
        is_value = not is_path(value) and " " not in value
        return is_value and (quoted or _is_no_code(name, value))
    if lowered == "auth":
        return len(value) >= 12 and is_all(r"[A-Za-z0-9+/=_.-]+", value)
    return quoted or _is_no_code(name, value)


def is_path(value: str) -> bool:
    """Whether a text begins as paths do."""
    return value[:1] in {"/", "~", "."} or is_all(r"[A-Za-z]:[\\/].*", value)


def _is_no_code(name: str, value: str) -> bool:
    if is_random(value):
        return True
    if is_all(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", value):
        # DB_PASSWORD=correcthorse is a setting, password=self.password is code
        return (name.isupper() and "." not in value) or _is_chosen(value.lower())
    return has(r"[\d!@#$%^*+/=~]", value) and not value.startswith(("$(", "http", "//"))


def _is_chosen(value: str) -> bool:
    """Whether it is a password as people choose them, hunter2, and not the second of variables."""
    return (
        is_all(r"[a-z0-9]{6,}", value)
        and has(r"^[a-z]*\d", value)
        and not any(word in value for word in _CODED)
    )


def is_plausible_in_words(name: str, value: str) -> bool:
    """Whether what follows "my password is" can be one: no word, no date."""
    if is_random(value):
        return True
    if value.isdigit():
        return "pass" in english(name).lower()
    has_both = any(map(str.isalpha, value)) and any(map(str.isdigit, value))
    return has_both and value[0] not in "/~."


def end_of_value(text: str, in_a_url: bool) -> int:
    """Return where a value without quotes ends: at white space, a quote, or the next setting."""
    found = compiled(r"[^\s\"'`]*").match(text.encode("ascii", "replace"))
    value = text[: found.end()]
    if text[len(value) : len(value) + 1] in ('"', "'"):
        value = value.rstrip("\\")  # in JSON, the sign belongs to the quote
    ends = r"[&#<]" if in_a_url else r"[;&,|][\w.-]+[=:]|</|\\[nrt]"
    following = compiled(ends).search(value.encode("ascii", "replace"))
    if following:
        value = value[: following.start()]
    return len(value.rstrip(".,;:)]}>|"))


def first_of(value: str) -> str:
    """Return the part of a value that tells whether it is a secret.

    That is what stands before a sign that separates. What stands before a bracket is a function or
    a list, so that nothing is left; of a mixture of signs, all is.
    """
    delimiter = compiled(r"[;,<>()\[\]{}|\\]").search(value.encode("ascii", "replace"))
    if delimiter is None:
        return value
    first = value[: delimiter.start()]
    if len(first) >= _SHORTEST and delimiter.group() not in b"([{":
        return first
    return value if is_mixture(value) or (not first.isalpha() and is_random(value)) else ""
