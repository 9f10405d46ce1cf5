"""Reaching behind a store's back, as somebody who tampers with it would."""

import sqlite3
from typing import Any

import psycopg

from em.store.postgres import PostgresStore
from em.store.sqlite import SqliteStore


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
