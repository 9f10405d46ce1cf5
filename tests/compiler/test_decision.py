"""A person decides what a recording could not show; the routine and the log keep it."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.em_command import em

from em import AsyncMemory, Memory
from em.compiler.decision import Question, applied, questions
from em.errors import NotFound, RoutineError, UsageError
from em.log.event import EventQuery
from em.runner.package import ROUTINE, find_routine, keep_routine, routine_of, texts_of
from em.runner.routine import Decided, PlanStep, Routine, ToolStep
from em.runner.task_plan import Slot

DB = {"EM_DB": "em.db"}


def refund(number: int, total: int, limit: int, amount: int, channel: str = "mail") -> Any:
    """A trace in which the amount may be the total or the limit, and nothing explains the rest."""
    order = f"W-{number}"
    read = {"order_id": order, "total": total, "status": "delivered"}
    args = {"order_id": order, "amount": amount, "channel": channel}
    return {
        "version": "1",
        "mission": {
            "goal": "Refund the order",
            "input_summary": {"order_id": order, "limit": limit},
        },
        "events": [
            {"type": "tool_call", "tool": "get_order", "args": {"order_id": order},
             "effect": "read", "result": read},
            {"type": "tool_call", "tool": "refund_order", "args": args, "effect": "write",
             "result": {"refund": f"r-{number}", "status": "paid"}},
        ],
        "final_output": {"refund": f"r-{number}"},
        "outcome": "success",
    }  # fmt: skip


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    with Memory("em.db") as memory:
        memory.compile([memory.add_trace(refund(70011, 100, 100, 100))], name="refund")
        yield memory


class Shop:
    """The tools of a world in which total and limit differ."""

    def __init__(self, status: str = "delivered") -> None:
        self.paid: list[tuple[str, int, str]] = []
        self.status = status

    def get_order(self, order_id: str) -> Any:
        return {"order_id": order_id, "total": 80, "status": self.status}

    def refund_order(self, order_id: str, amount: int, channel: str) -> Any:
        self.paid.append((order_id, amount, channel))
        return {"refund": "r-1", "status": "paid"}

    @property
    def tools(self) -> Any:
        return {"get_order": self.get_order, "refund_order": self.refund_order}


def choice(memory: Memory, of: str, words: str) -> str:
    """Return the id of the choice that a person would press."""
    (found,) = [
        one.id
        for question in memory.undecided("refund")
        if question.of == of
        for one in question.choices
        if one.words == words
    ]
    return found


def decide(memory: Memory, of: str, words: str, by: str = "ana") -> Any:
    return memory.decide("refund", choice(memory, of, words), by=by)


def text_of(memory: Memory, ref: str = "refund") -> str:
    return texts_of(find_routine(memory.store, ref))[ROUTINE]


def test_each_explanation_of_a_value_is_a_choice_in_words(memory: Memory) -> None:
    by_name = {one.of: one for one in memory.undecided("refund")}
    assert [one.words for one in by_name["amount"].choices] == [
        "the input `limit`",
        "`order.total`",
        "always 100",
    ]
    assert [one.words for one in by_name["channel"].choices] == ['always "mail"']
    assert by_name["refund_order"].kind == "check"
    assert '`order.status` is "delivered"' in [one.words for one in by_name["refund_order"].choices]
    assert not any("reports no error" in one.words for one in by_name["refund_order"].choices)


def test_a_decision_is_a_new_version_that_asks_no_more(memory: Memory) -> None:
    shop = Shop()
    given = {"order_id": "W-70022", "limit": 500}
    assert memory.run("refund", given, shop.tools).status == "needs_input"
    assert decide(memory, "amount", "`order.total`").new == "refund@2"
    done = decide(memory, "channel", 'always "mail"')
    assert (done.old, done.new, done.words) == ("refund@2", "refund@3", 'channel is always "mail"')
    assert memory.run("refund", given, shop.tools).status == "ok"
    assert shop.paid == [("W-70022", 80, "mail")]
    assert memory.run("refund@1", given, shop.tools).status == "needs_input", "it stays as it was"
    assert text_of(memory).count("- order.total > 0\n") == 1, "amount > 0 is the same check now"


def test_the_other_explanation_is_taken_if_a_person_says_so(memory: Memory) -> None:
    decide(memory, "amount", "the input `limit`")
    decide(memory, "channel", 'always "mail"')
    shop = Shop()
    assert memory.run("refund", {"order_id": "W-70022", "limit": 60}, shop.tools).status == "ok"
    assert shop.paid == [("W-70022", 60, "mail")]


def test_a_check_that_is_not_needed_stops_no_run(memory: Memory) -> None:
    decide(memory, "amount", "`order.total`")
    decide(memory, "channel", 'always "mail"')
    shop, given = Shop("sent"), {"order_id": "W-70022", "limit": 60}
    assert memory.run("refund", given, shop.tools).status == "failed"
    done = decide(memory, "refund_order", '`order.status` is "delivered"')
    assert done.words == 'before refund_order it need not be so: `order.status` is "delivered"'
    assert memory.run("refund", given, shop.tools).status == "ok"


def test_the_log_says_who_decided_what(memory: Memory) -> None:
    decide(memory, "amount", "`order.total`", by="ana")
    (event,) = memory.store.read(EventQuery(kinds=["routine_decided"]))
    assert event.body is not None
    assert (event.stream, event.body["by"]) == ("routine/refund", "ana")
    assert (event.body["routine"], event.body["words"]) == ("refund@1", "amount is `order.total`")
    (trace,) = memory.traces()
    memory.forget(trace.event_ids)
    (event,) = memory.store.read(EventQuery(kinds=["routine_decided"]))
    assert event.body is None, "it quotes what the trace had"
    assert memory.log.verify().ok


def test_compiling_again_keeps_what_was_decided(memory: Memory) -> None:
    decide(memory, "amount", "`order.total`")
    decide(memory, "channel", 'always "mail"')
    decide(memory, "refund_order", '`order.status` is "delivered"')
    memory.add_trace(refund(70033, 70, 90, 70))
    grown = memory.compile_again("refund")
    assert (grown.new, grown.why_not) == ("refund@5", "")
    routine = routine_of(find_routine(memory.store, "refund"))
    assert not routine.asks
    assert [one.of for one in routine.decided] == ["amount", "channel", "refund_order"]
    shop = Shop("sent")
    assert memory.run("refund", {"order_id": "W-70044", "limit": 9}, shop.tools).status == "ok"
    assert shop.paid == [("W-70044", 80, "mail")]


@pytest.mark.parametrize(
    ("of", "words", "trace"),
    [
        ("amount", "the input `limit`", refund(70033, 70, 90, 70)),
        ("channel", 'always "mail"', refund(70033, 70, 90, 70, channel="post")),
    ],
)
def test_a_trace_against_a_decision_changes_nothing(
    memory: Memory, of: str, words: str, trace: Any
) -> None:
    decide(memory, of, words)
    memory.add_trace(trace)
    grown = memory.compile_again("refund")
    assert grown.new == ""
    assert f"it was decided that {of} is {words}" in grown.why_not
    assert find_routine(memory.store, "refund").version == 2


def test_a_confirmed_value_is_a_decision_too(memory: Memory) -> None:
    ids = [one.id for one in memory.traces()]
    memory.compile(ids, name="refund", confirm=["channel", "amount"])
    assert "decided:" in text_of(memory)
    memory.add_trace(refund(70033, 100, 90, 100))
    assert memory.compile_again("refund").new == "refund@3"
    assert not routine_of(find_routine(memory.store, "refund")).asks


def test_only_what_is_open_in_the_version_in_use_can_be_decided(memory: Memory) -> None:
    first = choice(memory, "amount", "`order.total`")
    memory.decide("refund@1", first)
    with pytest.raises(NotFound, match="may have decided it already"):
        memory.decide("refund", first)
    with pytest.raises(UsageError, match="decide about refund@2"):
        memory.decide("refund@1", first)
    memory.retire("refund@2")
    assert memory.decide("refund@1", first).new == "refund@3", "retiring it undoes a decision"


def test_arguments_that_must_agree_and_their_lists() -> None:
    step = ToolStep(
        id="pay",
        tool="pay",
        args={"to": {"card": "{{ card }}"}, "note": "For {{ who }}"},
        agree={
            "to.card": ["user.card", 'among(every(user, "cards.*"), card)'],
            "note": ["order.note"],
        },
    )
    routine = Routine(name="pay", steps=[step])
    card, note = questions(routine)
    assert [one.words for one in card.choices] == ["the input `card`", "`user.card`"]
    assert [one.words for one in note.choices] == ['the text "For {who}"', "`order.note`"]
    own, other = (applied(routine, one.decided).steps[0] for one in card.choices)
    assert isinstance(own, ToolStep)
    assert isinstance(other, ToolStep)
    assert own.args == step.args
    assert own.agree["to.card"] == ['among(every(user, "cards.*"), card)'], "it is still a check"
    assert other.args["to"] == {"card": "{{ user.card }}"}
    assert other.agree["to.card"] == ['among(every(user, "cards.*"), user.card)']


def test_values_and_checks_of_a_plan() -> None:
    routine = _plan()
    value, checks = questions(routine)
    assert value.words == "book.price must be `hours` times 12, and `hours` times `people`"
    taken = applied(routine, value.choices[1].decided).steps[0]
    dropped = applied(routine, checks.choices[0].decided).steps[0]
    assert isinstance(taken, PlanStep)
    assert isinstance(dropped, PlanStep)
    assert taken.effects["book"].slots["price"].default == ["hours * people"]
    assert dropped.effects["book"].guards == ("error_of(room()) == none",)


def _plan() -> Routine:
    plan = {
        "id": "do",
        "type": "plan",
        "effects": {
            "book": {
                "tool": "book",
                "words": ["book"],
                "slots": {"price": Slot(default=["hours * 12", "hours * people"])},
                "guards": ['room().state in ["free"]', "error_of(room()) == none"],
            }
        },
        "reads": {"room": [{"tool": "get_room", "args": {}}]},
    }
    return msgspec.convert({"name": "book", "steps": [msgspec.to_builtins(plan)]}, Routine)


def test_a_check_is_dropped_too_if_new_traces_gave_it_more_values() -> None:
    wider = ToolStep(id="pay", tool="pay", guards=('order.status in ["a", "b"]', "order.total > 0"))
    decided = Decided(of="pay", drop='order.status == "a"')
    after = applied(Routine(name="pay", steps=[wider]), decided).steps[0]
    assert isinstance(after, ToolStep)
    assert after.guards == ("order.total > 0",)
    with pytest.raises(RoutineError, match=r"it was decided that pay\.amount is"):
        applied(Routine(name="pay", steps=[wider]), Decided(of="pay.amount", take="order.total"))


def test_an_input_that_no_step_uses_can_be_left_aside(memory: Memory) -> None:
    text = text_of(memory).replace("asks:\n", "asks:\n  limit: {recorded: 100, is_unused: true}\n")
    keep_routine(memory.store, {**texts_of(find_routine(memory.store, "refund")), ROUTINE: text})
    done = decide(memory, "limit", "it plays no part in what is done")
    assert done.words == "limit plays no part in what is done"
    assert "limit" not in routine_of(find_routine(memory.store, "refund")).asks


def test_the_command_lists_what_is_open_and_decides(memory: Memory) -> None:
    listed = em("routine", "decide", "refund", **DB).out
    assert "amount was 100 when recorded; it may be the input `limit`, or `order.total`" in listed
    (line,) = [one for one in listed.splitlines() if one.endswith("  `order.total`")]
    done = em("routine", "decide", "refund", line.split()[0], "--by", "bo", **DB)
    assert "decided: amount is `order.total`\nstored as refund@2" in done.out
    (event,) = memory.store.read(EventQuery(kinds=["routine_decided"]))
    assert event.body is not None
    assert event.body["by"] == "bo"
    assert em("routine", "decide", "refund", "nothing", **DB).code == 1
    assert "it no longer asks for amount" in em("routine", "diff", "refund", **DB).out


def test_the_same_works_with_asyncio(memory: Memory) -> None:
    async def work() -> list[Question]:
        async with AsyncMemory("em.db") as own:
            open_ = await own.undecided("refund")
            await own.decide("refund", open_[0].choices[0].id)
            return await own.undecided("refund")

    assert "amount" not in [one.of for one in asyncio.run(work())]
