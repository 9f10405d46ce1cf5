"""The code that functions need: their own source, and that of all they call, without em.

A function of em calls others of em. They are copied as they are, in the order in which they must
be defined. What comes from the standard library is imported; anything else can't be copied.
"""

import ast
import inspect
import sys
import textwrap
from types import ModuleType
from typing import Any

from em.errors import ExportError
from em.values.syntax_tree import module_of

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
        node = _definition(name, home)
        for other in _names_in(node):
            if other != name and other in vars(home):
                self.add(other, home)
        source = _source(home)
        parts = [ast.get_source_segment(source, node) or ""]
        for one in reversed(getattr(node, "decorator_list", ())):
            parts.insert(0, f"@{ast.get_source_segment(source, one)}")
        self._code[name] = textwrap.dedent("\n".join(parts))

    def _home(self, name: str, value: Any, module: ModuleType) -> ModuleType | None:
        """Return the module of em that defines a name; None if it is imported."""
        if isinstance(value, ModuleType):
            for imported in _imports_of(name, module) or [value.__name__]:
                self._import(f"import {imported}", imported, name)
            return None
        if not _defines(module, name):
            node = _import_of(name, module)
            source = sys.modules[str(node.module)]
            if not source.__name__.startswith("em."):
                self._import(f"from {node.module} import {name}", str(node.module), name)
                return None
            return self._home(name, value, source)
        return module

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


def _source(module: ModuleType) -> str:
    return inspect.getsource(module)


def _defines(module: ModuleType, name: str) -> bool:
    return any(name in _bound(node) for node in module_of(_source(module)).body)


def _definition(name: str, module: ModuleType) -> ast.stmt:
    return next(node for node in module_of(_source(module)).body if name in _bound(node))


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [
            one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
        ]
    return []


def _imports_of(name: str, module: ModuleType) -> list[str]:
    """Return the modules that are imported under a name, also those within it, as `a.b`."""
    nodes = [node for node in module_of(_source(module)).body if isinstance(node, ast.Import)]
    found = [alias.name for node in nodes for alias in node.names]
    return [one for one in found if one.partition(".")[0] == name]


def _import_of(name: str, module: ModuleType) -> ast.ImportFrom:
    for node in module_of(_source(module)).body:
        names = node.names if isinstance(node, ast.ImportFrom) else ()
        if any((alias.asname or alias.name) == name for alias in names):
            assert isinstance(node, ast.ImportFrom)
            return node
    raise ExportError(f"a script can't have {name!r}: nothing says where it comes from")


def _names_in(node: ast.stmt) -> list[str]:
    """Return the names that a definition uses."""
    found = (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    return list(dict.fromkeys(found))
