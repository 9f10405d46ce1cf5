"""A model says lessons in words, with the calls of the recording that show them."""

from typing import Any

import pytest

from em.errors import BadAnswer, LlmError, LlmRefused
from em.heuristics.reflection import reflect
from em.llm import ScriptedClient
from em.llm.wires import Reply
from em.traces.trace import KeptTrace, Mission, ToolCall, Trace, as_kept


def call(tool: str, error: str, **args: Any) -> ToolCall:
    return ToolCall(tool=tool, args=args, error=error)


def attempt(*events: ToolCall) -> KeptTrace:
    return as_kept(Trace(mission=Mission("help"), events=events), "t")


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
    assert (lesson.program, lesson.error) == ("insert", "foreign key")
    assert "hunter2" not in client.requests[0].prompt
    assert "failed: foreign key" in client.requests[0].prompt


@pytest.mark.parametrize(
    ("said", "is_told"),
    [
        ("insert the parent row first", True),
        ("insert c-4711 first", False),
        ("ask Lopez for the row", False),
        ("look into /srv/shop.db", False),
    ],
)
def test_a_lesson_that_quotes_its_session_is_not_told(said: str, *, is_told: bool) -> None:
    args = {"id": "c-4711", "name": "Maria Lopez", "file": "/srv/shop.db"}
    client = ScriptedClient([{"lessons": [{**SAID, "action": said}]}])
    (lesson,) = reflect(attempt(call("insert", "Error: foreign key", **args)), client)
    assert lesson.is_told is is_told


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
