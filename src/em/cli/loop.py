"""`em loop`: run an agent again and again toward a goal."""

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, printable
from em.heuristics.loop import IterationDone, Loop, LoopResult, LoopStarted


@click.command("loop")
@click.option("--goal", required=True, help="What is to be reached.")
@click.option(
    "--agent",
    required=True,
    metavar="COMMAND",
    help="Any program. The goal and the lessons take the place of {prompt}, else they are its"
    " standard input; they are also in EM_LOOP_GOAL and EM_LOOP_BRIEFING.",
)
@click.option(
    "--until", default="", metavar="COMMAND", help="The goal is reached when this gives 0."
)
@click.option("--max-iterations", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--timeout", type=click.FloatRange(min=0.1), help="Seconds for one iteration.")
@click.option("--llm", is_flag=True, help="Let the configured model reflect too.")
@click.option("--new", "anew", is_flag=True, help="Begin anew, even if one like it is not over.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    goal: str,
    agent: str,
    until: str,
    max_iterations: int,
    timeout: float | None,
    llm: bool,
    anew: bool,
) -> int:
    """Run an agent toward a goal until a check is content; each iteration learns from the last.

    State and transcripts are in the log. The same command again goes on with a loop that was
    interrupted. Exit codes: 0 reached (or no check was given), 1 not reached, 130 interrupted.
    """
    from em.llm import get_llm_client

    memory = open_memory(ctx, create=True)
    started = LoopStarted(goal, agent, until, max_iterations)
    client = get_llm_client() if llm else None
    loop = Loop(memory.store, memory.heuristics, started, client=client, timeout=timeout, anew=anew)
    if loop.resumed:
        click.echo(
            f"going on with loop {loop.id}, {count(len(loop.done), 'iteration')} done", err=True
        )
    result = loop.run(_tell)
    if ctx.obj["json"]:
        print_json(result)
    else:
        _summary(result)
    if result.status == "interrupted":
        click.echo("interrupted; the same command goes on with it", err=True)
        return 130
    return 1 if until and result.status != "success" else 0


def _tell(done: IterationDone) -> None:
    learned = f", learned {count(len(done.learned), 'lesson')}" if done.learned else ""
    why = f": {printable(done.problem)[:200]}" if done.problem else ""
    click.echo(
        f"iteration {done.number}: {done.outcome} in {done.seconds:.1f} s{learned}{why}", err=True
    )


def _summary(result: LoopResult) -> None:
    words = {
        "success": "the goal is reached",
        "limit": "the limit is reached",
        "interrupted": "interrupted",
    }
    click.echo(
        f"loop {result.id}: {words[result.status]}, {count(len(result.iterations), 'iteration')}"
    )
    for done in result.iterations:
        click.echo(f"  {done.number}. {done.outcome:<8} trace {done.trace}")
