"""Monty: an interpreter for a subset of Python without access to the system.

It starts at once and has no files, sockets or processes. It runs in worker processes, so that a bug
of the interpreter does not reach this one. `lint` finds code that is beyond the subset, and
`SUBSET_RULES` explains the subset to a model.
"""

import ast
import atexit
import builtins
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from keyword import iskeyword
from typing import Any, ClassVar, NamedTuple

import msgspec

from em.errors import SandboxBroken, SandboxError
from em.runner.sandbox.inside.plain import MAX_DEPTH, NotPlain, plain
from em.runner.sandbox.sandbox import (
    DEFAULT_LIMITS,
    Limits,
    Sandbox,
    SandboxSession,
    fault,
    no_such_function,
    plain_arguments,
    too_large,
    too_much_memory,
    too_slow,
)
from em.values.syntax_tree import module_of

_CODE = "<python-input-0>"
"""Monty's file name for the first code of a session."""

_CHECK = f"""
import json as _em_json
from collections import deque as _em_deque
from dataclasses import is_dataclass as _em_is_dataclass
from datetime import date as _em_date, datetime as _em_datetime, time as _em_time
from decimal import Decimal as _em_decimal

def _em_check(value):
    if value is not None and not isinstance(value, (bool, int, float, str)):
        try:
            _em_json.dumps(value)
        except Exception:
            _em_walk(value, 0)

def _em_walk(value, depth):
    if depth > {MAX_DEPTH}:
        raise TypeError("the value is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, (list, tuple, set, frozenset, _em_deque)):
        for item in value:
            _em_walk(item, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            _em_walk(item, depth + 1)
    elif not (
        value is None
        or isinstance(value, (bool, int, float, str, _em_decimal, _em_date, _em_datetime, _em_time))
        or _em_is_dataclass(value)
    ):
        kind = type(value).__name__
        raise TypeError(f"can't return a {{kind}}; return numbers, texts, lists, mappings")
"""
"""Refuses values that monty can't convert (a function, a range): it would return their repr."""

_CHECKED = "_em_check(_em_result)\n_em_result"
_CHECKER = "<python-input-1>"

_PROCESSES = 1024
"""The most sessions at one time; a worker is started for each when needed."""


class MontySandbox(Sandbox):
    """Runs the subset of Python; a call takes under a millisecond."""

    name: ClassVar[str] = "monty"

    @classmethod
    @lru_cache(maxsize=1)
    def missing(cls) -> str:
        """Return why this back end can't be used here, or ""."""
        if find_spec("pydantic_monty") is None:
            return "it is not installed (pip install 'em-core[sandbox]')"
        try:
            cls().run("def works(): return 'yes'", "works", {})
        except SandboxError as error:
            return error.message
        return ""

    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> SandboxSession:
        """Open a session in one of monty's workers."""
        return _MontySession(code, limits)


