"""A routine as one Python script that needs its tools, but not em.

A script has the function that `em routine show --python` prints, each step under its id, the
functions of udf.py, and copies of the code of em that both run on. What a script can't do is an
`ExportError` that names the step and the construct.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pprint import pformat
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from em.compiler.checks import walked
from em.compiler.export import prelude
from em.compiler.export.function import (
    COPIED,
    PRELUDE,
    Function,
    checked_schema,
    docstring,
    is_word,
    writes_of,
)
from em.errors import ExportError
from em.runner.authorship import runs_in_sandbox
from em.runner.card import description_of
from em.runner.package import UDF, Package
from em.runner.routine import Routine, ToolStep, UdfStep
from em.runner.tools import one_line
from em.values.canonical import Json
from em.values.files import read_file
from em.values.json_schema import closed
from em.values.syntax_tree import module_of

ROUTINE = "ROUTINE"
"""The constant of a script that says what its run needs to know of the routine."""
_RUN = '''\
def run(input: Any, tools: Any) -> Any:
    """Run the routine with an input and its tools."""
    return run_function({function}, ROUTINE, input, tools)
'''
_MAIN = 'if __name__ == "__main__":\n    main(run, (__doc__ or "").partition("\\n")[0])'
_ABOUT = """\
{name}: a routine as a script, written by `em routine export`.

