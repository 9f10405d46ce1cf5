"""`em compile`, `em run` and `em routine validate` from a user's chair."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from em_command import EM, em, on_terminal
from tests.children import LIMIT

TRACE: dict[str, Any] = {
    "mission": {"goal": "greet", "input_summary": {"name": "Ana Lopez"}},
    "events": [
        {"type": "tool_call", "tool": "find_id", "args": {"name": "Ana"}, "error": "Error: which?"},
        {"type": "tool_call", "tool": "find_id", "args": {"name": "Ana Lopez"}, "result": "u-771"},
        {"type": "approval", "prompt": "Greet?", "answer": True},
        {"type": "tool_call", "tool": "greet", "args": {"id": "u-771"}, "result": "hello u-771"},
    ],
    "final_output": "hello u-771",
}
TOOLS = """
def find_id(name):
    print("looking")
    return "u-" + str(len(name))

def greet(id):
    if id == "u-3":
        raise ValueError("not you")
    return "hello " + id
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "in.json").write_text('{"name": "Bo Andersson"}')


def test_a_failed_run_names_the_command_that_takes_it_up(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "routine.yaml").write_text(
        "name: r\nsteps:\n"
        "  - {id: look, type: tool.call, tool: look, effect: read, save_as: seen}\n"
        '  - {id: end, type: return, value: "{{ seen }}"}\n'
    )
    (tmp_path / "t.py").write_text("def look():\n    return open('there.txt').read()\n")
    failed = em("run", "r", "--tools", "t.py")
    (command,) = re.findall(r"retry with: em (resume .*)", failed.err)
    (tmp_path / "there.txt").write_text("found")
    again = em(*command.split())
    assert (failed.code, again.code, "found" in again.out) == (1, 0, True), again


def test_a_run_is_cancelled_and_retried_from_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "routine.yaml").write_text(
        "name: r\nsteps:\n"
        "  - {id: ask, type: prompt.user, prompt: {message: Go?, fields: [{name: ok}]}}\n"
        "  - {id: look, type: tool.call, tool: look, effect: read}\n"
    )
    (tmp_path / "t.py").write_text("def look():\n    return open('there.txt').read()\n")
    run = em("run", "r", "--tools", "t.py", "--json").json["run_id"]
    assert em("runs", "cancel", run).out == "cancelled: 1 run\n"
    shown = em("runs", "show", run)
    assert shown.out.startswith("cancelled by ")
    assert f"retry with: em resume {run} --retry" in shown.err
    twice = em("runs", "cancel", run)
    assert twice.code == 2
    assert "the run is over: cancelled" in twice.err
    retry = ("resume", run, "--retry", "--tools", "t.py", "--answers", '{"ask": {"ok": "y"}}')
    assert em(*retry).code == 1
    assert "there.txt" in em("runs", "show", run).out
    (tmp_path / "there.txt").write_text("here")
    assert em("resume", run, "--tools", "t.py").code != 0, "only who says --retry means it"
    assert em(*retry[:-2]).code == 0
    assert em("runs", "list", "--status", "ok", "--json").json["runs"][0]["run_id"] == run


def answers_file(folder: Path, answer: Any) -> None:
    """Write an answer to the only question of the routine."""
    document = yaml.safe_load((folder / "out" / "routine.yaml").read_text())
    (step,) = [one["id"] for one in document["steps"] if one["type"] == "prompt.user"]
    (folder / "answers.json").write_text(json.dumps({step: {"answer": answer}}))


def test_compile_shows_and_run_runs(tmp_path: Path) -> None:
    ran = em("compile", "trace.json", "-o", "out")
    assert ran.code == 0
    assert ran.out.startswith((tmp_path / "out" / "routine.yaml").read_text())
    shown = em("compile", "trace.json", "-o", "out", "--json").json
    assert (shown["proved"], shown["input"]) == (True, {"name": "Ana Lopez"})
    document = yaml.safe_load((tmp_path / "out" / "routine.yaml").read_text())
    calls = [one.get("tool") for one in document["steps"] if one["type"] == "tool.call"]
    assert calls == ["find_id", "greet"], "what failed and was repeated is left out"
    assert em("routine", "validate", "out").out == "valid\n"
    done = em("run", "out", "--input", "in.json", "--tools", "tools.py", "--yes")
    assert (done.code, done.out) == (0, '"hello u-12"\n')
    assert "looking" in done.err, "what tools print does not get into the result"
    report = em("run", "out", "--input", "in.json", "--tools", "tools.py", "--yes", "--json").json
    assert (report["status"], report["output"]) == ("ok", "hello u-12")
    assert {step["status"] for step in report["steps"]} == {"done"}


