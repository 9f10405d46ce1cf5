"""Searching and indexing beside plain FTS5 on the same rows; vectors, exact and approximate."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.figure import Figure, in_turns, seconds, time_figure
from bench.passages import Talk
from bench.store import plain_connection
from em import Draft, Memory
from em.store.protocol import Within
from em.text.terms import STOP_WORDS

SIZES = (10_000, 100_000, 1_000_000)
BATCH = 10_000
EACH = 100
"""Passages of one subject among many."""
ASKED = 30
FTS5 = (
    "CREATE VIRTUAL TABLE t USING fts5("
    "x, subject UNINDEXED, tokenize='porter unicode61 remove_diacritics 2')"
)


def query_time() -> Iterator[Figure]:
    for size in SIZES:
        for many in (False, True):
            yield from _queries(size, many=many)


def _queries(size: int, *, many: bool) -> Iterator[Figure]:
    talk = Talk()
    texts = list(talk.passages(min(size, 100_000)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            Memory(folder / "em.db") as memory,
            closing(plain_connection(folder / "plain.db")) as plain,
        ):
            plain.execute(FTS5)
            for start in range(0, size, BATCH):
                rows = [
                    (n, texts[n % len(texts)], f"s{n // EACH}" if many else "s0")
                    for n in range(start, start + BATCH)
                ]
                _fill(memory, plain, rows)
            questions = talk.questions(texts[:EACH] if many else texts, ASKED)
            what = "one of many subjects" if many else "one large subject"
            yield _beside(memory, plain, questions, f"{size:,} passages, {what}", many=many)


def _fill(memory: Memory, plain: sqlite3.Connection, rows: list[tuple[int, str, str]]) -> None:
    memory.log.append_many(
        [
            Draft(
                stream=f"talk/{subject}", subject=subject, kind="observation", body={"text": text}
            )
            for _, text, subject in rows
        ]
    )
    plain.execute("BEGIN")
    plain.executemany("INSERT INTO t(rowid, x, subject) VALUES (?, ?, ?)", rows)
    plain.execute("COMMIT")


def _beside(
    memory: Memory, plain: sqlite3.Connection, questions: list[str], what: str, *, many: bool
) -> Figure:
    condition = " AND subject = 's0'" if many else ""
    sql = f"SELECT rowid, x FROM t WHERE t MATCH ?{condition} ORDER BY rank LIMIT 10"

    def by_fts5(question: str, *, stop_words: bool) -> float:
        words = [word for word in question.split() if stop_words or word not in STOP_WORDS]
        match = " OR ".join(f'"{word}"' for word in words)
        return seconds(lambda: plain.execute(sql, (match,)).fetchall())

    def by_em(question: str) -> float:
        return seconds(lambda: memory.recall(question, subject="s0"))

    for question in questions[:3]:
        by_em(question), by_fts5(question, stop_words=True)
    pairs = [
        (by_em(q), by_fts5(q, stop_words=True), by_fts5(q, stop_words=False)) for q in questions
    ]
    strict = median(ours / bare for ours, _, bare in pairs)
    print(f"    beside FTS5 without the stop words in the question: {strict:.2f} times as long")
    sides = (
        median(ours for ours, _, _ in pairs),
        median(other for _, other, _ in pairs),
        median(ours / other for ours, other, _ in pairs),
    )
    return time_figure(f"recall, {what}", "plain FTS5, every word, bm25", sides, 4.0)


def indexing() -> Iterator[Figure]:
    """What searchable events cost more than events that are not searched, for each of them."""
    count = 20_000
    texts = list(Talk().passages(count))

    def append(folder: Path, kind: str) -> float:
        path = folder / f"{kind}.db"
        for old in folder.glob(f"{kind}.db*"):
            old.unlink()
        with Memory(path) as memory:
            portions = [
                [
                    Draft(stream="s", subject="ana", kind=kind, body={"text": text})
                    for text in texts[start : start + 1_000]
                ]
                for start in range(0, count, 1_000)
            ]
            return seconds(lambda: [memory.log.append_many(portion) for portion in portions])

    def plain(folder: Path) -> float:
        for old in folder.glob("plain.db*"):
            old.unlink()
        with closing(plain_connection(folder / "plain.db")) as connection:
            connection.execute(FTS5)

            def work() -> None:
                for start in range(0, count, 1_000):
                    connection.execute("BEGIN")
                    connection.executemany(
                        "INSERT INTO t(x) VALUES (?)",
                        [(text,) for text in texts[start : start + 1_000]],
                    )
                    connection.execute("COMMIT")

            return seconds(work)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sides = in_turns(
            lambda: append(folder, "observation") - append(folder, "note"),
            lambda: plain(folder),
            rounds=7,
        )
        whole = median(append(folder, "observation") for _ in range(3))
    mine, other, ratio = sides
    print(f"    log, chain, redaction and index together: {count / whole:,.0f} events/s")
    yield Figure(
        "indexing, what it adds to a commit of 1,000 events",
        count / mine, "plain FTS5 insertion of the same texts", count / other, "/s",
        1 / ratio, 0.3, True,
    )  # fmt: skip


def vectors() -> Iterator[Figure]:
    """The graph beside exact search: how many of the nearest it finds, in what time and memory."""
    import numpy as np

    from em.store.vectors import Matrices

    count, size = 100_000, 384
    random = np.random.default_rng(7)
    # As texts do, vectors lie in clusters.
    centres = random.normal(size=(500, size))
    rows = centres[random.integers(500, size=count)] + random.normal(size=(count, size)) * 0.7
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    with tempfile.TemporaryDirectory() as name, Memory(Path(name) / "em.db") as memory:
        store = memory.store
        for start in range(0, count, BATCH):
            memory.log.append_many(
                [
                    Draft(stream="s", subject="ana", kind="observation", body={"text": str(n)})
                    for n in range(start, start + BATCH)
                ]
            )
        _, numbers = store.index.without_vector("bench", Within("ana"), count)
        for start in range(0, count, BATCH):
            portion = numbers[start : start + BATCH]
            store.index.put_vectors(
                "bench", dict(zip(portion, rows[start : start + BATCH], strict=True))
            )
        asked = rows[random.integers(count, size=50)] + random.normal(size=(50, size)) * 0.02
        asked /= np.linalg.norm(asked, axis=1, keepdims=True)
        found, times = {}, {}
        for kind, limit in (("exact", count + 1), ("graph", 1)):
            store.index.matrices = Matrices(None, limit)  # type: ignore[attr-defined]
            start = perf_counter()
            store.index.nearest("bench", asked[0], Within("ana"), 10)
            print(f"    {kind}: read in {perf_counter() - start:.1f} s", end="")
            start = perf_counter()
            found[kind] = [
                {n for n, _ in store.index.nearest("bench", v, Within("ana"), 10)} for v in asked
            ]
            times[kind] = (perf_counter() - start) / len(asked)
            memory_used = store.index.matrices.size()  # type: ignore[attr-defined]
            print(f", {memory_used / count * 1e6 / 2**30:.2f} GB for a million vectors of {size}")
        share = sum(
            len(exact & graph) for exact, graph in zip(found["exact"], found["graph"], strict=True)
        ) / (10 * len(asked))
    yield Figure(
        f"approximate index, {count:,} vectors: share of the exact ten nearest",
        share, "exact", 1, "", share, 0.95, True,
    )  # fmt: skip
    ratio = times["graph"] / times["exact"]
    yield time_figure(
        "its time for one search", "exact", (times["graph"], times["exact"], ratio), None
    )
