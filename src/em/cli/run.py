"""`em run` and `em resume`: run a routine, and go on with a run."""

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from typing import Any, TypeVar

import click
import msgspec

from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import print_json, print_table, printable
from em.cli.progress import Watcher, watching
from em.errors import InputError, NotFound, UsageError
from em.models.run import PendingPrompt, RunResult
from em.runner.engine import resume_run, run_routine
from em.runner.journal import PastRun, new_run_id, read_run
from em.runner.package import Package
from em.runner.tools import ToolRegistry

F = TypeVar("F", bound=Callable[..., Any])
Go = Callable[[dict[str, Any], Watcher], RunResult]


def _shared(command: F) -> F:
    """The options of running and of going on."""
    for option in (
        click.option("--yes", is_flag=True, help="Answer yes to every confirmation."),
        click.option("--answers", metavar="FILE", help="Answers: {step: {field: value}}, as JSON."),
        click.option("--tools", metavar="MODULE|FILE", help="Where the tools are."),
    ):
        command = option(command)
    return command


@click.command("run")
@click.argument("routine", type=click.Path(exists=True, file_okay=False))
@click.option("--input", "input_file", metavar="FILE", help="The input, as JSON; - for stdin.")
@click.option("--no-journal", is_flag=True, help="Keep nothing; such a run can't be resumed.")
@click.option("--dry-run", is_flag=True, help="Only say which steps there are and what they call.")
@_shared
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    routine: str,
    input_file: str | None,
    no_journal: bool,
    dry_run: bool,
    tools: str | None,
    answers: str | None,
    yes: bool,
) -> int:
    """Run ROUTINE, the folder of a routine, with no model call.

    Every step is journalled in the log: a run that is interrupted, or waits for an answer, goes on
    with `em resume`.
    """
    package = Package(routine)
    if dry_run:
        _show_plan(package, as_json=ctx.obj["json"])
        return 0
    registry = ToolRegistry.load(tools) if tools else ToolRegistry()
    input_data = _read(input_file) if input_file else {}
    store = None if no_journal else open_memory(ctx, create=True).store

    run_id = new_run_id()

    def go(given: dict[str, Any], watcher: Watcher) -> RunResult:
        return run_routine(
            package,
            input_data,
            registry,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
            store=store,
            run_id=run_id,
        )

    return _converse(ctx, run_id, go, _read(answers) if answers else {}, registry, yes=yes)


@click.command("resume")
@click.argument("run_id", metavar="RUN")
@click.option("--input", "input_file", metavar="FILE", help="The input again, if it held secrets.")
@_shared
@everywhere
@click.pass_context
def resume(
    ctx: click.Context,
    run_id: str,
    input_file: str | None,
    tools: str | None,
    answers: str | None,
    yes: bool,
) -> int:
    """Go on with RUN, which was interrupted or waits for an answer.

    No completed step runs again. A step with an effect that was under way is asked about.
    """
    registry = ToolRegistry.load(tools) if tools else ToolRegistry()
    store = open_memory(ctx).store
    again = _read(input_file) if input_file else None

    def go(given: dict[str, Any], watcher: Watcher) -> RunResult:
        return resume_run(
            store,
            run_id,
            registry,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
            input_data=again,
        )

    return _converse(ctx, run_id, go, _read(answers) if answers else {}, registry, yes=yes)


def _converse(
    ctx: click.Context,
    run_id: str,
    go: Go,
    given: dict[str, Any],
    registry: ToolRegistry,
    *,
    yes: bool,
) -> int:
    """Run, ask what there is to ask, and go on."""
    as_json = ctx.obj["json"]
    while True:
        try:
            # What tools print must not get between the result and who reads it.
            with redirect_stdout(sys.stderr), watching(wanted=not as_json) as watcher:
                result = go(given, watcher)
        except KeyboardInterrupt:
            return _interrupted(ctx, run_id)
        prompt = result.pending_prompt
        if prompt is None:
            break
        answer = _answer(prompt, yes=yes, ask=sys.stdin.isatty() and not as_json)
        if answer is None:
            break
        given = {**given, prompt.step_id: answer}
        go = _going_on(ctx, result.run_id, registry) if ctx.obj.get("memory") else go
    return _tell(ctx, result, as_json=as_json)


