"""An agent that calls a tool wrongly is told what to do, in words it can act on at once."""

from typing import Any

import pytest
from mcp_agents import agent, keep, over_stdio

from mcp import Client

GREET = """\
name: greet
input_schema:
  type: object
  properties: {who: {type: string}, how: {type: string, enum: [loud, soft]}}
  required: [who]
steps: [{id: out, type: return, value: "Hello {{ who }}"}]
"""
CALLS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("observe", {}, ["`subject`", "add it: The person or thing"]),
    ("observe", {"subject": 5, "text": "x"}, ["subject", "expected a string, got 5"]),
    ("observe", {"subject": "a", "txt": "x"}, ["no argument `txt`", "did you mean 'text'?"]),
    ("observe", {"subject": "a", "zzz": 1}, ["no argument `zzz`", "there are: subject, text"]),
    ("observe", {"subject": "a"}, ["give either `text` or `record`"]),
    ("recall", {"query": ""}, ["query: must not be blank", "A question, or a few words"]),
    ("recall", {"query": " "}, ["query: must not be blank"]),
    ("recall", {"query": "x", "k": "ten"}, ["k: expected a whole number, got 'ten'"]),
    ("recall", {"query": "x", "k": 1000}, ["k: must be at most 100, got 1000"]),
    ("recall", {"query": "x", "since": "foo"}, ["since", "write 2025-04-07"]),
    ("check", {"subject": "a", "action": "b", "details": [1]}, ["details", "expected an object"]),
    ("brief", {"task": "x", "tools": "Bash"}, ["tools", "expected a list, got 'Bash'"]),
    ("record_outcome", {"task": "x", "outcome": "good"}, ["one of: failure, success, unknown"]),
    ("record_outcome", {"task": "x", "outcome": "success", "steps": ["x"]}, ["steps[0]", "object"]),
    (
        "record_outcome",
        {"task": "x", "outcome": "success", "steps": [{"acton": "search"}]},
        ["steps[0]", "acton"],
    ),
    ("record_outcome", {"task": "x", "outcome": "success", "heuristics": ["h"]}, ["`brief`"]),
    ("list_traces", {"outcome": "ok"}, ["one of: failure, success, unknown"]),
    ("read_trace", {"id": "nope"}, ["there is no trace 'nope'", "`list_traces`"]),
    ("checkpoint", {"subject": "nobody"}, ["nothing was observed", "call `observe` first"]),
    ("ask", {"subject": "nobody", "question": "x"}, ["no state", "call `checkpoint` first"]),
    ("check", {"subject": "nobody", "action": "x"}, ["no state", "call `checkpoint` first"]),
    ("resume", {}, ["`run_id`", "add it: The `run_id` that the run returned"]),
    ("resume", {"run_id": "nope"}, ["no run 'nope'", "the `run_id` that the run returned"]),
    ("greet", {}, ['"who" is a required property']),
    ("greet", {"who": 5}, ['who: 5 is not of type "string"']),
    ("greet", {"whom": "x"}, ["no input 'whom'", "did you mean 'who'?"]),
    ("greet", {"who": "x", "how": "LOUD"}, ['"LOUD" is not one of "loud" or "soft"']),
    ("gret", {}, ["there is no tool 'gret'; did you mean 'greet'?"]),
    ("unheard_of", {}, ["there is no tool 'unheard_of'; list the tools again"]),
]


def test_an_argument_problem_says_what_to_do() -> None:
    keep(GREET)

    async def work(client: Client) -> list[str]:
        found = []
        for name, given, words in CALLS:
            try:
                result = await client.call_tool(name, given)
            except Exception as error:  # noqa: BLE001 - a protocol error's text is checked too
                said = str(error)
            else:
                assert result.is_error, (name, given)
                said = result.content[0].text
            found += [f"{name} {given}: {said}" for word in words if word not in said]
        return found

    assert agent(over_stdio(), work) == []


@pytest.mark.parametrize("name", ["observe", "recall", "brief"])
def test_the_words_are_plain(name: str) -> None:
    async def work(client: Client) -> str:
        result = await client.call_tool(name, {"subject": [1]})
        text: str = result.content[0].text
        return text

    said = agent(over_stdio(), work)
    assert not [word for word in ("Object", "`str`", "regex", "Struct") if word in said]
