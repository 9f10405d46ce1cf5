"""Options that running a routine and running a workflow share."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from em.cli.files import reading
from em.errors import InputError
from em.runner.tools.permissions import settings_for
from em.settings import AllowSettings

F = TypeVar("F", bound=Callable[..., Any])

_ALLOW = "Let declared tools {} this, beside what em.yaml allows; may be repeated."


def answering(command: F) -> F:
    """Options by which a person answers, and allows."""
    for option in (
        click.option("--yes", is_flag=True, help="Answer yes to every confirmation."),
        click.option("--answers", metavar="FILE", help="Answers: {step: {field: value}}, as JSON."),
        click.option("--allow-env", multiple=True, metavar="NAME", help=_ALLOW.format("read")),
        click.option("--allow-host", multiple=True, metavar="HOST", help=_ALLOW.format("ask")),
        click.option("--allow-command", multiple=True, metavar="NAME", help=_ALLOW.format("run")),
    ):
        command = option(command)
    return command


def as_typed(shared: Mapping[str, Any]) -> str:
    """The options as they were typed, for who goes on later."""
    typed: list[str] = []
    for name, value in shared.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            typed.append(option)
        elif isinstance(value, str):
            typed += [option, value]
        elif value:
            typed += [word for each in value for word in (option, each)]
    return shlex.join(typed)


def allowed(folder: Path, shared: Mapping[str, Any]) -> AllowSettings | None:
    """What the options allow, beside em.yaml; None if they say nothing."""
    commands, hosts, env = (shared[f"allow_{what}"] for what in ("command", "host", "env"))
    if not (commands or hosts or env):
        return None
    more = AllowSettings(commands=list(commands), hosts=list(hosts), env=list(env))
    return settings_for(folder, None) + more


def read_object(file: str) -> dict[str, Any]:
    """A JSON object from a file."""
    with reading(file) as (source, name):
        try:
            return msgspec.json.decode(source.read(), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"this is no JSON object: {error}", place=name) from None
