"""A hand-over or a miss is always right, a wrong hit never: one test for each way to be wrong."""

import asyncio
import contextlib
import datetime as dt
import functools
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Check, Engine
from em.behaviour.result import Result
from em.errors import UsageError


class World:
    """What tools give, and what they were given."""

    def __init__(self) -> None:
        self.gives: Any = None
        self.got: list[Any] = []


@pytest.fixture
def world() -> World:
    return World()


def engine_of(world: World, agent: Callable[..., Any], argument: str = "value") -> Engine:
    """An engine with a tool that gives what the world gives, and one that takes a value."""
    engine = Engine(enough=1)
    get = engine.function(name="get")(lambda: world.gives)
    scope: dict[str, Any] = {"world": world}
    exec(f"def use({argument}): world.got.append({argument})", scope)
    use = engine.function(name="use")(scope["use"])
    return engine.set_agent(lambda *args: agent(get, use, *args))


def last(engine: Engine, *args: Any) -> Result:
    result = engine(*args)
    assert isinstance(result, Result)
    assert result.problem is None
    return result


# What a result gave


def test_an_id_that_the_task_happens_to_hold_too_is_not_replayed(world: World) -> None:
    engine = engine_of(world, lambda get, use, qty: use(get()["id"]), "order_id")
    for number in (1, 2, 3, 4):
        world.gives = {"id": number}
        result = last(engine, 1)
        assert world.got[-1] == number
    assert result.hit, "the other recordings tell both apart"


@pytest.mark.parametrize("values", [(1, 2), (0, 1), (-1, 7), (True, False), (None, True)])
def test_the_smallest_values_of_results_are_not_replayed(world: World, values: Any) -> None:
    engine = engine_of(world, lambda get, use: use(get()))
    for world.gives in values:
        assert last(engine).how != "hit"
        assert world.got[-1] is world.gives


@pytest.mark.parametrize("values", [(True, False), (None, True)])
def test_yes_and_no_are_this_runs_where_they_are_called_so(world: World, values: Any) -> None:
    engine = engine_of(world, lambda get, use: use(get()["available"]), "available")
    for value in values:
        world.gives = {"available": value}
        last(engine)
        assert world.got[-1] is value


def test_a_value_that_stands_in_many_places_of_a_result_is_watched(world: World) -> None:
    engine = engine_of(world, lambda get, use: use(get()[0]["by"]))
    for number in (42, 43):
        world.gives = [{"by": number} for _ in range(5)]
        assert not last(engine)
        assert world.got[-1] == number


# What a result did not give


@pytest.mark.parametrize("number", [3, 30])
def test_a_constant_that_a_call_happened_to_give_stays_one(world: World, number: int) -> None:
    engine = engine_of(world, lambda get, use: use(number) if get() else None, "quantity")
    for world.gives in (number, 900):
        last(engine)
    assert world.got == [number, number]


@pytest.mark.parametrize("number", [2, 30])
def test_a_number_of_a_text_that_a_call_happened_to_give_stays(world: World, number: int) -> None:
    engine = engine_of(world, lambda get, use: use(f"back in {number} days") if get() else None)
    for ticket in (number, 77):
        world.gives = {"ticket": ticket}
        last(engine)
    assert world.got == [f"back in {number} days"] * 2


# Params


def test_a_param_is_not_replaced_inside_of_a_word(world: World) -> None:
    engine = engine_of(world, lambda get, use, who: use(who) or use("Marketing"))
    for who in ("Mark", "John"):
        engine(who, params={"who": who})
    assert world.got == ["Mark", "Marketing", "John", "Marketing"]


def test_a_number_that_has_its_place_is_not_replaced_in_a_text(world: World) -> None:
    engine = engine_of(world, lambda get, use, qty: use(qty) or use("ship in 3 days"), "qty")
    for qty in (3, 5):
        engine(qty, params={"qty": qty})
    assert world.got[-2:] == [5, "ship in 3 days"]


def test_a_param_that_a_result_gave_too_is_watched(world: World) -> None:
    world.gives = {"admin": "Ana"}
    engine = engine_of(world, lambda get, use, who: use(who) or use(get()["admin"]), "who")
    for who in ("Ana", "Bo"):
        assert not engine(who, params={"who": who})
    assert world.got[-1] == "Ana"


