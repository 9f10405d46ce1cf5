"""Request: an idempotency key, so that a repeated request is answered, not carried out again."""

from collections.abc import Sequence
from typing import Literal

import msgspec


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What became of claiming a key.

    `yours`: carry the request out and commit its `RequestOutcome`. `running`: somebody else is at
    it. `done`: here is its `response`. `mismatch`: the key was used for another request.
    `erased`: it was done, and its response was forgotten since.
    """

    status: Literal["yours", "running", "done", "mismatch", "erased"]
    owner: str = ""
    response: bytes | None = None


class RequestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The response to keep for a claimed key, committed together with what the request did."""

    key: str
    owner: str
    response: bytes
    from_events: Sequence[str] = ()
