"""Bad input is told before anything runs, with its place and what to do."""

from pathlib import Path
from typing import Any

import pytest
from flows import Write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from em import Memory
from em.errors import EmError, InputError, InvalidWorkflow, NotFound
from em.llm import ScriptedClient
from em.workflows.definition import WorkflowFile
from em.workflows.plan import validate_file
from strategies import examples


def flow(*steps: str, head: str = "") -> str:
    return "workflows:\n  w:\n" + head + "    steps:\n" + "".join(f"      - {s}\n" for s in steps)


A = "{name: a, inputs: {prompt: x}}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            flow(
                "{name: a, memory: {needs: [b]}, inputs: {prompt: x}}",
                "{name: b, memory: {needs: [a]}, inputs: {prompt: x}}",
            ),
            "wait for each other: a -> b -> a",
        ),
        (flow("{name: a, depends_on: a, inputs: {prompt: x}}"), "a -> a"),
        (
            flow(
                "{name: a, depends_on: [c], inputs: {prompt: x}}",
                "{name: b, depends_on: [a], inputs: {prompt: x}}",
                "{name: c, memory: {needs: [b]}, inputs: {prompt: x}}",
                head="    parallel: true\n",
            ),
            "wait for each other",
        ),
        (flow(A, A), "two steps are called 'a'"),
        (flow("{name: a-b, inputs: {prompt: x}}", "{name: a_b, inputs: {prompt: x}}"), "same name"),
        (flow("{name: a, memory: {needs: [b]}, inputs: {prompt: x}}", A.replace("a,", "b,")), "b"),
        (flow("{name: a, depends_on: b, inputs: {prompt: x}}"), "there is no step 'b'"),
        (flow(), "no steps"),
        (flow("{name: a, inputs: {promt: x}}"), "needs the input 'prompt'"),
        (flow("{name: a, tool: model_cal, inputs: {prompt: x}}"), "model_call"),
        (flow("{name: a, inputs: {prompt: '{{ x.y }}'}}"), "'x' is not defined"),
        (flow("{name: a, inputs: {prompt: '{{params.y}}'}}", head="    params: [x]\n"), "no param"),
        (flow("{name: a, inputs: {prompt: '{{ 1 + }}'}}"), "not a valid expression"),
        (flow("{name: a, when: '((', inputs: {prompt: x}}"), "not a valid expression"),
        (flow("{name: a, retry: 0, inputs: {prompt: x}}"), "retry"),
        (flow("{name: a, timeout: -1, inputs: {prompt: x}}"), "timeout"),
        (flow("{name: a, onfailure: x, inputs: {prompt: x}}"), "onfailure"),
        (flow("{name: a, on_failure: x, inputs: {prompt: x}}"), "on_failure"),
        (flow("{name: 'a?', inputs: {prompt: x}}"), "without ? and ["),
        (flow(A, head="    params: [x, x]\n"), "given twice"),
        (flow(A, head="    params: 3\n"), "params"),
        (flow("{name: a, tool: command, inputs: {command: ls}}"), "command"),
        (flow("{name: a, tool: http, inputs: {url: '{{run_id}}/a'}}"), "url"),
        (flow("{name: a, tool: ask, inputs: {message: m, fields: [{nam: x}]}}"), "nam"),
        (flow("{name: a, inputs: {prompt: x, output_schema: {type: objekt}}}"), "JSON Schema"),
        ("workflows: {w: 3}", "workflows must be names"),
        ("workflow: {w: {}}", "did you mean 'workflows'"),
        ("- a", "names with values"),
        ("workflows:\n  w: &a {steps: []}\n  v: *a\n", "YAML aliases are not supported"),
        ("workflows: {w: {}, w: {}}", "is repeated"),
        ("workflows: [", "not valid YAML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_anything_runs(
    write: Write, model: ScriptedClient, memory: Memory, text: str, said: str
) -> None:
    with pytest.raises(InvalidWorkflow) as error:
        write(text).start("w", {"x": "y"})
    assert said in str(error.value)
    assert "flow.yaml" in error.value.place
    assert not model.requests
    assert memory.log.head_seq() == 0
    found = [str(problem) for problem in validate_file(WorkflowFile("flow.yaml"), tools={})]
    assert found
    assert found[0].startswith("flow.yaml:")
    assert any(said in problem for problem in found)


def test_aliases_that_would_explode_are_refused_at_once(write: Write) -> None:
    lines = ["x0: &x0 [lol]"] + [
        f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 30)
    ]
    with pytest.raises(InvalidWorkflow, match="aliases"):
        write("\n".join([*lines, "workflows: *x29"])).start("w")


