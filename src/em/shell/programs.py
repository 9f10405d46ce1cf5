"""Programs: what is known about them, and from that what a command does.

`programs.yaml` is the table; em.yaml extends it. What is not known counts as a write: an unknown
program, an option that runs something, a command that can't be parsed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from em.errors import UsageError
from em.shell.syntax import Assignment, Opaque, Script, Simple, Word, parse
from em.values.call import Effect
from em.values.strict_yaml import load_yaml

PROGRAM, OPTION, COMMAND, CODE, PLAIN = "program", "option", "command", "code", "word"
"""Roles of words that no table names."""
ATTACHED = "option+"
"""How the role of a short option begins that has its value in the same word: `-mmessage`."""

_DEEPEST = 8
_STANDARD = re.compile(r"/(?:usr/(?:local/)?|opt/homebrew/)?s?bin/([^/]+)")
# Variables that decide which program runs, or make a program run another one.
_RULING = re.compile(
    r"(?:LD|DYLD|GIT|BASH|PYTHON|PERL|RUBY|NODE|NPM)_.*|PATH|IFS|ENV|SHELL|SHELLOPTS|.*PAGER"
    r"|EDITOR|VISUAL|BROWSER|LESSOPEN|LESSCLOSE|PERL5OPT|RUBYOPT|PROMPT_COMMAND|PS4"
)
_HARMLESS_VALUES = frozenset({"cat", "''", '""', "", "1", "0", "true", "dumb"})
# Commands and flags of sed that run a program or write a file, wherever they could stand.
_SED_ACTS = re.compile(r"(?:^|[^A-Za-z_\s\d]|(?<!\d)\d)[gpimIM\d\s]*[eEwW](?=[gpimIM\d\s;}]|$)")
_AWK_ACTS = re.compile(r"system\s*\(|[>|@]|getline")


class ProgramRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the table; see the head of programs.yaml."""

    effect: Effect = "write"
    args: Sequence[str] = ()
    options: Mapping[str, str] = {}
    writes_with: Sequence[str] = ()
    reads_with: Sequence[str] = ()
    reads_alone: Sequence[str] = ()
    commands: "Mapping[str, ProgramRow]" = {}
    built_in: bool = False
    runs: Literal["", "rest", "script"] = ""
    runs_after: Sequence[str] = ()
    code: Literal["", "sed", "awk", "harmless"] = ""


Programs = Mapping[str, ProgramRow]


class WordRoles(NamedTuple):
    """What one program with its arguments does.

    roles: one for each word, as in the table.
    reason: why it is a write.
    """

    roles: tuple[str, ...]
    reason: str = ""
    programs: tuple[str, ...] = ()


class Doing(NamedTuple):
    """What a whole command does. `reason` says why it is a write.

    programs: all programs that it runs. reads, writes: the files that are known.
    is_known: whether all programs in it are known; an opaque command may run anything.
    """

    effect: Effect
    reason: str = ""
    programs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    is_known: bool = True


@lru_cache(maxsize=1)
def known_programs() -> Programs:
    """Return the table that comes with em."""
    text = Path(__file__).with_name("programs.yaml").read_bytes()
    return read_programs(load_yaml(text, "programs.yaml", UsageError), "programs.yaml")


def read_programs(values: object, place: str) -> Programs:
    """Return the programs of a table; `ls: read` is short for `ls: {effect: read}`."""
    try:
        return msgspec.convert(_whole(values), dict[str, ProgramRow])
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the table of programs is not valid: {error}",
            place=place,
            fix="write NAME: read, or NAME: {effect: …, args: […], options: {…}, commands: {…}}",
        ) from None


def _whole(values: object) -> object:
    if not isinstance(values, Mapping):
        return values
    whole: dict[object, object] = {}
    for name, value in values.items():
        if isinstance(value, str):
            whole[name] = {"effect": value}
        elif isinstance(value, Mapping) and "commands" in value:
            whole[name] = {**value, "commands": _whole(value["commands"])}
        else:
            whole[name] = value
    return whole


def doing_of(text: str, programs: Programs | None = None) -> Doing:
    """Say what a command does. One that can't be parsed is a write, by an unknown program."""
    try:
        return doing(parse(text), programs)
    except Opaque as error:
        return Doing("write", error.message, is_known=False)


