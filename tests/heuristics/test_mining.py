"""Lessons are mined from what really happened, with the events that show it, and nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.errors import BadAnswer, LlmError, LlmRefused
from em.heuristics.heuristic import Lesson
from em.heuristics.reflection import differences, error_shape, mine, reflect
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
    assert "a different card as get_user gives it" in lesson.action
    assert '"card_99" (which had appeared nowhere before)' in lesson.action
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
    again, after = (
        lessons(call("get", "busy", id="x1"), call("get", id="x1")),
        lessons(call("get", "not signed in", id="x1"), call("login"), call("get", id="x1")),
    )
    assert again[0].action == "Make the same call again: it worked unchanged."
    assert after[0].action == "Make the same call again after login: then it worked unchanged."


def test_what_was_done_before_the_same_call_worked_is_the_recovery() -> None:
    order, customer = "insert into orders values (1, 'ana')", "insert into customers values ('ana')"
    (lesson,) = lessons(
        call("sql", "FOREIGN KEY constraint failed", q=order),
        call("sql", q=customer),
        call("sql", q=order),
    )
    assert lesson.action == f'First sql(q="{customer}"), then make the same call again.'
    assert list(lesson.evidence.worked) == ["t-3"]


def test_a_command_is_repaired_by_what_came_before_and_not_by_its_description() -> None:
    def bash(command: str, error: str | None = None, description: str = "") -> ToolCall:
        return call("Bash", error, command=command, description=description)

    missing = "Exit code 1\nModuleNotFoundError: No module named 'yaml'"
    (lesson,) = lessons(
        bash("pytest", missing, "Run the tests"),
        bash("pip install pyyaml", description="Install it"),
        bash("pytest", description="Run the tests once more"),
    )
    assert lesson.trigger == "Bash fails with: ModuleNotFoundError: No module named …"
    assert (
        lesson.action == 'First Bash(command="pip install pyyaml"), then make the same call again.'
    )
    (lesson,) = lessons(
        bash("sort -n --unknwon a.txt", "Exit code 2\nunrecognized option", "Sort"),
        bash("sort -n --unique a.txt", description="Sort it once more"),
    )
    assert "description" not in lesson.action
    assert "a different command" in lesson.action


def test_after_much_else_nobody_knows_what_repaired_a_call() -> None:
    between = [call("Bash", command=f"make part{n}") for n in range(4)]
    first, last = call("Bash", "it broke", command="make"), call("Bash", command="make")
    assert lessons(first, *between, last) == []
    assert len(lessons(first, *between[:3], last)) == 1


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
    assert {lesson.how for lesson in found} == {"dead_end"}


def test_another_spelling_of_the_same_id_is_a_recovery() -> None:
    (lesson,) = lessons(
        call("get_order", "Error: order not found", order_id="#9502127"),
        call("get_order", order_id="#W9502127"),
    )
    assert lesson.how == "recovery"


def test_made_up_values_are_named_as_such_and_said_ones_are_not() -> None:
    made_up, said = (
        lessons(call("swap", "Error: item 991122 is not there", item="991122")),
        lessons(
            Message(role="user", text="I want 991122."),
            call("swap", "Error: item 991122 is not there", item="991122"),
        ),
    )
    assert made_up[0].action.startswith("Don't make up item")
    assert said[0].action.startswith("Don't just repeat swap")
    assert made_up[0].polarity == "failure"
    assert made_up[0].trigger == "swap fails with: item … is not there"


def test_the_same_failing_in_one_attempt_is_one_lesson_with_all_its_evidence() -> None:
    (lesson,) = lessons(*(call("swap", f"Error: no item {n}", item=f"{n}") for n in (7001, 7002)))
    assert list(lesson.evidence.failed) == ["t-1", "t-2"]


def test_one_task_failed_here_and_solved_there_gives_the_difference() -> None:
    solved = attempt(call("pay", order="W1", card="c2"), call("ship_order", order="W1"))
    failed = attempt(call("pay", order="W1", card="c9"), outcome="failure", name="f")
    found = differences([solved, failed])
    assert [lesson.action for lesson in found] == [
        'Call ship_order, as the attempts that solved it did: ship_order(order="W1").',
        'Call pay with card="c2", not "c9".',
    ]
    assert "the attempt that failed did not" in found[0].analysis
    assert list(found[1].evidence.failed) == ["f-1"]
    assert list(found[1].evidence.worked) == ["t-1"]


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
        ("connect to 10.0.0.1:80 for bob@example.com", "connect to …:… for …"),
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
def test_every_lesson_has_evidence_and_every_error_has_one_lesson(events: list[ToolCall]) -> None:
    kept = attempt(*events)
    found = mine(kept)
    ids = set(kept.happened_ids)
    failed = [event_id for lesson in found for event_id in lesson.evidence.failed]
    assert all(lesson.evidence.failed for lesson in found)
    assert all(set(lesson.evidence.event_ids) <= ids for lesson in found)
    assert len(failed) == len(set(failed)) == sum(event.error is not None for event in events)


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
