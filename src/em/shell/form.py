"""Forms: a command with blanks for its values, and how values are filled in.

`grep -c pending orders.csv > report.txt` becomes `grep -c {{ pattern }} {{ file }} > {{ output }}`.
Programs, options and operators are the form; paths, names and numbers are values. A value fills
exactly its place: it is quoted, so it is never split, expanded or evaluated, and the filled command
is parsed again and compared with the form. So no value can become syntax.

Kinds of blanks: `{{ file }}` takes one line of plain text; `{{ message | text }}` any text;
`{{ body | body }}` the lines of a here-document; `{{ code | fixed }}` only the recorded text, since
anything else would be another program; `{{ files | raw }}` the same for a text that the shell
expands, which is filled in as it is; `s/{{ a | old }}/{{ b | new }}/` the texts of a substitution.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from em.errors import RoutineError
from em.shell.programs import (
    ATTACHED,
    CODE,
    COMMAND,
    OPTION,
    PROGRAM,
    Doing,
    Programs,
    doing,
    known_programs,
    read_command,
)
from em.shell.syntax import GLOB, Opaque, Redirect, Script, Simple, Word, parse
from em.values.call import Effect

_WHOLE = re.compile(
    r"s([/|#,])((?:\\[^\n]|(?!\1)[^\\\n])+)\1((?:\\[^\n]|(?!\1)[^\\\n])*)\1([gI0-9]*)"
)
_SPECIAL = frozenset(".[*^$+?(){}|")
"""Signs with a meaning in a basic or an extended regular expression."""


class Substitution(NamedTuple):
    """A substitution: the texts as sed has them, and as plain texts where they are plain."""

    delimiter: str
    old: str
    new: str
    flags: str

    @property
    def plain_old(self) -> str | None:
        """The text that is replaced; None if it is a pattern. A dot counts as a dot."""
        # What is escaped, or alone in brackets, is itself.
        text = re.sub(r"\\([./|#,^\\-])|\[([^\]\\^])\]", "\0", self.old)
        if "\\" in text or not _SPECIAL.isdisjoint(text.replace(".", "")):
            return None
        return re.sub(r"\\([./|#,^\\-])|\[([^\]\\^])\]", lambda one: one[1] or one[2], self.old)

    @property
    def plain_new(self) -> str | None:
        """The text that replaces it; None if it repeats what was found."""
        text = re.sub(r"\\([./|#,&-])", lambda found: f"\0{found[1]}", self.new)
        if "\\" in text or re.search(r"(?<!\0)&", text) or not text:
            return None
        return text.replace("\0", "")


def substitution_of(code: str) -> Substitution | None:
    """Return the one substitution that a program text of sed is; None if it is another one.

    Agents change a version or a name in a file by one, so its two plain texts are values. Where
    they are filled in, every sign that sed would read as something else is escaped.
    """
    found = _WHOLE.fullmatch(code)
    return None if found is None else Substitution(*found.groups())


def escaped_old(text: str) -> str:
    """Return a regular expression that matches exactly a text, with the delimiter `/`."""
    return "".join(_escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    if sign in "\\^/":
        return f"\\{sign}"
    return f"[{sign}]" if sign in _SPECIAL else sign


def escaped_new(text: str) -> str:
    """Return a replacement that is exactly a text, with the delimiter `/`."""
    return re.sub(r"([\\&/])", r"\\\1", text)


SCRIPT = "script"
"""The blank of a form that is nothing but one fixed text."""

_BLANK = re.compile(r"\{\{ ([a-z_][a-z0-9_]*)(?: \| (text|body|fixed|raw|old|new))? \}\}")
_OPENING = re.compile(r"\{\{|\{%|\{#")
_LONG_OPTION = re.compile(r"(--?[A-Za-z][\w-]*=)(.+)", re.DOTALL)
_NAME_WORDS = 4
_SAYS_LITTLE = frozenset({"cd", "exit", "true", "echo", "sudo", "timeout", "env"})
_RECORDED = ("fixed", "raw")


class UnsafeValue(RoutineError):
    """A value that would change what a command is."""

    code = "unsafe_value"


class Blank(NamedTuple):
    """A place for a value: its name, its kind, and whether it only ends a word: `--file=…`."""

    name: str
    kind: str = ""
    is_part: bool = False


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A command with blanks, as a recording filled them.

    name: the same for every command of this form. args: the recorded values.
    fixed: those of them that can't be others.
    """

    name: str
    text: str
    args: dict[str, str]
    fixed: dict[str, str]
    effect: Effect