def doing(script: Script, programs: Programs | None = None) -> Doing:
    """Say what a parsed command does: it is as bad as its worst part."""
    table = known_programs() if programs is None else programs
    reason, is_known = "", True
    found: list[str] = []
    reads: list[str] = []
    writes: list[str] = []
    for command in script.commands:
        reading = read_command(command, table)
        reason = reason or reading.reason
        found += reading.programs
        is_known = is_known and "" not in reading.programs
        for word, role in zip(command.words, reading.roles, strict=True):
            if role.rstrip("!") in ("file", "folder") and word.value is not None:
                (writes if role.endswith("!") else reads).append(word.value)
        for redirect in command.redirects:
            if redirect.writes:
                assert redirect.target is not None
                reason = reason or f"it writes to {redirect.target.shown}"
                writes.append(redirect.target.shown)
            elif redirect.reads and redirect.target is not None:
                reads.append(redirect.target.shown)
    return Doing(
        "write" if reason else "read",
        reason,
        tuple(dict.fromkeys(name for name in found if name)),
        tuple(dict.fromkeys(reads)),
        tuple(dict.fromkeys(writes)),
        is_known,
    )


def read_command(command: Simple, programs: Programs) -> WordRoles:
    """Say what one program with its arguments does, and what each of its words is."""
    ruling = next((one.name for one in command.assignments if _rules(one)), "")
    reading = (
        _WordReader(programs).read(command.words, _DEEPEST) if command.words else WordRoles(())
    )
    if ruling and not reading.reason:
        reading = reading._replace(reason=f"it sets {ruling}")
    return reading


