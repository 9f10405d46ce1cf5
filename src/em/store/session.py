"""A session: one connection inside one transaction, as the SQL of both back ends uses it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Params = Sequence[Any]


class SqlSession(Protocol):
    """Runs statements written with `?`, in SQL that both back ends understand."""

    def execute(self, sql: str, params: Params = ()) -> "Rows":
        """Run one statement."""

    def executemany(self, sql: str, rows: Iterable[Params]) -> Any:
        """Run one statement for each row."""


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that were changed."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""

    def __iter__(self) -> Iterator[Any]: ...


Transaction = Callable[[], AbstractContextManager[SqlSession]]
"""Begins a session, which ends with the block."""


def is_side_by_side(session: SqlSession) -> bool:
    """Return whether others may commit while this transaction is open."""
    return bool(getattr(session, "side_by_side", False))


CHUNK = 500


def chunks(items: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Cut a list into parts for `IN (…)`, each with its question marks."""
    for start in range(0, len(items), CHUNK):
        part = items[start : start + CHUNK]
        yield ",".join("?" * len(part)), part


def select(
    session: SqlSession, columns: str, table: str, column: str, values: Sequence[str]
) -> Iterator[Any]:
    """Select the rows whose column is one of the values."""
    for marks, part in chunks(values):
        sql = f"SELECT {columns} FROM {table} WHERE {column} IN ({marks})"  # noqa: S608 - names from this package; values are bound
        yield from session.execute(sql, part).fetchall()


def delete(session: SqlSession, table: str, column: str, values: Sequence[str]) -> int:
    """Delete the rows whose column is one of the values. Return how many there were."""
    count = 0
    for marks, part in chunks(values):
        sql = f"DELETE FROM {table} WHERE {column} IN ({marks})"  # noqa: S608 - names from this package; values are bound
        count += session.execute(sql, part).rowcount
    return count


def select_numbers(session: SqlSession, sql: str, numbers: Sequence[int]) -> Iterator[Any]:
    """Run a statement whose `{}` stands for the numbers, in parts of some hundreds.

    The last number is repeated up to a power of two, so that a connection meets few statements and
    has them prepared.
    """
    for first in range(0, len(numbers), 512):
        part = numbers[first : first + 512]
        size = 1 << (len(part) - 1).bit_length()
        marks = ",".join("?" * size)
        filled = (*part, *[part[-1]] * (size - len(part)))
        yield from session.execute(sql.format(marks), filled).fetchall()
