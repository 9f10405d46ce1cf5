"""Expectations: what a call with an effect returned, as far as it must return that again.

A tool may say in its result that nothing was done: `{"ok": false}`, `{"error": …}`, a text that
begins with "Error"; or that something else was done: another id, another amount, a warning. What
all recorded results had in common must therefore be so again. Ids, amounts, dates and names that
differ from task to task are not looked at, unless they repeat what the call was given.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from em.compiler.calls import words_of
from em.compiler.guards import NAMES, STATUSES
from em.compiler.record_facts import FEWEST_SAME
from em.compiler.result_facts import RESULT, Returned, holding, result_facts
from em.compiler.sources import Parts, is_collection, quoted, reference
from em.runner.expressions.functions import kind_of, shape_of
from em.values.canonical import Json
from em.values.leaves import leaves

MOST_FACTS = 12
"""Flags and statuses of one result that must be the same again."""

_STATUS = re.compile(r"[A-Za-z][A-Za-z ()/_-]{0,60}")
_OUTCOMES = STATUSES | {"result", "outcome"}
"""Words in the names of fields that say how a call ended."""
_DONE = frozenset(
    "ok okay done yes success successful successfully succeeded accepted approved confirmed"
    " complete completed finished processed sent saved created updated deleted removed cancelled"
    " canceled refunded paid booked queued pending scheduled".split()
)
"""Words of a text that says how a call ended; another word may be an id such as `facade`."""


def expectations(
    call: Returned, others: Sequence[Returned] = (), *, beside: Iterable[Returned] = ()
) -> list[str]:
    """Return what a call must return again, as expressions over `result` and `given`.

    others: the same call in other successes; what one of them did not return is not expected.
    beside: the other calls of these successes. If they returned something, results were recorded,
    and a call that never did returns nothing.
    """
    if getattr(call, "shell", ""):
        return []  # a program's exit code says how it ended; what it prints may be anything
    calls = [call, *others]
    if any(one.result is None for one in calls):
        is_void = len(calls) >= FEWEST_SAME and all(one.result is None for one in calls)
        is_recorded = is_void and any(one.result is not None for one in beside)
        return [f"size_of({RESULT}) == 0"] if is_recorded else []
    found = dict.fromkeys([*_general(call.result), *_facts(call.result, call.args)])
    known = {f"{text.replace(' == ', ' in [', 1)}]" for text in found}
    found |= dict.fromkeys(text for text in result_facts(calls) if text not in known)
    # What is not there, or is an error, has no fields.
    first = sorted(found, key=lambda text: not text.startswith(("shape_of(", "error_of(")))
    return holding(first, calls)


def _general(result: Any) -> Iterator[str]:
    yield f"shape_of({RESULT}) == {quoted(shape_of(result))}"
    if isinstance(result, str) and result and kind_of(result) != "text":
        # An id or a word; a message has several words.
        yield f'kind_of({RESULT}) != "text"'


def facts_shown(calls: Sequence[tuple[Any, Json]]) -> list[str]:
    """Return the flags and statuses that several results had, none of which repeats an argument.

    calls: each result, with the arguments that it may repeat.
    """
    shared = [_facts(result, args) for result, args in calls]
    return [check for check in shared[0] if all(check in one for one in shared[1:])]


def _facts(result: Any, args: Json) -> list[str]:
    """Return that flags and statuses are as recorded, unless they repeat an argument."""
    given = {str(value).lower() for _, value in leaves(args) if isinstance(value, str)}
    found = []
    for parts, value in _fields(result):
        key = str(parts[-1]) if parts else ""
        if isinstance(value, bool):
            repeats = key in args and args[key] is value
        else:
            repeats = not _is_status(key, value) or bool(given & {value.lower(), *words_in(value)})
        if not repeats:
            found.append(f"{reference(RESULT, parts)} == {quoted(value)}")
    return found[:MOST_FACTS]


def words_in(text: str) -> set[str]:
    """Return the longer words of a text, in lower case."""
    return {word for word in text.lower().split() if len(word) > 2}


def _fields(result: Any, parts: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    """Yield a result that is one value, or its values at the top and one level down."""
    if not isinstance(result, dict):
        yield parts, result
    elif len(parts) < 2 and not is_collection(result):
        for key, value in result.items():
            # What describes somebody or something, such as an address, is not an outcome.
            if isinstance(key, str) and (
                not isinstance(value, dict) or NAMES.isdisjoint(words_of(key))
            ):
                yield from _fields(value, (*parts, key))


def _is_status(key: str, value: Any) -> bool:
    """Return whether a value says how a call ended: `cancelled`, or a whole result `done`."""
    if not isinstance(value, str) or not _STATUS.fullmatch(value):
        return False
    words = value.lower().split()
    says_done = not _DONE.isdisjoint(words)
    if not key:
        return len(words) <= 3 and says_done
    is_place = len(value) <= 3 and value.isupper() and not says_done  # a state such as TX
    return not is_place and not _OUTCOMES.isdisjoint(words_of(key))
