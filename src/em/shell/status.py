"""Status: what of a command line must succeed, and whether its exit status says so.

`pytest -q || echo FAILED` ends with 0 whatever the tests do: only what it printed tells. Reports,
such as `echo FAILED`, are told apart from what may fail. Loops and programs in the background are
not taken apart.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from em.shell.programs import known_programs, read_command
from em.shell.syntax import SETTING, Opaque, Simple, parse, tree_of

if TYPE_CHECKING:
    from tree_sitter import Node

ALWAYS_SUCCEEDS = frozenset({"true", ":", "echo", "printf", "pwd"})
"""Commands of the shell that end with exit status 0, whatever they are given."""
PASSING_ON = frozenset({"tail", "head", "cat", "tac", "nl", "wc", "sort", "uniq", "less", "more"})
"""Programs that show what they are given, and fail for nothing that stands in it."""
_STATEMENTS = frozenset({
    "command", "pipeline", "test_command", "negated_command", "redirected_statement",
    "variable_assignment", "variable_assignments", "declaration_command", "unset_command",
})  # fmt: skip
_PLAIN = frozenset({"command", "test_command", "negated_command"})
_GROUPS = frozenset({"program", "subshell", "compound_statement"})


class Status(NamedTuple):
    """What of a command line must succeed.

    text: empty if nothing of it may fail, or if it can't be taken apart. signs: what it prints if
    some of it fails. is_hidden: its exit status does not say whether it succeeded.
    """

    text: str
    signs: tuple[str, ...] = ()
    is_hidden: bool = False


@lru_cache(maxsize=2048)
def status_of(text: str) -> Status:
    """Return what of a command line must succeed, without what only shows its output.

    `pytest -q 2>&1 | tail -3 && echo done` is `pytest -q`.
    """
    reader = _StatusReader(text)
    try:
        if _has_lines(parse(text).commands):
            return Status(text)  # nothing may be left out of a text with lines of its own
        parts = reader.read(tree_of(text))
    except Opaque:
        return Status(text)
    except _NotInSequence:
        return Status("", is_hidden=True)
    return Status(_joined(parts), tuple(reader.signs), reader.is_hidden)


def settled(text: str, shown: str | None) -> str | None:
    """Return what of a command line succeeded and must again; empty if nothing of it may fail.

    shown: what it printed. None if only that tells how it ended.
    """
    found = status_of(text)
    if not found.is_hidden:
        return found.text
    lines = [line.strip() for line in (shown or "").splitlines()]
    is_silent = not found.signs and shown is not None and not shown.strip()
    if not found.text or is_silent or any(one in lines for one in found.signs):
        return None
    # A look whose end nobody wanted to know, such as `git diff --stat || true`.
    is_look = not found.signs and all(map(_is_read, parse(found.text).commands))
    return "" if is_look else found.text


class _NotInSequence(Exception):
    """Something of a command line is run several times, later, or beside the rest."""


_Parts = list[tuple[str, bool]]
"""Statements, each with whether it may fail; one that can't changes the shell for the others."""


def _joined(parts: _Parts) -> str:
    return " && ".join(text for text, _ in parts) if any(fails for _, fails in parts) else ""


