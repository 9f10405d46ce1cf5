"""`em routine suggest`: which traces are worth compiling."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from em.cli.command import command
from em.cli.options import limited, open_memory
from em.cli.output import count, emit, note, print_table, printable, progress, shortened
from em.memory import Memory
from em.runner.trial import ENOUGH_TRIALS
from em.traces.catalogue import trace_ids

if TYPE_CHECKING:
    from em.compiler.proposals import Proposal
    from em.compiler.suggestions import Suggestion

LONGEST_GOAL, LONGEST_REASON = 80, 300
"""Characters of a goal and of a reason that are shown."""
EXPLAINED = """\
Saved is what the agent itself cost in one run, without its tools: the median of its traces. It
counts the model's answers, their tokens and price as the transcript reports them, and the seconds
in which none of the routine's calls was running. If a transcript does not count answers, one for
each call and one at the end is assumed. A - means that the transcripts don't report it. Proved:
each trace of a sample is left out once, and what the others teach is tried on it; the rest is
handed over. Groups are ordered by what they save, times the number of traces, times the share
that is proved."""


@command("suggest")
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
@click.option("--explain", is_flag=True, help="Explain how the savings are estimated.")
@click.option("--about", metavar="TRACE", multiple=True, help="Only groups of it. Repeatable.")
@click.option("--propose", is_flag=True, help="Store what is proven, to tell it to agents once.")
def suggest(
    *,
    task: str | None,
    at_least: int,
    limit: int,
    allow_unlabelled: bool,
    explain: bool,
    about: tuple[str, ...],
    propose: bool,
) -> None:
    """List the traces that are worth compiling, the most worthwhile first.

    Traces that succeeded and had the same effects form a group, however often and on which way;
    those without an effect if they made the same calls. The best groups are compiled and tried on
    their own traces; nothing is stored. Not proposed is what would do the same on every run.
    The saving is an estimate for one run: see --explain. What was proposed at the end of an agent's
    session and is not kept yet comes first.
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
            _print_suggestions(found, proposals, explain=explain)
        if found.more:
            note(f"… {count(found.more, 'group')} more: repeat with -n {limit + found.more}")

    shown = {"suggestions": found, "proposals": proposals, "more": found.more}
    emit({**shown, "estimate": " ".join(EXPLAINED.split())}, text)


def _print_suggestions(
    found: "Sequence[Suggestion]", proposals: "Sequence[Proposal]", *, explain: bool
) -> None:
    columns = ("traces", "proved", "answers", "tokens", "seconds", "usd", "steps", "effects")
    rows = [_suggestion_row(one) for one in found]
    print_table(columns, rows, may_go=("usd", "steps", "seconds"))
    click.echo()
    waiting = {trace: one.key for one in proposals if not one.routine for trace in one.traces}
    for one in found:
        _print_suggestion(one, next((waiting[id_] for id_ in one.sample if id_ in waiting), ""))
    if explain:
        click.echo(f"\n{EXPLAINED}")
    else:
        note("answers, tokens, seconds and usd: saved in each run, estimated (see --explain)")


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
    return (
        f"{one.count:,}",
        "-" if one.proof is None else f"{one.right_share:.0%}",
        f"{one.model_calls:,.0f}",
        "-" if one.tokens is None else f"{one.tokens:,.0f}",
        "-" if one.seconds is None else f"{one.seconds:,.1f}",
        "-" if one.cost_usd is None else f"{one.cost_usd:,.4f}",
        str(one.steps),
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