def test_a_number_that_may_be_computed_from_a_param_pins_it(world: World) -> None:
    engine = engine_of(world, lambda get, use, qty: use(qty) or use(10 * qty))
    for qty in (3, 5):
        engine(qty, params={"qty": qty})
    assert world.got == [3, 30, 5, 50]
    assert engine(3, params={"qty": 3})


# Where ways part


def shop(world: World, state: dict[str, int]) -> Engine:
    """An engine that orders at a checked price where there is no stock."""
    engine = Engine()
    check = Check(lambda: state["price"], lambda now, then: now == then)
    stock = engine.function(name="stock")(lambda: {"left": state["stock"]})
    order = engine.function(name="order", pre_check=check)(lambda: world.got.append("order"))
    close = engine.function(name="close")(lambda: world.got.append("close"))

    def agent(task: str, progress: Any) -> str:
        left = (progress.done[0].result if progress else stock())["left"]
        if left == 0:
            order()
        elif left > 8:
            close()
        return "ordered" if left == 0 else f"{'closed' if left > 8 else 'nothing to do'}"

    return engine.set_agent(agent)


@pytest.mark.parametrize(("stock", "value"), [(5, "nothing to do"), (9, "closed")])
def test_after_a_check_that_failed_no_other_behaviour_answers(
    world: World, stock: int, value: str
) -> None:
    state = {"stock": 0, "price": 100}
    engine = shop(world, state)
    last(engine, "a")
    state.update(stock=stock, price=120)
    assert last(engine, "a").value == value
    assert last(engine, "a").hit, "the results are those of this recording"
    state.update(stock=0, price=130)
    result = last(engine, "a")
    assert (result.how, result.value) == ("handed_over", "ordered")


def test_of_several_constant_answers_only_the_one_with_these_results_is_given() -> None:
    engine = Engine()
    state: dict[str, Any] = {"n": 7, "passes": False}
    check = Check(lambda: 1, lambda _now, _then: state["passes"])
    count = engine.function(name="count", pre_check=check)(lambda: {"n": state["n"]})

    def agent(progress: Any) -> str:
        number = (progress.done[0].result if progress else count())["n"]
        return "many" if number > 5 else "few"

    engine.set_agent(agent)
    assert last(engine).value == "many"
    state["n"] = 3
    assert last(engine).value == "few"
    state["passes"] = True
    assert last(engine).hit
    state["n"] = 8
    result = last(engine)
    assert (result.how, result.value) == ("handed_over", "many")
    assert "step 1 (count) returned another n" in result.reason


# What is not done, or not seen


def _compared(compare: Any, now: int, then: int) -> Any:
    return compare(now, then)


def test_a_compare_that_must_be_awaited_does_not_pass() -> None:
    async def compare(_now: int, _then: int) -> bool:
        return False

    with pytest.raises(UsageError, match="async"):
        Check(lambda: 1, compare)
    engine = Engine()
    check = Check(lambda: 1, functools.partial(_compared, compare))
    use = engine.function(name="use", pre_check=check)(lambda: None)
    engine.set_agent(lambda: use() or "done")
    engine()
    result = engine()
    assert not result
    assert "compare returned an awaitable" in result.reason


def _generator(got: list[Any]) -> Any:
    return (got.append(n) for n in range(2))


async def _coroutine(got: list[Any]) -> None:
    got.append("sent")


@contextlib.contextmanager
def _transaction(got: list[Any]) -> Iterator[None]:
    got.append("begin")
    yield
    got.append("commit")


def _entered(transaction: Any) -> None:
    with transaction:
        pass


@pytest.mark.parametrize(
    ("lazy", "do"), [(_generator, list), (_coroutine, asyncio.run), (_transaction, _entered)]
)
def test_a_run_with_a_result_that_is_work_yet_to_be_done_is_not_kept(
    world: World, lazy: Any, do: Any
) -> None:
    engine = Engine()
    send = engine.function(name="send")(lambda: lazy(world.got))
    engine.set_agent(lambda: do(send()) and None)
    for _ in range(2):
        world.got.clear()
        result = engine()
        assert not result
        assert "tool send" in str(result.problem)
        assert world.got


