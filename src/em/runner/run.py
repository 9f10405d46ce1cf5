"""A run: its result, its events, and the exceptions that end it before its last step."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, get_origin

import msgspec

from em.errors import EmError, NoEffect, NotAllowed, RoutineError, WorkflowError
from em.log.event import Event
from em.log.kinds import Edge, event_body, event_flow
from em.log.summary import Summary, event_summary, shown_text, shown_value
from em.runner.reason import Reason
from em.values.canonical import Json

Status = Literal["ok", "failed", "needs_input", "cancelled"]
INPUTS = "inputs"
"""The step id of the question for missing inputs."""
Asks = bool | Literal["steps"]
"""Whether a run may wait for an answer: to any question, or only to those of its steps."""
StepStatus = Literal["done", "skipped", "failed", "defaulted"]
HANDED_OVER = "handed_over"
"""The status in lists of a run whose result is `needs_input` with a reason."""
Item = int | str | None
"""Which one of several calls of a step: the number of its item, or of its turn in a block.

In a block within a block, and for the items of a step in a block, the numbers are joined: `2.0`.
"""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed: the step, the error, and what it was called with."""

    step_id: str
    error_type: str
    message: str
    context: Json = {}


class PendingPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a run asks a person. `problem`: what is wrong with the last answer."""

    step_id: str
    message: str
    fields: Sequence[Json] = ()
    problem: str = ""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """How one step ended. A step that is done has `error` and `fix` if a fix was needed."""

    id: str
    status: StepStatus
    attempts: int = 0
    duration_ms: float = 0.0
    error: str = ""
    fix: Json | None = None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: ok has `output`, failed `failure`, needs_input `pending_prompt`.

    A run that handed over is `needs_input` too: it has a `reason` instead of a prompt, did nothing,
    and can't be resumed.

    chosen: a required input that was not given, where only this value passed all checks.

    Only a result that was read from the journal is `cancelled`: the run itself raises Cancelled.
    """

    run_id: str
    status: Status
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    reason: Reason | None = None
    context: Json = {}
    steps: Sequence[StepReport] = ()
    chosen: Json = {}


T = TypeVar("T")
Value = Annotated[T, "a value of the run"]
"""The type of a field of an event that may hold secrets, which are masked there."""


@event_body("run_started")
class RunStarted(msgspec.Struct, frozen=True):
    """A routine begins to run: one in a folder, or one stored as `name@version`.

    code: digests of its functions and tools. A resumed run must have the same.
    """

    routine: str
    hash: str
    input: Value[Json]
    folder: str = ""
    stored: str = ""
    resume_with: str = ""
    code: list[tuple[str, str]] = []


@event_summary("run_started")
def _summarise_start(made: Summary, body: Json, _at: datetime) -> None:
    made.name, made.status = body["routine"], "running"
    made.shown = {"input": shown_value(body["input"])}
    if body.get("stored"):
        made.shown["stored"] = body["stored"]


@event_body("step_started")
class StepStarted(msgspec.Struct, frozen=True):
    """A step with an effect is about to run."""

    step: str
    tool: str = ""
    item: Item = None
    item_hash: str = ""
    args: Value[Any] = None
    key: Value[Any] = None
    from_events: list[str] = []


@event_body("step_done")
class StepDone(msgspec.Struct, frozen=True):
    """A step ended: done, skipped, defaulted after an error, or failed although its call returned.

    `next` is about to run.
    """

    step: str
    item: Item = None
    item_hash: str = ""
    result: Value[Any] = None
    status: str = "done"
    attempts: int = 1
    duration_ms: float = 0.0
    error: Value[str] = ""
    fix: Value[Json | None] = None
    next: StepStarted | None = None
    from_events: list[str] = []


@event_body("run_paused")
class RunPaused(msgspec.Struct, frozen=True):
    """A run waits for a person."""

    prompt: Value[Json]
    from_events: list[str] = []


@event_body("run_resumed")
class RunResumed(msgspec.Struct, frozen=True):
    """A run goes on. It has had no effect yet, so it makes its reads again."""

    reads_again: bool = True


@event_body("run_retried")
class RunRetried(msgspec.Struct, frozen=True):
    """A run that failed or was cancelled goes on where it stopped. by: who wanted it."""

    by: str = ""


