"""The bench of rules: each of its cases is right, and it can tell a wrong one."""

from typing import Any

import pytest
from bench.rule_cases import CASES, problems


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["what"]))
def test_a_rule_about_a_person_fires_when_it_must_and_not_otherwise(case: dict[str, Any]) -> None:
    assert problems(case) == []


def test_a_warning_too_many_is_wrong() -> None:
    rule = {**CASES[2]["rule"], "when": None}
    assert problems({**CASES[2], "rule": rule})
