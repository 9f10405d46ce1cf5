"""Lists on pages: filters, order and place in the address, and one page of rows.

Every list is a `ListShape`; a `ListView` is what the address of a request asks of it. A list in its
own order goes on by the key of its last row, so a page costs what it shows. Sorted by another
column it shows the newest rows only (`SORTED`), and says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from em.errors import InputError
from em.serve.auth import Caller
from em.serve.pages.view import address, parameter
from em.serve.service import AnyRequest
from em.values.times import moment

ROWS = 25
"""Rows of a page."""
SORTED = 1_000
"""The newest rows that a list sorts by another column than its own."""

T = TypeVar("T")


class Filter(NamedTuple):
    """A field of the form above a list. `name` is what HTTP and the command call it.

    options: the values to choose from; a field without any is free text.
    is_first: it is always shown; the others are behind "More filters".
    is_needed: it has a value always: the first of its options unless another is chosen.
    """

    name: str
    label: str
    kind: Literal["text", "words", "choice", "flag", "time"] = "text"
    options: Sequence[str] = ()
    hint: str = ""
    is_first: bool = False
    is_needed: bool = False


SUBJECT = Filter("subject", "Subject")
SINCE, UNTIL = Filter("since", "Since", "time"), Filter("until", "Until", "time")


class Column(NamedTuple):
    """A column of a list. sort: what the address calls its order; empty if it has none."""

    label: str
    sort: str = ""
    is_number: bool = False


class ListShape(NamedTuple):
    """A list: its page, the word for its rows, its columns and filters.

    order: the column whose order is the list's own, newest or largest first.
    """

    path: str
    noun: str
    columns: Sequence[Column]
    filters: Sequence[Filter]
    order: str


def of_one_subject(shape: ListShape, caller: Caller) -> ListShape:
    """Return a list of which a caller who is limited to subjects sees one subject at a time."""
    if caller.subjects is None:
        return shape
    own = SUBJECT._replace(options=sorted(caller.subjects), is_first=True, is_needed=True)
    fields = [own if one.name == own.name else one for one in shape.filters]
    return shape._replace(filters=fields)


class Found(NamedTuple, Generic[T]):
    """Rows in the order in which they were read.

    first: the place of the first. further: where to go on; empty if nothing is left.
    """

    rows: Sequence[T]
    first: str
    further: str


Read = Callable[[str, bool, int], Found[T]]
"""Reads rows behind a place, the smallest first or not, at most so many."""


def numbered(read: Callable[[int, int], Sequence[T]]) -> Read[T]:
    """Return how to read a list whose places are the numbers of its rows, the first is 0.

    read: returns the rows from a number on, at most so many.
    """

    def found(place: str, is_back: bool, limit: int) -> Found[T]:
        number = row_number(place)
        if is_back:
            first = max(0, number - limit)
            return Found(read(first, number - first)[::-1], str(number), str(first or ""))
        rows = read(number, limit + 1)
        further = str(number + limit) if len(rows) > limit else ""
        return Found(rows[:limit], str(number), further)

    return found


def row_number(place: str) -> int:
    """Return the number of the row at which a page begins; 0 for the first page."""
    if place and not (place.isdecimal() and len(place) < 10):
        raise InputError(
            f"expected the number of a row, got {place[:40]!r}",
            place="cursor",
            fix="leave it out for the first page",
        )
    return int(place or 0)


class ListView:
    """A list as the address of a request asks for it."""

    def __init__(self, shape: ListShape, request: AnyRequest) -> None:
        self.shape = shape
        given = {one.name: _value(request, one) for one in shape.filters}
        self.chosen = {name: value for name, value in given.items() if value}
        sorts = [one.sort for one in shape.columns if one.sort]
        self.sort = _one_of(request, "sort", sorts) or shape.order
        self.is_ascending = _one_of(request, "order", ("asc", "desc")) == "asc"
        self.cursor, self._is_back = parameter(request, "cursor"), bool(parameter(request, "back"))
        self.previous = self.next = ""
        """The addresses of the pages before and after this one."""
        self.is_cut = False
        """Whether only the newest rows were sorted, as many as `most`."""
        self.most = SORTED

    def get(self, name: str) -> str:
        """Return the value of a filter, or an empty string."""
        return self.chosen.get(name, "")

    def time(self, name: str) -> datetime | None:
        """Return the value of a filter that is a time."""
        return moment(self.chosen[name], name) if name in self.chosen else None

    def address(self, **changed: Any) -> str:
        """Return the address of the first page, with some parameters changed."""
        order = "asc" if self.is_ascending else ""
        sort = "" if self.sort == self.shape.order else self.sort
        return address(self.shape.path, **{**self.chosen, "sort": sort, "order": order, **changed})

    def sorted_by(self, column: Column) -> str:
        """Return the address of the list in the order of a column; the other way if it has it."""
        is_same = column.sort == self.sort
        # A click on a column of numbers or times shows the largest first, on a text the first.
        is_plain = column.is_number or column.sort == self.shape.order
        ascending = not self.is_ascending if is_same else not is_plain
        sort = "" if column.sort == self.shape.order else column.sort
        return self.address(sort=sort, order="asc" if ascending else "")

    def direction(self, column: Column) -> str:
        """Return the value of `aria-sort` for a column."""
        if column.sort != self.sort:
            return "none"
        return "ascending" if self.is_ascending else "descending"

    def page(
        self, read: Read[T], keys: Mapping[str, Callable[[T], Any]] | None = None
    ) -> Sequence[T]:
        """Return the rows of the page, and set the addresses of those before and after it.

        keys: by what to sort for the columns other than the list's own.
        """
        key = (keys or {}).get(self.sort)
        if key is None:
            return self._by_place(read)
        found = read("", False, SORTED)
        self.is_cut = bool(found.further)
        return self._by_number(sorted(found.rows, key=key, reverse=not self.is_ascending))

    def page_of_all(
        self, rows: Iterable[T], keys: Mapping[str, Callable[[T], Any]] | None = None
    ) -> Sequence[T]:
        """Return the rows of the page of a list that is read whole; without keys as they come."""
        if keys is None:
            return self._by_number(list(rows))
        return self._by_number(sorted(rows, key=keys[self.sort], reverse=not self.is_ascending))

    @property
    def first_row(self) -> int:
        """The number of the first row of the page, in a list that is read whole."""
        return row_number(self.cursor)

    def _by_place(self, read: Read[T]) -> Sequence[T]:
        if self._is_back and self.cursor:
            found = read(self.cursor, not self.is_ascending, ROWS)
            if found.further:
                self.previous = self.address(cursor=found.further, back=1)
                self.next = self.address(cursor=found.first)
                return found.rows[::-1]
            self.cursor = ""  # these are the first rows: fill the first page
        found = read(self.cursor, self.is_ascending, ROWS)
        if self.cursor:
            back = {"cursor": found.first, "back": 1} if found.first else {}
            self.previous = self.address(**back)
        if found.further:
            self.next = self.address(cursor=found.further)
        return found.rows

    def _by_number(self, rows: Sequence[T]) -> Sequence[T]:
        """Return a page of rows that are all there. The place is the number of its first row."""
        first = self.first_row
        if first:
            self.previous = self.address(cursor=max(0, first - ROWS) or "")
        if first + ROWS < len(rows):
            self.next = self.address(cursor=first + ROWS)
        return rows[first : first + ROWS]


def _value(request: AnyRequest, one: Filter) -> str:
    if one.kind == "choice":
        return _one_of(request, one.name, one.options)
    text = parameter(request, one.name)
    if one.is_needed and not text:
        return next(iter(one.options), "")
    if one.kind == "time" and text:
        moment(text, one.name)
    return text


def _one_of(request: AnyRequest, name: str, options: Sequence[str]) -> str:
    text = parameter(request, name)
    if text and text not in options:
        raise InputError(
            f"expected one of {', '.join(options)}; got {text[:40]!r}",
            place=name,
            fix="choose one of them, or leave it out",
        )
    return text


def place_of_event(place: str) -> int:
    """Return the number of an event at which a list goes on; 0 for its beginning."""
    if place and not (place.isdecimal() and len(place) <= 18):
        raise InputError(
            f"expected the number of an event, got {place[:40]!r}",
            place="cursor",
            fix="leave it out for the first page",
        )
    return int(place or 0)
