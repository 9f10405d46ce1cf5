"""The hash chains: of each stream, and of the register of what a store holds.

An event's hash covers its fields, the salted hash of its body, and the hash of the previous event
of its stream. It does not cover `seq`, so that an import keeps the hash. The salt is erased with
the body, so that the body can't be guessed from its hash.

An entry of the register covers the head of a stream, an artefact, or the sum of a subject's
records, and the link of the entry before it.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

SALT_BYTES = 16
HASH_BYTES = 32
START = b""
"""The previous hash of a stream's first event."""

_encode = msgspec.json.Encoder().encode


def hash_body(salt: bytes, text: bytes) -> bytes:
    """Hash the canonical text of a body with its salt."""
    body = sha256(salt)
    body.update(text)  # not joined before: a body may be large
    return body.digest()


def hash_event(
    previous: bytes,
    event_id: str,
    stream: str,
    pos: int,
    subject: str | None,
    kind: str,
    v: int,
    at: int,
    recorded_at: int,
    body_hash: bytes,
) -> bytes:
    """Hash an event that follows `previous`. The JSON array delimits the fields."""
    fields = ("em1", event_id, stream, pos, subject, kind, v, at, recorded_at)
    return sha256(_encode(fields) + body_hash + previous).digest()


def text_around_pos(
    event_id: str, stream: str, subject: str | None, kind: str, v: int, at: int, recorded_at: int
) -> tuple[bytes, bytes]:
    """Return what stands before and behind the position in the text that is hashed.

    So a server that knows the position and the previous hash can hash an event, see `hash_event`.
    """
    before = _encode(("em1", event_id, stream))[:-1] + b","
    return before, b"," + _encode((subject, kind, v, at, recorded_at))[1:]


STREAM, ARTEFACT, RECORDS = "stream", "artefact", "records"
"""What an entry of the register is about."""


LAG = 15
"""How many events at the end of a stream the register may lack, if they were appended alone."""


class Entry(NamedTuple):
    """An entry of the register.

    n: its number; 0 if it is not chained yet, and has no link.
    key: a stream, the id of an artefact, or the subject of records.
    pos: the position of the head, the version of the artefact, or the number of records.
    hash: of the head, of the artefact as it is then, or the sum over the records.
    """

    n: int
    noun: str
    key: str
    pos: int
    hash: bytes
    link: bytes


class Holding(NamedTuple):
    """An artefact or a record as a store holds it.

    key: as the register has it. name: what to call it: kind and name, or type and id.
    fits: whether its content fits its seal. hash: as the register has it; of a record, its seal.
    """

    noun: str
    key: str
    name: str
    version: int
    fits: bool
    hash: bytes


def hash_link(previous: bytes, noun: str, key: str, pos: int, own: bytes) -> bytes:
    """Link an entry of the register to the entry before it."""
    return sha256(_encode((noun, key, pos)) + own + previous).digest()


def seal_of(salt: bytes, *fields: Any) -> bytes:
    """Seal the fields of a row: the salt, and the hash of both."""
    return salt + sha256(salt + _encode(fields)).digest()


def sum_of(seals: Iterable[bytes]) -> int:
    """Add up the hashes of seals: the same in any order."""
    return sum(int.from_bytes(seal[SALT_BYTES:]) for seal in seals)


def hash_artefact(seal: bytes | None, from_events: str, retired_at: int | None) -> bytes:
    """Hash an artefact: its seal covers what never changes. An erased one has no seal."""
    return sha256((seal or b"") + _encode((from_events, retired_at))).digest()
