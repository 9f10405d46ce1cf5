"""The log and the artefacts: one narrow `Store` protocol, on SQLite and on PostgreSQL."""

import os
from pathlib import Path

from em.errors import UsageError
from em.redaction.redactor import Redactor
from em.settings import Settings
from em.store.protocol import Commit, Committed, Erasure, Health, Store

__all__ = ["Commit", "Committed", "Erasure", "Health", "Store", "open_store"]


def open_store(
    db: str | Path | None = None, settings: Settings | None = None, *, create: bool = True
) -> Store:
    """Open the log at a path or a `postgresql://` address; the settings say which by default."""
    settings = settings or Settings.load()
    target = settings.db if db is None else db
    if not isinstance(target, str | Path):
        raise UsageError(f"{target!r} is no path or address", place="db")
    target = str(target)
    if target.startswith(("postgresql://", "postgres://")):
        from em.store.postgres import PostgresStore as Backend
    elif "://" in target:
        raise UsageError(
            f"{target.partition('://')[0]}:// is not supported",
            place="db",
            fix="use a path, or postgresql://user@host/database",
        )
    elif not target:
        raise UsageError("the name of the database is empty", place="db", fix="give a path")
    else:
        if target.startswith("file:"):
            raise UsageError("file: is not supported", place="db", fix="give the path alone")
        target = os.path.expanduser(target)
        from em.store.sqlite import SqliteStore as Backend  # type: ignore[assignment]  # either will do: both take the same arguments
    return Backend(
        target,
        create=create,
        busy_timeout=settings.busy_timeout,
        synchronous=settings.synchronous,
        redactor=redactor_of(settings),
    )


def redactor_of(settings: Settings) -> Redactor:
    """What takes the secrets out that these settings name."""
    redact = settings.redact
    return Redactor(redact.patterns, redact.fields, redact.tool_args)