def test_a_call_that_its_signature_does_not_name_is_not_left_out(world: World) -> None:
    engine = Engine()

    def send(text: str) -> None:
        world.got.append(text)

    @functools.wraps(send)
    def with_timeout(*args: Any, timeout: float = 1, **kwargs: Any) -> None:
        send(*args, **kwargs)

    tool: Any = engine.function()(with_timeout)
    log = engine.function(name="log")(lambda: None)
    engine.set_agent(lambda: tool("x", timeout=5) or log())
    assert "tool send" in str(engine().problem)
    assert not engine()
    assert world.got == ["x", "x"]


def test_a_call_that_the_agent_did_not_wait_for_is_not_left_out(world: World) -> None:
    engine = Engine()
    left: list[Any] = []

    @engine.function()
    async def slow() -> None:
        await asyncio.sleep(0.01)
        world.got.append("slow")

    @engine.function()
    async def fast() -> None:
        world.got.append("fast")

    async def agent(wait: bool) -> None:
        await fast()
        left.append(asyncio.create_task(slow()))
        if wait:
            await asyncio.sleep(0)

    engine.set_agent(agent)

    async def main() -> None:
        for wait in (False, True):
            for _ in range(2):
                result = await engine(wait)
                assert not result
                assert "still running" in str(result.problem)
                await left[-1]

    asyncio.run(main())
    assert world.got == ["fast", "slow"] * 4


def test_a_method_of_another_object_than_the_contexts_is_not_kept(world: World) -> None:
    engine = Engine()

    class Account:
        def __init__(self, name: str) -> None:
            self.name = name

        @engine.method()
        def pay(self) -> None:
            world.got.append(self.name)

    class Savings(Account):
        pass

    ana, bo = Account("ana"), Account("bo")
    engine.set_agent(lambda: ana.pay() or "paid").set_context(bo)
    assert "another Account" in str(engine().problem)
    assert not engine()
    engine.set_context(ana, Savings("cy"))
    engine()
    assert engine(), "the object of the very class comes first"
    assert world.got == ["ana"] * 4


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("given", ["caf\udce9.txt", ["caf\udce9.txt"], Wordless()])
def test_nothing_that_em_cant_keep_breaks_a_run(world: World, given: Any) -> None:
    world.gives = given
    engine = engine_of(world, lambda get, use: use(1) or (get() and None))
    for _ in range(2):
        assert engine().value is None


def test_an_error_without_words_breaks_no_run(world: World) -> None:
    engine = Engine()

    @engine.function(effect="read")
    def check() -> None:
        if world.gives:
            raise world.gives

    done = engine.function(name="done")(lambda: None)

    def agent(progress: Any) -> str:
        if not progress:
            done()
        try:
            check()
        except Wordless:
            done()
        return "ok"

    engine.set_agent(agent)
    for world.gives in (None, Wordless(), Wordless()):
        assert engine().value == "ok"


def test_a_tool_that_changes_what_it_is_given_changes_nothing_else(world: World) -> None:
    engine = Engine()
    state = [0]
    check = Check(lambda: state[0], lambda now, then: now == then)
    cart = engine.function(name="cart")(lambda: {"items": ["lamp-12345"]})
    clear = engine.function(name="clear")(lambda cart: cart["items"].clear())
    finish = engine.function(name="finish", pre_check=check)(lambda: None)

    def agent(progress: Any) -> list[str]:
        if progress:
            world.got = progress.done
        else:
            clear(cart())
            finish()
        return ["answer"]

    engine.set_agent(agent)
    engine()
    hit = engine()
    hit.value.append("more")
    assert engine().value == ["answer"]
    state[0] = 1
    engine()
    assert world.got[0].result == world.got[1].args["cart"] == {"items": ["lamp-12345"]}


# Objects and types that JSON has no word for


class Order:
    """What no annotation explains."""

    def __init__(self, number: int) -> None:
        self.id = number
        self._word = "pending" if number == 1001 else "shipped"

    def word(self) -> str:
        return self._word


NUMBERS = (1001, 1002, 1003)


