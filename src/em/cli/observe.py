"""`em observe`: keep what was learned about a subject, from a text, JSON, JSONL or CSV."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json
from em.errors import BadLine, InputError, UsageError

FORMATS = ("text", "json", "jsonl", "csv")
_ENDINGS = {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


@click.command("observe")
@click.argument("subject")
@click.argument("text", required=False)
@click.option(
    "--file", "file", type=click.Path(allow_dash=True), help="Read FILE, or - for standard input."
)
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="Of the file; by its ending, else text."
)
@click.option("--type", "type_", help="The class of the records.")
@click.option("--at", metavar="TIME", help="When it happened.  [now]")
@click.option("--speaker", help="Who said it.")
@click.option("--source", help="Where it is from.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    subject: str,
    text: str | None,
    file: str | None,
    format_: str | None,
    type_: str | None,
    at: str | None,
    speaker: str | None,
    source: str | None,
) -> None:
    """Keep what was learned about SUBJECT: TEXT, a JSON object, or the records of a file.

    \b
    em observe ana "I moved to Porto in March."
    em observe ana '{"destination": "Lisbon", "cost_usd": 840.5}' --type Trip
    em observe ana --file trips.csv --type Trip
    """
    if text == "-":
        text, file = None, file or "-"
    if (text is None) == (file is None):
        what = "nothing to keep" if text is None else "a text and a file"
        raise UsageError(what, fix="give TEXT, or --file FILE")
    if text is not None and format_ is not None:
        raise UsageError("--format is of a file", fix="give --file FILE, or - for standard input")
    details = {"type": type_, "at": at, "speaker": speaker, "source": source}
    known = {name: value for name, value in details.items() if value is not None}
    items = _given(text) if text is not None else _read(file or "-", format_)
    # Read to its end first: all of a file comes in, or none of it.
    found = [{"subject": subject, **known, **item} for item in items]
    if type_ is not None and any("text" in item for item in found):
        raise UsageError(
            "a text has no type: --type is of records",
            place=file or "TEXT",
            fix="leave it out, give a JSON object, or say --format json, jsonl or csv",
        )
    if not found:
        raise InputError("there is nothing in it", place=file or "TEXT")
    ids = open_memory(ctx, create=True).observe_many(found)
    if ctx.obj["json"]:
        print_json({"event_ids": ids})
    else:
        click.echo(f"{count(len(ids), 'observation')} of {subject} kept")


def _given(text: str) -> list[dict[str, Any]]:
    """A text; a JSON object is a record."""
    if text.lstrip().startswith("{"):
        return [{"record": _object(text.encode(errors="surrogateescape"), "TEXT")}]
    return [{"text": text}]


def _read(file: str, format_: str | None) -> Iterator[dict[str, Any]]:
    chosen = format_ or _ENDINGS.get(Path(file).suffix.lower(), "text")
    with reading(file) as (source, name):
        if chosen == "jsonl":
            for number, line in enumerate(source, 1):
                if line.strip():
                    yield {"record": _object(line, f"{name}:{number}")}
            return
        content = source.read()
    if chosen == "csv":
        yield from _rows(content, name)
    elif chosen == "json":
        yield from ({"record": record} for record in _records(content, name))
    elif content.strip():
        yield {"text": _decoded(content, name)}


def _records(content: bytes, name: str) -> list[dict[str, Any]]:
    try:
        found = msgspec.json.decode(content, type=dict[str, Any] | list[dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"this is no JSON object, nor a list of them: {error}", place=name
        ) from None
    return found if isinstance(found, list) else [found]


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"this is no JSON object: {error}", place=place) from None


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"it is no UTF-8: {error}", place=name) from None


def _rows(content: bytes, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file as records of texts; what they mean is found by the checkpoint."""
    reader = csv.DictReader(io.StringIO(_decoded(content, name), newline=""), strict=True)
    try:
        names = list(reader.fieldnames or ())
        if len(set(names)) < len(names):
            raise BadLine("two columns have one name", place=f"{name}:1", fix="rename one")
        for row in reader:
            if None in row or None in row.values():
                raise BadLine(f"it has not {len(names)} columns", place=f"{name}:{reader.line_num}")
            yield {"record": {column: value for column, value in row.items() if value != ""}}
    except csv.Error as error:
        raise BadLine(f"this is no CSV: {error}", place=f"{name}:{reader.line_num}") from None
