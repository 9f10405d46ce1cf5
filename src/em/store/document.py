"""Document: a text that recall searches, with its scope. Hit: a document that was found."""

from collections.abc import Sequence
from datetime import datetime

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Committing one replaces that of the same id; `text=None` removes it."""

    id: str
    kind: str
    text: str | None
    at: datetime
    subject: str | None = None
    vector: Sequence[float] | None = None
    from_events: Sequence[str] = ()


class DocumentQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to search for. Any of the words may match; `subject` shuts out all others' texts."""

    text: str
    subject: str | None = None
    kinds: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 10


class Hit(msgspec.Struct, frozen=True):
    """A document and how well it fits; larger is better, comparable within one search only.

    nearness: how near it is in meaning (cosine), where vectors were compared.
    """

    document: Document
    score: float
    nearness: float | None = None
