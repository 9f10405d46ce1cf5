"""Insertion: where a new line stands in a file, by the lines around it or its place in a list."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.context import shared_words
from em.runner.expressions import file_lines
from em.runner.expressions.file_lines import sign_of

MOST_LINES = 4
"""Lines above or below an insertion that may say where it is."""
TELLING = re.compile(r"\S\S")
"""What a line has that says where it is."""


class Position(NamedTuple):
    """A function of a text that gives the line. takes_new: it takes the new lines too."""

    function: str
    args: tuple[str, ...] = ()
    takes_new: bool = False

    def line(self, text: str, new: str) -> int | None:
        """Return the number of lines before it; None if the text has no such place."""
        call: Callable[..., Any] = getattr(file_lines, self.function)
        try:
            return int(call(text, *self.args, *([new] if self.takes_new else ())))
        except ValueError:
            return None


def positions(texts: Sequence[str], new: Sequence[str], lines: Sequence[int]) -> Iterator[Position]:
    """Yield all that gives the line in each text, the most telling first."""
    for one in dict.fromkeys(_candidates(texts, new, lines)):
        found = [one.line(text, own) for text, own in zip(texts, new, strict=True)]
        if found == [*lines]:
            yield one


def _candidates(
    texts: Sequence[str], new: Sequence[str], lines: Sequence[int]
) -> Iterator[Position]:
    rows = [text.split("\n") for text in texts]
    below = [own[line] for own, line in zip(rows, lines, strict=True)]
    above = [own[line - 1] if line else "" for own, line in zip(rows, lines, strict=True)]
    start = shared_words(below)
    if TELLING.search(start):
        yield Position("lines_before", (start,))
        kinds = {sign_of(line[len(start) :][:1]) for line in below}
        if len(kinds) == 1:
            # The next entry is like those of all sessions: a version, not "Unreleased".
            yield Position("lines_before", (start, kinds.pop()))
    yield from _around("lines_after", rows, lines, -1)
    yield from _around("lines_above", rows, lines, 1)
    first = [text.partition("\n")[0] for text in new]
    for others in (above, below):
        start = shared_words([*first, *others])
        if start.strip():
            yield Position("lines_through", (start,))
            yield Position("sorted_place", (start,), takes_new=True)
            yield Position("lines_to_last", (start,))
            yield from _headings(rows, lines, start)
    yield Position("sorted_place", ("",), takes_new=True)
    yield Position("line_count")


def _headings(
    rows: Sequence[Sequence[str]], lines: Sequence[int], start: str
) -> Iterator[Position]:
    """Yield the line that stands above the list to which a line is added."""
    found = set()
    for own, line in zip(rows, lines, strict=True):
        above = (one for one in reversed(own[:line]) if one.strip() and not one.startswith(start))
        found.add(next(above, ""))
    if len(found) == 1 and TELLING.search(heading := found.pop()):
        yield Position("end_of_list", (heading, start))


def _around(
    function: str, rows: Sequence[Sequence[str]], lines: Sequence[int], side: int
) -> Iterator[Position]:
    """Yield the fewest lines above or below that are the same in all texts, and say something."""
    for count in range(1, MOST_LINES):
        some = [
            own[max(0, line - count) : line] if side < 0 else own[line : line + count]
            for own, line in zip(rows, lines, strict=True)
        ]
        found = {"".join(f"{row}\n" for row in one) for one in some}
        anchor = found.pop()
        if found:
            return
        if TELLING.search(anchor) if side < 0 else anchor.strip():
            yield Position(function, (anchor,))
            return
