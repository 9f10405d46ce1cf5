"""Commands: what coding agents do with a shell or an editor, as calls that can be explained.

A shell command becomes a call of its form, with its values as arguments: see `em.shell.form`. So
its effect is its own, `ls` is a read though `Bash` may write, and each value is explained like any
other argument.
"""

import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from importlib.util import find_spec
from posixpath import isabs, join, normpath

import msgspec

from em.errors import MissingExtra, RoutineError
from em.runner.tools.coding import BOOKKEEPING, OWN_SERVER, SHELLS, ShellRun, command_of, plain_edit
from em.settings import Settings
from em.shell.form import form_of
from em.shell.programs import Programs, known_programs, read_command, read_programs
from em.shell.status import settled, status_of
from em.shell.syntax import Opaque, Simple, parse, statements
from em.traces.outcomes import check_of
from em.traces.trace import ToolCall, Trace
from em.values.call import Effect
from em.values.canonical import Json

_STAYING = frozenset({"Bash", "execute_bash", "terminal"})
"""The shells in which `cd` counts for later calls too."""
_SAME_AS: Mapping[str, Mapping[str, str]] = {
    "openhands": {"run": "execute_bash", "finish": "think", "message": "think"},
    "swe-agent": {"submit": "think"},
}
"""By agent: tools whose names mean something else with others, and the tools that they are."""
_LOOKS: Mapping[str, frozenset[str]] = {
    "swe-agent": frozenset(
        "open goto scroll_up scroll_down search_dir search_file find_file".split()
    ),
    "claude-code": frozenset({"BashOutput", "TaskOutput"}),
    "openhands": frozenset({"browse"}),
}
"""By agent: tools that only look, though their names don't say so."""
_A_MODEL = "another agent did it, and a routine runs without a model"
_RUNNING = "it needs a program that goes on running, and a routine runs each command to its end"
_OPEN_FILE = "it changes lines by their numbers in the file that is open"
_SESSION = "it needs the values that code before it left in a session of Python"
_UNREPEATABLE: Mapping[str, Mapping[str, str]] = {
    "claude-code": {
        "Task": _A_MODEL, "Agent": _A_MODEL, "KillBash": _RUNNING, "KillShell": _RUNNING,
    },
    "codex": {
        "write_stdin": _RUNNING, "functions.exec": "it runs code of the model",
        **dict.fromkeys(("spawn_agent", "send_input", "resume_agent"), _A_MODEL),
        **dict.fromkeys(("wait_agent", "close_agent"), _A_MODEL),
    },
    "openhands": {"run_ipython": _SESSION},
    "swe-agent": {"edit": _OPEN_FILE, "create": _OPEN_FILE, "insert": _OPEN_FILE},
}  # fmt: skip
"""By agent: tools that em can't repeat, and why."""
_PYTHON = re.compile(r"python[0-9.]*")
_WRITES = re.compile(r"\.write\(|\bwrite_(?:text|bytes)\(|\bopen\([^)]*,\s*['\"][^'\"]*[wax+]")
_IN_PLACE = {
    "perl": re.compile(r"(?:^| )-[a-zA-Z0]*i"),
    "ruby": re.compile(r"(?:^| )-[a-zA-Z]*i"),
    "awk": re.compile(r"(?:^| )(?:-i|--include)[ =]?inplace\b"),
    "gawk": re.compile(r"(?:^| )(?:-i|--include)[ =]?inplace\b"),
}
"""Programs that change files in place, with the options that make them do it."""
_RESET = "Shell cwd was reset to"
"""What Claude Code prints when it goes back to its folder."""


class Taken(msgspec.Struct, frozen=True):
    """A call taken apart. `shell`, `via` and `fixed` as in a tool's declaration."""

    name: str
    args: Json
    effect: Effect | None = None
    shell: str = ""
    via: str = ""
    fixed: Json = {}
    creates: tuple[str, ...] = ()
    """The files that `>` wrote, if nothing shows that they were there before."""


HANDED_OVER = "needs_input"
"""The status of a run that did nothing of the task."""


def is_bookkeeping(name: str) -> bool:
    """Return whether a tool only keeps the agent's own notes, or is em's."""
    return name in BOOKKEEPING or name.startswith(OWN_SERVER)


def runs_of_em(trace: Trace) -> Iterator[Json]:
    """Yield what the routines returned that an agent called over em's MCP server."""
    for call in trace.calls:
        is_own = isinstance(call, ToolCall) and call.tool.startswith(OWN_SERVER)
        if is_own and isinstance(call.result, dict) and "run_id" in call.result:
            yield call.result


