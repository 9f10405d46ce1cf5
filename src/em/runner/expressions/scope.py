"""Names in expressions: what they mean where, and the errors for those that are not there."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from em.errors import ExpressionError


class Missing(str):
    """What is not there and may be missing: an empty text, and so is every part of it."""

    __slots__ = ()

    def __getitem__(self, _part: object) -> "Missing":
        return self


Scope = Mapping[str, Any]
Evaluate = Callable[[Scope], Any]


def undefined(name: str, scope: Scope, place: str) -> ExpressionError:
    """The error for a name that is not there."""
    known = [known for known in scope if not known.startswith("_")]
    close = get_close_matches(name, known, 1)
    fix = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(known)[:20])}"
    return ExpressionError(f"{name!r} is not defined", place=place, fix=fix, name=name)


def no_such_part(value: Any, part: str | int, place: str) -> ExpressionError:
    """The error for a part that a value does not have."""
    if isinstance(value, Mapping):
        keys = [str(key) for key in value]
        close = get_close_matches(str(part), keys, 1)
        fix = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(keys[:20]) or '-'}"
        return ExpressionError(f"there is no {part!r}", place=place, fix=fix, name=str(part))
    if isinstance(value, list | tuple) and isinstance(part, int):
        return ExpressionError(f"there is no item {part}: it has {len(value)}", place=place)
    return ExpressionError(f"a {type(value).__name__} has no {part!r}", place=place)
