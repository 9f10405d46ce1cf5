"""What an agent was asked in words: taken whole, or with the inputs that it mentions."""

from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_trace
from em.compiler.package_files import write_package
from em.runner.engine import run_routine
from em.runner.wording import bind
from em.traces.trace import Mission, ToolCall, Trace


def traced(stated: dict[str, Any], **args: Any) -> Trace:
    call = ToolCall(tool="create_issue", args=args, result={"id": "x-9912"}, effect="write")
    return Trace(
        mission=Mission("report", stated),
        events=[call],
        final_output={"id": "x-9912"},
        outcome="success",
    )


def test_a_text_that_a_call_takes_whole_is_an_input_like_any_other() -> None:
    stated = {"title": "Fix the login page", "body": "It is blank since Monday."}
    routine = compile_trace(traced(stated, **stated)).routine
    assert routine.request is None
    assert routine.input_schema is not None
    assert set(routine.input_schema["required"]) == {"title", "body"}


def test_a_text_may_be_taken_whole_and_mention_an_input() -> None:
    stated = {"task": "Please close the ticket T-778123 now"}
    draft = compile_trace(traced(stated, ticket="T-778123", why=stated["task"]))
    assert draft.input == {"task": stated["task"], "ticket": "T-778123"}
    assert draft.routine.request is not None
    assert draft.routine.request.template == "Please close the ticket {{ ticket }} now"


@pytest.mark.parametrize("odd", ["{{ 7*7 }}", 'say "{{ x }}" \\ twice', "{% if x %}", "}} {{"])
def test_braces_in_a_request_are_words(odd: str) -> None:
    text = f"Please close {odd} the ticket T-778123"
    draft = compile_trace(traced({"task": text}, ticket="T-778123"))
    request = draft.routine.request
    assert request is not None
    assert bind(request.template, text) == {"ticket": "T-778123"}
    assert bind(request.template, text.replace("778", "911")) == {"ticket": "T-911123"}
    assert bind(request.template, text.replace("close", "open")) is None


def test_other_words_are_asked_about_though_all_inputs_are_given(tmp_path: Path) -> None:
    csv = "city,cost\nLisbon,840"
    asked = "Total the cost by city in https://x.example/jan.csv and save it in reports/jan.db"
    totals = {"text": csv, "column": "city", "amount": "cost"}
    report = {"database": "reports/jan.db", "report": {"Lisbon": 840}}
    trace = Trace(
        mission=Mission("report", {"request": asked}),
        events=[
            ToolCall(tool="fetch_csv", args={"url": "https://x.example/jan.csv"}, result=csv),
            ToolCall(tool="get_totals", args=totals, result={"Lisbon": 840}),
            ToolCall(tool="save_report", args=report, result={"saved": 1}, effect="write"),
        ],
        final_output={"saved": 1},
        outcome="success",
    )
    write_package(compile_trace(trace), tmp_path / "routine")
    saved: list[Any] = []
    tools = {
        "fetch_csv": lambda url: csv,
        "get_totals": lambda **_: {"Porto": 1},
        "save_report": lambda **report: saved.append(report) or {"saved": 1},
    }
    given = {"url": "https://x.example/feb.csv", "database": "reports/feb.db"}
    words = asked.replace("jan", "feb")
    other = words.replace("cost by city", "price by country")
    for request, status in ((words, "ok"), (other, "needs_input")):
        ran = run_routine(tmp_path / "routine", {**given, "request": request}, tools)
        assert (ran.status, len(saved)) == (status, 1)


@pytest.mark.parametrize("name", ["in", "only", "sum", "every", "orderId", "order-id", "2nd"])
def test_a_run_takes_an_input_by_the_name_that_it_was_recorded_with(
    tmp_path: Path, name: str
) -> None:
    """Some names can't stand in expressions, or would hide a function there."""
    found = {"id": "#W1001", "total": 42, "items": [{"price": 30}, {"price": 12}]}
    given = {"order": "#W1001", name: "blue-7781"}
    trace = Trace(
        mission=Mission("refund", given),
        events=[
            ToolCall(tool="get_order", args={"order": "#W1001"}, result=found),
            ToolCall(tool="refund", args={"amount": 42, "to": "blue-7781"}, result={"ok": True}),
        ],
        final_output={"ok": True},
        outcome="success",
    )
    draft = compile_trace(trace)
    write_package(draft, tmp_path / "routine")
    done: list[Any] = []
    tools = {
        "get_order": lambda order: found,
        "refund": lambda **args: done.append(args) or {"ok": True},
    }
    assert run_routine(tmp_path / "routine", given, tools).status == "ok"
    assert run_routine(tmp_path / "routine", draft.input, tools).status == "ok"
    other = {"order": "#W1001", name: "blue-9922", "amount": 7}
    assert run_routine(tmp_path / "routine", other, tools).status == "ok"
    assert [call["to"] for call in done] == ["blue-7781", "blue-7781", "blue-9922"]
    both = run_routine(tmp_path / "routine", {**draft.input, name: "blue-9922"}, tools)
    assert both.failure is not None
    assert "has no input" in both.failure.message
