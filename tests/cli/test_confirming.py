"""Values that nothing recorded explains: `em compile` asks once, a run asks once, both remember."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from em_command import em, on_terminal

TRACE = {
    "mission": {"goal": "refund", "input_summary": {"order": "#W1001", "limit": 100}},
    "events": [
        {
            "type": "tool_call",
            "tool": "get_order",
            "args": {"order": "#W1001"},
            "result": {"id": "#W1001", "paid": 250},
        },
        {
            "type": "tool_call",
            "tool": "refund",
            "args": {"order": "#W1001", "amount": 100, "channel": "shop"},
            "result": "done",
        },
    ],
    "outcome": "success",
}
TOOLS = """
from pathlib import Path

def get_order(order):
    return {"id": order, "paid": 250}

def refund(order, amount, channel):
    with Path("refunds.txt").open("a") as out:
        print(order, amount, channel, file=out)
    return "done"
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "other.json").write_text('{"order": "#W2002", "limit": 500}')
    (tmp_path / "third.json").write_text('{"order": "#W3003", "limit": 700}')
    answers = {"inputs": {"amount": 500}}
    (tmp_path / "answers.json").write_text(json.dumps(answers))


def asked_by(folder: str) -> list[str]:
    routine: Any = yaml.safe_load(Path(folder, "routine.yaml").read_text())
    return list(routine.get("asks", {}))


def refunds() -> list[str]:
    file = Path("refunds.txt")
    return file.read_text().splitlines() if file.exists() else []


# --- em compile --confirm -------------------------------------------------------------------------


def test_a_confirmed_value_is_a_constant_in_what_is_written() -> None:
    em("compile", "trace.json", "-o", "plain")
    assert asked_by("plain") == ["amount", "channel"]
    ran = em("compile", "trace.json", "-o", "fixed", "--confirm", "channel", "--explain")
    assert ran.code == 0, ran.err
    assert asked_by("fixed") == ["amount"]
    assert "confirmed" in ran.out
    assert "channel" not in json.loads(Path("fixed/input.json").read_text())
    assert em("validate", "fixed").code == 0


@pytest.mark.parametrize(
    "given", [("--confirm", "amount, channel"), ("--confirm", "channel", "--confirm", "amount")]
)
def test_several_values_are_confirmed_at_once(given: tuple[str, ...]) -> None:
    assert em("compile", "trace.json", "-o", "out", *given).code == 0
    assert asked_by("out") == []
    done = em("run", "out", "--input", "other.json", "--tools", "tools.py")
    assert (done.code, refunds()) == (0, ["#W2002 100 shop"])


def test_a_name_that_is_not_asked_for_is_refused_with_the_closest() -> None:
    ran = em("compile", "trace.json", "-o", "out", "--confirm", "chanel")
    assert ran.code == 2
    assert "chanel" in ran.err
    assert "channel" in ran.err.replace("'chanel'", "")
    assert not Path("out").exists()


def test_on_a_terminal_each_value_is_offered_and_enter_means_no() -> None:
    shown = on_terminal("compile", "trace.json", "-o", "out", typed="\ny\n")
    assert "Is amount always 100?" in shown
    assert asked_by("out") == ["amount"], "Enter: no; y: yes"


def test_leaving_the_questions_leaves_nothing_half_written() -> None:
    shown = on_terminal("compile", "trace.json", "-o", "out", "--keep", typed="y\n\x04")
    assert "Traceback" not in shown
    assert not Path("out").exists()
    assert "routine" not in em("routine", "list", "--json").out.replace('"routines"', "")


def test_nothing_is_offered_where_nobody_can_answer() -> None:
    assert "always" not in em("compile", "trace.json", "-o", "out").err
    assert "Is amount" not in on_terminal("compile", "trace.json", "-o", "out", "--json")
    assert "Is amount" not in on_terminal(
        "compile", "trace.json", "-o", "out", "--confirm", "channel"
    )


# --- answers of runs ------------------------------------------------------------------------------


def test_a_folder_remembers_the_answers_of_a_run_and_asks_once() -> None:
    em("compile", "trace.json", "-o", "out", "--confirm", "channel")
    Path("out/routine.yaml").write_text("# look here\n" + Path("out/routine.yaml").read_text())
    asked = em("run", "out", "--input", "other.json", "--tools", "tools.py")
    assert (asked.code, refunds()) == (1, [])
    assert '{"inputs":{"amount":"a whole number"}}' in asked.err
    run = asked.err.split("em resume ")[1].split()[0]
    done = em("resume", run, "--tools", "tools.py", "--answers", "answers.json")
    assert (done.code, refunds()) == (0, ["#W2002 500 shop"])
    assert "remembered the answer for amount" in done.err
    assert "routine.yaml.old" in done.err
    assert "# look here" in Path("out/routine.yaml").read_text(), "comments stay"
    assert Path("out/routine.yaml.old").exists()
    again = em("run", "out", "--input", "third.json", "--tools", "tools.py")
    assert (again.code, refunds()[-1]) == (0, "#W3003 700 shop"), again.err
    assert em("run", "out", "--input", "out/input.json", "--tools", "tools.py").code == 0


def test_a_stored_routine_remembers_in_a_new_version() -> None:
    em("compile", "trace.json", "--keep", "--name", "pay_back", "--confirm", "channel")
    command = ("run", "pay_back", "--input", "other.json", "--tools", "tools.py")
    done = em(*command, "--answers", "answers.json")
    assert "remembered the answer for amount: stored as pay_back@2" in done.err
    again = em("run", "pay_back", "--input", "third.json", "--tools", "tools.py", "--json").json
    assert (again["status"], again["remembered"]) == ("ok", None)


def test_answers_are_not_remembered_unless_wanted() -> None:
    em("compile", "trace.json", "-o", "out", "--confirm", "channel")
    before = Path("out/routine.yaml").read_text()
    command = ("run", "out", "--input", "other.json", "--tools", "tools.py")
    done = em(*command, "--answers", "answers.json", "--no-remember", "--json").json
    assert (done["status"], done["remembered"]) == ("ok", None)
    assert Path("out/routine.yaml").read_text() == before


def test_yes_does_not_answer_for_what_is_right() -> None:
    switch = json.loads(json.dumps(TRACE))
    switch["events"][1]["args"] = {"order": "#W1001", "amount": 250, "channel": False}
    Path("trace.json").write_text(json.dumps(switch))
    em("compile", "trace.json", "-o", "out", "--confirm", "amount")
    asked = em("run", "out", "--input", "other.json", "--tools", "tools.py", "--yes")
    assert (asked.code, refunds()) == (1, [])
    assert "or --yes" not in asked.err
