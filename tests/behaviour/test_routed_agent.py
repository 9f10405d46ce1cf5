"""The routine first, else my agent: `memory.match` and `memory.agent`."""

import asyncio
import inspect
import multiprocessing
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import em
from em import Memory
from em.behaviour import routed_agent
from em.compiler.growth import Growth
from em.compiler.match import Found, Match
from em.errors import LlmUnavailable, NoEffect, OutcomeUnknown, RunNotDone, UsageError
from em.llm import ScriptedClient
from em.runner import preparation
from em.runner.history import find_runs
from em.runner.package import find_routine, keep_routine, kept_routines, texts_of
from em.settings import Settings

WORDINGS = ("I am {email}, please cancel {order}", "Cancel {order} for {email}")


class Shop:
    """An order desk with its tools, and an agent that does what the request says."""

    def __init__(self) -> None:
        self.status: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.mailed: list[str] = []
        self.asked = 0
        self.mail_fails = False

        @em.tool(effect="read")
        def get_order(order_id: str) -> dict[str, str]:
            return {"order_id": order_id, "status": self.status.get(order_id, "pending")}

        @em.tool(effect="write")
        def cancel_order(order_id: str) -> dict[str, Any]:
            self.cancelled.append(order_id)
            return {"order_id": order_id, "cancelled": True}

        @em.tool(effect="write")
        def send_mail(to: str, subject: str) -> bool:
            self.mailed.append(to)
            if self.mail_fails:
                raise TimeoutError("no answer")
            return True

        self.tools = [get_order, cancel_order, send_mail]

        def answer(request: str) -> str:
            self.asked += 1
            words = request.replace(",", "").split()
            order = next(one for one in words if one.startswith("W-"))
            to = next(one for one in words if "@" in one)
            if get_order(order)["status"] != "pending":
                return "too late"
            cancel_order(order)
            send_mail(to, f"{order} is cancelled")
            return "done"

        self.answer = answer


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as opened:
        yield opened


@pytest.fixture
def shop(memory: Memory) -> Shop:
    """Return a shop of which four cancellations were recorded and compiled."""
    shop = Shop()
    agent = memory.agent(shop.answer, shop.tools, success=lambda said: said == "done", learn=False)
    for number in range(4):
        asked = WORDINGS[number % 2].format(email=f"u{number}@mail.example", order=f"W-{number}71")
        assert agent(asked) == "done"
        assert agent.last.how.startswith("agent: ")
    memory.compile([one.id for one in memory.traces()], name="cancel_order")
    shop.asked, shop.cancelled, shop.mailed = 0, [], []
    return shop


REQUEST = "I am gus@mail.example, please cancel W-7377"


def test_a_routine_does_what_was_recorded_and_the_agent_is_not_asked(
    memory: Memory, shop: Shop
) -> None:
    agent = memory.agent(shop.answer, shop.tools)
    agent(REQUEST)
    assert agent.last.how == "routine cancel_order@1"
    assert (shop.cancelled, shop.mailed, shop.asked) == (["W-7377"], ["gus@mail.example"], 0)


def test_the_agent_does_what_a_check_hands_over(memory: Memory, shop: Shop) -> None:
    shop.status["W-7377"] = "shipped"
    agent = memory.agent(shop.answer, shop.tools)
    assert agent(REQUEST) == "too late"
    assert agent.last.routine == "cancel_order@1"
    assert agent.last.trace_id
    assert (shop.cancelled, shop.asked) == ([], 1)


def test_the_agent_does_what_no_routine_fits(memory: Memory, shop: Shop) -> None:
    agent = memory.agent(shop.answer, shop.tools)
    assert agent("please don't keep W-7377 of gus@mail.example") == "done"
    assert agent.last.routine == ""
    assert shop.asked == 1


def in_kind(kind: str, answer: Any) -> Any:
    """Return an agent of one of the kinds that does the same."""

    async def later(request: str) -> Any:
        await asyncio.sleep(0)
        return answer(request)

    return later if kind == "async" else answer


def done_by(agent: Any, request: str) -> tuple[Any, Any]:
    """Return what an agent of either kind answers, and how it was done."""

    async def later() -> Any:
        answer = agent(request)
        return (await answer if inspect.isawaitable(answer) else answer), agent.last

    return asyncio.run(later())


KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


