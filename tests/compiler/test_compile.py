"""A trace becomes a routine that does the same: learnt, named, and proved by replay."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings

from em.compiler.calls import infer_effect
from em.compiler.compile_trace import Compiled, compile_trace, compile_trace_file
from em.errors import InputError, RoutineError, UsageError
from em.runner.engine import run_routine
from em.runner.package import parse_yaml, read_routine
from em.traces.trace import Approval, Message, Mission, ToolCall, Trace, UdfCall, read_trace
from em.values.call import Usage
from em.values.canonical import identical
from strategies import examples, traces


def tool(name: str, result: Any = None, /, *, error: str | None = None, **args: Any) -> ToolCall:
    return ToolCall(tool=name, args=args, result=result, error=error)


def compiled(*events: Any, mission: dict[str, Any] | None = None, **rest: Any) -> Compiled:
    trace = Trace(mission=Mission(goal="do it", input_summary=mission or {}), events=events, **rest)
    return compile_trace(trace)


def calls_of(made: Compiled) -> list[str]:
    """Return the tools and functions that a routine calls, in the order of its steps."""
    steps = made.draft.document["steps"]
    return [step.get("tool") or step["function"] for step in steps if "args" in step]


def args_of(made: Compiled, tool: str) -> Any:
    (step,) = [one for one in made.draft.document["steps"] if one.get("tool") == tool]
    return step["args"]


def user(text: str) -> Message:
    return Message(role="user", text=text)


# --- which calls ----------------------------------------------------------------------------------


def test_failures_retries_and_repeats_are_gone_and_effects_stay() -> None:
    made = compiled(
        tool("find_user_by_email", error="Error: not found", email="a@x.example"),
        tool("find_user_by_name", {"id": "user_77"}, name="Ana Lopez"),
        tool("get_orders", ["#W1001"], user="user_77"),
        tool("get_orders", ["#W1001"], user="user_77"),
        tool("cancel_order", error="Error: reason missing", order="#W1001"),
        tool("cancel_order", {"status": "cancelled"}, order="#W1001", reason="mistake"),
    )
    assert calls_of(made) == ["find_user_by_name", "get_orders", "cancel_order"]


def test_a_write_that_was_repeated_because_its_effect_was_unknown_is_done_once() -> None:
    made = compiled(
        tool("pay", error="ReadTimeout", invoice="INV-77"), tool("pay", "ok", invoice="INV-77")
    )
    assert calls_of(made) == ["pay"]


def test_a_person_who_says_no_stops_what_was_done_after_a_yes(tmp_path: Path) -> None:
    trace = Trace(
        mission=Mission(goal="cancel", input_summary={"order": "#W1207"}),
        events=[
            Approval(prompt="Cancel order #W1207?", answer=True),
            tool("cancel_order", "done", order="#W1207"),
        ],
    )
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    cancelled: list[str] = []

    def run(**answers: Any) -> Any:
        tools = {"cancel_order": lambda order: cancelled.append(order) or "done"}
        return run_routine(tmp_path / "r", {"order": "#W9001"}, tools, answers=answers)

    waiting = run()
    assert waiting.pending_prompt.message == "Cancel order #W9001?"
    assert run(approval={"answer": False}).status == "needs_input"
    assert cancelled == []
    assert run(approval={"answer": True}).status == "ok"
    assert cancelled == ["#W9001"]


@pytest.mark.parametrize("answer", [3, 2.5, "text", None, ["a"], {"b": 1}])
def test_any_answer_compiles(answer: Any) -> None:
    made = compiled(Approval(prompt="{{ how }} many?", answer=answer), tool("send", 1))
    assert made.draft.proof is not None
    assert made.draft.proof.is_proved


@pytest.mark.parametrize("small", [1, 0.5, -0.25])
def test_a_number_beyond_all_floats_is_a_value_like_any_other(small: float) -> None:
    huge = 10**400
    found = {"items": [{"n": huge}, {"n": small}], "huge": huge, "small": small}
    made = compiled(
        tool("find_items", found), tool("send", 1, amount=huge, rest=small), mission={"h": huge + 1}
    )
    assert "send" in calls_of(made)


@pytest.mark.parametrize(
    "text",
    ["line1\u2028line2", "x\x85y\nz", "\n", " lead\n trail \n", "a\r\nb", "\t", "# no: [", "é\x00"],
)
def test_what_is_written_is_what_was_verified(tmp_path: Path, text: str) -> None:
    trace = Trace(mission=Mission(goal="g"), events=[tool("send", text, x=text)])
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    seen: list[str] = []
    run_routine(tmp_path / "r", {}, {"send": lambda x: seen.append(x) or text})
    assert seen == [text]


def test_a_comment_cannot_become_a_step(tmp_path: Path) -> None:
    key = "k\n  - {id: evil, type: tool.call, tool: rm}\n  #"
    trace = Trace(
        mission=Mission(goal="g"),
        events=[tool("get_x", {"items": ["abcd1", "abcd2"]}), tool("send", 1, **{key: "abcd2"})],
    )
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    routine = yaml.safe_load((tmp_path / "r" / "routine.yaml").read_text())
    assert {step["tool"] for step in routine["steps"] if "tool" in step} <= {"get_x", "send"}


def test_a_persons_files_beside_a_routine_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(Trace(events=[tool("get_a", 1)])))
    for _ in range(2):
        compile_trace_file(tmp_path / "t.json", tmp_path / "r")
        (tmp_path / "r" / "helpers.py").write_text("mine")
    assert (tmp_path / "r" / "helpers.py").read_text() == "mine"


def test_a_write_whose_effect_is_unknown_stays() -> None:
    made = compiled(
        tool("send_mail", error="ConnectionError: timed out", to="ana@x.example"),
        tool("get_time", "2025-04-07", zone="UTC"),
    )
    assert "send_mail" in calls_of(made)


def test_a_declared_effect_counts_more_than_a_name() -> None:
    trace = Trace(events=[tool("sync", {"a": 1}), tool("get_x", 1)])
    made = compile_trace(trace, declared={"sync": "read", "get_x": "write"})
    effects = {one.name: one.effect for one in made.draft.routine.tools}
    assert effects["get_x"] == "write"
    assert effects.get("sync", "read") == "read"


def test_keep_all_copies_one_to_one() -> None:
    trace = Trace(
        events=[tool("get_a", 1), tool("get_a", 1), tool("get_b", error="Error"), tool("get_c", 2)]
    )
    assert calls_of(compile_trace(trace, keep_all=True)) == ["get_a", "get_a", "get_c"]


# --- where values come from -----------------------------------------------------------------------

ORDER = {
    "order_id": "#W1001",
    "items": [
        {"name": "Desk Lamp", "item_id": "8384507844"},
        {"name": "Keyboard", "item_id": "1151293680"},
    ],
    "address": {"street": "1 Main Road", "city": "Porto", "country": "PT", "unit": ""},
    "payment": {"card_1": {"id": "card_1", "last": "4242"}},
}


def sent(*, said: str = "", mission: dict[str, Any] | None = None, **args: Any) -> Any:
    made = compiled(
        user(said),
        tool("get_order", ORDER, id="#W1001"),
        tool("send", None, **args),
        mission=mission,
    )
    return args_of(made, "send")


@pytest.mark.parametrize(
    ("value", "said", "expression"),
    [
        ("1 Main Road", "", "{{ order.address.street }}"),
        ("1151293680", "take 1151293680", "{{ x }}"),
        ("street 1 Main Road, ok", "", "street {{ order.address.street }}, ok"),
        ("1151293680", "", "{{ x }}"),
        ("nowhere to be found", "", "nowhere to be found"),
    ],
)
def test_a_value_is_taken_from_where_it_came_from(value: Any, said: str, expression: Any) -> None:
    assert sent(said=said, x=value) == {"x": expression}


def test_typed_inputs_come_first_and_nested_parts_too() -> None:
    assert sent(
        mission={"limit": 3, "to": {"mail": "ana@x.example"}},
        limit=3,
        where={"deep": ["ana@x.example"]},
    ) == {
        "limit": "{{ limit }}",
        "where": {"deep": ["{{ to.mail }}"]},
    }


def test_a_whole_result_is_passed_on_as_it_is() -> None:
    made = compiled(
        tool("get_order", ORDER, id="#W1001"),
        tool("send", None, body=ORDER),
        mission={"id": "#W1001"},
    )
    assert args_of(made, "send") == {"body": "{{ order }}"}


def test_a_small_number_that_a_function_computed_is_taken_from_it() -> None:
    made = compiled(
        tool("get_rows", [{"n": 40}, {"n": 2}]),
        UdfCall(function="total_of", args={"rows": [{"n": 40}, {"n": 2}]}, result=42),
        tool("send_report", "sent", total=42),
        final_output={"total": 42},
    )
    assert calls_of(made) == ["get_rows", "total_of", "send_report"]
    assert args_of(made, "send_report")["total"].startswith("{{ total")


@pytest.mark.parametrize("name", ["in", "only", "sum", "every", "orderId", "order-id", "2nd"])
def test_inputs_that_expressions_cannot_name_are_taken_under_their_recorded_names(
    tmp_path: Path, name: str
) -> None:
    events = [tool("cancel", "done", order="#W1207")]
    trace = Trace(mission=Mission(goal="x", input_summary={name: "#W1207"}), events=events)
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    cancelled: list[str] = []
    tools = {"cancel": lambda order: cancelled.append(order) or "done"}
    assert run_routine(tmp_path / "r", {name: "#W9"}, tools).status == "ok"
    assert cancelled == ["#W9"]


def test_equal_values_must_agree_when_the_routine_runs(tmp_path: Path) -> None:
    trace = Trace(
        mission=Mission(goal="grant", input_summary={"order": "#W1207"}),
        events=[
            tool("get_order", {"owner": "U-4711", "approver": "U-4711"}, order="#W1207"),
            tool("grant_access", "done", user="U-4711"),
        ],
    )
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    granted: list[str] = []

    def run(owner: str, approver: str) -> str:
        tools = {
            "get_order": lambda order: {"owner": owner, "approver": approver},
            "grant_access": lambda user: granted.append(user) or "done",
        }
        return run_routine(tmp_path / "r", {"order": "#W1"}, tools).status

    assert run("U-1", "U-2") == "needs_input"
    assert granted == []
    assert run("U-3", "U-3") == "ok"
    assert granted == ["U-3"]


# --- the package ----------------------------------------------------------------------------------


def test_functions_approvals_and_the_output(tmp_path: Path) -> None:
    trace = Trace(
        mission=Mission(goal="report", input_summary={"url": "http://x.example/a.csv"}),
        events=[
            tool("fetch_csv", "a,b\n1,2", url="http://x.example/a.csv"),
            UdfCall(function="parse", args={"text": "a,b\n1,2"}, result=[["a", "b"], ["1", "2"]]),
            Approval(prompt="Proceed?", answer=True),
        ],
        final_output={"rows": [["a", "b"], ["1", "2"]], "title": "fixed"},
    )
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    draft = compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    routine = yaml.safe_load((tmp_path / "r" / "routine.yaml").read_text())
    kinds = [step["type"] for step in routine["steps"] if step["type"] != "let"]
    assert kinds == ["tool.call", "udf.call", "prompt.user", "assert", "return"]
    assert routine["steps"][-1]["value"]["title"] == "fixed"
    assert draft.input == {"url": "http://x.example/a.csv"}
    files = {path.name for path in (tmp_path / "r").iterdir()}
    assert files == {
        "routine.yaml", "udf.py", "test_udf.py", "input.json", "expected_output.json",
        "recording.json", "proof.json",
    }  # fmt: skip
    stub = (tmp_path / "r" / "udf.py").read_text()
    assert "def parse(text):" in stub
    assert "NotImplementedError" in stub
    assert json.loads((tmp_path / "r" / "input.json").read_text()) == draft.input
    written = "def parse(text):\n    return [line.split(',') for line in text.splitlines()]\n"
    (tmp_path / "r" / "udf.py").write_text(written)
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    assert (tmp_path / "r" / "udf.py").read_text() == written, "a person's own code is kept"
    (asked,) = [step["id"] for step in routine["steps"] if step["type"] == "prompt.user"]
    result = run_routine(
        tmp_path / "r",
        draft.input,
        {"fetch_csv": lambda url: "a,b\n1,2"},
        answers={asked: {"answer": True}},
    )
    assert result.output == trace.final_output


def test_a_folder_of_something_else_is_left_alone_and_nothing_is_half_written(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(Trace(events=[tool("get_a", 1)])))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError):
        compile_trace_file(tmp_path / "t.json", tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "empty.json").write_bytes(msgspec.json.encode(Trace(mission=Mission(goal="x"))))
    with pytest.raises(RoutineError, match="no tool call"):
        compile_trace_file(tmp_path / "empty.json", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.json", "mine", "t.json"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"events": [{"type": "nope"}]}',
        b'{"version": "9"}',
        b"\xff",
        b"[" * 9999,
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "t.json").write_bytes(data)
    with pytest.raises(InputError):
        compile_trace_file(tmp_path / "t.json", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_trajectory_is_a_trace() -> None:
    text = {
        "task": "find it",
        "steps": [{"thought": "hm", "action": "get_a", "args": {"x": 1}, "observation": 2}],
        "outcome": "success",
    }
    trace = read_trace(json.dumps(text).encode(), "t")
    assert (trace.mission.goal, trace.outcome, len(trace.calls)) == ("find it", "success", 1)


def test_a_read_whose_result_nobody_can_find_in_the_output_is_still_made() -> None:
    made = compiled(
        tool("get_weather", {"sky": "sun"}, city="Porto"),
        mission={"city": "Porto"},
        final_output="Lovely weather!",
    )
    assert calls_of(made) == ["get_weather"]
    assert made.draft.output != "Lovely weather!", "it would be said whatever the weather is"


@pytest.mark.parametrize("result", ["hi", 2, True, None, "", 0])
def test_without_a_final_output_the_last_result_is_returned_whatever_it_is(result: Any) -> None:
    made = compiled(tool("update_name", result, name="Ana Lopez"), mission={"name": "Ana Lopez"})
    assert identical(made.draft.output, result)


@pytest.mark.parametrize(
    ("recorded", "other"),
    [("yes", "no, do not!"), ({"approved": True}, {"approved": False}), (3, 4), (None, "no")],
)
def test_what_follows_an_approval_runs_only_after_the_recorded_answer(
    tmp_path: Path, recorded: Any, other: Any
) -> None:
    (tmp_path / "trace.json").write_text(
        json.dumps(
            {
                "mission": {"goal": "refund it", "input_summary": {"order": "#W1207"}},
                "events": [
                    {"type": "approval", "prompt": "Refund?", "answer": recorded},
                    {"type": "tool_call", "tool": "refund", "args": {"order": "#W1207"}},
                ],
            }
        )
    )
    compile_trace_file(tmp_path / "trace.json", tmp_path / "r")
    made: list[str] = []
    tools = {"refund": lambda **args: made.append(args["order"])}
    for answer, status in ((other, "needs_input"), (recorded, "ok")):
        answers = {"approval": {"answer": answer}}
        result = run_routine(tmp_path / "r", {"order": "#W1207"}, tools, answers=answers)
        assert result.status == status
    assert made == ["#W1207"]


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("get_order", "read"),
        ("listFiles", "read"),
        ("find_user_by_email", "read"),
        ("search", "read"),
        ("check_in_guest", "write"),
        ("calculate", "write"),
        ("user_lookup", "write"),
        ("mark_as_read", "write"),
        ("cancel_order", "write"),
        ("getter", "write"),
        ("", "write"),
    ],
)
def test_an_undeclared_effect_is_a_write_unless_the_name_begins_with_a_reading_verb(
    name: str, effect: str
) -> None:
    assert infer_effect(name) == effect


# --- any trace ------------------------------------------------------------------------------------


@given(traces())
@settings(max_examples=examples(150), deadline=None)
def test_any_trace_compiles_into_a_routine_that_reproduces_it(trace: Trace) -> None:
    made = compile_trace(trace, allow_failed=True)
    assert made.draft.proof is not None
    assert made.draft.proof.is_proved
    written = read_routine(parse_yaml(made.files["routine.yaml"].encode(), "r"), "r")
    assert identical(msgspec.to_builtins(written), msgspec.to_builtins(made.draft.routine))


def test_what_the_agent_spent_is_summed_up_only_where_every_call_says_it() -> None:
    one = ToolCall(tool="get_a", tokens=100, cost_usd=0.5, duration_ms=2.0)
    full = Trace(events=[one, one])
    assert full.recorded_usage == Usage(tokens=200, cost_usd=1.0, duration_ms=4.0, calls=2)
    partly = Trace(events=[one, ToolCall(tool="get_b", duration_ms=1.0)])
    assert partly.recorded_usage == Usage(duration_ms=3.0, calls=2)
    told = Trace(events=[one], usage=Usage(tokens=7, model_calls=3))
    assert told.recorded_usage == Usage(
        tokens=7, cost_usd=0.5, duration_ms=2.0, model_calls=3, calls=1
    )


@pytest.mark.parametrize("escaped", ["/", "every"])
def test_a_secret_that_the_file_escapes_is_taken_out_too(tmp_path: Path, escaped: str) -> None:
    address = "postgres://admin:hunter2pw99@db.example/x"
    call = {"type": "tool_call", "tool": "send", "args": {"to": address}, "result": "ok-1"}
    trace = {"mission": {"goal": "send"}, "events": [call], "final_output": "ok-1"}
    every = "".join(f"\\u{ord(sign):04x}" for sign in address)
    text = json.dumps(trace).replace(
        address, every if escaped == "every" else address.replace("/", "\\/")
    )
    (tmp_path / "trace.json").write_text(text)
    compile_trace_file(tmp_path / "trace.json", tmp_path / "r")
    written = "".join(file.read_text() for file in (tmp_path / "r").iterdir())
    assert "hunter2pw99" not in written
    assert "[redacted:" in written or "secrets:" in written


def test_a_routine_that_a_person_edited_is_set_aside_when_it_is_compiled_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(Trace(events=[tool("get_a", 1)])))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    assert not list((tmp_path / "r").glob("*.old"))
    edited = "# read by Ana\n" + (tmp_path / "r" / "routine.yaml").read_text()
    (tmp_path / "r" / "routine.yaml").write_text(edited)
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    assert (tmp_path / "r" / "routine.yaml.old").read_text() == edited
    assert "Ana" not in (tmp_path / "r" / "routine.yaml").read_text()
