"""Everything that is wrong with a routine is found at once, each with its line."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.children import use_first_in_many_threads
from tests.runner.good_routine import GOOD

from em.errors import InvalidRoutine
from em.runner.card import public_form
from em.runner.engine import run_routine
from em.runner.package import Package, parse_yaml, read_routine
from em.runner.tools import ToolRegistry
from em.runner.validation import Problem, validate
from strategies import examples

UDF = "from math import sqrt\nlimit = 3\nparse = lambda line: [line]\n\n\ndef other(): pass\n"
INPUT = '{\n  "url": "https://example.com"\n}\n'
OUTPUT = "[\n  1\n]\n"


class Fault(NamedTuple):
    """One thing to break: what stands there, what comes in its place, and what must be said."""

    old: str
    new: str
    place: str
    says: str
    fix: str = ""
    lines_down: int = 0
    file: str = "routine.yaml"


FAULTS = [
    Fault('version: "1"', "version: 2", "version", "Expected `str`"),
    Fault("name: good", "name: good\ndescripton: x", "descripton", "unknown", "'description'", 1),
    Fault("    effect: read", "    effect: reed", "tools[0].effect", "Invalid enum value 'reed'"),
    Fault("args_schema: {type: object}", "args_schema: {type: objct}",
          "tools[0].args_schema.type", "invalid JSON Schema"),
    Fault("output_schema: {type: array}", "output_schema: {$ref: 'http://127.0.0.1:9/x'}",
          "output_schema", "em fetches no schemas"),
    Fault("    tool: fetch", "    tool: fetchh", "step first, field tool",
          "'fetchh' is not declared", "'fetch'"),
    Fault('      url: "{{ url }}"', '      url: "{{ ulr }}"', "step first, field args.url",
          "'ulr' is not defined", "'url'"),
    Fault('{er: "{{ url }}"}', '{er: "{{ rows }}"}', "step first, field args.deep[1].er",
          "'rows' is used before it exists"),
    Fault("retry: {attempts: 2}", "retry: {attempts: 0}", "step first, field retry.attempts",
          "Expected `int` >= 1"),
    Fault("    save_as: raw\n", "    save_as: raw\n    tiemout: 3\n", "step first, field tiemout",
          "unknown field 'tiemout'", "'timeout'", 1),
    Fault("- id: second", "- id: first", "step first, field id", "two steps have the id 'first'"),
    Fault("    function: parse", "    function: prase", "field function",
          "there is no function 'prase'", "'parse'"),
    Fault("args: {line: ", "args: {lime: 1, line: 1, line: ", "YAML", "'line' is repeated"),
    Fault("        - len(result) > 0", "        - len(result) >", "field checks.post[0]",
          "is not a valid expression"),
    Fault("    check: rows\n", '    check: "{{ rows }}"\n', "step third, field check",
          "a bare expression", "remove the {{ }}"),
    Fault('    message: "none in {{ url }}"', '    message: "{{ url | uper }}"',
          "step third, field message", "No filter named 'uper'"),
    Fault("    type: prompt.user", "    type: prompt.usr", "step fourth, field type",
          "unknown type 'prompt.usr'", "'prompt.user'"),
    Fault("    save_as: answer", '    save_as: "{{ answer }}"', "step fourth, field save_as",
          "here is not evaluated"),
    Fault('    when: answer.to == "a"\n', "", "step sixth", "a step behind a return never runs",
          "remove it", 1),
    Fault("limit = 3", "def broken(:", "Python", "invalid Python", file="udf.py"),
    Fault('"https://example.com"', "5", "url", "does not fit input_schema", file="input.json"),
    Fault("  1\n", "  1,\n  }\n", "JSON", "malformed", lines_down=1, file="expected_output.json"),
]  # fmt: skip


def broken(faults: list[Fault]) -> tuple[dict[str, str], list[Problem]]:
    """The good package with these faults, and what is found in it."""
    files = {
        "routine.yaml": GOOD,
        "udf.py": UDF,
        "input.json": INPUT,
        "expected_output.json": OUTPUT,
    }
    for fault in faults:
        assert files[fault.file].count(fault.old) == 1, fault.old
        files[fault.file] = files[fault.file].replace(fault.old, fault.new)
    with TemporaryDirectory() as name:
        for file, text in files.items():
            (Path(name) / file).write_text(text)
        return files, validate(name)


def matches(fault: Fault, files: dict[str, str], problem: Problem) -> bool:
    line = problem.line
    if fault.new:
        text = files[fault.file]
        line = text.count("\n", 0, text.rindex(fault.new)) + 1 + fault.lines_down
    return (
        problem.file.endswith(fault.file)
        and problem.line == line
        and fault.place in problem.place
        and fault.says in problem.message
        and fault.fix in problem.fix
    )


@given(st.sets(st.sampled_from(range(len(FAULTS)))))
@example(set(range(len(FAULTS))))
@settings(max_examples=examples(60), deadline=None)
def test_every_fault_of_many_is_found_with_its_line(chosen: set[int]) -> None:
    faults = [FAULTS[number] for number in chosen]
    files, found = broken(faults)
    if any("invalid Python" in fault.says for fault in faults):
        # Then nobody knows which functions there are.
        faults = [fault for fault in faults if "no function" not in fault.says]
    for fault in faults:
        told = [problem for problem in found if matches(fault, files, problem)]
        assert len(told) == 1, (fault, [str(problem) for problem in found])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.says)
def test_nothing_else_is_reported(fault: Fault) -> None:
    files, found = broken([fault])
    others = [problem for problem in found if not matches(fault, files, problem)]
    # A name that is not saved, or not by this step, is not there for the next ones.
    assert [problem for problem in others if "is not defined" not in problem.message] == []
    assert broken([])[1] == []


def test_without_an_input_schema_a_name_may_be_an_input_and_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: open\nsteps:\n"
        '  - {id: a, type: tool.call, tool: t, args: {x: "{{ url }}", y: "{{ found }}"}}\n'
        '  - {id: b, type: tool.call, tool: t, args: {x: "{{ url }}"}, save_as: found}\n'
        '  - {id: c, type: return, value: "{{ foun }}"}\n'
    )
    found, url, close = validate(tmp_path)
    assert (url.severity, url.line) == ("warning", 3)
    assert "no step saves 'url'" in url.message
    assert (found.severity, found.message) == ("error", "'found' is used before it exists")
    assert (close.severity, close.fix) == ("warning", "did you mean 'found'?")
    (tmp_path / "input.json").write_text('{"url": "u", "foun": 1}')
    assert [problem.severity for problem in validate(tmp_path)] == ["error"]


def test_functions_of_udf_py_need_not_be_defs_and_classes_are_none(tmp_path: Path) -> None:
    steps = "".join(
        f"  - {{id: {name}, type: udf.call, function: {name}, args: {{x: 4}}, save_as: r_{name}}}\n"
        for name in ("deepcopy", "double", "cached", "either", "Number", "limit", "_own")
    )
    (tmp_path / "routine.yaml").write_text(f"name: x\nsteps:\n{steps}")
    (tmp_path / "udf.py").write_text(
        "from functools import lru_cache\nfrom copy import deepcopy\n"
        "double = lambda x: 2 * x\nlimit = 3\n"
        "@lru_cache\ndef cached(x): return x\n"
        "try:\n    from nowhere import either\nexcept ImportError:\n    def either(x): return -x\n"
        "class Number:\n    pass\ndef _own(x): return x\n"
    )
    found = [problem.place for problem in validate(tmp_path)]
    assert found == [f"step {name}, field function" for name in ("Number", "limit", "_own")]
    routine = tmp_path / "routine.yaml"
    routine.write_text("\n".join(routine.read_text().splitlines()[:6]))
    assert run_routine(tmp_path).context == {
        "r_deepcopy": 4, "r_double": 8, "r_cached": 4, "r_either": -4
    }  # fmt: skip


def test_tools_that_are_given_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: x\nsteps:\n"
        "  - {id: a, type: tool.call, tool: fetch, args: {url: u}}\n"
        "  - {id: b, type: tool.call, tool: fetsh, args: {url: u}}\n"
        "  - {id: c, type: tool.call, tool: fetch, args: {uri: u}}\n"
    )
    assert validate(tmp_path) == []
    unknown, args = validate(tmp_path, tools=ToolRegistry({"fetch": lambda url: url}))
    assert (unknown.line, unknown.fix) == (4, "did you mean 'fetch'?")
    assert (args.line, args.place) == (5, "step c, field args")


def test_recorded_files_must_be_there_together(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text("name: x\nsteps: []\n")
    (tmp_path / "recording.json").write_text("{}")
    (tmp_path / "input.json").write_text("[1]")
    assert [problem.message for problem in validate(tmp_path)] == [
        "recording.json is there, expected_output.json is missing",
        "the input must be a mapping of names to values",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: [", ":2: YAML: not valid YAML"),
        ("[]", "a routine must be a mapping"),
        ("", "a routine must be a mapping"),
        ("name: x\nsteps: 5", "steps"),
        ("name: x\nsteps: [5]", ":2: step 0: Expected `object`"),
        ("name: x\nsteps: [{id: a, function: f}]", "type"),
        ("steps: []", "the field 'name' is missing"),
        ("name: &a [*a]", ":1: YAML: YAML aliases are not supported"),
        ("name: x\ntrue: 1", ":2: YAML: names must be texts, got the bool true (write 'true')"),
        (
            "name: x\nsteps: []\ninput_schema:\n  properties: {1: {type: string}}",
            ":4: YAML: names must be texts, got the int 1 (write '1')",
        ),
        ("name: x\nsteps: []\ninput_schema: {2.5: 1, null: 2}", "got the float 2.5"),
        ("name: " + "[" * 900 + "]" * 900, "nested too deeply"),
        ("name: " + "[" * 90000, "nested too deeply"),
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


OF_EARLIER = """\
name: refund
%s
steps:
  - {id: look, type: tool.call, tool: look, save_as: order%s}
  - {id: end, type: return}
