"""Work that was queued: waiting for it with a bar, and telling what became of it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec

from em.cli.files import reading
from em.cli.output import Advance, count, print_json, printable, progress
from em.errors import InputError, StoreUnreachable

if TYPE_CHECKING:
    from em.work.queue import Queue

EVERY = 0.5
PATIENCE = 5.0
"""Seconds without a worker before that is told."""
SHOWN = 20


def tell_queued(
    queue: "Queue", jobs: Sequence[str], what: str, *, wait: bool, as_json: bool
) -> int:
    """Say what was queued; with `wait`, what became of it."""
    if wait:
        return _follow(queue, jobs, what, as_json=as_json)
    if as_json:
        print_json({"jobs": jobs, "runs": queue.runs(jobs)})
        return 0
    for job in jobs[:SHOWN]:
        click.echo(job)
    if len(jobs) > SHOWN:
        click.echo(f"and {len(jobs) - SHOWN:,} more", err=True)
    there = len(queue.workers())
    click.echo(
        f"queued: {count(len(jobs), 'job')}; "
        + (f"{count(there, 'worker')} there" if there else "no worker is there: start `em worker`"),
        err=True,
    )
    return 0


def _follow(queue: "Queue", jobs: Sequence[str], what: str, *, as_json: bool) -> int:
    """Wait for jobs, and print their report. Exit code 1 if something failed."""
    try:
        with progress(what, len(jobs)) as advance:
            _wait(queue, jobs, advance)
    except KeyboardInterrupt:
        click.echo("it goes on without you: `em queue list` shows how far it is", err=True)
        return 130
    report = queue.reports(jobs)
    if as_json:
        print_json({"done": report.done, "waiting": report.waiting, "failed": report.failed})
    else:
        click.echo(f"{report.done:,} done")
        _tell("waiting", report.waiting)
        _tell("failed", report.failed)
    return 1 if report.failed else 0


def _wait(queue: "Queue", jobs: Sequence[str], advance: Advance) -> None:
    alone = time.monotonic()
    told = False
    over = 0
    while over < len(jobs):
        try:
            counts = queue.counts(jobs)
        except StoreUnreachable:  # it is waited for as the jobs are
            time.sleep(EVERY)
            continue
        advance(counts.over - over)
        over = counts.over
        if counts.workers:
            alone, told = time.monotonic(), False
        elif not told and time.monotonic() - alone > PATIENCE:
            click.echo("no worker is there: start `em worker`, here or elsewhere", err=True)
            told = True
        if over < len(jobs):
            time.sleep(EVERY)


def _tell(title: str, found: Mapping[str, str]) -> None:
    for name, why in islice(found.items(), SHOWN):
        click.echo(f"{title}: {printable(name)}: {printable(why)}", err=True)
    if len(found) > SHOWN:
        click.echo(f"{title}: and {len(found) - SHOWN:,} more", err=True)


def read_lines_of_json(file: str) -> Iterator[dict[str, Any]]:
    """The objects of a file, one in each line."""
    with reading(file) as (source, name):
        for number, line in enumerate(source, 1):
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                place = f"{name}:{number}"
                raise InputError(f"this is no JSON object: {error}", place=place) from None
