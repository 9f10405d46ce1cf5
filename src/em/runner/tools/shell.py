"""Shell commands of routines: filled in, checked against what is allowed, and run by bash.

Every program in a command must be allowed, and every path that its words name must lie in an
allowed folder. That keeps a routine in its place; it is not a sandbox: an allowed program such as
`python` or `git` can run anything and go anywhere.
"""

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from em.errors import NotAllowed
from em.runner.routine import ToolSpec
from em.runner.tools.command import CommandFailed, run_command
from em.runner.tools.command_paths import check_paths
from em.runner.tools.file_effects import check_changes, shown_changes
from em.runner.tools.permissions import check_path, refused
from em.settings import AllowSettings
from em.shell.form import Template
from em.shell.programs import Doing, doing_of, known_programs
from em.shell.syntax import statements

_EACH_STATUS = (
    'for status in "${PIPESTATUS[@]}"; do case $status in 0|141) ;; *) exit $status ;; esac; done'
)
LONGEST_SHOWN = 80
"""Characters of a command that an error shows."""


def template_of(spec: ToolSpec) -> Template:
    """Return the form of a declared shell command. Raises RoutineError if it is not a safe one."""
    assert spec.shell is not None
    properties = (spec.args_schema or {}).get("properties", {})
    fixed = {
        name: value["const"]
        for name, value in properties.items()
        if isinstance(value, dict) and isinstance(value.get("const"), str)
    }
    return Template(spec.shell, fixed)


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
