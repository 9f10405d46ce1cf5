"""Lessons are mined from what really happened, with the events that show it, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.errors import BadAnswer, LlmError, LlmRefused
from em.heuristics.failure import error_shape
from em.heuristics.heuristic import Lesson
from em.heuristics.reflection import differences, mine, reflect
from em.llm import ScriptedClient
from em.llm.wires import Reply
from em.traces.trace import (
    KeptTrace,
    Message,
    Mission,
    Outcome,
    ToolCall,
    Trace,
    TraceEvent,
    as_kept,
)


def call(tool: str, error: str | None = None, result: Any = "ok", **args: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args, error=error, result=None if error else result)


def attempt(
    *events: TraceEvent, goal: str = "help", outcome: Outcome = "success", name: str = "t"
) -> KeptTrace:
    trace = Trace(mission=Mission(goal), events=events, outcome=outcome)
    return as_kept(trace, name)


def lessons(*events: TraceEvent) -> list[Lesson]:
    return mine(attempt(*events))


def test_an_empty_trace_teaches_nothing() -> None:
    assert lessons() == []
    assert lessons(Message(role="user", text="I had an error yesterday")) == []
    assert lessons(call("get_order", order_id="W1")) == []


def test_a_changed_argument_that_worked_is_the_lesson_and_the_two_calls_are_its_evidence() -> None:
    found = lessons(
        call("get_user", id="u1", result={"cards": {"card_77": {"kind": "visa"}}}),
        call("pay", "Error: card not found", order="W1", card="card_99"),
        call("pay", order="W1", card="card_77"),
    )
    (lesson,) = found
    assert lesson.trigger == "pay fails with: card not found"
    assert lesson.action.startswith("Call it again with another card as get_user gives it")
    assert (lesson.how, lesson.polarity, lesson.tools) == ("recovery", "success", ["pay"])
    assert list(lesson.evidence.failed) == ["t-2"]
    assert list(lesson.evidence.worked) == ["t-3"]


def test_another_tool_that_gives_the_same_thing_is_a_recovery() -> None:
    (lesson,) = lessons(
        call("find_user_by_email", "Error: user not found", email="a@b.c"),
        call("find_user_by_name", first="Ana", last="Lima"),
    )
    assert lesson.action == "Use find_user_by_name instead, with first and last."


def test_another_tool_that_takes_over_all_of_the_arguments_is_a_recovery() -> None:
    (lesson,) = lessons(
        call("exchange_order", "Error: not delivered", order="W1", items=["i1"]),
        call("modify_order", order="W1", items=["i1"]),
    )
    assert lesson.action.startswith("Use modify_order instead")


def test_the_same_call_that_works_later_says_what_came_between() -> None:
    (again,) = lessons(call("get", "busy", id="x1"), call("get", id="x1"))
    (after,) = lessons(call("get", "not signed in", id="x1"), call("login"), call("get", id="x1"))
    assert again.action == "It is not known what helps."
    assert after.action == "First login(), then make the same call again."


def test_an_error_that_only_says_that_something_failed_teaches_nothing() -> None:
    for error in ("Exit code 1", "Error: failed", "", "exit status 2"):
        assert lessons(call("get", error, id="x1"), call("login"), call("get", id="x1")) == []


@pytest.mark.parametrize("error", ["Exit code 1\nno such file", "exit code 2: no such file"])
def test_an_error_is_what_was_printed_and_not_the_exit_code(error: str) -> None:
    assert error_shape(error) == "no such file"
    assert error_shape("Exit code 1") == "Exit code …"


def test_success_with_another_object_is_no_recovery() -> None:
    found = lessons(
        call("cancel_order", "Error: not pending", order_id="#W4073673", reason="no need"),
        call("cancel_order", order_id="#W3826449", reason="no need"),
        call("get_order", "Error: not found", order_id="#W1111111"),
        call("get_order", order_id="#W2222222"),
    )
    assert {lesson.how for lesson in found} <= {"dead_end"}


def test_another_spelling_of_the_same_id_is_a_recovery() -> None:
    (lesson,) = lessons(
        call("get_order", "Error: order not found", order_id="#9502127"),
        call("get_order", order_id="#W9502127"),
    )
    assert lesson.how == "recovery"


def test_made_up_values_are_named_as_such_and_said_ones_are_not() -> None:
    swap = call("swap", "Error: item 991122 is not there", item="991122")
    (made_up,) = lessons(swap)
    assert made_up.action.startswith("Don't make up item")
    assert made_up.polarity == "failure"
    assert made_up.trigger == "swap fails with: item … is not there"
    assert lessons(Message(role="user", text="I want 991122."), swap) == []


def test_the_same_failing_in_one_attempt_is_one_lesson_with_all_its_evidence() -> None:
    (lesson,) = lessons(*(call("swap", f"Error: no item {n}", item=f"{n}") for n in (7001, 7002)))
    assert list(lesson.evidence.failed) == ["t-1", "t-2"]


def test_one_task_failed_twice_and_solved_twice_gives_the_one_difference() -> None:
    solved = [attempt(call("pay", order="W1", speed="express"), name=f"t{n}") for n in range(2)]
    failed = [
        attempt(call("pay", order="W1", speed="slow"), outcome="failure", name=f"f{n}")
        for n in range(2)
    ]
    (lesson,) = differences([*solved, *failed])
    assert lesson.action == 'Call pay with speed="express", not "slow".'
    assert "both attempts that failed with" in lesson.analysis
    assert list(lesson.evidence.failed) == ["f0-1", "f1-1"]
    assert list(lesson.evidence.worked) == ["t0-1", "t1-1"]
    assert differences([solved[0], *failed]) == []  # one attempt only goes along with it
    assert lesson.holds_for(" help ")
    assert not lesson.holds_for("help me, too")  # another task, perhaps of another person


def test_values_of_one_person_or_thing_are_no_difference_to_learn() -> None:
    solved = [attempt(call("cancel", order="W1"), name=f"t{n}") for n in range(2)]
    failed = [attempt(call("cancel", order="W9"), outcome="failure", name=f"f{n}") for n in "ab"]
    assert differences([*solved, *failed]) == []


def test_of_several_differences_nobody_knows_which_mattered() -> None:
    solved = [
        attempt(
            call("pay", order="W1", speed="express"), call("ship_order", order="W1"), name=f"t{n}"
        )
        for n in range(2)
    ]
    failed = [
        attempt(call("pay", order="W1", speed="slow"), outcome="failure", name=f"f{n}")
        for n in range(2)
    ]
    assert differences([*solved, *failed]) == []


def test_attempts_that_nothing_labels_are_compared_by_their_test_runs() -> None:
    def made(name: str, flag: str, error: str | None) -> KeptTrace:
        tests = call("Bash", error, command="pytest")
        return attempt(call("set_flag", name=flag), tests, outcome="unknown", name=name)

    solved = [made(f"t{n}", "on", None) for n in range(2)]
    failed = [made(f"f{n}", "off", "Exit code 1\n1 failed") for n in range(2)]
    (lesson,) = differences([*solved, *failed])
    assert lesson.action == 'Call set_flag with name="on", not "off".'


def test_what_only_some_solvers_did_is_no_difference_that_mattered() -> None:
    attempts = [
        attempt(call("pay", order="W1"), call("send_mail")),
        attempt(call("pay", order="W1"), name="t2"),
        attempt(call("pay", order="W1"), outcome="failure", name="f"),
        attempt(call("pay", order="W1"), outcome="unknown", name="u"),
    ]
    assert differences(attempts) == []


@pytest.mark.parametrize(
    ("error", "shape"),
    [
        ("Error: order #W123 not found", "order … not found"),
        ("ValueError: 'abc' is no number", "ValueError: … is no number"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'id'", "KeyError: …"),
        ({"message": "quota of 500 exceeded"}, "quota of … exceeded"),
        ("404", "404"),
        ("", "an error without words"),
        ("connect to 10.0.0.1:80 for bob@example.com", "connect to … for …"),
    ],
)
def test_errors_are_told_apart_by_their_words_not_by_their_values(error: Any, shape: str) -> None:
    assert error_shape(error) == shape


_calls = st.builds(
    lambda tool, error, args: call(tool, error, **args),
    st.sampled_from(["get_a", "set_b", "find_a_by_x"]),
    st.sampled_from([None, None, "Error: no 12", "Error: busy"]),
    st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["v1", "v22", [1], None, {}])),
)


@given(st.lists(_calls, max_size=8))
def test_every_lesson_has_evidence_from_its_own_trace(events: list[ToolCall]) -> None:
    kept = attempt(*events)
    found = mine(kept)
    ids = set(kept.happened_ids)
    failed = {
        event_id
        for event, event_id in zip(kept.trace.events, kept.happened_ids, strict=True)
        if isinstance(event, ToolCall) and event.error is not None
    }
    assert all(lesson.evidence.failed for lesson in found)
    assert all(set(lesson.evidence.event_ids) <= ids for lesson in found)
    assert all(set(lesson.evidence.failed) <= failed for lesson in found)


SAID = {
    "trigger": "an insert fails on a foreign key",
    "action": "insert the parent row first",
    "analysis": "call 1 failed for want of the parent",
    "polarity": "failure",
    "tools": ["insert"],
    "calls": [1],
}


def test_a_model_says_lessons_in_words_and_names_the_calls_that_show_them() -> None:
    kept = attempt(call("insert", "Error: foreign key", password="hunter2hunter2"))
    client = ScriptedClient([{"lessons": [SAID]}])
    (lesson,) = reflect(kept, client)
    assert (lesson.how, lesson.trigger) == ("model", SAID["trigger"])
    assert list(lesson.evidence.failed) == ["t-1"]
    assert "hunter2" not in client.requests[0].prompt
    assert "failed: Error: foreign key" in client.requests[0].prompt


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(text="", refusal="I would rather not"), LlmRefused),
        (Reply(text=""), LlmError),
        ("{broken", BadAnswer),
        ({"lessons": [{**SAID, "action": ""}]}, BadAnswer),
        ({"lessons": [{**SAID, "tools": ["never_called"]}]}, BadAnswer),
        ({"lessons": [{**SAID, "calls": [7]}]}, BadAnswer),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_and_no_lesson(
    reply: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        reflect(attempt(call("insert", "Error: x")), ScriptedClient(lambda _request: reply))


def test_a_model_is_not_asked_about_nothing() -> None:
    client = ScriptedClient([])
    assert reflect(attempt(), client) == []
    assert client.requests == []
