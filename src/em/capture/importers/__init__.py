"""Importers: one small module a format, from what agents left on disk to traces.

An importer is a function from the bytes of a file and its name to traces. Adding one is a module
here and its line in `IMPORTERS`.
"""

from collections.abc import Callable, Iterator

from em.capture.importers.openai_chat import read_chats
from em.models.trace import Trace, read_trace

Importer = Callable[[bytes, str], Iterator[Trace]]


def _native(data: bytes, place: str) -> Iterator[Trace]:
    yield read_trace(data, place)


IMPORTERS: dict[str, Importer] = {"openai": read_chats, "native": _native}
