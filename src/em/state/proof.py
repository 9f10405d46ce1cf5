"""A checkpoint put together and proved: the module runs, and every new row reads back exactly."""

import re
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import msgspec

from em.errors import StateInvalid
from em.state.code import write_module
from em.state.rows import Block
from em.state.schema import StateSchema
from em.store.protocol import Record
from em.values.canonical import identical

MODULE = "em_state"
_loading = threading.Lock()


@lru_cache(maxsize=64)
def load_module(code: str) -> ModuleType:
    """The generated module, run. It is em's own code: no text of it came from anyone else."""
    module = ModuleType(MODULE)
    # dataclasses look the module of a class up by its name while they are made.
    with _loading:
        sys.modules[MODULE] = module
        try:
            exec(compile(code, f"<{MODULE}>", "exec"), module.__dict__)  # noqa: S102 - written by em
        finally:
            del sys.modules[MODULE]
    return module


_DOC = re.compile(r' *"""[^"\\]*"""')
"""A docstring that can hold nothing but text: no quote ends it, nothing is escaped."""


def bare_module(code: str) -> str:
    """A module without its documentation: the same text for subjects of the same shape.

    What is left out is proved to be text, so that running the rest proves the whole.
    """
    lines = code.split("\n")
    for number, line in enumerate(lines):
        if line.lstrip(" ").startswith('"""'):
            if not _DOC.fullmatch(line):
                raise ValueError(f"line {number + 1} is no docstring")
            lines[number] = line[: -len(line.lstrip(" "))] + "..."
    return "\n".join(lines)


def prove(schema: StateSchema, records: Sequence[Record]) -> ModuleType:
    """Run the module and read every new row with it; StateInvalid if anything is not as written."""
    try:
        module = load_module(bare_module(write_module(schema)))
    except Exception as error:
        raise StateInvalid(
            f"the generated module does not run: {type(error).__name__}: {error}",
            place=f"state of {schema.subject!r}",
            fix="the last good state stays; this is a bug of em, please report it",
        ) from error
    classes = {type_.name: getattr(module, type_.name) for type_ in schema.types.values()}
    for record in records:
        if record.type in classes and record.body is not None and "rows" in record.body:
            _prove_block(record, classes[record.type])
    return module


def _prove_block(record: Record, class_: type) -> None:
    block = msgspec.convert(record.body, Block)
    try:
        read = rows_decoder(class_).decode(block.rows)
        written = msgspec.json.encode(read)
        if written.replace(b',"as_given":{}}', b"}") == block.rows.encode():
            return  # to the byte, but for what a class adds
        again = msgspec.json.decode(written)
    except (msgspec.MsgspecError, TypeError) as error:
        raise _unreadable(record, str(error)) from error
    rows: list[Mapping[str, Any]] = msgspec.json.decode(block.rows)
    # A class adds None for what is not there; apart from that, not a byte may differ.
    picked = [{name: back[name] for name in row} for row, back in zip(rows, again, strict=True)]
    if msgspec.json.encode(picked) == block.rows.encode():
        return
    for row, back in zip(rows, picked, strict=True):
        for wrong in [name for name, value in row.items() if not _same(value, back[name])]:
            raise _unreadable(record, f"{wrong} is {row[wrong]!r:.60}, read {back[wrong]!r:.60}")


def _same(written: Any, read: Any) -> bool:
    """Whether a value was read as it was written, with None for what a nested class has not."""
    if isinstance(written, dict) and isinstance(read, dict):
        return written.keys() <= read.keys() and all(
            _same(written.get(name), value) for name, value in read.items()
        )
    if isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        return all(map(_same, written, read))
    return identical(written, read)


def _unreadable(record: Record, why: str) -> StateInvalid:
    return StateInvalid(
        f"a record does not read back as it was written: {why}",
        place=f"{record.type}, block {record.id}",
        fix="the last good state stays; this is a bug of em, please report it",
    )


@lru_cache(maxsize=256)
def rows_decoder(class_: type) -> "msgspec.json.Decoder[list[Any]]":
    """Reads the rows of a block into a class."""
    return msgspec.json.Decoder(list[class_])  # type: ignore[valid-type]  # made at run time
