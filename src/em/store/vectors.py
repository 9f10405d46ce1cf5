"""Vectors of an SQLite file in memory: find those nearest to a question."""

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from em.errors import MissingExtra, StoreError
from em.store.protocol import Within
from em.store.search_index import embedder_of, numbers_of, read_scope, time_conditions
from em.store.session import SqlSession, select_numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

APPROXIMATE_FROM = 50_000
"""The number of vectors in a scope from which a graph is searched instead of all of them."""
SAVED_FROM = 10_000
"""The number of new vectors from which a graph is saved again."""
ALONE = 1_000
"""Vectors that one thread inserts: several may leave one of the first without a neighbour."""
CACHED_BYTES = 1_000_000_000
"""Memory for all matrices. Beyond it, the least recently used one is dropped."""


def import_numpy() -> Any:
    """Return numpy, which comes with the extra `embed`."""
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtra("embed", "searching by meaning") from error
    return np


_Scope = tuple[bool, str | None]
"""Whether the scope has lessons, and its subject."""


def _keys(numbers: Any) -> Any:
    """Convert numbers to the unsigned keys of a graph."""
    return numbers.view(import_numpy().uint64)


class _Matrix:
    """The vectors of a scope in memory; a graph if there are too many to compare each."""

    def __init__(self, identity: str | None, file: Path | None) -> None:
        np = import_numpy()
        self.identity, self.stamp = identity, -1
        self.numbers: Any = np.empty(0, np.int64)
        self.rows: Floats | None = None
        self.graph: Any = None
        self._file = file
        self._has_forgotten = False

    @property
    def size(self) -> int:
        """The size in memory, in bytes."""
        rows = 0 if self.rows is None else self.rows.nbytes
        graph = 0 if self.graph is None else int(self.graph.memory_usage)
        return int(self.numbers.nbytes) + rows + graph

    def refresh(self, session: SqlSession, within: Within, approximate_from: int) -> None:
        """Add the vectors that are new and remove those that were deleted since the last time."""
        np = import_numpy()
        bounds = numbers_of(session, within)
        sql = "SELECT number FROM vectors WHERE number BETWEEN ? AND ? ORDER BY number"
        now = np.fromiter((row[0] for row in session.execute(sql, bounds)), np.int64)
        if self.graph is None and len(now) >= approximate_from:
            self.rows, self.numbers = None, np.empty(0, np.int64)
            self.graph = _saved_graph(self._file)
            if self.graph is not None:
                keys = np.asarray(self.graph.keys, dtype=np.uint64)
                self.numbers = np.sort(keys.view(np.int64))
        gone = np.setdiff1d(self.numbers, now, assume_unique=True)
        new = np.setdiff1d(now, self.numbers, assume_unique=True)
        if self.graph is not None or len(now) >= approximate_from:
            self._change_graph(session, gone, new)
            self.numbers = now
        else:
            self._change_rows(session, gone, new)

    def _change_rows(self, session: SqlSession, gone: Any, new: Any) -> None:
        np = import_numpy()
        left = ~np.isin(self.numbers, gone)
        rows = [] if self.rows is None else [self.rows[left]]
        rows += [portion for _, portion in _portions(session, new)]
        self.numbers = np.concatenate([self.numbers[left], new])
        self.rows = np.concatenate(rows) if rows else np.empty((0, 1), np.float32)

    def _change_graph(self, session: SqlSession, gone: Any, new: Any) -> None:
        if self.graph is not None and len(gone):
            self.graph.remove(_keys(gone))
            self._has_forgotten = True  # removed keys keep their bytes: never save this graph
        for numbers, rows in _portions(session, new):
            if self.graph is None:
                self.graph = _new_graph(rows.shape[1])
            first = max(ALONE - len(self.graph), 0)
            if first:
                self.graph.add(_keys(numbers[:first]), rows[:first], threads=1)
            if len(numbers) > first:
                self.graph.add(_keys(numbers[first:]), rows[first:])
        if self._file is not None and len(new) >= SAVED_FROM and not self._has_forgotten:
            _save_graph(self.graph, self._file)


