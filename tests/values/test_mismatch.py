"""Which values a type allows at a place."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from em.values.mismatch import mismatch, options_at

Size = Literal["small", "large"]


class Part(msgspec.Struct):
    size: Size
    name: str = ""


class Whole(msgspec.Struct):
    parts: list[Part] = []
    by_name: dict[str, Part | None] = {}
    size: Annotated[Size, msgspec.Meta(description="How large.")] | None = None


@pytest.mark.parametrize(
    "given",
    [
        {"size": "huge"},
        {"parts": [{"size": "small"}, {"size": "huge"}]},
        {"by_name": {"a": {"size": "huge"}}},
    ],
)
def test_the_options_are_those_of_the_place_that_an_error_names(given: Any) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Whole)
    assert options_at(Whole, mismatch(caught.value).path) == ["large", "small"]


@pytest.mark.parametrize("path", ["", "parts", "parts[0]", "parts[0].name", "nothing.here"])
def test_a_place_that_takes_any_value_has_no_options(path: str) -> None:
    assert options_at(Whole, path) == []
