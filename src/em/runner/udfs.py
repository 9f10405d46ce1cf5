"""The functions of a package, each where it belongs: in this process, or in the sandbox."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from em.errors import RoutineError, SandboxError
from em.runner.authorship import code_hash, runs_in_sandbox
from em.runner.tools import Function, functions_of, load_file

if TYPE_CHECKING:
    from em.runner.sandbox.sandbox import Session


class Udfs(dict[str, Function]):
    """Functions by name. A context manager: where they run in a sandbox, it ends with it."""

    def __init__(
        self, functions: Mapping[str, Function] | None = None, session: "Session | None" = None
    ) -> None:
        super().__init__(functions or {})
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._session is not None:
            self._session.close()


def load_udfs(path: Path, *, trust: bool = False) -> Udfs:
    """The functions of a file; what a model wrote and no person has read goes to the sandbox."""
    try:
        code = path.read_bytes()
    except FileNotFoundError:
        return Udfs()
    if runs_in_sandbox(path, code) and not trust:
        return sandboxed(path, code)
    module = load_file(path, f"em_udf_{code_hash(code)[:12]}", code)
    return Udfs(functions_of(module, imported=True))


def sandboxed(path: Path, code: bytes) -> Udfs:
    """The functions of this code, which run in a sandbox; `path` is where it lies, or will."""
    import ast

    from em.runner.sandbox.sandbox import choose

    try:
        text = code.decode()
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        raise RoutineError(f"this is no Python: {error}", place=f"{path}:{line}") from None
    try:
        session = choose(text).open(text)
    except SandboxError as error:
        error.place = str(path)
        raise
    # As in a process: the public functions that the file itself defines.
    names = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"
    ]
    return Udfs({name: _in_session(session, name, path) for name in names}, session)


def _in_session(session: "Session", name: str, path: Path) -> Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return session.call(name, kwargs, args)
        except SandboxError as error:
            line = error.data.get("line")
            error.place = f"{path}:{line}" if line else f"{path}, function {name}"
            raise

    call.__name__ = call.__qualname__ = name
    return call


_NO_FUNCTIONS = (
    ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.DictComp,
    ast.SetComp,
)  # fmt: skip


def udf_names(path: Path) -> frozenset[str] | None:
    """The names that can be functions; None where only running it can tell."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise RoutineError(
            f"this is no Python: {error.msg}", place=f"{path}:{error.lineno or 1}"
        ) from None
    except ValueError as error:
        raise RoutineError(f"this is no Python: {error}", place=f"{path}:1") from None
    names = frozenset(_bound(tree.body))
    if "*" in names:
        return None
    return frozenset(name for name in names if not name.startswith("_"))


def _bound(statements: list[ast.stmt]) -> Iterator[str]:
    """The names that these statements give to something that may be a function."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is not None and not isinstance(node.value, _NO_FUNCTIONS):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif not isinstance(node, ast.ClassDef | ast.Import):
            for field in ("body", "orelse", "finalbody"):
                yield from _bound(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _bound(handler.body)
