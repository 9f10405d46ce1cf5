"""`em suggest`: which traces are worth compiling."""

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, print_table, printable
from em.compiler.suggestions import Suggestion

EXPLAINED = """\
Saved is what one run of the agent took beside its tools, the median of its traces: the answers of
its model, their tokens as the transcript counts them, and the seconds that no call which a routine
makes again was under way. Ways are ordered by that times how often they were gone. Where a
transcript counts no answers, one for each call and one at the end is assumed; where it says nothing
of tokens or times, a - stands there."""


@click.command("suggest")
@click.option("--task", help="Only traces whose goal holds this.")
@click.option(
    "--at-least",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many traces must have gone the same way.",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--explain", is_flag=True, help="Say how the savings are estimated.")
@everywhere
@click.pass_context
def command(ctx: click.Context, task: str | None, at_least: int, limit: int, explain: bool) -> None:
    """Which traces look repetitive and are worth compiling, the most worth first.

    Traces whose calls went the same way are put together, and each way is compiled, to see whether
    it can be; nothing is kept. The saving is estimated for one run: see --explain.
    """
    found = open_memory(ctx).suggest(task, at_least=at_least, limit=limit)
    if ctx.obj["json"]:
        print_json({"suggestions": found, "estimate": " ".join(EXPLAINED.split())})
        return
    if not found:
        click.echo("no two traces went the same way; `em suggest --at-least 1` shows all", err=True)
        return
    print_table(
        ("traces", "answers", "tokens", "seconds", "steps", "way"),
        [_row(one) for one in found],
    )
    click.echo()
    for one in found[:3]:
        _tell(one)
    if explain:
        click.echo(f"\n{EXPLAINED}")
    else:
        click.echo("saved in each run, estimated; --explain says how", err=True)


def _row(one: Suggestion) -> tuple[str, ...]:
    return (
        f"{one.count:,}",
        f"{one.model_calls:,.0f}",
        "-" if one.tokens is None else f"{one.tokens:,.0f}",
        "-" if one.seconds is None else f"{one.seconds:,.1f}",
        str(one.steps),
        " > ".join(one.way),
    )


def _tell(one: Suggestion) -> None:
    goal = printable(" ".join(one.goal.split())[:80]) or "no goal was said"
    click.echo(f"{goal}  ({count(one.count, 'trace')})")
    if one.problem:
        click.echo(f"  can't be compiled: {printable(one.problem[:200])}")
    else:
        shown = " ".join(one.traces[:5])
        click.echo(f"  em compile {shown} --keep")
