"""Asking a person what a run wants to know, with the right question for each kind of field."""

from typing import Any

import click

from em.cli.output import printable
from em.models.run import PendingPrompt


def answer(prompt: PendingPrompt, *, yes: bool, ask: bool) -> dict[str, Any] | None:
    """What a person says to a prompt; None where nobody can be asked."""
    confirms = all(field.get("type") == "confirm" for field in prompt.fields)
    if yes and confirms:
        return {field["name"]: True for field in prompt.fields}
    if not ask:
        return None
    click.echo(printable(prompt.message), err=True)
    return {field["name"]: _ask(field) for field in prompt.fields}


def _ask(field: Any) -> Any:
    label = printable(str(field.get("label") or field["name"]))
    default, kind = field.get("default"), field.get("type", "text")
    if kind == "confirm":
        return click.confirm(label, default=bool(default), err=True)
    if kind == "select":
        choice = click.Choice([str(option) for option in field.get("options", ())])
        return click.prompt(label, type=choice, default=default, err=True)
    if kind == "multiselect":
        text = click.prompt(f"{label} (several, with commas)", default="", err=True)
        return [part.strip() for part in text.split(",") if part.strip()]
    types: dict[str, Any] = {"number": float, "integer": int}
    return click.prompt(
        label, type=types.get(kind, str), default=default, err=True, hide_input=kind == "secret"
    )
