"""The records of a collection as a table: filtered, sorted, in pages; and all of them as CSV."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from hashlib import sha256
from typing import Any, Literal, get_args

import msgspec

from em.errors import InputError, NotFound
from em.state.conditions import kind_of_field
from em.state.schema import FieldSchema, TypeSchema
from em.state.state import State

ROWS = 50
Comparison = Literal["contains", "is", "from", "to"]
ORDERS = ("asc", "desc")
_NUMBERS = (int, float, Decimal)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the address asks for: a collection, its order, one filter, and a page.

    where: the field that the filter looks at; empty for every field.
    sort: the field to sort by. Without one, records come in the order of their keys, or if they
    have none, in the order in which they were recorded.
    """

    records: str = ""
    sort: str = ""
    order: str = "asc"
    where: str = ""
    op: str = "contains"
    value: str = ""
    page: int = 1


class Cell(msgspec.Struct, frozen=True):
    """The value of a field, and the values that it had before."""

    text: str
    before: Sequence[str] = ()


class Row(msgspec.Struct, frozen=True):
    """A record: its cells, the name by which the address finds it, and whether it was inferred."""

    cells: Sequence[Cell]
    ref: str
    inferred: bool


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a collection. found: how many records the filter leaves of `total`."""

    name: str
    type: str
    key: str
    columns: Sequence[str]
    numbers: Sequence[str]
    rows: Sequence[Row]
    found: int
    total: int
    page: int
    pages: int


class Listing:
    """The records of a collection that the address asks for, in its order."""

    def __init__(self, state: State, wanted: Wanted) -> None:
        name = wanted.records or next(iter(state.collections))
        self._state, self._wanted = state, wanted
        self.name, self.type = name, _collection(state, name)
        self._fields = {field.given: field for field in self.type.fields.values()}
        every: list[Any] = state.collection(name)
        self._plain: dict[int, Any] = {}
        self.total = len(every)
        self._shared = Counter(record.event_ids[0] for record in every if record.event_ids)
        self.records = self._sorted([one for one in every if self._filter(one)])

    def given(self, record: Any) -> Any:
        """Return a record as it was given. It is made once: filter, order and page all use it."""
        if id(record) not in self._plain:
            self._plain[id(record)] = self._state.as_record(record)
        return self._plain[id(record)]

    @property
    def columns(self) -> list[str]:
        """The names of the fields, as they were given."""
        return list(self._fields)

    def table(self) -> Table:
        """Return the page that is asked for, or the last one."""
        pages = max(1, -(-len(self.records) // ROWS))
        page = min(max(1, self._wanted.page), pages)
        shown = self.records[(page - 1) * ROWS : page * ROWS]
        return Table(
            name=self.name,
            type=self.type.name,
            key=", ".join(self.type.key or ()),
            columns=self.columns,
            numbers=[n for n, one in self._fields.items() if kind_of_field(one) == "number"],
            rows=[self._row(one) for one in shown],
            found=len(self.records),
            total=self.total,
            page=page,
            pages=pages,
        )

    def _row(self, record: Any) -> Row:
        history = getattr(record, "history", {})
        plain = self.given(record)
        cells = []
        for name, field in self._fields.items():
            past = [one.value for one in history.get(field.name, ())]
            before = [words(value) for value in reversed(past) if value != plain.get(name)]
            cells.append(Cell(words(plain.get(name)), list(dict.fromkeys(before))))
        inferred = self.type.key is None and self._state.inferred(record)
        return Row(cells, self.ref(record), inferred)

    def ref(self, record: Any) -> str:
        """Return what the address calls a record: its key as JSON, or its event.

        Where one event gave several records, a digest of the content is added: a form that was
        loaded before the record changed then finds none.
        """
        plain = self.given(record)
        if self.type.key is not None:
            return _json([plain.get(name) for name in self.type.key])
        event = str(record.event_ids[0])
        if self._shared[event] == 1:
            return event
        return f"{event}.{sha256(_json(plain).encode()).hexdigest()[:16]}"

    def find(self, ref: str) -> Any:
        """Return the record that the address names."""
        event = None if self.type.key else ref.partition(".")[0]
        for record in self._state.collection(self.name):
            if (event is None or record.event_ids[0] == event) and self.ref(record) == ref:
                return record
        raise NotFound(
            f"{self.name} has no such record",
            place="record",
            fix="it may have changed meanwhile: reload the page",
        )

    def csv(self) -> str:
        """Return all records that the filter leaves, safe to open in a spreadsheet."""
        text = io.StringIO()
        written = csv.writer(text)
        written.writerow([_safe(name) for name in (*self.columns, "event_ids")])
        for record in self.records:
            cells = [_cell(self._value(record, one)) for one in self._fields.values()]
            written.writerow([*cells, " ".join(record.event_ids)])
        return text.getvalue()

    def _value(self, record: Any, field: FieldSchema) -> Any:
        """Return a number, a time or an amount of money as such, and other values as given."""
        value = getattr(record, field.name)
        if isinstance(value, (*_NUMBERS, date, time)) or _is_money(value):
            return value
        return self.given(record).get(field.given)

    def _sorted(self, records: list[Any]) -> list[Any]:
        name, order = self._wanted.sort or (self.type.key or [""])[0], self._wanted.order
        if order not in ORDERS:
            raise InputError(f"expected asc or desc, got {order[:40]!r}", place="order")
        if not name:
            return records if order == "asc" else records[::-1]
        field = self._field(name, "sort")
        ranks = [(_rank(self._value(record, field)), record) for record in records]
        known = [one for one in ranks if one[0] is not None]
        known.sort(key=lambda one: one[0], reverse=order == "desc")
        return [record for _, record in known] + [r for rank, r in ranks if rank is None]

    def _field(self, name: str, place: str) -> FieldSchema:
        if name not in self._fields:
            raise NotFound(f"{self.name} has no field {name[:80]!r}", place=place)
        return self._fields[name]

    def _filter(self, record: Any) -> bool:
        wanted = self._wanted
        if not wanted.value:
            return True
        if wanted.op not in get_args(Comparison):
            raise InputError(f"expected one of {', '.join(get_args(Comparison))}", place="op")
        if not wanted.where and wanted.op in ("from", "to"):
            raise InputError("choose the field to compare", place="where")
        names = [wanted.where] if wanted.where else self._fields
        fields = [self._field(name, "where") for name in names]
        test = _TESTS[wanted.op]
        return any(test(self._value(record, field), wanted.value) for field in fields)


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
    if _is_money(value):
        return f"{value.amount} {value.currency}"
    if isinstance(value, Mapping) and value.keys() == {"amount", "currency"}:
        return f"{value['amount']} {value['currency']}"
    return str(value) if isinstance(value, _NUMBERS) else _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _is_money(value: Any) -> bool:
    return hasattr(value, "currency") and hasattr(value, "amount")


def _rank(value: Any) -> Any:
    """Return what values of different types are sorted by; None for what has no place."""
    if value is None or value != value:  # noqa: PLR0124 - not a number is not equal to itself
        return None
    if isinstance(value, _NUMBERS):
        return (0, "", value)
    if _is_money(value):
        return (1, value.currency, value.amount)
    if isinstance(value, date | time):
        return (2, value.isoformat(), 0)
    return (3, words(value).casefold(), 0)


_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?")


def _compared(value: Any, text: str) -> tuple[Any, Any] | None:
    """Return a value and a text as what can be compared; None for a field without a value."""
    if value is None:
        return None
    amount = getattr(value, "amount", value)
    if isinstance(amount, _NUMBERS):
        if _NUMBER.fullmatch(text) is None:
            raise InputError(f"expected a number, got {text[:40]!r}", place="value")
        return amount, _number(text, amount)
    if isinstance(value, date | time):
        return value.isoformat()[: len(text)], text
    return words(value).casefold(), text.casefold()


def _number(text: str, like: Any) -> Any:
    """Read a number as the type of another: 0.1 as a float is not 0.1 as a decimal."""
    return float(text) if isinstance(like, float) else Decimal(text)


def _contains(value: Any, text: str) -> bool:
    return text.casefold() in words(value).casefold()


def _is(value: Any, text: str) -> bool:
    if isinstance(value, _NUMBERS) and _NUMBER.fullmatch(text):
        return bool(value == _number(text, value))
    return words(value).casefold() == text.casefold()


def _from(value: Any, text: str) -> bool:
    pair = _compared(value, text)
    return pair is not None and bool(pair[0] >= pair[1])


def _to(value: Any, text: str) -> bool:
    pair = _compared(value, text)
    return pair is not None and bool(pair[0] <= pair[1])


_TESTS: Mapping[str, Callable[[Any, str], bool]] = {
    "contains": _contains,
    "is": _is,
    "from": _from,
    "to": _to,
}
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


def _cell(value: Any) -> str:
    """Return a value for CSV. Numbers stay numbers, also negative ones."""
    if isinstance(value, _NUMBERS) and not isinstance(value, bool):
        return str(value)
    return _safe(words(value))


def _safe(text: str) -> str:
    """Return text that a spreadsheet does not run: what looks like a formula gets a quote."""
    return f"'{text}" if _FORMULA.match(text) else text
