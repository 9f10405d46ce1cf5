"""Assumption: what a person who compiles takes for granted about a value of one recording.

A value that is small stands everywhere, so a place that has it needs the same name. What nothing
explains is constant, unless it looks like something that differs from run to run: then it is an
input. The same holds for what is left of a text when all known values are taken out: it is the
wording, unless it holds a decimal, a date, a part of a value that was known, or something that only
the request names.
"""

import calendar
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from em.compiler.evidence import ENOUGH_TO_ACT, SMALL_NUMBER, information, is_small
from em.compiler.example import Example, Read
from em.compiler.places import folded, is_exactly, is_number, is_scalar, lists_in, walk
from em.compiler.skeleton import Spot, is_label, known_values

PROSE = 10
"""Words from which on a text that was read is prose: somebody had to understand it."""
_DATE = re.compile(r"\d{4}-\d\d(-\d\d)?|\d{1,2}[./]\d{1,2}[./](\d{4}|\d\d)|\d{1,2}:\d\d")
ENOUGH_ALIKE = 3
"""Recordings in which the rest of a text must be the same to count as its wording."""
SHORTEST_PART = 3
SHORTEST_LINE = 8
LONGEST_NAME = 4
"""Words of a value whose parts are looked for; a longer one is a sentence."""
_MONTHS = "|".join(calendar.month_abbr[1:])
_VARYING = re.compile(
    r"(?<![\w.,])\d+[.,]\d+(?![\w]|[.,]\d)"  # a decimal
    r"|(?<!\d)\d{4}-\d\d(?:-\d\d)?(?!\d)"  # a date
    r"|(?<!\d)\d{1,2}[./]\d{1,2}[./]\d{2,4}(?!\d)"
    rf"|(?<!\d)\d{{1,2}}\.? (?:{_MONTHS})[a-z]* \d{{4}}"
    rf"|(?:{_MONTHS})[a-z]* \d{{1,2}}, \d{{4}}"
    r"|(?<!\d)(?:19|20)\d{6}(?!\d)"
)
_WORD = re.compile(r"\w+")


def is_given(value: Any, place_name: str, name: str, example: Example, before: int) -> bool:
    """Return whether an input that has a value is what an argument of this name is taken from.

    A small value of another name must be the only one: no result has it, no other argument, and
    the input is not needed for an argument of its own name.
    """
    if not is_small(value) or folded(place_name) == folded(name):
        return True
    args = [row for call in example.calls for row in call.args.items()]
    is_needed = any(folded(one) == folded(place_name) for one, _ in args)
    names = {one for one, held in args if is_exactly(held, value)}
    is_held = any(read.holds(value) for read in example.reads[:before])
    return not is_needed and not is_held and len(names) <= 1


def is_computed(value: Any, net: float, numbers: Sequence[Any], rivals: int) -> bool:
    """Return whether others gave a number, hardly by chance.

    net: the evidence in bits. numbers: all that were known. rivals: how many ways of computing it
    there are. A decimal or a negative number is no constant, so where two numbers were known that
    are not small, the one way to compute it is enough.
    """
    if net >= ENOUGH_TO_ACT:
        return True
    is_odd = isinstance(value, float) or value < 0
    return is_odd and rivals == 1 and len(numbers) == 2 and has_bits(numbers)


def has_bits(numbers: Sequence[Any]) -> bool:
    """Return whether numbers are so large that computing with them gives nothing by chance."""
    return sum(map(information, numbers)) >= 2 * ENOUGH_TO_ACT


def is_constant(value: Any, example: Example, before: int) -> bool:
    """Return whether a value that nothing explains is the same in every run."""
    if not is_scalar(value):
        return not value
    if value is None or isinstance(value, bool):
        return True
    if _NUMERAL.fullmatch(str(value)):
        return _is_constant_number(value, example, before)
    return not _DATE.fullmatch(str(value)) and not has_prose(example, before)


def _is_constant_number(value: Any, example: Example, before: int) -> bool:
    """Return whether a number is no count, no date, stands in no result, and was not computed."""
    reads = example.reads[:before]
    lists = [one for read in reads for _, one in lists_in(read.result)]
    is_count = value != 1 and any(len(one) == value for one in lists)
    if is_count or _DATE.fullmatch(str(value)) or any(_holds(read, value) for read in reads):
        return False
    is_few = str(value).isdigit() and len(str(value)) < len(str(SMALL_NUMBER))
    # A number can only have been computed where another one was known.
    return is_few or not _has_numbers(example, before)


_NUMERAL = re.compile(r"-?\d+(?:[.,]\d+)*")
_NUMBER_IN_TEXT = re.compile(r"(?<![\w.,/-])\d+(?:[.,]\d+)?(?![\w/-]|[.,]\d)")


def _has_numbers(example: Example, before: int) -> bool:
    """Return whether a number or a date was known."""
    known = [value for _, _, value in walk(example.inputs)]
    known += [one for read in example.reads[:before] for _, one in read.values]
    known += [example.request]
    return any(
        is_number(one)
        or (isinstance(one, str) and (_NUMBER_IN_TEXT.search(one) or _DATE.search(one)))
        for one in known
    )


