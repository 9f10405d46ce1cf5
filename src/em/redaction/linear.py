"""Regular expressions whose search is linear in the text, by RE2: anybody may send the text.

They read bytes, one for each character; letters, digits and white space are those of ASCII.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Pattern: TypeAlias = Any  # the package comes without types
else:
    Pattern = Any

MEMORY = 64 << 20
"""Bytes that a compiled pattern may take; few take more than a thousandth of it."""


def options(**changes: Any) -> Any:
    """Return RE2's options for patterns over bytes."""
    import re2

    made = re2.Options()
    made.encoding = re2.Options.Encoding.LATIN1
    made.max_mem = MEMORY
    made.log_errors = False
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@lru_cache(maxsize=512)
def compiled(source: str) -> Pattern:
    """Return a pattern, compiled once. Raises `error` if it is none."""
    import re2

    return re2.compile(source.encode("latin-1"), options(dot_nl=True))


def error() -> type[Exception]:
    """Return what `compiled` raises for a text that is no pattern."""
    import re2

    wrong: type[Exception] = re2.error
    return wrong


def has(source: str, text: str) -> bool:
    """Return whether a pattern matches somewhere in a text. For short texts: it is encoded anew."""
    return compiled(source).search(text.encode("ascii", "replace")) is not None


def is_all(source: str, text: str) -> bool:
    """Return whether a pattern matches the whole of a text."""
    return compiled(source).fullmatch(text.encode("ascii", "replace")) is not None