def test_a_run_waits_for_its_answers(tmp_path: Path) -> None:
    em("compile", "trace.json", "-o", "out")
    waiting = em("run", "out", "--input", "in.json", "--tools", "tools.py")
    assert waiting.code == 1
    assert "Greet?" in waiting.err
    answers_file(tmp_path, "yes")
    answered = em(
        "run", "out", "--input", "in.json", "--tools", "tools.py", "--answers", "answers.json"
    )
    assert answered.code == 0
    answers_file(tmp_path, "perhaps")
    wrong = em(
        "run", "out", "--input", "in.json", "--tools", "tools.py", "--answers", "answers.json"
    )
    assert wrong.code == 1
    assert "yes or no" in wrong.err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["compile", "none.json", "-o", "x"], 2, "does not exist"),
        (["compile", "trace.json"], 2, "--output"),
        (["compile", "tools.py", "-o", "x"], 2, "expected a trace"),
        (["compile", "trace.json", "-o", "full"], 2, "not a routine package"),
        (["compile", "trace.json", "-o", "x", "--tools", "no.module"], 2, "there is no module"),
        (["run", "none"], 2, "no folder and no stored routine"),
        (["run", "full"], 1, "there is no routine.yaml"),
        (["run", "out", "--tools", "none.py"], 2, "no such file"),
        (["run", "out", "--tools", "."], 2, "found a folder"),
        (["worker", "--drain", "--tools", "./tools"], 2, "the name of a module"),
        (["run", "out", "--input", "none.json"], 2, "can't be read"),
        (["run", "out", "--input", "tools.py"], 2, "expected a JSON object"),
        (["run", "out", "--tools", "tools.py"], 1, '"inputs":{"name"'),
        (["run", "out", "--input", "in.json"], 1, "there is no tool 'find_id'"),
        (
            ["run", "out", "--input", "bo.json", "--tools", "tools.py", "--yes"],
            1,
            "ValueError: not you",
        ),
        (["routine", "validate", "full"], 1, "there is no routine.yaml"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, args: list[str], code: int, says: str) -> None:
    em("compile", "trace.json", "-o", "out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "bo.json").write_text('{"name": "Bob"}')
    ran = em(*args)
    assert ran.code == code, ran.err
    assert says in ran.out + ran.err


def test_runs_are_journalled_listed_shown_and_resumed(tmp_path: Path) -> None:
    em("compile", "trace.json", "-o", "out")
    waiting = em("run", "out", "--input", "in.json", "--tools", "tools.py", "--json").json
    run_id = waiting["run_id"]
    assert waiting["status"] == "needs_input"
    listed = em("runs", "list").out
    assert run_id in listed
    assert "needs_input" in listed
    assert f"em resume {run_id}" in em("runs", "show", run_id).err
    answers_file(tmp_path, True)
    done = em("resume", run_id, "--tools", "tools.py", "--answers", "answers.json")
    assert (done.code, done.out) == (0, '"hello u-12"\n')
    assert "looking" in done.err, "nothing had an effect yet, so it looks again"
    shown = em("runs", "show", run_id)
    assert '"u-12"' in shown.out
    assert "ok: 2 steps" in shown.out
    assert em("runs", "show", run_id, "--json").json["end"]["output"] == "hello u-12"
    over = em("resume", run_id, "--tools", "tools.py")
    assert over.code == 1
    assert "this run is over" in over.err
    assert em("resume", "nothing").code == 1
    assert em("log", "verify").code == 0


def test_without_a_journal_nothing_is_kept_and_a_dry_run_calls_nothing(tmp_path: Path) -> None:
    em("compile", "trace.json", "-o", "out")
    plan = em("run", "out", "--input", "in.json", "--tools", "tools.py", "--dry-run")
    assert plan.code == 0
    assert "would call greet" in plan.out
    assert '= "u-12"' in plan.out, "the reads are made"
    assert "would ask: Greet?" in plan.out
    missing = em("run", "out", "--dry-run")
    assert (missing.code, "there is no tool 'find_id'" in missing.err) == (1, True)
    args = ("run", "out", "--input", "in.json", "--tools", "tools.py", "--yes", "--no-journal")
    assert em(*args).code == 0
    assert not (tmp_path / ".em").exists()


def test_nothing_is_written_of_a_trace_that_cannot_be_compiled(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("")
    (tmp_path / "nothing.json").write_text('{"events": []}')
    for name in ("empty.json", "nothing.json"):
        assert em("compile", name, "-o", "out").code in (1, 2)
    assert not (tmp_path / "out").exists()


def test_export_writes_a_script_that_does_the_same(tmp_path: Path) -> None:
    events = [one for one in TRACE["events"] if one["type"] != "approval"]
    (tmp_path / "trace.json").write_text(json.dumps({**TRACE, "events": events}))
    em("compile", "trace.json", "-o", "out")
    assert em("routine", "export", "out", "--to", "python", "-o", "greet.py").code == 0
    args = ["--input", "in.json", "--tools", "tools.py"]
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "greet.py", *args], capture_output=True, check=True
    )
    assert (ran.stdout, ran.stderr) == (b'"hello u-12"\n', b"looking\n")
    shown = em("routine", "export", "out")
    assert shown.out == (tmp_path / "greet.py").read_text()
    assert em("routine", "export", "out", "--json").json["script"] == shown.out
    (tmp_path / "out" / "routine.yaml").write_text(
        "name: x\nsteps: [{id: a, type: return, value: 'a {{ x | pprint }}'}]"
    )
    before = (tmp_path / "greet.py").read_text()
    refused = em("routine", "export", "out", "-o", "greet.py")
    assert refused.code == 1
    assert "step a, field value" in refused.err
    assert (tmp_path / "greet.py").read_text() == before


