"""The code that functions need: their own source, and that of all they call, without em.

A function of em calls others of em. They are copied as they are, in the order in which they must
be defined. What comes from the standard library is imported; anything else can't be copied.
"""

import ast
import inspect
import sys
import textwrap
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from em.compiler.export.own_code import defined_in
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
