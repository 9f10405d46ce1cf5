"""The store of the log and of what is compiled from it, on SQLite or PostgreSQL."""

import os
from pathlib import Path

from em.errors import UsageError
from em.redaction.redactor import Redactor
from em.settings import Settings
from em.store.protocol import Commit, Committed, Erasure, Health, Store
from em.values.files import is_unicode

__all__ = ["Commit", "Committed", "Erasure", "Health", "Store", "open_store"]


def open_store(
    db: str | Path | None = None, settings: Settings | None = None, *, create: bool = True
) -> Store:
    """Open the log at a path or a `postgresql://` address; by default the one in the settings."""
    settings = settings or Settings.load()
    target = settings.db if db is None else db
    if not isinstance(target, str | Path):
        raise UsageError(
            f"db must be a path or an address, got {type(target).__name__}", place="db"
        )
    target = str(target)
    if target.startswith(("postgresql://", "postgres://")):
        if not is_unicode(target):
            raise UsageError("an address must be UTF-8 text", place="db")
        from em.store.postgres import PostgresStore as Backend
    elif "://" in target:
        raise UsageError(
            f"{target.partition('://')[0]}:// is not supported",
            place="db",
            fix="use a path, or postgresql://user@host/database",
        )
    elif not target:
        raise UsageError(
            "db must be a path or an address, got an empty string", place="db", fix="give a path"
        )
    else:
        if target.startswith("file:"):
            raise UsageError(
                "file: addresses are not supported", place="db", fix="give the path without file:"
            )
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
    """Return the redactor that these settings describe."""
    redact = settings.redact
    return Redactor(redact.patterns, redact.fields, redact.tool_args)
