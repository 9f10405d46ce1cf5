"""Files that are read, and paths as texts; every error names the file.

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


_URI = "file://"


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored and printed: it has no half of a surrogate pair.

    A name on disk is bytes. Python gives those that are not UTF-8 as such halves.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str | Path) -> str:
    r"""Return a path, or what was typed, to be printed: a byte that is not UTF-8 as `\xff`."""
    text = str(text)
    if is_unicode(text):
        return text
    try:
        return os.fsencode(text).decode(errors="backslashreplace")
    except UnicodeEncodeError:  # not from a path
        return text.encode(errors="backslashreplace").decode()


def shown_json(value: Any, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Encode a value as JSON to be printed, with each text in it as `shown` has it."""
    import msgspec

    try:
        return msgspec.json.encode(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        return msgspec.json.encode(_shown_inside(msgspec.to_builtins(value, enc_hook=enc_hook)))


def _shown_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {_shown_inside(key): _shown_inside(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown_inside(item) for item in value]
    return shown(value) if isinstance(value, str) else value


def path_to_text(path: str | Path) -> str:
    """Return an absolute path to be stored: itself, or a file: URI if it is not Unicode.

    `path_from_text` finds the path again: an absolute path never begins with `file:`.
    """
    text = str(path)
    return text if is_unicode(text) else Path(text).as_uri()


def path_from_text(text: str) -> Path:
    """Return the path that `path_to_text` has stored."""
    if not text.startswith(_URI):
        return Path(text)
    from urllib.parse import unquote_to_bytes

    return Path(os.fsdecode(unquote_to_bytes(text.removeprefix(_URI))))
