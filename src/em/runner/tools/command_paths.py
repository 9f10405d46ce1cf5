"""Command paths: what the words of a shell command name, and the folders that it may run in.

A `cd` holds for what comes behind it where nothing but `&&`, `;` or a line break is around it: the
shell stops where it fails. Behind any other (in a pipe, in brackets, before `||`) what comes next
may run in either folder, and is checked in both.
"""

from collections.abc import Iterator
from pathlib import Path

from em.errors import NotAllowed
from em.runner.tools.permissions import check_path
from em.settings import AllowSettings
from em.shell.programs import ATTACHED, OPTION, PLAIN, known_programs, read_command
from em.shell.syntax import Opaque, Script, Simple, Word, parse

_ANYWHERE = ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr")
_GOING, _BACK = (["cd"], ["pushd"]), (["cd", "-"], ["popd"])


def check_paths(text: str, allow: AllowSettings) -> None:
    """Raise NotAllowed if a word of a command names a path outside of the allowed folders."""
    for _ in placed(text, allow):
        pass


def placed(text: str, allow: AllowSettings) -> Iterator[tuple[Simple, list[Path]]]:
    """Yield the simple commands of a text, each with the folders that it may run in.

    Raises NotAllowed for a path outside of the allowed folders. A text that only bash can take
    apart has none: only an allowed bash may run it.
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
