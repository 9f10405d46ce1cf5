"""File changes: what a session of a coding agent changed in files, however it did it.

`Edit`, `Write`, `apply_patch` and `sed -i` are ways to one effect. A session is followed with the
text of each file, as far as its reads and writes show it. All changes of a file up to the next
other effect become one change, in as few lines as possible: text that is repeated around a change,
a first attempt that was corrected, and the order in which files were changed don't count.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import SequenceMatcher
from posixpath import normpath
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import TracedCall, calls_of
from em.compiler.commands import changes_nothing, is_bookkeeping, known_commands, parted
from em.errors import EmError
from em.runner.tools.coding import (
    CREATE,
    FILE_TEXT,
    SHELLS,
    changes_of,
    command_of,
    renamed_arguments,
)
from em.traces.trace import ToolCall, Trace, TraceEvent
from em.values.call import Effect
from em.values.canonical import Json

FOLDER = "<folder>"
"""What stands for the folder of a session in what its commands printed."""
EDIT, INSERT, WRITE = "Edit", "Insert", "Write"
_EDITS = frozenset({"Edit", "edit", "MultiEdit", "multiedit"})
_WHOLE = frozenset({"Write", "write", "write_file"})
_READS = frozenset({"Read", "read", "read_file"})
_NUMBERED = re.compile(r" *(\d+)(?:\N{RIGHTWARDS ARROW}|\t)(.*)")
_REMINDER = re.compile(r"(?<!\n)\n*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_SHOWN = re.compile(r"(?:cat|sed -n \{\{ (?P<lines>\w+) \| fixed \}\}) \{\{ (?P<file>\w+) \}\}")
_LINES = re.compile(r"1,(\d+)p")
_SED = re.compile(
    r"sed -i s/\{\{ (\w+) \| old \}\}/\{\{ (\w+) \| new \}\}/(g?) \{\{ (\w+)(?: \| \w+)? \}\}"
)
_CODE = re.compile(
    r"\A.{0,200}?(?:Exit code|exited with code|exit code|returncode)\W{1,3}(\d+)", re.S
)
_HERE = re.compile(r"\Acd \.?/? *(?:&&|;) *")


class Session(NamedTuple):
    """A trace as file changes: its calls, and when it began.

    calls: those that succeeded, and commands that failed with an output, which is their result.
    The index of a call is its position.
    """

    calls: list[TracedCall]
    at: datetime | None


def session_of(trace: Trace, declared: Mapping[str, Effect | None]) -> Session | None:
    """Return a trace as file changes; None if it is not known what one of its calls did."""
    folder = _Folder(trace)
    plain = parted(folder.moved(trace))
    tools = [event for event in plain.events if isinstance(event, ToolCall)]
    calls, approvals = calls_of(plain, declared)
    if approvals or len(tools) != len(calls) or any(call.effect_unknown for call in calls):
        return None
    followed = _Followed(folder)
    for call, tool in zip(calls, tools, strict=True):
        followed.take(call, tool)
    followed.flush()
    for number, call in enumerate(followed.calls):
        call.index = number
    return Session(followed.calls, _began(tools))


def _began(tools: list[ToolCall]) -> datetime | None:
    for tool in tools:
        if tool.started_at:
            try:
                return datetime.fromisoformat(tool.started_at)
            except ValueError:
                return None
    return None


# --- paths ----------------------------------------------------------------------------------------


class _Folder:
    """The folder that a session worked in: a routine has its own."""

    def __init__(self, trace: Trace) -> None:
        folder = trace.app.get("cwd")
        known = isinstance(folder, str) and len(folder.strip("/")) > 1
        path = re.escape(str(folder).rstrip("/")) if known else "(?!)"
        self._inside = re.compile(rf"(?<![\w./-]){path}(?:/(?=\S)|(?![\w.-]))")

    def left_out(self, value: Any) -> Any:
        """Return a value with paths from this folder."""
        if isinstance(value, str):
            return self._inside.sub(lambda found: "" if found.group()[-1] == "/" else ".", value)
        if isinstance(value, dict):
            return {key: self.left_out(item) for key, item in value.items()}
        return [self.left_out(item) for item in value] if isinstance(value, list) else value

    def marked(self, text: str) -> str:
        """Return what a command printed, in which this folder is marked: it is another one now."""
        return self._inside.sub(
            lambda found: f"{FOLDER}/" if found.group()[-1] == "/" else FOLDER, text
        )

    def moved(self, trace: Trace) -> Trace:
        """Return a trace whose calls have paths from this folder."""

        def moved(event: TraceEvent) -> TraceEvent:
            if not isinstance(event, ToolCall):
                return event
            args = self.left_out(event.args)
            field = SHELLS.get(event.tool)
            if field is not None and isinstance(args.get(field), str):
                args = {**args, field: _HERE.sub("", args[field])}
            return msgspec.structs.replace(event, args=args)

        return msgspec.structs.replace(trace, events=[moved(event) for event in trace.events])


def _breaks(text: str) -> int:
    """Return how many line breaks a text ends with."""
    return len(text) - len(text.rstrip("\n"))


def _path(value: Any) -> str:
    return normpath(value) if isinstance(value, str) and value else ""


# --- one session ----------------------------------------------------------------------------------


class _Changed:
    """A file that changed since the last other effect: its text before, and the first change."""

    def __init__(self, path: str, before: str, call: TracedCall) -> None:
        self.path, self.before, self.call = path, before, call


class _Followed:
    """Follows a session: what files hold, and what was changed."""

    def __init__(self, folder: _Folder) -> None:
        self._folder, self._programs = folder, known_commands()
        self._made: list[TracedCall | _Changed] = []
        self.calls: list[TracedCall] = []
        self._texts: dict[str, str] = {}
        self._shown: dict[str, str] = {}
        self._changed: dict[str, _Changed] = {}
        self._open: set[str] = set()
        """Files whose last line may or may not end with a line break."""

    def take(self, call: TracedCall, tool: ToolCall) -> None:
        """Take the next call."""
        if is_bookkeeping(call.name):
            return
        if call.shell and self._changes_nothing(tool):
            call.effect, call.effect_inferred = "read", False
        if call.failed:
            self._take_failed(call)
        elif call.effect == "read":
            self._take_read(call)
        elif not self._take_change(call):
            self.flush()
            self._texts.clear()  # nobody knows which files it changed
            self._made.append(call)

    def _changes_nothing(self, tool: ToolCall) -> bool:
        """Return whether a command only reads, or runs tests."""
        run = command_of(tool.tool, tool.args)
        return run is not None and changes_nothing(run.text, self._programs)

    def _take_failed(self, call: TracedCall) -> None:
        """Keep what a command printed that failed: a test run shows what to do."""
        text = self._folder.marked(call.error) if isinstance(call.error, str) else ""
        code = _CODE.search(text)
        if call.shell and call.effect == "read" and code is not None:
            self._made.append(
                msgspec.structs.replace(
                    call,
                    name=f"{call.name}_failed",
                    result=re.sub(r"\A[Ee]xit code \d+(?::\s|\n)", "", text),
                    error=None,
                    exit_code=int(code[1]),
                )
            )

    def _take_read(self, call: TracedCall) -> None:
        found = _whole_file(call)
        if found is None:
            if isinstance(call.result, str):
                call.result = self._folder.marked(call.shown)
            self._made.append(call)
            return
        path, text = found
        if path in self._changed:
            return  # a look at what was just done
        # Numbered lines don't show whether the last one ends.
        known = self._texts.get(path, "")
        text = known if known.rstrip("\n") == text.rstrip("\n") and known else text
        if text != known and not (call.shell and call.result.endswith("\n")):
            self._open.add(path)
        self._texts[path] = text
        self._made.append(_file_text(call, path, text))

    def _take_change(self, call: TracedCall) -> bool:
        """Follow a change of files; return False if it is another effect."""
        made = _changes(call, self._texts)
        if made is None:
            return False
        for path, after in made.items():
            if call.name in _WHOLE:
                self._settle_end(path, after)
            before = self._texts.get(path)
            if before is None:
                is_new = "creat" in str(call.result)[:200] or call.name == "apply_patch"
                name = CREATE if is_new else WRITE
                self._made.append(_call(call, name, {"file_path": path, "content": after}))
            elif path not in self._changed:
                self._changed[path] = _Changed(path, before, call)
                self._made.append(self._changed[path])
            self._texts[path] = after
        return True

    def _settle_end(self, path: str, after: str) -> None:
        """Take a file that is written as a whole to end as before, where its read left that open.

        A read shows lines, and some show an empty one behind the last: a text is taken with one
        line break too many.
        """
        known = self._texts.get(path, "")
        if path not in self._open or _breaks(after) != _breaks(known) - 1:
            return
        self._open.discard(path)
        self._texts[path] = known[:-1]
        if path in self._changed:
            self._changed[path].before = self._changed[path].before.removesuffix("\n")
        calls = [one for one in (*self._made, *self.calls) if isinstance(one, TracedCall)]
        for one in calls:
            is_read = one.name == FILE_TEXT and one.args["file_path"] == path
            if is_read and _breaks(one.result) == _breaks(known):
                one.result = one.result[:-1]
        if self._shown.get(path) == known:
            self._shown[path] = known[:-1]

    def flush(self) -> None:
        """Add the calls so far. All changes of a file are one, where the first was made."""
        for one in self._made:
            if isinstance(one, TracedCall):
                self._add(one)
            elif one.before != self._texts[one.path]:
                self._add(_file_text(one.call, one.path, one.before))
                for name, args in hunks(one.before, self._texts[one.path]):
                    self.calls.append(_call(one.call, name, {"file_path": one.path, **args}))
        self._made, self._changed = [], {}

    def _add(self, call: TracedCall) -> None:
        """Add a call; not a read that showed the same as the one before it."""
        if call.name == FILE_TEXT:
            path = call.args["file_path"]
            if self._shown.get(path) == call.result:
                return
            self._shown[path] = call.result
        self.calls.append(call)


def _call(call: TracedCall, name: str, args: Json) -> TracedCall:
    result = "" if name != FILE_TEXT else None
    return msgspec.structs.replace(
        call, name=name, args=args, result=result, effect="write", effect_inferred=False,
        shell="", via="", fixed={}, error=None,
    )  # fmt: skip


def _file_text(call: TracedCall, path: str, text: str) -> TracedCall:
    made = _call(call, FILE_TEXT, {"file_path": path})
    made.effect, made.result = "read", text
    return made


def _whole_file(call: TracedCall) -> tuple[str, str] | None:
    """Return the path and the text of a file that a read showed as a whole."""
    if not isinstance(call.result, str):
        return None
    args = renamed_arguments(call.args)
    if call.name in _READS and set(args) == {"file_path"}:
        text = _REMINDER.sub("", call.result)
        lines = [_NUMBERED.fullmatch(line) for line in text.split("\n")]
        rows = [line.groups() for line in lines if line is not None]
        if len(rows) < len(lines) or [int(n) for n, _ in rows] != list(range(1, len(rows) + 1)):
            return None
        return _path(args["file_path"]), "".join(f"{line}\n" for _, line in rows)
    shown = _SHOWN.fullmatch(call.shell)
    if shown is None:
        return None
    text = call.result if call.result.endswith("\n") else f"{call.result}\n"
    most = _LINES.fullmatch(str(call.args.get(shown["lines"]))) if shown["lines"] else None
    if shown["lines"] and (most is None or text.count("\n") >= int(most[1])):
        return None  # there may be more of it
    return _path(call.args[shown["file"]]), text


def _changes(call: TracedCall, texts: Mapping[str, str]) -> dict[str, str] | None:
    """Return the texts of the files after a call; None if they are not known."""
    args = renamed_arguments(call.args)
    path = _path(args.get("file_path"))
    if call.name in _WHOLE and isinstance(args.get("content"), str) and path:
        return {path: args["content"]}
    if call.name == "apply_patch" and isinstance(args.get("input"), str):
        return _patched(args["input"], texts)
    sed = _SED.fullmatch(call.shell)
    if sed is not None:
        path = _path(call.args[sed[4]])
        return _substituted(path, texts, call.args[sed[1]], call.args[sed[2]], bool(sed[3]))
    return _edited(path, texts, args) if call.name in _EDITS and path in texts else None


def _edited(path: str, texts: Mapping[str, str], args: Json) -> dict[str, str] | None:
    text = texts[path]
    for one in args["edits"] if isinstance(args.get("edits"), list) else [args]:
        edit = renamed_arguments(one) if isinstance(one, dict) else {}
        old, new = edit.get("old_string"), edit.get("new_string")
        if not isinstance(old, str) or not isinstance(new, str) or not old or old not in text:
            return None
        if text.count(old) > 1 and not edit.get("replace_all"):
            return None
        text = text.replace(old, new)
    return {path: text}


def _patched(patch: str, texts: Mapping[str, str]) -> dict[str, str] | None:
    try:
        changes = changes_of(patch, lambda path: texts.get(_path(path)))
    except EmError:
        return None
    made = {_path(one.path): one.after for one in changes if one.after is not None}
    moved = any(one.moved_to or one.after is None for one in changes)
    return None if moved else made


def _substituted(
    path: str, texts: Mapping[str, str], old: str, new: str, everywhere: bool
) -> dict[str, str] | None:
    if path not in texts:
        return None
    lines = texts[path].split("\n")
    return {path: "\n".join(line.replace(old, new, -1 if everywhere else 1) for line in lines)}


# --- hunks ----------------------------------------------------------------------------------------


def hunks(before: str, after: str) -> list[tuple[str, Json]]:
    """Return the calls that change a text, from the last line to the first.

    A line that changes is replaced; the text to replace stands once in the file. Lines that are
    added are inserted as far down as they may stand: before the next entry, not behind a heading.
    Where lines can't be told apart, the whole text is written.
    """
    made, text = [*_hunks(before, after)], before
    for name, args in made:
        if name == INSERT:
            rows = text.splitlines(keepends=True)
            at = args["insert_line"]
            text = "".join([*rows[:at], args["new_string"], *rows[at:]])
        elif args["old_string"] and text.count(args["old_string"]) == 1:
            text = text.replace(args["old_string"], args["new_string"])
        else:
            break
    return made if text == after else [(WRITE, {"content": after})]


def _hunks(before: str, after: str) -> Iterator[tuple[str, Json]]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    whole = all(line.endswith("\n") for line in (*old, *new))
    for code, i, j, k, end in reversed(codes):
        if code == "insert" and whole:
            at, lines = i, new[k:end]
            while at < len(old) and lines[0] == old[at]:
                lines, at = [*lines[1:], old[at]], at + 1
            yield INSERT, {"insert_line": at, "new_string": "".join(lines)}
        elif code != "equal":
            yield EDIT, _replaced(before, old, i, j, new[k:end])


def _replaced(before: str, old: list[str], i: int, j: int, new: list[str]) -> Json:
    """Return the replacement of some lines, with lines before them until they stand once."""
    start = i
    while start > 0 and (start == j or before.count("".join(old[start:j])) > 1):
        start -= 1
    lead = "".join(old[start:i])
    was, now = lead + "".join(old[i:j]), lead + "".join(new)
    if was.endswith("\n") and now.endswith("\n") and before.count(was[:-1]) == 1:
        was, now = was[:-1], now[:-1]
    return {"old_string": was, "new_string": now}
