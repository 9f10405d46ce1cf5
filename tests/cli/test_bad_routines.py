"""Bad input of every kind: a clear error with its step and field, and one object for programs."""

import json
from pathlib import Path

import pytest
from em_command import Ran, em

CALL = "  - {id: one, type: udf.call, function: f, save_as: x%s}\n"
END = '  - {id: end, type: return, value: "{{ x }}"}\n'


def package(folder: Path, steps: str, udf: str = "", head: str = "") -> None:
    folder.mkdir(exist_ok=True)
    (folder / "routine.yaml").write_text(f"name: bad\n{head}steps:\n{steps}")
    (folder / "udf.py").write_text(udf)


def failure(ran: Ran) -> tuple[str, str, str]:
    assert ran.code == 1, ran
    told = ran.json["failure"]
    return told["step_id"], told["error_type"], told["message"]


@pytest.mark.parametrize(
    ("steps", "says", "place"),
    [
        ("  - {id: one, type: [", "not valid YAML", "routine.yaml:4"),
        ("  - {id: one, type: tool.cal, tool: t}\n", "tool.cal", "steps[0]"),
        ("  - {id: one, type: return, valeu: 1}\n", "valeu", "steps[0]"),
        (
            '  - {id: one, type: return, value: "{{ x. }}"}\n',
            "is not a valid expression",
            "step one, field value",
        ),
        (
            '  - {id: one, type: return, value: "{{ x | no }}"}\n',
            "No filter",
            "step one, field value",
        ),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_what_cannot_be_loaded(
    tmp_path: Path, steps: str, says: str, place: str, as_json: bool
) -> None:
    package(tmp_path / "bad", steps)
    ran = em("run", "bad", *(["--json"] if as_json else []))
    assert ran.code == 1
    assert ran.out == ""
    error = json.loads(ran.err)["error"] if as_json else {}
    assert says in error.get("message", ran.err)
    assert place in error.get("place", ran.err)
    assert not (tmp_path / ".em").exists(), "nothing is journalled of what never began"


@pytest.mark.parametrize(
    "never",
    [
        "def f():\n    while True: pass\n",
        "import time\ndef f():\n    time.sleep(1000)\n",
        "async def f():\n    while True: pass\n",
    ],
)
def test_a_function_that_never_returns(tmp_path: Path, never: str) -> None:
    package(tmp_path / "bad", CALL % ", timeout: 0.3" + END, never)
    # What is left behind does not keep the process: `em` here gives up after two minutes.
    assert failure(em("run", "bad", "--json")) == ("one", "StepTimeout", "no answer within 0.3 s")


def test_what_prints_does_not_break_the_result(tmp_path: Path) -> None:
    udf = (
        "import os, subprocess, sys\nprint('at import')\n"
        "def f():\n    print('plainly')\n    os.write(1, b'by number\\n')\n"
        "    sys.__stdout__.write('by the back door\\n')\n    sys.__stdout__.flush()\n"
        "    subprocess.run(['echo', 'from a child'])\n    return 5\n"
    )
    package(tmp_path / "bad", CALL % "" + END, udf)
    (tmp_path / "tools.py").write_text("print('tools at import')\ndef t(): pass\n")
    ran = em("run", "bad", "--json", "--tools", "tools.py", "--udf", "bad/udf.py")
    assert ran.json["output"] == 5
    for words in ("at import", "plainly", "by number", "back door", "from a child", "tools at"):
        assert words in ran.err
    assert em("run", "bad").out == "5\n"
    assert em("routine", "validate", "bad", "--json", "--tools", "tools.py").json["ok"]


@pytest.mark.parametrize("result", ["object()", "open(__file__)", "{1: {2}}", "float('nan')"])
def test_a_result_that_is_no_json(tmp_path: Path, result: str) -> None:
    package(tmp_path / "bad", CALL % "" + END, f"def f():\n    return {result}\n")
    step, kind, message = failure(em("run", "bad", "--json"))
    assert (step, kind) == ("one", "RoutineError")
    assert "step one: its result can't be stored in the journal" in message


def test_a_tool_that_is_missing(tmp_path: Path) -> None:
    package(tmp_path / "bad", "  - {id: one, type: tool.call, tool: fetch}\n")
    (tmp_path / "tools.py").write_text("def fetsh(): pass\n")
    ran = em("run", "bad", "--tools", "tools.py")
    assert ran.code == 1
    assert "step one, field tool: there is no tool 'fetch'" in ran.err
    assert "did you mean 'fetsh'?" in ran.err
    assert em("runs", "list", "--json").json == {"runs": []}, "it never began"


@pytest.mark.parametrize(
    "value",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ x.__class__ }}",
        "{{ len.__globals__ }}",
        "{{ x['__class__'] }}",
        "{{ x | attr('__class__') }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ f.__globals__ }}",
        "{{ 'a' * 100000000000 }}",
        "{{ 9 ** 99999999 }}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_templates_that_reach_too_far_or_recurse(tmp_path: Path, value: str) -> None:
    steps = CALL % "" + f"  - {{id: end, type: return, value: {json.dumps(value)}}}\n"
    package(tmp_path / "bad", steps, "def f():\n    return 'text'\n")
    ran = em("run", "bad")
    assert ran.code == 1
    assert "step end, field value" in ran.err
    assert "Traceback" not in ran.err


def test_a_value_that_looks_like_an_expression_stays_a_text(tmp_path: Path) -> None:
    package(tmp_path / "bad", CALL % "" + END, "def f():\n    return '{{ x }}{{ x.__class__ }}'\n")
    assert em("run", "bad").out == '"{{ x }}{{ x.__class__ }}"\n'