@pytest.mark.parametrize(
    ("give", "take"),
    [
        (Order, lambda given: given.id),
        (lambda number: Path(f"/tmp/{number}x"), lambda given: given),
        (lambda number: Path(f"/tmp/{number}x"), lambda given: f"{given}/log"),
        (lambda number: f"{number} bytes".encode(), lambda given: given),
        (lambda number: dt.datetime(2030, 1, 1, 1, 2, number % 60, tzinfo=dt.UTC), lambda g: g),
    ],
)
def test_a_value_of_any_result_that_can_be_seen_is_this_runs(
    world: World, give: Any, take: Any
) -> None:
    engine = engine_of(world, lambda get, use: use(take(get())))
    for number in NUMBERS:
        world.gives = give(number)
        result = last(engine)
        assert world.got[-1] == take(world.gives)
    assert result.hit


def test_a_position_alone_explains_no_argument(world: World) -> None:
    engine = engine_of(world, lambda get, use: use(get()[1]))
    for number in NUMBERS:
        world.gives = (object(), number)
        assert not last(engine)
        assert world.got[-1] == number


def test_a_value_out_of_what_cant_be_looked_into_is_not_kept(world: World) -> None:
    engine = engine_of(world, lambda get, use: use(get().word()))
    for number in NUMBERS:
        world.gives = Order(number)
        result = engine()
        assert not result
        assert world.got[-1] == world.gives.word()
    assert "can't be inspected" in str(result.problem)
    assert "tool use, argument value" in str(result.problem)


# Whose behaviours they are


def test_agents_of_one_name_do_not_share_a_store(tmp_path: Path) -> None:
    class Bot:
        def run(self, text: str) -> str:
            return text

    for agent in (lambda text: text, functools.partial(Bot.run, Bot()), Bot().run):
        with pytest.raises(UsageError, match="name the engine"):
            Engine(tmp_path / "em.db").set_agent(agent)
        Engine(tmp_path / "em.db", name="bot").set_agent(agent)


def test_what_a_partial_brings_along_is_part_of_the_task(world: World) -> None:
    engine = Engine()
    send = engine.function(name="send")(lambda to, text: world.got.append((to, text)))

    def agent(to: str, text: str) -> None:
        send(to, text)

    for to in ("al", "bo"):
        engine.set_agent(functools.partial(agent, to))
        assert not engine("hi")
        assert engine("hi")
    assert world.got == [("al", "hi")] * 2 + [("bo", "hi")] * 2


@pytest.mark.parametrize("again", ["all", "some"])
def test_what_the_agent_did_again_after_a_hand_over_is_not_replayed_twice(
    world: World, again: str
) -> None:
    engine = Engine()
    state = [1]
    check = Check(lambda: state[0], lambda now, then: now == then)

    @engine.function()
    def find(item: str) -> str:
        return f"found {item}"

    @engine.function()
    def create_order(item: str) -> dict[str, int]:
        world.got.append("create")
        return {"id": len(world.got) + 500}

    pay = engine.function(name="pay", pre_check=check)(lambda order_id: None)

    def agent(item: str, progress: Any) -> None:
        if again == "all" or not progress:
            find(item)
        pay(create_order(item)["id"])

    engine.set_agent(agent)
    engine("a")
    state[0] = 2
    result = engine("a")
    assert result.how == "handed_over"
    world.got.clear()
    assert engine("a").hit
    assert world.got == ["create"]


def test_long_texts_are_recorded_in_a_moment(world: World) -> None:
    world.gives = {"text": "word " * 40_000 + "a" * 100_000, "n": 7}
    engine = engine_of(world, lambda get, use, text: use(get()["text"]) or use("b-" * 60_000))
    last(engine, "some " * 20_000)
    assert last(engine, "some " * 20_000).hit


# Values of another kind


