"""A time that stands alone is read without the large pattern, and is the one the pattern finds."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from em.text import dates

WORDS = (
    "in of by since the early 3 12 02 05 31 30 02t10 2024 1999 2050 days weeks years month week "
    "ago may march a few couple last this friday today summer x 2t 05t000 9999 123 five year "
    "the other day past over weekend 5 2 next"
).split()


def by_the_pattern(words: list[str], at: datetime) -> list[dates.DaySpan]:
    found: dict[dates.DaySpan, None] = {}
    end = 0
    for n in [n for n, word in enumerate(words) if word in dates.TRIGGERS]:
        if n < end:
            continue
        end = n + 4
        for match in dates.DATE.finditer(" ".join(words[max(0, n - 3) : end])):
            for span in dates.read_date(match, at.date()):
                found[span] = None
    return list(found)


@given(st.lists(st.sampled_from(WORDS), max_size=9), st.sampled_from([1, 2025, 9998]))
def test_alone_means_the_same_as_in_the_pattern(words: list[str], year: int) -> None:
    at = datetime(year, 4, 7, tzinfo=UTC)
    assert dates.spans(words, at) == by_the_pattern(words, at)
