"""Lines: where something stands in the text of a file, as routines of coding sessions say it.

Whatever is not clear fails: a line that is not there, or that is there twice.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any


def line_place(text: Any, how: str, *about: str) -> int:
    """Return how many lines stand before the place of new lines; see `_PLACES`."""
    if how not in _PLACES:
        raise ValueError(f"line_place() knows {', '.join(_PLACES)}, got {how!r}")
    return _PLACES[how](str(text), *about)


def _end(text: str) -> int:
    """Return how many lines a text has; the last one must end with a line break."""
    if text and not text.endswith("\n"):
        raise ValueError("the last line must end with a line break")
    return text.count("\n")


def _after(text: str, lines: str) -> int:
    """Return how many lines there are up to the end of some whole lines, which stand there once."""
    return _before(text, lines) + lines.count("\n")


def _before(text: str, lines: str) -> int:
    """Return how many lines stand before some whole lines, which stand there once."""
    whole = f"\n{text}"
    if not lines.endswith("\n") or whole.count(f"\n{lines}") != 1:
        raise ValueError(f"the lines {lines!r} must stand there once")
    return whole.partition(f"\n{lines}")[0].count("\n")


def _before_first(text: str, start: str, sign: str = "") -> int:
    """Return how many lines stand before the first one that begins with a text.

    sign: what comes next there: a `digit`, a `letter`, or a certain sign.
    """
    for number, line in enumerate(text.split("\n")):
        after = line[len(start) :][:1]
        if start and line.startswith(start) and (not sign or sign_of(after) == sign):
            return number
    raise ValueError(f"no line begins with {start!r}{f' and a {sign}' * bool(sign)}")


def _after_last(text: str, start: str) -> int:
    """Return how many lines there are up to the last one that begins with a text."""
    lines = text.split("\n")
    found = [number for number, line in enumerate(lines) if start and line.startswith(start)]
    if not found:
        raise ValueError(f"no line begins with {start!r}")
    return found[-1] + 1


def _after_block(text: str, start: str) -> int:
    """Return the same, if the lines that begin so follow each other: they are one list."""
    if not start:
        raise ValueError("line_place() needs what the lines of a block begin with")
    first, rows = _block(text, start)
    return first + len(rows)


def _after_list(text: str, heading: str, start: str) -> int:
    """Return how many lines there are up to the end of the list below a heading.

    heading: a whole line that stands there once. start: what the lines of the list begin with;
    empty lines may stand before and between them.
    """
    first = _after(text, f"{heading}\n")
    last = 0
    for number, line in enumerate(text.split("\n")[first:], first + 1):
        if line.strip() and not line.startswith(start):
            break
        last = number if line.strip() else last
    if not last:
        raise ValueError(f"no line below {heading!r} begins with {start!r}")
    return last


def _in_order(text: str, start: str, line: str) -> int:
    """Return how many lines stand before the place of a line in a list that is in order.

    start: what the lines of the list begin with.
    """
    first, rows = _block(text, start)
    if any(one >= two for one, two in itertools.pairwise(rows)):
        raise ValueError(f"the lines that begin with {start!r} are not in order")
    new = str(line).partition("\n")[0]
    return first + sum(row < new for row in rows)


def _block(text: str, start: str) -> tuple[int, list[str]]:
    """Return the lines that begin with a text, and how many stand before them.

    Without a beginning they are all lines that are not empty.
    """
    lines = text.split("\n")
    found = [number for number, line in enumerate(lines) if line and line.startswith(start)]
    if not found or found[-1] - found[0] != len(found) - 1:
        raise ValueError(
            f"the lines that begin with {start!r} must be there, without others between"
        )
    return found[0], lines[found[0] : found[-1] + 1]


def sign_of(text: str) -> str:
    """Return what kind of sign a text is: a digit, a letter, or itself."""
    return "digit" if text.isdigit() else "letter" if text.isalpha() else text


IN_ORDER = "in order"
"""The place of a line among others, which depends on its words."""
_PLACES: dict[str, Callable[..., int]] = {
    "end": _end,
    "after": _after,
    "before": _before,
    "before first": _before_first,
    "after last": _after_last,
    "after block": _after_block,
    "after list": _after_list,
    IN_ORDER: _in_order,
}
"""The places that `line_place` knows."""


def parts_of_lines(text: str, before: str, after: str) -> Iterator[str]:
    """Yield what stands between two texts on a line that has them.

    `before` may begin with a line break, and `after` may end with one: the line begins or ends
    there.
    """
    head, tail = before.removeprefix("\n"), after.removesuffix("\n")
    at_start, at_end = head != before, tail != after
    if "\n" in head or "\n" in tail or not (before or after):
        raise ValueError("what stands around a part of a line must be on that line")
    for line in text.split("\n"):
        start = line.find(head)
        while start >= 0 and not (at_start and start):
            rest = line[start + len(head) :]
            cut = len(rest) - len(tail) if at_end else rest.find(tail)
            if cut > 0 and (not at_end or rest.endswith(tail)):
                yield rest[:cut]
            start = line.find(head, start + 1)


def next_number(text: Any, before: str, after: str) -> str:
    """Return the number behind the greatest one between two texts on the lines of a text.

    It is as wide as that one, with zeros in front if it had some. Fails if there is none.
    """
    found = [part for part in parts_of_lines(str(text), before, after) if part.isdecimal()]
    if not found:
        raise ValueError(f"no line has a number between {before!r} and {after!r}")
    greatest = max(found, key=int)
    return str(int(greatest) + 1).zfill(len(greatest))


def stands_once(text: Any, part: Any, how: str = "") -> bool:
    """Return whether a text stands exactly once in another one; `lines`: as whole lines."""
    if how not in ("", "lines"):
        raise ValueError(f"stands_once() knows `lines`, got {how!r}")
    if not how:
        return bool(part) and str(text).count(str(part)) == 1
    whole, lines = f"\n{text}\n", str(part).removesuffix("\n")
    return bool(lines) and whole.count(lines) == 1 and f"\n{lines}\n" in whole


def stands_in(text: Any, part: Any, times: int = 1) -> bool:
    """Return whether a part stands in a text as words of its own: not `1.2` in `1.2.3`.

    A number stands there however it is written. times: how often it must stand there at least.
    """
    if isinstance(part, int | float) and not isinstance(part, bool):
        written = (float(one.replace(",", "")) for one in _NUMBER.findall(str(text)))
        return sum(one == part for one in written) >= times
    whole = str(part)
    before = _BEFORE if whole[:1].isalnum() else ""
    after = _AFTER if whole[-1:].isalnum() else ""
    found = re.finditer(f"{before}{re.escape(whole)}{after}", str(text))
    return bool(whole) and sum(1 for _ in found) >= times


_BEFORE, _AFTER = r"(?<!\w)(?<!\d[.,])", r"(?!\w)(?![.,]\d)"
_NUMBER = re.compile(rf"{_BEFORE}-?\d[\d,]*(?:\.\d+)?{_AFTER}", re.ASCII)


def lists_only(output: Any, *paths: str) -> bool:
    """Return whether a search found something in these files, and in no others.

    Each line of its output is a path, or begins with one and a colon.
    """
    found = {line.partition(":")[0] for line in str(output).split("\n") if line}
    own = {path.removeprefix("./") for path in paths}
    return bool(found) and {path.removeprefix("./") for path in found} <= own
