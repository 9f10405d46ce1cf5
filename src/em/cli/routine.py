"""Commands about routines: `em routine`, `em compile`, `em validate`, `em export`."""

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import msgspec

from em.cli.options import (
    address,
    everywhere,
    find_package,
    known_routine,
    load_tools,
    model,
    open_memory,
    person,
    writing,
)
from em.cli.output import (
    Bar,
    count,
    emit,
    note,
    only_results_on_stdout,
    print_table,
    printable,
    progress,
    wants_json,
)
from em.errors import EmError, NotFound, UsageError
from em.runner.authorship import code_notes
from em.runner.expressions.words import request_in_words
from em.runner.package import (
    ROUTINE,
    UDF,
    Package,
    files_in,
    find_routine,
    is_folder,
    keep_routine,
    kept_routines,
    parse_yaml,
    read_routine,
    routine_of,
    texts_of,
    trials_of,
    write_files,
)
from em.runner.requirements import asked_for, goal_checks, requirements, why_asked
from em.runner.routine import Routine
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.runner.trial import Trials
from em.runner.version_change import changes, file_changes, proof_change
from em.store.protocol import Commit
from em.traces.catalogue import get_traces, pooled_traces
from em.values.canonical import Json, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from em.compiler.compile_trace import CompiledTrace
    from em.compiler.confirmation import Confirm
    from em.compiler.draft import Draft
    from em.compiler.explanations import Explained
    from em.compiler.heal import Healing
    from em.compiler.improvement import Improved
    from em.runner.routine import Asked


_SHADOW = click.option(
    "--shadow", is_flag=True, help="Store it retired; `em routine promote` puts it in use."
)


@click.group("routine", no_args_is_help=True)
@everywhere
def routine() -> None:
    """List, show, keep, unpack, decide, strike, retire, restore, promote, heal stored routines."""


@routine.command("list")
@everywhere
def list_() -> None:
    """List every version of every stored routine."""
    rows = [
        {
            "routine": f"{found.name}@{found.version}",
            "at": found.created_at.isoformat(timespec="seconds"),
            "state": "erased" if found.body is None else "retired" if found.retired_at else "",
            "from_events": len(found.from_events),
            "proof": "" if found.body is None else trials_of(texts_of(found)).summary,
        }
        for found in kept_routines(open_memory().store)
    ]

    def text() -> None:
        if rows:
            cells = [tuple(map(str, row.values())) for row in rows]
            print_table(tuple(rows[0]), cells, may_go=("from_events", "at"))
        else:
            note("no stored routines; `em compile TRACE --keep` stores one")

    emit({"routines": rows}, text)


@routine.command("show")
@click.argument("ref", metavar="NAME[@VERSION]|DIR")
@click.option(
    "--explain", is_flag=True, help="Say in words what it checks and asks before it acts."
)
@click.option("--python", is_flag=True, help="Print it as a Python function instead.")
@everywhere
def show(ref: str, explain: bool, python: bool) -> None:
    """Print the routine.yaml of a stored routine, or of the one in a folder.

    Of a learnt routine also its inputs, its checks with their ids and in how many recordings they
    held, its constants, and how it did on recordings that it was not learnt from.
    """
    name, files, events = ref, {}, []
    if is_folder(ref):
        files = files_in(ref)
    else:
        artefact = find_routine(open_memory().store, ref)
        name, files = f"{artefact.name}@{artefact.version}", texts_of(artefact)
        events = list(artefact.from_events)
    tried = trials_of(files)
    proof = tried.as_dict()
    shown: Json = {"routine": name, "files": files, "from_events": events, "proof": proof}

    def text() -> None:
        click.echo(files[ROUTINE], nl=False)
        print_trials(tried)

    found = read_routine(parse_yaml(files[ROUTINE].encode(), ROUTINE), ROUTINE)
    if python:
        _show_python(name, found, files)
        return
    if found.checks == "hand_over":
        _show_plain(shown, files, tried, with_code=not explain)
        return
    if not explain:
        emit(shown, text)
        return
    shown["requires"] = [one._asdict() for one in requirements(found)]
    shown["asks"] = [one._asdict() for one in asked_for(found)]

    def words() -> None:
        _explain_effects(found)
        print_trials(tried)
        for reason in tried.reasons():
            note(f"  {reason}")

    emit(shown, words)


def _show_python(name: str, routine: Routine, files: "Mapping[str, str]") -> None:
    """Print a plain routine as a function."""
    from em.compiler.checks import document_of
    from em.compiler.export.function import function_text

    if routine.checks != "hand_over":
        raise UsageError(
            "only a routine with `checks: hand_over` reads as a function",
            place=name,
            fix="`em export --to python` writes any routine as a script",
        )
    function = function_text(document_of(files))
    emit({"routine": name, "python": function}, lambda: click.echo(function, nl=False))


