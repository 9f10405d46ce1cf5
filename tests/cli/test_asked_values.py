"""A run that asks for inputs, at the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from em_command import em, on_terminal

ROUTINE = """\
name: send
input_schema:
  type: object
  properties: {to: {type: string, examples: [ann]}, urgent: {type: boolean, examples: [false]}}
asks: {urgent: {recorded: false}}
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
    Path("ann.json").write_text('{"to": "ann"}')
    Path("bob.json").write_text('{"to": "bob"}')


def run(*args: str, file: str = "bob.json") -> Any:
    return em("run", "send", "--input", file, "--tools", "tools.py", "--json", *args).json


def test_recorded_inputs_run_as_recorded() -> None:
    assert run(file="ann.json")["output"] == ["ann", False]


def test_others_are_asked_about_and_answered_by_a_file() -> None:
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


def test_an_answer_must_fit_its_input() -> None:
    Path("answers.json").write_text(json.dumps({"inputs": {"urgent": "perhaps"}}))
    asked = run("--answers", "answers.json")
    assert asked["status"] == "needs_input"
    assert "urgent" in asked["pending_prompt"]["problem"]


def test_the_question_says_how_to_answer_it() -> None:
    shown = em("run", "send", "--input", "bob.json", "--tools", "tools.py").err
    assert "waits for an answer: some values are not known\n" in shown
    assert "\n  urgent (it was false in the recording)\n" in shown
    assert '--answers FILE, with {"inputs":{"urgent":"true or false"}}' in shown
    assert "--yes" not in shown


def test_a_yes_or_no_is_asked_as_one_and_enter_is_neither() -> None:
    command = ("run", "send", "--input", "bob.json", "--tools", "tools.py")
    shown = on_terminal(*command, typed="\nmaybe\ny\n")
    assert shown.count("urgent (it was false in the recording) [y/n]:") == 3
    assert "true" in shown.rpartition("[y/n]:")[2]
    assert "not recorded" not in shown, "only what was recorded is compared"


def test_a_guard_that_stops_a_run_says_so_in_words() -> None:
    guarded = ROUTINE.replace(
        'urgent: "{{ urgent }}"}}', 'urgent: "{{ urgent }}"}, guards: [to == "ann"]}'
    )
    Path("send/routine.yaml").write_text(guarded)
    Path("answers.json").write_text(json.dumps({"inputs": {"urgent": True}}))
    command = ("run", "send", "--input", "bob.json", "--tools", "tools.py")
    stopped = em(*command, "--answers", "answers.json")
    assert stopped.code == 1
    assert stopped.err.startswith('failed: step send: `to` is "bob" now; it was "ann" when')
    assert stopped.err.count("step send") == 1
    explained = em("routine", "show", "./send", "--explain")
    assert '`to` is "ann"; else the run stops' in explained.out
    assert "urgent: recorded false" in explained.out
    told = em("routine", "show", "./send", "--explain", "--json").json
    assert [one["step_id"] for one in told["requires"]] == ["send"]
    assert [one["name"] for one in told["asks"]] == ["urgent"]
