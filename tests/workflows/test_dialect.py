"""The sample configuration of the fifth document's project runs as it is written."""

from pathlib import Path

import pytest

from em import Memory, Settings
from em.errors import InvalidWorkflow
from em.llm import ScriptedClient
from em.workflows.definition import in_one_form

CONFIG = """
main_llm:
  provider: gemini
  model: gemini-1.5-flash

workflows:
  two_steps:
    params: [user_prompt]
    steps:
      - name: first
        inputs:
          prompt: "{{params.user_prompt}}"
      - name: second
        tool: "model_call"
        inputs:
          provider: anthropic
          prompt: "More about {{steps.first.output}}"

  parallel_summarizer:
    params:
      - user_prompt
      - summarizer_model: "gemini-1.5-pro"
    steps:
      - name: reformulate
        tool: "model_call"
        inputs:
          provider: "gemini"
          model: "gemini-1.5-flash"
          prompt: "Say it clearly: '{{params.user_prompt}}'"
      - name: parallel_execution
        tool: "parallel_query"
        inputs:
          queries:
            - provider: "anthropic"
              model: "claude-3-haiku-20240307"
              prompt_template: "{{steps.reformulate.output}}"
            - provider: "deepseek"
              model: "deepseek-chat"
              prompt_template: "Briefly: {{steps.reformulate.output}}"
      - name: summarize
        tool: "model_call"
        inputs:
          provider: "gemini"
          model: "{{params.summarizer_model}}"
          prompt: "To '{{params.user_prompt}}': {{steps.parallel_execution.outputs}}."
"""


@pytest.mark.parametrize("name", ["em.yaml", "config.yaml"])
def test_the_sample_configuration_runs(
    memory: Memory, model: ScriptedClient, tmp_path: Path, name: str
) -> None:
    Path(name).write_text(CONFIG)
    file = None if name == "em.yaml" else name
    result = memory.workflow(
        "parallel_summarizer", {"user_prompt": "bees"}, file=file, client=model
    )
    assert (result.status, result.warnings) == ("ok", ())
    clear = result.outputs["reformulate"]
    assert list(result.outputs["parallel_execution"]) == [
        "anthropic/claude-3-haiku-20240307",
        "deepseek/deepseek-chat",
    ]
    asked = [request.prompt for request in model.requests]
    assert asked[0] == "Say it clearly: 'bees'"
    assert set(asked[1:3]) == {clear, f"Briefly: {clear}"}
    assert all(said in asked[3] for said in result.outputs["parallel_execution"].values())
    view = memory.workflows(file, client=model).inspect(result.run_id)
    assert view.steps[1].memory == {"reformulate_output": clear}


def test_main_llm_is_the_model_of_steps_that_name_none(memory: Memory) -> None:
    Path("config.yaml").write_text(CONFIG)
    flow = memory.workflows("config.yaml").file.workflow("two_steps")
    first, second = flow.steps
    assert (first.inputs["provider"], first.inputs["model"]) == ("gemini", "gemini-1.5-flash")
    assert second.inputs["provider"] == "anthropic"
    assert "model" not in second.inputs
    Path("em.yaml").write_text(CONFIG)
    assert Settings.load().llm.provider == "gemini"
    assert Settings.load().llm.model == "gemini-1.5-flash"


def test_a_misspelt_step_is_found_before_anything_runs(memory: Memory) -> None:
    Path("em.yaml").write_text(CONFIG.replace("steps.first.output", "steps.frist.output"))
    with pytest.raises(InvalidWorkflow, match="frist"):
        memory.workflow("two_steps", {"user_prompt": "bees"})


def test_only_expressions_are_rewritten() -> None:
    step = {"name": "s", "inputs": {"prompt": "steps.a.output is {{ my.steps.a.output }}"}}
    assert in_one_form({"steps": [step]}) == {"steps": [step]}
    condition = {"name": "s", "when": "steps.a.output == 'x'", "inputs": {}}
    (made,) = in_one_form({"steps": [condition]})["steps"]
    assert made["when"] == "memory.a_output == 'x'"
    assert made["memory"]["needs"] == ["tool_output(a)"]
    assert in_one_form({"steps": [made]}) == {"steps": [made]}
