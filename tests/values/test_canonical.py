"""One text for one value: bodies go round exactly, and what JSON can't say is refused."""

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from em.errors import BadBody, InputError
from em.values.canonical import MAX_BYTES, MAX_DEPTH, canonical
from em.values.times import from_micros, moment, to_micros

texts = st.text(st.characters(exclude_categories=["Cs"]))
bodies = st.dictionaries(
    texts,
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**100), 2**100)
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=20,
    ),
    max_size=5,
)


@given(bodies)
@example({"a": 1.0, "b": 1, "c": True, "d": -0.0, "e": 1e22, "f": 5e-324})
def test_a_body_comes_back_equal_and_of_the_same_types(body: dict[str, Any]) -> None:
    text, plain = canonical(body)
    assert repr(plain) == repr(json.loads(text))
    assert plain == body
    assert msgspec.json.decode(text) == body


@given(bodies)
def test_canonical_text_is_its_own_canonical_text(body: dict[str, Any]) -> None:
    text, plain = canonical(body)
    assert canonical(plain) == (text, plain)
    assert canonical(json.loads(text))[0] == text


@given(bodies)
def test_the_order_of_keys_makes_no_difference(body: dict[str, Any]) -> None:
    backwards = dict(reversed(list(body.items())))
    assert canonical(body)[0] == canonical(backwards)[0]


@given(bodies, st.sampled_from([float("nan"), float("inf"), float("-inf")]))
def test_no_number_that_is_none_gets_through(body: dict[str, Any], number: float) -> None:
    with pytest.raises(BadBody):
        canonical({**body, "bad": [None, {"x": number}]})


def test_what_python_has_and_json_does_not_becomes_what_msgspec_makes_of_it() -> None:
    text, plain = canonical({"t": (1, 2), "d": date(2025, 4, 7), "s": {"one"}})
    assert plain == {"t": [1, 2], "d": "2025-04-07", "s": ["one"]}
    assert text == b'{"d":"2025-04-07","s":["one"],"t":[1,2]}'


def test_depth_is_limited_and_the_limit_itself_fits() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    canonical(value)
    with pytest.raises(BadBody):
        canonical([value])


def test_size_is_limited() -> None:
    with pytest.raises(BadBody):
        canonical({"x": "y" * MAX_BYTES})


@given(st.datetimes(timezones=st.just(UTC)))
def test_moments_go_round_to_the_microsecond(value: datetime) -> None:
    assert from_micros(to_micros(value)) == value
    assert moment(value.isoformat()) == value


def test_a_moment_is_read_from_what_people_write() -> None:
    expected = datetime(2025, 4, 7, tzinfo=UTC)
    zone = timezone(timedelta(hours=2))
    for value in ("2025-04-07", " 2025-04-07T00:00:00Z ", date(2025, 4, 7), datetime(2025, 4, 7)):  # noqa: DTZ001 - what a user may give
        assert moment(value) == expected
    assert moment(datetime(2025, 4, 7, 2, tzinfo=zone)) == expected
    assert moment("2025-04-07T02:00:00+02:00") == expected


@pytest.mark.parametrize("value", ["yesterday", "", "2025-13-01", "2025-02-30", "9" * 200])
def test_what_is_no_moment_is_refused(value: str) -> None:
    with pytest.raises(InputError) as caught:
        moment(value, "since")
    assert caught.value.place == "since"


def test_a_moment_outside_the_years_is_refused() -> None:
    with pytest.raises(InputError, match="years"):
        moment("0001-01-01T00:00:00+10:00")
