"""Documents: the scope of a search as SQL, the words of a query, and who has no vector yet."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from em.errors import UsageError
from em.store.protocol import FIRST_DOCUMENT, Document, DocumentQuery
from em.store.session import Session, select_numbers
from em.store.vectors import embedder_of
from em.values.times import from_micros, moment, to_micros

MAX_QUERY_WORDS = 64
MAX_WORD = 64
_NO_WORD = re.compile(r"[\W_]+")


def document_conditions(query: DocumentQuery) -> tuple[str, list[Any]]:
    """The scope of a search as SQL on the table `documents` (alias `d`)."""
    if not 0 <= query.limit < 2**31:
        raise UsageError(f"a limit of {query.limit!r} makes no sense", place="limit")
    where: list[str] = []
    params: list[Any] = []
    if query.subject is not None:
        where.append("d.subject = ?")
        params.append(query.subject)
    if query.kinds:
        where.append(f"d.kind IN ({','.join('?' * len(query.kinds))})")
        params += query.kinds
    for column, bound in ((">=", query.since), ("<", query.until)):
        if bound is not None:
            where.append(f"d.at {column} ?")
            params.append(to_micros(moment(bound)))
    return "".join(f" AND {condition}" for condition in where), params


def query_words(text: str) -> list[str]:
    """The words of a query, once each."""
    return list(dict.fromkeys(plain_words(text[:100_000])))[:MAX_QUERY_WORDS]


def plain_words(text: str) -> list[str]:
    """The words of a text: letters and digits of any script, nothing of any syntax."""
    return [word[:MAX_WORD] for word in _NO_WORD.split(text.lower()) if word]


def to_document(row: Sequence[Any], vector: Sequence[float] | None) -> Document:
    """A row (id, kind, subject, at, text, from_events) as the document it is."""
    return Document(
        id=row[0],
        kind=row[1],
        subject=row[2],
        at=from_micros(row[3]),
        text=row[4],
        from_events=tuple(msgspec.json.decode(row[5])),
        vector=vector,
    )


def without_vector(
    session: Session, identity: str, query: DocumentQuery, after: tuple[int, str] | None
) -> tuple[tuple[int, str] | None, dict[int, str]]:
    """The newest document there is, and the texts of those without a vector by number."""
    sql = "SELECT num, id FROM documents ORDER BY num DESC LIMIT 1"
    newest = session.execute(sql).fetchone()
    if newest is None:
        return None, {}
    scope, params = document_conditions(query)
    sql = f"SELECT d.num, d.text FROM documents AS d WHERE 1 = 1{scope}"  # noqa: S608 - fixed words; values are bound
    if embedder_of(session) == identity:
        sql += " AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.number = d.num + ?)"
        params.append(FIRST_DOCUMENT)
        if after is not None:
            # A number may be given again: it stands for what it did only with the same id.
            known = "SELECT COALESCE(MAX(num), 0) FROM documents WHERE num = ? AND id = ?"
            sql += f" AND d.num > ({known})"
            params += after
    rows = session.execute(f"{sql} ORDER BY d.num DESC LIMIT ?", (*params, query.limit)).fetchall()
    return (newest[0], newest[1]), {row[0] + FIRST_DOCUMENT: row[1] for row in rows}


def read_documents(
    session: Session, numbers: Sequence[int], query: DocumentQuery
) -> dict[int, Document]:
    """The documents of these numbers that are in the query's scope, without their vectors."""
    scope, params = document_conditions(query)
    columns = "d.id, d.kind, d.subject, d.at, d.text, d.from_events, d.num"
    sql = f"SELECT {columns} FROM documents AS d WHERE d.num IN ({{}}){scope}"  # noqa: S608 - fixed words; values are bound
    nums = [number - FIRST_DOCUMENT for number in numbers]
    rows = select_numbers(session, sql, nums, params)
    return {row[6] + FIRST_DOCUMENT: to_document(row, None) for row in rows}
