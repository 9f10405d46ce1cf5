"""`em routine shadow`: how routines would have done beside the agents that were recorded."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from em.cli.command import command
from em.cli.options import limited, open_memory
from em.cli.output import count, emit, note, print_table, printable
from em.compiler.shadow import Comparison, EffectMade, ShadowReport
from em.errors import NotFound

_NAMES = {
    "agreed": "agreed",
    "differed": "differed",
    "handed_over": "would hand over",
    "not_compared": "not compared",
}


@command("shadow")
@click.argument("routine", metavar="[NAME[@VERSION]]", required=False)
@limited(20)
def shadow(routine: str | None, limit: int) -> None:
    """Count how often routines agreed with the agents beside which they were compared.

    With NAME, show where it differed or would have handed over, newest first.
    `memory.record(shadow=True)` compares. `em routine accept` puts a proposed routine in use, and
    `em routine show` says how it did until then.
    """
    reports = open_memory().shadow_report(routine)
    if routine is not None:
        if not reports:
            fix = "`em routine shadow` lists what was compared"
            raise NotFound(f"nothing was compared with {routine!r}", place="routine", fix=fix)
        emit({"routines": [_told(one, limit) for one in reports]}, lambda: _print(reports, limit))
        return

    def text() -> None:
        if reports:
            print_table(
                ("routine", *_NAMES.values(), "in a row", "last difference"), map(_row, reports)
            )
        else:
            note("nothing was compared yet; record agents with memory.record(shadow=True)")

    emit({"routines": [_summary(one) for one in reports]}, text)


def _row(report: ShadowReport) -> Sequence[str]:
    last = report.last_difference
    counts = [str(getattr(report, name)) for name in _NAMES]
    told = "" if last is None else f"{last.at:%Y-%m-%d %H:%M} {last.reason}"
    return report.routine, *counts, str(report.in_a_row), told


def _summary(report: ShadowReport) -> dict[str, Any]:
    summary: dict[str, Any] = msgspec.to_builtins(report)
    del summary["comparisons"]
    return summary


def _worth_telling(report: ShadowReport, limit: int) -> list[Comparison]:
    told = [one for one in report.comparisons if one.verdict != "agreed"]
    return told[::-1][:limit]


def _told(report: ShadowReport, limit: int) -> dict[str, Any]:
    comparisons = msgspec.to_builtins(_worth_telling(report, limit))
    return {**_summary(report), "comparisons": comparisons}


def _print(reports: Sequence[ShadowReport], limit: int) -> None:
    for report in reports:
        counts = ", ".join(f"{words} {getattr(report, name)}" for name, words in _NAMES.items())
        click.echo(printable(f"{report.routine}: {counts}; {report.in_a_row} in a row"))
        for one in _worth_telling(report, limit):
            trace = f"  (trace {one.trace})" if one.trace else ""
            told = f"{_NAMES[one.verdict]}: {one.reason}{trace}"
            click.echo(printable(f"  {one.at:%Y-%m-%d %H:%M:%S} {told}"))
            _print_calls("em", one.would_do)
            _print_calls("the agent", one.did)
        left = sum(one.verdict != "agreed" for one in report.comparisons) - limit
        if left > 0:
            note(f"  … {count(left, 'older one')}; -n shows more")


def _print_calls(who: str, calls: Sequence[EffectMade]) -> None:
    for call in calls:
        args = msgspec.json.encode(call.args).decode()
        click.echo(printable(f"    {who}: {call.tool} {args}"))
