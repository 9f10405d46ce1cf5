"""The tools of the demo: fetch a CSV file over HTTP, write a report to a SQLite file."""

import sqlite3
import urllib.request
from contextlib import closing

from em.runner.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool(effect="read")
def fetch_csv(url: str) -> str:
    """Fetch a CSV file."""
    if not url.startswith("http://127.0.0.1:"):
        raise ValueError("this example fetches from its own server only")
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - checked above
        text: str = answer.read().decode()
    return text


@registry.tool(effect="read")
def list_tables(database: str) -> list[str]:
    """List the tables of a SQLite file."""
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    return [row[0] for row in rows]


@registry.tool(effect="write")
def save_report(database: str, report: dict[str, float]) -> dict[str, int]:
    """Write totals into the table `report` of a SQLite file."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS report(name TEXT PRIMARY KEY, total REAL)")
        connection.executemany("INSERT OR REPLACE INTO report VALUES (?, ?)", report.items())
    return {"saved": len(report)}
