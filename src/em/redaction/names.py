"""Names of secrets: words for passwords, keys and tokens, in the languages that agents read."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from em import deadline
from em.redaction.linear import compiled
from em.redaction.view import FOREIGN, KEY, PASSWORD, View, folded

_PASSWORDS = (
    "password passwd passphrase passcode passwort kennwort passord wachtwoord contraseña "
    "contrasenya mot·de·passe motdepasse palavra-passe palavra·passe adgangskode lösenord salasana "
    "credential zugangsdaten identifiants credenciales credenciais anmeldedaten "
    "hasło jelszó parola lozinka pasahitza slaptažodis parool kata·sandi mật·khẩu lykilorð"
).split()
_SHORT = "pass pwd pw psk passw passwrd pswd".split()
_GLUED = r"[a-z]{2,12}(?:pass|pwd|pw|psk)"
"""Names that end in such a word without a sign between: requirepass, bindpw."""
_HARMLESS_PASSES = ("bypass", "compass", "surpass", "trespass", "overpass", "underpass")
_SHORT_BENT = "senha clave mdp şifre heslo geslo zaporka".split()
"""Words that end other words too: a sign stands before them, or they begin with a capital."""
_KEY_OF = (
    "api auth private access encryption account subscription signing master shared service secret "
    "admin deploy ssh jwt hmac webhook decryption unseal recovery validation "
    "authentication"
).split()
_LOGINS = (
    "login logon log·in logging·in bind sign·in signin auth authenticate creds connect create_user "
    "createuser adduser hmac cipher pdo database"
).split()
"""Beside these stand a user and a password, or other arguments and a key."""
_HARMLESS_TOKENS = (
    "next", "page", "continuation", "sync", "cursor", "pagination", "bos", "eos", "pad", "unk",
    "sep", "cls", "mask", "stop", "start", "end", "special", "max", "min", "num", "first", "last",
    "unexpected", "invalid", "expected",
)  # fmt: skip
"""Names that end in "token" and are none: of language models, parsers and lists with pages."""
LONGEST = 40


def _any(words: Iterable[str]) -> str:
    """Return a pattern for words as a view has them."""
    return "|".join(folded(word.replace("·", " ")).decode("latin-1") for word in words)


def _spelled(words: Iterable[str]) -> str:
    """Return a pattern for words as they are written, with their accents and without."""
    return "|".join(word.replace("·", " ") for word in words) + "|" + _any(words)


_KEYS = rf"(?:{'|'.join(_KEY_OF)})[_ .-]?key"
_WORDS = (
    rf"(?i)(?P<plain>{_KEYS}(?:[_.-]base)?|password|passwd|secret|token|cookies"
    r"|(?-i:[A-Z]_(?:KEY|AUTH|PAT)))"
    rf"|(?P<bent>{_any(_PASSWORDS)}|{PASSWORD}+|{KEY}+)"
    rf"|(?P<short>(?P<declined>{_any(_SHORT_BENT)})|{_any(_SHORT)})"
    rf"|(?P<login>{_any(_LOGINS)})"
)
_NAME = (
    rf"(?i).*(?:{_any(_PASSWORDS)}|secret|{PASSWORD}|{KEY})s?"
    rf"|(?:.*[_. -])?(?:{_any(_SHORT + _SHORT_BENT)})"
    rf"|.*{_KEYS}s?|.*secret[_. -]key[_. -]base"
    r"|(?-i:.*[a-z](?:Pass|Pwd|Pw|Psk)|[A-Z0-9_]+_(?:KEY|AUTH|PAT))"
    r"|(?:proxy[_-]?)?authorization|(?:set[_-]?)?cookies?|credentials?|auth"
)
ANCHORS = (
    rf"{_spelled(_PASSWORDS)}|(?:^|[^a-z]|[a-z](?-i:P))(?:{_spelled(_SHORT + _SHORT_BENT)})"
    rf"|[a-z](?:{_any(_SHORT)})[^a-z]|secret|token|{_KEYS}"
    r"|(?-i:[a-z](?:Pass|Pwd|Pw|Psk)|[A-Z]_(?:KEY|AUTH|PAT))|authorization|cookie"
    rf"|(?:{_spelled(_LOGINS)})\w{{0,16}}\\*[\"']?(?:[ \t]{{0,2}}[(=:]|[ \t]with\b)|[ａ-ｚ]{{4}}|"
    + "|".join(word.replace("·", " ") for words in FOREIGN.values() for word in words)
)
"""What stands in every text that has a secret behind a name, in UTF-8; a pattern."""
_NAME_SIGNS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_LETTERS = frozenset(bytes([sign]) for sign in _NAME_SIGNS[:52])
_ALPHANUMERIC = frozenset(_NAME_SIGNS[:62])
_IN_NAMES = frozenset(bytes([sign]) for sign in _NAME_SIGNS[:63])
_ENDING, _BENT = r"(?i)(?:s|[_-]?\d{1,2})?", r"(?i)[a-z]{0,3}\d{0,2}"
"""What may stand behind the last word of a name; words of other languages are declined."""
_LOGIN_ENDING = r"\w{0,16}[^\w\n]{0,2}[ \t]{0,2}(?:[=:(]|[ \t]with\b)"


class Name(NamedTuple):
    """A name that a secret may stand behind.

    kind: "password", "key", "token" (an ordinary word, too), or "login": a user and a password may
    follow.
    """

    start: int
    end: int
    text: str
    kind: str


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether what stands under this name is a secret, if it can be one."""
    plain = folded(name)
    if name.islower() and compiled(_GLUED).fullmatch(plain) is not None:
        return not name.endswith(_HARMLESS_PASSES)
    if compiled(_NAME).fullmatch(plain) is not None:
        return True
    of, token, behind = plain.decode("latin-1").lower().rpartition("token")
    return bool(token) and not behind and not of.rstrip("_. -").endswith(_HARMLESS_TOKENS)


