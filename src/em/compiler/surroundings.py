"""Surroundings: parts of texts and places for new lines, found by what stands around them.

In several texts the same part is what stands between the same words on its line; a new line stands
between the same lines, or at its place in a list. The longest words that all have in common are
taken, and in each text they must lead to one place only.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from em.compiler.alignment import is_inside
from em.compiler.file_changes import FOLDER
from em.runner.expressions.functions import IN_ORDER, between, line_place, next_number, sign_of

MOST_LINES = 12
"""Places of one text at which a value is looked for."""
_RULER = re.compile(r"\n?([^a-zA-Z0-9\s])\1{2,}\n?")
"""A ruler of signs is as long as what stands beside it leaves room."""


_NUMBER = re.compile(r"(?<![A-Za-z_])\d+(?![A-Za-z_])")
MOST_AROUND = 4
"""Lines above or below an insertion that may say where it is."""
TELLING = re.compile(r"\S\S")
"""What a line has that says where it is."""


class Context(NamedTuple):
    """What stands before and after a part; a line break where the line begins or ends."""

    before: str
    after: str

    @property
    def is_telling(self) -> bool:
        """Whether there is something on both sides."""
        return bool(self.before.strip(" ") and self.after.strip(" "))

    def part_of(self, text: str) -> str | None:
        """Return the one part of a text that stands there; None if there is none, or several."""
        try:
            return between(text, self.before, self.after, "line")
        except ValueError:
            return None


def contexts(texts: Sequence[str], parts: Sequence[str]) -> Iterator[Context]:
    """Yield the contexts that lead to this part in each of the texts."""
    places = [[*_places(text, part)][:MOST_LINES] for text, part in zip(texts, parts, strict=True)]
    if not all(places):
        return
    found = [*_leading(places, texts, parts)]
    telling = [one for one in found if one.is_telling]
    # A space on one side is enough where nothing else leads there.
    yield from telling or found[:1]


def successions(texts: Sequence[str], numbers: Sequence[str]) -> Iterator[Context]:
    """Yield the contexts in which the texts have the numbers just before these."""
    places = [
        [*_places(text, str(int(one) - 1).zfill(len(one)))][:MOST_LINES]
        for text, one in zip(texts, numbers, strict=True)
    ]
    for first in places[0] if all(places) else ():
        others = [
            max(own, key=lambda one, first=first: _likeness(first, one))  # type: ignore[misc]
            for own in places[1:]
        ]
        found = _shared([first, *others])
        if found is not None and found.before and found.after and _is_next(found, texts, numbers):
            yield found


def _is_next(context: Context, texts: Sequence[str], numbers: Sequence[str]) -> bool:
    try:
        return [next_number(text, *context) for text in texts] == [*numbers]
    except ValueError:
        return False


def _leading(
    places: Sequence[Sequence[Context]], texts: Sequence[str], parts: Sequence[str]
) -> Iterator[Context]:
    """Yield what leads to the part in each text, from each of its places in the first one."""
    done: set[Context] = set()
    for first in places[0]:
        others = [
            max(own, key=lambda one, first=first: _likeness(first, one))  # type: ignore[misc]
            for own in places[1:]
        ]
        shared = _shared([first, *others])
        for found in () if shared is None else (_without_numbers(shared), shared):
            if found in done or not found.before or not found.after:
                continue
            done.add(found)
            if all(found.part_of(text) == part for text, part in zip(texts, parts, strict=True)):
                yield found
                break


def _places(text: str, part: str) -> Iterator[Context]:
    """Yield what stands before and after a part on each line that has it as words of its own."""
    for line in text.split("\n"):
        at = line.find(part)
        while at >= 0:
            end = at + len(part)
            if not is_inside(line, at) and not is_inside(line, end) and FOLDER not in line:
                yield Context(line[:at], line[end:])
            at = line.find(part, at + 1)


def _likeness(one: Context, other: Context) -> int:
    before = shared_start([one.before[::-1], other.before[::-1]])
    return len(before) + len(shared_start([one.after, other.after]))


def _shared(places: Sequence[Context]) -> Context | None:
    """Return what all places have around them; None if that is next to nothing."""
    before = shared_words([one.before[::-1] for one in places])[::-1]
    after = shared_words([one.after for one in places])
    if all(one.before == before for one in places):
        before = f"\n{before}"
    if all(one.after == after for one in places):
        after = f"{after}\n"
    before = _RULER.sub("\0", before).rpartition("\0")[2]
    after = _RULER.sub("\0", after).partition("\0")[0]
    is_empty = not (before and after) or not (before + after).strip(" ")
    return None if is_empty else Context(before, after)


def _without_numbers(context: Context) -> Context:
    """Return the context up to the next numbers: they are values themselves, as a line's is."""
    before, after = context
    return Context(_NUMBER.split(before)[-1], _NUMBER.split(after)[0])


