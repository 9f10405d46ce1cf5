"""An input that a routine does not declare is refused: a misspelt name changes nothing silently."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.cli.root import run as em
from em.runner.engine import arun_routine, run_routine
from em.runner.run import RunResult
from em.runner.validation import validate
from em.values import json_schema

STEPS = """steps:
  - {id: a, type: tool.call, tool: pay, args: {to: "{{ who | default('nobody') }}"}, save_as: r}
  - {id: b, type: return, value: "{{ r }}"}
"""
CLOSED = [
    "{type: object, properties: {who: {type: string}}}",
    "{type: object, properties: {who: {type: string}}, additionalProperties: false}",
    "{properties: {who: {}}, anyOf: [{required: [who]}, {properties: {amount: {type: integer}}}]}",
    "{type: object, properties: {}, $ref: '#/$defs/p', $defs: {p: {properties: {who: {}}}}}",
    "{properties: {}, patternProperties: {^who: {type: string}}}",
]
OPEN = [
    "{type: object, properties: {who: {type: string}}, additionalProperties: true}",
    "{type: object, properties: {who: {type: string}}, additionalProperties: {type: string}}",
    "{type: object}",
    "{}",
    "",
]


def routine(folder: Path, schema: str) -> Path:
    head = f"input_schema: {schema}\n" if schema else ""
    (folder / "routine.yaml").write_text(f"name: pay\n{head}{STEPS}")
    return folder


def paid(folder: Path, given: dict[str, Any]) -> tuple[list[str], RunResult]:
    calls: list[str] = []
    tools = {"pay": lambda to: calls.append(to) or to}
    result = run_routine(folder, given, tools)
    under_asyncio = asyncio.run(arun_routine(folder, given, tools))
    assert under_asyncio.status == result.status
    return calls, result


@pytest.mark.parametrize("schema", CLOSED)
def test_an_undeclared_input_is_refused_before_the_first_step(tmp_path: Path, schema: str) -> None:
    folder = routine(tmp_path, schema)
    assert paid(folder, {"who": "ana"})[1].output == "ana"
    calls, result = paid(folder, {"woh": "ana"})
    assert (calls, result.status) == ([], "failed")
    assert result.failure is not None
    assert "the routine has no input 'woh'" in result.failure.message
    if "patternProperties" not in schema:
        assert "did you mean 'who'?" in result.failure.message


@pytest.mark.parametrize("schema", OPEN)
def test_who_says_that_more_may_come_gets_it(tmp_path: Path, schema: str) -> None:
    assert paid(routine(tmp_path, schema), {"who": "ana", "more": "x"})[1].output == "ana"


def test_the_error_names_the_inputs_where_none_is_close(tmp_path: Path) -> None:
    _, result = paid(routine(tmp_path, CLOSED[0]), {"zzz": 1, "who": "ana"})
    assert result.failure is not None
    assert result.failure.message.endswith("(its inputs are: who)")
    _, result = paid(routine(tmp_path, "{type: object, properties: {}}"), {"zzz": 1})
    assert result.failure is not None
    assert result.failure.message.endswith("(it takes no input)")


def test_the_schema_of_a_compiled_routine_says_so_itself() -> None:
    schema = json_schema.of_input({"who": "ana"})
    assert schema["additionalProperties"] is False
    assert list(json_schema.problems(schema, {"who": "ana", "woh": 1}))


def test_validation_sees_it_in_the_recorded_input(tmp_path: Path) -> None:
    folder = routine(tmp_path, CLOSED[0])
    (folder / "input.json").write_text('{\n"who": "ana",\n"woh": 1}')
    (found,) = [one for one in validate(folder) if one.file.endswith("input.json")]
    assert (found.line, found.severity) == (3, "error")
    assert "did you mean 'who'?" in str(found)


def test_the_command_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = routine(tmp_path, CLOSED[0])
    (tmp_path / "tools.py").write_text("def pay(to): return to\n")
    (tmp_path / "input.json").write_text(json.dumps({"woh": "ana"}))
    assert em(["run", str(folder), "--input", "input.json", "--tools", "tools.py"]) == 1
    assert "did you mean 'who'?" in capsys.readouterr().err


def test_a_journalled_run_tells_it_too(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        result = memory.run(routine(tmp_path, CLOSED[0]), {"woh": 1}, {"pay": print})
    assert result.failure is not None
    assert "did you mean 'who'?" in result.failure.message
