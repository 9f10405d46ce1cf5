"""A resumed run that has not acted yet looks at the world again; one that has acted does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from em import Memory
from em.log.event import EventQuery
from em.runner.engine import resume_run, run_routine
from em.runner.history import read_run
from em.runner.run import RunResult
from em.store.protocol import Store
from em.values.canonical import Json

ROUTINE = """
version: "1"
name: refund
tools:
  - {name: get_order, effect: read}
  - {name: get_notes, effect: read}
  - {name: refund, effect: write}
  - {name: notify, effect: write}
input_schema:
  type: object
  properties:
    order_id: {type: string, examples: ["#W1001"]}
  required: [order_id]
steps:
  - {id: get_order, type: tool.call, tool: get_order, args: {id: "{{ order_id }}"}, save_as: order}
  - {id: price, type: udf.call, function: price, args: {order: "{{ order }}"}, save_as: price}
  - id: why
    type: prompt.user
    prompt: {message: "It says {{ order.reason }}. Why?", fields: [{name: reason}]}
    save_as: why
  - {id: open, type: assert, check: 'order.status == "open"'}
  - id: refund
    type: tool.call
    tool: refund
    args: {order: "{{ order_id }}", amount: "{{ price }}", reason: "{{ why.reason }}"}
  - {id: get_notes, type: tool.call, tool: get_notes, save_as: notes}
  - id: agreed
    type: prompt.user
    prompt: {message: "Tell {{ notes.name }}?", fields: [{name: ok, type: confirm}]}
    save_as: agreed
  - {id: notify, type: tool.call, tool: notify, args: {name: "{{ notes.name }}"}}
  - {id: return, type: return, value: "{{ price }}"}
"""
OTHER = {"order_id": "#W2002"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    (tmp_path / "udf.py").write_text("def price(order):\n    return order['total'] * 2\n")
    return tmp_path


class Shop:
    def __init__(self) -> None:
        self.order: dict[str, Any] = {"status": "open", "total": 10, "reason": "late"}
        self.notes = {"name": "Ana"}
        self.calls: list[str] = []
        self.done: list[Any] = []

    def get_order(self, id: str) -> Any:  # noqa: A002 - the tool's own name
        self.calls.append(f"get_order {id}")
        return dict(self.order)

    def get_notes(self) -> Any:
        self.calls.append("get_notes")
        return dict(self.notes)

    def refund(self, **args: Any) -> str:
        self.done.append(args)
        return "done"

    def notify(self, **args: Any) -> str:
        self.done.append(args)
        return "done"

    @property
    def tools(self) -> dict[str, Any]:
        names = ("get_order", "get_notes", "refund", "notify")
        return {name: getattr(self, name) for name in names}


def reasons() -> dict[str, Any]:
    return {"why": {"reason": "broken"}}


def asked(store: Store, folder: Path, shop: Shop) -> RunResult:
    result = run_routine(folder, OTHER, shop.tools, store=store)
    assert (result.status, shop.done) == ("needs_input", [])
    return result


def test_reads_before_the_first_effect_are_made_again(store: Store, folder: Path) -> None:
    shop = Shop()
    run_id = asked(store, folder, shop).run_id
    shop.order["total"] = 30
    result = resume_run(store, run_id, shop.tools, answers=reasons())
    assert shop.done[0]["amount"] == 60, "what a function made of the read is new as well"
    assert shop.calls.count("get_order #W2002") == 2
    assert result.pending_prompt is not None
    assert result.pending_prompt.step_id == "agreed"
    past = read_run(store, run_id)
    assert [step.step for step in past.steps] == ["get_order", "price", "refund", "get_notes"]
    assert past.steps[0].result["total"] == 30, "the journal has what the run went on with"


def test_a_check_sees_the_world_of_today(store: Store, folder: Path) -> None:
    shop = Shop()
    run_id = asked(store, folder, shop).run_id
    shop.order["status"] = "refunded"
    result = resume_run(store, run_id, shop.tools, answers=reasons())
    assert (result.status, shop.done) == ("failed", [])
    assert result.failure is not None
    assert (result.failure.step_id, result.failure.error_type) == ("open", "CheckFailed")


def test_after_an_effect_reads_stay_as_they_were(store: Store, folder: Path) -> None:
    shop = Shop()
    run_id = asked(store, folder, shop).run_id
    resume_run(store, run_id, shop.tools, answers=reasons())
    assert len(shop.done) == 1
    shop.order["total"], shop.notes["name"], shop.order["status"] = 70, "Bo", "gone"
    calls = list(shop.calls)
    result = resume_run(store, run_id, shop.tools, answers={"agreed": {"ok": True}})
    assert (result.status, result.output) == ("ok", 20)
    assert shop.calls == calls
    assert shop.done[1:] == [{"name": "Ana"}]


def test_an_answer_counts_as_long_as_its_question_reads_the_same(
    store: Store, folder: Path
) -> None:
    shop = Shop()
    first = asked(store, folder, shop)
    shop.order["reason"] = "fraud"
    again = resume_run(store, first.run_id, shop.tools, answers=reasons())
    assert (again.status, shop.done) == ("needs_input", [])
    assert again.pending_prompt is not None
    assert "fraud" in again.pending_prompt.message
    assert again.pending_prompt.problem
    waiting = resume_run(store, first.run_id, shop.tools)
    assert waiting.status == "needs_input", "the old answer does not count later either"
    done = resume_run(store, first.run_id, shop.tools, answers=reasons())
    assert shop.done[0]["reason"] == "broken"
    assert done.status == "needs_input"


APPROVED = """
version: "1"
name: pay
tools: [{name: price, effect: read}, {name: pay, effect: write}]
steps:
  - {id: price, type: tool.call, tool: price, save_as: price}
  - id: agreed
    type: prompt.user
    prompt: {message: "Pay {{ price }}?", fields: [{name: ok, type: confirm}]}
    save_as: agreed
  - id: note
    type: prompt.user
    prompt: {message: "A note?", fields: [{name: text}]}
    save_as: note
  - {id: pay, type: tool.call, tool: pay, args: {amount: "{{ price }}"}}
