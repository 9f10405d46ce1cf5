"""How much like a secret a text is, by itself and under a name of a secret."""

from collections.abc import Iterator
from itertools import groupby, pairwise

from em.redaction.linear import compiled, has, is_all
from em.redaction.names import is_secret_name, kind_of

WORD, CHOSEN, RANDOM = 1, 2, 3
"""Degrees of strength: a word, a number or code; letters and digits; made by chance."""
_USUAL = dict(
    pair.split(":")
    for pair in """
    a:bcdfgiklmnprstuvwxy b:aceilorsuy c:acdehiklorstuy d:adeilorsu e:abcdefgilmnopqrstvwxy
    f:acefilorstuy g:aeghilnorsu h:aeiortu i:abcdefglmnoprstvxz j:e k:aeis l:adeilopstuvy
    m:abeilmopsu n:acdefgiklnopstuvy o:abcdfgiklmnoprstuvw p:aehiloprstuy q:u
    r:acdefgiklmnoprstuvy s:acefhiklmnopstuwy t:acdefhilmoprstuy u:abcdefgilmnprst v:aeio
    w:aehinors x:ceipt y:eimnpst z:ae
    """.split()
)
"""The letters that often follow a letter: 290 of the 676 pairs, and 96% of those in English and in
names of Python code (counted over the standard library and what is installed for development)."""
# The logarithm of how much likelier a thing is by chance than in a word or a name.
_USUAL_PAIR, _RARE_PAIR, _BOUNDARY = -0.8, 2.8, 1.8
_ENOUGH = 2.0
_SHORTEST_RANDOM, _LONG_RANDOM, _SHORTEST, _LONG_TOKEN, _LONG_AUTH = 8, 10, 6, 16, 12
_FEWEST_SIGNS = 4
"""Different signs of what chance made: `xxxxxxxxxxxx` stands in a gap."""
_SHORT_PARTS = 2.2
_FEW_WORDS = 7
_REFERENCE = r"\s*(?:\{\{.*\}\}|\$\{[^}]*\}|\$[A-Z_][A-Z0-9_]*|\*+|)\s*"
_YOURS = r"<?your[-_ ].*|(?:[a-z]+[-_])+(?:key|token|secret|password)|x{3,}|\.{3,}"
_IN_ITS_PLACE = frozenset(
    "password passwd pass pwd secret token key string string? binary? str bytes text none null "
    "undefined true false required optional".split()
)
"""What stands in the place of a secret in documents and types."""
_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+"
_CODED = (
    r"(?:^|[._])(?:pass|pwd|secret|token|key|arg|user|value|hash|md5|sha|base64|b64|utf|crypt"
    r"|argon)"
)
_ORDINARY = (
    # numbers with a unit, dates, versions and addresses
    r"[#vV~<>=+]{0,3}\d[\d.,:_/-]*[A-Za-z%]{0,4}|[A-Za-z]{0,3}\d{4}-\d\d-\d\d.*|[\d.]+[a-z]+\d*"
    # paths, addresses, names of files and hosts
    r"|[/~.].*|[A-Za-z]:[\\/].*|[a-z+]+:/.*|[^\s@]+@[^\s@]+\.[a-z]+|(?:[\w-]+[./])+(?:[a-z]{2,6}|[A-Z]{2,5})|@.*"
    # short names with a number, as algorithms, encodings, tickets and languages have
    r"|[A-Za-z]{1,4}[-_]?\d{1,5}|(?:[A-Z]+[-_]?){1,3}\d+"
    r"|(?i:utf|sha|aes|rsa|rs|es|hs|iso|rfc|ipv|oauth|http|base|pbkdf|argon|python|win|x|u?int|float"
    r"|ed|gpt|claude|llama)[-_]?\d{1,4}(?:[-_.].*)?"
    # code
    r"|.*(?:[({\[]|::|->).*|\$[A-Za-z_]\w*(?:[.:]\w+)*|%\w*%?|[{<].*|[A-Za-z_]\w*(?:\.[A-Za-z_]+\d?)+"
)
"""Texts with letters and digits that are no secrets, as a rule."""


