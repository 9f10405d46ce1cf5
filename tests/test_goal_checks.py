"""What agents looked at after a change is looked at again; a run is ok only if it shows it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from em import Memory
from em.errors import RoutineError
from em.runner.package import find_routine, texts_of, write_files
from em.runner.requirements import requirements
from em.runner.routine import PlanStep
from em.runner.run import RunResult
from em.runner.task_plan import Check
from em.runner.tools import ToolRegistry
from em.runner.validation import validate
from em.traces.trace import Message, Mission, ToolCall, Trace

READS = ("find_user", "get_user", "get_order")


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


@pytest.fixture(scope="module")
def clerk(new_memory: Callable[[], Memory]) -> Clerk:
    return Clerk(new_memory())


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


def test_validate_finds_what_is_wrong_with_a_check(clerk: Clerk, tmp_path: Path) -> None:
    folder = tmp_path / "serve"
    write_files(texts_of(find_routine(clerk.memory.store, "serve")), folder)
    assert validate(folder) == []
    file = folder / "routine.yaml"
    good = file.read_text()
    file.write_text(good.replace("result.ship_to.zip == new_zip", "result.ship_to.zip == new_zp"))
    (problem,) = validate(folder)
    assert (problem.message, "checks" in problem.place) == ("'new_zp' is not defined", True)
    # The tool of a check is declared, and registered, like that of a step.
    check = good.index("checks:")
    file.write_text(good[:check] + good[check:].replace("tool: get_order", "tool: get_ordr", 1))
    assert [one.message for one in validate(folder)] == ["the tool 'get_ordr' is not declared"]
    file.write_text(good)
    tools = Post().tools()
    assert validate(folder, tools=ToolRegistry(tools)) == []
    del tools["get_order"]
    missing = {one.message for one in validate(folder, tools=ToolRegistry(tools))}
    assert missing == {"there is no tool 'get_order'"}


def test_validate_shows_what_is_checked(clerk: Clerk, tmp_path: Path) -> None:
    write_files(texts_of(find_routine(clerk.memory.store, "serve")), tmp_path / "serve")
    said = em("validate", str(tmp_path / "serve"))
    assert (said.code, said.out) == (0, "valid\n")
    assert "checked after cancel_order: get_order is called, and" in said.err
    found = em("validate", str(tmp_path / "serve"), "--json").json
    assert any('"cancelled"' in check for check in found["checks"])


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


def test_a_trial_whose_check_fails_is_not_right(memory: Memory) -> None:
    post = Post()
    post.unpaid_by = ("cancel_order", "#W70102")  # the others teach that it stays paid
    ids = [memory.add_trace(post.cancelled(n)) for n in (0, 1, 2)]
    ids += [memory.add_trace(post.redirected(n, f"5081{n}")) for n in (3, 4, 5)]
    trials = memory.compile(ids, name="serve").trials
    verdicts = {one.trace: one.verdict for one in trials.made}
    assert [verdicts[one] for one in ids] == ["right"] * 2 + ["handed over"] + ["right"] * 3
    (reason,) = trials.reasons()
    assert "get_order was called as a check" in reason


def test_a_trial_that_a_check_stops_half_way_is_wrong(memory: Memory) -> None:
    post = Post()
    post.unpaid_by = ("redirect_order", "#W70105")
    ids = [memory.add_trace(post.redirected(n, f"5081{n}")) for n in (0, 1)]
    ids += [memory.add_trace(post.cancelled(n)) for n in (2, 3)]
    order, mail = {"order_id": "#W70105"}, "ana5@post.example"
    both = post.trace(
        f"I am {mail}. Please redirect #W70105 to 50899. Please cancel #W70105.",
        ("find_user", {"email": mail}),
        ("get_user", {"user_id": "ana_3105"}),
        ("get_order", order),
        ("redirect_order", {**order, "new_zip": "50899"}),
        ("get_order", order),
        ("cancel_order", order),
        ("get_order", order),
    )
    ids.append(memory.add_trace(both))
    with pytest.raises(RoutineError, match="stopped after redirect_order, without cancel_order"):
        memory.compile(ids, name="serve")
    assert memory.compile(ids, name="serve", force=True).trials.count("wrong") == 1


def test_a_trial_on_a_trace_that_did_not_look_can_be_right(clerk: Clerk) -> None:
    assert clerk.routine.trials.count("right") == len(clerk.routine.trials) == 6


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
