"""`em run`: run a routine."""

import sys
from contextlib import redirect_stdout
from typing import Any

import click
import msgspec

from em.cli.files import reading
from em.cli.options import everywhere
from em.cli.output import print_json
from em.errors import InputError, UsageError
from em.models.run import PendingPrompt, RunResult, StepReport
from em.runner.engine import run_routine
from em.runner.package import Package
from em.runner.tools import ToolRegistry


@click.command("run")
@click.argument("routine", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--input", "input_file", metavar="FILE", help="The input, as JSON; - for standard input."
)
@click.option("--tools", metavar="MODULE|FILE", help="Where the tools are.")
@click.option("--answers", metavar="FILE", help="Answers to prompts: {step: {field: value}}.")
@click.option("--yes", is_flag=True, help="Answer yes to every confirmation.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    routine: str,
    input_file: str | None,
    tools: str | None,
    answers: str | None,
    yes: bool,
) -> int:
    """Run ROUTINE, the folder of a routine, with no model call."""
    package = Package(routine)
    registry = ToolRegistry.load(tools) if tools else ToolRegistry()
    input_data = _read(input_file) if input_file else {}
    given: dict[str, Any] = _read(answers) if answers else {}
    as_json = ctx.obj["json"]
    on_step = _show_step if sys.stderr.isatty() and not as_json else None
    while True:
        # What tools print must not get between the result and who reads it.
        with redirect_stdout(sys.stderr):
            result = run_routine(package, input_data, registry, answers=given, on_step=on_step)
        prompt = result.pending_prompt
        if prompt is None:
            break
        answer = _answer(prompt, yes=yes, ask=sys.stdin.isatty() and not as_json)
        if answer is None:
            break
        given[prompt.step_id] = answer
    return _print(result, as_json=as_json)


def _read(file: str) -> dict[str, Any]:
    with reading(file) as (source, name):
        try:
            return msgspec.json.decode(source.read(), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"this is no JSON object: {error}", place=name) from None


def _show_step(step: StepReport) -> None:
    sign = {"done": "✓", "skipped": "-", "failed": "✗", "defaulted": "!"}[step.status]
    click.echo(f"{sign} {step.id}  {step.duration_ms:.1f} ms  {step.error}".rstrip(), err=True)


def _answer(prompt: PendingPrompt, *, yes: bool, ask: bool) -> dict[str, Any] | None:
    """What a person says to a prompt; None where nobody can be asked."""
    confirms = all(field.get("type") == "confirm" for field in prompt.fields)
    if yes and confirms:
        return {field["name"]: True for field in prompt.fields}
    if not ask:
        return None
    click.echo(prompt.message, err=True)
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


def _print(result: RunResult, *, as_json: bool) -> int:
    try:
        if as_json:
            print_json(result)
        elif result.failure is not None:
            failure = result.failure
            place = f"step {failure.step_id}: " if failure.step_id else ""
            click.secho("failed", fg="red", nl=False, err=True)
            click.echo(f": {place}{failure.error_type}: {failure.message}", err=True)
        elif result.pending_prompt is not None:
            click.echo(f"waits for an answer: {result.pending_prompt.message}", err=True)
            click.echo("  try: --answers FILE, or --yes", err=True)
        else:
            print_json(result.output)
    except TypeError as error:
        raise UsageError(
            f"the output can't be written as JSON: {error}", fix="return plain values"
        ) from None
    return 0 if result.status == "ok" else 1
