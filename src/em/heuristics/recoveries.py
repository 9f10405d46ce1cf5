"""Recoveries: a call failed, and a changed one did what it was to do."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from em.compiler.calls import TracedCall
from em.compiler.leaves import is_informative, leaves, said_in
from em.compiler.names import words_of
from em.compiler.prune import kind_of_result
from em.heuristics.heuristic import Evidence, Lesson
from em.heuristics.phrases import (
    call_text,
    error_shape,
    error_text,
    goal_text,
    names_text,
    value_text,
)
from em.traces.trace import KeptTrace
from em.values.canonical import identical

SIMILAR = 0.6
NEARLY_THE_SAME = 0.9
"""How much two spellings of one value share, where their digits are the same and where not."""


def recoveries(kept: KeptTrace, calls: Sequence[TracedCall], ids: Sequence[str]) -> list[Lesson]:
    """A lesson for each failed call that a later one made good. `ids`: the events of the calls."""
    found = []
    for call in calls:
        mended = recovered_by(call, calls) if call.failed else None
        if mended is not None:
            found.append(_lesson(kept, call, calls[mended], calls, ids))
    return found


def recovered_by(call: TracedCall, calls: Sequence[TracedCall]) -> int | None:
    """The first later success at the same job: the same arguments but for the one that was wrong,
    or another tool that gives the same thing, or that takes over what this one was given.
    """
    for later in calls[call.index + 1 :]:
        if not later.failed and _same_job(call, later, calls):
            return later.index
    return None


def _same_job(call: TracedCall, later: TracedCall, calls: Sequence[TracedCall]) -> bool:
    if later.is_udf != call.is_udf:
        return False
    if later.name == call.name:
        return _mostly_kept(call, later) or not (call.args or later.args)
    if kind_of_result(later.name) == kind_of_result(call.name):
        between = calls[call.index + 1 : later.index]
        return not any(one.effect == "write" and not one.failed for one in between)
    # Another tool that takes all that this one was given: what it was to do was done another way.
    return (
        later.effect == call.effect
        and len(call.args) > 1
        and all(_alike(value, later.args.get(name, _NONE)) for name, value in call.args.items())
    )


def _mostly_kept(call: TracedCall, later: TracedCall) -> bool:
    """Whether more than half of the arguments are what they were, or nearly so.

    Half is enough where what was kept says which thing it is about, and the error speaks of what
    was changed.
    """
    names = call.args.keys() | later.args.keys()
    kept = {n for n in names if _alike(call.args.get(n, _NONE), later.args.get(n, _NONE))}
    if len(kept) * 2 != len(names):
        return len(kept) * 2 > len(names)
    said = set(words_of(error_text(call.error)))
    return any(
        re.search(r"\d", str(leaf)) for n in kept for _, leaf in leaves(call.args[n])
    ) and any(not said.isdisjoint(words_of(n)) for n in names - kept)


_NONE: Any = object()


def _alike(one: Any, other: Any) -> bool:
    if one is _NONE or other is _NONE:
        return False
    if identical(one, other):
        return True
    if isinstance(one, list) and isinstance(other, list) and one and other:
        shorter, longer = sorted((one, other), key=len)
        return all(any(identical(item, it) for it in longer) for item in shorter)
    if isinstance(one, str) and isinstance(other, str):
        least = SIMILAR if _same_digits(one, other) else NEARLY_THE_SAME
        return SequenceMatcher(None, one.lower(), other.lower()).ratio() >= least
    return False


def _same_digits(one: str, other: str) -> bool:
    """Two ids that look alike are two things, as a rule; a spelling of one keeps its digits."""
    digits = ["".join(filter(str.isdigit, text)) for text in (one, other)]
    return digits[0] == digits[1] or not all(digits)


def _lesson(
    kept: KeptTrace,
    call: TracedCall,
    worked: TracedCall,
    calls: Sequence[TracedCall],
    ids: Sequence[str],
) -> Lesson:
    shape = error_shape(call.error)
    action, key = _action(call, worked, calls)
    failed, made_good = call_text(call), call_text(worked)
    return Lesson(
        trigger=f"{call.name} fails with: {shape}",
        action=action,
        analysis=f"{failed} failed ({error_text(call.error)}); then {made_good} worked.",
        polarity="success",
        how="recovery",
        tools=list(dict.fromkeys((call.name, worked.name))),
        error=shape,
        subject=kept.subject,
        source_task=goal_text(kept.trace.mission.goal),
        key=f"{call.name}|{shape}|{key}",
        evidence=Evidence(
            trace=kept.id,
            failed=[ids[call.index]],
            worked=[ids[worked.index]],
            note=f"{failed} failed; {made_good} worked",
        ),
    )


def _action(call: TracedCall, worked: TracedCall, calls: Sequence[TracedCall]) -> tuple[str, str]:
    """What to do, and what makes it the same advice."""
    if worked.name != call.name:
        given = names_text(sorted(worked.args))
        instead = f"Use {worked.name} instead"
        return (f"{instead}, with {given}." if given else f"{instead}."), f"use {worked.name}"
    changed = sorted(
        name
        for name in call.args.keys() | worked.args.keys()
        if not identical(call.args.get(name, "\0"), worked.args.get(name, "\0"))
    )
    if not changed:
        return _again(call, worked, calls)
    parts = [_change(name, call, worked, calls) for name in changed]
    text = "; ".join(part for part, _ in parts)
    return f"Call it again with {text}.", ", ".join(key for _, key in parts)


def _again(call: TracedCall, worked: TracedCall, calls: Sequence[TracedCall]) -> tuple[str, str]:
    between = [one.name for one in calls[call.index + 1 : worked.index] if not one.failed]
    names = list(dict.fromkeys(name for name in between if name != call.name))
    if not names:
        return "Make the same call again: it worked unchanged.", "again"
    done = names_text(names)
    return f"Make the same call again after {done}: then it worked unchanged.", f"after {done}"


def _change(
    name: str, call: TracedCall, worked: TracedCall, calls: Sequence[TracedCall]
) -> tuple[str, str]:
    if name not in worked.args:
        return f"no {name}", f"-{name}"
    new = worked.args[name]
    source = _source(new, worked, calls)
    origin = f" as {source} gives it" if source else ""
    if name not in call.args:
        return f"{name}{origin} ({value_text(new)} worked)", f"+{name}<{source}"
    old = call.args[name]
    unseen = " (which had appeared nowhere before)" if appeared_nowhere(old, call, calls) else ""
    text = (
        f"a different {name}{origin}: {value_text(new)} worked, {value_text(old)}{unseen} did not"
    )
    return text, f"{name}<{source}"


def _source(value: Any, call: TracedCall, calls: Sequence[TracedCall]) -> str:
    """The tool whose earlier result holds this value; empty where none does."""
    wanted = [leaf for _, leaf in leaves(value) if is_informative(leaf)]
    if not wanted:
        return ""
    before = [earlier for earlier in reversed(calls[: call.index]) if not earlier.failed]
    for earlier in sorted(before, key=lambda one: one.effect == "write"):
        if _holds(earlier.result, wanted):
            return earlier.name
    return ""


def appeared_nowhere(value: Any, call: TracedCall, calls: Sequence[TracedCall]) -> bool:
    """Whether a value stands in no earlier result and nobody had said it: it was made up."""
    # A word of the tool's own (a reason, a colour) is no one's to say; an id is.
    cores = [_core(leaf) for _, leaf in leaves(value)]
    wanted = [core for core in cores if len(core) >= 4 and re.search(r"\d", core)]
    if not wanted or any(said_in(core, call.said) for core in wanted):
        return False
    before = [earlier for earlier in calls[: call.index] if not earlier.failed]
    return not any(_holds(earlier.result, [core]) for earlier in before for core in wanted)


def _core(value: Any) -> str:
    """A value without the signs around it: `W123` of `#W123`."""
    return re.sub(r"^\W+|\W+$", "", str(value)) if is_informative(value) else ""


def _holds(result: Any, wanted: Sequence[Any]) -> bool:
    texts = {_core(leaf) for _, leaf in leaves(result)} | _keys(result)
    return all(_core(leaf) in texts for leaf in wanted)


def _keys(value: Any) -> set[str]:
    """The keys of mappings, since ids stand there too."""
    if isinstance(value, dict):
        below = (_keys(item) for item in value.values())
        return {_core(key) for key in value}.union(*below)
    return set().union(*map(_keys, value)) if isinstance(value, list | tuple) else set()
