"""Draft: a routine with the recordings behind it, before it is stored or written to a folder.

Its files are rendered as text, checked, and written. Its functions are given by a user, as a
mapping, a module or a file; the others are stubs.
"""

import importlib
import inspect
import keyword
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.example import Call
from em.compiler.replay_world import NotReproduced
from em.compiler.routine_text import routine_text
from em.errors import InputError, RoutineError, UsageError
from em.runner.authorship import WRITTEN_BY, is_model_written, model_of, render_marks
from em.runner.journal import keepable
from em.runner.package import PROOF, ROUTINE, UDF, parse_yaml, read_routine, write_files
from em.runner.routine import Routine
from em.runner.tools import Function, functions_of, load_module
from em.runner.trial import LEFT_OUT, Proof, Trials, hash_of, render_proof
from em.traces.trace import Outcome
from em.values.call import Usage
from em.values.canonical import Json, identical, short

Udfs = Mapping[str, Function] | str | None
"""Functions by name, or where to load them from: `package.module` or a file."""


class GivenUdfs(msgspec.Struct, frozen=True):
    """Functions that the user gave, and the text of their file, if they came from one."""

    functions: Mapping[str, Function] = {}
    text: str = ""
    written_by: str = ""
    """The model that wrote that file, if a model did and a person has read it."""


def load_udfs(udfs: Udfs) -> GivenUdfs:
    """Load the functions of a module, of a file or of a mapping."""
    if not isinstance(udfs, str):
        return GivenUdfs(dict(udfs or {}))
    functions = functions_of(load_module(udfs), imported=True)
    if not udfs.endswith(".py"):
        return GivenUdfs(functions)
    try:
        text = Path(udfs).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"the file must be UTF-8: {error}", place=udfs) from None
    file = Path(udfs).resolve()
    marked = is_model_written(file.parent, file.name)
    return GivenUdfs(
        functions, text, (model_of(file.parent, file.name) or "model") if marked else ""
    )


def check_udfs(given: GivenUdfs, recorded: Mapping[str, Sequence[Call]]) -> None:
    """Call the given functions as they were recorded. Raise NotReproduced if a result differs."""
    for name, function in given.functions.items():
        for call in recorded.get(name, ()):
            _check(function, call)


def _check(function: Function, call: Call) -> None:
    said = f"{call.tool}({short(call.args)}) returned {short(call.result)} in the trace"
    place = f"{UDF}, {call.tool}"
    try:
        found = function(**msgspec.json.decode(msgspec.json.encode(call.args)))
        if inspect.iscoroutine(found):
            import asyncio

            found = asyncio.run(found)
        found = keepable(found, call.tool)
    except Exception as error:  # a function may raise anything; the error reports it
        raise NotReproduced(
            f"{said}, the function raised {type(error).__name__}: {error}",
            place=place,
            recorded=call.result,
        ) from error
    if not identical(found, call.result):
        raise NotReproduced(
            f"{said}, and the function returns {short(found)}",
            place=place,
            fix="fix the function, or leave it out: then a stub is written",
            recorded=call.result,
            replayed=found,
        )


def import_line(name: str, function: Any) -> str | None:
    """Return the import line for a function under this name; None if it can't be imported."""
    module, own = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or not own.isidentifier():
        return None
    try:
        found = inspect.getattr_static(importlib.import_module(module), own, None)
    except ImportError:
        return None
    if found is not function:
        return None
    return f"from {module} import {own}" + (f" as {name}" if own != name else "")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A recording as `recording.json` holds it: what a routine is given, and what it must do."""

    inputs: Json
    calls: Sequence[Call]
    name: str = ""
    output: Any = None


class Draft(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A routine, with everything that its package holds.

    document: what its routine.yaml says. output: what it returns for its first recording.
    udf_source: the text of udf.py, if it holds more than stubs; written_by: the model that wrote
    it. outcome: what the recordings say about how they ended.
    """

    document: Json
    recordings: Sequence[Recorded]
    output: Any = None
    usage: Usage = Usage()
    outcome: Outcome = "success"
    proof: Proof | None = None
    udfs: GivenUdfs = GivenUdfs()
    udf_source: str = ""
    written_by: str = ""

    @cached_property
    def routine(self) -> Routine:
        """The routine that the document describes."""
        return read_routine(self.document, str(self.document.get("name", "routine")))

    @property
    def name(self) -> str:
        """The name of the routine."""
        return self.routine.name

    @property
    def trials(self) -> Trials:
        """How it did on recordings that it was not learnt from."""
        return Trials() if self.proof is None else Trials(self.proof.trials.get(LEFT_OUT, ()))

    @property
    def input(self) -> Json:
        """The inputs of the first recording."""
        return self.recordings[0].inputs if self.recordings else {}

    @property
    def functions(self) -> dict[str, list[Call]]:
        """The recorded calls of functions, by name."""
        found: dict[str, list[Call]] = {}
        for one in self.recordings:
            for call in one.calls:
                if call.is_udf and call.error is None:
                    found.setdefault(call.tool, []).append(call)
        return found


# --- files ----------------------------------------------------------------------------------------


MAX_EXAMPLES = 3


