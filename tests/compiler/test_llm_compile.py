"""A model improves a draft; what it wrote must hold, or the draft is kept."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.compiler.compile_trace import compile_several, compile_trace, without_secrets
from em.compiler.llm_compile import Improved, llm_compile_trace_file
from em.compiler.replay_world import POLICIES
from em.errors import LlmUnavailable
from em.llm import ScriptedClient
from em.runner.engine import run_routine
from em.runner.trial import LEFT_OUT
from em.traces.trace import Mission, ToolCall, Trace, UdfCall

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
  - {id: apart, type: assert, check: 'distinct(every(orders, "id"))'}
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


def with_model(trace: Trace, client: ScriptedClient) -> Improved:
    made = compile_trace(without_secrets(trace), client=client)
    assert made.improved is not None
    return made.improved


def improved(*replies: Any) -> tuple[Improved, ScriptedClient]:
    client = ScriptedClient(list(replies))
    return with_model(TRACE, client), client


def test_a_routine_that_holds_is_taken(tmp_path: Path) -> None:
    found, client = improved(answer())
    assert found.by_model
    assert [step.id for step in found.draft.routine.steps] == [
        "find",
        "apart",
        "sum",
        "cancel",
        "done",
    ]
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


def test_a_step_of_the_model_expects_of_its_result_what_the_draft_does(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(TRACE))
    llm_compile_trace_file(tmp_path / "trace.json", tmp_path / "out", ScriptedClient([answer()]))
    cancelled: list[str] = []
    tools = {
        "find_orders": lambda user: [{"id": f"{user}-{n}", "total": n} for n in (1, 2, 3)],
        "cancel_order": lambda **args: cancelled.append(args["id"]),
    }
    result = run_routine(tmp_path / "out", {"user": "bo"}, tools)
    assert result.failure is not None
    assert cancelled == ["bo-1"], "the recorded result was a text, and nothing is none"


def changed(old: str, new: str) -> dict[str, str]:
    assert old in ROUTINE
    return answer(ROUTINE.replace(old, new))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (answer("steps: ["), "not valid YAML"),
        (changed("tool: find_orders, args", "tool: find_order, args"), "find_order"),
        (changed("{{ user }}", "ana_lopez"), 'find_orders({"user":"ana_lopez"}) was not recorded'),
        (answer(udf="def total_of(orders):\n    return 41\n"), "returns 41"),
        (answer(udf="def total_of(orders):\n    return 1 / 0\n"), "ZeroDivisionError"),
        (answer(udf="import os\ndef total_of(orders):\n    return os.getpid()\n"), "returns"),
        (answer(udf="def total_of(orders:\n"), "udf.py:1"),
        (changed("for_each: ", "when: 'false', for_each: "), "not have called cancel_order"),
        (changed("{{ order.id }}", "{{ order.total }}"), "would have called cancel_order"),
        (changed('refund: "{{ refund }}"', "refund: 1"), 'should return {"refund":42}'),
        (answer(ROUTINE.replace("user: {type", "name: {type").replace("{{ user", "{{ name")),
         "'name' is not defined"),
        (answer(udf=UDF + "def id_of():\n    return '#W1001'\n"), "\"#W1001\" is hard-coded"),
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
    assert found.draft.document == compile_trace(TRACE).draft.document


def test_a_model_that_can_not_be_asked_costs_nothing_but_its_help() -> None:
    found, _ = improved(LlmUnavailable("no answer"))
    assert not found.by_model
    assert "no answer" in found.problems[0][0]
    assert "no answer" in found.fell_back
    assert found.draft.udf_source == ""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("def total_of(orders):\n    return 42\n", "does not use its arguments"),
        ("def total_of(orders):\n    return len(orders) * 21 if '#W1001' else 0\n", "hard-coded"),
        ("def total_of(orders):\n    return helper(orders)\n", "helper"),
        ("def other(orders):\n    return 42\n", "there is no function 'total_of'"),
    ],
)
def test_a_function_that_only_seems_to_reproduce_is_refused(code: str, why: str) -> None:
    found, _ = improved(*[answer(udf=code)] * 3)
    assert (found.by_model, found.draft.udf_source) == (False, "")
    assert why in found.problems[0][0]


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
description: Pay an order back.
tools: [{name: get_order, effect: read}, {name: pay, effect: write}]
steps:
  - {id: look, type: tool.call, tool: get_order, args: {order: "{{ order }}"}, save_as: found}
  - {id: own, type: assert, check: found.id == order}
  - {id: pay, type: tool.call, tool: pay, args: {order: "{{ order }}", channel: CHANNEL},
     save_as: done}
  - {id: end, type: return, value: "{{ done }}"}
"""


def paid(out: Path, **given: str) -> tuple[str, list[Any]]:
    done: list[Any] = []
    tools = {
        "get_order": lambda order: {"id": order, "sum": 12.5},
        "pay": lambda **args: done.append(args) or "paid",
    }
    return run_routine(out, {"order": "#W2002", **given}, tools).status, done