@KINDS
def test_what_a_routine_did_before_it_stopped_is_answered_from_its_results(
    memory: Memory, shop: Shop, kind: str
) -> None:
    shop.mail_fails = True

    def answer(request: str) -> Any:
        cancelled = shop.tools[1]("W-7377")
        with pytest.raises(OutcomeUnknown):
            shop.tools[2](to="gus@mail.example", subject="W-7377 is cancelled")
        shop.mail_fails = False
        shop.tools[2]("gus@mail.example", "It is cancelled, by hand")
        return cancelled

    agent = memory.agent(in_kind(kind, answer), shop.tools)
    answered, last = done_by(agent, REQUEST)
    assert answered == {"order_id": "W-7377", "cancelled": True}
    assert (last.done, last.in_doubt) == (["cancel_order"], ["send_mail"])
    assert shop.cancelled == ["W-7377"]
    assert shop.mailed == ["gus@mail.example"] * 2  # one by the routine, another one by the agent
    (trace,) = memory.traces()[-1:]
    assert trace.trace.incomplete  # two did it: nothing is learnt from it


def test_a_write_that_a_routine_made_is_never_made_twice(memory: Memory, shop: Shop) -> None:
    shop.mail_fails = True
    agent = memory.agent(shop.answer, shop.tools)
    with pytest.raises(OutcomeUnknown):
        agent(REQUEST)
    assert shop.cancelled == ["W-7377"]
    assert shop.mailed == ["gus@mail.example"]  # nobody knows whether it was sent: not again
    assert (agent.last.done, agent.last.in_doubt) == (["cancel_order"], ["send_mail"])
    assert not agent.last.by_routine


def test_a_thread_of_the_agent_s_own_makes_no_write_twice_either(
    memory: Memory, shop: Shop
) -> None:
    shop.mail_fails = True
    said: list[Any] = []

    def answer(request: str) -> str:
        thread = threading.Thread(target=lambda: said.append(shop.tools[1]("W-7377")))
        thread.start()
        thread.join()
        return "done"

    memory.agent(answer, shop.tools)(REQUEST)
    assert (said, shop.cancelled) == ([{"order_id": "W-7377", "cancelled": True}], ["W-7377"])


@KINDS
def test_what_was_made_and_is_not_as_expected_is_answered_too(
    memory: Memory, shop: Shop, kind: str
) -> None:
    @em.tool(effect="write")
    def cancel_order(order_id: str) -> dict[str, Any]:
        shop.cancelled.append(order_id)
        return {"order_id": order_id, "cancelled": "later"}

    shop.tools[1] = cancel_order
    agent = memory.agent(in_kind(kind, lambda request: cancel_order("W-7377")), shop.tools)
    answered, last = done_by(agent, REQUEST)
    assert (answered["cancelled"], shop.cancelled) == ("later", ["W-7377"])
    assert (last.done, last.by_routine) == (["cancel_order"], False)


@KINDS
def test_a_plan_that_stops_half_way_is_answered_too(memory: Memory, shop: Shop, kind: str) -> None:
    shop.mail_fails = True
    client = ScriptedClient([read_with("if it is still in the shop"), word(yes=True)])
    agent = memory.agent(
        in_kind(kind, lambda request: shop.tools[1]("W-7377")), shop.tools, client=client
    )
    answered, last = done_by(agent, CONDITION)
    assert (answered["cancelled"], shop.cancelled) == (True, ["W-7377"])
    assert last.done == ["cancel_order"]


REFUNDS = """\
name: refunds
checks: hand_over
input_schema:
  type: object
  properties: {orders: {type: array, items: {type: string}}}
  required: [orders]
requests: ["Refund {orders}"]
tools: [{name: pay, effect: write}]
steps:
  - id: paid
    type: tool.call
    tool: pay
    for_each: "{{ orders }}"
    args: {order: "{{ item }}"}
"""


