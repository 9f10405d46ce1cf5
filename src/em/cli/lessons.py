"""Commands about lessons: `em lessons`, `reflect`, `retrieve`, `evaluate` and `loop`."""

from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from em.cli.command import group
from em.cli.options import (
    is_file,
    listed,
    listing,
    model,
    open_memory,
    reading,
)
from em.cli.output import (
    Columns,
    cell,
    count,
    emit,
    emit_list,
    note,
    print_fields,
    print_table,
    progress,
)
from em.errors import UsageError
from em.heuristics.heuristic import Heuristic, Lesson, Ranked, find_heuristics
from em.store.protocol import Store
from em.traces.trace import Outcome, read_trace

if TYPE_CHECKING:
    from em.heuristics.loop import IterationDone


@group("lessons")
def lessons() -> None:
    """List, show, merge and retire the lessons in a memory."""


@lessons.command("list")
@click.option("--retired", is_flag=True, help="Include retired lessons.")
@listing(50)
def list_(limit: int, retired: bool, **chosen: Any) -> None:
    """List lessons, the newest first.

    Shows how often each was learned, and how the runs that used it ended.
    """
    memory = open_memory()
    page = find_heuristics(memory.store, limit=limit, retired=retired, **listed(**chosen))
    columns: Columns = {
        "id": "id",
        "how": lambda one: one.lesson.how,
        "learned": lambda one: one.use.learned,
        "went well": lambda one: (
            f"{one.use.helped} of {one.use.helped + one.use.hindered}"
            if one.use.used
            else "not used"
        ),
        "state": _state,
        "when, do": lambda one: f"{one.lesson.trigger}: {one.lesson.action}",
    }
    none = partial(_why_none, memory.store, **chosen)
    emit_list("heuristics", page.heuristics, columns, none=none, older=page.further)


def _why_none(store: Store, **chosen: Any) -> str:
    if find_heuristics(store, limit=1, retired=True, **listed(**chosen)).heuristics:
        return "all of these lessons are retired; `em lessons list --retired` lists them"
    return "no lessons yet; `em lessons reflect --store` learns them from traces"


def _state(one: Heuristic) -> str:
    """Return whether agents get a lesson, or why not."""
    if one.retired:
        return "retired"
    return "older rules" if one.lesson.is_outdated else "doubted" if one.lesson.doubt else "in use"


@lessons.command("show")
@click.argument("heuristic_id", metavar="ID")
def show(heuristic_id: str) -> None:
    """Show a lesson and its evidence."""
    book = open_memory().heuristics
    one = book.get(heuristic_id)
    evidence = [lesson.evidence for lesson in book.evidence(heuristic_id)]

    emit({**msgspec.structs.asdict(one), "evidence": evidence})


@lessons.command("retire")
@click.argument("heuristic_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Why. Stored with the lesson.")
def retire(heuristic_ids: tuple[str, ...], reason: str) -> None:
    """Retire lessons. Their history stays."""
    book = open_memory().heuristics
    _print_changed([book.retire(heuristic_id, reason) for heuristic_id in heuristic_ids], "retired")


@lessons.command("accept")
@click.argument("heuristic_ids", metavar="ID...", nargs=-1, required=True)
def accept(heuristic_ids: tuple[str, ...]) -> None:
    """Accept lessons that are doubted, after you have read them. Agents get them then."""
    book = open_memory().heuristics
    _print_changed([book.accept(heuristic_id) for heuristic_id in heuristic_ids], "accepted")


@lessons.command("merge")
@click.argument("keep", metavar="ID")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
def merge(keep: str, others: tuple[str, ...]) -> None:
    """Merge lessons. ID gets the evidence of the OTHERs, which are retired."""
    _print_changed([open_memory().heuristics.merge(keep, others)], "now has all the evidence")


@lessons.command("feedback")
@click.argument("heuristic_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--outcome",
    required=True,
    type=click.Choice(["success", "failure", "unknown"]),
    help="How the run ended that used these lessons.",
)
@click.option("--subject", metavar="NAME", help="Who the task is about. Forgotten with them.")
def feedback(heuristic_ids: tuple[str, ...], outcome: Outcome, subject: str | None) -> None:
    """Record a run's outcome for these lessons. Lessons whose runs keep failing are retired."""
    found = open_memory().feedback(heuristic_ids, outcome, subject=subject)
    _print_changed(found, "recorded")


