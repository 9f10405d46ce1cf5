"""Vectors of passages: which there are, who made them, and those near to a question.

All come from one embedder, which a flag names: the first vector of another one takes the place of
all of them, in the same transaction, so two are never mixed.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from em.errors import MissingExtra
from em.models.passage import SLOT_BITS, Within
from em.store.searching import numbers_of, select_numbers, time_conditions
from em.store.session import Session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

EMBEDDER = "embedder"
APPROXIMATE_FROM = 50_000
"""From so many vectors in a scope on they are searched through a graph instead of one by one."""
CACHED_BYTES = 1_000_000_000
"""What matrices may take in memory together; the one that was used longest ago goes first."""


def import_numpy() -> Any:
    """Numpy, which comes with the extra."""
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtra("embed", "searching by meaning") from error
    return np


def embedder_of(session: Session) -> str | None:
    """The identity of the embedder that made the vectors."""
    sql = "SELECT value FROM flags WHERE name = ?"
    row = session.execute(sql, (EMBEDDER,)).fetchone()
    return None if row is None else str(row[0])


def without_vector(
    session: Session, identity: str, subject: str | None, limit: int
) -> tuple[int, list[int]]:
    """How many passages have no vector of this embedder, and the newest of them."""
    first, last = numbers_of(session, subject)
    condition = "p.number BETWEEN ? AND ?"
    if embedder_of(session) == identity:
        condition += " AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.number = p.number)"
    sql = f"FROM passages AS p WHERE {condition}"
    (count,) = session.execute(f"SELECT count(*) {sql}", (first, last)).fetchone()
    rows = session.execute(
        f"SELECT p.number {sql} ORDER BY p.number DESC LIMIT ?", (first, last, limit)
    ).fetchall()
    return count, [row[0] for row in rows]


def put_vectors(
    session: Session, identity: str, vectors: Mapping[int, Any], mark: str = "?"
) -> None:
    """Keep vectors, as the back end writes them; those of passages that are gone are dropped."""
    if embedder_of(session) != identity:
        session.execute("DELETE FROM vectors")
        session.execute("UPDATE scopes SET stamp = stamp + 1")
        session.execute(
            "INSERT INTO flags(name, value) VALUES (?, ?)"
            " ON CONFLICT(name) DO UPDATE SET value = excluded.value",
            (EMBEDDER, identity),
        )
    there = "SELECT number FROM passages WHERE number IN ({})"
    kept = [row[0] for row in select_numbers(session, there, list(vectors))]
    session.executemany(
        f"INSERT INTO vectors(number, vector) VALUES (?, {mark})"  # noqa: S608 - a question mark
        " ON CONFLICT(number) DO UPDATE SET vector = excluded.vector",
        [(number, vectors[number]) for number in kept],
    )
    for scope in {number >> SLOT_BITS for number in kept}:
        session.execute("UPDATE scopes SET stamp = stamp + 1 WHERE number = ?", (scope,))


class _Matrix(NamedTuple):
    """The vectors of a scope in memory; `graph` where there are too many to compare each."""

    stamp: tuple[str | None, int]
    numbers: "NDArray[np.int64]"
    rows: "Floats | None"
    graph: Any

    @property
    def size(self) -> int:
        """Bytes in memory."""
        rows = 0 if self.rows is None else self.rows.nbytes
        graph = 0 if self.graph is None else int(self.graph.memory_usage)
        return int(self.numbers.nbytes) + rows + graph


class Matrices:
    """Vectors that were read from blobs, kept until they change. Safe between threads."""

    def __init__(self, approximate_from: int = APPROXIMATE_FROM) -> None:
        self._matrices: dict[str | None, _Matrix] = {}
        self._lock = Lock()
        self._approximate_from = approximate_from

    def nearest(
        self, session: Session, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Numbers and similarities of the passages nearest to a vector."""
        np = import_numpy()
        wanted = np.asarray(vector, dtype=np.float32)
        matrix = self._matrix(session, within.subject)
        if not len(matrix.numbers):
            return []
        if matrix.graph is not None:
            found = matrix.graph.search(wanted, max(limit, 10) * 2).keys
            near = [int(number) for number in found]
            if within.since is not None or within.until is not None:
                allowed = _numbers_at(session, within)
                near = [number for number in near if number in allowed]
            exact = similarities(session, vector, near)
            return sorted(exact.items(), key=lambda item: -item[1])[:limit]
        assert matrix.rows is not None
        scores = matrix.rows @ wanted
        numbers = matrix.numbers
        if within.since is not None or within.until is not None:
            keep = np.isin(numbers, list(_numbers_at(session, within)))
            scores, numbers = scores[keep], numbers[keep]
        count = min(limit, len(scores))
        if not count:
            return []
        best = np.argpartition(-scores, count - 1)[:count]
        best = best[np.argsort(-scores[best], kind="stable")]
        return [(int(numbers[n]), float(scores[n])) for n in best]

    def _matrix(self, session: Session, subject: str | None) -> _Matrix:
        stamp = (embedder_of(session), _stamp(session, subject))
        with self._lock:
            known = self._matrices.pop(subject, None)
            if known is None or known.stamp != stamp:
                known = self._read(session, subject, stamp)
            self._matrices[subject] = known
            while len(self._matrices) > 1 and self._size() > CACHED_BYTES:
                self._matrices.pop(next(iter(self._matrices)))
            return known

    def _size(self) -> int:
        return sum(matrix.size for matrix in self._matrices.values())

    def _read(
        self, session: Session, subject: str | None, stamp: tuple[str | None, int]
    ) -> _Matrix:
        np = import_numpy()
        first, last = numbers_of(session, subject)
        sql = "SELECT {} FROM vectors WHERE number BETWEEN ? AND ? ORDER BY number"
        numbers = np.fromiter(
            (row[0] for row in session.execute(sql.format("number"), (first, last))), np.int64
        )
        blobs = (row[0] for row in session.execute(sql.format("vector"), (first, last)))
        if len(numbers) < self._approximate_from:
            joined = b"".join(blobs)
            rows = np.frombuffer(joined, np.float16).astype(np.float32)
            return _Matrix(stamp, numbers, rows.reshape(len(numbers), -1), None)
        return _Matrix(stamp, numbers, None, _graph(numbers, blobs))