@KINDS
def test_each_call_of_a_list_answers_once(memory: Memory, kind: str) -> None:
    paid: list[str] = []

    @em.tool(effect="write")
    def pay(order: str) -> str:
        paid.append(order)
        if len(paid) == 3:
            raise TimeoutError
        return f"paid {order}"

    def answer(request: str) -> list[str]:
        with pytest.raises(OutcomeUnknown):
            pay("W-3")
        return [pay("W-1"), pay("W-2"), pay("W-1")]

    keep_routine(memory.store, {"routine.yaml": REFUNDS})
    agent = memory.agent(in_kind(kind, answer), [pay])
    inputs = {"orders": ["W-1", "W-2", "W-3"]}
    matched = Match(routine="refunds@1", inputs=inputs, why="words")
    agent._desk.find = lambda *asked: Found(matched)
    answered, last = done_by(agent, "Refund all")
    assert answered == ["paid W-1", "paid W-2", "paid W-1"]
    assert paid == ["W-1", "W-2", "W-3", "W-1"]  # the second time is the agent's own will
    assert (last.done, last.in_doubt) == (["pay", "pay"], ["pay"])


def test_a_call_that_was_retried_is_not_in_doubt(memory: Memory) -> None:
    text = PAY.replace('"{{ n }}"}}', '"{{ n }}"}, retry: {attempts: 2, backoff: 0}}', 1)
    keep_routine(memory.store, {"routine.yaml": text})
    refused = iter([ConnectionRefusedError()])
    paid: list[float] = []

    @em.tool(effect="write")
    def pay(amount: float) -> str:
        for error in refused:
            raise error
        paid.append(amount)
        return "paid"

    @em.tool(effect="write")
    def tell(amount: float) -> bool:
        raise TimeoutError

    agent = memory.agent(lambda request: pay(5), [pay, tell])
    assert (agent("Pay 5"), paid) == ("paid", [5])
    assert (agent.last.done, agent.last.in_doubt) == (["pay"], ["tell"])


@KINDS
@pytest.mark.parametrize("error", [ValueError("no receipt"), KeyError("id"), OSError("disk")])
def test_any_error_of_a_write_that_began_leaves_it_in_doubt(
    memory: Memory, shop: Shop, kind: str, error: Exception
) -> None:
    @em.tool(effect="write")
    def cancel_order(order_id: str) -> dict[str, Any]:
        shop.cancelled.append(order_id)
        raise error

    shop.tools[1] = cancel_order
    agent = memory.agent(in_kind(kind, lambda request: cancel_order("W-7377")), shop.tools)
    with pytest.raises(OutcomeUnknown):
        done_by(agent, REQUEST)
    assert shop.cancelled == ["W-7377"]


@pytest.mark.parametrize("error", [ConnectionRefusedError("nobody listens"), NoEffect("sold out")])
def test_a_call_that_surely_had_no_effect_is_made(
    memory: Memory, shop: Shop, error: Exception
) -> None:
    refused = iter([error])

    @em.tool(effect="write")
    def send_mail(to: str, subject: str) -> bool:
        for one in refused:
            raise one
        shop.mailed.append(to)
        return True

    shop.tools[2] = send_mail
    agent = memory.agent(shop.answer, shop.tools)
    assert agent(REQUEST) == "done"
    assert (shop.cancelled, shop.mailed) == (["W-7377"], ["gus@mail.example"])
    assert (agent.last.done, agent.last.in_doubt) == (["cancel_order"], [])


def test_a_number_written_otherwise_is_the_same_call(memory: Memory) -> None:
    paid: list[float] = []

    @em.tool(effect="write")
    def pay(amount: float) -> str:
        paid.append(amount)
        return "paid"

    @em.tool(effect="write")
    def tell(amount: float) -> bool:
        raise TimeoutError

    keep_routine(memory.store, {"routine.yaml": PAY})
    agent = memory.agent(lambda request: pay(5.0), [pay, tell])
    assert (agent("Pay 5"), paid) == ("paid", [5])


PAY = """\
name: pay
checks: hand_over
input_schema: {type: object, properties: {n: {type: integer}}, required: [n]}
requests: ["Pay {n}"]
tools: [{name: pay, effect: write}, {name: tell, effect: write}]
steps:
  - {id: pay, type: tool.call, tool: pay, args: {amount: "{{ n }}"}}
  - {id: tell, type: tool.call, tool: tell, args: {amount: "{{ n }}"}}
"""


@KINDS
def test_writes_of_tools_that_are_not_decorated_stop_the_agent_too(
    memory: Memory, kind: str
) -> None:
    paid: list[int] = []

    def pay(amount: int) -> None:
        paid.append(amount)

    def tell(amount: int) -> None:
        raise TimeoutError

    keep_routine(memory.store, {"routine.yaml": PAY})
    agent = memory.agent(in_kind(kind, lambda request: pay(5)), [pay, tell])
    with pytest.raises(RunNotDone):
        done_by(agent, "Pay 5")
    assert paid == [5]
    assert not memory.traces()


