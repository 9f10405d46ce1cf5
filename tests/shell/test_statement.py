"""A command line is taken apart into statements."""

import pytest

from em.shell.syntax import statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("make lint && git add -A; git commit -m 'x; y'",
         ["make lint", "git add -A", "git commit -m 'x; y'"]),
        ("pytest -q 2>&1 | tail -3\nls", ["pytest -q 2>&1 | tail -3", "ls"]),
        ("a || true; b", ["a || true", "b"]),
        ('git commit -m "$(cat <<\'E\'\na\n\nb\nE\n)" && git push',
         ['git commit -m "$(cat <<\'E\'\na\n\nb\nE\n)"', "git push"]),
        ("a && b || c", []),
        ("sleep 9 & ls", []),
        ("if a; then b; fi; c", []),
        ("cat <<E\nx\nE", []),
        ("> out.txt ls", []),
    ],
)  # fmt: skip
def test_statements(text: str, expected: list[str]) -> None:
    assert [one.text for one in statements(text)] == expected
