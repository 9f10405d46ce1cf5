"""Rows: records in the form that the generated classes read, stored in blocks.

A block is one record of the store. Its rows are one JSON text that is decoded once, straight into
the classes. Their times are texts beside it, which only a state of the past reads. `prove` reads
every new block back before it is written.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from em.errors import StateInvalid
from em.state.code import bare_module, load_module, write_module, write_shape
from em.state.schema import StateSchema, TypeSchema
from em.state.types import Convert, converter
from em.store.protocol import Record
from em.values.canonical import Json, identical

BLOCK_ROWS = 500
BLOCK_BYTES = 2 * 1024 * 1024

_encode = msgspec.json.Encoder().encode


class Seen(NamedTuple):
    """A record with its events, and when it happened and was recorded, in microseconds.

    gone: when it was taken back, in microseconds; with a `+` if the next one corrects it. Empty
    for one that still holds.
    """

    record: Json
    events: Sequence[str]
    at: int
    recorded_at: int
    gone: str = ""


def placed(
    given: str, seen: Iterable[Seen], counts: Counter[tuple[str, str]]
) -> Iterator[tuple[str, Seen]]:
    """Yield records with their places. A corrected one has the place of the one before it."""
    place, carried = "", False
    for one in seen:
        if not carried:
            place = place_of(given, one.events[0], counts)
        carried = one.gone.endswith("+")
        yield place, one


def place_of(given: str, event: str, counts: Counter[tuple[str, str]]) -> str:
    """Return the place of the next record that an event gave, and count it."""
    number = counts[given, event]
    counts[given, event] += 1
    return f"{given}/{event}/{number}"


class RowBlock(msgspec.Struct, omit_defaults=True):
    """The body of one record in the store: many rows with their times."""

    rows: str
    at: str
    recorded_at: str
    gone: str = ""
    """By row, separated by commas, when it was taken back (see `Seen`); empty if none was."""

    def times(self) -> Iterator[tuple[int, int]]:
        """Return when each row happened and when it was recorded, in microseconds."""
        return zip(map(int, self.at.split()), map(int, self.recorded_at.split()), strict=True)

    def ends(self) -> list[str]:
        """Return for each row when it was taken back; empty texts for those that hold."""
        return self.gone.split(",") if self.gone else [""] * len(self.at.split())


def row_maker(type_: TypeSchema) -> Callable[[Json, Sequence[str]], Json]:
    """Return a function that turns a given record into the row its class reads."""
    plan = [(field.given, field.name, converter(field)) for field in type_.fields.values()]
    simple = {given: name for given, name, convert in plan if convert is None}
    converted = [(given, name, convert) for given, name, convert in plan if convert is not None]
    known = {given for given, _, _ in plan}
    same_names = all(given == name for given, name, _ in plan)

    def make(record: Json, events: Sequence[str]) -> Json:
        as_given: Json = {}
        if same_names and record.keys() <= known and None not in record.values():
            row = record.copy()
        else:
            row = {simple[given]: value for given, value in record.items() if given in simple}
            _leave_out(record, known, row, as_given)
        for given, name, convert in converted:
            if given in record:
                _convert(record[given], given, name, convert, row, as_given)
        row["event_ids"] = events
        if as_given:
            row["as_given"] = as_given
        return row

    def _leave_out(record: Json, known: set[str], row: Json, as_given: Json) -> None:
        for given, value in record.items():
            if value is None or given not in known:  # unknown: beyond MAX_FIELDS
                as_given[given] = value
                row.pop(simple.get(given, ""), None)

    return make


def _convert(
    value: Any, given: str, name: str, convert: Convert, row: Json, as_given: Json
) -> None:
    if value is None:
        return
    found, exact = convert(value)
    if found is not None:
        row[name] = found
    else:
        row.pop(name, None)
    if not exact:
        as_given[given] = value


def blocks(
    subject: str, type_: TypeSchema, seen: Iterable[Seen], opened: Record | None
) -> Iterator[Record]:
    """Write new records into blocks, continuing the open one, and count them in the type."""
    make = row_maker(type_)
    writer = _Writer(subject, type_)
    if opened is not None and opened.body is not None:
        writer.reopen(opened)
    for item in seen:
        row = make(item.record, item.events)
        full = writer.add(_encode(row), item)
        if full is not None:
            yield full
    last = writer.finish()
    if last is not None:
        yield last


class _Writer:
    def __init__(self, subject: str, type_: TypeSchema) -> None:
        self._subject, self._type = subject, type_
        self._begin()

    def _begin(self) -> None:
        self._rows: list[bytes] = []
        self._at: list[str] = []
        self._recorded_at: list[str] = []
        self._gone: list[str] = []
        self._events: list[str] = []
        self._size = 0

    def reopen(self, opened: Record) -> None:
        block = msgspec.convert(opened.body, RowBlock)
        self._rows = [block.rows[1:-1].encode()]
        self._size = len(block.rows)
        self._at = block.at.split()
        self._recorded_at = block.recorded_at.split()
        self._gone = block.ends()
        self._events = list(opened.from_events)
        self._type.blocks -= 1

    def add(self, row: bytes, item: Seen) -> Record | None:
        self._rows.append(row)
        self._at.append(str(item.at))
        self._recorded_at.append(str(item.recorded_at))
        self._gone.append(item.gone)
        self._events += item.events
        self._size += len(row)
        if len(self._at) >= BLOCK_ROWS or self._size >= BLOCK_BYTES:
            return self.finish(full=True)
        return None

    def finish(self, *, full: bool = False) -> Record | None:
        if not self._at:
            self._type.open_rows = 0
            return None
        self._type.blocks += 1
        rows = b"[%s]" % b",".join(self._rows)
        gone = ",".join(self._gone) if any(self._gone) else ""
        body = RowBlock(rows.decode(), " ".join(self._at), " ".join(self._recorded_at), gone)
        record = Record(
            subject=self._subject,
            type=self._type.name,
            id=block_id(self._type.blocks),
            body=msgspec.to_builtins(body),
            from_events=tuple(dict.fromkeys(self._events)),
            from_log=True,
        )
        self._type.open_rows = 0 if full else len(self._at)
        self._begin()
        return record


def block_id(number: int) -> str:
    """Return the id of a block; ids sort like the numbers."""
    return f"{number:010d}"


def prove(schema: StateSchema, records: Sequence[Record]) -> ModuleType:
    """Run the module and read every new row with it; StateInvalid if one reads differently."""
    try:
        module = load_module(bare_module(write_module(schema)))
        load_module(write_shape(schema))
    except Exception as error:
        raise StateInvalid(
            f"the generated module does not run: {type(error).__name__}: {error}",
            place=f"state of {schema.subject!r}",
            fix="the previous state is unchanged; this is a bug in em, please report it",
        ) from error
    classes = {type_.name: getattr(module, type_.name) for type_ in schema.types.values()}
    for record in records:
        if record.type in classes and record.body is not None and "rows" in record.body:
            _prove_block(record, classes[record.type])
    return module


def _prove_block(record: Record, class_: type) -> None:
    block = msgspec.convert(record.body, RowBlock)
    try:
        read = rows_decoder(class_).decode(block.rows)
        written = msgspec.json.encode(read)
        if written.replace(b',"as_given":{}}', b"}") == block.rows.encode():
            return  # identical bytes, except for the as_given that the class adds
        again = msgspec.json.decode(written)
    except (msgspec.MsgspecError, TypeError) as error:
        raise _unreadable(record, str(error)) from error
    rows: list[Mapping[str, Any]] = msgspec.json.decode(block.rows)
    # The class adds None for missing fields; everything else must be identical.
    picked = [{name: back[name] for name in row} for row, back in zip(rows, again, strict=True)]
    if msgspec.json.encode(picked) == block.rows.encode():
        return
    for row, back in zip(rows, picked, strict=True):
        for wrong in [name for name, value in row.items() if not _same(value, back[name])]:
            raise _unreadable(record, f"{wrong} was {row[wrong]!r:.60}, now {back[wrong]!r:.60}")


def _same(written: Any, read: Any) -> bool:
    """Compare a value as written and as read; a nested class may add None for missing fields."""
    if isinstance(written, dict) and isinstance(read, dict):
        return written.keys() <= read.keys() and all(
            _same(written.get(name), value) for name, value in read.items()
        )
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        return all(map(_same, written, read))
    return identical(written, read)


def _unreadable(record: Record, why: str) -> StateInvalid:
    return StateInvalid(
        f"a record reads back differently from how it was written: {why}",
        place=f"{record.type}, block {record.id}",
        fix="the previous state is unchanged; this is a bug in em, please report it",
    )


@lru_cache(maxsize=256)
def rows_decoder(class_: type) -> "msgspec.json.Decoder[list[Any]]":
    """Return a decoder for the rows of a block."""
    return msgspec.json.Decoder(list[class_])  # type: ignore[valid-type]  # made at run time
