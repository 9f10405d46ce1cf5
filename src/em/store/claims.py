"""Idempotency keys: who may carry a request out, and what it answered."""

from datetime import timedelta

from em.store.holders import expire_requests
from em.store.request import Claim
from em.store.session import Session
from em.values.ids import new_id
from em.values.times import now_micros

_MICROSECOND = timedelta(microseconds=1)


def claim(session: Session, key: str, fingerprint: str, lease: timedelta, keep: timedelta) -> Claim:
    """Claim a key, or learn what became of the request that has it."""
    moment = now_micros()
    expire_requests(session, moment)
    row = session.execute(
        "SELECT fingerprint, state, response, lease_until FROM requests WHERE key = ?", (key,)
    ).fetchone()
    if row is not None:
        known, state, response, lease_until = row
        if known != fingerprint:
            return Claim(status="mismatch")
        if state == "done":
            return Claim(status="done", response=bytes(response))
        if state == "erased":
            return Claim(status="erased")
        if lease_until > moment:
            return Claim(status="running")
    owner = new_id()
    session.execute(
        "INSERT INTO requests(key, fingerprint, owner, state, lease_until, expires_at)"
        " VALUES (?, ?, ?, 'running', ?, ?) ON CONFLICT(key)"
        " DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until",
        (key, fingerprint, owner, moment + lease // _MICROSECOND, moment + keep // _MICROSECOND),
    )
    return Claim(status="yours", owner=owner)


def release(session: Session, key: str, owner: str) -> None:
    """Give a claim back; that of another owner stays."""
    session.execute(
        "DELETE FROM requests WHERE key = ? AND owner = ? AND state = 'running'", (key, owner)
    )