@pytest.mark.parametrize("routine", [PAY.replace("CHANNEL", '"{{ channel }}"'), ""])
def test_a_constant_that_the_model_says_varies_becomes_an_input(
    tmp_path: Path, routine: str
) -> None:
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(PAID))
    client = ScriptedClient([{**answer(routine, ""), "inputs": ["pay.channel"]}])
    found = llm_compile_trace_file(tmp_path / "trace.json", tmp_path / "out", client)
    assert found.by_model, found.problems
    assert [*found.inputs] == ["pay.channel"]
    assert "channel" in (found.draft.routine.input_schema or {})["properties"]
    status, done = paid(tmp_path / "out", channel="cash")
    assert (status, done) == ("ok", [{"order": "#W2002", "channel": "cash"}])
    assert paid(tmp_path / "out") == ("needs_input", [])


def test_a_constant_stays_one_that_the_model_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(msgspec.json.encode(PAID))
    replies = [
        {**answer("", ""), "inputs": ["pay.chanel"]},
        answer(PAY.replace("CHANNEL", "card"), ""),
    ]
    client = ScriptedClient(replies)
    found = llm_compile_trace_file(tmp_path / "trace.json", tmp_path / "out", client)
    assert "pay.chanel" in found.problems[0][0]
    assert (found.by_model, [*found.inputs]) == (True, [])
    assert paid(tmp_path / "out") == ("ok", [{"order": "#W2002", "channel": "card"}])


# --- several traces -------------------------------------------------------------------------------


def looked_up(order: str, status: str) -> Trace:
    look = ToolCall(tool="get_order", args={"id": order}, result={"id": order, "status": status})
    idle = ToolCall(tool="get_weather", args={"city": "Porto"}, result="sunny", effect="read")
    note = ToolCall(tool="add_note", args={"id": order, "text": status}, result="ok")
    given = Mission("note the state", {"order": order})
    # What only some agents looked at is left out.
    reads = [look, idle] if status == "delivered" else [look]
    return Trace(mission=given, events=[*reads, note], outcome="success")


NOTE = """\
version: "1"
name: note
description: Note the state of an order.
tools: [{name: get_order, effect: read}, {name: add_note, effect: write}]
steps:
  - {id: look, type: tool.call, tool: get_order, args: {id: "{{ order }}"}, save_as: found}
  - {id: own, type: assert, check: found.id == order}
  - {id: note, type: tool.call, tool: add_note, save_as: noted,
     args: {id: "{{ order }}", text: "{{ found.status }}"}}
  - {id: done, type: return, value: "{{ noted }}"}
"""
STOPS = NOTE.replace(
    "  - {id: note,",
    "  - {id: sure, type: assert, check: 'found.status != \"delivered\"', message: sent already}\n"
    "  - {id: note,",
)


STATES = {"#W10017": "delivered", "#W20023": "pending", "#W30031": "pending"}


def test_the_model_gets_recordings_and_of_those_held_back_only_the_requests(
    tmp_path: Path,
) -> None:
    client = ScriptedClient([answer(NOTE, "")])
    with Memory(tmp_path / "em.db") as memory:
        ids = [memory.add_trace(looked_up(*one)) for one in STATES.items()]
        made = memory.compile(ids, name="note", client=client)
    (request,) = client.requests
    told = msgspec.json.decode(request.prompt.partition("\n\nWhat stands above")[0])
    assert [len(told[one]) for one in ("recordings", "held_back")] == [2, 1]
    assert all(order in str(told["recordings"]) for order in ("#W10017", "#W30031"))
    assert "#W20023" not in str(told["recordings"])
    assert "calls" not in told["held_back"][0]
    assert "get_weather" in request.prompt, "what the draft leaves out"
    assert [step.id for step in made.steps] == ["look", "own", "note", "done"]


def test_trials_of_a_models_routine_say_which_recordings_it_was_not_shown(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for one in STATES.items():
            memory.add_trace(looked_up(*one))
        client = ScriptedClient([answer(NOTE, "")])
        own = compile_several(memory.traces(), name="note").draft.proof
        written = compile_several(memory.traces(), name="note", client=client).draft.proof
    assert own is not None
    assert written is not None
    assert (len(own.trials[LEFT_OUT]), len(written.trials[LEFT_OUT])) == (3, 1)
    assert {how: written.count("right", how) for how in POLICIES} == dict.fromkeys(POLICIES, 3)
    assert written.why_not_alone, "one recording held back is too few"


def test_a_models_routine_that_stops_where_the_draft_does_not_is_not_taken(tmp_path: Path) -> None:
    client = ScriptedClient([answer(STOPS, "")] * 3)
    with Memory(tmp_path / "em.db") as memory:
        states = {"#W10017": "pending", "#W20023": "delivered", "#W30031": "pending"}
        ids = [memory.add_trace(looked_up(*one)) for one in states.items()]
        made = memory.compile(ids, name="note", client=client)
    assert "sure" not in [step.id for step in made.steps]
    assert "it stops, and what em learnt does not" in client.requests[1].prompt
