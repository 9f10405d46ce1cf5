"""The world of a session: a copy of the files that it read and changed, and its recorded commands.

What changes files is done, in the copy, and compared as texts whenever a command with an effect is
run, and at the end: in which steps a file came to its text does not matter. Commands are answered
as in any recorded world. One that looked whether all is well, such as a test run between the last
change and a commit, must be run there again.
"""

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from em.compiler.example import Call
from em.compiler.replay_world import Ended, Outcome, World
from em.errors import EmError
from em.runner.tools.coding import FILE_CHANGES, FILE_TEXT, FILE_THERE, coding_tool
from em.settings import AllowSettings
from em.values.canonical import Json, short

Texts = Mapping[str, str]
"""The texts of files, by their paths from the folder of the session."""


class Copy:
    """A copy of files in a folder of its own. Close it to delete the folder."""

    def __init__(self, texts: Texts) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="em-copy-")
        self.folder = Path(self._temporary.name).resolve()
        self._allow = AllowSettings(folders=[str(self.folder)])
        for path, text in texts.items():
            place = (self.folder / path).resolve()
            if place.is_relative_to(self.folder):
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(text.encode())

    def do(self, name: str, args: Json) -> Any:
        """Do in the copy what a tool for files does in the folder of a user."""
        tool = coding_tool(name, self._allow)
        assert tool is not None, "it is one of the tools for files"
        path = args.get("file_path")
        given = {**args, "file_path": str(self.folder / path)} if isinstance(path, str) else args
        return tool.function(**given)

    @property
    def texts(self) -> dict[str, str]:
        """The texts of all files as they are now."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes().decode(errors="replace")
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }

    def close(self) -> None:
        """Delete the copy."""
        self._temporary.cleanup()


class Course:
    """How files came to their texts in a recording.

    before: the texts at its beginning, as far as they are known. at: the texts when each command
    with an effect was run, and at the end. checks: for each of these moments, the commands without
    an effect that were run since the last change.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.before = _before(calls)
        self.at: list[dict[str, str]] = []
        self.checks: list[list[Call]] = []
        copy, ran, has_changed = Copy(self.before), list[Call](), False
        try:
            for call in (one for one in calls if one.error is None):
                if call.tool in FILE_CHANGES:
                    copy.do(call.tool, call.args)
                    ran, has_changed = [], True
                elif call.effect == "write":
                    self.at.append(copy.texts)
                    self.checks.append(ran)
                    ran = []
                elif (
                    has_changed and not call.is_glance and call.tool not in (FILE_TEXT, FILE_THERE)
                ):
                    ran.append(call)
            self.at.append(copy.texts)
            self.checks.append(ran)
        finally:
            copy.close()


def _before(calls: Sequence[Call]) -> dict[str, str]:
    """Return the texts of files as they were read before they were changed."""
    texts: dict[str, str] = {}
    changed: set[str] = set()
    for call in calls:
        path = call.args.get("file_path")
        if not isinstance(path, str):
            continue
        if call.tool == FILE_TEXT and isinstance(call.result, str) and path not in changed:
            texts[path] = call.result
        elif call.tool in FILE_CHANGES:
            changed.add(path)
    return texts


