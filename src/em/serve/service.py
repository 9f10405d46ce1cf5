"""What the handlers share: the memory, its settings, and how a request is carried out."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from hashlib import sha256
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter

from em.errors import EmError, InputError, KeyReused, ResponseGone, StoreBusy
from em.llm.client import LlmClient
from em.log.event import Draft, Event
from em.memory import Memory
from em.serve.api.shapes import Pagination
from em.serve.auth import Access, Caller
from em.serve.guard import CALLER, ErrorBody, Metrics, say
from em.settings import ApiSettings, Settings
from em.store import redactor_of
from em.store.protocol import Claim, Commit, RequestOutcome, Store

LONGEST_KEY = 255
FIRST_WAIT, LONGEST_WAIT = 0.02, 0.5
_encode = msgspec.json.Encoder(order="sorted").encode


class Answered(msgspec.Struct, frozen=True):
    """A response: as it is sent, and as it is kept."""

    status: int
    body: msgspec.Raw
    replayed: bool = False


class Pending:
    """A request that is carried out: who writes gives the response to be committed with it."""

    def __init__(self, key: str = "", owner: str = "") -> None:
        self._key = key
        self._owner = owner
        self.answered: Answered | None = None

    @property
    def key(self) -> str:
        """The key under which the response is kept; empty where the client gave none."""
        return self._key

    def answer(
        self, value: Any, status: int = 201, from_events: tuple[str, ...] = ()
    ) -> RequestOutcome | None:
        """Say what the answer is; what to commit with the work, where there is a key."""
        self.answered = Answered(status, msgspec.Raw(_encode(value)))
        if not self._key:
            return None
        kept = _encode({"status": status, "body": self.answered.body})
        return RequestOutcome(
            key=self._key, owner=self._owner, response=kept, from_events=from_events
        )

    def commit(
        self, store: Store, events: list[Draft], value: Any, status: int = 201
    ) -> Sequence[Event]:
        """Store events, which have ids, together with the response; return the stored events."""
        ids = tuple(event.id for event in events if event.id is not None)
        outcome = self.answer(value, status, ids)
        return store.commit(Commit(events=events, request=outcome)).events

    def finish(self, store: Store, value: Any, status: int, from_events: Iterable[str]) -> None:
        """Store the response to work that is committed already; `from_events` is what it shows."""
        outcome = self.answer(value, status, tuple(from_events))
        if outcome is not None:
            store.commit(Commit(request=outcome))


Work = Callable[[Pending], None]


class Requests:
    """Carry requests out, each idempotency key once.

    The same key and payload get the same response, byte for byte, and one effect: the response is
    committed in the same transaction as what the request did. While the first request runs, in this
    process or another, a second one waits for its response. If the first one dies, its lease
    expires and the second one takes over.
    """

    def __init__(self, store: Store, settings: ApiSettings) -> None:
        self._store = store
        self._lease = timedelta(seconds=settings.lease_seconds)
        self._keep = timedelta(hours=settings.idempotency_hours)

    async def carry_out(
        self, key: str | None, caller: str, what: str, payload: Any, work: Work
    ) -> Answered:
        """Do the work and answer; or answer as it was answered before."""
        if key is None:
            return await asyncio.to_thread(_carry_out, Pending(), work)
        if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
            raise InputError(
                f"a key has 1 to {LONGEST_KEY} printable characters", place="Idempotency-Key"
            )
        # Hashed: one caller's key is not another's, and a key may look like a secret.
        name = "http/" + sha256(_encode((caller, key))).hexdigest()
        claim = await self._claim(name, sha256(_encode((what, payload))).hexdigest())
        if claim.status == "mismatch":
            raise KeyReused(
                "this key stands for another request",
                place="Idempotency-Key",
                fix="send a new key with a new request",
            )
        if claim.status == "erased":
            raise ResponseGone("it was carried out, and its response was forgotten since")
        if claim.status == "done":
            known = msgspec.json.decode(claim.response or b"", type=Answered)
            return msgspec.structs.replace(known, replayed=True)
        try:
            return await asyncio.to_thread(_carry_out, Pending(name, claim.owner), work)
        except BaseException:
            # Only what was completed is kept: the client may try again with the same key.
            await asyncio.shield(asyncio.to_thread(self._store.release, name, claim.owner))
            raise

    async def _claim(self, name: str, fingerprint: str) -> Claim:
        """Claim a key, waiting for who has it."""
        deadline = time.monotonic() + 2 * self._lease.total_seconds()
        wait = FIRST_WAIT
        while True:
            claim = await asyncio.to_thread(
                self._store.claim, name, fingerprint, lease=self._lease, keep=self._keep
            )
            if claim.status != "running":
                return claim
            if time.monotonic() > deadline:
                raise StoreBusy("the first request with this key is still running", fix="ask again")
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def _carry_out(pending: Pending, work: Work) -> Answered:
    work(pending)
    assert pending.answered is not None
    return pending.answered


T = TypeVar("T")
AnyRequest = Request[Any, Any, Any]

Limit = Annotated[int, QueryParameter(ge=1, le=200, description="At most so many.")]
Offset = Annotated[int, QueryParameter(ge=0, le=2**31 - 1, description="Leave out so many.")]
Moment = Annotated[str | None, QueryParameter(max_length=64, description="A date or a time.")]
Key = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
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
