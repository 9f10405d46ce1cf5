"""Times in a text mean what they meant to whoever said it, when they said it."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.text.dates import span_terms, spans
from em.text.terms import words_of

SAID = datetime(2023, 5, 25, 13, tzinfo=UTC)  # a Thursday


def days(text: str, said: datetime = SAID) -> list[str]:
    return [f"{span.first}/{span.last}" for span in spans(words_of(text), said)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("I went there yesterday", "2023-05-24/2023-05-24"),
        ("the day before yesterday", "2023-05-23/2023-05-23"),
        ("see you tomorrow!", "2023-05-26/2023-05-26"),
        ("last Friday we met", "2023-05-19/2023-05-19"),
        ("next Friday", "2023-05-26/2023-05-26"),
        ("on Sunday", "2023-05-21/2023-05-21"),
        ("last week", "2023-05-15/2023-05-21"),
        ("this week", "2023-05-22/2023-05-28"),
        ("last weekend", "2023-05-20/2023-05-21"),
        ("two weeks ago", "2023-05-09/2023-05-13"),
        ("3 days ago", "2023-05-22/2023-05-22"),
        ("a few months ago", "2023-02-01/2023-02-28"),
        ("last month", "2023-04-01/2023-04-30"),
        ("last year", "2022-01-01/2022-12-31"),
        ("on 7 May 2023", "2023-05-07/2023-05-07"),
        ("on May 7th, 2023", "2023-05-07/2023-05-07"),
        ("2023-05-07T10:00", "2023-05-07/2023-05-07"),
        ("in June 2022", "2022-06-01/2022-06-30"),
        ("in December", "2022-12-01/2022-12-31"),
        ("summer of 2022", "2022-06-01/2022-08-31"),
        ("winter 2022", "2022-12-01/2023-02-28"),
        ("since 2019", "2019-01-01/2019-12-31"),
        ("last night", "2023-05-24/2023-05-24"),
    ],
)
def test_a_time_is_resolved(text: str, meant: str) -> None:
    assert days(text) == [meant]


@pytest.mark.parametrize(
    "text", ["I may go", "they march on", "31 February 2023", "second best", "room 2019", "may be"]
)
def test_what_is_no_time_is_none(text: str) -> None:
    assert days(text) == []


def test_several_times_are_all_found() -> None:
    text = "On 3 March 2023 I started, and two days ago I stopped; " + "then I rested. " * 3
    assert days(text + "See you in June 2024") == [
        *("2023-03-03/2023-03-03", "2023-05-23/2023-05-23", "2024-06-01/2024-06-30")
    ]


def test_a_day_is_kept_with_its_month_and_a_long_time_by_its_months_only() -> None:
    (day,), (year,) = spans(["yesterday"], SAID), spans(["last", "year"], SAID)
    assert span_terms(day) == ("=20230524", "=202305")
    assert len(span_terms(year)) == 12


@given(st.text(), st.dates(date(1, 1, 1), date(9999, 12, 31)))
def test_no_text_and_no_moment_break_it(text: str, day: date) -> None:
    said = datetime(day.year, day.month, day.day, tzinfo=UTC)
    for words in (words_of(text), [*words_of(text), *"yesterday last year in 900 years".split()]):
        for span in spans(words, said):
            assert span.first <= span.last
            assert span_terms(span)
