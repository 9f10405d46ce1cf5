"""Compilation with a model, which improves the routine that was compiled without it."""

from collections.abc import Mapping
from pathlib import Path

from em.compiler.compile_trace import compile_trace, read_trace_file, without_secrets
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
) -> Improved:
    """Compile a trace and let a model improve the routine, which must still reproduce the trace."""
    trace = without_secrets(trace)
    return improve(trace, compile_trace(trace, name=name, declared=declared), client)


def llm_compile_trace_file(
    trace_path: str | Path,
    output_dir: str | Path,
    client: LlmClient,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
) -> Improved:
    """Compile a trace file into a package folder with a model's help."""
    trace = read_trace_file(trace_path)
    improved = llm_compile_trace(trace, client, name=name, declared=declared)
    write_package(improved.draft, Path(output_dir))
    return improved