def test_a_routine_that_can_not_run_here_is_left_to_the_agent(memory: Memory) -> None:
    text = PAY.replace("name: pay\n", "name: pay\nsecrets: [{name: k, env: NO_SUCH_KEY}]\n", 1)
    keep_routine(memory.store, {"routine.yaml": text})
    agent = memory.agent(lambda request: "by hand", {"pay": print, "tell": print})
    assert agent("Pay 5") == "by hand"
    assert (agent.last.routine, agent.last.done) == ("pay@1", [])


@KINDS
@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("verdict", [True, False, None, "raises", "awaits"])
def test_success_says_how_a_task_ended_and_never_takes_its_answer(
    memory: Memory, shop: Shop, kind: str, verdict: Any
) -> None:
    def success(answer: str) -> Any:
        if verdict == "raises":
            raise ZeroDivisionError
        return waited_true() if verdict == "awaits" else verdict

    async def waited_true() -> bool:
        return True

    agent = memory.agent(in_kind(kind, shop.answer), shop.tools, success=success)
    answer, last = done_by(agent, "W-8 of a@b.example is off")
    assert answer == "done"
    is_unknown = verdict in (None, "raises") or (verdict == "awaits" and kind == "sync")
    expected = "unknown" if is_unknown else "success" if verdict else "failure"
    assert memory.traces()[-1].trace.outcome == expected
    assert bool(last.problem) == (verdict == "raises" or (verdict, kind) == ("awaits", "sync"))


def test_last_says_what_is_there_and_what_was_recorded(memory: Memory, shop: Shop) -> None:
    shop.status["W-7377"] = "shipped"
    agent = memory.agent(shop.answer, shop.tools)
    agent(REQUEST)
    assert agent.last.how == "agent: order.status is 'shipped'; it was 'pending' in 4 of 4"


def test_a_model_reads_other_words(memory: Memory, shop: Shop) -> None:
    schema = memory.matcher.ranked("cancel")[0].routine.input_schema or {}
    said = {"to": "gus@mail.example", "order_id": "W-7377"}
    assert set(schema["properties"]) == set(said)
    inputs = dict(said)
    reply = {
        "routine": "cancel_order",
        "fits": True,
        "inputs": inputs,
        "missing": [],
        "not_expressed": [],
    }
    words = "W-7377 is not needed any more, says gus@mail.example"
    agent = memory.agent(shop.answer, shop.tools, client=ScriptedClient([reply]))
    agent(words)
    assert agent.last.how == "routine cancel_order@1"
    careless = {**reply, "inputs": {**inputs, "order_id": "W-9999"}}
    assert memory.match(words, shop.tools, ScriptedClient([careless])) is None


CONDITION = "W-7377 is not needed any more if it is still in the shop, says gus@mail.example"


def read_with(*wishes: str, **more: Any) -> dict[str, Any]:
    """Return what a model reads in a request: a cancellation, with wishes that no input has."""
    inputs = {"to": "gus@mail.example", "order_id": "W-7377"}
    reading = {"routine": "cancel_order", "fits": True, "inputs": inputs, "missing": []}
    return {**reading, "not_expressed": [*wishes], **more}


def word(yes: Any, reason: str = "the status is pending") -> dict[str, Any]:
    return {"yes": yes, "reason": reason}


def test_a_model_agrees_to_a_plan_for_what_no_input_expresses(memory: Memory, shop: Shop) -> None:
    client = ScriptedClient([read_with("if it is still in the shop"), word(yes=True)])
    agent = memory.agent(shop.answer, shop.tools, client=client)
    agent(CONDITION)
    assert (agent.last.how, agent.last.agreed) == (
        "routine cancel_order@1",
        "the status is pending",
    )
    assert (shop.cancelled, shop.mailed, shop.asked) == (["W-7377"], ["gus@mail.example"], 0)
    asked = str(client.requests[-1])
    for shown in ("if it is still in the shop", "pending", "cancel_order", CONDITION[:20]):
        assert shown in asked
    assert memory.match(CONDITION, shop.tools, ScriptedClient([read_with("if it is")])) is None


