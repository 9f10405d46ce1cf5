"""`em validate`: everything that is wrong with a routine."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.output import count, only_results_on_stdout, print_json, printable
from em.errors import NotFound, UsageError
from em.runner.library import find_routine, is_folder, texts_of
from em.runner.package import write_files
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.runner.validation import validate


@click.command("validate")
@click.argument("routine", metavar="DIR|NAME[@VERSION]")
@click.option("--tools", metavar="MODULE|FILE", help="Look at the tools that are called too.")
@click.option("--udf", metavar="MODULE|FILE", help="Functions beside those of udf.py.")
@everywhere
@click.pass_context
def command(ctx: click.Context, routine: str, tools: str | None, udf: str | None) -> int:
    """Check a routine, by its folder or its name in the memory, and list what is wrong with it.

    Each with its file and line. Warnings are what may be meant; they alone leave a routine valid.
    """
    with only_results_on_stdout():
        registry = ToolRegistry.load(tools) if tools else None
        functions = functions_of(load_module(udf), imported=True) if udf else None
    with ExitStack() as stack:
        kept = "" if is_folder(routine) else _unpacked(ctx, routine, stack)
        problems = validate(kept or routine, tools=registry, udfs=functions)
    if kept:
        problems = [
            msgspec.structs.replace(problem, file=problem.file.replace(kept, routine, 1))
            for problem in problems
        ]
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


def _unpacked(ctx: click.Context, ref: str, stack: ExitStack) -> str:
    """The folder of a routine that is kept, as long as the stack is not left."""
    try:
        artefact = find_routine(open_memory(ctx).store, ref)
    except NotFound as error:
        raise UsageError(
            f"the folder {ref!r} does not exist, nor is a routine of that name kept",
            place=ref,
            fix=error.fix,
        ) from None
    folder = stack.enter_context(TemporaryDirectory(prefix="em-routine-"))
    write_files(texts_of(artefact), Path(folder))
    return folder
