"""Numbers that are written in English words: "five", "thirty-two", "two hundred"."""

from collections.abc import Iterator, Sequence

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6}
UNITS = {word: n for n, word in enumerate(_SMALL)} | {
    word: 10 * n for n, word in enumerate(_TENS, 2)
}
"""The words that are numbers by themselves."""
NUMBERS = {**UNITS, **_SCALES, "dozen": 12}


def numbers_in(words: Sequence[str]) -> Iterator[int]:
    """Yield the numbers that the words of a text name, each run of number words as one."""
    run: list[str] = []
    for word in (*words, ""):
        if word in NUMBERS or (run and word == "and"):
            run.append(word)
        elif run:
            yield _value([one for one in run if one != "and"])
            run = []


def _value(run: Sequence[str]) -> int:
    total = current = 0
    for word in run:
        if word in UNITS:
            current += UNITS[word]
        elif NUMBERS[word] < NUMBERS["thousand"]:
            current = max(current, 1) * NUMBERS[word]
        else:
            total += max(current, 1) * NUMBERS[word]
            current = 0
    return total + current
