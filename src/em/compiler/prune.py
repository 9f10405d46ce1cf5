"""Pruning: which calls of a trace the routine needs, and why the others are gone."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.names import words_of
from em.values.canonical import identical


class Verdict(NamedTuple):
    """Keep a call or drop it, and the reason."""

    keep: bool
    reason: str


def judge(calls: Sequence[TracedCall]) -> list[Verdict]:
    """What can be said before it is known which results are used."""
    return [_judge(call, calls) for call in calls]


def _judge(call: TracedCall, calls: Sequence[TracedCall]) -> Verdict:
    if call.failed:
        return _judge_failed(call, calls)
    if call.effect == "write":
        return Verdict(True, "it has an effect")
    first = _same_read_before(call, calls)
    if first is not None:
        return Verdict(False, f"it repeats call {first + 1}")
    return Verdict(True, "its result is used")


def _judge_failed(call: TracedCall, calls: Sequence[TracedCall]) -> Verdict:
    if call.effect_unknown:
        again = next((c.index for c in calls[call.index + 1 :] if _did_the_same(c, call)), None)
        if again is None:
            return Verdict(True, "it failed so that its effect is unknown")
        # Both would do it twice on every healthy run.
        return Verdict(False, f"its effect is unknown; call {again + 1} did the same")
    mended = made_good_by(call, calls)
    if mended is not None:
        return Verdict(False, f"it failed; call {mended + 1} made it good")
    return Verdict(False, "it failed, and nothing came of it")


def unused(verdict: Verdict) -> Verdict:
    """The verdict on a read whose result nothing uses."""
    return Verdict(False, "nothing uses its result") if verdict.keep else verdict


def made_good_by(call: TracedCall, calls: Sequence[TracedCall]) -> int | None:
    """The later success that did what a failed call was to do.

    The same tool, or another that gives the same kind of thing: `find_user_id_by_name_zip` after
    `find_user_id_by_email`.
    """
    for later in calls[call.index + 1 :]:
        if later.failed:
            continue
        if later.name == call.name or kind_of_result(later.name) == kind_of_result(call.name):
            return later.index
    return None


def _did_the_same(later: TracedCall, call: TracedCall) -> bool:
    return not later.failed and _key(later) == _key(call)


def kind_of_result(tool: str) -> str:
    """What a tool gives, by its name without how it finds it."""
    words = words_of(tool)
    for cut, word in enumerate(words):
        if word in ("by", "with", "using", "via", "from") and cut > 0:
            return " ".join(words[:cut])
    return " ".join(words)


def _same_read_before(call: TracedCall, calls: Sequence[TracedCall]) -> int | None:
    """An earlier read of the same, with no effect in between that could have changed it."""
    key = _key(call)
    for earlier in reversed(calls[: call.index]):
        if earlier.effect == "write" and not (earlier.failed and not earlier.effect_unknown):
            return None
        if not earlier.failed and _key(earlier) == key and identical(earlier.result, call.result):
            return earlier.index
    return None


def _key(call: TracedCall) -> bytes:
    return msgspec.json.encode((call.is_udf, call.name, call.args), order="sorted")