It needs Python 3.11 or newer and its tools, not em:

    python THIS_FILE --input input.json --tools my_tools.py
{tools}{usage}
Where something is not as it was recorded it hands over (HandedOver) before its first effect, and \
nothing was done: do the task without it then. It has no journal: what stops it says which effects \
were made, and a run that made one must not be started again."""


class Section(NamedTuple):
    """What a script offers to other code: constants, a function, what it calls, how to use it."""

    constants: Json
    code: str
    calls: Sequence[Callable[..., Any]]
    usage: str


def export_python(
    package: Package,
    *,
    trust: bool = False,
    section: Section | None = None,
    routine: Routine | None = None,
) -> str:
    """Return a script that does what `em run --no-journal` does with this routine.

    A script has no sandbox: functions that a model wrote are refused unless a person has read them.
    routine: another form of the routine of the package, which the script is made of.
    """
    own = _own_code(package, trust=trust)
    chosen, section = routine or package.routine, section or Section({}, "", (), "")
    document: Json = msgspec.to_builtins(chosen)
    document["description"] = description_of(chosen)
    copies = _Copies()
    for name in ("run_function", "main", "step", "awaited", "Failed", "HandedOver"):
        copies.add(name, prelude)
    for called in section.calls:
        copies.add(called.__name__, sys.modules[called.__module__])
    taken = {*copies.code, "run", ROUTINE, *section.constants, *_defined(module_of(section.code))}
    function = Function(
        document,
        functions=own.functions,
        coroutines=own.coroutines,
        taken=taken | own.functions,
        is_script=True,
    )
    text = function.text()
    called_names = function.names_called() - own.functions
    for name, module in {**dict.fromkeys(sorted(PRELUDE), prelude), **COPIED}.items():
        if name in called_names:
            copies.add(name, module)
    own.refuse_clash(taken | {*copies.code, function.name}, copies.imports)
    for step in chosen.all_steps:
        if isinstance(step, UdfStep) and step.function not in own.functions:
            problem = f"there is no function {step.function!r} in {UDF}"
            raise ExportError(problem, place=f"step {step.id}, field function")
    constants = {ROUTINE: _known(chosen, document, function), **section.constants}
    parts = [
        docstring(_about(chosen, section.usage))
        + "\nfrom __future__ import annotations\n\n"
        + "\n".join(_import_lines({**own.imports, **copies.imports}))
        + "\n\n"
        + "\n".join(
            f"{name}: dict[str, Any] = {pformat(value, width=80, sort_dicts=False)}"
            for name, value in constants.items()
        ),
        "# This does for the function below what em's runner does.",
        *copies.code.values(),
        own.code,
        text,
        _RUN.format(function=function.name),
        section.code,
        _MAIN,
    ]
    made = "\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
    module_of(made)
    return made


def _import_lines(lines: Iterable[str]) -> list[str]:
    """Return imports of one name each, sorted, and those from one module as one."""
    names: dict[str, list[str]] = {}
    for module, _, name in (line.partition(" import ") for line in sorted(lines)):
        names.setdefault(module, []).append(name)
    plain = [module for module in names if module.startswith("import ")]
    parts = [f"{one} import {', '.join(known)}" for one, known in names.items() if any(known)]
    return [*plain, *parts]


def _known(routine: Routine, document: Json, function: Function) -> Json:
    """Return what a run must know of the routine beside its function."""
    steps, writes = [*walked(document["steps"])], writes_of(document)
    first = {step["tool"]: step["id"] for step in reversed(steps) if step["type"] == "tool.call"}
    given = routine.input_schema
    secrets = {one.name: one.variable for one in routine.secrets}
    return {
        "hands_over": routine.checks == "hand_over",
        "input_schema": {} if given is None else checked_schema(closed(given), "input_schema"),
        "output_schema": checked_schema(routine.output_schema or {}, "output_schema"),
        "inputs": function.inputs,
        "secrets": {word: [name, secrets[name]] for name, word in function.secrets.items()},
        "tools": {tool: [first[tool], is_write] for tool, is_write in writes.items()},
    }


def signatures(routine: Routine) -> list[str]:
    """Return the tools that a routine calls as signatures of the functions to bring."""
    about = {tool.name: one_line(tool.description, 300) for tool in routine.tools}
    names: dict[str, dict[str, None]] = {}
    for step in routine.all_steps:
        if isinstance(step, ToolStep):
            names.setdefault(step.tool, {}).update(dict.fromkeys(step.args))
    lines = []
    for tool, args in names.items():
        note = f"  # {about[tool]}" if about.get(tool) else ""
        if all(is_word(word) for word in (tool, *args)):
            given = f"*, {', '.join(args)}" if args else ""
            lines.append(f"def {tool}({given}): ...{note}")
        else:
            lines.append(f"# {one_line(f'{tool}({list(args)})', 300)}{note}")
    return lines


def _about(routine: Routine, usage: str) -> str:
    """Return the docstring of a script."""
    lines = "".join(f"    {line}\n" for line in signatures(routine))
    tools = f"\nTools to bring, in a module, an object or a mapping:\n\n{lines}" if lines else ""
    usage = f"\nAs a tool of an agent:\n\n{usage}\n" if usage else ""
    return _ABOUT.format(name=routine.name, tools=tools, usage=usage)


# --- code of other files --------------------------------------------------------------------------


def parsed(source: bytes, path: Path) -> ast.Module:
    """Return a Python file. Raise ExportError if it needs em, or another file beside it."""
    try:
        tree = module_of(source.decode())
    except (SyntaxError, ValueError) as error:
        raise ExportError(f"the file must be Python, in UTF-8: {error}", place=str(path)) from None
    for node in ast.walk(tree):
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["em" if node.level else node.module or ""]
        for name in names:
            first = name.partition(".")[0]
            beside = path.with_name(f"{first}.py").exists() or (path.parent / first).is_dir()
            if first == "em" or (beside and first not in sys.stdlib_module_names):
                raise ExportError(
                    f"it imports {name}, which the script would not have",
                    place=f"{path}:{node.lineno}",  # type: ignore[attr-defined]  # an import
                    fix=f"put what it needs into {path.name} itself",
                )
    return tree


class _OwnCode(NamedTuple):
    """What a script has of udf.py. imports: each with the name that it defines."""

    code: str
    imports: dict[str, str]
    functions: set[str]
    coroutines: set[str]

    def refuse_clash(self, defined: set[str], imports: dict[str, str]) -> None:
        """Raise if a name means something else in the script."""
        ours = {name: line for line, name in imports.items()}
        theirs = {name: line for line, name in self.imports.items()}
        for name in sorted(self.functions):
            our, their = ours.get(name, ""), theirs.get(name, "")
            is_package = all(one[:7] == "import " and " as " not in one for one in (our, their))
            if name in defined or (our not in ("", their) and not is_package):
                raise ExportError(
                    f"the script has a {name!r} of its own", place=UDF, fix="give it another name"
                )


def _own_code(package: Package, *, trust: bool) -> _OwnCode:
    """Return what udf.py has, if a person has read it, without what runs as a command."""
    path = package.folder / UDF
    code = read_file(path, ExportError) if path.exists() else b""
    if runs_in_sandbox(path, code) and not trust:
        raise ExportError(
            "a model wrote these functions and nobody has read them: a script has no sandbox",
            place=str(path),
            fix="read them and run `em trust`, or export with --trust",
        )
    tree = parsed(code, path)
    imports: dict[str, str] = {}
    kept = []
    for node in tree.body[ast.get_docstring(tree) is not None :]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                one = ast.Import([alias])
                if isinstance(node, ast.ImportFrom):
                    # What `typing` has of another module is the same.
                    is_type = node.module == "typing" and alias.name in vars(prelude)
                    module = "collections.abc" if is_type and alias.name != "Any" else node.module
                    one = ast.ImportFrom(module, [alias], 0)  # type: ignore[assignment]
                if getattr(node, "module", "") != "__future__":
                    imports[ast.unparse(one)] = alias.asname or alias.name.partition(".")[0]
        elif not (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)):
            kept.append(node)
    return _OwnCode(
        "\n\n\n".join(map(ast.unparse, kept)),
        imports,
        _defined(ast.Module(kept, [])) | {*imports.values()},
        {node.name for node in kept if isinstance(node, ast.AsyncFunctionDef)},
    )


def _defined(tree: ast.Module) -> set[str]:
    return {name for node in tree.body for name in _names_of(node)}


def _names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module defines, but for imports."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = getattr(node, "targets", [node.target] if isinstance(node, ast.AnnAssign) else [])
    return [one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]


_REPLACED = {
    "short": "def short(value: Any) -> str:\n    return repr(value)[:300]\n",
    "_decoded": "def _decoded(text: str) -> Any:\n"
    "    return json.loads(text, parse_constant=int)  # which refuses NaN\n",
}
"""Functions of em that need more than the standard library, and what a script has instead."""


class _Copies:
    """Definitions of em, with all that they need, in the order in which they must stand.

    imports: lines that import from the standard library, each with the name that it defines.
    """

    def __init__(self) -> None:
        self.code: dict[str, str] = {}
        self.imports: dict[str, str] = {}
        self._homes: dict[str, ModuleType] = {}
        self._begun: set[str] = set()

    def add(self, name: str, module: ModuleType) -> None:
        """Add a name of a module, and all that it needs."""
        text, defined = _source(module)
        node = defined.get(name)
        if name in _REPLACED:
            self.code[name] = _REPLACED[name]
            self.imports["import json"] = "json"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(name, node)
        elif node is not None and self._homes.setdefault(name, module) is not module:
            raise AssertionError(f"two modules define {name}")
        elif node is not None and name not in self._begun:
            self._begun.add(name)
            for one in dict.fromkeys(one.id for one in ast.walk(node) if isinstance(one, ast.Name)):
                self.add(one, module)
            left_out = set(self._imported_inside(node))
            decorators = [one.lineno for one in getattr(node, "decorator_list", ())]
            first = min([node.lineno, *decorators])
            lines = [
                line
                for number, line in enumerate(text.split("\n")[first - 1 : node.end_lineno], first)
                if number not in left_out
            ]
            self.code[name] = textwrap.dedent("\n".join(lines))

    def _imported_inside(self, node: ast.stmt) -> Iterator[int]:
        """Add what a function imports from em when it is called; yield the lines that say so."""
        for one in ast.walk(node):
            if isinstance(one, ast.ImportFrom) and str(one.module).startswith("em."):
                for alias in one.names:
                    self.add(alias.name, import_module(str(one.module)))
                yield from range(one.lineno, (one.end_lineno or one.lineno) + 1)

    def _import(self, name: str, node: ast.Import | ast.ImportFrom) -> None:
        module = str(node.module) if isinstance(node, ast.ImportFrom) else name
        if module.startswith("em."):
            self.add(name, sys.modules[module])
        elif module.partition(".")[0] not in sys.stdlib_module_names:
            raise ExportError(f"a script can't have {name!r}: it needs {module}")
        elif isinstance(node, ast.ImportFrom):
            self.imports[f"from {module} import {name}"] = name
        else:
            lines = {ast.unparse(ast.Import([one])): one.name for one in node.names}
            self.imports |= {line: name for line, one in lines.items() if one.startswith(name)}


@cache
def _source(module: ModuleType) -> tuple[str, dict[str, ast.stmt]]:
    """Return the text of a module, and by name the statements that define or import it."""
    text = inspect.getsource(module)
    found: dict[str, ast.stmt] = {}
    for node in module_of(text).body:
        names = _names_of(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.asname or one.name.partition(".")[0] for one in node.names]
        found.update(dict.fromkeys(names, node))
    return text, found
