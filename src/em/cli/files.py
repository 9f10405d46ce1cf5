"""Files that commands read and write: never half of one, never the log itself."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from em.errors import InputError, UsageError

SPOOL_BYTES = 32 * 1024 * 1024


@contextmanager
def reading(file: str) -> Iterator[tuple[IO[bytes], str]]:
    """A seekable source and its name; standard input is kept aside first."""
    if file == "-":
        with _spooled(_stdin()) as spool:
            yield spool, "standard input"
        return
    try:
        source = open(file, "rb")  # noqa: SIM115 - closed below; only opening it is tried here
    except IsADirectoryError:
        raise InputError("it is a folder", place=file, fix="name a file") from None
    except OSError as error:
        raise InputError(f"it can't be read: {error.strerror}", place=file) from None
    with source:
        if source.seekable():
            yield source, file
        else:
            with _spooled(source) as spool:
                yield spool, file


def standard_input() -> bytes:
    """All of it."""
    return _stdin().read()


def _stdin() -> IO[bytes]:
    if sys.stdin is None:  # closed by `<&-`
        raise UsageError("there is no standard input")
    if sys.stdin.isatty():
        click.echo("reading from the keyboard; Ctrl-D ends", err=True)
    return sys.stdin.buffer


@contextmanager
def _spooled(source: IO[bytes]) -> Iterator[IO[bytes]]:
    """What can't be read twice, kept aside."""
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
        while block := source.read(1 << 20):
            spool.write(block)
        spool.seek(0)
        yield spool


@contextmanager
def writing(file: str, log: str) -> Iterator[IO[bytes]]:
    """A target: standard output, a device or pipe, or a file that is replaced when all is there."""
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file).resolve()
    if str(path) in {str(Path(log + end).resolve()) for end in ("", "-wal", "-shm")}:
        raise UsageError("this is the log itself", place=file, fix="name another file")
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as out:
                yield out
        else:
            with _replacing(path) as out:
                yield out
    except OSError as error:
        raise InputError(f"it can't be written: {error.strerror}", place=file) from error


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write beside a file, and put it in its place at the end."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("xb") as out:
            yield out
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
