"""New files: what `>` wrote in the recordings, and whether it may overwrite something."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.draft import Draft


def with_overwritten(draft: Draft, others: Sequence[Sequence[TracedCall]]) -> Draft:
    """Return a draft whose commands may overwrite what they overwrote in the recordings.

    A file that two traces wrote was there for the second of them.
    others: the calls of the other traces.
    """
    every = [draft.calls, *others]
    count = Counter(path for calls in every for path in {p for one in calls for p in one.creates})
    known = {
        call.name
        for calls in every
        for call in calls
        if call.shell and (not call.creates or all(count[path] > 1 for path in call.creates))
    }
    tools = [
        msgspec.structs.replace(one, only_new=False) if one.name in known else one
        for one in draft.routine.tools
    ]
    if tools == list(draft.routine.tools):
        return draft
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, tools=tools)
    )
