"""A model improves a draft; what it wrote must hold, or the draft is kept."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.test_goal_checks import Post

from em import Memory
from em.compiler.compile_trace import compile_several
from em.compiler.improvement import Improved
from em.compiler.llm_compile import llm_compile_trace, llm_compile_trace_file
from em.compiler.package_files import render_routine
from em.errors import LlmUnavailable, UsageError
from em.llm import ScriptedClient
from em.runner.engine import run_routine
from em.traces.trace import Mission, ToolCall, Trace, UdfCall, as_kept

ORDERS = [{"id": "#W1001", "total": 30}, {"id": "#W1002", "total": 12}]
TRACE = Trace(
    mission=Mission("Cancel every order of the user", {"user": "ana_lopez"}),
    events=[
        ToolCall(tool="find_orders", args={"user": "ana"}, error="no such user"),
        ToolCall(tool="find_orders", args={"user": "ana_lopez"}, result=ORDERS),
        UdfCall(function="total_of", args={"orders": ORDERS}, result=42),
        ToolCall(tool="cancel_order", args={"id": "#W1001"}, result="cancelled"),
        ToolCall(tool="cancel_order", args={"id": "#W1002"}, result="cancelled"),
    ],
    final_output={"refund": 42},
)

ROUTINE = """\
version: "1"
name: cancel_all_orders
description: Cancel every order of a user, and say what is paid back.
tools:
  - {name: find_orders, effect: read}
  - {name: cancel_order, effect: write}
input_schema: {type: object, properties: {user: {type: string}}, required: [user]}
output_schema: {type: object}
steps:
  - {id: find, type: tool.call, tool: find_orders, args: {user: "{{ user }}"}, save_as: orders}
  - {id: sum, type: udf.call, function: total_of, args: {orders: "{{ orders }}"}, save_as: refund}
  - {id: cancel, type: tool.call, tool: cancel_order, for_each: "{{ orders }}", as: order,
     args: {id: "{{ order.id }}"}}
  - {id: done, type: return, value: {refund: "{{ refund }}"}}
"""
UDF = """\
def total_of(orders):
    return sum(order["total"] for order in orders)
