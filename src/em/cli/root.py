"""The `em` command itself: global options, lazy loading of commands, exit codes."""

import atexit
import gc
import io
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

import click

import em
from em.cli.command import Command, Group, command, walk
from em.cli.output import note, print_error
from em.errors import EmError, StoreError, UsageError

_SHOW = warnings.showwarning
VARIABLE = "_EM_COMPLETE"
"""The variable by which a shell asks for completions."""

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Memory": {
        "import": (
            "em.cli.transcripts:import_",
            "Import the transcripts of agents.",
        ),
        "observe": ("em.cli.observation:observe", "Record observations about a subject."),
        "recall": ("em.cli.recall:recall", "Search what was said."),
        "traces": ("em.cli.traces:traces", "List, show, compare and label traces."),
        "forget": ("em.cli.log:forget", "Erase events and everything derived from them."),
        "log": ("em.cli.log:log", "Show, verify, export, import and back up the log."),
    },
    "Routines": {
        "compile": (
            "em.cli.compilation:compile_",
            "Compile a trace into a routine that runs without a model.",
        ),
        "run": ("em.cli.run:run", "Run a routine."),
        "resume": (
            "em.cli.run:resume",
            "Resume a run that was interrupted or waits for an answer.",
        ),
        "runs": ("em.cli.run:runs", "List, show and cancel runs of routines."),
        "routine": (
            "em.cli.routine:routine",
            "Suggest, list, show, accept, validate and export routines.",
        ),
    },
    "Agents": {
        "install": ("em.cli.install:install", "Install em into Claude Code, Codex or opencode."),
        "uninstall": ("em.cli.install:uninstall", "Undo `em install` completely."),
        "hooks": ("em.cli.install:hooks", "Answer the hooks of coding agents."),
        "mcp": ("em.cli.mcp:mcp", "Serve the memory to an agent, as an MCP server."),
    },
    "State and lessons": {
        "state": (
            "em.cli.state:state",
            "Compile, show, ask and correct a subject's typed state, and check its rules.",
        ),
        "lessons": (
            "em.cli.lessons:lessons",
            "Learn lessons from traces, find those that fit a task, list and retire them.",
        ),
    },
    "Workflows": {
        "workflow": (
            "em.cli.workflow:workflow",
            "Run workflows whose steps name the context they need.",
        ),
        "queue": ("em.cli.queue:queue", "List, show, cancel and retry queued jobs."),
        "worker": ("em.cli.queue:worker", "Run queued jobs: runs, checkpoints, compilations."),
    },
    "Service": {
        "serve": ("em.cli.serve:serve", "Serve the memory over HTTP: web pages and a JSON API."),
    },
    "Administration": {
        "schema": (
            "em.cli.schema:schema",
            "Print JSON Schemas of the files that people write.",
        ),
        "completion": ("em.cli.completion:completion", "Complete `em` in bash, zsh or fish."),
        "doctor": (
            "em.cli.doctor:doctor",
            "Check the installation, the database, extras, keys and the model.",
        ),
        "trust": ("em.cli.trust:trust", "Trust code or a folder's em.yaml after you have read it."),
        "help": ("em.cli.root:help_", "Show the help of a command."),
    },
}
"""The commands by what they are about, each with its function and its help.

A module is imported when its command is used.
"""
COMMANDS = {name: place for commands in GROUPS.values() for name, (place, _) in commands.items()}
ALIASES = {
    "evaluate": "em.cli.lessons:evaluate",
    "reflect": "em.cli.lessons:reflect",
    "retrieve": "em.cli.lessons:retrieve",
    "smoke-llm": "em.cli.doctor:smoke_llm",
    "validate": "em.cli.routine:validate",
}
"""Spellings of the documents in docs/seeds.md. They work and are not listed."""
NEW_OBJECTS = 100_000
"""How many new objects make Python look for unused ones."""

SAME_AS = {
    "cache": "routine behaviours",
    "heuristics": "lessons",
    "lesson": "lessons",
    "keep": "compile",
    "list": "traces",
}
"""Commands that people look for under another name."""