def strength(text: str) -> int:
    """Return how much a text is like a secret wherever it stands."""
    if len(text) < _SHORTEST or not text.isascii():
        return 0
    has_digit = any(map(str.isdigit, text))
    if not has_digit or not any(map(str.isalpha, text)):
        is_mixed = any(map(str.islower, text)) and any(map(str.isupper, text[1:]))
        if not is_random(text) or not (text.isalnum() or len(text) >= _LONG_TOKEN):
            return WORD
        long = len(text) >= (_LONG_RANDOM if is_mixed else _LONG_TOKEN)
        return RANDOM if long else CHOSEN if is_mixed else WORD
    made = len(text) >= _LONG_RANDOM and is_random(text) and not is_path(text)
    if is_all(_ORDINARY, text) and not (made and len(text) >= _LONG_TOKEN):
        return WORD
    return RANDOM if made else CHOSEN


def is_random(text: str) -> bool:
    """Whether chance explains a text far better than words do: pairs of letters, case, digits."""
    if len(text) < _SHORTEST_RANDOM or not text.isascii() or len({*text}) < _FEWEST_SIGNS:
        return False
    if len(compiled(r"\d[A-Za-z]+\d").findall(text.encode())) > 1:
        return True
    if is_mixture(text):
        return True
    evidence = 0.0
    before = "-"
    for part in _parts(text):
        if part[0].isalnum() and before.isalnum():
            evidence += _BOUNDARY
        if part.isalpha():
            evidence += _pairs(part.lower())
        before = part[-1]
    return evidence > _ENOUGH


def _kind(sign: str) -> str:
    if not (sign.isascii() and sign.isalnum()):
        return "other"
    return "digit" if sign.isdigit() else "upper" if sign.isupper() else "lower"


def _parts(text: str) -> Iterator[str]:
    """Yield the runs of one kind of sign; a capital belongs to the small letters behind it."""
    capital = ""
    for kind, signs in groupby(text, _kind):
        part = "".join(signs)
        if kind == "lower":
            part = capital[-1:] + part
            capital = capital[:-1]
        if capital:
            yield capital
        capital = part if kind == "upper" else ""
        if not capital:
            yield part
    if capital:
        yield capital


def is_symbolic(text: str) -> bool:
    """Whether signs stand in one word as in passwords: `Berlin2078!`, `RuWqCpyVU&lP`."""
    if len(text) < _SHORTEST_RANDOM or not text.isascii() or any(map(str.isspace, text)):
        return False
    has_sign = has(r"[!@#$%^&*?~+=;<>|]", text[1:]) or text[0] in "!@#$%^&*?~+"
    has_digit = any(map(str.isdigit, text))
    is_code = is_all(
        r"[$%{<]?[A-Za-z_][\w.]*(?:[(\[{<].*|[?*!>}%])?|.*(?:==|&&|\|\||->|=>|</).*", text
    )
    return (
        has_sign and not is_code and (has_digit or has(r"[a-z]{1,3}[A-Z]{2}|[A-Z][a-z][A-Z]", text))
    )


def is_mixture(text: str) -> bool:
    """Whether letters of both cases, digits and signs change places, as in made passwords."""
    alphanumeric = [part for part in _parts(text) if part[0].isalnum()]
    signs = [sign for sign in text if not sign.isalnum() and sign not in "_-./:"]
    return (
        len(signs) > 1
        and sum(map(len, alphanumeric)) < _SHORT_PARTS * len(alphanumeric)
        and sum(map(str.isdigit, text)) > 1
        and any(map(str.isupper, text))
        and any(map(str.islower, text))
    )


def _pairs(letters: str) -> float:
    usual = sum(after in _USUAL[letter] for letter, after in pairwise(letters))
    return usual * _USUAL_PAIR + (len(letters) - 1 - usual) * _RARE_PAIR


def is_reference(value: str) -> bool:
    """Whether a text names where a secret is kept: `${DB_PASSWORD}`, stars, or nothing."""
    return is_all(_REFERENCE, value)


def is_placeholder(name: str, value: str) -> bool:
    """Whether a text stands in the place of a secret: a reference, the name once more, no text."""
    lowered = value.lower()
    plain = _letters(lowered)
    return (
        is_reference(value)
        or lowered in _IN_ITS_PLACE
        or not any(map(str.isalnum, value))
        or (bool(plain) and _letters(name.lower()).endswith(plain))
        or is_all(r"<?your[-_ ]\D*|<[\D]*>", lowered)
        or (is_all(_YOURS, lowered) and not has(r"\d", value))
        or is_all(r"\[[A-Z_]+\]|[\w-]*\.{3,}", value)
        or is_all(r"(?:.* )?(?:password|secret|passphrase|token)(?: .*)?", lowered)
    )


