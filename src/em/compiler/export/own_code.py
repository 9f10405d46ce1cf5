"""A person's udf.py, taken apart for a script: its imports, its names, and the rest."""

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from em.errors import ExportError
from em.values.syntax_tree import module_of


class OwnCode:
    """The functions of udf.py.

    The docstring and what runs under `if __name__ == "__main__"` are left out.
    """

    def __init__(self, source: str, path: Path) -> None:
        try:
            tree = module_of(source)
        except (SyntaxError, ValueError) as error:
            raise ExportError(f"the file must be Python: {error}", place=str(path)) from None
        self.imports: dict[str, str] = {}
        """The lines that import something, each with the name that it defines."""
        self._path = path
        dropped = tree.body[:1] if ast.get_docstring(tree) is not None else []
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
                dropped.append(node)
            elif isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
                dropped.append(node)
        self.code = _without(source, tree, dropped)
        self.functions = defined_in(tree.body) | {*self.imports.values()}
        self.coroutines = {n.name for n in tree.body if isinstance(n, ast.AsyncFunctionDef)}

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            module, line = alias.name, ast.unparse(ast.Import([alias]))
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                line = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
            if module == "__future__":
                continue  # the script has its own
            self.imports[line] = alias.asname or alias.name.partition(".")[0]
            first, path = module.partition(".")[0], self._path
            beside = path.with_name(f"{first}.py").exists() or (path.parent / first).is_dir()
            if first in ("", "em") or (beside and first not in sys.stdlib_module_names):
                raise ExportError(
                    f"it imports {module}, which the script would not have",
                    place=f"{path}:{node.lineno}",
                    fix=f"put what it needs into {path.name} itself",
                )

    def refuse_clash(self, defined: set[str], imports: Mapping[str, str]) -> None:
        """Raise if a name means something else in the script.

        defined: what the script defines itself. imports: what it imports, as `self.imports`.
        """
        own = self.functions - {*self.imports.values()}
        clashes = own & (defined | {*imports.values()})
        for line, name in self.imports.items():
            others = [other for other, word in imports.items() if word == name]
            is_alike = all(line == other or _is_alike(line, other) for other in others)
            if name in defined or not is_alike:
                clashes.add(name)
        for name in sorted(clashes):
            raise ExportError(
                f"the script has a {name!r} of its own", place=str(self._path),
                fix="give it another name",
            )  # fmt: skip


def _is_alike(line: str, other: str) -> bool:
    """Return whether two imports of a name do the same: of one package, or of one type."""
    if line.startswith("from typing import "):
        return True  # `Mapping` of collections.abc does what that of typing does
    return all(one.startswith("import ") and " as " not in one for one in (line, other))


def defined_in(nodes: Sequence[ast.stmt]) -> set[str]:
    """Return the names that the statements of a module define, but for its imports."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
            continue
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                found.add(one.id)
    return found


def _without(source: str, tree: ast.Module, dropped: Sequence[ast.stmt]) -> str:
    """Return a source without some of its statements; its comments stay."""
    if len({node.lineno for node in tree.body}) < len(tree.body):  # several on one line
        return ast.unparse(ast.Module([node for node in tree.body if node not in dropped], []))
    lines = source.split("\n")
    for node in dropped:
        end = node.end_lineno or node.lineno
        lines[node.lineno - 1 : end] = [""] * (end - node.lineno + 1)
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).strip("\n")
