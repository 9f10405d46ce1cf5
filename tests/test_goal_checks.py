"""What agents looked at after a change is looked at again; a run is ok only if it shows it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.requirements import requirements
from em.runner.routine import PlanStep
from em.runner.run import RunResult
from em.runner.task_plan import Check
from em.traces.trace import Message, Mission, ToolCall, Trace

READS = ("find_user", "get_user", "get_order")


class Post:
    """Orders that are cancelled and sent elsewhere. `broken`: tools that say ok and do nothing."""

    def __init__(self, broken: str = "") -> None:
        self.done: list[str] = []
        self.broken = broken
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
            if self.broken != "cancel_order":
                self.orders[order_id]["status"] = "cancelled"
            return {"ok": True}

        def redirect_order(order_id: str, new_zip: str) -> Any:
            self.done.append("redirect_order")
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

    def trace(self, request: str, *calls: tuple[str, dict[str, Any]]) -> Trace:
        tools = self.tools()
        events: list[Any] = [Message(role="user", text=request)]
        for name, args in calls:
            effect: Any = "read" if name in READS else "write"
            events.append(ToolCall(tool=name, args=args, result=tools[name](**args), effect=effect))
        return Trace(mission=Mission(goal="serve"), events=events, outcome="success")

    def cancelled(self, n: int, *, looked: bool = True) -> Trace:
        order = {"order_id": f"#W{70100 + n}"}
        return self.trace(
            f"I am ana{n}@post.example. Please cancel #W{70100 + n}.",
            ("find_user", {"email": f"ana{n}@post.example"}),
            ("get_user", {"user_id": f"ana_{3100 + n}"}),
            ("get_order", order),
            ("cancel_order", order),
            *[("get_order", order)] * looked,
        )

    def redirected(self, n: int, new_zip: str, *, looked: bool = True) -> Trace:
        order = {"order_id": f"#W{70100 + n}"}
        return self.trace(
            f"I am ana{n}@post.example. Please redirect #W{70100 + n} to {new_zip}.",
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


class Clerk:
    """A plan that was learnt from traces, some of which looked at the order afterwards."""

    def __init__(self, memory: Memory) -> None:
        post = Post()
        self.memory = memory
        traces = [
            post.cancelled(0),
            post.cancelled(1, looked=False),
            post.cancelled(2),
            post.redirected(3, "50811"),
            post.redirected(4, "50922"),
            post.redirected(5, "50933", looked=False),
        ]
        ids = [memory.add_trace(trace) for trace in traces]
        self.routine = memory.compile(ids, name="serve")

    def run(self, request: str, post: Post, **options: Any) -> RunResult:
        text = {"request": f"I am ana7@post.example. {request}"}
        return self.memory.run(self.routine, text, post.tools(), remember=False, **options)


@pytest.fixture
def clerk(memory: Memory) -> Clerk:
    return Clerk(memory)


def test_a_run_whose_effect_shows_is_ok(clerk: Clerk) -> None:
    post = Post()
    result = clerk.run("Please redirect #W70107 to 61234. Please cancel #W70107.", post)
    assert (result.status, post.done) == ("ok", ["redirect_order", "cancel_order"]), result


def test_an_effect_that_does_not_show_ends_the_run_as_failed(clerk: Clerk) -> None:
    post = Post(broken="cancel_order")
    result = clerk.run("Please cancel #W70107.", post)
    assert (result.status, post.done) == ("failed", ["cancel_order"])
    assert result.failure is not None
    assert result.failure.error_type == "UnexpectedResult"
    assert result.failure.context["done"] == ["cancel_order"]
    assert '"cancelled"' in result.failure.message
    assert '"pending"' in result.failure.message
    assert "these effects were made: cancel_order" in result.failure.message


def test_a_written_value_must_stand_in_the_record(clerk: Clerk) -> None:
    post = Post(broken="redirect_order")
    result = clerk.run("Please redirect #W70107 to 61234. Please cancel #W70107.", post)
    assert (result.status, post.done) == ("failed", ["redirect_order"])
    assert result.failure is not None
    assert result.failure.context["done"] == ["redirect_order"]
    assert "40107" in result.failure.message


def test_it_is_shown_before_it_is_run(clerk: Clerk) -> None:
    said = {one.step_id: one.expect for one in requirements(clerk.routine)}
    assert any("get_order" in words and '"cancelled"' in words for words in said["cancel_order"])
    post = Post()
    dry = clerk.run("Please cancel #W70107.", post, dry_run=True)
    assert post.done == []
    assert any("get_order" in words and '"cancelled"' in words for words in dry.planned[0].expects)


def test_what_was_not_so_in_every_trace_that_looked_is_not_checked(memory: Memory) -> None:
    post = Post()
    post.orders["#W70102"]["paid"] = False
    ids = [memory.add_trace(post.cancelled(n)) for n in (0, 1, 2)]
    ids += [memory.add_trace(post.redirected(n, f"5081{n}")) for n in (3, 4, 5)]
    routine = memory.compile(ids, name="serve")
    (step, *_) = routine.steps
    assert isinstance(step, PlanStep)
    (check,) = step.effects["cancel_order"].checks
    assert check.shows == ['result.status == "cancelled"']


def test_a_value_that_the_effect_was_made_without_is_not_looked_for() -> None:
    shows = ['result.status == "sent"', "result.zip == new_zip"]
    check = Check(tool="get_order", args={"order_id": "{{ order_id }}"}, shows=shows)
    assert check.without(["new_zip"]).shows == shows[:1]
    assert not check.without(["order_id"]).shows


def test_traces_that_did_not_look_teach_no_check(memory: Memory) -> None:
    post = Post()
    ids = [memory.add_trace(post.cancelled(n, looked=False)) for n in (0, 1, 2)]
    routine = memory.compile(ids, name="cancel")
    post = Post(broken="cancel_order")
    text = {"request": "I am ana7@post.example. Please cancel #W70107."}
    assert memory.run(routine, text, post.tools(), remember=False).status == "ok"


# --- the way of one trace -------------------------------------------------------------------------


def _redirected(memory: Memory, post: Post, **options: Any) -> RunResult:
    """Do what one trace did, with the inputs of another task."""
    ids = [memory.add_trace(Post().redirected(3, "50811"))]
    routine = memory.compile(ids, name="redirect")
    text = "I am ana7@post.example. Please redirect #W70107 to 61234."
    return memory.run(routine, {"request": text}, post.tools(), remember=False, **options)


def test_the_way_of_one_trace_ends_with_its_check(memory: Memory) -> None:
    post = Post()
    result = _redirected(memory, post)
    assert (result.status, post.done) == ("ok", ["redirect_order"]), result
    assert [report.id for report in result.steps][-3:-1] == ["redirect_order", "get_order_2"]


def test_the_way_of_one_trace_fails_if_what_was_written_does_not_stand(memory: Memory) -> None:
    post = Post(broken="redirect_order")
    result = _redirected(memory, post)
    assert (result.status, post.done) == ("failed", ["redirect_order"]), result
    assert result.failure is not None
    assert result.failure.error_type == "UnexpectedResult"
    assert result.failure.context["done"] == ["redirect_order"]
    assert "these effects were made: redirect_order" in result.failure.message
    assert "40107" in result.failure.message


def test_a_dry_run_shows_the_check_and_does_not_make_it(memory: Memory) -> None:
    result = _redirected(memory, post := Post(), dry_run=True)
    assert post.done == []
    assert result.failure is None
    (last,) = (one for one in result.planned if one.step == "get_order_2")
    assert any("zip" in words for words in last.expects)


def test_of_several_traces_that_went_one_way_only_shared_facts_are_checked(memory: Memory) -> None:
    post = Post()
    post.orders["#W70102"]["paid"] = False
    ids = [memory.add_trace(post.cancelled(n)) for n in (0, 1, 2, 3)]
    routine = memory.compile(ids, name="cancel")
    (check,) = (step for step in routine.steps if step.id == "get_order_2")
    assert [*check.expects] == ['result.status == "cancelled"']
    text = {"request": "I am ana7@post.example. Please cancel #W70107."}
    good, bad = Post(), Post(broken="cancel_order")
    assert memory.run(routine, text, good.tools(), remember=False).status == "ok"
    assert memory.run(routine, text, bad.tools(), remember=False).status == "failed"
