"""A scripted model says what it was told, and is held to schemas like any other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.errors import BadAnswer, LlmUnavailable, UsageError
from em.llm import Message, ScriptedClient, Tokens
from em.llm.client import read
from em.llm.wires import Reply, WireError, is_closed
from em.settings import Price

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def test_replies_come_in_order_and_requests_are_kept() -> None:
    client = ScriptedClient(["one", {"city": "Porto"}, lambda request: request.prompt.upper()])
    assert client.complete("a", system="s").text == "one"
    assert client.complete([Message("user", "b")], schema=CITY).value == {"city": "Porto"}
    assert client.complete("c").text == "C"
    assert [request.prompt for request in client.requests] == ["a", "b", "c"]
    assert client.requests[0].system == "s"
    assert client.requests[1].schema == CITY


def test_one_function_answers_everything() -> None:
    client = ScriptedClient(lambda request: {"city": request.prompt})
    assert client.complete("x", schema=CITY).value == {"city": "x"}
    assert client.complete("y", schema=CITY).value == {"city": "y"}


def test_exceptions_are_raised_and_faults_of_a_wire_are_told_as_usual() -> None:
    client = ScriptedClient([KeyError("mine"), WireError("gone", status=503)])
    with pytest.raises(KeyError):
        client.complete("a")
    with pytest.raises(LlmUnavailable, match="gone"):
        client.complete("a")


def test_the_end_of_a_script_is_told() -> None:
    client = ScriptedClient(["only"])
    client.complete("a")
    with pytest.raises(LlmUnavailable, match="no reply left: it had 1"):
        client.complete("b")


def test_misfits_are_corrected_and_bounded() -> None:
    client = ScriptedClient(["no JSON", {"town": 1}, {"city": "Faro"}])
    answer = client.complete("a", schema=CITY)
    assert (answer.value, answer.attempts) == ({"city": "Faro"}, 3)
    turns = client.requests[2].messages
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert turns[1].text == "no JSON"
    assert '"city" is a required property' in turns[4].text
    with pytest.raises(BadAnswer):
        ScriptedClient(["no"] * 3).complete("a", schema=CITY)


def test_nothing_is_counted_that_was_not_told() -> None:
    client = ScriptedClient(["a", Reply(text="b", usage=Tokens(10, 2))], price=Price(1, 1))
    assert client.complete("a").cost_usd is None
    answer = client.complete("a")
    assert (answer.usage, answer.cost_usd) == (Tokens(10, 2), 12e-6)


def test_a_schema_that_is_none_and_a_prompt_that_is_empty_are_misuse() -> None:
    client = ScriptedClient(["a"])
    with pytest.raises(UsageError, match="not a valid JSON Schema"):
        client.complete("a", schema={"type": "thing"})
    with pytest.raises(UsageError, match="the prompt has no message"):
        client.complete([])
    assert client.requests == []


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Faro"}',
        ' {"city": "Faro"}\n',
        'Sure!\n```json\n{"city": "Faro"}\n```\nAnything else?',
        '```\n{"city": "Faro"}\n```',
        'The answer is {"city": "Faro"}, I think.',
        '<think>{"city": "Porto"}? [no]</think>{"city": "Faro"}',
        'As {you} asked: {"city": "Faro"}',
    ],
)
def test_json_is_found_where_models_put_it(text: str) -> None:
    assert read(text, CITY) == ({"city": "Faro"}, [])


@pytest.mark.parametrize("text", ["", "none", '{"city": NaN}', "{" * 10_000, "[" * 10_000, '{"a"'])
def test_what_is_no_json_is_a_problem_and_no_crash(text: str) -> None:
    value, problems = read(text, CITY)
    assert value is None
    assert "expected JSON" in problems[0]


@given(st.text())
def test_any_text_is_read_or_told(text: str) -> None:
    _, problems = read(text, {"type": "object", "required": ["x"]})
    assert problems


def test_many_problems_are_told_up_to_a_limit() -> None:
    _, problems = read("[" + ",".join(["1"] * 100) + "]", {"items": {"type": "string"}})
    assert len(problems) == 20


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (CITY, True),
        ({"type": "object"}, False),
        ({"type": "array", "items": CITY}, False),
        ({**CITY, "properties": {"city": {}}}, False),
        ({**CITY, "properties": {"city": {"type": "object"}}}, False),
        ({**CITY, "properties": {"city": {"type": ["object", "null"]}}}, False),
        ({**CITY, "properties": {"city": {"type": "array", "items": CITY}}}, True),
        ({**CITY, "properties": {"city": {"anyOf": [CITY, {"type": "null"}]}}}, True),
        ({**CITY, "$defs": {"x": {"type": "object"}}}, False),
    ],
)
def test_which_schemas_name_all_they_take(schema: Any, closed: bool) -> None:
    assert is_closed(schema) is closed
