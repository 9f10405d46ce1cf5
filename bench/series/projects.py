"""The projects of the series: what is on disk before each session, and what was asked for.

All names, layouts, versions and days are different. A judgement case is a project, or a request,
that nothing in the other sessions decides.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

Files = dict[str, str]


class Task(NamedTuple):
    """A request in a folder. `values` is what the scripted agent works with; empty if none does."""

    name: str
    day: str
    request: str
    files: Files
    values: Mapping[str, str] = MappingProxyType({})


def write(files: Files, folder: Path) -> None:
    """Make a project."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def contents(folder: Path) -> Files:
    """Return the files of a project, without what running its tests leaves behind."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "cache" not in str(path)
    }


# --- bump the version and write the changelog -----------------------------------------------------

_HEADS = {
    "CHANGELOG.md": "# Changelog\n\n",
    "CHANGES.md": "# Changes\n\nWhat is new, for users.\n\n",
    "HISTORY.md": "# History\n\n",
}
_BUMPS = [
    ("ledgerly", "src", "1.2.3", "1.3.0", "CHANGELOG.md", "Add CSV export", "2026-03-04"),
    ("tidewatch", "", "0.9.12", "0.10.0", "CHANGES.md", "Read tides of two ports", "2026-03-11"),
    ("pinboard", "src", "4.0.1", "5.0.0rc1", "CHANGELOG.md", "Drop Python 3.9", "2026-04-02"),
    ("gristmill", "", "2.7.0", "2.7.1", "HISTORY.md", "Fix a crash on empty input", "2026-04-20"),
    ("lantern", "src", "0.1.0", "0.2.0b2", "CHANGES.md", "Dim lights by schedule", "2026-05-05"),
    ("orchard", "src", "11.4.2", "12.0.0", "CHANGELOG.md", "Prune old branches", "2026-06-18"),
]  # fmt: skip


def bumps() -> list[Task]:
    """Return the tasks of the first series."""
    return [_bump(number, *row) for number, row in enumerate(_BUMPS)]


def _bump(
    number: int, package: str, top: str, old: str, new: str, log: str, note: str, day: str
) -> Task:
    base = f"{top}/{package}" if top else package
    about = f'description = "The {package} tool"\n'
    version = f'version = "{old}"\n'
    project = f'[project]\nname = "{package}"\n'
    project += (version + about) if number % 2 else (about + version)
    project += 'requires-python = ">=3.11"\ndependencies = ["httpx>=0.27"]\n'
    if number % 3 == 0:
        project += '\n[tool.ruff]\ntarget-version = "py311"\nline-length = 100\n'
    starts = ['"""The package."""\n\n', "", f'"""{package}: a small tool."""\n']
    files = {
        "pyproject.toml": project,
        f"{base}/__init__.py": f'{starts[number % 3]}__version__ = "{old}"\n__all__ = ["main"]\n',
        f"{base}/main.py": f'def main() -> None:\n    print("{package}")\n',
        log: f"{_HEADS[log]}## {old} (2025-12-{10 + number})\n\n- The one before\n\n"
        f"## {_before(old)} (2025-08-0{number + 1})\n\n- The first of them\n",
        "README.md": f"# {package}\n\nInstall it with pip.\n",
    }
    request = f'Bump the version to {new} and write the changelog, in {log}: "{note}".'
    values = {
        "package": package, "base": base, "old": old, "new": new, "log": log, "note": note,
    }  # fmt: skip
    return Task(f"bump-{package}", day, request, files, values)


def _before(version: str) -> str:
    major, minor, patch = version.split(".")
    return f"{major}.{minor}.{int(patch) - 1}" if int(patch) else f"{major}.0.0.dev1"


def bump_judgements() -> list[Task]:
    """Return tasks of the first kind that need a person, or a model."""
    base = _bump(1, "weir", "src", "3.1.4", "3.2.0", "CHANGELOG.md", "Open two gates", "2026-07-01")
    project, init = base.files["pyproject.toml"], base.files["src/weir/__init__.py"]
    log = base.files["CHANGELOG.md"]

    def case(name: str, request: str = base.request, **changed: str) -> Task:
        files = {**base.files, **{_FILES[key]: text for key, text in changed.items()}}
        return Task(name, base.day, request, files)

    quoted = '"Open two gates"'
    return [
        case("two version lines", project=project + '\n[tool.other]\nversion = "3.1.4"\n'),
        case("two other version lines", project=project + '\n[tool.other]\nversion = "9.9"\n'),
        case("no version line", project=project.replace('version = "3.1.4"\n', "")),
        case("a version elsewhere", init=init.replace("__version__", "VERSION")),
        case("a version in words", base.request.replace("3.2.0", "the next minor one")),
        case("a version with a letter before it", base.request.replace("3.2.0", "v3.2.0")),
        case("no version asked for", f"Bump the version and write the changelog: {quoted}."),
        case("more is asked for", f"{base.request} Then publish it."),
        case("a condition", f"{base.request[:-1]}, but only if all tests pass."),
        case("an unreleased section", log=log.replace("## 3.1.4", "## Unreleased\n\n## 3.1.4")),
        case("an entry that is there", log=log.replace("## 3.1.4", "## 3.2.0\n\n## 3.1.4")),
        case("a version that is there", base.request.replace("3.2.0", "3.1.4")),
        case("a changelog without entries", log="# Changelog\n"),
        case("no such changelog", base.request.replace("CHANGELOG.md", "NEWS.md")),
        case("the version is built", init='from weir._build import version as __version__\n',
             project=project.replace('version = "3.1.4"\n', 'dynamic = ["version"]\n')),
    ]  # fmt: skip


_FILES = {
    "project": "pyproject.toml",
    "init": "src/weir/__init__.py",
    "log": "CHANGELOG.md",
}

# --- find the failing test, fix the import, run again ---------------------------------------------

_IMPORTS = [
    ("invoicer", "src", "amounts", "util", "parsing", "parse_amount", "2026-03-05"),
    ("skylark", "", "routes", "helpers", "geometry", "great_circle", "2026-03-12"),
    ("mortar", "src", "mixing", "ratios", "recipes.dry", "water_ratio", "2026-04-03"),
    ("quill", "", "wrapping", "text", "layout", "wrap_lines", "2026-04-21"),
    ("beacon", "src", "signals", "codes", "morse", "to_morse", "2026-05-06"),
    ("thicket", "", "paths", "walk", "search.depth", "first_path", "2026-06-19"),
]
FAILING = "The tests fail. Find the failing test, fix the import and run the tests again."


def imports() -> list[Task]:
    """Return the tasks of the second series."""
    return [_import(number, *row) for number, row in enumerate(_IMPORTS)]


def _import(
    number: int, package: str, top: str, test: str, gone: str, now: str, function: str, day: str
) -> Task:
    base = f"{top}/{package}" if top else package
    path = f"{base}/{now.replace('.', '/')}.py"
    constants = "".join(f"PART_{one} = {one}\n" for one in range(number % 4))
    first = ["import math\n", "import os\nfrom decimal import Decimal\n", ""][number % 3]
    files = {
        "pyproject.toml": f'[project]\nname = "{package}"\nversion = "1.0"\n\n'
        f'[tool.pytest.ini_options]\npythonpath = ["{top or "."}"]\n',
        f"{base}/__init__.py": "",
        path: f'"""Part of {package}."""\n{constants}\n\n'
        f"def {function}(value):\n    return value * 2\n",
        f"{base}/other.py": "def unrelated(value):\n    return value\n",
        f"tests/test_{test}.py": f"{first}\nfrom {package}.{gone} import {function}\n\n\n"
        f"def test_{test}():\n    assert {function}({number + 2}) == {2 * number + 4}\n",
        "tests/test_other.py": f"from {package}.other import unrelated\n\n\n"
        "def test_other():\n    assert unrelated(1) == 1\n",
    }
    for folder in {str(Path(path).parent)} - {base}:
        files[f"{folder}/__init__.py"] = ""
    values = {
        "package": package, "test": f"tests/test_{test}.py", "gone": f"{package}.{gone}",
        "now": f"{package}.{now}", "path": path, "function": function,
    }  # fmt: skip
    return Task(f"import-{package}", day, FAILING, files, values)


def import_judgements() -> list[Task]:
    """Return tasks of the second kind that need a person, or a model."""
    base = _import(1, "harrow", "src", "rows", "tools", "fields", "plough", "2026-07-02")
    test, module = "tests/test_rows.py", "src/harrow/fields.py"
    right = base.files[test].replace("harrow.tools", "harrow.fields")

    def case(name: str, *without: str, **changed: str) -> Task:
        more = {{"test": test, "module": module}.get(key, f"{key}.py"): text
                for key, text in changed.items()}  # fmt: skip
        files = {**base.files, **more}
        for gone in without:
            del files[gone]
        return Task(name, base.day, FAILING, files)

    return [
        case("the cause is an assertion", test=right.replace("== 6", "== 7")),
        case("nothing fails", test=right),
        case("a module that is nowhere", module,
             test=base.files[test].replace("harrow.tools", "requests_of_ours")),
        case("a function that is nowhere", module=base.files[module].replace("plough", "till")),
        case("a function that is there twice", spare=base.files[module]),
        case("still fails afterwards", test=base.files[test].replace("== 6", "== 7")),
        case("a syntax error", test=base.files[test].replace("test_rows()", "test_rows(:")),
        case("two tests with the same fault", **{"tests/test_more": base.files[test]}),
        case("two functions of it", test=base.files[test].replace(
            "import plough", "import plough, sow")),
    ]  # fmt: skip