def _print_changed(found: list[Heuristic], what: str) -> None:
    def text() -> None:
        for one in found:
            gone = " (retired: its runs keep failing)" if what == "recorded" and one.retired else ""
            click.echo(f"{one.id} {what}{gone}")

    emit({"heuristics": found}, text)


@lessons.command("reflect")
@click.argument("traces", nargs=-1, metavar="[FILE|TRACE]...")
@click.option("--store", "keep", is_flag=True, help="Store the lessons, and the trace of a FILE.")
@click.option("--all", "everything", is_flag=True, help="Learn from every trace in the log.")
@click.option("--llm", is_flag=True, help="Ask the configured model too.  [EM_LLM_PROVIDER, …]")
@click.option("--subject", help="The subject of a FILE. Its lessons are for that subject only.")
def reflect(
    traces: tuple[str, ...], keep: bool, everything: bool, llm: bool, subject: str | None
) -> None:
    """Learn lessons from traces: files, or ids of traces in the log.

    Lessons are mined from failures and what fixed them. They are stored only with --store. If a
    model refuses, or its answer can't be used, nothing is stored.
    """
    if everything == bool(traces):
        raise UsageError(
            "expected either traces or --all", fix="name files or trace ids, or give --all"
        )
    memory = open_memory(create=True)
    client = model(wanted=llm)
    book = memory.heuristics
    lessons: list[Lesson] = []
    stored: list[Heuristic] = []
    known, read = [], []
    for name in traces:  # all of them first: nothing is stored if one can't be read
        if not is_file(name):
            known.append(name)
            continue
        with reading(name) as (source, place):
            read.append(read_trace(source.read(), place))
    for trace in read:
        kept, events = book.to_keep(trace, subject=subject)
        found = book.lessons_of(kept, client)
        lessons += found
        if keep:
            stored += book.keep(found, events=events)
    if everything:
        known = book.every_trace()
    if known:
        with progress("reading traces", len(known)) as bar:
            found = book.lessons_in(known, client, progress=bar)
        lessons += found
        if keep:
            stored += book.keep(found)
    if everything and keep:
        book.retire_outdated()
    emit(
        {"lessons": [{"id": one.id, "lesson": one} for one in lessons], "kept": keep},
        lambda: _print_lessons(lessons, stored if keep else None),
    )


def _print_lessons(lessons: list[Lesson], stored: list[Heuristic] | None) -> None:
    """Print lessons as they are stored."""
    found = {lesson.id: lesson for lesson in lessons}
    found |= {one.id: one.lesson for one in stored or () if one.id in found}
    for heuristic_id, one in found.items():
        click.secho(f"{heuristic_id}  {one.how}", bold=True)
        why = {"when": one.trigger, "do": one.action, "because": one.analysis, "doubt": one.doubt}
        print_fields(why)
    if not found:
        note("no lessons found")
        return
    kept = "not stored (use --store)" if stored is None else "stored"
    gone = sum(one.retired for one in stored or ())
    if gone:
        kept += f", {gone} of them as evidence of lessons that are retired"
    doubted = sum(bool(one.doubt) for one in found.values())
    not_told = f", {doubted} of them not told" if doubted else ""
    note(f"{count(len(found), 'lesson')}{not_told}; {kept}")


