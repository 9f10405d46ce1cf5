"""`em export`: a routine as something that needs no em."""

from contextlib import ExitStack
from pathlib import Path

import click

from em.cli.files import writing
from em.cli.options import everywhere, find_package
from em.cli.output import print_json
from em.errors import UsageError
from em.runner.package import Package

USAGE = {
    "python": "python {file} --input FILE --tools MODULE",
    "langchain": "its langchain_tool(TOOLS) is a tool",
    "openai": "its FUNCTION is for the model, its handle(ARGUMENTS, TOOLS) answers a call",
}


@click.command("export")
@click.argument("routine", metavar="DIR|NAME[@VERSION]")
@click.option(
    "--to",
    type=click.Choice(["python", "skill", "langchain", "openai"]),
    default="python",
    show_default=True,
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    help="The file  [standard output], or the folder that gets the skill's own  [.].",
)
@click.option("--tools", metavar="FILE", help="Tools that go along with a skill.")
@click.option("--trust", is_flag=True, help="You have read the code that a model wrote.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context, routine: str, to: str, output: str | None, tools: str | None, trust: bool
) -> None:
    """Write a routine, by its folder or the name under which it is kept, as code without em.

    python: a script. skill: an Agent Skill, a folder with SKILL.md and the script. langchain: a
    module with a StructuredTool. openai: a module with a function for a model, and its handler.

    The script does what `em run --no-journal` does. What it can't do is an error that names the
    step and the field; nothing is written then. A script has no sandbox:
    functions that a model wrote are exported only once they are trusted.
    """
    if tools and to != "skill":
        raise UsageError("tools go along with a skill only", place="--tools", fix="--to skill")
    with ExitStack() as stack:
        package = find_package(ctx, routine, stack)
        if to == "skill":
            _write_skill(ctx, package, routine, output or ".", tools, trust=trust)
        else:
            _write_script(ctx, package, routine, to, output or "-", trust=trust)


def _write_script(
    ctx: click.Context, package: Package, routine: str, to: str, output: str, *, trust: bool
) -> None:
    from em.compiler.export.agent_tools import export_langchain, export_openai
    from em.compiler.export.python import export_python

    export = {"python": export_python, "langchain": export_langchain, "openai": export_openai}[to]
    script = export(package, trust=trust)
    if output == "-" and ctx.obj["json"]:
        print_json({"routine": routine, "to": to, "script": script})
        return
    with writing(output, ctx.obj["db"] or "") as out:
        out.write(script.encode())
    if output != "-" and ctx.obj["json"]:
        print_json({"routine": routine, "to": to, "file": output})
    elif output != "-":
        click.echo(f"{output}: {USAGE[to].format(file=output)}", err=True)


def _write_skill(
    ctx: click.Context,
    package: Package,
    routine: str,
    output: str,
    tools: str | None,
    *,
    trust: bool,
) -> None:
    from em.compiler.export.skill import export_skill, skill_name

    files = export_skill(package, tools=tools, trust=trust)
    folder = Path(output) / skill_name(package.routine.name)
    if folder.exists() and not (folder / "SKILL.md").exists() and any(folder.iterdir()):
        raise UsageError("this folder holds something else", place=str(folder), fix="name another")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with writing(str(folder / path), ctx.obj["db"] or "") as out:
            out.write(text.encode())
    if ctx.obj["json"]:
        print_json({"routine": routine, "to": "skill", "folder": str(folder)})
    else:
        click.echo(f"{folder}: a skill; agents read its SKILL.md", err=True)
