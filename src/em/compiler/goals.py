"""Goals: what recordings looked at after their last write, and what it showed there.

A look that shows what the write has changed is the proof that it worked. The routine looks too, and
fails if the change does not show: the tool said that it did something, and nothing was done.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.example import Read, Role
from em.compiler.facts import Records
from em.compiler.places import Place, at, key_of, plain
from em.compiler.steps import Writer
from em.compiler.term import field_text
from em.values.canonical import Json, same


class Look(NamedTuple):
    """A read that recordings made before and after they wrote: which, and what it showed."""

    role: Role
    examples: list[int]
    before: list[Any]
    after: list[Any]


def goal_checks(
    writer: Writer, writes: Sequence[Json], recorded: Sequence[Sequence[Json]]
) -> Iterator[Json]:
    """Yield the reads after the last write, and the checks that the change shows.

    recorded: by write, its arguments in the recordings.
    """
    if not writes or any("steps" in step or "when" in step for step in writes):
        return
    for look in _looks(writer):
        step = writer.read_steps[look.role]
        name = writer.fresh(f"{writer.step_of(look.role)['save_as']}_after")
        changed = {place for place, _ in plain(look.after[0]) if _is_changed(look, place)}
        states = _states(look, changed)
        checks = [*_repeated(name, look, changed, [*zip(writes, recorded, strict=True)])]
        if not states and not checks:
            continue
        held = f"{len(look.after)}/{len(writer.examples)}"
        made = {"type": "tool.call", "tool": step["tool"], "args": step["args"], "save_as": name}
        if states:
            made |= {
                "expect": {"type": "object", "required": [*states], "properties": states},
                "held": held,
            }
        yield made
        yield from ({"type": "assert", "check": text, "held": held} for text in checks)


def _looks(writer: Writer) -> Iterator[Look]:
    """Yield the looks that most recordings made before their first and after their last write."""
    rows: dict[Role, Look] = {}
    for which, example in enumerate(writer.examples):
        last = example.writes[-1].before if example.writes else len(example.reads)
        early: dict[Role, Read] = {}
        late: dict[Role, Read] = {}
        for number, read in enumerate(example.reads):
            if not read.tool.startswith("#") and isinstance(read.result, dict):
                (late if number > last else early)[example.role(number, None)] = read
        for role in early.keys() & late.keys():
            if not early[role].is_written_out:
                look = rows.setdefault(role, Look(role, [], [], []))
                look.examples.append(which)
                look.before.append(early[role].result)
                look.after.append(late[role].result)
    for role, look in rows.items():
        if 2 * len(look.after) >= len(writer.examples) and role in writer.read_steps:
            yield look


def _is_changed(look: Look, place: Place) -> bool:
    pairs = zip(look.before, look.after, strict=True)
    return any(not same(at(one, place), at(other, place)) for one, other in pairs)


def _states(look: Look, changed: set[Place]) -> Mapping[str, Json]:
    """Return the states that the write brought about, in fields of the record itself."""
    known = [{key_of(value) for _, value in plain(one)} for one in look.before]
    schema = Records(look.after, look.after, echoed=known).schema()
    return {
        name: one
        for name, one in schema.get("properties", {}).items()
        if (name,) in changed and "const" in one
    }


def _repeated(
    name: str,
    look: Look,
    changed: set[Place],
    writes: Sequence[tuple[Json, Sequence[Json]]],
) -> Iterator[str]:
    """Yield that a field is now what was written."""
    for place in sorted(changed, key=str):
        for write, rows in writes:
            for argument, text in write.get("args", {}).items():
                is_whole = isinstance(text, str) and text.startswith("{{ ") and "{%" not in text
                is_same = len(rows) > max(look.examples) and all(
                    argument in rows[which] and same(at(one, place), rows[which][argument])
                    for which, one in zip(look.examples, look.after, strict=True)
                )
                if is_whole and is_same and text.endswith(" }}"):
                    yield f"{field_text(name, tuple(map(str, place)))} == {text[3:-3]}"
