"""`em routine`: the routines that a memory keeps, their versions, and healing them."""

import re
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import msgspec

from em.cli.files import writing
from em.cli.options import everywhere, find_package, open_memory
from em.cli.output import (
    count,
    only_results_on_stdout,
    print_json,
    print_table,
    printable,
    progress,
)
from em.errors import EmError, NotFound, UsageError
from em.log.stream import code_stream
from em.runner.authorship import code_hash, code_notes, is_model_written, revoke
from em.runner.authorship import trust as trust_code
from em.runner.package import (
    ROUTINE,
    UDF,
    Package,
    files_in,
    find_routine,
    is_folder,
    keep_routine,
    kept_routines,
    texts_of,
    write_files,
)
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.settings import Settings
from em.store.protocol import Commit
from em.traces.catalogue import get_traces
from em.values.canonical import Json, short

if TYPE_CHECKING:
    from em.compiler.compile_trace import CompiledTrace
    from em.compiler.draft import Draft
    from em.compiler.heal import Healing
    from em.compiler.improvement import Improved


@click.group("routine")
def routine() -> None:
    """The routines that a memory keeps: list, show, keep, unpack, retire, heal."""


@routine.command("list")
@everywhere
@click.pass_context
def list_routines(ctx: click.Context) -> None:
    """Every version of every routine that is kept."""
    rows = [
        {
            "routine": f"{found.name}@{found.version}",
            "at": found.created_at.isoformat(timespec="seconds"),
            "state": "erased" if found.body is None else "retired" if found.retired_at else "",
            "from_events": len(found.from_events),
        }
        for found in kept_routines(open_memory(ctx).store)
    ]
    if ctx.obj["json"]:
        print_json(rows)
    elif rows:
        print_table(tuple(rows[0]), [tuple(map(str, row.values())) for row in rows])
    else:
        click.echo("no routine is kept yet; `em compile TRACE --keep` keeps one", err=True)


@routine.command("show")
@click.argument("ref", metavar="NAME[@VERSION]")
@everywhere
@click.pass_context
def show_routine(ctx: click.Context, ref: str) -> None:
    """Print the routine.yaml of a routine that is kept."""
    artefact = find_routine(open_memory(ctx).store, ref)
    files = texts_of(artefact)
    if ctx.obj["json"]:
        print_json(
            {"routine": f"{artefact.name}@{artefact.version}", "files": files,
             "from_events": artefact.from_events}
        )  # fmt: skip
    else:
        click.echo(files[ROUTINE], nl=False)


@routine.command("keep")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@everywhere
@click.pass_context
def keep(ctx: click.Context, folder: str) -> None:
    """Keep the routine in DIR as a new version of its name."""
    kept = keep_routine(open_memory(ctx, create=True).store, files_in(folder))
    if ctx.obj["json"]:
        print_json({"routine": kept.ref})
    else:
        click.echo(f"kept as {kept.ref}")


@routine.command("unpack")
@click.argument("ref", metavar="NAME[@VERSION]")
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False))
@everywhere
@click.pass_context
def unpack(ctx: click.Context, ref: str, output: str) -> None:
    """Write a routine that is kept into the folder DIR; what is no routine's is left alone."""
    artefact = find_routine(open_memory(ctx).store, ref)
    write_files(texts_of(artefact), Path(output))
    report = {"routine": f"{artefact.name}@{artefact.version}", "folder": output}
    if ctx.obj["json"]:
        print_json(report)
    else:
        click.echo(f"{report['routine']} is in {output}")


@routine.command("retire")
@click.argument("ref", metavar="NAME@VERSION")
@everywhere
@click.pass_context
def retire(ctx: click.Context, ref: str) -> int:
    """Take a version out of use: its name then means the version before; it stays readable."""
    store = open_memory(ctx).store
    artefact = find_routine(store, ref)
    done = bool(store.commit(Commit(retire=[artefact.id])).retired)
    report = {"routine": f"{artefact.name}@{artefact.version}", "retired": done}
    if ctx.obj["json"]:
        print_json(report)
    else:
        click.echo(f"{report['routine']} is {'retired' if done else 'retired already'}")
    return 0


@routine.command("heal")
@click.argument("run_id", metavar="RUN")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@everywhere
@click.pass_context
def heal(ctx: click.Context, run_id: str, dry_run: bool) -> int:
    """Write the fixes that RUN needed into its routine, as a new version.

    The run is made again with what its journal holds: the healed routine must need no fix, and give
    the same output. The old version is kept: `em routine unpack` brings it back.
    """
    healing = open_memory(ctx).heal(run_id, dry_run=dry_run)
    if ctx.obj["json"]:
        print_json(healing)
    else:
        print_healing(healing, run_id)
    return 0 if healing.changed else 1


