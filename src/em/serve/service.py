"""What the handlers share: the memory, idempotent requests, common parameters, pagination."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.exceptions import ClientException

from em.deadline import current, suspended
from em.errors import EmError, InputError, KeyReused, ResponseGone, StoreBusy
from em.llm.client import LlmClient
from em.log.event import Draft, Event
from em.memory import Memory
from em.redaction.masker import without_secrets
from em.serve.auth import Access, Caller
from em.serve.guard import CALLER, log_line
from em.serve.threads import Threads
from em.settings import ApiSettings, Settings
from em.store import redactor_of
from em.store.log import newest_first
from em.store.preparation import refuse_secret_name
from em.store.protocol import Claim, Commit, RequestOutcome, Store
from em.values.canonical import MAX_DEPTH, depth_of
from em.work.job import refuse_secrets

if TYPE_CHECKING:
    from em.work.queue import Queue

LONGEST_KEY = 255
DEEPEST = 2 * MAX_DEPTH
"""Levels of nesting of a body: those of what it holds, and its own around them."""
SMALL = 65_536
"""Bytes of a body that is decoded on the event loop: a thread would take longer."""
FIRST_WAIT, LONGEST_WAIT = 0.02, 0.5
_encode = msgspec.json.Encoder(order="sorted").encode


class Answered(msgspec.Struct, frozen=True):
    """A response, as it is sent and stored."""

    status: int
    body: msgspec.Raw
    replayed: bool = False


class Pending:
    """A request under way. Whoever commits its work commits its response with it.

    about: the subjects that the request names, each with an event about it from before the work
    began; None if there was none.
    """

    def __init__(
        self, key: str = "", owner: str = "", about: Mapping[str, str | None] | None = None
    ) -> None:
        self.key = key
        """The key under which the response is stored; empty if the client sent none."""
        self._owner = owner
        self._about = about or {}
        self.answered: Answered | None = None

    def answer(
        self, value: Any, status: int = 201, from_events: tuple[str, ...] = ()
    ) -> RequestOutcome | None:
        """Set the response; return what to commit with the work, or None without a key."""
        self.answered = Answered(status, msgspec.Raw(_encode(value)))
        if not self.key:
            return None
        stored = _encode({"status": status, "body": self.answered.body})
        return RequestOutcome(
            key=self.key, owner=self._owner, response=stored, from_events=from_events
        )

    def commit(
        self, store: Store, events: list[Draft], value: Any, status: int = 201
    ) -> Sequence[Event]:
        """Store events, which have ids, together with the response; return the stored events."""
        ids = tuple(event.id for event in events if event.id is not None)
        outcome = self.answer(value, status, ids)
        return store.commit(Commit(events=events, request=outcome)).events

    def finish(self, store: Store, value: Any, status: int, from_events: Iterable[str]) -> None:
        """Store the response to work that is done, whatever the time; or that changed nothing.

        It is forgotten with `from_events`, what it shows, and with each subject that the request
        names: a question about somebody is theirs, whatever the answer was made of. If no event
        could forget it, it is not stored, and the request is carried out again if it is repeated.
        """
        with suspended():
            outcome = self.answer(value, status)
            if outcome is None:
                return
            ties = [event or event_about(store, subject) for subject, event in self._about.items()]
            sources = [one for one in dict.fromkeys([*from_events, *ties]) if one is not None]
            if not sources or None in ties:
                store.release(self.key, self._owner)
                return
            tied = msgspec.structs.replace(outcome, from_events=sources)
            store.commit(Commit(request=tied))


def event_about(store: Store, subject: str) -> str | None:
    """Return the id of an event that goes when a subject is forgotten; None if there is none."""
    newest = newest_first(store, subject=subject)
    return next((one.id for one in newest if one.kind != "erased"), None)


def subjects_in(data: Any) -> set[str]:
    """Return the subjects that a request names, in whichever of its shapes."""
    if not isinstance(data, msgspec.Struct):
        return set()
    fields = msgspec.structs.asdict(data)
    found = {each for one in fields.values() for each in subjects_in(one)}
    named = fields.get("subject")
    return found if named is None else {named, *found}


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
        self,
        key: str | None,
        caller: str,
        fingerprint: str,
        subjects: Iterable[str],
        work: Work,
    ) -> Answered:
        """Do the work and return its response, or the stored response of an earlier request.

        fingerprint: of what the request asks.
        subjects: those that the request names; forgetting one forgets the response.
        """
        if key is None:
            return await asyncio.to_thread(_carry_out, Pending(), work)
        if not 1 <= len(key) <= LONGEST_KEY or not key.isprintable():
            raise InputError(
                f"a key must have 1 to {LONGEST_KEY} printable characters, got {len(key)}",
                place="Idempotency-Key",
            )
        # Hash it with the caller's name: keys are per caller, and may look like secrets.
        name = "http/" + sha256(_encode((caller, key))).hexdigest()
        claim = await self._claim(name, fingerprint)
        if claim.status == "mismatch":
            raise KeyReused(
                "this key was used for a different request",
                place="Idempotency-Key",
                fix="use a new key for each new request",
            )
        if claim.status == "erased":
            raise ResponseGone(
                "the request was carried out; its response has been forgotten since",
                place="Idempotency-Key",
            )
        if claim.status == "done":
            known = msgspec.json.decode(claim.response or b"", type=Answered)
            return msgspec.structs.replace(known, replayed=True)

        def begin() -> Answered:
            # Looked up before the work: what is forgotten meanwhile must not be stored again.
            about = {subject: event_about(self._store, subject) for subject in subjects}
            return _carry_out(Pending(name, claim.owner, about), work)

        try:
            return await asyncio.to_thread(begin)
        except BaseException:
            # Failed requests are not stored: the client may retry with the same key.
            with suspended():
                await asyncio.shield(asyncio.to_thread(self._store.release, name, claim.owner))
            raise

    async def _claim(self, name: str, fingerprint: str) -> Claim:
        """Claim a key; wait while another request holds it."""
        deadline = time.monotonic() + 2 * self._lease.total_seconds()
        wait = FIRST_WAIT
        while True:
            claim = await asyncio.to_thread(
                self._store.claim, name, fingerprint, lease=self._lease, keep=self._keep
            )
            if claim.status != "running":
                return claim
            if time.monotonic() > deadline:
                raise StoreBusy(
                    "the first request with this key is still running", fix="retry later"
                )
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def _carry_out(pending: Pending, work: Work) -> Answered:
    work(pending)
    assert pending.answered is not None
    return pending.answered


T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
AnyRequest = Request[Any, Any, Any]


class JsonRequest(AnyRequest):
    """A request whose body is refused here if it is not JSON that em can work with.

    So whatever raises behind this is an error of em, not of the caller.
    """

    async def json(self) -> Any:
        """Return the decoded body."""
        body = await self.body()
        return read_json(body) if len(body) < SMALL else await asyncio.to_thread(read_json, body)


def read_json(body: bytes) -> Any:
    """Decode a body, or respond with 400: it is missing, not JSON, or nested too deeply."""
    if not body:
        raise no_body()
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ClientException(f"the body is not JSON: {error}") from None
    if body.count(b"{") + body.count(b"[") > DEEPEST and depth_of(value) > DEEPEST:
        raise _too_deep()
    return value


def no_body() -> ClientException:
    """Return the error for a request without the body that it needs."""
    return ClientException("a JSON body is needed, and there is none", extra=[{"key": "body"}])


def _too_deep() -> InputError:
    return InputError(
        f"the body is nested more than {DEEPEST} levels deep", place="body", fix="flatten it"
    )


class Service:
    """One memory, served."""

    def __init__(self, memory: Memory, settings: Settings, stopping: threading.Event) -> None:
        self.memory = memory
        self.stopping = stopping
        """Set once the service stops: it finishes what it has, and wants no more."""
        self.store = memory.store
        self.settings = settings
        self._requests = Requests(memory.store, settings.api)
        self._redactor = redactor_of(settings)
        self.backend = memory.store.health().backend
        self.threads = Threads()
        self._queue: Queue | None = None
        self._opening = threading.Lock()
        self.looks = ThreadPoolExecutor(1, thread_name_prefix="em-health")
        """For looks at the store that must be answered while all other threads have work."""

    @asynccontextmanager
    async def at_work(self, _app: object) -> AsyncIterator[None]:
        """Let the event loop do blocking work in the threads of this service."""
        asyncio.get_running_loop().set_default_executor(self.threads)
        try:
            yield
        finally:
            self.looks.shutdown(wait=False)
            if self._queue is not None:
                self._queue.close()

    async def look_up(self, work: Callable[[], T]) -> T:
        """Look up one thing by its id: in a thread, except in SQLite, which is faster than that."""
        return work() if self.backend == "sqlite" else await asyncio.to_thread(work)

    def caller(self, request: AnyRequest, access: Access = "read") -> Caller:
        """Return the caller of a request; raise Forbidden if its token does not allow `access`."""
        caller: Caller = request.scope[CALLER]  # type: ignore[literal-required]  # set by the guard
        caller.must(access)
        return caller

    def queue(self) -> "Queue":
        """Return the queue of the memory, opened once."""
        from em.work.queue import Queue

        with self._opening:
            self._queue = self._queue or Queue(self.memory, self.settings)
            return self._queue

    def made_queue(self) -> "Queue | None":
        """Return the queue, or None if nothing was ever queued: to look at it does not make it."""
        from em.work.ledger import Ledger

        if self._queue is None:
            ledger = Ledger(self.memory.address)
            try:
                if not ledger.exists():
                    return None
            finally:
                ledger.close()
        return self.queue()

    def follow(self, events: Sequence[Event]) -> None:
        """Make the checkpoints that are due after observations. Failures are only logged."""
        if self.settings.state.checkpoint_every is None:
            return
        try:
            self.memory.subjects.observed({event.subject: event.pos for event in events})
        except EmError as error:
            log_line(level="error", event="checkpoint", code=error.code, message=str(error))

    def model(self) -> LlmClient:
        """Return the model that the server is configured with, or raise if there is none."""
        from em.llm import get_llm_client

        return get_llm_client(settings=self.settings)

    def is_run(self) -> None:
        """Give the request that is handled here as long as a run may take."""
        limit = current()
        if limit is not None:
            api = self.settings.api
            limit.extend(max(api.run_seconds, api.request_seconds))

    def refuse_secrets(self, data: msgspec.Struct) -> None:
        """Refuse a payload with a secret: a run would act on the marker in its place."""
        self._refuse_secret_subjects(data)
        refuse_secrets(msgspec.to_builtins(data), self._redactor, "body", "service")

    def _refuse_secret_subjects(self, data: msgspec.Struct) -> set[str]:
        subjects = subjects_in(data)
        for subject in subjects:
            refuse_secret_name(subject, self._redactor, "subject")
        return subjects

    async def carry_out(
        self,
        request: AnyRequest,
        key: str | None,
        data: S,
        work: Callable[[S, Pending], None],
        access: Access = "write",
    ) -> Response[Any]:
        """Do what a request asks, once for each key, after removing secrets from its payload.

        So nothing behind this can store, log or send one, nor where the payload echoes it.
        """
        caller = self.caller(request, access)
        what = f"{request.method} {request.url.path}"
        clean, subjects, fingerprint = await asyncio.to_thread(self._cleaned, data, what)
        answered = await self._requests.carry_out(
            key, caller.name, fingerprint, subjects, lambda pending: work(clean, pending)
        )
        return Response(
            content=bytes(answered.body),
            status_code=answered.status,
            media_type="application/json",
            headers={"Idempotency-Replayed": "true"} if answered.replayed else None,
        )

    def _cleaned(self, data: S, what: str) -> tuple[S, set[str], str]:
        """Return a payload without secrets, its subjects, and a fingerprint of the request."""
        subjects = self._refuse_secret_subjects(data)
        clean = without_secrets(data, self._redactor)
        asked = _encode((what, msgspec.to_builtins(clean)))
        return clean, subjects, sha256(asked).hexdigest()


def service_of(request: AnyRequest) -> Service:
    """Return the service of a request. Not injected: the framework would copy it each time."""
    service: Service = request.app.state.service
    return service
