"""`em compile`: a trace becomes a routine."""

from pathlib import Path
from typing import Any

import click
import msgspec

from em.cli.options import everywhere
from em.cli.output import count, only_results_on_stdout, print_json, print_table, printable
from em.compiler.compile_trace import compile_trace_file
from em.compiler.draft import Draft
from em.runner.tools import ToolRegistry


@click.command("compile")
@click.argument("trace", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The folder of the routine.",
)
@click.option("--name", help="What the routine is called.  [from the trace]")
@click.option("--tools", metavar="MODULE|FILE", help="Where the tools declare their effects.")
@click.option("--udf", metavar="MODULE|FILE", help="Where the functions are that the trace called.")
@click.option("--keep-all", is_flag=True, help="Copy the calls one to one.")
@click.option("--explain", is_flag=True, help="Say of each call and argument what became of it.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    trace: str,
    output: str,
    name: str | None,
    tools: str | None,
    udf: str | None,
    keep_all: bool,
    explain: bool,
) -> None:
    """Compile TRACE into a routine that runs without a model.

    Failed calls that were made good, retries, repeats and reads that nothing uses are left out;
    every argument is traced to where it came from. The routine is replayed against the recording
    before it is written: what does not reproduce its trace is not written.
    """
    with only_results_on_stdout():
        registry = ToolRegistry.load(tools) if tools else {}
        declared = {tool: registry[tool].effect for tool in registry}
        draft = compile_trace_file(
            trace, output, name=name, declared=declared, keep_all=keep_all, udfs=udf
        )
    if ctx.obj["json"]:
        print_json(_report(draft, output))
        return
    if explain:
        _explain(draft)
    kept = sum(verdict.keep for verdict in draft.verdicts)
    click.echo(
        f"{count(len(draft.calls), 'call')} became {count(kept, 'step')} in {Path(output)};"
        " replayed against the recording: the same calls, the same output"
    )
    for contradiction in draft.contradictions:
        # A trace that is wrong makes a routine that is wrong: it is said whether asked or not.
        click.echo(
            f"note: the trace contradicts itself at {printable(str(contradiction))}", err=True
        )
    unexplained = [found for found in draft.explained if found.how == "index"]
    if unexplained and not explain:
        click.echo(
            f"note: {count(len(unexplained), 'choice')} nothing explains; --explain shows them",
            err=True,
        )


def _explain(draft: Draft) -> None:
    rows = [
        (
            str(call.index + 1),
            call.name,
            f"{call.effect}{' (inferred)' if call.effect_inferred else ''}",
            "keep" if verdict.keep else "drop",
            verdict.reason,
        )
        for call, verdict in zip(draft.calls, draft.verdicts, strict=True)
    ]
    print_table(("call", "tool", "effect", "", "because"), rows)
    click.echo()
    wires = [
        (
            "output" if found.call == len(draft.calls) else str(found.call + 1),
            found.place,
            found.how,
            str(found.wired),
            found.note or ("" if found.how != "constant" else "as recorded"),
        )
        for found in draft.explained
    ]
    print_table(("call", "argument", "from", "as", ""), wires)
    click.echo()
    if draft.contradictions:
        against = [
            (found.place, repr(found.says), f"{found.call + 1} {found.tool}", repr(found.returned))
            for found in draft.contradictions
        ]
        print_table(("contradiction", "the output says", "call", "returned"), against)
        click.echo()


def _report(draft: Draft, output: str) -> dict[str, Any]:
    return {
        "routine": output,
        "name": draft.routine.name,
        "calls": [
            {
                "call": call.index + 1,
                "tool": call.name,
                "effect": call.effect,
                "keep": verdict.keep,
                "because": verdict.reason,
            }
            for call, verdict in zip(draft.calls, draft.verdicts, strict=True)
        ],
        "arguments": draft.explained,
        "input": draft.input,
        "contradictions": [
            {**msgspec.structs.asdict(found), "call": found.call + 1}
            for found in draft.contradictions
        ],
    }
