"""Regular expressions whose search is linear in the text, by RE2: anybody may send the text.

They read bytes, one for each character; letters, digits and white space are those of ASCII.

A search holds locks of its pattern, and threads search while others fork. So a child compiles its
patterns anew, and never frees those of its parent: their locks may be held for ever. `re2.compile`
has a cache of its own, by source and options; each process has options that differ by one byte of
memory, so that this cache never hands a child what its parent compiled.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import re2  # here: a child that is forked while a thread imports would wait for its lock

if TYPE_CHECKING:
    Pattern: TypeAlias = Any  # the package comes without types
else:
    Pattern = Any

T = TypeVar("T")
MEMORY = 64 << 20
"""Bytes that a compiled pattern may take; few take more than a thousandth of it."""
MOST_KEPT = 1_000
"""Compiled patterns that are kept."""
_kept: dict[object, Any] = {}
_of_parents: list[Any] = []
_forks = 0
"""How many forks lie between the first process and this one."""


def _begin_anew() -> None:
    global _kept, _forks
    _of_parents.append(_kept)
    _kept, _forks = {}, _forks + 1


os.register_at_fork(after_in_child=_begin_anew)


def outlive(patterns: Any) -> None:
    """Keep patterns of a parent for ever: freeing them in its child would not be safe."""
    _of_parents.append(patterns)


def made_once(key: object, make: Callable[[], T]) -> T:
    """Return what was made of patterns for a key in this process."""
    found: T | None = _kept.get(key)
    if found is None:
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        found = _kept[key] = make()
    return found


def options(**changes: Any) -> Any:
    """Return RE2's options for patterns over bytes."""
    made = re2.Options()
    made.encoding = re2.Options.Encoding.LATIN1
    made.max_mem = MEMORY + _forks
    made.log_errors = False
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def compiled(source: str) -> Pattern:
    """Return a pattern, compiled once. Raises `error` if it is none."""
    found = _kept.get(source)
    return made_once(source, lambda: _compile(source)) if found is None else found


def _compile(source: str) -> Pattern:
    return re2.compile(source.encode("latin-1"), options(dot_nl=True))


def compiled_text(source: str) -> Pattern:
    """Return a pattern over texts, as the settings name them."""
    made = options(encoding=re2.Options.Encoding.UTF8)
    return made_once(("text", source), lambda: re2.compile(source, made))


def error() -> type[Exception]:
    """Return what `compiled` raises for a text that is no pattern."""
    wrong: type[Exception] = re2.error
    return wrong


def has(source: str, text: str) -> bool:
    """Return whether a pattern matches somewhere in a text. For short texts: it is encoded anew."""
    return compiled(source).search(text.encode("ascii", "replace")) is not None


def is_all(source: str, text: str) -> bool:
    """Return whether a pattern matches the whole of a text."""
    return compiled(source).fullmatch(text.encode("ascii", "replace")) is not None
