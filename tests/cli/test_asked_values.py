"""A run that asks for missing inputs, at the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from em_command import em, on_terminal

ROUTINE = """\
name: send
checks: hand_over
input_schema:
  type: object
  properties: {to: {type: string}, urgent: {type: boolean, description: "is it urgent?"}}
  required: [to, urgent]
tools: [{name: send, effect: write}]
steps:
  - {id: send, type: tool.call, tool: send, save_as: out,
     args: {to: "{{ to }}", urgent: "{{ urgent }}"}}
  - {id: end, type: return, value: "{{ out }}"}
"""


@pytest.fixture(autouse=True)
def routine(tmp_path: Path) -> None:
    Path("send").mkdir()
    Path("send/routine.yaml").write_text(ROUTINE)
    Path("tools.py").write_text("def send(to, urgent):\n    return [to, urgent]\n")
    Path("bob.json").write_text('{"to": "bob"}')


def run(*args: str) -> Any:
    return em("run", "send", "--input", "bob.json", "--tools", "tools.py", "--json", *args).json


def test_missing_inputs_are_asked_for_and_answered_by_a_file() -> None:
    asked = run()
    assert (asked["status"], asked["pending_prompt"]["step_id"]) == ("needs_input", "inputs")
    Path("answers.json").write_text(json.dumps({"inputs": {"urgent": True}}))
    done = em(
        "resume", asked["run_id"], "--tools", "tools.py", "--answers", "answers.json", "--json"
    )
    assert done.json["output"] == ["bob", True]


def test_inputs_are_given_by_name_and_read_by_their_type() -> None:
    ran = em("run", "send", "to=a=b", "urgent=true", "--tools", "tools.py", "--json")
    assert ran.json["output"] == ["a=b", True]
    typed = '{"to": "ann", "urgent": false}'
    ran = em("run", "send", "--input", typed, "--tools", "tools.py", "--json")
    assert ran.json["output"] == ["ann", False]
    ran = em("run", "send", "--input", '{"to": ', "--tools", "tools.py")
    assert (ran.code, "the JSON object that was typed" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["whom=ann"], "(to, urgent), got 'whom=ann'"),
        (["ann"], "expected NAME=VALUE"),
        (["to=ann", "to=bob"], "given twice"),
        (["to=ann", "--input", "bob.json"], "given twice"),
        (["urgent=perhaps"], "must be boolean as JSON"),
    ],
)
def test_an_input_that_the_routine_can_not_take_is_refused(given: list[str], said: str) -> None:
    ran = em("run", "send", *given, "--tools", "tools.py")
    assert ran.code == 2
    assert said in ran.err


def test_yes_agrees_to_questions_and_does_not_choose_values() -> None:
    assert run("--yes")["status"] == "needs_input"


def test_the_question_says_how_to_answer_it() -> None:
    shown = em("run", "send", "--input", "bob.json", "--tools", "tools.py").err
    assert "waits for an answer: some values are not known\n" in shown
    assert "urgent" in shown
    assert '--answers FILE, with {"inputs":{"urgent":"true or false"}}' in shown
    assert "--yes" not in shown


def test_a_yes_or_no_is_asked_as_one_and_enter_is_neither() -> None:
    command = ("run", "send", "--input", "bob.json", "--tools", "tools.py")
    shown = on_terminal(*command, typed="\nmaybe\ny\n")
    assert shown.count("[y/n]:") == 3
    assert "true" in shown.rpartition("[y/n]:")[2]