"""


def answer(routine: str = ROUTINE, udf: str = UDF) -> dict[str, str]:
    return {"routine_yaml": routine, "udf_py": udf, "notes": "a loop over the orders"}


def improved(*replies: Any) -> tuple[Improved, ScriptedClient]:
    client = ScriptedClient(list(replies))
    return llm_compile_trace(TRACE, client), client


def test_a_routine_that_holds_is_taken(tmp_path: Path) -> None:
    found, client = improved(answer())
    assert found.by_model
    assert [step.id for step in found.draft.routine.steps] == ["find", "sum", "cancel", "done"]
    assert found.not_compared == ""
    assert found.notes == "a loop over the orders"
    assert found.spent.calls == 1
    assert "ana_lopez" in client.requests[0].prompt
    assert "no such user" not in client.requests[0].prompt, "what was pruned is not told"


def test_what_is_written_runs_on_other_input_with_the_models_functions(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(TRACE))
    client = ScriptedClient([answer()])
    llm_compile_trace_file(tmp_path / "trace.json", tmp_path / "out", client)
    cancelled: list[str] = []
    tools = {
        "find_orders": lambda user: [{"id": f"{user}-{n}", "total": n} for n in (1, 2, 3)],
        "cancel_order": lambda **args: cancelled.append(args["id"]) or "cancelled",
    }
    result = run_routine(tmp_path / "out", {"user": "bo"}, tools)
    assert (result.failure, result.output) == (None, {"refund": 6})
    assert cancelled == ["bo-1", "bo-2", "bo-3"]


def test_a_loop_over_calls_expects_of_each_what_all_of_them_returned(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(TRACE))
    llm_compile_trace_file(tmp_path / "trace.json", tmp_path / "out", ScriptedClient([answer()]))
    cancelled: list[str] = []

    def cancel(id: str) -> str:  # noqa: A002 - the tool's own name
        cancelled.append(id)
        return "Error: already shipped" if id == "bo-2" else "cancelled"

    tools = {
        "find_orders": lambda user: [{"id": f"{user}-{n}", "total": n} for n in (1, 2, 3)],
        "cancel_order": cancel,
    }
    result = run_routine(tmp_path / "out", {"user": "bo"}, tools)
    assert result.failure is not None
    assert result.failure.error_type == "UnexpectedResult"
    assert cancelled == ["bo-1", "bo-2"]


def changed(old: str, new: str) -> dict[str, str]:
    assert old in ROUTINE
    return answer(ROUTINE.replace(old, new))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (answer("steps: ["), "not valid YAML"),
        (changed("tool: find_orders, args", "tool: find_order, args"), "find_order"),
        (changed("{{ user }}", "ana_lopez"), "'ana_lopez' is hard-coded in a step"),
        (answer(udf="def total_of(orders):\n    return 41\n"), "and returns 41"),
        (answer(udf="def total_of(orders):\n    return 1 / 0\n"), "ZeroDivisionError"),
        (answer(udf="import os\ndef total_of(orders):\n    return os.getpid()\n"), "and returns"),
        (answer(udf="def total_of(orders:\n"), "udf.py:1"),
        (changed("for_each: ", "when: 'false', for_each: "), "no `when` on it"),
        (changed("{{ order.id }}", "{{ order.total }}"), "the routine cancel_order"),
        (changed('refund: "{{ refund }}"', "refund: 1"), "the output differs"),
        (answer(ROUTINE.replace("user: {type", "name: {type").replace("{{ user", "{{ name")),
         "'name' is not defined"),
        (answer(udf=UDF + "def id_of():\n    return '#W1001'\n"), "hard-coded in udf.py"),
    ],
)  # fmt: skip
def test_what_does_not_hold_goes_back_with_the_reason(wrong: Any, told: str) -> None:
    found, client = improved(wrong, answer())
    assert told in "\n".join(found.problems[0])
    assert told in client.requests[1].prompt
    assert found.by_model
    assert found.draft.udf_source == UDF


def test_after_two_corrections_the_draft_is_kept_and_the_report_says_so() -> None:
    wrong = answer("steps: [")
    found, client = improved(wrong, wrong, wrong, answer())
    assert not found.by_model
    assert len(client.requests) == 3
    assert [len(problems) > 0 for problems in found.problems] == [True] * 3
    assert "not valid YAML" in found.fell_back
    assert found.draft.routine.steps[0].id == "find_orders"


def test_a_model_that_can_not_be_asked_costs_nothing_but_its_help() -> None:
    found, _ = improved(LlmUnavailable("no answer"))
    assert not found.by_model
    assert "no answer" in found.problems[0][0]
    assert "no answer" in found.fell_back
    assert (list(found.functions), found.draft.udf_source) == ([], "")


TWO_FUNCTIONS = msgspec.structs.replace(
    TRACE,
    events=[
        *TRACE.events,
        UdfCall(function="count_of", args={"orders": ORDERS}, result=2),
    ],
    final_output={"refund": 42, "count": 2},
    outcome="success",
)


def test_functions_that_reproduce_are_kept_where_another_does_not(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(TWO_FUNCTIONS))
    bad = "def count_of(orders):\n    return len(orders) + 1\n"
    wrong = answer(udf=f"import math\n\n{UDF}\n\n{bad}")
    client = ScriptedClient([wrong] * 3)
    found = llm_compile_trace_file(tmp_path / "trace.json", tmp_path / "out", client)
    assert not found.by_model
    assert "count_of" in found.fell_back
    assert found.functions == ["total_of"]
    assert found.left_out.keys() == {"count_of"}
    assert "and returns 3" in found.left_out["count_of"]
    code = (tmp_path / "out/udf.py").read_text()
    assert 'return sum(order["total"] for order in orders)' in code
    assert "write count_of: its docstring has examples" in code
    assert (tmp_path / "out/written_by.json").exists()
    assert found.draft.routine.steps[0].id == "find_orders"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def total_of(orders):\n    return 42\n", "does not use its arguments"),
        ("def total_of(orders):\n    return len(orders) * 21 if '#W1001' else 0\n", "hard-coded"),
        ("def total_of(orders):\n    return helper(orders)\n", "helper"),
        ("def other(orders):\n    return 42\n", "did not write it"),
    ],
)
def test_a_function_that_only_seems_to_reproduce_is_left_out(code: str, why: str) -> None:
    client = ScriptedClient([answer(udf=code)] * 3)
    found = llm_compile_trace(TRACE, client)
    assert not found.by_model
    assert (list(found.functions), found.draft.udf_source) == ([], "")
    assert why in found.left_out["total_of"]


def test_a_function_that_needs_one_that_is_left_out_is_left_out_too() -> None:
    code = (
        "def count_of(orders):\n    return len(orders) + 1\n\n\n"
        "def total_of(orders):\n    return 14 * count_of(orders)\n"
    )
    client = ScriptedClient([answer(udf=code)] * 3)
    found = llm_compile_trace(TWO_FUNCTIONS, client)
    assert (list(found.functions), found.left_out.keys()) == ([], {"count_of", "total_of"})


def test_code_in_a_markdown_fence_is_taken_out_of_it() -> None:
    found, _ = improved(answer(f"```yaml\n{ROUTINE}```", f"```python\n{UDF}\n```\n"))
    assert found.by_model
    assert found.draft.udf_source == UDF


PAID = Trace(
    mission=Mission("pay back", {"order": "#W1001"}),
    events=[
        ToolCall(tool="get_order", args={"order": "#W1001"}, result={"id": "#W1001", "sum": 31.75}),
        ToolCall(tool="pay", args={"order": "#W1001", "channel": "card"}, result="paid"),
    ],
    final_output="paid",
    outcome="success",
)
PAY = """\
name: pay_back
tools: [{name: get_order, effect: read}, {name: pay, effect: write}]
input_schema: {type: object, properties: {order: {type: string}}, required: [order]}
steps:
  - {id: look, type: tool.call, tool: get_order, args: {order: "{{ order }}"}, save_as: found}
  - id: pay
    type: tool.call
    tool: pay
    args: {order: "{{ order }}", channel: card}
    agree: {order: [found.id]}
    save_as: done
  - {id: end, type: return, value: "{{ done }}"}
