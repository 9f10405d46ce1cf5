"""An engine's tools: functions and methods whose calls are recorded and replayed.

A tool knows its checks, the object that a method belongs to, and a fingerprint of its code: a
behaviour that other code recorded must not answer.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType, FunctionType
from typing import Any, get_args

import msgspec

from em.behaviour.check import Check
from em.behaviour.codec import Form, decode, hints_of
from em.compiler.calls import infer_effect
from em.errors import UsageError
from em.runner.drivers import CallTool
from em.runner.tools import Function, Tool
from em.values.call import Effect
from em.values.canonical import Json

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Bound(msgspec.Struct):
    """A call's arguments by name, without the object that a method belongs to."""

    owner: Any
    arguments: Json


class EngineTool(Tool):
    """A function or method that an engine records and replays, with its checks."""

    def __init__(
        self,
        function: Function,
        *,
        name: str | None,
        is_method: bool,
        pre_check: Check[Any] | None,
        post_check: Check[Any] | None,
        effect: Effect | None = None,
    ) -> None:
        # Without the function that a class is defined in: it is not part of the tool's name.
        self._qualified = getattr(function, "__qualname__", type(function).__qualname__)
        short = self._qualified.rpartition("<locals>.")[2]
        name = name or (short if is_method else short.rpartition(".")[2])
        if effect not in (None, *get_args(Effect)):
            raise UsageError(
                f"effect must be 'read' or 'write', got {effect!r}", place=f"tool {name}"
            )
        super().__init__(name, function, effect, is_method=is_method)
        # Whether a call may change anything, and whether it may tell something: in doubt both.
        short = name.rpartition(".")[2]
        self.writes = (self.effect or infer_effect(short)) == "write"
        self.reads = not self.writes or self.effect is None
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                "a generator can't be a tool: its end can't be recorded",
                place=f"tool {name}",
                fix="return a list instead of using yield",
            )
        if self.signature.parameters is None:
            raise UsageError(
                "a method takes self"
                if is_method
                else "the function does not declare its parameters",
                place=f"tool {name}",
                fix="wrap it in a function that declares them",
            )
        self.is_method = is_method
        self.pre_check = pre_check
        self.post_check = post_check
        self.hints = hints_of(function)
        for parameter in self.signature.parameters:
            if parameter.kind in _VARIABLE:
                self.hints.pop(parameter.name, None)  # it annotates each value, not all
        self.defaults = {
            p.name: p.default for p in self.signature.parameters if p.default is not p.empty
        }
        self._looks = {
            id(check): _Look(check, self) for check in (pre_check, post_check) if check is not None
        }
        self._code: str | None = None

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

    def is_defined_again(self, known: "EngineTool") -> bool:
        """Return whether this is the same tool defined again, as in a notebook; not a closure."""
        old, new = known.function, self.function
        return (
            isinstance(old, FunctionType)
            and isinstance(new, FunctionType)
            and (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)
            and not new.__closure__
            and new.__name__ != "<lambda>"
        )

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound | None:
        """Return the arguments by name; None if they don't fit, which the function will raise."""
        owner = None
        if self.is_method:
            if not args:
                return None
            owner, args = args[0], args[1:]
        arguments = self.signature.bind(args, kwargs)
        return None if arguments is None else Bound(owner, arguments)

    def unbind(self, owner: Any, arguments: Json) -> tuple[tuple[Any, ...], Json]:
        """Return the arguments as the function takes them."""
        args, kwargs = self.signature.unbind(arguments)
        return ((owner, *args) if self.is_method else args), kwargs

    def restored(self, arguments: Json, forms: Mapping[str, Form]) -> Json:
        """Return arguments decoded into the types that the function takes."""
        for name, form in forms.items():
            arguments[name] = decode(arguments[name], form, self.hints.get(name))
        return arguments

    def call(self, args: tuple[Any, ...], kwargs: Json) -> CallTool:
        """Return the effect that calls the function just where the agent would."""
        return CallTool(self.function, kwargs, self.is_async, None, args, False)

    def capture(self, check: Check[Any], bound: Bound) -> CallTool:
        """Return the effect that calls a check's `capture`."""
        look = self._looks[id(check)]
        args, kwargs = look.arguments(bound)
        return CallTool(check.capture, kwargs, look.is_async, None, args, False)

    def captured_type(self, check: Check[Any]) -> Any:
        """Return the annotated return type of a check's `capture`."""
        return self._looks[id(check)].hint


