"""Goal checks: reads that showed what a call had done, and must show it again.

An agent that reads a record after it has changed it looks whether all went well. The same read is
made after the same effect. The flags and statuses that it showed, and the values that were written
and stood in the record, must be there again.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.calls import TracedCall
from em.compiler.evidence import ENOUGH, information
from em.compiler.expectations import facts_shown
from em.compiler.result_facts import RESULT
from em.compiler.sources import Place, places, quoted, reference, text_key
from em.runner.expressions.functions import ANY, KEYS, every
from em.runner.expressions.language import whole_expression
from em.runner.task_plan import Check
from em.values.canonical import Json, identical
from em.values.leaves import leaves, texts

MOST_WRITTEN = 12
"""Written values that one read is checked for."""


class Look(NamedTuple):
    """A read of a record after the last write that concerns it, and that write.

    before: the same read before that write, if there was one.
    """

    read: TracedCall
    write: TracedCall
    before: TracedCall | None = None

    @property
    def is_known(self) -> bool:
        """Whether all that the read was made with comes from the write, or from a read before."""
        known = {text_key(one) for _, one in leaves(self.write.args)} | _ids(self.write.result)
        return self.before is not None or all(
            text_key(one) in known for _, one in leaves(self.read.args)
        )


class Written(NamedTuple):
    """A value of a write that a record held afterwards: the way in the arguments and the record."""

    given: tuple[str, ...]
    way: tuple[str, ...]

    def check(self, value: str) -> str:
        """Return what must hold. value: the expression of the written value."""
        if ANY in self.way or KEYS in self.way:
            return f"among(every({RESULT}, {quoted('.'.join(self.way))}), {value})"
        return f"{reference(RESULT, self.way)} == {value}"


def looks(calls: Sequence[TracedCall]) -> Iterator[Look]:
    """Yield the reads that showed what a write had done. A failed call shows nothing.

    A read whose result later calls were made with prepared those, unless it was made before too.
    """
    changed: dict[str, TracedCall] = {}
    made: dict[str, list[TracedCall]] = {}
    seen: set[str] = set()
    last_use = {key: call.index for call in calls for key in _ids(call.args)}
    for call in calls:
        ids = _ids(call.args)
        if call.effect == "write":
            # Of a write that failed it may be unknown what it did.
            for key in ids if not call.failed or call.effect_unknown else ():
                changed[key] = call
            for key in _ids(call.result) - ids - seen if not call.failed else ():
                changed[key] = call  # it was created
        elif not call.failed and not call.is_udf:
            writes = [changed[key] for key in ids if key in changed]
            write = max(writes, key=lambda one: one.index, default=None)
            same = made.setdefault(f"{call.name}{quoted(call.args)}", [])
            if write is not None and not write.failed:
                earlier = next((one for one in reversed(same) if one.index < write.index), None)
                used = (last_use.get(key, -1) > call.index for key in _ids(call.result) - ids)
                if earlier is not None or not any(used):
                    yield Look(call, write, earlier)
            same.append(call)
        seen |= ids | _ids(call.result)


def shown(group: Sequence[Look]) -> list[str]:
    """Return the flags and statuses that all looks of a group showed, over `result`."""
    calls = [(one.read.result, {**one.read.args, **one.write.args}) for one in group]
    return facts_shown(calls)


def written(group: Sequence[Look]) -> list[Written]:
    """Return the written values that stood in the record in all looks that could show them.

    The field must have the name of the value, or have had another value before.
    """
    found: dict[Written, bool] = {}
    for one in group:
        for given, value in _given(one.write):
            if _is_of_read(value, one.read):
                continue
            for place in places(0, one.read.result):
                if _is_same(place.value, value):
                    new = Written(given, place.general)
                    told = found.get(new, False) or _is_told(given, place, one)
                    found[new] = told
    kept = [new for new, told in found.items() if told and all(_stands(new, o) for o in group)]
    return kept[:MOST_WRITTEN]


def part_of(args: Json, given: Sequence[str]) -> str | None:
    """Return the expression of one value in the arguments of a step; None for a text of several."""
    value: Any = args
    for part in given:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    if not any("{{" in text for text in texts(value)):
        return quoted(value)
    found = whole_expression(value) if isinstance(value, str) else None
    return None if found is None else str(found).strip()


def checks(every_look: Sequence[Look]) -> list[Check]:
    """Return what is read after an effect of a plan, learnt from the looks at all calls of it."""
    groups: dict[str, tuple[TracedCall, Json, list[Look]]] = {}
    for one in every_look:
        args = {name: _link(name, value, one.write) for name, value in one.read.args.items()}
        if any(link is None for link in args.values()):
            continue
        key = f"{one.read.name}{quoted(args)}"
        groups.setdefault(key, (one.read, args, []))[2].append(one)
    found = []
    for read, args, group in groups.values():
        values = [new.check(reference(new.given[0], new.given[1:])) for new in written(group)]
        facts = [*shown(group), *values]
        if facts:
            found.append(Check(tool=read.name, args=args, shows=facts))
    return found


def _link(name: str, value: Any, write: TracedCall) -> Any:
    """Return an argument of a look: a value of the effect, of its result, or always the same."""
    own = [given for given, one in _given(write) if len(given) == 1 and _is_same(one, value)]
    if own:
        return f"{{{{ {name if (name,) in own else own[0][0]} }}}}"
    for place in places(0, write.result):
        if place.is_fixed and information(value) >= ENOUGH and identical(place.value, value):
            return f"{{{{ {reference(RESULT, place.parts)} }}}}"
    is_constant = not isinstance(value, dict | list) and information(value) < ENOUGH
    return value if is_constant and "{{" not in str(value) else None


def _given(write: TracedCall) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values that a write was given: single ones, and lists of such."""
    for name, value in write.args.items():
        if not name.isidentifier() or name == RESULT:
            continue
        if isinstance(value, list):
            if value and not any(isinstance(one, dict | list) for one in value):
                yield (name,), value
        elif isinstance(value, dict):
            for place in places(0, value):
                if place.is_fixed:
                    yield (name, *map(str, place.parts)), place.value
        else:
            yield (name,), value


def _is_of_read(value: Any, read: TracedCall) -> bool:
    """Return whether a read was made with a value, so that its result only repeats it."""
    keys = {text_key(one) for _, one in leaves(read.args)}
    return any(text_key(one) in keys for one in (value if isinstance(value, list) else [value]))


def _is_same(held: Any, value: Any) -> bool:
    if isinstance(value, list):
        return any(identical(held, one) for one in value)
    return value is not None and identical(held, value)


def _is_told(given: tuple[str, ...], place: Place, look: Look) -> bool:
    """Return whether a value stands there because it was written."""
    if place.is_fixed and place.key == given[-1]:
        return True
    if information(place.value) < ENOUGH / 2 or look.before is None:
        return False
    return not any(identical(one, place.value) for one in _at(look.before.result, place.general))


def _stands(new: Written, look: Look) -> bool:
    """Return whether a record held the value, or the write had none."""
    value = dict(_given(look.write)).get(new.given)
    if value is None:
        return new.given not in dict(_given(look.write))
    held = _at(look.read.result, new.way)
    if isinstance(value, list):
        is_list = ANY in new.way or KEYS in new.way
        return is_list and all(any(identical(h, one) for h in held) for one in value)
    return any(identical(one, value) for one in held)


def _at(result: Any, way: Sequence[str]) -> list[Any]:
    return every(result, ".".join(way)) if way else [result]


def _ids(value: Any) -> set[str]:
    return {text_key(one) for _, one in leaves(value) if information(one) >= ENOUGH}