def is_done_by_em(trace: Trace) -> bool:
    """Return whether a routine did a part of a task: then the trace does not show all of it."""
    return any(run.get("status") != HANDED_OVER for run in runs_of_em(trace))


def can_read_commands() -> bool:
    """Return whether the extra that reads shell commands is installed."""
    return find_spec("tree_sitter") is not None and find_spec("tree_sitter_bash") is not None


def require_commands(trace: Trace) -> None:
    """Raise MissingExtra if a trace has shell commands that can't be read here."""
    shells = (call for call in trace.calls if isinstance(call, ToolCall) and call.tool in SHELLS)
    if any(command_of(call.tool, call.args) for call in shells) and not can_read_commands():
        raise MissingExtra("shell", "reading the shell commands of a trace")


def refuse_unrepeatable(trace: Trace, known: Container[str]) -> None:
    """Raise RoutineError if a coding agent did something that no routine can do again.

    known: tools that the user has, which may do it.
    """
    why = _UNREPEATABLE.get(str(trace.app.get("name")), {})
    if is_done_by_em(trace):
        raise RoutineError(
            "a routine of em did a part of this session, which does not show all that was done",
            place="trace",
            fix="compile sessions in which the agent did the task",
        )
    for call in trace.calls:
        if not isinstance(call, ToolCall) or call.tool in known or call.error is not None:
            continue
        reason = why.get(call.tool, "")
        if call.tool in SHELLS and call.args.get("run_in_background") is True:
            reason = "it went on in the background, and a routine runs each command to its end"
        elif call.tool in SHELLS and can_read_commands():
            run = command_of(call.tool, call.args)
            program = "" if run is None else _changes_unseen(run.text)
            reason = f"{program} changed a file, and nothing shows how" if program else ""
        if reason:
            raise RoutineError(
                f"the session called {call.tool}, which a routine can't repeat: {reason}",
                place=f"trace, tool {call.tool}",
                fix="compile a session without it, or give a tool of this name with --tools",
            )


def _changes_unseen(text: str) -> str:
    """Return the program that changes files by code of its own; empty if none does.

    What `sed -i` does is found out on a copy before it runs.
    """
    for command in commands_in(text) or ():
        words = [word.shown for word in command.words] or [""]
        program = words[0].rpartition("/")[2]
        bodies = [one.body.shown for one in command.redirects if one.body is not None]
        is_script = _PYTHON.fullmatch(program) and any(map(_WRITES.search, [*words[1:], *bodies]))
        options = " ".join(words[1:])
        if is_script or (program in _IN_PLACE and _IN_PLACE[program].search(options)):
            return program
    return ""


def commands_in(text: str) -> Sequence[Simple] | None:
    """Return the programs that a command runs; None if it can't be taken apart."""
    try:
        return parse(text).commands
    except Opaque:
        return None


def known_commands() -> Programs:
    """Return the table of programs, with those of em.yaml."""
    return {**known_programs(), **read_programs(Settings.load().commands, "em.yaml, commands")}


def parted(trace: Trace) -> Trace:
    """Return a trace in which each statement of a command line with an effect is a call.

    `make lint && git add -A; git commit -m x` is three calls: what fails stops what comes next. It
    is not known what each of them printed.
    """
    if not can_read_commands():
        return trace
    programs = known_commands()
    events = [
        part
        for event in trace.events
        for part in (_parts(event, programs) if isinstance(event, ToolCall) else [event])
    ]
    return msgspec.structs.replace(trace, events=events)


def _parts(call: ToolCall, programs: Programs) -> list[ToolCall]:
    """Return the statements of a shell command as calls; what changes the shell stays with them."""
    run = command_of(call.tool, call.args) if call.tool in SHELLS else None
    if run is None or call.error is not None or changes_nothing(run.text, programs):
        return [call]
    found = statements(_as_told(call, run.text, programs))
    acts = [one for one in found if not one.is_setting]
    if len(acts) < 2:
        return [call]
    is_look = changes_nothing(acts[-1].text, programs)
    made: list[ToolCall] = []
    before: list[str] = []
    entered: list[str] = []
    for one in found:
        if one.program == "cd" and call.tool in _STAYING:
            entered.append(one.text)
        elif one.is_setting:
            before.append(one.text)
        else:
            text = " && ".join([*entered, *before, one.text])
            result = call.result if one is acts[-1] and not is_look else None
            args = {**call.args, SHELLS[call.tool]: text}
            made.append(msgspec.structs.replace(call, args=args, result=result))
            entered = []
    return made


def _as_told(call: ToolCall, text: str, programs: Programs) -> str:
    """Return a command that fails if it fails, where what it printed tells that it succeeded."""
    shown = call.result if isinstance(call.result, str) else None
    if call.error is not None or not status_of(text).is_hidden or changes_nothing(text, programs):
        return text
    return settled(text, shown) or text


