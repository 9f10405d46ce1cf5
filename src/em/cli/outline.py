"""How the command line shows a plain routine: code, inputs, checks, constants, trials."""

from collections.abc import Sequence

import click

from em.cli.output import count, note, print_table, printable
from em.compiler.evidence import BY_ITSELF
from em.compiler.outline import Constant, Outline
from em.runner.trial import Trials

LATE = " (after the write; else the run fails)"


def print_inputs(outline: Outline) -> None:
    """Print the inputs with their types, and which of them are alternatives."""
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


def print_checks(outline: Outline) -> None:
    """Print the checks with their ids and in how many recordings they held."""
    if outline.checks:
        click.echo()
        rows = [
            (one.id, one.held, one.words.replace("`", "") + (LATE if one.is_late else ""))
            for one in outline.checks
        ]
        print_table(("check", "held", "what must be so, else it hands over"), rows)
    for text in outline.struck:
        click.echo(printable(f"struck: {text}"))


def print_constants(constants: Sequence[Constant]) -> None:
    """Print the arguments that are the same in every run."""
    if constants:
        click.echo()
        rows = [(one.place, printable(str(one).partition(" is always ")[2])) for one in constants]
        print_table(("constant", "always"), rows)


def open_values(outline: Outline, recordings: int) -> list[str]:
    """Return the constants that so few recordings show that a person should look at them."""
    return [one.place for one in outline.constants] if recordings < BY_ITSELF.constant else []


def print_open(outline: Outline, recordings: int) -> None:
    """Say what so few recordings leave open."""
    left = open_values(outline, recordings)
    if left:
        enough = BY_ITSELF.constant
        showed = f"{count(recordings, 'recording')} showed it, {enough} would be enough"
        note(printable(f"open: is this always so: {', '.join(left)}? {showed}"))
    else:
        note("open: nothing")


def print_reasons(trials: Trials) -> None:
    """Say why trials on recordings that were left out were not right."""
    for reason in trials.reasons():
        note(printable(f"  {reason}"))
