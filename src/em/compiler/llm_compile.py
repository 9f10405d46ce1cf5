"""Compilation with a model, which improves the routine that was compiled without it."""

from collections.abc import Mapping
from pathlib import Path

from em.compiler.compile_trace import compile_file, compile_trace, without_secrets
from em.compiler.confirmation import Confirm
from em.compiler.improvement import Improved, improve
from em.compiler.package_files import write_package
from em.llm.client import LlmClient
from em.traces.trace import Trace
from em.values.call import Effect


def llm_compile_trace(
    trace: Trace,
    client: LlmClient,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    allow_failed: bool = False,
    confirm: Confirm = (),
) -> Improved:
    """Compile a trace and let a model improve the routine, which must still reproduce the trace.

    A trace that says that it failed is refused unless `allow_failed`. confirm: values that the
    routine would ask for, and that are the recorded ones on every run.
    """
    trace = without_secrets(trace)
    draft = compile_trace(
        trace, name=name, declared=declared, allow_failed=allow_failed, confirm=confirm
    )
    return improve(trace, draft, client)


def llm_compile_trace_file(
    trace_path: str | Path,
    output_dir: str | Path,
    client: LlmClient,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    allow_failed: bool = False,
    confirm: Confirm = (),
) -> Improved:
    """Compile a trace file into a package folder with a model's help. Options as for a trace.

    If the model's routine does not hold, the one compiled without it is written: the result's
    `fell_back` says why, and `functions` and `left_out` which of its functions are used.
    """
    made = compile_file(
        trace_path,
        name=name,
        declared=declared,
        client=client,
        allow_failed=allow_failed,
        confirm=confirm,
    )
    write_package(made.draft, Path(output_dir), made.udfs)
    assert made.improved is not None, "a model was asked"
    return made.improved
