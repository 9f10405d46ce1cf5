"""What is printed when a run ends, or stops."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click
import msgspec

from em.cli.output import print_json, printable
from em.errors import NotFound, UsageError
from em.memory import Memory
from em.runner.journal import how_to_resume, read_run
from em.runner.run import RunResult


def print_outcome(
    memory: Memory | None, result: RunResult, options: str = "", *, as_json: bool
) -> int:
    """The result, and to who looks on what it saved; the exit code."""
    looked_at = result.status == "ok" and (as_json or sys.stderr.isatty())
    past = read_run(memory.store, result.run_id) if memory and looked_at else None
    saved = None
    if memory is not None and past is not None:
        from em.cli.savings import print_saved, saved_as_json

        saved = saved_as_json(memory.store, past) if as_json else None
    try:
        if as_json:
            print_json({**msgspec.structs.asdict(result), "saved": saved})
        else:
            _print_fixes(result)
            _print(result, options, journalled=memory is not None)
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


def _print(result: RunResult, options: str, *, journalled: bool) -> None:
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