"""
YES = {"agreed": {"ok": True}}


def test_an_approval_of_another_amount_is_asked_for_again(store: Store, tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(APPROVED)
    prices, paid = [100], []
    tools = {"price": lambda: prices[0], "pay": lambda amount: paid.insert(0, amount)}
    run_id = run_routine(tmp_path, {}, tools, store=store).run_id
    noted = resume_run(store, run_id, tools, answers=YES)
    assert noted.pending_prompt is not None
    assert noted.pending_prompt.step_id == "note", "an approval stays as long as nothing changes"
    prices[0] = 500
    again = resume_run(store, run_id, tools, answers={"note": {"text": "x"}})
    assert again.pending_prompt is not None
    assert (again.pending_prompt.step_id, paid) == ("agreed", [])
    assert again.pending_prompt.message == "Pay 500?"
    assert resume_run(store, run_id, tools, answers=YES).status == "ok", "the note stays"
    assert paid == [500]


def test_a_call_that_did_not_happen_is_made_with_what_is_read_now(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "routine.yaml").write_text(APPROVED)
    prices, paid = [100], []

    def pay(amount: int) -> None:
        if amount == 100:
            raise TimeoutError
        paid.append(amount)

    tools = {"price": lambda: prices[0], "pay": pay}
    given = {**YES, "note": {"text": "x"}}
    first = run_routine(tmp_path, {}, tools, store=store, answers=given)
    assert first.pending_prompt is not None
    assert first.pending_prompt.step_id == "pay?"
    prices[0] = 500
    assert resume_run(store, first.run_id, tools).status == "needs_input"
    done = resume_run(store, first.run_id, tools, answers={"pay?": {"happened": "no"}})
    assert (done.status, paid) == ("ok", [500])


def test_a_routine_without_effects_goes_on_where_it_was(store: Store, tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(APPROVED.replace("effect: write", "effect: read"))
    seen: list[int] = []
    tools = {"price": lambda: seen.append(1) or 100, "pay": lambda amount: amount}
    run_id = run_routine(tmp_path, {}, tools, store=store).run_id
    resume_run(store, run_id, tools, answers={**YES, "note": {"text": "x"}})
    assert len(seen) == 1


def test_the_same_by_the_memory_and_the_command(
    folder: Path, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop()
    with Memory(new_database()) as memory:
        run_id = memory.run(folder, OTHER, shop.tools).run_id
        shop.order["total"] = 30
        memory.resume(run_id, shop.tools, answers=reasons())
    assert shop.done[0]["amount"] == 60
    (folder / "shop.py").write_text(
        "import json, pathlib\n"
        "def get_order(id):\n    return json.loads(pathlib.Path('order.json').read_text())\n"
        "def get_notes():\n    return {'name': 'Ana'}\n"
        "def refund(order, amount, reason):\n    pathlib.Path('paid').write_text(str(amount))\n"
        "def notify(name):\n    return 'done'\n"
    )
    (folder / "order.json").write_text(json.dumps(Shop().order))
    (folder / "in.json").write_text(json.dumps(OTHER))
    (folder / "answers.json").write_text(json.dumps(reasons()))
    first = em("run", ".", "--input", "in.json", "--tools", "shop.py", "--json").json
    assert first["status"] == "needs_input"
    (folder / "order.json").write_text(json.dumps({**Shop().order, "total": 30}))
    em("resume", first["run_id"], "--tools", "shop.py", "--answers", "answers.json")
    assert (folder / "paid").read_text() == "60"


def test_what_was_read_first_stays_in_the_log(store: Store, folder: Path) -> None:
    shop = Shop()
    run_id = asked(store, folder, shop).run_id
    shop.order["total"] = 30
    resume_run(store, run_id, shop.tools, answers=reasons())
    kinds = [one.kind for one in store.read(EventQuery(stream=f"run/{run_id}"))]
    assert kinds.count("run_resumed") == 1
    done = store.read(EventQuery(stream=f"run/{run_id}", kinds=["step_done"]))
    totals = [one.body["result"]["total"] for one in done if one.body["step"] == "get_order"]  # type: ignore[index]  # has a body
    assert totals == [10, 30]


def test_checks_are_made_again_before_a_write_that_did_not_happen(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "routine.yaml").write_text(
        'version: "1"\nname: pay_order\nchecks: hand_over\nsteps:\n'
        "  - {id: order, type: tool.call, tool: order, effect: read, save_as: order}\n"
        "  - {id: open, type: assert, check: order.status == 'open'}\n"
        "  - {id: pay, type: tool.call, tool: pay, effect: write,"
        ' checks: {pre: ["order.total < 100"]}}\n'
    )
    order = {"status": "open", "total": 10}
    paid: list[int] = []

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_routine(tmp_path, {}, {"order": order.copy, "pay": killed}, store=store, run_id="r1")
    tools = {"order": order.copy, "pay": lambda: paid.append(1)}
    asked = resume_run(store, "r1", tools)
    assert asked.pending_prompt is not None
    assert asked.pending_prompt.step_id == "pay?"
    order["status"] = "paid"
    no: dict[str, Json] = {"pay?": {"happened": False}}
    refused = resume_run(store, "r1", tools, answers=no)
    assert (refused.status, paid) == ("needs_input", [])
    assert refused.reason is not None
    assert refused.reason.step_id == "open"
