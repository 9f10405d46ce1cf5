"""A run that hands over, at the command line: one sentence says why, and nothing was done."""

from pathlib import Path

import pytest
from em_command import em

ROUTINE = """\
name: send
checks: hand_over
input_schema: {type: object, required: [to], properties: {to: {type: string}}}
requests: ["Send it to {to}"]
tools: [{name: look, effect: read}, {name: send, effect: write}]
steps:
  - {id: look, type: tool.call, tool: look, args: {to: "{{ to }}"}, save_as: person}
  - {id: known, type: assert, check: person.known, message: nobody knows them, held: 3/3}
  - id: parts
    type: for_each
    over: {part: person.parts}
    save_as: parts
    steps: [{id: send, type: tool.call, tool: send, args: {to: "{{ part }}"}, save_as: sent}]
  - {id: end, type: return, value: "{{ len(parts) }}"}
"""
TOOLS = """\
def look(to):
    return {"known": to != "bob", "parts": [to, to.upper()]}


def send(to):
    with open("sent", "a") as file:
        file.write(to + "\\n")
"""


@pytest.fixture(autouse=True)
def routine(tmp_path: Path) -> None:
    Path("send").mkdir()
    Path("send/routine.yaml").write_text(ROUTINE)
    Path("tools.py").write_text(TOOLS)


def test_the_reason_is_one_sentence_and_the_exit_code_is_1() -> None:
    ran = em("run", "send", "to=bob", "--tools", "tools.py")
    words = "handed over at known: nobody knows them (it held in 3/3 recordings); nothing was done"
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.err
    assert not Path("sent").exists()
    (listed,) = em("runs", "list", "--json").json["runs"]
    assert listed["status"] == "handed_over"
    shown = em("runs", "show", listed["run_id"])
    assert words in shown.out
    assert "resume with" not in shown.err
    assert em("resume", listed["run_id"], "--tools", "tools.py").code == 1
    as_json = em("run", "send", "to=bob", "--tools", "tools.py", "--json").json
    assert (as_json["status"], as_json["reason"]["step_id"]) == ("needs_input", "known")
    assert as_json["reason"]["now"] == {"person.known": False}


def test_a_dry_run_shows_the_calls_of_blocks_and_would_hand_over() -> None:
    dry = em("run", "send", "to=ann", "--tools", "tools.py", "--dry-run")
    assert "send[0]: would call send" in dry.out
    assert "send[1]: would call send" in dry.out
    dry = em("run", "send", "to=bob", "--tools", "tools.py", "--dry-run")
    assert "would hand over at known: nobody knows them" in dry.err
    assert not Path("sent").exists()


def test_a_run_shows_its_turns() -> None:
    ran = em("run", "send", "request=send it to ann", "--tools", "tools.py")
    assert (ran.code, ran.out.strip()) == (0, "2"), ran.err
    assert Path("sent").read_text() == "ann\nANN\n"
    (listed,) = em("runs", "list", "--json").json["runs"]
    shown = em("runs", "show", listed["run_id"]).out
    assert "send[0]" in shown
    assert "send[1]" in shown


def test_a_missing_input_is_asked_for() -> None:
    ran = em("run", "send", "--tools", "tools.py", "--json").json
    assert (ran["status"], ran["reason"]) == ("needs_input", None)
    assert [field["name"] for field in ran["pending_prompt"]["fields"]] == ["to"]


def test_a_workflow_stops_where_its_routine_hands_over() -> None:
    Path("em.yaml").write_text(
        "workflows:\n  mail:\n    steps:\n"
        "      - {name: go, tool: run_routine, inputs: {routine: ./send, input: {to: bob}}}\n"
    )
    em("trust", ".")
    ran = em("workflow", "run", "mail", "--tools", "tools.py")
    assert ran.code == 1
    assert "the routine handed over: known: nobody knows them" in ran.err + ran.out
    assert not Path("sent").exists()
