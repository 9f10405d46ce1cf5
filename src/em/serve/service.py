"""What the handlers share: the memory, its settings, and how a request is carried out."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import Parameter

from em.errors import EmError
from em.llm.interface import LlmClient
from em.log.event import Event
from em.memory import Memory
from em.serve.api.shapes import Pagination
from em.serve.auth import Access, Caller
from em.serve.failures import ErrorBody
from em.serve.guard import CALLER, Metrics, say
from em.serve.idempotency import Pending, Requests
from em.settings import Settings
from em.store import redactor_of

T = TypeVar("T")
AnyRequest = Request[Any, Any, Any]

Limit = Annotated[int, Parameter(ge=1, le=200, description="At most so many.")]
Offset = Annotated[int, Parameter(ge=0, le=2**31 - 1, description="Leave out so many.")]
Moment = Annotated[str | None, Parameter(max_length=64, description="A date or a time.")]
Key = Annotated[
    str | None,
    Parameter(
        header="Idempotency-Key",
        description="The same key and payload get the same answer, and one effect.",
        max_length=255,
    ),
]

_WORDS = {
    400: "The request is wrong; the message says where.",
    401: "No token, or one that is not known.",
    403: "The token may not do this, or the host is not served.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "The key stands for another request, or somebody else was faster.",
    410: "It was carried out, and its response was forgotten since.",
    413: "The body is too large.",
    502: "The model could not be asked, or its answer not be used.",
    503: "The store can't be reached, or is busy.",
}


def errors(*statuses: int) -> dict[int, ResponseSpec]:
    """The errors that a handler may answer with, as they are documented."""
    every = sorted({400, 401, 403, 408, 413, 503, *statuses})
    return {
        status: ResponseSpec(ErrorBody, generate_examples=False, description=_WORDS[status])
        for status in every
    }


class Service:
    """One memory, served."""

    def __init__(self, memory: Memory, settings: Settings, metrics: Metrics) -> None:
        self.memory = memory
        self.store = memory.store
        self.settings = settings
        self.metrics = metrics
        self._requests = Requests(memory.store, settings.api)
        self._redactor = redactor_of(settings)
        self.backend = memory.store.health().backend

    async def look_up(self, work: Callable[[], T]) -> T:
        """One thing by its id. A file answers sooner than a thread is woken; a server is waited for
        elsewhere.
        """
        return work() if self.backend == "sqlite" else await asyncio.to_thread(work)

    def caller(self, request: AnyRequest, access: Access = "read") -> Caller:
        """Who sends a request; refused if their token does not allow as much."""
        caller: Caller = request.scope[CALLER]  # type: ignore[literal-required]  # put there by the guard
        caller.must(access)
        return caller

    def follow(self, events: Sequence[Event]) -> None:
        """Checkpoint what is due after observations; they are kept, whatever becomes of that."""
        if self.settings.state.checkpoint_every is None:
            return
        try:
            self.memory.subjects.observed(events)
        except EmError as error:
            say(level="error", event="checkpoint", code=error.code, message=str(error))

    def model(self) -> LlmClient:
        """The model that the server has; where it has none, that is said."""
        from em.llm import get_llm_client

        return get_llm_client(settings=self.settings)

    async def carry_out(
        self,
        request: AnyRequest,
        key: str | None,
        data: T,
        work: Callable[[T, Pending], None],
        access: Access = "write",
    ) -> Response[Any]:
        """Do what a request asks, once for each key. Secrets are taken out of it first."""
        caller = self.caller(request, access)
        payload = self._redactor.value(msgspec.to_builtins(data))
        clean = msgspec.convert(payload, type(data))
        what = f"{request.method} {request.url.path}"
        answered = await self._requests.carry_out(
            key, caller.name, what, payload, lambda pending: work(clean, pending)
        )
        if answered.replayed:
            self.metrics.replayed()
        return Response(
            content=bytes(answered.body),
            status_code=answered.status,
            media_type="application/json",
            headers={"Idempotency-Replayed": "true"} if answered.replayed else None,
        )


def service_of(request: AnyRequest) -> Service:
    """The service that a request came to. Not injected: the framework would copy it each time."""
    service: Service = request.app.state.service
    return service


def page(found: Iterable[T], limit: int, offset: int) -> tuple[Sequence[T], Pagination]:
    """A part of a collection, and where it is in all of it."""
    items = iter(found)
    total = sum(1 for _ in islice(items, offset))
    shown = list(islice(items, limit))
    total += len(shown) + sum(1 for _ in items)
    return shown, Pagination(limit, offset, total)