class _MontySession(SandboxSession):
    def __init__(self, code: str, limits: Limits) -> None:
        self._code, self._limits = code, limits
        self._lock = threading.Lock()
        self._session: Any = None
        self._finish: weakref.finalize[..., Any] | None = None

    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        given, named = plain_arguments(function, args, positional)
        if not function.isidentifier() or iskeyword(function):
            raise no_such_function(function)
        with self._lock:
            if self._session is None or self._finish is None or not self._finish.alive:
                self._start()
            inputs = {"_em_positional": given, "_em_args": named}
            call = f"_em_result = {function}(*_em_positional, **_em_args)\n{_CHECKED}"
            try:
                return self._settled(self._fed(call, inputs))
            except SandboxError as error:
                if error.data.get("reason") == f"name {function!r} is not defined":
                    raise no_such_function(function) from None
                raise

    def _start(self) -> None:
        session = _pool(os.getpid()).checkout(
            limits={
                "max_feed_duration_secs": self._limits.seconds,
                "max_memory": self._limits.memory_bytes,
            },
            os_policy={"sleep": "zero"},
            assert_message_annotations=False,
        )
        session.__enter__()
        self._session = session
        self._finish = weakref.finalize(self, _leave, os.getpid(), session)
        try:
            self._fed(self._code, {})
            self._fed(_CHECK, {})
        except SandboxError:
            self._end()
            raise

    def _fed(self, code: str, inputs: dict[str, Any]) -> Any:
        import pydantic_monty as monty

        try:
            return self._session.feed_run(code, inputs=inputs, print_callback=_drop)
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as error:
            failure = self._failure(error)
            if failure.code != "sandbox_fault":
                self._end()  # a limit stopped it half-way: its state can't be used again
            raise failure from None
        except monty.MontyCrashedError as error:
            self._end()
            if getattr(error, "timed_out", False):
                raise too_slow(self._limits) from None
            raise SandboxBroken(f"monty's worker ended: {error}"[:500]) from None
        except BaseException:
            self._end()
            raise

    def _failure(self, error: Any) -> SandboxError:
        raised = error.exception()
        kind, message = type(raised).__name__, str(raised)
        if kind == "TimeoutError" and "limit exceeded" in message:
            return too_slow(self._limits)
        if kind == "MemoryError":
            return too_much_memory(self._limits)
        frames = error.traceback()
        if frames and frames[-1].filename == _CHECKER:
            return fault("NotPlain", message, 0)
        lines = [frame.line for frame in frames if frame.filename == _CODE]
        return fault(kind, message, lines[-1] if lines else 0)

    def _settled(self, value: Any) -> Any:
        try:
            result = plain(value, unwrap=_fields)
            size = len(json.dumps(result, separators=(",", ":")))
        except (NotPlain, ValueError) as error:
            raise fault("NotPlain", str(error), 0) from None
        if size > self._limits.output_bytes:
            raise too_large(self._limits)
        return result

    def _end(self) -> None:
        if self._finish is not None:
            self._finish()
        self._session = None

    def close(self) -> None:
        # A call that still runs in another thread ends by its own time limit.
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()


@lru_cache(maxsize=1)
def _pool(_pid: int) -> Any:
    """Return the workers of this process; a fork gets its own."""
    from pydantic_monty import Monty

    pool = Monty(min_processes=1, max_processes=_PROCESSES)
    pool.__enter__()
    atexit.register(_leave, os.getpid(), pool)
    return pool


def _leave(owner: int, entered: Any) -> None:
    if owner == os.getpid():
        entered.__exit__(None, None, None)


def _drop(_stream: str, _text: str) -> None:
    """Discard what the code prints."""


def _fields(value: Any) -> Any:
    """Return the fields of a dataclass that the code defined; other values unchanged."""
    if type(value).__name__ == "MontyClassProxy" and value.is_dataclass:
        return value.attributes
    return value


_LACKING = {
    "__future__": "",
    "base64": "",
    "binascii": "",
    "bisect": "",
    "collections": "OrderedDict ChainMap UserDict UserList UserString abc",
    "copy": "",
    "csv": "",
    "dataclasses": "asdict astuple replace fields make_dataclass KW_ONLY InitVar",
    "datetime": "UTC",
    "decimal": "",
    "functools": "wraps cmp_to_key total_ordering singledispatch cached_property partialmethod",
    "hashlib": "",
    "itertools": "",
    "json": "JSONEncoder JSONDecoder",
    "math": "",
    "random": "",
    "re": "subn",
    "time": "",
    "tomllib": "",
    "typing": "TypedDict NamedTuple cast",
    "unicodedata": "",
}
MODULES = {module: frozenset(names.split()) for module, names in _LACKING.items()}
"""The modules that code may import, each with the names that monty's module lacks.

Monty has more modules (os, sys, pathlib, asyncio) that plain computing does not need.
"""

METHODS = frozenset(
    "__init__ __post_init__ __repr__ __str__ __eq__ __ne__ __hash__ __call__ __getitem__ "
    "__setitem__ __contains__ __iter__ __next__ __enter__ __exit__ __add__ __radd__ __sub__ "
    "__mul__ __truediv__ __neg__".split()
)
"""Special methods that monty calls; it silently ignores others."""

DATACLASS_OPTIONS = frozenset({"frozen", "eq", "repr", "init"})

_ON_TYPES = frozenset({"fromkeys", "fromhex", "__name__"})

