"""Searching documents: the part that is the same on both stores."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from em.errors import UsageError
from em.models.document import Document, DocumentQuery
from em.models.times import from_micros, moment, to_micros

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
