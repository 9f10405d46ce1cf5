"""`em heuristics`: look after the lessons in a memory."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, print_table, printable
from em.errors import UsageError
from em.heuristics.heuristic import Heuristic, Lesson, Ranked
from em.log.stream import trace_stream
from em.memory import Memory
from em.traces.trace import Outcome, read_trace

if TYPE_CHECKING:
    from em.heuristics.loop import IterationDone, LoopResult


@click.group("heuristics", no_args_is_help=True)
@everywhere
def heuristics() -> None:
    """Look after the lessons in a memory."""


@heuristics.command("list")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--retired", is_flag=True, help="Also those that are out of use.")
@everywhere
@click.pass_context
def list_heuristics(ctx: click.Context, limit: int, retired: bool) -> None:
    """The lessons, with how often they were learned and how their runs went."""
    book = open_memory(ctx).heuristics
    found = list(islice(book.every(retired=retired), limit))
    against = {one.id: [c.other.id for c in book.contradictions(one)] for one in found}
    if ctx.obj["json"]:
        rows = [{**as_json(one), "contradicts": against[one.id]} for one in found]
        print_json({"heuristics": rows})
    elif found:
        columns = ("id", "how", "learned", "went well", "state", "when, do")
        print_table(columns, [_row(one, against[one.id]) for one in found], may_go=("how",))
    else:
        click.echo("no heuristics yet; `em reflect --store` makes them", err=True)


def _row(one: Heuristic, against: list[str]) -> tuple[str, ...]:
    use, lesson = one.use, one.lesson
    state = "retired" if one.retired else "contradicted" if against else "in use"
    went = f"{use.helped} of {use.helped + use.hindered}" if use.used else "not used"
    text = f"{lesson.trigger}: {lesson.action}"
    return (one.id, lesson.how, str(use.learned), went, state, text)


def as_json(one: Heuristic) -> dict[str, Any]:
    """A heuristic as JSON."""
    return {
        "id": one.id,
        "lesson": one.lesson,
        "use": one.use,
        "at": one.at,
        "retired": one.retired,
    }


@heuristics.command("show")
@click.argument("heuristic_id", metavar="ID")
@everywhere
@click.pass_context
def show_heuristic(ctx: click.Context, heuristic_id: str) -> None:
    """One lesson, with all its evidence and with those that contradict it."""
    book = open_memory(ctx).heuristics
    one = book.get(heuristic_id)
    evidence = [lesson.evidence for lesson in book.evidence(heuristic_id)]
    against = [contradiction.other for contradiction in book.contradictions(one)]
    if ctx.obj["json"]:
        told = {"evidence": evidence, "contradicts": [as_json(other) for other in against]}
        print_json({**as_json(one), **told})
        return
    _print_lesson(one)
    click.echo(f"learned {count(one.use.learned, 'time')}:")
    for shown in evidence:
        click.echo(f"  trace {shown.trace or '(none)'}: {printable(shown.note)}")
        for name, ids in (("failed", shown.failed), ("worked", shown.worked)):
            if ids:
                click.echo(f"    {name}: {', '.join(ids)}")
    for other in against:
        click.secho("contradicted by", bold=True)
        _print_lesson(other)


def _print_lesson(one: Heuristic) -> None:
    lesson, use = one.lesson, one.use
    click.secho(f"{one.id}{'  (retired)' if one.retired else ''}", bold=True)
    told = {
        "when": lesson.trigger,
        "do": lesson.action,
        "because": lesson.analysis,
        "from": f"{lesson.how}, a {lesson.polarity}",
        "tools": ", ".join(lesson.tools),
        "subject": lesson.subject or "",
        "task": lesson.source_task,
        "use": f"learned {use.learned}, handed out {use.used},"
        f" went well {use.helped}, went wrong {use.hindered}",
    }
    for name, text in told.items():
        if text:
            click.echo(f"  {name:<8}{printable(text)}")


@heuristics.command("retire")
@click.argument("heuristic_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Why; kept with it.")
@everywhere
@click.pass_context
def retire(ctx: click.Context, heuristic_ids: tuple[str, ...], reason: str) -> None:
    """Take lessons out of use. Their history stays."""
    book = open_memory(ctx).heuristics
    _print_changed(
        ctx, [book.retire(heuristic_id, reason) for heuristic_id in heuristic_ids], "retired"
    )


@heuristics.command("merge")
@click.argument("keep", metavar="ID")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
@everywhere
@click.pass_context
def merge(ctx: click.Context, keep: str, others: tuple[str, ...]) -> None:
    """Put lessons together: ID keeps its words and gets all evidence; the OTHERs are retired."""
    _print_changed(
        ctx, [open_memory(ctx).heuristics.merge(keep, others)], "has all the evidence now"
    )


@heuristics.command("feedback")
@click.argument("heuristic_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--outcome",
    required=True,
    type=click.Choice(["success", "failure", "unknown"]),
    help="How the run ended that they were handed to.",
)
@click.option("--task", default="", help="What the run was about.")
@everywhere
@click.pass_context
def feedback(
    ctx: click.Context, heuristic_ids: tuple[str, ...], outcome: Outcome, task: str
) -> None:
    """Say how a run ended that lessons were handed to; their rank follows it."""
    found = open_memory(ctx).feedback(heuristic_ids, outcome, task=task)
    _print_changed(ctx, found, "noted")


def _print_changed(ctx: click.Context, found: list[Heuristic], what: str) -> None:
    if ctx.obj["json"]:
        print_json({"heuristics": [as_json(one) for one in found]})
        return
    for one in found:
        gone = " (retired: it goes along with failures)" if what == "noted" and one.retired else ""
        click.echo(f"{one.id} {what}{gone}")


@click.command("reflect")
@click.argument("traces", nargs=-1, metavar="[FILE|TRACE]...")
@click.option("--store", "keep", is_flag=True, help="Keep the lessons, and the trace of a FILE.")
@click.option("--all", "everything", is_flag=True, help="Learn from every trace in the log.")
@click.option("--llm", is_flag=True, help="Also ask the configured model.  [EM_LLM_PROVIDER, …]")
@click.option("--subject", help="Whom a FILE is about; its lessons are for that subject alone.")
@everywhere
@click.pass_context
def reflect(
    ctx: click.Context,
    traces: tuple[str, ...],
    keep: bool,
    everything: bool,
    llm: bool,
    subject: str | None,
) -> None:
    """Say what traces teach: files, or traces of the log by their ids.

    Lessons are mined from what happened; nothing is kept without --store. A model that refuses, or
    whose answer can't be used, leaves nothing behind.
    """
    from em.llm import get_llm_client

    if everything == bool(traces):
        raise UsageError("name traces, or give --all")
    memory = open_memory(ctx, create=True)
    client = get_llm_client() if llm else None
    book = memory.heuristics
    lessons: list[Lesson] = []
    known = []
    for name in traces:
        if not _is_file(name, memory):
            known.append(name)
            continue
        with reading(name) as (source, place):
            kept, events = book.to_keep(read_trace(source.read(), place), subject=subject)
        found = book.lessons_of(kept, client)
        lessons += found
        if keep:
            book.keep(found, events=events)
    if everything:
        known = book.every_trace()
    if known:
        found = book.lessons_in(known, client)
        lessons += found
        if keep:
            book.keep(found)
    _print_lessons(ctx, lessons, keep=keep)


def _is_file(name: str, memory: Memory) -> bool:
    if name == "-" or Path(name).exists() or Path(name).suffix:
        return True
    return not memory.store.head(trace_stream(name))[0]


def _print_lessons(ctx: click.Context, lessons: list[Lesson], *, keep: bool) -> None:
    if ctx.obj["json"]:
        print_json({"lessons": [{"id": one.id, "lesson": one} for one in lessons], "kept": keep})
        return
    told: dict[str, Lesson] = {one.id: one for one in lessons}
    for heuristic_id, one in told.items():
        click.secho(f"{heuristic_id}  {one.how}", bold=True)
        for name, text in (("when", one.trigger), ("do", one.action), ("because", one.analysis)):
            click.echo(f"  {name:<8}{printable(text)}")
    kept = "kept" if keep else "nothing was kept: --store keeps them"
    if lessons:
        click.echo(f"{count(len(told), 'lesson')}, learned {len(lessons)} times; {kept}", err=True)
    else:
        click.echo("nothing to learn from this", err=True)


@click.command("retrieve")
@click.argument("task")
@click.option("-k", "--top-k", "k", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--tokens", type=click.IntRange(min=0), help="At most so many tokens of briefing.")
@click.option("--tool", "tools", multiple=True, help="A tool in play; may be repeated.")
@click.option("--subject", help="Also the lessons about this subject.")
@click.option("--llm", is_flag=True, help="Let the configured model put them in order.")
@click.option("--text", is_flag=True, help="Print the briefing alone, as a prompt section.")
@everywhere
@click.pass_context
def retrieve(
    ctx: click.Context,
    task: str,
    k: int,
    tokens: int | None,
    tools: tuple[str, ...],
    subject: str | None,
    llm: bool,
    text: bool,
) -> None:
    """The lessons that fit TASK, with scores and reasons; none where none is relevant."""
    from em.llm import get_llm_client

    client = get_llm_client() if llm else None
    briefing = open_memory(ctx).brief(
        task, k, tokens, tools=tools or None, subject=subject, client=client
    )
    if ctx.obj["json"]:
        found = [flat(one) for one in briefing.heuristics]
        print_json({"text": briefing.text, "heuristics": found, "notes": briefing.notes})
        return
    for note in briefing.notes:
        click.echo(printable(note), err=True)
    if text:
        click.echo(briefing.text, nl=False)
    elif not briefing:
        click.echo("no lesson fits this task", err=True)
    else:
        for one in briefing.heuristics:
            reasons = ", ".join(f"{name} {part:.2f}" for name, part in one.reasons.items())
            click.secho(f"{one.score:.2f}  {one.heuristic.id}", bold=True)
            lesson = one.heuristic.lesson
            click.echo(f"  when    {printable(lesson.trigger)}")
            click.echo(f"  do      {printable(lesson.action)}")
            click.echo(f"  reasons {reasons}")


def flat(one: Ranked) -> dict[str, object]:
    """A ranked heuristic as JSON."""
    return {
        "id": one.heuristic.id,
        "score": round(one.score, 4),
        "reasons": {name: round(part, 4) for name, part in one.reasons.items()},
        "lesson": one.heuristic.lesson,
        "use": one.heuristic.use,
    }


@click.command("evaluate")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--tasks", type=click.IntRange(min=1, max=900), default=300, show_default=True, metavar="N"
)
@everywhere
@click.pass_context
def evaluate(ctx: click.Context, seed: int, tasks: int) -> None:
    """Measure retrieval of lessons: hit@k, MRR and nDCG, against BM25 alone and chance.

    The set is made from the seed, in a store of its own: no log is opened, whatever --db says.
    """
    from em.heuristics.benchmark import as_rows, evaluate

    done = evaluate(seed, tasks)
    if ctx.obj["json"]:
        print_json(done)
        return
    rows = as_rows(done)
    print_table(
        tuple(rows[0]),
        [tuple(v if isinstance(v, str) else f"{v:.3f}" for v in row.values()) for row in rows],
    )
    low, high = done.margin_95
    click.echo(
        f"{done.tasks} tasks, {done.heuristics:,} heuristics; margin over BM25 in MRR:"
        f" {done.margin:+.3f} (95%: {low:+.3f} to {high:+.3f})"
    )


@click.command("loop")
@click.option("--goal", required=True, help="What is to be reached.")
@click.option(
    "--agent",
    required=True,
    metavar="COMMAND",
    help="Any program. The goal and the lessons take the place of {prompt}, else they are its"
    " standard input; they are also in EM_LOOP_GOAL and EM_LOOP_BRIEFING.",
)
@click.option(
    "--until", default="", metavar="COMMAND", help="The goal is reached when this gives 0."
)
@click.option("--max-iterations", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--timeout", type=click.FloatRange(min=0.1), help="Seconds for one iteration.")
@click.option("--llm", is_flag=True, help="Let the configured model reflect too.")
@click.option("--new", "anew", is_flag=True, help="Begin anew, even if one like it is not over.")
@everywhere
@click.pass_context
def loop(
    ctx: click.Context,
    goal: str,
    agent: str,
    until: str,
    max_iterations: int,
    timeout: float | None,
    llm: bool,
    anew: bool,
) -> int:
    """Run an agent toward a goal until a check is content; each iteration learns from the last.

    State and transcripts are in the log. The same command again goes on with a loop that was
    interrupted. Exit codes: 0 reached (or no check was given), 1 not reached, 130 interrupted.
    """
    from em.heuristics.loop import Loop, LoopStarted
    from em.llm import get_llm_client

    memory = open_memory(ctx, create=True)
    started = LoopStarted(goal, agent, until, max_iterations)
    client = get_llm_client() if llm else None
    loop_ = Loop(
        memory.store, memory.heuristics, started, client=client, timeout=timeout, anew=anew
    )
    if loop_.resumed:
        click.echo(
            f"going on with loop {loop_.id}, {count(len(loop_.done), 'iteration')} done", err=True
        )
    result = loop_.run(_print_iteration)
    if ctx.obj["json"]:
        print_json(result)
    else:
        _summary(result)
    if result.status == "interrupted":
        click.echo("interrupted; the same command goes on with it", err=True)
        return 130
    return 1 if until and result.status != "success" else 0


def _print_iteration(done: "IterationDone") -> None:
    learned = f", learned {count(len(done.learned), 'lesson')}" if done.learned else ""
    why = f": {printable(done.problem)[:200]}" if done.problem else ""
    click.echo(
        f"iteration {done.number}: {done.outcome} in {done.seconds:.1f} s{learned}{why}", err=True
    )


def _summary(result: "LoopResult") -> None:
    words = {
        "success": "the goal is reached",
        "limit": "the limit is reached",
        "interrupted": "interrupted",
    }
    click.echo(
        f"loop {result.id}: {words[result.status]}, {count(len(result.iterations), 'iteration')}"
    )
    for done in result.iterations:
        click.echo(f"  {done.number}. {done.outcome:<8} trace {done.trace}")
