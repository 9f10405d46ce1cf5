"""Reaching behind a store's back, as somebody who tampers with it would."""

import sqlite3
from typing import Any
from urllib.parse import quote

import psycopg

from em.store.postgres import PostgresStore
from em.store.sqlite import SqliteStore


def with_option(address: str, setting: str) -> str:
    """Add a setting of the server to a PostgreSQL address, after those that it has."""
    start, _, options = address.partition("options=")
    more = quote(f"-c {setting}")
    if options:
        return f"{start}options={options}%20{more}"
    return f"{address}{'&' if '?' in address else '?'}options={more}"


def run_sql(store: SqliteStore | PostgresStore, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements on the store's own database; the rows of the last one."""
    connection: Any
    if isinstance(store, SqliteStore):
        connection = sqlite3.connect(store._path)
    else:
        connection = psycopg.connect(store._url)
    try:
        for statement in statements:
            cursor = connection.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
        return rows
    finally:
        connection.close()
