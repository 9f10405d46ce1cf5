"""Every code block of README and docs runs."""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click
import pytest
import yaml
from markdown_it import MarkdownIt
from tests.forks import command_line

from em.cli.root import ALIASES, COMMANDS, root

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples" / "csv_report" / "README.md",
    ROOT / "examples" / "ibuprofen" / "README.md",
]
NOT_CODE = {"text", "mermaid", "nginx"}  # nginx: tests/serve/test_proxy.py


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        if token.type == "fence":
            assert token.map is not None
            yield Block(token.info.strip(), token.content, token.map[0] + 2)


def run_python(block: Block, page: Path) -> None:
    source = "\n" * (block.line - 1) + block.code  # so that an error names the line of the page
    exec(compile(source, str(page), "exec"), {"__name__": "__docs__"})


def run_bash(block: Block, page: Path) -> None:
    lines = block.code.strip().splitlines()
    only_make = all(line.startswith("make ") for line in lines)
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    if page != README:  # whose commands are the installed ones; those of other pages are forks
        folders.insert(0, str(em_that_forks()))
    environment = {**os.environ, "PATH": os.pathsep.join(folders)}
    if only_make:  # the targets exist and their steps are known; running them would run this test
        environment["MAKEFLAGS"] = "--dry-run"
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=ROOT if only_make else None,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{page.name}:{block.line}\n{run.stdout}{run.stderr}"


@cache
def em_that_forks() -> Path:
    """Return a folder with a program `em` that starts fast, until the tests end."""
    folder = Path(tempfile.mkdtemp(prefix="em-docs-"))
    atexit.register(shutil.rmtree, folder)
    program = folder / "em"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command_line("-m", "em"))} "$@"\n')
    program.chmod(0o755)
    return folder


def run_yaml(block: Block, page: Path) -> None:
    """A YAML block of these pages is an em.yaml."""
    from em import Settings
    from em.redaction.redactor import Redactor

    assert isinstance(yaml.safe_load(block.code), dict), page
    Path("em.yaml").write_text(block.code)
    settings = Settings.load(environ={})
    Redactor(settings.redact.patterns)