def _show_plain(shown: Json, files: "Mapping[str, str]", tried: Trials, *, with_code: bool) -> None:
    """Print a plain routine: its code, then its outline and its trials."""
    from em.cli.outline import print_checks, print_constants, print_inputs, print_reasons
    from em.compiler.checks import document_of
    from em.compiler.outline import outline_of

    outline = outline_of(document_of(files))

    def text() -> None:
        if with_code:
            click.echo(files[ROUTINE], nl=False)
        print_inputs(outline)
        print_checks(outline)
        print_constants(outline.constants)
        print_trials(tried)
        print_reasons(tried)

    emit({**shown, **msgspec.to_builtins(outline)}, text)


def print_trials(trials: Trials) -> None:
    """Print how a routine did on traces that it was not learnt from; in red if it was wrong."""
    if trials.warning:
        click.secho(trials.warning, fg="red", bold=True, err=True)
    if trials:
        note(str(trials))


@routine.command("keep")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@_SHADOW
@everywhere
def keep(folder: str, shadow: bool) -> None:
    """Store the routine in DIR as a new version."""
    store = open_memory(create=True).store
    stored = keep_routine(store, files_in(folder), retired=shadow)
    emit({"routine": stored.ref}, f"stored as {stored.ref}")


@routine.command("unpack")
@click.argument("ref", metavar="NAME[@VERSION]")
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False))
@everywhere
def unpack(ref: str, output: str) -> None:
    """Write a stored routine into the folder DIR. Other files in DIR stay as they are."""
    artefact = find_routine(open_memory().store, ref)
    write_files(texts_of(artefact), Path(output))
    name = f"{artefact.name}@{artefact.version}"
    emit({"routine": name, "folder": output}, f"{name} is in {output}")


_BY = click.option("--by", metavar="NAME", help="Who decides, for the log  [your login].")


@routine.command("retire")
@click.argument("ref", metavar="NAME@VERSION")
@_BY
@everywhere
def retire(ref: str, by: str | None) -> int:
    """Retire a version: its name then means the version before. It can still be read."""
    done = open_memory().retire(ref, by=person() if by is None else by)
    already = "" if done.changed else " already"
    text = f"{done.routine} is{already} retired; {_meaning(done.routine, done.now)}"
    emit({"routine": done.routine, "retired": done.changed, "now": done.now}, text)
    return 0


@routine.command("restore")
@click.argument("ref", metavar="NAME@VERSION")
@_BY
@everywhere
def restore(ref: str, by: str | None) -> int:
    """Put a retired version in use again. Its name then means the newest version in use."""
    done = open_memory().restore(ref, by=person() if by is None else by)
    already = "" if done.changed else " already"
    text = f"{done.routine} is{already} in use; {_meaning(done.routine, done.now)}"
    emit({"routine": done.routine, "restored": done.changed, "now": done.now}, text)
    return 0


def _meaning(ref: str, now: str) -> str:
    name = ref.partition("@")[0]
    return f"{name} means {now}" if now else f"no version of {name} is in use"


@routine.command("decide")
@click.argument("ref", metavar="NAME")
@click.argument("choice", metavar="[CHOICE]", required=False)
@_BY
@everywhere
def decide(ref: str, choice: str | None, by: str | None) -> None:
    """List what a person can decide about a routine, or decide it.

    Without CHOICE, list each value with several explanations, each value that runs ask for, and the
    checks before effects. CHOICE is the code before an answer: the routine with that answer is
    stored as a new version, the log says who decided, and `em compile --again` keeps it.
    """
    memory = open_memory()
    if choice is not None:
        done = memory.decide(ref, choice, by=person() if by is None else by)
        kept = f"stored as {done.new}; the version before is {done.old}"
        emit(done, f"decided: {printable(done.words)}\n{kept}")
        return
    open_ = memory.undecided(ref)

    def text_() -> None:
        for question in open_:
            click.echo(printable(question.words))
            mark = "not needed: " if question.kind == "check" else ""
            for one in question.choices:
                click.echo(printable(f"  {one.id}  {mark}{one.words}"))
        if not open_:
            note("there is nothing to decide")

    emit({"routine": ref, "questions": open_}, text_)


@routine.command("strike")
@click.argument("ref", metavar="NAME")
@click.argument("check", metavar="CHECK")
@click.option("--reason", default="", metavar="TEXT", help="Why it is not needed, for the log.")
@_BY
@everywhere
def strike(ref: str, check: str, reason: str, by: str | None) -> None:
    """Strike a check of a learnt routine: runs no longer hand over because of it.

    CHECK is the id of an assert, STEP.FIELD for one thing that a step expects of its result, or
    STEP for all that it expects; `em routine show` lists them. The routine without it is stored as
    a new version, and `em compile --again` leaves it out.
    """
    done = open_memory().strike(ref, check, reason=reason, by=person() if by is None else by)
    kept = f"stored as {done.new}; the version before is {done.old}"
    emit(done, f"{printable(done.words)}\n{kept}")


