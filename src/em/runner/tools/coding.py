"""Tools of coding agents: files, searches and shells, by the names that the agents give them.

Claude Code, Codex, opencode, pi, mini-swe-agent, OpenHands and SWE-agent call the same few things
by different names. Here is one implementation of each, under the permissions of the user: a path
must lie in an allowed folder, a program must be allowed. A routine that was compiled from such an
agent's transcript finds them by itself; a tool that is registered under the name comes first.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from em.errors import RoutineError
from em.runner.tools.permissions import check_path, refused
from em.settings import AllowSettings
from em.values.call import Effect, Signature
from em.values.canonical import Json
from em.values.times import now

if TYPE_CHECKING:
    from em.runner.tools import Tool


_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _END_OF_FILE = "*** Move to: ", "*** End of File"


class BadPatch(RoutineError):
    """A patch that can't be read, or does not fit the files."""

    code = "bad_patch"


class PatchedFile(NamedTuple):
    """A file before and after: None if it is not there. `moved_to` is its new path."""

    path: str
    before: str | None
    after: str | None
    moved_to: str = ""


class _Hunk(NamedTuple):
    """Lines that are replaced. `context`: a line that stands somewhere before them."""

    context: str
    old: list[str]
    new: list[str]
    is_at_end: bool = False


def changes_of(patch: str, read: Callable[[str], str | None]) -> list[PatchedFile]:
    """Return what a patch does to the files that `read` returns. Raises BadPatch."""
    lines = patch.strip("\n").split("\n")
    if lines[0].strip() != _BEGIN or lines[-1].strip() != _END:
        raise BadPatch(f"a patch begins with {_BEGIN!r} and ends with {_END!r}")
    return [_change(head, body, read) for head, body in _files(lines[1:-1])]