@lessons.command("retrieve")
@click.argument("task")
@click.option("-k", "--top-k", "k", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--subject", help="Include the lessons about this subject.")
@click.option("--llm", is_flag=True, help="Let the configured model rank the lessons.")
@click.option("--text", is_flag=True, help="Print only the briefing, as a section of a prompt.")
def retrieve(
    task: str,
    k: int,
    subject: str | None,
    llm: bool,
    text: bool,
) -> None:
    """List the lessons that fit TASK, with scores and reasons. Irrelevant ones are left out."""
    briefing = open_memory().brief(task, k, subject=subject, client=model(wanted=llm))

    def show_text() -> None:
        for line in briefing.notes:
            note(line)
        if text:
            click.echo(briefing.text, nl=False)
        elif not briefing:
            note("no lesson fits this task")
        else:
            for one in briefing.heuristics:
                _print_ranked(one)

    emit(briefing, show_text)


def _print_ranked(one: Ranked) -> None:
    lesson = one.heuristic.lesson
    click.secho(f"{one.score:.2f}  {one.heuristic.id}", bold=True)
    reasons = ", ".join(f"{name} {part:.2f}" for name, part in one.reasons.items())
    known = {"known": one.heuristic.use.seen, "reasons": reasons}
    print_fields({"when": lesson.trigger, "do": lesson.action, **known})


@lessons.command("evaluate")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--tasks", type=click.IntRange(min=1, max=900), default=100, show_default=True, metavar="N"
)
def evaluate(seed: int, tasks: int) -> None:
    """Measure how well lessons are retrieved: hit@k, MRR and nDCG, against BM25 and chance.

    The benchmark is generated from the seed in a temporary store. --db is not used.
    """
    from em.heuristics.benchmark import as_rows
    from em.heuristics.benchmark import evaluate as measure

    with progress("measuring") as bar:
        done = measure(seed, tasks, progress=bar.at)

    def text() -> None:
        rows = as_rows(done)
        print_table([*rows[0]], [[cell(value) for value in row.values()] for row in rows])
        low, high = done.margin_95
        click.echo(
            f"{done.tasks} tasks, {done.heuristics:,} heuristics; margin over BM25 in MRR:"
            f" {done.margin:+.3f} (95%: {low:+.3f} to {high:+.3f})"
        )

    emit(done, text)


@lessons.command("loop")
@click.option("--goal", required=True, help="The goal, in words.")
@click.option(
    "--agent",
    required=True,
    metavar="COMMAND",
    help="Any program. {prompt} is replaced by the goal and the lessons; without {prompt} they are"
    " its standard input. They are also in EM_LOOP_GOAL and EM_LOOP_BRIEFING.",
)
@click.option("--until", default="", metavar="COMMAND", help="Stop when this command exits with 0.")
@click.option("--max-iterations", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--timeout", type=click.FloatRange(min=0.1), help="Seconds for one iteration.")
@click.option("--subject", metavar="NAME", help="Who the goal is about.")
@click.option("--llm", is_flag=True, help="Let the configured model reflect too.")
@click.option("--new", "anew", is_flag=True, help="Start anew instead of resuming an earlier loop.")
def loop(
    goal: str,
    agent: str,
    until: str,
    max_iterations: int,
    timeout: float | None,
    subject: str | None,
    llm: bool,
    anew: bool,
) -> int:
    """Run an agent repeatedly until a check succeeds. Each iteration learns from the ones before.

    State and transcripts are stored in the log. The same command resumes an interrupted loop. Exit
    codes: 0 reached (or no check given), 1 not reached, 130 interrupted.
    """
    from em.heuristics.loop import Loop, LoopStarted

    memory = open_memory(create=True)
    running = Loop(
        memory.store,
        memory.heuristics,
        LoopStarted(goal, agent, until, max_iterations),
        client=model(wanted=llm),
        timeout=timeout,
        anew=anew,
        subject=subject,
    )
    if running.resumed:
        note(f"resuming loop {running.id}, {count(len(running.done), 'iteration')} done")
    result = running.run(_print_iteration)
    iterations = count(len(result.iterations), "iteration")
    emit(result, f"loop {result.id}: {_ENDS[result.status]}, {iterations}")
    if result.status == "interrupted":
        note("the same command resumes it")
        return 130
    return 1 if until and result.status != "success" else 0


_ENDS = {
    "success": "goal reached",
    "limit": "stopped at the limit",
    "interrupted": "interrupted",
}


def _print_iteration(done: "IterationDone") -> None:
    learned = f", learned {count(len(done.learned), 'lesson')}" if done.learned else ""
    why = f": {done.problem[:200]}" if done.problem else ""
    note(f"iteration {done.number}: {done.outcome} in {done.seconds:.1f} s{learned}{why}")
