"""What agents looked at after a change is looked at again; a run is ok only if it shows it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.run import RunResult
from em.traces.trace import Mission, ToolCall, Trace

READS = ("find_user", "get_user", "get_order")


def asked(n: int, **more: str) -> dict[str, Any]:
    """The inputs of a task."""
    return {"email": f"ana{n}@post.example", "order_id": f"#W{70100 + n}", **more}


class Post:
    """Orders that are cancelled and sent elsewhere. `broken`: tools that say ok and do nothing."""

    def __init__(self, broken: str = "") -> None:
        self.done: list[str] = []
        self.broken = broken
        self.unpaid_by = ("", "")  # a tool and an order that it makes unpaid
        self.users = {f"ana{n}@post.example": f"ana_{3100 + n}" for n in range(9)}
        self.orders = {
            f"#W{70100 + n}": {
                "user_id": f"ana_{3100 + n}",
                "status": "pending",
                "paid": True,
                "ship_to": {"zip": f"{40100 + n}"},
            }
            for n in range(9)
        }

    def tools(self) -> dict[str, Callable[..., Any]]:
        def find_user(email: str) -> str:
            return self.users[email]

        def get_user(user_id: str) -> Any:
            return {"orders": [key for key, o in self.orders.items() if o["user_id"] == user_id]}

        def get_order(order_id: str) -> Any:
            order = self.orders[order_id]
            return {**order, "ship_to": {**order["ship_to"]}}

        def cancel_order(order_id: str) -> Any:
            self.done.append("cancel_order")
            self._touch("cancel_order", order_id)
            if self.broken != "cancel_order":
                self.orders[order_id]["status"] = "cancelled"
            return {"ok": True}

        def redirect_order(order_id: str, new_zip: str) -> Any:
            self.done.append("redirect_order")
            self._touch("redirect_order", order_id)
            if self.broken != "redirect_order":
                self.orders[order_id]["ship_to"] = {"zip": new_zip}
            return {"ok": True}

        return {
            "find_user": find_user,
            "get_user": get_user,
            "get_order": get_order,
            "cancel_order": cancel_order,
            "redirect_order": redirect_order,
        }

    def _touch(self, tool: str, order_id: str) -> None:
        if self.unpaid_by == (tool, order_id):
            self.orders[order_id]["paid"] = False

    def trace(self, given: dict[str, Any], *calls: tuple[str, dict[str, Any]]) -> Trace:
        tools = self.tools()
        events = []
        for name, args in calls:
            effect: Any = "read" if name in READS else "write"
            events.append(ToolCall(tool=name, args=args, result=tools[name](**args), effect=effect))
        return Trace(mission=Mission("serve", given), events=events, outcome="success")

    def cancelled(self, n: int, *, looked: bool = True) -> Trace:
        order = {"order_id": f"#W{70100 + n}"}
        return self.trace(
            asked(n),
            ("find_user", {"email": f"ana{n}@post.example"}),
            ("get_user", {"user_id": f"ana_{3100 + n}"}),
            ("get_order", order),
            ("cancel_order", order),
            *[("get_order", order)] * looked,
        )

    def redirected(self, n: int, new_zip: str, *, looked: bool = True) -> Trace:
        order = {"order_id": f"#W{70100 + n}"}
        return self.trace(
            asked(n, new_zip=new_zip),
            ("find_user", {"email": f"ana{n}@post.example"}),
            ("get_user", {"user_id": f"ana_{3100 + n}"}),
            ("get_order", order),
            ("redirect_order", {**order, "new_zip": new_zip}),
            *[("get_order", order)] * looked,
        )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def run(memory: Memory, given: dict[str, Any], post: Post, **options: Any) -> RunResult:
    return memory.run("serve", given, post.tools(), **options)


def learn(memory: Memory, *traces: Trace) -> Any:
    return memory.compile([memory.add_trace(trace) for trace in traces], name="serve")


def cancelling(memory: Memory, *looked: bool) -> Any:
    post = Post()
    return learn(memory, *(post.cancelled(n, looked=one) for n, one in enumerate(looked)))


def redirecting(memory: Memory, count: int = 4) -> Any:
    post = Post()
    return learn(memory, *(post.redirected(n, f"5081{n}") for n in range(count)))


LOOKED = [(True, True, True, True), (True, False, True, True)]


@pytest.mark.parametrize("looked", LOOKED, ids=["all looked", "most looked"])
def test_an_effect_that_does_not_show_ends_the_run_as_failed(
    memory: Memory, looked: tuple[bool, ...]
) -> None:
    cancelling(memory, *looked)
    post = Post()
    assert (run(memory, asked(7), post).status, post.done) == ("ok", ["cancel_order"])
    post = Post(broken="cancel_order")
    result = run(memory, asked(7), post)
    assert (result.status, post.done) == ("failed", ["cancel_order"])
    assert result.failure is not None
    assert result.failure.context["done"]


@pytest.mark.parametrize("count", [1, 4])
def test_a_written_value_must_stand_in_the_record(memory: Memory, count: int) -> None:
    redirecting(memory, count)
    given = asked(7, new_zip="61234")
    post = Post()
    assert (run(memory, given, post).status, post.done) == ("ok", ["redirect_order"])
    post = Post(broken="redirect_order")
    result = run(memory, given, post)
    assert (result.status, post.done) == ("failed", ["redirect_order"])
    assert result.failure is not None
    assert result.failure.context["done"]


def test_a_dry_run_does_not_miss_the_change_that_it_does_not_make(memory: Memory) -> None:
    redirecting(memory)
    post = Post()
    dry = memory.prepare("serve", asked(7, new_zip="61234"), post.tools())
    assert (dry.failure, post.done) == (None, [])


def test_what_was_not_so_in_every_recording_that_looked_is_not_checked(memory: Memory) -> None:
    post = Post()
    post.orders["#W70102"]["paid"] = False
    learn(memory, *(post.cancelled(n) for n in range(4)))
    unpaid = Post()
    unpaid.orders["#W70107"]["paid"] = False
    assert run(memory, asked(7), unpaid).status == "ok"
    bad = Post(broken="cancel_order")
    assert run(memory, asked(7), bad).status == "failed"


def test_recordings_that_did_not_look_teach_no_check(memory: Memory) -> None:
    cancelling(memory, False, False, False)
    assert run(memory, asked(7), Post(broken="cancel_order")).status == "ok"


def test_trials_on_recordings_that_looked_are_right(memory: Memory) -> None:
    trials = cancelling(memory, True, True, True, True).trials
    assert (trials.count("right"), len(trials)) == (4, 4)
