"""Importers: one small module for each format of transcripts.

Every module of this package defines an `IMPORTER` and needs no other registration, except those
whose names begin with `_`: they hold what importers share.
"""

import pkgutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import msgspec

from em.errors import UsageError
from em.traces.intake import Intake


class Reader(Protocol):
    """Read the values of one file, in order."""

    def read(self, value: Any) -> None:
        """Read one value: a line of JSONL, or a whole document."""

    def end(self) -> None:
        """Finish: there are no more values, for now."""


class Importer(msgspec.Struct, frozen=True, kw_only=True):
    """One format of transcripts.

    fits: return whether a value (a line or a document) is of this format, without false positives.
    reader: make a reader that adds what it reads to an intake.
    line: a TypedDict of the fields of a line that the reader looks at, all of them optional. Other
    fields are not decoded.
    tables, documents: for a program that writes a SQLite database: the tables by which it is
    recognised, and what yields its documents, one for each session or only that of an id.
    """

    name: str
    title: str
    fits: Callable[[Any], bool]
    reader: Callable[[Intake], Reader]
    line: Any = None
    tables: frozenset[str] = frozenset()
    documents: Callable[[sqlite3.Connection, str | None], Iterator[Any]] | None = None


@cache
def importers() -> Mapping[str, Importer]:
    """Return every importer by its name."""
    found: dict[str, Importer] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importer: Importer = import_module(f"{__name__}.{module.name}").IMPORTER
            found[importer.name] = importer
    return dict(sorted(found.items()))


def importer_of(name: str) -> Importer:
    """Return the importer of a format; raise UsageError if there is none."""
    if name in importers():
        return importers()[name]
    close = get_close_matches(name, importers(), 1)
    raise UsageError(
        f"there is no format {name!r}",
        place="format",
        fix=f"did you mean {close[0]!r}?" if close else f"use one of: {', '.join(importers())}",
    )
