"""`--llm`, `--auto-fix`, `em routine` from a user's chair, with a scripted model."""

import json
from pathlib import Path
from typing import Any

import pytest
from em_command import em

TRACE = {
    "mission": {"goal": "greet", "input_summary": {"name": "Ana Lopez"}},
    "events": [
        {"type": "tool_call", "tool": "find_id", "args": {"name": "Ana Lopez"}, "result": "u-771"},
        {"type": "tool_call", "tool": "greet", "args": {"id": "u-771"}, "result": "hello u-771"},
    ],
    "final_output": "hello u-771",
}
TOOLS = """
def find_id(name):
    return "u-" + str(len(name))

def greet(user_id):
    return "hello " + user_id
"""
ROUTINE = """\
name: greeting
tools: [{name: find_id, effect: read}, {name: greet, effect: write}]
input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
output_schema: {type: string}
steps:
  - {id: who, type: tool.call, tool: find_id, args: {name: "{{ name }}"}, save_as: user}
  - {id: same, type: udf.call, function: same, args: {text: "{{ user }}"}, save_as: user_again}
  - {id: greet, type: tool.call, tool: greet, args: {id: "{{ user_again }}"}, save_as: greeting}
  - {id: end, type: return, value: "{{ greeting }}"}
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "in.json").write_text('{"name": "Bo Andersson"}')


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def script(*replies: Any) -> None:
        (tmp_path / "replies.json").write_text(json.dumps(replies))
        monkeypatch.setenv("EM_LLM_PROVIDER", "scripted")
        monkeypatch.setenv("EM_LLM_BASE_URL", "replies.json")

    return script


def improved(udf: str = "def same(text):\n    return text\n") -> dict[str, str]:
    return {"routine_yaml": ROUTINE, "udf_py": udf, "notes": "names that say what they hold"}


def test_a_model_improves_what_is_compiled(tmp_path: Path, says: Any) -> None:
    says(improved())
    made = em("compile", "trace.json", "-o", "out", "--llm")
    assert (made.code, made.err.count("em trust")) == (0, 1)
    assert "improved by scripted" in made.out
    assert "names that say what they hold" in made.out
    marks = json.loads((tmp_path / "out" / "written_by.json").read_text())
    assert marks["udf.py"]["by"] == "model"
    assert "code_written" in em("log", "show", "--json").out
    assert "id: greet" in (tmp_path / "out" / "routine.yaml").read_text()


def test_what_does_not_hold_is_dropped_and_said(tmp_path: Path, says: Any) -> None:
    wrong = improved("def same(text):\n    return 'u-771'\n")
    says(wrong, wrong, wrong)
    made = em("compile", "trace.json", "-o", "out", "--llm")
    assert made.code == 0
    assert "fell back to the routine compiled without the model" in made.out
    assert "hard-coded" in made.out
    assert not (tmp_path / "out" / "udf.py").exists()
    report = em("compile", "trace.json", "-o", "out", "--llm", "--json").json
    assert report["model"]["improved"] is False
    assert "hard-coded" in report["model"]["fell_back"]
    assert len(report["model"]["problems"]) == 3


def test_a_constant_that_the_model_says_varies_becomes_an_input(tmp_path: Path, says: Any) -> None:
    greeting = {"tool": "greet", "args": {"id": "u-771", "tone": "kind"}, "result": "hello u-771"}
    events = [TRACE["events"][0], {"type": "tool_call", **greeting}]  # type: ignore[index]  # a literal
    (tmp_path / "trace.json").write_text(json.dumps({**TRACE, "events": events}))
    mine = ('{id: "{{ user_again }}"}', '{id: "{{ user_again }}", tone: "{{ tone }}"}')
    says({**improved(), "routine_yaml": ROUTINE.replace(*mine), "inputs": ["greet.tone"]})
    made = em("compile", "trace.json", "-o", "out", "--llm", "--json")
    assert made.code == 0, made.err
    assert made.json["model"]["improved"], made.json["model"]["problems"]
    assert json.loads((tmp_path / "out" / "input.json").read_text())["tone"] == "kind"
    assert 'tone: "{{ tone }}"' in (tmp_path / "out" / "routine.yaml").read_text()


def test_what_a_model_says_does_not_steer_the_terminal(says: Any) -> None:
    says({**improved(), "notes": "\x1b[2Jgone"})
    made = em("compile", "trace.json", "-o", "out", "--llm")
    assert (made.code, "gone" in made.out, "\x1b" in made.out + made.err) == (0, True, False)
    wrong = {**improved(), "routine_yaml": ROUTINE.replace("id: who", 'id: "\\e[2Jwho", when: "x"')}
    says(wrong, wrong, wrong)
    made = em("compile", "trace.json", "-o", "out2", "--llm")
    assert "fell back to the routine compiled without the model" in made.out
    assert "\x1b" not in made.out + made.err


def test_a_function_of_one_s_own_is_kept(tmp_path: Path, says: Any) -> None:
    call = {"type": "udf_call", "function": "same", "args": {"text": "u-771"}, "result": "u-771"}
    events = [TRACE["events"][0], call, TRACE["events"][1]]  # type: ignore[index]  # a literal
    (tmp_path / "trace.json").write_text(json.dumps({**TRACE, "events": events}))
    (tmp_path / "mine.py").write_text("def same(text):\n    return str(text)\n")
    says(improved(), improved(""))
    made = em("compile", "trace.json", "-o", "out", "--llm", "--udf", "mine.py")
    assert (made.code, "improved by" in made.out) == (0, True)
    assert "str(text)" in (tmp_path / "out" / "udf.py").read_text()
    assert not (tmp_path / "out" / "written_by.json").exists()


def test_without_a_model_the_variable_to_set_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EM_LLM_PROVIDER", "ANTHROPIC_API_KEY", "EM_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    made = em("compile", "trace.json", "-o", "out", "--llm")
    assert made.code == 2
    assert "ANTHROPIC_API_KEY" in made.err
    assert not (tmp_path / "out").exists()


def test_a_person_s_functions_are_not_replaced_by_a_model_s(tmp_path: Path, says: Any) -> None:
    assert em("compile", "trace.json", "-o", "out").code == 0
    (tmp_path / "out" / "udf.py").write_text("def mine():\n    return 1\n")
    says(improved())
    made = em("compile", "trace.json", "-o", "out", "--llm")
    assert made.code == 2
    assert "functions that a person wrote" in made.err
    assert (tmp_path / "out" / "udf.py").read_text().startswith("def mine")


def test_a_fix_makes_a_run_succeed(tmp_path: Path, says: Any) -> None:
    """The tool's argument was renamed: the recorded call fails until it is mended."""
    assert em("compile", "trace.json", "-o", "out").code == 0
    run = ["run", "out", "--input", "in.json", "--tools", "tools.py"]
    assert em(*run).code == 1
    says({"strategy": "modify_args", "args": {"user_id": "u-12"}, "reason": "it was renamed"})
    fixed = em(*run, "--auto-fix", "--json").json
    assert (fixed["status"], fixed["output"]) == ("ok", "hello u-12")
    shown = em("runs", "show", fixed["run_id"])
    assert "modify_args" in shown.err
    assert em(*run).code == 1, "the routine is as it was"


def test_a_private_value_is_a_marker_to_the_model_and_itself_to_the_tool(
    tmp_path: Path, says: Any
) -> None:
    (tmp_path / "loud.py").write_text(
        TOOLS + "import pathlib\n"
        "tried = pathlib.Path('tried')\n"
        "def greet(id):\n"
        "    if not tried.exists():\n"
        "        tried.touch()\n"
        "        raise ValueError('busy')\n"
        "    tried.unlink()\n"
        "    return 'HELLO ' + id\n"
    )
    assert em("compile", "trace.json", "-o", "out").code == 0
    # Only who was shown the marker can leave it where it was; elsewhere it is refused.
    says({"strategy": "modify_args", "args": {"id": "<private:id>"}, "reason": "x"})
    run = ["run", "out", "--input", "in.json", "--tools", "loud.py", "--auto-fix"]
    assert em(*run, "--private", "id").out == '"HELLO u-12"\n'
    assert em(*run).code == 1
