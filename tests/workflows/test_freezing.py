"""A workflow can become a routine: what a model said each time alike becomes a constant."""

from pathlib import Path
from typing import Any

import pytest
from flows import Write

from em import Memory
from em.errors import WorkflowError
from em.llm import ScriptedClient
from em.runner.engine import run_routine
from em.runner.package import write_files
from em.runner.validation import validate
from em.workflows.to_routine import CompiledWorkflow, Frozen

TEXT = """
workflows:
  triage:
    params: [ticket, {queue: support}]
    steps:
      - name: rules
        inputs: {prompt: "Write the rules for {{params.queue}}."}
      - name: look
        tool: look
        effect: read
        memory: {needs: [user_prompt]}
        inputs: {ticket: "{{memory.user_prompt}}"}
      - name: summary
        memory: {needs: [look]}
        inputs: {prompt: "Sum up {{memory.look.title}}"}
      - name: send
        tool: send
        gate: "Send to {{memory.queue}}?"
        when: "memory.look.open"
        memory: {needs: [parameters, rules, look, summary]}
        inputs:
          text: "{{ memory.rules_output }} / {{memory.summary_output}} for {{ params.ticket }}"
          tags: ["{{memory.look.title}}", "{% if memory.queue == 'support' %}s{% endif %}"]
"""


def look(ticket: str) -> dict[str, Any]:
    return {"title": f"title of {ticket}", "open": True}


def send(text: str, tags: list[str]) -> dict[str, Any]:
    return {"output": f"sent {text} {tags}", "classification": "receipt", "metadata": {"n": 1}}


TOOLS = {"look": look, "send": send}
AGREED = {"send": {"approve": True}}


def compiled(memory: Memory, write: Write, tickets: list[str], **options: Any) -> CompiledWorkflow:
    client = ScriptedClient(
        lambda request: "be kind" if "rules" in request.prompt else request.prompt.upper()
    )
    flow = write(TEXT, TOOLS, client=client)
    runs = [flow.start("triage", {"ticket": ticket}, answers=AGREED) for ticket in tickets]
    assert [run.status for run in runs] == ["ok"] * len(runs)
    return flow.compile(runs[-1].run_id, **options)


def test_what_was_the_same_each_time_is_frozen_and_the_rest_is_an_input(
    memory: Memory, write: Write, tmp_path: Path
) -> None:
    made = compiled(memory, write, ["T-11", "T-12"])
    assert [(one.step, one.frozen, one.runs, one.alike) for one in made.frozen] == [
        ("rules", True, 2, 2),
        ("summary", False, 2, 1),
    ]
    assert made.frozen[1].holds == ["ticket"]
    assert made.inputs == ["queue", "ticket", "summary_output"]
    write_files(made.files, tmp_path / "routine")
    assert not [str(one) for one in validate(tmp_path / "routine") if one.severity == "error"]
    given = {"ticket": "T9", "queue": "support", "summary_output": "short"}
    asked = run_routine(tmp_path / "routine", given, TOOLS)
    assert asked.pending_prompt is not None
    assert asked.pending_prompt.message == "Send to support?"
    done = run_routine(tmp_path / "routine", given, TOOLS, answers={"send_gate": {"approve": True}})
    assert done.output == "sent be kind / short for T9 ['title of T9', 's']"
    no = run_routine(tmp_path / "routine", given, TOOLS, answers={"send_gate": {"approve": False}})
    assert no.failure is not None
    assert "did not agree" in no.failure.message


def test_one_run_proves_nothing_so_it_is_asked(memory: Memory, write: Write) -> None:
    asked: list[Frozen] = []

    def agree(one: Frozen) -> bool:
        asked.append(one)
        return True

    made = compiled(memory, write, ["T-11"], may_freeze=agree)
    assert [one.step for one in asked] == ["rules", "summary"]
    assert made.inputs == ["queue", "ticket"]
    assert "SUM UP TITLE OF T-11" in made.files["udf.py"]


def test_what_is_frozen_is_data_whatever_it_says(memory: Memory, write: Write) -> None:
    evil = "{{ 7 * 7 }} {% raw %} ''' \"\"\" \\ \n import os \N{GRINNING FACE}"
    flow = write(
        "workflows: {w: {steps: [{name: a, inputs: {prompt: x}}]}}",
        client=ScriptedClient(lambda _request: evil),
    )
    runs = [flow.start("w") for _ in range(2)]
    made = flow.compile(runs[0].run_id)
    write_files(made.files, Path("evil"))
    assert run_routine("evil").output == evil


def test_what_can_not_be_compiled_says_so(memory: Memory, write: Write) -> None:
    flow = write(
        """
workflows:
  a:
    steps:
      - {name: s, tool: t}
      - name: c
        tool: t
        memory: {needs: [classification(output)]}
        inputs: {x: "{{memory.output}}"}
  b:
    steps: [{name: q, tool: ask, inputs: {message: m}}]
""",
        {"t": lambda x=None: x},
    )
    with pytest.raises(WorkflowError, match="classification"):
        flow.compile(flow.start("a").run_id)
    with pytest.raises(WorkflowError, match="needs_input"):
        flow.compile(flow.start("b").run_id)