"""


@pytest.mark.parametrize(
    ("top", "step", "place"),
    [
        ("asks: {amount: {recorded: 100}}", "", "asks"),
        ("", ", agree: {amount: [order.total]}", "step look, field agree"),
        ("", "}\n  - {id: p, type: plan", "step p, field type"),
    ],
)
def test_a_routine_of_an_earlier_em_is_to_be_compiled_again(
    tmp_path: Path, top: str, step: str, place: str
) -> None:
    (tmp_path / "routine.yaml").write_text(OF_EARLIER % (top, step))
    with pytest.raises(InvalidRoutine) as refused:
        Package(tmp_path)
    assert "compile it again" in refused.value.fix
    found = [one for one in validate(tmp_path) if one.severity == "error"]
    assert [one.place for one in found] == [place]
    assert found[0].line > 0


def test_many_threads_may_be_the_first_to_read_a_routine() -> None:
    routine = {"name": "r", "steps": [{"id": "a", "type": "return"}]}
    use_first_in_many_threads(
        "from em.runner.package import read_routine", f"read_routine({routine!r}, 'here')"
    )


BAD_SCHEMAS = [
    "properties: [{order: {}}]", "properties: {url: '-1'}", "required: 5", "allOf: {a: 1}",
    "properties: {url: {examples: 3}}", "patternProperties: [a]", "dependentSchemas: [1]",
]  # fmt: skip


@pytest.mark.parametrize("schema", BAD_SCHEMAS)
def test_a_schema_that_is_none_is_a_problem_everywhere_and_no_failure(
    tmp_path: Path, schema: str
) -> None:
    text = f"name: x\ninput_schema: {{{schema}}}\nsteps: [{{id: a, type: return, value: 1}}]\n"
    (tmp_path / "routine.yaml").write_text(text)
    assert any("invalid JSON Schema" in str(problem) for problem in validate(tmp_path))
    with pytest.raises(InvalidRoutine, match="not a valid JSON Schema") as refused:
        run_routine(tmp_path, {"url": "x"})
    assert refused.value.place.endswith("routine.yaml, input_schema")
    # An older em may have stored it: what lists and draws routines shows it all the same.
    stored = read_routine(parse_yaml(text.encode(), "x"), "x")
    assert public_form(stored).name == "x"


def test_a_property_may_be_just_true(tmp_path: Path) -> None:
    steps = "steps: [{id: a, type: return, value: '{{ url }}'}]"
    text = f"name: x\ninput_schema: {{properties: {{url: true}}}}\n{steps}\n"
    (tmp_path / "routine.yaml").write_text(text)
    assert validate(tmp_path) == []
    assert run_routine(tmp_path, {"url": "x"}).output == "x"


def test_brackets_without_end_are_told_in_every_place_of_a_routine(tmp_path: Path) -> None:
    deep = "[" * 200
    (tmp_path / "udf.py").write_text(f"x = {deep}")
    (tmp_path / "routine.yaml").write_text(
        f"name: x\nsteps: [{{id: a, type: assert, check: '{deep} == 1'}}]\n"
    )
    assert len(validate(tmp_path)) >= 2


@pytest.mark.parametrize(
    "step",
    [
        "{id: c, type: tool.call, tool: t, args: 1.5}",
        "{id: c, type: tool.call, tool: t, args: [1]}",
        "{id: c, type: for_each, over: [1], steps: {a: 1}}",
        "{id: c, type: for_each, over: {a: 1}, steps: [1]}",
    ],
)
def test_a_value_of_another_type_is_told_in_every_place(tmp_path: Path, step: str) -> None:
    (tmp_path / "routine.yaml").write_text(f"name: x\nsteps: [{step}]\n")
    assert validate(tmp_path)
