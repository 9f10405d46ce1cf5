"""How runs of workflows are shown."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from em.cli.outcome import failure_lines
from em.cli.output import count, print_json, print_table, printable
from em.workflows.inspection import Rehearsed, RunView, StepView
from em.workflows.runs import Workflows
from em.workflows.slices import Tokens

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
        click.echo(f"tokens sent to models: {_told(view.tokens)}")


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
        _field("tokens", _told(step.tokens), full=True)


def _told(tokens: Tokens) -> str:
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
