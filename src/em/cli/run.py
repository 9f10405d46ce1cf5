"""`em run` and `em resume`: run a routine, and go on with a run."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import only_results_on_stdout, print_json, print_table
from em.errors import InputError, UsageError
from em.models.routine import ToolSpec
from em.models.run import PendingPrompt, RunResult, StepReport
from em.runner.allowing import settings_for
from em.runner.calls import AutoFix
from em.runner.engine import resume_run, run_routine
from em.runner.journal import read_run
from em.runner.package import Package
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.settings import AllowSettings, Settings

F = TypeVar("F", bound=Callable[..., Any])
OnStep = Callable[[StepReport], None] | None
Go = Callable[[dict[str, Any], OnStep], RunResult]


_ALLOW = "Let declared tools {} this, beside what em.yaml allows; may be repeated."


def _shared(command: F) -> F:
    """The options of running and of going on."""
    for option in (
        click.option("--yes", is_flag=True, help="Answer yes to every confirmation."),
        click.option("--answers", metavar="FILE", help="Answers: {step: {field: value}}, as JSON."),
        click.option("--allow-env", multiple=True, metavar="NAME", help=_ALLOW.format("read")),
        click.option("--allow-host", multiple=True, metavar="HOST", help=_ALLOW.format("ask")),
        click.option("--allow-command", multiple=True, metavar="NAME", help=_ALLOW.format("run")),
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
@click.argument("routine", type=click.Path(exists=True, file_okay=False))
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
    """Run ROUTINE, the folder of a routine, with no model call.

    Every step is journalled in the log: a run that is interrupted, or waits for an answer, goes on
    with `em resume`.
    """
    package = Package(routine)
    if dry_run:
        _show_plan(package, as_json=ctx.obj["json"])
        return 0
    again = _given(package.folder, shared)
    input_data = _read(input_file) if input_file else {}
    store = None if no_journal else open_memory(ctx, create=True).store

    def go(given: dict[str, Any], on_step: OnStep) -> RunResult:
        return run_routine(
            package, input_data, answers=given, on_step=on_step, store=store, **again
        )

    return _converse(ctx, go, _read(answers) if answers else {}, again, yes=yes)


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
    store = open_memory(ctx).store
    again = _given(Path(read_run(store, run_id).folder), shared)
    if input_file:
        again["input_data"] = _read(input_file)

    def go(given: dict[str, Any], on_step: OnStep) -> RunResult:
        return resume_run(store, run_id, answers=given, on_step=on_step, **again)

    return _converse(ctx, go, _read(answers) if answers else {}, again, yes=yes)


def _given(folder: Path, shared: dict[str, Any]) -> dict[str, Any]:
    """What every attempt at a run is given."""
    tools, udf = shared["tools"], shared["udf"]
    with only_results_on_stdout():
        return {
            "tool_registry": ToolRegistry.load(tools) if tools else ToolRegistry(),
            "udfs": functions_of(load_module(udf), imported=True) if udf else None,
            "allow": _allow(folder, shared),
            "trust": shared["trust"],
            "auto_fix_fn": _auto_fix(shared["private"]) if shared["auto_fix"] else None,
        }


def _auto_fix(private: Sequence[str]) -> AutoFix:
    from em.llm import get_llm_client
    from em.llm._recovery import make_auto_fix_fn

    settings = Settings.load()
    client = get_llm_client(settings=settings)
    return make_auto_fix_fn(client, private=private, redact=settings.redact)


def _allow(folder: Path, shared: dict[str, Any]) -> AllowSettings | None:
    """What the options allow, beside em.yaml; None if they say nothing."""
    commands, hosts, env = (shared[f"allow_{what}"] for what in ("command", "host", "env"))
    if not (commands or hosts or env):
        return None
    more = AllowSettings(commands=list(commands), hosts=list(hosts), env=list(env))
    return settings_for(folder, None) + more


def _converse(
    ctx: click.Context, go: Go, given: dict[str, Any], again: dict[str, Any], *, yes: bool
) -> int:
    """Run, ask what there is to ask, and go on."""
    as_json = ctx.obj["json"]
    on_step = _show_step if sys.stderr.isatty() and not as_json else None
    while True:
        with only_results_on_stdout():
            result = go(given, on_step)
        prompt = result.pending_prompt
        if prompt is None:
            break
        answer = _answer(prompt, yes=yes, ask=sys.stdin.isatty() and not as_json)
        if answer is None:
            break
        given = {**given, prompt.step_id: answer}
        go = _going_on(ctx, result.run_id, again) if ctx.obj.get("memory") else go
    return _print(result, as_json=as_json, journalled="memory" in ctx.obj)


def _going_on(ctx: click.Context, run_id: str, again: dict[str, Any]) -> Go:
    def go(given: dict[str, Any], on_step: OnStep) -> RunResult:
        store = ctx.obj["memory"].store
        return resume_run(store, run_id, answers=given, on_step=on_step, **again)

    return go


def _show_plan(package: Package, *, as_json: bool) -> None:
    kinds = [str(type(step).__struct_config__.tag) for step in package.routine.steps]
    how = {tool.name: _how(tool) for tool in package.routine.tools}
    rows = [
        (
            step.id,
            kind,
            step.target,
            "write" if step.is_write else "",
            how.get(step.target, "") if step.kind == "tool" else "",
        )
        for step, kind in zip(package.program.steps, kinds, strict=True)
    ]
    columns = ("step", "type", "calls", "effect", "how")
    if as_json:
        print_json({"steps": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_table(columns, rows)


def _how(tool: ToolSpec) -> str:
    """What a declared tool would do: as it is written, so that no secret is filled in."""
    if tool.command is not None:
        return shlex.join(tool.command).replace("'{{", "{{").replace("}}'", "}}")
    if tool.http is not None:
        return f"{tool.http.method} {tool.http.url.partition('?')[0]}"
    return ""


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


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except TypeError:
        return False
    return True


def _print(result: RunResult, *, as_json: bool, journalled: bool) -> int:
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
            again = f"em resume {result.run_id} --answers FILE" if journalled else "--answers FILE"
            click.echo(f"  try: {again}, or --yes", err=True)
        else:
            print_json(result.output)
    except TypeError as error:
        odd = [name for name, value in result.context.items() if not _is_json(value)]
        raise UsageError(
            f"the output can't be written as JSON: {error}",
            place=f"what is saved as {odd[0]!r}" if odd else "",
            fix="let the tool return plain values (numbers, texts, lists, mappings)",
        ) from None
    return 0 if result.status == "ok" else 1
