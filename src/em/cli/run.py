"""`em run` and `em resume`: run a routine, and go on with a run."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from em.cli.options import (
    allowed,
    answering,
    as_typed,
    everywhere,
    find_package,
    open_memory,
    read_object,
)
from em.cli.output import count, only_results_on_stdout, print_json, print_table, printable
from em.errors import EmError, NotFound, UsageError
from em.memory import Memory
from em.runner.answers import Field, fields_of, json_or_text
from em.runner.engine import resume_run, run_routine
from em.runner.history import PastRun, find_runs, read_run, savings
from em.runner.journal import how_to_resume
from em.runner.machine import AutoFix
from em.runner.package import Package
from em.runner.routine import ToolSpec
from em.runner.run import PendingPrompt, RunResult, StepReport
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.settings import Settings
from em.store.protocol import Store
from em.values.ids import new_id

if TYPE_CHECKING:
    from rich.progress import Progress


def answer(prompt: PendingPrompt, *, yes: bool, ask: bool) -> dict[str, Any] | None:
    """What a person says to a prompt; None where nobody can be asked."""
    fields = fields_of(prompt.fields)
    if yes and all(field.type == "confirm" for field in fields):
        return {field.name: True for field in fields}
    if not ask:
        return None
    click.echo(printable(prompt.message), err=True)
    if prompt.problem:
        click.echo(f"not taken: {printable(prompt.problem)}", err=True)
    return {field.name: _ask(field) for field in fields}


def _ask(field: Field) -> Any:
    label = printable(field.label)
    default, kind = field.default, field.type
    if kind == "confirm":
        return click.confirm(label, default=bool(default), err=True)
    if kind == "select":
        choice = click.Choice(field.option_texts)
        return click.prompt(label, type=choice, default=default, err=True)
    if kind == "multiselect":
        return _ask_several(field, label)
    types: dict[str, Any] = {"number": float, "integer": int, "json": json_or_text}
    if default is None and not field.required:
        # Nothing is an answer too.
        read = types.get(kind, str)
        return click.prompt(
            f"{label} (may be left empty)",
            value_proc=lambda text: _converted(read, text) if text else None,
            default="",
            show_default=False,
            err=True,
            hide_input=kind == "secret",
        )
    return click.prompt(
        label, type=types.get(kind, str), default=default, err=True, hide_input=kind == "secret"
    )


def _ask_several(field: Field, label: str) -> list[str]:
    options = ", ".join(map(printable, field.option_texts))
    while True:
        text = click.prompt(
            f"{label} (several of: {options}; with commas)",
            default=", ".join(str(each) for each in field.default or ()),
            show_default=bool(field.default),
            err=True,
        )
        several = [part.strip() for part in text.split(",") if part.strip()]
        if several or not field.required:
            return several
        click.echo("at least one is required", err=True)


def _converted(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not what is asked for") from None


SIGNS = {
    "done": ("✓", "green"),
    "skipped": ("-", "dim"),
    "failed": ("✗", "red"),
    "defaulted": ("!", "yellow"),
}


class Watcher:
    """Is told of each step when it begins and when it is over; here, it does not care."""

    def began(self, step_id: str) -> None:
        """A step begins."""

    def ended(self, report: StepReport) -> None:
        """A step is over, or one item of it."""


class _Live(Watcher):
    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)
        self._since = time.perf_counter()

    def began(self, step_id: str) -> None:
        self._bar.reset(self._task, description=printable(step_id))

    def ended(self, report: StepReport) -> None:
        from rich.text import Text

        sign, style = SIGNS[report.status]
        line = Text.assemble((sign, style), f" {printable(report.id)}  ", (_times(report), "dim"))
        if report.error:
            line.append(f"  {printable(report.error)}", style)
        self._bar.console.print(line, soft_wrap=True, highlight=False)


def _times(report: StepReport) -> str:
    if report.status == "skipped":
        return "skipped"
    tries = f", {report.attempts} attempts" if report.attempts > 1 else ""
    return f"{report.duration_ms:.1f} ms{tries}"


@contextmanager
def watching(*, wanted: bool) -> Iterator[Watcher]:
    """Watch a run; nothing is shown unless it is wanted and standard error is a terminal."""
    if not wanted or not sys.stderr.isatty():
        yield Watcher()
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # Transient: when it is over, also by Ctrl-C, only the finished steps are left standing.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Live(bar)


def print_plan(package: Package, *, as_json: bool) -> None:
    """The steps of a routine, with nothing run and no secret filled in."""
    kinds = [str(type(step).__struct_config__.tag) for step in package.routine.steps]
    specs = {name: package.routine.says_how(name) for name in package.program.tool_names}
    how = {name: _how(spec) for name, spec in specs.items() if spec is not None}
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
    secrets = {secret.name: secret.variable for secret in package.routine.secrets}
    if as_json:
        steps = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"steps": steps, "secrets": secrets})
        return
    print_table(columns, rows)
    for name, variable in secrets.items():
        is_set = "set" if os.environ.get(variable) else "not set"
        click.echo(f"secret {name} from {variable}, which is {is_set}")


def _how(tool: ToolSpec) -> str:
    """What a declared tool would do: as it is written, so that no secret is filled in."""
    if tool.command is not None:
        return shlex.join(tool.command).replace("'{{", "{{").replace("}}'", "}}")
    if tool.http is not None:
        return f"{tool.http.method} {tool.http.url.partition('?')[0]}"
    if tool.mcp is not None:
        server = shlex.join(tool.mcp.command) if tool.mcp.command else tool.mcp.url
        return f"{tool.tool_of_server} of {server.partition('?')[0]}"
    return ""


def saved_as_json(store: Store, past: PastRun) -> dict[str, Any]:
    """Each figure with the agent's, this run's and the difference; null where not recorded."""
    return {
        row.what.replace(" ", "_"): {"agent": row.agent, "run": row.run, "saved": row.saved}
        for row in savings(store, past)
    }


def print_saved(store: Store, past: PastRun, *, err: bool = False) -> None:
    """A table of the same."""
    rows = [
        (row.what, *(_figure(row.what, value) for value in (row.agent, row.run, row.saved)))
        for row in savings(store, past)
    ]
    columns = ("", "the agent", "this run", "saved")
    if not err:
        print_table(columns, rows)
        return
    for row in (columns, *rows):
        click.echo("  ".join(f"{cell:<12}" for cell in row).rstrip(), err=True)


def _figure(what: str, value: float | None) -> str:
    if value is None:
        return "not recorded"
    if what == "seconds":
        return f"{value:,.3f}"
    return f"{value:,.4f}" if what == "cost_usd" else f"{value:,.0f}"


def print_outcome(
    memory: Memory | None, result: RunResult, options: str = "", *, as_json: bool
) -> int:
    """The result, and to who looks on what it saved; the exit code."""
    looked_at = result.status == "ok" and (as_json or sys.stderr.isatty())
    past = read_run(memory.store, result.run_id) if memory and looked_at else None
    saved = None
    if memory is not None and past is not None:
        saved = saved_as_json(memory.store, past) if as_json else None
    try:
        if as_json:
            print_json({**msgspec.structs.asdict(result), "saved": saved})
        else:
            _print_fixes(result)
            _print_result(result, options, journalled=memory is not None)
    except TypeError as error:
        odd = [name for name, value in result.context.items() if not _is_json(value)]
        raise UsageError(
            f"the output can't be written as JSON: {error}",
            place=f"what is saved as {odd[0]!r}" if odd else "",
            fix="let the tool return plain values (numbers, texts, lists, mappings)",
        ) from None
    if memory is not None and past is not None and not as_json:
        print_saved(memory.store, past, err=True)
    return 0 if result.status == "ok" else 1


def print_interrupted(memory: Memory | None, run_id: str, options: str = "") -> int:
    """Say how to go on, if the journal has anything to go on from; the exit code."""
    click.echo("interrupted", err=True)
    if memory is not None:
        with suppress(NotFound):
            read_run(memory.store, run_id)
            click.echo(f"  go on with: {how_to_resume(run_id, options)}", err=True)
    return 130


def _print_fixes(result: RunResult) -> None:
    """What a model changed is never silent."""
    for step in result.steps:
        if step.fix is None:
            continue
        if step.fix["strategy"] == "skip":
            did = f"skipped, with {shown(step.fix.get('default'))}"
        else:
            did = f"called again with {shown(step.fix.get('args'))}"
        reason = f" ({printable(step.fix['reason'])})" if step.fix.get("reason") else ""
        click.echo(f"fixed: step {step.id} {did}{reason}", err=True)


def failure_lines(failure: Mapping[str, Any]) -> tuple[str, str]:
    """Which step failed and why; and what whoever was asked for a fix said, if anything."""
    place = f"step {failure['step_id']}: " if failure.get("step_id") else ""
    said = (failure.get("context") or {}).get("fix") or ""
    return (
        f"{place}{failure['error_type']}: {printable(failure['message'])}",
        f"  no fix: {printable(str(said))}" if said else "",
    )


def shown(value: Any) -> str:
    """A value on one line."""
    return printable(msgspec.json.encode(value).decode())[:400]


def _print_result(result: RunResult, options: str, *, journalled: bool) -> None:
    if result.failure is not None:
        why, said = failure_lines(msgspec.structs.asdict(result.failure))
        click.secho("failed", fg="red", nl=False, err=True)
        click.echo(f": {why}", err=True)
        if said:
            click.echo(said, err=True)
    elif result.pending_prompt is not None:
        click.echo(f"waits for an answer: {printable(result.pending_prompt.message)}", err=True)
        if result.pending_prompt.problem:
            click.echo(f"  not taken: {printable(result.pending_prompt.problem)}", err=True)
        again = f"{how_to_resume(result.run_id, options)} " if journalled else ""
        again += "--answers FILE"
        click.echo(f"  try: {again}, or --yes", err=True)
    else:
        print_json(result.output)


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except TypeError:
        return False
    return True


F = TypeVar("F", bound=Callable[..., Any])
Go = Callable[[dict[str, Any], Watcher], RunResult]


def _shared(function: F) -> F:
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
        function = option(function)
    return function


@click.command("run")
@click.argument("routine")
@click.option("--input", "input_file", metavar="FILE", help="The input, as JSON; - for stdin.")
@click.option("--no-journal", is_flag=True, help="Keep nothing; such a run can't be resumed.")
@click.option("--dry-run", is_flag=True, help="Only say which steps there are and what they call.")
@_shared
@everywhere
@click.pass_context
def run(
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
        run_id = new_id()

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


@click.group("runs", no_args_is_help=True)
@everywhere
def runs() -> None:
    """Look at past runs of routines."""


@runs.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@everywhere
@click.pass_context
def list_runs(ctx: click.Context, limit: int) -> None:
    """The newest runs, with what became of them."""
    store = open_memory(ctx).store
    found = [_run_as_json(run) for run in reversed(find_runs(store, limit=limit).runs)]
    if ctx.obj["json"]:
        print_json({"runs": found})
    elif found:
        columns = ("run", "began", "status", "steps", "routine")
        print_table(columns, [tuple(str(run[name]) for name in columns) for run in found])
    else:
        click.echo("no runs yet; `em run` makes one", err=True)


def _run_as_json(run: PastRun) -> dict[str, Any]:
    return {
        "run": run.run_id,
        "began": run.began.strftime("%Y-%m-%d %H:%M:%S"),
        "status": run.status,
        "steps": run.step_count,
        "routine": run.routine,
    }


@runs.command("show")
@click.argument("run_id", metavar="RUN")
@everywhere
@click.pass_context
def show_run(ctx: click.Context, run_id: str) -> None:
    """One run: its steps with their times, how it ended, and what it saved."""
    store = open_memory(ctx).store
    past = read_run(store, run_id)
    steps = [step.body for step in past.steps]
    if ctx.obj["json"]:
        print_json(
            {
                "run": run_id,
                "status": past.status,
                "input": past.input,
                "steps": steps,
                "end": past.end,
                "saved": saved_as_json(store, past) if past.status == "ok" else None,
            }
        )
        return
    rows = [
        (
            str(step["step"]) + ("" if step.get("item") is None else f"[{step['item']}]"),
            str(step.get("status", "")),
            f"{step.get('duration_ms', 0):.1f}",
            str(step.get("attempts", "")),
            str(step.get("error") or msgspec.json.encode(step.get("result")).decode())[:400],
        )
        for step in steps
    ]
    if rows:
        print_table(("step", "status", "ms", "attempts", "result"), rows)
    failure = past.failure
    for step, item in sorted(past.restored.in_flight, key=str):
        if failure and failure["step_id"] == step:
            continue
        click.echo(f"under way when it stopped: {step}" + ("" if item is None else f"[{item}]"))
    click.echo(f"{past.status}: {count(len(steps), 'step')} in {past.folder or past.stored}")
    for line in failure_lines(failure) if failure else ():
        if line:
            click.echo(line)
    if past.status == "ok":
        click.echo()
        print_saved(store, past)
    if past.status == "ok" and any(step.get("fix") for step in steps):
        _propose(ctx, run_id)
    if past.status in ("running", "needs_input"):
        click.echo(f"  go on with: {how_to_resume(run_id, past.resume_with)}", err=True)


def _propose(ctx: click.Context, run_id: str) -> None:
    """How the routine would do without the fixes of this run."""
    from em.cli.routine import print_healing

    try:
        healing = open_memory(ctx).heal(run_id, dry_run=True)
    except EmError as error:
        click.echo(f"the fixes of this run can't be made a part of the routine: {error}")
        return
    click.echo("\nthe fixes of this run, as a change of the routine:")
    print_healing(healing, run_id)