def test_ctrl_c_ends_a_run(tmp_path: Path) -> None:
    em("compile", "trace.json", "-o", "out")
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "def find_id(name):\n    pathlib.Path('began').touch()\n    time.sleep(60)\n"
        "def greet(id):\n    pass\n"
    )
    process = subprocess.Popen(
        [*EM, "run", "out", "--input", "in.json", "--tools", "slow.py"], stderr=subprocess.PIPE
    )
    while not (tmp_path / "began").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert b"Traceback" not in err


RETRIED = """
name: retried
tools: [{name: flaky, effect: read}, {name: slow, effect: read}]
steps:
  - {id: flaky, type: tool.call, tool: flaky, retry: {attempts: 3, backoff: 0.01}}
  - {id: left_out, type: tool.call, tool: slow, when: "1 > 2"}
  - {id: never_mind, type: tool.call, tool: slow, on_error: continue}
  - {id: slow, type: tool.call, tool: slow}
"""
FLAKY = """
import pathlib, time
tries = []
def flaky():
    print("\\x1b]0;PWNED\\x07 printed")
    tries.append(1)
    if len(tries) < 3:
        raise ValueError("again")
def slow():
    if pathlib.Path("wait").exists():
        pathlib.Path("began").touch()
        time.sleep(60)
    raise ValueError("\\x1b]0;PWNED\\x07 too slow")
"""


def _retried(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "retried").mkdir()
    (tmp_path / "retried" / "routine.yaml").write_text(RETRIED)
    (tmp_path / "flaky.py").write_text(FLAKY)
    return ("run", "retried", "--tools", "flaky.py")


def test_a_run_shows_its_steps_on_a_terminal(tmp_path: Path) -> None:
    command = _retried(tmp_path)
    shown = on_terminal(*command)
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip() for line in shown.splitlines()]
    for pattern in (
        r"✓ flaky  [\d.]+ ms, 3 attempts",
        r"- left_out  skipped",
        r"! never_mind  [\d.]+ ms  .*too slow",
        r"✗ slow  [\d.]+ ms  .*too slow",
        r"failed: step slow: ValueError: .*too slow",
    ):
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, lines)
    assert "\x1b[?25h" in shown, "the cursor is back"
    assert "PWNED\x07 too" not in shown
    for quiet in (em(*command), em(*command, "--json")):
        assert "✓" not in quiet.err


def test_ctrl_c_leaves_a_clean_terminal_and_says_how_to_go_on(tmp_path: Path) -> None:
    command = _retried(tmp_path)
    (tmp_path / "wait").touch()
    parent, child = pty.openpty()
    process = subprocess.Popen([*EM, *command], stdout=child, stderr=child, stdin=child)
    os.close(child)
    shown = b""
    while not (tmp_path / "began").exists() and process.poll() is None:
        shown += os.read(parent, 65_536)
    process.send_signal(signal.SIGINT)
    with suppress(OSError):
        while block := os.read(parent, 65_536):
            shown += block
    os.close(parent)
    assert process.wait(timeout=LIMIT) == 130
    text = shown.decode()
    assert "Traceback" not in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is back"
    run_id = re.search(r"interrupted\s+resume with: em resume (\S+)", text)
    assert run_id is not None
    (tmp_path / "wait").unlink()
    resumed = em("resume", run_id[1], "--tools", "flaky.py")
    assert "step slow: ValueError" in resumed.err
    assert "printed" not in resumed.err, "the step that was done does not run again"


