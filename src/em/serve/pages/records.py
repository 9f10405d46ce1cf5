"""The records of a collection as a table: filtered by words, page by page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from em.errors import NotFound
from em.state.conditions import kind_of_field
from em.state.schema import TypeSchema
from em.state.state import State

ROWS = 50


class Cell(NamedTuple):
    """The value of a field, and the values that it had before."""

    text: str
    before: Sequence[str] = ()


class RecordRow(NamedTuple):
    """A record: its cells, the name by which the address finds it, and whether it was inferred."""

    cells: Sequence[Cell]
    ref: str
    inferred: bool


class Table(NamedTuple):
    """One page of a collection. found: how many records the words leave of `total`."""

    name: str
    key: str
    columns: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[RecordRow]
    found: int
    total: int
    page: int
    pages: int


class Listing:
    """The records of a collection that have some words, in the order in which they were recorded.

    name: the collection; the first if it is empty.
    """

    def __init__(self, state: State, name: str = "", sought: str = "") -> None:
        self._state, self.name = state, name or next(iter(state.collections))
        self.type = _collection(state, self.name)
        self._fields = {field.given: field for field in self.type.fields.values()}
        self._every: list[Any] = state.collection(self.name)
        self._shared = Counter(one.event_ids[0] for one in self._every if one.event_ids)
        wanted = sought.casefold().split()
        self._found = [one for one in self._every if not wanted or self._has(one, wanted)]

    def _has(self, record: Any, wanted: Sequence[str]) -> bool:
        text = " ".join(map(words, self.given(record).values())).casefold()
        return all(word in text for word in wanted)

    def given(self, record: Any) -> Any:
        """Return a record as it was given."""
        return self._state.as_record(record)

    def table(self, page: int = 1) -> Table:
        """Return a page, or the last one."""
        pages = max(1, -(-len(self._found) // ROWS))
        page = min(max(1, page), pages)
        return Table(
            name=self.name,
            key=", ".join(self.type.key or ()),
            columns=list(self._fields),
            numbers=[n for n, one in self._fields.items() if kind_of_field(one) == "number"],
            rows=[self._row(one) for one in self._found[(page - 1) * ROWS : page * ROWS]],
            found=len(self._found),
            total=len(self._every),
            page=page,
            pages=pages,
        )

    def _row(self, record: Any) -> RecordRow:
        history = getattr(record, "history", {})
        plain = self.given(record)
        cells = []
        for name, field in self._fields.items():
            past = [one.value for one in history.get(field.name, ())]
            before = [words(value) for value in reversed(past) if value != plain.get(name)]
            cells.append(Cell(words(plain.get(name)), list(dict.fromkeys(before))))
        inferred = self.type.key is None and self._state.inferred(record)
        return RecordRow(cells, self.ref(record), inferred)

    def ref(self, record: Any) -> str:
        """Return what the address calls a record: its key as JSON, or its event.

        Where one event gave several records, a digest of the content is added: a form that was
        loaded before the record changed then finds none.
        """
        plain = self.given(record)
        if self.type.key is not None:
            return as_json([plain.get(name) for name in self.type.key])
        event = str(record.event_ids[0])
        if self._shared[event] == 1:
            return event
        return f"{event}.{sha256(as_json(plain).encode()).hexdigest()[:16]}"

    def find(self, ref: str) -> Any:
        """Return the record that the address names."""
        event = None if self.type.key else ref.partition(".")[0]
        for record in self._every:
            if (event is None or record.event_ids[0] == event) and self.ref(record) == ref:
                return record
        raise NotFound(
            f"{self.name} has no such record",
            place="record",
            fix="it may have changed meanwhile: reload the page",
        )


def _collection(state: State, name: str) -> TypeSchema:
    if name not in state.collections:
        known = ", ".join(state.collections) or "none"
        raise NotFound(
            f"there is no collection {name[:80]!r}", place="records", fix=f"use one of: {known}"
        )
    return state.collections[name]


def words(value: Any) -> str:  # noqa: PLR0911 - one line for each kind of value
    """Return a value as a person would write it: a text as it is, other values without quotes."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, list) and not any(isinstance(one, dict | list) for one in value):
        return ", ".join(map(words, value))
    if isinstance(value, Mapping) and value.keys() == {"amount", "currency"}:
        return f"{value['amount']} {value['currency']}"
    if hasattr(value, "currency") and hasattr(value, "amount"):
        return f"{value.amount} {value.currency}"
    return str(value) if isinstance(value, int | float | Decimal) else as_json(value)


def as_json(value: Any) -> str:
    """Return a value as JSON."""
    return msgspec.json.encode(value, enc_hook=str).decode()
