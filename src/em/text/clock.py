"""Times of day in English words: half past nine, quarter to two, 20 to ten, noon."""

from collections.abc import Iterator, Sequence

from em.text.numbers import UNITS

_NAMED = {"noon": 12, "midday": 12, "midnight": 0}
_PARTS = {"half": 30, "quarter": 15}
_HOURS, _MINUTES = 12, 60


def clock_times(words: Sequence[str]) -> Iterator[tuple[set[int], str]]:
    """Yield the times that words say, as `09:30`, with the places of the words.

    One without a half of the day is two times.
    """
    for n, word in enumerate(words):
        if word in _NAMED:
            yield {n}, f"{_NAMED[word]:02}:00"
        before, behind = words[n - 1] if n else "", words[n + 1] if n + 1 < len(words) else ""
        minutes, hour = _PARTS.get(before, _number(before)), _number(behind)
        if word in ("past", "to") and 0 < minutes < _MINUTES and 0 < hour <= _HOURS:
            whole = hour * _MINUTES + (minutes if word == "past" else -minutes)
            for half in (0, _HOURS):
                at = (whole + half * _MINUTES) % (2 * _HOURS * _MINUTES)
                yield {n - 1, n, n + 1}, f"{at // _MINUTES:02}:{at % _MINUTES:02}"


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdecimal() else UNITS.get(word, 0)
