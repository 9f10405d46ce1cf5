"""The syntax of shell commands: programs, arguments, redirects and how they are joined.

The grammar is tree-sitter-bash (the extra `shell`). It also recovers from errors, which is of no
use here: a text with any error, or with a kind of node that this module does not know, raises
`Opaque`. Nobody knows what such a text does.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from em import deadline
from em.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


LONGEST = 100_000
"""Characters of a command that is parsed; a longer one is opaque."""
DEEPEST = 70
"""Levels of nested parts: of commands, and of the parts of words."""

GLOB = frozenset("*?[")
_JOINS = frozenset({"&&", "||", ";", "&", "|", "|&", "\n", ";;"})
_BLOCKS = frozenset(
    "subshell compound_statement if_statement while_statement for_statement c_style_for_statement"
    " case_statement case_item elif_clause else_clause do_group function_definition"
    " negated_command test_command".split()
)
_EXPANSIONS = frozenset(
    "simple_expansion expansion arithmetic_expansion command_substitution process_substitution"
    " brace_expression ansi_c_string translated_string extglob_pattern regex".split()
)
_WORDS = frozenset({"word", "number", "string", "raw_string", "concatenation", *_EXPANSIONS})
_IN_DOUBLE_QUOTES = re.compile(r"\\([\\\"$`\n])")
_CAT = re.compile(r""""\$\(cat <<(['"]?)(\w+)\1\n(.*\n)\2\n?\s*\)\"""", re.DOTALL)
_CRASH = re.compile(r"\{[0-9]*(?:\.\.[0-9]*)?[^\x00-\xff]")
"""Where tree-sitter-bash looks a character up in C's table of 256, and may crash."""
_BARE_ESCAPE = re.compile(r"\\(.|\n)", re.DOTALL)


class Opaque(InputError):
    """A command whose parts can't be known."""

    code = "opaque_command"


class Word(NamedTuple):
    """One word of a command.

    start, end: where it stands in the command's text.
    value: what the program gets; None if the shell works it out (a variable, a glob).
    """

    start: int
    end: int
    text: str
    value: str | None

    @property
    def shown(self) -> str:
        """The value if it is known, else the text."""
        return self.text if self.value is None else self.value


class Redirect(NamedTuple):
    """A redirect: `2> errors.txt`.

    body: the lines of a here-document; end: the line that ends it; is_quoted: the shell expands
    nothing in it.
    """

    operator: str
    target: Word | None
    body: Word | None = None
    end: str = ""
    is_quoted: bool = False

    @property
    def writes(self) -> bool:
        """Whether it writes to a file."""
        if self.target is None or ">" not in self.operator:
            return False
        is_number = self.operator.endswith(">&") and self.target.text.rstrip("-").isdigit()
        return not is_number and self.target.value not in _NOWHERE

    @property
    def reads(self) -> bool:
        """Whether it reads a file."""
        return self.target is not None and self.operator.endswith("<")


_NOWHERE = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")


class Assignment(NamedTuple):
    """`NAME=value`, before a program or by itself. `value` is as written; `start` is its place."""

    name: str
    value: str
    start: int = 0


class Simple(msgspec.Struct, kw_only=True):
    """One program with its arguments.

    join: how it is joined to the one before it: `|`, `&&`, `||`, `;`, `&`; empty for the first.
    is_nested: it stands in a block, a function or a substitution.
    """

    words: list[Word] = []
    redirects: list[Redirect] = []
    assignments: list[Assignment] = []
    join: str = ""
    is_nested: bool = False


class Script(msgspec.Struct, frozen=True):
    """A parsed command: all programs in it, in their order, also those in substitutions.

    is_flat: only programs that are joined; no loops, conditions, functions, substitutions.
    """

    text: str
    commands: list[Simple]
    is_flat: bool


