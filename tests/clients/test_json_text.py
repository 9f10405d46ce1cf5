"""A JSON file gets values and loses them again, and nothing else in it changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.clients.json_text import insertions, value_of, with_insertions, without
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
    made = insertions(text, path, value, item=item)
    after = with_insertions(text, made)
    found = json.loads(after)
    for key in path:
        found = found[key]
    assert (value in found) if item else (found == value)
    (one,) = made
    assert after[: one.at] + after[one.at + len(one.text) :] == text
    assert insertions(after, path, value, item=item) == []
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
        after = with_insertions(text, insertions(text, ("em", "x"), {"y": 1}))
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
        insertions(text, ("em",), 1)


WITH_COMMENTS = [
    """{
  // my settings
  "model": "x", // the fast one
  "mcp": {
    "a": {"u": "//b,}"}, // mine
  },
}
""",
    '{"model": "x" /* , */ }',
    '{"a": 1 // last\n}',
    "// first\n{ // none yet\n}",
    '{"mcp": {/* empty */}, "list": [1, 2,],}',
    '{"url": "http://x/*y*/", "q": "\\"//"}',
]


@pytest.mark.parametrize("text", WITH_COMMENTS)
def test_comments_and_last_commas_stay_where_they_are(text: str) -> None:
    path = ("mcp", "em")
    value = {"command": ["x", "//y"], "on": True}
    made = insertions(text, path, value, comments=True)
    after = with_insertions(text, made)
    had = value_of(text, comments=True)
    assert value_of(after, comments=True) == {**had, "mcp": {**had.get("mcp", {}), "em": value}}
    for one in reversed(made):
        after = after[: one.at] + after[one.at + len(one.text) :]
    assert after == text
    after = with_insertions(text, made)
    left = without(after, path, value, comments=True)
    pruned = {name: one for name, one in had.items() if (name, one) != ("mcp", {})}
    assert value_of(left, comments=True) == pruned
    for comment in ("// my settings", "// the fast one", "// mine", "// last", "/* , */"):
        assert (comment in text) == (comment in left)


@pytest.mark.parametrize(
    "text",
    [
        '{"em": 1, // one\n "a": 2}',
        '{"a": 2, // two\n "em": 1}',
        '{"a": 2, /* two */ "em": 1, // one\n}',
        '{// none\n"em": 1}',
        '{"em": 1,}',
        '{"a": 2\n// two\n, "em": 1\n// end\n}',
    ],
)
def test_a_value_is_removed_also_from_between_comments(text: str) -> None:
    rest = value_of(text, comments=True)
    rest.pop("em")
    left = without(text, ("em",), 1, comments=True)
    assert value_of(left, comments=True) == rest
    for comment in ("// one", "// two", "/* two */", "// none", "// end"):
        assert (comment in text) == (comment in left)
