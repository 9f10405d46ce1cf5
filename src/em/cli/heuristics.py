"""`em heuristics`: look after the lessons in a memory."""

from itertools import islice
from typing import Any

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, print_table, printable
from em.heuristics.heuristic import Heuristic
from em.traces.trace import Outcome


@click.group("heuristics", no_args_is_help=True)
@everywhere
def command() -> None:
    """Look after the lessons in a memory."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--retired", is_flag=True, help="Also those that are out of use.")
@everywhere
@click.pass_context
def list_(ctx: click.Context, limit: int, retired: bool) -> None:
    """The lessons, with how often they were learned and how their runs went."""
    book = open_memory(ctx).heuristics
    found = list(islice(book.every(retired=retired), limit))
    against = {one.id: [c.other.id for c in book.contradictions(one)] for one in found}
    if ctx.obj["json"]:
        rows = [{**as_json(one), "contradicts": against[one.id]} for one in found]
        print_json({"heuristics": rows})
    elif found:
        columns = ("id", "how", "learned", "went well", "state", "when, do")
        print_table(columns, [_row(one, against[one.id]) for one in found], may_go=("how",))
    else:
        click.echo("no heuristics yet; `em reflect --store` makes them", err=True)


def _row(one: Heuristic, against: list[str]) -> tuple[str, ...]:
    use, lesson = one.use, one.lesson
    state = "retired" if one.retired else "contradicted" if against else "in use"
    went = f"{use.helped} of {use.helped + use.hindered}" if use.used else "not used"
    text = f"{lesson.trigger}: {lesson.action}"
    return (one.id, lesson.how, str(use.learned), went, state, text)


def as_json(one: Heuristic) -> dict[str, Any]:
    """A heuristic as JSON."""
    return {
        "id": one.id,
        "lesson": one.lesson,
        "use": one.use,
        "at": one.at,
        "retired": one.retired,
    }


@command.command("show")
@click.argument("heuristic_id", metavar="ID")
@everywhere
@click.pass_context
def show(ctx: click.Context, heuristic_id: str) -> None:
    """One lesson, with all its evidence and with those that contradict it."""
    book = open_memory(ctx).heuristics
    one = book.get(heuristic_id)
    evidence = [lesson.evidence for lesson in book.evidence(heuristic_id)]
    against = [contradiction.other for contradiction in book.contradictions(one)]
    if ctx.obj["json"]:
        told = {"evidence": evidence, "contradicts": [as_json(other) for other in against]}
        print_json({**as_json(one), **told})
        return
    _print_lesson(one)
    click.echo(f"learned {count(one.use.learned, 'time')}:")
    for shown in evidence:
        click.echo(f"  trace {shown.trace or '(none)'}: {printable(shown.note)}")
        for name, ids in (("failed", shown.failed), ("worked", shown.worked)):
            if ids:
                click.echo(f"    {name}: {', '.join(ids)}")
    for other in against:
        click.secho("contradicted by", bold=True)
        _print_lesson(other)


def _print_lesson(one: Heuristic) -> None:
    lesson, use = one.lesson, one.use
    click.secho(f"{one.id}{'  (retired)' if one.retired else ''}", bold=True)
    told = {
        "when": lesson.trigger,
        "do": lesson.action,
        "because": lesson.analysis,
        "from": f"{lesson.how}, a {lesson.polarity}",
        "tools": ", ".join(lesson.tools),
        "subject": lesson.subject or "",
        "task": lesson.source_task,
        "use": f"learned {use.learned}, handed out {use.used},"
        f" went well {use.helped}, went wrong {use.hindered}",
    }
    for name, text in told.items():
        if text:
            click.echo(f"  {name:<8}{printable(text)}")


@command.command("retire")
@click.argument("heuristic_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; kept with it.")
@everywhere
@click.pass_context
def retire(ctx: click.Context, heuristic_ids: tuple[str, ...], reason: str) -> None:
    """Take lessons out of use. Their history stays."""
    book = open_memory(ctx).heuristics
    _tell(ctx, [book.retire(heuristic_id, reason) for heuristic_id in heuristic_ids], "retired")


@command.command("merge")
@click.argument("keep", metavar="ID")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
@everywhere
@click.pass_context
def merge(ctx: click.Context, keep: str, others: tuple[str, ...]) -> None:
    """Put lessons together: ID keeps its words and gets all evidence; the OTHERs are retired."""
    _tell(ctx, [open_memory(ctx).heuristics.merge(keep, others)], "has all the evidence now")


@command.command("feedback")
@click.argument("heuristic_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--outcome",
    required=True,
    type=click.Choice(["success", "failure", "unknown"]),
    help="How the run ended that they were handed to.",
)
@click.option("--task", default="", help="What the run was about.")
@everywhere
@click.pass_context
def feedback(
    ctx: click.Context, heuristic_ids: tuple[str, ...], outcome: Outcome, task: str
) -> None:
    """Say how a run ended that lessons were handed to; their rank follows it."""
    found = open_memory(ctx).feedback(heuristic_ids, outcome, task=task)
    _tell(ctx, found, "noted")


def _tell(ctx: click.Context, found: list[Heuristic], what: str) -> None:
    if ctx.obj["json"]:
        print_json({"heuristics": [as_json(one) for one in found]})
        return
    for one in found:
        gone = " (retired: it goes along with failures)" if what == "noted" and one.retired else ""
        click.echo(f"{one.id} {what}{gone}")
