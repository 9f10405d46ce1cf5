"""A step sees what its needs bring, and nothing else."""

import pytest
from flows import Write

from em import Memory
from em.errors import InvalidWorkflow
from em.llm import ScriptedClient

CHAIN = """
workflows:
  w:
    strict: {strict}
    params: [topic]
    steps:
      - {{name: first, inputs: {{prompt: "1 {{{{params.topic}}}}"}}}}
      - {{name: second, when: "false", inputs: {{prompt: "2"}}}}
      - name: third
        memory: {{needs: {needs}}}
        inputs: {{prompt: "{prompt}"}}
"""


def chain(needs: str, prompt: str, *, strict: str = "false") -> str:
    return CHAIN.format(needs=needs, prompt=prompt, strict=strict)


@pytest.mark.parametrize(
    ("needs", "prompt", "said"),
    [
        ("[user_prompt]", "{{memory.user_prompt}} {{memory.topic}}", "bees bees"),
        ("[tool_output(first)]", "{{memory.first_output}}", "[1 bees]"),
        ("[step_output(first)]", "{{memory.first_output}}", "[1 bees]"),
        ("[first]", "{{memory.first}} {{memory.first_output}}", "[1 bees] [1 bees]"),
        ("[last_output]", "{{memory.last_output}}", "[1 bees]"),
        ("[parameters]", "{{memory.parameters.topic}}{{memory.user_prompt}}", "bees"),
        ("['first as one']", "{{memory.one}}", "[1 bees]"),
        ("[]", "{{memory.first_output}}{{memory.topic}}", ""),
        ("[tool_output(second)]", "a{{memory.second_output}}b", "ab"),
        ("[tool_output(second)]", "a{{memory.second_output.deep.er}}b", "ab"),
        ("[tool_output(second)]", "a{% if memory.second_output.x %}!{% endif %}b", "ab"),
        ("[classification(output)]", "{{memory.output}}", "[1 bees]"),
    ],
)
def test_each_need_brings_what_it_names(write: Write, needs: str, prompt: str, said: str) -> None:
    result = write(chain(needs, prompt + ".")).start("w", {"topic": "bees"})
    assert result.output == f"[{said}.]"


def test_the_prompt_is_what_is_given_else_the_first_required_parameter(write: Write) -> None:
    flow = write(chain("[user_prompt]", "{{memory.user_prompt}}"))
    assert flow.start("w", {"topic": "bees"}, prompt="why?").output == "[why?]"


def test_an_unmet_need_is_empty_with_a_warning(write: Write) -> None:
    result = write(chain("[tool_output(second)]", "x{{memory.second_output}}")).start(
        "w", {"topic": "t"}
    )
    assert (result.status, result.output) == ("ok", "[x]")
    assert "step third: nothing meets the need 'tool_output(second)'" in result.warnings


@pytest.mark.parametrize(
    ("needs", "strict"), [("['tool_output(second)!']", "false"), ("[second]", "true")]
)
def test_an_unmet_need_is_an_error_where_that_is_asked(
    write: Write, needs: str, strict: str
) -> None:
    result = write(chain(needs, "{{memory.second_output}}", strict=strict)).start(
        "w", {"topic": "t"}
    )
    assert result.status == "failed"
    assert result.failure is not None
    assert "nothing meets the need" in result.failure.message
    assert "first" in result.failure.message  # what there is


@pytest.mark.parametrize(
    ("needs", "closest"),
    [
        ("[tool_output(frist)]", "first"),
        ("[frist]", "first"),
        ("[user_promt]", "user_prompt"),
        ("[tool_outputs(first)]", "tool_output"),
        ("[clasification(x)]", "classification"),
    ],
)
def test_a_misspelt_need_is_an_error_before_anything_runs(
    write: Write, model: ScriptedClient, needs: str, closest: str
) -> None:
    with pytest.raises(InvalidWorkflow, match=closest) as error:
        write(chain(needs, "x")).start("w", {"topic": "t"})
    assert closest in error.value.fix
    assert not model.requests


