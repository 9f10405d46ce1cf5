"""Anchors: texts of which one stands in every secret, so that a text without any is clean.

Most texts are clean, so that this one search is what redaction costs. Much text is searched by the
engine of `jsonschema-rs`, five times as fast as Python's; importing it pays where there is much.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from em.redaction.patterns import FIELD_ANCHORS, SHAPES

MUCH = 64 * 1024
"""Bytes of texts from which on the other engine looks for anchors."""
TOGETHER = 50
"""Texts that are searched as one: mostly none of them holds anything."""
WORDS = frozenset({"asia"})
"""Anchors that are plain words too; letters or digits follow them in every key."""


def with_anchor(texts: Sequence[bytes]) -> list[int]:
    """The numbers of the texts that have an anchor."""
    search = _fast() if sum(map(len, texts)) > MUCH else _plain()
    found: list[int] = []
    for start in range(0, len(texts), TOGETHER):
        group = texts[start : start + TOGETHER]
        if len(group) == 1 or search(b"\n".join(group).lower()):
            found += [start + n for n, text in enumerate(group) if search(text.lower())]
    return found


def has_anchor(lowered: str) -> bool:
    """Whether a text in lower case has an anchor; by the fast engine where it is loaded already."""
    search = _fast() if _fast.cache_info().currsize and lowered.isascii() else _plain()
    return search(lowered.encode("utf-8", "surrogatepass"))


def has_one_of(anchors: tuple[str, ...], lowered: str) -> bool:
    """Whether one of a shape's anchors stands in a text in lower case."""
    if len(anchors) == 1:
        return anchors[0] in lowered
    return _one_of(anchors).search(lowered) is not None


@lru_cache(maxsize=256)
def _one_of(anchors: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(_any_of({anchor.encode() for anchor in anchors}).decode())


@lru_cache(maxsize=1)
def _plain() -> Callable[[bytes], bool]:
    words = _any_of({word.encode() for word in WORDS}) + b"[a-z0-9]"
    pattern = re.compile(_any_of({one.encode() for one in _all() - WORDS}) + b"|" + words)
    return lambda lowered: pattern.search(lowered) is not None


@lru_cache(maxsize=1)
def _fast() -> Callable[[bytes], bool]:
    import jsonschema_rs

    literal = [_escaped(one) for one in sorted(_all() - WORDS)]
    words = [_escaped(one) + "[a-z0-9]" for one in sorted(WORDS)]
    schema = {"type": "string", "pattern": "|".join([*literal, *words])}
    is_valid = jsonschema_rs.validator_for(schema).is_valid
    return lambda lowered: is_valid(lowered.decode())


def _all() -> set[str]:
    return {anchor for shape in SHAPES for anchor in shape.anchors} | {*FIELD_ANCHORS}


def _escaped(text: str) -> str:
    return "".join(f"\\x{ord(char):02x}" for char in text)


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
