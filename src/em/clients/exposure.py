"""Exposures: secrets that stand in transcripts on this disk, by file and kind, and never shown.

Nothing is stored, and files are only read: line by line, and only lines with a word that secrets
come with are decoded.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from em.clients.installation import AGENTS
from em.redaction.masker import taken_out
from em.redaction.redactor import MARKER, Redactor
from em.traces.transcripts import (
    decoded,
    find_shape,
    is_database,
    opened,
    refuse_compressed,
    values_of,
)
from em.values.files import shown

_PORTION = 1 << 20
"""Bytes of lines that are searched together."""
_LONGEST = 4 << 20
"""Bytes of a line that are read at once."""
Progress = Callable[[int], None]


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
    """Secrets of one kind in a file: how many different ones, how often, and first in which line.

    In a database a line is a session.
    """

    kind: str
    different: int
    times: int
    line: int


class SearchedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was looked at. skipped: why it could not be read."""

    path: str
    found: Sequence[Exposure] = ()
    skipped: str = ""


class _FileLine(NamedTuple):
    """A line of a file, a piece of a long one, or a session of a database."""

    number: int
    raw: bytes


def places() -> list[Path]:
    """Return where coding agents keep their transcripts on this disk, as far as these are there."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    codex = AGENTS["codex"].settings
    usual = (
        AGENTS["claude-code"].settings / "projects",
        codex / "sessions",
        codex / "archived_sessions",
        Path(data, "opencode"),
        Path.home() / ".pi" / "agent" / "sessions",
    )
    return [place for place in usual if place.is_dir()]


def look(path: Path, redactor: Redactor, progress: Progress) -> SearchedFile:
    """Return which secrets stand in a file.

    Raises:
        InputError: The file can't be read.
    """
    times: Counter[str] = Counter()
    different: dict[str, set[bytes]] = {}
    first: dict[str, int] = {}
    with opened(path) as file:
        for lines in _portions(_lines(file, str(path))):
            progress(sum(len(line.raw) for line in lines))
            for index in redactor.suspects([line.raw for line in lines]):
                before, after = _cleaned(lines[index].raw, redactor)
                if before == after:
                    continue
                for kind, count in (_kinds(after) - _kinds(before)).items():
                    times[kind] += count
                    first.setdefault(kind, lines[index].number)
                for secret, mark in taken_out(before, after).items():
                    digest = blake2b(secret.encode(errors="replace"), digest_size=8).digest()
                    different.setdefault(_kind(mark), set()).add(digest)
    found = [
        Exposure(kind=kind, different=len(different.get(kind, "1")), times=count, line=first[kind])
        for kind, count in sorted(times.items())
    ]
    return SearchedFile(path=shown(path), found=found)


def _lines(file: IO[bytes], name: str) -> Iterator[_FileLine]:
    if is_database(file):
        for value in values_of(file, find_shape(file, name), name):
            yield _FileLine(value.number, value.raw + b"\n")
        return
    number = 1
    while raw := file.readline(_LONGEST):
        if number == 1:
            refuse_compressed(raw, name)
        if len(raw) == _LONGEST and not raw.endswith(b"\n"):
            raw = raw[: _end_of_piece(raw)]
            file.seek(len(raw) - _LONGEST, os.SEEK_CUR)
        yield _FileLine(number, raw)
        number += raw.endswith(b"\n")


def _end_of_piece(raw: bytes) -> int:
    """Return where to cut a line in two: between members of JSON, else words, if there are any."""
    half = len(raw) // 2
    return raw.rfind(b',"', half) + 1 or raw.rfind(b" ", half) + 1 or len(raw)


def _portions(lines: Iterator[_FileLine]) -> Iterator[list[_FileLine]]:
    """Yield lines in lists: to search many together is faster."""
    portion: list[_FileLine] = []
    size = 0
    for line in lines:
        portion.append(line)
        size += len(line.raw)
        if size >= _PORTION:
            yield portion
            portion, size = [], 0
    yield portion


def _cleaned(raw: bytes, redactor: Redactor) -> tuple[Any, Any]:
    """Return what a line says, and the same without secrets: a value of JSON, or a text."""
    value, problem = decoded(raw)
    if problem:
        value = raw.decode(errors="surrogateescape")
    return value, redactor.value(value)


def _kinds(value: Any) -> Counter[str]:
    """Return how often each kind of secret was taken out of a value."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return Counter(map(_kind, MARKER.findall(text)))


def _kind(mark: str) -> str:
    return mark.removeprefix("[redacted:").removesuffix("]")