@routine.command("promote")
@click.argument("ref", metavar="NAME[@VERSION]")
@click.option(
    "--after",
    metavar="N",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How often it must have agreed with the agent in a row.",
)
@click.option("--force", is_flag=True, help="Promote it whatever the comparisons say.")
@everywhere
def promote(ref: str, after: int, force: bool) -> None:
    """Put a retired version in use, if it agreed with the agent N times in a row.

    Its name then means this version, unless a newer one is in use. `em shadow` shows the counts.
    """
    done = open_memory().promote(ref, after=after, force=force)
    times = f"it agreed {count(done.in_a_row, 'time')} in a row"
    how = f"in use: {times}" if done.changed else "already in use"
    emit(done, f"{done.routine} is {how}")


@routine.command("diff")
@click.argument("name", metavar="NAME")
@click.argument("versions", metavar="[OLD [NEW]]", nargs=-1, type=int)
@everywhere
def diff(name: str, versions: tuple[int, ...]) -> None:
    """Say in words what a version of a routine has learnt since another one.

    OLD and NEW are numbers of versions: by default the newest version and the one before it.
    """
    store = open_memory().store
    if len(versions) > 2:
        raise click.UsageError("Give at most two versions.")
    new = find_routine(store, f"{name}@{versions[1]}" if len(versions) > 1 else name)
    if versions:
        old = find_routine(store, f"{name}@{versions[0]}")
    else:
        earlier = [
            one
            for one in kept_routines(store, name)
            if one.version < new.version and one.body is not None
        ]
        if not earlier:
            raise NotFound(f"{name}@{new.version} has no version before it", place=name)
        old = earlier[-1]
    before, after = routine_of(old), routine_of(new)
    learnt = [*changes(before, after), *file_changes(texts_of(old), texts_of(new))]
    proof = proof_change(before.trials, after.trials)

    def text() -> None:
        for words in learnt or ["nothing that matters to a run has changed"]:
            click.echo(printable(words))
        click.echo(proof)

    found: Json = {"old": before.ref, "new": after.ref, "changes": learnt, "proof": proof}
    emit(found, text)


@routine.command("heal")
@click.argument("run_id", metavar="RUN")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@everywhere
def heal(run_id: str, dry_run: bool) -> int:
    """Write the fixes of a run into its routine.

    RUN is replayed from its journal: the healed routine must need no fix and give the same output.
    It is stored as a new version. The old version stays; `em routine unpack` restores it.
    """
    healing = open_memory().heal(run_id, dry_run=dry_run)
    emit(healing, lambda: print_healing(healing, run_id))
    return 0 if healing.changed else 1


def print_healing(healing: "Healing", run_id: str) -> None:
    """Print how the fixes of a run change its routine."""
    for refused in healing.refused:
        note(f"can't be healed: {refused}")
    click.echo(healing.patch, nl=False)
    if healing.new:
        click.echo(f"stored as {healing.new}; the version before is {healing.old}")
    elif healing.changed:
        click.echo(f"  apply this change with: em routine heal {run_id}")


