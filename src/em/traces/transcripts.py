"""Transcripts: import files of JSON lines or of one JSON document, in any known format.

JSON lines are read one at a time, so files may be large. A line that is not JSON is reported with
its number, and the rest is imported.
"""

import glob
import hashlib
import os
import re
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from em.errors import Conflict, InputError, NotFound, NoTranscript
from em.log.event import Draft, EventQuery, transcript_stream
from em.store.protocol import Store
from em.store.sqlite import is_open_here
from em.traces.formats import Importer, Reader, importer_of, importers
from em.traces.intake import ID_LENGTH, BrokenPart, Intake, KnownTrace
from em.traces.trace import KeptTrace, Source
from em.values.canonical import uncollected
from em.values.files import BOM, open_file, open_without_waiting, path_to_text, shown

MAX_LINE = 64 * 1024 * 1024
MAX_DOCUMENT = 512 * 1024 * 1024
"""A document is read into memory as a whole, unlike lines."""
SAMPLED = 20
"""How many values are read to find the format."""

UNEXPECTED = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError,
)  # fmt: skip
"""What an importer raises for a value that it does not expect."""

COMPRESSED = {
    b"\x28\xb5\x2f\xfd": ("compressed with Zstandard", "decompress it: `zstd -d FILE`"),
    b"\x1f\x8b": ("compressed with gzip", "decompress it: `gunzip FILE`"),
}
"""How compressed files begin, which may hold transcripts: what they are, and what to do."""

_JSON = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[\[{\"\]])")
_SQLITE = b"SQLite format 3\0"
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\xed[\xa0-\xbf][\x80-\xbf])|\\.",
    re.DOTALL,
)
"""Whole pairs, halves (as an escape or as bytes), and other escapes, to tell `\\\\ud800` apart."""
_decode = msgspec.json.Decoder().decode
Progress = Callable[[int], None]


class FileValue(NamedTuple):
    """A line or a document. `problem` says why it has no value; `end` is where the next begins.

    `mended`: half a surrogate pair, which is not Unicode, was replaced by U+FFFD.
    """

    number: int
    raw: bytes
    value: Any
    problem: str
    end: int
    mended: bool = False


class Shape(NamedTuple):
    """The format of a file, and whether it is one document or lines, or a SQLite database."""

    importer: Importer
    is_document: bool
    is_database: bool = False


def decoded(raw: bytes) -> tuple[Any, str]:
    """Return the value of a JSON text, or what is wrong with it."""
    try:
        return _decode(raw), ""
    except RecursionError:
        return None, "nested too deeply"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return None, f"expected JSON: {error}"


Decode = Callable[[bytes], tuple[Any, str]]


def _mended(raw: bytes, decode: Decode) -> tuple[bytes, Any, str]:
    """Return a JSON text without halves of surrogate pairs, its value, and what is wrong with it.

    JavaScript writes such a half where it cuts a text in the middle of a character.
    """
    value, problem = decode(raw)
    if problem:
        whole = _SURROGATES.sub(lambda found: rb"\ufffd" if found[1] else found[0], raw)
        if whole != raw:
            value, problem = decode(whole)
            return (raw if problem else whole), value, problem
    return raw, value, problem


@lru_cache(maxsize=32)
def _decoder(line: Any) -> Decode:
    """Return what decodes the lines of a format: only the fields that its reader looks at."""
    if line is None:
        return decoded
    decode_line = msgspec.json.Decoder(line).decode

    def decode(raw: bytes) -> tuple[Any, str]:
        try:
            return decode_line(raw), ""
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return decoded(raw)  # another shape than expected, or no JSON

    return decode


def lines_of(file: IO[bytes], number: int = 0, line: Any = None) -> Iterator[FileValue]:
    """Yield the lines that are not empty, from the file's position, one in memory at a time.

    line: the fields of a line that are looked at, see `Importer`.
    """
    decode = _decoder(line)
    at = file.tell()
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        at += len(raw)
        if len(raw) > MAX_LINE:
            at += _skip_line(file)
            yield FileValue(number, raw[:1000], None, f"longer than {MAX_LINE:,} bytes", at)
            continue
        text = (raw.removeprefix(BOM) if number == 1 else raw).strip()
        if text:
            whole, value, problem = _mended(text, decode)
            if problem and not raw.endswith(b"\n"):
                problem = f"the line is cut off: {problem}"
            yield FileValue(number, whole, value, problem, at, mended=whole is not text)