def kind_of(name: str) -> str:
    """Return of which kind the secret under a name is."""
    lowered = folded(name).decode("latin-1").lower().rstrip("s")
    if lowered == "token" or lowered.endswith((".token", " token")):
        return "token"
    if lowered.endswith("key"):
        return "key" if compiled(f"{_KEYS}\\z").search(lowered.encode("latin-1")) else "token"
    return "key" if lowered.endswith(("token", "secret", "cookie", "base", KEY)) else "password"


def names_in(view: View) -> Iterator[Name]:
    """Yield the names that a secret may stand behind, each up to its last word."""
    data = view.data
    words, at = compiled(_WORDS), 0
    while found := words.search(data, at):
        deadline.check()
        word, end = found.span()
        at = word + 1
        group = found.lastgroup
        start = _beginning(data, word)
        is_capital = data[word : word + 1].isupper() and data[word - 1 : word].islower()
        if group in (b"short", b"login") and data[word - 1 : word] in _LETTERS and not is_capital:
            glued = _beginning(data, word) if group == b"short" else word
            if compiled(_GLUED).fullmatch(data, glued, end) is None:
                continue
        if group == b"login":
            if compiled(_LOGIN_ENDING).match(data, end):
                yield Name(start, end, view.original(start, end), "login")
            continue
        ending = (
            compiled(_BENT if group == b"bent" or found.group(b"declined") else _ENDING)
            .match(data, end)
            .end()
        )
        if start > word or data[ending : ending + 1] in _IN_NAMES:
            continue
        text = view.original(start, end)
        if is_secret_name(text):
            yield Name(start, ending, text, kind_of(text))


def _beginning(data: bytes, word: int) -> int:
    """Return where the name begins that has a word in it; behind it if it is too long."""
    before = data[max(0, word - LONGEST) : word]
    start = word - len(before) + len(before.rstrip(_NAME_SIGNS))
    if start and start == word - LONGEST:
        while start <= word and data[start - 1] in _ALPHANUMERIC:
            start += 1
    while start < word and data[start] in b"-.":
        start += 1
    return start
