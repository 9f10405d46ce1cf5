"""`em compile`: traces become a routine, which a person looks through before it is stored."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from em.cli.command import command
from em.cli.options import is_file, load_tools, model, open_memory
from em.cli.outline import names_of, print_code, print_open, print_outline, print_proof
from em.cli.output import (
    count,
    emit,
    note,
    only_results_on_stdout,
    printable,
    progress,
    wants_json,
)
from em.errors import EmError, NotFound, UsageError
from em.runner.authorship import code_notes
from em.runner.package import UDF, keep_routine
from em.runner.routine import Review
from em.runner.tools import ToolRegistry
from em.store.protocol import Commit, Store
from em.traces.catalogue import get_traces
from em.traces.trace import KeptTrace, as_kept
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.compiler.compile_trace import Compiled
    from em.compiler.llm_compile import Improved


LEAVE = "q"


@command("compile")
@click.argument("traces", metavar="[FILE|TRACE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Compile and store every task in the log.")
@click.option("--distributed", is_flag=True, help="With --all: let `em worker` processes do it.")
@click.option(
    "--again",
    metavar="NAME",
    help="Compile a stored routine again, with the new traces that have its effects.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The folder to write the routine to.",
)
@click.option("--keep", is_flag=True, help="Store it in the memory, as a new version.")
@click.option(
    "--fresh", is_flag=True, help="With --keep: forget what was said about the version before."
)
@click.option(
    "--proposed",
    is_flag=True,
    help="Store it out of use; `em routine accept` puts it in use.",
)
@click.option("--name", help="The routine's name.  [from the trace]")
@click.option("--tools", metavar="MODULE|FILE", help="Python module that declares tool effects.")
@click.option("--udf", metavar="MODULE|FILE", help="Python module of the trace's functions.")
@click.option("--keep-all", is_flag=True, help="Copy every call that did not fail.")
@click.option("--llm", is_flag=True, help="Let a model improve it. Its result must be proved too.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME",
    help="Make an argument (`subject`, `send_mail.subject`) an input. Repeatable.",
)
@click.option(
    "--constant",
    "constants",
    multiple=True,
    metavar="NAME",
    help="Make an input or argument a constant: always as recorded. Repeatable.",
)
@click.option("--allow-failed", is_flag=True, help="Compile a trace that says that it failed.")
@click.option(
    "--allow-unlabelled",
    is_flag=True,
    help="With --all: also take traces that don't say whether they succeeded.",
)
@click.option("--force", is_flag=True, help="Store it though it is not proved.")
def compile_(
    *,
    traces: tuple[str, ...],
    output: str | None,
    keep: bool,
    everything: bool,
    distributed: bool,
    again: str | None,
    **options: Any,
) -> int:
    """Compile TRACE into a routine that runs without a model.

    TRACE is a file, or the id of a trace in the log. Several traces of one kind of task are learnt
    from together. A value that stands in the request or in the given inputs is an input, a value
    that a read returned is taken from there, and the rest is constant. What was the same in all
    traces is checked before the first write.

    The routine is proved on its traces, and each of several is left out once: what the others
    teach is tried on it. Nothing is stored without --force if it does anything else than what was
    recorded. Printed are the code, inputs, constants, checks, what is open, and the proof.

    --input and --constant say which arguments vary, and `em routine strike` strikes a check. On a
    terminal you are asked before it is stored, and may name a check, an input or a constant that
    is to change. The next version that you --keep under the name stays like that, unless you give
    --fresh.

    A trace that says that it failed is refused. One that doesn't say how it ended is compiled, and
    the routine is marked "outcome unknown". --all takes only traces that succeeded.

    --again NAME takes the traces of a stored routine, and those that succeeded since then with the
    same effects: also tasks that the routine handed over. The new version is stored only if it is
    as good on the traces that the old one knew. Exit code 1 if none is stored.
    """
    chosen_ways = [bool(traces), everything, again is not None]
    if sum(chosen_ways) != 1 or (distributed and not everything):
        raise click.UsageError(
            "Name traces, or give --all or --again NAME. --distributed needs --all."
        )
    if again is not None:
        return _compile_again(again, {**options, "output": output})
    if options["proposed"] and ((not keep and not everything) or distributed):
        raise click.UsageError("--proposed needs --keep or --all, without --distributed.")
    if everything:
        return _compile_all({**options, "output": output}, distributed=distributed)
    if output is None and not keep:
        raise click.UsageError("Missing option '-o' / '--output' (or '--keep').")
    return _compile_one(traces, output, options, keep=keep)


class Said(NamedTuple):
    """What a person said: arguments that are inputs, inputs that are constants, struck checks."""

    inputs: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    struck: tuple[str, ...] = ()


def _compile_one(
    traces: tuple[str, ...], output: str | None, options: dict[str, Any], *, keep: bool
) -> int:
    options = {**options, "kept_in": _memory() if keep else None}
    said = Said(_names(options["inputs"]), _names(options["constants"]))
    made = _compiled(traces, options, said)
    is_reviewed = sys.stdin.isatty() and sys.stderr.isatty() and not wants_json()
    while is_reviewed:
        _print_compiled(made, numbered=True)
        changed = _reviewed(made.draft.document, said)
        if changed is None:
            note("nothing was stored")
            return 1
        if changed == said:
            break
        try:
            made, said = _compiled(traces, options, changed), changed
        except EmError as error:
            note(f"not changed: {error}")
    place, ref = _stored(made, output, options, keep=keep)

    def text() -> None:
        if not is_reviewed:
            _print_compiled(made)
        click.echo(f"learnt from {count(len(made.same_way), 'recording')}, in {place}")
        if ref and output is not None:
            click.echo(f"stored as {ref}")

    emit(lambda: {"routine": place, "kept": ref or None, **_report(made)}, text)
    return 0


def _reviewed(document: Json, said: Said) -> Said | None:
    """Ask what is to change, by its number or name; None if the person leaves."""
    from em.compiler.checks import outline_of

    note(
        "Enter stores it. The number of a check strikes it, that of an input keeps it as recorded,"
        f" that of a constant lets it vary. {LEAVE} leaves."
    )
    numbered = dict(enumerate(names_of(outline_of(document)), 1))
    while True:
        try:
            name = click.prompt("change", default="", show_default=False, err=True).strip()
            if name == LEAVE:
                return None
            if name.isdecimal():
                name = numbered.get(int(name), name)
            return _changed(document, said, name) if name else said
        except click.Abort:
            return None
        except NotFound as error:
            note(f"{error.message}; {error.fix}")


def _changed(document: Json, said: Said, name: str) -> Said:
    """Return what a person said, and a name in addition; naming it again takes it back."""
    from em.compiler.checks import outline_of, struck, walked

    outline = outline_of(document)
    if any(name == one.name for one in outline.inputs):
        return _moved(said, name, "inputs", "constants")
    for one in outline.constants:
        step = one.place.partition(".")[0]
        if name == one.place:
            tools = {known["id"]: known.get("tool", "") for known in walked(document["steps"])}
            return _moved(said, f"{tools[step]}.{one.argument}", "constants", "inputs")
    texts = struck({**document, "struck": []}, name)["struck"]
    return said._replace(struck=(*said.struck, *texts))


def _moved(said: Said, name: str, source: str, target: str) -> Said:
    """Return what was said with a name moved: what was said to be an input is one no more."""
    bare = name.rpartition(".")[2]
    left = tuple(one for one in getattr(said, source) if one.rpartition(".")[2] != bare)
    if len(left) < len(getattr(said, source)):
        return said._replace(**{source: left})
    return said._replace(**{target: tuple(dict.fromkeys([*getattr(said, target), name]))})


def _compiled(traces: tuple[str, ...], options: dict[str, Any], said: Said) -> "Compiled":
    from em.compiler.compile_trace import compile_several

    registry = load_tools(options["tools"]) or ToolRegistry()
    how: dict[str, Any] = {
        "name": options["name"],
        "declared": {tool: registry[tool].effect for tool in registry},
        "keep_all": options["keep_all"],
        "client": model(wanted=options["llm"]),
        "udfs": options["udf"],
        "allow_failed": options["allow_failed"],
        "force": options["force"],
        "review": Review(inputs=said.inputs, constants=said.constants),
        "struck": said.struck,
        "kept_in": options["kept_in"],
        "fresh": options["fresh"],
    }
    with only_results_on_stdout(), progress("compiling"):
        return compile_several(_named_traces(traces), **how)


def _named_traces(names: Sequence[str]) -> list[KeptTrace]:
    """Return the traces of the log with these ids, and those in files."""
    from em.compiler.compile_trace import read_trace_file

    files = {name for name in names if is_file(name)}
    ids = [name for name in names if name not in files]
    in_log = get_traces(open_memory().store, ids) if ids else []
    read = [
        # A single trace has no name to be told from others by.
        as_kept(read_trace_file(name), "" if len(names) == 1 else name)
        for name in dict.fromkeys(names)
        if name in files
    ]
    return [*{one.id: one for one in in_log}.values(), *read]


def _memory() -> Store | None:
    """Return the memory, if there is one already."""
    try:
        return open_memory().store
    except NotFound:
        return None


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for part in given for name in part.split(",") if name.strip())


def _stored(
    made: "Compiled", output: str | None, options: dict[str, Any], *, keep: bool
) -> tuple[str, str]:
    """Write the routine to a folder, store it, or both; return where it is, and its reference.

    The log names the code of a model.
    """
    from em.compiler.draft import write_package

    if output is not None:
        write_package(made.draft, Path(output))
    ref = ""
    if keep or made.draft.written_by:
        store = open_memory(create=True).store
        if keep:
            retired = options["proposed"]
            ref = keep_routine(store, made.files, made.from_events, retired=retired).ref
        else:
            store.commit(Commit(events=code_notes(made.files, made.draft.name, made.from_events)))
    return (ref if output is None else str(Path(output)), ref)


def _print_compiled(made: "Compiled", *, numbered: bool = False) -> None:
    print_code(made.files)
    print_outline(made.draft.document, numbered=numbered)
    from em.compiler.draft import OUTCOMES

    draft = made.draft
    click.echo()
    print_proof(draft.proof)
    print_open(draft.document, made.asked, len(made.same_way))
    for words in made.unchecked:
        note(f"not compared: {words}")
    if draft.outcome in OUTCOMES:
        note(f"note: {OUTCOMES[draft.outcome]}")
    for trace, why in made.not_compiled.items():
        note(f"note: {trace} is left out: {why}")
    for name in _stubs(made):
        note(f"note: write {name} in {UDF} (a stub with examples is there)")
    if made.improved is not None:
        _print_improved(made.improved)


def _stubs(made: "Compiled") -> list[str]:
    """Return the functions that a person must write before the routine can run."""
    draft, improved = made.draft, made.improved
    if improved is not None and improved.by_model and draft.udf_source.strip():
        return []
    return [name for name in draft.functions if name not in draft.udfs.functions]


def _print_improved(improved: "Improved") -> None:
    spent = improved.spent
    tokens = f"{spent.tokens.input + spent.tokens.output:,} tokens"
    cost = "" if spent.cost_usd is None else f", ${spent.cost_usd:.4f}"
    if not improved.by_model:
        click.echo(f"fell back to the routine compiled without the model ({tokens}{cost}):")
        for problem in improved.problems[-1] if improved.problems else ():
            click.echo(f"  {printable(problem)}")
        return
    notes = printable(improved.notes)
    click.echo(f"improved by {improved.draft.written_by} ({tokens}{cost}): {notes}")
    if improved.inputs:
        click.echo(f"inputs, since it says that they vary: {', '.join(improved.inputs)}")
    if improved.draft.udf_source.strip():
        note("its functions run in the sandbox until you read and trust them: em trust")


def _report(made: "Compiled") -> dict[str, Any]:
    """Return what `--json` says of a routine, beside where it is."""
    from em.compiler.checks import outline_of

    draft, improved = made.draft, made.improved
    return {
        "name": draft.name,
        "outcome": draft.outcome,
        "proof": [] if draft.proof is None else draft.proof.sentences,
        "proved": draft.proof is not None and draft.proof.is_proved,
        "trials": draft.trials.counts,
        **msgspec.to_builtins(outline_of(draft.document)),
        "asked": made.asked,
        "open": [] if draft.proof is None else draft.proof.open,
        "unchecked": made.unchecked,
        "input": draft.input,
        "stubs": _stubs(made),
        "left_out": made.not_compiled,
        "model": None
        if improved is None
        else {
            "improved": improved.by_model,
            **{name: getattr(improved, name) for name in _OF_A_MODEL},
        },
    }


_OF_A_MODEL = ("fell_back", "problems", "inputs", "notes", "spent")


_OF_ONE = {
    "name": "--name", "tools": "--tools", "udf": "--udf", "output": "--output",
    "allow_failed": "--allow-failed", "inputs": "--input", "constants": "--constant",
    "force": "--force", "fresh": "--fresh",
}  # fmt: skip
"""Options of a single routine."""
_NEW = {"keep_all": "--keep-all", "llm": "--llm", "proposed": "--proposed"}
"""Options of a routine that is compiled for the first time."""


def _refuse(options: dict[str, Any], refused: dict[str, str], why: str) -> None:
    for name, flag in refused.items():
        if options[name]:
            raise UsageError(why, place=flag, fix=f"leave out {flag}, or name the traces")


def _compile_again(name: str, options: dict[str, Any]) -> int:
    _refuse(options, _OF_ONE | _NEW, "--again takes only --allow-unlabelled")
    with only_results_on_stdout(), progress("compiling"):
        grown = open_memory().compile_again(name, allow_unlabelled=options["allow_unlabelled"])

    def text() -> None:
        for words in grown.changes:
            click.echo(f"  {printable(words)}")
        for trace in grown.left_out:
            note(f"left out {trace}: it would have been done wrongly")
        if grown.new:
            new = count(len(grown.added), "new trace")
            click.echo(f"stored as {grown.new}, with {new}; the version before is {grown.old}")
        else:
            note(f"{grown.old} stays as it is: {grown.why_not}")

    emit(grown, text)
    return 0 if grown.new else 1


def _compile_all(options: dict[str, Any], *, distributed: bool) -> int:
    """Compile and store a routine for each task in the log. Return 1 if one failed."""
    _refuse(options, _OF_ONE, "--all takes no options of a single routine")
    if distributed:
        from em.cli.queue import open_queue, report_queued

        queue = open_queue()
        names = ("keep_all", "llm", "allow_unlabelled")
        chosen = {name: True for name in names if options[name]}
        return report_queued(queue, queue.add_compilations(how=chosen), "compiling", wait=True)
    from em.compiler.compile_trace import compile_several
    from em.compiler.kind import tasks_in

    memory = open_memory()
    client = model(wanted=options["llm"])
    tasks = tasks_in(memory.store, allow_unlabelled=options["allow_unlabelled"])
    stored: dict[str, str] = {}
    failed: dict[str, str] = {}
    left_out: dict[str, str] = {}
    with only_results_on_stdout(), progress("compiling", len(tasks)) as advance:
        for task, traces in tasks.items():
            try:
                made = compile_several(
                    get_traces(memory.store, traces),
                    keep_all=options["keep_all"],
                    client=client,
                    kept_in=memory.store,
                )
                kept = keep_routine(
                    memory.store, made.files, made.from_events, retired=options["proposed"]
                )
                stored[task] = kept.ref
                left_out |= made.not_compiled
            except EmError as error:
                failed[task] = str(error)
            advance(1)

    def text() -> None:
        for ref in stored.values():
            click.echo(ref)
        note(f"{count(len(stored), 'task')} compiled")
        for trace, why in left_out.items():
            note(f"note: {trace} is left out: {why}")
        for task, why in failed.items():
            note(f"failed: {task}: {why}")

    emit({"kept": stored, "failed": failed, "left_out": left_out}, text)
    return 1 if failed else 0
