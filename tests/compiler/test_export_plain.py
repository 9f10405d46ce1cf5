"""A learnt routine runs where there is no em: it does what was recorded, or hands over."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cancelled_orders import kept
from em import Memory
from em.compiler.export.agent_tools import export_langchain, export_openai, export_skill
from em.compiler.export.script import export_python
from em.errors import ExportError
from em.runner.package import Package, find_routine, texts_of, write_files

TOOLS = """\
from pathlib import Path


def find_user(email):
    number = email[1]
    return {"user_id": "user_" + number, "email": email, "orders": ["W" + number + "00"]}


def get_order(order_id):
    number = order_id[1]
    status = "delivered" if number == "9" else "pending"
    return {"order_id": order_id, "user_id": "user_" + number, "status": status, "channel": "web",
            "total": 7.5}


async def cancel_order(order_id, reason, notify):
    if order_id == "W800":
        raise TimeoutError("no answer")
    with open("cancelled", "a") as file:
        file.write(order_id + " " + reason + "\\n")
    return {"order_id": order_id, "status": "odd" if order_id == "W600" else "cancelled"}
"""


def given(number: int) -> dict[str, Any]:
    return {
        "email": f"u{number}@example.com",
        "order_id": f"W{number}00",
        "reason": "no longer needed",
    }


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    monkeypatch.chdir(tmp_path)
    with Memory(tmp_path / "em.db") as memory:
        kept(memory)
        write_files(texts_of(find_routine(memory.store, "cancel")), tmp_path / "cancel")
    (tmp_path / "my_tools.py").write_text(TOOLS)
    return Package(tmp_path / "cancel")


def run(script: str, data: Any) -> subprocess.CompletedProcess[str]:
    """Run a script with the standard library only."""
    command = [sys.executable, "-I", "-S", script, "--tools", "my_tools.py"]
    return subprocess.run(
        [*command, "--input", json.dumps(data)], capture_output=True, text=True, check=False
    )


def python(code: str) -> Any:
    """Return the JSON that code prints where all packages are but em."""
    start = "import sys; sys.path.insert(0, '.'); sys.modules['em'] = None; import json, my_tools\n"
    ran = subprocess.run(
        [sys.executable, "-I", "-c", start + code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def cancelled() -> str:
    return Path("cancelled").read_text() if Path("cancelled").exists() else ""


def test_a_script_does_what_was_recorded(package: Package) -> None:
    Path("cancel.py").write_text(export_python(package))
    ran = run("cancel.py", given(7))
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"order_id": "W700", "status": "cancelled"}
    assert cancelled() == "W700 no longer needed\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (given(9), "handed over: order.status must have const 'pending', and is 'delivered'"),
        ({**given(7), "order_id": "W100"}, "handed over: "),
        ({**given(7), "order_id": "x"}, "handed over: input.order_id must have pattern"),
        ({**given(7), "colour": "red"}, "handed over: input.colour is not allowed"),
        ({"email": "u7@example.com"}, "handed over: input: 'order_id' is a required property"),
    ],
)
def test_a_script_hands_over_before_the_first_write(package: Package, data: Any, why: str) -> None:
    Path("cancel.py").write_text(export_python(package))
    ran = run("cancel.py", data)
    assert (ran.returncode, ran.stdout, cancelled()) == (1, "", "")
    assert why in ran.stderr
    assert "handed over" not in why or "nothing was done" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_script_says_what_was_done(package: Package) -> None:
    Path("cancel.py").write_text(export_python(package))
    ran = run("cancel.py", given(6))
    assert ran.returncode == 1
    assert "Done before, and not undone: cancel_order" in ran.stderr
    assert "nothing was done" not in ran.stderr
    ran = run("cancel.py", given(8))
    assert ran.returncode == 1
    assert "It is not known whether cancel_order was done" in ran.stderr
    assert "nothing was done" not in ran.stderr


def test_a_skill_runs_by_its_own_command(package: Package) -> None:
    files = export_skill(package, tools="my_tools.py")
    for path, text in files.items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text)
    assert "## When it hands over" in files["SKILL.md"]
    assert "## When it asks or stops" not in files["SKILL.md"]
    assert run("scripts/routine.py", given(7)).returncode == 0
    assert "handed over" in run("scripts/routine.py", given(9)).stderr


@pytest.mark.parametrize("to", ["openai", "langchain"])
def test_an_agent_gets_the_output_or_is_told_to_do_it(package: Package, to: str) -> None:
    module = {"openai": export_openai, "langchain": export_langchain}[to](package)
    Path("tool_of_agent.py").write_text(module)
    call = {
        "openai": "from tool_of_agent import handle\n"
        "call = lambda data: json.loads(handle(json.dumps(data), my_tools))\n",
        "langchain": "from tool_of_agent import langchain_tool\n"
        "call = langchain_tool(my_tools).invoke\n",
    }[to]
    done, left = python(f"{call}print(json.dumps([call({given(7)}), call({given(9)})]))")
    assert done == {"order_id": "W700", "status": "cancelled"}
    assert left["status"] == "needs_input"
    assert "handed over: order.status" in left["message"]
    assert left["message"].endswith("nothing was done")
    assert cancelled() == "W700 no longer needed\n"


HELLO = """\
name: run
checks: hand_over
input_schema: {type: object, required: [who], properties: {who: {type: string}}}
tools: [{name: send-it, effect: write}]
steps:
  - {id: loud, type: udf.call, function: loud, args: {text: "{{ who }}"}, save_as: text}
  - id: each
    type: for_each
    over: {one: "[text, who]"}
    save_as: each
    steps: [{id: sent, type: tool.call, tool: send-it, args: {text: "{{ one }}"}, save_as: sent}]
  - {id: end, type: return, value: "{{ each }}"}
"""


def test_functions_of_a_person_and_odd_names(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(HELLO)
    udf = "from __future__ import annotations\ndef loud(text: str) -> str: return text + '!'\n"
    (tmp_path / "udf.py").write_text(udf)
    scope: dict[str, Any] = {"__name__": "hello"}
    exec(compile(export_python(Package(tmp_path)), "hello", "exec"), scope)
    said = scope["run"]({"who": "ann"}, {"send-it": lambda text: f"sent {text}"})
    assert [one["sent"] for one in said] == ["sent ann!", "sent ann"]


@pytest.mark.parametrize(
    ("text", "udf", "problem"),
    [
        (HELLO, "def loud(text): return text\ndef check(x): return x\n", "a 'check' of its own"),
        (
            HELLO.replace("function:", "effect: write, function:"),
            "def loud(text): return text\n",
            "whether a function of udf.py did something",
        ),
    ],
)
def test_what_a_script_can_not_do_is_an_error(
    tmp_path: Path, text: str, udf: str, problem: str
) -> None:
    (tmp_path / "routine.yaml").write_text(text)
    (tmp_path / "udf.py").write_text(udf)
    with pytest.raises(ExportError, match=problem):
        export_python(Package(tmp_path))