@pytest.mark.parametrize(
    "answers",
    [
        [word(yes=False, reason="nothing shows where it is")],
        [word(yes=True, reason=" ")],
        ["Yes, go on.", "Yes!", "yes"],
        [{"yes": "perhaps", "reason": "?"}] * 3,
        [LlmUnavailable("timed out", place="model")],
    ],
)
def test_what_is_no_clear_yes_is_left_to_the_agent(
    memory: Memory, shop: Shop, answers: list[Any]
) -> None:
    made: list[str] = []

    def answer(request: str) -> str:
        made.extend(shop.cancelled + shop.mailed)
        return "done"

    client = ScriptedClient([read_with("if it is still in the shop"), *answers])
    agent = memory.agent(answer, shop.tools, client=client)
    assert agent(CONDITION) == "done"
    assert agent.last.how.startswith("agent: ")
    assert (made, shop.cancelled, shop.mailed) == ([], [], [])


def test_what_changes_between_the_word_and_the_write_is_left_to_the_agent(
    memory: Memory, shop: Shop
) -> None:
    class Slow(ScriptedClient):
        def complete(self, *args: Any, **options: Any) -> Any:
            answer = super().complete(*args, **options)
            if "yes" in answer.text:
                shop.status["W-7377"] = "shipped"
            return answer

    client = Slow([read_with("if it is still in the shop"), word(yes=True)])
    agent = memory.agent(shop.answer, shop.tools, client=client)
    assert agent(CONDITION) == "too late"
    assert (shop.cancelled, shop.mailed) == ([], [])


def test_a_plan_that_expired_while_the_model_thought_is_left_to_the_agent(
    memory: Memory, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "KEPT_FOR", timedelta(0))
    client = ScriptedClient([read_with("if it is still in the shop"), word(yes=True)])
    agent = memory.agent(lambda request: "by hand", shop.tools, client=client)
    assert agent(CONDITION) == "by hand"
    assert (shop.cancelled, agent.last.routine) == ([], "cancel_order@1")


@pytest.mark.parametrize(
    "reading",
    [
        read_with("if it is there", fits=False),
        read_with("if it is there", inputs={"to": "gus@mail.example", "order_id": "W-9"}),
        read_with("if it is there", inputs={"order_id": "W-7377"}, missing=["to"]),
        read_with(" "),
    ],
)
def test_a_plan_is_made_only_where_a_wish_is_the_only_problem(
    memory: Memory, shop: Shop, reading: Any
) -> None:
    client = ScriptedClient([reading, word(yes=True)])
    agent = memory.agent(lambda request: "done", shop.tools, client=client)
    agent(CONDITION)
    assert agent.last.trace_id
    assert (shop.cancelled, len(client.requests)) == ([], 1)


def test_a_second_id_in_a_wish_is_no_limit(memory: Memory, shop: Shop) -> None:
    words = "W-7377 is not needed, nor is W-8, says gus@mail.example"
    client = ScriptedClient([read_with("cancel W-8 too"), word(yes=True)])
    agent = memory.agent(lambda request: "done", shop.tools, client=client)
    agent(words)
    assert (shop.cancelled, len(client.requests)) == ([], 1)
    limit = "W-7377 is not needed if it was over 200, says gus@mail.example"
    client = ScriptedClient([read_with("only if it was over 200"), word(yes=False, reason="no")])
    memory.agent(lambda request: "done", shop.tools, client=client)(limit)
    assert len(client.requests) == 2


def test_a_plan_is_agreed_to_under_asyncio_too(memory: Memory, shop: Shop) -> None:
    client = ScriptedClient([read_with("if it is still in the shop"), word(yes=True)])

    @memory.agent(tools=shop.tools, client=client)
    async def later(request: str) -> str:
        return shop.answer(request)

    async def once() -> str:
        await later(CONDITION)
        return later.last.how

    assert asyncio.run(once()) == "routine cancel_order@1"
    assert (shop.cancelled, shop.asked) == (["W-7377"], 0)


def chat(*turns: str, between: Any = None) -> list[dict[str, Any]]:
    """Return a conversation in which the assistant answers each turn."""
    said: list[dict[str, Any]] = []
    for turn in turns:
        said += [{"role": "user", "content": turn}, {"role": "assistant", "content": "Yes?"}]
    return [*said[:1], *([between] if between else []), *said[1:-1]]


