"""Numbers stay what they are: whole ones whole, and huge ones no crash."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.cli.root import run as em
from em.runner.answers import check_answers
from em.runner.engine import arun_routine, run_routine
from em.runner.run import PendingPrompt

FIELD = "{name: n, type: %s}"
ASK = "  - {id: ask, type: prompt.user, save_as: r, prompt: {message: m, fields: [%s]}}\n"
END = '  - {id: end, type: return, value: "{{ r.n }}"}\n'


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("answer", [3, 0, -7, 2**53 + 1, 2**70, "3", str(2**53 + 1), " 12 "])
def test_an_integer_answer_stays_that_integer(kind: str, answer: Any) -> None:
    prompt = PendingPrompt(step_id="ask", message="m", fields=({"name": "n", "type": kind},))
    found = check_answers(prompt, {"n": answer})["n"]
    assert type(found) is int
    assert found == int(answer)


def test_an_answer_with_a_fraction_stays_one_and_a_whole_one_fits_an_integer() -> None:
    prompt = PendingPrompt(step_id="ask", message="m", fields=({"name": "n", "type": "number"},))
    assert repr(check_answers(prompt, {"n": 2.5})["n"]) == "2.5"
    assert repr(check_answers(prompt, {"n": "2.50"})["n"]) == "2.5"
    assert repr(check_answers(prompt, {"n": 3.0})["n"]) == "3.0", "as it was given"
    whole = PendingPrompt(step_id="ask", message="m", fields=({"name": "n", "type": "integer"},))
    assert repr(check_answers(whole, {"n": 3.0})["n"]) == "3"


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("answers", ['{"ask": {"n": 3}}', '{"ask": {"n": "3"}}'])
def test_an_integer_answer_is_one_in_the_output_and_after_a_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, answers: str
) -> None:
    (tmp_path / "routine.yaml").write_text(f"name: r\nsteps:\n{ASK % (FIELD % kind)}{END}")
    (tmp_path / "a.json").write_text(answers)
    assert em(["run", ".", "--answers", "a.json"]) == 0
    assert capsys.readouterr().out.strip() == "3"
    with Memory(tmp_path / "m.db") as memory:
        run_id = memory.run(tmp_path).run_id
        assert repr(memory.resume(run_id, answers=json.loads(answers)).output) == "3"


def test_a_number_that_is_typed_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    import click
    from click.testing import CliRunner

    from em.cli.conversation import answer

    prompt = PendingPrompt(
        step_id="ask",
        message="m",
        fields=(
            {"name": "a", "type": "number"},
            {"name": "b", "type": "number", "required": False},
            {"name": "c", "type": "number"},
            {"name": "d", "type": "number", "default": 2.5},
        ),
    )

    @click.command()
    def ask() -> None:
        click.echo(repr(answer(prompt, yes=False, ask=True)))

    shown = CliRunner().invoke(ask, input="3\n9007199254740993\n2.5\n\n").output
    assert "{'a': 3, 'b': 9007199254740993, 'c': 2.5, 'd': 2.5}" in shown


HUGE = [2**64, -(2**70), 10**400, 10**5000]
STEPS = [
    '  - {id: b, type: return, value: "{{ r }}"}\n',
    '  - {id: b, type: return, value: "it is {{ r }}"}\n',
    '  - {id: b, type: return, value: "it is {{ r + 1 }}"}\n',
    '  - {id: b, type: return, value: "{{ r * 1.5 }}"}\n',
    '  - {id: b, type: assert, check: r < 0, message: "{{ r }} is too much"}\n',
    '  - {id: b, type: tool.call, tool: echo, args: {x: ["{{ r }}"]}}\n',
    '  - {id: b, type: tool.call, tool: echo, for_each: ["{{ r }}"], args: {x: "{{ item }}"}}\n',
]


@pytest.mark.parametrize("huge", HUGE, ids=["2**64", "-2**70", "10**400", "10**5000"])
@pytest.mark.parametrize("step", STEPS)
def test_a_huge_integer_is_a_result_or_a_failure_of_its_step_never_raised(
    tmp_path: Path, huge: int, step: str
) -> None:
    (tmp_path / "routine.yaml").write_text(
        f"name: r\nsteps:\n  - {{id: a, type: tool.call, tool: get, save_as: r}}\n{step}"
    )
    tools: Any = {"get": lambda: huge, "echo": lambda x: x}
    with Memory(tmp_path / "em.db") as memory:
        results = [
            run_routine(tmp_path, {}, tools),
            asyncio.run(arun_routine(tmp_path, {}, tools)),
            memory.run(tmp_path, {}, tools),
        ]
    for result in results:
        assert result.status in ("ok", "failed")
        if step == STEPS[0] and abs(huge) < 10**500:
            assert result.output == huge


@pytest.mark.parametrize("huge", ["2**64", "-2**70", "10**400", "10**5000"])
@pytest.mark.parametrize("options", [[], ["--no-journal"], ["--json"], ["--json", "--no-journal"]])
def test_the_command_prints_it_or_says_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], huge: str, options: list[str]
) -> None:
    (tmp_path / "routine.yaml").write_text(f"name: r\nsteps:\n{GET}")
    (tmp_path / "tools.py").write_text(f"def get(): return {huge}\n")
    code = em(["run", ".", "--tools", "tools.py", *options])
    out, err = capsys.readouterr()
    if huge == "10**5000":
        assert code == (2 if "--no-journal" in options else 1)
        assert "4300 digits" in out + err
    else:
        value = json.loads(out)
        assert (value["output"] if "--json" in options else value) == eval(huge)


GET = "  - {id: a, type: tool.call, tool: get, save_as: r}\n" + STEPS[0]


@pytest.mark.parametrize("huge", [2**64, -(2**70), 10**400])
@pytest.mark.parametrize("where", ["result", "output", "both", "argument"])
def test_a_trace_with_a_huge_integer_compiles_and_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], huge: int, where: str
) -> None:
    result = {"total": 5 if where == "output" else huge}
    call: dict[str, Any] = {
        "type": "tool_call", "tool": "get", "args": {"id": "W1001"}, "effect": "read",
        "result": result,
    }  # fmt: skip
    if where == "argument":
        call["args"]["n"] = huge
    said = {"type": "message", "role": "user", "text": "total of order W1001"}
    output = {"total": huge} if where in ("output", "both") else {"done": True}
    trace = {"events": [said, call], "final_output": output, "outcome": "success"}
    (tmp_path / "trace.json").write_text(json.dumps({"mission": {"goal": "total"}, **trace}))
    (tmp_path / "tools.py").write_text(f"def get(id, n=0): return {result}\n")
    assert em(["compile", "trace.json", "-o", "r"]) == 0
    command = ["run", "r", "--input", "r/input.json", "--tools", "tools.py"]
    capsys.readouterr()
    for options in ([], ["--no-journal"]):
        assert em([*command, *options]) == 0
        assert json.loads(capsys.readouterr().out) == result, "what it reads"