class FileWorld(World):
    """The world of one session, for one run.

    checks: the commands that every session of its kind ran between its last change and the next
    effect, by name. before: other texts of the files at the beginning. more: what other files must
    hold at the end. texts: of the files, as the run left them. ended: how the run compares.
    """

    def __init__(
        self,
        inputs: Json,
        calls: Sequence[Call],
        course: Course,
        *,
        checks: Collection[str] = (),
        before: Texts | None = None,
        more: Texts | None = None,
    ) -> None:
        super().__init__(inputs, [one for one in calls if one.tool not in FILE_CHANGES])
        self._course, self._checks = course, checks
        self._before = course.before if before is None else before
        self._more = more or {}
        self._copy = Copy(self._before)
        self._ran: set[str] = set()
        self.texts: Texts = self._before
        self.ended = Outcome("handed over")

    def take(self, name: str, args: Json, *, is_write: bool) -> Call:
        """Change or read a file of the copy, or return what a recorded command did."""
        with self._lock:
            if self._end is not None:
                raise Ended(self._end.reason)
            if name in FILE_CHANGES:
                self._ran.clear()
                return self._done(name, args, is_write=True)
            if name in (FILE_TEXT, FILE_THERE):
                return self._done(name, args, is_write=False)
            if is_write:
                self._compare(f"when {name} is called")
        found = super().take(name, args, is_write=is_write)
        self._ran = set() if is_write else {*self._ran, name}
        return found

    def find(self, name: str, args: Json, *, is_write: bool) -> Call | None:
        """Return the recorded call that is the same; a file is read as it is in the copy."""
        is_file = name in FILE_CHANGES or name in (FILE_TEXT, FILE_THERE)
        return None if is_file else super().find(name, args, is_write=is_write)

    def _done(self, name: str, args: Json, *, is_write: bool) -> Call:
        path = str(args.get("file_path"))
        known = {*self._before, *self._course.at[-1], *self._copy.texts}
        if not is_write and path not in known:
            recorded = super().find(name, args, is_write=False)
            if recorded is None:
                raise self._over(Outcome("handed over", self._unknown(name, args), True))
            return recorded
        call = Call(name, args, effect="write" if is_write else "read")
        self.made.append(call)
        try:
            result = self._copy.do(name, args)
        except (EmError, TypeError) as error:
            self.made[-1] = call._replace(error=str(error))
            return self.made[-1]
        if is_write:
            self.acted.add(self._step)
        self.made[-1] = call._replace(result=result)
        return self.made[-1]

    def _compare(self, when: str) -> None:
        """End the run as wrong if files are not as they were, or a check was not made."""
        moment = min(self._made, len(self._course.at) - 1)
        wanted = {**self._course.at[moment], **self._more}
        why = difference(wanted, self._copy.texts, self._before)
        lacks = [
            one.tool
            for one in self._course.checks[moment]
            if one.tool in self._checks and one.tool not in self._ran
        ]
        if not why and lacks:
            why = f"it does not run {lacks[0]} again after its last change"
        if why:
            raise self._over(Outcome("wrong", f"{why}, {when}"))

    def outcome(self, stopped: str, *, goes_on: bool = False) -> Outcome:
        """Return how the run compares with the session."""
        found = super().outcome(stopped, goes_on=goes_on)
        is_changed = self._copy.texts != self._before
        try:
            if found.verdict == "right":
                self._compare("at the end")
            elif found.verdict == "handed over" and is_changed and not goes_on:
                left = f"it would have stopped with files half changed: {found.reason}"
                return Outcome("wrong", left)
        except Ended:
            assert self._end is not None
            found = self._end
        return found

    def close(self) -> None:
        """Delete the copy of the files."""
        self.texts = self._copy.texts
        self._copy.close()


def difference(wanted: Texts, found: Texts, before: Texts) -> str:
    """Say in which file and line texts differ first from what was recorded; empty if nowhere."""
    for path in sorted({*wanted, *found}):
        old, new = wanted.get(path), found.get(path)
        if old == new:
            continue
        if new is None:
            return f"{path}: it does not write this file"
        if old is None:
            return f"{path}: it writes this file, and the session did not"
        if new == before.get(path):
            return f"{path}: it leaves this file as it was"
        return f"{path}, {_first_line(old, new)}"
    return ""


def _first_line(old: str, new: str) -> str:
    rows = [text.splitlines(keepends=True) for text in (old, new)]
    common = zip(*rows, strict=False)
    at = next((n for n, (one, other) in enumerate(common) if one != other), min(map(len, rows)))
    was, now = (short(row[at]) if at < len(row) else "the end of the file" for row in rows)
    return f"line {at + 1}: it writes {now}, recorded is {was}"