def render_udfs(draft: Draft, given: GivenUdfs) -> str:
    """Render `udf.py`: the given functions, and a stub for each missing one.

    If the functions came from a file, its text is used; else they are imported.
    """
    called = draft.functions
    bound = {name: given.functions[name] for name in called if name in given.functions}
    imports = {} if given.text else {name: import_line(name, f) for name, f in bound.items()}
    stubs = {
        name: examples
        for name, examples in called.items()
        if name not in bound or (not given.text and imports[name] is None)
    }
    if bound and given.text:
        parts = [given.text.rstrip("\n") + "\n"]
    else:
        note = " Write their bodies; the examples were recorded." if stubs else ""
        parts = [f'"""Functions of this routine.{note}"""\n']
    lines = sorted(line for line in imports.values() if line)
    if lines:
        parts[0] += "\n" + "".join(f"{line}\n" for line in lines)
    return "\n\n".join([*parts, *_stubs(stubs)])


def _stubs(called: Mapping[str, list[Call]]) -> Iterator[str]:
    for name, examples in called.items():
        names = list(examples[0].args)
        if not all(_is_name(word) for word in (name, *names)):
            raise RoutineError(
                f"{name!r} or one of its arguments can't be a name in Python", place="udf.py"
            )
        arguments = ", ".join(names)
        shown = "\n".join(
            f"        {name}({_arguments(example)})\n        -> {example.result!r}"
            for example in examples[:MAX_EXAMPLES]
        )
        yield (
            f'def {name}({arguments}):\n    """Compute what the agent computed here. Recorded:\n\n'
            + shown.replace("\\", "\\\\").replace('"""', "'''")
            + '\n    """\n'
            + f'    raise NotImplementedError("write {name}: its docstring has examples")\n'
        )


def render_udf_tests(draft: Draft) -> str:
    """Render `test_udf.py`: the recorded examples as tests."""
    parts = ['"""The recorded examples of udf.py, as tests."""\n\nimport udf\n']
    for name, examples in draft.functions.items():
        for number, example in enumerate(examples, 1):
            parts.append(
                f"def test_{name}_{number}():\n"
                f"    assert udf.{name}(**{example.args!r}) == {example.result!r}\n"
            )
    return "\n\n".join(parts)


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def _arguments(example: Call) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in example.args.items())


def write_package(draft: Draft, folder: Path) -> None:
    """Write the files of a package into a folder; leave other files there alone."""
    files = package_texts(draft)
    check_text(draft.routine, files[ROUTINE])
    _spare_own_functions(draft, folder, files)
    write_files(files, folder)


def _spare_own_functions(draft: Draft, folder: Path, files: dict[str, str]) -> None:
    """Keep functions that a person may have written: drop stubs, refuse a model's functions."""
    if not (folder / UDF).exists():
        return
    if not draft.udf_source.strip():
        for name in (UDF, "test_udf.py", WRITTEN_BY):
            files.pop(name, None)
    elif not is_model_written(folder, UDF):
        raise UsageError(
            "the model's functions would overwrite functions that a person wrote",
            place=str(folder / UDF),
            fix="choose another folder, or move this file",
        )


def check_text(routine: Routine, text: str) -> None:
    """Check that the text of routine.yaml reads back as the verified routine."""
    written = read_routine(parse_yaml(text.encode(), ROUTINE), ROUTINE)
    if not identical(msgspec.to_builtins(written), msgspec.to_builtins(routine)):
        raise RoutineError(
            "the written YAML does not read back as the verified routine", place=ROUTINE
        )


def package_texts(draft: Draft) -> dict[str, str]:
    """Render the files of a package, by name."""
    text = _outcome_note(draft) + routine_text(draft.document)
    files = {
        ROUTINE: text,
        "input.json": as_json(draft.input),
        "expected_output.json": as_json(draft.output),
        "recording.json": as_json(
            {
                "recordings": [recorded_json(one) for one in draft.recordings],
                "usage": draft.usage,
                **({"outcome": draft.outcome} if draft.outcome in OUTCOMES else {}),
            }
        ),
    }
    if draft.proof is not None:
        proof = msgspec.structs.replace(draft.proof, routine=hash_of(text))
        files[PROOF] = render_proof(proof)
    if draft.udf_source.strip():
        files[UDF] = draft.udf_source
        files[WRITTEN_BY] = render_marks({UDF: draft.udf_source.encode()}, draft.written_by)
    elif draft.functions:
        files[UDF] = render_udfs(draft, draft.udfs)
        if draft.udfs.written_by:
            files[WRITTEN_BY] = render_marks({UDF: files[UDF].encode()}, draft.udfs.written_by)
        files["test_udf.py"] = render_udf_tests(draft)
    return files


def recorded_json(one: Recorded) -> Json:
    """Return a recording as `recording.json` has it."""
    calls = [
        {name: value for name, value in call._asdict().items() if value not in (None, False)}
        for call in one.calls
    ]
    return {"name": one.name, "inputs": one.inputs, "calls": calls, "output": one.output}


OUTCOMES = {
    "unknown": "outcome unknown: the trace does not say whether it succeeded",
    "failure": "compiled from a failed trace: it says that it failed",
}
"""What to say about a routine whose trace did not say that it succeeded."""


def _outcome_note(draft: Draft) -> str:
    return f"# {OUTCOMES[draft.outcome]}\n" if draft.outcome in OUTCOMES else ""


def as_json(value: Any) -> str:
    """Render a value as the JSON files of a package."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
