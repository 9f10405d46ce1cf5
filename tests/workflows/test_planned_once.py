"""A workflow is checked and planned once, and never run from an old text or for other tools."""

import os
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import InvalidWorkflow
from em.workflows import definition, plan

FLOW = """\
workflows:
  sums:
    params: [{x: 0}]
    steps:
      - {name: one, tool: add, effect: read, inputs: {x: '{{params.x}}', y: %s}}
      - {name: two, tool: add, effect: read, memory: {needs: [tool_output(one)]},
         inputs: {x: '{{memory.one_output}}', y: 1}}
"""


def add(x: int, y: int) -> int:
    return x + y


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW % 1)
    return path


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    calls: list[int] = []
    inner = getattr(module, name)

    def counting(*args: Any, **named: Any) -> Any:
        calls.append(1)
        return inner(*args, **named)

    monkeypatch.setattr(module, name, counting)
    return calls


def test_ten_runs_parse_and_check_as_often_as_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory(":memory:") as memory:
        parsed = counted(monkeypatch, definition, "load_yaml")
        checked = counted(monkeypatch, plan, "_templates")
        for _ in range(10):
            assert memory.workflow("sums", file=file, tools={"add": add}).output == 2
        assert (len(parsed), len(checked)) == (1, 1)


def test_a_changed_file_counts_at_once(file: Path) -> None:
    with Memory(":memory:") as memory:
        flow = memory.workflows(file, {"add": add})
        assert flow.start("sums").output == 2
        before = file.stat()
        file.write_text(FLOW % 5)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time
        assert flow.start("sums").output == 6
        assert memory.workflow("sums", file=file, tools={"add": add}).output == 6
        file.write_text(FLOW % 1)
        assert memory.workflow("sums", file=file, tools={"add": add}).output == 2


def test_tools_that_do_not_fit_are_refused_though_others_did(file: Path) -> None:
    def other(x: int, z: int) -> int:
        return x + z

    with Memory(":memory:") as memory:
        assert memory.workflow("sums", file=file, tools={"add": add}).output == 2
        with pytest.raises(InvalidWorkflow, match="y") as fits_not:
            memory.workflow("sums", file=file, tools={"add": other})
        assert len(fits_not.value.data["problems"]) == 2
        with pytest.raises(InvalidWorkflow, match="no tool 'add'"):
            memory.workflow("sums", file=file, tools={})
        flow = memory.workflows(file, {"add": add})
        assert flow.start("sums").output == 2
        flow.tools.register("add", other)
        with pytest.raises(InvalidWorkflow):
            flow.start("sums")