def form_of(text: str, programs: Programs | None = None) -> Form:
    """Return the form of a command. What can't be taken apart is one fixed text."""
    table = known_programs() if programs is None else programs
    try:
        script = parse(text)
    except Opaque:
        return _one_text(text, Doing("write", is_known=False))
    done = doing(script, table)
    if not script.is_flat or not done.is_known:
        return _one_text(text, done)
    made = _Maker(script, table)
    try:
        filled = CommandTemplate(made.text, made.fixed, table).filled(made.args)
    except RoutineError:
        return _one_text(text, done)
    recorded = [made.rewritten.get(part, part) for part in _parts(script)]
    if _parts(parse(filled)) != recorded:
        return _one_text(text, done)
    return Form(
        name=_named(made.called, made.text),
        text=made.text,
        args=made.args,
        fixed=made.fixed,
        effect=done.effect,
    )


def _one_text(text: str, done: Doing) -> Form:
    return Form(
        name=_named(done.programs or ("command",), text),
        text=f"{{{{ {SCRIPT} | raw }}}}",
        args={SCRIPT: text},
        fixed={SCRIPT: text},
        effect=done.effect,
    )


def _named(words: tuple[str, ...] | list[str], identity: str) -> str:
    """Name a form by its programs. The hash makes another form another name."""
    telling = [word for word in words if word not in _SAYS_LITTLE and not word.isdigit()]
    parts = [
        re.sub(r"[^a-z0-9]+", "_", word.rpartition("/")[2].lower()).strip("_")
        for word in telling or words
    ]
    shown = "_".join([part for part in parts if part][:_NAME_WORDS])[:40] or "command"
    return f"{shown}_{sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:6]}"


def _parts(script: Script) -> list[str]:
    """Return the parts of a command, each with what it is; the same however words are quoted."""
    parts: list[str] = []
    for command in script.commands:
        parts.append(f"join {command.join}")
        parts += [f"set {one.name}={one.value}" for one in command.assignments]
        parts += [f"word {word.shown}" for word in command.words]
        for redirect in command.redirects:
            parts.append(f"redirect {redirect.operator}")
            parts += [f"to {redirect.target.shown}"] if redirect.target is not None else []
            parts += [f"lines {redirect.body.text}"] if redirect.body is not None else []
    return parts


