"""`em run`, `em resume`, `em runs`: run routines, answer their prompts, show past runs."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from em.cli.command import command, group
from em.cli.conversation import (
    Go,
    Watcher,
    converse,
    failure_lines,
    how_to_answer,
    print_failure,
    print_interrupted,
    print_prompt,
    reply_to,
    shown,
    watching,
)
from em.cli.options import (
    added,
    allowed,
    answering,
    as_typed,
    find_package,
    listed,
    listing,
    load_tools,
    model,
    open_memory,
    person,
    read_object,
    with_tools,
)
from em.cli.output import (
    Columns,
    cell,
    count,
    emit,
    emit_list,
    note,
    only_results_on_stdout,
    print_json,
    print_table,
    printable,
    wants_json,
)
from em.errors import EmError, NotAllowed, UsageError
from em.memory import Memory
from em.runner.engine import resume_run, run_routine
from em.runner.history import (
    RETRIED,
    STATUSES,
    PastRun,
    Saving,
    cancel_run,
    find_runs,
    read_run,
    retry_problem,
    savings,
)
from em.runner.journal import by_whom, how_to_resume
from em.runner.machine import AutoFix
from em.runner.package import Package, opened
from em.runner.run import REQUEST, Prepared, RunResult
from em.runner.standing import refuse_if_off
from em.runner.tools import ToolRegistry, functions_of, load_module
from em.settings import Settings
from em.store.protocol import Store
from em.values import json_schema
from em.values.times import new_id

if TYPE_CHECKING:
    from em.compiler.match import Match
    from em.llm.client import LlmClient


_shared = added(
    with_tools,
    click.option("--udf", metavar="MODULE|FILE", help="Functions in addition to those of udf.py."),
    click.option("--trust", is_flag=True, help="Run code that a model wrote without a sandbox."),
    click.option("--auto-fix", is_flag=True, help="Ask a model what to do when a step fails."),
    click.option(
        "--private",
        multiple=True,
        metavar="NAME",
        help="An argument whose value no model may see. Repeatable.",
    ),
    answering,
)
"""The options that `run` and `resume` share."""


@command("run")
@click.argument("routine", metavar="[DIR|NAME[@VERSION]]", default="")
@click.argument("named", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--request", metavar="TEXT", help="What is asked for, in words, in place of ROUTINE.")
@click.option(
    "--input",
    "input_file",
    metavar="JSON|FILE",
    help="The input as JSON, or a file with it; - for stdin.",
)
@click.option("--llm", is_flag=True, help="Let the configured model read a request in words.")
@click.option("--no-journal", is_flag=True, help="Store nothing. Such a run can't be resumed.")
@click.option("--subject", metavar="NAME", help="Who the run is about. Forgotten with them.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Make the reads, and show each call with an effect without making it.",
)
@click.option("--prepare", is_flag=True, help="The same, with a token that commits just this.")
@click.option("--commit", "token", metavar="TOKEN", help="Make the writes that were prepared.")
@_shared
def run(
    *,
    routine: str,
    named: Sequence[str],
    request: str | None,
    input_file: str | None,
    llm: bool,
    no_journal: bool,
    subject: str | None,
    dry_run: bool,
    prepare: bool,
    token: str | None,
    answers: str | None,
    yes: bool,
    **shared: Any,
) -> int:
    """Run a routine, a folder or the name of a stored one, without calling a model.

    Its inputs are given by name (`em run bump version=2.1.0 note="Less noise"`), as JSON or in a
    file (--input), or both. A request in words, `request="…"`, is read only if it is word for word
    one of the routine's templates (`requests:` in routine.yaml) with other values.

    Without a routine, --request finds the one in use that was recorded with these words. The exit
    code is 1 if there is none.

    With --llm the configured model fills in the inputs of other words, once. A value that does not
    stand in the request is refused.

    Every step is written to a journal in the log: a run that is interrupted, or waits for an
    answer, continues with `em resume`.

    A compiled routine acts only where everything is as it was recorded. Where it is not, the run
    hands over before its first write: it says which check failed, and how to strike it if it does
    not matter. Nothing was done then, and there is nothing to resume.

    --dry-run makes the reads and the checks, and shows for each call with an effect its values and
    where they come from. Nothing is written, not even to the journal. The exit code is 1 if the run
    would fail, hand over or ask.

    --prepare does the same, and prints a token. `em run --commit TOKEN` makes the reads and checks
    again, and then makes just these writes; if anything has changed it hands over. A token serves
    once, for 15 minutes, with the same --subject.
    """
    if token is not None:
        if routine or request is not None:
            raise UsageError("expected a routine to run, or --commit TOKEN", place="em run")
        return _commit(token, subject, shared)
    with ExitStack() as stack:
        client = model(wanted=llm)
        match = None if request is None else _matched(request, routine or input_file, client)
        if request is not None and match is None:
            return 1
        if match is None and not routine:
            fix = 'name a folder or a stored routine, or say what you want: --request "…"'
            raise UsageError("nothing says which routine to run", fix=fix)
        package = find_package(match.routine if match else routine, stack)
        again, replies = _given(package.folder, shared), read_object(answers) if answers else {}
        read = read_object(input_file) if input_file else {}
        input_data = match.inputs if match else read | _by_name(package, named, read)
        if dry_run or prepare:
            store = open_memory(create=True).store if prepare else None
            return _prepare(package, input_data, replies, again, store, subject, client)
        memory = None if no_journal else open_memory(create=True)
        return _run(memory, package, input_data, subject, again, client, answers=replies, yes=yes)


def _run(
    memory: Memory | None,
    package: Package,
    input_data: dict[str, Any],
    subject: str | None,
    again: dict[str, Any],
    client: "LlmClient | None",
    *,
    answers: dict[str, Any],
    yes: bool,
) -> int:
    """Run a routine, and ask for what it asks."""
    run_id = new_id()
    recorded = partial(_recorded_in, package.folder)

    def start(given: dict[str, Any], watcher: Watcher) -> RunResult:
        return run_routine(
            package,
            input_data,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
            store=None if memory is None else memory.store,
            run_id=run_id,
            subject=subject,
            client=client,
            ask=None
            if memory
            else watcher.asking(lambda asked: reply_to(asked, yes=yes, recorded=recorded)),
            **again,
        )

    resume = None if memory is None else _resuming(memory, run_id, again)
    try:
        result = converse(start, resume, answers, yes=yes, recorded=recorded)
    except NotAllowed as error:
        if package.stored:
            error.fix += f"; `em routine accept {package.stored}` allows all that it needs"
        raise
    return _print_end(memory, run_id, result, again["resume_with"])


def _matched(request: str, also: str | None, client: "LlmClient | None") -> "Match | None":
    """Return the routine in use that a request asks for; print what to do if none does."""
    from em.compiler.match import LEAST_LIKENESS

    if also:
        raise UsageError(
            f"a routine and its inputs are found by --request, got {also!r} too",
            fix='leave it out; a routine that you name is given a request as request="…"',
        )
    memory = open_memory()
    refuse_if_off(memory.routines, "em run --request")
    match, why = memory.matcher.find(request, client=client)
    if match is not None and not match.wishes:
        note(f"{match.routine}, by {match.why}")
        return match
    if match is not None:
        why = f"no input of {match.routine} expresses: {'; '.join(match.wishes)}"
    ranked = memory.matcher.ranked(request)
    likely = [one.routine for one in ranked if one.likeness >= LEAST_LIKENESS]

    def text() -> None:
        note(why)
        for one in likely or [one.routine for one in ranked]:
            names = json_schema.properties_of(one.input_schema)
            inputs = " ".join(f"{name}=…" for name in names)
            note(f"  {'like it' if likely else 'in use'}: em run {one.ref} {inputs}")
        if not ranked:
            note("  `em routine suggest` lists what recurs in the traces, and may become a routine")
        elif client is None:
            note("  give its inputs by name, or let the configured model read the request: --llm")

    offered = [one.ref for one in likely]
    emit({"status": "needs_input", "routine": None, "offered": offered, "why": why}, text)
    return None


def _by_name(package: Package, named: Sequence[str], known: dict[str, Any]) -> dict[str, Any]:
    """Return inputs that were given as NAME=VALUE. A value is JSON unless its schema says text."""
    schema = (package.routine.input_schema or {}).get("properties", {})
    if schema and package.routine.requests:
        schema = {REQUEST: {"type": "string"}, **schema}
    found: dict[str, Any] = {}
    for one in named:
        name, sign, value = one.partition("=")
        if not sign or (schema and name not in schema):
            names = ", ".join(schema) or "no inputs"
            raise UsageError(
                f"expected NAME=VALUE with an input of the routine ({names}), got {one!r}",
                fix="an input is given as version=2.1.0",
            )
        if name in found or name in known:
            raise UsageError(f"the input {name} is given twice", fix="give it once")
        content = schema.get(name)
        kind = content.get("type", "string") if isinstance(content, dict) else "string"
        try:
            found[name] = value if kind == "string" else msgspec.json.decode(value)
        except msgspec.DecodeError:
            raise UsageError(
                f"the input {name} must be {kind} as JSON, got {value!r}",
                fix="give it as JSON, or in a file: --input FILE",
            ) from None
    return found


@command("resume")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--input", "input_file", metavar="FILE", help="The same input again, if it contained secrets."
)
@click.option("--prompt", help="The same prompt of a workflow again, if it contained secrets.")
@click.option("--retry", is_flag=True, help="Take up a failed or cancelled run where it stopped.")
@_shared
def resume(
    *,
    run_id: str,
    input_file: str | None,
    prompt: str | None,
    retry: bool,
    answers: str | None,
    yes: bool,
    **shared: Any,
) -> int:
    """Resume RUN, of a routine or a workflow, which was interrupted or waits for an answer.

    No call with an effect is made twice; until the first one, reads are made again. If a step with
    an effect was interrupted, you are asked what became of it.
    """
    memory = open_memory()
    past = read_run(memory.store, run_id, kind=None)
    given = read_object(answers) if answers else {}
    known = read_object(input_file) if input_file else None
    if past.is_workflow:
        from em.cli.workflow import resume_workflow

        more: dict[str, Any] = {"params": known, "prompt": prompt, "retry": retry, "by": person()}
        return resume_workflow(run_id, answers=given, yes=yes, shared=shared, **more)
    again = _given(Path(past.folder or "/"), shared)
    if known is not None:
        again["input_data"] = known
    go = _resuming(memory, run_id, again)
    first = _resuming(memory, run_id, {**again, "retry": True, "by": person()}) if retry else go
    recorded = partial(_recorded_of, memory, past)
    result = converse(first, go, given, yes=yes, recorded=recorded)
    return _print_end(memory, run_id, result, again["resume_with"])


def _recorded_in(folder: Path) -> dict[str, Any]:
    """Return the recorded input of a routine; empty without one."""
    from em.runner.validation import INPUT

    try:
        return msgspec.json.decode((folder / INPUT).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, RecursionError):
        return {}


def _recorded_of(memory: Memory, past: PastRun) -> dict[str, Any]:
    """Return the recorded input of a run's routine; empty where the routine is gone."""
    if not past.stored:
        return _recorded_in(Path(past.folder or "/"))
    try:
        with opened(memory.store, past.stored) as package:
            return _recorded_in(package.folder)
    except EmError:
        return {}


