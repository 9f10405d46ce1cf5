"""Tools: functions and methods whose calls are recorded, and made again."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, NamedTuple

from em.behaviour.check import Check
from em.behaviour.codec import hints_of
from em.behaviour.fingerprint import fingerprint
from em.errors import UsageError
from em.values.canonical import Json

Function = Callable[..., Any]
_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Bound(NamedTuple):
    """A call's arguments by name, without the object that a method belongs to."""

    owner: Any
    arguments: Json


class Tool:
    """One decorated function or method, with its checks."""

    def __init__(
        self,
        function: Function,
        *,
        name: str | None,
        is_method: bool,
        pre_check: Check[Any] | None,
        post_check: Check[Any] | None,
    ) -> None:
        self.function = function
        if not callable(function):
            raise UsageError(f"a {type(function).__name__} can't be called", place="tool")
        # Without the function in which a class stands: that is no part of what it is called.
        self._qualified = getattr(function, "__qualname__", type(function).__qualname__)
        short = self._qualified.rpartition("<locals>.")[2]
        self.name = name or (short if is_method else short.rpartition(".")[2])
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                "it gives its results bit by bit, so nobody knows when it is done",
                place=f"tool {self.name}",
                fix="return a list instead of using yield",
            )
        self.is_method = is_method
        self.is_async = inspect.iscoroutinefunction(function)
        self.pre_check = pre_check
        self.post_check = post_check
        self.hints = hints_of(function)
        self._read_signature()
        self._looks = {
            id(check): _Look(check, self) for check in (pre_check, post_check) if check is not None
        }
        self._code: str | None = None

    def _read_signature(self) -> None:
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):
            raise UsageError(
                "it does not say which arguments it takes",
                place=f"tool {self.name}",
                fix="wrap it in a function that does",
            ) from None
        if self.is_method:
            if not parameters:
                raise UsageError("a method takes self", place=f"tool {self.name}")
            parameters = parameters[1:]
        self.parameters = parameters
        self._positional = [p.name for p in parameters if p.kind is _PLAIN[0]]
        self._names = frozenset(p.name for p in parameters if p.kind in _PLAIN)
        self._is_plain = all(p.kind in _PLAIN for p in parameters)
        self._signature = inspect.Signature(parameters)
        self.defaults = {
            p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty
        }
        for parameter in parameters:
            if parameter.kind in _VARIABLE:
                self.hints.pop(parameter.name, None)  # it speaks of each one, not of all

    @property
    def code(self) -> str:
        """The fingerprint of the function and its checks."""
        if self._code is None:
            self._code = fingerprint(self.function, self.pre_check, self.post_check)
        return self._code

    @property
    def class_name(self) -> str:
        """The class that a method belongs to."""
        return self._qualified.rpartition(".")[0].rpartition(".")[2]

    def is_defined_again(self, known: "Tool") -> bool:
        """Whether this is the same tool, run once more as in a notebook; a closure is another."""
        old, new = known.function, self.function
        return (
            isinstance(old, FunctionType)
            and isinstance(new, FunctionType)
            and (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)
            and not new.__closure__
            and new.__name__ != "<lambda>"
        )

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound | None:
        """The arguments by name; None if they don't fit, which the function itself will say."""
        owner = None
        if self.is_method:
            if not args:
                return None
            owner, args = args[0], args[1:]
        if not self._is_plain:
            return self._bind_slowly(owner, args, kwargs)
        if len(args) > len(self._positional) or not self._names.issuperset(kwargs):
            return None
        arguments = dict(zip(self._positional, args, strict=False))
        if kwargs:
            if not arguments.keys().isdisjoint(kwargs):
                return None
            arguments.update(kwargs)
        return Bound(owner, arguments)

    def _bind_slowly(
        self, owner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Bound | None:
        try:
            return Bound(owner, dict(self._signature.bind(*args, **kwargs).arguments))
        except TypeError:
            return None

    def unbind(self, owner: Any, arguments: Json) -> tuple[tuple[Any, ...], Json]:
        """The arguments as the function takes them."""
        first = (owner,) if self.is_method else ()
        if self._is_plain:
            return first, arguments
        bound = inspect.BoundArguments(self._signature, arguments)
        return (*first, *bound.args), bound.kwargs

    def look(self, check: Check[Any], bound: Bound) -> tuple[tuple[Any, ...], Json]:
        """The arguments for a check's `capture`."""
        return self._looks[id(check)].arguments(bound)

    def captured_type(self, check: Check[Any]) -> Any:
        """The type that a check's `capture` says it returns."""
        return self._looks[id(check)].hint


class _Look:
    """How a check's `capture` is called: with the tool's arguments that it names."""

    def __init__(self, check: Check[Any], tool: Tool) -> None:
        self._tool = tool
        self.hint = hints_of(check.capture).get("return")
        try:
            wanted = list(inspect.signature(check.capture).parameters.values())
        except (TypeError, ValueError):
            wanted = []  # some built-in functions don't tell
        known = {parameter.name for parameter in tool.parameters}
        # As the method itself: what comes first and is no argument of it is its object.
        self._takes_self = tool.is_method and bool(wanted) and wanted[0].name not in known
        if self._takes_self:
            wanted = wanted[1:]
        takes_all = any(p.kind in _VARIABLE for p in wanted)
        named = [p.name for p in wanted if p.kind in _PLAIN]
        required = [p.name for p in wanted if p.kind in _PLAIN and p.default is p.empty]
        self._by_name = None if takes_all else [name for name in named if name in known]
        if not takes_all and not known.issuperset(required):
            if len(required) > len(tool.parameters) or not known:
                raise UsageError(
                    f"its capture asks for {required[-1]!r}, which the tool does not take",
                    place=f"tool {tool.name}",
                    fix="a capture takes the arguments of its tool, or some of them",
                )
            self._by_name = None

    def arguments(self, bound: Bound) -> tuple[tuple[Any, ...], Json]:
        first = (bound.owner,) if self._takes_self else ()
        given = bound.arguments
        if self._by_name is None:
            args, kwargs = self._tool.unbind(bound.owner, given)
            args = args[1:] if self._tool.is_method else args
            names = [name for name in self._tool._positional if name in kwargs]
            return (*first, *args, *(kwargs[name] for name in names)), {
                name: value for name, value in kwargs.items() if name not in names
            }
        defaults = self._tool.defaults
        kept = {name: given[name] for name in self._by_name if name in given}
        kept.update({n: defaults[n] for n in self._by_name if n not in given and n in defaults})
        return first, kept


_scopes: ContextVar[tuple[tuple["Contexts", Any], ...]] = ContextVar("em_contexts", default=())


class Contexts:
    """The objects that methods belong to when they are replayed, one for each class."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._owners: dict[Tool, Any] = {}

    def put(self, thing: Any) -> None:
        """Give an object; it takes the place of one of the same class."""
        others = [known for known in self._objects if type(known) is not type(thing)]
        self._objects = [thing, *others]
        self._owners = {}

    @contextmanager
    def scope(self, things: Sequence[Any]) -> Iterator[None]:
        """Give objects to what is done inside, and to nothing that is done at the same time."""
        inner = tuple((self, thing) for thing in things)
        token = _scopes.set((*inner, *_scopes.get()))
        try:
            yield
        finally:
            _scopes.reset(token)

    @property
    def is_scoped(self) -> bool:
        """Whether there are objects for this call only."""
        return any(contexts is self for contexts, _ in _scopes.get())

    def owner_of(self, tool: Tool) -> Any:
        """The object whose class has this tool, or None."""
        scoped = [thing for contexts, thing in _scopes.get() if contexts is self]
        if scoped:
            fitting = [thing for thing in scoped if _has(thing, tool)]
            exact = [thing for thing in fitting if _defines(type(thing), tool)]
            if fitting:
                return (exact or fitting)[0]
        if tool not in self._owners:
            fitting = [thing for thing in self._objects if _has(thing, tool)]
            exact = [thing for thing in fitting if _defines(type(thing), tool)]
            self._owners[tool] = next(iter([*exact, *fitting]), None)
        return self._owners[tool]


def _has(thing: Any, tool: Tool) -> bool:
    return any(_defines(cls, tool) for cls in type(thing).__mro__)


def _defines(cls: type, tool: Tool) -> bool:
    return any(getattr(value, "__em_tool__", None) is tool for value in vars(cls).values())
