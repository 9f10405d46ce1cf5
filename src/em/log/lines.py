"""Event lines: one event a line, as JSON, in files and over HTTP.

`{"stream": …, "kind": …, "body": {…}}` is a new event; `subject`, `at`, `v` and `id` are optional.
A line with a `hash` is an exported event and is imported unchanged.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

import msgspec

from em.errors import BadLine, InputError
from em.log.event import Draft, Event
from em.values.canonical import MAX_BYTES, MAX_DEPTH, Json
from em.values.files import BOM
from em.values.mismatch import closest, mismatch
from em.values.times import moment

MAX_LINE = MAX_BYTES + 64 * 1024
"""The maximum length of a line: the largest body and the other fields."""

_encode = msgspec.json.Encoder().encode


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: str
    kind: str
    body: Json | None
    subject: str | None = None
    at: str | None = None
    v: int = 1
    id: str | None = None
    seq: int | None = None
    pos: int | None = None
    recorded_at: datetime | None = None
    salt: str | None = None
    body_hash: str | None = None
    hash: str | None = None


_decode = msgspec.json.Decoder(_Line).decode
_EXPORTED = ("id", "pos", "at", "recorded_at", "body_hash")


def write_line(event: Event) -> bytes:
    """Encode an event with all its fields, without a line break."""
    return _encode(event)


def read_lines(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Stream the lines of a file that are not blank, with their numbers."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise BadLine(
                f"a line may have {MAX_LINE:,} bytes, this one has more",
                place=f"{name}:{number}",
                fix="split the event; one event is one line",
            )
        if number == 1:
            line = line.removeprefix(BOM)
        if line.strip():
            yield number, line


def parse_line(line: bytes, place: str, *, rechain: bool = False) -> Draft | Event | None:
    """Parse a line into its event.

    rechain: return an exported event as a new one; None for erased events and tombstones.
    """
    try:
        parsed = _decode(line)
        at = None if parsed.at is None else moment(parsed.at)
    except RecursionError:
        raise BadLine(f"nested more than {MAX_DEPTH} levels deep", place=place) from None
    except UnicodeDecodeError as error:
        raise BadLine(f"expected UTF-8: {error.reason}", place=place) from None
    except InputError as error:
        raise BadLine(error.message, place=f"{place}, field {error.place}", fix=error.fix) from None
    except msgspec.DecodeError as error:
        raise _explain(error, place) from None
    if parsed.hash is not None:
        if not rechain:
            return _exported(parsed, place)
        if parsed.body is None or parsed.kind == "erased":
            return None
    if parsed.body is None:
        raise BadLine("the event has no body", place=f"{place}, field body")
    return Draft(
        stream=parsed.stream,
        kind=parsed.kind,
        body=parsed.body,
        subject=parsed.subject,
        at=at,
        v=parsed.v,
        id=None if rechain else parsed.id,
    )


def _exported(parsed: _Line, place: str) -> Event:
    missing = [field for field in _EXPORTED if getattr(parsed, field) is None]
    if missing:
        raise BadLine(
            f"this exported event (it has a hash) has no {missing[0]!r}",
            place=place,
            fix="remove `hash` to append it as new, or import with --rechain",
        )
    known: Any = parsed  # checked above: these fields are there
    return Event(
        seq=parsed.seq or 0,
        id=known.id,
        stream=parsed.stream,
        pos=known.pos,
        subject=parsed.subject,
        kind=parsed.kind,
        v=parsed.v,
        at=moment(known.at),
        recorded_at=moment(known.recorded_at),
        body=parsed.body,
        salt=parsed.salt,
        body_hash=known.body_hash,
        hash=known.hash,
    )


def _explain(error: msgspec.DecodeError, place: str) -> BadLine:
    found = mismatch(error)
    message, fix = found.message, ""
    if "unknown field" in message:
        name = message.split("`")[1]
        fix = (
            closest(name, _Line.__struct_fields__)
            or "an event has the fields stream, kind and body"
        )
    elif not isinstance(error, msgspec.ValidationError):
        message = f"expected JSON: {message}"
        fix = "one event is one line" if "truncated" in message else ""
    return BadLine(message, place=found.place(place), fix=fix)
