"""What the SQL of both back ends runs on: one connection inside one transaction."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

Params = Sequence[Any]


class Session(Protocol):
    """Statements are written with `?`, in the SQL that both back ends understand."""

    def execute(self, sql: str, params: Params = ()) -> "Rows":
        """Run one statement."""

    def executemany(self, sql: str, rows: Iterable[Params]) -> Any:
        """Run one statement for each row."""


class Rows(Protocol):
    """The answer to a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> Any:
        """The next row, or None."""

    def fetchall(self) -> list[Any]:
        """The rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


def chunks(items: Sequence[str], size: int = 500) -> Iterator[tuple[str, Sequence[str]]]:
    """Portions of a list for `IN (…)`, each with its question marks."""
    for start in range(0, len(items), size):
        part = items[start : start + size]
        yield ",".join("?" * len(part)), part


def select(
    session: Session, columns: str, table: str, column: str, values: Sequence[str]
) -> Iterator[Any]:
    """The rows whose column is one of the values."""
    for marks, part in chunks(values):
        sql = f"SELECT {columns} FROM {table} WHERE {column} IN ({marks})"  # noqa: S608 - names from this package; values are bound
        yield from session.execute(sql, part).fetchall()


def delete(session: Session, table: str, column: str, values: Sequence[str]) -> int:
    """Delete the rows whose column is one of the values; how many there were."""
    count = 0
    for marks, part in chunks(values):
        sql = f"DELETE FROM {table} WHERE {column} IN ({marks})"  # noqa: S608 - names from this package; values are bound
        count += session.execute(sql, part).rowcount
    return count


def select_numbers(
    session: Session, sql: str, numbers: Sequence[int], more: Sequence[Any] = ()
) -> Iterator[Any]:
    """The rows of a statement whose `{}` stands for the numbers, some hundreds at a time.

    more: the values of what follows in the statement.
    """
    for first in range(0, len(numbers), 500):
        part = numbers[first : first + 500]
        marks = ",".join("?" * len(part))
        yield from session.execute(sql.format(marks), (*part, *more)).fetchall()
