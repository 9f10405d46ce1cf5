"""`em observe`: record texts, records and chats about a subject."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from em.cli.command import command
from em.cli.options import open_memory, pairs, parse_object, reading
from em.cli.output import count, emit
from em.errors import BadLine, InputError, UsageError
from em.runner.answers import json_or_text
from em.traces.trace import Source

FORMATS = ("text", "json", "jsonl", "csv", "chat")
_ENDINGS = {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


@command("observe")
@click.argument("subject")
@click.argument("text", required=False)
@click.option(
    "--file", "file", type=click.Path(allow_dash=True), help="Read FILE, or - for standard input."
)
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="The file's format.  [by its ending]"
)
@click.option("--type", "type_", help="The class of the records.")
@click.option("--at", metavar="TIME", help="When it happened.  [now]")
@click.option("--speaker", help="Who said it. `I` is SUBJECT only if SUBJECT says it.")
@click.option("--session", help="The conversation it belongs to.")
@click.option(
    "--origin", type=click.Choice(get_args(Source)), help="web: a person must accept it.  [own]"
)
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="A field of your own.")
@click.option("--facts", metavar="JSON", help="What TEXT states: a list of facts with evidence.")
def observe(
    subject: str,
    text: str | None,
    file: str | None,
    format_: str | None,
    type_: str | None,
    at: str | None,
    metadata: tuple[str, ...],
    facts: str | None,
    **said: str | None,
) -> None:
    """Record observations about SUBJECT: TEXT, a JSON object, or the records of a file.

    \b
    em observe ana "I moved to Porto in March."
    em observe ana '{"destination": "Lisbon", "cost_usd": 840.5}' --type Trip
    em observe ana --file trips.csv --type Trip
    em observe ana --file chat.json --format chat     # messages with role, content and name
    """
    if text == "-":
        text, file = None, file or "-"
    if (text is None) == (file is None):
        what = "no text and no file" if text is None else "both a text and a file"
        raise UsageError(f"{what} given", fix="give either TEXT or --file FILE")
    if text is not None and format_ is not None:
        raise UsageError(
            "--format needs a file", fix="give --file FILE, or --file - for standard input"
        )
    own = pairs(metadata, "--metadata") or None
    details = {"type": type_, "at": at, "metadata": own, "facts": _facts(facts), **said}
    known = {name: value for name, value in details.items() if value is not None}
    items = _given(text) if text is not None else _read(file or "-", format_)
    # Read everything first: all of a file is recorded, or none of it.
    found = [{"subject": subject, **known, **item} for item in items]
    if type_ is not None and any("text" in item for item in found):
        raise UsageError(
            "--type needs records, and this is a text",
            place=file or "TEXT",
            fix="leave out --type, give a JSON object, or give --format json, jsonl or csv",
        )
    if not found:
        raise InputError("expected at least one observation, found nothing", place=file or "TEXT")
    ids = open_memory(create=True).observe_many(found)
    emit({"event_ids": ids}, f"{count(len(ids), 'observation')} of {subject} recorded")


def _facts(given: str | None) -> Any:
    found = None if given is None else json_or_text(given)
    if found is not None and not isinstance(found, list):
        raise UsageError("--facts needs a JSON list of facts", fix="see docs/state.md")
    return found


def _given(text: str) -> list[dict[str, Any]]:
    """Return a JSON object as a record, any other text as a text."""
    if text.lstrip().startswith("{"):
        record = parse_object(text.encode(errors="surrogateescape"), "TEXT", BadLine)
        return [{"record": record}]
    return [{"text": text}]


def _read(file: str, format_: str | None) -> Iterator[dict[str, Any]]:
    chosen = format_ or _ENDINGS.get(Path(file).suffix.lower(), "text")
    with reading(file) as (source, name):
        if chosen == "chat":
            yield from _messages(source.read(), name)
            return
        if chosen == "jsonl":
            for number, line in enumerate(source, 1):
                if line.strip():
                    yield {"record": parse_object(line, f"{name}:{number}", BadLine)}
            return
        content = source.read()
    if chosen == "csv":
        yield from _rows(content, name)
    elif chosen == "json":
        yield from ({"record": record} for record in _records(content, name))
    elif content.strip():
        yield {"text": _decoded(content, name)}


_CHAT = {
    "text": ("text", "content"),
    "role": ("role",),
    "speaker": ("speaker", "name"),
    "addressee": ("addressee", "to"),
    "at": ("at", "timestamp", "created_at"),
    "session": ("session",),
}
"""The details of an observation, and what chats call them."""


def _messages(content: bytes, name: str) -> Iterator[dict[str, Any]]:
    """Read a chat, as a JSON list or JSON lines: what was said, by whom and to whom."""
    listed = content.lstrip()[:1] == b"["
    lines = [line for line in content.splitlines() if line.strip()]
    found = (
        _records(content, name)
        if listed
        else [parse_object(line, f"{name}:{n}", BadLine) for n, line in enumerate(lines, 1)]
    )
    for number, message in enumerate(found, 1):
        item = {
            detail: next((message[one] for one in names if message.get(one)), None)
            for detail, names in _CHAT.items()
        }
        if not all(isinstance(value, str | None) for value in item.values()) or not item["text"]:
            raise BadLine(
                "expected a message with a text in `content`",
                place=f"{name}, message {number}",
                fix="give role, content, and optionally name, to, timestamp and session as texts",
            )
        yield {detail: value for detail, value in item.items() if value is not None}


def _records(content: bytes, name: str) -> list[dict[str, Any]]:
    if not content.strip():
        return []
    try:
        found = msgspec.json.decode(content, type=dict[str, Any] | list[dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"expected a JSON object, or a list of JSON objects: {error}", place=name
        ) from None
    return found if isinstance(found, list) else [found]


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"expected UTF-8: {error}", place=name) from None


def _rows(content: bytes, name: str) -> Iterator[dict[str, Any]]:
    """Read the rows of a CSV file as records of strings. A checkpoint infers their types."""
    reader = csv.DictReader(io.StringIO(_decoded(content, name), newline=""), strict=True)
    try:
        names = list(reader.fieldnames or ())
        if len(set(names)) < len(names):
            raise BadLine("two columns have the same name", place=f"{name}:1", fix="rename one")
        for row in reader:
            if None in row or None in row.values():
                raise BadLine(
                    f"expected {count(len(names), 'column')} as in the first line",
                    place=f"{name}:{reader.line_num}",
                )
            yield {"record": {column: value for column, value in row.items() if value != ""}}
    except csv.Error as error:
        raise BadLine(f"expected CSV: {error}", place=f"{name}:{reader.line_num}") from None
