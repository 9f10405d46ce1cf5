"""Recordings of an agent that cancels orders, with typed inputs, and the tools that it had."""

from typing import Any

from em import Memory

REASONS = ["no longer needed", "ordered by mistake"]


def user_of(number: int) -> Any:
    return {
        "user_id": f"user_{number}",
        "email": f"u{number}@example.com",
        "orders": [f"W{number}00", f"W{number}01"],
    }


def order_of(number: int, **more: Any) -> Any:
    return {
        "order_id": f"W{number}00",
        "user_id": f"user_{number}",
        "status": "pending",
        "channel": "web",
        "total": 10 * number + 5.5,
        **more,
    }


def recording(number: int, **more: Any) -> Any:
    """Return the trace of an agent that cancelled an order."""
    user, order = user_of(number), order_of(number, **more)
    given = {"email": user["email"], "order_id": order["order_id"], "reason": REASONS[number % 2]}
    done = {"order_id": order["order_id"], "status": "cancelled"}
    asked = {"order_id": order["order_id"], "reason": given["reason"], "notify": True}
    calls = [
        ("find_user", {"email": user["email"]}, user, "read"),
        ("get_order", {"order_id": order["order_id"]}, order, "read"),
        ("cancel_order", asked, done, "write"),
    ]
    return {
        "version": "1",
        "mission": {"goal": "cancel an order", "input_summary": given},
        "outcome": "success",
        "events": [
            {"type": "tool_call", "tool": tool, "args": args, "result": result, "effect": effect}
            for tool, args, result, effect in calls
        ],
    }


def tools(order: Any, cancelled: list[str]) -> dict[str, Any]:
    def cancel_order(order_id: str, reason: str, notify: bool) -> Any:
        cancelled.append(f"{order_id}: {reason}, {notify}")
        return {"order_id": order_id, "status": "cancelled"}

    number = int(order["order_id"][1:-2])
    return {
        "find_user": lambda email: user_of(number),
        "get_order": lambda order_id: order,
        "cancel_order": cancel_order,
    }


def kept(memory: Memory, count: int = 4) -> str:
    """Store the routine of some recordings; return its name and version."""
    ids = [memory.add_trace(recording(number)) for number in range(1, count + 1)]
    return memory.compile(ids, name="cancel").ref