@pytest.mark.parametrize(
    "change",
    [
        {"amount": None},
        {"amount": "2750"},
        {"amount": True},
        {"amount": [2750]},
        {"amount": -2750},
        {"amount": 10**30},
        {"amount": 1e30},
        {"on_hold": True},
    ],
)
@pytest.mark.parametrize("recordings", [1, 2, 3])
@pytest.mark.parametrize("params", [(), ("order_id",)])
def test_a_value_of_another_kind_than_recorded_is_not_written(
    change: dict[str, Any], recordings: int, params: tuple[str, ...]
) -> None:
    engine, paid = Engine(), list[Any]()
    order: dict[str, Any] = {"status": "open"}
    get = engine.function(name="get_order")(lambda order_id: {"id": order_id, **order})
    refund = engine.function(name="refund")(lambda order_id, amount: paid.append(amount))

    def agent(order_id: str, progress: Any) -> str:
        if not progress:
            refund(order_id, get(order_id)["amount"])
        return "done"

    engine.set_agent(agent)
    for number in range(recordings):
        order["amount"] = 2750 + 311 * number
        engine(f"W-{1000 + number * (len(params) > 0)}", params=params)
    order.update(change)
    paid.clear()
    assert not engine("W-1007" if params else "W-1000", params=params)
    assert paid == []


# Checks of tools that other tools call


def test_a_check_that_no_replay_would_ask_keeps_a_run_from_being_stored(world: World) -> None:
    engine = Engine()
    price = [5]
    check = Check(lambda: price[0], lambda now, then: now == then)
    pay = engine.function(name="pay", pre_check=check)(lambda item: world.got.append(price[0]))
    order = engine.function(name="order")(pay)
    engine.set_agent(order)
    result = engine("lamp")
    assert not result.stored
    assert result.problem is not None
    assert result.problem.place == "tool pay"
    price[0] = 9
    assert engine("lamp").how == "miss", "the agent decides at another price"


# What was read in order to decide


class Desk:
    """Vouchers, of which an agent pays out those that are good; it reads a calendar first."""

    def __init__(self) -> None:
        self.day = "2031-03-04"
        self.pages: dict[str, Any] = {}
        self.paid: list[Any] = []
        self.asked = 0
        for number, holder in enumerate(("Ada Noor", "Ben Yu", "Cleo Marsh", "Dov Katz"), 1):
            code = f"VX-71{number}4"
            first = holder.split()[0].lower()
            self.pages[code] = {
                "code": code,
                "holder": holder,
                "mail": f"{first}@club.example",
                "title": f"Voucher {code}",
                "sold": f"2031-01-0{number}",
                "good_until": f"2031-04-1{number}",
                "memo": f"See {code} at https://club.example/{code}?p={20.5 * number} please",
                "unit": "PTS",
                "points": 20.5 * number,
                "stamps": [
                    {"voucher": f"VX-60{number}1", "state": "void", "by": "pat"},
                    {"voucher": code, "state": "valid", "by": "pat"},
                ],
            }
        self.engine = engine = Engine(enough=1)
        today = engine.function(name="today", effect="read")(lambda: {"day": self.day})

        @engine.function(effect="read")
        def page(code: str) -> dict[str, Any]:
            found = self.pages[code]
            return {name: one for name, one in found.items() if name != "stamps"}

        @engine.function(effect="read")
        def stamps(code: str) -> list[dict[str, Any]]:
            return [*self.pages[code]["stamps"]]

        @engine.function(effect="write")
        def pay_out(code: str, points: float, unit: str) -> dict[str, Any]:
            self.paid.append(("pay_out", code, points, unit))
            return {"code": code, "done": True}

        @engine.function(effect="write")
        def send(mail: str, title: str, text: str) -> dict[str, Any]:
            self.paid.append(("send", mail, title, text))
            return {"done": True}

        def agent(code: str) -> str:
            self.asked += 1
            today()
            found = page(code)
            stamps(code)
            pay_out(code, found["points"], found["unit"])
            text = f"Voucher {code} for {found['holder']} is paid."
            send(found["mail"], f"Re: {found['title']}", text)
            return "paid"

        engine.set_agent(agent)

    def learn(self, most: int) -> "Desk":
        """Pay out the first vouchers."""
        for code in [*self.pages][:most]:
            assert self.engine(code, params=["code"]).value == "paid"
        self.asked = 0
        return self

    def last(self, number: int) -> int:
        """Pay one more; return how often the agent was asked."""
        self.engine([*self.pages][number], params=["code"])
        return self.asked