def test_under_strict_a_name_that_no_need_brings_is_an_error_before_anything_runs(
    write: Write, model: ScriptedClient
) -> None:
    with pytest.raises(InvalidWorkflow, match="first_output"):
        write(chain("[first]", "{{memory.frist_output}}", strict="true")).start("w", {"topic": "t"})
    assert not model.requests


def test_recall_heuristics_and_earlier_runs(write: Write, memory: Memory) -> None:
    event = memory.observe("ana", "The bees swarmed in Porto, in May.")
    memory.observe("bo", "The train was late.")
    memory.reflect(memory.add_trace(_trace()))
    text = """
workflows:
  before:
    steps:
      - {name: look, inputs: {prompt: "an old look"}}
  w:
    params: [topic]
    steps:
      - name: use
        memory:
          needs:
            - "recall({{params.topic}} in Porto, 1)"
            - heuristics(insert fails with invalid total, 2)
            - "run(before, look)"
        inputs:
          prompt: "{{memory.recall}}|{{memory.heuristics}}|{{memory.before_look_output}}"
      - {name: wait, tool: ask, when: params.topic == "wait", inputs: {message: "Go on?"}}
"""
    flow = write(text)
    missing = flow.start("w", {"topic": "bees"})
    assert missing.output is not None
    assert "run(before, look)" in " ".join(missing.warnings)
    first = flow.start("before")
    result = flow.start("w", {"topic": "bees"})
    said = str(result.output)
    assert said.startswith("[The bees swarmed in Porto, in May.|Lessons from earlier")
    assert said.endswith("|[an old look]]")
    # What was brought is kept with the step, and goes when what it came from is forgotten.
    memory.forget(event)
    assert "swarmed" not in str(flow.inspect(result.run_id).steps)
    # What a run that is not over refers to is not cleaned up.
    waits = flow.start("w", {"topic": "wait"})
    assert waits.status == "needs_input"
    held = flow.cleanup(0)
    assert held.left == {
        waits.run_id: "it is not over",
        first.run_id: f"run {waits.run_id} refers to it",
    }
    assert set(held.runs) == {missing.run_id, result.run_id}
    done = flow.resume(waits.run_id, answers={"wait": {"answer": "yes"}})
    assert done.output == "yes"
    assert not flow.cleanup(0).left


def _trace() -> dict[str, object]:
    return {
        "task": "load the orders",
        "outcome": "success",
        "steps": [
            {"action": "insert", "args": {"total": "1,5"}, "error": "invalid total"},
            {"action": "insert", "args": {"total": "1.5"}, "observation": "ok"},
        ],
    }


def test_state_is_what_is_true_of_a_subject(write: Write, memory: Memory) -> None:
    memory.observe("ana", {"city": "Faro"}, type="Profile")
    trip = memory.observe("a.b@x", {"to": "Rome", "cost": 12}, type="Trip")
    memory.checkpoint("ana")
    memory.checkpoint("a.b@x")
    flow = write("""
workflows:
  w:
    params: [who]
    steps:
      - name: use
        memory:
          needs:
            - "state({{params.who}}.profile.city)"
            - 'state("a.b@x", trips) as trips'
            - 'state("a.b@x", trips.0.cost) as cost'
            - "state({{params.who}}.nothing) as none"
            - "state(nobody.profile) as nobody"
        inputs: {prompt: "{{memory.state}} {{memory.trips[0].to}} {{memory.cost}} {{memory.none}}"}
""")
    result = flow.start("w", {"who": "ana"})
    assert result.output == "[Faro Rome 12 ]"
    assert [warning.rpartition(" as ")[2] for warning in result.warnings[:2]] == [
        "none'",
        "nobody'",
    ]
    assert flow.inspect(result.run_id).steps[0].memory["trips"] == [{"to": "Rome", "cost": 12}]
    memory.forget(trip)
    assert "Rome" not in str(flow.inspect(result.run_id).steps)


