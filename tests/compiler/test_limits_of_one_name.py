"""An amount that is given stays within what a record has of the same thing, however much it had."""

from typing import Any

from em import Memory

MEMBERS: dict[str, dict[str, Any]] = {}
moved: list[dict[str, Any]] = []


def get_member(member_id: str) -> dict[str, Any]:
    return MEMBERS[member_id]


def move(giver: str, points: int) -> dict[str, Any]:
    moved.append({"giver": giver, "points": points})
    return {"done": True}


def recording(number: int) -> dict[str, Any]:
    member = {"id": f"m{number + 10}", "points": 900 + 60 * number, "account": "active"}
    given = {"giver": member["id"], "points": 200 + 20 * number}
    read = {"tool": "get_member", "args": {"member_id": member["id"]}, "effect": "read"}
    return {
        "mission": {"goal": "move points", "input_summary": given},
        "events": [
            {"type": "tool_call", **read, "result": member},
            {
                "type": "tool_call",
                "tool": "move",
                "args": given,
                "effect": "write",
                "result": {"done": True},
            },
        ],
        "outcome": "success",
    }


def test_nobody_gives_more_than_a_record_of_the_same_thing_has() -> None:
    tools = {"get_member": get_member, "move": move}
    MEMBERS["m90"] = {"id": "m90", "points": 10, "account": "active"}
    MEMBERS["m91"] = {"id": "m91", "points": 1500, "account": "active"}
    with Memory(":memory:") as memory:
        ids = [memory.add_trace(recording(number)) for number in range(6)]
        routine = memory.compile(ids, name="move_points")
        handed_over = memory.run(routine, {"giver": "m90", "points": 260}, tools)
        assert (handed_over.status, moved) == ("needs_input", [])
        done = memory.run(routine, {"giver": "m91", "points": 260}, tools)
        assert (done.status, moved) == ("ok", [{"giver": "m91", "points": 260}])
