"""Diff: what changed between two texts, line by line, with the words that changed marked."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

CONTEXT = 3
"""Unchanged lines that are shown around a change."""
FEWEST = 4
"""Unchanged lines that are worth folding."""
MOST_LINES = 4_000
"""Lines of both texts that are compared with care: longer ones take too long."""
LONGEST = 2_000
"""Characters of a line that is compared by its words."""
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Part = tuple[str, bool]
"""A part of a line, and whether it changed."""


class DiffLine(NamedTuple):
    """A line with its numbers in the old and in the new text; None where it is not there."""

    kind: Literal["same", "add", "del"]
    old: int | None
    new: int | None
    parts: Sequence[Part]


class DiffBlock(NamedTuple):
    """Lines that stand together. `folded`: nothing changed in them, and they are not shown."""

    folded: bool
    lines: Sequence[DiffLine]


def diff_of(old: str, new: str) -> list[DiffBlock]:
    """Compare two texts. Return no blocks if they are the same."""
    before, after = old.splitlines(), new.splitlines()
    lines = list(_lines(before, after))
    if all(line.kind == "same" for line in lines):
        return []
    near = _near_changes(lines)
    blocks: list[DiffBlock] = []
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or near[end] != near[start]:
            is_long = end - start >= FEWEST
            blocks.append(DiffBlock(not near[start] and is_long, lines[start:end]))
            start = end
    return blocks


def _near_changes(lines: Sequence[DiffLine]) -> list[bool]:
    """Say for each line whether a change is close to it."""
    near = [False] * len(lines)
    for number, line in enumerate(lines):
        if line.kind != "same":
            first, last = max(0, number - CONTEXT), min(len(lines), number + CONTEXT + 1)
            near[first:last] = [True] * (last - first)
    return near


def _lines(before: Sequence[str], after: Sequence[str]) -> Iterator[DiffLine]:
    is_long = len(before) + len(after) > MOST_LINES
    for tag, i, j, k, m in SequenceMatcher(None, before, after, autojunk=is_long).get_opcodes():
        if tag == "equal":
            for offset, text in enumerate(before[i:j]):
                yield DiffLine("same", i + offset + 1, k + offset + 1, [(text, False)])
            continue
        both = () if is_long else zip(before[i:j], after[k:m], strict=False)
        pairs = [_words(*pair) for pair in both]
        for offset, text in enumerate(before[i:j]):
            parts = pairs[offset][0] if offset < len(pairs) else [(text, False)]
            yield DiffLine("del", i + offset + 1, None, parts)
        for offset, text in enumerate(after[k:m]):
            parts = pairs[offset][1] if offset < len(pairs) else [(text, False)]
            yield DiffLine("add", None, k + offset + 1, parts)


def _words(old: str, new: str) -> tuple[list[Part], list[Part]]:
    """Mark the words that differ in two lines; none if the lines have little in common."""
    if len(old) + len(new) > LONGEST:
        return [(old, False)], [(new, False)]
    before, after = _WORD.findall(old), _WORD.findall(new)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < 0.4:
        return [(old, False)], [(new, False)]
    left: list[Part] = []
    right: list[Part] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        changed = tag != "equal"
        if i < j:
            left.append(("".join(before[i:j]), changed))
        if k < m:
            right.append(("".join(after[k:m]), changed))
    return left, right
