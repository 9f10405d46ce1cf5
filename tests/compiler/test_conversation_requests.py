"""In a conversation the request is what the user said in all turns before the first effect."""

from pathlib import Path
from typing import Any

from em import Memory
from em.compiler.example import request_of
from em.traces.trace import read_trace
from em.values.canonical import canonical


def said(text: str) -> Any:
    return {"type": "message", "role": "user", "text": text}


def called(tool: str, args: Any, result: Any, **more: Any) -> Any:
    return {"type": "tool_call", "tool": tool, "args": args, "result": result, **more}


def recording(number: int, effect: Any = "write") -> Any:
    """Return a conversation: who asks is said before a read, what is cancelled behind it."""
    mail, order = f"u{number}@mail.example", f"W-{number}31"
    return {
        "version": "1",
        "mission": {"goal": "serve a customer"},
        "outcome": "success",
        "events": [
            said(f"I am {mail}."),
            called("get_user", {"email": mail}, {"email": mail}),
            said(f"Please cancel {order}."),
            called("cancel", {"order": order}, True, **({"effect": effect} if effect else {})),
            said(f"Thank you, and remember K-{number}99!"),
        ],
    }


def test_turns_behind_the_first_effect_are_no_part_of_it() -> None:
    for effect in ("write", None):  # a call of undeclared effect counts as a write
        trace = read_trace(canonical(recording(7, effect), "trace")[0], "trace")
        assert request_of(trace) == "I am u7@mail.example.\nPlease cancel W-731."


def test_all_turns_are_one_request_for_the_routine(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        ids = [memory.add_trace(recording(number)) for number in range(3)]
        memory.compile(ids, name="cancel_it")
        cancelled: list[str] = []
        tools = {
            "get_user": lambda email: {"email": email},
            "cancel": lambda order: not cancelled.append(order),
        }
        request = "I am gus@mail.example.\nPlease cancel W-7377."
        match = memory.match(request)
        assert match is not None
        assert memory.run(match.routine, match.inputs, tools).status == "ok"
        assert cancelled == ["W-7377"]
        assert memory.match(f"{request}\nThank you, and remember K-099!") is None
