"""What users import from `em` is typed: mypy, strict, on a small program and on the examples."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = """
from typing import Any

import anthropic
from langchain_core.tools import StructuredTool

import em
from em import Check, Engine, Memory, tool


@tool
def plain(order_id: str) -> int:
    return len(order_id)


@tool(effect="write", name="other")
async def later(order_id: str, *, reason: str = "") -> dict[str, str]:
    return {"order_id": order_id}


class Shop:
    @tool(effect="read")
    def look(self, item: str) -> float:
        return 1.0


reveal_type(plain)
reveal_type(later)
reveal_type(Shop().look)
reveal_type(em.recorded_tool(plain))


def langchain(given: StructuredTool) -> None:
    reveal_type(tool(given))
    reveal_type(tool([plain]))


client = em.instrument(anthropic.Anthropic())
reveal_type(client)

memory = Memory("em.db")


@memory.record("answer", app="shop")
def agent(question: str) -> str:
    return question


reveal_type(agent)
with memory.record("by hand") as recorder:
    reveal_type(recorder)

engine = Engine()


@engine.function(pre_check=Check(lambda: 1, lambda now, then: now == then))
def note(text: str) -> bool:
    return True


reveal_type(note)
engine.set_agent(agent).finalize()
result = engine("a task")
reveal_type(result)
reveal_type(engine.metrics.hits)


async def run() -> None:
    reveal_type(await engine("a task"))
    async with memory.record("async") as inside:
        reveal_type(inside)
"""
REVEALED = [
    "def (order_id: str) -> int",
    "def (order_id: str, *, reason: str =) -> typing.Coroutine[Any, Any, dict[str, str]]",
    "def (item: str) -> float",
    "def (order_id: str) -> int",
    "langchain_core.tools.structured.StructuredTool",
    "list[def (order_id: str) -> int]",
    "anthropic._client.Anthropic",
    "def (question: str) -> str",
    "em.traces.recorder.Recorder",
    "def (text: str) -> bool",
    "em.behaviour.result.Result",
    "int",
    "em.behaviour.result.Result",
    "em.traces.recorder.Recorder",
]


@pytest.mark.timeout(900)  # mypy reads everything anew where its cache is cold
def test_the_names_of_em_are_typed_under_mypy_strict(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # Without a routine's own files, and another document's script.
    examples = [
        str(one)
        for one in (ROOT / "examples").rglob("*.py")
        if not {"routine", "greeter", "__pycache__", ".em"} & set(one.parts)
    ]
    command = [sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases"]
    ran = subprocess.run(
        [*command, str(program), *examples], cwd=ROOT, capture_output=True, text=True, check=False
    )
    revealed = re.findall(r'Revealed type is "(.*)"', ran.stdout)
    assert [one.replace("builtins.", "") for one in revealed] == REVEALED, ran.stdout
    # An example imports the file beside it, which mypy does not find from here.
    errors = [line for line in ran.stdout.splitlines() if "error:" in line]
    assert [line for line in errors if "[import-not-found]" not in line] == []
