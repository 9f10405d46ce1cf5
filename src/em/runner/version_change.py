"""Version change: what a version of a routine has learnt since another one, in words.

Common changes have sentences of their own. Every other field that differs is told by its name: a
difference counts as told only if the sentences are others once it is taken back.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import msgspec

from em.runner.authorship import WRITTEN_BY
from em.runner.expressions.words import in_words
from em.runner.package import UDF
from em.runner.requirements import Requirement, requirements
from em.runner.routine import Routine, ToolStep, UdfStep
from em.runner.trial import Trials
from em.values.canonical import identical, short
from em.values.json_schema import properties_of


def changes(old: Routine, new: Routine) -> list[str]:
    """Return what differs between two versions of a routine, one sentence each, all of it."""
    told = _in_sentences(old, new)
    return [*told, *_of_fields(old, new, told)]


def file_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return which of the other files differ that a run of a package uses."""
    return [
        f"{name} has changed: `em routine unpack` writes both versions"
        for name in (UDF, WRITTEN_BY)
        if old.get(name) != new.get(name)
    ]


def _in_sentences(old: Routine, new: Routine) -> list[str]:
    return [
        *_of_review(old, new),
        *_of_inputs(old, new),
        *_of_requests(old, new),
        *_of_calls(old, new),
        *_of_requirements(old, new),
    ]


def proof_change(old: Trials, new: Trials) -> str:
    """Return the proof before and after."""
    none = "not tried on other traces"
    return f"proof: {new.summary or none}; before: {old.summary or none}"


def _of_review(old: Routine, new: Routine) -> Iterator[str]:
    yield from (f"struck: {text}" for text in new.struck if text not in old.struck)
    yield from (f"no longer struck: {text}" for text in old.struck if text not in new.struck)


def _of_inputs(old: Routine, new: Routine) -> Iterator[str]:
    before, after = _properties(old), _properties(new)
    for name in after.keys() - before.keys():
        yield f"new input: {name}"
    for name in before.keys() - after.keys():
        yield f"no longer an input: {name}"


def _properties(routine: Routine) -> Mapping[str, Any]:
    return properties_of(routine.input_schema)


def _of_requests(old: Routine, new: Routine) -> Iterator[str]:
    for text in new.requests:
        if text not in old.requests:
            yield f"it takes the request: {short(text)}"
    for text in old.requests:
        if text not in new.requests:
            yield f"it no longer takes the request: {short(text)}"


# --- steps ----------------------------------------------------------------------------------------

_Call = ToolStep | UdfStep


def _calls(routine: Routine) -> dict[str, _Call]:
    return {step.id: step for step in routine.all_steps if isinstance(step, ToolStep | UdfStep)}


def _of_calls(old: Routine, new: Routine) -> Iterator[str]:
    """Yield how the calls of two routines of steps differ."""
    before, after = _calls(old), _calls(new)
    for step_id in after:
        if step_id not in before:
            yield f"{step_id}: a new call of {_target(after[step_id])}"
        else:
            yield from _of_arguments(step_id, before[step_id], after[step_id])
    for step_id in before:
        if step_id not in after:
            yield f"{step_id}: no longer called"


def _target(step: _Call) -> str:
    return step.tool if isinstance(step, ToolStep) else step.function


def _of_arguments(step_id: str, old: _Call, new: _Call) -> Iterator[str]:
    for name in dict.fromkeys([*old.args, *new.args]):
        before, after = old.args.get(name), new.args.get(name)
        if not identical(before, after):
            yield f"{step_id}: {name} is {_value(after)}; before: {_value(before)}"


def _value(value: Any) -> str:
    if value is None:
        return "left out"
    if isinstance(value, str) and value.startswith("{{") and value.endswith("}}"):
        return in_words(value.removeprefix("{{").removesuffix("}}").strip())
    return f"always {short(value)}"


# --- requirements ---------------------------------------------------------------------------------


def _of_requirements(old: Routine, new: Routine) -> Iterator[str]:
    """Yield the checks that were relaxed and added; those of a new or lost call go with it."""
    before = {one.step_id: one for one in requirements(old)}
    after = {one.step_id: one for one in requirements(new)}
    told = _calls(old).keys() ^ _calls(new).keys()
    for step_id in [*after, *(one for one in before if one not in after)]:
        if step_id in told:
            continue
        empty = Requirement(step_id, [], [])
        one, other = before.get(step_id, empty), after.get(step_id, empty)
        yield from _of_checks(step_id, one.when, other.when)
        yield from _of_checks(step_id, one.hold, other.hold)
        yield from _of_checks(step_id, one.expect, other.expect, "afterwards ")


