"""The draft of a routine that goes the way which several traces have in common.

What their requests have in common is the template of the request, and the rest its inputs. Each
trace is compiled by itself, with those inputs; what holds in all of them is kept.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from em.compiler.confirmation import confirmed, names_to_confirm, relaxed
from em.compiler.differences import settled, told_apart
from em.compiler.draft import Draft
from em.compiler.evidence import ENOUGH, of_constant
from em.compiler.loops import unfolded
from em.compiler.templates import Filled, filled, merged_of, templates_of, with_template
from em.errors import EmError
from em.traces.trace import Trace

Compile = Callable[..., Draft]
"""Compiles one trace. `keep`: numbers of reads that stay though nothing uses them here."""


def way_drafts(
    traces: Sequence[Trace],
    said: Sequence[str],
    compile_one: Compile,
    proved: Callable[[Draft], Draft],
) -> Iterator[Draft]:
    """Yield a routine for each template of the requests that leaves nothing to ask.

    said: what each trace was asked for in words.
    """
    whole = (filled(traces, said, template) for template in templates_of(said))
    merged = (filled(traces, said, template) for template in merged_of(said))
    for found in chain(whole, (one for one in merged if one.loops)):
        try:
            draft = _draft(found, traces, compile_one)
            if draft is not None:
                yield with_template(proved(draft), found)
        except EmError:
            continue  # one of the traces can't be compiled so, or not be repeated


def _draft(found: Filled, traces: Sequence[Trace], compile_one: Compile) -> Draft | None:
    """Return what holds in all traces; None if something is left to ask."""
    drafts = _same_way(found.traces, compile_one)
    if drafts is None:
        return None
    base = max(range(len(drafts)), key=lambda number: _checks(drafts[number]))
    first, others = drafts[base], [*drafts[:base], *drafts[base + 1 :]]
    draft = settled(told_apart(relaxed(first, others), others), others)
    if of_constant(len(traces)) >= ENOUGH:
        draft = confirmed(draft, list(names_to_confirm(draft.routine)))
    if draft.routine.asks:
        return None
    origin = found.origins[base]
    for loop in found.loops:
        made = unfolded(draft, loop, origin, traces[origin].calls)
        if made is None:
            return None
        draft = made
    return draft


def _same_way(traces: Sequence[Trace], compile_one: Compile) -> list[Draft] | None:
    """Compile traces that made the same calls. A read that one of them needs stays in all."""
    drafts = [compile_one(trace) for trace in traces]
    if len({tuple(call.name for call in draft.calls) for draft in drafts}) > 1:
        return None
    if len({_way(draft) for draft in drafts}) > 1:
        needed = {
            number
            for draft in drafts
            for number, verdict in enumerate(draft.verdicts)
            if verdict.keep
        }
        drafts = [compile_one(trace, keep=needed) for trace in traces]
    return drafts if len({_way(draft) for draft in drafts}) == 1 else None


def _way(draft: Draft) -> tuple[str, ...]:
    return tuple(item.name for item in draft.recording)


def _checks(draft: Draft) -> int:
    """Count what a draft checks: a trace with a short value alone has too few."""
    return sum(
        len(step.guards) + sum(map(len, step.agree.values())) for step in draft.routine.steps
    )
