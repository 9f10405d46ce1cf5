"""A regular file, read whole. Whoever made a folder may have put a pipe or a device there."""

import errno
import os
import stat
from pathlib import Path

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
