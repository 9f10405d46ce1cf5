"""Compiling from a file or from the log, with or without a model.

Of several attempts at one task, the way that most of them went becomes the routine.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from em.compiler.compile_trace import compile_trace, read_trace_file
from em.compiler.draft import Draft, GivenUdfs, Udfs, load_udfs
from em.compiler.improvement import Improved, improve
from em.compiler.package_files import package_texts
from em.errors import EmError, RoutineError, UsageError
from em.llm.interface import LlmClient
from em.traces.trace import KeptTrace, Trace
from em.values.call import Effect


class CompiledTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A routine made of kept traces.

    improved: what became of asking a model, if one was asked.
    from_events: of the trace it was made of, and of those that went the same way.
    not_compiled: traces that could not be compiled, with the reason.
    """

    draft: Draft
    files: Mapping[str, str]
    udfs: GivenUdfs
    improved: Improved | None = None
    from_events: Sequence[str] = ()
    same_way: Sequence[str] = ()
    not_compiled: Mapping[str, str] = {}


def compile_several(
    traces: Sequence[KeptTrace],
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
    client: LlmClient | None = None,
) -> CompiledTrace:
    """One routine out of attempts at one task; failures count only where nothing succeeded.

    With a `client`, its model improves what is chosen; `udfs` as for `compile_trace_file`.
    """
    given = load_udfs(udfs)
    if not traces:
        raise UsageError("there is no trace to compile", fix="name one or more")
    succeeded = [kept for kept in traces if kept.trace.outcome == "success"]
    drafts: dict[str, Draft] = {}
    failed: dict[str, str] = {}
    for kept in succeeded or [kept for kept in traces if kept.trace.outcome != "failure"] or traces:
        try:
            drafts[kept.id] = compile_trace(
                kept.trace, name=name, declared=declared, keep_all=keep_all, udfs=given.functions
            )
        except EmError as error:
            failed[kept.id] = str(error)
    if not drafts:
        raise RoutineError(
            f"none of {len(traces)} traces can be compiled: {next(iter(failed.values()))}",
            place="traces",
            failed=failed,
        )
    ways = Counter(_way(draft) for draft in drafts.values())
    # The newest of the best: what is recorded last is most likely still true.
    chosen = max(
        drafts,
        key=lambda kept: (
            ways[_way(drafts[kept])],
            -len(drafts[kept].recording),
            _age(traces, kept),
        ),
    )
    same = [kept for kept, draft in drafts.items() if _way(draft) == _way(drafts[chosen])]
    events = {kept.id: kept.event_ids for kept in traces}
    trace = next(kept.trace for kept in traces if kept.id == chosen)
    made = _improved(trace, drafts[chosen], given, client)
    return msgspec.structs.replace(
        made,
        from_events=[event for kept in same for event in events[kept]],
        same_way=same,
        not_compiled=failed,
    )


def compile_file(
    trace_path: str | Path,
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
    udfs: Udfs = None,
    client: LlmClient | None = None,
) -> CompiledTrace:
    """One routine out of the trace in a file."""
    trace, given = read_trace_file(trace_path), load_udfs(udfs)
    draft = compile_trace(
        trace, name=name, declared=declared, keep_all=keep_all, udfs=given.functions
    )
    return _improved(trace, draft, given, client)


def _improved(
    trace: Trace, draft: Draft, given: GivenUdfs, client: LlmClient | None
) -> CompiledTrace:
    improved = None if client is None else improve(trace, draft, client, given)
    best = draft if improved is None else improved.draft
    files = package_texts(best, given)
    return CompiledTrace(draft=best, files=files, udfs=given, improved=improved)


def _way(draft: Draft) -> tuple[str, ...]:
    """What the routine calls, in its order."""
    return tuple(item.name for item in draft.recording)


def _age(traces: Sequence[KeptTrace], trace_id: str) -> int:
    return next(n for n, kept in enumerate(traces) if kept.id == trace_id)
