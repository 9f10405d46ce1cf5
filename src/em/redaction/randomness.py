"""Whether a text was made by chance, as keys are, or by people, as words and names in code are."""

import re
from itertools import pairwise

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

_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z]|\d+|[^A-Za-z0-9]+", re.ASCII)
_DIGITS_INSIDE = re.compile(r"\d[A-Za-z]+\d", re.ASCII)

# The logarithm of how much likelier a thing is by chance than in a word or a name.
_USUAL_PAIR, _RARE_PAIR, _BOUNDARY = -0.8, 2.8, 1.8
_ENOUGH = 2.0
_SHORTEST = 8
_SHORT_PARTS = 2.2


def is_random(text: str) -> bool:
    """Whether chance explains a text far better than words do: pairs of letters, case, digits."""
    if len(text) < _SHORTEST or not text.isascii():
        return False
    if len(_DIGITS_INSIDE.findall(text)) > 1:
        return True
    if is_mixture(text):
        return True
    evidence = 0.0
    before = "-"
    for part in _PARTS.findall(text):
        if part[0].isalnum() and before.isalnum():
            evidence += _BOUNDARY
        if part.isalpha():
            evidence += _pairs(part.lower())
        before = part[-1]
    return evidence > _ENOUGH


def is_mixture(text: str) -> bool:
    """Whether letters of both cases, digits and signs change places, as in made passwords."""
    alphanumeric = [part for part in _PARTS.findall(text) if part[0].isalnum()]
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
