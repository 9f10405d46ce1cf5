"""Check the worlds: `python -m bench.worlds`."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from bench.worlds.catalogue import KINDS, RECORDED, TESTED, TRAPS, as_trace
from bench.worlds.world import Call, Facts, HandOver, Kind, ToolError, World

NUMBERS = [*RECORDED, *TESTED]


def writes_of(
    kind: Kind, facts: Facts, variant: int, change: Callable[[Any], None] | None = None
) -> list[Call] | None:
    """Return the writes in a fresh world, or None if the agent hands over without one."""
    world = kind.world()
    if change:
        change(world)
    try:
        kind.solve(world, facts, variant)
    except (HandOver, ToolError):
        assert not world.writes(), f"{kind.name}: wrote before it handed over"
        return None
    return world.writes()


def scalars(value: Any) -> Iterator[str]:
    """Yield each single value inside of facts, as a text."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from scalars(part)
    else:
        yield str(value)


def state_of(world: World) -> str:
    """Return the database as a text."""
    tables = {key: value for key, value in vars(world).items() if key != "calls"}
    return json.dumps(tables, sort_keys=True)


def check_kind(kind: Kind) -> None:
    """Check the facts, recordings and requests of a kind, and print its counts."""
    all_facts = [kind.facts(number) for number in NUMBERS]
    texts = {json.dumps(facts, sort_keys=True) for facts in all_facts}
    assert len(texts) == len(NUMBERS), f"{kind.name}: {len(texts)} distinct facts"
    shapes: set[tuple[str, ...]] = set()
    written: set[tuple[str, ...]] = set()
    failed = 0
    for number, facts in zip(NUMBERS, all_facts, strict=True):
        assert facts == kind.facts(number)
        own = writes_of(kind, facts, number)
        assert own, f"{kind.name} {number}: nothing written"
        for variant in (0, number + 1, number + 7):
            assert writes_of(kind, facts, variant) == own, f"{kind.name} {number}: {variant}"
        trace = as_trace(kind.name, number)
        assert json.loads(json.dumps(trace)) == trace == as_trace(kind.name, number)
        missing = [text for text in scalars(facts) if text not in trace["mission"]["goal"]]
        assert not missing, f"{kind.name} {number}: the request lacks {missing}"
        calls = trace["events"][1:]
        shapes.add(tuple(call["tool"] for call in calls))
        written.add(tuple(call.tool for call in own))
        failed += any("error" in call for call in calls)
    print(
        f"{kind.world.NAME:8} {kind.name:19} facts {len(texts)}, orders of calls {len(shapes):2},"
        f" orders of writes {len(written)}, with a failed call {failed:2},"
        f" traps {len(kind.traps)}"
    )


def check_traps(kind: Kind) -> None:
    """Check that the agent hands over in each trap of a kind and solves its twin."""
    known = [kind.facts(number) for number in TESTED]
    for trap in kind.traps:
        world = kind.world()
        if trap.change:
            trap.change(world)
        changed = state_of(world) != state_of(kind.world())
        assert changed == (trap.change is not None), f"{kind.name}: {trap.name}"
        assert changed or trap.facts != trap.twin, f"{kind.name}: {trap.name}"
        assert trap.twin in known, f"{kind.name}: {trap.name}"
        for variant in range(12):
            assert writes_of(kind, trap.twin, variant), f"{kind.name}: {trap.name}"
            result = writes_of(kind, trap.facts, variant, trap.change)
            assert result is None, f"{kind.name}: {trap.name} was solved"


def main() -> None:
    """Check everything and print the counts."""
    for kind in KINDS.values():
        check_kind(kind)
        check_traps(kind)
    names = {(trap.kind, trap.name) for trap in TRAPS}
    assert len(names) == len(TRAPS) == 60, f"{len(names)} traps"
    worlds = {kind.world for kind in KINDS.values()}
    for world in worlds:
        methods = world.READS | world.WRITES
        assert all(callable(getattr(world, name)) for name in methods)
    print(f"{len(worlds)} worlds, {len(KINDS)} kinds, {len(TRAPS)} traps: all checks passed")


if __name__ == "__main__":
    main()
