"""Whether a text was made by chance, as keys are, or by people, as words and names in code are."""

from collections.abc import Iterator
from itertools import groupby, pairwise

from em.redaction.linear import compiled

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
_SHORTEST = 8
_SHORT_PARTS = 2.2


def is_random(text: str) -> bool:
    """Whether chance explains a text far better than words do: pairs of letters, case, digits."""
    if len(text) < _SHORTEST or not text.isascii():
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
