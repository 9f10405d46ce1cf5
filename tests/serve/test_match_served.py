"""`POST /match` finds the routine that was recorded with the words of a request."""

import json
from pathlib import Path

import pytest
from served import Serve, Served

from em import Memory
from em.runner.package import keep_routine

GREET = """\
name: greet
input_schema: {type: object, required: [who], properties: {who: {type: string}}}
requests: ["say hello to {who}"]
tools: [{name: speak, effect: write}]
steps: [{id: say, type: tool.call, tool: speak, args: {text: "hello {{ who }}"}}]
"""


@pytest.fixture(autouse=True)
def _kept() -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": GREET})


def test_a_match_names_the_routine_and_its_inputs_and_runs_nothing(service: Served) -> None:
    found = service.post("/match", {"request": "Say hello to Ana."}).json()
    assert (found["routine"], found["inputs"]) == ("greet@1", {"who": "Ana"})
    assert service.get("/runs")["items"] == []


def test_other_words_match_nothing(service: Served) -> None:
    found = service.post("/match", {"request": "do say hello, dear Ana"}).json()
    assert (found["routine"], found["offered"]) == (None, ["greet@1"])


def test_only_routines_for_the_tools_at_hand_match(service: Served) -> None:
    asked = {"request": "say hello to Ana"}
    assert service.post("/match", {**asked, "tools": ["other"]}).json()["routine"] is None
    assert service.post("/match", {**asked, "tools": ["speak"]}).json()["routine"] == "greet@1"


def test_the_servers_model_reads_other_words_if_it_is_asked_for(
    serve: Serve, tmp_path: Path
) -> None:
    read = {"fits": True, "inputs": {"who": "Ana"}, "missing": [], "not_expressed": []}
    (tmp_path / "script.json").write_text(json.dumps([{"routine": "greet", **read}]))
    env = {"EM_LLM_PROVIDER": "scripted", "EM_LLM_BASE_URL": str(tmp_path / "script.json")}
    words = {"request": "do say hello, dear Ana"}
    service = serve(env=env)
    assert service.post("/match", words).json()["routine"] is None
    assert service.post("/match", {**words, "llm": True}).json()["inputs"] == {"who": "Ana"}
