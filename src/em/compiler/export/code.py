"""Code: what a script has of other files: a person's udf.py, and functions of em.

The first is taken apart: its imports, its names, and the rest. The second are copied as they are,
with all that they call, in the order in which they must be defined. What comes from the standard
library is imported; anything else can't be copied.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

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


_REPLACED = {
    "short": "def short(value: Any) -> str:\n    return repr(value)[:300]\n",
    "_decoded": "def _decoded(text: str) -> Any:\n    import json\n\n"
    "    return json.loads(text, parse_constant=int)  # which refuses NaN\n",
}
"""Functions of em that need more than the standard library, and what a script has instead."""


class Closure:
    """The definitions that some names of some modules need."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        """The lines that import something, each with the name that it defines."""
        self._begun: dict[str, ModuleType] = {}
        self._code: dict[str, str] = {}

    def add(self, name: str, module: ModuleType) -> None:
        """Add a name of a module, and all that it needs."""
        if name in _REPLACED:
            self._code[name] = _REPLACED[name]
            return
        home = self._home(name, vars(module)[name], module)
        if home is None:
            return
        if name in self._begun:
            assert self._begun[name] is home, f"two modules define {name}"
            return
        self._begun[name] = home
        source, node = _source(home).text, _source(home).defined[name]
        for other in _names_in(node):
            if other != name and other in vars(home):
                self.add(other, home)
        parts = [ast.get_source_segment(source, node) or ""]
        for one in reversed(getattr(node, "decorator_list", ())):
            parts.insert(0, f"@{ast.get_source_segment(source, one)}")
        self._code[name] = textwrap.dedent("\n".join(parts))

    def _home(self, name: str, value: Any, module: ModuleType) -> ModuleType | None:
        """Return the module of em that defines a name; None if it is imported."""
        known = _source(module)
        if isinstance(value, ModuleType):
            within = [one for one in known.modules if one.partition(".")[0] == name]
            for imported in within or [value.__name__]:
                self._import(f"import {imported}", imported, name)
            return None
        if name in known.defined:
            return module
        if name not in known.imported:
            raise ExportError(f"a script can't have {name!r}: nothing says where it comes from")
        origin = str(known.imported[name].module)
        if origin.startswith("em."):
            return self._home(name, value, sys.modules[origin])
        self._import(f"from {origin} import {name}", origin, name)
        return None

    def _import(self, line: str, module: str, name: str) -> None:
        if module.split(".", maxsplit=1)[0] not in sys.stdlib_module_names:
            raise ExportError(f"a script can't have {name!r}: it needs {module}")
        self.imports[line] = name

    @property
    def names(self) -> set[str]:
        """The names that the code defines."""
        return {*self._code}

    def code(self) -> str:
        """Return the definitions, each after those that it needs."""
        return "\n\n\n".join(self._code.values()) + "\n"


class _Source(NamedTuple):
    """What stands at the top of a module, by the names that it defines or imports."""

    text: str
    defined: dict[str, ast.stmt]
    imported: dict[str, ast.ImportFrom]
    modules: list[str]


@cache
def _source(module: ModuleType) -> _Source:
    found = _Source(inspect.getsource(module), {}, {}, [])
    for node in module_of(found.text).body:
        found.defined.update(dict.fromkeys(defined_in([node]), node))
        if isinstance(node, ast.ImportFrom):
            found.imported.update({one.asname or one.name: node for one in node.names})
        elif isinstance(node, ast.Import):
            found.modules.extend(one.name for one in node.names)
    return found


def _names_in(node: ast.stmt) -> list[str]:
    """Return the names that a definition uses."""
    found = (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    return list(dict.fromkeys(found))
