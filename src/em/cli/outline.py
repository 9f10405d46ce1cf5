"""How the command line shows a routine: code, inputs, constants, checks, what is open, proof."""

from collections.abc import Mapping, Sequence

import click

from em.cli.output import count, note, print_table, printable
from em.compiler.checks import Outline, open_constants, outline_of
from em.compiler.evidence import ENOUGH_ALIKE
from em.runner.package import ROUTINE
from em.runner.trial import Proof
from em.values.canonical import Json, short

LATE = " (after the write; else the run fails)"
REASONS_SHOWN = 10


def print_code(files: Mapping[str, str]) -> None:
    """Print routine.yaml as it is."""
    click.echo(files[ROUTINE], nl=False)


def names_of(outline: Outline) -> list[str]:
    """Return what a person may change by its number: inputs, constants, checks."""
    return [
        *(one.name for one in outline.inputs),
        *(one.place for one in outline.constants),
        *(one.id for one in outline.checks),
    ]


def print_outline(document: Json, *, numbered: bool = False) -> None:
    """Print the inputs, constants and checks of a routine; `numbered` as `names_of` has them."""
    outline = outline_of(document)
    numbers = iter(range(1, len(names_of(outline)) + 1))

    def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if rows:
            click.echo()
            shown = [(str(next(numbers)), *row) for row in rows] if numbered else rows
            print_table(("", *columns) if numbered else columns, shown)

    described = any(one.description for one in outline.inputs)
    inputs = [
        (one.name, one.looks, "required" if one.required else "optional", one.description)
        for one in outline.inputs
    ]
    table(
        ("input", "type", "", "description")[: 3 + described], [r[: 3 + described] for r in inputs]
    )
    if outline.alternatives:
        ways = "; or ".join(", ".join(way) for way in outline.alternatives)
        click.echo(printable(f"given must be: {ways}"))
    table(("constant", "always"), [(one.place, short(one.value)) for one in outline.constants])
    hands_over = document.get("checks") == "hand_over"
    ends, late = ("hands over", LATE) if hands_over else ("fails", "")
    checks = [
        (one.id, one.held, one.words.replace("`", "") + (late if one.is_late else ""))
        for one in outline.checks
    ]
    table(("check", "held", f"what must be so, else it {ends}"), checks)
    for text in outline.struck:
        click.echo(printable(f"struck: {text}"))


def print_open(document: Json, asked: Sequence[str], recordings: int) -> None:
    """Say what the recordings leave open."""
    few = [one.place for one in open_constants(document, recordings)]
    if few:
        showed = f"{count(recordings, 'recording')} showed it, {ENOUGH_ALIKE} would be enough"
        note(f"open: is this always so: {', '.join(few)}? {showed}")
    if asked:
        note(f"open: nothing explains {', '.join(asked)}: whoever runs it gives it")
    if not few and not asked:
        note("open: nothing")


def print_proof(proof: Proof | None, *, is_outdated: bool = False) -> None:
    """Print how a routine did on recordings, in red if it was wrong, and why it was not right."""
    if proof is None:
        return
    changed = " (before the routine was changed)" if is_outdated else ""
    trials = proof.left_out("")
    if trials.warning:
        click.secho(trials.warning, fg="red", bold=True, err=True)
    elif not proof.is_proved:
        click.secho("WARNING: this routine is not proved.", fg="red", bold=True, err=True)
    for sentence in proof.sentences:
        click.echo(printable(f"{sentence}{changed}"))
    reasons = [*proof.reasons("wrong"), *proof.reasons("handed over")]
    for reason in reasons[:REASONS_SHOWN]:
        note(f"  {reason}")
    if len(reasons) > REASONS_SHOWN:
        note(f"  and {len(reasons) - REASONS_SHOWN} more")