class _Maker:
    """Takes a flat command apart."""

    def __init__(self, script: Script, programs: Programs) -> None:
        self.args: dict[str, str] = {}
        self.fixed: dict[str, str] = {}
        self.called: list[str] = []
        self.rewritten: dict[str, str] = {}
        """Parts of the command that are written in another way, with the same meaning."""
        self._holes: list[tuple[int, int, str]] = []
        self._numbers: dict[str, int] = {}
        for command in script.commands:
            self._take(command, programs)
        self.text = self._written(script)

    def _written(self, script: Script) -> str:
        text, end = "", 0
        for start, stop, blank in sorted(self._holes):
            text += script.text[end:start] + blank
            end = stop
        text = (text + script.text[end:]).strip()
        has_lines = any(one.body for command in script.commands for one in command.redirects)
        if has_lines or not set(text).isdisjoint("'\"\\"):
            return text
        return re.sub(r"[ \t]+", " ", text)

    def _take(self, command: Simple, programs: Programs) -> None:
        roles = read_command(command, programs).roles
        for one in command.assignments:
            if one.value:
                self._add(one.start, one.start + len(one.value), one.name, one.value, "raw")
        for word, role in zip(command.words, roles, strict=True):
            is_named = role not in (PROGRAM, COMMAND) and not role.startswith(OPTION)
            name = role.rstrip("!") if is_named else "word"
            if word.value is None:
                self._add(word.start, word.end, name, word.text, "raw")
            elif role in (PROGRAM, COMMAND):
                self.called.append(word.value)
            elif role.startswith(OPTION):
                self._option(word, role)
            elif role == CODE and _is_sed(command, programs) and self._substitution(word):
                continue
            elif word.value not in ("-", "{}"):
                kind = "fixed" if role == CODE else ""
                self._add(word.start, word.end, name, word.value, kind)
        for redirect in command.redirects:
            self._redirect(redirect)

    def _option(self, word: Word, role: str) -> None:
        """Make the value of `--name=value` or `-nVALUE` a blank; else it is part of the form."""
        if role.startswith(ATTACHED):
            if word.text[:2] == word.shown[:2] and word.value is not None:
                name = role.removeprefix(ATTACHED).rstrip("!")
                self._add(word.start + 2, word.end, name, word.value[2:])
            return
        found = _LONG_OPTION.fullmatch(word.value or "")
        if found is None or not word.text.startswith(found[1]):
            return
        name = found[1].strip("-=").lower().replace("-", "_")
        self._add(word.start + len(found[1]), word.end, name, found[2])

    def _substitution(self, word: Word) -> bool:
        """Make the texts of `s/old/new/` blanks; return whether they are plain."""
        found = substitution_of(word.value or "")
        if found is None or found.plain_new is None:
            return False
        old, new = found.plain_old, found.plain_new
        if old is None and found.delimiter != "/":
            return False
        blanks = [
            self._blank(
                "old_text", found.old if old is None else old, "fixed" if old is None else "old"
            ),
            self._blank("new_text", new, "new"),
        ]
        text = f"s/{blanks[0]}/{blanks[1]}/{found.flags}"
        self._holes.append((word.start, word.end, text))
        written = (
            f"s/{found.old if old is None else escaped_old(old)}/{escaped_new(new)}/{found.flags}"
        )
        self.rewritten[f"word {word.value}"] = f"word {written}"
        return True

    def _redirect(self, redirect: Redirect) -> None:
        if redirect.body is not None and redirect.body.text:
            kind = "raw" if redirect.body.value is None else "body"
            self._add(redirect.body.start, redirect.body.end, "text", redirect.body.text, kind)
        target = redirect.target
        if target is None or not (redirect.writes or redirect.reads or redirect.operator == "<<<"):
            return
        name = "output" if redirect.writes else "file" if redirect.reads else "text"
        if target.value is None:
            self._add(target.start, target.end, name, target.text, "raw")
        else:
            self._add(target.start, target.end, name, target.value)

    def _add(self, start: int, end: int, role: str, value: str, kind: str = "") -> None:
        if not kind and (not value or "\n" in value or set(value) & GLOB):
            kind = "text"
        self._holes.append((start, end, self._blank(role, value, kind)))

    def _blank(self, role: str, value: str, kind: str) -> str:
        """Take a value, and return the blank for it."""
        name = re.sub(r"[^a-z0-9_]", "_", role.lower()).lstrip("_0123456789") or "word"
        name = f"{name}_value" if name in ("env", SCRIPT) else name
        free, number = name, self._numbers.get(name, 1)
        while free in self.args:
            number += 1
            free = f"{name}_{number}"
        self._numbers[name] = number
        self.args[free] = value
        if kind in _RECORDED:
            self.fixed[free] = value
        return f"{{{{ {free} | {kind} }}}}" if kind else f"{{{{ {free} }}}}"


def _is_sed(command: Simple, programs: Programs) -> bool:
    program = programs.get(command.words[0].value or "")
    return program is not None and program.code == "sed"