RUN = {"python": run_python, "bash": run_bash, "yaml": run_yaml}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_block_runs(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language not in NOT_CODE and not block.language.startswith("{"):  # for Sphinx
            assert block.language in RUN, f"{page.name}:{block.line}: say which language it is"
            RUN[block.language](block, page)


@cache
def headings(page: Path) -> frozenset[str]:
    """Return the headings of a page as links name them."""
    found = set()
    tokens = MarkdownIt("commonmark").parse(page.read_text())
    for token, text in pairwise(tokens):
        if token.type == "heading_open":
            words = re.sub(r"[^\w\- ]", "", text.content.lower())
            found.add(words.replace(" ", "-"))
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        for child in token.children or []:
            target = str(child.attrs.get("href", "")) if child.type == "link_open" else ""
            if target and "://" not in target:
                name, _, heading = target.partition("#")
                there = page.parent / name if name else page
                assert there.exists(), target
                assert not heading or heading in headings(there), target


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = ["-q", "-W", "--keep-going", "-b", "html", str(ROOT / "docs"), str(tmp_path / "site")]
    ran = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    site = tmp_path / "site"
    assert "em.Memory" in (site / "api.html").read_text()
    described = (site / "commands.html").read_text()
    assert not [name for name in COMMANDS if f"em {name}" not in described]
    assert "busy_timeout" in (site / "settings.html").read_text()
    assert "/trajectories/{" in (site / "http.html").read_text()


def test_there_are_blocks_to_run() -> None:
    counted = [block.language for page in PAGES for block in blocks(page)]
    assert counted.count("python") >= 4
    assert counted.count("bash") >= 4


def test_a_failing_block_fails_the_test() -> None:
    page = README
    with pytest.raises(AssertionError):
        run_python(Block("python", "assert False", 1), page)
    with pytest.raises(AssertionError):
        run_bash(Block("bash", "em log shwo", 1), page)


def code_of(page: Path) -> Iterator[str]:
    """Yield every line of the code blocks of a page, and every piece of code in its sentences."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text()):
        if token.type == "fence":
            yield from token.content.splitlines()
        for child in token.children or []:
            if child.type == "code_inline":
                yield child.content


def test_what_the_pages_name_of_em_exists() -> None:
    def exists(name: str) -> bool:
        first, *rest = name.split(".")
        found: Any = import_module(first)
        for part in rest:
            with suppress(ImportError):
                import_module(f"{found.__name__}.{part}") if isinstance(found, ModuleType) else None
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True

    names = {
        (page.name, name)
        for page in PAGES
        for line in code_of(page)
        for name in re.findall(r"(?<![\w./@-])em(?:\.[A-Za-z_]\w*)+(?![\w./@-])", line)
    }
    assert len(names) > 40
    source = "".join(file.read_text() for file in (ROOT / "src" / "em").rglob("*.py"))
    files = {"em.example.com", "em.yaml", "em.db", "em.dump", "em.queue", "em.js"}
    spans = {name for _, name in names if f'"{name}"' in source}  # of em's own traces and metrics
    assert not {one for one in names if one[1] not in files | spans and not exists(one[1])}

    rooms = "|".join(folder.name for folder in (ROOT / "src" / "em").iterdir() if folder.is_dir())
    modules = {
        (page.name, line)
        for page in PAGES
        for line in code_of(page)
        if re.fullmatch(rf"({rooms})(/\w+)+(\.py)?", line)
    }
    assert len(modules) > 30
    places = {(page, ROOT / "src" / "em" / name.removesuffix(".py")) for page, name in modules}
    assert not {one for one in places if not one[1].with_suffix(".py").is_file()}


def options_of(command: click.Command) -> dict[str, set[str]]:
    """Return the options of each command below this one, by its words."""
    own = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    found = {"": own | {"--help", "--db", "--json", "--version"}}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in (*command.list_commands(context), *(ALIASES if command is root else ())):
            below = command.get_command(context, name)
            assert below is not None
            found |= {f"{name} {words}".strip(): all_ for words, all_ in options_of(below).items()}
    return found


def test_every_command_and_option_of_the_pages_exists() -> None:
    known = options_of(root)
    anywhere = set().union(*known.values())
    wrong = []
    for page in PAGES:
        for line in code_of(page):
            for _, words in re.findall(r"(^|[$(;|] ?|&& )em ((?:[\w-]+ ?)+(?:[^|;)&#]*))", line):
                parts = words.split()
                if parts[0].isupper() or parts[0].startswith("-"):
                    continue  # a placeholder, or an option of em itself
                depth = next((n for n in (2, 1) if " ".join(parts[:n]) in known), 0)
                options = [part.partition("=")[0] for part in parts if part.startswith("--")]
                if not depth or not set(options) <= known[" ".join(parts[:depth])]:
                    wrong.append((page.name, line))
            if re.fullmatch(r"--[a-z][a-z-]*( [A-Z]+)?", line) and line.split()[0] not in anywhere:
                wrong.append((page.name, line))
    assert not wrong


def test_every_promise_of_the_security_page_has_its_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert len(named) > 20
    for file, test in named:
        assert not test or f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"
        assert (ROOT / file).is_file(), file


def test_the_demo_does_two_kinds_of_task_and_hands_one_over() -> None:
    told = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "help_desk" / "demo.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "DEMO_SECONDS": "0.01"},
    ).stdout
    lines = [line.strip() for line in told.splitlines()]
    assert "ok: W-7377 cancelled, by mail" in lines
    assert "ok: W-7388 open, by courier" in lines
    assert "needs_input: W-7399 shipped, by mail" in lines
    assert "handed over, nothing was done: `order.status`" in told
    table = {line[:14].strip(): line[14:].split() for line in lines if line[:1].islower()}
    assert (table["calls"], table["model calls"]) == (["3", "3"], ["4", "0"])
    suggested = [line.partition("em.db ")[2].split()[0] for line in lines if "em.db " in line]
    assert len(suggested) == 2
    assert {*suggested} <= {*COMMANDS}
    assert table["tokens"] == ["4,600", "0"]


def test_the_example_of_a_report_tells_its_story() -> None:
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "csv_report" / "demo.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    for words in (
        "solved a task in 7 calls: [('Lisbon', 940.0), ('Porto', 120.0)]",
        "7 calls became 4:",
        "without a model: [('Madrid', 310.0), ('Porto', 75.25)]",
    ):
        assert words in run.stdout


def test_nothing_committed_names_an_index_host_or_this_machine() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    hosts = (
        "/root" + "/",
        "/opt" + "/",
        "pypi" + ".org",
        "--index" + "-url=",
        "--index" + "-url h",
        "/work" + "/",
    )
    for name in filter(None, listed.stdout.split("\0")):
        text = (ROOT / name).read_text(errors="replace")
        assert not [host for host in hosts if host in text], name