def _letters(text: str) -> str:
    return "".join(sign for sign in text if sign.isascii() and sign.isalnum())


def is_path(value: str) -> bool:
    """Whether a text begins as paths do, and has no long part as Base64 has."""
    if value[:1] not in {"/", "~", "."}:
        return is_all(r"[A-Za-z]:[\\/].*", value)
    longest = max(value.split("/"), key=len)
    kinds = (str.isdigit, str.isupper, str.islower)
    return len(longest) < _LONG_TOKEN or not all(any(map(kind, longest)) for kind in kinds)


def is_plausible(name: str, value: str, *, quoted: bool = True) -> bool:
    """Whether a text joined with a secret's name can be it: no path, no code, no word of prose."""
    lowered = name.lower()
    has_blank = " " in value
    if is_reference(value):
        fits = False
    elif lowered == "auth":
        fits = len(value) >= _LONG_AUTH and is_all(r"[A-Za-z0-9+/=_.-]+", value)
    elif kind_of(name) == "token":
        chosen = len(value) >= _SHORTEST_RANDOM and strength(value) >= CHOSEN
        long = len(value) >= _LONG_TOKEN and any(map(str.isdigit, value))
        is_value = chosen or long if quoted else long and _is_no_code(name, value)
        fits = not has_blank and (is_random(value) or is_value)
    elif lowered.endswith(("pwd", "pass", "pw", "psk")) and (is_path(value) or has_blank):
        fits = False
    else:
        fits = quoted or _is_no_code(name, value)
    return fits


def _is_no_code(name: str, value: str) -> bool:
    if value.startswith(("$(", "http:", "https:", "//")):
        return False
    is_code = is_all(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", value)
    if is_random(value) and not (is_code and "." in value and value.islower()):
        return True
    if is_code:
        # DB_PASSWORD=correcthorse is a setting, password=self.password is code
        return (name.isupper() and "." not in value) or _is_chosen(value)
    return has(r"[\d!@#$%^*+/=~]", value) or (kind_of(name) == "password" and is_phrase(value, "-"))


def is_phrase(value: str, signs: str) -> bool:
    """Whether it is made of four words or more, as people choose them by dice."""
    return any(is_all(rf"[a-z]{{3,9}}(?:[{sign}][a-z]{{3,9}}){{3,}}", value) for sign in signs)


def _is_chosen(value: str) -> bool:
    """Whether it is a password as people choose them, hunter2, and not the second of variables."""
    lowered = value.lower()
    is_one = is_all(
        r"[a-z]*\d[a-z0-9]*(?:[._]\d+)?|[a-z]+(?:[._][a-z]+)+\d{2,4}|[a-z]+[._-]\d{2,6}", lowered
    )
    return is_one and len(value) >= _SHORTEST and not has(_CODED, lowered)


def _is_mixed(value: str) -> bool:
    """Whether letters of both cases, digits and signs stand in a text."""
    kinds = (str.islower, str.isupper, str.isdigit)
    return all(any(map(kind, value)) for kind in kinds) and not value.isalnum()


def is_near_enough(name: str, value: str, words: int) -> bool:
    """Whether a text behind a secret's name, and behind so many other words, can be it."""
    degree, kind, lowered = strength(value), kind_of(name), name.lower()
    is_noun = kind == "password" and lowered != "pass" and "credential" not in lowered
    is_other = kind != "password" and is_all(_DOTTED, value)  # dsa.Ed25519PrivateKey
    if value.isdigit():  # "the password is 12345678"
        return words == 1 and len(value) >= _SHORTEST and "pass" in lowered
    if is_noun and words <= 1 and is_phrase(value, "-_.") and not is_secret_name(value):
        return True
    if degree < CHOSEN or any(map(str.isspace, value)) or is_placeholder(name, value):
        return False
    if is_other or (kind != "password" and is_secret_name(value)):
        return False
    if lowered == "pass":  # a verb, too
        return not words and degree >= RANDOM
    is_close = words <= _FEW_WORDS and (kind == "password" or (kind == "key" and _is_mixed(value)))
    is_long = words < 2 or len(value) >= _LONG_TOKEN
    return is_close or (degree >= RANDOM and (kind == "password" or is_long))
