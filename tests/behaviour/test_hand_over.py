"""After a replay that stops half-way, the agent goes on: nothing is done twice, nothing is lost."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from em import Check, Engine
from em.behaviour.result import Result
from em.errors import NoEffect, OutcomeUnknown


class Shop:
    """Orders that can be paid back. Every write is noted."""

    def __init__(self) -> None:
        self.writes: list[tuple[Any, ...]] = []
        self.reads = 0
        self.days = 5
        self.state = 0

    def note(self, *what: Any) -> int:
        self.writes.append(what)
        return len(self.writes)


@pytest.fixture
def shop() -> Shop:
    return Shop()


def equal(now: Any, then: Any) -> bool:
    return bool(now == then)


def plain_refunds(shop: Shop, agent: Callable[..., Any]) -> Callable[[], Result]:
    """An engine whose answer can't be put together once the bank takes other days."""
    engine = Engine()

    @engine.function()
    def get_order(order_id: str) -> dict[str, Any]:
        shop.reads += 1
        return {"order_id": order_id, "total": 4250}

    @engine.function()
    def refund(order_id: str, amount: int) -> dict[str, Any]:
        return {"refund": shop.note("refund", order_id, amount) + 9000, "takes": shop.days}

    engine.set_agent(agent(engine, get_order, refund))
    return lambda: engine("#W1001")


def async_refunds(shop: Shop, agent: Callable[..., Any]) -> Callable[[], Result]:
    engine = Engine()

    @engine.function()
    async def get_order(order_id: str) -> dict[str, Any]:
        shop.reads += 1
        await asyncio.sleep(0)
        return {"order_id": order_id, "total": 4250}

    @engine.function()
    async def refund(order_id: str, amount: int) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"refund": shop.note("refund", order_id, amount) + 9000, "takes": shop.days}

    engine.set_agent(agent(engine, get_order, refund))

    async def call() -> Result:
        result: Result = await engine("#W1001")
        return result

    return lambda: asyncio.run(call())


def unaware(_engine: Engine, get_order: Any, refund: Any) -> Any:
    def agent(order: str) -> str:
        done = refund(order, get_order(order)["total"])
        return f"paid back, it takes about {done['takes']} days"

    return agent


def aware(_engine: Engine, get_order: Any, refund: Any) -> Any:
    def agent(order: str, progress: Any) -> str:
        str(progress)  # a model that is told what was done, and does it all the same
        done = refund(order, get_order(order)["total"])
        return f"paid back, it takes about {done['takes']} days"

    return agent


def async_unaware(_engine: Engine, get_order: Any, refund: Any) -> Any:
    async def agent(order: str) -> str:
        done = await refund(order, (await get_order(order))["total"])
        return f"paid back, it takes about {done['takes']} days"

    return agent


def async_aware(_engine: Engine, get_order: Any, refund: Any) -> Any:
    async def agent(order: str, progress: Any) -> str:
        str(progress)
        done = await refund(order, (await get_order(order))["total"])
        return f"paid back, it takes about {done['takes']} days"

    return agent


REFUNDS = [
    pytest.param(plain_refunds, unaware, id="plain"),
    pytest.param(plain_refunds, aware, id="plain, told"),
    pytest.param(async_refunds, async_unaware, id="async"),
    pytest.param(async_refunds, async_aware, id="async, told"),
]


@pytest.mark.parametrize(("engine_of", "agent"), REFUNDS)
def test_what_the_replay_paid_back_the_agent_does_not_pay_back_again(
    shop: Shop, engine_of: Any, agent: Any
) -> None:
    call = engine_of(shop, agent)
    call()
    shop.days = 7
    shop.writes.clear()
    result = call()
    assert result.how == "handed_over"
    assert "step 2 (refund) returned another takes" in result.reason
    assert shop.writes == [("refund", "#W1001", 4250)], "once"
    assert result.value == "paid back, it takes about 7 days"
    writes = [step for step in result.steps if step.tool == "refund"]
    assert [step.replayed for step in writes] == [True]


@pytest.mark.parametrize(("engine_of", "agent"), REFUNDS)
def test_the_recording_of_a_run_that_was_handed_over_has_the_write_once(
    shop: Shop, engine_of: Any, agent: Any
) -> None:
    call = engine_of(shop, agent)
    call()
    shop.days = 7
    shop.writes.clear()
    assert call().stored
    shop.writes.clear()
    result = call()
    assert result.hit, result.reason
    assert result.value == "paid back, it takes about 7 days"
    assert [step.tool for step in result.steps] == ["get_order", "refund"]
    assert shop.writes == [("refund", "#W1001", 4250)]


