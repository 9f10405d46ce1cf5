"""What a shell command would change in files, known before it runs.

`sed -i s/a/b/` changes whatever looks like `a`. Before it runs, it is run on copies: it must change
exactly one line of each file, as an Edit replaces a text that stands once. A file that `>` made in
all recordings must not be there yet, and `mv` and `cp` replace none: nothing tells whether recorded
ones did.
"""

import shutil
import tempfile
from collections.abc import Iterator
from difflib import SequenceMatcher, unified_diff
from glob import glob
from pathlib import Path
from typing import NamedTuple

from em.runner.tools.coding import FileToolFailed, refuse_part
from em.runner.tools.command import CommandFailed, run_command
from em.runner.tools.command_paths import placed
from em.runner.tools.permissions import check_path
from em.settings import AllowSettings
from em.shell.form import substitution_of
from em.shell.programs import ATTACHED, known_programs, read_command
from em.shell.syntax import Simple, Word

TIMEOUT = 20.0
NOT_SHOWN = "# what this changes in files is only known when it runs"


class Change(NamedTuple):
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


def _edits(command: Simple, base: Path, allow: AllowSettings) -> Iterator[Change]:
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
) -> Iterator[Change]:
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
    yield Change(name, before, after)
