"""A JSON file gets values and loses them again, and nothing else in it changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.clients.json_text import Insertion, insertion, with_insertion, without
from em.errors import InputError

FILES = [
    "{}",
    "{ }\n",
    '{"a": 1}',
    '{\n    "a": [1, 2],\n    "hooks": {"Stop": []}\n}\n',
    '{\r\n\t"a": {"b": {}}\r\n}',
    '{"a":{"em":{"x":[]}},"z":"}"}',
]
EDITS: list[tuple[tuple[str, ...], Any, bool]] = [
    (("new",), {"x": [1, {"y": "é"}]}, False),
    (("a2", "b", "c"), True, False),
    (("hooks", "Stop"), {"hooks": [{"type": "command"}]}, True),
]


@pytest.mark.parametrize("text", FILES)
@pytest.mark.parametrize(("path", "value", "item"), EDITS)
def test_an_addition_is_one_insertion_and_can_be_taken_out(
    text: str, path: tuple[str, ...], value: Any, item: bool
) -> None:
    made = insertion(text, path, value, item=item)
    after = with_insertion(text, made)
    found = json.loads(after)
    for key in path:
        found = found[key]
    assert (value in found) if item else (found == value)
    assert after[: made.at] + after[made.at + len(made.text) :] == text
    assert insertion(after, path, value, item=item).text == ""
    assert json.loads(without(after, path, value, item=item)) == _pruned(json.loads(text), path)


def _pruned(value: Any, path: tuple[str, ...]) -> Any:
    """A list or object that was empty before goes too, when em's value was the only one in it."""
    if "hooks" in value and path[0] == "hooks":
        return {name: one for name, one in value.items() if name != "hooks"}
    return value


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists)))
def test_any_object_keeps_its_members(value: dict[str, Any]) -> None:
    value.pop("em", None)
    for indent in (None, 0, 2):
        text = json.dumps(value, indent=indent)
        after = with_insertion(text, insertion(text, ("em", "x"), {"y": 1}))
        assert json.loads(after) == {**value, "em": {"x": {"y": 1}}}
        assert json.loads(without(after, ("em", "x"), {"y": 1})) == value


def test_a_value_is_removed_also_from_between_others() -> None:
    for text in ('{"em": 1, "a": 2}', '{"a": 2, "em": 1}', '{"a": 2,"em": 1, "b": 3}'):
        rest = json.loads(text)
        rest.pop("em")
        assert json.loads(without(text, ("em",), 1)) == rest
    assert without('{"a": 1}', ("em",), 1) == '{"a": 1}'


@pytest.mark.parametrize("text", ['{"a": 1', "[1]x", '{"a": // no\n 1}', '"text"', '{"em": 2}'])
def test_what_is_not_plain_json_or_has_another_value_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        insertion(text, ("em",), 1)


def test_an_insertion_without_a_text_changes_nothing() -> None:
    assert with_insertion("abc", Insertion(1, "")) == "abc"
