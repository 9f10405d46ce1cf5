"""What somebody types who has just met em: it works, or the message says what to do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from em_command import em, on_terminal

from em import Memory

CANCELLED = {
    "version": "1",
    "mission": {"goal": "cancel W123"},
    "events": [
        {"type": "tool_call", "seq": 0, "tool": "get_order", "args": {"order_id": "W123"},
         "result": {"status": "pending", "id": "W123"}},
        {"type": "tool_call", "seq": 1, "tool": "cancel_order", "args": {"order_id": "W123"},
         "result": None},
    ],
    "outcome": "success",
}  # fmt: skip
TOOLS = """
def get_order(order_id):
    return {"status": "pending", "id": order_id}
def cancel_order(order_id):
    open("cancelled", "a").write(order_id)
"""
CHAT = (
    '{"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]}'
)


@pytest.fixture(autouse=True)
def _files() -> None:
    for order in ("W123", "W456"):
        text = json.dumps(CANCELLED).replace("W123", order)
        Path(f"{order}.json").write_text(text)
    Path("tools.py").write_text(TOOLS)


def test_several_files_are_learnt_from_together() -> None:
    made = em("compile", "W123.json", "W456.json", "-o", "cancel", "--json")
    assert (made.code, made.json["proved"]) == (0, True)
    recording = json.loads(Path("cancel/recording.json").read_text())
    assert len(recording["recordings"]) == 2
    assert em("compile", "W123.json", "nothing.json", "-o", "other").code == 2
    assert not Path("other").exists()


def test_files_and_traces_of_the_log_are_learnt_from_together() -> None:
    assert em("import", "W123.json").code == 0
    (known,) = em("traces", "list", "--json").json["traces"]
    assert em("compile", "W456.json", known["id"], "-o", "cancel").code == 0


def test_of_several_files_those_that_can_be_read_are_imported() -> None:
    Path("empty.jsonl").touch()
    Path("good.jsonl").write_text(CHAT)
    imported = em("import", "empty.jsonl", "good.jsonl", "--json")
    assert (imported.code, imported.json["new_traces"]) == (0, 1)
    assert [bool(one.get("skipped")) for one in imported.json["files"]] == [True, False]
    assert em("import", "empty.jsonl").code == 2


def test_a_memory_above_the_repository_is_pointed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    above = Path.cwd()
    Memory(above / ".em" / "em.db").close()
    inside = above / "repository" / "src"
    inside.mkdir(parents=True)
    (inside.parent / ".git").mkdir()
    monkeypatch.chdir(inside)
    missing = em("recall", "tea", "--json")
    fix = json.loads(missing.err)["error"]["fix"]
    assert (missing.code, str(inside.parent) in fix) == (1, True)
    assert em("recall", "tea", *fix.rpartition(": ")[2].split()).code == 0


def test_a_run_says_each_write_that_it_made() -> None:
    assert em("compile", "W123.json", "--keep", "--name", "cancel").code == 0
    ran = em("run", "cancel", "order_id=W9", "--tools", "tools.py")
    assert (ran.code, ran.out) == (0, "")
    written = [line for line in ran.err.splitlines() if "cancel_order" in line]
    assert len(written) == 1
    assert "W9" in written[0]
    assert "get_order" not in ran.err


def test_a_workflow_without_an_output_prints_none() -> None:
    steps = "[{name: a, tool: quiet}]"
    Path("em.yaml").write_text(f"workflows: {{silent: {{steps: {steps}}}}}\n")
    Path("quiet.py").write_text("def quiet(): return None\n")
    ran = em("workflow", "run", "silent", "--tools", "quiet.py")
    assert (ran.code, ran.out) == (0, "")


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_an_empty_observation_is_refused(text: str) -> None:
    assert em("observe", "ana", text).code == 2
    with Memory() as memory:
        assert list(memory.log.read()) == []


def test_a_device_is_not_read_for_ever() -> None:
    assert em("observe", "ana", "--file", "/dev/zero").code == 2


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 3_000 + "1" + "}" * 3_000, '{"events":' * 900 + "[]" + "}" * 900],
)
def test_a_file_that_is_nested_too_deep_is_refused(text: str) -> None:
    Path("deep.json").write_text(text)
    assert em("compile", "deep.json", "-o", "deep").code in (1, 2)
    assert not Path("deep").exists()


def test_values_that_are_nested_too_deep_are_not_learnt_from() -> None:
    text = json.dumps(CANCELLED).replace("null", "[" * 900 + "]" * 900)
    Path("deep.json").write_text(text)
    assert em("compile", "deep.json", "-o", "deep").code in (1, 2)


def test_enter_takes_the_recorded_input() -> None:
    assert em("compile", "W123.json", "--keep", "--name", "cancel").code == 0
    shown = on_terminal("run", "cancel", "--tools", "tools.py", typed="\n")
    assert "[W123]" in shown
    assert Path("cancelled").read_text() == "W123"


def test_enter_takes_no_secret_that_was_recorded() -> None:
    assert em("compile", "W123.json", "-o", "cancel").code == 0
    Path("cancel/input.json").write_text('{"order_id": "[redacted:key]"}')
    shown = on_terminal("run", "./cancel", "--tools", "tools.py", typed="\nW7\n")
    assert "redacted" not in shown
    assert Path("cancelled").read_text() == "W7"


def test_all_permissions_that_a_run_needs_are_named_at_once() -> None:
    steps = ", ".join(
        f"{{id: s{n}, type: tool.call, tool: {name}, args: {{}}}}"
        for n, name in enumerate(("one", "two"))
    )
    tools = ", ".join(f"{{name: {name}, command: [{name}-program]}}" for name in ("one", "two"))
    Path("many").mkdir()
    Path("many/routine.yaml").write_text(f"name: many\ntools: [{tools}]\nsteps: [{steps}]\n")
    for journal in ([], ["--no-journal"]):
        refused = em("run", "./many", *journal, "--json")
        told = refused.out + refused.err
        assert (refused.code, "one-program" in told, "two-program" in told) == (1, True, True)


def test_the_doctor_notices_another_program_called_em() -> None:
    here = Path(sys.executable).parent
    ours = em("doctor", "--json", PATH=f"{here}:/usr/bin:/bin").json["problems"]
    Path("foreign").mkdir()
    Path("foreign/em").write_text("#!/bin/sh\necho smile\n")
    Path("foreign/em").chmod(0o755)
    theirs = em("doctor", "--json", PATH=f"{Path.cwd()}/foreign:{here}:/usr/bin:/bin")
    (told,) = [one for one in theirs.json["problems"] if one not in ours]
    assert (theirs.code, f"{Path.cwd()}/foreign/em" in told) == (1, True)


def test_the_doctor_notices_another_package_that_has_em() -> None:
    package = Path("site/empy-4.2.dist-info")
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: empy\nVersion: 4.2\n")
    (package / "entry_points.txt").write_text("[console_scripts]\nem = emcli:main\n")
    (package / "RECORD").write_text("")
    code = "from em.cli.root import run; import sys; sys.exit(run(['doctor', '--json']))"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append('site')\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [one for one in json.loads(ran.stdout)["problems"] if "pip uninstall empy" in one]