class CommandTemplate:
    """A form that values can be filled into. Raises RoutineError if it is not a safe one.

    fixed: the only texts that fixed blanks take.
    """

    def __init__(
        self, text: str, fixed: Mapping[str, str] | None = None, programs: Programs | None = None
    ) -> None:
        self._text, self._fixed = text, dict(fixed or {})
        self._programs = known_programs() if programs is None else programs
        self._mark = _mark_for(text, self._fixed)
        self.blanks: dict[str, Blank] = {}
        self._ends: dict[str, str] = {}
        # The here-documents in which the shell expands variables.
        self._expanding: set[str] = set()
        self._literals = self._read(text)
        self._is_one_text = text == f"{{{{ {SCRIPT} | raw }}}}"
        self._script = None if self._is_one_text else self._checked()

    def doing(self) -> Doing:
        """Say what the command does, whatever its values are."""
        if self._script is not None:
            return doing(parse(self._with(self._as_recorded())), self._programs)
        try:
            return doing(parse(self._fixed[SCRIPT]), self._programs)
        except Opaque as error:
            return Doing("write", error.message, is_known=False)

    def filled(self, args: Mapping[str, str]) -> str:
        """Return the command with these values. Raises UnsafeValue."""
        for blank in self.blanks.values():
            value = args.get(blank.name)
            if not isinstance(value, str):
                raise _unsafe(blank.name, "it must be a text", value)
            self._check(blank, value)
        if self._script is None:
            return args[SCRIPT]
        text = self._with(args)
        self._check_parts(text, args)
        return text

    # --- the form ---------------------------------------------------------------------------------

    def _read(self, text: str) -> list[str]:
        """Return the texts between the blanks."""
        literals, end = [], 0
        for found in _BLANK.finditer(text):
            name, kind = found[1], found[2] or ""
            if name in self.blanks:
                raise RoutineError(f"the blank {name!r} is there twice", place="field shell")
            if kind in _RECORDED and name not in self._fixed:
                raise RoutineError(
                    f"the blank {name!r} is {kind}, and there is no text for it",
                    place="field shell",
                    fix="write the text as `const` in args_schema",
                )
            literals.append(text[end : found.start()])
            before = literals[-1][-1:]
            self.blanks[name] = Blank(name, kind, bool(before.strip()) and before not in "<>|&;(")
            end = found.end()
        literals.append(text[end:])
        if any(map(_OPENING.search, literals)):
            raise RoutineError(
                "a blank must be written as {{ name }}, {{ name | text }} or {{ name | fixed }}",
                place="field shell",
            )
        return literals

    def _marks(self) -> dict[str, str]:
        return {name: f"{self._mark}{number}X" for number, name in enumerate(self.blanks)}

    def _checked(self) -> Script:
        """Parse the form with marks as values; each mark must be a value, and nothing else."""
        marks = self._marks()
        lines = {name: f"{mark}\n" if self._is_body(name) else mark for name, mark in marks.items()}
        try:
            script = parse(self._joined(lines))
        except Opaque as error:
            raise RoutineError(f"not a command: {error.message}", place="field shell") from None
        if not script.is_flat:
            raise RoutineError(
                "a command with blanks must not have loops, conditions or substitutions",
                place="field shell",
            )
        names = {mark: name for name, mark in marks.items()}
        seen = {name for command in script.commands for name in self._seen(command, names)}
        lost = [name for name in self.blanks if name not in seen]
        if lost:
            raise RoutineError(
                f"the blank {lost[0]!r} does not stand for an argument of a program",
                place="field shell",
                fix="don't quote it; it may be an argument, the target of a redirect or a line"
                " of a here-document with a quoted end",
            )
        return script

    def _is_body(self, name: str) -> bool:
        blank = self.blanks[name]
        return blank.kind == "body" or self._fixed.get(name, "").endswith("\n")

    def _seen(self, command: Simple, names: Mapping[str, str]) -> Iterator[str]:
        """Yield the blanks that stand where a value may stand. names: of the blanks by marks."""
        roles = read_command(command, self._programs).roles
        is_sed = bool(command.words) and _is_sed(command, self._programs)
        for word, role in zip(command.words, roles, strict=True):
            mark = word.text[word.text.rfind(self._mark) :]
            if word.value is not None and mark in names and self._is_value(word, role, mark, names):
                yield names[mark]
            elif role == CODE and is_sed:
                yield from self._seen_in_substitution(word, names)
        for one in command.assignments:
            if one.value in names and self.blanks[names[one.value]].kind == "raw":
                yield names[one.value]
        yield from self._seen_in_redirects(command, names)

    def _seen_in_redirects(self, command: Simple, names: Mapping[str, str]) -> Iterator[str]:
        for redirect in command.redirects:
            if redirect.target is not None and redirect.target.text in names:
                yield names[redirect.target.text]
            if redirect.body is not None and redirect.body.text.removesuffix("\n") in names:
                name = names[redirect.body.text.removesuffix("\n")]
                self._ends[name] = redirect.end
                if not redirect.is_quoted:
                    self._expanding.add(name)
                yield name

    def _is_value(self, word: Word, role: str, mark: str, names: Mapping[str, str]) -> bool:
        if role == OPTION and not word.text.endswith(f"={mark}"):
            return False  # in a cluster of short options a value would be more of them
        return role not in (PROGRAM, COMMAND, CODE) or self.blanks[names[mark]].kind in _RECORDED

    def _seen_in_substitution(self, word: Word, names: Mapping[str, str]) -> Iterator[str]:
        found = substitution_of(word.value or "")
        # Only unquoted: each value is quoted by itself.
        if found is None or found.delimiter != "/" or word.text != word.value:
            return
        for text, kinds in ((found.old, ("old", "fixed")), (found.new, ("new",))):
            if text in names and self.blanks[names[text]].kind in kinds:
                yield names[text]

    # --- values -----------------------------------------------------------------------------------

    def _check(self, blank: Blank, value: str) -> None:
        if blank.kind in _RECORDED:
            if value != self._fixed[blank.name]:
                raise _unsafe(blank.name, "only the recorded text may stand here", value)
            return
        if "\0" in value or "\r" in value or not _is_unicode(value):
            raise _unsafe(blank.name, "it has characters that no shell takes", value)
        if blank.kind == "body":
            self._check_body(blank, value)
        elif value.startswith("-") and not blank.is_part:
            raise _unsafe(blank.name, "it begins with '-' and would be an option", value)
        elif blank.kind != "text":
            self._check_line(blank, value)

    def _check_line(self, blank: Blank, value: str) -> None:
        if not value and blank.kind != "new":
            raise _unsafe(blank.name, "it is empty", value)
        if not value.isprintable():
            raise _unsafe(
                blank.name, "it has a line break, or a character that can't be seen", value
            )
        if not blank.kind and set(value) & GLOB:
            raise _unsafe(blank.name, "it has one of * ? [, which select files", value)

    def _check_body(self, blank: Blank, value: str) -> None:
        if not value.endswith("\n"):
            raise _unsafe(blank.name, "the lines of a here-document end with a line break", value)
        if any(line.strip() == self._ends[blank.name] for line in value.split("\n")):
            raise _unsafe(blank.name, "one of its lines would end the here-document", value)
        if blank.name in self._expanding and not set(value).isdisjoint("$`\\"):
            raise _unsafe(blank.name, "the shell would expand a part of it", value)

    def _as_recorded(self) -> dict[str, str]:
        """Return values that fit every blank, for looking at the form."""
        marks = self._marks()
        return {
            name: self._fixed.get(name, f"{mark}\n" if self._is_body(name) else mark)
            for name, mark in marks.items()
        }

    def _with(self, args: Mapping[str, str]) -> str:
        def quoted(blank: Blank) -> str:
            value = self._written(blank, args[blank.name])
            return value if blank.kind in ("raw", "body") else shlex.quote(value)

        return self._joined({name: quoted(blank) for name, blank in self.blanks.items()})

    def _written(self, blank: Blank, value: str) -> str:
        """Return a value as the program that gets it has to read it."""
        escape = {"old": escaped_old, "new": escaped_new}.get(blank.kind)
        return value if escape is None else escape(value)

    def _joined(self, values: Mapping[str, str]) -> str:
        text = self._literals[0]
        for name, literal in zip(self.blanks, self._literals[1:], strict=True):
            text += values[name] + literal
        return text

    def _check_parts(self, text: str, args: Mapping[str, str]) -> None:
        """Parse the filled command; its parts must be those of the form with these values."""
        assert self._script is not None
        try:
            found = parse(text)
        except Opaque as error:
            raise UnsafeValue(
                f"the command with these values can't be parsed: {error.message}"
            ) from None
        given = {
            mark: args[name].removesuffix("\n")
            if self._is_body(name)
            else self._written(self.blanks[name], args[name])
            for name, mark in self._marks().items()
        }
        marks = re.compile(rf"{self._mark}[0-9]+X")
        wanted = [
            marks.sub(lambda mark: given[mark.group()], part) for part in _parts(self._script)
        ]
        if _parts(found) != wanted:
            raise UnsafeValue("a value would change the command", place=f"command {text[:200]!r}")


def _mark_for(text: str, fixed: Mapping[str, str]) -> str:
    """Return how marks begin: a text that stands nowhere else."""
    mark = "EMBLANK"
    while mark in text or any(mark in one for one in fixed.values()):
        mark += "K"
    return mark


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unsafe(name: str, why: str, value: object) -> UnsafeValue:
    return UnsafeValue(
        f"the value of {name!r} can't be filled into the command: {why}",
        place=f"value {str(value)[:80]!r}",
        fix="give another value, or let the agent do this task",
    )
