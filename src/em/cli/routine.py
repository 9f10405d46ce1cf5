"""`em routine`: what may become a routine; stored routines, their versions and how they do."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import msgspec

from em.cli.command import group
from em.cli.options import (
    address,
    find_package,
    known_routine,
    limited,
    load_tools,
    open_memory,
    person,
    writing,
)
from em.cli.output import (
    Columns,
    cell,
    count,
    emit,
    emit_list,
    note,
    only_results_on_stdout,
    print_fields,
    print_table,
    printable,
    progress,
    shortened,
    wants_json,
)
from em.errors import NotFound, UsageError
from em.memory import Memory
from em.runner.package import (
    ROUTINE,
    Package,
    files_in,
    find_routine,
    is_folder,
    keep_routine,
    kept_routines,
    parse_yaml,
    proof_of,
    read_routine,
    texts_of,
    trials_of,
    write_files,
)
from em.runner.standing import (
    difference,
    standing_of,
    stored_routine,
    tried_in_words,
    versions,
)
from em.runner.tools import functions_of, load_module
from em.runner.trial import ENOUGH_TRIALS
from em.traces.catalogue import trace_ids
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.compiler.proposals import Proposal
    from em.compiler.suggestions import Suggestion
    from em.runner.tools.grant import Grant

LONGEST_GOAL, LONGEST_REASON = 80, 300
"""Characters of a goal and of a reason that are shown."""


@group("routine", {"behaviours": "em.cli.behaviours:behaviours"})
def routine() -> None:
    """Suggest, list, show, unpack, strike, accept, retire, restore and export routines."""


@routine.command("list")
def list_() -> None:
    """List every version of every stored routine."""
    store = open_memory().store
    found = [stored_routine(store, one) for one in versions(store)]
    columns: Columns = {
        "routine": "ref",
        "at": "created_at",
        "state": "state",
        "by itself": "by_itself",
        "events": "from_events",
        "proof": "tried",
    }
    none = "no stored routines; `em compile TRACE --keep` stores one"
    emit_list("routines", found, columns, none=none)


@routine.command("show")
@click.argument("ref", metavar="NAME[@VERSION]|DIR")
@click.option("--python", is_flag=True, help="Print it as a Python function instead.")
def show(ref: str, python: bool) -> None:
    """Print a stored routine, or the one in a folder: its routine.yaml, and what is in it.

    That is its inputs, its constants, its checks with their ids and in how many recordings they
    held, and its proof: how it did on recordings, also on those that it was not learnt from. Of a
    stored one also whether it is used by itself, without asking a person, and why.
    """
    from em.cli.outline import print_code, print_outline, print_proof
    from em.compiler.checks import outline_of

    name, events, standing = ref, [], None
    if is_folder(ref):
        files = files_in(ref)
    else:
        store = open_memory().store
        artefact = find_routine(store, ref)
        name, files = f"{artefact.name}@{artefact.version}", texts_of(artefact)
        events, standing = list(artefact.from_events), standing_of(store, artefact)
    document = parse_yaml(files[ROUTINE].encode(), ROUTINE)
    read_routine(document, ROUTINE)  # raises if it is none
    if python:
        _show_python(name, document)
        return
    tried, proof = trials_of(files), proof_of(files)

    def text() -> None:
        print_code(files)
        print_outline(document)
        if proof is not None:
            click.echo()
            print_proof(proof, is_outdated=tried.is_outdated)
        if standing is not None:
            click.echo()
            print_fields(standing)

    shown: Json = {"routine": name, "files": files, "from_events": events}
    shown |= {"proof": tried.counts, "standing": standing}
    emit({**shown, **msgspec.to_builtins(outline_of(document))}, text)


def _show_python(name: str, document: Json) -> None:
    """Print a routine as a function."""
    from em.compiler.export.function import function_text

    if document.get("checks") != "hand_over":
        raise UsageError(
            "only a routine with `checks: hand_over` reads as a function",
            place=name,
            fix="`em routine export --to python` writes any routine as a script",
        )
    function = function_text(document)
    emit({"routine": name, "python": function}, lambda: click.echo(function, nl=False))


@routine.command("unpack")
@click.argument("ref", metavar="NAME[@VERSION]")
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False))
def unpack(ref: str, output: str) -> None:
    """Write a stored routine into the folder DIR. Other files in DIR stay as they are."""
    artefact = find_routine(open_memory().store, ref)
    write_files(texts_of(artefact), Path(output))
    name = f"{artefact.name}@{artefact.version}"
    emit({"routine": name, "folder": output}, f"{name} is in {output}")


@routine.command("accept")
@click.argument("ref", metavar="NAME[@VERSION]|DIR|KEY")
@click.option("--name", help="With KEY: the routine's name.  [from the traces]")
@click.option("--no-allow", is_flag=True, help="Leave em.yaml as it is.")
@click.option("--yes", is_flag=True, help="Don't ask: you have read it elsewhere.")
def accept(ref: str, name: str | None, no_allow: bool, yes: bool) -> int:
    """Accept a version that you have read: it is in use, and agents use it without asking.

    The routine in the folder DIR is stored as a new version. A stored routine of that name comes
    first; `./NAME` is always the folder. KEY names what was proposed at the end of a session
    (`em routine suggest` lists it): it is compiled.

    What the routine needs and em.yaml does not allow yet, the programs and folders of its
    recordings, is shown all at once. If you agree it is written into the em.yaml of the folder in
    which it was recorded, and trusted.

    Without your word a version is used by itself if it was right on three recordings left out of
    it that succeeded, was never wrong, and has no value open. `em routine withdraw` takes your
    word back.
    """
    from em.runner.tools.grant import grant_for

    memory = open_memory(create=is_folder(ref))
    is_stored = "/" not in ref and any(kept_routines(memory.store, ref.partition("@")[0]))
    files = files_in(ref) if is_folder(ref) and not is_stored else None
    grants: list[Grant] = []

    def agree(files: Mapping[str, str]) -> None:
        grant = grant_for(memory.store, files)
        if grant:
            grant.refuse_untrusted()
            grants.append(grant)
        if grant.lines:  # also what a person must write by hand
            _show_needs(files, grant)
        if grant and not yes:
            _confirm(grant)

    try:
        who = person()
        if files is not None:
            ref = keep_routine(memory.store, files, retired=True).ref
        done = memory.accept(ref, by=who, name=name, agree=None if no_allow else agree)
    except _Declined:
        note("nothing was changed")
        return 1
    for grant in grants:
        grant.apply()
    allowed = {name: items for grant in grants for name, items in grant.lists.items()}
    _print_change(done, "accepted", "is{} accepted", {"allowed": allowed})
    return 0


class _Declined(Exception):
    """A person does not want what was shown."""


def _show_needs(files: Mapping[str, str], grant: "Grant") -> None:
    """Show what a routine is, how it did, and what it needs."""
    document = parse_yaml(files[ROUTINE].encode(), ROUTINE)
    note(f"{document.get('name')}: {document.get('description', '')}".rstrip(": "))
    note(f"on other recordings: {tried_in_words(files) or 'it was not tried'}")
    for line in grant.lines:
        note(line)


def _confirm(grant: "Grant") -> None:
    if wants_json() or not sys.stdin.isatty():
        fix = "read what it needs, then pass --yes, or --no-allow to leave em.yaml as it is"
        raise UsageError("can't ask for confirmation here", place=str(grant.file), fix=fix)
    if not click.confirm("Put it in use, and allow it this?", err=True):
        raise _Declined


def _print_change(done: Any, fact: str, words: str, more: Json | None = None) -> None:
    """Print what a version of a routine now is, and what the routine's name means."""
    name = done.routine.partition("@")[0]
    meaning = f"{name} means {done.now}" if done.now else f"no version of {name} is in use"
    text = f"{done.routine} {words.format('' if done.changed else ' already')}; {meaning}"
    emit({"routine": done.routine, fact: done.changed, "now": done.now, **(more or {})}, text)


