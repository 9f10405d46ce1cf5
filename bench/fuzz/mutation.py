"""Mutation: small damage to a good input, drawn from a seeded source."""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

DEEP = 1_500
"""Levels of a nested value: beyond what Python and JSON libraries take."""

TEXTS = (
    "", " ", "\x00", "\ud800", "\ufeff", "é" * 300, "a" * 20_000, "null", "-1", "1e999", "NaN",
    "{{ x }}", "{% for", "}}", "{{", "$ref", "../../etc/passwd", "'; drop table x; --", "\n",
    "\r\n", "2026-02-31T25:61:61Z", "0001-01-01T00:00:00+14:00", "1970", "2026-11-16T10:00:00",
    "9999-12-31T23:59:59.999999999-23:59", "\ufb01\u202e", "[" * 200, '{"a":' * 200, "{}", "[]",
    '"', "\\", "0x",
    "%", "%zz", "a/b", "#", "true", "call_1", "user", "tool",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400, 1e308, -1e308, 5e-324, 0.1,
    float("nan"), float("inf"), 253402300800, -62135596801, 1e18, 1e30,
)  # fmt: skip
ODD: tuple[Any, ...] = (None, True, False, [], {}, [None], {"": None}, [[]], [{}], {"a": {"b": []}})
BYTES = (
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r", b"\\ud800", b'"', b"{", b"[",
    b"]", b"}", b",", b":", b"\t", b"\x1f\x8b", b"\xc3", b"1e999", b"- ", b"&a ", b"*a", b"!!set ",
    b"!!binary ", b"!!timestamp 2001-12-14", b"? ", b"<<: ", b"|", b">", b"%YAML 9.9\n",
    b"---\n", b"...",
)  # fmt: skip
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class Mutation:
    """Draws damage to values, texts and bytes. The same seed gives the same damage."""

    def __init__(self, seed: str) -> None:
        self.draw = random.Random(seed)

    def value(self, value: Any, others: Sequence[Any] = ()) -> Any:
        """Return a JSON value with one to four parts changed; the given one stays as it is."""
        made = json.loads(json.dumps(value))
        for _ in range(self.draw.choice((1, 1, 1, 2, 4))):
            made = self._changed(made, others)
        return made

    def _changed(self, value: Any, others: Sequence[Any]) -> Any:
        places = list(_places(value))
        if not places:
            return self._odd(value)
        parent, key = self.draw.choice(places)
        act = self.draw.choice(
            (self._replace, self._replace, self._drop, self._repeat, self._wrap, self._rename)
        )
        if others and self.draw.random() < 0.15:
            found = list(_places(self.draw.choice(others)))
            if found:
                holder, name = self.draw.choice(found)
                parent[key] = json.loads(json.dumps(holder[name]))
                return value
        act(parent, key)
        return value

    def _odd(self, value: Any) -> Any:
        kind = self.draw.random()
        if kind < 0.35:
            return self.draw.choice(TEXTS)
        if kind < 0.6:
            return self.draw.choice(NUMBERS)
        if kind < 0.63:
            return _nested(DEEP)
        if kind < 0.8:
            return self.text(value) if isinstance(value, str) else str(value)
        return json.loads(json.dumps(self.draw.choice(ODD)))

    def _replace(self, parent: Any, key: Any) -> None:
        parent[key] = self._odd(parent[key])

    def _drop(self, parent: Any, key: Any) -> None:
        del parent[key]

    def _repeat(self, parent: Any, key: Any) -> None:
        if isinstance(parent, list):
            parent.insert(self.draw.randrange(len(parent) + 1), parent[key])
        else:
            parent[f"{key}{self.draw.choice(('', '2', '_', ' '))}"] = parent[key]

    def _wrap(self, parent: Any, key: Any) -> None:
        kept = parent[key]
        parent[key] = self.draw.choice(
            ([kept], {"value": kept}, [kept, kept], {"0": kept},
             list(kept.values()) if isinstance(kept, dict) else kept,
             dict(enumerate_texts(kept)) if isinstance(kept, list) else kept)
        )  # fmt: skip

    def _rename(self, parent: Any, key: Any) -> None:
        if isinstance(parent, dict):
            other = self.draw.choice((*parent, *TEXTS[:12], f"{key}_"))
            parent[other] = parent.pop(key)
        else:
            other = self.draw.randrange(len(parent))
            parent[key], parent[other] = parent[other], parent[key]

    def text(self, text: str, words: Sequence[str] = ()) -> str:
        """Return a text with words left out, repeated, moved, or replaced by others."""
        parts = _WORD.findall(text)
        for _ in range(self.draw.choice((1, 1, 2, 3, 6))):
            at = self.draw.randrange(len(parts) + 1)
            kind = self.draw.random()
            if kind < 0.3 and parts:
                del parts[at : at + self.draw.choice((1, 1, 2, 5))]
            elif kind < 0.5 and parts:
                parts.insert(at, self.draw.choice(parts))
            elif kind < 0.6 and parts:
                parts[at : at + 4] = reversed(parts[at : at + 4])
            elif words and kind < 0.9:
                parts.insert(at, self.draw.choice(words))
            else:
                parts.insert(at, self.draw.choice(TEXTS[:30]))
        return "".join(parts)

    def lines(self, text: str) -> str:
        """Return a text with lines left out, repeated, moved, or indented otherwise."""
        parts = text.splitlines(keepends=True)
        for _ in range(self.draw.choice((1, 1, 2, 3))):
            if not parts:
                break
            at = self.draw.randrange(len(parts))
            kind = self.draw.randrange(5)
            if kind == 0:
                del parts[at]
            elif kind == 1:
                parts.insert(self.draw.randrange(len(parts) + 1), parts[at])
            elif kind == 2:
                parts[at] = " " * self.draw.choice((1, 2, 4)) + parts[at]
            elif kind == 3:
                parts[at] = parts[at].removeprefix("  ")
            else:
                parts[at] = self.text(parts[at])
        return "".join(parts)

    def data(self, data: bytes) -> bytes:
        """Return bytes with some left out, repeated, changed or inserted, or cut off."""
        made = bytearray(data)
        for _ in range(self.draw.choice((1, 1, 2, 4))):
            at = self.draw.randrange(len(made) + 1)
            length = self.draw.choice((1, 1, 2, 8, 64))
            kind = self.draw.randrange(6)
            if kind == 0:
                del made[at : at + length]
            elif kind == 1:
                made[at:at] = made[at : at + length] * self.draw.choice((1, 2, 50))
            elif kind == 2 and at < len(made):
                made[at] ^= 1 << self.draw.randrange(8)
            elif kind == 3:
                made[at:at] = self.draw.choice(BYTES)
            elif kind == 4 and at < len(made):
                made[at] = self.draw.randrange(256)
            elif self.draw.random() < 0.3:
                del made[at:]
        return bytes(made)