def print_healing(healing: "Healing", run_id: str) -> None:
    """What the fixes of a run change, or would change."""
    for refused in healing.refused:
        click.echo(f"can't be healed: {printable(refused)}", err=True)
    click.echo(healing.patch, nl=False)
    if healing.new:
        click.echo(f"kept as {healing.new}; the old one is {healing.old}")
    elif healing.changed:
        click.echo(f"  make this change with: em routine heal {run_id}")


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
def compile_(
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
    from em.compiler.package_files import write_package

    if everything != (not traces) or (distributed and not everything):
        raise click.UsageError("Name traces, or --all; --distributed goes with --all.")
    if everything:
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
            ref = _store_compiled(ctx, made, keep=keep)
    place = str(Path(output)) if output else ref
    if ctx.obj["json"]:
        print_json({**_report(draft, place), "kept": ref or None, "model": _asked(made)})
        return 0
    if explain:
        _explain(draft)
    _print_compiled(draft, place, explained=explain)
    _tell_stubs(made)
    if made.improved is not None:
        _tell_improved(made.improved)
    if output is not None and ref and keep:
        click.echo(f"kept as {ref}")
    return 0


def _compile(
    ctx: click.Context, traces: tuple[str, ...], options: dict[str, Any]
) -> "CompiledTrace":
    from em.compiler.compile_trace import compile_file, compile_several
    from em.llm import get_llm_client

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


def _store_compiled(ctx: click.Context, made: "CompiledTrace", *, keep: bool) -> str:
    """Keep it, and tell the log what a model wrote; the `name@version`."""
    store = open_memory(ctx, create=True).store
    if keep:
        return keep_routine(store, made.files, made.from_events).ref
    notes = code_notes(made.files, made.draft.routine.name, made.from_events)
    store.commit(Commit(events=notes))
    return ""


def _print_compiled(draft: "Draft", place: str, *, explained: bool) -> None:
    from em.compiler.wire import OUTPUT

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


def _tell_stubs(made: "CompiledTrace") -> None:
    """Functions that somebody has to write before the routine can run."""
    if made.draft.udf_source.strip():
        return
    called = {item.name for item in made.draft.recording if item.is_udf}
    for name in sorted(called - made.udfs.functions.keys()):
        click.echo(f"note: {UDF}: {name} must be written, unless it is there already", err=True)


def _tell_improved(improved: "Improved") -> None:
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


def _asked(made: "CompiledTrace") -> dict[str, Any] | None:
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


def _explain(draft: "Draft") -> None:
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


def _report(draft: "Draft", place: str) -> dict[str, Any]:
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


def compile_all(ctx: click.Context, options: dict[str, Any], *, distributed: bool) -> int:
    """Keep a routine for each task that was done. Exit code 1 if something failed."""
    for name in ("name", "tools", "udf", "output", "explain"):
        if options[name]:
            raise UsageError("this is for one task", place=f"--{name}", fix="name its traces")
    if distributed:
        from em.cli.queue import open_queue, tell_queued

        queue = open_queue(ctx)
        chosen = {name: True for name in ("keep_all", "llm") if options[name]}
        jobs = queue.add_compilations(how=chosen)
        return tell_queued(queue, jobs, "compiling", wait=True, as_json=ctx.obj["json"])
    return _here(ctx, options)


def _here(ctx: click.Context, options: dict[str, Any]) -> int:
    from em.llm import get_llm_client
    from em.traces.catalogue import attempts

    memory = open_memory(ctx)
    client = get_llm_client() if options["llm"] else None
    tasks = attempts(memory.store)
    kept: dict[str, str] = {}
    failed: dict[str, str] = {}
    with only_results_on_stdout(), progress("compiling", len(tasks)) as advance:
        for task, traces in tasks.items():
            try:
                made = memory.compile(traces, keep_all=options["keep_all"], client=client)
                kept[task] = made.ref
            except EmError as error:
                failed[task] = str(error)
            advance(1)
    if ctx.obj["json"]:
        print_json({"kept": kept, "failed": failed})
    else:
        for ref in kept.values():
            click.echo(ref)
        click.echo(f"{count(len(kept), 'task')} compiled", err=True)
        for task, why in failed.items():
            click.echo(f"failed: {printable(task)}: {printable(why)}", err=True)
    return 1 if failed else 0


@click.command("validate")
@click.argument("routine", metavar="DIR|NAME[@VERSION]")
@click.option("--tools", metavar="MODULE|FILE", help="Look at the tools that are called too.")
@click.option("--udf", metavar="MODULE|FILE", help="Functions beside those of udf.py.")
@everywhere
@click.pass_context
def validate(ctx: click.Context, routine: str, tools: str | None, udf: str | None) -> int:
    """Check a routine, by its folder or its name in the memory, and list what is wrong with it.

    Each with its file and line. Warnings are what may be meant; they alone leave a routine valid.
    """
    from em.runner.validation import validate as find_problems

    with only_results_on_stdout():
        registry = ToolRegistry.load(tools) if tools else None
        functions = functions_of(load_module(udf), imported=True) if udf else None
    with ExitStack() as stack:
        kept = "" if is_folder(routine) else _unpacked(ctx, routine, stack)
        problems = find_problems(kept or routine, tools=registry, udfs=functions)
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
def export(
    ctx: click.Context, routine: str, to: str, output: str | None, tools: str | None, trust: bool
) -> None:
    """Write a routine, by its folder or the name under which it is kept, as code without em.

    python: a script. skill: an Agent Skill, a folder with SKILL.md and the script. langchain: a
    module with a StructuredTool. openai: a module with a function for a model, and its handler.

    The script does what `em run --no-journal` does. It can do what `em compile` writes; anything
    else is an error that names the step and the field, and nothing is written. A script has no
    sandbox: functions that a model wrote are exported only once they are trusted.
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


@click.command("trust")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--revoke", "taken_back", is_flag=True, help="Take it back.")
@click.option("--yes", is_flag=True, help="Don't ask: you have read it elsewhere.")
@everywhere
@click.pass_context
def trust(ctx: click.Context, folder: str, taken_back: bool, yes: bool) -> int:
    """Show the functions of the routine in DIR, and remember that you have read them.

    Code that a model wrote runs in the sandbox until then. What is remembered is its hash, in a
    folder of yours outside of DIR: a change of the code, or another person's machine, needs trust
    of its own.
    """
    path = Path(folder) / UDF
    try:
        code = path.read_bytes()
    except OSError as error:
        raise UsageError(f"it can't be read: {error.strerror}", place=str(path)) from None
    facts: Json = {
        "file": str(path.resolve()),
        "sha256": code_hash(code),
        "size": len(code),
        "marked": is_model_written(path.parent, UDF),
    }
    if taken_back:
        gone = revoke(facts["sha256"], path)
        for sha256 in gone:
            _log(ctx, "code_distrusted", {"file": facts["file"], "sha256": sha256})
        return _print_trust(
            ctx, {**facts, "revoked": gone}, "taken back" if gone else "it was not trusted"
        )
    if not yes and not _confirmed(code, facts, as_json=ctx.obj["json"]):
        click.echo("nothing was changed", err=True)
        return 1
    entry = trust_code(facts["sha256"], path, len(code))
    logged = {name: facts[name] for name in ("file", "sha256", "size")}
    _log(ctx, "code_trusted", logged)
    return _print_trust(
        ctx, {**facts, "trusted_at": entry.at}, "trusted: it runs in the process from now"
    )


def _confirmed(code: bytes, facts: Json, *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise UsageError(
            "nobody can be asked here", place=facts["file"], fix="read it, and give --yes"
        )
    click.echo(_readable(code), err=True)
    whose = "" if facts["marked"] else " (nothing marks it as a model's: it is trusted anyway)"
    click.echo(f"{facts['file']}: {facts['size']:,} bytes, {facts['sha256']}{whose}", err=True)
    return click.confirm("Have you read it, and may it do what you may do?", err=True)


def _readable(code: bytes) -> str:
    """The code with nothing hidden: what a terminal would act on, or turn around, is escaped."""
    text = code.decode(errors="backslashreplace")
    shown = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    return "".join(shown)


def _log(ctx: click.Context, kind: str, body: Json) -> None:
    """Keep it in the memory's log too, if there is one."""
    try:
        memory = open_memory(ctx)
    except NotFound:
        return
    memory.log.append(code_stream(body["sha256"]), kind, body)


def _print_trust(ctx: click.Context, report: dict[str, Any], words: str) -> int:
    if ctx.obj["json"]:
        print_json(report)
    else:
        click.echo(f"{report['file']}: {words}")
    return 0