SUBSET_RULES = f"""\
Write Python with only these parts:
- functions (also nested, with defaults, *args and **kwargs), lambdas, comprehensions, f-strings,
  try/except/finally, with, match, global, nonlocal, assert, raise; type hints are fine.
- Imports: only {", ".join(sorted(MODULES.keys() - {"__future__"}))}. No others (no statistics,
  operator, enum, string, io, heapq, os, sys, urllib); no `from x import *`; no relative
  imports. There are no dataclasses.asdict or replace, functools.wraps, cmp_to_key or
  total_ordering, collections.OrderedDict or abc, typing.TypedDict, NamedTuple or cast,
  datetime.UTC, re.subn.
- Classes without bases, without decorators on methods (no property, staticmethod, classmethod) and
  without metaclass; @dataclass with fields and methods is fine (frozen, eq, repr, init; not order,
  slots, kw_only). So no exceptions of your own: raise ValueError("why") with one text.
- No yield, no generators: return lists. No next() on a generator expression: write a loop or take
  the first item of a list. No async, no del (use d.pop(key)), no except*, no `type X = …`.
- No round(x, n): its halves differ; use Decimal.quantize, or format(x, ".2f"). round(x) is fine.
- Methods are called, never passed on: key=lambda s: s.lower(), not key=str.lower or key=d.get.
- re.sub with a text, not with a function. No callable, issubclass, vars, dir, eval, exec, input,
  super, object, bytearray, memoryview.
- Take and return plain values: numbers, texts, lists, mappings with text keys, dataclasses, dates
  and decimals (these come out as texts). No files, no network, no environment; nothing is printed.
"""
"""The instructions for a model that writes code for the sandbox."""


class BeyondSubset(msgspec.Struct, frozen=True):
    """Something in code that monty can't run, or runs differently from Python."""

    line: int
    message: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"line {self.line}: {self.message}"
        return f"{text} ({self.fix})" if self.fix else text


def lint(code: str) -> list[BeyondSubset]:
    """Return everything in the code that is beyond the subset, by line."""
    try:
        tree = module_of(code)
    except (SyntaxError, ValueError) as error:
        return [BeyondSubset(getattr(error, "lineno", 0) or 0, f"the code must be Python: {error}")]
    except (RecursionError, MemoryError):
        return [BeyondSubset(0, "the code is nested too deep")]
    nodes = [*ast.walk(tree)]
    own = _Own(
        {node.name for node in nodes if isinstance(node, ast.FunctionDef)},
        {name for node in nodes for name in _bound(node)},
        {id(node.func) for node in nodes if isinstance(node, ast.Call)},
    )
    found = [
        BeyondSubset(getattr(node, "lineno", 0), message, fix)
        for node in nodes
        for message, fix in _problems(node, own)
    ]
    return sorted(found, key=lambda finding: finding.line)


Problem = tuple[str, str]


