"""`em compile`: a trace becomes a routine."""

import re
from pathlib import Path
from typing import Any

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.output import count, only_results_on_stdout, print_json, print_table, printable
from em.compiler.compilation import CompiledTrace, compile_file, compile_several
from em.compiler.compile_trace import write_package
from em.compiler.draft import Draft
from em.compiler.llm_compile import Improved
from em.compiler.wire import OUTPUT
from em.llm.providers import get_llm_client
from em.runner.authorship import code_notes
from em.runner.library import keep_routine
from em.runner.package import UDF
from em.runner.tools import ToolRegistry
from em.settings import Settings
from em.store.protocol import Commit
from em.traces.catalogue import get_traces
from em.values.canonical import short


@click.command("compile")
@click.argument("traces", metavar="TRACE...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every task in the log; each is kept.")
@click.option("--distributed", is_flag=True, help="With --all: let workers do it (`em worker`).")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The folder of the routine.",
)
@click.option("--keep", is_flag=True, help="Keep it in the memory, as a new version of its name.")
@click.option("--name", help="What the routine is called.  [from the trace]")
@click.option("--tools", metavar="MODULE|FILE", help="Where the tools declare their effects.")
@click.option("--udf", metavar="MODULE|FILE", help="Where the functions are that the trace called.")
@click.option("--keep-all", is_flag=True, help="Copy all calls that did not fail.")
@click.option("--llm", is_flag=True, help="Let a model improve it; what it returns must hold.")
@click.option("--explain", is_flag=True, help="Say of each call and argument what became of it.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    /,
    traces: tuple[str, ...],
    output: str | None,
    explain: bool,
    keep: bool,
    everything: bool,
    distributed: bool,
    **options: Any,
) -> int:
    """Compile TRACE into a routine that runs without a model.

    TRACE is a file, or the id of a trace in the log; of several in the log, the way that most went
    is taken. Failed calls that were made good, retries, repeats and reads that nothing uses are
    left out; every argument is traced to where it came from. The routine is replayed against the
    recording before it is written: what does not reproduce its trace is not written.
    """
    if everything != (not traces) or (distributed and not everything):
        raise click.UsageError("Name traces, or --all; --distributed goes with --all.")
    if everything:
        from em.cli.compile_all import compile_all

        chosen = {**options, "output": output, "explain": explain}
        return compile_all(ctx, chosen, distributed=distributed)
    if output is None and not keep:
        raise click.UsageError("Missing option '-o' / '--output' (or '--keep').")
    with only_results_on_stdout():
        made = _compile(ctx, traces, options)
        draft = made.draft
        if output is not None:
            write_package(draft, Path(output), made.udfs)
        ref = ""
        if keep or draft.written_by:
            ref = _keep(ctx, made, keep=keep)
    place = str(Path(output)) if output else ref
    if ctx.obj["json"]:
        print_json({**_report(draft, place), "kept": ref or None, "model": _asked(made)})
        return 0
    if explain:
        _explain(draft)
    _tell(draft, place, explained=explain)
    _tell_stubs(made)
    if made.improved is not None:
        _tell_improved(made.improved)
    if output is not None and ref and keep:
        click.echo(f"kept as {ref}")
    return 0


def _compile(ctx: click.Context, traces: tuple[str, ...], options: dict[str, Any]) -> CompiledTrace:
    registry = ToolRegistry.load(options["tools"]) if options["tools"] else {}
    how: dict[str, Any] = {
        "name": options["name"],
        "declared": {tool: registry[tool].effect for tool in registry},
        "keep_all": options["keep_all"],
        "client": get_llm_client(settings=Settings.load()) if options["llm"] else None,
        "udfs": options["udf"],
    }
    if len(traces) == 1 and (Path(traces[0]).exists() or not _is_id(traces[0])):
        return compile_file(traces[0], **how)
    found = get_traces(open_memory(ctx).store, traces)
    return compile_several(found, **how)


def _is_id(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{28}", text) is not None


def _keep(ctx: click.Context, made: CompiledTrace, *, keep: bool) -> str:
    """Keep it, and tell the log what a model wrote; the `name@version`."""
    store = open_memory(ctx, create=True).store
    if keep:
        return keep_routine(store, made.files, made.from_events).ref
    notes = code_notes(made.files, made.draft.routine.name, made.from_events)
    store.commit(Commit(events=notes))
    return ""


def _tell(draft: Draft, place: str, *, explained: bool) -> None:
    kept = sum(verdict.keep for verdict in draft.verdicts)
    click.echo(
        f"{count(len(draft.calls), 'call')} became {count(kept, 'step')} in {place};"
        " replayed against the recording: the same calls, the same output"
    )
    for contradiction in draft.contradictions:
        # A trace that is wrong makes a routine that is wrong: it is said whether asked or not.
        click.echo(
            f"note: the trace contradicts itself at {printable(str(contradiction))}", err=True
        )
    for found in draft.explained:
        if (
            found.how == "constant"
            and found.place.startswith(OUTPUT)
            and _says_much(found.recorded)
        ):
            click.echo(
                f"note: {found.place} will be {printable(short(found.recorded))} on every run:"
                " no call of the trace gave it",
                err=True,
            )
    unexplained = [found for found in draft.explained if found.how == "index"]
    if unexplained and not explained:
        click.echo(
            f"note: {count(len(unexplained), 'choice')} nothing explains; --explain shows them",
            err=True,
        )


def _tell_stubs(made: CompiledTrace) -> None:
    """Functions that somebody has to write before the routine can run."""
    if made.draft.udf_source.strip():
        return
    called = {item.name for item in made.draft.recording if item.is_udf}
    for name in sorted(called - made.udfs.functions.keys()):
        click.echo(f"note: {UDF}: {name} must be written, unless it is there already", err=True)


def _tell_improved(improved: Improved) -> None:
    spent = improved.spent
    tokens = f"{spent.tokens.input + spent.tokens.output:,} tokens"
    cost = "" if spent.cost_usd is None else f", ${spent.cost_usd:.4f}"
    if improved.by_model:
        notes = printable(improved.notes)
        click.echo(f"improved by {improved.draft.written_by} ({tokens}{cost}): {notes}")
        if improved.not_compared:
            click.echo(
                "note: compared with the draft on the recorded values only:"
                f" {printable(improved.not_compared)}",
                err=True,
            )
        if improved.draft.udf_source.strip():
            click.echo(
                "its functions run in the sandbox until you have read them: em trust", err=True
            )
        return
    click.echo(f"the model did not help ({tokens}{cost}); the routine is as compiled without it:")
    for problem in improved.problems[-1] if improved.problems else ():
        click.echo(f"  {printable(problem)}")


def _asked(made: CompiledTrace) -> dict[str, Any] | None:
    improved = made.improved
    if improved is None:
        return None
    return {
        "improved": improved.by_model,
        "problems": improved.problems,
        "notes": improved.notes,
        "not_compared": improved.not_compared,
        "spent": improved.spent,
    }


def _says_much(value: Any) -> bool:
    """Whether a constant in an output looks like this one run's answer."""
    if isinstance(value, str):
        return len(value) > 3
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > 1


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


def _report(draft: Draft, place: str) -> dict[str, Any]:
    return {
        "routine": place,
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
