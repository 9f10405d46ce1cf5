"""`em run --prepare` shows a plan and its token; `em run --commit` makes just its writes."""

import json
from pathlib import Path

import pytest

from em.cli.root import run as em

ROUTINE = """
name: reorder
checks: hand_over
input_schema: {type: object, required: [shelf], properties: {shelf: {type: string}}}
tools: [{name: look, effect: read}, {name: order, effect: write}]
steps:
  - {id: look, type: tool.call, tool: look, args: {shelf: "{{ shelf }}"}, save_as: seen}
  - {id: order, type: tool.call, tool: order, args: {item: "{{ seen.item }}"}, save_as: done}
  - {id: result, type: return, value: "{{ done }}"}
"""
TOOLS = """
import pathlib

def look(shelf): return {"item": pathlib.Path("shelf.txt").read_text()}

def order(item):
    with open("ordered.txt", "a") as file: file.write(item)
    return f"ordered {item}"
"""
WITH = ["--tools", "tools.py"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("reorder").mkdir()
    Path("reorder/routine.yaml").write_text(ROUTINE)
    Path("tools.py").write_text(TOOLS)
    Path("shelf.txt").write_text("I-9")


def token_of(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert em(["run", "reorder", "shelf=S-1", "--prepare", "--json", *WITH, *more]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert 'item = "I-9": `seen.item`' in plan["text"]
    assert not Path("ordered.txt").exists()
    return str(plan["token"])


def test_just_what_was_shown_is_done_once(capsys: pytest.CaptureFixture[str]) -> None:
    token = token_of(capsys)
    assert em(["run", "--commit", token, *WITH]) == 0
    assert json.loads(capsys.readouterr().out) == "ordered I-9"
    assert em(["run", "--commit", token, *WITH]) == 1
    assert Path("ordered.txt").read_text() == "I-9"


def test_what_has_changed_is_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    token = token_of(capsys, "--subject", "ana")
    assert em(["run", "--commit", token, *WITH]) == 1  # not this subject's
    Path("shelf.txt").write_text("I-8")
    assert em(["run", "--commit", token, "--subject", "ana", *WITH]) == 1
    assert "`seen.item`" in capsys.readouterr().err
    assert not Path("ordered.txt").exists()


def test_a_dry_run_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert em(["run", "reorder", "shelf=S-1", "--dry-run", *WITH]) == 0
    assert "would call order" in capsys.readouterr().out
    assert not Path(".em").exists()


@pytest.mark.parametrize("args", [[], ["reorder", "--commit", "x"]])
def test_a_routine_or_a_token_is_run_not_both(args: list[str]) -> None:
    assert em(["run", *args]) == 2
