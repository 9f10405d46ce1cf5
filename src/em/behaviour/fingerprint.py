"""Fingerprints of code: a behaviour that other code recorded must not answer."""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from em.behaviour.check import Check

LENGTH = 16


def fingerprint(function: Callable[..., Any], *checks: Check[Any] | None) -> str:
    """A hash of a function's code and defaults, and of the checks around it."""
    digest = hashlib.sha256()
    for part in _of_callable(function, 0):
        digest.update(part + b"\0")
    for check in checks:
        digest.update(b"check" if check else b"none")
        if check is not None:
            for part in (*_of_callable(check.capture, 0), *_of_callable(check.compare, 0)):
                digest.update(part + b"\0")
            digest.update(repr(check.threshold).encode())
    return digest.hexdigest()[:LENGTH]


def _of_callable(function: Any, depth: int) -> Iterator[bytes]:
    """What a callable is made of; wrappers are followed to what they wrap."""
    if depth > 8:
        return
    function = inspect.unwrap(function) if callable(function) else function
    function = getattr(function, "__func__", function)  # of methods and static methods
    if isinstance(function, functools.partial):
        yield repr(_plain((function.args, function.keywords))).encode()
        yield from _of_callable(function.func, depth + 1)
    elif (code := getattr(function, "__code__", None)) is not None:
        yield from _of_code(code, function.__doc__)
        yield repr(_plain((function.__defaults__, function.__kwdefaults__))).encode()
    elif isinstance(function, type) or not hasattr(own := type(function).__call__, "__code__"):
        yield _name(function)
    else:
        yield _name(type(function))
        yield from _of_callable(own, depth + 1)


def _of_code(code: CodeType, doc: str | None) -> Iterator[bytes]:
    """The instructions and what they name; not where they stand in the file, nor what is said."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames[: code.co_argcount], code.co_freevars)).encode()
    for number, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _of_code(constant, None)
        elif number or constant != doc:
            yield repr(_plain(constant)).encode()


def _plain(value: Any) -> Any:
    """A value whose text is the same in every process."""
    if isinstance(value, dict):
        return {str(key): _plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, frozenset | set):
        return sorted(map(repr, value))
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return value
    if callable(value):
        return [part.hex() for part in _of_callable(value, 1)]
    return _name(type(value))


def _name(thing: Any) -> bytes:
    qualified = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return f"{getattr(thing, '__module__', '')}.{qualified}".encode()
