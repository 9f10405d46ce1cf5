"""The calls of a trace as the compiler sees them: with their effect and what became of them."""

import itertools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from em.traces.trace import Approval, Message, ToolCall, Trace, UdfCall
from em.values.call import Effect
from em.values.canonical import Json

# Words that may mean either (open, resolve, check in, load, run) are in neither list: in doubt a
# call is a write.
_READS = frozenset(
    "get list find search fetch read query lookup look count show describe calculate compute"
    " parse think view select head exists is has inspect browse scan peek summarize extract"
    " compare download stat ls cat grep glob".split()
)
_WRITES = frozenset(
    "create update delete cancel modify send post put patch write set add remove insert exchange"
    " return transfer pay book submit approve upload move rename execute edit save store".split()
)
_THINGS = frozenset(
    "list read query count view look show select head stat scan cat compare extract download"
    " summarize is has exists find inspect browse think parse compute".split()
)
_JOINS = frozenset({"and", "or", "then", "n"})
_UNKNOWN_EFFECT = re.compile(
    r"time[d]?[ -]?out|connection|reset by peer|broken pipe|\b5\d\d\b", re.IGNORECASE
)


class TracedCall(msgspec.Struct):
    """One call. `said` is everything that users had said before it."""

    index: int
    name: str
    is_udf: bool
    args: Json
    result: Any
    error: Any
    effect: Effect
    effect_inferred: bool
    said: str

    @property
    def failed(self) -> bool:
        """Whether it ended in an error."""
        return self.error is not None

    @property
    def effect_unknown(self) -> bool:
        """A write that failed so that nobody knows whether it happened."""
        return (
            self.failed and self.effect == "write" and bool(_UNKNOWN_EFFECT.search(str(self.error)))
        )


class TracedApproval(msgspec.Struct):
    """A person was asked, before the call of this index."""

    index: int
    prompt: str
    answer: Any


def calls_of(
    trace: Trace, declared: Mapping[str, Effect | None]
) -> tuple[list[TracedCall], list[TracedApproval]]:
    """The calls and approvals of a trace, in their order."""
    calls: list[TracedCall] = []
    approvals: list[TracedApproval] = []
    said: list[str] = []
    for event in trace.events:
        if isinstance(event, Message):
            if event.role == "user":
                said.append(event.text)
        elif isinstance(event, Approval):
            approvals.append(TracedApproval(len(calls), event.prompt, event.answer))
        else:
            calls.append(_call(event, len(calls), "\n".join(said), declared))
    return calls, approvals


def _call(
    event: ToolCall | UdfCall, index: int, said: str, declared: Mapping[str, Effect | None]
) -> TracedCall:
    is_udf = isinstance(event, UdfCall)
    name = event.function if isinstance(event, UdfCall) else event.tool
    known = declared.get(name) or (event.effect if isinstance(event, ToolCall) else "read")
    return TracedCall(
        index=index,
        name=name,
        is_udf=is_udf,
        args=event.args,
        result=event.result,
        error=event.error,
        effect=known or infer_effect(name),
        effect_inferred=known is None,
        said=said,
    )


def infer_effect(name: str) -> Effect:
    """What a tool's name says of its effect; when in doubt it is a write."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]
    if not words or not _WRITES.isdisjoint(words):
        return "write"
    # Of two things that it does, the second may be another: find_and_replace.
    if any(one in _JOINS and other not in _READS for one, other in itertools.pairwise(words)):
        return "write"
    # A list, a view, a query are things as well: purge_list, drop_view, run_query.
    reads = words[0] in _READS or not (_READS - _THINGS).isdisjoint(words)
    return "read" if reads else "write"
