"""Compiling a trace into a routine package, without a model."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from em.compiler.calls import identifier
from em.compiler.draft import Draft, Udfs, draft_routine, load_udfs
from em.compiler.package_files import write_package
from em.compiler.verification import verify_draft
from em.errors import InputError, RoutineError
from em.settings import Settings
from em.store import redactor_of
from em.traces.trace import ToolCall, Trace, read_trace
from em.values.call import Effect

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


def without_secrets(trace: Trace) -> Trace:
    """A trace with a marker in place of each secret."""
    redact = redactor_of(Settings.load())
    # Not the file's own text: JSON may escape any sign, and so hide a secret.
    if not redact.suspects([msgspec.json.encode(trace)]):
        return trace
    return msgspec.convert(redact.value(msgspec.to_builtins(trace)), Trace)


def _name_of(trace: Trace) -> str:
    """What the task is called: by its goal if that is short, else by what was done last."""
    words = trace.mission.goal.split()
    if 0 < len(words) <= MAX_NAME_WORDS:
        return identifier("_".join(words))
    last = trace.calls[-1]
    return identifier(last.tool if isinstance(last, ToolCall) else last.function)
