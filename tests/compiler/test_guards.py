"""Facts that were read about what is acted on become guards; accidents elsewhere do not."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.compiler.compile_trace import compile_several, compile_trace, compile_trace_file
from em.runner.engine import run_routine
from em.runner.routine import ToolStep
from em.traces.trace import KeptTrace, Mission, ToolCall, Trace

OWNER = "ana_lopez_12"
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def read(name: str, result: Any, /, **args: Any) -> ToolCall:
    return ToolCall(tool=name, args=args, result=result, effect="read")


def guards(*reads: ToolCall, **args: Any) -> list[str]:
    trace = Trace(
        mission=Mission(goal="act", input_summary={"order": "#W1001", "mail": "ana@shop.example"}),
        events=[*reads, ToolCall(tool="act", args={"order": "#W1001", **args}, effect="write")],
        outcome="success",
    )
    steps = compile_trace(trace).routine.steps
    (step,) = [one for one in steps if isinstance(one, ToolStep) and one.tool == "act"]
    return list(step.guards)


@pytest.mark.parametrize(
    ("field", "value", "guard"),
    [
        ("status", "pending", 'order_2.status == "pending"'),
        ("status", "Pending", 'order_2.status == "Pending"'),
        ("is_paid", True, "order_2.is_paid == true"),
        ("type", "gift", 'order_2.type == "gift"'),
        ("stock", 5, "order_2.stock > 0"),
        ("balance", 0, "order_2.balance == 0"),
        ("cancelled_at", None, "order_2.cancelled_at == none"),
    ],
)
def test_what_a_careful_person_would_check_is_a_guard(field: str, value: Any, guard: str) -> None:
    assert guard in guards(read("get_order", {"id": "#W1001", field: value}, order="#W1001"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "desk lamp"), ("city", "Porto"), ("price", 20.5), ("note", None), ("tags", ["a"])],
)
def test_what_differs_from_thing_to_thing_is_none(field: str, value: Any) -> None:
    assert guards(read("get_order", {"id": "#W1001", field: value}, order="#W1001")) == []


def test_a_result_that_is_a_fact_by_itself() -> None:
    assert guards(read("stock_of", 5, order="#W1001")) == ["stock_of_result > 0"]


def test_a_record_that_is_not_acted_on_has_no_guards() -> None:
    other = read("get_order", {"id": "#W9009", "status": "shipped"}, order="#W9009")
    assert guards(other) == []


def test_the_order_must_belong_to_the_person() -> None:
    found = guards(
        read("find_user", OWNER, mail="ana@shop.example"),
        read("get_order", {"id": "#W1001", "user_id": OWNER}, order="#W1001"),
    )
    assert "order_2.user_id == user" in found


@pytest.mark.parametrize("field", ["customer", "owner", "user", "client"])
def test_another_person_is_no_reason_to_stop(field: str) -> None:
    """Whose it is differs from task to task; that it is somebody's does not."""
    record = {"id": "#W1001", field: "ana", f"{field}_type": "private"}
    assert guards(read("get_order", record, order="#W1001")) == [
        f"order_2.{field} != none",
        f'order_2.{field}_type == "private"',
    ]


@pytest.mark.parametrize("name", ["ana", "Ana"])
def test_a_person_that_the_task_names_must_be_the_one_of_the_record(name: str) -> None:
    record = read("get_order", {"id": "#W1001", "customer": name}, order="#W1001")
    trace = Trace(
        mission=Mission(goal="act", input_summary={"order": "#W1001", "who": name}),
        events=[record, ToolCall(tool="act", args={"order": "#W1001"}, effect="write")],
        outcome="success",
    )
    (step,) = [one for one in compile_trace(trace).routine.steps if one.id == "act"]
    assert list(step.guards) == ["order_2.customer == who"]


def test_a_person_whose_record_was_read_must_be_the_one_of_the_other_record() -> None:
    found = guards(
        read("find_user", {"name": "ana", "blocked": False}, mail="ana@shop.example"),
        read("get_order", {"id": "#W1001", "customer": "ana"}, order="#W1001"),
    )
    assert "order_2.customer == user.name" in found


def test_an_amount_must_stay_within_what_there_is() -> None:
    found = guards(read("get_order", {"id": "#W1001", "stock": 5}, order="#W1001"), count=2)
    assert "order_2.stock >= count" in found


def test_items_of_the_record_are_checked_and_not_their_entries_in_a_catalogue() -> None:
    order = {"id": "#W1001", "items": [{"id": "8384507844", "returned": False}, {"id": "77"}]}
    product = {"id": "P-4711", "variants": [{"id": "8384507844", "available": False}]}
    found = guards(
        read("get_order", order, order="#W1001"),
        read("get_product", product, product="P-4711"),
        items=["8384507844"],
    )
    assert any('"returned") == false' in guard for guard in found)
    assert not any("available" in guard for guard in found)


