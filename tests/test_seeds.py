"""docs/seeds.md names, for each row of the seed documents, tests that are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "seeds.md"
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows() -> list[tuple[str, list[str]]]:
    """Return the rows of the tables that have a column of tests, with their heading."""
    found, heading, is_shown = [], "", False
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading, is_shown = line, False
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| the document"):
            is_shown = True
        elif line.startswith("| ") and is_shown:
            found.append((heading, [cell.strip(" |") for cell in cells]))
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1][0][:60])
def test_each_row_names_tests_that_exist(row: tuple[str, list[str]]) -> None:
    _, cells = row
    assert len(cells) == 3, cells
    named = _TEST.findall(cells[2])
    assert named, "each row needs a test"
    for file, name in named:
        path = ROOT / file
        assert path.is_file(), file
        assert not name or name in names_in(path), f"{file} has no {name}"


def test_every_document_has_its_rows() -> None:
    counted: dict[str, int] = {}
    for heading, _ in rows():
        counted[heading[:5]] = counted.get(heading[:5], 0) + 1
    assert sorted(counted) == ["## 1.", "## 2.", "## 3.", "## 4.", "## 5."]
    assert sum(counted.values()) >= 66
    assert min(counted.values()) >= 12


def test_the_chapter_on_limits_has_every_case_of_the_document() -> None:
    text = (ROOT / "docs" / "limits.md").read_text()
    for case in (
        "what did they say",  # workloads that are mostly recall
        "changes its shape often",  # no clear schema
        "model that reads texts is weak",
        "regulated",
        "contradict each other and nobody has said",
        "fits into one prompt",
    ):
        assert case in text, case
