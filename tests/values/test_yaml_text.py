"""Items are added to the lists of a YAML text, and everything else stays as it was written."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from em.errors import InputError
from em.values.strict_yaml import with_items

PATH = ("allow", "commands")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "allow: {commands: [grep]}\n"),
        ("# mine\n", "# mine\nallow: {commands: [grep]}\n"),
        ("record: false", "record: false\nallow: {commands: [grep]}\n"),
        ("allow: {}\n", "allow: {commands: [grep]}\n"),
        ("allow:\n", "allow: {commands: [grep]}\n"),
        ("allow:  # yet\nrecord: true\n", "allow: {commands: [grep]}  # yet\nrecord: true\n"),
        ("allow: {folders: [.]}  # é\n", "allow: {folders: [.], commands: [grep]}  # é\n"),
        ("allow: {commands: [git, ]}\n", "allow: {commands: [git, grep]}\n"),
        ("allow: {commands: }\n", "allow: {commands: [grep]}\n"),
        (
            "allow:\n  commands:\n    - git\n# mine\nrecord: true\n",
            "allow: {commands: [git, grep]}\n# mine\nrecord: true\n",
        ),
        (
            "allow:\n  folders: [.]\n\nrecord: true  # this\n",
            "allow: {folders: [.], commands: [grep]}\n\nrecord: true  # this\n",
        ),
    ],
)
def test_an_item_is_added_and_the_rest_stays(before: str, after: str) -> None:
    assert with_items(before, PATH, ["grep"]) == after


@pytest.mark.parametrize(
    "text",
    [
        "allow: true\n",
        "allow: {commands: git}\n",
        "- 1\n",
        "a: [\n",
        "{record: false}\n",
        "allow:\n  # mine\n  commands: [git]\n",
        "allow:\n  commands:\n  - git  # this\n  - ls\n",
    ],
)
def test_what_would_lose_something_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        with_items(text, PATH, ["grep"])


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])), min_size=1))
def test_every_item_is_read_as_it_was(items: list[str]) -> None:
    made = yaml.safe_load(with_items("allow:\n  commands:\n  - git\n", PATH, items))
    assert made == {"allow": {"commands": ["git", *items]}}