class Root(Group):
    """The command `em`."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> Command | None:
        """Import a command, or suggest the closest name."""
        found = super().get_command(ctx, name)
        if found is None and not ctx.resilient_parsing:
            close = " or ".join(map(repr, self._closest(name)))
            hint = f" Did you mean {close}?" if close else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return found

    def _closest(self, name: str) -> list[str]:
        """Return the commands that have this name below another, else one with a similar name."""
        from difflib import get_close_matches

        if name in SAME_AS:
            return [SAME_AS[name]]
        below = [one.path for one in walk(self) if one.path.endswith(f" {name}")]
        return below or get_close_matches(name, COMMANDS, 1)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments. `--help` is printed here, so a closed pipe is handled here too."""
        with _reader_may_leave():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(ctx)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of commands in `--help`, one for each thing they are about."""
        width = max(map(len, COMMANDS)) + 2
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width - 2), text) for name, (_, text) in commands.items()]
                )
        formatter.write_paragraph()
        formatter.write_text("`em help COMMAND` shows its options and an example.")


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Exit with 0 when the reader of our output has gone (`em log show | head`).

    click would exit with 1 and without a message.
    """
    try:
        yield
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - flushing it would fail again
        raise click.exceptions.Exit(0) from None


@click.group(
    cls=Root,
    places=COMMANDS | ALIASES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(em.__version__, message="em %(version)s")
def root() -> None:
    """Executable memory for AI agents: compile what an agent did into code that it can run."""


@command("help")
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of em, or of COMMAND."""
    above = ctx.find_root()
    found: click.Command = root
    for word in words:
        below = found.get_command(above, word) if isinstance(found, click.Group) else None
        if below is None:
            raise UsageError(f"there is no command `em {' '.join(words)}`", fix="em help")
        above = click.Context(below, info_name=word, parent=above)
        found = below
    click.echo(found.get_help(above))


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    # Modules stay, so looking for unused objects while they are loaded is in vain.
    gc.set_threshold(NEW_OBJECTS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Events may contain characters that the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - `>&-` closed it
    _leave(run(sys.argv[1:]))


def _leave(code: int) -> NoReturn:
    """Exit without freeing each object, which takes as long as a small command itself.

    What Python does at the end is done: functions for the exit run, and the output is flushed. If
    another thread still runs or the output can't be written, Python ends in its own way.
    """
    if threading.active_count() == 1:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            sys.exit(code)
        os._exit(code)
    sys.exit(code)


def run(args: list[str]) -> int:
    """Run one command; return its exit code."""
    if VARIABLE in os.environ:
        root.main(args=args, prog_name="em", complete_var=VARIABLE, obj={"db": None})  # exits
    as_json = "--json" in args
    warnings.showwarning = _show_warning
    try:
        result: Any = root.main(
            args=args, prog_name="em", standalone_mode=False, obj={"db": None, "json": False}
        )
    except EmError as error:
        print_error(error, as_json=as_json)
        return error.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        if as_json:
            print_error(UsageError(error.format_message()), as_json=True)
        else:
            error.show()
        return error.exit_code
    except (click.Abort, OSError, SystemExit) as error:
        return _left_early(error, as_json=as_json)
    return result if isinstance(result, int) else 0


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print what a user has to know as a line; leave other warnings to Python."""
    from em.settings import Untrusted

    if issubclass(category, Untrusted):
        note(str(message))
    else:
        _SHOW(message, category, filename, lineno, file, line)


def _left_early(error: BaseException, *, as_json: bool) -> int:
    if isinstance(error, SystemExit):
        print_error(EmError(f"a tool or function called sys.exit({error.code})"), as_json=as_json)
        return 1
    if isinstance(error, OSError):
        # Files that a command names are handled where they are opened. This is standard output,
        # which has no name, or a file that nobody expected to fail.
        what = "can't read or write this" if error.filename else "can't write the output"
        place = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""
        print_error(StoreError(f"{what}: {error.strerror}", place=place), as_json=as_json)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - flushing it would fail again
        return 1
    click.echo("interrupted", err=True)
    return 130
