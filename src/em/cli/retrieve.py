"""`em retrieve`: the lessons for a task."""

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import print_json, printable
from em.heuristics.heuristic import Ranked


@click.command("retrieve")
@click.argument("task")
@click.option("-k", "--top-k", "k", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--tokens", type=click.IntRange(min=0), help="At most so many tokens of briefing.")
@click.option("--tool", "tools", multiple=True, help="A tool in play; may be repeated.")
@click.option("--subject", help="Also the lessons about this subject.")
@click.option("--llm", is_flag=True, help="Let the configured model put them in order.")
@click.option("--text", is_flag=True, help="Print the briefing alone, as a prompt section.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    task: str,
    k: int,
    tokens: int | None,
    tools: tuple[str, ...],
    subject: str | None,
    llm: bool,
    text: bool,
) -> None:
    """The lessons that fit TASK, with scores and reasons; none where none is relevant."""
    from em.llm import get_llm_client

    client = get_llm_client() if llm else None
    briefing = open_memory(ctx).brief(
        task, k, tokens, tools=tools or None, subject=subject, client=client
    )
    if ctx.obj["json"]:
        found = [flat(one) for one in briefing.heuristics]
        print_json({"text": briefing.text, "heuristics": found, "notes": briefing.notes})
        return
    for note in briefing.notes:
        click.echo(printable(note), err=True)
    if text:
        click.echo(briefing.text, nl=False)
    elif not briefing:
        click.echo("no lesson fits this task", err=True)
    else:
        for one in briefing.heuristics:
            reasons = ", ".join(f"{name} {part:.2f}" for name, part in one.reasons.items())
            click.secho(f"{one.score:.2f}  {one.heuristic.id}", bold=True)
            lesson = one.heuristic.lesson
            click.echo(f"  when    {printable(lesson.trigger)}")
            click.echo(f"  do      {printable(lesson.action)}")
            click.echo(f"  reasons {reasons}")


def flat(one: Ranked) -> dict[str, object]:
    """A ranked heuristic as JSON."""
    return {
        "id": one.heuristic.id,
        "score": round(one.score, 4),
        "reasons": {name: round(part, 4) for name, part in one.reasons.items()},
        "lesson": one.heuristic.lesson,
        "use": one.heuristic.use,
    }
