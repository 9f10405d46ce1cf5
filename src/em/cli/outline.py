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


def print_outline(document: Json) -> None:
    """Print the inputs, constants and checks of a routine."""
    outline = outline_of(document)
    _print_inputs(outline)
    if outline.constants:
        click.echo()
        rows = [(one.place, short(one.value)) for one in outline.constants]
        print_table(("constant", "always"), rows)
    hands_over = document.get("checks") == "hand_over"
    _print_checks(outline, "hands over" if hands_over else "fails")


def _print_inputs(outline: Outline) -> None:
    rows = [
        (one.name, one.looks, "required" if one.required else "optional", one.description)
        for one in outline.inputs
    ]
    if rows:
        click.echo()
        described = any(one.description for one in outline.inputs)
        columns = ("input", "type", "", "description")
        print_table(columns if described else columns[:3], [row[: 3 + described] for row in rows])
    if outline.alternatives:
        ways = "; or ".join(", ".join(way) for way in outline.alternatives)
        click.echo(printable(f"given must be: {ways}"))


def _print_checks(outline: Outline, ends: str) -> None:
    if outline.checks:
        click.echo()
        late = LATE if ends == "hands over" else ""
        rows = [
            (one.id, one.held, one.words.replace("`", "") + (late if one.is_late else ""))
            for one in outline.checks
        ]
        print_table(("check", "held", f"what must be so, else it {ends}"), rows)
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
