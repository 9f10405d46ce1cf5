"""`em run` and `em resume`: run a routine, and go on with a run."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import click

from em.cli.options import everywhere, find_package, open_memory
from em.cli.outcome import print_interrupted, print_outcome
from em.cli.output import only_results_on_stdout
from em.cli.plan import print_plan
from em.cli.progress import Watcher, watching
from em.cli.prompts import answer
from em.cli.run_options import allowed, answering, as_typed, read_object
from em.runner.attempts import AutoFix
from em.runner.engine import resume_run, run_routine
from em.runner.journal import new_run_id, read_run
from em.runner.run import RunResult
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
Go = Callable[[dict[str, Any], Watcher], RunResult]


def _shared(command: F) -> F:
    """The options of running and of going on."""
    for option in (
        answering,
        click.option(
            "--private",
            multiple=True,
            metavar="NAME",
            help="An argument whose value no model sees; may be repeated.",
        ),
        click.option(
            "--auto-fix", is_flag=True, help="Ask a model how to go on when a step fails."
        ),
        click.option("--trust", is_flag=True, help="Code that a model wrote runs in this process."),
        click.option("--udf", metavar="MODULE|FILE", help="Functions beside those of udf.py."),
        click.option("--tools", metavar="MODULE|FILE", help="Where the tools are."),
    ):
        command = option(command)
    return command


@click.command("run")
@click.argument("routine")
@click.option("--input", "input_file", metavar="FILE", help="The input, as JSON; - for stdin.")
@click.option("--no-journal", is_flag=True, help="Keep nothing; such a run can't be resumed.")
@click.option("--dry-run", is_flag=True, help="Only say which steps there are and what they call.")
@_shared
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    /,
    routine: str,
    input_file: str | None,
    no_journal: bool,
    dry_run: bool,
    answers: str | None,
    yes: bool,
    **shared: Any,
) -> int:
    """Run ROUTINE with no model call: the folder of a routine, or the name of one that is kept.

    Every step is journalled in the log: a run that is interrupted, or waits for an answer, goes on
    with `em resume`.
    """
    with ExitStack() as stack:
        package = find_package(ctx, routine, stack)
        if dry_run:
            print_plan(package, as_json=ctx.obj["json"])
            return 0
        again = _given(package.folder, shared)
        input_data = read_object(input_file) if input_file else {}
        store = None if no_journal else open_memory(ctx, create=True).store
        run_id = new_run_id()

        def go(given: dict[str, Any], watcher: Watcher) -> RunResult:
            return run_routine(
                package,
                input_data,
                answers=given,
                on_step=watcher.ended,
                on_start=watcher.began,
                store=store,
                run_id=run_id,
                **again,
            )

        said = read_object(answers) if answers else {}
        return _converse(ctx, run_id, go, said, again, yes=yes, journalled=not no_journal)


@click.command("resume")
@click.argument("run_id", metavar="RUN")
@click.option("--input", "input_file", metavar="FILE", help="The input again, if it held secrets.")
@_shared
@everywhere
@click.pass_context
def resume(
    ctx: click.Context,
    /,
    run_id: str,
    input_file: str | None,
    answers: str | None,
    yes: bool,
    **shared: Any,
) -> int:
    """Go on with RUN, which was interrupted or waits for an answer.

    No completed step runs again. A step with an effect that was under way is asked about.
    """
    past = read_run(open_memory(ctx).store, run_id)
    again = _given(Path(past.folder or "/"), shared)
    if input_file:
        again["input_data"] = read_object(input_file)
    go = _going_on(ctx, run_id, again)
    said = read_object(answers) if answers else {}
    return _converse(ctx, run_id, go, said, again, yes=yes, journalled=True)


def _given(folder: Path, shared: dict[str, Any]) -> dict[str, Any]:
    """What every attempt at a run is given."""
    tools, udf = shared["tools"], shared["udf"]
    with only_results_on_stdout():
        return {
            "tool_registry": ToolRegistry.load(tools) if tools else ToolRegistry(),
            "udfs": functions_of(load_module(udf), imported=True) if udf else None,
            "allow": allowed(folder, shared),
            "trust": shared["trust"],
            "resume_with": as_typed(shared),
            "auto_fix_fn": _auto_fix(shared["private"]) if shared["auto_fix"] else None,
        }


def _auto_fix(private: Sequence[str]) -> AutoFix:
    from em.llm import get_llm_client
    from em.llm._recovery import make_auto_fix_fn

    settings = Settings.load()
    client = get_llm_client(settings=settings)
    return make_auto_fix_fn(client, private=private, redact=settings.redact)


def _converse(
    ctx: click.Context,
    run_id: str,
    go: Go,
    given: dict[str, Any],
    again: dict[str, Any],
    *,
    yes: bool,
    journalled: bool,
) -> int:
    """Run, ask what there is to ask, and go on."""
    as_json = ctx.obj["json"]
    memory = ctx.obj["memory"] if journalled else None
    while True:
        try:
            with only_results_on_stdout(), watching(wanted=not as_json) as watcher:
                result = go(given, watcher)
        except KeyboardInterrupt:
            return print_interrupted(memory, run_id, again["resume_with"])
        prompt = result.pending_prompt
        if prompt is None:
            break
        try:
            said = answer(prompt, yes=yes, ask=sys.stdin.isatty() and not as_json)
        except click.Abort:
            return print_interrupted(memory, run_id, again["resume_with"])
        if said is None:
            break
        given = {**given, prompt.step_id: said}
        go = _going_on(ctx, result.run_id, again) if journalled else go
    return print_outcome(memory, result, again["resume_with"], as_json=as_json)


def _going_on(ctx: click.Context, run_id: str, again: dict[str, Any]) -> Go:
    def go(given: dict[str, Any], watcher: Watcher) -> RunResult:
        return resume_run(
            ctx.obj["memory"].store,
            run_id,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
            **again,
        )

    return go
