"""Engine(shadow=True): the agent does every task, and a replay is predicted beside it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Check, Engine, Memory
from em.behaviour import prediction
from em.behaviour.cache import find_behaviour, forget_behaviour
from em.compiler.shadow import ShadowReport

NO_BEHAVIOUR = "no behaviour is stored for this task"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


class Shop:
    """A shop whose calls, real ones and captures, are counted."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.price = 19
        self.extra = 0
        self.paid: list[tuple[str, int]] = []
        self.looked = 0

        def capture(item: str) -> int:
            self.looked += 1
            return self.price

        @engine.function(effect="read")
        def find_item(name: str) -> dict[str, Any]:
            return {"id": f"item-{name}", "name": name}

        @engine.function(effect="write", pre_check=Check(capture, lambda now, then: now == then))
        def pay(item: str, customer: str, amount: int = 1) -> str:
            self.paid.append((item, amount))
            return f"{customer} paid for {item}"

        self.find_item, self.pay = find_item, pay

    def buy(self, name: str, customer: str) -> str:
        """The agent."""
        found = self.find_item(name)
        if self.extra:
            return str(self.pay(found["id"], customer, self.extra))
        return str(self.pay(found["id"], customer))

    def __call__(self, name: str, customer: str) -> Any:
        return self.engine(name, customer, params=["customer"])


@pytest.fixture
def shop(memory: Memory) -> Shop:
    shop = Shop(memory.engine("shop", shadow=True))
    shop.engine.set_agent(shop.buy)
    return shop


def report_of(memory: Memory) -> ShadowReport:
    (report,) = memory.shadow_report()
    return report


def counts(report: ShadowReport) -> tuple[int, int, int, int]:
    return report.agreed, report.differed, report.handed_over, report.not_compared


def test_the_agent_acts_each_time_and_the_replay_would_have_done_the_same(
    memory: Memory, shop: Shop
) -> None:
    for customer in ("Ana", "Bo", "Cy"):
        result = shop("lamp", customer)
        assert (result.how, result.value) == ("miss", f"{customer} paid for item-lamp")
        assert result.reason == "the engine is in shadow mode"
    report = report_of(memory)
    assert (report.routine, counts(report), report.in_a_row) == ("behaviours/shop", (2, 0, 1, 0), 2)
    assert report.comparisons[0].reason == NO_BEHAVIOUR
    assert len(shop.paid) == 3
    assert shop.looked == 3


def test_without_shadow_mode_the_same_behaviours_are_replayed(memory: Memory, shop: Shop) -> None:
    shop("lamp", "Ana")
    shop.engine.shadow = False
    assert shop("lamp", "Bo").hit


def test_an_agent_that_does_otherwise_differs(memory: Memory, shop: Shop) -> None:
    shop("lamp", "Ana")
    shop.extra = 7
    assert shop("lamp", "Bo").value == "Bo paid for item-lamp"
    report = report_of(memory)
    assert counts(report) == (0, 1, 1, 0)
    found = report.last_difference
    assert found is not None
    assert found.reason == "it would have called pay with another amount"
    assert [one.args["amount"] for one in (*found.would_do, *found.did)] == [1, 7]
    assert [amount for _, amount in shop.paid] == [1, 7]


def test_a_check_that_would_not_have_passed_is_a_hand_over(memory: Memory, shop: Shop) -> None:
    shop("lamp", "Ana")
    shop.price = 21
    shop("lamp", "Bo")
    report = report_of(memory)
    assert counts(report) == (0, 0, 2, 0)
    assert "now 21, recorded 19" in report.comparisons[1].reason


def test_a_check_that_was_never_made_says_nothing(memory: Memory, shop: Shop) -> None:
    shop("lamp", "Ana")
    shop.engine.set_agent(lambda name, customer: shop.find_item(name)["id"])
    assert shop("lamp", "Bo").value == "item-lamp"
    report = report_of(memory)
    assert counts(report) == (0, 0, 1, 1)
    why = "nobody knows what the pre-check of pay would have seen"
    assert report.comparisons[1].reason == why


def test_a_run_that_raises_is_not_compared_and_raises_as_before(memory: Memory, shop: Shop) -> None:
    shop("lamp", "Ana")

    def give_up(name: str, customer: str) -> str:
        raise LookupError(f"no {name} for {customer}")

    shop.engine.set_agent(give_up)
    with pytest.raises(LookupError, match="no lamp for Bo"):
        shop("lamp", "Bo")
    report = report_of(memory)
    assert counts(report) == (0, 0, 1, 1)
    assert report.comparisons[1].reason == "the agent raised LookupError"


