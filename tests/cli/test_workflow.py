"""`em workflow` as a user types it."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from em_command import EM, em
from tests.children import LIMIT

from em import Memory

FLOW = """
workflows:
  tell:
    description: Say something about a topic.
    params: [topic, {depth: 3}]
    steps:
      - {name: facts, inputs: {prompt: "Facts about {{params.topic}}, {{params.depth}}"}}
      - name: text
        memory: {needs: [facts, user_prompt]}
        inputs: {prompt: "Write about {{memory.user_prompt}}: {{memory.facts}}"}
  gated:
    steps:
      - {name: draft, inputs: {prompt: write}}
      - name: send
        tool: send
        gate: true
        memory: {needs: [draft]}
        inputs: {text: "{{memory.draft}}"}
  asking:
    steps:
      - {name: ask, tool: ask, inputs: {message: "Which colour?"}}
  broken:
    steps:
      - {name: a, tool: fail}
  unsure:
    params: [loud, {name: x}]
    steps:
      - {name: a, inputs: {prompt: x}}
      - {name: b, tool: fail, when: "{{ params.loud }}"}
  slow:
    steps:
      - {name: a, inputs: {prompt: x}}
      - {name: b, tool: hang}
"""
TOOLS = """
import pathlib, time
def send(text):
    print("a tool that prints")
    return "sent " + text
def fail():
    raise OSError("no network")
def hang():
    pathlib.Path("hanging").touch()
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "em.yaml").write_text(FLOW)
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "replies.json").write_text('["five facts", "a fine text"]')
    monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
    monkeypatch.setenv("EM_LLM_BASE_URL", "replies.json")


def test_from_the_list_to_what_each_step_was_given() -> None:
    listed = em("workflow", "list").out
    assert "tell" in listed
    assert "topic, depth=3" in listed
    assert em("workflow", "list", "--json").json["workflows"][0]["steps"][1]["name"] == "text"
    dry = em("workflow", "run", "tell", "-p", "topic=bees", "--dry-run")
    assert "Write about bees: <output of facts>" in dry.out
    assert not Path(".em").exists()
    ran = em("workflow", "run", "tell", "--param", "topic=bees", "--param", "depth=5")
    assert (ran.code, ran.out) == (0, "a fine text\n")
    shown = em("workflow", "inspect", "--recent").out
    assert "Facts about bees, 5" in shown
    every = em("workflow", "inspect", "--all", "--json").json
    (run,), (left,) = every["runs"], every["memory"]
    assert (left["name"], left["count"], left["calls"]) == ("tell", 1, 2)
    assert left["size"] > 100
    assert "memory" not in em("workflow", "inspect", "--json").json
    assert em("workflow", "inspect", "--all", "--status", "failed", "--json").json["memory"] == []
    view = em("workflow", "inspect", run["run_id"], "--json").json
    assert view["steps"][1]["memory"]["facts"] == "five facts"
    assert view["tokens"]["full"] >= view["tokens"]["sent"]
    assert em("workflow", "graph", "tell").out.startswith("facts (model_call)\ntext (model_call)")
    assert "s0 --> s1" in em("workflow", "graph", "tell", "--mermaid").out
    assert em("workflow", "validate").out == "valid\n"
    same = ("workflow", "run", "tell", "-p", "topic=bees", "--run-id", run["run_id"])
    assert em(*same, "-p", "depth=5", "--json").json["output"] == "a fine text"
    assert "this input differs" in em(*same).err
    cleaned = em("workflow", "cleanup", "--older-than", "0d")
    assert cleaned.out == run["run_id"] + "\n"
    assert "erased: 1 run, 4 entries" in cleaned.err


def test_false_on_the_command_line_is_not_a_text_that_counts_as_true() -> None:
    for words in (["-p", "loud=false"], ["--params", '{"loud": false}']):
        done = em("workflow", "run", "unsure", "--tools", "tools.py", "--json", *words)
        assert done.json["status"] == "ok", done.err
    for words in (["-p", "loud=true"], ["-p", "loud=False"]):
        done = em("workflow", "run", "unsure", "--tools", "tools.py", "--json", *words)
        assert done.json["status"] == "failed"
    kept = em(
        "workflow",
        "run",
        "unsure",
        "-p",
        "loud=x",
        "-p",
        "name=true",
        "--dry-run",
        "--tools",
        "tools.py",
    )
    assert kept.code == 0, "a text may be the word true where a text is declared"


def test_a_gate_waits_and_goes_on_by_an_answer() -> None:
    waits = em("workflow", "run", "gated", "--tools", "tools.py")
    assert (waits.code, waits.out) == (1, "")
    assert "waits for an answer: Run the step send" in waits.err
    run_id = waits.err.partition("em resume ")[2].partition(" ")[0]
    assert f"em resume {run_id} --tools tools.py" in waits.err
    Path("answers.json").write_text(json.dumps({"send": {"approve": True}}))
    done = em("resume", run_id, "--tools", "tools.py", "--answers", "answers.json")
    assert (done.code, done.out) == (0, "sent five facts\n")
    assert em("workflow", "run", "gated", "--tools", "tools.py", "--yes").code == 0
    # A workflow has no functions of its own that an option could name.
    assert em("resume", run_id, "--udf", "tools.py").code == 2