@click.command("compile")
@click.argument("traces", metavar="[FILE|TRACE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Compile and store every task in the log.")
@click.option("--distributed", is_flag=True, help="With --all: let `em worker` processes do it.")
@click.option(
    "--again",
    metavar="NAME",
    help="Compile a stored routine again, with the new traces that have its effects.",
)
@click.option(
    "--proposal",
    metavar="KEY",
    help="Compile and store what was proposed at the end of a session (`em suggest` lists it).",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="The folder to write the routine to.",
)
@click.option("--keep", is_flag=True, help="Store it in the memory, as a new version.")
@_SHADOW
@click.option("--name", help="The routine's name.  [from the trace]")
@click.option("--tools", metavar="MODULE|FILE", help="Python module that declares tool effects.")
@click.option("--udf", metavar="MODULE|FILE", help="Python module of the trace's functions.")
@click.option("--keep-all", is_flag=True, help="Copy every call that did not fail.")
@click.option("--llm", is_flag=True, help="Let a model improve it. Its result must verify too.")
@click.option(
    "--confirm",
    multiple=True,
    metavar="NAME",
    help="Make a value that runs would ask for a constant. Repeatable, or separated by commas.",
)
@click.option("--allow-failed", is_flag=True, help="Compile a trace that says that it failed.")
@click.option(
    "--allow-unlabelled",
    is_flag=True,
    help="With --all: also take traces that don't say whether they succeeded.",
)
@click.option("--force", is_flag=True, help="Store it though a trial was wrong, or none was right.")
@click.option("--explain", is_flag=True, help="Explain each call and each argument.")
@everywhere
def compile_(
    *,
    traces: tuple[str, ...],
    output: str | None,
    explain: bool,
    keep: bool,
    everything: bool,
    distributed: bool,
    again: str | None,
    proposal: str | None,
    **options: Any,
) -> int:
    """Compile TRACE into a routine that runs without a model.

    TRACE is a file, or the id of a trace in the log. Several traces of different tasks are learnt
    from together: each is left out once, and what the others teach is tried on it. If that does
    the wrong thing once, or the right thing in none of four or more, nothing is stored without
    --force. Several traces of one task must have had the same effects; of their ways the most
    common is compiled. Left out: failed calls that were retried successfully, repeats, and reads
    whose results are not used. Every argument is traced to its source. The routine is replayed
    against the recording, and written only if it reproduces the trace.

    A value of a call with an effect that nothing recorded explains is asked for when the routine
    runs with other inputs. On a terminal you are asked which of these values are always the
    recorded ones; elsewhere --confirm names them.

    A trace that says that it failed is refused. One that doesn't say how it ended is compiled, and
    the routine is marked "outcome unknown". --all takes only traces that succeeded.

    --again NAME takes the traces of a stored routine, and those that succeeded since then with the
    same effects: also tasks that the routine handed over. The new version is stored only if it is
    as good on the traces that the old one knew. Exit code 1 if none is stored.
    """
    chosen_ways = [bool(traces), everything, again is not None, proposal is not None]
    if sum(chosen_ways) != 1 or (distributed and not everything):
        raise click.UsageError(
            "Name traces, or give --all, --again NAME or --proposal KEY. --distributed needs --all."
        )
    if proposal is not None:
        from em.compiler.proposals import find_proposal

        traces, keep = tuple(find_proposal(open_memory().store, proposal).traces), True
    if again is not None:
        return _compile_again(again, {**options, "output": output, "explain": explain})
    if options["shadow"] and ((not keep and not everything) or distributed):
        raise click.UsageError("--shadow needs --keep or --all, without --distributed.")
    if everything:
        chosen = {**options, "output": output, "explain": explain}
        return _compile_all(chosen, distributed=distributed)
    if output is None and not keep:
        raise click.UsageError("Missing option '-o' / '--output' (or '--keep').")
    _compile_one(traces, output, options, keep=keep, explain=explain)
    return 0


def _compile_one(
    traces: tuple[str, ...],
    output: str | None,
    options: dict[str, Any],
    *,
    keep: bool,
    explain: bool,
) -> None:
    from em.compiler.compile_trace import write_compiled
    from em.compiler.trials import refuse_unproved

    with only_results_on_stdout():
        with progress("compiling") as bar:
            made = _compiled(traces, options, bar)
        draft = made.draft
        is_plain = draft.routine.checks == "hand_over"
        if output is not None:
            write_compiled(made, Path(output))
        ref = ""
        if keep or draft.written_by:
            if keep and not options["shadow"]:
                refuse_unproved(draft.trials, force=options["force"])
            ref = _store_compiled(made, keep=keep, shadow=options["shadow"])
    place = str(Path(output)) if output else ref

    if is_plain:
        _emit_plain(made, place, ref if output is not None and keep else "")
        return

    def text() -> None:
        if explain:
            _explain(draft)
        _print_compiled(draft, place, explained=explain)
        for trace, why in made.not_compiled.items():
            note(f"note: {trace} is left out: {printable(why)}")
        _print_stubs(made)
        if made.improved is not None:
            _print_improved(made.improved)
        if output is not None and ref and keep:
            click.echo(f"stored as {ref}")

    emit(
        lambda: {
            **_report(draft, place),
            "kept": ref or None,
            "model": _asked(made),
            "left_out": made.not_compiled,
        },
        text,
    )


def _emit_plain(made: "CompiledTrace", place: str, stored: str) -> None:
    """Print a plain routine that was compiled: code, inputs, constants, what is open, its proof."""
    from em.cli.outline import (
        open_values,
        print_constants,
        print_inputs,
        print_open,
        print_reasons,
    )
    from em.compiler.checks import document_of
    from em.compiler.outline import outline_of

    outline, draft, recordings = outline_of(document_of(made.files)), made.draft, len(made.same_way)

    def text() -> None:
        click.echo(made.files[ROUTINE], nl=False)
        print_inputs(outline)
        print_constants(outline.constants)
        click.echo()
        click.echo(f"learnt from {count(recordings, 'recording')}, in {place}")
        for shown in draft.proof:
            click.echo(f"  {printable(shown)}")
        print_reasons(draft.trials)
        print_open(outline, recordings)
        if stored:
            click.echo(f"stored as {stored}")

    emit(
        {
            "routine": place,
            "name": draft.routine.name,
            "outcome": draft.outcome,
            "proof": draft.proof,
            "trials": draft.trials.as_dict(),
            **msgspec.to_builtins(outline),
            "open": open_values(outline, recordings),
            "input": draft.input,
            "kept": stored or (place if "@" in place else None),
        },
        text,
    )