class _WordReader:
    """Reads the words of one program."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    def read(self, words: Sequence[Word], depth: int) -> WordRoles:
        """Return the roles of words, the first of which is a program."""
        name = words[0].value
        if not name or depth == 0:
            # The empty name stands for an unknown program.
            why = "the shell works out which program it runs"
            return WordRoles((PROGRAM, *[PLAIN] * (len(words) - 1)), why, ("",))
        standard = _STANDARD.fullmatch(name)
        program = self._programs.get(standard[1] if standard else name)
        if program is None:
            roles = [OPTION if _is_option(word) else PLAIN for word in words[1:]]
            return WordRoles((PROGRAM, *roles), f"what {name} does is not known", (name,))
        if program.runs == "rest":
            return self._rest(program, name, words, depth)
        if program.runs == "script":
            return self._script(program, name, words)
        return self._known(program, name, words, depth)

    def _known(
        self, program: ProgramRow, name: str, words: Sequence[Word], depth: int
    ) -> WordRoles:
        found = _ProgramArguments(program, name, words)
        programs: tuple[str, ...] = (name,)
        if found.rest:
            inner = self.read(words[found.rest :], depth - 1)
            return WordRoles((*found.roles, *inner.roles), inner.reason, (name, *inner.programs))
        reason = found.reason()
        roles = found.roles
        for start, end in _inner_commands(program, words):
            inner = self.read(words[start:end], depth - 1)
            roles[start:end] = inner.roles
            roles[end : end + 1] = [OPTION] * len(roles[end : end + 1])
            reason, programs = reason or inner.reason, (*programs, *inner.programs)
        return WordRoles(tuple(roles), reason, programs)

    def _rest(self, program: ProgramRow, name: str, words: Sequence[Word], depth: int) -> WordRoles:
        """Look through a program that runs another one."""
        roles, index = [PROGRAM], 1
        left = len(program.args)
        while index < len(words):
            text = words[index].value
            if text == "--":
                roles.append(OPTION)
                index += 1
                break
            if _is_option(words[index]):
                roles.append(OPTION)
                role = program.options.get(words[index].shown)
                if role and index + 1 < len(words):
                    index += 1
                    roles.append(role)
            elif text is not None and re.match(r"[A-Za-z_]\w*=", text) and name == "env":
                roles.append(CODE)
            elif left:
                roles.append(program.args[-left])
                left -= 1
            else:
                break
            index += 1
        options = {word.value for word, role in zip(words, roles, strict=False) if role == OPTION}
        if options and options <= set(program.reads_with):
            return WordRoles((*roles, *[PLAIN] * (len(words) - index)), "", (name,))
        inner = self.read(words[index:], depth - 1) if index < len(words) else WordRoles(())
        found = WordRoles((*roles, *inner.roles), inner.reason, (name, *inner.programs))
        return self._with_own(found, words, index, program)

    def _with_own(
        self, found: WordRoles, all_words: Sequence[Word], end: int, program: ProgramRow
    ) -> WordRoles:
        """Add what the options of a program that runs another one do themselves."""
        reason, name = found.reason, found.programs[0]
        for number, (word, role) in enumerate(zip(all_words[:end], found.roles, strict=False)):
            before = all_words[number - 1].shown
            if role.endswith("!"):
                reason = reason or f"{name} writes {word.shown}"
            elif role == CODE and program.options.get(before) == CODE:
                # Which programs stand in that text is not looked at.
                return found._replace(
                    reason=f"{name} {before} runs a text", programs=(*found.programs, "")
                )
            elif role == CODE and _rules(_assigned(word)):
                reason = reason or f"it sets {_assigned(word).name}"
            elif (mark := _mark_in(word, role, program)) and any(
                mark in each.shown
                for each, what in zip(all_words[end:], found.roles[end:], strict=True)
                if what in (CODE, PROGRAM)
            ):
                why = "another program fills something into the script"
                return found._replace(reason=why, programs=(*found.programs, ""))
        return found._replace(reason=reason)

    def _script(self, program: ProgramRow, name: str, words: Sequence[Word]) -> WordRoles:
        """Look into `sh -c '…'`; a script in a file may do anything."""
        for index, word in enumerate(words[1:], start=1):
            if not _is_option(word):
                break
            if re.fullmatch(r"-[a-z]*c", word.value or "") and index + 1 < len(words):
                roles = [PROGRAM, *[OPTION] * index, CODE, *[PLAIN] * (len(words) - index - 2)]
                return self._inner_script(name, words[index + 1], tuple(roles))
        places = _ArgumentRoles(program.args)
        roles = [OPTION if _is_option(word) else places.next() for word in words[1:]]
        return WordRoles((PROGRAM, *roles), f"{name} runs a script", (name,))

    def _inner_script(self, name: str, word: Word, roles: tuple[str, ...]) -> WordRoles:
        if word.value is None:
            return WordRoles(roles, "the shell works out the script", (name, ""))
        if "{}" in word.value:
            return WordRoles(roles, "another program fills something into the script", (name, ""))
        done = doing_of(word.value, self._programs)
        return WordRoles(
            roles, done.reason, (name, *done.programs, *(() if done.is_known else ("",)))
        )


class _ProgramArguments:
    """The words of a known program: their roles, and whether they make it write.

    called: the program with its subcommands. rest: where another program begins; 0 without one.
    """

    def __init__(self, program: ProgramRow, name: str, words: Sequence[Word]) -> None:
        self._words, self._program, self._called = words, program, name
        self._options = dict(program.options)
        self._places = _ArgumentRoles(program.args)
        self.roles = [PROGRAM]
        self.rest = 0
        only_values = False
        while len(self.roles) < len(words) and not self.rest:
            word = words[len(self.roles)]
            if not only_values and _is_option(word):
                only_values = word.value == "--"
                self._option(word)
            else:
                self._argument(word)
        self._places.finish(self.roles)

    def _option(self, word: Word) -> None:
        if _holds_code(word, self._options):
            self.roles.append(CODE)
            return
        attached = self._options.get(word.shown[:2], "") if word.shown[:2] != "--" else ""
        if attached not in ("", COMMAND) and len(word.shown) > 2 and word.shown[2] != "=":
            self.roles.append(ATTACHED + attached)
            return
        self.roles.append(OPTION)
        if len(self.roles) < len(self._words) and self._words[len(self.roles)].value == "":
            self.roles.append(OPTION)  # `sed -i ''`: no other argument is empty
            return
        role = self._options.get(word.shown) or _cluster_value(word.value, self._options)
        if role and len(self.roles) < len(self._words):
            self.roles.append(role)
            self._places.skip(role)

    def _argument(self, word: Word) -> None:
        inner = self._program.commands.get(word.value or "")
        is_first = self._places.is_fresh
        if inner is None or not is_first:
            # The first word of a program that has subcommands is one, known or not.
            role = self._places.next()
            self.roles.append(COMMAND if self._program.commands and is_first else role)
            return
        self.roles.append(COMMAND)
        self._program, self._called = inner, f"{self._called} {word.value}"
        self._options |= inner.options
        self._places = _ArgumentRoles(inner.args)
        if inner.runs == "rest" and len(self.roles) < len(self._words):
            self.rest = len(self.roles)

    def reason(self) -> str:
        """Say why the program writes; empty if it reads."""
        program = self._program
        pairs = list(zip(self._words, self.roles, strict=True))
        options = [word for word, role in pairs if role.startswith(OPTION) and word.value != "--"]
        names = {(word.value or "").partition("=")[0] for word in options} or {""}
        # A subcommand that is not known is an argument too.
        is_alone = self.roles.count(COMMAND) == self._called.count(" ") and all(
            role in (PROGRAM, COMMAND) or role.startswith(OPTION) for role in self.roles
        )
        if names <= {*program.reads_with, *(program.reads_alone if is_alone else ())}:
            return ""
        if program.effect == "write":
            return f"{self._called} writes"
        for option in options:
            if _is_one_of(option, program.writes_with):
                self.roles = [f"{role}!" if role == "file" else role for role in self.roles]
                return f"{self._called} {option.shown} writes"
        return self._by_values(options)

    def _by_values(self, options: Sequence[Word]) -> str:
        """Say which value makes a program write that reads otherwise."""
        has_text = self._program.code in ("sed", "awk")
        for option in options:
            if has_text and option.shown.startswith(("-f", "--f")):
                return f"{self._called} {option.shown} runs something"
        for word, role in zip(self._words, self.roles, strict=True):
            if role.endswith("!"):
                return f"{self._called} writes {word.shown}"
            if role == CODE and not _is_harmless(self._program.code, word):
                return f"{self._called} runs a program text that may write"
        return ""


class _ArgumentRoles:
    """Gives arguments their roles, in their order."""

    def __init__(self, roles: Sequence[str]) -> None:
        self._roles = list(roles)
        self._next = 0

    @property
    def is_fresh(self) -> bool:
        """Whether no argument had a role yet."""
        return self._next == 0

    def next(self) -> str:
        """Return the role of the next argument."""
        if not self._roles:
            self._next += 1
            return PLAIN
        role = self._roles[min(self._next, len(self._roles) - 1)]
        if self._next >= len(self._roles) and not role.endswith("..."):
            role = PLAIN
        self._next += not self._roles[min(self._next, len(self._roles) - 1)].endswith("...")
        return role.removesuffix("...")

    def skip(self, role: str) -> None:
        """Leave out the first place if an option filled it: `grep -e pattern file`."""
        first = self._roles[0] if self._roles and self.is_fresh else ""
        if first and (first == role or {first, role} <= {COMMAND, CODE}):
            self._next = 1

    def finish(self, roles: list[str]) -> None:
        """Give the last argument the role that stands after one that repeats: `cp a b folder`."""
        if len(self._roles) > 1 and self._roles[-2].endswith("..."):
            repeated = self._roles[-2].removesuffix("...")
            for index in range(len(roles) - 1, 0, -1):
                if roles[index] == repeated:
                    roles[index] = self._roles[-1]
                    return


def _inner_commands(program: ProgramRow, words: Sequence[Word]) -> Iterator[tuple[int, int]]:
    """Yield where the words of other programs begin and end: `find -exec rm {} ;`."""
    index = 0
    while index < len(words):
        if words[index].value in program.runs_after and program.runs_after:
            end = next(
                (n for n in range(index + 1, len(words)) if words[n].value in (";", "+")),
                len(words),
            )
            if end > index + 1:
                yield index + 1, end
            index = end
        index += 1


def _mark_in(word: Word, role: str, program: ProgramRow) -> str:
    """Return the text for which a program such as xargs fills something in: `-I %`."""
    if role == "mark":
        return word.shown
    if role != OPTION or "mark" not in program.options.values():
        return ""
    if word.shown.startswith(("-i", "--replace")):
        return word.shown.removeprefix("-i").removeprefix("--replace").strip("=") or "{}"
    return word.shown[2:] if program.options.get(word.shown[:2]) == "mark" else ""


def _is_option(word: Word) -> bool:
    return word.shown.startswith("-") and word.shown != "-"


def _cluster_value(text: str | None, options: Mapping[str, str]) -> str:
    """Return the role of the value after a cluster of short options: `commit -am message`."""
    if text is None or not re.fullmatch(r"-[A-Za-z]{2,}", text):
        return ""
    return options.get(f"-{text[-1]}", "")


def _is_one_of(option: Word, names: Sequence[str]) -> bool:
    """Return whether an option is one of these, also joined with others or shortened."""
    if option.value is None:
        return bool(names)
    text = option.value.partition("=")[0]
    for name in names:
        if text == name:
            return True
        if name.startswith("--"):
            if len(text) > 3 and name.startswith(text):
                return True
        elif len(name) == 2 and not text.startswith("--") and name[1] in text[1:]:
            return True
    return False


def _holds_code(option: Word, options: Mapping[str, str]) -> bool:
    """Return whether an option has a program text in the same word: `--rsh=…`, `-ckey=value`."""
    text = option.shown
    return any(
        role == CODE and text != name and text.startswith(f"{name}=" if name[:2] == "--" else name)
        for name, role in options.items()
    )


def _assigned(word: Word) -> Assignment:
    name, _, value = word.shown.partition("=")
    return Assignment(name, value)


def _rules(assignment: Assignment) -> bool:
    """Return whether a variable decides which programs run."""
    return bool(_RULING.fullmatch(assignment.name)) and assignment.value not in _HARMLESS_VALUES


def _is_harmless(code: str, word: Word) -> bool:
    if code == "harmless":
        return True
    if word.value is None or code not in ("sed", "awk"):
        return False
    return not (_SED_ACTS if code == "sed" else _AWK_ACTS).search(word.value)
