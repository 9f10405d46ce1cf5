"""Tools: Python functions by name, with their signature and their effect.

One Tool for all: a routine calls it, a workflow step calls it, and a behaviour engine's tool is
a Tool with checks.
"""

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from em.errors import EmError, NoEffect, RoutineError, UsageError
from em.runner.authorship import refuse_unread
from em.traces.adapters import adapted
from em.trust import content_hash
from em.values.call import Effect, Signature, declare, declared_effect
from em.values.canonical import Json
from em.values.json_schema import problems, properties_of, schema_problem
from em.values.mismatch import closest

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any]

_CODE = "__em_code__"
"""Where a module that `load_file` loaded has the hash of its source."""


class Tool:
    """A function that routines may call."""

    def __init__(
        self,
        name: str,
        function: Function,
        effect: Effect | None = None,
        *,
        is_method: bool = False,
    ) -> None:
        if not callable(function):
            raise UsageError(
                f"expected a function, got a {type(function).__name__}", place=f"tool {name}"
            )
        self.name = name
        self.function = function
        self.effect: Effect | None = effect or declared_effect(function)
        self.signature = Signature(function, skip_first=is_method)
        self.is_async = self.signature.is_async
        self.parameters = frozenset(p.name for p in self.signature.parameters or ())
        self.takes_key = "idempotency_key" in self.parameters
        # For a tool that enforces a timeout itself: returns its function for these seconds.
        self.within: Callable[[float | None], Function] | None = None
        # For a tool that can say at run time whether repeating a call is harmless.
        self.does_no_harm: Callable[[], bool] | None = None
        # For a tool that can show what a call would do: the command, or a diff.
        self.preview: Callable[[Mapping[str, Any]], str] | None = None
        # The JSON Schema that arguments must fit, if one was given.
        self.args_schema: Json | None = None
        # For a declared tool: a digest of its declaration.
        self.digest = ""
        self.description = (inspect.getdoc(function) or "").partition("\n")[0]


def renamed(tool: Tool, name: str) -> Tool:
    """Return a copy of a tool by another name; changing it leaves the first as it is."""
    # Not `copy`, which takes four times as long: a workflow copies the tool of each step of a run.
    other = Tool.__new__(Tool)
    other.__dict__ |= tool.__dict__
    other.name = name
    return other