"""


def test_a_confirmed_value_is_a_constant_with_a_model_too(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(PAID))
    paid: list[Any] = []
    tools = {
        "get_order": lambda order: {"id": order, "sum": 12.5},
        "pay": lambda **args: paid.append(args) or "paid",
    }
    replies = [answer(PAY, ""), answer("name: x", "")]
    for reply in replies:
        client = ScriptedClient([reply] * 3)
        out = tmp_path / f"out{len(paid)}"
        found = llm_compile_trace_file(
            tmp_path / "trace.json", out, client, name="pay_back", confirm=["channel"]
        )
        assert found.by_model == (reply is replies[0]), found.problems
        result = run_routine(out, {"order": "#W2002"}, tools)
        assert result.status == "ok", result.pending_prompt
        assert paid[-1] == {"order": "#W2002", "channel": "card"}
    with pytest.raises(UsageError, match="does not ask for 'chanel'") as raised:
        llm_compile_trace_file(
            tmp_path / "trace.json", tmp_path / "no", ScriptedClient([]), confirm=["chanel"]
        )
    assert "channel" in raised.value.fix


# --- several traces -------------------------------------------------------------------------------


def looked_up(order: str, status: str) -> Trace:
    look = ToolCall(tool="get_order", args={"id": order}, result={"id": order, "status": status})
    idle = ToolCall(tool="get_weather", args={"city": "Porto"}, result="sunny", effect="read")
    note = ToolCall(tool="add_note", args={"id": order, "text": status}, result="ok")
    given = Mission("note the state", {"order": order})
    # What only some agents looked at is left out.
    reads = [look, idle] if status == "pending" else [look]
    return Trace(mission=given, events=[*reads, note], outcome="success")


NOTE = """\
version: "1"
name: note
description: Note the state of an order.
tools: [{name: get_order, effect: read}, {name: add_note, effect: write}]
steps:
  - {id: look, type: tool.call, tool: get_order, args: {id: "{{ order }}"}, save_as: found}
  - {id: note, type: tool.call, tool: add_note, save_as: noted,
     args: {id: "{{ order }}", text: "{{ found.status }}"}}
  - {id: done, type: return, value: "{{ noted }}"}