def shared_words(texts: Sequence[str]) -> str:
    """Return what all texts begin with, without a part of a word, number or date at its end."""
    found = "".join(shared_start(texts))
    while found and any(is_inside(text, len(found)) for text in texts):
        found = found[:-1]
    return found


def shared_start(rows: Sequence[str] | Sequence[list[str]]) -> list[str]:
    """Return the characters, or the words, that all texts begin with."""
    ends: list[list[str]] = [[*min(rows)], [*max(rows)]]
    return [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], zip(*ends, strict=False))]


class Position(NamedTuple):
    """What `line_place` takes behind a text."""

    how: str
    about: tuple[str, ...] = ()

    @property
    def takes_new(self) -> bool:
        """Whether it takes the new lines too."""
        return self.how == IN_ORDER

    def line(self, text: str, new: str) -> int | None:
        """Return the number of lines before it; None if the text has no such place."""
        try:
            return line_place(text, self.how, *self.about, *([new] if self.takes_new else ()))
        except ValueError:
            return None


def positions(
    texts: Sequence[str], new: Sequence[str], lines: Sequence[int], heads: Sequence[str]
) -> Iterator[Position]:
    """Yield all that gives the line in each text, the most telling first.

    heads: what the new lines begin with before their first value, which may be another one.
    """
    for one in dict.fromkeys(_candidates(texts, heads, lines)):
        found = [one.line(text, own) for text, own in zip(texts, new, strict=True)]
        if found == [*lines]:
            yield one


def _candidates(
    texts: Sequence[str], heads: Sequence[str], lines: Sequence[int]
) -> Iterator[Position]:
    rows = [text.split("\n") for text in texts]
    below = [own[line] for own, line in zip(rows, lines, strict=True)]
    above = [own[line - 1] if line else "" for own, line in zip(rows, lines, strict=True)]
    start = shared_words(below)
    if TELLING.search(start):
        yield Position("before first", (start,))
        kinds = {sign_of(line[len(start) :][:1]) for line in below}
        if len(kinds) == 1:
            # The next entry is like those of all sessions: a version, not "Unreleased".
            yield Position("before first", (start, kinds.pop()))
    yield from _around("after", rows, lines, -1)
    yield from _around("before", rows, lines, 1)
    for others in (above, below):
        start = shared_words([*heads, *others])
        if start.strip():
            yield Position("after block", (start,))
            yield Position(IN_ORDER, (start,))
            yield Position("after last", (start,))
            yield from _headings(rows, lines, start)
    yield Position(IN_ORDER, ("",))
    yield Position("end")


def _headings(
    rows: Sequence[Sequence[str]], lines: Sequence[int], start: str
) -> Iterator[Position]:
    """Yield the line that stands above the list to which a line is added."""
    found = set()
    for own, line in zip(rows, lines, strict=True):
        above = (one for one in reversed(own[:line]) if one.strip() and not one.startswith(start))
        found.add(next(above, ""))
    if len(found) == 1 and TELLING.search(heading := found.pop()):
        yield Position("after list", (heading, start))


def _around(
    how: str, rows: Sequence[Sequence[str]], lines: Sequence[int], side: int
) -> Iterator[Position]:
    """Yield the fewest lines above or below that are the same in all texts, and say something."""
    for count in range(1, MOST_AROUND):
        some = [
            own[max(0, line - count) : line] if side < 0 else own[line : line + count]
            for own, line in zip(rows, lines, strict=True)
        ]
        found = {"".join(f"{row}\n" for row in one) for one in some}
        anchor = found.pop()
        if found:
            return
        if TELLING.search(anchor) if side < 0 else anchor.strip():
            yield Position(how, (anchor,))
            return