def test_what_a_run_saved_is_told_and_only_what_was_recorded(tmp_path: Path) -> None:
    usage = {"tokens": 41_000, "duration_ms": 12_500, "model_calls": 9}
    (tmp_path / "trace.json").write_text(json.dumps({**TRACE, "usage": usage}))
    em("compile", "trace.json", "-o", "out")
    command = ("run", "out", "--input", "in.json", "--tools", "tools.py", "--yes")
    ran = em(*command, "--json").json
    saved = ran["saved"]
    assert saved["tokens"] == {"agent": 41_000, "run": 0, "saved": 41_000}
    assert saved["model_calls"] == {"agent": 9, "run": 0, "saved": 9}
    assert saved["calls"] == {"agent": 3, "run": 2, "saved": 1}
    assert saved["cost_usd"] == {"agent": None, "run": 0, "saved": None}
    assert saved["seconds"]["agent"] == 12.5
    shown = em("runs", "show", ran["run_id"])
    assert re.search(r"tokens +41,000 +0 +41,000", shown.out)
    assert re.search(r"cost_usd +not recorded +0 +not recorded", shown.out)
    assert em("runs", "show", ran["run_id"], "--json").json["saved"] == saved
    assert "41,000 tokens" in on_terminal(*command)
    assert em(*command, "--no-journal", "--json").json["saved"] is None
    routine = tmp_path / "out" / "routine.yaml"
    routine.write_text(routine.read_text() + "# changed\n")
    changed = em("runs", "show", ran["run_id"], "--json").json["saved"]
    assert changed["tokens"]["agent"] is None, "that recording may be of another routine"


def test_a_dry_run_names_the_secrets_and_shows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = {"type": "tool_call", "tool": "greet", "args": {"id": "[redacted:user_key]"}}
    (tmp_path / "trace.json").write_text(json.dumps({"events": [{**call, "result": "hello u-1"}]}))
    em("compile", "trace.json", "-o", "out")
    assert "EM_SECRET_USER_KEY" in em("run", "out", "--tools", "tools.py").err
    monkeypatch.setenv("EM_SECRET_USER_KEY", "hush-hush")
    planned = em("run", "out", "--dry-run", "--tools", "tools.py")
    assert "hush-hush" not in planned.out + planned.err
    ran = em("run", "out", "--tools", "tools.py", "--json").json
    assert ran["output"] == "hello hush-hush", "the output is what was asked for"
    assert "hush-hush" not in em("log", "show", "--json").out


def test_declared_tools_run_as_far_as_they_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "say").mkdir()
    (tmp_path / "say" / "routine.yaml").write_text(
        'name: say\ntools: [{name: say, command: [printf, "%s", "{{ word }}"]}]\nsteps:\n'
        "  - {id: ok, type: prompt.user, prompt: {message: Say it?, fields: [{name: ok,"
        " type: confirm}]}}\n"
        '  - {id: a, type: tool.call, tool: say, args: {word: "{{ name }}"}, save_as: x}\n'
        '  - {id: b, type: return, value: "{{ x }}"}\n'
    )
    assert em("routine", "validate", "say").code == 0
    refused = em("run", "say", "--input", "in.json", "--yes")
    assert refused.code == 1
    assert "--allow-command printf" in refused.err
    args = ("run", "say", "--input", "in.json", "--allow-command", "printf")
    assert em(*args, "--yes").out == '"Bo Andersson"\n'
    run_id = em(*args, "--json").json["run_id"]
    assert em("resume", run_id, "--yes", "--allow-command", "printf").out == '"Bo Andersson"\n'
    (tmp_path / "em.yaml").write_text("allow: {commands: [printf]}")
    assert em("run", "say", "--input", "in.json", "--yes").out == '"Bo Andersson"\n'
    (tmp_path / "em.yaml").write_text("allow: {comands: [printf]}")
    assert em("run", "say", "--input", "in.json", "--yes").code == 2


def test_functions_are_bound_by_compile_and_given_to_run(tmp_path: Path) -> None:
    args = {"name": "Ana Lopez"}
    made = {"type": "udf_call", "function": "code", "args": args, "result": "9-zepoL"}
    trace = {"mission": {"input_summary": args}, "events": [made]}
    (tmp_path / "t.json").write_text(json.dumps({**trace, "final_output": {"code": "9-zepoL"}}))
    code = "def code(name):\n    return f'{len(name)}-{name.split()[-1][::-1]}'\n"
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "other.py").write_text("def code(name):\n    return name\n")
    wrong = em("compile", "t.json", "-o", "out", "--udf", "other.py")
    assert wrong.code == 1
    assert 'returned "9-zepoL" in the trace, and the function returns "Ana Lopez"' in wrong.err
    assert not (tmp_path / "out").exists()
    assert em("compile", "t.json", "-o", "out", "--udf", "mine.py").code == 0
    ran = em("run", "out", "--input", "in.json")
    assert ran.out == '{"code":"12-nossrednA"}\n', ran.err
    again = em("run", "out", "--input", "in.json", "--udf", "other.py")
    assert again.out == '{"code":"Bo Andersson"}\n'
    (tmp_path / "out" / "udf.py").unlink()
    assert em("routine", "validate", "out").code == 1
    assert em("routine", "validate", "out", "--udf", "mine.py").out == "valid\n"