"""
STOPS = NOTE.replace(
    "  - {id: note,",
    "  - {id: sure, type: assert, check: 'found.status != \"delivered\"', message: sent already}\n"
    "  - {id: note,",
)


def test_the_model_gets_all_recordings_with_the_reads_that_were_left_out(tmp_path: Path) -> None:
    client = ScriptedClient([answer(NOTE, "")])
    with Memory(tmp_path / "em.db") as memory:
        states = {"#W10017": "pending", "#W20023": "delivered", "#W30031": "pending"}
        ids = [memory.add_trace(looked_up(*one)) for one in states.items()]
        made = memory.compile(ids, name="note", client=client)
    (request,) = client.requests
    assert all(order in request.prompt for order in states)
    assert "get_weather" in request.prompt
    assert [step.id for step in made.steps] == ["look", "note", "done"]
    assert made.trials.count("wrong") == 0


def test_trials_of_a_models_routine_say_that_the_model_was_shown_the_traces(
    tmp_path: Path,
) -> None:
    states = {"#W10017": "pending", "#W20023": "delivered", "#W30031": "pending"}
    with Memory(tmp_path / "em.db") as memory:
        ids = [memory.add_trace(looked_up(*one)) for one in states.items()]
        own = compile_several(memory.traces(), name="note").draft
        client = ScriptedClient([answer(NOTE, "")])
        written = compile_several(memory.traces(), name="note", client=client).draft
        stored = memory.compile(ids, name="note", client=ScriptedClient([answer(NOTE, "")]))
        assert stored.trials == written.trials
    said = "tried: right in 3 of 3, handed over in 0, wrong in 0"
    assert f"{said} (on the traces that its model was shown)" in written.proof
    assert not any("not learnt from" in one for one in written.proof)
    assert any("not learnt from" in one for one in own.proof)


def test_a_models_routine_that_stops_where_the_draft_does_not_is_not_taken(tmp_path: Path) -> None:
    client = ScriptedClient([answer(STOPS, "")] * 3)
    with Memory(tmp_path / "em.db") as memory:
        states = {"#W10017": "pending", "#W20023": "delivered", "#W30031": "pending"}
        ids = [memory.add_trace(looked_up(*one)) for one in states.items()]
        made = memory.compile(ids, name="note", client=client)
    assert "sure" not in [step.id for step in made.steps]
    assert "it stops, and the draft does not" in client.requests[1].prompt


# --- goal checks ----------------------------------------------------------------------------------


def _rewritten(draft: Any, *, with_check: bool) -> dict[str, str]:
    """The draft with a new name for its step, with or without the read after the effect."""
    steps = [
        msgspec.structs.replace(step, expects=())
        for step in draft.routine.steps
        if with_check or step.id != "get_order_2"
    ]
    routine = msgspec.structs.replace(draft.routine, steps=steps)
    return answer(render_routine(routine, {}), "")


@pytest.mark.parametrize("count", [1, 3])
def test_a_read_that_checks_an_effect_stays_with_what_it_must_show(count: int) -> None:
    post = Post()
    traces = [as_kept(post.cancelled(n), f"t{n}") for n in range(count)]
    draft = compile_several(traces).draft
    (check,) = (step for step in draft.routine.steps if step.id == "get_order_2")
    assert check.expects
    replies = [_rewritten(draft, with_check=False), _rewritten(draft, with_check=True)]
    client = ScriptedClient(replies)
    found = compile_several(traces, client=client).improved
    assert found is not None
    assert found.by_model, found.fell_back
    ((problem,),) = found.problems
    assert problem == "keep the read get_order where step get_order_2 was: it checks the effect"
    (kept,) = (step for step in found.draft.routine.steps if step.id == "get_order_2")
    assert [*kept.expects] == [*check.expects]