def test_the_reads_that_identify_who_it_is_about_are_never_pruned() -> None:
    trace = Trace(
        mission=Mission(goal="cancel", input_summary={"order": "#W1001", "mail": "a@b.example"}),
        events=[
            read("find_user", {"name": "Ana"}, mail="a@b.example"),
            ToolCall(tool="cancel", args={"order": "#W1001"}, effect="write"),
        ],
        outcome="success",
    )
    assert next(iter(compile_trace(trace).routine.steps)).id == "find_user"


def test_a_guard_is_relaxed_by_a_trace_that_succeeded_otherwise() -> None:
    def trace(number: str, status: str, outcome: Any) -> KeptTrace:
        order = read("get_order", {"id": number, "status": status, "paid": True}, order=number)
        act = ToolCall(tool="act", args={"order": number}, effect="write")
        mission = Mission(goal="act", input_summary={"order": number})
        made = Trace(mission=mission, events=[order, act], outcome=outcome)
        return KeptTrace(id=number, at=NOW, trace=made, event_ids=[])

    def guards_of(*traces: KeptTrace) -> list[str]:
        steps = compile_several(traces, may_be_plain=False).draft.routine.steps
        (step,) = [one for one in steps if isinstance(one, ToolStep) and one.tool == "act"]
        return [text for text in step.guards if text.startswith("order_2.")]

    pending, packed = trace("#W1001", "pending", "success"), trace("#W2002", "packed", "success")
    failed = trace("#W3003", "shipped", "failure")
    assert guards_of(pending) == ['order_2.status == "pending"', "order_2.paid == true"]
    assert guards_of(packed, pending) == ["order_2.paid == true"]
    assert guards_of(failed, pending) == guards_of(pending)


def test_steps_for_two_items_do_not_do_the_work_for_three(tmp_path: Path) -> None:
    rows = [{"sku": "SKU-4711"}, {"sku": "SKU-4712"}]
    calls = [ToolCall(tool="add", args={"sku": row["sku"]}, effect="write") for row in rows]
    trace = Trace(
        mission=Mission(goal="add", input_summary={"rows": rows}), events=calls, outcome="success"
    )
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    added: list[str] = []
    tools = {"add": lambda sku: added.append(sku) or "added"}
    three = {"rows": [*rows, {"sku": "SKU-4713"}]}
    assert run_routine(tmp_path / "r", three, tools).status == "failed"
    assert added == []
    two = {"rows": [{"sku": "SKU-9001"}, {"sku": "SKU-9002"}]}
    assert run_routine(tmp_path / "r", two, tools).status == "ok"
    assert added == ["SKU-9001", "SKU-9002"]


@pytest.mark.parametrize(
    "found", ["Error: user not found", None, "", [], {"error": "no such user"}, 5, True]
)
def test_what_a_read_returns_in_place_of_an_id_is_not_written(tmp_path: Path, found: Any) -> None:
    trace = Trace(
        mission=Mission(goal="add", input_summary={"mail": "uma@x.example"}),
        events=[
            read("find_user_id", "U-77120", mail="uma@x.example"),
            ToolCall(tool="add_member", args={"user": "U-77120"}, effect="write"),
        ],
        outcome="success",
    )
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    added: list[Any] = []
    tools = {
        "find_user_id": lambda mail: found if mail == "bob@x.example" else "U-90001",
        "add_member": lambda user: added.append(user) or "added",
    }
    assert run_routine(tmp_path / "r", {"mail": "eve@x.example"}, tools).status == "ok"
    assert run_routine(tmp_path / "r", {"mail": "bob@x.example"}, tools).status == "failed"
    assert added == ["U-90001"]


@pytest.mark.parametrize(
    "change", [{"on_hold": True}, {"id": "#W2002"}, {"error": "try again"}, {"total": -5}]
)
def test_a_trace_of_a_file_has_the_guards_on_records_that_one_of_a_memory_has(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    record = {"id": "#W1001", "status": "pending", "total": 12}
    trace = Trace(
        mission=Mission(goal="cancel", input_summary={"order": "#W1001"}),
        events=[
            read("get_order", record, order="#W1001"),
            ToolCall(tool="cancel", args={"order": "#W1001"}, result="ok", effect="write"),
        ],
        outcome="success",
    )
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(trace))
    of_file = compile_trace_file(tmp_path / "trace.json", tmp_path / "cancel", name="cancel")
    with Memory(tmp_path / "em.db") as memory:
        memory.add_trace(trace)
        of_memory = compile_several(memory.traces(), name="cancel").draft
    assert of_file.routine == of_memory.routine
    done: list[str] = []
    tools = {"get_order": lambda order: {**record, **change}, "cancel": done.append}
    result = run_routine(tmp_path / "cancel", {"order": "#W1001"}, tools)
    assert result.status in ("failed", "needs_input")
    assert not done