class ToolRegistry(Mapping[str, Tool]):
    """The tools that a run may use.

    registry = ToolRegistry()
    registry.register("my_tool", my_tool_function)

    @registry.tool(effect="read")
    def fetch(url: str) -> str: ...
    """

    def __init__(self, tools: "Tools" = None) -> None:
        self._tools: dict[str, Tool] = {}
        for name, thing in _by_name(tools):
            if isinstance(thing, Tool):
                self._tools[name] = thing
            else:
                self.register(name, thing)

    def register(
        self,
        name: str,
        function: Any,
        *,
        effect: Effect | None = None,
        args_schema: Any = None,
    ) -> None:
        """Add a tool; one of the same name is replaced.

        function: a function or a method, a tool of LangChain or the Anthropic SDK, a pydantic
            model with `__call__`, or a definition with its function.
        args_schema: a JSON Schema, or a pydantic model, that the arguments of each call must fit;
            a call that doesn't fit is not made.
        """
        found = adapted(function)
        if found is None:
            tool = Tool(name, _taking_json(function), effect)
        elif found.function is None:
            raise UsageError(
                f"a {type(function).__name__} has many tools",
                place=f"tool {name}",
                fix="name its MCP server under `allow: {mcp: …}` in em.yaml",
            )
        else:
            tool = Tool(name, found.function, effect or found.effect)
            tool.description = found.description.partition("\n")[0]
            args_schema = found.schema if args_schema is None else args_schema
        if args_schema is not None:
            _check_arguments(tool, args_schema)
        self._tools[name] = tool

    def tool(self, name: str | None = None, *, effect: Effect | None = None) -> Callable[[F], F]:
        """Decorate a function to add it as a tool."""

        def add(function: F) -> F:
            self.register(name or function.__name__, function, effect=effect)
            return declare(function, effect)

        return add

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def named(self, names: Mapping[str, str]) -> dict[str, Tool]:
        """Return copies of tools by new names, to be changed without changing the registered ones.

        `names` maps each new name to a tool's; tools that are not registered are left out.
        """
        return {
            new: renamed(self._tools[name], new)
            for new, name in names.items()
            if name in self._tools
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    @classmethod
    def load(cls, source: str) -> "ToolRegistry":
        """Load the tools of a module (`package.module`) or a file.

        They are those of its registry; without one, its functions and its tools of other libraries.
        """
        module = load_module(source)
        for value in vars(module).values():
            if isinstance(value, cls):
                return value
        registry = cls(functions_of(module))
        for name, value in vars(module).items():
            if isinstance(value, type | tuple) or name.startswith("_"):
                continue
            found = adapted(value)
            if found is not None and found.function is not None:
                registry.register(found.name, value)
        return registry


Tools = Mapping[str, Any] | Iterable[Any] | None
"""Tools as users give them: by name, or a list of tools that have names of their own."""


def _by_name(tools: Tools) -> Iterator[tuple[str, Any]]:
    """Yield tools with their names: those they are given by, or their own."""
    if tools is None:
        return
    if isinstance(tools, Mapping):
        yield from tools.items()
        return
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise UsageError(
            f"expected tools by name or a list of tools, got a {type(tools).__name__}",
            place="tools",
        )
    for one in tools:
        if isinstance(one, Mapping | list):
            yield from _by_name(one)
            continue
        found = adapted(one)
        if found is not None:
            yield found.name, one
        elif isinstance(one, Tool):
            yield one.name, one
        elif callable(one):
            yield getattr(one, "__name__", type(one).__name__), one
        else:
            raise UsageError(
                f"expected a tool, got a {type(one).__name__}",
                place="tools",
                fix="give functions, tools of other libraries, or (definition, function)",
            )


def _taking_json(function: Any) -> Any:
    """Return a function whose parameters of pydantic's models may be given as JSON."""
    if "pydantic" not in sys.modules or not callable(function):
        return function
    from em.traces.adapters.pydantic_model import taking_json

    return taking_json(function)


def _check_arguments(tool: Tool, schema: Any) -> None:
    """Let a tool refuse arguments that don't fit a schema, before its function is called."""
    schema = schema.model_json_schema() if hasattr(schema, "model_json_schema") else schema
    if not isinstance(schema, Mapping):
        raise UsageError(
            f"args_schema must be a JSON Schema or a pydantic model, got {type(schema).__name__}",
            place=f"tool {tool.name}",
        )
    tool.args_schema = dict(schema)
    problem = schema_problem(tool.args_schema)
    if problem:
        raise UsageError(f"args_schema is not a JSON Schema: {problem}", place=f"tool {tool.name}")
    inner = tool.function
    known = tool.args_schema
    hidden = {"idempotency_key"} - properties_of(known).keys()

    def check(args: Mapping[str, Any]) -> None:
        shown = {name: value for name, value in args.items() if name not in hidden}
        for path, problem in problems(known, shown):
            where = f"{path}: " if path else ""
            raise ArgumentsDontFit(f"the arguments don't fit {tool.name}: {where}{problem}")

    @functools.wraps(inner)
    async def acall(**args: Any) -> Any:
        check(args)
        return await inner(**args)

    @functools.wraps(inner)
    def call(**args: Any) -> Any:
        check(args)
        return inner(**args)

    tool.function = acall if tool.is_async else call


class ArgumentsDontFit(NoEffect, ValueError):
    """The arguments of a call don't fit the tool's schema. The call was not made."""


def argument_problem(tool: Tool, args: Collection[str]) -> str:
    """Say why a tool can't be called with arguments of these names; "" if it can."""
    problem = tool.signature.problem(args)
    return f"the arguments don't fit {tool.name}: {problem}" if problem else ""


def functions_of(module: ModuleType, *, imported: bool = False) -> dict[str, Function]:
    """Return the public functions that a module defines; with `imported`, also imported ones."""
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value)
        and not isinstance(value, type)
        and not name.startswith("_")
        and (imported or getattr(value, "__module__", "") == module.__name__)
    }


def load_module(source: str) -> ModuleType:
    """Import a module by its name, or a file by its path."""
    path = Path(source)
    try:
        if path.suffix != ".py":
            return _named_module(source)
        code = path.read_bytes()
        refuse_unread(path, code)
        return load_file(path, f"em_tools_{path.stem}_{content_hash(code)[:12]}", code)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{source}.".startswith(f"{error.name}."):
            raise RoutineError(
                f"the module imports {error.name!r}, which is not installed",
                place=source,
                fix=f"install {error.name}, or remove the import",
            ) from error
        raise UsageError(
            f"there is no module {error.name!r}", place=source, fix="give a path or package.module"
        ) from error
    except FileNotFoundError as error:
        raise UsageError("there is no such file", place=source) from error
    except OSError as error:
        raise UsageError(f"can't be read: {error.strerror}", place=source) from error


def _named_module(name: str) -> ModuleType:
    """Import a module by its name; `.`, `..` and `./tools` are none."""
    if not all(name.split(".")):
        found = "a folder" if Path(name).is_dir() else "neither"
        raise UsageError(
            f"expected a Python file or the name of a module, found {found}",
            place=name,
            fix="give a path that ends in .py, or package.module",
        )
    try:
        if name not in sys.modules:
            _refuse_unread_module(name)
        return importlib.import_module(name)
    except (ModuleNotFoundError, EmError):
        raise
    except Exception as error:
        raise RoutineError(
            f"the module raised {type(error).__name__}: {error}", place=name
        ) from error


