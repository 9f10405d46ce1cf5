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


def in_three_turns(name: str, mail: str, order: str) -> Any:
    """Return a conversation in three turns, with a read behind the first two."""
    return {
        "version": "1",
        "mission": {"goal": "serve a customer"},
        "outcome": "success",
        "events": [
            said(f"{name} here, {mail}"),
            called("get_user", {"email": mail}, {"email": mail, "name": name, "orders": [order]}),
            {"type": "message", "role": "assistant", "text": f"Hello {name}, which order?"},
            said(f"It is {order}!"),
            called("get_order", {"order": order}, {"order": order, "status": "open"}),
            {"type": "message", "role": "assistant", "text": "Shall I cancel it?"},
            said("Yes, cancel it."),
            called("cancel", {"order": order}, True, effect="write"),
            said("And now W-0099, too."),
            called("cancel", {"order": "W-0099"}, None, error="not yours", effect="write"),
        ],
    }


def test_three_turns_around_reads_are_one_request(tmp_path: Path) -> None:
    names = ["Ann Lee", "Bo Roe", "Cy Dee", "Di Eve Fox"]
    people = [(one, f"{one[0].lower()}@x.example", f"W-100{n}") for n, one in enumerate(names)]
    with Memory(tmp_path / "em.db") as memory:
        ids = [memory.add_trace(in_three_turns(*one)) for one in people[:3]]
        memory.compile(ids, name="cancel_it")
        cancelled: list[str] = []
        users = {mail: {"email": mail, "name": name, "orders": [order]}
                 for name, mail, order in people}  # fmt: skip
        tools = {
            "get_user": lambda email: users[email],
            "get_order": lambda order: {"order": order, "status": "open"},
            "cancel": lambda order: not cancelled.append(order),
        }
        for name, mail, order in people:
            request = f"{name} here, {mail}\nIt is {order}!\nYes, cancel it."
            match = memory.match(request)
            assert match is not None
            assert memory.run(match.routine, match.inputs, tools).status == "ok"
            assert memory.match(request.replace("Yes", "No")) is None
            other = request.replace(name, "Ann Roe")
            assert memory.run("cancel_it", {"request": other}, tools).status == "needs_input"
        assert cancelled == [order for _, _, order in people]