def _holds(read: Read, value: Any) -> bool:
    """Return whether a result has a number, also as a word of a text."""
    return read.holds(value) or any(
        isinstance(one, str) and re.search(rf"(?<![\w.,]){re.escape(str(value))}(?![\w])", one)
        for _, one in read.values
    )


def has_prose(example: Example, before: int) -> bool:
    """Return whether a text was read that somebody had to understand."""
    return any(
        isinstance(value, str) and len(value.split()) >= PROSE
        for read in example.reads[:before]
        if not read.tool.startswith("#")
        for _, value in read.values
    )


def varying(text: str, spots: Sequence[Spot]) -> list[tuple[int, int]]:
    """Return the spans of a constant piece of texts that hardly are the same in every run."""
    if len(spots) >= ENOUGH_ALIKE:
        return []
    spans = [match.span() for match in _VARYING.finditer(text)]
    known = [one.value for one in known_values(spots[0])]
    spans += _parts_of_known(text, known)
    spans += _numbers(text, known)
    spans += _named_in(text, spots[0].example.request)
    return _merged(spans, text)


def has_copy(spots: Sequence[Spot]) -> bool:
    """Return whether a text repeats lines of one that was read: an edit of it, not a wording."""
    texts = {spot.value for spot in spots}
    lines = [{one for one in _lines(text) if len(one) >= SHORTEST_LINE} for text in texts]
    several = [one for one in lines if len(one) > 1]
    calls = {id(spot.example): spot.example.calls for spot in spots if several}
    read = {
        call.result
        for made in calls.values()
        for call in made
        if call.effect == "read" and isinstance(call.result, str)
    }
    return any(len(one & other) > 1 for other in map(_lines, read) for one in several)


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines()}


def _parts_of_known(text: str, known: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield where a part of a known value stands: a word of a name, the digits of a code.

    Also where a whole one stands inside of a word, so that it was not found as a value.
    """
    words: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for match in _WORD.finditer(text):
        words[match[0].lower()].append(match.span())
    parts = dict[str, None]()
    for written in dict.fromkeys(map(str, _scalars(known))):
        if len(written) >= SHORTEST_PART and written in text and _is_telling(written):
            yield from ((m.start(), m.end()) for m in re.finditer(re.escape(written), text))
        own = _WORD.findall(written) if len(written.split()) <= LONGEST_NAME else []
        parts |= dict.fromkeys(own if len(own) > 1 else ())
    for part in parts:
        is_there = part.lower() in words or part in text
        if is_there and len(part) >= SHORTEST_PART and _is_telling(part):
            yield from words.get(part.lower(), ())
            yield from ((m.start(), m.end()) for m in re.finditer(re.escape(part), text))


def _scalars(known: Iterable[Any]) -> Iterator[Any]:
    for value in known:
        for one in value if isinstance(value, list) else [value]:
            if is_scalar(one) and one is not None and not isinstance(one, bool):
                yield one


def _is_telling(text: str) -> bool:
    """Return whether a text looks like a name or a code."""
    return any(char.isupper() or char.isdigit() for char in text)


def _numbers(text: str, known: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield where a small number stands that is known, too, but not as what the text calls it.

    It is the number of a name (`tier-2`), or the length of a list of other things.
    """
    values = [one for one in known if not isinstance(one, bool)]
    numbers = {str(one) for one in values if isinstance(one, int)}
    lengths = {str(len(one)) for one in values if isinstance(one, list) and len(one) > 1}
    for match in re.finditer(r"(?<!\d)\d{1,2}(?!\d)", text):
        is_name = match[0] in numbers | lengths and is_label(text, *match.span())
        is_alone = not re.match(r"[.,:/-]?\w", text[match.end() :]) and not re.search(
            r"\w[.,:/-]?$", text[: match.start()]
        )
        if is_name or (is_alone and match[0] in lengths):
            yield match.span()


def _named_in(text: str, request: str) -> Iterator[tuple[int, int]]:
    """Yield where a word stands that only the request has: a name, or a code."""
    for match in re.finditer(r"(?<![.!?:] )(?<!^)(?<![\w])[\w@#][\w@#./-]*\w", request):
        word = match[0]
        if not (word[0].isupper() or any(map(str.isdigit, word)) or "@" in word):
            continue
        for found in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text):
            yield found.span()


def _merged(spans: Iterable[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Return spans without overlaps, each extended to whole words."""
    found: list[tuple[int, int]] = []
    for span in sorted(spans):
        start, stop = _whole(span, text)
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def _whole(span: tuple[int, int], text: str) -> tuple[int, int]:
    start, stop = span
    while start > 0 and text[start].isalnum() and text[start - 1].isalnum():
        start -= 1
    while stop < len(text) and text[stop].isalnum() and text[stop - 1].isalnum():
        stop += 1
    return start, stop
