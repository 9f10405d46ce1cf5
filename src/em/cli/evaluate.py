"""`em evaluate`: the seeded benchmark of retrieval."""

import click

from em.cli.options import everywhere
from em.cli.output import print_json, print_table
from em.heuristics.benchmark import as_rows, evaluate


@click.command("evaluate")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--tasks", type=click.IntRange(min=1, max=900), default=300, show_default=True, metavar="N"
)
@everywhere
@click.pass_context
def command(ctx: click.Context, seed: int, tasks: int) -> None:
    """Measure retrieval of lessons: hit@k, MRR and nDCG, against BM25 alone and chance.

    The set is made from the seed, in a store of its own: no log is opened, whatever --db says.
    """
    done = evaluate(seed, tasks)
    if ctx.obj["json"]:
        print_json(done)
        return
    rows = as_rows(done)
    print_table(
        tuple(rows[0]),
        [tuple(v if isinstance(v, str) else f"{v:.3f}" for v in row.values()) for row in rows],
    )
    low, high = done.margin_95
    click.echo(
        f"{done.tasks} tasks, {done.heuristics:,} heuristics; margin over BM25 in MRR:"
        f" {done.margin:+.3f} (95%: {low:+.3f} to {high:+.3f})"
    )