def _tell(ctx: click.Context, result: RunResult, *, as_json: bool) -> int:
    """The result, and to who looks on what it saved."""
    memory = ctx.obj.get("memory")
    looked_at = as_json or (sys.stderr.isatty() and result.status == "ok")
    past = read_run(memory.store, result.run_id) if memory and looked_at else None
    code = _print(result, past, as_json=as_json, journalled=memory is not None)
    if past is not None and not as_json:
        from em.cli.saved import print_saved

        print_saved(past, err=True)
    return code


def _interrupted(ctx: click.Context, run_id: str) -> int:
    """Say how to go on, if the journal has anything to go on from."""
    click.echo("interrupted", err=True)
    if "memory" in ctx.obj:
        with suppress(NotFound):
            read_run(ctx.obj["memory"].store, run_id)
            click.echo(f"  go on with: em resume {run_id}", err=True)
    return 130


def _going_on(ctx: click.Context, run_id: str, registry: ToolRegistry) -> Go:
    def go(given: dict[str, Any], watcher: Watcher) -> RunResult:
        return resume_run(
            ctx.obj["memory"].store,
            run_id,
            registry,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
        )

    return go


def _show_plan(package: Package, *, as_json: bool) -> None:
    kinds = [str(type(step).__struct_config__.tag) for step in package.routine.steps]
    rows = [
        (step.id, kind, step.target, "write" if step.is_write else "")
        for step, kind in zip(package.program.steps, kinds, strict=True)
    ]
    columns = ("step", "type", "calls", "effect")
    secrets = {secret.name: secret.variable for secret in package.routine.secrets}
    if as_json:
        steps = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"steps": steps, "secrets": secrets})
        return
    print_table(columns, rows)
    for name, variable in secrets.items():
        is_set = "set" if os.environ.get(variable) else "not set"
        click.echo(f"secret {name} from {variable}, which is {is_set}")


def _read(file: str) -> dict[str, Any]:
    with reading(file) as (source, name):
        try:
            return msgspec.json.decode(source.read(), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"this is no JSON object: {error}", place=name) from None


def _answer(prompt: PendingPrompt, *, yes: bool, ask: bool) -> dict[str, Any] | None:
    """What a person says to a prompt; None where nobody can be asked."""
    confirms = all(field.get("type") == "confirm" for field in prompt.fields)
    if yes and confirms:
        return {field["name"]: True for field in prompt.fields}
    if not ask:
        return None
    click.echo(printable(str(prompt.message)), err=True)
    return {field["name"]: _ask(field) for field in prompt.fields}


def _ask(field: Any) -> Any:
    label = field.get("label") or field["name"]
    default, kind = field.get("default"), field.get("type", "text")
    if kind == "confirm":
        return click.confirm(label, default=bool(default), err=True)
    if kind == "select":
        choice = click.Choice([str(option) for option in field.get("options", ())])
        return click.prompt(label, type=choice, default=default, err=True)
    if kind == "multiselect":
        text = click.prompt(f"{label} (several, with commas)", default="", err=True)
        return [part.strip() for part in text.split(",") if part.strip()]
    types: dict[str, Any] = {"number": float, "integer": int}
    return click.prompt(
        label, type=types.get(kind, str), default=default, err=True, hide_input=kind == "secret"
    )


def _print(result: RunResult, past: PastRun | None, *, as_json: bool, journalled: bool) -> int:
    try:
        if as_json:
            from em.cli.saved import saved_as_json

            saved = saved_as_json(past) if past is not None else None
            print_json({**msgspec.structs.asdict(result), "saved": saved})
        elif result.failure is not None:
            failure = result.failure
            place = f"step {failure.step_id}: " if failure.step_id else ""
            click.secho("failed", fg="red", nl=False, err=True)
            told = printable(f"{place}{failure.error_type}: {failure.message}")
            click.echo(f": {told}", err=True)
        elif result.pending_prompt is not None:
            asked = printable(str(result.pending_prompt.message))
            click.echo(f"waits for an answer: {asked}", err=True)
            again = f"em resume {result.run_id} --answers FILE" if journalled else "--answers FILE"
            click.echo(f"  try: {again}, or --yes", err=True)
        else:
            print_json(result.output)
    except TypeError as error:
        raise UsageError(
            f"the output can't be written as JSON: {error}", fix="return plain values"
        ) from None
    return 0 if result.status == "ok" else 1
