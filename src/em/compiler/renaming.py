"""A renaming: the words of some values become other words of the same form, wherever they stand.

A routine that uses an input does with the new words what it did with the old ones. One that has
the recorded value written into it keeps the old word, and that shows. Words are renamed one by one
and keep their case, so that `Ana Silva`, `ana@shop.example` and `dear-ana` still belong together.
They keep their place in the order of all words too: a routine that sorts does the same with them.
"""

import re
import string
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import product
from typing import Any

from em.text.slug import has_humps
from em.values.leaves import is_by_id, scalars
from em.values.times import is_date

FEWEST_LETTERS = 3
FEWEST_DIGITS = 4
"""Signs of a word that is renamed: shorter ones stand everywhere by chance."""
TRIES = 5
"""Words that are tried before one more sign of the old word stays."""
MOST_TURNS = 64
"""Words that are tried for another one of the same form."""
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\d_A-Z]+|[A-Z]+|[^\W_]+")
"""Matches the words of a name in camel case."""


class Renaming:
    """New words for the words of some values.

    others: values that stand beside them; no new word is one of theirs.
    """

    def __init__(self, values: Iterable[Any], others: Any = None) -> None:
        taken = sorted({word.lower() for word in _words_in([others])})
        self._new: dict[str, str] = {}
        for value in values:
            for whole in _own_words(value):
                parts = [part.lower() for part in _parts(whole)]
                for word in parts:
                    if word not in self._new and len(word) >= FEWEST_LETTERS:
                        self._new[word] = _fresh(word, taken)
                        insort(taken, self._new[word])
                if len(parts) > 1:
                    self._new.setdefault(whole.lower(), "".join(map(self._text, parts)))

    def __bool__(self) -> bool:
        return bool(self._new)

    def of(self, value: Any) -> Any:
        """Return a value with the new words, in texts, in numbers of many digits and in ids."""
        if isinstance(value, dict):
            by_id = is_by_id(value)
            return {self._text(key) if by_id else key: self.of(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if isinstance(value, str):
            return value if is_date(value) else self._text(value)
        if isinstance(value, int) and str(value) in self._new:
            return int(self._new[str(value)])
        return value

    def _text(self, text: str) -> str:
        return _WORD.sub(lambda match: "".join(map(self._word, _parts(match[0]))), text)

    def _word(self, word: str) -> str:
        new = self._new.get(word.lower())
        return word if new is None else _cased(new, word)


def _parts(word: str) -> list[str]:
    """Return the words of a name in camel case; of all else the word itself."""
    return _PART.findall(word) if has_humps(word) and word.isalpha() else [word]


def _own_words(value: Any) -> list[str]:
    """Return the words of a value that tell it from others."""
    if isinstance(value, bool) or not isinstance(value, int | str) or is_date(value):
        return []
    # The host of an address is shared by many.
    own, at, _ = str(value).partition("@")
    words = _WORD.findall(own)
    numbers = [word for word in words if _digits(word) >= FEWEST_DIGITS]
    if numbers and not at:
        return numbers  # an id: what stands before its number says what it is an id of
    return [word for word in words if len(word) >= FEWEST_LETTERS and not word.isdigit()]


def _digits(word: str) -> int:
    return sum(map(str.isdigit, word))


def _words_in(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        for _, scalar in scalars(value):
            yield from _WORD.findall(str(scalar))
        yield from _keys_in(value)


def _keys_in(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _WORD.findall(str(key))
            yield from _keys_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from _keys_in(one)


def _fresh(word: str, taken: Sequence[str]) -> str:
    """Return another word of the same form; the same one each time.

    taken: words in their order. The new one stands between the same two, if one of its form does.
    Where all with the same zeros are taken, as in a list of `00001` to `00009`, zeros change too.
    Where hardly any word of the form is left, it stays as it is.
    """
    before, after = bisect_left(taken, word), bisect_right(taken, word)
    others: list[str] = []
    for kept, turn in product(range(len(word)), range(TRIES)):
        if not kept:
            others.append(_other(word, turn))
        made = word[:kept] + others[turn][kept:]
        place = bisect_left(taken, made)
        is_new = made != word and made not in taken[place : place + 1]
        if is_new and place in (before, after):
            return made
    for turn in range(TRIES, MOST_TURNS):
        made = _other(word, turn)
        place = bisect_left(taken, made)
        if made != word and made not in taken[place : place + 1]:
            return made
    return word


def _other(word: str, turn: int) -> str:
    """Return a word of the same form, another one each turn."""
    zeros = turn >= MOST_TURNS // 2
    signs = sha256(f"{turn} {word}".encode()).digest() * (len(word) // 32 + 1)
    letters = _digits(word) < FEWEST_DIGITS
    return "".join(
        _sign(*pair, letters=letters, zeros=zeros) for pair in zip(word, signs, strict=False)
    )


def _sign(old: str, chance: int, *, letters: bool, zeros: bool) -> str:
    """Return another sign. The letters of a number stay: they say what it is a number of."""
    if old.isdigit():
        return str(chance % 9 + 1) if zeros or old != "0" else "0"
    return string.ascii_lowercase[chance % 26] if letters and old.isalpha() else old


def _cased(new: str, old: str) -> str:
    if old.isupper():
        return new.upper()
    rest: Callable[[str], str] = str.lower if old[1:].islower() else str
    return new[:1].upper() + rest(new[1:]) if old[:1].isupper() else new