def _of_checks(
    step_id: str, old: Sequence[str], new: Sequence[str], when: str = ""
) -> Iterator[str]:
    for words in new:
        if words not in old:
            yield f"{step_id}: now required: {when}{words}"
    for words in old:
        if words not in new:
            yield f"{step_id}: no longer required: {when}{words}"


# --- fields ---------------------------------------------------------------------------------------

_NAMED = {"steps": "id", "tools": "name", "secrets": "name"}
"""Lists of a routine whose items are found by a name of their own."""
MOST_LOOKED_AT = 100
"""Fields that differ of which it is found out whether a sentence tells them; others are told too.

To find out costs as much as all sentences.
"""
_Path = tuple[str, ...]
_MISSING: Any = object()


class _Difference(NamedTuple):
    """A field that differs. undone: its value in the new version with this change taken back."""

    path: _Path
    undone: Any
    words: str


def _of_fields(old: Routine, new: Routine, told: list[str]) -> Iterator[str]:
    """Yield the fields that differ and that the sentences don't tell."""
    before, after = _tree(old), _tree(new)
    for number, one in enumerate(_differences(before, after, ())):
        if number >= MOST_LOOKED_AT or not _is_told(old, after, one, told):
            yield f"{_name(one.path)} {one.words}"


def _name(path: _Path) -> str:
    """Name a field: `pay: retry.attempts`, `tools.fetch.effect`."""
    if path[0] != "steps" or len(path) == 1:
        return ".".join(path)
    return f"{path[1]}: {'.'.join(path[2:]) or 'the step'}"


def _tree(routine: Routine) -> dict[str, Any]:
    """Return the fields of a routine as plain values, with lists of named items by their names."""
    own = [field.encode_name for field in msgspec.structs.fields(Routine)]
    plain: dict[str, Any] = msgspec.to_builtins(routine)
    found = {name: plain[name] for name in own if name in plain}
    for name, key in _NAMED.items():
        items = found.get(name, [])
        if len({one[key] for one in items}) == len(items):
            found[name] = {one[key]: one for one in items}
    return found


def _routine(tree: Mapping[str, Any]) -> Routine:
    plain = {
        name: [*value.values()] if name in _NAMED and isinstance(value, dict) else value
        for name, value in tree.items()
    }
    return msgspec.convert(plain, Routine)


def _differences(before: Any, after: Any, path: _Path) -> Iterator[_Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            was, now = before.get(name, _MISSING), after.get(name, _MISSING)
            yield from _differences(was, now, (*path, name))
        shared = [name for name in before if name in after]
        in_order = len(path) != 1 or path[0] not in _NAMED or path[0] == "tools"
        if not in_order and shared != [name for name in after if name in before]:
            order = {name: after[name] for name in [*shared, *after]}
            yield _Difference(path, order, f"are in the order {', '.join(after)}")
    elif _MISSING not in (before, after) and identical(before, after):
        return
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_items(before, after, path)
    else:
        was, now = (_field(one) for one in (before, after))
        words = "has changed" if was == now else f"is {now}; before: {was}"
        yield _Difference(path, before, words)


def _of_items(before: list[Any], after: list[Any], path: _Path) -> Iterator[_Difference]:
    new = [one for one in after if not _has(before, one)]
    gone = [one for one in before if not _has(after, one)]
    if new:
        without = [one for one in after if _has(before, one)]
        yield _Difference(path, without, f"has {', '.join(map(short, new))} too")
    if gone:
        yield _Difference(path, [*after, *gone], f"no longer has {', '.join(map(short, gone))}")
    if not (new or gone):
        yield _Difference(path, before, f"is {short(after)}; before: {short(before)}")


def _has(items: Sequence[Any], item: Any) -> bool:
    return any(identical(one, item) for one in items)


def _field(value: Any) -> str:
    return "not set" if value is _MISSING else short(value)


def _is_told(old: Routine, after: Mapping[str, Any], one: _Difference, told: list[str]) -> bool:
    """Tell whether the sentences would be others without this difference."""
    try:
        return _in_sentences(old, _undone(after, one.path, one.undone)) != told
    except msgspec.ValidationError:
        return False


def _undone(after: Mapping[str, Any], path: _Path, value: Any) -> Routine:
    """Return a version with one field as it is given."""
    tree = deepcopy(dict(after))
    inner: Any = tree
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    if value is _MISSING:
        inner.pop(path[-1], None)
    else:
        inner[path[-1]] = value
    return _routine(tree)
