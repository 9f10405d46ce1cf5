"""Statements: the parts of a command line that the shell runs one after the other.

`make lint && git add -A; git commit -m x` is three statements, each with an exit status of its own.
A pipeline is one statement, and so are commands that `||` joins.
"""

from typing import NamedTuple

from em.shell.syntax import Opaque, Script, Simple, parse

SETTING = frozenset({
    "cd", "pushd", "popd", "export", "set", "unset", "source", ".", "shopt", "umask", "ulimit",
})  # fmt: skip
"""Commands that change the shell itself, and so what comes after them does."""


class Statement(NamedTuple):
    """One statement: its text, and the first program of it, "" if it only sets variables.

    is_pipeline: it is programs that are joined by `|`, and by nothing else.
    """

    text: str
    program: str
    is_pipeline: bool

    @property
    def is_setting(self) -> bool:
        """Whether it changes the shell for the statements after it."""
        return self.program in SETTING or not self.program


def statements(text: str) -> list[Statement]:
    """Return the statements of a command line; [] if it can't be taken apart."""
    try:
        script = parse(text)
    except Opaque:
        return []
    found: list[list[Simple]] = []
    for command in script.commands:
        if not _is_plain(command):
            return []
        if command.join == "||" and found[-1][0].join == "&&":
            return []  # what `a && b || c` does depends on how each of them ends
        if command.join in ("|", "|&", "||"):
            found[-1].append(command)
        else:
            found.append([command])
    is_whole = script.is_flat and not text.rstrip().endswith("&")
    return [_statement(script, own) for own in found] if is_whole else []


def _is_plain(command: Simple) -> bool:
    """Return whether the text of a command can be cut out of the line."""
    first = min((word.start for word in command.words), default=0)
    targets = [one.target for one in command.redirects if one.target is not None]
    is_in_order = all(target.start > first for target in targets)
    return is_in_order and command.join != "&" and not any(one.body for one in command.redirects)


def _statement(script: Script, commands: list[Simple]) -> Statement:
    start, end = _span(commands[0])[0], _span(commands[-1])[1]
    words = commands[0].words
    joins = {one.join for one in commands[1:]}
    is_pipeline = bool(joins) and "||" not in joins
    return Statement(script.text[start:end], words[0].shown if words else "", is_pipeline)


def _span(command: Simple) -> tuple[int, int]:
    """Return where a simple command begins and ends."""
    words = [*command.words, *(one.target for one in command.redirects if one.target is not None)]
    starts = [one.start for one in words]
    starts += [one.start - len(one.name) - 1 for one in command.assignments]
    ends = [one.end for one in words]
    ends += [one.start + len(one.value) for one in command.assignments]
    return min(starts, default=0), max(ends, default=0)
