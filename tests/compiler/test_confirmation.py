"""A person's answer is evidence: the routine does not ask the same question twice."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import AsyncMemory, Memory
from em.compiler.compile_trace import compile_trace
from em.compiler.confirmation import confirm
from em.compiler.package_files import package_texts, write_package
from em.errors import NotFound, UsageError
from em.runner.package import ROUTINE, find_routine, keep_routine, texts_of
from em.runner.routine import Routine, ToolStep
from em.traces.trace import Message, Mission, ToolCall, Trace

LIMIT = Trace(
    mission=Mission(goal="refund", input_summary={"order": "#W1001", "limit": 100}),
    events=[
        ToolCall(tool="get_order", args={"order": "#W1001"}, result={"id": "#W1001", "paid": 250}),
        ToolCall(tool="refund", args={"order": "#W1001", "amount": 100}, result="done"),
    ],
    outcome="success",
)


class Shop:
    def __init__(self) -> None:
        self.refunds: list[Any] = []

    @property
    def tools(self) -> dict[str, Any]:
        return {
            "get_order": lambda order: {"id": order, "paid": 250},
            "refund": lambda order, amount: self.refunds.append((order, amount)) or "done",
        }


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path / "em.db") as memory:
        draft = compile_trace(LIMIT, name="refund")
        keep_routine(memory.store, package_texts(draft))
        yield memory


def test_the_recorded_inputs_run_as_recorded_and_others_are_asked_about(memory: Memory) -> None:
    shop = Shop()
    assert memory.run("refund", {"order": "#W1001", "limit": 100}, shop.tools).status == "ok"
    asked = memory.run("refund", {"order": "#W2002", "limit": 500}, shop.tools)
    assert asked.status == "needs_input"
    assert asked.pending_prompt is not None
    words = asked.pending_prompt.message
    assert "500 if it is the input `limit`" in words
    assert "100 if it is always 100" in words
    assert shop.refunds == [("#W1001", 100)]


@pytest.mark.parametrize(("answer", "next_amount"), [(500, 700), (100, 100)])
def test_an_answer_is_remembered_in_a_new_version(
    memory: Memory, answer: int, next_amount: int
) -> None:
    shop = Shop()
    asked = memory.run("refund", {"order": "#W2002", "limit": 500}, shop.tools)
    done = memory.resume(asked.run_id, shop.tools, answers={"inputs": {"amount": answer}})
    assert (done.status, shop.refunds) == ("ok", [("#W2002", answer)])
    again = memory.run("refund", {"order": "#W3003", "limit": 700}, shop.tools)
    assert (again.status, shop.refunds[-1]) == ("ok", ("#W3003", next_amount))
    with pytest.raises(AssertionError):
        assert memory.run("refund@1", {"order": "#W4", "limit": 9}, shop.tools).status == "ok"


def test_a_confirmed_value_is_a_constant() -> None:
    draft = compile_trace(LIMIT, name="refund")
    assert "amount" in draft.routine.asks
    fixed = confirm(draft.routine, ["amount"])
    assert "amount" not in fixed.asks
    assert "amount" not in (fixed.input_schema or {})["properties"]
    (step,) = [one for one in fixed.steps if isinstance(one, ToolStep) and one.tool == "refund"]
    assert step.args["amount"] == 100


def test_only_what_is_asked_for_can_be_confirmed() -> None:
    routine = compile_trace(LIMIT, name="refund").routine
    with pytest.raises(UsageError, match="amuont"):
        confirm(routine, ["amuont"])


def test_a_person_may_agree_that_the_wording_makes_no_difference(tmp_path: Path) -> None:
    trace = Trace(
        mission=Mission(goal=""),
        events=[
            Message(role="user", text="send the invoice of #W1001 to my usual address, please"),
            ToolCall(
                tool="get_order",
                args={"order": "#W1001"},
                result={"id": "#W1001", "mail": "ana.lopez77@shop.example"},
            ),
            ToolCall(
                tool="send_invoice",
                args={"order": "#W1001", "mail": "ana.lopez77@shop.example"},
                result="sent",
            ),
        ],
        outcome="success",
    )
    sent: list[str] = []
    tools = {
        "get_order": lambda order: {"id": order, "mail": "bob.stone12@shop.example"},
        "send_invoice": lambda order, mail: sent.append(mail) or "sent",
    }
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, package_texts(compile_trace(trace, name="invoice")))
        asked = memory.run("invoice", {"order": "#W2002"}, tools)
        assert (asked.status, sent) == ("needs_input", [])
        assert asked.pending_prompt is not None
        assert "wording" in asked.pending_prompt.message
        answers = {"inputs": {"request": True}}
        assert memory.resume(asked.run_id, tools, answers=answers).status == "ok"
        assert memory.run("invoice", {"order": "#W3003"}, tools).status == "ok"
    assert sent == ["bob.stone12@shop.example"] * 2


def test_a_rewritten_routine_reads_back(memory: Memory) -> None:
    routine = confirm(compile_trace(LIMIT, name="refund").routine, ["amount"])
    again = msgspec.convert(msgspec.to_builtins(routine), Routine)
    assert msgspec.json.encode(again) == msgspec.json.encode(routine)


OTHER = {"order": "#W2002", "limit": 500}
ANSWERS = {"inputs": {"amount": 500}}


def test_the_result_says_what_was_remembered_and_where(memory: Memory) -> None:
    done = memory.run("refund", OTHER, Shop().tools, answers=ANSWERS)
    assert done.remembered is not None
    assert (done.remembered.names, done.remembered.where) == (["amount"], "refund@2")
    plain = memory.run("refund@1", OTHER, Shop().tools, answers=ANSWERS, remember=False)
    assert (plain.status, plain.remembered) == ("ok", None)


def test_an_async_memory_remembers_too(tmp_path: Path) -> None:
    async def run() -> Any:
        async with AsyncMemory(tmp_path / "em.db") as memory:
            asked = await memory.run("refund", OTHER, Shop().tools)
            return await memory.resume(asked.run_id, Shop().tools, answers=ANSWERS)

    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, package_texts(compile_trace(LIMIT, name="refund")))
    done = asyncio.run(run())
    assert done.remembered.where == "refund@2"


def test_an_answer_to_an_old_version_goes_into_the_newest(memory: Memory) -> None:
    asked = memory.run("refund", OTHER, Shop().tools)
    newest = texts_of(find_routine(memory.store, "refund"))
    newest[ROUTINE] = newest[ROUTINE].replace("description: refund", "description: by its author")
    assert keep_routine(memory.store, newest).ref == "refund@2"
    memory.resume(asked.run_id, Shop().tools, answers=ANSWERS)
    third = memory.run("refund@3", {"order": "#W3003", "limit": 700}, Shop().tools)
    assert third.status == "ok"
    text = texts_of(find_routine(memory.store, "refund@3"))[ROUTINE]
    assert "by its author" in text


def test_what_was_remembered_is_forgotten_with_its_trace(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        made = memory.compile(memory.add_trace(LIMIT), name="refund")
        memory.run(made, OTHER, Shop().tools, answers=ANSWERS)
        memory.forget(made.from_events)
        for version in ("refund@1", "refund@2"):
            with pytest.raises(NotFound, match="erased"):
                memory.run(version, OTHER, Shop().tools)


def test_a_run_that_can_not_remember_is_still_a_run(tmp_path: Path) -> None:
    folder, shop = tmp_path / "refund", Shop()
    write_package(compile_trace(LIMIT, name="refund"), folder)

    def refund(order: str, amount: int) -> str:
        shutil.rmtree(folder)
        return shop.tools["refund"](order, amount)

    with Memory(tmp_path / "em.db") as memory:
        done = memory.run(folder, OTHER, {**shop.tools, "refund": refund}, answers=ANSWERS)
    assert (done.status, shop.refunds) == ("ok", [("#W2002", 500)])
    assert done.remembered is not None
    assert done.remembered.problem


def test_the_mark_and_the_comments_of_a_routine_stay(tmp_path: Path) -> None:
    unlabelled = msgspec.structs.replace(LIMIT, outcome="unknown")
    folder = tmp_path / "refund"
    write_package(compile_trace(unlabelled, name="refund"), folder)
    text = (folder / ROUTINE).read_text()
    text = text.replace("  - id: refund\n", "  # ask Ana about this\n  - id: refund\n")
    (folder / ROUTINE).write_text(text)
    with Memory(tmp_path / "em.db") as memory:
        memory.run(folder, OTHER, Shop().tools, answers=ANSWERS)
    new = (folder / ROUTINE).read_text()
    assert "# outcome unknown" in new
    assert "  # ask Ana about this\n  - id: refund\n" in new
    assert "amount" not in msgspec.json.decode((folder / "input.json").read_bytes())


def test_a_value_that_three_different_tasks_had_is_a_constant(tmp_path: Path) -> None:
    trace = Trace(
        mission=Mission(goal="cancel", input_summary={"order": "#W1001"}),
        events=[ToolCall(tool="cancel", args={"order": "#W1001", "reason": "by mistake"})],
        outcome="success",
    )
    reasons: list[str] = []
    tools = {"cancel": lambda order, reason: reasons.append(reason)}
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, package_texts(compile_trace(trace, name="cancel")))
        for order in ("#W2002", "#W3003"):
            asked = memory.run("cancel", {"order": order}, tools)
            assert asked.status == "needs_input"
            answers = {"inputs": {"reason": "by mistake"}}
            assert memory.resume(asked.run_id, tools, answers=answers).status == "ok"
        assert memory.run("cancel", {"order": "#W4004"}, tools).status == "ok"
    assert reasons == ["by mistake"] * 3
