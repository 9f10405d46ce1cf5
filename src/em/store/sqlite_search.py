"""Searching in SQLite: FTS5 says who has a word, numpy or a graph who is near."""

from array import array
from collections.abc import Mapping, Sequence

from em.store.document import Document, DocumentQuery, Hit
from em.store.document_index import document_conditions, query_words, to_document
from em.store.holders import DocumentExtras
from em.store.passage import SHAPE_BITS, Within
from em.store.search_sql import numbers_of, time_conditions
from em.store.session import Session
from em.store.sql import SqlStore
from em.store.vectors import (
    Matrices,
    drop_document_vectors,
    embedder_of,
    put_vectors,
    similarities,
    to_blob,
)
from em.store.word_index import PassageRow


class SqliteSearch(SqlStore):
    """The part of the store that finds."""

    matrices: Matrices

    def _document_extras(self) -> DocumentExtras:
        def values(document: Document) -> tuple[bytes | None]:
            vector = document.vector
            return (None if vector is None else array("f", vector).tobytes(),)

        return DocumentExtras("vector", "?", values)

    def search(self, query: DocumentQuery) -> list[Hit]:
        """Documents that share a word with the query, best first (BM25)."""
        words = query_words(query.text)
        if not words:
            return []
        scope, params = document_conditions(query)
        sql = (
            "SELECT d.id, d.kind, d.subject, d.at, d.text, d.from_events, d.vector,"  # noqa: S608 - fixed words; values are bound
            " bm25(documents_words) AS score"
            " FROM documents_words JOIN documents AS d ON d.num = documents_words.rowid"
            f" WHERE documents_words MATCH ?{scope} ORDER BY score, d.num LIMIT ?"
        )
        match = " OR ".join(f'"{word}"' for word in words)
        with self._reading() as session:
            rows = session.execute(sql, (match, *params, query.limit)).fetchall()
        return [Hit(to_document(row, _floats(row[6])), -row[7]) for row in rows]

    def insert_passages(
        self, session: Session, rows: Sequence[PassageRow], terms: Sequence[str]
    ) -> None:
        """Insert passages with their words."""
        session.executemany("INSERT INTO passages VALUES (?,?,?,?,?,?,?,?)", rows)
        session.executemany(
            "INSERT INTO words(rowid, terms) VALUES (?, ?)",
            [
                (row.number << SHAPE_BITS | row.shape, text)
                for row, text in zip(rows, terms, strict=True)
            ],
        )

    def delete_passages(self, session: Session, postings: Sequence[int]) -> None:
        """Delete passages, their words and their vectors."""
        session.executemany("DELETE FROM words WHERE rowid = ?", [(item,) for item in postings])
        self.matrices.forget_files()
        numbers = [(posting >> SHAPE_BITS,) for posting in postings]
        session.executemany("DELETE FROM passages WHERE number = ?", numbers)
        session.executemany("DELETE FROM vectors WHERE number = ?", numbers)

    def delete_document_vectors(self, session: Session, nums: Sequence[int]) -> None:
        """Delete the vectors of documents."""
        if drop_document_vectors(session, nums):
            self.matrices.forget_files()

    def find_words(
        self, groups: Sequence[Sequence[str]], within: Within, limit: int
    ) -> list[list[int]]:
        """For each group of words the postings of passages that have one of them, newest first."""
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            sql += " ORDER BY w.rowid DESC LIMIT ?"
            return [
                [row[0] for row in session.execute(sql, (_any(group), *params, limit))]
                for group in groups
            ]

    def count_words(self, group: Sequence[str], within: Within) -> int:
        """How many passages have one of the words."""
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            counted = f"SELECT count(*) FROM ({sql})"  # noqa: S608 - fixed words; values are bound
            return int(session.execute(counted, (_any(group), *params)).fetchone()[0])

    def find_together(
        self, group: Sequence[str], others: Sequence[str], within: Within, limit: int
    ) -> list[int]:
        """Postings of passages that have one of the words and one of the others."""
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            match = f"({_any(group)}) AND ({_any(others)})"
            rows = session.execute(sql + " LIMIT ?", (match, *params, limit))
            return [row[0] for row in rows]

    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep vectors of length 1. Those of another embedder go: two are never mixed."""
        blobs = {number: to_blob(vector) for number, vector in vectors.items()}
        with self._writing() as session:
            put_vectors(session, identity, blobs)

    def nearest(
        self, identity: str, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Numbers and similarities of the passages nearest to a vector of this embedder."""
        with self._reading() as session:
            if embedder_of(session) != identity:
                return []
            return self.matrices.nearest(session, vector, within, limit)

    def similarities(
        self, identity: str, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """How near passages are to a vector; those without one are passed over."""
        with self._reading() as session:
            if embedder_of(session) != identity:
                return {}
            return similarities(session, vector, numbers)


def _words_sql(session: Session, within: Within) -> tuple[str, list[int]]:
    """Postings of a match, as far as they are in scope; the match itself is the first value."""
    first, last = numbers_of(session, within.subject)
    sql = "SELECT w.rowid FROM words AS w"
    when, moments = time_conditions(within)
    if when:
        sql += f" JOIN passages AS p ON p.number = w.rowid >> {SHAPE_BITS}"
    sql += " WHERE words MATCH ?"
    if within.subject is None:
        return sql + when, moments
    # The index seeks to a range of numbers: it does not read the words of other subjects.
    bounds = [first << SHAPE_BITS, ((last + 1) << SHAPE_BITS) - 1]
    return f"{sql} AND w.rowid BETWEEN ? AND ?{when}", bounds + moments


def _any(words: Sequence[str]) -> str:
    """A match for any of the words, each quoted: none is an operator."""
    return " OR ".join(f'"{word}"' for word in words)


def _floats(blob: bytes | None) -> tuple[float, ...] | None:
    return None if blob is None else tuple(array("f", blob))
