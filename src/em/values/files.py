"""Files that are read: every error names the file and says that it can't be read."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from em.errors import EmError, InputError
from em.values.regular_file import read_regular

BOM = b"\xef\xbb\xbf"
"""What some programs write before UTF-8."""


@contextmanager
def reading_from(name: str, error: type[EmError] = InputError) -> Iterator[None]:
    """Raise `error` with the file's name where this block can't read it."""
    try:
        yield
    except IsADirectoryError:
        raise error("expected a file, found a folder", place=name, fix="name a file") from None
    except OSError as problem:
        raise error(f"can't be read: {problem.strerror}", place=name) from None


class _Raw(io.FileIO):
    """A file that may open and fail at the first read."""

    def readinto(self, buffer: Any) -> Any:
        """Read into a buffer."""
        with reading_from(str(self.name)):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        """Read to the end."""
        with reading_from(str(self.name)):
            return super().readall()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a position."""
        with reading_from(str(self.name)):
            return super().seek(offset, whence)


def open_file(path: str | Path, opener: Callable[[str, int], int] | None = None) -> IO[bytes]:
    """Open a file to read it; raise InputError if it can't be opened, or read later."""
    with reading_from(str(path)):
        return io.BufferedReader(_Raw(os.fspath(path), opener=opener), 1 << 17)


def skip_bom(file: IO[bytes]) -> None:
    """Go behind the mark with which a seekable file may begin."""
    start = file.tell()
    if file.read(len(BOM)) != BOM:
        file.seek(start)


def read_file(path: Path, error: type[EmError] = InputError) -> bytes:
    """Read a regular file; raise `error` if it is there and can't be read.

    Raises:
        FileNotFoundError: It is not there. What that means, the caller knows.
    """
    with reading_from(str(path), error):
        try:
            return read_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            missing = FileNotFoundError(str(path))
    raise missing
