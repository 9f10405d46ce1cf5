"""Importers: one small module a format, from what agents left on disk to traces.

A module of this package that has an `IMPORTER` is one; nothing else has to know of it. What the
modules share stands in those whose names begin with `_`.
"""

import pkgutil
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import msgspec

from em.errors import UsageError
from em.traces.intake import Intake


class Reader(Protocol):
    """Reads the values of one file, in their order."""

    def read(self, value: Any) -> None:
        """One value: a line of JSONL, or a whole document."""

    def end(self) -> None:
        """There are no more, for now."""


class Importer(msgspec.Struct, frozen=True, kw_only=True):
    """One format.

    fits: whether a value (a line, or a document) is of this format; it must be sure.
    reader: makes a reader that tells an intake what it reads.
    """

    name: str
    title: str
    fits: Callable[[Any], bool]
    reader: Callable[[Intake], Reader]


@cache
def importers() -> Mapping[str, Importer]:
    """Every importer by its name."""
    found: dict[str, Importer] = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importer: Importer = import_module(f"{__name__}.{module.name}").IMPORTER
            found[importer.name] = importer
    return dict(sorted(found.items()))


def importer_of(name: str) -> Importer:
    """The importer of a format by its name."""
    if name in importers():
        return importers()[name]
    close = get_close_matches(name, importers(), 1)
    raise UsageError(
        f"there is no format {name!r}",
        place="format",
        fix=f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(importers())}",
    )
