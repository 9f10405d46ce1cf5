"""The draft of a routine that goes the way which several traces have in common.

What their requests have in common is the template of the request, and the rest its inputs. Each
trace is compiled by itself, with those inputs; what holds in all of them is kept.
"""

from collections.abc import Callable, Sequence

from em.compiler.confirmation import confirmed, names_to_confirm, relaxed
from em.compiler.differences import settled, told_apart
from em.compiler.draft import Draft
from em.compiler.evidence import ENOUGH, of_constant
from em.compiler.templates import Filled, filled, templates_of, with_template
from em.errors import EmError
from em.traces.trace import Trace

Compile = Callable[..., Draft]
"""Compiles one trace. `keep`: numbers of reads that stay though nothing uses them here."""


def draft_way(
    traces: Sequence[Trace],
    said: Sequence[str],
    compile_one: Compile,
    proved: Callable[[Draft], Draft],
) -> Draft | None:
    """Return a routine whose request is a template; None if that leaves something to ask.

    said: what each trace was asked for in words.
    """
    for template in templates_of(said):
        draft = _draft(filled(traces, said, template), compile_one, proved)
        if draft is not None:
            return draft
    return None


def _draft(found: Filled, compile_one: Compile, proved: Callable[[Draft], Draft]) -> Draft | None:
    try:
        drafts = _same_way(found.traces, compile_one)
    except EmError:
        return None
    if drafts is None:
        return None
    first, *others = _most_checked_first(drafts)
    draft = settled(told_apart(relaxed(first, others), others), others)
    if of_constant(len(found.traces)) >= ENOUGH:
        draft = confirmed(draft, list(names_to_confirm(draft.routine)))
    if draft.routine.asks:
        return None
    return with_template(proved(draft), found)


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


def _most_checked_first(drafts: Sequence[Draft]) -> list[Draft]:
    """Return the drafts, that with the most checks first: a short value alone has too few."""
    return sorted(drafts, key=_checks, reverse=True)


def _checks(draft: Draft) -> int:
    return sum(
        len(step.guards) + sum(map(len, step.agree.values())) for step in draft.routine.steps
    )