def counter(shop: Shop, agent: Callable[..., Any], **options: Any) -> Engine:
    """An engine that adds, and then makes a step whose check sees the shop's state."""
    engine = Engine(**options)
    check = Check(lambda: shop.state, equal)

    def added(n: int, note: str = "") -> int:
        return shop.note("add", n)

    def finished() -> None:
        shop.note("finish")

    def counted() -> int:
        shop.reads += 1
        return len(shop.writes)

    add = engine.function(name="add")(added)
    finish = engine.function(name="finish", pre_check=check)(finished)
    count = engine.function(name="count", effect="read")(counted)
    return engine.set_agent(agent(add, finish, count))


def test_each_completed_call_answers_once_and_in_order(shop: Shop) -> None:
    times, got = [2], []

    def make(add: Any, finish: Any, _count: Any) -> Any:
        def agent(task: str) -> str:
            got[:] = [add(1) for _ in range(times[0])]
            finish()
            return "done"

        return agent

    engine = counter(shop, make)
    engine("a")
    shop.state, times[0] = 1, 3
    shop.writes.clear()
    result = engine("a")
    assert result.how == "handed_over"
    assert shop.writes == [("add", 1), ("add", 1), ("add", 1), ("finish",)]
    assert got == [1, 2, 3], "two from the replay, the third is the agent's own"


def test_an_agent_that_goes_on_where_the_replay_stopped_loses_no_call(shop: Shop) -> None:
    def make(add: Any, finish: Any, _count: Any) -> Any:
        def agent(task: str, progress: Any) -> str:
            for _ in range(len(progress.done), 3):
                add(1)
                if task == "slow":
                    finish()
            finish()
            return "done"

        return agent

    engine = counter(shop, make)
    engine("slow")
    assert shop.writes == [("add", 1), ("finish",)] * 3 + [("finish",)]
    shop.state = 1
    shop.writes.clear()
    assert engine("slow").how == "handed_over"
    assert shop.writes.count(("add", 1)) == 3, "one was replayed, two are the agent's"


def test_the_same_call_with_a_default_spelled_out_is_the_same_call(shop: Shop) -> None:
    def make(add: Any, finish: Any, _count: Any) -> Any:
        def agent(task: str) -> str:
            add(1, note="") if shop.state else add(n=1)
            finish()
            return "done"

        return agent

    engine = counter(shop, make)
    engine("a")
    shop.state = 1
    shop.writes.clear()
    engine("a")
    assert shop.writes == [("add", 1), ("finish",)]


def test_another_call_of_the_same_tool_is_made(shop: Shop) -> None:
    def make(add: Any, finish: Any, _count: Any) -> Any:
        def agent(task: str) -> str:
            add(1 + shop.state)
            finish()
            return "done"

        return agent

    engine = counter(shop, make)
    engine("a")
    shop.state = 1
    shop.writes.clear()
    result = engine("a")
    assert shop.writes == [("add", 1), ("add", 2), ("finish",)]
    assert "the agent did not ask for" in str(result.problem), (
        "it worked in a world that was changed"
    )


def test_a_read_is_answered_until_a_write_may_have_changed_it(shop: Shop) -> None:
    def make(add: Any, finish: Any, count: Any) -> Any:
        def agent(task: str) -> str:
            if task == "read last":
                add(1)
                count()
            else:
                count()
                add(1)
            finish()
            return "done"

        return agent

    engine = counter(shop, make)
    for task, reads in (("read last", 1), ("read first", 2)):
        shop.state = 0
        shop.writes.clear()
        engine(task)
        shop.state, shop.reads = 1, 0
        shop.writes.clear()
        result = engine(task)
        assert result.how == "handed_over"
        assert shop.writes == [("add", 1), ("finish",)]
        assert shop.reads == reads


def test_a_write_of_the_agent_makes_an_earlier_read_old(shop: Shop) -> None:
    seen = []

    def make(add: Any, finish: Any, count: Any) -> Any:
        def agent(task: str) -> str:
            if shop.state:
                add(7)
            seen.append(count())
            finish()
            return "done"

        return agent

    engine = counter(shop, make)
    engine("a")
    shop.state = 1
    shop.writes.clear()
    engine("a")
    assert seen[-1] == 1