def parse(text: str) -> Script:
    """Parse a command. Raises Opaque if it is not a command that this module knows."""
    if len(text) > LONGEST:
        raise Opaque(f"the command has more than {LONGEST:,} characters")
    if "\0" in text or "\r" in text or not text.strip():
        raise Opaque("the command is empty or has characters that no shell takes")
    if _CRASH.search(text):
        raise Opaque("the command has a character behind a brace that its parser can't read")
    return _parsed(text)


@lru_cache(maxsize=2048)
def _parsed(text: str) -> Script:
    reader = _TreeReader(text)
    reader.read(tree_of(text))
    return Script(text, reader.commands, reader.is_flat)


def tree_of(text: str) -> "Node":
    """Return the tree of a command that `parse` takes. Raises Opaque if it has an error."""
    root = _parser().parse(text.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        raise Opaque("the command has a syntax error, or syntax that is not known")
    if _is_deep(root):
        raise Opaque("the command is nested too deeply")
    return root


def _is_deep(root: "Node") -> bool:
    """Return whether a part of a tree stands below too many others to be read."""
    level = [root]
    for _ in range(DEEPEST):
        level = [child for node in level for child in node.children]
    return bool(level)


@lru_cache(maxsize=1)
def _parser() -> "Parser":
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise MissingExtra("shell", "reading shell commands") from error
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _TreeReader:
    """Reads the tree of one command."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode("utf-8", "surrogatepass")
        # By byte, how many characters come before it.
        starts = ((byte & 0xC0) != 0x80 for byte in self._bytes)
        self._chars = [0, *accumulate(starts)]
        self.commands: list[Simple] = []
        self.is_flat = True
        self._join = ""
        self._inside = 0
        self._late: list[Word] = []

    def read(self, node: "Node") -> None:
        """Read everything below a node."""
        kind = node.type
        if kind in ("program", "list", "pipeline"):
            self._read_all(node)
        elif kind == "command":
            self._add(self._command(node))
        elif kind == "redirected_statement":
            self._redirected(node)
        elif kind in ("variable_assignment", "variable_assignments"):
            self._add(Simple(assignments=list(self._assignments(node))))
        elif kind in ("declaration_command", "unset_command"):
            self._declaration(node)
        elif kind in _BLOCKS:
            self._block(node)
        elif kind in _JOINS:
            self._join = kind
        elif kind != "comment":
            raise Opaque(f"the command has a part of the unknown kind {kind!r}")

    def _read_all(self, node: "Node") -> None:
        end = node.start_byte
        for child in node.children:
            deadline.check()
            # Between two statements stands an operator, or a line break that the tree leaves out.
            if child.is_named and b"\n" in self._bytes[end : child.start_byte]:
                self._join = self._join or ("\n" if self.commands else "")
            self.read(child)
            end = child.end_byte

    def _add(self, made: Simple) -> None:
        made.join = self._join
        made.is_nested = self._inside > 0
        self._join = ""
        self.commands.append(made)

    def _block(self, node: "Node") -> None:
        self.is_flat = False
        self._inside += 1
        for child in node.children:
            self._inner(child)
        self._inside -= 1

    def _inner(self, node: "Node") -> None:
        """Read a part of a block: statements as such, of all else the substitutions."""
        kind = node.type
        statements = ("list", "pipeline", "command", "redirected_statement", "declaration_command")
        if kind in (*statements, "unset_command", "variable_assignment") or kind in _BLOCKS:
            self.read(node)
        elif kind in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            # After a function's body: it counts whenever the function is called.
            self._add(Simple(redirects=list(self._redirects(node))))
        elif kind in _JOINS:
            self._join = kind
        else:
            for child in node.children:
                self._inner(child)

    def _command(self, node: "Node") -> Simple:
        made = Simple(words=[], redirects=[], assignments=[])
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment":
                made.assignments += self._assignments(child)
            elif kind == "command_name":
                made.words.append(self._word(child.children[0]) if child.children else _none())
            elif kind in _WORDS:
                made.words.append(self._word(child))
            elif kind in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                made.redirects += self._redirects(child)
                if self._late:
                    raise Opaque("a redirect has more than one target")
            else:
                raise Opaque(f"a program has an argument of the unknown kind {kind!r}")
        return made

    def _redirected(self, node: "Node") -> None:
        body, *rest = node.children
        before = len(self.commands)
        if body.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            rest = [body, *rest]
            self._add(Simple())
        else:
            self.read(body)
        if len(self.commands) == before:
            self._add(Simple())
        # It belongs to the last program of a pipeline, and to all of a block; here to the last.
        owner = self.commands[-1]
        for child in rest:
            for redirect in self._redirects(child):
                owner.redirects.append(redirect)
        if self._late and (body.type != "command" or not owner.words):
            raise Opaque("a redirect has more than one target")
        owner.words += self._late
        self._late = []

    def _redirects(self, node: "Node") -> Iterator[Redirect]:
        if node.type == "file_redirect":
            operator, targets = "", []
            for child in node.children:
                if child.type in _WORDS:
                    targets.append(self._word(child))
                else:
                    operator += self._source(child)
            yield Redirect(operator, targets[0] if targets else None)
            # `> out.txt more` gives `more` to the program; the grammar has it here.
            self._late += targets[1:]
        elif node.type == "herestring_redirect":
            words = [self._word(child) for child in node.children if child.type in _WORDS]
            yield Redirect("<<<", words[0] if words else None)
        elif node.type == "heredoc_redirect":
            yield from self._heredoc(node)
        else:
            raise Opaque(f"a redirect of the unknown kind {node.type!r}")

    def _heredoc(self, node: "Node") -> Iterator[Redirect]:
        """Read a here-document. What else stands on its first line is below it in the tree."""
        delimiter, body, operator = "", _none(), ""
        later: list[Node] = []
        for child in node.children:
            kind = child.type
            if kind in ("<<", "<<-"):
                operator = kind
            elif kind == "heredoc_start":
                delimiter = self._source(child)
            elif kind == "heredoc_body":
                self._substitutions(child)
                body = Word(*self._span(child), self._source(child), None)
            elif kind == "file_redirect":
                yield from self._redirects(child)
            elif kind in _WORDS:
                self.commands[-1].words.append(self._word(child))
            elif kind != "heredoc_end":
                later.append(child)
        is_quoted = any(sign in delimiter for sign in "'\"\\")
        if is_quoted or not any(sign in body.text for sign in "$`\\"):
            body = body._replace(value=body.text)
        end = re.sub(r"['\"\\]", "", delimiter)
        yield Redirect(operator, None, body, end, is_quoted)
        for child in later:
            self.read(child)

    def _assignments(self, node: "Node") -> Iterator[Assignment]:
        if node.type == "variable_assignments":
            for child in node.children:
                yield from self._assignments(child)
            return
        self._substitutions(node)
        name, _, value = self._source(node).partition("=")
        yield Assignment(name, value, self._span(node)[1] - len(value))

    def _declaration(self, node: "Node") -> None:
        made = Simple(words=[], assignments=[])
        for child in node.children:
            if child.type == "variable_assignment":
                made.assignments += self._assignments(child)
            elif not child.is_named or child.type in (*_WORDS, "variable_name"):
                made.words.append(self._word(child))
            else:
                raise Opaque(f"a declaration has a part of the unknown kind {child.type!r}")
        self._add(made)

    # --- words ------------------------------------------------------------------------------------

    def _word(self, node: "Node") -> Word:
        said = _said_by_cat(self._source(node))
        if said is not None:
            return Word(*self._span(node), self._source(node), said)
        self._substitutions(node)
        return Word(*self._span(node), self._source(node), self._value(node))

    def _substitutions(self, node: "Node") -> None:
        """Read the commands that the shell runs to work out a word."""
        if node.type in ("command_substitution", "process_substitution"):
            self.is_flat = False
            self._inside += 1
            before, self._join = self._join, ""
            for child in node.children:
                if child.is_named:
                    self.read(child)
            self._join = before
            self._inside -= 1
            return
        for child in node.children:
            self._substitutions(child)

    def _value(self, node: "Node") -> str | None:
        text, kind = self._source(node), node.type
        if kind == "raw_string":
            return text[1:-1]
        if kind == "string":
            inner = [child.type for child in node.children if child.is_named]
            return _unquoted(text[1:-1]) if set(inner) <= {"string_content"} else None
        if _is_braced(text):
            return None
        if kind == "concatenation":
            parts = [self._value(child) for child in node.children]
            known = [part for part in parts if part is not None]
            return "".join(known) if len(known) == len(parts) else None
        is_bare = kind in ("word", "number", "variable_name") or not node.is_named
        if not is_bare or set(text) & {*GLOB, "$", "`"} or text.startswith("~"):
            return None
        return _BARE_ESCAPE.sub(lambda found: found[1].strip("\n"), text)

    def _source(self, node: "Node") -> str:
        return self._bytes[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")

    def _span(self, node: "Node") -> tuple[int, int]:
        return self._chars[node.start_byte], self._chars[node.end_byte]


def _unquoted(content: str) -> str | None:
    """Return what a text in double quotes stands for; None if the shell expands it."""
    # A dollar sign by itself is no part of its own in the tree, so look at the text.
    if re.search(r"(?<!\\)(?:\\\\)*[$`]", content):
        return None
    return _IN_DOUBLE_QUOTES.sub(lambda found: found[1].strip("\n"), content)


def _said_by_cat(text: str) -> str | None:
    """Return the text of `"$(cat <<'EOF' … EOF)"`, a way to write a text of several lines."""
    found = _CAT.fullmatch(text)
    if found is None or (not found[1] and not set(found[3]).isdisjoint("$`\\")):
        return None
    if any(line.strip() == found[2] for line in found[3].split("\n")):
        return None
    return found[3].rstrip("\n")


def _is_braced(text: str) -> bool:
    """Return whether the shell may make several words of one: `{a,b}`, `{1..3}`."""
    inner = (one.rpartition("{") for one in text.split("}")[:-1])
    lists = (part for _, brace, part in inner if brace and not re.search(r"\s", part))
    return any("," in part or ".." in part for part in lists)


def _none() -> Word:
    return Word(0, 0, "", None)


SETTING = frozenset({
    "cd", "pushd", "popd", "export", "set", "unset", "source", ".", "shopt", "umask", "ulimit",
})  # fmt: skip
"""Commands that change the shell itself, and so what comes after them does."""


class ShellStatement(NamedTuple):
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


def statements(text: str) -> list[ShellStatement]:
    """Return the parts of a command line that the shell runs one after the other.

    `make lint && git add -A; git commit -m x` has three. A pipeline is one statement, and so are
    commands that `||` joins. Empty if the command line can't be taken apart.
    """
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


def _statement(script: Script, commands: list[Simple]) -> ShellStatement:
    start, end = _span(commands[0])[0], _span(commands[-1])[1]
    words = commands[0].words
    joins = {one.join for one in commands[1:]}
    is_pipeline = bool(joins) and "||" not in joins
    return ShellStatement(script.text[start:end], words[0].shown if words else "", is_pipeline)


def _span(command: Simple) -> tuple[int, int]:
    """Return where a simple command begins and ends."""
    words = [*command.words, *(one.target for one in command.redirects if one.target is not None)]
    starts = [one.start for one in words]
    starts += [one.start - len(one.name) - 1 for one in command.assignments]
    ends = [one.end for one in words]
    ends += [one.start + len(one.value) for one in command.assignments]
    return min(starts, default=0), max(ends, default=0)