def _files(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the line that names each file, with the lines below it."""
    head, body = "", list[str]()
    for line in lines:
        if line.startswith((_ADD, _DELETE, _UPDATE)):
            if head:
                yield head, body
            head, body = line, []
        elif head:
            body.append(line)
        elif line.strip():
            raise BadPatch(f"a patch must name a file before the line {line[:80]!r}")
    if head:
        yield head, body


def _change(head: str, body: list[str], read: Callable[[str], str | None]) -> PatchedFile:
    if head.startswith(_ADD):
        path = head.removeprefix(_ADD).strip()
        if any(line and not line.startswith("+") for line in body):
            raise BadPatch("each line of a new file begins with +", place=path)
        text = "".join(f"{line[1:]}\n" for line in body)
        return PatchedFile(path, read(path), text)
    path = head.removeprefix(_DELETE).removeprefix(_UPDATE).strip()
    before = read(path)
    if before is None:
        raise BadPatch("there is no such file", place=path)
    if head.startswith(_DELETE):
        return PatchedFile(path, before, None)
    moved = ""
    if body and body[0].startswith(_MOVE):
        moved = body.pop(0).removeprefix(_MOVE).strip()
    return PatchedFile(path, before, _patched(before, list(_hunks(body, path)), path), moved)


def _hunks(lines: Sequence[str], path: str) -> Iterator[_Hunk]:
    context, old, new = "", list[str](), list[str]()
    for line in lines:
        if line.startswith("@@"):
            if old or new:
                yield _Hunk(context, old, new)
            context, old, new = line[2:].strip(), [], []
        elif line == _END_OF_FILE:
            yield _Hunk(context, old, new, True)
            context, old, new = "", [], []
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(" ") or not line:
            old.append(line[1:])
            new.append(line[1:])
        else:
            raise BadPatch(f"a line must begin with +, - or a space: {line[:80]!r}", place=path)
    if old or new:
        yield _Hunk(context, old, new)


def _patched(text: str, hunks: Sequence[_Hunk], path: str) -> str:
    ends_with_break = text.endswith("\n") or not text
    lines = text.split("\n")
    if ends_with_break:
        lines.pop()
    at = 0
    for hunk in hunks:
        if hunk.context:
            at = _found(lines, [hunk.context], at, path, is_exact=False) + 1
        if not hunk.old:
            at = len(lines)
            lines[at:at] = hunk.new
        elif hunk.is_at_end:
            at = _found(lines, hunk.old, len(lines) - len(hunk.old), path)
            lines[at : at + len(hunk.old)] = hunk.new
        else:
            at = _found(lines, hunk.old, at, path)
            lines[at : at + len(hunk.old)] = hunk.new
        at += len(hunk.new)
    return "\n".join(lines) + "\n"


def _found(
    lines: Sequence[str], wanted: Sequence[str], start: int, path: str, *, is_exact: bool = True
) -> int:
    """Return where lines stand; they must stand there once, unless a context line led to them."""

    def same(one: str, other: str) -> bool:
        return one == other if is_exact else one.strip() == other.strip()

    places = [
        at
        for at in range(max(start, 0), len(lines) - len(wanted) + 1)
        if all(same(lines[at + n], line) for n, line in enumerate(wanted))
    ]
    if not places:
        raise BadPatch("the lines to change are not in the file", place=path, lines=wanted[:3])
    if len(places) > 1 and start == 0:
        raise BadPatch("the lines to change stand there more than once", place=path)
    return places[0]


MAX_LINES = 2000
MAX_FILE = 10 * 1024 * 1024
TIMEOUT = 120.0

SHELLS: Mapping[str, str] = {
    "Bash": "command",
    "bash": "command",
    "shell": "command",
    "shell_command": "command",
    "exec_command": "cmd",
    "execute_bash": "command",
    "terminal": "command",
    "run_shell_command": "command",
    "container.exec": "cmd",
}
"""The tools that run a shell command, each with the argument that holds it."""

EDITORS = frozenset({"str_replace_editor", "str_replace_based_edit_tool", "file_editor"})
"""The tools that do one of several things, as their argument `command` says."""

BOOKKEEPING = frozenset(
    "TodoWrite TodoRead todowrite todoread update_plan think task_tracker ExitPlanMode"
    " EnterPlanMode exit_plan_mode TaskCreate TaskUpdate TaskList TaskGet".split()
)
"""The tools with which an agent keeps notes for itself: they have no effect."""

OWN_SERVER = ("mcp__em__", "mcp__plugin_em_em__")
"""How the names of the tools of em's own MCP server begin."""

_FOLDERS = ("workdir", "cwd", "working_directory")
_WITHOUT_MEANING = frozenset(
    "description timeout timeout_ms yield_time_ms max_output_tokens login justification"
    " sandbox_permissions with_escalated_permissions prefix_rule thought security_risk summary"
    " dangerouslyDisableSandbox".split()
)
"""Arguments of shells that don't change what is run."""

_UNSET: Sequence[Any] = (None, False, "", "false", 0, [], {})

_SAME = {
    "filePath": "file_path", "path": "file_path", "target_file": "file_path",
    "oldString": "old_string", "oldText": "old_string", "old_str": "old_string",
    "newString": "new_string", "newText": "new_string", "new_str": "new_string",
    "replaceAll": "replace_all", "file_text": "content", "contents": "content",
    "patchText": "input", "patch": "input", "include": "glob",
}  # fmt: skip
"""Arguments by other names."""


_PATCH_COMMAND = re.compile(
    r"\s*apply_patch\s+<<-?\s*(?P<quote>['\"])(?P<end>\w+)(?P=quote)[ \t]*\n"
    r"(?P<patch>.*)\n(?P=end)\s*",
    re.DOTALL,
)
"""A patch that is given to the program `apply_patch`, which only Codex has."""


class FileToolFailed(RoutineError):
    """A file tool that could not do what it was asked for."""

    code = "file_tool_failed"


def _folder_above(path: Path) -> str:
    """Say in which folder above, up to the project's, the file is that is not here; or nothing."""
    here = Path.cwd()
    if path.exists() or not path.is_relative_to(here):
        return ""
    for folder in here.parents:
        if (folder / path.relative_to(here)).is_file():
            return f"; it is in {folder}: run the routine there"
        if any((folder / name).exists() for name in (".git", ".em")):
            break
    return ""


class ShellRun(NamedTuple):
    """A shell command that a tool was called with, and the folder it was to run in."""

    text: str
    folder: str = ""


def command_of(name: str, args: Json) -> ShellRun | None:
    """Return the shell command of a call; None if it is not one that em can repeat."""
    field = SHELLS.get(name)
    if field is None or field not in args:
        return None
    rest = {
        key
        for key, value in args.items()
        if key != field
        and key not in _FOLDERS
        and key not in _WITHOUT_MEANING
        and value not in _UNSET
    }
    given = args[field]
    if rest or not given:
        return None  # in the background, or with input: more than one command
    if isinstance(given, list) and all(isinstance(word, str) for word in given):
        in_shell = len(given) == 3 and given[1] in ("-c", "-lc") and given[0].endswith("sh")
        given = given[2] if in_shell else shlex.join(given)
    if not isinstance(given, str) or not given.strip():
        return None
    folder = next((args[key] for key in _FOLDERS if isinstance(args.get(key), str)), "")
    return ShellRun(given, folder)


def shell_arguments(name: str, text: str) -> Json:
    """Return the arguments with which the shell tool of this name runs a command."""
    if name == "shell":
        return {"command": ["bash", "-lc", text]}
    return {SHELLS.get(name, "command"): text}


def plain_edit(name: str, args: Json) -> tuple[str, Json] | None:
    """Return a call of an editor with several commands as one of a tool with one meaning."""
    patch = _patch(name, args)
    if patch is not None:
        return "apply_patch", {"input": patch}
    if name not in EDITORS:
        return None
    path = {"file_path": args.get("path")}
    texts = {"old_string": args.get("old_str"), "new_string": args.get("new_str") or ""}
    ways: dict[Any, tuple[str, Json]] = {
        "view": ("Read", {**path, **_lines(args.get("view_range"))}),
        "create": ("Write", {**path, "content": args.get("file_text") or ""}),
        "str_replace": ("Edit", {**path, **texts}),
        "insert": (
            "Insert",
            {**path, "insert_line": args.get("insert_line"), "new_string": args.get("new_str")},
        ),
    }
    return ways.get(args.get("command"))


def _patch(name: str, args: Json) -> str | None:
    """Return the patch of a call: as the one argument of its tool, or of a shell command."""
    if name == "apply_patch":
        texts = [value for value in args.values() if isinstance(value, str)]
        return texts[0] if len(texts) == len(args) == 1 and "input" not in args else None
    given = args.get(SHELLS[name]) if name in SHELLS else None
    if isinstance(given, list) and len(given) == 2 and given[0] == "apply_patch":
        return str(given[1])
    run = command_of(name, args) if given is not None else None
    found = None if run is None else _PATCH_COMMAND.fullmatch(run.text)
    return None if found is None else found["patch"]


def _lines(given: Any) -> Json:
    if not isinstance(given, list) or len(given) != 2 or not all(isinstance(n, int) for n in given):
        return {}
    first, last = given
    return {"offset": first} if last < first else {"offset": first, "limit": last - first + 1}


FILE_TEXT, FILE_THERE, TODAY, CREATE = "FileText", "FileThere", "Today", "Create"
"""The tools that compiled routines call, and no agent.

They are the text of a file as it is, whether a file is there, the day, and writing a file that must
not be there yet.
"""

_READS = {
    "Read": "read", "read": "read", "read_file": "read", "Glob": "glob", "glob": "glob",
    "Grep": "grep", "grep": "grep", "LS": "list", "ls": "list", "list_directory": "list",
    FILE_TEXT: "text", FILE_THERE: "there", TODAY: "today",
}  # fmt: skip
_WRITES = {
    "Write": "write", "write": "write", "write_file": "write", "Edit": "edit", "edit": "edit",
    "MultiEdit": "multi_edit", "multiedit": "multi_edit", "Insert": "insert",
    CREATE: "create",
    "apply_patch": "apply_patch",
}  # fmt: skip
"""The tools for files, each with its method of `Files`."""


FILE_CHANGES = frozenset(_WRITES)
"""The tools that change files."""


def effect_of_tool(tool: str) -> Effect | None:
    """Return the effect of a tool for files; None if it is another tool."""
    return "read" if tool in _READS else "write" if tool in _WRITES else None


def is_coding_tool(name: str) -> bool:
    """Return whether coding agents call a tool by this name that em has too."""
    return name in SHELLS or name in _READS or name in _WRITES


def coding_tool(name: str, allow: AllowSettings) -> "Tool | None":
    """Return the tool that coding agents call by this name; None if there is none.

    Raises NotAllowed if no folder is allowed.
    """
    if not is_coding_tool(name):
        return None
    if not allow.folders:
        raise refused("folder", os.getcwd())
    return _shell(name, allow) if name in SHELLS else _file_tool(name, allow)


def _shell(name: str, allow: AllowSettings) -> "Tool":
    from em.runner.tools import Tool
    from em.runner.tools.shell import run_shell

    def within(timeout: float | None) -> Callable[..., Any]:
        def call(**args: Any) -> str:
            found = command_of(name, args)
            if found is None:
                raise FileToolFailed(
                    f"{name} can only run a command to its end", place=f"tool {name}"
                )
            seconds = TIMEOUT if timeout is None else timeout
            return run_shell(_in_folder(found), allow, timeout=seconds).decode(errors="replace")

        return call

    tool = Tool(name, within(None), "write")
    tool.within = within
    tool.preview = lambda args: _in_folder(command_of(name, dict(args)) or ShellRun(""))
    return tool


def _in_folder(run: ShellRun) -> str:
    return f"cd {shlex.quote(run.folder)} || exit 1\n{run.text}" if run.folder else run.text


def _file_tool(name: str, allow: AllowSettings) -> "Tool":
    from em.runner.tools import Tool

    method = {**_READS, **_WRITES}[name]
    effect: Effect = "read" if name in _READS else "write"

    signature = Signature(getattr(Files, method), skip_first=True)

    def called(files: Files, args: Mapping[str, Any]) -> Any:
        named = renamed_arguments(args)
        problem = signature.problem(named)
        if problem:
            raise FileToolFailed(
                f"em's {name} has other arguments: {problem}", place=f"tool {name}"
            )
        return getattr(files, method)(**named)

    def call(**args: Any) -> Any:
        return called(Files(allow), args)

    def preview(args: Mapping[str, Any]) -> str:
        planning = Files(allow, is_dry=True)
        called(planning, args)
        return planning.diff()

    tool = Tool(name, call, effect)
    if effect == "write":
        tool.preview = preview
    return tool


def renamed_arguments(args: Mapping[str, Any]) -> Json:
    """Return arguments of a file tool by the names that they have here."""
    return {_SAME.get(name, name): value for name, value in args.items()}


class Files:
    """Reads and changes files in allowed folders. With `is_dry` it only notes the changes."""

    def __init__(self, allow: AllowSettings, *, is_dry: bool = False) -> None:
        self.allow, self._is_dry = allow, is_dry
        self._changed: dict[Path, tuple[str | None, str | None]] = {}

    def diff(self) -> str:
        """Return what was changed, as a diff."""
        import difflib

        parts = []
        for path, (before, after) in self._changed.items():
            old, new = (str(path) if text is not None else "/dev/null" for text in (before, after))
            lines = difflib.unified_diff(
                (before or "").splitlines(), (after or "").splitlines(), old, new, lineterm=""
            )
            parts.append("\n".join(lines))
        return "\n".join(parts)

    # --- look -------------------------------------------------------------------------------------

    def read(self, file_path: str, offset: int | None = None, limit: int | None = None) -> str:
        """Return the lines of a file, each with its number."""
        lines = self._text(self._path(file_path)).split("\n")
        if lines[-1] == "":
            lines.pop()
        first = max(int(offset or 1), 1)
        chosen = lines[first - 1 : first - 1 + int(limit or MAX_LINES)]
        return "\n".join(
            f"{number:6}\N{RIGHTWARDS ARROW}{line}" for number, line in enumerate(chosen, first)
        )

    def text(self, file_path: str) -> str:
        """Return the text of a file."""
        return self._text(self._path(file_path))

    def there(self, file_path: str) -> bool:
        """Return whether there is a file, or a folder, of this name."""
        return self._path(file_path).exists()

    def today(self, form: str, zone: str = "local") -> str:
        """Return the day, as `strftime` writes it, here or in UTC."""
        return day_of(now(), form, zone)

    def glob(self, pattern: str, file_path: str = ".") -> str:
        """Return the files that match a pattern, the newest first."""
        folder = self._path(file_path)
        if pattern.startswith("/") or ".." in Path(pattern).parts:
            raise FileToolFailed("the pattern must stay in its folder", place=f"pattern {pattern}")
        found = [
            path for path in folder.glob(pattern) if path.is_file() and not _is_hidden(path, folder)
        ]
        found.sort(key=lambda path: (-path.stat().st_mtime, str(path)))
        return "\n".join(map(str, found[:MAX_LINES])) or "No files found"

    def grep(self, pattern: str, file_path: str = ".", **options: Any) -> str:
        """Return the files, or the lines, that match a regular expression."""
        path = self._path(file_path)
        mode = options.get("output_mode", "files_with_matches")
        flags = {"files_with_matches": "-l", "count": "-c"}.get(
            mode, "-n" if options.get("-n", True) else "-h"
        )
        argv = ["grep", "-rIE", flags, "--exclude-dir=.git"]
        argv += ["-i"] if options.get("-i") else []
        argv += [f"--include={options['glob']}"] if options.get("glob") else []
        argv += [f"{name}{int(options[name])}" for name in ("-A", "-B", "-C") if options.get(name)]
        from em.runner.tools.command import run_command

        program = shutil.which("grep")
        if program is None:
            raise FileToolFailed("the program grep is not on the PATH")
        argv += ["-e", pattern, "--", str(path)]
        text = run_command(argv, program, timeout=TIMEOUT, env={}, accept=(0, 1))
        lines = text.decode(errors="replace").splitlines()
        if not Path(file_path).is_absolute():
            # As the agents show them: paths from here.
            lines = [line.removeprefix(f"{Path.cwd()}/") for line in lines]
        if mode == "count":
            lines = [line for line in lines if not line.endswith(":0")]
        shown = lines[: int(options.get("head_limit") or MAX_LINES)]
        if not shown:
            return "No files found" if mode == "files_with_matches" else "No matches found"
        if mode == "files_with_matches":
            return "\n".join([f"Found {len(lines)} file{'s' * (len(lines) != 1)}", *shown])
        return "\n".join(shown)

    def list(self, file_path: str = ".", ignore: Sequence[str] = ()) -> str:
        """Return the names in a folder, folders with a slash."""
        folder = self._path(file_path)
        names = sorted(
            path.name + "/" * path.is_dir()
            for path in folder.iterdir()
            if not any(path.match(pattern) for pattern in ignore)
        )
        return "\n".join(names)

    # --- change -----------------------------------------------------------------------------------

    def write(self, file_path: str, content: str) -> str:
        """Write a whole file."""
        path = self._path(file_path)
        before = self._text(path) if path.exists() else None
        self._change(path, before, content)
        what = "updated" if before is not None else "created"
        return f"File {what} successfully at: {file_path}"

    def create(self, file_path: str, content: str) -> str:
        """Write a file that is not there yet."""
        if self._path(file_path).exists():
            raise FileToolFailed("the file is there already", place=file_path)
        return self.write(file_path, content)

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> str:
        """Replace a text that stands once in a file, or everywhere."""
        edit = {"old_string": old_string, "new_string": new_string, "replace_all": replace_all}
        return self.multi_edit(file_path, [edit])

    def multi_edit(self, file_path: str, edits: Sequence[Mapping[str, Any]]) -> str:
        """Make several replacements in one file: all of them or none."""
        path = self._path(file_path)
        before = self._text(path) if path.exists() else None
        after = before or ""
        for given in edits:
            after = _replaced(after, renamed_arguments(given), file_path, is_new=before is None)
        self._change(path, before, after)
        return f"The file {file_path} has been updated successfully."

    def insert(self, file_path: str, insert_line: int, new_string: str) -> str:
        """Insert a text after a line; 0 is the beginning."""
        path = self._path(file_path)
        before = self._text(path)
        lines = before.splitlines(keepends=True)
        if not 0 <= insert_line <= len(lines):
            raise FileToolFailed(f"there is no line {insert_line}", place=file_path)
        text = new_string if new_string.endswith("\n") else f"{new_string}\n"
        if "\r\n" in before and "\r" not in text:
            text = text.replace("\n", "\r\n")  # lines end as those of the file do
        above = "".join(lines[:insert_line])
        if above and not above.endswith("\n"):
            above, text = f"{above}\n", text.removesuffix("\n")
        after = "".join([above, text, *lines[insert_line:]])
        self._change(path, before, after)
        return f"The file {file_path} has been updated successfully."

    def apply_patch(self, input: str) -> str:  # noqa: A002 - the name that Codex gives it
        """Apply a patch in the form that Codex writes: all of it or nothing."""
        from em.runner.tools.coding import changes_of

        changes = changes_of(input, self._text_if_there)
        # All paths are checked before the first file is changed.
        paths = [
            (self._path(one.path), one.moved_to and self._path(one.moved_to)) for one in changes
        ]
        for change, (path, moved) in zip(changes, paths, strict=True):
            if moved:
                self._change(path, change.before, None)
                self._change(Path(moved), None, change.after)
            else:
                self._change(path, change.before, change.after)
        signs = {(True, False): "A", (False, True): "D"}
        done = [
            f"{signs.get((one.before is None, one.after is None), 'M')} {one.moved_to or one.path}"
            for one in changes
        ]
        return "\n".join(["Success. Updated the following files:", *done])

    # --- files ------------------------------------------------------------------------------------

    def _path(self, given: str) -> Path:
        if not given or "\0" in given:
            raise FileToolFailed("a path must be a text", place=f"path {given!r}")
        return check_path(given, self.allow)

    def _text_if_there(self, given: str) -> str | None:
        path = self._path(given)
        return self._text(path) if path.exists() else None

    def _text(self, path: Path) -> str:
        if path in self._changed:
            return self._changed[path][1] or ""
        try:
            if path.stat().st_size > MAX_FILE:
                raise FileToolFailed(f"the file has more than {MAX_FILE:,} bytes", place=str(path))
            return path.read_bytes().decode()
        except UnicodeDecodeError:
            raise FileToolFailed("the file is not UTF-8 text", place=str(path)) from None
        except OSError as error:
            words = f"can't be read: {error.strerror}{_folder_above(path)}"
            raise FileToolFailed(words, place=str(path)) from None

    def _change(self, path: Path, before: str | None, after: str | None) -> None:
        first = self._changed.get(path, (before, None))[0]
        self._changed[path] = (first, after)
        if self._is_dry:
            return
        try:
            if after is None:
                path.unlink()
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(after.encode())
        except OSError as error:
            raise FileToolFailed(f"can't be written: {error.strerror}", place=str(path)) from None


def day_of(at: datetime, form: str, zone: str) -> str:
    """Return the day of a moment as a text: here (`local`), or in UTC (`utc`)."""
    return (at.astimezone(UTC) if zone == "utc" else at.astimezone()).strftime(form)


def _replaced(text: str, edit: Mapping[str, Any], place: str, *, is_new: bool) -> str:
    old, new = edit.get("old_string"), edit.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        raise FileToolFailed("an edit needs old_string and new_string", place=place)
    if not old:
        if is_new or not text:
            return new
        raise FileToolFailed("old_string is empty, and the file is not", place=place)
    count = text.count(old)
    if count == 0:
        raise FileToolFailed("the text to replace is not in the file", place=place)
    if count > 1 and not edit.get("replace_all"):
        raise FileToolFailed(
            f"the text to replace stands there {count} times", place=place, fix="replace_all: true"
        )
    refuse_part(text, old, place)
    return text.replace(old, new)


def refuse_part(text: str, old: str, place: str) -> None:
    """Raise FileToolFailed where a text to replace is a part of a longer word or number."""
    at = text.find(old)
    while at >= 0:
        end = at + len(old)
        if _is_inside(text, at) or _is_inside(text, end):
            line = text[text.rfind("\n", 0, at) + 1 :].partition("\n")[0]
            raise FileToolFailed(
                f"the text to replace is part of a longer word or number: {line.strip()[:80]!r}",
                place=place,
                fix="name the whole word",
            )
        at = text.find(old, end)


def _is_inside(text: str, at: int) -> bool:
    """Return whether a place is inside a word, or a number such as 1.25."""
    before, behind = text[:at][-2:], text[at : at + 2]
    if not before or not behind:
        return False
    is_word = (before[-1].isalnum() or before[-1] == "_") and (
        behind[0].isalnum() or behind[0] == "_"
    )
    is_left = before[-1].isdigit() and behind[0] in ".," and behind[1:].isdigit()
    is_right = before[-1] in ".," and before[:-1].isdigit() and behind[0].isdigit()
    return is_word or is_left or is_right


def _is_hidden(path: Path, folder: Path) -> bool:
    return ".git" in path.relative_to(folder).parts or not os.access(path, os.R_OK)