def _skip_line(file: IO[bytes]) -> int:
    skipped = 0
    while part := file.readline(1 << 20):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def elements_of(value: Any, raw: bytes, *, mended: bool) -> Iterator[FileValue]:
    """Yield the elements of a document that is a list, as if each were a line."""
    for number, element in enumerate(value, 1):
        is_mended = mended and number == 1  # counted once: nobody knows which element it was
        yield FileValue(number, msgspec.json.encode(element), element, "", len(raw), is_mended)


def values_of(file: IO[bytes], shape: Shape, name: str) -> Iterator[FileValue]:
    """Yield the values for the importer."""
    if shape.is_database:
        yield from _documents_of(file.name, shape.importer)
        return
    if not shape.is_document:
        yield from lines_of(file, line=shape.importer.line)
        return
    raw, value, mended = _document(file, name)
    if isinstance(value, list) and not _is_of_format(shape.importer, value):
        yield from elements_of(value, raw, mended=mended)
    else:
        yield FileValue(1, raw, value, "", len(raw), mended)


@contextmanager
def _database(path: Any, name: str) -> Iterator[sqlite3.Connection]:
    """Open a SQLite database to read it."""
    if not isinstance(path, str):
        raise NoTranscript("a database can't be read from a stream", place=name)
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as db:
            yield db
    except sqlite3.Error as error:
        raise NoTranscript(f"the database can't be read: {error}", place=name) from None


def _database_importer(path: Any, name: str) -> Importer:
    """Find the format of a SQLite database by its tables."""
    with _database(path, name) as database:
        found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {table for (table,) in found}
    for importer in importers().values():
        if importer.documents is not None and importer.tables <= tables:
            return importer
    raise NoTranscript("the database is in no known format", place=name)


def _documents_of(path: str, importer: Importer, only: str | None = None) -> Iterator[FileValue]:
    """Yield the sessions of a database, or one of them, one in memory at a time."""
    assert importer.documents is not None
    with _database(path, path) as database:
        for number, value in enumerate(importer.documents(database, only), 1):
            raw = msgspec.json.encode(value)
            yield FileValue(number, raw, value, "", 0)


def is_database(file: IO[bytes]) -> bool:
    """Return whether a seekable file is a SQLite database, and return to its beginning."""
    start = file.tell()
    is_so = file.read(len(_SQLITE)) == _SQLITE
    file.seek(start)
    return is_so


def find_shape(file: IO[bytes], name: str, format_: str | None = None) -> Shape:
    """Find the format of a seekable file, and return to its beginning."""
    importer = None if format_ is None else importer_of(format_)
    start = file.tell()
    if is_database(file):
        found = _database_importer(getattr(file, "name", None), name)
        if importer not in (None, found):
            raise _other_format(format_, found.name, name)
        return Shape(found, True, True)
    first = list(islice(lines_of(file), SAMPLED))
    file.seek(start)
    if not first:
        raise NoTranscript("the file is empty", place=name)
    refuse_compressed(first[0].raw, name)
    is_document = len(first) == 1 or bool(first[0].problem)
    if is_document:
        try:
            samples = [_document(file, name)[1]]
        except NoTranscript:
            if all(value.problem for value in first):
                raise
            is_document = False
        file.seek(start)
    if not is_document:
        samples = [value.value for value in first if not value.problem]
    return Shape(_chosen_importer(importer, samples, name), is_document)


def refuse_compressed(start: bytes, name: str) -> None:
    """Raise NoTranscript if a file that begins so is compressed."""
    for magic, (kind, fix) in COMPRESSED.items():
        if start.startswith(magic):
            raise NoTranscript(f"the file is {kind}", place=name, fix=fix)


def _document(file: IO[bytes], name: str) -> tuple[bytes, Any, bool]:
    """Return the text of a document, its value, and whether it was mended."""
    raw = file.read(MAX_DOCUMENT + 1)
    if len(raw) > MAX_DOCUMENT:
        raise NoTranscript(
            f"the document has more than {MAX_DOCUMENT:,} bytes",
            place=name,
            fix="write it as JSON lines",
        )
    raw = raw.removeprefix(BOM).strip()
    whole, value, problem = _mended(raw, decoded)
    if problem:
        raise NoTranscript(problem, place=name, fix="a transcript is JSON, or JSON lines")
    return whole, value, whole is not raw


