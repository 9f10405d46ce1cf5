"""What several parts of the HTTP API share: lists, texts, and the decorators of handlers.

A model of em is sent as it is where its fields are those that are promised. A shape of its own
says in its docstring how its promise differs. Shapes of requests are stricter than models: they
limit lengths and reject unknown fields.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from litestar import get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter

from em.serve.guard import ErrorBody

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000, pattern=r"\S")]
Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=512, description="Printable characters.")
]
When = Annotated[str, msgspec.Meta(max_length=64, description="An ISO 8601 date or time.")]

# Parameters of queries and headers.
Limit = Annotated[int, QueryParameter(ge=1, le=200, description="Return at most this many.")]
Offset = Annotated[int, QueryParameter(ge=0, le=2**31 - 1, description="Skip this many.")]
Moment = Annotated[
    str | None, QueryParameter(max_length=64, description="An ISO 8601 date or time.")
]
Exact = Annotated[str | None, QueryParameter(max_length=512)]
Words = Annotated[str | None, QueryParameter(max_length=2_000)]
Place = Annotated[
    str | None,
    QueryParameter(
        name="cursor", max_length=64, description="Go on behind this: `next` of a page."
    ),
]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="Requests with the same key and payload have one effect and one response.",
        max_length=255,
    ),
]


class Pagination(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position of a page in its collection.

    Lists of runs, traces and lessons count up to 1,000, so that a page costs what it shows. `next`
    is the `cursor` of the next page, if there is one.
    """

    limit: int
    offset: int
    total: int
    next: str | None = None


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a collection."""

    items: Sequence[T]
    pagination: Pagination


class Items(msgspec.Struct, Generic[T], frozen=True):
    """A whole list."""

    items: Sequence[T]


class StoredOut(msgspec.Struct, frozen=True):
    """The id of the event that was stored."""

    id: str


def page_of(found: Iterable[T], limit: int, offset: int) -> Page[T]:
    """Return one page of a collection. Reads the whole collection to count it."""
    items = iter(found)
    total = sum(1 for _ in islice(items, offset))
    shown = list(islice(items, limit))
    total += len(shown) + sum(1 for _ in items)
    return Page(shown, Pagination(limit, offset, total))


def fill(shape: type[S], model: object, **more: Any) -> S:
    """Fill a shape with a model's fields of the same names; `more` adds fields or replaces them."""
    same = {name: getattr(model, name) for name in shape.__struct_fields__ if hasattr(model, name)}
    return shape(**{**same, **more})


_DESCRIPTIONS = {
    400: "The request is invalid; `place` says where.",
    401: "The token is missing or unknown.",
    403: "The token does not allow this, or the host or origin is not served.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "The key was used for a different request, or a concurrent write came first.",
    410: "The request was carried out; its response has been forgotten since.",
    413: "The body is too large.",
    429: "Too many requests in a minute; `Retry-After` says when to try again.",
    502: "The model could not be reached, or its answer could not be used.",
    503: "The store can't be reached or is busy.",
}


def errors(*statuses: int) -> dict[int, ResponseSpec]:
    """Document the errors that a handler may respond with, besides the common ones."""
    every = sorted({400, 401, 403, 408, 413, 429, 503, *statuses})
    return {
        status: ResponseSpec(ErrorBody, generate_examples=False, description=_DESCRIPTIONS[status])
        for status in every
    }


def reads(path: str | list[str], tag: str, *statuses: int) -> get:
    """Declare a handler that only reads. statuses: of the errors besides the common ones."""
    return get(path, responses=errors(*statuses), sync_to_thread=True, tags=[tag])


def acts(path: str | list[str], tag: str, *statuses: int, status_code: int = 200) -> post:
    """Declare a handler that does something, in a thread."""
    responses = errors(*statuses)
    return post(path, responses=responses, status_code=status_code, sync_to_thread=True, tags=[tag])


def acts_once(
    path: str | list[str],
    tag: str,
    *statuses: int,
    status_code: int = 201,
    more: dict[int, ResponseSpec] | None = None,
) -> post:
    """Declare an async handler that takes an idempotency key. more: further responses."""
    responses = {**(more or {}), **errors(409, 410, *statuses)}
    return post(path, responses=responses, status_code=status_code, tags=[tag])