class _Look:
    """How a check's `capture` is called: with the tool's arguments that it names."""

    def __init__(self, check: Check[Any], tool: EngineTool) -> None:
        self._tool = tool
        self.is_async = inspect.iscoroutinefunction(check.capture)
        self.hint = hints_of(check.capture).get("return")
        try:
            wanted = list(inspect.signature(check.capture).parameters.values())
        except (TypeError, ValueError):
            wanted = []  # some built-in functions don't declare their parameters
        known = tool.parameters
        # Like the method itself: a first parameter that the tool doesn't have is the object.
        self._takes_self = tool.is_method and bool(wanted) and wanted[0].name not in known
        if self._takes_self:
            wanted = wanted[1:]
        takes_all = any(p.kind in _VARIABLE for p in wanted)
        named = [p.name for p in wanted if p.kind in _NAMED]
        required = [p.name for p in wanted if p.kind in _NAMED and p.default is p.empty]
        self._by_name = None if takes_all else [name for name in named if name in known]
        if not takes_all and not known.issuperset(required):
            if len(required) > len(tool.parameters) or not known:
                raise UsageError(
                    f"its capture takes {required[-1]!r}, which is not an argument of the tool",
                    place=f"tool {tool.name}",
                    fix="let the capture take arguments of its tool only",
                )
            self._by_name = None

    def arguments(self, bound: Bound) -> tuple[tuple[Any, ...], Json]:
        first = (bound.owner,) if self._takes_self else ()
        given = bound.arguments
        if self._by_name is None:
            args, kwargs = self._tool.unbind(bound.owner, given)
            args = args[1:] if self._tool.is_method else args
            names = [name for name in self._tool.signature.positional if name in kwargs]
            return (*first, *args, *(kwargs[name] for name in names)), {
                name: value for name, value in kwargs.items() if name not in names
            }
        defaults = self._tool.defaults
        named = {name: given[name] for name in self._by_name if name in given}
        named.update({n: defaults[n] for n in self._by_name if n not in given and n in defaults})
        return first, named


_scopes: ContextVar[tuple[tuple["Contexts", Any], ...]] = ContextVar("em_contexts", default=())


class Contexts:
    """The objects that methods belong to when they are replayed, one for each class."""

    def __init__(self) -> None:
        self._objects: list[Any] = []
        self._owners: dict[EngineTool, Any] = {}

    def put(self, thing: Any) -> None:
        """Add an object; it replaces one of the same class."""
        others = [known for known in self._objects if type(known) is not type(thing)]
        self._objects = [thing, *others]
        self._owners = {}

    @contextmanager
    def scope(self, things: Sequence[Any]) -> Iterator[None]:
        """Add objects for the code inside only, not for what runs at the same time."""
        inner = tuple((self, thing) for thing in things)
        token = _scopes.set((*inner, *_scopes.get()))
        try:
            yield
        finally:
            _scopes.reset(token)

    @property
    def is_scoped(self) -> bool:
        """Whether `scope` added objects for this call."""
        return any(contexts is self for contexts, _ in _scopes.get())

    def owner_of(self, tool: EngineTool) -> Any:
        """Return the object whose class has this tool, or None."""
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


def _has(thing: Any, tool: EngineTool) -> bool:
    return any(_defines(cls, tool) for cls in type(thing).__mro__)


def _defines(cls: type, tool: EngineTool) -> bool:
    return any(getattr(value, "__em_tool__", None) is tool for value in vars(cls).values())


FINGERPRINT_LENGTH = 16


def fingerprint(function: Callable[..., Any], *checks: Check[Any] | None) -> str:
    """Return a hash of a function's code and defaults, and of the checks around it."""
    digest = hashlib.sha256()
    for part in _of_callable(function, 0):
        digest.update(part + b"\0")
    for check in checks:
        digest.update(b"check" if check else b"none")
        if check is not None:
            for part in (*_of_callable(check.capture, 0), *_of_callable(check.compare, 0)):
                digest.update(part + b"\0")
            digest.update(repr(check.threshold).encode())
    return digest.hexdigest()[:FINGERPRINT_LENGTH]


def _of_callable(function: Any, depth: int) -> Iterator[bytes]:
    """Yield what a callable is made of; wrappers are followed to the wrapped function."""
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
    """Yield the instructions and the names they use, without line numbers and docstrings."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames[: code.co_argcount], code.co_freevars)).encode()
    for number, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _of_code(constant, None)
        elif number or constant != doc:
            yield repr(_plain(constant)).encode()


def _plain(value: Any) -> Any:
    """Return a value whose repr is the same in every process."""
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