def _chosen_importer(named: Importer | None, samples: Sequence[Any], name: str) -> Importer:
    """Return the importer that the user named, else the one whose format most values have.

    Raise if the file is in another format than the named one, which would read nothing of it. A
    file in no known format is read as its user says.
    """
    votes = _votes(samples)
    if named is not None:
        if votes and named.name not in votes:
            raise _other_format(named.name, votes.most_common(1)[0][0], name)
        return named
    if not votes:
        raise NoTranscript(
            "the file is in no known format",
            place=name,
            fix="name the format with --format; `em import --help` lists them",
        )
    return importers()[votes.most_common(1)[0][0]]


def _other_format(expected: str | None, found: str, name: str) -> NoTranscript:
    return NoTranscript(
        f"expected the format {expected}, found {found}",
        place=name,
        fix=f"leave out --format, or give --format {found}",
    )


def _votes(samples: Sequence[Any]) -> Counter[str]:
    """Count how many values fit each format; of one list that fits none, those in it."""
    votes = _votes_of(samples)
    if not votes and len(samples) == 1 and isinstance(samples[0], list):
        return _votes_of(samples[0][:SAMPLED])
    return votes


def _votes_of(samples: Sequence[Any]) -> Counter[str]:
    return Counter(
        importer.name
        for sample in samples
        for importer in importers().values()
        if _is_of_format(importer, sample)
    )


def _is_of_format(importer: Importer, value: Any) -> bool:
    """Return whether a value is of a format. What an importer can't look at is not."""
    try:
        return importer.fits(value)
    except UNEXPECTED:
        return False


def read_value(reader: Reader, intake: Intake, value: FileValue, name: str) -> None:
    """Let an importer read one value."""
    place = f"{name}:{value.number}"
    intake.reading(value.number, value.raw, place)
    intake.mended += value.mended
    if value.problem:
        intake.add_problem(place, value.problem)
    else:
        try:
            reader.read(value.value)
        except UNEXPECTED as error:
            # The importer did not expect this value: store it verbatim and go on.
            intake.unknown(f"{type(error).__name__}: {error}")
    intake.after_value()


def end_reader(reader: Reader, intake: Intake, name: str) -> None:
    """Let an importer add what it has not added yet."""
    try:
        reader.end()
    except UNEXPECTED as error:
        intake.add_problem(name, f"{type(error).__name__}: {error}")


def read_traces(
    data: bytes, name: str = "transcript", format_: str | None = None
) -> list[KeptTrace]:
    """Read the traces of a transcript without storing them."""
    file = BytesIO(data)
    shape = find_shape(file, name, format_)
    intake = Intake()
    reader = shape.importer.reader(intake)
    for value in values_of(file, shape, name):
        read_value(reader, intake, value, name)
    end_reader(reader, intake, name)
    intake.close()
    if intake.problems:
        raise InputError(intake.problems[0].message, place=intake.problems[0].place)
    return list(intake.gathered())


SUFFIXES = frozenset({".jsonl", ".json", ".ndjson", ".traj"})
"""Suffixes of the files in a folder that are expected to be transcripts."""
TRIES = 3
"""How often a file is read again because another process wrote the same traces."""


class FileRead(msgspec.Struct, frozen=True, kw_only=True):
    """The result of importing a file. `new` counts events, `broken` parts that are not imported.

    `problems` names the first of those.
    `skipped` says why it was not read, and `fix` what to do about it.
    `left_out` counts traces of folders that em must not record.
    `mended` counts lines in which half a surrogate pair, which is not Unicode, became U+FFFD.
    """

    path: str
    format: str = ""
    traces: Sequence[str] = ()
    new_traces: int = 0
    new: int = 0
    calls: int = 0
    unknown: int = 0
    problems: Sequence[BrokenPart] = ()
    broken: int = 0
    left_out: int = 0
    mended: int = 0
    skipped: str = ""
    fix: str = ""


def _silent(_count: int) -> None:
    """Show no progress."""


def files_in(paths: Sequence[str | Path]) -> Iterator[tuple[Path, bool]]:
    """Yield the files of paths, folders and patterns, and whether each was named itself."""
    for given in paths:
        path = Path(os.path.expanduser(given))
        if path.is_dir():
            yield from ((file, False) for file in transcripts_in(path, by_content=True))
        elif path.exists():
            yield path, True
        else:
            found = sorted(glob.glob(str(path), recursive=True))
            if not found:
                raise NotFound("there is no such file", place=str(given))
            for one in found:
                yield from files_in([one]) if os.path.isdir(one) else iter([(Path(one), True)])