class _Own(NamedTuple):
    """What a piece of code defines: functions, names and fields of any kind; and what it calls."""

    functions: set[str]
    names: set[str]
    called: set[int]


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names and fields that a node defines."""
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


@lru_cache(maxsize=1)
def _lacking() -> frozenset[str]:
    """Return the built-in names of Python that monty lacks, by asking it."""
    tried = "".join(
        f"    try:\n        {name}\n    except NameError:\n        found.append({name!r})\n"
        for name in dir(builtins)
        if name.isidentifier()
    )
    code = f"def lacking():\n    found = []\n{tried}    return found\n"
    return frozenset(MontySandbox().run(code, "lacking", {}))


def _problems(node: ast.AST, own: _Own) -> Iterator[Problem]:
    if type(node) in _WHOLE:
        yield _WHOLE[type(node)]
    check = _CHECKS.get(type(node))
    if check is not None:
        yield from check(node)
    if isinstance(node, ast.Call):
        yield from _call(node, own.functions)
    elif isinstance(node, ast.Name):
        yield from _name(node, own.names)
    elif isinstance(node, ast.Attribute) and id(node) not in own.called:
        yield from _method_as_value(node, own.names)


_WHOLE: dict[type[ast.AST], Problem] = {
    ast.Yield: ("there are no generators", "return a list"),
    ast.YieldFrom: ("there are no generators", "return a list"),
    ast.Delete: ("there is no del", "use d.pop(key)"),
    ast.AsyncFunctionDef: ("there is no async", "write a plain function"),
    ast.AsyncFor: ("there is no async", "write a plain loop"),
    ast.AsyncWith: ("there is no async", "write a plain with"),
    ast.Await: ("there is no async", "call a plain function"),
    ast.TryStar: ("there is no except*", "use except"),
}
if hasattr(ast, "TypeAlias"):
    _WHOLE[ast.TypeAlias] = ("there is no type statement", "leave it out")


def _import(node: ast.Import) -> Iterator[Problem]:
    for name in node.names:
        if name.name not in MODULES:
            yield f"there is no module {name.name!r}", "see the list of modules"


def _import_from(node: ast.ImportFrom) -> Iterator[Problem]:
    module = node.module or ""
    if node.level or module not in MODULES:
        yield f"there is no module {'.' * node.level + module!r}", "see the list of modules"
        return
    for name in node.names:
        if name.name == "*":
            yield "there is no import of *", "name what you need"
        elif name.name in MODULES[module]:
            yield f"{module} has no {name.name!r}", "write it yourself"


def _class(node: ast.ClassDef) -> Iterator[Problem]:
    if node.bases or node.keywords:
        yield "classes have no bases", "write it without inheritance"
    for decorator in node.decorator_list:
        yield from _class_decorator(decorator)
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            if part.decorator_list:
                yield f"the method {part.name!r} has a decorator", "write a plain method"
            if part.name.startswith("__") and part.name not in METHODS:
                yield f"{part.name} is never called", "write a method with a plain name"


def _class_decorator(decorator: ast.expr) -> Iterator[Problem]:
    if not isinstance(decorator, ast.Call):
        return
    func = decorator.func
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    for option in decorator.keywords:
        if name == "dataclass" and option.arg not in DATACLASS_OPTIONS:
            yield f"dataclass has no option {option.arg!r}", "leave it out"


def _name(node: ast.Name, own: set[str]) -> Iterator[Problem]:
    if isinstance(node.ctx, ast.Load) and node.id not in own and node.id in _lacking():
        yield f"there is no {node.id!r}", "write it without"


def _call(node: ast.Call, functions: set[str]) -> Iterator[Problem]:
    if isinstance(node.func, ast.Name):
        name, first = node.func.id, node.args[0] if node.args else None
        if name == "round" and len(node.args) + len(node.keywords) > 1:
            yield "round(x, n) rounds some halves differently from Python", "use Decimal.quantize"
        if name == "next" and isinstance(first, ast.GeneratorExp):
            yield "a generator expression is a list here", "take the first item of a list"
        if name in ("eval", "exec"):
            yield f"there is no {name}", "write it out"
        return
    if isinstance(node.func, ast.Attribute):
        yield from _method(node, node.func, functions)


def _method(node: ast.Call, func: ast.Attribute, functions: set[str]) -> Iterator[Problem]:
    yield from _on_type(func)
    if func.attr == "sub" and len(node.args) > 1:
        how = node.args[1] if getattr(func.value, "id", "") == "re" else node.args[0]
        if isinstance(how, ast.Lambda) or getattr(how, "id", None) in functions:
            yield "re.sub takes no function", "loop over re.finditer"


def _method_as_value(node: ast.Attribute, own: set[str]) -> Iterator[Problem]:
    if not isinstance(node.ctx, ast.Load):
        return
    yield from _on_type(node)
    if node.attr in _METHODS and node.attr not in own:
        yield f"the method {node.attr!r} is not called", "pass a lambda that calls it"


_METHODS = frozenset(
    name for kind in (str, list, dict) for name in vars(kind) if not name.startswith("_")
)


def _on_type(node: ast.Attribute) -> Iterator[Problem]:
    on = getattr(node.value, "id", "")
    if isinstance(getattr(builtins, on, None), type) and node.attr not in _ON_TYPES:
        yield f"{on} has no {node.attr!r} of its own", "call the method of a value"
    elif node.attr.startswith("__") and node.attr != "__name__":
        yield f"there is no {node.attr}", "write it without"
    elif node.attr == "fromtimestamp":
        yield "datetime has no 'fromtimestamp'", "add a timedelta to a datetime"


def _raise(node: ast.Raise) -> Iterator[Problem]:
    if isinstance(node.exc, ast.Call) and len(node.exc.args) > 1:
        yield "an exception takes one text", "put all into one f-string"


_CHECKS: dict[type[ast.AST], Callable[[Any], Iterator[Problem]]] = {
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.ClassDef: _class,
    ast.Raise: _raise,
}
