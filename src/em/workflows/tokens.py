"""How many tokens a text has, about: each model has its own tokenizer, and the core has none."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from em.runner.expressions.functions import as_text

CountTokens = Callable[[str], int]

_PIECE = re.compile(r"[A-Za-z]+|\d{1,3}|[^\sA-Za-z\d]")
LETTERS = 7
"""A Latin word of up to so many letters is one token as a rule."""


def about(text: str) -> int:
    """A guess: words by their length, other signs one by one. `bench` has it beside a real one."""
    return sum(
        -(-len(piece) // LETTERS) if piece.isascii() else 1 for piece in _PIECE.findall(text)
    )


def tokens_of(value: Any, count: CountTokens = about) -> int:
    """The tokens of a value as it would stand in a prompt."""
    if isinstance(value, str):
        return count(value)
    if value is None:
        return 0
    return count(as_text(value) if isinstance(value, dict | list) else str(value))


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What a step was sent, beside what it would have been with everything that there was.

    `told`: what the provider counted itself, where it does.
    """

    sent: int = 0
    full: int = 0
    told: int | None = None

    @property
    def saved(self) -> int:
        """How many fewer."""
        return self.full - self.sent

    def __add__(self, other: "Tokens") -> "Tokens":
        told = None if None in (self.told, other.told) else (self.told or 0) + (other.told or 0)
        return Tokens(sent=self.sent + other.sent, full=self.full + other.full, told=told)
