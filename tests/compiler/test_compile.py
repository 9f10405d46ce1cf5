"""A trace becomes a routine that does the same: pruned, wired, named, and proved by replay."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings

from em.compiler.calls import infer_effect
from em.compiler.compile_trace import compile_trace, compile_trace_file
from em.compiler.draft import Draft
from em.compiler.package_files import render_routine
from em.compiler.verification import NotReproduced, verify_draft
from em.errors import InputError, RoutineError, UsageError
from em.runner.engine import run_routine
from em.runner.package import parse_yaml, read_routine
from em.traces.trace import Approval, Message, Mission, ToolCall, Trace, UdfCall, read_trace
from em.values.call import Usage
from em.values.canonical import identical
from strategies import examples, traces


def tool(name: str, result: Any = None, /, *, error: str | None = None, **args: Any) -> ToolCall:
    return ToolCall(tool=name, args=args, result=result, error=error)


def compiled(*events: Any, mission: dict[str, Any] | None = None, **rest: Any) -> Draft:
    trace = Trace(mission=Mission(goal="do it", input_summary=mission or {}), events=events, **rest)
    return compile_trace(trace)


def verdicts(draft: Draft) -> list[tuple[bool, str]]:
    return [(verdict.keep, verdict.reason) for verdict in draft.verdicts]


def args_of(draft: Draft, step: int) -> Any:
    return draft.routine.steps[step].args  # type: ignore[union-attr]


def user(text: str) -> Message:
    return Message(role="user", text=text)


# --- pruning --------------------------------------------------------------------------------------


def test_failures_retries_repeats_and_dead_ends_are_gone_and_effects_stay() -> None:
    draft = compiled(
        tool("find_user_by_email", error="Error: not found", email="a@x.example"),
        tool("find_user_by_name", {"id": "user_77"}, name="Ana Lopez"),
        tool("get_weather", {"sky": "blue skies"}, city="Porto"),
        tool("get_orders", ["#W1001"], user="user_77"),
        tool("get_orders", ["#W1001"], user="user_77"),
        tool("cancel_order", error="Error: reason missing", order="#W1001"),
        tool("cancel_order", {"status": "cancelled"}, order="#W1001", reason="mistake"),
    )
    assert verdicts(draft) == [
        (False, "failed; retried successfully in call 2"),
        (True, "its result is used"),
        (False, "nothing uses its result"),
        (True, "its result is used"),
        (False, "repeats call 4"),
        (False, "failed; retried successfully in call 7"),
        (True, "it has an effect"),
    ]
    assert [item.name for item in draft.recording] == [
        "find_user_by_name",
        "get_orders",
        "cancel_order",
    ]


def test_a_read_after_an_effect_is_no_repeat() -> None:
    draft = compiled(
        tool("get_stock", {"left": 5001}, item="book"),
        tool("add_stock", None, item="book", count=5001),
        tool("get_stock", {"left": 10002}, item="book"),
        final_output={"left": 10002},
    )
    assert [verdict.keep for verdict in draft.verdicts] == [True, True, True]


def test_a_write_that_was_repeated_because_its_effect_was_unknown_is_done_once() -> None:
    draft = compiled(
        tool("pay", error="ReadTimeout", invoice="INV-77"), tool("pay", "ok", invoice="INV-77")
    )
    assert verdicts(draft)[0] == (False, "failed, effect unknown; call 2 did the same")
    assert len(draft.recording) == 1


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
    assert run(approval={"answer": False}).status == "failed"
    assert cancelled == []
    assert run(approval={"answer": True}).status == "ok"
    assert cancelled == ["#W9001"]


@pytest.mark.parametrize("answer", [3, 2.5, "text", None, ["a"], {"b": 1}])
def test_any_answer_compiles(answer: Any) -> None:
    draft = compiled(Approval(prompt="{{ how }} many?", answer=answer), tool("send", 1))
    assert draft.answers == {"approval": {"answer": answer}}


@pytest.mark.parametrize("small", [1, 0.5, -0.25])
def test_a_number_beyond_all_floats_is_a_value_like_any_other(small: float) -> None:
    huge = 10**400
    found = {"items": [{"n": huge}, {"n": small}], "huge": huge, "small": small}
    draft = compiled(
        tool("find_items", found), tool("send", 1, amount=huge, rest=small), mission={"h": huge + 1}
    )
    assert [keep for keep, _ in verdicts(draft)] == [True, True]


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
    assert [step["id"] for step in routine["steps"]] == ["get_x", "send", "return"]


def test_a_persons_files_beside_a_routine_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(Trace(events=[tool("get_a", 1)])))
    for _ in range(2):
        compile_trace_file(tmp_path / "t.json", tmp_path / "r")
        (tmp_path / "r" / "helpers.py").write_text("mine")
    assert (tmp_path / "r" / "helpers.py").read_text() == "mine"


def test_a_write_whose_effect_is_unknown_stays() -> None:
    draft = compiled(
        tool("send_mail", error="ConnectionError: timed out", to="ana@x.example"),
        tool("get_time", "2025-04-07", zone="UTC"),
    )
    assert verdicts(draft)[0] == (True, "failed; it is unknown whether it took effect")
    assert draft.routine.steps[0].on_error == "continue"


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("get_order", "read"),
        ("listFiles", "read"),
        ("user_lookup", "read"),
        ("calculate", "read"),
        ("cancel_order", "write"),
        ("orderCreate", "write"),
        ("get_and_delete", "write"),
        ("find_or_create_user", "write"),
        ("open_account", "write"),
        ("resolve_ticket", "write"),
        ("check_in_guest", "write"),
        ("frobnicate", "write"),
        ("", "write"),
    ],
)
def test_the_effect_of_a_tool_is_guessed_from_its_name_and_in_doubt_a_write(
    name: str, effect: str
) -> None:
    assert infer_effect(name) == effect


def test_a_declared_effect_counts_more_than_a_name() -> None:
    trace = Trace(events=[tool("sync", {"a": 1}), tool("get_x", 1)])
    draft = compile_trace(trace, declared={"sync": "read", "get_x": "write"})
    assert [verdict.keep for verdict in draft.verdicts] == [False, True]
    assert not draft.routine.tools[0].effect_inferred


def test_keep_all_copies_one_to_one() -> None:
    trace = Trace(events=[tool("get_a", 1), tool("get_a", 1), tool("get_b", error="Error")])
    draft = compile_trace(trace, keep_all=True)
    assert [verdict.keep for verdict in draft.verdicts] == [True, True, False]


# --- wiring ---------------------------------------------------------------------------------------

ORDER = {
    "order_id": "#W1001",
    "items": [
        {"name": "Desk Lamp", "item_id": "8384507844"},
        {"name": "Keyboard", "item_id": "1151293680"},
    ],
    "address": {"street": "1 Main Road", "city": "Porto", "country": "PT", "unit": ""},
    "payment": {"card_1": {"id": "card_1", "last": "4242"}},
}


def sent(*, said: str = "", mission: dict[str, Any] | None = None, **args: Any) -> Draft:
    return compiled(
        user(said),
        tool("get_order", ORDER, id="#W1001"),
        tool("send", None, **args),
        mission=mission,
    )


def wired(*, said: str = "", mission: dict[str, Any] | None = None, **args: Any) -> Any:
    draft = sent(said=said, mission=mission, **args)
    return args_of(draft, len(draft.routine.steps) - 2)


@pytest.mark.parametrize(
    ("value", "said", "expression"),
    [
        ("1 Main Road", "", "{{ order.address.street }}"),
        ("1151293680", "the keyboard please", "{{ pick(order.items, name=item_name).item_id }}"),
        ("1151293680", "take 1151293680", "{{ x }}"),
        ("street 1 Main Road, ok", "", "street {{ order.address.street }}, ok"),
    ],
)
def test_a_value_is_wired_to_where_it_came_from(value: Any, said: str, expression: Any) -> None:
    draft = sent(said=said, x=value)
    assert args_of(draft, len(draft.routine.steps) - 2) == {"x": expression}
    assert draft.routine.asks == {}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("card_1", ""),
        ("1151293680", ""),
        (1151293680, ""),
        ("nowhere to be found", ""),
        ("PT", ""),
        ("", ""),
        (1, "I want 1"),
        ("in", "put it in the box"),
        ("us", "help us"),
        (True, "true"),
        (None, ""),
        ("{{ hostile }}", ""),
        ([], ""),
        (["8384507844", "1151293680"], ""),
        ([{"a": 1}, {"a": 2}], ""),
    ],
)
def test_what_nothing_explains_is_asked_for_with_the_recorded_value_as_its_example(
    value: Any, said: str
) -> None:
    draft = sent(said=said, x=value)
    assert args_of(draft, len(draft.routine.steps) - 2) == {"x": "{{ x }}"}
    assert identical(draft.input["x"], value)
    assert identical(draft.routine.asks["x"].recorded, value)


def test_the_mission_comes_first_and_nested_parts_too() -> None:
    assert wired(
        mission={"limit": 3, "to": {"mail": "ana@x.example"}},
        limit=3,
        where={"deep": ["ana@x.example"]},
    ) == {
        "limit": "{{ limit }}",
        "where": {"deep": ["{{ to.mail }}"]},
    }


def test_the_mission_may_hold_a_mapping_by_id() -> None:
    mission = {"orders": {"#W1": {"id": "#W1", "zip": "10115"}}}
    assert wired(mission=mission, where="10115") == {"where": '{{ orders["#W1"].zip }}'}


def test_a_whole_result_is_passed_on_as_it_is() -> None:
    assert wired(body=ORDER) == {"body": "{{ order }}"}


def test_values_that_say_little_go_with_their_record() -> None:
    assert wired(street="1 Main Road", city="Porto", country="PT", unit="") == {
        "street": "{{ order.address.street }}",
        "city": "{{ order.address.city }}",
        "country": "{{ order.address.country }}",
        "unit": "{{ order.address.unit }}",
    }


def test_an_item_is_found_by_a_field_of_a_mapping_in_it() -> None:
    variants = [
        {"id": "8384507844", "options": {"colour": "midnight blue"}},
        {"id": "1151293680", "options": {"colour": "forest green"}},
    ]
    draft = compiled(
        user("the one in forest green, please"),
        tool("get_product", {"variants": variants}, id="P-4711"),
        tool("order", None, item="1151293680"),
    )
    (step,) = [one for one in draft.routine.steps if one.id == "order"]
    expression = 'pick_at(product.variants, "options.colour", variant_name).id'
    assert step.args == {"item": f"{{{{ {expression} }}}}"}  # type: ignore[union-attr]


def test_a_choice_that_nothing_explains_must_be_one_of_the_same_list() -> None:
    draft = sent(x="1151293680")
    (step,) = [one for one in draft.routine.steps if one.id == "send"]
    assert step.agree == {"x": ['among(every(order, "items.*.item_id"), x)']}  # type: ignore[union-attr]


def test_a_value_said_in_another_case_is_no_obstacle() -> None:
    draft = compiled(
        user("my order w1234abc"),
        tool("get_a", 1, id="w1234abc"),
        tool("send", 1, id="W1234ABC", other="w1234abc"),
    )
    assert draft.input == {"id": "W1234ABC", "other": "w1234abc"}


def test_inputs_are_what_was_stated_and_said_and_nothing_else() -> None:
    draft = compiled(
        user("I am Ana, order #W1001"),
        tool("get_order", ORDER, id="#W1001"),
        tool("send", None, to="Ana", text="constant words", id="8384507844"),
        mission={"channel": "mail-97"},
    )
    assert draft.input == {
        "channel": "mail-97",
        "get_order_id": "#W1001",
        "send_id": "8384507844",
        "to": "Ana",
        "text": "constant words",
    }
    schema = draft.routine.input_schema
    assert schema is not None
    assert set(schema["properties"]) == {*draft.input, "request"}
    assert schema["properties"]["to"] == {"type": "string", "examples": ["Ana"]}
    assert schema["additionalProperties"] is False
    asked = {name: one.is_unused for name, one in draft.routine.asks.items()}
    assert asked == {"send_id": False, "to": False, "text": False, "channel": True}


def test_a_compiled_routine_runs_on_new_input(tmp_path: Path) -> None:
    trace = Trace(
        mission=Mission(goal="lamp"),
        events=[
            user("exchange the desk lamp of #W1001"),
            tool("get_order", ORDER, id="#W1001"),
            tool("exchange", {"done": "8384507844"}, item="8384507844"),
        ],
    )
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(trace))
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    items = [{"name": "desk LAMP", "item_id": "55"}, {"name": "Cup", "item_id": "66"}]
    other = {**ORDER, "order_id": "#W2", "items": items}
    seen: list[Any] = []
    result = run_routine(
        tmp_path / "r",
        {"id": "#W2", "item_name": "Desk Lamp"},
        {"get_order": lambda id: seen.append(id) or other, "exchange": lambda item: {"done": item}},  # noqa: A006 - the tool's own name
    )
    assert (result.output, seen) == ({"done": "55"}, ["#W2"])


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
    assert [(step["id"], step["type"]) for step in routine["steps"]] == [
        ("fetch_csv", "tool.call"),
        ("parse", "udf.call"),
        ("approval", "prompt.user"),
        ("as_approved", "assert"),
        ("return", "return"),
    ]
    assert routine["steps"][-1]["value"] == {"rows": "{{ parse_result }}", "title": "fixed"}
    assert draft.input == {"url": "http://x.example/a.csv"}
    files = {path.name for path in (tmp_path / "r").iterdir()}
    assert files == {
        "routine.yaml", "udf.py", "test_udf.py", "input.json", "expected_output.json",
        "recording.json",
    }  # fmt: skip
    stub = (tmp_path / "r" / "udf.py").read_text()
    assert "def parse(text):" in stub
    assert "NotImplementedError" in stub
    assert json.loads((tmp_path / "r" / "input.json").read_text()) == draft.input
    written = "def parse(text):\n    return [line.split(',') for line in text.splitlines()]\n"
    (tmp_path / "r" / "udf.py").write_text(written)
    compile_trace_file(tmp_path / "t.json", tmp_path / "r")
    assert (tmp_path / "r" / "udf.py").read_text() == written, "a person's own code is kept"
    result = run_routine(
        tmp_path / "r",
        draft.input,
        {"fetch_csv": lambda url: "a,b\n1,2"},
        answers={"approval": {"answer": True}},
    )
    assert result.output == trace.final_output


def test_what_does_not_reproduce_its_trace_is_told_side_by_side() -> None:
    draft = compiled(tool("get_a", {"id": "value-1"}, x="in"), tool("send", 1, x="value-1"))
    broken = msgspec.structs.replace(
        draft,
        routine=msgspec.structs.replace(
            draft.routine,
            steps=[
                draft.routine.steps[0],
                msgspec.structs.replace(draft.routine.steps[1], args={"x": "other"}),
                *draft.routine.steps[2:],
            ],
        ),
    )
    with pytest.raises(NotReproduced) as caught:
        verify_draft(broken)
    assert caught.value.place == "step send"
    assert caught.value.data == {"recorded": {"x": "value-1"}, "replayed": {"x": "other"}}
    with pytest.raises(NotReproduced, match="output differs"):
        verify_draft(msgspec.structs.replace(draft, output=2))
    fewer = msgspec.structs.replace(draft.routine, steps=draft.routine.steps[:1])
    with pytest.raises(NotReproduced, match="the replay failed"):
        verify_draft(msgspec.structs.replace(draft, routine=fewer))


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


def test_a_small_number_that_a_function_computed_is_taken_from_it() -> None:
    draft = compiled(
        tool("get_rows", [{"n": 40}, {"n": 2}]),
        UdfCall(function="total_of", args={"rows": [{"n": 40}, {"n": 2}]}, result=42),
        tool("send_report", "sent", total=42, copies=2),
        final_output={"total": 42},
    )
    steps = draft.routine.steps
    assert [step.id for step in steps] == ["get_rows", "total_of", "send_report", "return"]
    assert steps[2].args == {"total": "{{ total_of_result }}", "copies": "{{ copies }}"}  # type: ignore[union-attr]
    assert steps[3].value == {"total": "{{ total_of_result }}"}  # type: ignore[union-attr]


def test_a_number_that_one_call_gave_is_a_candidate_and_one_input_also_inside_texts() -> None:
    draft = compiled(
        tool("get_order", {"id": "#W1207", "total": 42}, order="#W1207"),
        Approval(prompt="Refund 42 euros, not 420?", answer=True),
        tool("refund", {"id": "R1"}, order="#W1207", amount=42),
        mission={"order": "#W1207"},
        final_output={"refund": "R1", "text": "42 were refunded"},
    )
    _, asked, _, refund, end = draft.routine.steps
    assert asked.prompt.message == "Refund {{ amount }} euros, not 420?"  # type: ignore[union-attr]
    assert refund.args["amount"] == "{{ amount }}"  # type: ignore[union-attr]
    assert draft.routine.asks["amount"].candidates == ["order_2.total", "42"]
    assert end.value["refund"] == "{{ refund_result.id }}"  # type: ignore[union-attr]
    assert end.value["text"] == "{{ amount }} were refunded"  # type: ignore[union-attr]


def test_a_number_that_stands_in_several_places_is_asked_for_with_all_of_them() -> None:
    draft = compiled(
        tool("get_order", {"total": 42, "weight": 42}, order="#W1207"),
        tool("refund", "done", amount=42, order="#W1207"),
        mission={"order": "#W1207"},
    )
    candidates = draft.routine.asks["amount"].candidates
    assert candidates == ["order_2.total", "order_2.weight", "42"]


def test_a_read_whose_result_nobody_can_find_in_the_output_is_still_made() -> None:
    draft = compiled(
        tool("get_weather", {"sky": "sun"}, city="Porto"),
        mission={"city": "Porto"},
        final_output="Lovely weather!",
    )
    assert [step.id for step in draft.routine.steps] == ["get_weather", "return"]


@pytest.mark.parametrize("result", ["hi", 2, True, None, "", 0])
def test_without_a_final_output_the_last_result_is_returned_whatever_it_is(result: Any) -> None:
    draft = compiled(tool("update_name", result, name="Ana Lopez"), mission={"name": "Ana Lopez"})
    assert draft.routine.steps[-1].value == "{{ update_name_result }}"  # type: ignore[union-attr]


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
    for answer, status in ((other, "failed"), (recorded, "ok")):
        answers = {"approval": {"answer": answer}}
        result = run_routine(tmp_path / "r", {"order": "#W1207"}, tools, answers=answers)
        assert result.status == status
    assert made == ["#W1207"]


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("get_order", "read"),
        ("list_all_products", "read"),
        ("github_search_issues", "read"),
        ("find_user_by_email", "read"),
        ("orders.fetch", "read"),
        ("mark_as_read", "write"),
        ("unsubscribe_from_list", "write"),
        ("drop_view", "write"),
        ("purge_list", "write"),
        ("run_query", "write"),
        ("kill_query", "write"),
        ("find_and_replace", "write"),
        ("fetch_and_lock", "write"),
        ("git_reset_head", "write"),
        ("decrement_count", "write"),
        ("x", "write"),
    ],
)
def test_an_effect_is_inferred_and_in_doubt_it_is_a_write(name: str, effect: str) -> None:
    assert infer_effect(name) == effect


def test_equal_values_must_agree_when_the_routine_runs() -> None:
    draft = compiled(
        tool("get_order", {"owner": "U-4711", "approver": "U-4711"}, order="#W1207"),
        tool("grant_access", "done", user="U-4711"),
        mission={"order": "#W1207"},
    )
    (step,) = [one for one in draft.routine.steps if one.id == "grant_access"]
    assert step.args == {"user": "{{ order_2.owner }}"}  # type: ignore[union-attr]
    assert step.agree == {"user": ["order_2.approver"]}  # type: ignore[union-attr]


# --- any trace ------------------------------------------------------------------------------------


@given(traces())
@settings(max_examples=examples(300), deadline=None)
def test_any_trace_compiles_into_a_routine_that_reproduces_it(trace: Trace) -> None:
    draft = compile_trace(trace, allow_failed=True)
    assert len(draft.recording) <= len(trace.calls)
    text = render_routine(draft.routine, draft.comments)
    written = read_routine(parse_yaml(text.encode(), "routine.yaml"), "routine.yaml")
    assert identical(msgspec.to_builtins(written), msgspec.to_builtins(draft.routine))


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