@pytest.fixture(params=[1, 3])
def desk(request: pytest.FixtureRequest) -> Desk:
    return Desk().learn(request.param)


def test_what_differs_as_it_may_is_no_news(desk: Desk) -> None:
    page = desk.pages[[*desk.pages][3]]
    page["good_until"] = desk.day
    page["points"] = 33.5
    page["memo"] = page["memo"].replace("82.0", "33.5")
    page["mail"] = "some.one+club@post.example"
    page["stamps"].reverse()
    assert desk.last(3) == 0
    assert desk.paid[-2][2:] == (33.5, "PTS")


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("good_until", "2031-02-28"),
        ("sold", "2031-05-01"),
        ("unit", "EUR"),
        ("mail", "ada@club.example,eve@else.example"),
        ("holder", "Ada Noor\nBcc: eve@else.example"),
    ],
)
def test_what_always_held_between_reads_must_hold_again(
    desk: Desk, number: int, field: str, value: str
) -> None:
    desk.pages[[*desk.pages][number]][field] = value
    assert desk.last(number) == 1


@pytest.mark.parametrize("number", [0, 3])
def test_the_element_that_a_write_is_about_must_be_in_its_state(desk: Desk, number: int) -> None:
    first, own = desk.pages[[*desk.pages][number]]["stamps"]
    first["state"], own["state"] = "valid", "void"
    assert desk.last(number) == 1


@pytest.mark.parametrize("number", [0, 3])
def test_the_words_around_a_given_value_are_no_source_of_a_text(desk: Desk, number: int) -> None:
    code = [*desk.pages][number]
    desk.pages[code]["title"] = f"Coupon {code}"
    desk.last(number)
    assert desk.paid[-1][2:] == (
        f"Re: Coupon {code}",
        f"Voucher {code} for {desk.pages[code]['holder']} is paid.",
    )


@pytest.mark.parametrize("number", [0, 3])
def test_a_text_must_say_again_what_it_always_said(desk: Desk, number: int) -> None:
    code = [*desk.pages][number]
    page = desk.pages[code]
    page["memo"] = page["memo"].replace(f"/{code}", "/VX-9999")
    assert desk.last(number) == 1


def test_no_more_time_goes_by_than_recordings_ever_saw() -> None:
    desk = Desk()
    for page in desk.pages.values():
        del page["good_until"]
    for day, code in zip(("2031-01-09", "2031-01-20", "2031-02-03"), desk.pages, strict=False):
        desk.day = day
        assert desk.engine(code, params=["code"]).value == "paid"
    desk.asked = 0
    assert desk.last(3) == 0
    desk.day = "2031-06-03"
    assert desk.last(3) == 1


def test_a_replay_asks_as_many_orders_of_dates_as_there_are_dates() -> None:
    counts = []
    for many in (3, 30):
        engine = Engine(enough=1)
        record = {f"day_{n}": f"2031-01-{n + 1:02}" for n in range(many)}
        read = engine.function(name="read", effect="read")(lambda key, record=record: record)
        write = engine.function(name="write", effect="write")(lambda key: None)
        engine.set_agent(lambda key, read=read, write=write: (read(key), write(key))[1])
        engine("ab-1", params=["key"])
        assert engine("ab-2", params=["key"]).hit
        (way,) = engine.cache.lessons(next(iter(engine.cache._tasks)))
        assert way.taught is not None
        checks = [one for one in way.taught.routine["steps"] if one["type"] == "assert"]
        counts.append(len(checks))
    assert counts[1] < 15 * counts[0]


@pytest.mark.parametrize("quote", [str, urllib.parse.quote])
def test_a_value_in_an_address_is_written_as_the_agent_writes_it(quote: Any) -> None:
    engine, opened, asked = Engine(), list[str](), list[str]()
    visit = engine.function(name="visit")(opened.append)

    def agent(topic: str) -> None:
        asked.append(topic)
        visit(f"https://wiki.example/page/{quote(topic)}")

    engine.set_agent(agent)
    for topic in ("moss", "färn", "öak", "pine"):
        engine(topic, params=["topic"])
        assert opened[-1] == f"https://wiki.example/page/{quote(topic)}"
    assert "pine" not in asked, "a recording has shown which it is"
