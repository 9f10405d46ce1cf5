"""A question that puts a time in relation asks about that side of it."""

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.text.periods import periods
from em.text.terms import words_of

ASKED = datetime(2023, 12, 15, 13, tzinfo=UTC)  # a Friday


def asked(text: str, at: datetime = ASKED) -> list[str]:
    return [f"{p.first or ''}/{p.last or ''}" for p in periods(words_of(text), at)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Where did Ana live before May 2023?", "/2023-04-30"),
        ("what was the plan prior to 7 May 2023", "/2023-05-06"),
        ("What is her job as of May 2023?", "/2023-05-31"),
        ("what did they finish by 3 June 2023", "/2023-06-03"),
        ("Where has she worked since 2016?", "2016-01-01/"),
        ("since last Friday", "2023-12-08/"),
        ("since March", "2023-03-01/"),
        ("what did she do after 7 May 2023", "2023-05-08/"),
        ("what happened after August", "2023-09-01/"),
        ("Which trips did he make between August and November 2023?", "2023-08-01/2023-11-30"),
        ("between 3 May and 9 May 2023", "2023-05-03/2023-05-09"),
        ("between May 3 and 9", "2023-05-03/2023-05-09"),
        ("between November 2022 and February", "2022-11-01/2023-02-28"),
        ("between 2016 and 2018", "2016-01-01/2018-12-31"),
        ("from August to October 2023", "2023-08-01/2023-10-31"),
        ("the trip of 28 April 2022 to 2 May 2022", "2022-04-28/2022-05-02"),
        ("in August to October 2022", "2022-08-01/2022-10-31"),
        ("the photo from May 2023", "2023-05-01/2023-05-31"),
        ("What did I buy in the past two weeks?", "2023-12-01/2023-12-15"),
        ("in the last six months", "2023-06-15/2023-12-15"),
        ("over the past year", "2022-12-15/2023-12-15"),
        ("the last couple of days", "2023-12-13/2023-12-15"),
        ("what is on next friday", "2023-12-22/2023-12-22"),
        ("this friday", "2023-12-15/2023-12-15"),
        ("last friday", "2023-12-08/2023-12-08"),
        ("what did she say on 13/2/2023", "2023-02-13/2023-02-13"),
        ("in June 2022", "2022-06-01/2022-06-30"),
        ("last week", "2023-12-04/2023-12-10"),
    ],
)
def test_a_relation_is_read_with_its_date(text: str, meant: str) -> None:
    assert asked(text) == [meant]


def test_a_date_that_countries_read_differently_is_both_days() -> None:
    assert asked("on 5/2/2023") == ["2023-05-02/2023-05-02", "2023-02-05/2023-02-05"]
    assert asked("on 5/5/2023") == ["2023-05-05/2023-05-05"]


@pytest.mark.parametrize(
    "text",
    ["after that he may go", "before we march", "between you and me", "from now on", "by the way",
     "since then", "room 5 2 19"],
)  # fmt: skip
def test_words_of_relation_alone_name_no_time(text: str) -> None:
    assert asked(text) == []


def test_a_range_without_a_year_is_that_of_any_year() -> None:
    (winter,) = periods(words_of("between November and February"), ASKED)
    assert winter.holds(date(2019, 12, 24))
    assert winter.holds(date(2021, 2, 1))
    assert not winter.holds(date(2021, 3, 1))
    (open_,) = periods(words_of("before May 2023"), ASKED)
    assert open_.holds(date(1990, 1, 1))
    assert not open_.holds(date(2023, 5, 1))


_WORDS = (
    "before after since until by as of between and from to the end 5 12 may august 2023 2019 "
    "friday week two past last over weekend day yesterday year 29 february x"
).split()


@given(st.lists(st.sampled_from(_WORDS), max_size=12), st.dates(date(1, 1, 1), date(9999, 12, 31)))
def test_no_words_and_no_moment_break_it(words: list[str], day: date) -> None:
    at = datetime(day.year, day.month, day.day, tzinfo=UTC)
    for period in periods(words, at):
        assert period.first is None or period.last is None or period.first <= period.last
        period.holds(day)


@pytest.mark.parametrize(
    "text", ["2023-05-07", "on 7 May to Paris", "call 555-1234 in May 2023", "a score of 6-7"]
)
def test_a_dash_or_a_to_that_is_no_range_of_days_leaves_the_date(text: str) -> None:
    assert asked(text) == [
        f"{p.first}/{p.last}" for p in periods(words_of(text.replace(" to Paris", "")), ASKED)
    ]