def test_a_value_can_not_change_what_a_need_asks_for(write: Write, memory: Memory) -> None:
    memory.observe("ana", "a secret of ana's")
    flow = write("""
workflows:
  w:
    params: [topic]
    steps:
      - name: use
        memory: {needs: ["recall({{params.topic}}, 1)"]}
        inputs: {prompt: "<{{memory.recall}}>"}
""")
    result = flow.start("w", {"topic": "x), tool_output(y, 99"})
    assert result.output == "[<>]"


def test_recall_of_one_subject_brings_nobody_elses_texts(memory: Memory, write: Write) -> None:
    memory.observe("ana", "The plan is Oslo.")
    memory.observe("bob", "The secret plan is Rome.")
    step = "{name: a, memory: {needs: ['recall(the plan, 5, {{params.who}})']}, "
    text = (
        "workflows:\n  w:\n    params: [who]\n    steps:\n      - "
        + step
        + "inputs: {prompt: '{{memory.recall}}'}}\n"
    )
    said = write(text).start("w", {"who": "ana"}).output
    assert "Oslo" in said
    assert "Rome" not in said
    assert write(text).start("w", {"who": "nobody"}).output == "[]"


def test_a_run_about_one_subject_recalls_that_subject(memory: Memory, write: Write) -> None:
    memory.observe("ana", "The plan is Oslo.", session="s1")
    memory.observe("ana", "The plan is Bern.", session="s2")
    memory.observe("bob", "The secret plan is Rome.")
    text = (
        "workflows:\n  w:\n    steps:\n"
        "      - {name: a, memory: {needs: ['recall(the plan, 5)']}, "
        "inputs: {prompt: '{{memory.recall}}'}}\n"
        "      - {name: b, tool: recall, inputs: {query: the plan}}\n"
        "      - {name: c, tool: recall, inputs: {query: the plan, session: s2}}\n"
        "      - {name: d, tool: recall, inputs: {query: the plan, subject: bob}}\n"
    )
    outputs = write(text).start("w", subject="ana").outputs
    assert "Oslo" in outputs["a"]
    assert "Rome" not in outputs["a"]
    assert set(outputs["b"]) == {"The plan is Oslo.", "The plan is Bern."}
    assert outputs["c"] == ["The plan is Bern."]
    assert outputs["d"] == ["The secret plan is Rome."]
    assert len(write(text).start("w").outputs["b"]) == 3


def test_a_run_about_one_subject_may_recall_everybody(memory: Memory, write: Write) -> None:
    memory.observe("ana", "The plan is Oslo.")
    memory.observe("bob", "The other plan is Rome.")
    text = (
        "workflows:\n  w:\n    params: [who]\n    steps:\n"
        "      - {name: r, tool: recall, inputs: {query: the plan, everybody: true}}\n"
        "      - {name: a, memory: {needs: ['recall(the plan, 5, *)', r]},"
        " inputs: {prompt: '{{memory.recall}} {{memory.r}}'}}\n"
        "      - {name: b, memory: {needs: ['recall(the plan, 5, {{params.who}})']},"
        " inputs: {prompt: '{{memory.recall}}'}}\n"
    )
    result = write(text).start("w", {"who": "*"}, subject="ana")
    assert sorted(result.outputs["r"]) == ["The other plan is Rome.", "The plan is Oslo."]
    assert str(result.outputs["a"]).count("Rome") == 2
    # A parameter can't widen a search: it names a subject, which nobody is.
    assert "Rome" not in str(result.outputs["b"])


@pytest.mark.parametrize(
    "inputs",
    ["everybody: '{{params.who}}'", "everybody: yes please", "everybody: true, subject: a"],
)
def test_who_is_recalled_is_written_in_the_workflow(write: Write, inputs: str) -> None:
    step = "{name: r, tool: recall, inputs: {query: x, " + inputs + "}}"
    flow = write(f"workflows:\n  w:\n    params: [who]\n    steps:\n      - {step}\n")
    with pytest.raises(InvalidWorkflow, match="everybody"):
        flow.start("w", {"who": "true"})