def transcripts_in(folder: Path, *, by_content: bool = False) -> list[Path]:
    """Return the files of a folder that may be transcripts, oldest first, recursively.

    by_content: also look into files with other suffixes. That opens each of them.
    """
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in (".git", "node_modules"))
        for name in names:
            path = Path(place, name)
            if path.suffix in SUFFIXES or (by_content and _looks_like_json(path)):
                found.append(path)
    return sorted(found, key=lambda path: (_age(path), path))


def _looks_like_json(path: Path) -> bool:
    """Return whether a file begins like JSON, or is compressed and may hold some."""
    try:
        # A pipe would wait for its writer.
        if not path.is_file() or is_open_here(path):
            return False
        with path.open("rb") as file:
            start = file.read(64)
    except OSError:
        return False
    if start.startswith(_SQLITE):
        try:
            return bool(_database_importer(str(path), str(path)))
        except NoTranscript:  # another program's
            return False
    is_json = _JSON.match(start.removeprefix(BOM)) is not None
    return is_json or start.startswith(tuple(COMPRESSED))


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def import_each(
    store: Store,
    paths: Sequence[str | Path],
    *,
    format_: str | None = None,
    subject: str | None = None,
    progress: Progress = _silent,
) -> Iterator[FileRead]:
    """Import files, and yield each when it is stored.

    Of several files, one that can't be read is reported, and the others are imported.
    """
    if format_ is not None:
        importer_of(format_)
    for path, named in files_in(paths):
        try:
            with opened(path) as file, uncollected():
                read = import_file(
                    store, file, str(path), path=path, format_=format_, subject=subject,
                    progress=progress,
                )  # fmt: skip
        except InputError as error:
            if named and len(paths) == 1:
                raise
            read = FileRead(path=shown(path), skipped=error.message, fix=error.fix or "")
        yield read


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to read; raise InputError if that fails."""
    if is_open_here(path):
        raise NoTranscript("this file belongs to the memory that is open", place=str(path))
    with open_file(path, open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise InputError(
                "expected a regular file, found a pipe or a device",
                place=str(path),
                fix="write it to a file, or give it as standard input: `em import - < PATH`",
            )
        yield file


def import_file(
    store: Store,
    file: IO[bytes],
    name: str,
    *,
    path: Path | None = None,
    format_: str | None = None,
    subject: str | None = None,
    source: Source = "imported",
    progress: Progress = _silent,
) -> FileRead:
    """Import one seekable file; `path` identifies it when it is imported again."""
    state = FileState(store, path)
    if state.unchanged and format_ in (None, state.format):
        progress(state.size)
        return FileRead(path=shown(name), format=state.format, skipped="unchanged")
    shape = find_shape(file, name, format_)
    for tries in range(1, TRIES + 1):
        reading = FileImport(store, shape, state, name, subject=subject, source=source)
        try:
            reading.read_all(file, progress)
            return reading.finish()
        except Conflict:
            if tries == TRIES:
                raise
            file.seek(0)
    raise AssertionError("every try ended above")


def import_session(store: Store, path: Path, session: str) -> list[str]:
    """Import one session of a program's database. Return the ids of the traces that have news."""
    importer = _database_importer(str(path), str(path))
    for tries in range(1, TRIES + 1):
        intake = Intake(store, stream=FileState(store, path).stream, source="agent")
        reader = importer.reader(intake)
        try:
            for value in _documents_of(str(path), importer, session):
                read_value(reader, intake, value, shown(path))
            end_reader(reader, intake, shown(path))
            intake.close()
        except Conflict:
            if tries == TRIES:
                raise
        else:
            return [*intake.trace_ids]
    raise AssertionError("every try ended above")


