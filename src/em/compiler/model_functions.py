"""Functions that a model wrote, each tried on its own: one that is wrong does not cost the others.

They are used where the model's routine is not taken. A function must return what was recorded, use
its arguments, and contain no value that the routine takes from an input or a result. One that does
not is replaced by a stub, and so is every function that needs it.
"""

import ast
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from em.compiler.draft import Draft
from em.compiler.example import Call
from em.compiler.package_files import render_stubs
from em.compiler.promises import hard_coded
from em.compiler.replay_world import NotReproduced
from em.runner.package import UDF, sandboxed
from em.runner.tools import Function
from em.values.canonical import identical, short
from em.values.syntax_tree import module_of


class TriedFunctions(msgspec.Struct, frozen=True, kw_only=True):
    """A draft with the functions that hold, their names, and why the others don't hold."""

    draft: Draft
    names: Sequence[str] = ()
    left_out: dict[str, str] = {}


def try_functions(draft: Draft, code: str, model: str) -> TriedFunctions:
    """Try each function of a draft that this code defines, and keep those that hold."""
    called = [*draft.functions]
    defined = _defined(code)
    left_out = {name: "the model did not write it" for name in called if name not in defined}
    while names := [name for name in called if name not in left_out]:
        source = _with_stubs(draft, code, left_out)
        problems = _problems(draft, source, names) or _hard_coded(draft, code, names)
        if not problems:
            kept = msgspec.structs.replace(draft, udf_source=source, written_by=model)
            return TriedFunctions(draft=kept, names=names, left_out=left_out)
        left_out |= problems
    return TriedFunctions(draft=draft, left_out=left_out)


def check_examples(draft: Draft, name: str, function: Function, code: str) -> None:
    """Check that a function returns what was recorded, and uses its arguments for it."""
    examples = draft.functions[name]
    for item in examples:
        _check_example(function, item)
    if any(item.args for item in examples) and not _uses_arguments(_defined(code)[name]):
        raise NotReproduced(
            f"{name} does not use its arguments: it returns the same on every run",
            place=f"{UDF}, {name}",
        )


def _check_example(function: Function, item: Call) -> None:
    result = function(**item.args)
    if not identical(result, item.result):
        raise NotReproduced(
            f"{item.tool}({short(item.args)}) returned {short(item.result)} in the recording,"
            f" and returns {short(result)}",
            place=f"{UDF}, {item.tool}",
        )


def _uses_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    names = {argument.arg for argument in named if argument is not None}
    return any(
        isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names
        for statement in function.body
        for node in ast.walk(statement)
    )


def _defined(code: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        node.name: node
        for node in module_of(code).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _problems(draft: Draft, source: str, names: Sequence[str]) -> dict[str, str]:
    """Return what is wrong with each of these functions, as far as the recording shows it."""
    problems: dict[str, str] = {}
    with sandboxed(Path(UDF), source.encode()) as functions:
        for name in names:
            try:
                check_examples(draft, name, functions[name], source)
            except Exception as error:  # noqa: BLE001 - a model's code may raise anything
                problems[name] = str(error)
    return problems


def _hard_coded(draft: Draft, code: str, names: Sequence[str]) -> dict[str, str]:
    """Return the values that these functions contain and must be given."""
    problems: dict[str, str] = {}
    for name in names:
        alone = _without(code, draft.functions.keys() - {name})
        found = hard_coded(draft, draft.document, alone)
        if found:
            problems[name] = found[0]
    return problems


def _with_stubs(draft: Draft, code: str, names: Collection[str]) -> str:
    """Return the code with stubs in place of these functions."""
    parts = [_without(code, names).strip() + "\n", *render_stubs(draft, names)]
    return "\n\n".join(parts)


def _without(code: str, names: Collection[str]) -> str:
    lines = code.splitlines(keepends=True)
    for name, node in reversed(_defined(code).items()):
        if name in names:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            del lines[first - 1 : node.end_lineno]
    return "".join(lines)
