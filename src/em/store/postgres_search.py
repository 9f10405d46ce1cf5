"""Searching in PostgreSQL: a text search vector says who has a word, pgvector who is near."""

import unicodedata
from collections.abc import Mapping, Sequence

import msgspec

from em.store.document import Document, DocumentQuery, Hit
from em.store.document_index import document_conditions, plain_words, query_words, to_document
from em.store.holders import DocumentExtras
from em.store.passage import SHAPE_BITS, Within
from em.store.search_sql import numbers_of, time_conditions
from em.store.session import Session
from em.store.sql import SqlStore
from em.store.vectors import drop_document_vectors, embedder_of, put_vectors
from em.store.word_index import PassageRow

SEARCHED_CHARS = 200_000
"""Of one document; a text search vector has an upper size."""


class PostgresSearch(SqlStore):
    """The part of the store that finds."""

    def _document_extras(self) -> DocumentExtras:
        def values(document: Document) -> tuple[str | None, str]:
            vector = document.vector
            encoded = None if vector is None else msgspec.json.encode(list(vector)).decode()
            words = plain_words((document.text or "")[:SEARCHED_CHARS])
            return encoded, _folded(" ".join(words))

        return DocumentExtras("vector, words", "?, to_tsvector('em_words', ?)", values)

    def search(self, query: DocumentQuery) -> list[Hit]:
        """Documents that share a word with the query, best first (`ts_rank_cd`)."""
        words = [_folded(word) for word in query_words(query.text)]
        if not words:
            return []
        scope, params = document_conditions(query)
        any_word = " || ".join(["plainto_tsquery('em_words', ?)"] * len(words))
        sql = (
            "SELECT d.id, d.kind, d.subject, d.at, d.text, d.from_events, d.vector::text,"  # noqa: S608 - fixed words; values are bound
            " ts_rank_cd(d.words, q.query) AS score"
            f" FROM documents AS d, (SELECT {any_word} AS query) AS q"
            f" WHERE d.words @@ q.query{scope} ORDER BY score DESC, d.num LIMIT ?"
        )
        with self._reading() as session:
            rows = session.execute(sql, (*words, *params, query.limit)).fetchall()
        return [Hit(to_document(row, _floats(row[6])), row[7]) for row in rows]

    def insert_passages(
        self, session: Session, rows: Sequence[PassageRow], terms: Sequence[str]
    ) -> None:
        """Insert passages with their words."""
        session.executemany(
            "INSERT INTO passages VALUES"
            " (?,?,?,?,?,?,?,?, array_to_tsvector(string_to_array(?, ' ')))",
            [(*row, text) for row, text in zip(rows, terms, strict=True)],
        )

    def delete_passages(self, session: Session, postings: Sequence[int]) -> None:
        """Delete passages, their words and their vectors."""
        numbers = [posting >> SHAPE_BITS for posting in postings]
        for table in ("passages", "vectors"):
            session.execute(f"DELETE FROM {table} WHERE number = ANY(?)", (numbers,))  # noqa: S608 - one of two words

    def delete_document_vectors(self, session: Session, nums: Sequence[int]) -> None:
        """Delete the vectors of documents."""
        drop_document_vectors(session, nums)

    def find_words(
        self, groups: Sequence[Sequence[str]], within: Within, limit: int
    ) -> list[list[int]]:
        """For each group of words the postings of passages that have one of them, newest first."""
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            # Sorted here: asked for an order, the server would walk its numbers, not its words.
            return [
                sorted(
                    (row[0] for row in session.execute(sql, (_any(group), *params, limit))),
                    reverse=True,
                )
                for group in groups
            ]

    def count_words(self, group: Sequence[str], within: Within) -> int:
        """How many passages have one of the words."""
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            counted = f"SELECT count(*) FROM ({sql}) AS found"  # noqa: S608 - fixed words; values are bound
            return int(session.execute(counted, (_any(group), *params, None)).fetchone()[0])

    def find_together(
        self, group: Sequence[str], others: Sequence[str], within: Within, limit: int
    ) -> list[int]:
        """Postings of passages that have one of the words and one of the others."""
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            match = f"({_any(group)}) & ({_any(others)})"
            return [row[0] for row in session.execute(sql, (match, *params, limit))]

    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep vectors of length 1. Those of another embedder go: two are never mixed."""
        texts = {number: _vector(vector) for number, vector in vectors.items()}
        with self._writing() as session:
            put_vectors(session, identity, texts, "?::vector")

    def nearest(
        self, identity: str, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Numbers and similarities of the passages nearest to a vector of this embedder."""
        when, moments = time_conditions(within)
        join = " JOIN passages AS p ON p.number = v.number" if when else ""
        sql = (
            "SELECT v.number, -(v.vector <#> ?::vector) AS score FROM vectors AS v"  # noqa: S608 - fixed words; values are bound
            f"{join} WHERE v.number BETWEEN ? AND ?{when}"
            " ORDER BY score DESC, v.number LIMIT ?"
        )
        with self._reading() as session:
            if embedder_of(session) != identity:
                return []
            bounds = numbers_of(session, within.subject)
            params = (_vector(vector), *bounds, *moments, limit)
            return [(row[0], row[1]) for row in session.execute(sql, params)]

    def similarities(
        self, identity: str, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """How near passages are to a vector; those without one are passed over."""
        sql = "SELECT number, -(vector <#> ?::vector) FROM vectors WHERE number = ANY(?)"
        with self._reading() as session:
            if embedder_of(session) != identity:
                return {}
            rows = session.execute(sql, (_vector(vector), list(numbers)))
            return {row[0]: row[1] for row in rows}


def _vector(vector: Sequence[float]) -> str:
    return msgspec.json.encode([float(x) for x in vector]).decode()


def _words_sql(session: Session, within: Within) -> tuple[str, list[int]]:
    """Postings of a match, as far as they are in scope; the match is the first value."""
    when, moments = time_conditions(within)
    sql = f"SELECT (p.number << {SHAPE_BITS}) | p.shape FROM passages AS p WHERE p.words @@ ?::tsquery"  # noqa: E501, S608 - fixed words; values are bound
    if within.subject is None:
        return f"{sql}{when} LIMIT ?", moments
    bounds = list(numbers_of(session, within.subject))
    return f"{sql} AND p.number BETWEEN ? AND ?{when} LIMIT ?", bounds + moments


def _any(words: Sequence[str]) -> str:
    """A match for any of the words, each quoted: none is an operator."""
    return " | ".join(f"'{word}'" for word in words)


def _folded(text: str) -> str:
    """Without accents, as SQLite's tokenizer has it: café is cafe."""
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join(c for c in parts if not unicodedata.combining(c)))


def _floats(text: str | None) -> tuple[float, ...] | None:
    return None if text is None else tuple(float(x) for x in msgspec.json.decode(text))
