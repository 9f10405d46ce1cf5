"""Plans: a routine up to its first write, and committing that, as an MCP tool.

A model uses it for wishes that no input expresses: it sees what was read and would be written,
and commits the plan or leaves it. It can't change a value.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from em.runner.run import plain
from em.serve.mcp.tools import Arguments, hints, listed
from em.values.canonical import Json

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from em.runner.package import KeptRoutine
    from em.serve.mcp.desk import Desk

PREPARE = "prepare_routine"
_PREPARE = """
    Show what a routine would write: for a wish that its inputs can't express, such as a condition.
    Then send the `plan` alone to write just that.
"""


class Prepare(Arguments, frozen=True):
    """A routine to prepare, or the plan to commit."""

    name: str = ""
    inputs: Json = msgspec.field(default_factory=dict)
    plan: str = ""


def tool(result: Json) -> Json:
    """Return the tool for a list. result: the schema of a run's result."""
    shown = {**result, "required": ["status"]}
    made = listed(PREPARE, "Prepare a routine", _PREPARE, Prepare, shown, False)
    return {**made, "annotations": hints(is_read=False, is_destructive=True, is_open=True)}


def prepare(
    desk: "Desk", routine: "KeptRoutine", given: Json, subject: str | None
) -> "CallToolResult":
    """Run a routine up to its first write; return what it would write, and the plan's token."""
    from em.runner.decision import shown_of

    found = desk.memory.prepare(routine, given, desk.tools, subject=subject)
    answer: dict[str, Any] = {"status": found.status}
    if found.token:
        answer |= {"plan": found.token, **shown_of(found)}
        answer["next"] = "send `plan` if it meets every wish; else do the task yourself"
    else:
        why = found.reason or found.failure or found.pending_prompt
        answer |= {"why": None if why is None else plain(why), "next": "do the task yourself"}
    return desk.results.answer(answer, words="", is_error=found.status == "failed")
