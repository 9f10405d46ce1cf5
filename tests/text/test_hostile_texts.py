"""Text that others send takes time in proportion to its length, whatever is in it.

Each text is so long that work which grows with its square would run into the limit of a test.
"""

from collections.abc import Callable
from typing import Any

import pytest

from em.shell.programs import doing_of
from em.traces.outcomes import outcome_of_call
from em.values.leaves import shape, without_personal_data

SIZE = 600_000
HOSTILE = {
    "digits": "0" * SIZE,
    "a word": "a" * SIZE,
    "a word and a sign": "a" * SIZE + " x@y 1",
    "spaces": " " * SIZE,
    "lines": "\n" * SIZE,
    "documents": "cat <<EOF\n" * (SIZE // 10),
    "half a check": "go cargo npm run " * (SIZE // 17) + "test",
}
READERS: dict[str, Callable[[str], Any]] = {
    "outcome": lambda text: outcome_of_call({"command": text}, "", None),
    "shape": shape,
    "personal data": lambda text: without_personal_data(text, {}),
    "sed": lambda text: doing_of(f"sed -e '{text[:100_000]}' file"),
}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_a_text_is_read_in_time_that_grows_with_its_length(reader: str, text: str) -> None:
    READERS[reader](HOSTILE[text])


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("cat > a.py <<EOF\npytest\nEOF\npytest -q", "success"),
        ("cat <<'EOF' | sh\npytest -q\n EOF", None),
        ("cat <<EOF\npytest\nEOF", None),
    ],
)
def test_what_a_command_hands_to_a_program_is_no_command(command: str, outcome: Any) -> None:
    assert outcome_of_call({"command": command}, "1 passed", None) == outcome
