"""Shadow mode: the agent acts, em predicts beside it, and the two are compared."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import AsyncMemory, Memory, recorded_tool
from em.compiler import shadow as shadow_module
from em.compiler.shadow import Shadow, ShadowReport, shadow_report
from em.errors import NotFound, UsageError
from em.runner.package import keep_routine
from em.runner.standing import accept
from em.store.log import Log
from em.store.protocol import Store
from em.traces.recorder import Recording


class Desk:
    """Orders that an agent reads and refunds; every real effect is in `done`."""

    def __init__(self) -> None:
        self.done: list[tuple[str, float]] = []
        self.reads = 0

        @recorded_tool(effect="read")
        def get_order(order_id: str) -> dict[str, Any]:
            self.reads += 1
            return {"order_id": order_id, "total": 10.5 + len(order_id), "status": "paid"}

        @recorded_tool(effect="write")
        def refund(order_id: str, amount: float) -> dict[str, Any]:
            self.done.append((order_id, amount))
            return {"order_id": order_id, "status": "refunded"}

        self.get_order, self.refund = get_order, refund

    def agent(self, memory: Memory, **options: Any) -> Callable[..., Any]:
        """An agent that pays back the total of an order, or what it is told to."""

        @memory.record("refund an order", app="desk", **options)
        def refund_order(order_id: str) -> str:
            order = self.get_order(order_id)
            self.refund(order_id, order["total"])
            return "done"

        return refund_order

    def other_agent(self, memory: Memory, amount: float | None, **options: Any) -> Any:
        """An agent that pays back another amount, or nothing."""

        @memory.record("refund an order", app="desk", **options)
        def refund_order(order_id: str) -> str:
            self.get_order(order_id)
            if amount is not None:
                self.refund(order_id, amount)
            return "done"

        return refund_order


def routine(amount: str = "{{ order.total }}", *, asks_over: float | None = None) -> dict[str, str]:
    """The files of a routine that does what the agent does."""
    steps: list[dict[str, Any]] = [
        {
            "id": "look",
            "type": "tool.call",
            "tool": "get_order",
            "save_as": "order",
            "args": {"order_id": "{{ order_id }}"},
        },
        {
            "id": "pay",
            "type": "tool.call",
            "tool": "refund",
            "args": {"order_id": "{{ order_id }}", "amount": amount},
        },
    ]
    if asks_over is not None:
        prompt = {"message": "Pay so much back?", "fields": [{"name": "ok"}]}
        when = f"order.total > {asks_over}"
        steps.insert(1, {"id": "agree", "type": "prompt.user", "when": when, "prompt": prompt})
    whole = {
        "version": "1",
        "name": "refund",
        "input_schema": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
        "tools": [{"name": "get_order", "effect": "read"}, {"name": "refund", "effect": "write"}],
        "steps": steps,
    }
    return {"routine.yaml": msgspec.yaml.encode(whole).decode()}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


@pytest.fixture
def desk(memory: Memory) -> Desk:
    """A desk, and the routine `refund` that was made of a trace at it."""
    desk = Desk()
    made_of_a_trace(memory, desk)
    return desk


def made_of_a_trace(memory: Memory, desk: Desk, *, retired: bool = False) -> None:
    desk.agent(memory)("A-17")
    desk.done.clear()
    keep_routine(memory.store, routine(), memory.traces()[0].event_ids, retired=retired)


def only(memory: Memory, **options: Any) -> ShadowReport:
    (report,) = memory.shadow_report(**options)
    return report


def counts(report: ShadowReport) -> tuple[int, int, int, int]:
    return report.agreed, report.differed, report.handed_over, report.not_compared


def test_an_agreement_is_counted_and_nothing_is_called_twice(memory: Memory, desk: Desk) -> None:
    desk.reads = 0
    desk.agent(memory, shadow=True)("B-200")
    report = only(memory)
    assert (report.routine, counts(report), report.in_a_row) == ("refund@1", (1, 0, 0, 0), 1)
    assert report.last_difference is None
    assert desk.done == [("B-200", 15.5)]
    assert desk.reads == 1


def test_a_difference_shows_what_em_would_have_done(memory: Memory, desk: Desk) -> None:
    desk.other_agent(memory, 3.0, shadow=True)("B-200")
    report = only(memory)
    assert counts(report) == (0, 1, 0, 0)
    found = report.last_difference
    assert found is not None
    assert found.reason == "it would have called refund with another amount"
    assert [(one.tool, one.args) for one in found.would_do] == [
        ("refund", {"order_id": "B-200", "amount": 15.5})
    ]
    assert [one.args for one in found.did] == [{"order_id": "B-200", "amount": 3.0}]
    assert desk.done == [("B-200", 3.0)]


def test_an_agent_that_declines_differs_from_a_routine_that_would_act(
    memory: Memory, desk: Desk
) -> None:
    desk.other_agent(memory, None, shadow=True)("B-200")
    report = only(memory)
    assert counts(report) == (0, 1, 0, 0)
    assert "the agent did not" in report.comparisons[0].reason
    assert desk.done == []


def test_an_agent_that_does_more_differs(memory: Memory, desk: Desk) -> None:
    @memory.record("refund an order", app="desk", shadow=True)
    def generous(order_id: str) -> None:
        desk.refund(order_id, desk.get_order(order_id)["total"])
        desk.refund("gift", 1.0)

    generous("B-200")
    report = only(memory)
    assert counts(report) == (0, 1, 0, 0)
    assert report.comparisons[0].reason == "it would not have called refund"


def test_a_read_that_the_agent_never_made_is_a_hand_over(memory: Memory, desk: Desk) -> None:
    @memory.record("refund an order", app="desk", shadow=True)
    def blind(order_id: str) -> None:
        desk.refund(order_id, 15.5)

    blind("B-200")
    report = only(memory)
    assert counts(report) == (0, 0, 1, 0)
    assert "the agent never called get_order" in report.comparisons[0].reason
    assert [one.tool for one in report.comparisons[0].did] == ["refund"]


def test_a_routine_that_asks_is_a_hand_over_and_does_not_end_the_row(
    memory: Memory, desk: Desk
) -> None:
    keep_routine(memory.store, routine(asks_over=20))
    agent = desk.agent(memory, shadow="refund")
    agent("B-1")
    agent("a-number-that-is-long")
    agent("B-2")
    report = only(memory)
    assert (report.routine, counts(report), report.in_a_row) == ("refund@2", (2, 0, 1, 0), 2)
    assert "it would have asked: Pay so much back?" in report.comparisons[1].reason


def test_a_routine_that_would_stop_half_way_differs(memory: Memory, desk: Desk) -> None:
    twice = msgspec.yaml.decode(routine()["routine.yaml"])
    prompt = {"message": "And the tip?", "fields": [{"name": "ok"}]}
    tip = {"order_id": "tip", "amount": 1.0}
    twice["steps"] += [
        {"id": "agree", "type": "prompt.user", "prompt": prompt},
        {"id": "tip", "type": "tool.call", "tool": "refund", "args": tip},
    ]
    keep_routine(memory.store, {"routine.yaml": msgspec.yaml.encode(twice).decode()})

    @memory.record("refund an order", app="desk", shadow="refund")
    def both(order_id: str) -> None:
        desk.refund(order_id, desk.get_order(order_id)["total"])
        desk.refund("tip", 1.0)

    both("B-200")
    report = only(memory)
    assert counts(report) == (0, 1, 0, 0)
    reason = report.comparisons[0].reason
    assert "it would have stopped before refund" in reason
    assert "it would have asked: And the tip?" in reason


def test_a_read_is_answered_as_at_the_same_moment(memory: Memory) -> None:
    """The status before the payment decides whether to pay, the one after it is checked."""
    status, paid = ["open"], []

    @recorded_tool(effect="read")
    def get_status(order_id: str) -> str:
        return status[-1]

    @recorded_tool(effect="write")
    def pay(order_id: str) -> None:
        status.append("paid")
        paid.append(order_id)

    given = {"order_id": "{{ order_id }}"}
    look = {"type": "tool.call", "tool": "get_status", "args": given}
    steps = [
        {"id": "before", "save_as": "before", **look},
        {"id": "is_open", "type": "assert", "check": "before == 'open'"},
        {"id": "pay", "type": "tool.call", "tool": "pay", "args": given},
        {"id": "after", "save_as": "after", **look},
        {"id": "is_paid", "type": "assert", "check": "after == 'paid'"},
    ]
    whole = {**msgspec.yaml.decode(routine()["routine.yaml"]), "name": "pay", "steps": steps}
    whole["tools"] = [{"name": "get_status", "effect": "read"}, {"name": "pay", "effect": "write"}]
    keep_routine(memory.store, {"routine.yaml": msgspec.yaml.encode(whole).decode()})

    @memory.record("pay", shadow=True)
    def agent(order_id: str) -> None:
        get_status(order_id)
        pay(order_id)
        get_status(order_id)

    agent("B-1")
    report = only(memory)
    assert counts(report) == (1, 0, 0, 0), report
    assert paid == ["B-1"]


def test_an_effect_that_failed_for_the_agent_too_is_a_hand_over(memory: Memory, desk: Desk) -> None:
    @recorded_tool(name="refund", effect="write")
    def refuse(order_id: str, amount: float) -> None:
        raise ValueError(f"{order_id} can't be refunded")

    @memory.record("refund an order", app="desk", shadow=True)
    def agent(order_id: str) -> str:
        order = desk.get_order(order_id)
        try:
            refuse(order_id, order["total"])
        except ValueError:
            return "sorry"
        return "done"

    assert agent("B-200") == "sorry"
    report = only(memory)
    assert counts(report) == (0, 0, 1, 0)
    assert "can't be refunded" in report.comparisons[0].reason


def test_an_effect_whose_outcome_nobody_knows_is_not_compared(memory: Memory, desk: Desk) -> None:
    @recorded_tool(name="refund", effect="write")
    def too_slow(order_id: str, amount: float) -> None:
        raise TimeoutError("no answer: timed out")

    @memory.record("refund an order", app="desk", shadow=True)
    def agent(order_id: str) -> str:
        try:
            too_slow(order_id, desk.get_order(order_id)["total"])
        except TimeoutError:
            return "perhaps"
        return "done"

    agent("B-200")
    report = only(memory)
    assert counts(report) == (0, 0, 0, 1)
    assert "nobody knows whether refund had an effect" in report.comparisons[0].reason


def test_what_only_reads_is_compared_by_its_answer(memory: Memory, desk: Desk) -> None:
    whole = msgspec.yaml.decode(routine()["routine.yaml"])
    back = {"id": "tell", "type": "return", "value": "{{ order.total }}"}
    whole |= {"name": "total", "steps": [whole["steps"][0], back]}
    keep_routine(memory.store, {"routine.yaml": msgspec.yaml.encode(whole).decode()})

    @memory.record("tell the total", app="desk", shadow="total")
    def tell(order_id: str, rounded: bool) -> float:
        total = desk.get_order(order_id)["total"]
        return float(round(total)) if rounded else float(total)

    tell("B-200", rounded=False)
    tell("B-200", rounded=True)
    report = only(memory)
    assert counts(report) == (1, 1, 0, 0)
    assert report.comparisons[1].reason == "it would have returned another answer"


def test_functions_of_the_routine_are_computed_and_never_act(memory: Memory, desk: Desk) -> None:
    whole = msgspec.yaml.decode(routine("{{ half(order.total) }}")["routine.yaml"])
    whole["steps"].append(
        {"id": "tell", "type": "udf.call", "function": "tell", "args": {}, "effect": "write"}
    )
    files = {
        "routine.yaml": msgspec.yaml.encode(whole).decode(),
        "udf.py": (
            "def half(total):\n    return total / 2\n\n\n"
            "def tell():\n    raise SystemExit('the shadow called it')\n"
        ),
    }
    keep_routine(memory.store, files)
    desk.other_agent(memory, 7.75, shadow="refund")("B-200")
    report = only(memory)
    assert counts(report) == (0, 1, 0, 0)
    found = report.comparisons[0]
    assert found.reason == "it would have called tell with {}; the agent did not"
    assert [one.tool for one in found.would_do] == ["refund", "tell"]


def test_an_input_may_have_the_name_that_it_was_recorded_with(memory: Memory, desk: Desk) -> None:
    whole = msgspec.yaml.decode(routine()["routine.yaml"])
    whole["input_schema"]["properties"]["order_id"]["title"] = "orderId"
    keep_routine(memory.store, {"routine.yaml": msgspec.yaml.encode(whole).decode()})

    @memory.record("refund an order", app="desk", shadow=True)
    def refund_order(orderId: str) -> None:  # noqa: N803 - as other programs write it
        desk.refund(orderId, desk.get_order(orderId)["total"])

    refund_order("B-200")
    report = only(memory)
    assert (report.routine, counts(report)) == ("refund@2", (1, 0, 0, 0))


def test_a_difference_ends_the_row(memory: Memory, desk: Desk) -> None:
    agent = desk.agent(memory, shadow=True)
    for order in ("B-1", "B-2"):
        agent(order)
    desk.other_agent(memory, 1.0, shadow=True)("B-3")
    agent("B-4")
    report = only(memory)
    assert (counts(report), report.in_a_row) == ((3, 1, 0, 0), 1)


def test_a_run_that_failed_is_not_compared_and_raises_as_before(memory: Memory, desk: Desk) -> None:
    @memory.record("refund an order", app="desk", shadow=True)
    def failing(order_id: str) -> None:
        desk.get_order(order_id)
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        failing("B-200")
    assert counts(only(memory)) == (0, 0, 0, 1)


@pytest.mark.parametrize("broken", ["predict", "given_to", "on_trial"])
def test_a_failure_of_the_shadow_leaves_the_agent_alone(
    memory: Memory, desk: Desk, broken: str, monkeypatch: Any, caplog: Any
) -> None:
    def fail(*_args: Any, **_options: Any) -> Any:
        raise ZeroDivisionError("em is broken")

    monkeypatch.setattr(shadow_module, broken, fail)
    assert desk.agent(memory, shadow=True)("B-200") == "done"
    reports = memory.shadow_report()
    assert desk.done == [("B-200", 15.5)]
    if broken != "on_trial":
        assert reports[0].handed_over == 1
        assert "em is broken" in reports[0].comparisons[0].reason
    else:
        assert "was not compared" in caplog.text
    assert len(memory.traces()) == 2


def test_a_routine_that_is_not_there_is_a_hand_over(memory: Memory, desk: Desk) -> None:
    assert desk.agent(memory, shadow=["nothing", "refund"])("B-200") == "done"
    missing, found = memory.shadow_report()
    assert (missing.routine, counts(missing)) == ("nothing", (0, 0, 1, 0))
    assert (found.routine, counts(found)) == ("refund@1", (1, 0, 0, 0))


@pytest.mark.parametrize("which", [5, ["refund", 5], {"refund": 1}, b"refund"])
def test_what_is_compared_is_named_or_all(memory: Memory, which: Any) -> None:
    with pytest.raises(UsageError) as refused:
        memory.record("refund an order", shadow=which)
    assert refused.value.place == "shadow"


def test_routines_of_other_programs_and_for_other_inputs_are_left_out(
    memory: Memory, desk: Desk
) -> None:
    @memory.record("refund an order", app="another desk", shadow=True)
    def elsewhere(order_id: str) -> None:
        desk.refund(order_id, 1.0)

    @memory.record("say hello", app="desk", shadow=True)
    def greet(name: str) -> str:
        return f"hello {name}"

    elsewhere("B-200")
    greet("Ana")
    assert memory.shadow_report() == []


def test_async_agents_and_generators_are_compared(memory: Memory, desk: Desk) -> None:
    @memory.record("refund an order", app="desk", shadow=True)
    async def waiting(order_id: str) -> str:
        await asyncio.sleep(0)
        desk.refund(order_id, desk.get_order(order_id)["total"])
        return "done"

    @memory.record("refund an order", app="desk", shadow=True)
    def telling(order_id: str) -> Iterator[str]:
        order = desk.get_order(order_id)
        yield "found it"
        desk.refund(order_id, order["total"])

    async def both() -> list[str]:
        return await asyncio.gather(waiting("B-1"), waiting("B-22"))

    assert asyncio.run(both()) == ["done", "done"]
    assert list(telling("B-333")) == ["found it"]
    assert counts(only(memory)) == (3, 0, 0, 0)
    assert sorted(desk.done) == [("B-1", 13.5), ("B-22", 14.5), ("B-333", 15.5)]


def test_the_report_and_the_acceptance_can_be_awaited(tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncMemory(tmp_path / "em.db") as memory:
            desk = Desk()
            made_of_a_trace(memory._sync, desk, retired=True)
            desk.agent(memory, shadow=True)("B-200")  # type: ignore[arg-type]  # as above
            (report,) = await memory.shadow_report()
            assert report.in_a_row == 1
            assert (await memory.accept("refund")).changed

    asyncio.run(use())


def test_the_agent_does_not_wait_for_the_comparison(
    memory: Memory, desk: Desk, monkeypatch: Any
) -> None:
    go_on = threading.Event()
    predict = shadow_module.predict

    def slow(*args: Any, **options: Any) -> Any:
        assert go_on.wait(60)
        return predict(*args, **options)

    monkeypatch.setattr(shadow_module, "predict", slow)
    assert desk.agent(memory, shadow=True)("B-200") == "done"
    go_on.set()
    assert counts(only(memory)) == (1, 0, 0, 0)


def test_closing_the_memory_finishes_the_comparisons(tmp_path: Path) -> None:
    desk = Desk()
    with Memory(tmp_path / "em.db") as memory:
        made_of_a_trace(memory, desk)
        agent = desk.agent(memory, shadow=True)
        for number in range(5):
            agent(f"B-{number}")
    with Memory(tmp_path / "em.db") as memory:
        assert counts(only(memory)) == (5, 0, 0, 0)


def test_a_call_that_comes_late_takes_the_comparison_back(memory: Memory, desk: Desk) -> None:
    with memory.record("refund an order", {"order_id": "B-200"}, app="desk", shadow=True) as made:
        desk.refund("B-200", desk.get_order("B-200")["total"])
    assert counts(only(memory)) == (1, 0, 0, 0)
    made.mark_incomplete("something was called in another thread")
    assert counts(only(memory)) == (0, 0, 0, 1)


# --- what is stored -------------------------------------------------------------------------------


def test_secrets_are_redacted_in_the_stored_comparison(memory: Memory) -> None:
    secret = "hunter2-and-more"

    @recorded_tool(effect="write")
    def log_in(user: str, password: str) -> str:
        return f"{user} is in"

    @memory.record("log in", app="door")
    def enter(user: str, password: str) -> str:
        return str(log_in(user, password))

    enter("ana", "another-one-77")
    memory.compile(memory.traces()[0].id, name="enter")

    @memory.record("log in", app="door", shadow="enter")
    def refuse(user: str, password: str) -> None:
        log_in("nobody", password)

    refuse("ana", secret)
    (found,) = only(memory).comparisons
    assert found.did
    assert found.did[0].args["password"].startswith("[redacted:")
    stored = b"".join(msgspec.json.encode(event.body) for event in memory.log.read())
    assert secret.encode() not in stored


def test_each_subject_has_its_own_comparisons(memory: Memory, desk: Desk) -> None:
    desk.agent(memory, shadow=True, subject="ana")("B-1")
    desk.other_agent(memory, 1.0, shadow=True, subject="bo")("B-2")
    assert counts(only(memory, subject="ana")) == (1, 0, 0, 0)
    assert counts(only(memory, subject="bo")) == (0, 1, 0, 0)
    assert memory.shadow_report(subject="cy") == []
    # What a subject may see of the log has no comparison: it may quote other people's traces.
    for subject in ("ana", "bo"):
        kinds = {event.kind for event in memory.log.read(subject=subject)}
        assert "shadow_compared" not in kinds


def test_forgetting_a_subject_forgets_its_comparisons(memory: Memory, desk: Desk) -> None:
    desk.agent(memory, shadow=True, subject="ana")("B-1")
    desk.other_agent(memory, 1.0, shadow=True, subject="bo")("B-2")
    assert counts(only(memory)) == (1, 1, 0, 0)
    memory.forget(subject="bo")
    assert counts(only(memory)) == (1, 0, 0, 0)
    assert not any("B-2" in msgspec.json.encode(event.body).decode() for event in memory.log.read())


def test_forgetting_what_a_routine_was_compiled_from_forgets_what_it_would_have_done(
    memory: Memory, desk: Desk
) -> None:
    first = memory.traces()[0]
    desk.other_agent(memory, 1.0, shadow=True)("B-2")
    assert counts(only(memory)) == (0, 1, 0, 0)
    memory.forget(first.event_ids)
    assert memory.shadow_report() == []


# --- acceptance -----------------------------------------------------------------------------------


def test_a_routine_in_shadow_is_not_used_until_it_is_accepted(memory: Memory) -> None:
    made_of_a_trace(memory, desk := Desk(), retired=True)
    kept = "refund@1"
    with pytest.raises(NotFound):
        memory.run("refund", {"order_id": "B-1"}, {})
    tools = {"get_order": desk.get_order, "refund": desk.refund}
    assert memory.run(kept, {"order_id": "B-1"}, tools).status == "ok"

    agent = desk.agent(memory, shadow=True)
    agent("B-2")
    agent("B-3")
    memory.shadow_report()  # waits for the comparisons
    assert "2 times in a row" in memory.standing(kept).beside_agent
    accepted = memory.accept("refund")
    assert (accepted.routine, accepted.now, accepted.changed) == (kept, kept, True)
    assert memory.run("refund", {"order_id": "B-4"}, tools).status == "ok"
    assert not memory.accept("refund").changed
    (event,) = memory.log.read(kinds="routine_accepted")
    assert event.body == {"routine": kept, "put_in_use": True}


def test_a_version_in_shadow_leaves_the_one_in_use_alone(memory: Memory, desk: Desk) -> None:
    tools = {"get_order": desk.get_order, "refund": desk.refund}
    second = keep_routine(memory.store, routine("2.0"), retired=True)
    assert second.ref == "refund@2"
    assert memory.run("refund", {"order_id": "B-1"}, tools).status == "ok"
    assert desk.done[-1] == ("B-1", 13.5)
    desk.agent(memory, shadow=True)("B-22")
    old, new = memory.shadow_report()
    assert (old.routine, counts(old)) == ("refund@1", (1, 0, 0, 0))
    assert (new.routine, counts(new)) == ("refund@2", (0, 1, 0, 0))


def test_without_agreements_a_person_accepts_it(memory: Memory) -> None:
    kept = keep_routine(memory.store, routine("2.0"), retired=True)
    assert memory.standing(kept.ref).beside_agent == "it was not compared with an agent"
    assert memory.accept(kept.ref).now == kept.ref


def test_what_is_compiled_may_begin_in_shadow(memory: Memory, desk: Desk) -> None:
    kept = memory.compile(memory.traces()[0].id, name="pay_back", proposed=True)
    assert memory.store.artefact("routine", "pay_back") is None
    again = memory.compile(memory.traces()[0].id, name="pay_back", proposed=True)
    assert again.ref == kept.ref == "pay_back@1"
    memory.accept("pay_back")
    assert memory.store.artefact("routine", "pay_back") is not None


# --- requests in words ----------------------------------------------------------------------------


def test_a_routine_is_compared_by_a_request_that_fits_its_template(memory: Memory) -> None:
    desk = Desk()
    whole = msgspec.yaml.decode(routine()["routine.yaml"])
    whole["requests"] = ["Please pay {order_id} back."]
    keep_routine(memory.store, {"routine.yaml": msgspec.yaml.encode(whole).decode()})

    @memory.record("serve", shadow=True)
    def agent(request: str, order: str, amount: float) -> None:
        desk.get_order(order)
        desk.refund(order, amount)

    agent("please pay B-200 back", "B-200", 15.5)
    agent("Please pay B-201 back.", "B-201", 1.0)
    agent("Please write me a poem about B-200.", "B-200", 15.5)
    report = only(memory)
    assert (report.routine, counts(report)) == ("refund@1", (1, 1, 0, 0)), "a poem fits none"
    assert len(desk.done) == 3


def test_the_routine_that_is_named_hands_over_a_request_that_it_can_not_read(
    memory: Memory,
) -> None:
    desk = Desk()
    whole = msgspec.yaml.decode(routine()["routine.yaml"])
    whole["requests"] = ["Please pay {order_id} back."]
    keep_routine(memory.store, {"routine.yaml": msgspec.yaml.encode(whole).decode()})

    @memory.record("serve", shadow="refund")
    def agent(request: str) -> None:
        desk.refund("B-200", desk.get_order("B-200")["total"])

    agent("Would you pay B-200 back?")
    assert counts(only(memory)) == (0, 0, 1, 0)


def test_the_same_on_both_stores(store: Store) -> None:
    desk, shadow = Desk(), Shadow(store)
    keep_routine(store, routine(), retired=True)
    given = {"order_id": "B-200"}
    for amount in (15.5, 1.0, 15.5):
        stored = shadow.beside(True, "ana")
        with Recording(Log(store), "refund", given, app="", subject="ana", stored=stored):
            desk.get_order("B-200")
            desk.refund("B-200", amount)
    shadow.close()
    (report,) = shadow_report(store)
    assert (counts(report), report.in_a_row) == ((2, 1, 0, 0), 1)
    assert accept(store, "refund").changed
    assert store.artefact("routine", "refund") is not None
    store.erase([], subjects=["ana"])
    assert shadow_report(store) == []