def test_yes_is_offered_only_where_it_answers() -> None:
    assert "or --yes" in em("workflow", "run", "gated", "--tools", "tools.py").err
    waits = em("workflow", "run", "asking", "--yes").err
    assert 'with {"ask":{"answer":"…"}}' in waits
    assert "--yes" not in waits


def test_a_failed_run_says_so_and_exits_with_1() -> None:
    ran = em("workflow", "run", "broken", "--tools", "tools.py")
    assert (ran.code, ran.out) == (1, "")
    assert "failed: step a: OSError: no network" in ran.err
    assert "--retry" in ran.err
    told = em("workflow", "run", "broken", "--tools", "tools.py", "--json")
    assert (told.code, told.json["status"]) == (1, "failed")


def test_ctrl_c_says_how_to_go_on() -> None:
    process = subprocess.Popen(
        [*EM, "workflow", "run", "slow", "--tools", "tools.py"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    while not Path("hanging").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    run_id = err.partition("resume with: em resume ")[2].split()[0]
    (step,) = [
        step
        for step in em("workflow", "inspect", run_id, "--json").json["steps"]
        if step["name"] == "b"
    ]
    assert step["status"] == "under way"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["run", "tel", "-p", "topic=x"], 1, "did you mean 'tell'?"),
        (["run", "tell"], 2, "'topic' is missing"),
        (["run", "tell", "-p", "topic"], 2, "expected NAME=VALUE"),
        (["run", "tell", "-p", "topik=x"], 2, "did you mean 'topic'?"),
        (["run", "tell", "-p", "topic=x", "-p", "depth=x"], 2, "not an integer"),
        (["run", "gated"], 1, "there is no tool 'send'"),
        (["run", "tell", "-f", "none.yaml"], 1, "does not exist"),
        (["run", "tell", "-f", "empty.yaml"], 1, "it has none"),
        (["validate", "-f", "odd.yaml"], 1, "there is no step 'fcts'"),
        (["validate", "nope"], 1, "there is no workflow"),
        (["graph", "nope"], 1, "there is no workflow"),
        (["graph", "w", "-f", "odd.yaml"], 1, "fcts"),
        (["inspect", "nope"], 1, "there is no workflow run 'nope'"),
        (["inspect", "--recent", "--all"], 2, "give only one of RUN"),
        (["cleanup", "--older-than", "soon"], 2, "--older-than must be a duration"),
        (["rnu"], 2, "rnu"),
    ],
)
def test_slips_are_told(args: list[str], code: int, said: str) -> None:
    Path("empty.yaml").write_text("")
    Path("odd.yaml").write_text(
        "workflows: {w: {steps: [{name: facts, inputs: {prompt: x}},"
        " {name: b, memory: {needs: [fcts]}, inputs: {prompt: x}}]}}"
    )
    Memory().close()
    ran = em("workflow", *args)
    assert (ran.code, said in ran.err + ran.out) == (code, True), ran


def test_a_gate_is_answered_where_a_parameter_is_a_secret(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(
        "workflows:\n  g:\n    params: [user, password]\n    steps:\n"
        "      - {name: a, tool: log_in, gate: 'ok?', inputs: {user: '{{params.user}}', "
        "password: '{{params.password}}'}}\n"
    )
    (tmp_path / "login.py").write_text("def log_in(user, password):\n    return len(password)\n")
    given = ("--param", "user=u", "--param", "password=hunter2secretXY", "--tools", "login.py")
    ran = em("workflow", "run", "g", "--file", "g.yaml", *given, "--yes", "--json")
    assert (ran.code, ran.json["output"]) == (0, 15), ran.err
    assert b"hunter2secretXY" not in (tmp_path / ".em" / "em.db").read_bytes()


def test_a_file_without_workflows_is_not_called_valid(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    refused = em("workflow", "validate", "--file", "empty.yaml")
    assert refused.code == 1
    assert "the file has no workflows" in refused.out + refused.err


def test_a_cancelled_run_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(
        "workflows: {g: {steps: [{name: a, tool: look, gate: 'ok?', inputs: {}}]}}\n"
    )
    (tmp_path / "look.py").write_text("def look():\n    return 1\n")
    ran = em("workflow", "run", "g", "--file", "g.yaml", "--tools", "look.py", "--json")
    run = ran.json["run_id"]
    assert em("runs", "cancel", run).code == 0
    over = em("resume", run)
    assert (over.code, over.out) == (1, "")
    assert f"run {run}: this run is over: cancelled" in over.err
    assert f"em resume {run} --retry" in over.err