@event_body("run_cancelled")
class RunCancelled(msgspec.Struct, frozen=True):
    """A run stops before its next step. by: who wanted it."""

    by: str = ""


@event_body("run_answered")
class RunAnswered(msgspec.Struct, frozen=True):
    """Somebody answered."""

    answers: Value[dict[str, Json]]


@event_body("run_ended")
class RunEnded(msgspec.Struct, frozen=True):
    """A run is over."""

    status: str
    output: Value[Any] = None
    failure: Value[Json | None] = None
    reason: Value[Json | None] = None
    from_events: list[str] = []


@event_flow("run_started")
def later_events(events: Sequence[Event]) -> Iterator[Edge]:
    """Yield an edge from each event to the next, which may hold something of it.

    Which of the input and of earlier results a step used is in its routine, which may be gone. So
    what came later is forgotten with what came before.
    """
    for before, after in pairwise(events):
        yield before.id, after.id


VALUES = frozenset(
    field.name
    for body in (RunStarted, StepStarted, StepDone, RunPaused, RunAnswered, RunEnded)
    for field in msgspec.structs.fields(body)
    if get_origin(field.type) is Annotated
)
"""The fields of events that hold values of the run."""


@event_summary("run_paused")
def _summarise_pause(made: Summary, body: Json, _at: datetime) -> None:
    made.status = body.get("status", "needs_input")
    made.shown["note"] = shown_text(body["prompt"].get("message", ""))
    made.shown["asks"] = str(body["prompt"].get("step_id", ""))


@event_summary("run_answered", "run_resumed", "run_retried")
def _summarise_resumption(made: Summary, _body: Json, _at: datetime) -> None:
    made.status, made.ended = "running", None
    made.shown.pop("note", None)


@event_summary("run_cancelled")
def _summarise_cancellation(made: Summary, body: Json, at: datetime) -> None:
    made.status, made.ended = "cancelled", at
    made.shown["note"] = shown_text(f"cancelled by {body['by']}" if body.get("by") else "")


@event_summary("run_ended")
def _summarise_end(made: Summary, body: Json, at: datetime) -> None:
    # Nobody can answer a run that handed over: it is not among those that wait.
    made.status, made.ended = HANDED_OVER if body.get("reason") else body["status"], at
    failure = body.get("failure") or {}
    made.shown["note"] = shown_text((failure or body.get("reason") or {}).get("message", ""))
    if failure:
        made.shown["error"] = shown_text(failure.get("error_type", ""))


class Reports:
    """Collects the reports of a run; calls `on_step` with each."""

    __slots__ = ("_on_step", "made")

    def __init__(self, on_step: Callable[[StepReport], None] | None) -> None:
        self._on_step = on_step
        self.made: list[StepReport] = []

    def add(
        self,
        step_id: str,
        status: StepStatus,
        attempts: int,
        start: float,
        error: str = "",
        fix: Json | None = None,
    ) -> None:
        """Report how a step ended that began at `start`."""
        took = (time.perf_counter() - start) * 1e3
        self.tell(
            StepReport(
                id=step_id,
                status=status,
                attempts=attempts,
                duration_ms=took,
                error=error,
                fix=fix,
            )
        )

    def tell(self, report: StepReport) -> None:
        """Add a report that was made before."""
        self.made.append(report)
        if self._on_step is not None:
            self._on_step(report)


class CheckFailed(RoutineError):
    """A check or an assertion of a routine failed."""

    code = "check_failed"


class UnexpectedResult(RoutineError):
    """A call was made, and returned something else than it must. It is not repeated."""

    code = "unexpected_result"


class OutputMissing(RoutineError):
    """All calls with an effect were made, and the output can't be put together or does not fit."""

    code = "output_missing"


class Declined(WorkflowError):
    """A person did not agree to a step."""

    code = "declined"


class UnknownOutcome(Exception):
    """A call was made and its outcome is unknown: it may have had its effect, or have it yet."""


class StepTimeout(UnknownOutcome):
    """A call ran past its timeout. It may still be running."""


