"""Compilation with a model, which improves the routine that was compiled without it."""

from pathlib import Path
from typing import Any

from em.compiler.compile_trace import compile_file, compile_trace, without_secrets
from em.compiler.improvement import Improved
from em.compiler.package_files import write_package
from em.llm.client import LlmClient
from em.traces.trace import Trace


def llm_compile_trace(trace: Trace, client: LlmClient, **options: Any) -> Improved:
    """Compile a trace and let a model improve the routine, which must still do what was recorded.

    options: those of `compile_several`.
    """
    made = compile_trace(without_secrets(trace), client=client, **options)
    assert made.improved is not None, "a model was asked"
    return made.improved


def llm_compile_trace_file(
    trace_path: str | Path, output_dir: str | Path, client: LlmClient, **options: Any
) -> Improved:
    """Compile a trace file into a package folder with a model's help. Options as for a trace.

    If the model's routine does not hold, the one compiled without it is written: the result's
    `fell_back` says why, and `functions` and `left_out` which of its functions are used.
    """
    made = compile_file(trace_path, client=client, **options)
    write_package(made.draft, Path(output_dir))
    assert made.improved is not None, "a model was asked"
    return made.improved
