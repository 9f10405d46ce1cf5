"""The files of a routine package: rendered as text, checked, and written to a folder."""

import keyword
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.draft import Draft, GivenUdfs, Recorded, import_line
from em.compiler.example import Call
from em.compiler.routine_text import routine_text
from em.errors import RoutineError, UsageError
from em.runner.authorship import WRITTEN_BY, is_model_written, render_marks
from em.runner.package import PROOF, ROUTINE, UDF, parse_yaml, read_routine, write_files
from em.runner.routine import Routine
from em.runner.trial import hash_of, render_proof
from em.values.canonical import Json, identical

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
