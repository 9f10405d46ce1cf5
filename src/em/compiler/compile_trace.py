"""Compiling a trace into a routine package, without a model."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from em.compiler.draft import Draft, draft_routine
from em.compiler.naming import identifier
from em.compiler.package_files import render_routine, render_udf_tests, render_udfs
from em.compiler.replay import verify_draft
from em.errors import InputError, RoutineError, UsageError
from em.models.trace import Effect, ToolCall, Trace, read_trace
from em.runner.package import ROUTINE, UDF

MAX_NAME_WORDS = 6


def compile_trace(
    trace: Trace,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
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
    verify_draft(draft)
    return draft


def compile_trace_file(
    trace_path: str | Path,
    output_dir: str | Path,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
) -> Draft:
    """Compile a trace file into a package folder. What does not reproduce is not written."""
    path = Path(trace_path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"it can't be read: {error.strerror}", place=str(path)) from None
    trace = read_trace(data, str(path))
    draft = compile_trace(trace, name=name, declared=declared, keep_all=keep_all)
    write_package(draft, Path(output_dir))
    return draft


def write_package(draft: Draft, folder: Path) -> None:
    """Write a package whole, or not at all."""
    if folder.exists() and not (folder / ROUTINE).exists() and any(folder.iterdir()):
        raise UsageError("this folder holds something else", place=str(folder), fix="name another")
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    beside.mkdir(parents=True)
    try:
        for name, text in _files(draft).items():
            (beside / name).write_text(text, encoding="utf-8")
        udf = folder / UDF
        if udf.exists():
            # A person may have written the bodies: they are kept, and so are their tests.
            shutil.copy2(udf, beside / UDF)
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _files(draft: Draft) -> dict[str, str]:
    files = {
        ROUTINE: render_routine(draft.routine, draft.comments),
        "input.json": _json(draft.input),
        "expected_output.json": _json(draft.output),
        "recording.json": _json({"calls": draft.recording, "answers": draft.answers}),
    }
    if any(item.is_udf for item in draft.recording):
        files[UDF] = render_udfs(draft)
        files["test_udf.py"] = render_udf_tests(draft)
    return files


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _name_of(trace: Trace) -> str:
    """What the task is called: by its goal if that is short, else by what was done last."""
    words = trace.mission.goal.split()
    if 0 < len(words) <= MAX_NAME_WORDS:
        return identifier("_".join(words))
    last = trace.calls[-1]
    return identifier(last.tool if isinstance(last, ToolCall) else last.function)
