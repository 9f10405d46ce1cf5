"""Edits: a text that was read, written back with one value replaced."""

from collections.abc import Iterator

from em.compiler.example import Read
from em.compiler.places import walk

SHORTEST = 20
"""Characters of a text from which on it is no chance that another one is nearly the same."""


def edits(read: Read, text: str) -> Iterator[tuple[str, str]]:
    """Yield the values (old, new) of which replacing the one by the other gives a text.

    old: a value of what was read that stands in its text once.
    """
    raw = read.raw
    if len(raw) < SHORTEST or raw == text:
        return
    for _, _, old in walk(read.result):
        if not isinstance(old, str) or not old or old == raw or raw.count(old) != 1:
            continue
        before, _, after = raw.partition(old)
        is_edit = text.startswith(before) and text.endswith(after)
        if is_edit and len(text) >= len(before) + len(after):
            yield old, text[len(before) : len(text) - len(after)]
