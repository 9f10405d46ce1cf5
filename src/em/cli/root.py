"""`em`: the options that hold everywhere, lazy loading of commands, and what errors become."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

import em
from em.cli.output import print_error
from em.errors import EmError, StoreError, UsageError

COMMANDS = {
    "alerts": ("em.cli.state:alerts", "What is due about a subject."),
    "ask": ("em.cli.state:ask", "Answer a question about a subject."),
    "cache": (
        "em.cli.cache:cache",
        "Look at recorded behaviours, take them out and bring them in.",
    ),
    "check": ("em.cli.state:check", "The rules that fire before an action."),
    "checkpoint": (
        "em.cli.state:checkpoint",
        "Compile what is new about a subject into typed state.",
    ),
    "compile": (
        "em.cli.routine:compile_",
        "Compile a trace into a routine that runs without a model.",
    ),
    "conflicts": ("em.cli.state:conflicts", "What contradicts itself about a subject."),
    "doctor": ("em.cli.doctor:doctor", "Check the installation, the database, extras and keys."),
    "evaluate": (
        "em.cli.heuristics:evaluate",
        "Measure retrieval of lessons on a seeded benchmark.",
    ),
    "export": ("em.cli.routine:export", "Write a routine as a script that needs no em."),
    "forget": ("em.cli.log:forget", "Erase events, and everything derived from them."),
    "heuristics": ("em.cli.heuristics:heuristics", "Look after the lessons in a memory."),
    "import": ("em.cli.traces:import_", "Keep the traces in transcripts that agents left on disk."),
    "log": ("em.cli.log:log", "Append to, look at, prove, save and load the log."),
    "loop": ("em.cli.heuristics:loop", "Run an agent again and again toward a goal."),
    "mcp": ("em.cli.serve:mcp", "Serve the memory to an agent, as an MCP server."),
    "observe": ("em.cli.state:observe", "Keep what was learned about a subject."),
    "queue": ("em.cli.queue:queue", "Look at queued work, cancel it, try again what failed."),
    "recall": ("em.cli.recall:recall", "Find what was said."),
    "reflect": ("em.cli.heuristics:reflect", "Learn from a trace: what to do better next time."),
    "repl": ("em.cli.state:repl", "An interactive Python with a subject's typed state."),
    "resolve": ("em.cli.state:resolve", "Settle a contradiction, or say how to."),
    "resume": ("em.cli.run:resume", "Go on with a run that was interrupted or waits."),
    "retrieve": ("em.cli.heuristics:retrieve", "The lessons that fit a task, with their reasons."),
    "routine": ("em.cli.routine:routine", "The routines that are kept: list, show, keep, heal."),
    "run": ("em.cli.run:run", "Run a routine."),
    "runs": ("em.cli.run:runs", "Look at past runs of routines."),
    "serve": ("em.cli.serve:serve", "Serve the memory: pages for people, JSON for programs."),
    "smoke-llm": ("em.cli.smoke_llm:smoke_llm", "Ask the configured model one small question."),
    "state": ("em.cli.state:state", "Look at a subject's compiled state."),
    "suggest": ("em.cli.traces:suggest", "Which traces are worth compiling."),
    "traces": ("em.cli.traces:traces", "Look at traces: list, show, diff."),
    "trust": ("em.cli.routine:trust", "Say that you have read the code that a model wrote."),
    "ui": ("em.cli.serve:ui", "Look at the memory in a browser."),
    "validate": ("em.cli.routine:validate", "List everything that is wrong with a routine."),
    "watch": ("em.cli.traces:watch", "Bring transcripts in as they are written."),
    "worker": ("em.cli.queue:worker", "Do queued work: runs, checkpoints, compilations."),
    "workflow": (
        "em.cli.workflow:workflow",
        "Run workflows whose steps name the context they need.",
    ),
}
"""Each command: the function that runs it and its help. Modules are imported on first use."""


class LazyGroup(click.Group):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Every command, in the order of the alphabet."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command's module."""
        if name in COMMANDS:
            module, _, attribute = COMMANDS[name][0].partition(":")
            command: click.Command = getattr(import_module(module), attribute)
            return command
        from difflib import get_close_matches

        close = get_close_matches(name, COMMANDS, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return ctx.fail(f"no command {name!r}.{hint}")

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments; `em --help | true` prints already here."""
        with _reader_may_leave():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _reader_may_leave():
            return super().invoke(ctx)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(COMMANDS.items())])


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """The reader of our output has gone (`em log show | head`): that is no failure of ours.

    click would leave with 1 and say nothing of the reason, so it must not see this error.
    """
    try:
        yield
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - flushing it would fail again
        raise click.exceptions.Exit(0) from None


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--db",
    metavar="PATH|URL",
    help="The log: a SQLite file or a postgresql:// address.  [EM_DB, em.yaml, else .em/em.db]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.version_option(em.__version__, message="em %(version)s")
@click.pass_context
def root(ctx: click.Context, db: str | None, as_json: bool) -> None:
    """Executable memory for AI agents: what an agent has lived through becomes code it can run."""
    ctx.obj = {"db": db, "json": as_json}


def main() -> None:
    """Run the command line. Exit codes: 0 fine, 1 the work failed, 2 misuse, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Text from events may hold what this terminal's encoding can't say.
            stream.reconfigure(errors="backslashreplace")
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - `>&-` closed it
    sys.exit(run(sys.argv[1:]))


def run(args: list[str]) -> int:
    """Run one command and say with which code to exit."""
    as_json = "--json" in args
    try:
        result: Any = root.main(args=args, prog_name="em", standalone_mode=False)
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


def _left_early(error: BaseException, *, as_json: bool) -> int:
    if isinstance(error, SystemExit):
        print_error(EmError(f"code that was run wanted to exit ({error.code})"), as_json=as_json)
        return 1
    if isinstance(error, OSError):
        # Files that a command names are handled where they are opened: this is the output.
        problem = StoreError(f"the output can't be written: {error.strerror}")
        print_error(problem, as_json=as_json)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - flushing it would fail again
        return 1
    click.echo("interrupted", err=True)
    return 130
