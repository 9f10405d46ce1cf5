"""The hash chain of a stream.

An event's hash covers its fields, the salted hash of its body, and the hash of the previous event
of its stream. It does not cover `seq`, so that an import keeps the hash. The salt is erased with
the body, so that the body can't be guessed from its hash.
"""

from hashlib import sha256

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