def written(value: Any) -> bytes:
    """Return a value as JSON; what JSON can't say (NaN) as Python says it."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        return b"[" * DEEP + b"]" * DEEP


def enumerate_texts(items: list[Any]) -> list[tuple[str, Any]]:
    """Return the items of a list with their numbers as texts."""
    return [(str(number), item) for number, item in enumerate(items)]


def _nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels // 10):
        value = [value]
    return value


def _places(value: Any) -> Any:
    """Yield the parent and the key of every part of a value."""
    todo = [value]
    while todo:
        parent = todo.pop()
        pairs: Any = (
            parent.items()
            if isinstance(parent, dict)
            else enumerate(parent)
            if isinstance(parent, list)
            else ()
        )
        for key, child in pairs:
            yield parent, key
            todo.append(child)


def smallest(data: bytes, fails: Callable[[bytes], bool], tries: int = 400) -> bytes:
    """Return the smallest part of an input that still fails, found by leaving out halves."""
    size = max(1, len(data) // 2)
    while size and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            tries -= 1
            shorter = data[:at] + data[at + size :]
            if fails(shorter):
                data = shorter
            else:
                at += size
        size //= 2
    return data


def smallest_value(value: Any, fails: Callable[[Any], bool], tries: int = 400) -> Any:
    """Return a value that still fails, with every part left out that is not needed."""
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for parent, key in list(_places(value))[::-1]:
            tries -= 1
            if tries <= 0:
                break
            kept = parent.pop(key) if isinstance(parent, dict) or key < len(parent) else None
            if fails(value):
                smaller = True
                continue
            if isinstance(parent, dict):
                parent[key] = kept
            else:
                parent.insert(key, kept)
    return value
