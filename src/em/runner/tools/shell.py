"""Shell commands of routines: filled in, checked against what is allowed, and run by bash.

Every program in a command must be allowed, and every path that its words name must lie in an
allowed folder. That keeps a routine in its place; it is not a sandbox: an allowed program such as
`python` or `git` can run anything and go anywhere.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher, unified_diff
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

from em.errors import NotAllowed
from em.runner.routine import ToolSpec
from em.runner.tools.coding import FileToolFailed, refuse_part
from em.runner.tools.command import CommandFailed, run_command
from em.runner.tools.permissions import check_path, refused
from em.settings import AllowSettings
from em.shell.form import CommandTemplate, substitution_of
from em.shell.programs import ATTACHED, OPTION, PLAIN, Doing, doing_of, known_programs, read_command
from em.shell.syntax import Opaque, Script, Simple, Word, parse, statements

_ANYWHERE = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
_GOING, _BACK = (["cd"], ["pushd"]), (["cd", "-"], ["popd"])


def check_paths(text: str, allow: AllowSettings) -> None:
    """Raise NotAllowed if a word of a command names a path outside of the allowed folders."""
    for _ in placed(text, allow):
        pass


def placed(text: str, allow: AllowSettings) -> Iterator[tuple[Simple, list[Path]]]:
    """Yield the simple commands of a text, each with the folders that it may run in.

    Raises NotAllowed for a path outside of the allowed folders. A text that only bash can take
    apart has none: only an allowed bash may run it. A `cd` holds for what comes behind it where
    nothing but `&&`, `;` or a line break is around it. Behind any other (in a pipe, in brackets,
    before `||`) what comes next may run in either folder, and is checked in both.
    """
    folders = [check_path(".", allow)]
    try:
        script = parse(text)
    except Opaque:
        return
    visited = dict.fromkeys(folders)
    for number, command in enumerate(script.commands):
        words = [word.value for word in command.words]
        inside = [check_path("~", allow)] if words == ["cd"] else []
        for word in _paths(command) if words not in _BACK else ():
            path = _path_of(word, allow)
            if path not in _ANYWHERE:
                reached = [check_path(path, allow, base) for base in folders]
                inside = inside or (reached if words[:1] in _GOING else [])
        yield command, folders
        visited |= dict.fromkeys(inside)
        if words in _BACK or (inside and not _holds(script, number)):
            folders = [*visited]
        elif inside:
            folders = inside


def _holds(script: Script, number: int) -> bool:
    """Return whether a change of the folder holds for all that comes next."""
    joins = {one.join for one in script.commands[number : number + 2]}
    return script.is_flat and joins <= {"", "&&", ";", "\n"}


def _paths(command: Simple) -> list[Word]:
    """Return the words of a command that are paths, or may be one."""
    roles = read_command(command, known_programs()).roles
    found = [
        word
        for word, role in zip(command.words[1:], roles[1:], strict=True)
        if role.removeprefix(ATTACHED).rstrip("!") in ("file", "folder")
        or ((role == PLAIN or role.startswith(OPTION)) and _looks_like_a_path(word))
    ]
    targets = [one.target for one in command.redirects if one.writes or one.reads]
    return [*found, *(target for target in targets if target is not None)]


def _looks_like_a_path(word: Word) -> bool:
    text = _value_of(word)
    if "\n" in text or "://" in text:
        return False
    return text.startswith(("/", "~", "$HOME", "../")) or text == ".." or "/.." in text


def _value_of(word: Word) -> str:
    """Return a word without the option that it may begin with: `--file=x`, `-ox`."""
    text = word.shown
    if not text.startswith("-"):
        return text
    return text.partition("=")[2] if "=" in text else text[2:]


def _path_of(word: Word, allow: AllowSettings) -> str:
    text = _value_of(word)
    if word.value is not None:
        return text
    text = text.strip("\"'")
    if text.startswith(("$HOME", "${HOME}")):
        text = "~" + text.removeprefix("${HOME}").removeprefix("$HOME")
    if "$" in text or "`" in text:
        if "/" in allow.folders:
            return "."
        raise NotAllowed(
            f"only the shell knows which file {word.text[:80]} is",
            fix="if you trust the routine with any file, allow the folder /",
            folder="/",
        )
    # Up to where the shell begins to look for names.
    return text[: min((text.find(sign) for sign in "*?[{" if sign in text), default=len(text))]


TIMEOUT = 20.0
NOT_SHOWN = "# what this changes in files is only known when it runs"


class EditedFile(NamedTuple):
    """A file that a command would change: the path as the command names it, and its texts."""

    path: str
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as a diff."""
        lines = self.before.splitlines(), self.after.splitlines()
        return "\n".join(unified_diff(*lines, self.path, self.path, lineterm=""))

    @property
    def lines(self) -> int:
        """How many lines it changes."""
        matcher = SequenceMatcher(
            None, self.before.splitlines(), self.after.splitlines(), autojunk=False
        )
        return sum(max(j - i, m - k) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal")


def check_changes(text: str, allow: AllowSettings, *, only_new: bool = False) -> None:
    """Raise FileToolFailed if a command would change more of a file than the recorded one may have.

    `sed -i s/a/b/` changes whatever looks like `a`: it is run on copies, and must change exactly
    one line of each file. `mv` and `cp` replace no file: nothing tells whether recorded ones did.
    only_new: the files that `>` writes must not be there yet.
    """
    for command, base in _commands(text, allow):
        for redirect in command.redirects if only_new else ():
            target = redirect.target.value if redirect.target is not None else None
            is_kept = redirect.operator.startswith(">>") or not redirect.writes
            if target is not None and not is_kept and _is_file(target, base, allow):
                raise FileToolFailed(
                    "the command would overwrite a file, and in the recordings it was a new one",
                    place=target,
                    fix="name another file, or remove this one first",
                )
        for target in _moved_to(command, base, allow):
            raise FileToolFailed(
                "the command would replace a file that is there already",
                place=target,
                fix="name another file, or remove this one first",
            )
        for change in _edits(command, base, allow):
            if change.lines != 1:
                raise FileToolFailed(
                    f"the command would change {change.lines} lines, not exactly one",
                    place=change.path,
                    fix="change it by hand",
                )


def shown_changes(text: str, allow: AllowSettings) -> str:
    """Return a command with the changes that it would make in files, as far as they are known."""
    parts, is_whole = [text], True
    for command, base in _commands(text, allow):
        found = [change.diff for change in _edits(command, base, allow)]
        parts += found
        reason = read_command(command, known_programs()).reason
        writes = bool(reason) or any(one.writes for one in command.redirects)
        is_whole = is_whole and (bool(found) or not writes)
    return "\n".join(parts if is_whole else [*parts, NOT_SHOWN])


def _commands(text: str, allow: AllowSettings) -> Iterator[tuple[Simple, Path]]:
    """Yield the simple commands of a text, each with a folder that it may run in."""
    for command, folders in placed(text, allow):
        yield from ((command, folder) for folder in folders)


def _is_file(target: str, base: Path, allow: AllowSettings) -> bool:
    return target != "/dev/null" and Path(check_path(target, allow, base)).is_file()


def _moved_to(command: Simple, base: Path, allow: AllowSettings) -> Iterator[str]:
    """Yield the files that are there, and that `mv` or `cp` would replace."""
    if not command.words or Path(command.words[0].value or "").name not in ("mv", "cp"):
        return
    words = [name for word in command.words[1:] for name in _names(word, base)]
    options = [word for word in words if word.startswith("-") and word != "-t"]
    if any(
        one.startswith("--target") or (one[1] != "-" and "t" in one) for one in options if one[1:]
    ):
        raise FileToolFailed(
            "which files the command would replace can't be known before it runs",
            place=f"command {' '.join(word.text for word in command.words)[:80]}",
            fix="run it by hand",
        )
    plain = [word for word in words if not word.startswith("-")]
    folder = next((words[at + 1] for at, one in enumerate(words[:-1]) if one == "-t"), None)
    sources = [word for word in plain if word != folder]
    target = folder if folder is not None else sources.pop() if len(sources) > 1 else None
    if target is None:
        return
    path = Path(check_path(target, allow, base))
    for source in sources:
        made = path / Path(source).name if path.is_dir() else path
        if made.is_file():
            yield str(Path(target) / made.name if path.is_dir() else target)


def _names(word: Word, base: Path) -> list[str]:
    """Return what a word names: itself, or the files that its signs stand for."""
    return [word.value] if word.value is not None else glob(word.shown, root_dir=base)


def _edits(command: Simple, base: Path, allow: AllowSettings) -> Iterator[EditedFile]:
    """Yield the changes of a `sed -i`, found out on copies."""
    words = [word.value for word in command.words]
    is_own = bool(words) and Path(words[0] or "").name in ("sed", "gsed")
    if not any(_is_in_place(word) for word in words) or "sed" not in words:
        return
    reading = read_command(command, known_programs())
    files = [
        number
        for number, role in enumerate(reading.roles)
        if role.removeprefix(ATTACHED).rstrip("!") == "file"
    ]
    if not is_own or None in words or not files:
        raise FileToolFailed(
            "what sed would change can't be known before it runs",
            place=f"command {' '.join(word.text for word in command.words)[:80]}",
            fix="run it by hand",
        )
    for number in files:
        yield from _edit([str(word) for word in words], number, files, base, allow)


def _is_in_place(word: str | None) -> bool:
    """Return whether a word is an option of sed that changes files: `-i`, `-i.bak`, `-Ei`."""
    if word is None or not word.startswith("-"):
        return False
    if word.startswith("--"):
        return word.startswith("--in-place")
    return "i" in word.partition(".")[0]


def _edit(
    words: list[str], number: int, files: list[int], base: Path, allow: AllowSettings
) -> Iterator[EditedFile]:
    name = words[number]
    path = Path(check_path(name, allow, base))
    if not path.is_file():
        return  # sed says so itself
    others = {one for one in files if one != number}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copyfile(path, copy)
        given = [str(copy) if at == number else word for at, word in enumerate(words)]
        argv = ["sed", "--sandbox", *(w for at, w in enumerate(given) if at and at not in others)]
        try:
            run_command(argv, shutil.which(words[0]) or words[0], timeout=TIMEOUT, env={})
            before, after = (one.read_bytes().decode() for one in (path, copy))
        except (CommandFailed, OSError, UnicodeDecodeError) as error:
            raise FileToolFailed(
                f"what sed would change can't be known before it runs: {error}", place=name
            ) from None
    for word in words[1:]:
        code = substitution_of(word)
        old = None if code is None else code.plain_old
        if old and before.count(old) > 1:
            raise FileToolFailed(
                f"the text to replace, {old!r}, stands there {before.count(old)} times",
                place=name,
                fix="change it by hand",
            )
        if old:
            refuse_part(before, old, name)
    yield EditedFile(name, before, after)


_EACH_STATUS = (
    'for status in "${PIPESTATUS[@]}"; do case $status in 0|141) ;; *) exit $status ;; esac; done'
)
LONGEST_SHOWN = 80
"""Characters of a command that an error shows."""


def template_of(spec: ToolSpec) -> CommandTemplate:
    """Return the form of a declared shell command. Raises RoutineError if it is not a safe one."""
    assert spec.shell is not None
    properties = (spec.args_schema or {}).get("properties", {})
    fixed = {
        name: value["const"]
        for name, value in properties.items()
        if isinstance(value, dict) and isinstance(value.get("const"), str)
    }
    return CommandTemplate(spec.shell, fixed)


class ShellCommand:
    """A declared shell command. Raises NotAllowed at once if one of its programs is not allowed."""

    def __init__(self, spec: ToolSpec, allow: AllowSettings) -> None:
        self._template, self._allow = template_of(spec), allow
        self._exit_codes, self._only_new = tuple(spec.exit_codes), spec.only_new
        check_programs(self._template.doing(), allow)
        check_path(".", allow)

    def filled(self, args: Mapping[str, Any]) -> str:
        """Return the command with these values."""
        return self._template.filled(args)

    def preview(self, args: Mapping[str, Any]) -> str:
        """Return the command with these values, and what it would change in files."""
        text = self.filled(args)
        check_paths(text, self._allow)
        check_changes(text, self._allow, only_new=self._only_new)
        return shown_changes(text, self._allow)

    def answer(self, args: Mapping[str, Any], seconds: float) -> bytes:
        """Run the command with these values and return what it prints."""
        text = self.filled(args)
        return run_shell(
            text,
            self._allow,
            timeout=seconds,
            exit_codes=self._exit_codes,
            only_new=self._only_new,
        )


def run_shell(
    text: str,
    allow: AllowSettings,
    *,
    timeout: float,
    exit_codes: Sequence[int] = (),
    only_new: bool = False,
) -> bytes:
    """Run a command under the permissions; return what it prints, without the last line break.

    It stops at the first statement that fails, also inside of a pipeline: what comes next may rely
    on it.
    exit_codes: those that it must end with; what it prints as errors is returned too then.
    only_new: the files that it writes with `>` must not be there yet.
    """
    check_programs(doing_of(text), allow)
    check_paths(text, allow)
    check_changes(text, allow, only_new=only_new)
    bash = shutil.which("bash")
    if bash is None:
        raise NotAllowed("bash is not on the PATH", fix="install it")
    script = f"exec 2>&1\n{_stopping(text)}" if exit_codes else _stopping(text)
    argv, accept = ["bash", "-o", "pipefail", "-c", script], tuple(exit_codes) or (0,)
    try:
        return run_command(argv, bash, timeout=timeout, env={}, accept=accept).rstrip(b"\n")
    except CommandFailed as error:
        raise type(error)(_with_command(str(error), text, exit_codes)) from None


def _stopping(text: str) -> str:
    """Return a command that ends at the first statement that fails, with its exit status.

    A program that was ended because nobody reads on did not fail: `grep x notes.txt | head -1`.
    """
    parts = statements(text)
    if len(parts) == 1 and not parts[0].is_pipeline:
        return text
    lines = [
        f"{one.text}\n{_EACH_STATUS}" if one.is_pipeline else f"{one.text} || exit $?"
        for one in parts
    ]
    return "\n".join(lines) if parts else f"set -e\n{text}"


def _with_command(problem: str, text: str, exit_codes: Sequence[int]) -> str:
    """Name the command that failed instead of the shell that ran it."""
    shown = " ".join(text.split())
    shown = f"`{shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + '…'}`"
    expected = f" (it ended with {', '.join(map(str, exit_codes))} when recorded)"
    return problem.replace("bash", shown, 1) + expected * bool(exit_codes)


def programs_of(done: Doing) -> list[str]:
    """Return the programs that a command runs, without what the shell does itself."""
    known = known_programs()
    return [name for name in done.programs if name not in known or not known[name].built_in]


def check_programs(done: Doing, allow: AllowSettings) -> None:
    """Raise NotAllowed unless all programs of a command are allowed.

    If not all can be known, `bash` itself must be allowed: it runs anything.
    """
    if "bash" in allow.commands:
        return
    if not done.is_known:
        raise NotAllowed(
            f"nobody knows what this command runs: {done.reason}",
            fix="if you trust the routine with any program, allow the command `bash`",
            command="bash",
        )
    missing = [name for name in programs_of(done) if name not in allow.commands]
    if missing:
        error = refused("command", missing[0])
        if len(missing) > 1:
            error.fix += f" (the command also runs {', '.join(missing[1:])})"
        raise error
