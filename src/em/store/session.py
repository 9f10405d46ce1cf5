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