@routine.command("withdraw")
@click.argument("ref", metavar="NAME[@VERSION]")
def withdraw(ref: str) -> None:
    """Take back that a version was accepted. If that put it in use, it is proposed again."""
    done = open_memory().withdraw(ref, by=person())
    _print_change(done, "withdrawn", "is{} not accepted")


@routine.command("retire")
@click.argument("ref", metavar="NAME@VERSION")
def retire(ref: str) -> None:
    """Retire a version: its name then means the version before. It can still be read."""
    _print_change(open_memory().retire(ref, by=person()), "retired", "is{} retired")


@routine.command("restore")
@click.argument("ref", metavar="NAME@VERSION")
def restore(ref: str) -> None:
    """Put a retired version in use again. Its name then means the newest version in use."""
    _print_change(open_memory().restore(ref, by=person()), "restored", "is{} in use")


@routine.command("strike")
@click.argument("ref", metavar="NAME")
@click.argument("checks", metavar="CHECK...", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="Why it is not needed, for the log.")
def strike(ref: str, checks: tuple[str, ...], reason: str) -> None:
    """Strike checks of a learnt routine: runs no longer hand over because of them.

    CHECK is the id of an assert, STEP.FIELD for one thing that a step expects of its result, or
    STEP for all that it expects; `em routine show` lists them. The routine without them is stored
    as a new version, and `em compile --again` leaves them out.
    """
    done = open_memory().strike(ref, *checks, reason=reason, by=person())
    kept = f"stored as {done.new}; the version before is {done.old}"
    emit(done, f"{printable(done.words)}\n{kept}")