def _resuming(memory: Memory, run_id: str, again: dict[str, Any]) -> Go[RunResult]:
    def go(given: dict[str, Any], watcher: Watcher) -> RunResult:
        return resume_run(
            memory.store,
            run_id,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
            **again,
        )

    return go


def _given(folder: Path, shared: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that every attempt at a run gets."""
    udf = shared["udf"]
    with only_results_on_stdout():
        return {
            "tool_registry": load_tools(shared["tools"]) or ToolRegistry(),
            "udfs": functions_of(load_module(udf), imported=True) if udf else None,
            "allow": allowed(folder, shared),
            "trust": shared["trust"],
            "resume_with": as_typed(shared),
            "auto_fix_fn": _auto_fix(shared["private"]) if shared["auto_fix"] else None,
        }


def _auto_fix(private: Sequence[str]) -> AutoFix:
    from em.llm import get_llm_client
    from em.llm._recovery import make_auto_fix_fn

    settings = Settings.load()
    client = get_llm_client(settings=settings)
    return make_auto_fix_fn(client, private=private, redact=settings.redact)


_FOR_PLANS = ("tool_registry", "udfs", "allow", "trust")
"""What preparing and committing need of the arguments of a run."""


def _prepare(
    package: Package,
    input_data: dict[str, Any],
    given: dict[str, Any],
    again: dict[str, Any],
    store: Store | None,
    subject: str | None,
    client: "LlmClient | None",
) -> int:
    """Make the reads of a routine and show what it would do; return the exit code."""
    from em.runner.preparation import prepare_routine

    with only_results_on_stdout(), watching(wanted=not wants_json()) as watcher:
        result = prepare_routine(
            package,
            input_data,
            answers=given,
            on_step=watcher.ended,
            on_start=watcher.began,
            store=store,
            subject=subject,
            client=client,
            **{name: again[name] for name in _FOR_PLANS},
        )

    def text() -> None:
        for line in result.text.splitlines():
            click.echo(printable(line))
        _print_forecast(result)
        if result.token:
            about = ["--subject", shlex.quote(subject)] if subject else []
            words = ["em run --commit", result.token, *about, again["resume_with"]]
            note(f"  to make these writes: {' '.join(filter(None, words))}")

    emit(lambda: {**msgspec.structs.asdict(result), "text": result.text}, text)
    return 0 if result.status == "ok" else 1


def _commit(token: str, subject: str | None, shared: dict[str, Any]) -> int:
    """Make the writes that were prepared; return the exit code."""
    from em.runner.preparation import commit_prepared

    memory, run_id = open_memory(), new_id()
    again = _given(Path("/"), shared)
    with only_results_on_stdout(), watching(wanted=not wants_json()) as watcher:
        result = commit_prepared(
            memory.store,
            token,
            run_id=run_id,
            subject=subject,
            on_step=watcher.ended,
            on_start=watcher.began,
            **{name: again[name] for name in (*_FOR_PLANS, "resume_with")},
        )
    return _print_end(memory, run_id, result, again["resume_with"])


def _print_forecast(result: Prepared) -> None:
    """Say how the run would go."""
    if result.failure is not None:
        why, _ = failure_lines(msgspec.structs.asdict(result.failure))
        note(f"would fail: {why}")
    elif result.reason is not None:
        note(f"would hand over at {result.reason}")
    elif result.pending_prompt is not None:
        print_prompt(result.pending_prompt, "would ask")
        note(f"  answer with: {how_to_answer(result.pending_prompt)}")
    elif result.planned:
        note("would run to its end; nothing was written")
    else:
        note("would run to its end, without any effect")


def _print_end(memory: Memory | None, run_id: str, result: RunResult | None, options: str) -> int:
    """Print a run's result, or how to resume it if it was interrupted; return the exit code."""
    store = None if memory is None else memory.store
    if result is None:
        return print_interrupted(store, run_id, how_to_resume(run_id, options))
    past = read_run(store, run_id) if store and result.status in ("ok", "failed") else None
    looked_at = wants_json() or sys.stderr.isatty()
    saved = savings(store, past) if store and past and result.status == "ok" and looked_at else []

    def text() -> None:
        _print_done(result, past)
        _print_result(result, options, journalled=store is not None)
        if past and result.status == "failed":
            _print_retry(past)
        if store is not None and result.reason is not None:
            _print_strike(store, result)
        recorded = [f"{cell(row.saved)} {row.what}" for row in saved if row.saved is not None]
        if recorded:
            note(f"saved: {', '.join(recorded)} (`em runs show {run_id}`)")

    try:
        emit(lambda: {**msgspec.structs.asdict(result), "saved": _as_mapping(saved)}, text)
    except (TypeError, ValueError) as error:
        odd = [name for name, value in result.context.items() if not _is_json(value)]
        raise UsageError(
            f"the output can't be written as JSON: {error}",
            place=f"the value saved as {odd[0]!r}" if odd else "",
            fix="let the tool return plain values (numbers, texts, lists, mappings)",
        ) from None
    return 0 if result.status == "ok" else 1


def _print_done(result: RunResult, past: PastRun | None) -> None:
    """Print what em chose, what a model fixed, and each write that was made."""
    for name, value in result.chosen.items():
        note(f"{name} = {shown(value)}: only this passes all checks")
    for fixed in result.steps:
        if fixed.fix is not None:
            note(f"fixed: step {fixed.id}: {shown(fixed.fix)}")
    for step in past.steps if past and result.status == "ok" else ():
        if step.tool and step.status == "done":  # the journal names the calls with an effect
            given = step.args if isinstance(step.args, dict) else {}
            values = (f"{name}={shown(value)}" for name, value in given.items())
            note(" ".join(["done:", step.tool, *values]))


def _print_strike(store: Store, result: RunResult) -> None:
    """Say how to strike the checks that made a stored routine hand over."""
    from em.compiler.checks import to_strike

    stored = read_run(store, result.run_id).stored
    found = to_strike(store, stored, result.reason) if stored and result.reason else None
    if found is not None:
        name, ids = found[0].partition("@")[0], " ".join(f"'{one.id}'" for one in found[1])
        what = "that does not matter" if len(found[1]) == 1 else "none of that matters"
        note(f"  if {what}: em routine strike {name} {ids}")


def _print_result(result: RunResult, options: str, *, journalled: bool) -> None:
    if result.failure is not None:
        print_failure(result.failure)
    elif result.reason is not None:
        note(f"handed over at {result.reason}")
    elif result.pending_prompt is not None:
        print_prompt(result.pending_prompt)
        again = f"{how_to_resume(result.run_id, options)} " if journalled else ""
        note(f"  try: {again}{how_to_answer(result.pending_prompt)}")
    elif result.output in (None, ""):
        done = sum(one.status == "done" for one in result.steps)
        note(f"done, in {count(done, 'step')}; it returns nothing")
    else:
        print_json(result.output)


def _is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    return True


def _as_mapping(saved: Sequence[Saving]) -> dict[str, Any] | None:
    """Return each figure of the agent, of this run, and the difference; None if not recorded."""
    return {
        row.what.replace(" ", "_"): {"agent": row.agent, "run": row.run, "saved": row.saved}
        for row in saved
    } or None


@group("runs")
def runs() -> None:
    """List, show and cancel runs of routines."""


@runs.command("list")
@click.option("--routine", help="Only runs of the routine with this name.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs with this status.")
@listing(20)
def list_(routine: str | None, status: str | None, limit: int, **chosen: Any) -> None:
    """List the newest runs with their status, the newest last."""
    page = find_runs(
        open_memory().store, name=routine, status=status, limit=limit, **listed(**chosen)
    )
    none = "no runs yet; `em run` makes one"
    emit_list(
        "runs", page.runs[::-1], {**OF_RUNS, "routine": "routine"}, none=none, older=page.older
    )


OF_RUNS: Columns = {"run": "run_id", "began": "began", "status": "status", "steps": "steps"}
"""The columns of a list of runs, before the name of what ran."""


@runs.command("show")
@click.argument("run_id", metavar="RUN")
def show(run_id: str) -> None:
    """Show a run: steps with times, result and savings."""
    store = open_memory().store
    past = read_run(store, run_id)
    saved = savings(store, past) if past.status == "ok" else []
    data = {
        "run": run_id,
        "status": past.status,
        "input": past.input,
        "steps": [step.body for step in past.steps],
        "end": past.end,
        **({} if past.cancelled is None else {"cancelled": past.cancelled}),
        "saved": _as_mapping(saved),
    }
    emit(data, lambda: _print_run(past, saved))


@runs.command("cancel")
@click.argument("run_ids", metavar="RUN...", nargs=-1, required=True)
def cancel(run_ids: tuple[str, ...]) -> None:
    """Stop runs of routines and workflows before their next step. What was done stays done."""
    store = open_memory().store
    found = [cancel_run(store, one, by=person()) for one in run_ids]
    data = [{"run": one.run_id, "status": one.status} for one in found]
    emit({"runs": data}, f"cancelled: {count(len(found), 'run')}")


def _print_run(past: PastRun, saved: Sequence[Saving]) -> None:
    rows = [
        (
            f"{step.step}[{step.item}]" if step.item is not None else step.step,
            step.status,
            cell(step.duration_ms),
            cell(step.attempts),
            (step.error or msgspec.json.encode(step.result).decode())[:400],
        )
        for step in past.steps
    ]
    if rows:
        print_table(("step", "status", "ms", "attempts", "result"), rows)
    status = f"{past.status}{by_whom(past.cancelled)}"
    click.echo(f"{status}: {count(len(rows), 'step')} in {past.folder or past.stored}")
    if past.reason is not None:
        click.echo(printable(f"handed over at {past.result().reason}"))
    for line in failure_lines(past.failure) if past.failure else ():
        if line:
            click.echo(line)
    figures = [
        (row.what, *(cell(value) or "not recorded" for value in (row.agent, row.run, row.saved)))
        for row in saved
    ]
    if figures:
        click.echo()
        print_table(("", "the agent", "this run", "saved"), figures)
    _print_next(past)


def _print_next(past: PastRun) -> None:
    """Print what was interrupted, and how the run goes on."""
    for step_id, item in sorted(past.restored.in_flight, key=str):
        if step_id != (past.failure or {}).get("step_id"):
            number = "" if item is None else f"[{item}]"
            note(f"  running when the run stopped: {step_id}{number}")
    for step in past.steps:
        if step.fix:
            note(f"  step {step.step} was fixed; change the routine: {shown(step.fix)}")
    if past.status in ("running", "needs_input"):
        note(f"  resume with: {how_to_resume(past.run_id, past.resume_with)}")
    elif past.status in RETRIED:
        _print_retry(past)


def _print_retry(past: PastRun) -> None:
    """Print the command that takes up a run that stopped, or why none does."""
    problem = retry_problem(past)
    again = how_to_resume(past.run_id, f"--retry {past.resume_with}")
    note(f"  it can't be retried: {problem}" if problem else f"  retry with: {again}")
