"""Files that are read: every error names the file and says that it can't be read.

Whoever made a folder may have put a pipe or a device in the place of a file: none is waited for.
"""

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from em.errors import EmError, InputError

BOM = b"\xef\xbb\xbf"
"""What some programs write before UTF-8."""
LARGEST = 100_000_000
"""The most bytes of a file that is written by hand: settings, a routine, workflows."""


def read_regular(path: Path) -> bytes:
    """Return the bytes of a file. Raises OSError for a pipe, a device, or what is too large."""
    with open(path, "rb", opener=open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "expected a regular file, found a pipe or a device")
        found = file.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST // 1_000_000} MB")
    return found


def open_without_waiting(path: str, flags: int) -> int:
    """Open a file; for a pipe that nobody writes into, don't wait for somebody."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextmanager
def reading_from(name: str, error: type[EmError] = InputError) -> Iterator[None]:
    """Raise `error` with the file's name where this block can't read it."""
    try:
        yield
    except IsADirectoryError:
        raise error("expected a file, found a folder", place=name, fix="name a file") from None
    except OSError as problem:
        raise error(f"can't be read: {problem.strerror}", place=name) from None


class _RawFile(io.FileIO):
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
        return io.BufferedReader(_RawFile(os.fspath(path), opener=opener), 1 << 17)


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