class _StatusReader:
    """Takes the tree of one command line apart."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode("utf-8", "surrogatepass")
        self.signs: list[str] = []
        self.is_hidden = False

    def _source(self, node: "Node") -> str:
        return self._bytes[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")

    def read(self, node: "Node") -> _Parts:
        """Return what must succeed of a statement, or of those in a block."""
        if any(child.type == "&" for child in node.children):
            raise _NotInSequence
        if node.type in _GROUPS:
            rows = [child for child in node.named_children if child.type != "comment"]
            read = [self.read(child) for child in rows]
            parts = [part for one in read for part in one]
            self.is_hidden |= bool(parts) and not read[-1]
            is_apart = node.type == "subshell" and not all(fails for _, fails in parts)
            return [(f"({_joined(parts)})", True)] if is_apart and _joined(parts) else parts
        if node.type == "list":
            return self._list(*node.children)
        if node.type == "if_statement":
            return self._condition(node)
        if node.type not in _STATEMENTS:
            raise _NotInSequence
        if node.type == "pipeline":
            return self._pipeline(node.named_children)
        if node.type == "redirected_statement" and node.children[0].type not in _PLAIN:
            if _moves(parse(self._source(node)).commands[-1]):
                raise _NotInSequence
            return self.read(node.children[0])
        return self._statement(self._source(node))

    def _pipeline(self, stages: Sequence["Node"]) -> _Parts:
        """Read a pipeline without the programs at its end that pass on what they are given."""
        while len(stages) > 1 and _passes_on(parse(self._source(stages[-1])).commands):
            stages = stages[:-1]
        if len(stages) == 1:
            return self.read(stages[0])
        if any(one.type not in _STATEMENTS for one in stages):
            raise _NotInSequence
        start, end = stages[0].start_byte, stages[-1].end_byte
        return [(self._bytes[start:end].decode("utf-8", "surrogatepass"), True)]

    def _list(self, left: "Node", sign: "Node", right: "Node") -> _Parts:
        if sign.type == "&&":
            return [*self.read(left), *self.read(right)]
        others = parse(self._source(right)).commands
        is_look = all(map(_is_read, parse(self._source(left)).commands))
        if is_look and not all(map(_is_certain, others)):
            return [
                (f"{self._source(left)} || {self._source(right)}", True)
            ]  # `[ -d x ] || mkdir x`
        self._note(others)
        return self.read(left)

    def _condition(self, node: "Node") -> _Parts:
        """Read `if`: its condition must hold, and what is done then; otherwise it only reports."""
        kinds = [child.type for child in node.children]
        if "elif_clause" in kinds:
            raise _NotInSequence
        self.is_hidden = True
        for one in node.named_children:
            if one.type == "else_clause":
                reports = parse(self._source(one).removeprefix("else")).commands
                if not all(map(_is_certain, reports)):
                    raise _NotInSequence
                self._note(reports)
        rest = [one for one in node.named_children if one.type != "else_clause"]
        return [part for one in rest for part in self.read(one)]

    def _note(self, reports: Sequence[Simple]) -> None:
        """Note what is printed on a failure, unless the command line fails then too."""
        last = [word.shown for word in reports[-1].words] if reports else []
        if last[:1] != ["exit"] or last[1:] in ([], ["0"]):
            self.is_hidden = True
            self.signs += [said for one in reports if (said := _said(one))]

    def _statement(self, text: str) -> _Parts:
        """Return a statement that may fail, without what only shows its output."""
        commands = parse(text).commands
        first = commands[0].words[0].shown if commands and commands[0].words else ""
        if len(commands) == 1 and (first in SETTING or not first):
            return [(text, False)]
        if len(commands) == 1 and _is_certain(commands[0]):
            return []
        is_plain = len(commands) == 1 and not _moves(commands[0])
        return [(text[: max(word.end for word in commands[0].words)] if is_plain else text, True)]


def _has_lines(commands: Sequence[Simple]) -> bool:
    return any(one.body for command in commands for one in command.redirects)


def _is_read(command: Simple) -> bool:
    is_known = not read_command(command, known_programs()).reason
    return is_known and not any(one.writes for one in command.redirects)


def _is_certain(command: Simple) -> bool:
    """Return whether a command only reports, or ends the command line."""
    is_known = bool(command.words) and command.words[0].value in {*ALWAYS_SUCCEEDS, "exit"}
    return is_known and not any(one.writes for one in command.redirects)


def _said(command: Simple) -> str:
    """Return the line that a report prints; empty if the shell works it out."""
    first, *rest = command.words
    words = [word for word in rest if not word.text.startswith("-")]
    if first.value == "echo" and all(word.value is not None for word in words):
        return " ".join(word.shown for word in words).strip()
    is_format = first.value == "printf" and bool(words) and words[0].value is not None
    return re.split(r"[%\\]", words[0].shown)[0].strip() if is_format else ""


def _passes_on(commands: Sequence[Simple]) -> bool:
    """Return whether a program shows what the one before it printed, and nothing else."""
    first, *rest = [word.shown for one in commands for word in one.words] or [""]
    is_plain = all(word.startswith("-") or word.isdigit() for word in rest)
    return first in PASSING_ON and is_plain and len(commands) == 1 and not _moves(commands[0])


def _moves(command: Simple) -> bool:
    """Return whether a command reads a file, or writes one, by a redirect."""
    return any(one.writes or one.reads for one in command.redirects)
