"""Version change: what a version of a routine has learnt since another one, in words.

Every field that differs is told: what a step requires in plain words where they differ too, and
anything else by its name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.runner.authorship import WRITTEN_BY
from em.runner.package import UDF
from em.runner.requirements import required_by
from em.runner.routine import ForEachStep, Routine, Step, ToolStep, UdfStep
from em.runner.trial import Trials
from em.values.canonical import short
from em.values.leaves import differences

_NAMED = {"tools": "name", "secrets": "name"}
"""Lists of a routine whose items are found by a name of their own."""


def changes(old: Routine, new: Routine) -> list[str]:
    """Return what differs between two versions of a routine, one sentence each, all of it."""
    return [*_of_steps(old, new), *_in_words(_fields(old), _fields(new))]


def file_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return which of the other files differ that a run of a package uses."""
    return [
        f"{name} has changed: `em routine unpack` writes both versions"
        for name in (UDF, WRITTEN_BY)
        if old.get(name) != new.get(name)
    ]


def proof_change(old: Trials, new: Trials) -> str:
    """Return the proof before and after."""
    none = "not tried on other traces"
    return f"proof: {new.summary or none}; before: {old.summary or none}"


# --- steps ----------------------------------------------------------------------------------------


def _of_steps(old: Routine, new: Routine) -> Iterator[str]:
    before, after = ({step.id: step for step in one.all_steps} for one in (old, new))
    for name in dict.fromkeys([*after, *before]):
        said = _of_step(before.get(name), after.get(name))
        yield from (f"{name}: {words}" for words in said)
    shared = before.keys() & after.keys()
    order = _outline(new.steps, shared)
    if order != _outline(old.steps, shared):
        yield f"steps are in the order {order}"


def _outline(steps: Sequence[Step], chosen: set[str]) -> str:
    """Return the names of steps in their order, those of a block in brackets."""
    names = []
    for step in steps:
        inner = _outline(step.steps, chosen) if isinstance(step, ForEachStep) else ""
        if step.id in chosen or inner:
            names.append(f"{step.id} ({inner})" if inner else step.id)
    return ", ".join(names)


def _of_step(old: Step | None, new: Step | None) -> Iterator[str]:
    """Yield how a step differs; None for one that is not there."""
    step = new or old
    if (old is None or new is None) and isinstance(step, ToolStep | UdfStep):
        target = step.tool if isinstance(step, ToolStep) else step.function
        yield f"a new call of {target}" if old is None else "no longer called"
        return
    before, after = _plain(old), _plain(new)
    for field in dict.fromkeys([*after, *before]):
        was, now = (one.get(field, msgspec.UNSET) for one in (before, after))
        if words := [*_in_words(was, now, field)]:
            needed, needs = (required_by(one, field) if one else [] for one in (old, new))
            said = [f"now required: {one}" for one in needs if one not in needed]
            said += [f"no longer required: {one}" for one in needed if one not in needs]
            yield from said or words


def _plain(step: Step | None) -> dict[str, Any]:
    """Return the fields of a step; the steps of a block stand for themselves."""
    fields = {} if step is None else msgspec.to_builtins(step)
    return {name: value for name, value in fields.items() if name not in ("id", "steps")}


# --- fields ---------------------------------------------------------------------------------------


def _fields(routine: Routine) -> dict[str, Any]:
    """Return the other fields as plain values, with lists of named items by their names."""
    own = [field.encode_name for field in msgspec.structs.fields(Routine) if field.name != "steps"]
    plain: dict[str, Any] = msgspec.to_builtins(routine)
    found = {name: plain[name] for name in own if name in plain}
    for name, key in _NAMED.items():
        items = found.get(name, [])
        if len({one[key] for one in items}) == len(items):
            found[name] = {one[key]: one for one in items}
    return found


def _in_words(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Say of each field that differs what it is now, and what it was."""
    for where, *both in differences(before, after, place):
        was, now = ("not set" if one is msgspec.UNSET else short(one) for one in both)
        yield f"{where} has changed" if was == now else f"{where} is {now}; before: {was}"