@routine.command("diff")
@click.argument("name", metavar="NAME")
@click.argument("numbers", metavar="[OLD [NEW]]", nargs=-1, type=int)
def diff(name: str, numbers: tuple[int, ...]) -> None:
    """Say in words what a version of a routine has learnt since another one.

    OLD and NEW are numbers of versions: by default the newest version, also one that waits for a
    person, and the one before it.
    """
    if len(numbers) > 2:
        raise click.UsageError("Give at most two versions.")
    found = difference(open_memory().store, name, *numbers)
    changes = found.changes or ["nothing that matters to a run has changed"]
    emit(found, "\n".join([*map(printable, changes), found.proof]))


@routine.command("suggest")
@click.option("--task", help="Only traces whose goal contains this.")
@click.option(
    "--at-least",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many traces must have had the same effects.",
)
@limited(10)
@click.option(
    "--allow-unlabelled",
    is_flag=True,
    help="Also take traces that don't say whether they succeeded.",
)
@click.option("--about", metavar="TRACE", multiple=True, help="Only groups of it. Repeatable.")
@click.option("--propose", is_flag=True, help="Store what is proven, to tell it to agents once.")
def suggest(
    *,
    task: str | None,
    at_least: int,
    limit: int,
    allow_unlabelled: bool,
    about: tuple[str, ...],
    propose: bool,
) -> None:
    """List the traces that are worth compiling, the most worthwhile first.

    Traces that succeeded and had the same effects form a group, however often and on which way;
    those without an effect if they made the same calls. The best groups are compiled and tried on
    their own traces; nothing is stored. Not proposed is what would do the same on every run.
    What was proposed at the end of an agent's session and is not kept yet comes first.

    The saving is an estimate for one run: the median of what the agent itself cost in its traces,
    as the transcript reports it. A - means that the transcripts don't report it. Proved: each trace
    of a sample is left out once, and what the others teach is tried on it.
    """
    from em.compiler.proposals import open_proposals, propose_mended
    from em.compiler.proposals import propose as store_proposals
    from em.compiler.suggestions import suggest as suggest_groups

    memory = open_memory()
    with progress("reading and proving") as bar:
        found = suggest_groups(
            memory.store,
            task,
            at_least=at_least,
            limit=limit,
            allow_unlabelled=allow_unlabelled,
            about=about,
            progress=bar.at,
        )
    if propose:
        store_proposals(memory.store, found)
        propose_mended(memory.store, about)
    proposals = open_proposals(memory.store)

    def text() -> None:
        for proposal in proposals:
            _print_proposal(proposal)
        if not found:
            note(
                "no traces that succeeded belong together: they must have the same effects, and"
                " requests of sessions must be worded alike;"
                " `em routine suggest --at-least 1` lists all"
            )
        if not allow_unlabelled:
            _note_unlabelled(memory, task, sum(one.unlabelled for one in found))
        if found:
            _print_suggestions(found, proposals)
        if found.more:
            note(f"… {count(found.more, 'group')} more: repeat with -n {limit + found.more}")

    emit({"suggestions": found, "proposals": proposals, "more": found.more}, text)


def _print_suggestions(found: "Sequence[Suggestion]", proposals: "Sequence[Proposal]") -> None:
    columns = ("traces", "proved", "answers", "tokens", "seconds", "usd", "effects")
    print_table(columns, [_suggestion_row(one) for one in found])
    click.echo()
    waiting = {trace: one.key for one in proposals if not one.routine for trace in one.traces}
    for one in found:
        _print_suggestion(one, next((waiting[id_] for id_ in one.sample if id_ in waiting), ""))


def _print_proposal(one: "Proposal") -> None:
    goal = printable(shortened(one.goal, LONGEST_GOAL)) or "(no goal recorded)"
    if one.routine:
        click.echo(f"handed over by {one.routine}: {goal}  ({count(one.count, 'trace')})")
        click.echo(f"  em can't learn it by itself: {printable(one.proof)}")
        click.echo(f"  an agent can write the next version: propose with the group {one.key}")
        return
    click.echo(f"proposed: {goal}  ({count(one.count, 'trace')})")
    click.echo(f"  tried on {count(len(one.traces), 'trace')}: {one.proof}")
    _print_waits(one.waits)
    click.echo(f"  em routine accept {one.key}")


def _print_waits(waits: str) -> None:
    """Say whether a routine would be used by itself."""
    used = f"agents would ask you first: {printable(waits)}" if waits else "used by itself: yes"
    click.echo(f"  {used}")


