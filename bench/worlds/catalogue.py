"""All kinds of task and traps, and the recordings made of them."""

from typing import Any

from bench.worlds import clinic, energy, harbour, homes, museum, payroll, school
from bench.worlds.world import Kind, Trap

KINDS: dict[str, Kind] = {
    kind.name: kind for kind in [*harbour.KINDS, *school.KINDS, *museum.KINDS]
}
TRAPS: list[Trap] = [trap for kind in KINDS.values() for trap in kind.traps]
LATER: dict[str, Kind] = {
    kind.name: kind for kind in [*clinic.KINDS, *homes.KINDS, *energy.KINDS, *payroll.KINDS]
}
"""Worlds that were written later, each by somebody who had not seen the learner."""
RECORDED = range(40)
TESTED = range(40, 60)


def requests(kind: str, number: int) -> str:
    """Return the task with all its values as a person would ask for it."""
    chosen = (KINDS | LATER)[kind]
    return chosen.request(chosen.facts(number), number)


def as_trace(kind: str, number: int) -> dict[str, Any]:
    """Solve a task in a fresh world and return the recording in em's trace format."""
    chosen = (KINDS | LATER)[kind]
    world, facts, request = chosen.world(), chosen.facts(number), requests(kind, number)
    chosen.solve(world, facts, number)
    events: list[dict[str, Any]] = [{"type": "message", "role": "user", "text": request}]
    for seq, call in enumerate(world.calls):
        event = {"type": "tool_call", "seq": seq, "tool": call.tool, "args": call.args}
        event |= {"result": call.result, "effect": call.effect}
        events.append(event if call.error is None else {**event, "error": call.error})
    return {
        "version": "1",
        "app": {"name": chosen.world.NAME},
        "mission": {"goal": request, "input_summary": facts},
        "events": events,
        "outcome": "success",
    }