class FileState:
    """What the log has about a file: its size and age when it was last read to its end."""

    def __init__(self, store: Store, path: Path | None) -> None:
        self.path = None if path is None else path.resolve()
        self.size = self.modified = 0
        self.previous: dict[int, KnownTrace] = {}
        self.format, self.unchanged = "", False
        if self.path is None:
            self.stream = transcript_stream("-")
            return
        name = str(self.path).encode("utf-8", "surrogateescape")
        self.stream = transcript_stream(hashlib.sha256(name).hexdigest()[:ID_LENGTH])
        self.look()
        query = EventQuery(stream=self.stream, kinds=["transcript_read"], limit=1, newest=True)
        for event in store.read(query):
            body = event.body or {}
            self.format = str(body.get("format", ""))
            known = [KnownTrace(**one) for one in body.get("traces", ())]
            self.previous = dict(enumerate(known))
            before = (body.get("size"), body.get("modified"))
            self.unchanged = before == (self.size, self.modified)

    def look(self) -> None:
        """Read the file's size and age now."""
        assert self.path is not None
        try:
            stat = self.path.stat()
            self.size, self.modified = stat.st_size, stat.st_mtime_ns
            # What is new in a database is in a file of its own at first.
            log = self.path.with_name(f"{self.path.name}-wal").stat()
        except OSError:
            return
        self.size += log.st_size
        self.modified = max(self.modified, log.st_mtime_ns)

    def read_to_the_end(self, format_: str, known: dict[int, KnownTrace]) -> Draft | None:
        """Return the event that the file was read to its end."""
        if self.path is None:
            return None
        body = {
            "path": path_to_text(self.path),
            "format": format_,
            "size": self.size,
            "modified": self.modified,
            "traces": [one._asdict() for one in known.values()],
        }
        return Draft(stream=self.stream, kind="transcript_read", body=body)


class FileImport:
    """One file while it is read. `read_on` reads the lines that were added since."""

    def __init__(
        self,
        store: Store,
        shape: Shape,
        state: FileState,
        name: str,
        *,
        subject: str | None = None,
        source: Source = "imported",
    ) -> None:
        self._store, self._shape, self._state = store, shape, state
        self._name = shown(name)  # it is stored as the place of each line
        self._intake = Intake(
            store, stream=state.stream, previous=state.previous, subject=subject, source=source
        )
        self._reader: Reader = shape.importer.reader(self._intake)
        self.offset = 0
        self.has_news = False
        self._number = 0

    def read_all(self, file: IO[bytes], progress: Progress = _silent) -> None:
        """Read the whole file."""
        done = 0
        for value in values_of(file, self._shape, self._name):
            self._read(value)
            progress(value.end - done)
            done = value.end

    def read_on(self, file: IO[bytes]) -> None:
        """Read the complete lines that were added; `has_news` says whether there were any."""
        file.seek(self.offset)
        before = self.offset
        for value in lines_of(file, self._number, self._shape.importer.line):
            if value.problem.startswith("the line is cut off"):
                break
            self._read(value)
        end_reader(self._reader, self._intake, self._name)
        self._intake.pause()
        self.has_news = self.offset > before

    def _read(self, value: FileValue) -> None:
        read_value(self._reader, self._intake, value, self._name)
        self.offset, self._number = value.end, value.number

    def finish(self) -> FileRead:
        """Write the rest, and that the file was read to its end."""
        intake = self._intake
        end_reader(self._reader, intake, self._name)
        intake.end_traces()
        if self.offset and not self._shape.is_database:
            self._state.size = self.offset
        done = self._state.read_to_the_end(self._shape.importer.name, intake.now_known)
        if done is not None:
            intake.put(done, None)  # in the same commit as the last of its traces
        intake.write()
        added = intake.added - (done is not None)
        return msgspec.structs.replace(self.progress(), new=added)

    def progress(self) -> FileRead:
        """Return the result so far."""
        intake = self._intake
        return FileRead(
            path=self._name,
            format=self._shape.importer.name,
            traces=list(intake.trace_ids),
            new_traces=intake.new_traces,
            new=intake.added,
            calls=intake.calls,
            unknown=intake.unknown_count,
            problems=list(intake.problems),
            left_out=intake.left_out,
            mended=intake.mended,
            broken=intake.broken,
        )


def total_size(paths: Sequence[str | Path]) -> int:
    """Return how many bytes an import will read at most."""
    return sum(path.stat().st_size for path, _ in files_in(paths) if path.is_file())


def as_json(read: FileRead) -> dict[str, Any]:
    """Return the result of a file as JSON."""
    shown: dict[str, Any] = msgspec.to_builtins(read)
    shown["problems"] = [problem._asdict() for problem in read.problems]
    return shown
