"""Importers: one small module for each format of transcripts.

A package registers a format of its own as an entry point of the group `em.importers`, which names
an `Importer`. em's own formats are entry points too; those are listed here, so that none is missing
where em runs from its sources. Modules whose names begin with `_` hold what importers share.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from em.errors import UsageError
from em.traces.intake import Intake

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "em.importers"
"""The group of entry points by which a package registers its formats."""
_OWN = {
    "anthropic": "anthropic",
    "atif": "atif",
    "claude-code": "claude_code",
    "codex": "codex",
    "jaeger": "jaeger",
    "langchain": "langchain",
    "langfuse": "langfuse",
    "langsmith": "langsmith",
    "mini-swe-agent": "mini_swe_agent",
    "native": "native",
    "openai": "openai_chat",
    "openai-agents": "openai_agents",
    "opencode": "opencode",
    "openhands": "openhands",
    "openhands-sdk": "openhands_sdk",
    "openinference": "openinference",
    "otel": "otel",
    "pi": "pi",
    "responses": "responses",
    "swe-agent": "swe_agent",
    "tau-bench": "tau_bench",
}
"""em's own formats by their names, each with its module."""


class Reader:
    """Reads the values of one file, in order, and adds what they say to an intake."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake

    def read(self, value: Any) -> None:
        """Read one value: a line of JSONL, or a whole document."""
        raise NotImplementedError

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
    from importlib.metadata import EntryPoint, entry_points  # it takes longer than most commands

    own = (EntryPoint(name, f"{__name__}.{file}:IMPORTER", GROUP) for name, file in _OWN.items())
    found: dict[str, Importer] = {}
    for entry in (*own, *entry_points(group=GROUP)):
        importer = _loaded(entry)
        if found.setdefault(importer.name, importer) is not importer:
            raise _unusable(entry, f"there is a format {importer.name!r} already")
    return dict(sorted(found.items()))


def _loaded(entry: "EntryPoint") -> Importer:
    """Load what an entry point names. Raise UsageError if it is no importer."""
    try:
        importer = entry.load()
    except Exception as error:
        raise _unusable(entry, f"{type(error).__name__}: {error}") from error
    if not isinstance(importer, Importer):
        raise _unusable(entry, f"expected an Importer, found a {type(importer).__name__}")
    return importer


def _unusable(entry: "EntryPoint", why: str) -> UsageError:
    package = entry.dist.name if entry.dist else "the package"
    return UsageError(
        f"the importer {entry.name!r} can't be used: {why}",
        place=f"entry point {entry.value} of {package}",
        fix=f"update or uninstall {package}",
    )


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
