"""Lines: where something stands in the text of a file, as routines of coding sessions say it.

Whatever is not clear fails: a line that is not there, or that is there twice.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any


def line_part(text: Any, before: str, after: str) -> str:
    """Return what stands between two texts on the one line that has them; else fail.

    `before` may begin with a line break, and `after` may end with one: the line begins or ends
    there. There must be exactly one such place in the whole text.
    """
    found = list(itertools.islice(_between_on_lines(str(text), before, after), 2))
    if len(found) != 1:
        how = "more than one line has" if found else "no line has"
        raise ValueError(f"{how} something between {before!r} and {after!r}")
    return found[0]


def _between_on_lines(text: str, before: str, after: str) -> Iterator[str]:
    head, tail = before.removeprefix("\n"), after.removesuffix("\n")
    at_start, at_end = head != before, tail != after
    if "\n" in head or "\n" in tail or not (before or after):
        raise ValueError("line_part() needs texts of one line")
    for line in text.split("\n"):
        start = line.find(head)
        while start >= 0 and not (at_start and start):
            rest = line[start + len(head) :]
            cut = len(rest) - len(tail) if at_end else rest.find(tail)
            if cut > 0 and (not at_end or rest.endswith(tail)):
                yield rest[:cut]
            start = line.find(head, start + 1)


def lines_after(text: Any, lines: str) -> int:
    """Return how many lines a text has up to the end of some whole lines, which it has once."""
    whole = f"\n{text}"
    if not lines.endswith("\n") or whole.count(f"\n{lines}") != 1:
        raise ValueError(f"the lines {lines!r} must stand there once")
    return whole.partition(f"\n{lines}")[0].count("\n") + lines.count("\n")


def lines_before(text: Any, start: str, sign: str = "") -> int:
    """Return how many lines stand before the first one that begins with a text.

    sign: what comes next there: a `digit`, a `letter`, or a certain sign.
    """
    for number, line in enumerate(str(text).split("\n")):
        after = line[len(start) :][:1]
        if start and line.startswith(start) and (not sign or sign_of(after) == sign):
            return number
    raise ValueError(f"no line begins with {start!r}{f' and a {sign}' * bool(sign)}")


def lines_above(text: Any, lines: str) -> int:
    """Return how many lines stand before some whole lines, which a text has once."""
    whole = f"\n{text}"
    if not lines.endswith("\n") or whole.count(f"\n{lines}") != 1:
        raise ValueError(f"the lines {lines!r} must stand there once")
    return whole.partition(f"\n{lines}")[0].count("\n")


def lines_through(text: Any, start: str) -> int:
    """Return how many lines a text has up to the last one that begins with a text.

    The lines that begin so must follow each other: they are one list.
    """
    if not start:
        raise ValueError("lines_through() needs what the lines begin with")
    first, rows = _block(text, start)
    return first + len(rows)


def lines_to_last(text: Any, start: str) -> int:
    """Return how many lines a text has up to the last one that begins with a text."""
    lines = str(text).split("\n")
    found = [number for number, line in enumerate(lines) if start and line.startswith(start)]
    if not found:
        raise ValueError(f"no line begins with {start!r}")
    return found[-1] + 1


def end_of_list(text: Any, heading: str, start: str) -> int:
    """Return how many lines a text has up to the end of the list below a heading.

    heading: a whole line that stands there once. start: what the lines of the list begin with;
    empty lines may stand before and between them.
    """
    first = lines_after(text, f"{heading}\n")
    last = 0
    for number, line in enumerate(str(text).split("\n")[first:], first + 1):
        if line.strip() and not line.startswith(start):
            break
        last = number if line.strip() else last
    if not last:
        raise ValueError(f"no line below {heading!r} begins with {start!r}")
    return last


def sorted_place(text: Any, start: str, line: str) -> int:
    """Return how many lines stand before the place of a line in a list that is in order.

    start: what the lines of the list begin with.
    """
    first, rows = _block(text, start)
    if any(one >= two for one, two in itertools.pairwise(rows)):
        raise ValueError(f"the lines that begin with {start!r} are not in order")
    new = str(line).partition("\n")[0]
    return first + sum(row < new for row in rows)


def _block(text: Any, start: str) -> tuple[int, list[str]]:
    """Return the lines that begin with a text, and how many stand before them.

    Without a beginning they are all lines that are not empty.
    """
    lines = str(text).split("\n")
    found = [number for number, line in enumerate(lines) if line and line.startswith(start)]
    if not found or found[-1] - found[0] != len(found) - 1:
        raise ValueError(
            f"the lines that begin with {start!r} must be there, without others between"
        )
    return found[0], lines[found[0] : found[-1] + 1]


def stands_once(text: Any, part: Any) -> bool:
    """Return whether a text stands exactly once in another one."""
    return bool(part) and str(text).count(str(part)) == 1


def lines_once(text: Any, lines: Any) -> bool:
    """Return whether some lines stand in a text as whole lines, and nowhere else in it."""
    whole, part = f"\n{text}\n", str(lines).removesuffix("\n")
    return bool(part) and whole.count(part) == 1 and f"\n{part}\n" in whole


def lists_only(output: Any, *paths: str) -> bool:
    """Return whether a search found something in these files, and in no others.

    Each line of its output is a path, or begins with one and a colon.
    """
    found = {line.partition(":")[0] for line in str(output).split("\n") if line}
    own = {path.removeprefix("./") for path in paths}
    return bool(found) and {path.removeprefix("./") for path in found} <= own


def absent(text: Any, part: Any) -> bool:
    """Return whether a text does not stand in another one."""
    return str(part) not in str(text)


def line_count(text: Any) -> int:
    """Return how many lines a text has; the last one must end with a line break."""
    whole = str(text)
    if whole and not whole.endswith("\n"):
        raise ValueError("the last line must end with a line break")
    return whole.count("\n")


def sign_of(text: str) -> str:
    """Return what kind of sign a text is: a digit, a letter, or itself."""
    return "digit" if text.isdigit() else "letter" if text.isalpha() else text


LINES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        line_part, line_count, lines_after, lines_before, lines_above, lines_through,
        lines_to_last, end_of_list, sorted_place, lines_once, stands_once, absent, lists_only,
    )
}  # fmt: skip
"""These functions by name."""