def test_functions_that_must_be_written_are_named(tmp_path: Path) -> None:
    trace = {
        "mission": {"goal": "sum"},
        "events": [
            {"type": "udf_call", "function": "total", "args": {"rows": [1, 2]}, "result": 3}
        ],
        "final_output": 3,
    }
    (tmp_path / "sum.json").write_text(json.dumps(trace))
    assert "write total in udf.py" in em("compile", "sum.json", "-o", "sum").err


def test_validate_tells_errors_from_warnings(tmp_path: Path) -> None:
    em("compile", "trace.json", "-o", "out")
    assert em("routine", "validate", "out", "--tools", "tools.py").out == "valid\n"
    (tmp_path / "none.py").write_text("def find_it(name): pass\n")
    wrong = em("routine", "validate", "out", "--tools", "none.py")
    assert wrong.code == 1
    assert "there is no tool 'find_id' (did you mean 'find_it'?)" in wrong.out
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "routine.yaml").write_text(
        'name: x\nsteps: [{id: a, type: return, value: "{{ x }}"}]\n'
    )
    warned = em("routine", "validate", "open")
    assert (warned.code, warned.out) == (0, "valid\n")
    assert "warning: step a, field value: no step saves 'x'" in warned.err
    report = em("routine", "validate", "open", "--json").json
    assert report["ok"]
    assert [problem["severity"] for problem in report["problems"]] == ["warning"]


WAITING = """
name: w
steps:
  - {id: a, type: tool.call, tool: find_id, args: {name: Ana}}
  - id: ask
    type: prompt.user
    save_as: x
    prompt:
      message: Which?
      fields: [{name: n, type: integer}]
  - {id: b, type: tool.call, tool: greet, args: {id: "u-{{ x.n }}"}, save_as: y}
  - {id: end, type: return, value: "{{ y }}"}
"""


def test_a_forgotten_option_or_a_wrong_answer_does_not_end_a_run(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "routine.yaml").write_text(WAITING)
    waiting = em("run", "w", "--tools", "tools.py")
    hint = re.search(r"em resume (\S+) --tools tools.py --answers FILE", waiting.err)
    assert hint is not None, waiting.err
    (tmp_path / "no.json").write_text('{"ask": {"n": "many"}}')
    (tmp_path / "yes.json").write_text('{"ask": {"n": 3}}')
    forgotten = em("resume", hint[1], "--answers", "yes.json")
    assert "there is no tool" in forgotten.err
    wrong = em("resume", hint[1], "--tools", "tools.py", "--answers", "no.json")
    assert "not accepted: step ask, field n: 'many' is not a number" in wrong.err
    shown = em("runs", "show", hint[1])
    assert f"em resume {hint[1]} --tools tools.py" in shown.err
    failed = em("resume", hint[1], "--tools", "tools.py", "--answers", "yes.json")
    assert "step b: ValueError: not you" in failed.err
    over = em("runs", "show", hint[1])
    assert "step b: ValueError: not you" in over.out
    assert "running when the run stopped" not in over.out
    assert json.loads(em("runs", "show", hint[1], "--json").out)["saved"] is None


def test_a_person_is_asked_until_the_answer_fits_and_may_leave(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "routine.yaml").write_text("""
name: w
steps:
  - id: ask
    type: prompt.user
    save_as: x
    prompt:
      message: Which?
      fields:
        - {name: note, required: false}
        - {name: several, type: multiselect, options: [red, blue]}
  - {id: end, type: return, value: "{{ x }}"}
""")
    shown = on_terminal("run", "w", typed="\n\ngreen\n\nblue, red\n")
    assert "one or more of: red, blue" in shown
    assert "choose at least one" in shown
    assert "not accepted: step ask, field several: 'green' is not one of: red, blue" in shown
    assert re.search(r'"note": ?null', shown)
    left = on_terminal("run", "w", "--tools", "tools.py", typed="\x04")
    assert re.search(r"resume with: em resume \S+ --tools tools.py", left)
