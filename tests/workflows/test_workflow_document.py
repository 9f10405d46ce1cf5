"""Every sample of the document that workflows promise runs here, word for word."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from em import Memory
from em.llm import ScriptedClient
from em.values.canonical import Json
from em.workflows import MemoryStore
from em.workflows.definition import read_workflow

DOCUMENT = Path(__file__).with_name("document.md").read_text()


def samples(language: str) -> list[str]:
    blocks = re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)
    # Two ways of writing one thing stand in one block, each under a comment.
    return [part for block in blocks for part in re.split(r"(?=# (?:Avoid|After))", block) if part]


def steps_of(value: Any) -> list[Json]:
    if isinstance(value, list):
        return [dict(step) for step in value]
    if "workflows" in value:
        return list(value["workflows"].popitem()[1]["steps"])
    return list(value["steps"]) if "steps" in value else [{"name": "sample", **value}]


def as_workflow(sample: str) -> Json:
    """A sample with the steps before it that it speaks of, and nothing of it changed."""
    steps = steps_of(yaml.safe_load(sample))
    for step in steps:
        step.setdefault("inputs", {"prompt": "Do it."})
    names = {step["name"] for step in steps}
    needed = re.findall(r"tool_output\((\w+)\)", sample)
    before = [
        {"name": name, "inputs": {"prompt": f"Do {name}."}}
        for name in dict.fromkeys(needed)
        if name not in names
    ]
    params = ["topic", {"analysis_depth": "detailed"}, {"output_format": "report"}]
    return {
        "name": "sample",
        "params": [*params, {"initial_model": "a model"}],
        "steps": [*before, *steps],
    }


@pytest.mark.parametrize("sample", samples("yaml"))
def test_every_yaml_sample_runs(memory: Memory, model: ScriptedClient, sample: str) -> None:
    workflow = read_workflow(as_workflow(sample), "sample")
    result = memory.workflows(client=model).start_this(workflow, {"topic": "bees"})
    assert (result.status, result.failure) == ("ok", None)
    asked = model.requests[-1].prompt
    assert "{{" not in asked
    assert "{%" not in asked
    for name in re.findall(r"\{\{memory\.(\w+)_output\}\}", str(workflow.steps[-1].inputs)):
        if f"tool_output({name})" in sample:
            assert result.outputs[name] in asked


def test_the_complete_example_runs_from_its_file_by_its_command_words(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sample,) = [block for block in samples("yaml") if block.startswith("workflows:")]
    (tmp_path / "em.yaml").write_text(sample)
    replies = '["findings", "questions", "answers", "the report"]'
    (tmp_path / "replies.json").write_text(replies)
    monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
    monkeypatch.setenv("EM_LLM_BASE_URL", "replies.json")
    result = memory.workflow("research_and_analyze", {"topic": "bees"})
    assert (result.status, result.output) == ("ok", "the report")
    assert list(result.outputs) == [
        "research",
        "generate_questions",
        "detailed_analysis",
        "create_report",
    ]
    assert result.warnings == ()
    view = memory.workflows().inspect(result.run_id)
    prompt = view.steps[3].inputs["prompt"]
    assert prompt == textwrap.dedent("""\
        Topic: bees
        Format: report
        Depth: detailed

        Research: findings
        Analysis: answers

        Create a comprehensive report on bees.
        """)


def test_the_python_samples_work(memory: Memory, model: ScriptedClient) -> None:
    saving, cleaning = samples("python")

    def custom_tool() -> str:
        exec(f"from em.workflows import memory_manager\n{saving}", {})
        return "Main analysis result"

    (needs,) = [block for block in samples("yaml") if "classification(analysis)" in block]
    prompt = "{{memory.analysis}} / {{memory.warning}}"
    steps = [
        {"name": "custom", "tool": "custom_tool"},
        {"name": "use", **yaml.safe_load(needs), "inputs": {"prompt": prompt}},
    ]
    workflow = read_workflow({"name": "w", "steps": steps}, "w")
    result = memory.workflows(tools={"custom_tool": custom_tool}, client=model).start_this(workflow)
    assert result.output == "[Main analysis result / Low confidence in data source]"
    saved = memory.workflows().inspect(result.run_id).steps[0].saved
    assert [one["metadata"] for one in saved] == [{"confidence": 0.95}, {"severity": "medium"}]

    names: dict[str, Any] = {}
    import os

    os.environ["EM_DB"] = "em.db"
    exec(cleaning.replace("from app.memory_store", "from em.workflows"), names)
    assert names["deleted_count"] == 0  # nothing is thirty days old
    with MemoryStore() as store:
        assert store.cleanup_old_entries(days_old=0) > 0
    names["store"].close()
    del os.environ["EM_DB"]


def test_the_example_runs() -> None:
    import subprocess
    import sys

    demo = Path(__file__).parents[2] / "examples" / "research" / "demo.py"
    ran = subprocess.run([sys.executable, str(demo)], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("needs_input: Write the report on honey bees from ")
    assert "report: done, given ['analysis_depth', 'count_output'" in ran.stdout.replace(
        "'count', ", ""
    )
    assert "tokens: about " in ran.stdout
