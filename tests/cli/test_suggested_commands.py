"""Every command that a message, a page or a skill of em suggests can be typed as it stands."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import em
from em.cli.command import Command, Group
from em.cli.root import root

SOURCE = Path(em.__file__).parent
PLUGIN = SOURCE.parent.parent / "plugins"
MARKED = re.compile(r"(?:`|<code>|<pre>)em ([a-z-][^`\n<;]*)")
IN_FIX = re.compile(r"(?:^|: )em ([a-z-][^`\n<;]*)")


def suggestions() -> Iterator[tuple[str, str]]:
    """Every command that the package and its plugin name, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        fixes: set[ast.AST] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "fix":
                fixes |= {*ast.walk(node.value)}
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = MARKED.findall(node.value)
                found += IN_FIX.findall(node.value) if node in fixes else []
                yield from ((f"{path.relative_to(SOURCE)}:{node.lineno}", one) for one in found)
    for path in (*SOURCE.rglob("*.html"), *PLUGIN.rglob("*.md")):
        yield from ((path.name, one) for one in MARKED.findall(path.read_text()))


def command_of(words: list[str]) -> tuple[Command, list[str]]:
    """The command that words name, and what is left of them."""
    found: Command = root
    while isinstance(found, Group) and words and not words[0].startswith("-"):
        below = found.get_command(click.Context(found, resilient_parsing=True), words[0])
        if below is None:
            break
        found, words = below, words[1:]
    return found, words


def wrong(typed: str) -> str:
    """What is wrong with a command as it is printed; empty if nothing is."""
    command, words = command_of(typed.split())
    if command is root and words and not words[0].startswith("-"):
        return f"there is no command {words[0]!r}"
    if isinstance(command, Group) and words and words[0][:1].isalpha() and words[0].islower():
        return f"{command.path} has no command {words[0]!r}"
    context = click.Context(command)
    known = {name for param in command.get_params(context) for name in param.opts}
    options = [word.rstrip(",.):") for word in words if re.match(r"--?[a-z]", word)]
    unknown = [one for one in options if one not in known | {"--help"}]
    return f"{command.path or 'em'} has no option {unknown}" if unknown else ""


def test_every_command_that_is_suggested_exists_with_its_options() -> None:
    found = {f"{place}: em {typed}": wrong(typed) for place, typed in suggestions()}
    assert len(found) > 100
    assert {one: why for one, why in found.items() if why} == {}


@pytest.mark.parametrize(
    "typed", ["aks ana", "state aks ana", "run x --no-such-option", "log show --since"]
)
def test_a_wrong_suggestion_would_be_found(typed: str) -> None:
    assert bool(wrong(typed)) == (typed != "log show --since")