_NOT_SENT = frozenset(
    "builtins.ConnectionRefusedError socket.gaierror ssl.SSLCertVerificationError"
    " httpx.ConnectError httpx.ConnectTimeout httpx.PoolTimeout httpx.ProxyError"
    " httpx.UnsupportedProtocol httpx.LocalProtocolError"
    " requests.ConnectTimeout requests.ProxyError requests.SSLError"
    " urllib3.ConnectTimeoutError urllib3.NewConnectionError urllib3.ProxyError urllib3.SSLError"
    " aiohttp.ClientConnectorError aiohttp.ConnectionTimeoutError".split()
)
"""Errors of HTTP libraries and of Python, by package and name: the request was not sent."""

_NO_ANSWER = frozenset(
    "builtins.TimeoutError builtins.ConnectionResetError builtins.ConnectionAbortedError"
    " builtins.BrokenPipeError http.IncompleteRead http.BadStatusLine"
    " httpx.TransportError httpx.DecodingError"
    " requests.Timeout requests.ChunkedEncodingError requests.ContentDecodingError"
    " urllib3.TimeoutError urllib3.ProtocolError urllib3.DecodeError"
    " aiohttp.ServerConnectionError aiohttp.ClientPayloadError aiohttp.ClientOSError".split()
)
"""The same: the request was sent, and no whole answer came."""


UNDONE = "none: the call had no effect"
"""The outcome in the context of a failure if the call that failed surely had no effect."""


def outcome_is_unknown(error: BaseException) -> bool:
    """Return whether a call that raised this may have had its effect all the same.

    True for a timeout, for a connection that broke while the answer was awaited, and for a status
    of 500 or above. An error that a tool raised because of another one counts as that one.
    """
    return _may_have_happened(error) is True


def did_not_happen(error: BaseException) -> bool:
    """Return whether a call that raised this surely had no effect.

    True if nothing was sent, it was not allowed, the server refused it, or the tool says so
    (`NoEffect`). Any other error of a tool does not say how far it came.
    """
    return _may_have_happened(error) is False


def _may_have_happened(error: BaseException) -> bool | None:
    """Return whether a call may have had its effect; None if its error does not say."""
    seen: list[BaseException] = []
    following: list[Any] = [error]
    while following:
        one = following.pop(0)
        if not isinstance(one, BaseException) or one in seen:
            continue
        seen.append(one)
        known = _sent_without_answer(one)
        if known is not None:
            return known
        # Libraries put the error that they wrap into its arguments or into `reason`.
        following += [getattr(one, "reason", None), *one.args, one.__cause__]
        following += [] if one.__suppress_context__ else [one.__context__]
    return None


def _sent_without_answer(error: BaseException) -> bool | None:
    """Return what one error says by itself; None if it says nothing."""
    if isinstance(error, UnknownOutcome | NotAllowed | NoEffect):
        return isinstance(error, UnknownOutcome)
    status = _status(error)
    if status is not None:
        return status >= 500
    for kind in type(error).__mro__:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        if name in _NOT_SENT:
            return False
        if name in _NO_ANSWER:
            return True
    return None


def _status(error: BaseException) -> int | None:
    """Return the HTTP status that an error of httpx, requests, urllib or aiohttp is about."""
    for holder, field in (
        (getattr(error, "response", None), "status_code"),
        (error, "code"),  # urllib
        (error, "status"),  # aiohttp
    ):
        status = getattr(holder, field, None)
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return None


class Mismatch(RoutineError):
    """A resumed run finds other items than it began with. Raised; nothing is written."""

    code = "resumed_differently"


class Pause(Exception):
    """The run waits for a person; `in_flight`: it only asks for the outcome of a call."""

    def __init__(self, prompt: PendingPrompt, *, in_flight: bool = False) -> None:
        self.prompt = prompt
        self.in_flight = in_flight


class Failed(Exception):
    """The run ends with this failure."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def failure_of(step_id: str, error: Exception, context: Json) -> Failure:
    """Return an error as the failure of a run."""
    message = str(error) or type(error).__name__
    return Failure(
        step_id=step_id, error_type=type(error).__name__, message=message, context=context
    )


def quietly(evaluate: Callable[[Json], Any], scope: Json) -> Any:
    """Evaluate the arguments of a call that failed; empty if evaluating is what failed."""
    try:
        return evaluate(scope)
    except EmError:
        return {}


def plain(value: Any) -> Any:
    """Return a value as plain JSON values, for a report."""
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return repr(value)
