"""Lists on pages: filters and place in the address, and one page of rows, the newest first.

Every list is a `ListShape`; a `ListView` is what the address of a request asks of it. A list goes
on behind the last row of a page, so a page costs what it shows.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from em.errors import InputError
from em.serve.auth import Caller
from em.serve.pages.view import address, parameter
from em.serve.service import AnyRequest
from em.values.times import moment

ROWS = 25
"""Rows of a page."""

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
    """A column of a list."""

    label: str
    is_number: bool = False


class ListShape(NamedTuple):
    """A list: its page, the word for its rows, its columns and filters."""

    path: str
    noun: str
    columns: Sequence[Column]
    filters: Sequence[Filter]


def of_one_subject(shape: ListShape, caller: Caller) -> ListShape:
    """Force the subject filter for callers whose token is limited to subjects."""
    if caller.subjects is None:
        return shape
    own = SUBJECT._replace(options=sorted(caller.subjects), is_first=True, is_needed=True)
    fields = [own if one.name == own.name else one for one in shape.filters]
    return shape._replace(filters=fields)


class ListView:
    """A list as the address of a request asks for it.

    cursor: where the page begins; empty for the first. next: the address of the next page.
    """

    def __init__(self, shape: ListShape, request: AnyRequest) -> None:
        self.shape = shape
        given = {one.name: _value(request, one) for one in shape.filters}
        self.chosen = {name: value for name, value in given.items() if value}
        self.cursor = parameter(request, "cursor")
        self.next = ""

    def get(self, name: str) -> str:
        """Return the value of a filter, or an empty string."""
        return self.chosen.get(name, "")

    def time(self, name: str) -> datetime | None:
        """Return the value of a filter that is a time."""
        return moment(self.chosen[name], name) if name in self.chosen else None

    def address(self, **changed: Any) -> str:
        """Return the address of the first page, with some parameters changed."""
        return address(self.shape.path, **{**self.chosen, **changed})

    def go_on(self, rows: Sequence[T], further: object | None) -> Sequence[T]:
        """Return the rows of the page, and note the place behind the last of them."""
        self.next = self.address(cursor=further) if further else ""
        return rows

    @property
    def number(self) -> int:
        """The cursor of a list whose places are numbers; 0 for its beginning."""
        if self.cursor and not (self.cursor.isdecimal() and len(self.cursor) <= 18):
            raise InputError(
                f"cursor must be a number, got {self.cursor[:40]!r}",
                place="cursor",
                fix="leave it out for the first page",
            )
        return int(self.cursor or 0)

    def page_of(self, rows: Iterable[T]) -> Sequence[T]:
        """Return the page of a list that is read from its beginning."""
        first = self.number
        found = list(islice(rows, first, first + ROWS + 1))
        return self.go_on(found[:ROWS], first + ROWS if len(found) > ROWS else None)


def _value(request: AnyRequest, one: Filter) -> str:
    text = parameter(request, one.name)
    if one.kind == "choice" and text and text not in one.options:
        raise InputError(
            f"expected one of {', '.join(one.options)}; got {text[:40]!r}",
            place=one.name,
            fix="choose one of them, or leave it out",
        )
    if one.is_needed and not text:
        return next(iter(one.options), "")
    if one.kind == "time" and text:
        moment(text, one.name)
    return text