def test_in_a_conversation_the_request_is_what_the_user_said_in_all_turns(
    memory: Memory, shop: Shop
) -> None:
    turns = ("W-7377 is not needed any more", "I am gus@mail.example")
    client = ScriptedClient([read_with(), read_with(), read_with()])

    def answer(messages: Any) -> str:
        shop.asked += 1
        return "done"

    agent = memory.agent(answer, shop.tools, client=client, learn=False)
    agent(chat(*turns, between={"role": "assistant", "tool_calls": [
        {"function": {"name": "get_order", "arguments": "{}"}}]}))  # fmt: skip
    assert (shop.cancelled, shop.asked) == (["W-7377"], 0)
    agent(chat("I am gus@mail.example,", "please cancel W-7377"))
    assert (agent.last.by_routine, len(client.requests)) == (True, 1)  # its recorded words
    call = {"type": "tool_use", "name": "cancel_order", "input": {}}
    agent(chat(*turns, between={"role": "assistant", "content": [call]}))
    assert (shop.cancelled, shop.asked) == (["W-7377"] * 2, 1)  # it was begun: the agent's
    (trace,) = memory.traces(task="")[-1:]
    assert not [one for one in trace.trace.events if one.__class__.__name__ == "Message"]


def test_no_run_of_an_agent_waits_for_an_answer(memory: Memory, shop: Shop) -> None:
    shop.mail_fails = True
    agent = memory.agent(shop.answer, shop.tools)
    with pytest.raises(OutcomeUnknown):
        agent(REQUEST)
    assert [one.status for one in find_runs(memory.store).runs] == ["failed"]


def test_a_routine_without_its_tools_is_not_matched(memory: Memory, shop: Shop) -> None:
    assert memory.match(REQUEST, shop.tools) is not None
    assert memory.match(REQUEST, shop.tools[:1]) is None


def test_async_agents_are_served_alike(memory: Memory, shop: Shop) -> None:
    @memory.agent(tools=shop.tools)
    async def later(request: str) -> str:
        return shop.answer(request)

    async def both() -> list[str]:
        await later(REQUEST)
        first = later.last.how
        await later("keep W-1 of a@b.example")
        return [first, later.last.how]

    served, asked = asyncio.run(both())
    assert served == "routine cancel_order@1"
    assert asked.startswith("agent: ")
    assert shop.asked == 1


def test_three_traces_of_a_kind_are_learnt_from(memory: Memory) -> None:
    shop = Shop()
    agent = memory.agent(shop.answer, shop.tools, success=lambda said: said == "done")
    for number in range(3):
        agent(WORDINGS[0].format(email=f"u{number}@mail.example", order=f"W-{number}71"))
    assert shop.asked == 3
    agent(REQUEST)
    assert shop.cancelled[-1] == "W-7377"
    (learnt,) = kept_routines(memory.store)
    # All three were right, so it is in use; the fourth task was the routine's.
    assert (agent.last.how, shop.asked) == (f"routine {learnt.name}@1", 3)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_work_that_is_not_seen_is_not_learnt_from(memory: Memory, kind: str) -> None:
    shop, end, started = Shop(), threading.Event(), list[threading.Thread]()

    def answer(request: str) -> str:
        if kind == "thread":
            started.append(threading.Thread(target=lambda: (end.wait(10), shop.tools[1]("W-1"))))
            started[-1].start()
        else:
            process = multiprocessing.get_context("spawn").Process(target=abs, args=(-1,))
            process.start()
            process.join()
        return shop.answer(request)

    agent = memory.agent(answer, shop.tools, success=lambda said: said == "done")
    for number in range(3):
        agent(WORDINGS[0].format(email=f"u{number}@mail.example", order=f"W-{number}71"))
        end.set()
        for thread in started:
            thread.join()
    assert all(kept.trace.incomplete for kept in memory.traces())
    assert in_use(memory) == []


def in_use(memory: Memory) -> list[str]:
    return [one.ref for one in memory.matcher.in_use()]


def test_three_more_in_other_words_teach_a_routine_these_words(memory: Memory, shop: Shop) -> None:
    agent = memory.agent(shop.answer, shop.tools, success=lambda said: said == "done")
    for number in range(3):
        agent(f"W-{number}83 has to go, a{number}@mail.example says")
    assert (shop.asked, in_use(memory)) == (3, ["cancel_order@2"])
    agent("W-9283 has to go, b@mail.example says")
    agent(REQUEST)  # the words before are still known
    assert (agent.last.how, shop.asked) == ("routine cancel_order@2", 3)


