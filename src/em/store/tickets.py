"""Tickets: small values that expire, on which the processes of a service must agree.

Logins, counts for limits of requests, the key that signs forms, and plans that wait to be
committed, sealed by their tokens. They are no part of the log: nothing of what was recorded can be
read in a ticket, and no export has it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

from em.store.session import SqlSession, Transaction, delete, is_side_by_side
from em.values.times import now_micros

_MICROSECOND = timedelta(microseconds=1)


EXPIRED_AT_ONCE = 100
"""Expired tickets that one change deletes at most: more than come in."""

Holding = Callable[[str], AbstractContextManager[SqlSession]]
"""Begins a transaction that changes the thing with this name."""


class SqlTickets:
    """The tickets in a table of either back end."""

    def __init__(self, reading: Transaction, holding: Holding) -> None:
        self._reading = reading
        self._holding = holding

    def get(self, name: str) -> str | None:
        """Return the value of a ticket, or None if there is none or it has expired."""
        sql = "SELECT value FROM tickets WHERE name = ? AND expires_at > ?"
        with self._reading() as session:
            row = session.execute(sql, (name, now_micros())).fetchone()
        return None if row is None else str(row[0])

    def put(self, name: str, value: str, keep: timedelta) -> str:
        """Store a ticket unless there is one; return the value of the one that is there."""
        sql = "INSERT INTO tickets(name, value, count, expires_at) VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING"  # noqa: E501 - one statement
        with self._holding(_lock_name(name)) as session:
            moment = _expire(session, name)
            session.execute(sql, (name, value, moment + keep // _MICROSECOND))
            row = session.execute("SELECT value FROM tickets WHERE name = ?", (name,)).fetchone()
            _expire_others(session, name, moment)
        return str(row[0])

    def count(self, name: str, more: int, keep: timedelta) -> int:
        """Add to the count of a ticket, and return the sum. It expires `keep` after the first."""
        sql = (
            "INSERT INTO tickets(name, value, count, expires_at) VALUES (?, '', ?, ?)"
            " ON CONFLICT(name) DO UPDATE SET count = tickets.count + excluded.count"
            " RETURNING count"
        )
        with self._holding(_lock_name(name)) as session:
            moment = _expire(session, name)
            until = moment + keep // _MICROSECOND
            count = int(session.execute(sql, (name, more, until)).fetchone()[0])
            _expire_others(session, name, moment)
            return count

    def take(self, name: str) -> str | None:
        """Remove a ticket and return its value; None if there is none or it has expired."""
        with self._holding(_lock_name(name)) as session:
            _expire(session, name)
            sql = "DELETE FROM tickets WHERE name = ? RETURNING value"
            row = session.execute(sql, (name,)).fetchone()
        return None if row is None else str(row[0])


def _lock_name(name: str) -> str:
    return f"ticket {name}"


def _expire(session: SqlSession, name: str) -> int:
    """Delete a ticket if it has expired, and return the time."""
    moment = now_micros()
    session.execute("DELETE FROM tickets WHERE name = ? AND expires_at <= ?", (name, moment))
    return moment


def _expire_others(session: SqlSession, name: str, moment: int) -> None:
    """Delete others that have expired. Wait for nobody: the own ticket is held meanwhile."""
    passing = " FOR UPDATE SKIP LOCKED" if is_side_by_side(session) else ""
    sql = f"SELECT name FROM tickets WHERE expires_at <= ? AND name <> ? LIMIT ?{passing}"  # noqa: S608 - fixed words
    rows = session.execute(sql, (moment, name, EXPIRED_AT_ONCE)).fetchall()
    delete(session, "tickets", "name", [row[0] for row in rows])
