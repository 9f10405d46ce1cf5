"""A plain routine as a script: its function, what that calls, and how a run of it ends."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.export import plain_run, script
from em.compiler.export.closure import code_of
from em.compiler.export.expression import python_value
from em.compiler.export.function import function_text, names_called
from em.compiler.layout import Layout
from em.errors import ExportError
from em.runner.package import UDF
from em.runner.routine import Routine, ToolStep, UdfStep
from em.values.syntax_tree import module_of

_LAYOUT = Layout(lambda value: python_value(value, "", is_plain=True), 100)
_RUN = '''\
def run(input: Any, tools: Any, answers: Any = None) -> Any:
    """Run the routine with an input and its tools."""
    return run_plain({function}, INPUT_SCHEMA, input, tools, TOOLS)
'''
_MAIN = 'if __name__ == "__main__":\n    main(run, (__doc__ or "").partition("\\n")[0])'
_OWN = {"run", "INPUT_SCHEMA", "TOOLS"}


def plain_script(
    routine: Routine, *, about: str, udfs: str, constants: Mapping[str, Any], code: str
) -> str:
    """Return a script.

    about: its docstring. udfs: the text of udf.py. constants, code: what it offers to other code.
    """
    for field in ("secrets", "output_schema"):
        if getattr(routine, field):
            raise ExportError(f"plain Python has no {field!r}", place=field)
    for step in routine.all_steps:
        if isinstance(step, UdfStep) and step.effect == "write":
            problem = "a script can't tell whether a function of udf.py did something"
            raise ExportError(problem, place=f"step {step.id}, field effect", fix="make it a tool")
    document: dict[str, Any] = msgspec.to_builtins(routine)
    called = names_called(document)
    runtime = [("run_plain", plain_run), ("main", script), ("NeedsInput", script)]
    prelude = code_of([*called, *runtime])
    own = _without_future(udfs)
    taken = {*_defined(prelude), *_OWN, *constants, *_defined(code)}
    _refuse_clash(own, taken)
    if document["name"] in taken | _defined(own):
        document["name"] = f"do_{document['name']}"
    text = function_text(document)
    (function,) = _defined(text)
    named = {
        "INPUT_SCHEMA": routine.input_schema or {},
        "TOOLS": _writes(routine),
        **constants,
    }
    lines = "\n".join(_constant(name, value) for name, value in named.items())
    parts = [
        f"{about}\n{prelude}", lines, own, text, _RUN.format(function=function), code, _MAIN
    ]  # fmt: skip
    made = "\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
    module_of(made)
    return made


def _writes(routine: Routine) -> dict[str, bool]:
    """Return each tool that is called, and whether it has an effect."""
    declared = {tool.name: tool.known_effect for tool in routine.tools}
    found: dict[str, bool] = {}
    for step in routine.all_steps:
        if isinstance(step, ToolStep):
            is_write = (step.effect or declared.get(step.tool)) != "read"
            found[step.tool] = found.get(step.tool, False) or is_write
    return found


def _constant(name: str, value: Any) -> str:
    head = f"{name}: dict[str, Any] = "
    line = head + _LAYOUT.flow(value)
    lines: Sequence[str] = (
        [line] if len(line) <= _LAYOUT.width else _LAYOUT.broken(value, 4, len(head))
    )
    return line if len(lines) == 1 else head + "\n".join(lines)


def _defined(code: str) -> set[str]:
    """Return the names that code defines or imports."""
    found: set[str] = set()
    for node in module_of(code).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            found |= {
                one.id
                for one in ast.walk(node)
                if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            }
    return found


def _without_future(source: str) -> str:
    """Return code without imports that must stand first in a file; the script has its own."""
    return "\n".join(
        line for line in source.splitlines() if not line.startswith("from __future__ import ")
    )


def _refuse_clash(own: str, taken: set[str]) -> None:
    for name in sorted(_defined(own) & taken):
        raise ExportError(
            f"the script has a {name!r} of its own", place=UDF, fix="give it another name"
        )
