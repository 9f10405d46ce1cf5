"""YAML has only what JSON has; everything else is an error with its line, never a failure."""

import pytest

from em.errors import UsageError
from em.values.strict_yaml import load_yaml


@pytest.mark.parametrize(
    "text",
    [
        "a: !!timestamp x", "a: !!timestamp 2001-12-14", "{a: !!timestamp }", "a: !!binary aGk=",
        "a: !!set {x}", "a: !!omap [{a: 1}]", "a: !!pairs [a: 1]", "a: !!bool x", 'a: !!int ""',
        'a: !!float ""', "a: !!python/name:os.system x", "? [a]\n: 1", "1: a", "on: a", "null: a",
        "{a: 1, !!value a: 2}",
    ],
)  # fmt: skip
def test_what_json_does_not_have_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_yaml(text.encode(), "em.yaml", UsageError)
    assert refused.value.place.startswith("em.yaml")


def test_what_looks_like_a_date_or_a_number_may_be_a_name() -> None:
    assert load_yaml(b"2001-01-01: 1\n'1': 2\n", "x", UsageError) == {"2001-01-01": 1, "1": 2}
