"""What an agent was asked in words: taken whole, or with the inputs that it mentions."""

from typing import Any

import pytest

from em.compiler.compile_trace import compile_trace
from em.runner.agreement import bind
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
