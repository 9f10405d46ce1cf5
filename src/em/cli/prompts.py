"""Asking a person what a run wants to know, with the right question for each kind of field."""

from typing import Any

import click
import msgspec

from em.cli.output import printable
from em.runner.run import PendingPrompt


def answer(prompt: PendingPrompt, *, yes: bool, ask: bool) -> dict[str, Any] | None:
    """What a person says to a prompt; None where nobody can be asked."""
    confirms = all(field.get("type") == "confirm" for field in prompt.fields)
    if yes and confirms:
        return {field["name"]: True for field in prompt.fields}
    if not ask:
        return None
    click.echo(printable(prompt.message), err=True)
    if prompt.problem:
        click.echo(f"not taken: {printable(prompt.problem)}", err=True)
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
        return _ask_several(field, label)
    types: dict[str, Any] = {"number": float, "integer": int, "json": _read_json}
    if default is None and not field.get("required", True):
        # Nothing is an answer too.
        read = types.get(kind, str)
        return click.prompt(
            f"{label} (may be left empty)",
            value_proc=lambda text: _converted(read, text) if text else None,
            default="",
            show_default=False,
            err=True,
            hide_input=kind == "secret",
        )
    return click.prompt(
        label, type=types.get(kind, str), default=default, err=True, hide_input=kind == "secret"
    )


def _ask_several(field: Any, label: str) -> list[str]:
    options = ", ".join(printable(str(option)) for option in field.get("options", ()))
    while True:
        text = click.prompt(
            f"{label} (several of: {options}; with commas)",
            default=", ".join(str(each) for each in field.get("default") or ()),
            show_default=bool(field.get("default")),
            err=True,
        )
        several = [part.strip() for part in text.split(",") if part.strip()]
        if several or not field.get("required", True):
            return several
        click.echo("at least one is required", err=True)


def _converted(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not what is asked for") from None


def _read_json(text: str) -> Any:
    """JSON, or else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