def _compiled(traces: tuple[str, ...], options: dict[str, Any], bar: Bar) -> "CompiledTrace":
    from em.compiler.compile_trace import compile_file, compile_several

    registry = load_tools(options["tools"]) or ToolRegistry()
    how: dict[str, Any] = {
        "name": options["name"],
        "declared": {tool: registry[tool].effect for tool in registry},
        "keep_all": options["keep_all"],
        "client": model(wanted=options["llm"]),
        "udfs": options["udf"],
        "allow_failed": options["allow_failed"],
        "confirm": _confirming(options["confirm"], bar),
    }
    if len(traces) == 1 and (Path(traces[0]).exists() or not _is_id(traces[0])):
        return compile_file(traces[0], **how)
    store = open_memory().store
    found = [*{one.id: one for one in get_traces(store, traces)}.values()]
    pool = pooled_traces(store, [one.id for one in found]) if len(found) > 1 else ()
    return compile_several(found, **how, force=options["force"], pool=pool)


def _confirming(given: tuple[str, ...], bar: Bar) -> "Confirm":
    """Return the names that --confirm gave, or a function that asks for them on a terminal."""
    names = [name.strip() for part in given for name in part.split(",") if name.strip()]
    if names or wants_json() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return names

    def ask(asked: "Mapping[str, Asked]") -> list[str]:
        bar.hide()
        return _ask_which(asked)

    return ask


def _ask_which(asked: "Mapping[str, Asked]") -> list[str]:
    """Ask a person which values are the recorded ones on every run."""
    note("The recording does not settle these values, so a run with other inputs asks for them:")
    for name, one in asked.items():
        note(f"  {name}: {short(one.recorded)}; {why_asked(one)}")
    return [
        name
        for name, one in asked.items()
        if click.confirm(
            printable(f"Is {name} always {short(one.recorded)}?"), default=False, err=True
        )
    ]