def _note_unlabelled(memory: Memory, task: str | None, taken: int) -> None:
    unlabelled = len(trace_ids(memory.store, task=task, outcome="unknown")) - taken
    if unlabelled > 0:
        note(
            f"without an outcome: {count(unlabelled, 'trace')}; label them "
            "(`em traces label TRACE success`), or take them too with --allow-unlabelled"
        )


def _suggestion_row(one: "Suggestion") -> tuple[str, ...]:
    saved = (round(one.model_calls), one.tokens, one.seconds, one.cost_usd)
    return (
        cell(one.count),
        "-" if one.proof is None else f"{one.right_share:.0%}",
        *("-" if value is None else cell(value) for value in saved),
        ", ".join(one.effects) or f"none: {' > '.join(one.way)}",
    )


def _print_suggestion(one: "Suggestion", proposal: str) -> None:
    """Print a suggestion. proposal: the key of what is proposed of its traces already."""
    goal = printable(shortened(one.goal, LONGEST_GOAL)) or "(no goal recorded)"
    click.echo(f"{goal}  ({count(one.count, 'trace')})")
    if one.problem:
        click.echo(f"  not worth compiling: {printable(shortened(one.problem, LONGEST_REASON))}")
        return
    if one.unlabelled:
        click.echo(f"  {count(one.unlabelled, 'trace')} without an outcome: nothing says it failed")
    if one.proof is not None:
        proof = one.proof.summary
        is_tried = not proof.startswith("not tried")
        click.echo(
            f"  tried on {count(len(one.sample), 'trace')}: {proof}" if is_tried else f"  {proof}"
        )
        if is_tried and not one.proof.right and len(one.sample) >= ENOUGH_TRIALS:
            click.echo("  not worth keeping: it would ask or hand over in every run")
            return
    if one.kept_as:
        name = one.kept_as.partition("@")[0]
        again = "" if ":" in name else f"; with newer traces: em compile --again {name}"
        click.echo(f"  kept already as {one.kept_as}{again}")
        return
    if proposal:
        click.echo(f"  proposed already: em routine accept {proposal}")
        return
    _print_waits(one.waits)
    click.echo(f"  em compile {' '.join(one.sample)} --keep")


@routine.command("shadow")
@click.argument("ref", metavar="[NAME[@VERSION]]", required=False)
@limited(20)
def shadow(ref: str | None, limit: int) -> None:
    """Count how often routines agreed with the agents beside which they were compared.

    With NAME, show where it differed or would have handed over, newest first.
    `memory.record(shadow=True)` compares. `em routine accept` puts a proposed routine in use, and
    `em routine show` says how it did until then.
    """
    reports = open_memory().shadow_report(ref)
    if ref is not None and not reports:
        fix = "`em routine shadow` lists what was compared"
        raise NotFound(f"nothing was compared with {ref!r}", place="routine", fix=fix)
    rows = []
    for report in reports:
        row = msgspec.to_builtins(report)
        telling = [one for one in reversed(report.comparisons) if one.verdict != "agreed"]
        row["comparisons"] = msgspec.to_builtins(telling[:limit])
        rows.append(row)
    if ref is not None:
        emit({"routines": rows})
        return
    rows = [{name: row[name] for name in row if name != "comparisons"} for row in rows]
    names = ("routine", "agreed", "differed", "handed_over", "not_compared", "in_a_row")
    columns: Columns = {name.replace("_", " "): name for name in names}
    last: Columns = {"last difference": lambda one: (one["last_difference"] or {}).get("reason")}
    none = "nothing was compared yet; record agents with memory.record(shadow=True)"
    emit_list("routines", rows, {**columns, **last}, none=none)


@routine.command("validate")
@click.argument("routine", metavar="DIR|NAME[@VERSION]")
@click.option("--tools", metavar="MODULE|FILE", help="Check calls against these tools too.")
@click.option("--udf", metavar="MODULE|FILE", help="Functions in addition to those of udf.py.")
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
    from em.compiler.checks import checks_of

    path = folder / ROUTINE
    document = parse_yaml(path.read_bytes(), str(path))
    return [one.words for one in checks_of(document) if one.is_late]


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
            note(f"checked after effects: {check}")

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


@routine.command("export")
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
def export(routine: str, to: str, output: str | None, tools: str | None, trust: bool) -> None:
    """Write a routine, by its folder or its stored name, as code that runs without em.

    \b
    python     a script
    skill      an Agent Skill: a folder with SKILL.md and the script
    langchain  a module with a StructuredTool
    openai     a module with a function for a model, and its handler

    The script does what `em run --no-journal` does. It can do what `em compile` writes; anything
    else is an error that names the step and the field, and nothing is written. A script has no
    sandbox: functions that a model wrote are exported only when they are trusted.
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
    from em.compiler.export.script import export_python

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
