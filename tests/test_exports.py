"""The façade only re-exports, lazily; what it exports is this list."""

import subprocess
import sys

import pytest

import em

EXPORTS = [
    "AsyncMemory",
    "Check",
    "Draft",
    "EmError",
    "Engine",
    "Event",
    "Memory",
    "Settings",
    "__version__",
    "instrument",
    "recorded_tool",
    "tool",
    "uninstrument",
]


def test_the_list_of_exports() -> None:
    assert sorted(em.__all__) == EXPORTS
    assert dir(em) == em.__all__
    for name in EXPORTS:
        assert getattr(em, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Memroy"):
        em.Memroy  # noqa: B018 - the access is the test


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import em", ["msgspec", "sqlite3", "click", "em.memory"]),
        ("from em import Memory", ["click", "rich", "yaml", "psycopg", "asyncio"]),
        ("from em import Check, Engine", ["click", "rich", "yaml", "psycopg", "asyncio", "jinja2"]),
        ("import em.cli", ["msgspec.json", "rich", "yaml", "sqlite3", "em.memory"]),
    ],
)
def test_importing_brings_nothing_heavy(statement: str, absent: list[str]) -> None:
    code = f"{statement}\nimport sys\nprint([name for name in {absent!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_error_has_a_code_of_its_own_and_stands_in_the_tree() -> None:
    from em import errors

    classes = [
        c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, em.EmError)
    ]
    codes = [cls.code for cls in classes]
    assert len(codes) == len(set(codes))
    for cls in classes:
        assert cls.__name__ in (errors.__doc__ or "")
