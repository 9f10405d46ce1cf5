"""Leftover: what of a text stays when all known values are taken out, and whether that is constant.

The rest of one recorded text is taken for the wording, which every run repeats. It can't be that
where it holds a decimal, a date, a part of a value that was known, or something that only the
request names: those differ from run to run, so they are asked for.
"""

import calendar
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from em.compiler.places import is_scalar
from em.compiler.skeleton import Spot, is_label, known_values

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


def is_copy(text: str, spots: Sequence[Spot]) -> bool:
    """Return whether a text repeats lines of one that was read: an edit of it, not a wording."""
    lines = {line.strip() for line in text.splitlines() if len(line.strip()) >= SHORTEST_LINE}
    for spot in spots:
        for call in spot.example.calls:
            if call.effect == "read" and isinstance(call.result, str):
                read = {line.strip() for line in call.result.splitlines()}
                if len(lines & read) > 1:
                    return True
    return False


def _parts_of_known(text: str, known: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Yield where a part of a known value stands: a word of a name, the digits of a code.

    Also where a whole one stands inside of a word, so that it was not found as a value.
    """
    words: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for match in _WORD.finditer(text):
        words[match[0].lower()].append(match.span())
    for value in _scalars(known):
        written = str(value)
        if len(written) >= SHORTEST_PART and _is_telling(written):
            yield from ((m.start(), m.end()) for m in re.finditer(re.escape(written), text))
        parts = _WORD.findall(written) if len(written.split()) <= LONGEST_NAME else []
        for part in parts if len(parts) > 1 else ():
            if _is_telling(part) and len(part) >= SHORTEST_PART:
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