def _is_id(text: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{4,28}", text) is not None


def _store_compiled(made: "CompiledTrace", *, keep: bool, shadow: bool) -> str:
    """Store the routine and return its `name@version`, or only log which code a model wrote."""
    store = open_memory(create=True).store
    if keep:
        return keep_routine(store, made.files, made.from_events, retired=shadow).ref
    notes = code_notes(made.files, made.draft.routine.name, made.from_events)
    store.commit(Commit(events=notes))
    return ""


def _print_compiled(draft: "Draft", place: str, *, explained: bool) -> None:
    from em.compiler.arguments import OUTPUT
    from em.compiler.package_files import OUTCOMES
    from em.runner.routine import PlanStep, RulesStep

    learnt = [step for step in draft.routine.steps if isinstance(step, PlanStep | RulesStep)]
    if learnt:
        (step,) = learnt
        made = step.effects if isinstance(step, PlanStep) else step.rules
        click.echo(f"learnt to make {', '.join(made)} in {place}")
    else:
        steps = sum(verdict.keep for verdict in draft.verdicts)
        click.echo(f"{count(len(draft.calls), 'call')} became {count(steps, 'step')} in {place}")
    for shown in draft.proof:
        click.echo(f"  {printable(shown)}")
    if draft.trials.warning:
        click.secho(draft.trials.warning, fg="red", bold=True, err=True)
        if not draft.trials.count("wrong"):
            note("note: expect it to ask or to hand over in every run; more traces may teach more")
    if draft.outcome in OUTCOMES:
        note(f"note: {OUTCOMES[draft.outcome]}")
    for contradiction in draft.contradictions:
        # Shown without --explain too: a wrong trace makes a wrong routine.
        note(f"note: the trace contradicts itself at {contradiction}")
    for found in draft.explained:
        if found.how == "parts" and found.place == OUTPUT and found.note:
            note(f"note: {found.note}")
        if (
            found.how == "constant"
            and found.place.startswith(OUTPUT)
            and _looks_computed(found.recorded)
        ):
            note(
                f"note: {found.place} will be {short(found.recorded)} on every run:"
                " no call of the trace returned it"
            )
    _print_asked(draft, explained=explained)


def _print_asked(draft: "Draft", *, explained: bool) -> None:
    """Name the values that a run with other inputs asks for, and how to make them constants."""
    from em.compiler.confirmation import names_to_confirm

    differing = [name for name, one in draft.routine.asks.items() if one.others]
    if differing:
        note(f"note: every run asks for {', '.join(differing)}: the traces differ in it")
    asked = names_to_confirm(draft.routine)
    if not asked:
        return
    shown = ", ".join(f"{name} ({short(one.recorded)})" for name, one in list(asked.items())[:5])
    more = f" and {len(asked) - 5} more" if len(asked) > 5 else ""
    note(f"note: with other inputs a run asks for {shown}{more}: the recording does not settle it")
    if not explained:
        note("note: --confirm NAME makes such a value a constant; --explain shows the rest")


def _looks_computed(value: Any) -> bool:
    """Return whether a constant in the output looks like the answer of this one run."""
    if isinstance(value, str):
        return len(value) > 3
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > 1


def _print_stubs(made: "CompiledTrace") -> None:
    """Name the functions that a person must write before the routine can run."""
    improved = made.improved
    written = set(made.udfs.functions)
    if improved is not None and improved.by_model and made.draft.udf_source.strip():
        return
    if improved is not None:
        written |= set(improved.functions)
    called = {item.name for item in made.draft.recording if item.is_udf}
    for name in sorted(called - written):
        note(f"note: write {name} in {UDF} (a stub with examples is there)")


def _print_improved(improved: "Improved") -> None:
    spent = improved.spent
    tokens = f"{spent.tokens.input + spent.tokens.output:,} tokens"
    cost = "" if spent.cost_usd is None else f", ${spent.cost_usd:.4f}"
    if improved.by_model:
        notes = printable(improved.notes)
        click.echo(f"improved by {improved.draft.written_by} ({tokens}{cost}): {notes}")
        if improved.not_compared:
            note(
                "note: compared with the draft on the recorded values only:"
                f" {improved.not_compared}"
            )
        if improved.draft.udf_source.strip():
            note("its functions run in the sandbox until you read and trust them: em trust")
        return
    click.echo(f"fell back to the routine compiled without the model ({tokens}{cost}):")
    for problem in improved.problems[-1] if improved.problems else ():
        click.echo(f"  {printable(problem)}")
    if improved.functions:
        names = ", ".join(improved.functions)
        click.echo(f"used all the same, since they reproduce the recording: {printable(names)}")
        note("these functions run in the sandbox until you read and trust them: em trust")
    for name, why in improved.left_out.items():
        note(f"note: the model's {printable(name)} is not used: {printable(why)}")


def _asked(made: "CompiledTrace") -> dict[str, Any] | None:
    improved = made.improved
    if improved is None:
        return None
    return {
        "improved": improved.by_model,
        "fell_back": improved.fell_back,
        "functions": improved.functions,
        "left_out": improved.left_out,
        "problems": improved.problems,
        "notes": improved.notes,
        "not_compared": improved.not_compared,
        "spent": improved.spent,
    }


def _explain(draft: "Draft") -> None:
    if draft.calls:
        _explain_calls(draft)
    _explain_effects(draft.routine)
    if draft.contradictions:
        against = [
            (found.place, repr(found.says), f"{found.call + 1} {found.tool}", repr(found.returned))
            for found in draft.contradictions
        ]
        print_table(("contradiction", "in the output", "call", "returned"), against, whole=())
        click.echo()


def _explain_calls(draft: "Draft") -> None:
    """Show the recorded calls, and where each of their values comes from."""
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
    output = len(draft.calls)
    values = [
        (
            "output" if found.call == output else str(found.call + 1),
            found.place.removeprefix("args."),
            short(found.recorded),
            _sureness(found),
            _source(found) + (f" ({found.note})" if found.note else ""),
        )
        for found in draft.explained
    ]
    print_table(("call", "value", "recorded", "how sure", "comes from"), values)
    click.echo()


_SOURCES = {
    "input": "an input",
    "said": "said in the request",
    "asked": "whoever runs it",
    "result": "a whole result",
    "key": "a field of a result",
    "only": "the only one there",
    "match": "the item that was asked for",
    "extreme": "the smallest or largest",
    "computed": "computed",
    "parts": "put together",
    "secret": "a secret",
    "constant": "the recording",
}


def _source(found: "Explained") -> str:
    if found.how in ("constant", "asked"):
        return _SOURCES[found.how]
    return f"{_SOURCES[found.how]}: {found.wired}"


def _sureness(found: "Explained") -> str:
    """Say in words how much the recording shows about where a value comes from."""
    from em.compiler.evidence import ENOUGH

    if found.how in ("asked", "constant"):
        return "asked" if found.how == "asked" else "always this"
    if found.how in ("input", "said", "secret", "parts") or found.bits >= ENOUGH:
        return "sure"
    return "a guess"


def _explain_effects(routine: Routine) -> None:
    """Say what must be so before and after each call with an effect, and what is asked for."""
    for one in requirements(routine):
        made = [words if words.startswith("for each") else f"if {words}" for words in one.when]
        _echo_under(f"{one.step_id} is made", made)
        agree = [f"{words}; else the run asks" for words in one.agree]
        stopped = [f"{words}; else the run stops" for words in one.hold]
        _echo_under(f"before {one.step_id}:", [*agree, *stopped])
        _echo_under(f"after {one.step_id}:", [f"{w}; else the run stops" for w in one.expect])
        click.echo()
    if routine.asks:
        click.echo("with other inputs a run asks for:")
        for asked in asked_for(routine):
            click.echo(printable(f"  {asked.name}: recorded {asked.recorded}; {asked.why}"))
        click.echo()
    if routine.request is not None:
        words = request_in_words(routine.request.template)
        click.echo(printable(f"the request as a text: {words}"))
        without = ", or without them" if routine.request.decides else ""
        click.echo(f"  a run asks before it acts on other words{without}")
        click.echo()


def _echo_under(title: str, lines: list[str]) -> None:
    for line in [title, *(f"  {one}" for one in lines)] if lines else ():
        click.echo(printable(line))


def _report(draft: "Draft", place: str) -> dict[str, Any]:
    from em.runner.routine import ToolStep, UdfStep

    return {
        "routine": place,
        "name": draft.routine.name,
        "outcome": draft.outcome,
        "proof": draft.proof,
        "trials": draft.trials.as_dict(),
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
        "guards": {
            step.id: list(step.guards)
            for step in draft.routine.steps
            if isinstance(step, ToolStep | UdfStep) and step.guards
        },
        "expects": {
            step.id: list(step.expects)
            for step in draft.routine.steps
            if isinstance(step, ToolStep | UdfStep) and step.expects
        },
        "asks": draft.routine.asks,
        "request": draft.routine.request,
        "input": draft.input,
        "contradictions": [
            {**msgspec.structs.asdict(found), "call": found.call + 1}
            for found in draft.contradictions
        ],
    }


def _compile_again(name: str, options: dict[str, Any]) -> int:
    for given in (*_OF_ONE, "keep_all", "llm"):
        if options[given]:
            raise UsageError(
                "--again takes only --allow-unlabelled",
                place=(flag := f"--{given.replace('_', '-')}"),
                fix=f"leave out {flag}, or name the traces",
            )
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


_OF_ONE = ("name", "tools", "udf", "output", "explain", "allow_failed", "confirm", "force")
"""Options of a single routine."""


def _compile_all(options: dict[str, Any], *, distributed: bool) -> int:
    """Compile and store a routine for each task in the log. Return 1 if one failed."""
    for name in _OF_ONE:
        if options[name]:
            raise UsageError(
                "--all takes no options of a single routine",
                place=(flag := f"--{name.replace('_', '-')}"),
                fix=f"leave out {flag}, or name the traces of one task",
            )
    if distributed:
        from em.cli.queue import open_queue, report_queued

        queue = open_queue()
        names = ("keep_all", "llm", "allow_unlabelled")
        chosen = {name: True for name in names if options[name]}
        return report_queued(queue, queue.add_compilations(how=chosen), "compiling", wait=True)
    return _compile_all_here(options)


def _compile_all_here(options: dict[str, Any]) -> int:
    from em.traces.catalogue import attempts

    memory = open_memory()
    client = model(wanted=options["llm"])
    tasks = attempts(memory.store, allow_unlabelled=options["allow_unlabelled"])
    stored: dict[str, str] = {}
    failed: dict[str, str] = {}
    with only_results_on_stdout(), progress("compiling", len(tasks)) as advance:
        for task, traces in tasks.items():
            try:
                made = memory.compile(
                    traces,
                    keep_all=options["keep_all"],
                    client=client,
                    shadow=options["shadow"],
                )
                stored[task] = made.ref
            except EmError as error:
                failed[task] = str(error)
            advance(1)

    def text() -> None:
        for ref in stored.values():
            click.echo(ref)
        note(f"{count(len(stored), 'task')} compiled")
        for task, why in failed.items():
            note(f"failed: {task}: {why}")

    emit({"kept": stored, "failed": failed}, text)
    return 1 if failed else 0


@click.command("validate")
@click.argument("routine", metavar="DIR|NAME[@VERSION]")
@click.option("--tools", metavar="MODULE|FILE", help="Check calls against these tools too.")
@click.option("--udf", metavar="MODULE|FILE", help="Functions in addition to those of udf.py.")
@everywhere
def validate(routine: str, tools: str | None, udf: str | None) -> int:
    """List every problem of a routine, by its folder or its name, with file and line.

    Exit code 1 if there is an error. A routine that has only warnings is valid.
    """
    from em.runner.validation import validate as find_problems

    registry = load_tools(tools)
    with only_results_on_stdout():
        functions = functions_of(load_module(udf), imported=True) if udf else None
    with ExitStack() as stack:
        folder = "" if is_folder(routine) else _unpacked(routine, stack)
        problems = find_problems(folder or routine, tools=registry, udfs=functions)
        if folder:
            problems = [
                msgspec.structs.replace(problem, file=problem.file.replace(folder, routine, 1))
                for problem in problems
            ]
        is_valid = not any(problem.severity == "error" for problem in problems)
        checks = _checks_after_effects(Path(folder or routine)) if is_valid else []
    return print_problems(problems, checks)


def _checks_after_effects(folder: Path) -> list[str]:
    path = folder / ROUTINE
    return list(goal_checks(read_routine(parse_yaml(path.read_bytes(), str(path)), str(path))))


def print_problems(problems: list[Any], checks: list[str] | None = None) -> int:
    """Print the problems that validation found. Return 1 if one is an error.

    checks: what a run of a routine checks after its effects, in words.
    """
    errors = sum(problem.severity == "error" for problem in problems)

    def text() -> None:
        for problem in problems:
            click.echo(printable(str(problem)), err=not errors)
        if errors:
            click.secho(count(errors, "problem"), fg="red", err=True)
        else:
            click.secho("valid", fg="green")
        for check in checks or ():
            note(f"checked {check}")

    found = {"ok": not errors, "problems": problems}
    emit(found if checks is None else {**found, "checks": checks}, text)
    return 1 if errors else 0


def _unpacked(ref: str, stack: ExitStack) -> str:
    """Write a stored routine to a folder that exists until the stack is closed."""
    with known_routine(ref) as store:
        artefact = find_routine(store, ref)
    folder = stack.enter_context(TemporaryDirectory(prefix="em-routine-"))
    write_files(texts_of(artefact), Path(folder))
    return folder


USAGE = {
    "python": "run it with: python {file} --input FILE --tools MODULE",
    "langchain": "langchain_tool(TOOLS) returns the tool",
    "openai": "FUNCTION describes it to a model, handle(ARGUMENTS, TOOLS) answers a call",
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
    help="The file to write  [standard output]; for a skill, the folder that it goes into  [.].",
)
@click.option("--tools", metavar="FILE", help="For a skill: a Python file of tools to include.")
@click.option("--trust", is_flag=True, help="You have read the code that a model wrote.")
@everywhere
def export(routine: str, to: str, output: str | None, tools: str | None, trust: bool) -> None:
    """Write a routine, by its folder or its stored name, as code that runs without em.

    \b
    python     a script
    skill      an Agent Skill: a folder with SKILL.md and the script
    langchain  a module with a StructuredTool
    openai     a module with a function for a model, and its handler

    The script does what `em run --no-journal` does. It can do what `em compile` writes; anything
    else is an error that names the step and the field, and nothing is written. A routine that finds
    out from the request what to do is exported as a skill only, which runs it with em. A script has
    no sandbox: functions that a model wrote are exported only when they are trusted.
    """
    if tools and to != "skill":
        raise UsageError("tools are included in skills only", place="--tools", fix="--to skill")
    with ExitStack() as stack:
        package = find_package(routine, stack)
        if to == "skill":
            _write_skill(package, routine, output or ".", tools, trust=trust)
        else:
            _write_script(package, routine, to, output or "-", trust=trust)


def _write_script(package: Package, routine: str, to: str, output: str, *, trust: bool) -> None:
    from em.compiler.export.agent_tools import export_langchain, export_openai
    from em.compiler.export.python import export_python

    export = {"python": export_python, "langchain": export_langchain, "openai": export_openai}[to]
    script = export(package, trust=trust)
    if output == "-" and wants_json():
        emit({"routine": routine, "to": to, "script": script}, script)
        return
    with writing(output, "" if output == "-" else address()) as out:
        out.write(script.encode())
    if output != "-":
        usage = USAGE[to].format(file=output)
        emit({"routine": routine, "to": to, "file": output}, lambda: note(f"{output}: {usage}"))


def _write_skill(
    package: Package, routine: str, output: str, tools: str | None, *, trust: bool
) -> None:
    from em.compiler.export.agent_tools import export_skill, skill_name

    files = export_skill(package, tools=tools, trust=trust)
    folder = Path(output) / skill_name(package.routine.name)
    if folder.exists() and not (folder / "SKILL.md").exists() and any(folder.iterdir()):
        raise UsageError(
            "this folder has other files and no SKILL.md",
            place=str(folder),
            fix="name another folder with -o",
        )
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with writing(str(folder / path), address()) as out:
            out.write(text.encode())
    emit(
        {"routine": routine, "to": "skill", "folder": str(folder)},
        lambda: note(f"{folder}: a skill; agents read its SKILL.md"),
    )
