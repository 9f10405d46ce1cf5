"""`em validate`: everything that is wrong with a routine."""

import click

from em.cli.options import everywhere
from em.cli.output import count, only_results_on_stdout, print_json, printable
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.runner.validate import validate


@click.command("validate")
@click.argument("routine", type=click.Path(exists=True, file_okay=False))
@click.option("--tools", metavar="MODULE|FILE", help="Look at the tools that are called too.")
@click.option("--udf", metavar="MODULE|FILE", help="Functions beside those of udf.py.")
@everywhere
@click.pass_context
def command(ctx: click.Context, routine: str, tools: str | None, udf: str | None) -> int:
    """Check ROUTINE, the folder of a routine, and list everything that is wrong with it.

    Each with its file and line. Warnings are what may be meant; they alone leave a routine valid.
    """
    with only_results_on_stdout():
        registry = ToolRegistry.load(tools) if tools else None
        functions = functions_of(load_module(udf), imported=True) if udf else None
    problems = validate(routine, tools=registry, udfs=functions)
    errors = sum(problem.severity == "error" for problem in problems)
    if ctx.obj["json"]:
        print_json({"ok": not errors, "problems": problems})
    else:
        for problem in problems:
            click.echo(printable(str(problem)), err=not errors)
        if errors:
            click.secho(f"{count(errors, 'problem')}", fg="red", err=True)
        else:
            click.secho("valid", fg="green")
    return 1 if errors else 0