def test_restart_starts_as_if_nothing_had_been_done(shop: Shop) -> None:
    def make(add: Any, finish: Any, _count: Any) -> Any:
        def agent(task: str) -> str:
            add(1)
            finish()
            return "done"

        return agent

    engine = counter(shop, make, on_divergence="restart")
    engine("a")
    shop.state = 1
    shop.writes.clear()
    engine("a")
    assert shop.writes == [("add", 1), ("add", 1), ("finish",)]


def test_calls_in_a_thread_pool_are_the_agents_calls(shop: Shop) -> None:
    def make(add: Any, finish: Any, _count: Any) -> Any:
        def agent(task: str) -> str:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(add, (1, 2, 3)))
            finish()
            return "done"

        return agent

    engine = counter(shop, make)
    assert engine("a").stored
    shop.state = 1
    shop.writes.clear()
    result = engine("a")
    assert result.how == "handed_over"
    assert sorted(shop.writes) == [("add", 1), ("add", 2), ("add", 3), ("finish",)]
    assert result.stored, result.problem


def test_a_method_of_another_object_is_another_call(shop: Shop) -> None:
    engine = Engine()

    class Account:
        def __init__(self, name: str) -> None:
            self.name = name

        @engine.method()
        def pay(self) -> None:
            shop.note("pay", self.name)

    check = Check(lambda: shop.state, equal)
    finish = engine.function(name="finish", pre_check=check)(lambda: None)
    ana, bo = Account("ana"), Account("bo")

    def agent() -> str:
        (bo if shop.state else ana).pay()
        finish()
        return "paid"

    engine.set_agent(agent).set_context(ana)
    engine()
    shop.state = 1
    shop.writes.clear()
    engine()
    assert shop.writes == [("pay", "ana"), ("pay", "bo")]


def test_an_object_that_the_replay_opened_is_the_agents_object(shop: Shop) -> None:
    engine = Engine()

    class Page:
        def __init__(self) -> None:
            self.clicks: list[str] = []

    pages: list[Page] = []

    @engine.function()
    def open_page() -> Page:
        pages.append(Page())
        return pages[-1]

    @engine.function()
    def click(page: Page, where: str) -> None:
        page.clicks.append(where)

    @engine.function(pre_check=Check(lambda: shop.state, equal))
    def submit(page: Page) -> None:
        page.clicks.append("submit")

    def agent() -> str:
        page = open_page()
        click(page, "a")
        submit(page)
        return "sent"

    engine.set_agent(agent)
    engine()
    shop.state = 1
    pages.clear()
    assert engine().stored
    assert [page.clicks for page in pages] == [["a", "submit"]]
    pages.clear()
    assert engine().hit
    assert [page.clicks for page in pages] == [["a", "submit"]]


def test_the_recording_has_the_calls_in_the_agents_order(shop: Shop) -> None:
    """The agent reads an id between two writes that were replayed: its order is what is stored."""
    engine = Engine()
    check = Check(lambda: shop.state, equal)

    @engine.function()
    def begin(job: str) -> str:
        shop.note("begin", job)
        return "begun"

    @engine.function()
    def mail(address: str) -> None:
        shop.note("mail", address)

    @engine.function()
    def get_address() -> dict[str, str]:
        return {"address": f"ana{shop.state}@example.org"}

    finish = engine.function(name="finish", pre_check=check)(lambda: None)

    def agent(job: str) -> str:
        begin(job)
        mail(get_address()["address"] if shop.state else "ana1@example.org")
        finish()
        return "done"

    engine.set_agent(agent)
    engine("a")
    shop.state = 1
    shop.writes.clear()
    assert engine("a").stored
    assert shop.writes == [("begin", "a"), ("mail", "ana1@example.org")]
    key = _key("a")
    assert [step.tool for step in engine.cache.find(key).stored[-1].behaviour.steps] == [
        "begin",
        "get_address",
        "mail",
        "finish",
    ]
    way = next(one for one in engine.cache.lessons(key) if len(one.behaviour.steps) == 4)
    call = next(one for one in way.taught.routine["steps"] if one.get("tool") == "mail")
    assert call["args"] == {"address": "{{ address.address }}"}


def _key(job: str) -> str:
    from em.behaviour.task import make_task

    return make_task({"job": job}, [], {}).key


