"""What was never true in the original: each has a test here."""

from flows import Write

from em import Memory
from em.llm import ScriptedClient
from em.workflows import memory_manager


def one(prompt: str, needs: str = "[]", before: str = "") -> str:
    return f"""
workflows:
  w:
    params: [topic, {{depth: 3}}]
    steps:
{before}
      - name: last
        memory: {{needs: {needs}}}
        inputs: {{prompt: {prompt!r}}}
"""


def test_parameters_resolve(write: Write) -> None:
    flow = write(one("{{memory.topic}} {{memory.depth}} {{memory.user_prompt}}", "[parameters]"))
    result = flow.start("w", {"topic": "bees"})
    assert result.output == "[bees 3 ]"
    assert result.warnings == ("step last: Memory variable 'user_prompt' resolved to empty string",)


def test_a_classification_resolves_and_that_of_a_result_is_kept(write: Write) -> None:
    def judge() -> dict[str, object]:
        return {"output": "too warm", "classification": "warning", "metadata": {"at": 1}}

    def save() -> str:
        memory_manager.save_step_result("x", {"output": "too dry", "classification": "warning"})
        return "saved"

    before = "      - {name: judge, tool: judge}\n      - {name: save, tool: save}"
    flow = write(
        one("{{memory.warning}} {{memory.error}}", "[classification(warning)]", before),
        {"judge": judge, "save": save},
    )
    result = flow.start("w", {"topic": "bees"})
    assert result.output == "[too warm\ntoo dry ]"
    judged = flow.inspect(result.run_id).steps[0]
    assert (judged.classification, judged.metadata) == ("warning", {"at": 1})


def test_spaces_and_conditions_are_templates_too(write: Write) -> None:
    prompt = (
        "{{ memory.user_prompt }}{% if memory.depth > 2 %} deep{% endif %}{% if "
        "memory.no %}!{% endif %}"
    )
    assert write(one(prompt, "[user_prompt]")).start("w", {"topic": "x"}).output == "[x deep]"


def test_what_stands_in_memory_is_never_templated_a_second_time(write: Write) -> None:
    evil = "{{memory.user_prompt}} {{ 7 * 7 }} {% raw %}{{params.topic}}{% endraw %} {{ x"

    def tool() -> str:
        return evil

    before = "      - {name: tool, tool: tool}"
    prompt = (
        "{{memory.user_prompt}} | {{memory.tool_output}} | {% if memory.tool_output "
        "%}{{ memory.tool_output }}{% endif %}"
    )
    flow = write(one(prompt, "[user_prompt, tool_output(tool)]", before), {"tool": tool})
    result = flow.start("w", {"topic": "t"}, prompt=evil)
    assert result.output == f"[{evil} | {evil} | {evil}]"
    assert flow.inspect(result.run_id).steps[1].inputs["prompt"] == result.output[1:-1]


def test_lists_and_nested_values_in_inputs_are_rendered(write: Write) -> None:
    def take(items: list[object], options: dict[str, object]) -> object:
        return [items, options]

    flow = write(
        """
workflows:
  w:
    params: [topic]
    steps:
      - name: take
        tool: take
        memory: {needs: [parameters]}
        inputs:
          items: ["{{memory.topic}}", ["about {{ params.topic }}"], 3]
          options: {deep: [{er: "{{ memory.parameters }}"}]}
""",
        {"take": take},
    )
    result = flow.start("w", {"topic": "bees"})
    assert result.output == [
        ["bees", ["about bees"], 3],
        {"deep": [{"er": {"topic": "bees"}}]},
    ]


def test_a_failed_run_says_so(write: Write, memory: Memory) -> None:
    def fail() -> None:
        raise OSError("the disk is on fire")

    flow = write(one("x", before="      - {name: fail, tool: fail}"), {"fail": fail})
    result = flow.start("w", {"topic": "x"})
    assert (result.status, result.output) == ("failed", None)
    assert result.failure is not None
    assert (result.failure.step_id, result.failure.error_type) == ("fail", "OSError")
    assert flow.result(result.run_id).status == "failed"
    assert flow.result(result.run_id).failure == result.failure


def test_there_are_no_simulated_answers(memory: Memory, write: Write) -> None:
    import pytest

    from em.errors import MissingKey

    text = one("x").replace("inputs: {prompt", "inputs: {provider: gemini, prompt")
    with pytest.raises(MissingKey, match="GEMINI_API_KEY"):
        write(text, client=None).start("w", {"topic": "x"})
    assert not memory.workflows().runs()


def test_a_script_answers_for_every_provider(write: Write, model: ScriptedClient) -> None:
    text = one("x").replace("inputs: {prompt", "inputs: {provider: gemini, model: m, prompt")
    assert write(text).start("w", {"topic": "x"}).output == "[x]"
