"""What of a command line must succeed, also where its exit status hides it."""

import pytest

from em.shell.status import Status, settled, status_of


@pytest.mark.parametrize("text", ["true", "echo done", "pwd; echo a", "export A=1", "cd src"])
def test_what_always_succeeds(text: str) -> None:
    assert status_of(text).text == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("make; echo $?", "make"),
        ("make | echo", "make | echo"),
        ("echo a > b.txt", "echo a > b.txt"),
        ("pytest -q 2>&1 | tail -3 && echo done", "pytest -q"),
        ("cd src && pytest -q > /dev/null", "cd src && pytest -q"),
        ("(cd src && make) && ls", "(cd src && make) && ls"),
        ("pytest | grep -v warning | head", "pytest | grep -v warning"),
        ("pytest | tail log.txt", "pytest | tail log.txt"),
        ("test -d out || mkdir out", "test -d out || mkdir out"),
        ("make; [ $? -eq 0 ] && echo ok", "make && [ $? -eq 0 ]"),
        ("make || { echo bad; exit 1; }", "make"),
        ("cat <<E | sh\nmake\nE", "cat <<E | sh\nmake\nE"),
        ("f() { g; }; (", "f() { g; }; ("),
    ],
)
def test_what_must_succeed(text: str, expected: str) -> None:
    found = status_of(text)
    assert (found.text, found.is_hidden) == (expected, text == "make; echo $?")


@pytest.mark.parametrize(
    ("text", "expected", "signs"),
    [
        ("make || true", "make", ()),
        ("make || echo bad", "make", ("bad",)),
        ("make || echo bad >&2", "make", ("bad",)),
        ("make && echo ok || printf 'bad\\n'", "make", ("bad",)),
        ("(make) || { echo very bad; }", "make", ("very bad",)),
        ("make lint || echo a; make test || echo b", "make lint && make test", ("a", "b")),
        ("if make; then echo ok; else echo bad; fi", "make", ("bad",)),
        ("if make; then git commit -m x; fi", "make && git commit -m x", ()),
        ("(make || echo bad) 2>&1 | tail -3", "make", ("bad",)),
        ("make || cat make.log", "make", ()),
        ("make || python why.py", "make", ()),
        ("for one in a b; do make $one; done", "", ()),
        ("make & wait", "", ()),
        ("make || echo bad > log.txt", "", ()),
    ],
)
def test_an_exit_status_that_is_hidden(text: str, expected: str, signs: tuple[str, ...]) -> None:
    assert status_of(text) == Status(expected, signs, is_hidden=True)


@pytest.mark.parametrize(
    ("text", "shown", "expected"),
    [
        ("make || echo bad", "all fine", "make"),
        ("make || echo bad", "", "make"),
        ("make || echo bad", "Error 2\nbad", None),
        ("make || true", "all fine", "make"),
        ("make || true", "", None),
        ("git diff --stat || true", "a.md | 2 ++", ""),
        ("git diff --check || true", "", None),
        ("make & wait", "all fine", None),
        ("make", "", "make"),
        ("echo ok", "ok", ""),
    ],
)
def test_what_was_printed_tells_how_it_ended(text: str, shown: str, expected: str | None) -> None:
    assert settled(text, shown) == expected
