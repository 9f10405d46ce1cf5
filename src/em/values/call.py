"""Facts about a call, wherever it is made: its arguments, its effect, its cost, its fix."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from em.values.canonical import Json

Effect = Literal["read", "write"]
F = TypeVar("F", bound=Callable[..., Any])

_EFFECT = "__em_effect__"


def declare(function: F, effect: Effect | None) -> F:
    """Declare a function's effect: whether it only reads, or writes."""
    if effect is not None:
        setattr(function, _EFFECT, effect)
    return function


def declared_effect(function: Callable[..., Any]) -> Effect | None:
    """Return the effect that was declared of a function."""
    effect: Effect | None = getattr(function, _EFFECT, None)
    return effect


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an attempt cost its agent."""

    tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    model_calls: int | None = None
    calls: int | None = None


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """How a run continues after a failed step."""

    strategy: Literal["modify_args", "skip", "fail"]
    args: Json = {}
    default: Any = None
    reason: str = ""


def fix_problem(fix: Any) -> str:
    """Say why a value is not a fix that a run can follow; "" if it is one."""
    if not isinstance(fix, Fix):
        return f"expected a Fix, got a {type(fix).__name__}"
    if fix.strategy not in ("modify_args", "skip", "fail"):
        return f"a fix has no strategy {fix.strategy!r}"
    if not isinstance(fix.args, dict):
        return f"the arguments of a fix must be a mapping, got a {type(fix.args).__name__}"
    return ""


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """How a function takes its arguments, read once; `bind` names those of one call.

    parameters: the parameters in order; None where a function doesn't declare them, as some
        built-in ones don't, or a method doesn't take its object.
    skip_first: leave out the first parameter, which is the object of a method.
    """

    __slots__ = (
        "_all_named", "_inspected", "_names", "_problems", "is_async", "parameters", "positional",
        "var_keyword",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], *, skip_first: bool = False) -> None:
        self.is_async = inspect.iscoroutinefunction(function)
        self._inspected: inspect.Signature | None = None
        # By the names of arguments: a routine's calls have the same ones in every run.
        self._problems: dict[frozenset[str], str] = {}
        self.parameters: list[inspect.Parameter] | None = None
        found: list[inspect.Parameter] = []
        try:
            inspected = inspect.signature(function)
            if skip_first:
                _, *rest = inspected.parameters.values()
                inspected = inspected.replace(parameters=rest)
        except (TypeError, ValueError):
            pass
        else:
            self._inspected = inspected
            self.parameters = found = list(inspected.parameters.values())
        self.positional = [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.var_keyword = next((p.name for p in found if p.kind is p.VAR_KEYWORD), None)
        self._names = frozenset(p.name for p in found if p.kind in _NAMED)
        self._all_named = self.parameters is not None and len(self._names) == len(found)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json | None:
        """Return the arguments by name, or None if they don't fit the parameters.

        A missing argument may go unnoticed here: the function itself complains about it.
        """
        if not self._all_named:
            return self._bind_slowly(args, kwargs)
        if len(args) > len(self.positional) or not self._names.issuperset(kwargs):
            return None
        arguments = dict(zip(self.positional, args, strict=False))
        if kwargs:
            if not arguments.keys().isdisjoint(kwargs):
                return None
            arguments.update(kwargs)
        return arguments

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Json | None:
        if self._inspected is None:
            return None
        try:
            return dict(self._inspected.bind(*args, **kwargs).arguments)
        except TypeError:
            return None

    def unbind(self, arguments: Json) -> tuple[tuple[Any, ...], Json]:
        """Return arguments by name as the function takes them: positional ones, and the rest."""
        if self._all_named or self._inspected is None:
            return (), arguments
        bound = inspect.BoundArguments(self._inspected, arguments)
        return bound.args, bound.kwargs

    def problem(self, names: Collection[str]) -> str:
        """Say why the function can't be called with arguments of these names; "" if it can."""
        key = frozenset(names)
        found = self._problems.get(key)
        if found is None:
            found = self._problems[key] = self._problem(key)
        return found

    def _problem(self, names: Collection[str]) -> str:
        if self._inspected is None:
            return ""
        try:
            self._inspected.bind(**dict.fromkeys(names))
        except TypeError as error:
            return str(error)
        return ""
