from datetime import timedelta

import pytest

from em.errors import InputError, UsageError
from em.values.times import parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("1.5h", timedelta(minutes=90)),
        ("7D", timedelta(days=7)),
        (" 2w ", timedelta(weeks=2)),
        ("0d", timedelta(0)),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, expected: timedelta) -> None:
    assert parse_duration(text, "ttl") == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "7", "-1d", "1e3d", "nand", "d", "7 days", "9999999w"]
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match="ttl must be a duration"):
        parse_duration(text, "ttl")


def test_a_caller_chooses_the_unit_of_a_bare_number_and_the_error() -> None:
    assert parse_duration("7", "--older-than", bare_unit="d") == timedelta(days=7)
    with pytest.raises(UsageError, match="every must be events or minutes, got"):
        parse_duration("x", "every", expected="events or minutes", error=UsageError)
