"""The help of every command: a group, an example that can be typed, and names for what is old."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.em_command import em

from em.cli.examples import EXAMPLES
from em.cli.root import COMMANDS, GROUPS, root


def leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            yield from leaves(f"{name} {below}", one)


def every_command() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = root.get_command(click.Context(root), name)
        assert command is not None
        yield from leaves(name, command)


def test_the_help_lists_every_command_under_what_it_is_about() -> None:
    shown = em("--help").out
    assert [*GROUPS] == [
        "Memory", "Routines", "Agents", "State", "Lessons", "Workflows", "Service",
        "Administration",
    ]  # fmt: skip
    for title, commands in GROUPS.items():
        assert f"{title}:\n" in shown
        assert all(f"\n  {name} " in shown for name in commands)


def test_no_example_is_of_a_command_that_is_gone() -> None:
    assert {name for name, _ in every_command()} >= EXAMPLES.keys()


@pytest.fixture
def _folder_of_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("~/.claude/projects", "cancel_order", "greeting"):
        Path(folder).mkdir(parents=True)
    Path("all.jsonl").touch()


@pytest.mark.usefixtures("_folder_of_the_examples")
@pytest.mark.parametrize(
    ("name", "command"), [pytest.param(*one, id=one[0]) for one in every_command()]
)
def test_the_help_of_every_command_ends_with_an_example_that_can_be_typed(
    name: str, command: click.Command
) -> None:
    assert name in EXAMPLES
    shown = command.get_help(click.Context(command, info_name=name, max_content_width=100))
    for line in EXAMPLES[name].splitlines():
        assert f"    {line}" in shown.splitlines()
        words = shlex.split(line)
        typed = ["em", *name.split()]
        assert words[: len(typed)] == typed
        command.make_context(name, words[len(typed) :], obj={"db": None, "json": False})


def test_every_command_takes_a_database_and_prints_json() -> None:
    for name, command in every_command():
        options = {option for param in command.params for option in param.opts}
        assert name == "completion" or {"--db", "--json"} <= options, name


@pytest.mark.parametrize(("old", "new"), [("cache", "behaviours"), ("heuristics", "lessons")])
def test_a_name_of_before_leads_to_the_new_one(old: str, new: str) -> None:
    assert f"Did you mean {new!r}?" in em(old, "list").err
