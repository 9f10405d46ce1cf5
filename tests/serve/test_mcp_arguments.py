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
    ("remember", {}, ["`subject`", "add it"]),
    ("remember", {"subject": 5, "text": "x"}, ["subject: 5 is not of type"]),
    ("remember", {"subject": "a", "txt": "x"}, ["no argument `txt`", "did you mean 'text'?"]),
    ("remember", {"subject": "a", "zzz": 1}, ["no argument `zzz`", "there are: subject, text"]),
    ("remember", {"subject": "a", "facts": [{"op": "same"}]}, ["facts: without a text"]),
    ("remember", {"subject": "a", "rules": [{"id": "x"}]}, ["text", "give `text`"]),
    ("remember", {"subject": "a", "event": "e", "text": "x"}, ["a text, a record or an event"]),
    ("remember", {"subject": "a", "facts": ["x"]}, ["facts[0]", "object"]),
    (
        "remember",
        {"subject": "a", "text": "x", "context": {"spaker": "b"}},
        ["no argument `spaker`"],
    ),
    ("ask", {}, ["`subject` is missing"]),
    ("ask", {"question": ""}, ["question", "shorter than 1 character"]),
    ("ask", {"question": " "}, ['question: " " does not match']),
    ("ask", {"question": "x", "k": "ten"}, ['k: "ten" is not of type']),
    ("ask", {"question": "x", "k": 1000}, ["k: 1000 is greater than the maximum of 100"]),
    ("ask", {"question": "x", "only": {"since": "foo"}}, ["since", "write 2025-04-07"]),
    ("ask", {"question": "x", "only": {"sinc": "2025"}}, ["no argument `sinc`", "'since'"]),
    ("ask", {"subject": "a", "action": "b", "details": [1]}, ["details", "object"]),
    ("ask", {"subject": "nobody", "action": "x"}, ["call `remember` first"]),
    ("ask", {"subject": "nobody", "code": "1"}, ["call `remember` first"]),
    ("ask", {"code": "1"}, ["`subject` is missing"]),
    ("brief", {"task": "x", "tools": "Bash"}, ["tools", "array"]),
    ("lesson", {}, ["give a lesson or what happened"]),
    ("lesson", {"when": "it rains"}, ["a lesson needs `when` and `do`"]),
    ("lesson", {"task": "x"}, ["what happened needs `task` and `outcome`"]),
    ("lesson", {"outcome": "success"}, ["what happened needs `task` and `outcome`"]),
    ("lesson", {"task": "x", "outcome": "good"}, ["one of", "failure", "unknown"]),
    ("lesson", {"task": "x", "outcome": "success", "steps": ["x"]}, ["steps[0]", "object"]),
    (
        "lesson",
        {"task": "x", "outcome": "success", "steps": [{"acton": "search"}]},
        ["steps[0]", "acton"],
    ),
    ("lesson", {"task": "x", "outcome": "success", "lessons": ["h"]}, ["`brief`"]),
    ("propose", {"group": "nope"}, ["no proposal 'nope'", "`propose`"]),
    ("resume", {}, ["`run_id`", "add it"]),
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


@pytest.mark.parametrize("name", ["remember", "ask", "brief"])
def test_the_words_are_plain(name: str) -> None:
    async def work(client: Client) -> str:
        result = await client.call_tool(name, {"subject": [1]})
        text: str = result.content[0].text
        return text

    said = agent(over_stdio(), work)
    assert not [word for word in ("Object", "`str`", "regex", "Struct") if word in said]
