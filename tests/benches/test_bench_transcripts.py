"""What is imported from coding agents is what an independent count finds in their files."""

import pytest
from bench.counts import count
from bench.importing import imported
from bench.made_sessions import sessions

MADE = list(sessions())


@pytest.mark.parametrize("number", range(len(MADE)), ids=[kind for kind, _ in MADE])
def test_calls_failures_and_outcomes_are_as_counted(number: int) -> None:
    kind, text = MADE[number]
    found, problems = imported(text)
    assert (found, problems) == (count(kind, text), [])
    assert found.failures > 0
    assert found.outcomes
