"""Read and write the files that commands name: whole or not at all, and never the log itself."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from em.errors import EmError, InputError, UsageError

SPOOL_BYTES = 32 * 1024 * 1024


@contextmanager
def reading(file: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, or standard input for `-`, as a seekable source; also yield its name."""
    if file == "-":
        with _spooled(_stdin()) as spool:
            yield spool, "standard input"
        return
    try:
        source = open(file, "rb")  # noqa: SIM115 - closed below; only opening it is tried here
    except IsADirectoryError:
        raise InputError("expected a file, found a folder", place=file, fix="name a file") from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", place=file) from None
    with source:
        if source.seekable():
            yield source, file
        else:
            with _spooled(source) as spool:
                yield spool, file


def standard_input() -> bytes:
    """Read standard input to its end."""
    return _stdin().read()


def _stdin() -> IO[bytes]:
    if sys.stdin is None:  # closed by `<&-`
        raise UsageError("standard input is closed", fix="pipe the input in, or name a file")
    if sys.stdin.isatty():
        click.echo("reading from the keyboard; end with Ctrl-D", err=True)
    return sys.stdin.buffer


@contextmanager
def _spooled(source: IO[bytes]) -> Iterator[IO[bytes]]:
    """Copy a source that can be read only once, so that it can be read again."""
    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as spool:
        while block := source.read(1 << 20):
            spool.write(block)
        spool.seek(0)
        yield spool


@contextmanager
def writing(file: str, log: str) -> Iterator[IO[bytes]]:
    """Open a file for writing, or standard output for `-`. A file is replaced only at the end.

    log: the database in use, which is refused as a target.
    """
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
        raise InputError(f"can't be written: {error.strerror}", place=file) from error


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write to a temporary file in the same folder, and rename it at the end."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("xb") as out:
            yield out
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def read_object(file: str) -> dict[str, Any]:
    """Read a JSON object from a file, or from standard input for `-`."""
    with reading(file) as (source, name):
        return parse_object(source.read(), name)


def read_objects(file: str) -> Iterator[dict[str, Any]]:
    """Read a JSON object from each line of a file; blank lines are skipped."""
    with reading(file) as (source, name):
        for number, line in enumerate(source, 1):
            if line.strip():
                yield parse_object(line, f"{name}:{number}")


def parse_object(
    text: bytes | str, place: str, error: type[EmError] = InputError, fix: str = ""
) -> dict[str, Any]:
    """Decode a JSON object, or raise `error` with the place."""
    if not text.strip():
        raise error("expected a JSON object, found nothing", place=place, fix=fix)
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise error(f"expected a JSON object: {problem}", place=place, fix=fix) from None
