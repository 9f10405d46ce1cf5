"""The functions of udf.py, found without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from em.errors import RoutineError

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
