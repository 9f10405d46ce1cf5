"""A record is the one that was asked for, also where its identifier looks like a word."""

from typing import Any

from em import Memory

GROUPS: dict[str, dict[str, Any]] = {
    name: {"group": name, "state": "open", "seats": 20 + number}
    for number, name in enumerate(("ledger", "audit", "payroll", "archive", "stores"))
}
granted: list[str] = []


def get_group(name: str) -> dict[str, Any]:
    return GROUPS[name]


def grant(team: str, person: str) -> dict[str, Any]:
    granted.append(team)
    return {"done": True}


def recording(name: str, number: int) -> dict[str, Any]:
    given = {"team": name, "person": f"p{number}40"}
    calls = [
        ("get_group", {"name": name}, GROUPS[name], "read"),
        ("grant", given, {"done": True}, "write"),
    ]
    events = [
        {"type": "tool_call", "tool": tool, "args": args, "result": result, "effect": effect}
        for tool, args, result, effect in calls
    ]
    return {
        "mission": {"goal": "grant access", "input_summary": given},
        "events": events,
        "outcome": "success",
    }


def test_another_record_than_the_one_asked_for_is_not_acted_on() -> None:
    tools = {"get_group": get_group, "grant": grant}
    with Memory(":memory:") as memory:
        names = ["ledger", "audit", "payroll", "archive"]
        ids = [memory.add_trace(recording(name, n)) for n, name in enumerate(names)]
        routine = memory.compile(ids, name="grant_access")
        done = memory.run(routine, {"team": "stores", "person": "p940"}, tools)
        assert (done.status, granted) == ("ok", ["stores"])
        GROUPS["stores"] = {**GROUPS["stores"], "group": "vaults"}
        handed_over = memory.run(routine, {"team": "stores", "person": "p941"}, tools)
        assert (handed_over.status, granted) == ("needs_input", ["stores"])
