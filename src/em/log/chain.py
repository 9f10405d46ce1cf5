"""The hash chain of a stream.

An event's hash covers its fields, the salted hash of its body, and the hash of the event before it
in its stream; not `seq`, so that an import keeps it. The salt goes with an erased body: nobody can
find out by guessing what it said.
"""

from hashlib import sha256

import msgspec

SALT_BYTES = 16
HASH_BYTES = 32
START = b""
"""What stands for the previous hash at the beginning of a stream."""

_encode = msgspec.json.Encoder().encode


def hash_body(salt: bytes, text: bytes) -> bytes:
    """The salted hash of a body's canonical text."""
    return sha256(salt + text).digest()


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
    """The hash of an event that follows `previous`. A JSON array keeps the fields apart."""
    fields = ("em1", event_id, stream, pos, subject, kind, v, at, recorded_at)
    return sha256(_encode(fields) + body_hash + previous).digest()
