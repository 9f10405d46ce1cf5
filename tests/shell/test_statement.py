"""A command line is taken apart into statements, and known by what of it may fail."""

import pytest

from em.shell.statement import can_fail, checked, statements


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


@pytest.mark.parametrize("text", ["true", "echo done", "make || true", "pwd; echo a"])
def test_what_always_succeeds(text: str) -> None:
    assert not can_fail(text)


@pytest.mark.parametrize(
    "text", ["ls", "make; true", "make | echo", "echo a > b.txt", "f() { g; }"]
)
def test_what_may_fail(text: str) -> None:
    assert can_fail(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytest -q 2>&1 | tail -3 && echo done", "pytest -q"),
        ("cd src && pytest -q > /dev/null", "cd src && pytest -q"),
        ("pytest | grep -v warning | head", "pytest | grep -v warning"),
        ("pytest | tail log.txt", "pytest | tail log.txt"),
        ("git diff --stat || true", ""),
    ],
)
def test_what_only_shows_an_output_is_no_check(text: str, expected: str) -> None:
    assert checked(text) == expected