def test_a_state_that_went_well_three_times_frees_no_other(memory: Memory, shop: Shop) -> None:
    agent = memory.agent(
        lambda request: "late" if shop.status.get(request.split()[-1]) == "shipped"
        else done(shop, request),
        shop.tools,
        success=lambda said: said == "done",
    )  # fmt: skip
    for number in range(3):
        shop.status[f"W-{number}83"] = "on hold"
        agent(f"I am u{number}@mail.example, please cancel W-{number}83")
        assert agent.last.how.startswith("agent: order.status is 'on hold'")
    shop.cancelled.clear()
    shop.status["W-7377"] = "shipped"
    assert agent(REQUEST) == "late"
    assert shop.cancelled == []
    assert in_use(memory) == ["cancel_order@1"]
    waiting = [one for one in kept_routines(memory.store) if one.retired_at is not None]
    assert [one.version for one in waiting] == [2]  # a person may read it


def done(shop: Shop, request: str) -> str:
    """Do a cancellation, whatever the order's state is."""
    _, _, to, _, _, order = request.replace(",", "").split()
    shop.tools[0](order)
    shop.tools[1](order)
    shop.tools[2](to, f"{order} is cancelled")
    return "done"


def test_what_teaches_nothing_is_compiled_less_and_less_often(
    memory: Memory, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def compiled(store: Any, name: str, **options: Any) -> Any:
        tried.append(name)
        return Growth(old=name, why_not="nothing new")

    monkeypatch.setattr(routed_agent, "compile_again", compiled)
    agent = memory.agent(shop.answer, shop.tools)
    for number in range(24):
        agent(f"W-{number}83 is off, a{number}@mail.example says")
    assert (tried, in_use(memory)) == (["cancel_order"] * 3, ["cancel_order@1"])  # 3, 6, 12


def test_traces_without_an_outcome_leave_what_is_in_use(memory: Memory, shop: Shop) -> None:
    agent = memory.agent(shop.answer, shop.tools)
    for number in range(6):
        agent(f"W-{number}83 has to go, a{number}@mail.example says")
    assert in_use(memory)[0].startswith("cancel_order@")
    assert {one.name for one in kept_routines(memory.store)} == {"cancel_order"}


@pytest.mark.parametrize("mode", ["on", "shadow"])
def test_a_proposed_routine_is_compared_beside_the_agent(
    memory: Memory, shop: Shop, tmp_path: Path, mode: Any
) -> None:
    files = texts_of(find_routine(memory.store, "cancel_order"))
    text = files["routine.yaml"].replace("name: cancel_order", "name: proposed", 1)
    keep_routine(memory.store, {**files, "routine.yaml": text}, retired=True)
    memory.retire("cancel_order@1")
    with Memory(tmp_path / "em.db", settings=Settings(routines=mode)) as other:
        agent = other.agent(shop.answer, shop.tools, learn=False)
        agent(REQUEST)
        shop.answer = lambda request: "left"
        other.agent(shop.answer, shop.tools, learn=False)("Cancel W-8383 for u@mail.example")
        reports = {one.routine: one for one in other.shadow_report()}
    report = reports["proposed@1"]
    assert (report.agreed, report.handed_over + report.differed) == (1, 1)
    assert (shop.cancelled, shop.mailed) == (["W-7377"], ["gus@mail.example"])  # by the agent
    assert ("cancel_order@1" in reports) == (mode == "shadow")


def test_a_method_may_be_an_agent(memory: Memory, shop: Shop) -> None:
    class Help:
        name = "help"

        @memory.agent(tools=shop.tools)
        def desk(self, request: str) -> str:
            return f"{self.name}: {request}"

    one = Help()
    assert one.desk("what of W-1?") == "help: what of W-1?"
    assert one.desk.last.trace_id
    one.desk(REQUEST)
    assert one.desk.last.how == "routine cancel_order@1"


def test_an_agent_must_take_a_request(memory: Memory) -> None:
    with pytest.raises(UsageError):
        memory.agent(lambda: None)
    with pytest.raises(UsageError):
        memory.agent(lambda request: request)(3)


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_the_switch_leaves_everything_to_the_agent(
    memory: Memory, shop: Shop, tmp_path: Path, mode: Any
) -> None:
    with Memory(tmp_path / "em.db", settings=Settings(routines=mode)) as stopped:
        agent = stopped.agent(shop.answer, shop.tools, learn=False)
        assert agent(REQUEST) == "done"
        assert agent.last.trace_id
        assert stopped.match(REQUEST) is None
    assert shop.asked == 1


NOT_NEEDED = "W-7377 is not needed any more, says gus@mail.example"


@pytest.mark.parametrize(
    ("answers", "shown"),
    [
        ([read_with(fits=False)], "cancel_order@1: the model says"),
        ([read_with(inputs={"to": "gus@mail.example", "order_id": "W-9999"})], '"W-9999"'),
        ([read_with(routine="")], "cancel_order"),
        ([read_with(" ")], "cancel_order@1: no input expresses"),
        ([read_with(missing=["to"], inputs={"order_id": "W-7377"})], "no input uses"),
        ([LlmUnavailable("timed out", place="model")], "timed out"),
        (["Sure.", "Sure!", "sure"], "the model could not read the request"),
    ],
)
def test_last_says_which_routine_was_tried_and_why_it_did_not_run(
    memory: Memory, shop: Shop, answers: list[Any], shown: str
) -> None:
    agent = memory.agent(shop.answer, shop.tools, client=ScriptedClient(answers), learn=False)
    agent(NOT_NEEDED)
    assert shown in agent.last.how
    assert agent.last.trace_id


def test_last_says_why_no_routine_was_tried_without_a_model(memory: Memory, shop: Shop) -> None:
    agent = memory.agent(shop.answer, shop.tools, learn=False)
    agent(NOT_NEEDED)
    recorded_with_others = agent.last.how
    find = memory.matcher.find
    texts = texts_of(find_routine(memory.store, "cancel_order"))
    text = texts["routine.yaml"].replace("name: cancel_order", "name: drop_order")
    keep_routine(memory.store, {**texts, "routine.yaml": text}, [])
    agent(REQUEST)
    assert "cancel_order@1, drop_order@1" in agent.last.how
    assert find(REQUEST, ()).why_not != find(NOT_NEEDED).why_not
    assert find(NOT_NEEDED).why_not in recorded_with_others


LISTED = """
name: cancel_listed
checks: hand_over
input_schema:
  type: object
  required: [email, order]
  properties: {email: {type: string}, order: {type: string}}
tools: [{name: find_user, effect: read}, {name: get_order, effect: read}, {name: cancel, effect: write}]
steps:
- {id: user, type: tool.call, tool: find_user, args: {email: "{{ email }}"}, save_as: user}
- {id: own, type: assert, check: "order in user.orders", held: 4/4}
- {id: get, type: tool.call, tool: get_order, args: {order: "{{ order }}"}, save_as: found,
   expect: {properties: {status: {const: pending}}}}
- {id: cancel, type: tool.call, tool: cancel, args: {order: "{{ found.id }}"}}
"""  # noqa: E501 - a line of YAML


@pytest.mark.parametrize("pending", [0, 1, 2])
def test_the_one_candidate_for_what_a_request_does_not_state_is_taken(
    memory: Memory, pending: int
) -> None:
    keep_routine(memory.store, {"routine.yaml": LISTED}, [])
    cancelled: list[str] = []
    statuses = {f"W-{n}": "pending" if n < pending else "shipped" for n in range(3)}

    def find_user(email: str) -> dict[str, Any]:
        return {"orders": [*statuses]}

    def get_order(order: str) -> dict[str, str]:
        return {"id": order, "status": statuses[order]}

    def cancel(order: str) -> None:
        cancelled.append(order)

    tools = [find_user, get_order, cancel]
    reply = {"fits": True, "inputs": {"email": "gus@mail.example"}, "not_expressed": []}
    read = {"routine": "cancel_listed", **reply, "missing": ["order"]}
    request = "cancel what gus@mail.example has ordered"
    match = memory.match(request, tools, ScriptedClient([read]))
    assert match is not None
    assert (match.inputs, match.missing) == (reply["inputs"], ["order"])
    agent = memory.agent(lambda request: "by hand", tools, client=ScriptedClient([read]))
    agent(request)
    assert cancelled == (["W-0"] if pending == 1 else []), agent.last
    assert agent.last.by_routine == (pending == 1)
    assert find_runs(memory.store, status="needs_input").runs == []
