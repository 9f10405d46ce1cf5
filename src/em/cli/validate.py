"""`em validate`: everything that is wrong with a routine."""

import click

from em.cli.options import everywhere
from em.cli.output import count, print_json, printable
from em.runner.validate import validate


@click.command("validate")
@click.argument("routine", type=click.Path(exists=True, file_okay=False))
@everywhere
@click.pass_context
def command(ctx: click.Context, routine: str) -> int:
    """Check ROUTINE, the folder of a routine, and list everything that is wrong with it."""
    problems = validate(routine)
    if ctx.obj["json"]:
        print_json({"ok": not problems, "problems": problems})
    else:
        for problem in problems:
            click.echo(printable(str(problem)))
        if problems:
            click.secho(f"{count(len(problems), 'problem')}", fg="red", err=True)
        else:
            click.secho("valid", fg="green")
    return 1 if problems else 0
