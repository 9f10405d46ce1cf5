"""Compiling a trace into a routine package, without a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.calls import identifier
from em.compiler.draft import Draft, GivenUdfs, Udfs, draft_routine, load_udfs
from em.compiler.package_files import render_routine, render_udf_tests, render_udfs
from em.compiler.verification import verify_draft
from em.errors import InputError, RoutineError, UsageError
from em.redaction.redactor import Redactor
from em.runner.authorship import WRITTEN_BY, is_model_written, render_marks
from em.runner.package import ROUTINE, UDF, parse_yaml, read_routine, write_files
from em.settings import Settings
from em.traces.trace import ToolCall, Trace, read_trace
from em.values.call import Effect
from em.values.canonical import identical

MAX_NAME_WORDS = 6


def compile_trace(
    trace: Trace,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
) -> Draft:
    """A routine that reproduces the trace, proved by replaying it against the recording."""
    if not trace.calls:
        raise RoutineError(
            "there is no call in this trace",
            place="events",
            fix="a routine is made of tool calls; record the agent's tools",
        )
    chosen = name or _name_of(trace)
    draft = draft_routine(trace, name=chosen, declared=declared or {}, keep_all=keep_all)
    verify_draft(draft, load_udfs(udfs).functions)
    return draft


def compile_trace_file(
    trace_path: str | Path,
    output_dir: str | Path,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
) -> Draft:
    """Compile a trace file into a package folder. What does not reproduce is not written.

    `udfs` binds what the trace called to real functions: a mapping, a `package.module` or a file.
    Secrets that the file holds are taken out first, and become secrets of the routine.
    """
    trace = read_trace_file(trace_path)
    given = load_udfs(udfs)
    draft = compile_trace(
        trace, name=name, declared=declared, keep_all=keep_all, udfs=given.functions
    )
    write_package(draft, Path(output_dir), given)
    return draft


def read_trace_file(trace_path: str | Path) -> Trace:
    """The trace in a file, without its secrets."""
    path = Path(trace_path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError("this file does not exist", place=str(path)) from None
    except OSError as error:
        raise InputError(f"it can't be read: {error.strerror}", place=str(path)) from None
    return without_secrets(read_trace(data, str(path)))


def redactor() -> Redactor:
    """What takes secrets out, as the settings of this folder say."""
    said = Settings.load().redact
    return Redactor(said.patterns, said.fields, said.tool_args)


def without_secrets(trace: Trace) -> Trace:
    """A trace with a marker in place of each secret."""
    redact = redactor()
    # Not the file's own text: JSON may escape any sign, and so hide a secret.
    if not redact.suspects([msgspec.json.encode(trace)]):
        return trace
    return msgspec.convert(redact.value(msgspec.to_builtins(trace)), Trace)


def write_package(draft: Draft, folder: Path, udfs: GivenUdfs | None = None) -> None:
    """Write em's own files of a package, each whole; what else lies there is left alone."""
    files = package_texts(draft, udfs)
    check_text(draft, files[ROUTINE])
    _spare_own_functions(draft, folder, files)
    write_files(files, folder)


def _spare_own_functions(draft: Draft, folder: Path, files: dict[str, str]) -> None:
    """What a person may have written is not overwritten: neither by stubs nor by a model."""
    if not (folder / UDF).exists():
        return
    if not draft.udf_source.strip():
        for name in (UDF, "test_udf.py", WRITTEN_BY):
            files.pop(name, None)
    elif not is_model_written(folder, UDF):
        raise UsageError(
            "there are functions of a person's own here, which a model's would replace",
            place=str(folder / UDF),
            fix="name another folder, or move them away",
        )


def check_text(draft: Draft, text: str) -> None:
    """What is written must say what was verified."""
    written = read_routine(parse_yaml(text.encode(), ROUTINE), ROUTINE)
    if not identical(msgspec.to_builtins(written), msgspec.to_builtins(draft.routine)):
        raise RoutineError("its YAML does not read back as what was verified", place=ROUTINE)


def package_texts(draft: Draft, udfs: GivenUdfs | None = None) -> dict[str, str]:
    """The files of a package, by name."""
    files = {
        ROUTINE: render_routine(draft.routine, draft.comments),
        "input.json": as_json(draft.input),
        "expected_output.json": as_json(draft.output),
        "recording.json": as_json(
            {"calls": draft.recording, "answers": draft.answers, "usage": draft.usage}
        ),
    }
    if draft.udf_source.strip():
        files[UDF] = draft.udf_source
        files[WRITTEN_BY] = render_marks({UDF: draft.udf_source.encode()}, draft.written_by)
    elif any(item.is_udf for item in draft.recording):
        given = udfs or GivenUdfs()
        files[UDF] = render_udfs(draft, given)
        if given.written_by:
            files[WRITTEN_BY] = render_marks({UDF: files[UDF].encode()}, given.written_by)
        files["test_udf.py"] = render_udf_tests(draft)
    return files


def as_json(value: Any) -> str:
    """A value as the JSON files of a package hold it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _name_of(trace: Trace) -> str:
    """What the task is called: by its goal if that is short, else by what was done last."""
    words = trace.mission.goal.split()
    if 0 < len(words) <= MAX_NAME_WORDS:
        return identifier("_".join(words))
    last = trace.calls[-1]
    return identifier(last.tool if isinstance(last, ToolCall) else last.function)