def test_everything_that_is_wrong_is_found_at_once_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(
        "workflows:\n"
        "  w:\n"
        "    params: [topic]\n"
        "    steps:\n"
        "      - name: a\n"
        "        inputs: {prompt: '{{params.topc}}'}\n"
        "      - name: b\n"
        "        memory: {needs: [a]}\n"
        "        inputs:\n"
        "          prompt: '{{memory.b_output}} {{ nothing }}'\n"
    )
    found = validate_file(WorkflowFile("flow.yaml"))
    assert [(problem.line, problem.severity) for problem in found] == [
        (6, "error"),
        (10, "error"),
        (10, "warning"),
    ]
    assert found[0].fix == "did you mean 'topic'?"
    assert found[2].fix == "did you mean 'a_output'?"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "'topic' is missing"),
        ({"topic": "x", "dept": 1}, "did you mean 'depth'"),
        ({"topic": "x", "depth": "deep"}, "'deep' is not an integer"),
        ({"topic": "x", "depth": 1.5}, "not an integer"),
        ({"topic": "x", "depth": True}, "not an integer"),
        ({"topic": 3}, "not a string"),
        ({"topic": "x", "tags": "["}, "not a list"),
        ({"topic": "x", "on": "maybe"}, "not a boolean"),
        ({"topic": "x", "kind": "c"}, "expected one of a, b"),
        ({"topic": "x", "rate": float("nan")}, "not a number"),
        ({"topic": "x", "more": "[1]"}, "not an object"),
    ],
)
def test_parameters_are_checked(write: Write, params: Any, said: str) -> None:
    head = """    params:
      - topic: {type: string}
      - depth: 3
      - tags: [a]
      - "on": false
      - rate: 0.5
      - more: {type: object, default: {}}
      - kind: {default: a, options: [a, b]}
"""
    workflows = write(flow(A, head=head))
    with pytest.raises(InputError, match=said):
        workflows.start("w", params)
    texts = {"topic": "x", "depth": "5", "tags": "p, q", "on": "yes", "rate": "1", "more": "{}"}
    run = workflows.start("w", texts)
    view = workflows.inspect(run.run_id)
    assert view.params == {
        **{"topic": "x", "depth": 5, "tags": ["p", "q"], "on": True, "rate": 1, "more": {}},
        "kind": "a",
    }


def test_a_very_large_output_is_kept_and_can_be_used(write: Write) -> None:
    large = "x" * 50_000_000
    text = flow(
        "{name: a, tool: large}",
        "{name: b, tool: size, memory: {needs: [a]}, inputs: {text: '{{memory.a}}'}}",
    )
    workflows = write(text, {"large": lambda: large, "size": len_of})
    result = workflows.start("w")
    assert result.output == len(large)
    assert workflows.result(result.run_id).outputs["a"] == large


def len_of(text: str) -> int:
    return len(text)


def test_an_output_that_no_event_can_hold_is_a_failure_that_says_so(write: Write) -> None:
    workflows = write(
        flow("{name: a, tool: huge, effect: read}"), {"huge": lambda: "x" * 70_000_000}
    )
    result = workflows.start("w")
    assert result.failure is not None
    assert "at most 67,108,864 bytes" in result.failure.message


def test_binary_output_is_a_failure_that_says_so(write: Write) -> None:
    result = write(flow("{name: a, tool: b, effect: read}"), {"b": lambda: b"\x00\xff"}).start("w")
    assert result.failure is not None
    assert "bytes are not JSON" in result.failure.message


def test_there_is_no_such_workflow_or_file(write: Write, memory: Memory) -> None:
    with pytest.raises(NotFound, match="did you mean 'w'"):
        write(flow(A)).start("ww")
    with pytest.raises(InvalidWorkflow, match="does not exist"):
        memory.workflows("none.yaml").start("w")
    with pytest.raises(NotFound, match="it has none"):
        memory.workflows().start("w")
    with pytest.raises(NotFound, match="it has none"):
        write("").start("w")


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab{}%.() memorytool_put", max_size=20),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["workflows", "w", "steps", "name", "tool", "inputs", "memory", "needs", "params",
             "when", "for_each", "gate", "retry", "prompt", "parallel", "depends_on"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
))  # fmt: skip
def test_no_file_makes_it_fall_over(value: Any, tmp_path: Path) -> None:
    import yaml

    (tmp_path / "odd.yaml").write_text(yaml.safe_dump({"workflows": {"w": value}}))
    file = WorkflowFile(tmp_path / "odd.yaml")
    problems = validate_file(file)
    try:
        workflow = file.workflow("w")
    except EmError:
        assert problems
        return
    from em.workflows.plan import refuse_invalid

    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        with pytest.raises(InvalidWorkflow):
            refuse_invalid(workflow, {}, "odd.yaml")
