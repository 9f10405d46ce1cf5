"""The help of every command: a group, an example that can be typed, and names for what is old."""

import shlex
from pathlib import Path

import click
import pytest
from tests.cli.em_command import em

from em.cli.command import EVERYWHERE, Command, walk
from em.cli.examples import EXAMPLES
from em.cli.root import ALIASES, COMMANDS, GROUPS, root


def test_the_help_lists_every_command_under_what_it_is_about() -> None:
    shown = em("--help").out
    assert [*GROUPS] == [
        "Memory", "Routines", "Agents", "State and lessons", "Workflows", "Service",
        "Administration",
    ]  # fmt: skip
    for title, commands in GROUPS.items():
        assert f"{title}:\n" in shown
        assert all(f"\n  {name} " in shown for name in commands)


def test_no_example_is_of_a_command_that_is_gone() -> None:
    assert {one.path for one in walk(root)} >= EXAMPLES.keys()


@pytest.fixture
def _folder_of_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("~/.claude/projects", "cancel_order", "greeting"):
        Path(folder).mkdir(parents=True)
    Path("all.jsonl").touch()


@pytest.mark.usefixtures("_folder_of_the_examples")
@pytest.mark.parametrize("command", [*walk(root)][1:], ids=lambda one: one.path)
def test_the_help_of_every_command_ends_with_an_example_that_can_be_typed(command: Command) -> None:
    name = command.path
    shown = command.get_help(click.Context(command, info_name=name, max_content_width=100))
    for line in EXAMPLES[name].splitlines():
        assert f"  {line}" in shown.splitlines()
        words = shlex.split(line)
        typed = ["em", *name.split()]
        assert words[: len(typed)] == typed
        command.make_context(name, words[len(typed) :], obj={"db": None, "json": False})


def test_the_house_of_commands_stays_small() -> None:
    options = [
        param
        for command in walk(root)
        for param in command.params
        if isinstance(param, click.Option)
    ]
    assert len(COMMANDS) <= 26
    assert len(options) + len(EVERYWHERE) <= 300


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["help"], ["--help"]),
        (["help", "run"], ["run", "--help"]),
        (["help", "routine", "show"], ["routine", "show", "--help"]),
    ],
)
def test_em_help_shows_the_help_of_a_command(typed: list[str], shown: list[str]) -> None:
    assert em(*typed).out.split() == em(*shown).out.split()


def test_help_of_nothing_that_there_is_names_what_there_is() -> None:
    assert [em("help", *words).code for words in (["nothing"], ["run", "x"], ["log", "x"])] == [
        2
    ] * 3


def test_spellings_of_the_seeds_work_and_are_not_listed() -> None:
    shown = em("--help").out
    for name in ALIASES:
        assert f"\n  {name} " not in shown
        assert em(name, "--help").code == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cache", "routine behaviours"),
        ("heuristics", "lessons"),
        ("ask", "state ask"),
        ("suggest", "routine suggest"),
        ("trases", "traces"),
    ],
)
def test_a_name_of_before_leads_to_the_new_one(old: str, new: str) -> None:
    ran = em(old, "list")
    assert (ran.code, f"Did you mean {new!r}?" in ran.err) == (2, True)
