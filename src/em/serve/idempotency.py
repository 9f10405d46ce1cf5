"""Idempotency: the same key and payload get the same answer, byte for byte, and one effect.

The response is committed in the same transaction as what the request did. While the first is still
at it, in this process or another, a second waits for its answer; if the first dies, its lease runs
out and the second takes over.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any

import msgspec

from em.errors import InputError, KeyReused, ResponseGone, StoreBusy
from em.log.event import Draft, Event
from em.settings import ApiSettings
from em.store.protocol import Claim, Commit, RequestOutcome, Store

LONGEST_KEY = 255
FIRST_WAIT, LONGEST_WAIT = 0.02, 0.5
_encode = msgspec.json.Encoder(order="sorted").encode


class Answered(msgspec.Struct, frozen=True):
    """A response: as it is sent, and as it is kept."""

    status: int
    body: msgspec.Raw
    replayed: bool = False


class Pending:
    """A request that is carried out: who writes gives the response to be committed with it."""

    def __init__(self, key: str = "", owner: str = "") -> None:
        self._key = key
        self._owner = owner
        self.answered: Answered | None = None

    @property
    def key(self) -> str:
        """The key under which the response is kept; empty where the client gave none."""
        return self._key

    def answer(
        self, value: Any, status: int = 201, from_events: tuple[str, ...] = ()
    ) -> RequestOutcome | None:
        """Say what the answer is; what to commit with the work, where there is a key."""
        self.answered = Answered(status, msgspec.Raw(_encode(value)))
        if not self._key:
            return None
        kept = _encode({"status": status, "body": self.answered.body})
        return RequestOutcome(
            key=self._key, owner=self._owner, response=kept, from_events=from_events
        )

    def commit(
        self, store: Store, events: list[Draft], value: Any, status: int = 201
    ) -> Sequence[Event]:
        """Write events, which have ids, and the answer; the events as the log has them."""
        ids = tuple(event.id for event in events if event.id is not None)
        outcome = self.answer(value, status, ids)
        return store.commit(Commit(events=events, request=outcome)).events


Work = Callable[[Pending], None]


class Requests:
    """Carries requests out, each key once."""

    def __init__(self, store: Store, settings: ApiSettings) -> None:
        self._store = store
        self._lease = timedelta(seconds=settings.lease_seconds)
        self._keep = timedelta(hours=settings.idempotency_hours)

    async def carry_out(
        self, key: str | None, caller: str, what: str, payload: Any, work: Work
    ) -> Answered:
        """Do the work and answer; or answer as it was answered before."""
        if key is None:
            return await asyncio.to_thread(_carry_out, Pending(), work)
        if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
            raise InputError(
                f"a key has 1 to {LONGEST_KEY} printable characters", place="Idempotency-Key"
            )
        # Hashed: one caller's key is not another's, and a key may look like a secret.
        name = "http/" + sha256(_encode((caller, key))).hexdigest()
        claim = await self._claim(name, sha256(_encode((what, payload))).hexdigest())
        if claim.status == "mismatch":
            raise KeyReused(
                "this key stands for another request",
                place="Idempotency-Key",
                fix="send a new key with a new request",
            )
        if claim.status == "erased":
            raise ResponseGone("it was carried out, and its response was forgotten since")
        if claim.status == "done":
            known = msgspec.json.decode(claim.response or b"", type=Answered)
            return msgspec.structs.replace(known, replayed=True)
        try:
            return await asyncio.to_thread(_carry_out, Pending(name, claim.owner), work)
        except BaseException:
            # Only what was completed is kept: the client may try again with the same key.
            await asyncio.shield(asyncio.to_thread(self._store.release, name, claim.owner))
            raise

    async def _claim(self, name: str, fingerprint: str) -> Claim:
        """Claim a key, waiting for who has it."""
        deadline = time.monotonic() + 2 * self._lease.total_seconds()
        wait = FIRST_WAIT
        while True:
            claim = await asyncio.to_thread(
                self._store.claim, name, fingerprint, lease=self._lease, keep=self._keep
            )
            if claim.status != "running":
                return claim
            if time.monotonic() > deadline:
                raise StoreBusy("the first request with this key is still running", fix="ask again")
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def _carry_out(pending: Pending, work: Work) -> Answered:
    work(pending)
    assert pending.answered is not None
    return pending.answered