def _graph(numbers: Any, blobs: Any) -> Any:
    """An approximate index; one byte for each dimension, since the best are compared again."""
    np = import_numpy()
    from itertools import islice

    try:
        from usearch.index import Index
    except ImportError as error:
        raise MissingExtra("embed", "an approximate index") from error
    graph, start = None, 0
    while portion := list(islice(blobs, 10_000)):
        rows = np.frombuffer(b"".join(portion), np.float16).reshape(len(portion), -1)
        if graph is None:
            graph = Index(
                ndim=rows.shape[1],
                metric="cos",
                dtype="i8",
                connectivity=16,
                expansion_add=128,
                expansion_search=256,
            )
        graph.add(numbers[start : start + len(portion)], rows.astype(np.float32))
        start += len(portion)
    return graph


def _stamp(session: Session, subject: str | None) -> int:
    condition, params = ("", ()) if subject is None else (" WHERE subject = ?", (subject,))
    sql = f"SELECT COALESCE(SUM(stamp), 0) FROM scopes{condition}"  # noqa: S608 - fixed words; values are bound
    return int(session.execute(sql, params).fetchone()[0])


def _numbers_at(session: Session, within: Within) -> set[int]:
    when, moments = time_conditions(within)
    sql = f"SELECT p.number FROM passages AS p WHERE p.number BETWEEN ? AND ?{when}"  # noqa: S608 - fixed words; values are bound
    bounds = numbers_of(session, within.subject)
    return {row[0] for row in session.execute(sql, (*bounds, *moments))}


def similarities(
    session: Session, vector: Sequence[float], numbers: Sequence[int]
) -> dict[int, float]:
    """How near passages are to a vector; those without a vector are passed over."""
    np = import_numpy()
    sql = "SELECT number, vector FROM vectors WHERE number IN ({})"
    rows = list(select_numbers(session, sql, numbers))
    if not rows:
        return {}
    blobs = np.frombuffer(b"".join(row[1] for row in rows), np.float16).astype(np.float32)
    scores = blobs.reshape(len(rows), -1) @ np.asarray(vector, dtype=np.float32)
    return {row[0]: float(score) for row, score in zip(rows, scores, strict=True)}


def to_blob(vector: Sequence[float]) -> bytes:
    """A vector as SQLite keeps it: two bytes for each dimension."""
    np = import_numpy()
    return bytes(np.asarray(vector, dtype=np.float16).tobytes())