def payments(shop: Shop, fails: list[Exception | None], **options: Any) -> Engine:
    """An engine whose agent pays, and on a hand-over does all of it again."""
    engine = Engine(**options)

    @engine.function()
    def get_order(order_id: str) -> dict[str, Any]:
        return {"order_id": order_id, "total": 4250}

    @engine.function()
    def pay(order_id: str, amount: int) -> str:
        shop.note("pay", order_id, amount)
        error = fails.pop(0) if fails else None
        if error is not None:
            raise error
        return "paid"

    return engine.set_agent(lambda order_id: pay(order_id, get_order(order_id)["total"]))


class ServerError(Exception):
    status = 503


UNKNOWN = [
    TimeoutError("late"),
    ConnectionResetError("reset"),
    BrokenPipeError("pipe"),
    ServerError(),
    ValueError("no receipt"),
    KeyError("id"),
]


@pytest.mark.parametrize("error", UNKNOWN, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("mode", ["continue", "restart"])
def test_a_write_of_unknown_outcome_is_not_made_again(
    shop: Shop, mode: Any, error: Exception
) -> None:
    engine = payments(shop, [None, error], on_divergence=mode)
    engine("#W1001")
    with pytest.raises(OutcomeUnknown) as caught:
        engine("#W1001")
    assert caught.value.place == "tool pay"
    assert shop.writes == [("pay", "#W1001", 4250)] * 2, "once in each call"
    assert engine.stats().recorded == 1


def test_a_write_of_unknown_outcome_is_not_made_again_under_asyncio(shop: Shop) -> None:
    engine = Engine()
    fails = [None, ValueError("no receipt")]

    @engine.function()
    async def pay(order_id: str, amount: float) -> str:
        shop.note("pay", order_id, amount)
        error = fails.pop(0)
        if error is not None:
            raise error
        return "paid"

    async def agent(order_id: str) -> str:
        # On a hand-over the agent writes the same number in another way.
        return await pay(order_id, 5.0 if len(fails) < 1 and shop.writes[1:] else 5)

    async def twice() -> None:
        engine.set_agent(agent)
        await engine("#W1001")
        with pytest.raises(OutcomeUnknown):
            await engine("#W1001")

    asyncio.run(twice())
    assert len(shop.writes) == 2, "once in each call"


def test_unfinished_work_of_a_write_is_of_unknown_outcome(shop: Shop) -> None:
    engine, begun = Engine(), []

    @engine.function()
    def pay(order_id: str) -> Any:
        shop.note("pay", order_id)
        begun.append(order_id)
        return iter(begun) if len(begun) > 1 else "paid"

    engine.set_agent(pay)
    engine("#W1001")
    with pytest.raises(OutcomeUnknown):
        engine("#W1001")
    assert len(shop.writes) == 2, "once in each call"


def test_an_agent_that_looked_makes_a_write_of_unknown_outcome_again(shop: Shop) -> None:
    engine = payments(shop, [None, TimeoutError("late")])
    agent = engine.agent
    told = []

    def careful(order_id: str, progress: Any) -> Any:
        told.append(str(progress))
        if progress.is_unknown:
            progress.did_not_happen()
        return agent(order_id)

    engine.set_agent(careful)
    engine("#W1001")
    result = engine("#W1001")
    assert (result.how, result.value) == ("handed_over", "paid")
    assert len(shop.writes) == 3
    assert "May have been made" in told[1]


def test_another_write_than_the_one_of_unknown_outcome_is_made(shop: Shop) -> None:
    engine = payments(shop, [None, TimeoutError("late")])
    pay = engine.tools["pay"].function
    plain = engine.agent
    tool = engine.function(name="pay_cash")(lambda order_id: pay(order_id, 0))

    def agent(order_id: str, progress: Any) -> Any:
        return tool(order_id) if progress else plain(order_id)

    engine.set_agent(agent)
    engine("#W1001")
    result = engine("#W1001")
    assert result.value == "paid"
    assert "unknown" in str(result.problem), "such a run is no behaviour"
    assert not result.stored


@pytest.mark.parametrize("error", [ConnectionRefusedError("closed"), NoEffect("sold out")])
def test_an_error_that_says_that_nothing_was_done_is_the_agents_to_mend(
    shop: Shop, error: Exception
) -> None:
    engine = payments(shop, [None, error])
    engine("#W1001")
    assert engine("#W1001").value == "paid"
