"""Several attempts at one task: the way that most of them went becomes the routine."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from em.compiler.compile_trace import compile_trace, package_texts
from em.compiler.draft import Draft
from em.errors import EmError, RoutineError, UsageError
from em.models.trace import Effect, KeptTrace


class CompiledTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A routine made of kept traces.

    from_events: of the trace it was made of, and of those that went the same way.
    not_compiled: traces that could not be compiled, with the reason.
    """

    draft: Draft
    files: Mapping[str, str]
    from_events: Sequence[str]
    same_way: Sequence[str]
    not_compiled: Mapping[str, str]


def compile_several(
    traces: Sequence[KeptTrace],
    *,
    name: str | None = None,
    declared: Mapping[str, Effect | None] | None = None,
    keep_all: bool = False,
) -> CompiledTrace:
    """One routine out of attempts at one task; failures count only where nothing succeeded."""
    if not traces:
        raise UsageError("there is no trace to compile", fix="name one or more")
    succeeded = [kept for kept in traces if kept.trace.outcome == "success"]
    drafts: dict[str, Draft] = {}
    failed: dict[str, str] = {}
    for kept in succeeded or [kept for kept in traces if kept.trace.outcome != "failure"] or traces:
        try:
            drafts[kept.id] = compile_trace(
                kept.trace, name=name, declared=declared, keep_all=keep_all
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
    return CompiledTrace(
        draft=drafts[chosen],
        files=package_texts(drafts[chosen]),
        from_events=[event for kept in same for event in events[kept]],
        same_way=same,
        not_compiled=failed,
    )


def _way(draft: Draft) -> tuple[str, ...]:
    """What the routine calls, in its order."""
    return tuple(item.name for item in draft.recording)


def _age(traces: Sequence[KeptTrace], trace_id: str) -> int:
    return next(n for n, kept in enumerate(traces) if kept.id == trace_id)
