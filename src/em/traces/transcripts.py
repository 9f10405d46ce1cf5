"""Transcripts: a file of JSON lines or one JSON document, its format found, told to its importer.

JSON lines are read one at a time, however many there are. A line that is no JSON is a problem with
its number, and the rest goes on.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import islice
from typing import IO, Any, NamedTuple

import msgspec

from em.errors import InputError, NoTranscript
from em.traces.formats import Importer, Reader, importer_of, importers
from em.traces.intake import Intake, Problem
from em.traces.trace import KeptTrace

MAX_LINE = 64 * 1024 * 1024
MAX_DOCUMENT = 512 * 1024 * 1024
"""A document is held in memory as a whole, unlike lines."""
LOOKED_AT = 20
"""So many values are looked at to find the format."""

UNEXPECTED = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError,
)  # fmt: skip
"""What an importer raises of a value that is not as it expects."""

_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode
Progress = Callable[[int], None]


class Value(NamedTuple):
    """A line or a document; `problem` says why there is none. `end`: where the next one begins."""

    number: int
    raw: bytes
    value: Any
    problem: str
    end: int


class Shape(NamedTuple):
    """How a file is written, and in which format."""

    importer: Importer
    is_document: bool


def decoded(raw: bytes) -> tuple[Any, str]:
    """The value of a JSON text, or what is wrong with it."""
    try:
        return _decode(raw), ""
    except RecursionError:
        return None, "nested too deep"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return None, f"this is no JSON: {error}"


def lines_of(file: IO[bytes], number: int = 0) -> Iterator[Value]:
    """The lines that hold something, from where the file stands; one in memory at a time."""
    at = file.tell()
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        at += len(raw)
        if len(raw) > MAX_LINE:
            at += _skip_line(file)
            yield Value(number, raw[:1000], None, f"longer than {MAX_LINE:,} bytes", at)
            continue
        text = raw.removeprefix(_BOM) if number == 1 else raw
        if text.strip():
            value, problem = decoded(text)
            if problem and not raw.endswith(b"\n"):
                problem = f"the line is cut off: {problem}"
            yield Value(number, text.strip(), value, problem, at)


def _skip_line(file: IO[bytes]) -> int:
    skipped = 0
    while part := file.readline(1 << 20):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def elements_of(value: Any, raw: bytes) -> Iterator[Value]:
    """The elements of a document that is a list, as if each were a line."""
    for number, element in enumerate(value, 1):
        yield Value(number, msgspec.json.encode(element), element, "", len(raw))


def values_of(file: IO[bytes], shape: Shape, name: str) -> Iterator[Value]:
    """The values that the importer is to be told of."""
    if not shape.is_document:
        yield from lines_of(file)
        return
    raw, value = _document(file, name)
    if isinstance(value, list) and not shape.importer.fits(value):
        yield from elements_of(value, raw)
    else:
        yield Value(1, raw, value, "", len(raw))


def find_shape(file: IO[bytes], name: str, format_: str | None = None) -> Shape:
    """How a seekable file is written. It is left at its beginning."""
    importer = None if format_ is None else importer_of(format_)
    start = file.tell()
    first = list(islice(lines_of(file), LOOKED_AT))
    file.seek(start)
    if not first:
        raise NoTranscript("the file is empty", place=name)
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
    return Shape(importer or _find_importer(samples, name), is_document)


def _document(file: IO[bytes], name: str) -> tuple[bytes, Any]:
    raw = file.read(MAX_DOCUMENT + 1)
    if len(raw) > MAX_DOCUMENT:
        raise NoTranscript(
            f"a document of more than {MAX_DOCUMENT:,} bytes",
            place=name,
            fix="write it as JSON lines",
        )
    raw = raw.removeprefix(_BOM).strip()
    value, problem = decoded(raw)
    if problem:
        raise NoTranscript(problem, place=name, fix="a transcript is JSON, or JSON lines")
    return raw, value


def _find_importer(samples: Sequence[Any], name: str) -> Importer:
    votes = _votes(samples)
    if not votes and len(samples) == 1 and isinstance(samples[0], list):
        votes = _votes(samples[0][:LOOKED_AT])
    if not votes:
        raise NoTranscript(
            "no format of transcripts was found in it",
            place=name,
            fix="name it with --format: " + ", ".join(importers()),
        )
    return importers()[votes.most_common(1)[0][0]]


def _votes(samples: Sequence[Any]) -> Counter[str]:
    return Counter(
        importer.name
        for sample in samples
        for importer in importers().values()
        if importer.fits(sample)
    )


def tell(reader: Reader, intake: Intake, value: Value, name: str) -> None:
    """Have an importer read one value."""
    place = f"{name}:{value.number}"
    intake.reading(value.number, value.raw, place)
    if value.problem:
        intake.problems.append(Problem(place, value.problem))
    else:
        try:
            reader.read(value.value)
        except UNEXPECTED as error:
            # What an importer did not expect: the value is kept, and the rest goes on.
            intake.unknown(f"{type(error).__name__}: {error}")
    intake.after_value()


def end(reader: Reader, intake: Intake, name: str) -> None:
    """Have an importer tell what it held back."""
    try:
        reader.end()
    except UNEXPECTED as error:
        intake.problems.append(Problem(name, f"{type(error).__name__}: {error}"))


def read_traces(
    data: bytes, name: str = "transcript", format_: str | None = None
) -> list[KeptTrace]:
    """The traces in the text of a transcript, without keeping them anywhere."""
    file = BytesIO(data)
    shape = find_shape(file, name, format_)
    intake = Intake()
    reader = shape.importer.reader(intake)
    for value in values_of(file, shape, name):
        tell(reader, intake, value, name)
    end(reader, intake, name)
    intake.close()
    if intake.problems:
        raise InputError(intake.problems[0].message, place=intake.problems[0].place)
    return list(intake.gathered())
