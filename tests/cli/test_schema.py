"""`em schema`: what em takes is valid, and what it refuses is not."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from em_command import em

ROOT = Path(__file__).parents[2]
GOOD = [
    ("routine", ROOT / "examples/csv_report/routine/routine.yaml"),
    ("em.yaml", ROOT / "examples/research/em.yaml"),
]


def printed(name: str) -> Any:
    ran = em("schema", name)
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    jsonschema_rs.meta.validate(made)
    return made


@pytest.mark.parametrize(("name", "file"), GOOD)
def test_files_of_the_examples_are_valid(name: str, file: Path) -> None:
    jsonschema_rs.validate(printed(name), yaml.safe_load(file.read_text()))


@pytest.mark.parametrize(("name", "file", "typo"), [
    ("routine", GOOD[0][1], ("save_as:", "saved_as:")),
    ("routine", GOOD[0][1], ("type: tool.call", "type: tool.cal")),
    ("em.yaml", GOOD[1][1], ("steps:", "step:")),
])  # fmt: skip
def test_a_slip_is_found(name: str, file: Path, typo: tuple[str, str]) -> None:
    text = file.read_text()
    assert typo[0] in text
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(printed(name), yaml.safe_load(text.replace(*typo)))


def test_a_trace_is_described() -> None:
    call = {"type": "tool_call", "tool": "look", "args": {}, "result": 1}
    jsonschema_rs.validate(printed("trace"), {"mission": {"goal": "look"}, "events": [call]})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(printed("trace"), {"events": [{"type": "tool_cal"}]})


def test_all_are_written_into_a_folder(tmp_path: Path) -> None:
    ran = em("schema", "-o", str(tmp_path / "schemas"), "--json")
    files = [Path(one) for one in ran.json["files"]]
    assert [one.name for one in files] == [
        "em.yaml.schema.json", "routine.schema.json", "trace.schema.json",
    ]  # fmt: skip
    assert all(json.loads(one.read_text())["$schema"] for one in files)


def test_without_a_name_the_names_are_told() -> None:
    ran = em("schema")
    assert (ran.code, "em.yaml, routine, trace" in ran.err) == (2, True)
    assert "Is a directory" not in em("schema", "-o", str(ROOT / "README.md")).err