class Matrices:
    """A cache of the vectors of each scope. Safe to share between threads.

    folder: where large graphs are saved, since building one takes minutes.
    """

    def __init__(
        self, folder: Path | None = None, approximate_from: int = APPROXIMATE_FROM
    ) -> None:
        self._matrices: dict[_Scope, _Matrix] = {}
        self._lock = Lock()
        self._folder = folder
        self._approximate_from = approximate_from

    def nearest(
        self,
        session: SqlSession,
        vector: Sequence[float],
        within: Within,
        limit: int,
        allowed: set[int] | None = None,
    ) -> list[tuple[int, float]]:
        """Return numbers and similarities of the passages nearest to a vector.

        allowed: the numbers of the passages in the scope, if it has more bounds than time.
        """
        np = import_numpy()
        wanted = np.asarray(vector, dtype=np.float32)
        if allowed is None and (within.since is not None or within.until is not None):
            allowed = _numbers_at(session, within)
        with self._lock:
            matrix = self._matrix(session, Within(within.subject, lessons=within.lessons))
            if not len(matrix.numbers):
                return []
            if matrix.graph is None:
                return _exact(matrix, wanted, allowed, limit)
            if allowed is None or len(allowed) >= self._approximate_from:
                found = matrix.graph.search(wanted, max(limit, 10) * 2).keys.view(np.int64)
                near = [int(n) for n in found if allowed is None or int(n) in allowed]
            else:
                near = list(allowed)  # the graph would return mostly others
        # The graph rounds its vectors: compare the best again with the stored ones.
        exact = similarities(session, vector, near)
        return sorted(exact.items(), key=lambda item: -item[1])[:limit]

    def size(self) -> int:
        """Return the size in memory, in bytes."""
        return sum(matrix.size for matrix in self._matrices.values())

    def forget_files(self) -> None:
        """Delete the saved graphs, which hold vectors of forgotten passages."""
        if self._folder is None or not self._folder.exists():
            return
        try:
            from shutil import rmtree

            rmtree(self._folder)
        except OSError as error:
            raise StoreError(
                f"can't delete the saved vectors: {error.strerror}",
                place=str(self._folder),
                fix="delete this folder, then try again",
            ) from error

    def _matrix(self, session: SqlSession, within: Within) -> _Matrix:
        identity, (_, stamp) = embedder_of(session), read_scope(session, within)
        scope = (within.lessons, within.subject)
        known = self._matrices.pop(scope, None)
        if known is None or known.identity != identity:
            known = _Matrix(identity, self._file(identity, scope))
        if known.stamp != stamp:
            known.refresh(session, within, self._approximate_from)
            known.stamp = stamp
        self._matrices[scope] = known
        while len(self._matrices) > 1 and self.size() > CACHED_BYTES:
            self._matrices.pop(next(iter(self._matrices)))
        return known

    def _file(self, identity: str | None, scope: _Scope) -> Path | None:
        if self._folder is None:
            return None
        lessons, subject = scope
        of = f"lessons\0{subject}" if lessons else str(subject)
        name = sha256(f"{identity}\0{of}".encode()).hexdigest()[:32]
        return self._folder / f"{name}.usearch"


def _exact(
    matrix: _Matrix, wanted: Any, allowed: set[int] | None, limit: int
) -> list[tuple[int, float]]:
    np = import_numpy()
    scores, numbers = matrix.rows @ wanted, matrix.numbers
    if allowed is not None:
        keep = np.isin(numbers, list(allowed))
        scores, numbers = scores[keep], numbers[keep]
    count = min(limit, len(scores))
    if not count:
        return []
    best = np.argpartition(-scores, count - 1)[:count]
    best = best[np.argsort(-scores[best], kind="stable")]
    return [(int(numbers[n]), float(scores[n])) for n in best]


def _portions(session: SqlSession, numbers: Any) -> Iterator[tuple[Any, Any]]:
    """Stream vectors as matrices of some thousand rows."""
    np = import_numpy()
    sql = "SELECT number, vector FROM vectors WHERE number BETWEEN ? AND ? ORDER BY number"
    for start in range(0, len(numbers), 10_000):
        wanted = set(numbers[start : start + 10_000].tolist())
        bounds = (min(wanted), max(wanted))
        found = [row for row in session.execute(sql, bounds) if row[0] in wanted]
        rows = np.frombuffer(b"".join(row[1] for row in found), np.float16).astype(np.float32)
        keys = np.fromiter((row[0] for row in found), np.int64)
        yield keys, rows.reshape(len(found), -1)


def _import_index() -> Any:
    try:
        from usearch.index import Index
    except ImportError as error:
        raise MissingExtra("embed", "an approximate index") from error
    return Index


def _new_graph(size: int) -> Any:
    """Create an approximate index with one byte for each dimension."""
    return _import_index()(
        ndim=size,
        metric="cos",
        dtype="i8",
        connectivity=16,
        expansion_add=128,
        expansion_search=256,
    )


def _saved_graph(file: Path | None) -> Any:
    """Load the graph of a file; return None if it can't be read."""
    if file is None or not file.exists():
        return None
    try:
        return _import_index().restore(str(file))
    except (RuntimeError, ValueError, OSError):
        return None  # truncated by a crash: the graph is built again


def _save_graph(graph: Any, file: Path) -> None:
    """Save a graph. If that fails, it is built again next time."""
    part = file.with_suffix(f".{os.getpid()}")
    try:
        file.parent.mkdir(exist_ok=True)
        graph.save(str(part))
        part.replace(file)
    except (OSError, RuntimeError):
        part.unlink(missing_ok=True)


def _numbers_at(session: SqlSession, within: Within) -> set[int]:
    when, moments = time_conditions(within)
    sql = f"SELECT p.number FROM passages AS p WHERE p.number BETWEEN ? AND ?{when}"  # noqa: S608 - fixed words; values are bound
    bounds = numbers_of(session, within)
    return {row[0] for row in session.execute(sql, (*bounds, *moments))}


def similarities(
    session: SqlSession, vector: Sequence[float], numbers: Sequence[int]
) -> dict[int, float]:
    """Return how near passages are to a vector. Passages without a vector are skipped."""
    np = import_numpy()
    sql = "SELECT number, vector FROM vectors WHERE number IN ({})"
    rows = list(select_numbers(session, sql, numbers))
    if not rows:
        return {}
    blobs = np.frombuffer(b"".join(row[1] for row in rows), np.float16).astype(np.float32)
    scores = blobs.reshape(len(rows), -1) @ np.asarray(vector, dtype=np.float32)
    return {row[0]: float(score) for row, score in zip(rows, scores, strict=True)}


def to_blob(vector: Sequence[float]) -> bytes:
    """Encode a vector for SQLite with two bytes for each dimension."""
    np = import_numpy()
    return bytes(np.asarray(vector, dtype=np.float16).tobytes())
