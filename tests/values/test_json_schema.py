"""Simple schemas are checked without the validator, and never differently."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.values import json_schema

NAMES = st.sampled_from(["a", "b", "ü"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from([*json_schema._SIMPLE_TYPES, "int", ["string"], None])


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    words = {
        "type": TYPES,
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "items": inner,
        "required": st.lists(NAMES, max_size=3),
        "additionalProperties": st.booleans() | inner,
        "title": st.text(max_size=2) | st.integers(),
        "examples": st.lists(VALUES, max_size=2) | st.integers(),
        "minimum": st.integers(0, 3),
    }
    return st.fixed_dictionaries({}, optional=words)


SCHEMAS = st.recursive(st.just({}), schemas, max_leaves=5)


@given(schema=SCHEMAS, value=VALUES)
def test_what_is_simply_right_is_right_for_the_validator(schema: Any, value: Any) -> None:
    import jsonschema_rs

    if json_schema._is_simple(schema):
        assert not list(json_schema.schema_problems(schema))
        if json_schema._simply_fits(schema, value):
            assert jsonschema_rs.is_valid(schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "object", "required": ["a"]}, {}, "required"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": "1"}, "integer"),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, "not allowed"),
        ({"type": "array", "items": {"type": "string"}}, ["x", 1], "string"),
        ({"type": "integer"}, True, "integer"),
    ],
)
def test_what_does_not_fit_is_left_to_the_validator(
    schema: Any, value: Any, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_schema, "_is_unloaded", lambda: True)
    assert any(expected in message for _, message in json_schema.problems(schema, value))


def test_a_pattern_that_goes_back_is_given_up() -> None:
    fits = json_schema.matcher({"pattern": "^(?:(?!b).)*a*a*a*c$"})
    assert fits("a" * 100 + "c")
    assert not fits("a" * 200_000 + "c")  # it would fit, at the cost of as many steps
    assert json_schema.matcher({"pattern": "^(?:a*)*b$"})("a" * 200_000 + "b")  # needs none
