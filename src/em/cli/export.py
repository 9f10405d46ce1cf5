"""`em export`: a routine as a program of its own."""

import click

from em.cli.files import writing
from em.cli.options import everywhere
from em.cli.output import print_json
from em.runner.package import Package


@click.command("export")
@click.argument("routine", type=click.Path(exists=True, file_okay=False))
@click.option("--to", type=click.Choice(["python"]), default="python", show_default=True)
@click.option("-o", "--output", default="-", metavar="FILE", help="The script.  [standard output]")
@click.option("--trust", is_flag=True, help="You have read the code that a model wrote.")
@everywhere
@click.pass_context
def command(ctx: click.Context, routine: str, to: str, output: str, trust: bool) -> None:
    """Write ROUTINE, the folder of a routine, as one script that needs its tools and not em.

    The script does what `em run --no-journal` does. What it can't do is an error that names the
    step and the field; nothing is written then. A script has no sandbox:
    functions that a model wrote are exported only once they are trusted.
    """
    from em.compiler.export_python import export_python

    script = export_python(Package(routine), trust=trust)
    if output == "-" and ctx.obj["json"]:
        print_json({"routine": routine, "to": to, "script": script})
        return
    with writing(output, ctx.obj["db"] or "") as out:
        out.write(script.encode())
    if output != "-" and ctx.obj["json"]:
        print_json({"routine": routine, "to": to, "file": output})
    elif output != "-":
        click.echo(f"{output}: python {output} --input FILE --tools MODULE", err=True)
