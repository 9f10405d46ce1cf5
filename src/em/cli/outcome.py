"""What is printed when a run ends, or stops."""

import sys
from contextlib import suppress
from typing import Any

import click
import msgspec

from em.cli.output import print_json, printable
from em.errors import NotFound, UsageError
from em.memory import Memory
from em.models.run import RunResult
from em.runner.journal import read_run


def print_outcome(memory: Memory | None, result: RunResult, *, as_json: bool) -> int:
    """The result, and to who looks on what it saved; the exit code."""
    looked_at = as_json or (sys.stderr.isatty() and result.status == "ok")
    past = read_run(memory.store, result.run_id) if memory and looked_at else None
    saved = None
    if memory is not None and past is not None:
        from em.cli.saved import print_saved, saved_as_json

        saved = saved_as_json(memory.store, past) if as_json else None
    try:
        if as_json:
            print_json({**msgspec.structs.asdict(result), "saved": saved})
        else:
            _print(result, journalled=memory is not None)
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


def print_interrupted(memory: Memory | None, run_id: str) -> int:
    """Say how to go on, if the journal has anything to go on from; the exit code."""
    click.echo("interrupted", err=True)
    if memory is not None:
        with suppress(NotFound):
            read_run(memory.store, run_id)
            click.echo(f"  go on with: em resume {run_id}", err=True)
    return 130


def _print(result: RunResult, *, journalled: bool) -> None:
    if result.failure is not None:
        failure = result.failure
        place = f"step {failure.step_id}: " if failure.step_id else ""
        click.secho("failed", fg="red", nl=False, err=True)
        click.echo(f": {place}{failure.error_type}: {printable(failure.message)}", err=True)
    elif result.pending_prompt is not None:
        click.echo(f"waits for an answer: {printable(result.pending_prompt.message)}", err=True)
        again = f"em resume {result.run_id} --answers FILE" if journalled else "--answers FILE"
        click.echo(f"  try: {again}, or --yes", err=True)
    else:
        print_json(result.output)


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except TypeError:
        return False
    return True
