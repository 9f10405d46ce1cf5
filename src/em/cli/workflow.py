"""`em workflow`: run workflows, and look at what their steps were given and left."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from em.cli.options import (
    allowed,
    answering,
    as_typed,
    everywhere,
    load_tools,
    open_memory,
    read_object,
    with_tools,
)
from em.cli.output import count, only_results_on_stdout, print_json, print_table, printable
from em.cli.queue import enqueue, pairs
from em.cli.run import Watcher, answer, failure_lines, watching
from em.errors import NotFound, UsageError
from em.runner.package import keep_routine, write_files
from em.runner.tools import ToolRegistry
from em.values.ids import new_id
from em.values.mismatch import closest
from em.values.times import parse_duration
from em.workflows.definition import Param, WorkflowFile
from em.workflows.inspection import (
    Rehearsed,
    RunView,
    StepView,
    WorkflowResult,
    as_mermaid,
    as_text,
    edges,
    rehearse,
)
from em.workflows.plan import Plan
from em.workflows.problems import refuse_invalid, validate_file
from em.workflows.runs import Workflows
from em.workflows.slices import Tokens
from em.workflows.to_routine import Frozen


@click.command("compile")
@click.argument("run_id", metavar="RUN")
@click.option("-o", "--output", required=True, metavar="DIR", help="Where to write the package.")
@click.option("--name", help="The routine's name.  [the workflow's]")
@click.option("--freeze", multiple=True, metavar="STEP", help="Freeze what this step said.")
@click.option("--yes", is_flag=True, help="Freeze whatever the model said, without a question.")
@click.option("--keep", is_flag=True, help="Keep it in the log too, to be run by its name.")
@with_tools
@everywhere
@click.pass_context
def compile_(
    ctx: click.Context,
    /,
    run_id: str,
    output: str,
    name: str | None,
    freeze: Sequence[str],
    yes: bool,
    keep: bool,
    tools: str | None,
) -> None:
    """Make a routine of RUN that needs no model.

    What a model said alike in several runs becomes a constant. For the rest you are asked; what you
    don't freeze becomes an input of the routine.
    """
    workflows = open_memory(ctx).workflows(None, load_tools(tools))
    ask = sys.stdin.isatty() and not ctx.obj["json"]

    def may_freeze(one: Frozen) -> bool:
        return yes or one.step in freeze or (ask and _ask_to_freeze(one))

    made = workflows.compile(run_id, may_freeze, name=name)
    unknown = sorted(set(freeze) - {one.step for one in made.frozen})
    if unknown:
        steps = [one.step for one in made.frozen]
        fix = closest(unknown[0], steps) or f"there are: {', '.join(steps) or 'none'}"
        raise UsageError(f"no model was asked by {unknown[0]!r}", place="--freeze", fix=fix)
    write_files(made.files, Path(output))
    ref = keep_routine(workflows.store, made.files, made.from_events).ref if keep else ""
    if ctx.obj["json"]:
        told = [msgspec.structs.replace(one, value=None) for one in made.frozen]
        print_json({"folder": output, "kept": ref, "inputs": made.inputs, "frozen": told})
        return
    for one in made.frozen:
        seen = f"the same in {one.alike} of {count(one.runs, 'run')}"
        what = "frozen" if one.frozen else f"an input, {one.name}"
        click.echo(f"{printable(one.step)}: {what} ({seen})")
    click.echo(f"written to {output}" + (f", kept as {ref}" if ref else ""), err=True)


def _ask_to_freeze(one: Frozen) -> bool:
    text = one.value if isinstance(one.value, str) else msgspec.json.encode(one.value).decode()
    click.echo(f"{printable(one.step)} said: {printable(text[:400])}", err=True)
    click.echo(f"the same in {one.alike} of {count(one.runs, 'run')}", err=True)
    if one.holds:
        click.echo(f"it holds the value of: {', '.join(one.holds)}", err=True)
    return click.confirm("Freeze it? Else it becomes an input", default=False, err=True)


LONGEST = 400
"""So much of a text is shown, unless all of it is asked for."""


def print_runs(workflows: Workflows, *, as_json: bool) -> None:
    """Every run, with what it holds."""
    runs = workflows.runs()
    if as_json:
        print_json({"runs": runs})
        return
    if not runs:
        click.echo("no workflow runs yet; `em workflow run` makes one", err=True)
        return
    rows = [
        (one.run_id, f"{one.began:%Y-%m-%d %H:%M:%S}", one.status, str(one.steps), one.workflow)
        for one in runs
    ]
    print_table(("run", "began", "status", "steps", "workflow"), rows)
    click.echo(f"{count(len(runs), 'run')}; see: em workflow inspect RUN", err=True)


def print_run(view: RunView, *, as_json: bool, full: bool) -> None:
    """What each step was given and left, with the tokens that naming it saved."""
    if as_json:
        print_json(view)
        return
    click.secho(f"{view.workflow}  {view.run_id}  {view.status}", bold=True)
    _field("prompt", view.prompt, full=full)
    _field("params", view.params or None, full=full)
    for step in view.steps:
        _print_step(step, full=full)
    click.echo()
    if view.failure is not None:
        click.echo(f"failed: {failure_lines(msgspec.structs.asdict(view.failure))[0]}")
    if view.pending_prompt is not None:
        click.echo(f"waits for an answer: {printable(view.pending_prompt.message)}")
    if view.status in ("running", "needs_input"):
        click.echo(f"  go on with: em workflow resume {view.run_id} {view.resume_with}".rstrip())
    if view.tokens.full:
        click.echo(f"tokens sent to models: {_tokens(view.tokens)}")


def _print_step(step: StepView, *, full: bool) -> None:
    took = f"  {step.duration_ms:.1f} ms" if step.duration_ms else ""
    tries = f", {step.attempts} attempts" if step.attempts > 1 else ""
    click.echo()
    click.secho(printable(step.name), bold=True, nl=False)
    click.echo(f"  {step.tool}  {step.status}{took}{tries}")
    _field("needs", ", ".join(step.needs) or None, full=True)
    _field("given", step.memory or None, full=full)
    _field("inputs", step.inputs or None, full=full)
    if step.status == "done":
        _field(step.classification, step.output, full=full)
    for saved in step.saved:
        _field(f"saved {saved['name']}", saved.get("output"), full=full)
    _field("error", step.error or None, full=True)
    for warning in step.warnings:
        _field("warning", warning, full=True)
    if step.tokens is not None:
        _field("tokens", _tokens(step.tokens), full=True)


def _tokens(tokens: Tokens) -> str:
    counted = "" if tokens.told is None else f" ({tokens.told:,} as the provider counts)"
    share = f", {tokens.saved / tokens.full:.0%} saved" if tokens.full > 0 else ""
    return f"about {tokens.sent:,}{counted}; with the full context {tokens.full:,}{share}"


def _field(name: str, value: Any, *, full: bool) -> None:
    if value is None:
        return
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if not full and len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text):,} characters; --full shows all)"
    lines = [printable(line) for line in text.split("\n")]
    click.echo(f"  {name}: " + ("\n" + " " * (len(name) + 4)).join(lines))


def print_rehearsed(steps: Sequence[Rehearsed], *, as_json: bool) -> None:
    """What each step would be called with."""
    if as_json:
        print_json({"steps": steps})
        return
    for step in steps:
        click.secho(printable(step.name), bold=True, nl=False)
        click.echo(f"  {step.tool}" + (f"  ({printable(step.note)})" if step.note else ""))
        _field("needs", ", ".join(step.needs) or None, full=True)
        _field("asks", step.asks or None, full=True)
        if isinstance(step.inputs, dict):
            for name, value in step.inputs.items():
                _field(name, value, full=True)
        else:
            _field("inputs", step.inputs, full=True)


F = TypeVar("F", bound=Callable[..., Any])


def _in_file(function: F) -> F:
    return click.option("-f", "--file", metavar="FILE", help="Where the workflows are.  [em.yaml]")(
        function
    )


@click.group("workflow", no_args_is_help=True)
@everywhere
def workflow() -> None:
    """Run workflows whose steps name the context they need, and look at what they got."""


workflow.add_command(enqueue)


@workflow.command("list")
@_in_file
@everywhere
@click.pass_context
def list_(ctx: click.Context, file: str | None) -> None:
    """The workflows of em.yaml, or of a file."""
    source = WorkflowFile(file)
    found = [source.workflow(name) for name in source.values()]
    if ctx.obj["json"]:
        rows = [
            {
                "name": one.name,
                "description": one.description,
                "params": [_param(param) for param in one.parameters],
                "steps": [step.name for step in one.steps],
            }
            for one in found
        ]
        print_json({"workflows": rows})
    elif found:
        lines = [
            (
                one.name,
                ", ".join(map(_param_text, one.parameters)),
                str(len(one.steps)),
                one.description,
            )
            for one in found
        ]
        print_table(("workflow", "params", "steps", "description"), lines)
    else:
        where = file or "em.yaml"
        click.echo(f"no workflows in {where}; write them under `workflows:`", err=True)


def _param(param: Param) -> dict[str, Any]:
    told: dict[str, Any] = {"name": param.name, "required": param.is_required}
    if not param.is_required:
        told["default"] = param.default
    if param.type is not None:
        told["type"] = param.type
    return told


def _param_text(param: Param) -> str:
    return param.name if param.is_required else f"{param.name}={param.default}"


@workflow.command("run")
@click.argument("name")
@click.option("-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@click.option("--params", "params_file", metavar="FILE", help="Parameters, as JSON; - for stdin.")
@click.option("--prompt", help="What started it; else the first required parameter.")
@click.option("--dry-run", is_flag=True, help="Only show what each step would be called with.")
@click.option("--run-id", help="Go on with this run if it is there; else begin it.")
@_in_file
@with_tools
@answering
@everywhere
@click.pass_context
def run(
    ctx: click.Context,
    /,
    name: str,
    params: Sequence[str],
    params_file: str | None,
    prompt: str | None,
    dry_run: bool,
    run_id: str | None,
    **shared: Any,
) -> int:
    """Run the workflow NAME. Every step is journalled; `em workflow resume` goes on with it."""
    given = {**(read_object(params_file) if params_file else {}), **pairs(params)}
    answers, yes = shared.pop("answers"), shared.pop("yes")
    file = shared.pop("file")
    if dry_run:
        tools = load_tools(shared["tools"]) or ToolRegistry()
        steps = rehearse(WorkflowFile(file), name, tools, given, prompt)
        print_rehearsed(steps, as_json=ctx.obj["json"])
        return 0
    workflows = _workflows(ctx, file, shared, create=True)
    options = as_typed(shared)
    run_id = run_id or new_id()

    def go(said: dict[str, Any], watcher: Watcher) -> WorkflowResult:
        return workflows.start(
            name,
            given,
            prompt=prompt,
            run_id=run_id,
            answers=said,
            on_step=watcher.ended,
            on_start=watcher.began,
            resume_with=options,
        )

    said = read_object(answers) if answers else {}
    return _converse(ctx, workflows, run_id, go, said, options, yes=yes)


@workflow.command("resume")
@click.argument("run_id", metavar="RUN")
@click.option("--retry", is_flag=True, help="A run that failed goes on at the step that failed.")
@click.option("--params", "params_file", metavar="FILE", help="The same again, if it held secrets.")
@click.option("--prompt", help="The same again, if it held secrets.")
@with_tools
@answering
@everywhere
@click.pass_context
def resume(
    ctx: click.Context,
    /,
    run_id: str,
    retry: bool,
    params_file: str | None,
    prompt: str | None,
    **shared: Any,
) -> int:
    """Go on with RUN, which was interrupted or waits for an answer.

    No completed step runs again. A step with an effect that was under way is asked about.
    """
    answers, yes = shared.pop("answers"), shared.pop("yes")
    workflows = _workflows(ctx, None, shared)
    again: dict[str, Any] = {"retry": retry, "prompt": prompt}
    if params_file:
        again["params"] = read_object(params_file)
    go = _going_on(workflows, run_id, **again)
    said = read_object(answers) if answers else {}
    return _converse(ctx, workflows, run_id, go, said, as_typed(shared), yes=yes)


@workflow.command("inspect")
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--recent", is_flag=True, help="The newest run.")
@click.option("--all", "every", is_flag=True, help="All runs, with what they hold.")
@click.option("--full", is_flag=True, help="Texts as they are, not cut.")
@everywhere
@click.pass_context
def inspect(ctx: click.Context, run_id: str | None, recent: bool, every: bool, full: bool) -> None:
    """What each step of RUN was given and left, and what the whole context would have cost."""
    if sum((run_id is not None, recent, every)) > 1:
        raise UsageError("name a run, or --recent, or --all", place="inspect")
    workflows = _workflows(ctx)
    if run_id is None and not recent:
        print_runs(workflows, as_json=ctx.obj["json"])
        return
    if run_id is None:
        newest = workflows.runs(limit=1)
        if not newest:
            raise NotFound("there are no workflow runs yet", fix="`em workflow run` makes one")
        run_id = newest[0].run_id
    print_run(workflows.inspect(run_id), as_json=ctx.obj["json"], full=full)


@workflow.command("cleanup")
@click.option("--older-than", default="30d", show_default=True, metavar="AGE", help="As 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Only say what would be erased.")
@everywhere
@click.pass_context
def cleanup(ctx: click.Context, older_than: str, dry_run: bool) -> None:
    """Erase what old, finished runs left, unless something refers to it; says what it erased."""
    age = parse_duration(older_than, "--older-than", bare_unit="d")
    done = _workflows(ctx).cleanup(age / timedelta(days=1), dry_run=dry_run)
    if ctx.obj["json"]:
        print_json(done)
        return
    for run_id in done.runs:
        click.echo(run_id)
    for run_id, why in done.left.items():
        click.echo(f"{run_id} stays: {why}", err=True)
    what = "would be erased" if dry_run else "erased"
    click.echo(
        f"{what}: {count(len(done.runs), 'run')}, {done.events:,} entries, {done.bytes:,} bytes",
        err=True,
    )
    if not done.scrubbed:
        click.echo("erased, not yet scrubbed: a reader is in the way", err=True)


@workflow.command("validate")
@click.argument("name", required=False)
@_in_file
@with_tools
@everywhere
@click.pass_context
def validate(ctx: click.Context, name: str | None, file: str | None, tools: str | None) -> int:
    """List everything that is wrong with the workflows, each with its file and line."""
    problems = validate_file(WorkflowFile(file), name, load_tools(tools))
    errors = sum(problem.severity == "error" for problem in problems)
    if ctx.obj["json"]:
        print_json({"ok": not errors, "problems": problems})
        return 1 if errors else 0
    for problem in problems:
        click.echo(printable(str(problem)), err=not errors)
    if errors:
        click.secho(count(errors, "problem"), fg="red", err=True)
    else:
        click.secho("valid", fg="green")
    return 1 if errors else 0


@workflow.command("graph")
@click.argument("name")
@click.option("--mermaid", is_flag=True, help="As a Mermaid flow chart.")
@_in_file
@everywhere
@click.pass_context
def graph(ctx: click.Context, name: str, mermaid: bool, file: str | None) -> None:
    """Which step of the workflow NAME gets what from which."""
    source = WorkflowFile(file)
    workflow = source.workflow(name)
    refuse_invalid(workflow, None, source.place)
    plan = Plan(workflow)
    if ctx.obj["json"]:
        print_json({"edges": [{"from": a, "to": b, "why": why} for a, b, why in edges(plan)]})
    else:
        click.echo(_printable_lines(as_mermaid(plan) if mermaid else as_text(plan)))


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _workflows(
    ctx: click.Context,
    file: str | None = None,
    shared: Mapping[str, Any] | None = None,
    *,
    create: bool = False,
) -> Workflows:
    shared = shared or {}
    memory = open_memory(ctx, create=create)
    allow = allowed(Path("/"), shared) if shared else None
    return memory.workflows(file, load_tools(shared.get("tools")), allow=allow)


Go = Callable[[dict[str, Any], Watcher], WorkflowResult]


def _converse(
    ctx: click.Context,
    workflows: Workflows,
    run_id: str,
    go: Go,
    given: dict[str, Any],
    options: str,
    *,
    yes: bool,
) -> int:
    """Run, ask what there is to ask, and go on."""
    as_json = ctx.obj["json"]
    while True:
        try:
            with only_results_on_stdout(), watching(wanted=not as_json) as watcher:
                result = go(given, watcher)
            prompt = result.pending_prompt
            ask = sys.stdin.isatty() and not as_json
            said = None if prompt is None else answer(prompt, yes=yes, ask=ask)
        except (KeyboardInterrupt, click.Abort):
            return _interrupted(workflows, run_id, options)
        if prompt is None or said is None:
            break
        given = {prompt.step_id: said}
    return _print(result, options, as_json=as_json)


def _going_on(workflows: Workflows, run_id: str, **again: Any) -> Go:
    def go(given: dict[str, Any], watcher: Watcher) -> WorkflowResult:
        return workflows.resume(
            run_id,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
            **again,
        )

    return go


def _how(run_id: str, options: str) -> str:
    return f"em workflow resume {run_id} {options}".rstrip()


def _interrupted(workflows: Workflows, run_id: str, options: str) -> int:
    click.echo("interrupted", err=True)
    with suppress(NotFound):
        workflows.result(run_id)
        click.echo(f"  go on with: {_how(run_id, options)}", err=True)
    return 130


def _print(result: WorkflowResult, options: str, *, as_json: bool) -> int:
    """The output, or why there is none; the exit code."""
    if as_json:
        print_json(result)
        return 0 if result.status == "ok" else 1
    for warning in result.warnings:
        click.echo(click.style("warning: ", fg="yellow") + printable(warning), err=True)
    if result.failure is not None:
        why, _ = failure_lines(msgspec.structs.asdict(result.failure))
        click.secho("failed", fg="red", nl=False, err=True)
        click.echo(f": {why}", err=True)
        click.echo(f"  look at it: em workflow inspect {result.run_id}", err=True)
        click.echo(f"  try again from there: {_how(result.run_id, options)} --retry", err=True)
    elif result.pending_prompt is not None:
        click.echo(f"waits for an answer: {printable(result.pending_prompt.message)}", err=True)
        if result.pending_prompt.problem:
            click.echo(f"  not taken: {printable(result.pending_prompt.problem)}", err=True)
        step = result.pending_prompt.step_id
        fields = ", ".join(f'"{field["name"]}": …' for field in result.pending_prompt.fields)
        again = f"{_how(result.run_id, options)} --answers FILE"
        click.echo(f'  try: {again} with {{"{step}": {{{fields}}}}}, or --yes', err=True)
    elif isinstance(result.output, str):
        click.echo(result.output)
    else:
        print_json(result.output)
    if result.status == "ok" and sys.stderr.isatty():
        click.echo(f"run {result.run_id}; see: em workflow inspect --recent", err=True)
    return 0 if result.status == "ok" else 1


workflow.add_command(compile_)