def test_a_prediction_that_fails_leaves_the_agent_alone(
    memory: Memory, shop: Shop, monkeypatch: Any
) -> None:
    shop("lamp", "Ana")

    def fail(*_args: Any) -> Any:
        raise ZeroDivisionError("em is broken")

    monkeypatch.setattr(prediction, "PredictedReplay", fail)
    result = shop("lamp", "Bo")
    assert (result.value, result.problem) == ("Bo paid for item-lamp", None)
    report = report_of(memory)
    assert counts(report) == (0, 0, 2, 0)
    assert report.comparisons[1].reason == "ZeroDivisionError: em is broken"


def test_async_agents_are_compared(memory: Memory) -> None:
    engine = memory.engine("async", shadow=True)
    sent: list[str] = []

    @engine.function(effect="write")
    async def send(to: str) -> str:
        await asyncio.sleep(0)
        sent.append(to)
        return f"sent to {to}"

    async def agent(to: str) -> str:
        return str(await send(to))

    engine.set_agent(agent)

    async def both() -> None:
        await engine("ana")
        assert (await engine("ana")).value == "sent to ana"

    asyncio.run(both())
    assert counts(report_of(memory)) == (1, 0, 1, 0)
    assert sent == ["ana", "ana"]


def test_methods_and_objects_that_are_handed_on_are_compared(memory: Memory) -> None:
    engine = memory.engine("desk", shadow=True)

    class Ticket:
        def __init__(self, number: int) -> None:
            self.number = number

    class Desk:
        def __init__(self) -> None:
            self.closed = 0

        @engine.method(effect="read")
        def find(self, number: int) -> Ticket:
            return Ticket(number)

        @engine.method(effect="write")
        def close(self, ticket: Ticket) -> int:
            self.closed += 1
            return ticket.number

    desk = Desk()

    def agent(number: int) -> int:
        return int(desk.close(desk.find(number)))

    engine.set_agent(agent).set_context(desk).finalize()
    assert [engine(7).value for _ in range(3)] == [7, 7, 7]
    assert counts(report_of(memory)) == (2, 0, 1, 0)
    assert desk.closed == 3


def test_a_task_without_effects_is_compared_by_its_answer(memory: Memory) -> None:
    engine = memory.engine("asking", shadow=True)
    told = ["blue"]

    @engine.function(effect="read")
    def read_colour(of: str) -> str:
        return f"{of}: {told[-1]}"

    wanted = ["the sky is blue"]
    engine.set_agent(lambda of: (read_colour(of), wanted[-1])[1])
    engine("sky")
    engine("sky")
    wanted.append("it is blue, I think")
    engine("sky")
    report = report_of(memory)
    assert counts(report) == (1, 1, 1, 0)
    assert report.comparisons[2].reason == "it would have returned another answer"


def test_a_call_in_a_thread_of_its_own_is_not_compared(memory: Memory, shop: Shop) -> None:
    import threading

    shop("lamp", "Ana")

    def agent(name: str, customer: str) -> str:
        found = shop.find_item(name)
        thread = threading.Thread(target=lambda: shop.pay(found["id"], customer))
        thread.start()
        thread.join()
        return "done"

    shop.engine.set_agent(agent)
    assert shop("lamp", "Bo").value == "done"
    report = report_of(memory)
    assert counts(report) == (0, 0, 1, 1)
    assert "in a thread" in report.comparisons[1].reason


def test_a_task_that_cannot_be_stored_is_not_compared(memory: Memory) -> None:
    engine = memory.engine("odd", shadow=True)
    engine.set_agent(lambda thing: "done")
    assert engine(object()).value == "done"
    report = report_of(memory)
    assert counts(report) == (0, 0, 0, 1)
    assert "object" in report.comparisons[0].reason


def test_a_comparison_is_forgotten_with_its_behaviour(memory: Memory, shop: Shop) -> None:
    shop("lamp", "Ana")
    shop.extra = 7
    second = shop("lamp", "Bo")
    assert second.behaviour is not None
    assert counts(report_of(memory)) == (0, 1, 1, 0)
    forget_behaviour(
        memory.store, find_behaviour(memory.store, second.behaviour), only_retire=False
    )
    assert counts(report_of(memory)) == (0, 0, 1, 0)


def test_secrets_are_redacted_in_a_comparison(memory: Memory) -> None:
    engine = memory.engine("door", shadow=True)
    secret = "hunter2-and-more"

    @engine.function(effect="write")
    def log_in(user: str, password: str) -> str:
        return f"{user} is in"

    def enter(user: str, password: str) -> str:
        return str(log_in(user, password))

    engine.set_agent(enter)
    engine("ana", secret, params=["password"])
    report = report_of(memory)
    assert report.comparisons[0].did[0].args["password"].startswith("[redacted:")
    assert all(secret not in str(event.body) for event in memory.log.read())


def test_an_engine_without_a_memory_can_be_in_shadow_mode_too() -> None:
    with Engine(shadow=True) as engine:
        shop = Shop(engine)
        engine.set_agent(shop.buy)
        assert [shop("lamp", who).how for who in ("Ana", "Bo")] == ["miss", "miss"]
        assert len(shop.paid) == 2
