"""Everything that is wrong with a routine is found at once, each with its line."""

from pathlib import Path

import pytest

from em.runner.validate import validate

BROKEN = """\
version: "1"
name: broken
descripton: typo
tools: [{name: fetch, efect: read}]
input_schema: {type: objct, properties: {url: {}}}
steps:
  - {id: a, type: tool.call, tool: fetchh, args: {x: "{{ ulr }}", y: "{{ late }}"}}
  - {id: b, type: tool.cal, tool: fetch}
  - {id: a, type: udf.call, function: prase, args: {x: "{{ url. }}"}, save_as: late}
  - {id: c, type: assert, check: "len(rows) >"}
  - {id: d, type: tool.call, tool: fetch, retry: {attempts: many}, tiemout: 3}
  - {id: e, type: return, value: "{{ late }}"}
  - {id: f, type: return}
"""


def test_everything_is_found_at_once_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(BROKEN)
    (tmp_path / "udf.py").write_text("def parse(x): return x\n")
    found = [
        (problem.line, problem.place, problem.message, problem.fix)
        for problem in validate(tmp_path)
    ]
    expected = [
        (3, "descripton", "no field 'descripton'", "'description'"),
        (4, "tools.0.efect", "no field 'efect'", "'effect'"),
        (5, "input_schema", "no JSON Schema", ""),
        (7, "step a, field tool", "'fetchh' is not declared", "'fetch'"),
        (7, "step a, field args", "'ulr' is not defined", "'url'"),
        (7, "step a, field args", "'late' is used before it exists", ""),
        (8, "step b, field type", "no step type 'tool.cal'", "'tool.call'"),
        (9, "step a, field id", "two steps are called 'a'", ""),
        (9, "step a, field function", "no function 'prase'", "'parse'"),
        (9, "step a, field args", "is no expression", ""),
        (10, "step c, field check", "is no expression", ""),
        (11, "step d, field tiemout", "no field 'tiemout'", "'timeout'"),
        (11, "step d, field retry", "Expected `int`", ""),
        (13, "step f", "ever reached", "remove"),
    ]
    for line, place, message, fix in expected:
        assert any(
            (at, where) == (line, place) and message in what and fix in how
            for at, where, what, how in found
        ), (line, place, message)
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", ":2: YAML: this is no YAML"),
        ("[]", "a routine is names with values"),
        ("", "a routine is names with values"),
        ("name: x\nsteps: 5", "steps"),
        ("name: x\nsteps: [5]", "a step is names with values"),
        ("steps: []", "missing required field `name`"),
        ("name: &a [*a]", ""),
    ],
)
def test_what_is_hardly_a_routine_is_told_too(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "routine.yaml").write_text(text)
    problems = validate(tmp_path)
    assert problems
    assert any(says in str(problem) for problem in problems)


def test_a_folder_without_a_routine_and_a_good_one(tmp_path: Path) -> None:
    assert "there is no routine.yaml" in str(validate(tmp_path)[0])
    (tmp_path / "routine.yaml").write_text(
        "name: good\ninput_schema: {type: object, properties: {xs: {type: array}}}\nsteps:\n"
        '  - {id: a, type: tool.call, tool: t, for_each: "{{ xs }}", as: x, args: {x: "{{ x }}"},'
        " checks: {post: [result > 0]}, save_as: out}\n"
        '  - {id: b, type: return, value: "{{ len(out) }}", when: "out"}\n'
        "  - {id: c, type: return}\n"
    )
    assert validate(tmp_path) == []
