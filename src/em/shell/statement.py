"""Statements: the parts of a command line that the shell runs one after the other.

`make lint && git add -A; git commit -m x` is three statements, each with an exit status of its own.
A pipeline is one statement, and so are commands that `||` joins.
"""

from typing import NamedTuple

from em.shell.syntax import Opaque, Script, Simple, parse

ALWAYS_SUCCEEDS = frozenset({"true", ":", "echo", "printf", "pwd"})
"""Commands of the shell that end with exit status 0, whatever they are given."""
SETTING = frozenset({
    "cd", "pushd", "popd", "export", "set", "unset", "source", ".", "shopt", "umask", "ulimit",
})  # fmt: skip
"""Commands that change the shell itself, and so what comes after them does."""


PASSING_ON = frozenset({"tail", "head", "cat", "tac", "nl", "wc", "sort", "uniq", "less", "more"})
"""Programs that show what they are given, and fail for nothing that stands in it."""


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


def can_fail(text: str) -> bool:
    """Return whether a command line may end with another exit status than 0.

    `pytest || true` can't. `pytest; true` can: a routine stops where a statement fails.
    """
    parts = statements(text)
    return not parts or any(map(_can_fail, parts))


def checked(text: str) -> str:
    """Return the part of a command line that may fail: without what only shows its output.

    `pytest -q 2>&1 | tail -3 && echo done` is `pytest -q`. Empty if none of it may fail.
    """
    parts = statements(text)
    if not parts:
        return text
    kept = [_without_showing(one) for one in parts if one.is_setting or _can_fail(one)]
    return " && ".join(kept) if any(map(_can_fail, parts)) else ""


def _without_showing(one: Statement) -> str:
    script = parse(one.text)
    commands = [*script.commands]
    if any(command.join == "||" for command in commands):
        return one.text
    while len(commands) > 1 and _passes_on(commands[-1]):
        commands.pop()
    if any(command.redirects for command in commands[:-1]) or _moves(commands[-1]):
        return one.text
    return one.text[: max(word.end for word in commands[-1].words)] if commands[-1].words else ""


def _passes_on(command: Simple) -> bool:
    """Return whether a program shows what the one before it printed, and nothing else."""
    first, *rest = [word.shown for word in command.words] or [""]
    is_plain = all(word.startswith("-") or word.isdigit() for word in rest)
    return first in PASSING_ON and is_plain and not _moves(command)


def _moves(command: Simple) -> bool:
    """Return whether a command reads a file, or writes one, by a redirect."""
    return any(one.writes or one.reads for one in command.redirects)


def _can_fail(one: Statement) -> bool:
    *_, last = parse(one.text).commands
    is_certain = bool(last.words) and last.words[0].value in ALWAYS_SUCCEEDS
    return not is_certain or last.join in ("|", "|&") or any(one.writes for one in last.redirects)


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