def _refuse_unread_module(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin and spec.origin.endswith(".py"):
        refuse_unread(Path(spec.origin), Path(spec.origin).read_bytes())


def load_file(path: Path, name: str, code: bytes | None = None) -> ModuleType:
    """Run a Python file as a module of its own; errors name the line.

    The source is compiled here, never cached bytecode: people trust what they can read.
    """
    code = path.read_bytes() if code is None else code
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    setattr(module, _CODE, content_hash(code))
    # As for an import: dataclasses look their module up by its name.
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        return _executed(module, path, code)
    except BaseException:
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
        raise


def _executed(module: ModuleType, path: Path, code: bytes) -> ModuleType:
    try:
        exec(compile(code, str(path), "exec"), vars(module))  # noqa: S102 - as an import does
    except ModuleNotFoundError as error:
        raise RoutineError(
            f"the file imports {error.name!r}, which is not installed",
            place=f"{path}:{_line_in(error, path)}",
            fix=f"install {error.name}, or remove the import",
        ) from error
    except SyntaxError as error:
        raise RoutineError(
            f"invalid Python: {error.msg}", place=f"{path}:{error.lineno}"
        ) from error
    except Exception as error:
        line = _line_in(error, path)
        raise RoutineError(
            f"the file raised {type(error).__name__}: {error}", place=f"{path}:{line}"
        ) from error
    return module


def code_digest(function: Function) -> str:
    """Return a digest of the code behind a callable; empty for what Python or em brings.

    It is that of the whole file, since a function uses what stands around it. Code without a file,
    as in a notebook, is compared by itself.
    """
    found = _innermost(function)
    code = getattr(found, "__code__", None)
    if isinstance(code, CodeType):
        around, name = found.__globals__, code.co_filename
    else:
        around = vars(sys.modules.get(found.__module__, sys))
        name = around.get("__file__") or ""
    if _CODE in around:
        return str(around[_CODE])
    try:
        file = os.stat(name)
        return _file_digest(name, file.st_mtime_ns, file.st_size)
    except OSError:
        return content_hash(repr(_parts(code)).encode()) if isinstance(code, CodeType) else ""


@functools.lru_cache(maxsize=256)
def _file_digest(name: str, _changed: int, _size: int) -> str:
    path = Path(name)
    is_ours = path.suffix == ".py" and not _is_of_python_or_em(path)
    return content_hash(path.read_bytes()) if is_ours else ""


def _innermost(function: Any) -> Any:
    """Return the function, or the class, behind wrappers, partial calls, methods and objects."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif callable(getattr(function, "__wrapped__", None)):
            function = function.__wrapped__
        elif isinstance(function, type) or hasattr(function, "__code__"):
            return function
        else:
            return type(function)


def _is_of_python_or_em(path: Path) -> bool:
    import sysconfig

    library = Path(sysconfig.get_path("stdlib"))
    if path.is_relative_to(library):
        return "site-packages" not in path.relative_to(library).parts
    return path.is_relative_to(Path(__file__).parents[2])


def _parts(code: CodeType) -> list[Any]:
    """Return what code does, without its place in a file."""
    constants = [
        _parts(part)
        if isinstance(part, CodeType)
        else sorted(map(repr, part))
        if isinstance(part, frozenset)
        else repr(part)
        for part in code.co_consts
    ]
    return [code.co_code.hex(), code.co_names, code.co_varnames, constants]


def _line_in(error: Exception, path: Path) -> int:
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def missing_tool(name: str, known: Mapping[str, Any]) -> RoutineError:
    """Return the error for a tool that is not registered."""
    other = "register it, or name a module that has it (--tools package.module)"
    fix = closest(name, list(known)) or other
    return RoutineError(f"there is no tool {name!r}", fix=fix, tool=name)


LONGEST = 64
_PLAIN = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST}}}")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


def tool_name(name: str, taken: Collection[str] = ()) -> str:
    """Return the name if it is a valid tool name, else a valid one made from it and its hash."""
    if _PLAIN.fullmatch(name) and name not in taken:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    for length in range(8, len(digest)):
        sign = f"-{digest[:length]}"
        begin = _OTHER.sub("_", name).strip("_")[: LONGEST - len(sign)]
        if f"{begin or 'routine'}{sign}" not in taken:
            return f"{begin or 'routine'}{sign}"
    raise AssertionError("no two names have the same hash")


def tool_names(names: Iterable[str], own: Collection[str] = ()) -> dict[str, str]:
    """Map tool names to these names. Those that are valid tool names unchanged have priority.

    own: the tool names that are taken.
    """
    named: dict[str, str] = {}
    taken = set(own)
    for name in sorted(names, key=lambda name: (tool_name(name, own) != name, name)):
        tool = tool_name(name, taken)
        taken.add(tool)
        named[tool] = name
    return named


def one_line(text: str, longest: int = 1024) -> str:
    """Return a text on one line, without control characters; if too long, its first words."""
    shown = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(shown) <= longest:
        return shown
    words = shown[:longest].rpartition(" ")[0]
    is_one_word = len(words) < longest // 2
    return (shown[: longest - 1] if is_one_word else words) + "\N{HORIZONTAL ELLIPSIS}"
