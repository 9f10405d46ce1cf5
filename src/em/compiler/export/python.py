"""A routine as one Python script that needs its tools, but not em.

A script has the function that `em routine show --python` prints, each step under its id, the
functions of udf.py, and copies of the code of em that both run on. What a script can't do is an
`ExportError` that names the step and the construct.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from em.compiler.checks import walked
from em.compiler.export import prelude, script
from em.compiler.export.code import Closure, OwnCode, defined_in
from em.compiler.export.expression import COPIED, is_word
from em.compiler.export.function import (
    PRELUDE,
    Function,
    checked_schema,
    constant,
    docstring,
    writes_of,
)
from em.errors import ExportError
from em.runner.authorship import runs_in_sandbox
from em.runner.package import UDF, Package
from em.runner.public_form import description_of
from em.runner.routine import Routine, ToolStep, UdfStep
from em.runner.tools import one_line
from em.values.canonical import Json
from em.values.files import read_file
from em.values.json_schema import closed
from em.values.syntax_tree import module_of

ROUTINE = "ROUTINE"
"""The constant of a script that says what its run needs to know of the routine."""
_RUN = '''\
def run(input: Any, tools: Any, answers: Any = None) -> Any:
    """Run the routine with an input, its tools, and answers to its prompts."""
    return run_function({function}, ROUTINE, input, tools, answers)
'''
_MAIN = 'if __name__ == "__main__":\n    main(run, (__doc__ or "").partition("\\n")[0])'


class Section(NamedTuple):
    """What a script offers to other code: constants, functions, and how to use them."""

    constants: Json
    code: str
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
    chosen, section = routine or package.routine, section or Section({}, "", "")
    document: Json = msgspec.to_builtins(chosen)
    document["description"] = description_of(chosen)
    closure = Closure()
    for name in ("run_function", "main", "step", "awaited", "Failed", "NeedsInput"):
        closure.add(name, script)
    names = {*closure.names, "run", ROUTINE, *section.constants, *_defined(section.code)}
    function = Function(
        document,
        functions=own.functions,
        coroutines=own.coroutines,
        taken=names | own.functions,
        is_script=True,
    )
    text = function.text()
    called = function.names_called() - own.functions
    for name, module in {**dict.fromkeys(PRELUDE, prelude), **COPIED}.items():
        if name in called:
            closure.add(name, module)
    own.refuse_clash(names | {*closure.names, function.name}, closure.imports)
    for step in chosen.all_steps:
        if isinstance(step, UdfStep) and step.function not in own.functions:
            problem = f"there is no function {step.function!r} in {UDF}"
            raise ExportError(problem, place=f"step {step.id}, field function")
    constants = {ROUTINE: _known(chosen, document, function), **section.constants}
    parts = [
        "\n".join(
            [
                docstring(_about(chosen, section.usage), ""),
                *_imports(closure, own),
                "",
                *(constant(name, value) for name, value in constants.items()),
            ]
        ),
        "# This does for the function below what em's runner does.",
        closure.code(),
        own.code,
        text,
        _RUN.format(function=function.name),
        section.code,
        _MAIN,
    ]
    made = "\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
    module_of(made)
    return made


def _own_code(package: Package, *, trust: bool) -> OwnCode:
    """Return what udf.py has, if a person has read it."""
    path = package.folder / UDF
    code = read_file(path, ExportError) if path.exists() else b""
    if runs_in_sandbox(path, code) and not trust:
        raise ExportError(
            "a model wrote these functions and nobody has read them: a script has no sandbox",
            place=str(path),
            fix="read them and run `em trust`, or export with --trust",
        )
    try:
        return OwnCode(code.decode(), path)
    except UnicodeDecodeError as error:
        raise ExportError(f"the file must be UTF-8: {error}", place=str(path)) from None


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
        "prompts": [*_prompts(steps, writes)],
    }


def _prompts(steps: Iterable[Json], writes: dict[str, bool]) -> Iterable[list[Any]]:
    """Yield the step, message and fields of each prompt, and whether an effect comes before."""
    has_written = False
    for step in steps:
        has_written |= writes.get(step.get("tool", ""), False)
        if step["type"] == "prompt.user":
            prompt = step["prompt"]
            yield [step["id"], prompt["message"], prompt.get("fields", []), has_written]


def _imports(closure: Closure, own: OwnCode) -> list[str]:
    """Return the imports of both, sorted; a type of `typing` that the script has is the same."""
    theirs = [
        line
        for line, name in own.imports.items()
        if name not in closure.imports.values() or not line.startswith("from typing import ")
    ]
    modules: dict[str, set[str]] = {}
    for line in [*theirs, *closure.imports]:
        module, _, names = line.partition(" import ")
        modules.setdefault(module, set()).add(names)
    lines = [
        f"{module} import {', '.join(sorted(modules[module]))}".removesuffix(" import ")
        for module in sorted(modules, key=lambda line: (line[:4] == "from", line))
    ]
    return ["from __future__ import annotations", "", *lines]


def _defined(code: str) -> set[str]:
    return defined_in(module_of(code).body)


# --- what it says about itself --------------------------------------------------------------------


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
    about = f"{routine.name}: a routine as a script, written by `em routine export`.\n\n"
    about += "It needs Python 3.11 or newer and its tools, not em:\n\n"
    about += "    python THIS_FILE --input input.json --tools my_tools.py\n\n"
    if tools := signatures(routine):
        about += "Tools to bring, in a module, an object or a mapping:\n\n"
        about += "".join(f"    {line}\n" for line in tools) + "\n"
    if usage:
        about += f"As a tool of an agent:\n\n{usage}\n\n"
    if routine.checks == "hand_over":
        about += "Where something is not as it was recorded it hands over (HandedOver) before its"
        about += " first effect, and nothing was done: do the task without it then. "
    about += "It has no journal: what stops it says which effects were made, and a run that made"
    about += " one must not be started again. What is asked after an effect must be answered before"
    return about + " the run, or on a terminal."