def changes_nothing(text: str, programs: Programs) -> bool:
    """Return whether all programs of a command only read, or run tests."""
    commands = commands_in(text)
    for command in commands or ():
        check = check_of([word.shown for word in command.words])
        is_test = check is not None and check.words != "git push"
        if any(one.writes for one in command.redirects):
            return False
        if not is_test and read_command(command, programs).reason:
            return False
    return commands is not None


class Commands:
    """Takes the calls of one trace apart, in their order."""

    def __init__(self, trace: Trace) -> None:
        agent = str(trace.app.get("name"))
        self._same_as, self._looks = _SAME_AS.get(agent, {}), _LOOKS.get(agent, frozenset())
        calls = [self._renamed(call) for call in trace.calls if isinstance(call, ToolCall)]
        runs = [command_of(call.tool, call.args) for call in calls if call.tool in SHELLS]
        folders = {run.folder for run in runs if run is not None}
        # One folder for all calls is where the agent was started; a routine has its own.
        self._keeps_folder = len(folders) > 1
        self._is_able = bool(runs) and can_read_commands()
        self._programs = known_commands() if self._is_able else {}
        self._here = ""
        self._folder = str(trace.app.get("cwd") or "")
        self._seen: set[str] = set()

    def taken(self, call: ToolCall) -> Taken | None:
        """Return a call taken apart; None if it stays as it is."""
        renamed = self._renamed(call)
        taken = self._taken(renamed)
        if taken is None and renamed is not call:
            return Taken(renamed.tool, renamed.args)
        if taken is None and call.tool in self._looks:
            return Taken(call.tool, call.args, "read")
        return taken

    def _renamed(self, call: ToolCall) -> ToolCall:
        other = self._same_as.get(call.tool)
        return call if other is None else msgspec.structs.replace(call, tool=other)

    def _taken(self, call: ToolCall) -> Taken | None:
        path = call.args.get("file_path", call.args.get("path"))
        if isinstance(path, str) and call.error is None:
            self._seen.add(self._path(path))
        edit = plain_edit(call.tool, call.args)
        if edit is not None:
            return Taken(*edit)
        run = command_of(call.tool, call.args) if self._is_able else None
        if run is None:
            return None
        text = self._text(call.tool, run._replace(text=_as_told(call, run.text, self._programs)))
        form = form_of(text, self._programs)
        creates = self._created(call, text)
        self._follow(call, run)
        return Taken(
            form.name, dict(form.args), form.effect, form.text, call.tool, dict(form.fixed), creates
        )

    def _created(self, call: ToolCall, text: str) -> tuple[str, ...]:
        """Return the files that a command wrote with `>` and that no call named before."""
        commands = commands_in(text) or ()
        targets = [
            self._path(one.target.value)
            for command in commands
            for one in command.redirects
            if one.writes and ">>" not in one.operator and one.target and one.target.value
        ]
        words = {self._path(word.value) for one in commands for word in one.words if word.value}
        is_new = bool(targets) and self._seen.isdisjoint(targets) and words.isdisjoint(targets)
        if call.error is None:
            self._seen |= {*targets, *words}
        return tuple(targets) if is_new else ()

    def _path(self, word: str) -> str:
        return normpath(join(self._folder, self._here, word))

    def _text(self, tool: str, run: ShellRun) -> str:
        """Return the command with the folder that it ran in."""
        text = run.text.strip()
        folder = run.folder if self._keeps_folder else ""
        if tool in _STAYING and not folder:
            folder = self._here
        if not folder:
            return text
        commands = commands_in(text)
        if commands is None:
            return text
        simple = {command.join for command in commands} <= {"", "|", "&&"}
        return f"cd {shlex.quote(folder)}{' && ' if simple else ' || exit 1' + chr(10)}{text}"

    def _follow(self, call: ToolCall, run: ShellRun) -> None:
        """Note the folder that a shell is in after a command."""
        if call.tool not in _STAYING or call.error is not None:
            return
        if isinstance(call.result, str) and _RESET in call.result:
            self._here = ""
            return
        for folder in _entered(commands_in(run.text) or ()):
            self._here = normpath(folder if isabs(folder) else join(self._here, folder))


def _entered(commands: Sequence[Simple]) -> list[str]:
    """Return the folders that a command goes into and stays in."""
    found = []
    for command in commands:
        words = [word.value for word in command.words]
        stays = not command.is_nested and command.join not in ("|", "&", "||")
        if stays and len(words) == 2 and words[0] == "cd" and words[1] not in (None, "-"):
            found.append(str(words[1]))
    return found
