"""Directives that write the reference of commands, settings and HTTP paths from em itself."""

import asyncio
import contextlib
import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
import httpx
import msgspec
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from em import Memory, Settings
from em.cli.root import root
from em.serve.app import make_app


class Generated(SphinxDirective):
    """Read Markdown that a function returns as if it stood in the page."""

    def lines(self) -> Iterable[str]:
        """Return the lines of the Markdown."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return the nodes of the Markdown."""
        here = nodes.Element()
        self.state.nested_parse(StringList([*self.lines()], self.name), 0, here, match_titles=True)
        return [*here.children]


class Commands(Generated):
    """Every command with its arguments and options."""

    def lines(self) -> Iterator[str]:
        """Return a section for each command."""

        yield from _command(root, click.Context(root, info_name="em"))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                inner = click.Context(below, info_name=name, parent=context)
                yield from _command(below, inner)
        return
    yield from (f"## {context.command_path}", "", (command.help or "").partition("\f")[0], "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{context.command_path} {usage}", "```", "")
    records = (one.get_help_record(context) for one in command.params)
    rows = [(f"`{record[0]}`", record[1]) for record in records if record]
    if rows:
        yield from _table(("option", "meaning"), rows)


class SettingsTable(Generated):
    """Every setting of em.yaml with its default, and the variable that overrides it."""

    def lines(self) -> Iterator[str]:
        """Return a table for each part of em.yaml."""

        yield from _settings("em.yaml", Settings)


def _settings(title: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    described = _described(struct.__doc__ or "")
    yield from (f"## {title}", "", described.pop("", ""), "")
    rows, below = [], []
    for field in msgspec.structs.fields(struct):
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if isinstance(default, msgspec.Struct):
            below.append((f"{title}: {field.name}".removeprefix("em.yaml: "), type(default)))
            continue
        shown = "" if default is msgspec.NODEFAULT else f"`{msgspec.json.encode(default).decode()}`"
        rows.append((f"`{field.name}`", shown, described.get(field.name, "")))
    if rows:
        yield from _table(("setting", "default", "meaning"), rows)
    for name, inner in below:
        yield from _settings(name, inner)


def _described(docstring: str) -> dict[str, str]:
    """Return what a docstring says of each name; its first part stands under an empty name."""
    found: dict[str, str] = {"": ""}
    names = [""]
    for line in docstring.splitlines():
        start = re.match(r"\s*(\w+(?:, \w+)*): (.*)", line)
        if start:
            names = start[1].split(", ")
            found |= dict.fromkeys(names, start[2])
        else:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found


class Paths(Generated):
    """Every path of the HTTP service, with its parameters."""

    def lines(self) -> Iterator[str]:
        """Return a table of the paths, by their first part."""
        with Memory(":memory:") as memory:
            paths = asyncio.run(_described_paths(make_app(memory, Settings())))
        groups: dict[str, list[tuple[str, ...]]] = {}
        for path, methods in sorted(paths.items()):
            for method, operation in methods.items():
                names = [f"`{one['name']}`" for one in operation.get("parameters", ())]
                row = (f"`{method.upper()} {path}`", _first(operation), ", ".join(names))
                groups.setdefault(path.split("/")[1], []).append(row)
        for group, rows in groups.items():
            yield from (f"## /{group}", "")
            yield from _table(("path", "what", "parameters"), rows)


async def _described_paths(app: Any) -> dict[str, Any]:
    """Ask the service for its own description."""
    logging.getLogger("httpx").setLevel(logging.ERROR)
    transport = httpx.ASGITransport(app=app)
    unseen = io.TextIOWrapper(io.BytesIO())  # Sphinx would take the log of requests for warnings
    with contextlib.redirect_stderr(unseen):
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return dict((await client.get("/docs/openapi.json")).json()["paths"])


def _first(operation: Mapping[str, Any]) -> str:
    text = operation.get("description") or operation.get("summary") or ""
    return str(text).split("\n\n")[0]


def _table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield from ("| " + " | ".join(names) + " |", "|---" * len(names) + "|")
    for row in rows:
        yield "| " + " | ".join(" ".join(one.split()).replace("|", "\\|") for one in row) + " |"
    yield ""


def setup(app: Any) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("commands", Commands)
    app.add_directive("settings", SettingsTable)
    app.add_directive("paths", Paths)
    return {"parallel_read_safe": True}
